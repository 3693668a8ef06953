"""The table as a Zarr v3 store: zarr-python's own tests where they apply, and the values that were written."""

from __future__ import annotations

import functools
import inspect
import os
import pickle
import sqlite3
from contextlib import closing
from typing import Any

import numpy as np
import pytest
import xarray
import zarr
from zarr.core.buffer import Buffer, cpu, default_buffer_prototype
from zarr.core.sync import _collect_aiterator, sync
from zarr.testing.store import StoreTests

import byterefs
from byterefs.errors import EmitError, RangeError
from byterefs.reader.zarr_store import TableStore
from reading import FORMS, Archive
from serving import web

WRITING = (
    "set", "set_not_open", "set_many", "set_invalid_buffer", "set_if_not_exists", "delete", "delete_dir",
    "delete_nonexistent_key_does_not_raise", "clear", "is_empty", "list", "list_prefix", "list_empty_path",
    "list_dir", "get", "get_not_open", "get_many", "getsize", "getsize_prefix", "get_partial_values", "exists",
    "serializable_store", "store_read_only", "store_open_read_only", "with_read_only_store",
)  # fmt: skip
"""zarr-python's tests that put keys of their own into a store; below are ours of the same names"""


@pytest.fixture(scope="module")
def archive(tmp_path_factory):
    made = Archive(tmp_path_factory.mktemp("zarr"))
    made.publish()
    return made


def run(coroutine: Any) -> Any:
    return sync(coroutine)


@pytest.mark.parametrize("form", FORMS)
class TestTableStore(StoreTests[TableStore, cpu.Buffer]):
    store_cls = TableStore
    buffer_cls = cpu.Buffer

    @pytest.fixture
    def store_kwargs(self, archive, form):
        return {"location": str(archive.root / FORMS[form]), "read_only": True}

    @pytest.fixture
    def store(self, open_kwargs):
        with sync(TableStore.open(**open_kwargs)) as store:
            yield store

    @pytest.fixture
    def store_not_open(self, store_kwargs):
        with TableStore(**store_kwargs) as store:
            yield store

    async def set(self, store: TableStore, key: str, value: Buffer) -> None:
        """Nothing: ``test_get_raises`` wants its key to be refused before it is looked up."""

    async def get(self, store: TableStore, key: str) -> Buffer:
        raise NotImplementedError

    def test_store_repr(self, store):
        assert repr(store) == f"TableStore({store.location!r}, target='access')"

    def test_store_supports_writes(self, store):
        assert not store.supports_writes

    def test_store_supports_listing(self, store):
        assert store.supports_listing

    def test_serializable_store(self, store):
        again = pickle.loads(pickle.dumps(store))
        key = "sst/c/1/0/0"
        assert again == store
        assert again.read_only
        assert (
            run(again.get(key, default_buffer_prototype())).to_bytes()
            == run(store.get(key, default_buffer_prototype())).to_bytes()
        )
        again.close()

    def test_store_read_only(self, store):
        assert store.read_only
        with pytest.raises(AttributeError):
            store.read_only = False

    def test_store_open_read_only(self, open_kwargs):
        with pytest.raises(ValueError, match="a published table is read-only"):
            TableStore(**open_kwargs | {"read_only": False})

    def test_with_read_only_store(self, store):
        with pytest.raises(ValueError, match="read-only"):
            store.with_read_only(read_only=False)
        with store.with_read_only(read_only=True) as again:
            assert again == store

    def test_get(self, store, archive):
        """A chunk's bytes are those at its place in the granule."""
        with_chunks = {
            key: run(store.get(key, default_buffer_prototype())) for key in run(keys(store))
        }
        assert None not in with_chunks.values()
        rows = store.table.find("sst", [range(n) for n in store.table.grid("sst")])
        assert len(rows) == 4 * 3 * 3
        for ref in rows:
            raw = archive.files[ref.key[0]].read_bytes()[ref.offset : ref.offset + ref.size]
            assert with_chunks["sst/c/" + "/".join(map(str, ref.key))].to_bytes() == raw

    def test_get_of_what_is_no_key_or_no_chunk_is_none(self, store):
        for key in ("sst/c/9/0/0", "sst/c/0/0", "sst/c/a/0/0", "sst/c", "nosuch/zarr.json", "sst", "x//zarr.json",
                    "gappy/c/0/0/0", "sst/c/0/0/-1", "sst/c/0/0/٣", "../zarr.json"):  # fmt: skip
            assert run(store.get(key, default_buffer_prototype())) is None

    def test_getsize_is_that_of_the_value(self, store):
        for key in run(keys(store)):
            assert run(store.getsize(key)) == len(run(store.get(key, default_buffer_prototype())))
        with pytest.raises(FileNotFoundError):
            run(store.getsize("gappy/c/0/0/0"))

    def test_exists(self, store):
        assert all(run(store.exists(key)) for key in ("zarr.json", "g/zarr.json", "sst/c/0/0/0"))
        assert not any(run(store.exists(key)) for key in ("gappy/c/0/0/0", "zarr", "h/zarr.json"))

    def test_list(self, store):
        listed = run(keys(store))
        assert len(listed) == len(set(listed))
        assert {k for k in listed if k.startswith("gappy/c")} == {
            f"gappy/c/{t}/0/1" for t in range(4)
        }
        for prefix in ("", "g", "g/", "sst/c/1", "sst/c/1/", "nosuch"):
            found = run(_collect_aiterator(store.list_prefix(prefix)))
            assert sorted(found) == sorted(k for k in listed if k.startswith(prefix))

    def test_list_dir(self, store):
        listed = run(keys(store))
        for prefix in ("", "g", "g/deep", "sst", "sst/c", "sst/c/1", "nosuch"):
            start = f"{prefix}/" if prefix else ""
            below = {k.removeprefix(start).split("/")[0] for k in listed if k.startswith(start)}
            assert set(run(_collect_aiterator(store.list_dir(prefix)))) == below


