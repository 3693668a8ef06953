"""The kerchunk form: fsspec's layout to the letter, one fill for two meanings, no invented mask."""

import json
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import xarray as xr

import synthetic
from byterefs.emitters import kerchunk
from byterefs.errors import EmitError
from conformance_emitters import Archive, EmitterTests, times, tree

FASTPARQUET = (
    "ignore:The 'fastparquet' engine is deprecated",
    "ignore:The 'future.infer_string' option is deprecated",
)


class TestKerchunk(EmitterTests):
    FORM = "kerchunk"

    def test_a_partition_that_was_edited_or_lost_is_written_again(self, archive: Archive) -> None:
        out = archive.folder / "out"
        with archive.view(1, 2) as view:
            state = self.emit(view, out)
            before = tree(out)
            (out / "packed" / "refs.0.parq").write_bytes(b"edited")
            (out / ".zmetadata").unlink()
            assert self.emit(view, out, state) == state
            assert tree(out) == before

    def test_reading_through_mapped_paths_leaves_the_published_files_alone(
        self, archive: Archive
    ) -> None:
        out = archive.folder / "out"
        with archive.view(1, 2) as view:
            self.emit(view, out, target="public")
            before = tree(out), times(out)
            self.check_values(archive, view, out, "public")
            assert (tree(out), times(out)) == before

    def test_scalars_are_not_boxed_and_every_digit_is_there(self, archive: Archive) -> None:
        with archive.view(1) as view:
            self.emit(view, archive.folder / "out")
        text = (archive.folder / "out" / ".zmetadata").read_text()
        assert "0.009999999776482582" in text
        assert "NaN" not in text.replace('"NaN"', "")
        found = json.loads(text)["metadata"]
        assert found["time/.zattrs"]["units"] == "days since 2000-01-01"
        assert found["time/.zattrs"]["_ARRAY_DIMENSIONS"] == ["time"]
        assert found["crs/.zarray"]["shape"] == []
        assert found["sparse/.zarray"]["fill_value"] == "NaN"
        assert "_FillValue" not in found["packed/.zattrs"]
        assert found["packed/.zarray"]["fill_value"] == -999
        assert found["big/.zarray"]["fill_value"] is None
        assert found["g/.zgroup"] == {"zarr_format": 2}

    def test_coordinates_are_one_raw_chunk_of_the_whole_array(self, archive: Archive) -> None:
        with archive.view(1, 2, 3) as view:
            self.emit(view, archive.folder / "out")
        rows = pq.read_table(archive.folder / "out" / "time" / "refs.0.parq").to_pylist()
        raw = archive.expected("time").tobytes()
        assert rows == [{"path": None, "offset": 0, "size": 0, "raw": raw}]

    def test_the_one_json_file_holds_the_same_references(self, archive: Archive) -> None:
        out = archive.folder / "out"
        with archive.view(1, 2) as view:
            kerchunk.emit(view, out, target="access", options={"json": True}, state={})
            document = json.loads((out / "demo.json").read_text())
            assert document["version"] == 1
            assert document["refs"]["packed/1.1.0"] == [
                str(archive.path(2)),
                int(view.refs("packed").offset[6]),
                int(view.refs("packed").size[6]),
            ]
            assert "sparse/0.0.1" not in document["refs"]
        store = {"fo": str(out / "demo.json"), "remote_protocol": "file"}
        with xr.open_dataset(
            "reference://",
            engine="zarr",
            consolidated=False,
            storage_options=store,
            decode_cf=False,
        ) as ds:
            for name in ("packed", "big", "compact", "lat", "time_bnds", "crs"):
                np.testing.assert_array_equal(ds[name].values, archive.expected(name))

    def test_one_json_file_goes_when_it_is_not_wanted_any_more(self, archive: Archive) -> None:
        out = archive.folder / "out"
        with archive.view(1) as view:
            state = kerchunk.emit(view, out, target="access", options={"json": True}, state={})
            self.emit(view, out, state)
        assert not (out / "demo.json").exists()


def emit(view: Any, out: Path, state: Any = None, **options: Any) -> dict[str, Any]:
    return kerchunk.emit(view, out, target="access", options=options, state=state or {})


def zarray(out: Path) -> dict[str, Any]:
    return dict(json.loads((out / ".zmetadata").read_text())["metadata"]["v/.zarray"])


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out"


# --- partitions ------------------------------------------------------------------------------------


