"""Discover: what the archive holds now, and which of it the store does not know yet.

Two steps. :func:`refresh` lists the sources when the Snakefile is parsed and rewrites
``listing.json`` only if something changed, so that an unchanged archive asks for no job.
:func:`discover` compares a listing with the store and names the pending sources in batches.

A provider is one module here with ``list(source) -> Iterator[Source]``, where ``source`` is that
section of a dataset config: it yields the sources whose names match the pattern, and raises
DiscoverError rather than yield a listing that is not whole. ``TOLD = True`` says that size, mtime and
etag are what a catalogue tells of a source, and not what an open of the source shows: then a source is
pending where the listing tells something else than it told when the source was scanned.
"""

from __future__ import annotations

import importlib
import json
import logging
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, cast

from byterefs import database, files, store, urls
from byterefs.discover import select
from byterefs.errors import DiscoverError
from byterefs.model import Source
from byterefs.scanners import SCAN_VERSION

log = logging.getLogger(__name__)

SETTLED = 600 * 10**9
"""nanoseconds after which an mtime of whole seconds can be of one version only, by a clock of another machine;
FAT counts by two seconds, and a server's clock may lag behind ours"""
NAMES = ("local", "listing", "http", "s3", "thredds", "stac", "cmr")
"""The providers, as the schema of a dataset config has them."""

Known = Mapping[str, tuple[int | None, int | None, str | None, str]]
"""Source to (size, mtime_ns, etag, scan version), as the store holds them."""


class Provider(Protocol):
    """What a provider module has."""

    def list(self, source: Mapping[str, Any]) -> Iterator[Source]:
        """Every source of the archive that matches the pattern, whole or not at all."""
        ...


def load(provider: str) -> Provider:
    """The module of a provider."""
    if provider not in NAMES:
        raise DiscoverError(f"source.provider: {provider!r} is none of: {', '.join(NAMES)}")
    return cast(Provider, importlib.import_module(f"byterefs.discover.{provider}"))


def scan_version(config: Mapping[str, Any]) -> str:
    """Digest of what decides the rows of a scan; another one voids all rows of the dataset.

    That is the whole section but for how the work is cut and what a refusal does, and of references that
    somebody else wrote the size and mtime of each file.
    """
    scan = {k: v for k, v in config["scan"].items() if k not in ("batch", "on_error")}
    if "references" in scan:
        scan["references"] = {**scan["references"], "files": _states(scan["references"]["path"])}
    return files.digest({"version": SCAN_VERSION, **scan, "concat": config["plan"]["concat"]})


def _states(path: str) -> list[tuple[str, int, int]]:
    """Name below ``path``, size and mtime of a file, or of every file of a folder, sorted; none if it is absent."""
    root = Path(path)
    found = [root] if root.is_file() else sorted(f for f in root.rglob("*") if f.is_file())
    stats = [(f.relative_to(root).as_posix(), f.stat()) for f in found]
    return [(name, stat.st_size, stat.st_mtime_ns) for name, stat in stats]


def listed(config: Mapping[str, Any]) -> dict[str, Any]:
    """The archive as it is now; a listing that is refused holds the sentence that says why."""
    source = config["source"]
    provider = load(source["provider"])
    try:
        rows = {s.source: list(s[1:]) for s in provider.list(source)}
        _refuse_secrets(rows)
    except DiscoverError as error:
        return {"refused": str(error)}
    told = {"told": True} if getattr(provider, "TOLD", False) else {}
    fresh = {"fresh": found} if (found := unsettled(rows, time.time_ns())) else {}
    return {"version": scan_version(config), "sources": rows, **told, **fresh}


def unsettled(rows: Mapping[str, Sequence[Any]], now: int) -> list[str]:
    """Sources that may change again and keep size and mtime: no ETag, and an mtime of whole seconds just past.

    NFS and FAT may tell no fractions, and a server's clock may run ahead of ours, or lag; ``now`` is in nanoseconds.
    """
    return [
        source
        for source, (_, mtime_ns, etag) in rows.items()
        if etag is None and mtime_ns and mtime_ns % 10**9 == 0 and now - mtime_ns < SETTLED
    ]


def _refuse_secrets(sources: Iterable[str]) -> None:
    """Refuse addresses that hold what opens them: a source is written into every form."""
    for source in sources:
        if urls.secret(source):
            raise DiscoverError(
                f"{urls.to_url(source).partition('?')[0].rpartition('@')[2]}: this source's address holds a password or "
                "a signature, and it would be published; list the archive by addresses without one"
            )


def refresh(config: Mapping[str, Any], results: Path, *, allow_removal: bool = False) -> bool:
    """List the archive into ``results/discover/listing.json``, only if it changed; True if it did.

    A source whose mtime was too fresh to tell two versions apart is asked for again by the first listing
    that finds it settled, once. ``results`` is the folder of the dataset. A refusal is written too: the job `discover` reports
    it, so that `--lint` and `--unlock` work while an archive is not mounted. A permission to lose
    sources is part of the listing that it was given for, and asks for no job by itself later on.
    """
    path = results / "discover" / "listing.json"
    forget_lost_store(results)
    old = json.loads(path.read_text()) if path.exists() else {}
    permitted = old.pop("allow_removal", False)
    old.pop("again", None)
    new = listed(config)
    if new == old and (permitted or not allow_removal):
        return False
    with files.replacing(path) as part:
        settled = sorted(set(old.get("fresh", ())) - set(new.get("fresh", ())))
        asked = {"allow_removal": allow_removal, "again": settled}
        part.write_text(files.canonical({**new, **asked}) + "\n")
    return True


