"""The conformance fixture is what it says, and every reader of every language reads from it what was written."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import make
import pytest
import run

ALWAYS = {
    ("zarr-python", "sqlite"),
    ("zarr-python", "parquet"),
    ("byterefs.read", "sqlite"),
    ("byterefs.read", "parquet"),
    ("fsspec", "kerchunk"),
    ("icechunk", "icechunk"),
    ("GDAL", "vrt"),
    ("OGR", "sqlite"),
    ("DuckDB", "parquet"),
    ("R", "sqlite"),
    ("Node", "parquet"),
}
CANNOT = {
    ("stars", "int64"): "64-bit integers come as doubles",
}


@pytest.fixture(scope="module")
def fixture(tmp_path_factory):
    return tmp_path_factory.mktemp("conformance")


@pytest.fixture(scope="module")
def reports(fixture):
    """With R and Node, installed where they are missing; with stars and Chromium where they are there."""
    return run.main(fixture, install=("chunk.R", "node"))


def test_every_reader_reads_every_case_as_it_was_written(reports):
    read = {(r["reader"].split()[0], r["form"]) for r in reports}
    assert read >= ALWAYS
    wrong = {}
    for r in reports:
        for case in make.CASES:
            reason = CANNOT.get((r["reader"].split()[0], case))
            if r["cases"][case] != (f"not read: {reason}" if reason else "ok"):
                wrong[r["reader"], r["form"], case] = r["cases"][case]
    assert wrong == {}


def test_the_table_has_a_line_per_reader_and_says_what_is_not_ok(reports):
    last = {
        **reports[0],
        "reader": "Other",
        "cases": {**reports[0]["cases"], "plain": "differs: element 0"},
    }
    lines = run.table([*reports, last]).splitlines()
    assert lines[0].split() == list(make.CASES)
    assert [line.split()[0] for line in lines[1 : 1 + len(reports)]] == [
        r["reader"].split()[0] for r in reports
    ]
    assert "WRONG" in lines[1 + len(reports)]
    assert lines[-1] == f"Other, {last['form']}, plain: differs: element 0"


@pytest.mark.parametrize("runner", ["python", "r"])
def test_a_runner_tells_when_values_are_others(reports, fixture, tmp_path, runner):
    (tmp_path / "forms").symlink_to(fixture / "forms")
    expected = json.loads((fixture / "expected.json").read_text())
    for case in expected["cases"].values():
        other = case["values"][-1]
        case["values"][-1] = "7" if isinstance(other, str) and other != "NaN" else 12345
    (tmp_path / "expected.json").write_text(json.dumps(expected))
    one = run.r(tmp_path, "chunk.R") if runner == "r" else run.python(tmp_path, "duckdb_sql.py")
    assert {said.partition(":")[0] for said in one["cases"].values()} == {"differs"}


def test_the_cases_are_in_the_tables_as_they_say(reports, fixture):
    def rows(case: str, what: str) -> list[tuple]:
        dataset, array, _ = make.CASES[case]
        with closing(
            sqlite3.connect(fixture / f"forms/access/{dataset}/sqlite/store.sqlite")
        ) as con:
            described = con.execute(
                "SELECT dtype, codec, fill, shape, chunks FROM arrays WHERE array = ?", (array,)
            )
            return [*described.fetchone()] if what == "array" else con.execute(
                f'SELECT {what} FROM "refs_{array}"'
            ).fetchall()  # fmt: skip

    assert (0,) in rows("absent", "present")
    assert all(data for (data,) in rows("inline", "data"))
    assert min(offset for (offset,) in rows("2^33", '"offset"')) >= 1 << 33
    assert rows("big-endian", "array")[0] == ">f4"
    assert rows("nan-fill", "array")[2] == "NaN"
    assert "fletcher32" in rows("checksum", "array")[1]
    assert "imagecodecs_delta" in rows("predictor", "array")[1]
    assert rows("era-old", "array")[1] != rows("era-new", "array")[1]
    shape, chunks = (json.loads(rows("partial-edge", "array")[i]) for i in (3, 4))
    assert all(n % c for n, c in zip(shape[1:], chunks[1:], strict=True))


def test_what_others_take_is_plain_json_and_small(reports, fixture):
    expected = json.loads((fixture / "expected.json").read_text())
    assert set(expected["cases"]) == set(make.CASES)
    for case in expected["cases"].values():
        assert set(case) == {
            "dataset",
            "array",
            "what",
            "shape",
            "dtype",
            "scale",
            "missing",
            "values",
        }
    used = sum(p.stat().st_blocks * 512 for p in Path(fixture).rglob("*") if p.is_file())
    assert used < 10_000_000  # the file of 2^33 bytes is sparse