def five_by_five(day: int) -> np.ndarray:
    """Absent: rows 3, 4 and 24, and rows 10 to 19, which are a whole partition of ten."""
    return np.isin(np.arange(25), [3, 4, 24, *range(10, 20)])


@pytest.mark.filterwarnings(*FASTPARQUET)
def test_absent_rows_and_an_absent_partition_read_as_absent_in_fsspec(tmp_path, out) -> None:
    with synthetic.table(tmp_path, [synthetic.scan(0, (5, 5), absent=five_by_five)]) as view:
        emit(view, out, record_size=10)
    assert sorted(p.name for p in (out / "v").iterdir()) == ["refs.0.parq", "refs.2.parq"]
    assert [len(pq.read_table(out / "v" / f"refs.{p}.parq")) for p in (0, 2)] == [10, 5]
    fs = fsspec.filesystem("reference", fo=str(out), remote_protocol="file")
    for row, gone in enumerate(five_by_five(0)):
        key = f"v/0.{row // 5}.{row % 5}"
        if gone:
            assert key not in fs.references
        else:
            assert fs.references[key] == ["/data/day0000.nc", synthetic.BASE + 2 * row, 2]


def test_columns_have_the_types_that_stock_readers_take(tmp_path, out) -> None:
    with synthetic.table(tmp_path, [synthetic.scan(0, (5, 5), absent=five_by_five)]) as view:
        emit(view, out)
    table = pq.read_table(out / "v" / "refs.0.parq")
    names = ["path", "offset", "size", "raw"]
    assert table.schema.names == names
    assert table.schema.types == [pa.string(), pa.int64(), pa.int64(), pa.binary()]
    assert table.schema.metadata is None
    assert table.slice(3, 1).to_pylist() == [{"path": None, "offset": 0, "size": 0, "raw": None}]


def test_an_append_rewrites_the_last_partition_only(tmp_path, out) -> None:
    with synthetic.table(tmp_path, [synthetic.scan(d) for d in range(7)]) as view:
        state = emit(view, out, record_size=12)
        before = times(out)
    with synthetic.table(tmp_path, [synthetic.scan(7), synthetic.scan(8)]) as view:
        emit(view, out, state, record_size=12)
    after = times(out)
    changed = {name for name in after if after[name] != before.get(name)}
    assert changed == {".zmetadata", "time/refs.0.parq", "v/refs.3.parq", "v/refs.4.parq"}


def test_references_beyond_the_ninth_partition_stand_in_numeric_order(tmp_path, out) -> None:
    with synthetic.table(tmp_path, [synthetic.scan(d) for d in range(4)]) as view:
        emit(view, out, record_size=2)
        rows = kerchunk.open(out, access=str).refs("v")
        assert list(rows.offset) == list(view.refs("v").offset)
    assert (out / "v" / "refs.11.parq").exists()


# --- one fill --------------------------------------------------------------------------------------

FILL = {"_FillValue": -9}
DTYPES = {"_FillValue": "<i2"}


def one_gone(day: int) -> np.ndarray:
    return np.arange(6) == 2


def test_without_absent_chunks_the_fill_is_cfs_whatever_the_storage_has(tmp_path, out) -> None:
    scan = synthetic.scan(0, fill="7", attrs=FILL, attr_dtypes=DTYPES)
    with synthetic.table(tmp_path, [scan]) as view:
        emit(view, out)
    assert zarray(out)["fill_value"] == -9


def test_absent_chunks_of_another_fill_than_cfs_are_refused_with_both_values(tmp_path, out) -> None:
    scan = synthetic.scan(0, fill="7", attrs=FILL, attr_dtypes=DTYPES, absent=one_gone)
    with (
        synthetic.table(tmp_path, [scan]) as view,
        pytest.raises(EmitError, match=r"^v: .* 7 .* -9, .*sqlite, vrt, parquet and icechunk"),
    ):
        emit(view, out)
    assert not out.exists()


def test_absent_chunks_that_read_as_zero_need_no_cf_fill(tmp_path, out) -> None:
    with synthetic.table(tmp_path, [synthetic.scan(0, fill="0", absent=one_gone)]) as view:
        emit(view, out)
    assert zarray(out)["fill_value"] is None


