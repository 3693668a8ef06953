"""What `view` keeps in the working store: the same answers as without, and void after any other write."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest

from building import build, config, scan_into
from byterefs import stages, view
from byterefs.database import MADE_OF, writing
from byterefs.proving import sample
from byterefs.view import View, receipt
from forms import Results
from test_plan import day

CHANGES = {
    "meta": "UPDATE meta SET value = 'other' WHERE key = 'title'",
    "sources": "UPDATE sources SET size = size + 1",
    "byterefs_scans": "UPDATE byterefs_scans SET mtime_ns = mtime_ns + 1",
    "byterefs_metas": "INSERT INTO byterefs_metas VALUES ('0', '{}')",
    "byterefs_values": "DELETE FROM byterefs_values WHERE rowid = 1",
    "byterefs_arrays": 'UPDATE byterefs_arrays SET "offset" = size WHERE source_id = 1',
    "byterefs_inline": "INSERT INTO byterefs_inline VALUES (1, 'sst', 0, x'00')",
    "arrays": "UPDATE arrays SET fill = '1'",
    "byterefs_placements": "DELETE FROM byterefs_placements WHERE \"array\" = 'sst'",
    "remap": "INSERT INTO remap VALUES ('public', '/', 'https://h/')",
}


@pytest.fixture
def store(tmp_path: Path) -> Path:
    build(tmp_path, [day(tmp_path, n) for n in (0, 1, 3)]).close()
    stages.look(tmp_path / "store.sqlite", tmp_path / "view.json")
    return tmp_path / "store.sqlite"


def kept(store: Path) -> int:
    con = sqlite3.connect(store)
    (found,) = con.execute("SELECT count(*) FROM byterefs_kept").fetchone()
    con.close()
    return int(found)


@pytest.mark.parametrize("table", MADE_OF)
def test_whoever_changes_the_store_voids_what_was_kept(store: Path, table: str) -> None:
    assert kept(store) > 0
    con = sqlite3.connect(store)  # any program
    con.execute(CHANGES[table])
    con.commit()
    con.close()
    assert kept(store) == 0


def test_a_change_that_is_rolled_back_voids_nothing(store: Path) -> None:
    before = kept(store)
    con = sqlite3.connect(store)
    con.execute(CHANGES["sources"])
    con.close()
    assert kept(store) == before


def test_a_view_says_the_same_from_what_was_kept_and_without(store: Path, tmp_path: Path) -> None:
    with View.open(store) as opened:
        assert opened.kept(sample.prints_of("sst")) is not None
        held = said(opened)
    with writing(store) as con:
        con.execute("DELETE FROM byterefs_kept")
    with View.open(store) as opened:
        assert opened.kept(sample.prints_of("sst")) is None
        assert said(opened) == held
    assert held[0] == json.loads((tmp_path / "view.json").read_text())


def said(opened: View) -> list[object]:
    refs = [opened.refs("sst"), opened.refs("sst", 1, 2)]
    arrays = opened.arrays
    prints = {n: sample.prints(opened, n, sample.refs_of(opened, n)).tolist() for n in arrays}
    columns = [[c.tolist() for c in (r.source, r.offset, r.size)] for r in refs]
    return [receipt(opened), opened.fragments("sst"), columns, prints]


def test_rows_that_are_too_many_are_not_kept(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(view, "KEPT_BYTES", 59)  # three rows are sixty
    stages.look(store, tmp_path / "view.json")
    with View.open(store) as opened:
        held = said(opened)
        assert opened.kept(view.rows_of("sst")) is opened.kept(sample.prints_of("sst")) is None
    monkeypatch.undo()
    stages.look(store, tmp_path / "view.json")
    with View.open(store) as opened:
        assert opened.kept(view.rows_of("sst")) is not None
        assert said(opened) == held


def test_a_rescan_leaves_no_plan_that_places_what_is_no_more(tmp_path: Path) -> None:
    files = [day(tmp_path, n) for n in (0, 1)]
    build(tmp_path, files).close()
    scan_into(tmp_path, [], config(), removed=[str(files[0])])
    con = sqlite3.connect(tmp_path / "store.sqlite")
    left = [con.execute(f"SELECT count(*) FROM {t}").fetchone()[0] for t in ("arrays", "byterefs_placements")]  # fmt: skip
    con.close()
    assert left == [0, 0]


def test_slots_that_were_verified_stay_known_where_nothing_was_kept(tmp_path: Path) -> None:
    results = Results(tmp_path)
    results.scan([day(tmp_path / "src", n) for n in (0, 1, 3)])
    results.emit(("access", "sqlite"))
    assert results.verify("access", "sqlite")["slots"]["new"] > 0
    with writing(results.store) as con:
        con.execute("DELETE FROM byterefs_kept")
    assert results.verify("access", "sqlite")["slots"]["new"] == 0
