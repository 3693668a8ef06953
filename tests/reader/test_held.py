"""The range cache: what was read once makes no request, whatever the path; what changed is fetched again."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import zarr

import byterefs
from byterefs.errors import StoreError
from byterefs.model import Source
from byterefs.reader import held as module
from byterefs.reader.held import Held
from byterefs.reader.table import Ref
from byterefs.reader.windows import Tiles
from reading import FORMS, Archive
from serving import web


@pytest.fixture
def server(tmp_path):
    (tmp_path / "site").mkdir()
    with web(tmp_path / "site") as found:
        yield found


@pytest.fixture
def archive(server):
    made = Archive(server.root, days=3, shape=(40, 60))
    made.publish(public=server.url, mirror=f"{server.url}/../moved")
    return made


def ref(n: int = 0, size: int = 10, etag: str | None = "a", source: str = "/s") -> Ref:
    return Ref((n,), Source(source, 1000, 10**9, etag), "/elsewhere", 100 * n, size)


@pytest.mark.parametrize("form", FORMS)
def test_a_second_read_of_a_window_makes_no_request_in_this_process_or_the_next(
    archive, server, tmp_path, form
):
    window = (slice(0, 3), slice(3, 9), slice(0, 60))
    for again in range(3):
        with byterefs.open(
            archive.root / FORMS[form], target="public", cache=tmp_path / "cache"
        ) as store:
            server.forget()
            values = byterefs.read(store.array("sst"), window)
            np.testing.assert_array_equal(values, archive.values["sst"][window])
            assert bool(server.requests) == (not again)
            server.forget()
            np.testing.assert_array_equal(zarr.open_group(store, mode="r")["sst"][window], values)
            assert server.requests == []


def test_bytes_that_one_form_and_target_fetched_serve_another(archive, server, tmp_path):
    """The key is the source, not the path by which it was reached."""
    with byterefs.open(archive.root / "sqlite", target="public", cache=tmp_path / "c") as store:
        byterefs.read(store.array("sst"))
    assert len(server.requests)
    server.forget()
    for form, target in (("parquet", "public"), ("sqlite", "mirror")):
        with byterefs.open(archive.root / form, target=target, cache=tmp_path / "c") as store:
            np.testing.assert_array_equal(byterefs.read(store.array("sst")), archive.values["sst"])
    assert server.requests == []


def test_a_source_with_a_new_etag_or_mtime_is_fetched_again(tmp_path):
    with_cache = Held(tmp_path)
    old, new, unknown = ref(etag="a"), ref(etag="b"), ref(etag=None)
    with_cache.put([old], [b"0123456789"])
    assert with_cache.get({0: old, 1: new, 2: unknown, 3: ref(source="/t")}) == {0: b"0123456789"}
    with_cache.put([unknown], [b"9876543210"])
    rewritten = unknown._replace(source=unknown.source._replace(mtime_ns=2 * 10**9))
    assert with_cache.get({0: unknown, 1: rewritten}) == {0: b"9876543210"}
    nothing = ref()._replace(source=Source("/s"))
    with_cache.put([nothing], [b"0123456789"])
    assert with_cache.get({0: nothing}) == {}
    with_cache.close()


def test_the_least_recently_used_bytes_go_first_and_their_rows_stay_as_refs(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "INLINE", 100)
    cache = Held(tmp_path, limit=1000)
    small, large = ref(0, 50), [ref(n, 400) for n in range(1, 5)]
    cache.put([small], [b"s" * 50])
    cache.put(large[:2], [b"a" * 400, b"b" * 400])
    assert [cache.state(r) for r in (small, *large[:2])] == ["inline", "copy", "copy"]
    assert len(cache.get({0: large[0]})) == 1
    cache.put(large[2:3], [b"c" * 400])
    assert [cache.state(r) for r in (small, *large[:3])] == ["ref", "copy", "ref", "copy"]
    assert cache.kept == 800
    assert len(list(tmp_path.glob("chunks/*/*"))) == 2
    assert cache.get({0: large[0], 1: large[2], 2: small}) == {0: b"a" * 400, 1: b"c" * 400}
    cache.put([ref(9, 2000)], [b"x" * 2000])
    assert cache.state(ref(9, 2000)) == "ref"
    cache.close()


def test_a_local_copy_of_a_source_is_linked_and_not_copied(archive, server, tmp_path):
    with byterefs.open(archive.root / "sqlite", target="public", cache=tmp_path / "c") as store:
        rows = store.table.find("sst", [range(1, 2), range(0, 1), range(0, 1)])
        mirror = tmp_path / "mirror.nc"
        mirror.write_bytes(archive.files[1].read_bytes())
        store.held.link(rows[0].source, mirror)
        server.forget()
        np.testing.assert_array_equal(
            byterefs.read(store.array("sst"), (1,)), archive.values["sst"][1]
        )
        assert (server.requests, store.held.state(rows[0]), store.held.kept) == ([], "link", 0)
    mirror.write_bytes(mirror.read_bytes()[::-1])
    with byterefs.open(archive.root / "sqlite", target="public", cache=tmp_path / "c") as store:
        np.testing.assert_array_equal(
            byterefs.read(store.array("sst"), (1,)), archive.values["sst"][1]
        )
        assert len(server.requests)
        assert store.held.state(rows[0]) in ("inline", "copy")
        mirror.write_bytes(b"short")
        with pytest.raises(StoreError, match=r"mirror.nc: it has 5 bytes"):
            store.held.link(rows[0].source, mirror)


def test_a_derived_tile_is_kept_with_its_lineage_and_not_for_other_sources(
    archive, server, tmp_path
):
    with byterefs.open(archive.root / "sqlite", target="public", cache=tmp_path / "c") as store:
        tiles = Tiles(store.array("sst"), (2, 20, 20))
        first = tiles.read((0, 1, 1))
        np.testing.assert_array_equal(first, archive.values["sst"][:2, 20:40, 20:40])
        made_of = store.held.lineage(tiles.name((0, 1, 1)))
        assert {p.source for p in made_of} == {str(f) for f in archive.files[:2]}
        assert sorted((p.source, p.offset, p.size) for p in made_of) == sorted(
            (r.source.source, r.offset, r.size) for r in tiles.refs((0, 1, 1))
        )
    with byterefs.open(archive.root / "sqlite", target="public", cache=tmp_path / "c") as store:
        tiles = Tiles(store.array("sst"), (2, 20, 20))
        assert store.held.derived(tiles.name((0, 1, 1)), tiles.refs((0, 1, 1))) == first.tobytes()
        np.testing.assert_array_equal(tiles.read((0, 1, 1)), first)
        turned = tiles.refs((0, 1, 1))
        turned[0], turned[1] = (
            turned[0]._replace(key=turned[1].key),
            turned[1]._replace(key=turned[0].key),
        )
        assert store.held.derived(tiles.name((0, 1, 1)), turned) is None


def test_damaged_and_missing_files_are_fetched_again(archive, server, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "INLINE", 0)
    for damage in (
        lambda p: p.unlink(),
        lambda p: p.write_bytes(b""),
        lambda p: p.write_bytes(b"x" * p.stat().st_size),
    ):
        with byterefs.open(archive.root / "sqlite", target="public", cache=tmp_path / "c") as store:
            np.testing.assert_array_equal(byterefs.read(store.array("sst")), archive.values["sst"])
        for path in (tmp_path / "c").glob("chunks/*/*"):
            damage(path)
    with byterefs.open(archive.root / "sqlite", target="public", cache=tmp_path / "c") as store:
        np.testing.assert_array_equal(byterefs.read(store.array("sst")), archive.values["sst"])


def test_a_process_that_is_killed_while_it_writes_leaves_a_cache_that_reads_right(
    archive, tmp_path
):
    cache = tmp_path / "c"
    work = (
        "import sys, byterefs; from byterefs.reader import held; held.INLINE = 50\n"
        "store = byterefs.open(sys.argv[1], target='public', cache=sys.argv[2], memory=0)\n"
        "print('ready', flush=True)\n"
        "while True:\n"
        "    byterefs.read(store.array('sst'))\n"
        "    store.held._con.execute('DELETE FROM held')\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(byterefs.__file__).parents[1])}
    for n in range(3):
        process = subprocess.Popen(
            [sys.executable, "-c", work, archive.root / "sqlite", cache],
            stdout=subprocess.PIPE,
            env=environment,
        )
        assert process.stdout.readline() == b"ready\n"
        try:
            process.wait(0.05 + 0.07 * n)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
        with byterefs.open(archive.root / "sqlite", target="public", cache=cache) as store:
            np.testing.assert_array_equal(byterefs.read(store.array("sst")), archive.values["sst"])


def test_what_a_killed_process_left_is_swept_when_it_is_nobodys_work(tmp_path):
    orphan, fresh = tmp_path / "chunks/ab/abcd", tmp_path / "chunks/ab/abce.1.2.part"
    orphan.parent.mkdir(parents=True)
    orphan.write_bytes(b"x")
    fresh.write_bytes(b"x")
    os.utime(orphan, (1, 1))
    Held(tmp_path).close()
    assert (orphan.exists(), fresh.exists()) == (False, True)


def test_a_folder_that_takes_no_files_costs_the_cache_and_not_the_values(
    archive, tmp_path, monkeypatch, caplog
):
    monkeypatch.setattr(module, "INLINE", 0)
    with byterefs.open(archive.root / "sqlite", target="public", cache=tmp_path / "c") as store:
        (tmp_path / "c/chunks").write_text("in the way")
        np.testing.assert_array_equal(byterefs.read(store.array("sst")), archive.values["sst"])
        assert store.held.kept == 0
    assert "bytes cannot be kept" in caplog.text


def test_a_file_that_is_no_cache_is_refused(tmp_path):
    (tmp_path / "held.sqlite").write_text("something else, long enough to be no header at all")
    with pytest.raises(StoreError, match="it is no range cache"):
        Held(tmp_path)


def test_the_rows_of_the_cache_join_those_of_the_table(archive, tmp_path):
    with byterefs.open(archive.root / "sqlite", target="public", cache=tmp_path / "c") as store:
        byterefs.read(store.array("sst"), (0, slice(0, 4), slice(0, 10)))
    con = sqlite3.connect(archive.root / FORMS["sqlite"])
    con.execute("ATTACH ? AS cache", (str(tmp_path / "c/held.sqlite"),))
    counted = con.execute("""
        SELECT coalesce(h.held, 'ref'), count(*) FROM refs_sst AS r LEFT JOIN cache.held AS h
        ON h.source = r.path AND h."offset" = r."offset" AND h.size = r.size GROUP BY 1
    """).fetchall()
    con.close()
    assert dict(counted) == {"inline": 2, "ref": 3 * 10 * 12 - 2}