def test_absent_chunks_that_read_as_something_need_a_cf_fill(tmp_path, out) -> None:
    with (
        synthetic.table(tmp_path, [synthetic.scan(0, fill="7", absent=one_gone)]) as view,
        pytest.raises(EmitError, match=r"^v: .* 7 but there is no CF _FillValue"),
    ):
        emit(view, out)


def test_a_chunk_that_vanishes_later_is_noticed_although_only_its_fragment_is_read(
    tmp_path, out
) -> None:
    scans = [synthetic.scan(d, fill="7", attrs=FILL, attr_dtypes=DTYPES) for d in range(3)]
    with synthetic.table(tmp_path, scans) as view:
        state = emit(view, out)
    again = synthetic.scan(1, fill="7", attrs=FILL, attr_dtypes=DTYPES, absent=one_gone)
    with (
        synthetic.table(tmp_path, [again]) as view,
        pytest.raises(EmitError, match="absent chunks"),
    ):
        emit(view, out, state)


@pytest.mark.parametrize(
    ("dtype", "fill", "attr", "expected"),
    [
        ("<f4", "NaN", "NaN", "NaN"),
        ("<f8", "-Infinity", "-Infinity", "-Infinity"),
        ("<f4", "1e+20", float(np.float32(1e20)), float(np.float32(1e20))),
        ("<i8", "9007199254740993", 9007199254740993, 9007199254740993),
        ("<u8", "18446744073709551615", 18446744073709551615, 18446744073709551615),
        ("|S2", "ab", "ab", "YWI="),
    ],
)
def test_a_fill_keeps_its_bits_in_json(tmp_path, out, dtype, fill, attr, expected) -> None:
    kind = "str" if dtype == "|S2" else dtype
    scan = synthetic.scan(
        0, dtype=dtype, fill=fill, attrs={"_FillValue": attr}, attr_dtypes={"_FillValue": kind}, absent=one_gone
    )  # fmt: skip
    with synthetic.table(tmp_path, [scan]) as view:
        emit(view, out)
        reader = kerchunk.open(out, access=str)
    assert zarray(out)["fill_value"] == expected
    got = reader.read("v", (slice(0, 1), slice(0, 1), slice(2, 3)))
    value = fill.encode() if dtype == "|S2" else np.array(attr if attr == expected else fill, dtype)
    np.testing.assert_array_equal(got[0, 0, 0], value)


@pytest.mark.filterwarnings(*FASTPARQUET)
def test_zeros_are_not_masked_where_the_source_has_no_fill(tmp_path, out) -> None:
    data = {(0, y, x): np.array(y * x, "<i2").tobytes() for y in range(2) for x in range(3)}
    with synthetic.table(tmp_path, [synthetic.scan(0, data=data)]) as view:
        emit(view, out)
    store = {"fo": str(out), "remote_protocol": "file"}
    with xr.open_dataset(
        "reference://", engine="zarr", consolidated=False, storage_options=store
    ) as ds:
        assert ds["v"].values.tolist() == [[[0, 0, 0], [0, 1, 2]]]
        assert "_FillValue" not in {**ds["v"].attrs, **ds["v"].encoding}


# --- what cannot be said ---------------------------------------------------------------------------


def test_a_codec_without_numcodecs_is_refused_with_the_forms_that_can(tmp_path, out) -> None:
    szip = {"compressor": {"id": "hdf5:szip", "cd_values": [4, 8], "name": "szip"}, "filters": None}
    with (
        synthetic.table(tmp_path, [synthetic.scan(0, codec=szip)]) as view,
        pytest.raises(EmitError, match=r"^v: codec hdf5:szip .*kerchunk.*sqlite, vrt and parquet"),
    ):
        emit(view, out)
    assert not out.exists()


@pytest.mark.parametrize(
    ("paths", "expected"),
    [
        (["/a.nc"], {"remote_protocol": "file"}),
        (
            ["https://h/a.nc"],
            {"remote_protocol": "https", "remote_options": {"asynchronous": True}},
        ),
        (
            ["s3://b/a.nc", "s3://b/c.nc"],
            {"remote_protocol": "s3", "remote_options": {"anon": True, "asynchronous": True}},
        ),
        (
            ["/a.nc", "s3://b/a.nc"],
            {"fs": {"file": {}, "s3": {"anon": True, "asynchronous": True}}},
        ),
    ],
)
def test_the_opening_lines_name_the_protocols_of_the_paths(paths, expected) -> None:
    assert kerchunk.remotes(paths) == expected
