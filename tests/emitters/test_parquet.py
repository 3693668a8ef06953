"""The Parquet form: tables that describe themselves, and answer which bytes a box needs."""

import base64
import json
from pathlib import Path

import duckdb
import numpy as np
import pyarrow.parquet as pq
import pytest

import synthetic
from byterefs import grid
from byterefs.emitters import Place, parquet
from conformance_emitters import Archive, EmitterTests, times, tree


class TestParquet(EmitterTests):
    FORM = "parquet"

    def test_a_file_that_was_edited_or_lost_is_written_again(self, archive: Archive) -> None:
        out = archive.folder / "out"
        with archive.view(1, 2) as view:
            state = self.emit(view, out)
            before = tree(out)
            (out / "refs_packed.parquet").write_bytes(b"edited")
            (out / "sources.parquet").unlink()
            assert self.emit(view, out, state) == state
            assert tree(out) == before

    def test_an_array_in_a_group_lies_in_a_folder_of_that_name(self, archive: Archive) -> None:
        with archive.view(1) as view:
            self.emit(view, archive.folder / "out")
        assert (archive.folder / "out" / "refs_g" / "deep.parquet").is_file()

    def test_sources_carry_what_a_cache_needs_to_know(self, archive: Archive) -> None:
        with archive.view(1, 2) as view:
            self.emit(view, archive.folder / "out", target="public")
            rows = pq.read_table(archive.folder / "out" / "sources.parquet").to_pylist()
            stat = archive.path(2).stat()
            assert rows[1] == {
                "source_id": 2,
                "source": "s3://bucket/a b/day 02 %20#?é.nc",
                "size": stat.st_size,
                "mtime": stat.st_mtime_ns // 10**9,
                "etag": None,
            }

    def test_arrays_json_gives_values_attributes_and_their_dtypes(self, archive: Archive) -> None:
        with archive.view(1, 2) as view:
            self.emit(view, archive.folder / "out")
        document = json.loads((archive.folder / "out" / "arrays.json").read_text())
        assert document["meta"]["format_version"] == "mdim-refs/0.2"
        assert document["meta"]["attrs"]["title"] == "many kinds, é"
        assert document["meta"]["varying_attrs"] == ["id"]
        row = document["arrays"]["lat"]
        values = np.frombuffer(base64.b64decode(row["values"]), row["dtype"]).reshape(row["shape"])
        np.testing.assert_array_equal(values, archive.expected("lat"))
        assert document["arrays"]["packed"]["attr_dtypes"]["scale_factor"] == "<f4"
        assert document["arrays"]["packed"]["grid_mapping"] == "crs"
        assert "values" not in document["arrays"]["packed"]

    def test_duckdb_answers_which_sources_a_span_of_days_and_a_box_touch(
        self, archive: Archive
    ) -> None:
        with archive.view(1, 2, 3) as view:
            self.emit(view, archive.folder / "out")
        file = str(archive.folder / "out" / "refs_sparse.parquet")
        rows = duckdb.execute(
            "SELECT path, count(*), sum(size) > 0 FROM read_parquet(?) "
            "WHERE dim_0 BETWEEN 1 AND 2 AND dim_1 = 0 AND present = 1 GROUP BY path ORDER BY path",
            [file],
        ).fetchall()
        # day 3 never writes the chunk (0, 1)
        assert rows == [(str(archive.path(2)), 2, True), (str(archive.path(3)), 1, True)]


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out"


def emit(view, out, state=None, **options):
    return parquet.emit(view, out, target="access", options=options, state=state or {})


def test_a_file_says_its_format_its_array_and_the_rules_of_its_target(tmp_path, out) -> None:
    rules = {"public": {"/data/": "https://h/d/"}}
    with synthetic.table(tmp_path, [synthetic.scan(0)], remap=rules) as view:
        parquet.emit(view, out, target="public", options={}, state={})
    said = pq.read_schema(out / "refs_v.parquet").metadata
    assert json.loads(said[b"meta"])["format_version"] == "mdim-refs/0.2"
    assert json.loads(said[b"array"])["shape"] == [1, 2, 3]
    assert json.loads(said[b"remap"]) == [["/data/", "https://h/d/"]]
    assert b"pandas" not in said


