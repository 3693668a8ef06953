"""The Icechunk form: one repository for every target, guarded references, one commit for an append."""

import json
import os
from pathlib import Path
from typing import Any

import icechunk as ic
import numcodecs
import numpy as np
import pytest
import xarray as xr
import zarr

import synthetic
from byterefs import grid
from byterefs.emitters import _icechunk, icechunk
from byterefs.emitters._icechunk_reader import own_containers, stored_config
from byterefs.errors import EmitError
from byterefs.model import Array, Placement, SourceArray, SourceScan
from conformance_emitters import PUBLIC, Archive, EmitterTests, bits, times, tree, whole


def opened(out: Path) -> ic.Repository:
    return ic.Repository.open(ic.local_filesystem_storage(str(out)))


def commits(out: Path) -> list[str]:
    """Messages from the first commit after the creation."""
    return [s.message for s in opened(out).ancestry(branch="main")][-2::-1]


def manifests(out: Path) -> set[str]:
    repo = opened(out)
    return {m.id for m in repo.list_manifest_files(repo.lookup_branch("main"))}


def unpacked(repo: Path) -> bytes:
    """The file ``repo`` behind its header."""
    data = repo.read_bytes()
    return bytes(numcodecs.Zstd().decode(data[data.index(b"\x28\xb5\x2f\xfd") :]))


