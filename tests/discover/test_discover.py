"""The listing is rewritten only if it changed; pending sources come in batches named by their content."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from byterefs import config as configs
from byterefs import discover, store
from byterefs.errors import DiscoverError
from byterefs.model import Source

PATTERN = r"(?P<date>\d{8})(?P<status>_preliminary)?\.nc$"


def make(path: Path, **scan: Any) -> dict[str, Any]:
    content = {
        "dataset": "demo",
        "source": {"provider": "local", "path": str(path), "pattern": PATTERN},
        "select": {"slot": ["date"], "prefer": {"status": ["", "_preliminary"]}},
        "scan": scan,
        "plan": {"concat": "time"},
    }
    return configs.check(content, "dataset", "demo.yaml")


def listing(names: list[str], version: str = "1", **more: Any) -> dict[str, Any]:
    sources = {f"/a/{name}": [1, 10**9 + i, None] for i, name in enumerate(names)}
    return {"version": version, "sources": sources, "allow_removal": False, **more}


def known(now: dict[str, Any]) -> dict[str, Any]:
    return {source: (*stat, now["version"]) for source, stat in now["sources"].items()}


def days(count: int) -> list[str]:
    return [f"2020{1 + i // 28:02d}{1 + i % 28:02d}.nc" for i in range(count)]


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    folder = tmp_path / "archive"
    folder.mkdir()
    for name in days(3):
        (folder / name).write_bytes(b"x")
    return folder


def test_a_listing_is_written_once_and_again_only_if_a_source_changed(
    archive: Path, tmp_path: Path
) -> None:
    results = tmp_path / "results"
    assert discover.refresh(make(archive), results)
    before = (results / "discover/listing.json").stat().st_mtime_ns
    assert not discover.refresh(make(archive), results)
    assert (results / "discover/listing.json").stat().st_mtime_ns == before
    (archive / days(1)[0]).write_bytes(b"xx")
    assert discover.refresh(make(archive), results)
    now = json.loads((results / "discover/listing.json").read_text())
    assert now["sources"][str(archive / days(1)[0])][0] == 2


def test_what_is_scanned_is_part_of_the_listing_and_how_it_is_planned_is_not(
    archive: Path, tmp_path: Path
) -> None:
    discover.refresh(make(archive), tmp_path)
    assert discover.refresh(make(archive, arrays=["sst"]), tmp_path)
    assert not discover.refresh(make(archive, arrays=["sst"], batch=3, on_error="skip"), tmp_path)
    other = make(archive, arrays=["sst"])
    other["plan"]["axis"] = "dense"
    assert not discover.refresh(other, tmp_path)
    other["plan"]["concat"] = "t"
    assert discover.refresh(other, tmp_path)


def test_a_refused_listing_keeps_its_sentence_for_the_job(archive: Path, tmp_path: Path) -> None:
    results = tmp_path / "results"
    gone = make(tmp_path / "unmounted")
    discover.refresh(gone, results)
    with pytest.raises(DiscoverError, match=r"unmounted: source\.path is no folder"):
        work(results, gone)
    assert not discover.refresh(gone, results)
    assert discover.refresh(make(archive), results)


def test_an_unknown_provider_is_refused_with_those_that_are():
    with pytest.raises(DiscoverError, match="'ftp' is none of: local, listing, http, s3"):
        discover.load("ftp")


def test_every_provider_that_is_built_has_a_module_with_list() -> None:
    for name in discover.NAMES:
        assert callable(discover.load(name).list)


def test_a_permission_to_lose_sources_holds_until_the_listing_changes(
    archive: Path, tmp_path: Path
) -> None:
    discover.refresh(make(archive), tmp_path)
    assert discover.refresh(make(archive), tmp_path, allow_removal=True)
    assert not discover.refresh(make(archive), tmp_path, allow_removal=True)
    assert not discover.refresh(make(archive), tmp_path)
    (archive / days(1)[0]).unlink()
    assert discover.refresh(make(archive), tmp_path)
    assert json.loads((tmp_path / "discover/listing.json").read_text())["allow_removal"] is False


def work(results: Path, config: dict[str, Any], allow: bool = False) -> dict[str, Any]:
    receipt = results / "discover/receipt.json"
    store = results / "store/store.sqlite"
    discover.discover(
        results / "discover/listing.json", receipt, store, config, allow_removal=allow
    )
    return json.loads(receipt.read_text())


def test_without_a_store_all_sources_are_pending(archive: Path, tmp_path: Path) -> None:
    discover.refresh(make(archive), tmp_path)
    receipt = work(tmp_path, make(archive))
    assert receipt["counts"] == {
        "sources": 3,
        "known": 0,
        "pending": 3,
        "batches": len(receipt["batches"]),
        "removed": 0,
    }
    assert sorted(s for b in receipt["batches"].values() for s in b) == [
        str(archive / n) for n in days(3)
    ]


def test_scans_that_are_pending_no_more_are_removed(archive: Path, tmp_path: Path) -> None:
    discover.refresh(make(archive), tmp_path)
    (batch,) = work(tmp_path, make(archive, batch=1000))["batches"]
    (tmp_path / "scan").mkdir()
    for name in (f"{batch}.sqlite", "0123456789abcdef.sqlite", f".{batch}.sqlite.12.part-journal"):
        (tmp_path / "scan" / name).write_bytes(b"")
    work(tmp_path, make(archive, batch=1000))
    assert [p.name for p in (tmp_path / "scan").iterdir()] == [f"{batch}.sqlite"]


@pytest.mark.parametrize(("known_before", "kept"), [(0, True), (2, False)])
def test_receipts_of_a_store_that_is_gone_are_removed_unless_they_asked_for_everything(
    archive: Path, tmp_path: Path, known_before: int, kept: bool
) -> None:
    receipt = tmp_path / "discover/receipt.json"
    receipt.parent.mkdir()
    receipt.write_text(json.dumps({"counts": {"known": known_before}}))
    discover.refresh(make(archive), tmp_path)
    assert receipt.exists() is kept


@pytest.mark.parametrize("stage", ["store", "plan"])
def test_the_receipt_of_what_lay_in_a_lost_store_is_removed(
    archive: Path, tmp_path: Path, stage: str
) -> None:
    receipt = tmp_path / stage / "receipt.json"
    receipt.parent.mkdir()
    receipt.write_text("{}")
    discover.refresh(make(archive), tmp_path)
    assert not receipt.exists()


def test_nothing_is_pending_when_the_store_knows_every_source(tmp_path: Path) -> None:
    now = listing(days(3))
    assert discover.pending(now, known(now), make(tmp_path)) == ({}, [])


@pytest.mark.parametrize(
    "change", [[2, 10**9, None], [1, 10**9 + 7, None], [1, 10**9 - 7, None], [1, 10**9, "etag"]]
)
def test_a_source_of_another_size_mtime_or_etag_is_pending(
    tmp_path: Path, change: list[Any]
) -> None:
    now = listing(days(3))
    held = known(now)
    now["sources"][f"/a/{days(1)[0]}"] = change
    batches, removed = discover.pending(now, held, make(tmp_path))
    assert (list(batches.values()), removed) == ([[f"/a/{days(1)[0]}"]], [])


def test_what_a_listing_does_not_tell_is_not_compared(tmp_path: Path) -> None:
    now = listing(days(1))
    held = {f"/a/{days(1)[0]}": (5, 1_600_000_000_123_456_789, "x", "1")}
    now["sources"][f"/a/{days(1)[0]}"] = [None, None, None]
    assert discover.pending(now, held, make(tmp_path)) == ({}, [])
    now["sources"][f"/a/{days(1)[0]}"] = [5, 1_600_000_000_000_000_000, None]
    assert discover.pending(now, held, make(tmp_path)) == ({}, [])


@pytest.mark.parametrize(
    "rule", [{"format": "hdf5"}, {"arrays": ["sst"]}, {"split": "none"}, {"multiple": 2}]
)
def test_another_rule_of_scan_is_another_scan(tmp_path: Path, rule: dict[str, Any]) -> None:
    plain = discover.scan_version(make(tmp_path))
    assert discover.scan_version(make(tmp_path, **rule)) != plain
    assert discover.scan_version(make(tmp_path, batch=3, on_error="skip")) == plain


@pytest.mark.parametrize("name", ["refs.json", "refs.parq/v/refs.0.parq"])
def test_references_that_were_written_again_are_another_scan(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("{}")
    config = make(tmp_path, references={"path": str(tmp_path / name.split("/")[0])})
    before = discover.scan_version(config)
    assert discover.scan_version(config) == before
    path.write_text("{ }")
    assert discover.scan_version(config) != before


def test_another_scan_version_makes_every_source_pending(tmp_path: Path) -> None:
    now = listing(days(3))
    held = known(now)
    now["version"] = "2"
    batches, _ = discover.pending(now, held, make(tmp_path))
    assert sum(map(len, batches.values())) == 3


def test_one_source_may_vanish(tmp_path: Path) -> None:
    held = known(listing(days(3)))
    assert discover.pending(listing(days(2)), held, make(tmp_path)) == ({}, [f"/a/{days(3)[2]}"])


def test_a_listing_that_shrinks_by_half_is_refused_with_the_way_out(tmp_path: Path) -> None:
    held = known(listing(days(20)))
    with pytest.raises(DiscoverError) as error:
        discover.pending(listing(days(10)), held, make(tmp_path))
    assert "10 of 20 known sources are gone" in str(error.value)
    assert "allow_removal=true" in str(error.value)
    _, removed = discover.pending(listing(days(10)), held, make(tmp_path), allow_removal=True)
    assert len(removed) == 10


@pytest.mark.parametrize(("lost", "refused"), [(2, False), (3, True)])
def test_more_than_one_percent_is_too_much(tmp_path: Path, lost: int, refused: bool) -> None:
    names = [f"{i:08d}.nc" for i in range(200)]
    held = known(listing(names))
    now = listing(names[: 200 - lost])
    if refused:
        with pytest.raises(DiscoverError, match="3 of 200 known sources"):
            discover.pending(now, held, make(tmp_path))
    else:
        assert len(discover.pending(now, held, make(tmp_path))[1]) == 2


def test_preliminaries_that_finals_replaced_are_no_loss(tmp_path: Path) -> None:
    held = known(listing([*days(3), "20210101_preliminary.nc", "20210102_preliminary.nc"]))
    now = listing([*days(3), "20210101.nc", "20210102.nc"])
    _, removed = discover.pending(now, held, make(tmp_path))
    assert removed == ["/a/20210101_preliminary.nc", "/a/20210102_preliminary.nc"]


sources = st.sets(st.integers(0, 400), max_size=120).map(
    lambda days: [Source(f"/a/{d:08d}.nc", 1, d) for d in sorted(days)]
)


@given(sources, st.integers(1, 9))
def test_batches_hold_every_source_once_in_order_and_none_is_too_large(
    found: list[Source], limit: int
) -> None:
    parts = list(discover.batched(found, limit))
    assert [s for part in parts for s in part] == found
    assert all(1 <= len(part) <= limit for part in parts)


def test_an_archive_is_cut_into_the_same_batches_wherever_it_lies() -> None:
    here, there = ([Source(f"{root}/{d}", 1, 1) for d in days(200)] for root in ("/a", "/b/c"))
    parts = [list(discover.batched(here, 8, "/a")), list(discover.batched(there, 8, "/b/c"))]
    assert [len(part) for part in parts[0]] == [len(part) for part in parts[1]]
    assert len(parts[0]) > 25


def test_a_source_that_arrives_in_front_leaves_most_batches_as_they_were(tmp_path: Path) -> None:
    config = make(tmp_path, batch=8)
    before, _ = discover.pending(listing(days(200)), {}, config)
    later = listing(days(200))
    later["sources"]["/a/19991231.nc"] = [1, 5, None]
    after, _ = discover.pending(later, {}, config)
    assert len(after.keys() - before.keys()) < len(before) / 4
    assert len(before) > 20


def test_the_name_of_a_batch_changes_with_its_sources_and_with_the_scan_version(
    tmp_path: Path,
) -> None:
    (one,), _ = discover.pending(listing(days(1)), {}, make(tmp_path))
    changed = listing(days(1))
    changed["sources"][f"/a/{days(1)[0]}"] = [2, 10**9, None]
    (two,), _ = discover.pending(changed, {}, make(tmp_path))
    (three,), _ = discover.pending(listing(days(1), version="2"), {}, make(tmp_path))
    assert len({one, two, three}) == 3


def test_a_source_that_was_set_aside_is_pending_again_once_errors_fail(tmp_path: Path) -> None:
    bad = Source("/a/20200101.nc", 1, 10**9)
    path = tmp_path / "store.sqlite"
    store.write_scans(tmp_path / "scan.sqlite", [], {bad: "an empty file"}, version="1")
    store.update(path, [tmp_path / "scan.sqlite"], [])
    now = listing(days(1))
    for on_error, batches in (("skip", 0), ("fail", 1)):
        held = discover.known_sources(path, on_error)
        assert len(discover.pending(now, held, make(tmp_path))[0]) == batches


@pytest.mark.parametrize(
    "skew", [0, 3600, -590], ids=["clocks agree", "server ahead", "server behind"]
)
def test_a_source_whose_coarse_mtime_was_fresh_is_asked_for_once_more(
    archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, skew: int
) -> None:
    results, first = tmp_path / "results", archive / days(1)[0]
    at = (int(time.time()) + skew) * 10**9
    for name in days(3):  # a file system without fractions of seconds
        os.utime(archive / name, ns=(at - 10**13, at - 10**13))
    os.utime(first, ns=(at, at))
    discover.refresh(make(archive), results)
    path = results / "discover/listing.json"
    assert json.loads(path.read_text())["fresh"] == [str(first)]
    # the same size and the same second: nothing that a listing tells has changed
    first.write_bytes(b"y")
    os.utime(first, ns=(at, at))
    assert not discover.refresh(make(archive), results)  # not yet
    later = time.time_ns() + 3600 * 10**9 + discover.SETTLED
    monkeypatch.setattr(time, "time_ns", lambda: later)
    assert discover.refresh(make(archive), results)
    now = json.loads(path.read_text())
    held = {s: (*stat, now["version"]) for s, stat in now["sources"].items()}
    batches, _ = discover.pending(now, held, make(archive))
    assert list(batches.values()) == [[str(first)]]
    assert not discover.refresh(make(archive), results)
