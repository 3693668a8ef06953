"""The working store: any order of scans gives the same table; a rescan replaces all; a kill loses nothing."""

import sqlite3
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from byterefs import database, store
from byterefs.errors import StoreError
from byterefs.model import ABSENT, ArrayMeta, Source, SourceArray, SourceScan

PLAIN = {"compressor": None, "filters": None}


def scan(name: str, chunks: int, seed: int = 0, mtime_ns: int = 5) -> SourceScan:
    """A scan of one array of ``chunks`` chunks, its ranges made from ``seed``."""
    meta = ArrayMeta(
        "sst",
        ("time", "x"),
        (chunks, 4),
        (1, 4),
        "<i2",
        "-9",
        PLAIN,
        "",
        {"units": "K"},
        {"units": "str"},
    )
    offset = (np.arange(chunks, dtype="i8") * 8 + 2**33 + seed).reshape(chunks, 1)
    offset[-1] = ABSENT
    item = SourceArray(meta, offset, np.full_like(offset, 8), {(chunks - 1, 0): b"inline%d" % seed})
    lat = ArrayMeta("lat", ("x",), (4,), (4,), "<f4", None, PLAIN, "")
    values = np.arange(4, dtype="<f4").tobytes()
    coordinate = SourceArray(lat, values=values, digest=f"digest-{seed}")
    return SourceScan(
        Source(name, 100, mtime_ns, None),
        {"sst": item, "lat": coordinate},
        {"title": "t"},
        {"title": "str"},
    )


def content(path: Path) -> dict[str, list[tuple]]:
    """Every row of the physical layer with sources by name, sorted."""
    con = sqlite3.connect(path)
    tables = {
        "sources": "SELECT source, size, mtime, etag, mtime_ns, version, refused, root FROM sources JOIN byterefs_scans USING (source_id)",
        "arrays": 'SELECT source, "array", meta, "digest", chunks, "offset", a.size FROM byterefs_arrays AS a JOIN sources USING (source_id)',
        "inline": 'SELECT source, "array", position, data FROM byterefs_inline JOIN sources USING (source_id)',
        "values": "SELECT * FROM byterefs_values",
        "metas": "SELECT * FROM byterefs_metas",
    }
    rows = {name: sorted(con.execute(sql), key=repr) for name, sql in tables.items()}
    con.close()
    return rows


def fill(
    folder: Path, name: str, batches: list[list[SourceScan]], removed: tuple[str, ...] = ()
) -> dict:
    """A store made of batches, one update each."""
    result = {}
    for i, batch in enumerate(batches):
        path = folder / f"{name}-{i}.sqlite"
        path.unlink(missing_ok=True)
        store.write_scans(path, batch, {}, version="1")
        result = store.update(folder / name, [path], removed if i == len(batches) - 1 else ())
    return result


@given(order=st.permutations(range(5)), cut=st.integers(0, 5), again=st.integers(0, 4))
def test_any_order_of_scans_gives_the_same_table(tmp_path_factory, order, cut, again):
    folder = tmp_path_factory.mktemp("store")
    scans = [scan(f"/d/{i}.nc", 3 + i, i) for i in range(5)]
    shuffled = [scans[i] for i in order]
    one = fill(folder, "one", [scans])
    many = fill(folder, "many", [shuffled[:cut], shuffled[cut:], [scans[again]]])
    assert content(folder / "one") == content(folder / "many")
    assert one["digest"] == many["digest"]


def test_a_rescan_replaces_every_row_of_its_source(tmp_path):
    fill(
        tmp_path,
        "store",
        [[scan("/d/a.nc", 9, 1), scan("/d/b.nc", 2)], [scan("/d/a.nc", 4, 2, mtime_ns=6)]],
    )
    fill(tmp_path, "fresh", [[scan("/d/b.nc", 2), scan("/d/a.nc", 4, 2, mtime_ns=6)]])
    assert content(tmp_path / "store") == content(tmp_path / "fresh")


def test_a_removed_source_leaves_nothing_behind(tmp_path):
    result = fill(
        tmp_path, "store", [[scan("/d/a.nc", 9, 1), scan("/d/b.nc", 2)], []], removed=("/d/a.nc",)
    )
    fill(tmp_path, "fresh", [[scan("/d/b.nc", 2)]])
    assert content(tmp_path / "store") == content(tmp_path / "fresh")
    assert result["counts"] == {"sources": 1, "refused": 0, "rows": 2, "removed": 1}


def test_known_gives_what_a_listing_is_compared_with_refused_sources_too(tmp_path):
    path = tmp_path / "batch.sqlite"
    store.write_scans(
        path, [scan("/d/a.nc", 2)], {Source("/d/bad.nc", 7, 8, "e"): "truncated"}, version="v9"
    )
    store.update(tmp_path / "store", [path], [])
    assert store.known(tmp_path / "store") == {
        "/d/a.nc": (100, 5, None, "v9"),
        "/d/bad.nc": (7, 8, "e", "v9"),
    }
    assert store.known(tmp_path / "none") == {}


def test_a_failed_update_leaves_the_last_committed_state(tmp_path):
    fill(tmp_path, "store", [[scan("/d/a.nc", 2)]])
    before = (tmp_path / "store").read_bytes()
    (tmp_path / "broken.sqlite").write_bytes(b"SQLite format 3\x00 but no more")
    good = tmp_path / "good.sqlite"
    store.write_scans(good, [scan("/d/b.nc", 2)], {}, version="1")
    with pytest.raises(StoreError, match="SQLite says"):
        store.update(tmp_path / "store", [good, tmp_path / "broken.sqlite"], ["/d/a.nc"])
    assert (tmp_path / "store").read_bytes() == before


def test_a_store_of_another_make_is_refused_with_the_way_out(tmp_path):
    con = sqlite3.connect(tmp_path / "store")
    con.execute("CREATE TABLE meta (key, value)")
    con.execute("INSERT INTO meta VALUES ('store_version', 'other/9')")
    con.commit()
    con.close()
    with pytest.raises(
        StoreError, match=r"'other/9' and this program writes .* delete it and run again"
    ):
        store.known(tmp_path / "store")


def test_the_store_has_a_delete_journal_and_no_sidecar_files(tmp_path):
    fill(tmp_path, "store", [[scan("/d/a.nc", 2)]])
    con = sqlite3.connect(tmp_path / "store")
    assert con.execute("PRAGMA journal_mode").fetchone() == ("delete",)
    con.close()
    assert sorted(p.name for p in tmp_path.glob("store*")) == ["store", "store-0.sqlite"]


def test_a_name_with_quotes_stays_one_identifier():
    con = sqlite3.connect(":memory:")
    name = 'a"; DROP TABLE x; --'
    con.execute(f"CREATE TABLE {database.quote(name)} (i)")
    assert con.execute("SELECT name FROM sqlite_master").fetchall() == [(name,)]
    con.close()