class TestIcechunk(EmitterTests):
    FORM = "icechunk"
    EXACT = False

    def test_an_append_is_one_commit_and_no_change_is_none(self, archive: Archive) -> None:
        out = archive.folder / "out"
        with archive.view(1, 2) as view:
            state = self.emit(view, out)
            state = self.emit(view, out, state)
        assert commits(out) == ["demo: 2 sources"]
        with archive.view(3) as view:
            self.emit(view, out, state)
        assert commits(out) == ["demo: 2 sources", "demo: 3 sources"]

    def test_a_repository_without_its_state_is_built_again(self, archive: Archive) -> None:
        """A kill between the commit and the state leaves a repository that is ahead of it."""
        out = archive.folder / "out"
        with archive.view(1, 2) as view:
            state = self.emit(view, out)
        with archive.view(3) as view:
            self.emit(view, out, state)
            self.emit(view, out, state)
            self.check_same_as_rebuilt(archive, view, out)
        assert commits(out) == ["demo: 3 sources"]

    def test_a_manifest_that_was_lost_is_written_again(self, archive: Archive) -> None:
        out = archive.folder / "out"
        with archive.view(1, 2) as view:
            state = self.emit(view, out)
            next(iter((out / "manifests").iterdir())).unlink()
            self.emit(view, out, state)
            self.check_values(archive, view, out)

    def test_a_source_rewritten_in_place_is_refused_at_the_read(self, archive: Archive) -> None:
        archive.conf["remap"] = {}
        out = archive.folder / "out"
        with archive.view(1, 2) as view:
            self.emit(view, out)
            self.check_values(archive, view, out)
            stat = archive.path(1).stat()
            os.utime(archive.path(1), ns=(stat.st_atime_ns, stat.st_mtime_ns + 10 * 10**9))
            reader = self.open(view, out)
            with pytest.raises(ic.IcechunkError, match="has changed"):
                reader.read("packed", whole((2, 5, 7)))

    def test_an_mtime_guards_nothing_that_another_target_serves(self, archive: Archive) -> None:
        """The copy of a source has another mtime than the source."""
        out = archive.folder / "out"
        with archive.view(1) as view:
            self.emit(view, out)
            os.utime(archive.path(1), (4e9, 4e9))
            self.check_values(archive, view, out)

    def test_the_copy_for_a_target_differs_in_the_file_repo_only(self, archive: Archive) -> None:
        out, copy = archive.folder / "out", archive.folder / "copy"
        with archive.view(1, 2) as view:
            self.emit(view, out)
            icechunk.retarget(out, view, "public", copy)
            (slug,) = icechunk.container_urls(view, "public")
            reader = icechunk.open(copy, access=str, target="public")
            assert (
                reader.refs("packed").path[0] == "s3://bucket/a%20b/day%2001%20%2520%23%3F%C3%A9.nc"
            )
        assert own_containers(stored_config(copy)) == {slug: PUBLIC}
        assert str(archive.folder).encode() in unpacked(out / "repo")
        assert str(archive.folder).encode() not in unpacked(copy / "repo")
        one, two = tree(out), tree(copy)
        told = {"open.json", "OPEN.md", "containers.json"}
        assert {n for n in one.keys() | two.keys() if one.get(n) != two.get(n)} == {"repo", *told}
        assert json.loads((copy / "open.json").read_text())["target"] == "public"
        assert str(archive.folder) not in (copy / "open.json").read_text()

    def test_a_copy_that_is_up_to_date_is_left_alone(self, archive: Archive) -> None:
        out, copy = archive.folder / "out", archive.folder / "copy"
        with archive.view(1) as view:
            state = self.emit(view, out)
            icechunk.retarget(out, view, "public", copy)
            before = times(copy)
            icechunk.retarget(out, view, "public", copy)
            assert times(copy) == before
        with archive.view(2) as view:
            self.emit(view, out, state)
            icechunk.retarget(out, view, "public", copy)
            assert len(icechunk.open(copy, access=str, target="public").refs("packed").path) == 8

    def test_an_edited_container_is_noticed(self, archive: Archive) -> None:
        out = archive.folder / "out"
        with archive.view(1) as view:
            self.emit(view, out)
            config = stored_config(out)
            (slug,) = own_containers(config)
            config.set_virtual_chunk_container(
                ic.VirtualChunkContainer("https://elsewhere/", ic.http_store(), name=slug)
            )
            ic.Repository.open(ic.local_filesystem_storage(str(out)), config=config).save_config()
            with pytest.raises(EmitError, match="https://elsewhere/"):
                self.open(view, out)

    def test_the_configuration_knows_no_path_but_the_sources(self, archive: Archive) -> None:
        out = archive.folder / "out"
        with archive.view(1) as view:
            self.emit(view, out)
        config = stored_config(out)
        assert list(own_containers(config).values()) == [f"file://{archive.source('')}"]
        assert str(out) not in str(config)
        kept = config.storage
        assert kept is not None
        assert kept.retries is not None
        # what `print(icechunk.StorageSettings())` says of object stores; a local disk has 1
        assert kept.retries.max_tries == 10

    def test_codecs_dimension_names_and_byte_order_stand_in_zarr_json(
        self, archive: Archive
    ) -> None:
        with archive.view(1) as view:
            self.emit(view, archive.folder / "out")
        group = zarr.open_group(
            opened(archive.folder / "out").readonly_session("main").store, mode="r"
        )
        found = {
            n: a.metadata.to_dict()
            for n, a in group.members(max_depth=None)
            if n in ("big", "g/deep")
        }
        assert [c["name"] for c in found["g/deep"]["codecs"]] == [
            "bytes",
            "numcodecs.zlib",
            "numcodecs.fletcher32",
        ]
        assert found["big"]["codecs"] == ({"name": "bytes", "configuration": {"endian": "big"}},)
        assert found["big"]["dimension_names"] == ("time", "y", "x")

    def test_xarray_masks_by_cfs_fill_and_zarr_fills_by_the_storages(
        self, archive: Archive
    ) -> None:
        with archive.view(1) as view:
            self.emit(view, archive.folder / "out")
            store = self.open(view, archive.folder / "out")._group.store
        with xr.open_zarr(store, consolidated=False) as ds:
            assert ds["packed"].encoding["_FillValue"] == -999
            assert np.isnan(ds["sparse"].encoding["_FillValue"])
            assert "_FillValue" not in {**ds["big"].attrs, **ds["big"].encoding}

    def test_a_large_inline_chunk_is_a_native_chunk(self, tmp_path: Path) -> None:
        data = np.random.default_rng(0).bytes(2000)
        one = synthetic.meta("v", ("time", "y", "x"), (1, 1, 1000), chunks=(1, 1, 1000))
        none = np.full((1, 1, 1), -1, "i8")
        item = SourceArray(one, none, none, {(0, 0, 0): data})
        scan = SourceScan(synthetic.source(0), {"v": item, "time": synthetic.time(0)})
        with synthetic.table(tmp_path, [scan]) as view:
            emit(view, tmp_path / "out")
        reader = icechunk.open(tmp_path / "out", access=str)
        assert dict(reader.refs("v").data) == {0: data}
        assert bits(reader.read("v", whole((1, 1, 1000))))[-1] == data


def emit(view: Any, out: Path, state: Any = None, **options: Any) -> dict[str, Any]:
    return icechunk.emit(view, out, target="access", options=options, state=state or {})


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out"


# --- splits ----------------------------------------------------------------------------------------


