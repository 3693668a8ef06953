"""Shift and reindex as table operations: what xarray's shift and reindex give, and still the spec's view."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import xarray
from hypothesis import given, settings
from hypothesis import strategies as st

import byterefs
from byterefs.errors import StoreError
from byterefs.reader.rekey import reindex, shift
from reading import Archive

SCRIPT = Path(__file__).parents[2] / "scripts/rekey.py"
FILLS = {"sst": -999, "gappy": -7}


@pytest.fixture(scope="module")
def archive(tmp_path_factory):
    made = Archive(tmp_path_factory.mktemp("rekey"), days=5)
    made.publish()
    return made


@pytest.fixture(scope="module")
def before(archive):
    with byterefs.open(archive.root / "sqlite") as store:
        yield opened(store)


def opened(store):
    return xarray.open_zarr(
        store, consolidated=False, chunks=None, decode_cf=False, drop_variables=["small"]
    ).load()


def view_holds(path: Path) -> None:
    """Every row of refs_ is one of the chunk table joined to its placement (mdim-refs/0.2, "The view")."""
    con = sqlite3.connect(path)
    for array in ("sst", "gappy"):
        rows = set(
            con.execute(
                f'SELECT dim_0, dim_1, dim_2, present, path, "offset", size FROM refs_{array}'
            )
        )
        joined = set()
        for dest, src, count, source, source_id in con.execute(
            "SELECT dest, src_offset, count, source, source_id FROM placements JOIN sources USING (source_id) "
            "WHERE array = ?",
            (array,),
        ).fetchall():
            d, s, n = map(json.loads, (dest, src, count))
            for *key, present, offset, size in con.execute(
                f'SELECT dim_0, dim_1, dim_2, present, "offset", size FROM {array} WHERE source_id = ?',
                (source_id,),
            ):
                chunks = (1, 4, 5)
                if all(
                    k >= a // c and k * c < a + m
                    for k, a, m, c in zip(key, s, n, chunks, strict=True)
                ):
                    at = [k - a // c + b // c for k, a, b, c in zip(key, s, d, chunks, strict=True)]
                    joined.add((*at, present, source if offset is not None else None, offset, size))
        assert rows == joined
    con.close()


@settings(max_examples=12)
@given(by=st.integers(-6, 6))
def test_a_shift_moves_data_and_leaves_coordinates(archive, before, tmp_path_factory, by):
    out = tmp_path_factory.mktemp("out") / "s.sqlite"
    shift(archive.root / "sqlite/store.sqlite", out, "time", by)
    with byterefs.open(out) as store:
        after = opened(store)
        for name, fill in FILLS.items():
            xarray.testing.assert_identical(
                after[name], before[name].shift(time=by, fill_value=fill)
            )
        np.testing.assert_array_equal(after["time"], before["time"])
    view_holds(out)


@settings(max_examples=12)
@given(labels=st.lists(st.integers(-2, 7), min_size=1, max_size=9, unique=True))
def test_a_reindex_puts_chunks_at_their_labels(archive, before, tmp_path_factory, labels):
    out = tmp_path_factory.mktemp("out") / "s.sqlite"
    reindex(archive.root / "sqlite/store.sqlite", out, "time", labels)
    with byterefs.open(out) as store:
        after = opened(store)
        for name, fill in FILLS.items():
            wanted = before[name].reindex(time=np.array(labels, "f8"), fill_value=fill)
            xarray.testing.assert_identical(after[name], wanted)
    view_holds(out)


def test_an_axis_whose_chunks_would_be_cut_is_refused_and_whole_ones_move(
    archive, before, tmp_path
):
    table = archive.root / "sqlite/store.sqlite"
    with pytest.raises(StoreError, match=r"chunks hold 4 elements along y"):
        shift(table, tmp_path / "a.sqlite", "y", 1)
    with pytest.raises(StoreError, match="would be a part of one or of several"):
        shift(table, tmp_path / "a.sqlite", "y", -4)  # the last chunk is cut by the array's edge
    assert list(tmp_path.iterdir()) == []
    shift(table, tmp_path / "a.sqlite", "y", 4)
    with byterefs.open(tmp_path / "a.sqlite") as store:
        moved = opened(store)["sst"]
        xarray.testing.assert_identical(moved, before["sst"].shift(y=4, fill_value=-999))
    view_holds(tmp_path / "a.sqlite")


def test_what_has_no_coordinate_or_no_axis_is_refused(archive, tmp_path):
    table = archive.root / "sqlite/store.sqlite"
    with pytest.raises(StoreError, match="no coordinate 'depth'"):
        reindex(table, tmp_path / "a.sqlite", "depth", [1])
    with pytest.raises(StoreError, match="no elements along 'depth'"):
        shift(table, tmp_path / "a.sqlite", "depth", 1)


def test_the_command_writes_the_same_bytes_each_time(archive, tmp_path):
    written = []
    for n in range(2):
        out = tmp_path / f"{n}.sqlite"
        command = [
            sys.executable,
            SCRIPT,
            "--table",
            archive.root / "sqlite/store.sqlite",
            "--out",
            out,
        ]
        subprocess.run(
            [*command, "--dim", "time", "--labels", "3", "1", "9"], check=True, capture_output=True
        )
        written.append(out.read_bytes())
    assert written[0] == written[1]
    both = subprocess.run([*command, "--dim", "time"], capture_output=True, text=True)
    assert (both.returncode, "give either --by" in both.stderr) == (1, True)