def forget_lost_store(results: Path) -> None:
    """Remove the receipts that tell of a store that is gone, so that another one is made whole.

    The pending sources in the receipt of `discover` are what was new to that store, and the plan
    lay inside it; equal receipts of a new store would let Snakemake leave both as they are.
    """
    if (results / "store" / "store.sqlite").exists():
        return
    receipts = [results / stage / "receipt.json" for stage in ("discover", "store", "plan")]
    if receipts[0].exists() and json.loads(receipts[0].read_text())["counts"]["known"] == 0:
        receipts = receipts[1:]  # it asked for every source: a first build that goes on
    for receipt in receipts:
        receipt.unlink(missing_ok=True)


def discover(
    listing: Path,
    receipt: Path,
    store_path: Path,
    config: Mapping[str, Any],
    *,
    allow_removal: bool,
) -> dict[str, Any]:
    """Write the receipt of `discover`: pending sources in batches, and removed ones; its counts.

    ``listing`` is the ``listing.json``, ``store_path`` the working store. Scans of batches that are
    pending no more are removed.
    """
    now = json.loads(listing.read_text())
    if "refused" in now:
        raise DiscoverError(now["refused"])
    known = known_sources(store_path, config["scan"]["on_error"])
    batches, removed = pending(now, known, config, now["allow_removal"] or allow_removal)
    counts = {
        "sources": len(now["sources"]),
        "known": len(known),
        "pending": sum(map(len, batches.values())),
        "batches": len(batches),
        "removed": len(removed),
    }
    work: dict[str, Any] = {"version": now["version"], "batches": batches, "removed": removed}
    if now.get("told"):
        work["told"] = {s: now["sources"][s] for part in batches.values() for s in part}
    files.write_json(
        receipt, {"stage": "discover", "digest": files.digest(work), "counts": counts, **work}
    )
    _drop_orphans(receipt.parents[1] / "scan", batches)
    return counts


def known_sources(store_path: Path, on_error: str) -> dict[str, Any]:
    """What the store knows; sources it set aside are of no scan version where ``on_error`` is `fail`.

    They are then pending, and fail the build that would have passed over them.
    """
    known: dict[str, Any] = store.known(store_path)
    if known and on_error == "fail":
        with database.reading(store_path) as con:
            rows = con.execute(
                "SELECT source FROM sources JOIN byterefs_scans USING (source_id) "
                "WHERE refused IS NOT NULL"
            )
            known |= {source: (*known[source][:3], None) for (source,) in rows}
    return known


def pending(
    now: Mapping[str, Any], known: Known, config: Mapping[str, Any], allow_removal: bool = False
) -> tuple[dict[str, list[str]], list[str]]:
    """(batches of new or changed sources by their id, sources that are gone), all sorted.

    Refuses a listing that lost more than 1 % of the known sources and more than one: a half-mounted
    archive must not be published. A lost source whose slot another one took over is not counted.
    """
    sources = [Source(name, *stat) for name, stat in sorted(now["sources"].items())]
    removed = sorted(known.keys() - now["sources"].keys())
    if not allow_removal:
        _guard(_lost(removed, now["sources"], config), len(known), config)
    again = set(now.get("again", ()))
    todo = [
        s for s in sources if s.source in again or not _same(s, known.get(s.source), now["version"])
    ]
    batches = {
        files.digest([now["version"], *part])[:16]: [s.source for s in part]
        for part in batched(todo, config["scan"]["batch"], select.root(config["source"]))
    }
    return batches, removed


def batched(sources: Iterable[Source], limit: int, root: str = "") -> Iterator[list[Source]]:
    """Runs of at most ``limit`` sources, cut after a source whose own name below ``root`` says so.

    A source that arrives changes the run it falls into and no other, so scans that a killed run had
    finished are still of use; an archive is cut alike wherever it lies.
    """
    part: list[Source] = []
    for source in sources:
        part.append(source)
        if (
            len(part) == limit
            or int(files.digest(select.below(source.source, root))[:8], 16) % limit == 0
        ):
            yield part
            part = []
    if part:
        yield part


def _same(listed: Source, known: tuple[Any, ...] | None, version: str) -> bool:
    """Whether the store's rows are of this very source; what a listing does not tell is not asked."""
    if known is None or known[3] != version:
        return False
    size, mtime_ns, etag = known[:3]
    if listed.mtime_ns is not None and listed.mtime_ns % 10**9 == 0 and mtime_ns is not None:
        mtime_ns -= mtime_ns % 10**9  # a listing of whole seconds
    pairs = zip(listed[1:], (size, mtime_ns, etag), strict=True)
    return all(told is None or told == held for told, held in pairs)


def _lost(removed: list[str], listed: Iterable[str], config: Mapping[str, Any]) -> list[str]:
    """The removed sources whose slot is empty now."""
    rules = config["source"]["pattern"], config["select"]["slot"]
    root = select.root(config["source"])
    taken = {select.slot_of(source, *rules, root=root) for source in listed} if removed else set()
    return [s for s in removed if select.slot_of(s, *rules, root=root) not in taken]


def _guard(lost: list[str], known: int, config: Mapping[str, Any]) -> None:
    if len(lost) > 1 and len(lost) > 0.01 * known:
        raise DiscoverError(
            f"{select.root(config['source']) or config['source']['path']}: {len(lost)} of {known} known "
            f"sources are gone ({lost[0]} to {lost[-1]}); if the archive is whole and this is meant, run "
            "once with `--config allow_removal=true`"
        )


def _drop_orphans(scans: Path, batches: Mapping[str, Any]) -> None:
    """Remove scans that nobody waits for, and the beginnings of some that a killed run left."""
    for path in [*scans.glob("*.sqlite"), *scans.glob(".*.part*")]:
        if path.stem not in batches:
            path.unlink()