def test_an_append_writes_one_manifest_and_leaves_the_others(tmp_path, out) -> None:
    with synthetic.table(tmp_path, [synthetic.scan(d) for d in range(20)]) as view:
        state = emit(view, out)
        assert state["splits"] == {"v": 8}
        before = manifests(out)
        assert len(before) == 3 + 1  # three splits of v, and time
    with synthetic.table(tmp_path, [synthetic.scan(20)]) as view:
        emit(view, out, state)
    assert len(manifests(out) & before) == 2  # the splits that were full


def test_a_year_of_days_keeps_splits_below_400_and_grows_them_by_powers() -> None:
    for days in (1, 365, 3199, 3200, 16_387, 40_000):
        size = _icechunk.split_size(daily(1), (days, 1, 1), None)
        assert size in (8 * 2**n for n in range(10))
        assert -(-days // size) < 400
    assert _icechunk.split_size(daily(1), (3199, 1, 1), None) == 8 * 2
    assert _icechunk.split_size(daily(1), (3191, 1, 1), None) == 8


def test_a_split_that_still_does_is_kept() -> None:
    assert _icechunk.split_size(daily(1), (100, 1, 1), 32) == 32
    assert _icechunk.split_size(daily(1), (40_000, 1, 1), 8) == 128


def test_splits_hold_whole_appends_and_less_than_a_million_rows() -> None:
    assert _icechunk.split_size(daily(31), (31, 1, 1), None) == 8 * 31
    assert _icechunk.split_size(daily(1), (30, 300, 300), None) == 8
    assert _icechunk.split_size(daily(1), (30, 1000, 600), None) == 1


def daily(steps: int) -> Any:
    """An array whose sources hold ``steps`` chunks along the first axis."""
    placement = Placement("a", "v", (0, 0, 0), (steps, 1, 1), (0, 0, 0))
    return Array(
        "v", "data", "referenced", ("t", "y", "x"), (9, 1, 1), (1, 1, 1), "<i2", None, {}, placements=(placement,)
    )  # fmt: skip


def test_a_split_that_must_change_rebuilds_the_repository(tmp_path, out, monkeypatch) -> None:
    monkeypatch.setattr(_icechunk, "MAX_SPLITS", 3)
    with synthetic.table(tmp_path, [synthetic.scan(d) for d in range(16)]) as view:
        state = emit(view, out)
        assert state["splits"] == {"v": 8}
    with synthetic.table(tmp_path, [synthetic.scan(16)]) as view:
        state = emit(view, out, state)
        assert state["splits"] == {"v": 16}
        check_rows(view, out)
    assert commits(out) == ["demo: 17 sources"]


def check_rows(view: Any, out: Path) -> None:
    rows, refs = icechunk.open(out, access=str).refs("v"), view.refs("v")
    assert list(rows.offset) == list(refs.offset)
    names = [None if i < 0 else f"file://{view.sources[i].source}" for i in refs.source]
    assert list(rows.path) == [
        n if o >= 0 else None for n, o in zip(names, refs.offset, strict=True)
    ]


def test_a_bulk_load_commits_whole_splits_and_ends_equal(tmp_path, out, monkeypatch) -> None:
    monkeypatch.setattr(icechunk, "BATCH_ROWS", 40)
    monkeypatch.setattr(grid, "FRAGMENT_ROWS", 18)
    with synthetic.table(tmp_path, [synthetic.scan(d) for d in range(30)]) as view:
        emit(view, out)
        check_rows(view, out)
    assert commits(out) == ["load", "load", "load", "demo: 30 sources"]
    assert len(manifests(out)) == 4 + 1


# --- guards and places -----------------------------------------------------------------------------


def test_each_source_has_its_own_checksum() -> None:
    local = synthetic.source(0)
    remote = synthetic.source(1, "/vsicurl/https://h", etag='"abc"')
    assert _icechunk.checksum(remote, only_here=False) == '"abc"'
    assert _icechunk.checksum(local._replace(etag='"abc"'), only_here=False) is None
    assert _icechunk.checksum(local, only_here=False) is None
    seen = _icechunk.checksum(local, only_here=True)
    assert seen is not None
    assert seen.isoformat() == "2020-09-13T12:26:42+00:00"  # 1,600,000,000.5 s, and one more


def test_sources_with_and_without_etag_keep_their_rows_apart(tmp_path, out) -> None:
    at = [
        synthetic.source(d, "/vsicurl/https://h/d", etag=e)
        for d, e in enumerate(['"a"', None, '"c"'])
    ]
    with synthetic.table(tmp_path, [synthetic.scan(d, at=s) for d, s in enumerate(at)]) as view:
        emit(view, out)
        rows = icechunk.open(out, access=str).refs("v")
        assert list(rows.offset) == list(view.refs("v").offset)
        assert rows.path[::6] == [f"https://h/d/day000{d}.nc" for d in range(3)]


def test_a_reference_that_icechunk_refuses_is_an_error_that_names_it(
    tmp_path, out, monkeypatch
) -> None:
    monkeypatch.setattr(_icechunk, "slug", lambda prefix: "known")
    with synthetic.table(tmp_path, [synthetic.scan(0)]) as view:
        places = _icechunk.Places(view)
        places.locations[0] = "vcc://unknown/day0000.nc"
        repo = ic.Repository.create(ic.in_memory_storage())
        session = repo.writable_session("main")
        icechunk.Loader(view, places, {}, {}).write_documents(session)
        flat = icechunk.Loader(view, places, {}, {}).flats["v"]
        (piece,) = _icechunk.pieces("v", flat, 0, 8)
        with pytest.raises(EmitError, match=r"v: Icechunk refused 6 .* \[0, 0, 0\].*vcc://unknown"):
            _icechunk.write_piece(session, piece, places)


def test_one_url_for_two_prefixes_is_refused_with_both(tmp_path, out) -> None:
    rules = {"public": {"/data/": "https://h/", "/other/": "https://h/"}}
    scans = [synthetic.scan(0), synthetic.scan(1, at=synthetic.source(1, "/other"))]
    with (
        synthetic.table(tmp_path, scans, remap=rules) as view,
        pytest.raises(EmitError, match=r"^/data/ and /other/: .*https://h/"),
    ):
        emit(view, out)


@pytest.mark.parametrize("character", ["%", "#", "?"])
def test_a_prefix_that_icechunk_cannot_match_is_refused(tmp_path, out, character) -> None:
    scan = synthetic.scan(0, at=synthetic.source(0, f"/da{character}ta"))
    rules = {"public": {f"/da{character}ta/": "https://h/"}}
    with (
        synthetic.table(tmp_path, [scan], remap=rules) as view,
        pytest.raises(EmitError, match="rename the folder"),
    ):
        emit(view, out)


def test_slugs_are_readable_stable_and_different() -> None:
    slugs = [
        _icechunk.slug(p) for p in ("/vsis3/noaa-oisst/data/", "/vsis3/noaa-oisst-data/", "/é/")
    ]
    assert slugs[0].startswith("vsis3-noaa-oisst-data-")
    assert len(set(slugs)) == 3
    assert slugs[0] == _icechunk.slug("/vsis3/noaa-oisst/data/")


def test_a_removed_array_is_gone_and_a_new_one_is_there(tmp_path, out) -> None:
    with synthetic.table(tmp_path, [synthetic.scan(0, array="old")]) as view:
        state = emit(view, out)
    with synthetic.table(tmp_path, [synthetic.scan(0, array="g/new")]) as view:
        emit(view, out, state)
        reader = icechunk.open(out, access=str)
        assert sorted(reader.arrays()) == ["g/new", "time"]
        assert list(reader.refs("g/new").offset) == list(view.refs("g/new").offset)
    assert len(commits(out)) == 2


def test_another_dtype_rebuilds_the_repository(tmp_path, out) -> None:
    with synthetic.table(tmp_path, [synthetic.scan(0)]) as view:
        state = emit(view, out)
    with synthetic.table(tmp_path, [synthetic.scan(0, dtype="<u2")]) as view:
        emit(view, out, state)
        assert icechunk.open(out, access=str).arrays()["v"].dtype == "<u2"
    assert commits(out) == ["demo: 1 sources"]


def test_a_failed_emit_leaves_the_repository_that_was_there(tmp_path, out) -> None:
    with synthetic.table(tmp_path, [synthetic.scan(0)]) as view:
        state = emit(view, out)
        before = tree(out)
    szip = {"compressor": {"id": "hdf5:szip", "cd_values": [4, 8], "name": "szip"}, "filters": None}
    with (
        synthetic.table(tmp_path, [synthetic.scan(0, codec=szip)]) as view,
        pytest.raises(EmitError, match=r"^v: codec hdf5:szip .*icechunk.*sqlite, vrt and parquet"),
    ):
        emit(view, out, state)
    assert tree(out) == before
