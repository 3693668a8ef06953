"""The SQLite form: one file for every target that opens where nothing can be written."""

import sqlite3
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from osgeo import ogr

import building
import granules
import synthetic
from byterefs import emitters
from byterefs.emitters import sqlite
from conformance_emitters import Archive, EmitterTests


class TestSqlite(EmitterTests):
    FORM = "sqlite"

    def test_sources_are_verbatim_and_every_targets_rules_are_carried(
        self, archive: Archive
    ) -> None:
        with archive.view(1, 2) as view:
            self.emit(view, archive.folder / "out")
        with connected(archive.folder / "out") as con:
            sources = con.execute("SELECT source_id, source FROM sources ORDER BY 1").fetchall()
            rules = con.execute("SELECT * FROM remap").fetchall()
        assert sources == [(1, str(archive.path(1))), (2, str(archive.path(2)))]
        assert rules == [("public", archive.source(""), "s3://bucket/a b/")]

    def test_it_opens_read_only_without_files_beside_it(self, archive: Archive) -> None:
        out = archive.folder / "out"
        with archive.view(1, 2) as view:
            self.emit(view, out)
            out.chmod(0o555)
            self.check_rows(view, out)
            self.check_values(archive, view, out)
            out.chmod(0o755)
        assert [p.name for p in out.glob("store.sqlite*")] == ["store.sqlite"]
        with connected(out) as con:
            assert con.execute("PRAGMA journal_mode").fetchone() == ("delete",)


class connected:
    """A connection that is closed at the end."""

    def __init__(self, out: Path) -> None:
        self.con = sqlite3.connect(out / "store.sqlite")

    def __enter__(self) -> sqlite3.Connection:
        return self.con

    def __exit__(self, *error: Any) -> None:
        self.con.close()


def test_offsets_beyond_32_bits_are_integer64_in_ogr(tmp_path: Path) -> None:
    gone = synthetic.scan(0, absent=lambda day: np.arange(6) == 4)
    with synthetic.table(tmp_path, [gone]) as view:
        sqlite.emit(view, tmp_path / "out", target="access", options={}, state={})
    ogr.UseExceptions()
    store = ogr.Open(str(tmp_path / "out" / "store.sqlite"))
    layer = store.GetLayerByName("refs_v")
    definition = layer.GetLayerDefn()
    kinds = {
        definition.GetFieldDefn(i).GetName(): definition.GetFieldDefn(i).GetTypeName()
        for i in range(definition.GetFieldCount())
    }
    assert kinds["offset"] == kinds["size"] == "Integer64"
    found = [(f["present"], f["offset"], f["path"]) for f in layer]
    assert found[5] == (1, synthetic.BASE + 10, "/data/day0000.nc")
    assert found[4] == (0, None, None)


@pytest.mark.parametrize("name", ["a'b", 'a"b', "a b", "ä.b", "select"])
def test_an_array_of_any_name_has_its_rows(tmp_path: Path, name: str) -> None:
    with synthetic.table(tmp_path, [synthetic.scan(0, array=name)]) as view:
        sqlite.emit(view, tmp_path / "out", target="access", options={}, state={})
        reader = sqlite.open(tmp_path / "out", access=str)
        assert list(reader.refs(name).offset) == list(view.refs(name).offset)
        reader.con.close()


def test_a_store_for_one_target_holds_no_path_of_this_machine(tmp_path):
    granules.oisst(tmp_path / "a.nc", date(2026, 1, 1), shape=(6, 8), arrays=("sst",))
    rules = {"public": {str(tmp_path): "https://example.org/d"}}
    with building.build(tmp_path, [tmp_path / "a.nc"], remap=rules) as view:
        emitters.load("sqlite").emit(
            view, tmp_path / "out", target="access", options={"sources": "public"}, state={}
        )
    published = (tmp_path / "out" / "store.sqlite").read_bytes()
    assert str(tmp_path).encode() not in published
    assert b"https://example.org/d/a.nc" in published
