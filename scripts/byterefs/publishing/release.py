"""A publication as it lies there now, read again and compared with its receipt: drift, broken links, lost sources."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from byterefs.access import buckets, ranges
from byterefs.errors import ByteRefsError, RangeError
from byterefs.files import write_json
from byterefs.model import Source
from byterefs.publishing.destinations import shelf
from byterefs.publishing.publication import LATEST, registered
from byterefs.publishing.shelf import Shelf
from byterefs.receipts import read
from byterefs.view import View

DRIFT, BROKEN, MISSING, STALE = "drift", "broken", "missing", "stale"
Found = dict[str, list[str]]
"""kind of fault -> a sentence for each"""


def check(store: Path, receipts: Sequence[Path], report: Path | None = None) -> dict[str, Any]:
    """Look at every publication of a dataset again; counts of what was looked at and of each kind of fault.

    Every published byte is read and hashed, every path that ``latest.json`` names is looked up, every planned
    source is asked for its size, ETag and mtime at the address that the target serves. What was found is
    written to ``report``. Raises ByteRefsError, naming the first fault, if there is one.
    """
    found: Found = {kind: [] for kind in (DRIFT, BROKEN, MISSING, STALE)}
    counts = {"publications": 0, "keys": 0, "bytes": 0, "sources": 0}
    targets: dict[str, None] = {}
    for path in receipts:
        receipt = read(path)
        if receipt.get("dry_run"):
            continue
        place = shelf(receipt)
        counts["publications"] += 1
        right = published(place, receipt, found)
        counts["keys"] += len(right)
        counts["bytes"] += sum(right.values())
        links(place, found)
        targets[receipt["target"]] = None
    with View.open(store) as view:
        for target in targets:
            counts["sources"] += sources(view, target, found)
    told = {**counts, **{kind: len(said) for kind, said in found.items()}}
    if report is not None:
        write_json(report, {"stage": "release", "counts": told, "faults": found})
    first = next((said[0] for said in found.values() if said), None)
    if first is not None:
        total = sum(map(len, found.values()))
        raise ByteRefsError(
            f"{first} ({total} faults: {', '.join(f'{len(s)} {k}' for k, s in found.items() if s)})"
        )
    return told


def published(place: Shelf, receipt: Mapping[str, Any], found: Found) -> dict[str, int]:
    """Read every key again; key -> size of those that are as the receipt says."""
    there = {k: size for k, size in place.list().items() if not registered(k)}
    wanted = receipt["keys"]
    for key in sorted(there.keys() - wanted.keys() - {LATEST}):
        found[DRIFT].append(f"{place.where}/{key}: nobody published it; remove it")
    for key in sorted(wanted.keys() - there.keys()):
        found[DRIFT].append(f"{place.where}/{key}: it was published and is gone; publish again")
    right = {}
    keys = sorted(wanted.keys() & there.keys())
    with ThreadPoolExecutor(place.concurrency) as pool:
        for key, sha256 in zip(keys, pool.map(place.reread, keys), strict=True):
            if sha256 != wanted[key]["sha256"]:
                found[DRIFT].append(
                    f"{place.where}/{key}: its sha256 is {sha256} and was {wanted[key]['sha256']} when it was published; "
                    f"somebody edited it: publish again"
                )
            else:
                right[key] = there[key]
    return right


def links(place: Shelf, found: Found) -> None:
    """Look up every path that ``latest.json`` names."""
    raw = place.get(LATEST)
    if raw is None:
        found[BROKEN].append(f"{place.where}/{LATEST}: there is none; publish again")
        return
    latest = json.loads(raw)
    there = place.list()
    named = [*latest["forms"].values(), *([latest["icechunk"]] if latest["icechunk"] else [])]
    for path in sorted({n[key] for n in named for key in ("path", "open")}):
        if path not in there and not any(key.startswith(f"{path}/") for key in there):
            found[BROKEN].append(
                f"{place.where}/{LATEST}: it names {path}, and nothing is there; publish again"
            )


def sources(view: View, target: str, found: Found) -> int:
    """Ask for every source at the address that a target serves; how many were asked for."""
    paths = view.paths(target)
    mine = not view.remap.get(target)
    with (
        buckets.asking({"endpoint": view.endpoint(target), "anonymous": not mine}),
        ThreadPoolExecutor(ranges.CONCURRENCY) as pool,
    ):
        for source, path, now in zip(view.sources, paths, pool.map(look, paths), strict=True):
            if isinstance(now, str):
                found[MISSING].append(now)
            elif fault := other(source, now, same=source.source == path):
                found[STALE].append(
                    f"{path}: {fault}; its byte ranges are void: run the workflow again, or bring the copy up to date"
                )
    return len(paths)


def look(path: str) -> Source | str:
    """A source as it is now, or why it cannot be asked for."""
    try:
        with ranges.opened(path) as found:
            return Source(path, found.size, found.mtime_ns, found.etag)
    except RangeError as error:
        return str(error)


def other(scanned: Source, now: Source, *, same: bool) -> str | None:
    """What differs from the scan: size everywhere, ETag and mtime at the address that was scanned."""
    for what in ("size", "etag", "mtime_ns") if same else ("size",):
        was, seen = getattr(scanned, what), getattr(now, what)
        if was is not None and seen is not None and was != seen:
            return f"its {what} is {seen} and was {was} when it was scanned"
    return None