async def keys(store: TableStore) -> tuple[str, ...]:
    return await _collect_aiterator(store.list())


def synchronous(test: Any) -> Any:
    """A coroutine of zarr-python's as a test that pytest runs without a plugin."""

    @functools.wraps(test)
    def called(*args: Any, **kwargs: Any) -> None:
        sync(test(*args, **kwargs))

    return called


for _name, _test in vars(StoreTests).items():
    if _name.startswith("test_") and _name not in vars(TestTableStore):
        if _name.removeprefix("test_") in WRITING or "_sync" in _name:
            setattr(TestTableStore, _name, None)
        elif inspect.iscoroutinefunction(_test):
            setattr(TestTableStore, _name, synchronous(_test))


# --- through xarray and zarr -----------------------------------------------------------------------


@pytest.mark.parametrize("form", FORMS)
def test_xarray_reads_what_was_written(archive, form):
    with byterefs.open(archive.root / FORMS[form]) as store:
        opened = {"consolidated": False, "chunks": None}
        packed = xarray.open_zarr(store, mask_and_scale=False, **opened)
        for name in ("sst", "gappy", "small"):
            np.testing.assert_array_equal(packed[name].values, archive.values[name])
        deep = xarray.open_zarr(store, group="g", mask_and_scale=False, **opened)
        np.testing.assert_array_equal(deep["deep"].values, archive.values["g/deep"])
        decoded = xarray.open_zarr(store, **opened)
        assert str(decoded["time"].values[3])[:10] == "2020-01-04"
        valid = archive.values["sst"] != -999
        np.testing.assert_allclose(
            decoded["sst"].values[valid], archive.values["sst"][valid] * np.float32(0.01), rtol=1e-6
        )
        assert decoded.attrs["title"] == "reader test"


@pytest.mark.parametrize("form", FORMS)
def test_opening_asks_the_sources_for_nothing_and_neighbours_share_a_request(tmp_path, form):
    with web(tmp_path) as server:
        archive = Archive(tmp_path)
        archive.publish(public=server.url)
        with byterefs.open(f"{server.url}/{FORMS[form]}", target="public") as store:
            sst = zarr.open_group(store, mode="r")["sst"]
            assert not [path for _, path, _ in server.requests if path.endswith(".nc")]
            np.testing.assert_array_equal(sst[1:3], archive.values["sst"][1:3])
            asked = [path for _, path, _ in server.requests if path.endswith(".nc")]
            # 2 days of 9 chunks, 10 at a time: never one request per chunk
            assert len(asked) <= 4