def test_offsets_beyond_32_bits_and_absent_rows_keep_their_types(tmp_path, out) -> None:
    gone = synthetic.scan(0, absent=lambda day: np.arange(6) == 4)
    with synthetic.table(tmp_path, [gone]) as view:
        emit(view, out)
    table = pq.read_table(out / "refs_v.parquet")
    assert str(table.schema.field("offset").type) == str(table.schema.field("size").type) == "int64"
    rows = table.to_pylist()
    assert rows[0]["offset"] == synthetic.BASE
    absent = {"dim_0": 0, "dim_1": 1, "dim_2": 1, "present": 0}
    assert rows[4] == absent | dict.fromkeys(("path", "offset", "size", "info", "data"))


def test_row_groups_are_sorted_and_their_statistics_tell_days_apart(tmp_path, out) -> None:
    with synthetic.table(tmp_path, [synthetic.scan(d, (300, 300)) for d in range(3)]) as view:
        emit(view, out)
    meta = pq.read_metadata(out / "refs_v.parquet")
    groups = [meta.row_group(i) for i in range(meta.num_row_groups)]
    assert max(g.num_rows for g in groups) <= 65_536
    spans = [
        tuple((s.min, s.max) for s in (g.column(i).statistics for i in range(2))) for g in groups
    ]
    assert spans == sorted(spans)
    assert all(low == high for (low, high), _ in spans)


def test_paths_of_one_row_group_do_not_carry_those_of_the_whole_archive(
    tmp_path, out, monkeypatch
) -> None:
    monkeypatch.setattr(grid, "FRAGMENT_ROWS", 60)
    with synthetic.table(tmp_path, [synthetic.scan(d) for d in range(200)]) as view:
        emit(view, out)
    meta = pq.read_metadata(out / "refs_v.parquet")
    assert meta.num_row_groups == 20
    name = next(i for i in range(meta.num_columns) if meta.schema.column(i).name == "path")
    assert max(meta.row_group(i).column(name).total_uncompressed_size for i in range(20)) < 400


def test_an_append_to_a_partitioned_array_rewrites_its_last_part_only(
    tmp_path, out, monkeypatch
) -> None:
    monkeypatch.setattr(grid, "FRAGMENT_ROWS", 12)  # two days
    with synthetic.table(tmp_path, [synthetic.scan(d) for d in range(7)]) as view:
        state = emit(view, out, partition=24)
        parts = sorted(p.name for p in (out / "refs_v").iterdir())
        assert parts == ["part-0.parquet", "part-1.parquet"]
        before = times(out)
    with synthetic.table(tmp_path, [synthetic.scan(7), synthetic.scan(8)]) as view:
        emit(view, out, state, partition=24)
        emit(view, tmp_path / "again", partition=24)
        rows = parquet.open(out, access=str).refs("v")
        assert list(rows.offset) == list(view.refs("v").offset)
    after = times(out)
    changed = {name for name in after if after[name] != before.get(name)}
    assert changed == {
        "arrays.json",
        "sources.parquet",
        "refs_v/part-1.parquet",
        "refs_v/part-2.parquet",
    }
    assert tree(out) == tree(tmp_path / "again")


def test_going_back_to_one_file_leaves_no_part_behind(tmp_path, out) -> None:
    with synthetic.table(tmp_path, [synthetic.scan(0)]) as view:
        state = emit(view, out, partition=True)
        assert (out / "refs_v" / "part-0.parquet").is_file()
        emit(view, out, state)
    assert not (out / "refs_v").exists()
    assert (out / "refs_v.parquet").is_file()


def test_the_lines_for_an_address_name_every_part(tmp_path, out, monkeypatch) -> None:
    monkeypatch.setattr(grid, "FRAGMENT_ROWS", 12)
    with synthetic.table(tmp_path, [synthetic.scan(d) for d in range(7)]) as view:
        emit(view, out, partition=24)
        # an address, for nothing can be listed there; DuckDB opens it without a network
        at = Place(f"file://{out}")
        told = parquet.opening(view, target="access", options={"partition": 24}, place=at)
        left = {}
        exec("\n".join(told["python"]), left)
        assert left["rows"].read_all().num_rows == len(view.refs("v").offset) == 42
    with duckdb.connect() as con:
        assert len(con.execute(told["duckdb"][1]).fetchall()) == 3
    assert all("part-0" in told["r"][0] and "part-1" in line for line in told["r"])
    assert "gdal" not in told