@pytest.mark.parametrize("form", FORMS)
def test_a_source_that_is_not_what_was_scanned_is_an_error_and_never_fill(tmp_path, form):
    archive = Archive(tmp_path)
    archive.publish()
    archive.files[1].write_bytes(archive.files[1].read_bytes()[:-1])
    os.utime(archive.files[2], (1, 1))
    archive.files[3].unlink()
    with byterefs.open(archive.root / FORMS[form]) as store:
        sst = zarr.open_group(store, mode="r")["sst"]
        np.testing.assert_array_equal(sst[0], archive.values["sst"][0])
        for day, why in {
            1: "bytes, and had",
            2: "modified since it was scanned",
            3: "cannot be read",
        }.items():
            with pytest.raises(RangeError, match=rf"day{day}.nc.*{why}"):
                sst[day]
            with pytest.raises(RangeError, match=rf"day{day}.nc.*{why}"):
                byterefs.read(store.array("sst"), (day,))


def test_a_remote_source_of_another_size_or_etag_is_an_error_and_never_fill(tmp_path):
    with web(tmp_path) as server:
        archive = Archive(tmp_path / "a", days=2)
        archive.publish(public=f"{server.url}/a")
        archive.files[1].write_bytes(archive.files[1].read_bytes() + b"\0")
        with byterefs.open(tmp_path / "a/sqlite", target="public") as store:
            sst = store.array("sst")
            np.testing.assert_array_equal(byterefs.read(sst, (0,)), archive.values["sst"][0])
            with pytest.raises(RangeError, match=r"day1\.nc"):
                byterefs.read(sst, (1,))


def test_a_table_and_sources_in_a_bucket_are_read_by_range(tmp_path, s3_environment):
    archive = Archive(tmp_path / "a", days=2)
    archive.publish(public="s3://reader/a")
    s3_environment.bucket("reader")
    s3_environment.put_tree("reader", tmp_path / "a", "a/")
    for form in FORMS:
        with byterefs.open(f"s3://reader/a/{FORMS[form]}", target="public") as store:
            sst = zarr.open_group(store, mode="r")["sst"]
            np.testing.assert_array_equal(sst[1, 2:7], archive.values["sst"][1, 2:7])
            np.testing.assert_array_equal(byterefs.read(store.array("sst")), archive.values["sst"])


def test_an_array_that_zarr_cannot_decode_is_refused_by_name_and_can_be_dropped(tmp_path):
    import h5py

    import granules
    from building import build
    from byterefs import emitters

    path = tmp_path / "day.nc"
    with h5py.File(path, "w") as f:
        granules.pipeline(f, "fine", np.ones((1, 4, 4), "<i4"), (1, 4, 4), "deflate")
        granules.pipeline(f, "odd", np.ones((1, 4, 4), "<i4"), (1, 4, 4), "deflate")
        f["time"] = np.zeros(1)
        f["time"].make_scale("time")
        f["time"].attrs["units"] = "days since 2000-01-01"
        for name in ("fine", "odd"):
            f[name].dims[0].attach_scale(f["time"])
    with build(tmp_path, [path]) as view:
        emitters.load("sqlite").emit(view, tmp_path / "out", target="access", options={}, state={})
    with closing(sqlite3.connect(tmp_path / "out" / "store.sqlite")) as con, con:
        unknown = """{"compressor": {"id": "hdf5:4711", "cd_values": []}, "filters": []}"""
        con.execute("UPDATE arrays SET codec = ? WHERE array = 'odd'", (unknown,))
    with byterefs.open(tmp_path / "out") as store:
        with pytest.raises(EmitError, match=r"array 'odd'.*drop=\['odd'\]"):
            zarr.open_group(store, mode="r")["odd"]
        with pytest.raises(byterefs.errors.ByteRefsError, match=r"odd, chunk.*4711"):
            byterefs.read(store.array("odd"))
    with byterefs.open(tmp_path / "out", drop=["odd"]) as store:
        opened = xarray.open_zarr(store, consolidated=False, chunks=None)
        assert list(opened) == ["fine"]
        assert opened["fine"].values.sum() == 16
