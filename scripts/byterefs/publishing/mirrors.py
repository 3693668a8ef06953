"""A mirror of a publication: the same keys, the same bytes, ``latest.json`` last."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from byterefs import progress
from byterefs.errors import SyncError
from byterefs.publishing.destinations import shelf
from byterefs.publishing.publication import LATEST, REPO, registered
from byterefs.publishing.shelf import Shelf


def mirror(place: Shelf, truth: Mapping[str, Any]) -> dict[str, Any]:
    """Copy what the publication ``truth`` (its receipt) left, byte for byte, ``latest.json`` last."""
    origin = shelf(truth)
    origin.recall({h["etag"]: h["sha256"] for h in truth["keys"].values() if "etag" in h})
    place.recall({h["etag"]: h["sha256"] for h in truth["keys"].values() if "etag" in h})
    wanted = {key: (int(h["size"]), str(h["sha256"])) for key, h in truth["keys"].items()}
    with origin.lock(), place.lock():
        held = origin.list()
        for key, (_, sha256) in wanted.items():
            now = origin.digest(key) if key in held else None
            if now != sha256:
                raise SyncError(
                    f"{origin.where}/{key}: its sha256 is {now} and was {sha256} when it was published; "
                    f"publish again before it is mirrored to {place.where}"
                )
        there = {key: size for key, size in place.list().items() if not registered(key)}
        pinned = place.get(LATEST)
        counts: Counter[str] = Counter()
        data, last = parted(wanted.keys() - {LATEST})
        with ThreadPoolExecutor(place.concurrency) as pool:
            done = pool.map(lambda key: carry(origin, place, key, wanted[key], there), data)
            counts.update(progress.counted(done, len(data), "mirror"))
        for key in last:
            counts[carry(origin, place, key, wanted[key], there)] += 1
        latest = origin.get(LATEST)
        if latest is not None and latest != pinned:
            if not place.swap(LATEST, latest, pinned):
                raise SyncError(
                    f"{place.where}/{LATEST}: another publisher replaced it; nothing but this mirror may write there"
                )
            counts["put"] += 1
        for key in sorted(there.keys() - wanted.keys()):
            place.delete(key)
            counts["deleted"] += 1
    return {
        "mirror_of": truth["name"],
        "version": truth["version"],
        "target": truth["target"],
        "digest": truth["digest"],
        "keys": {
            k: {"size": size, "sha256": sha} | ({"etag": mark} if (mark := place.mark(k)) else {})
            for k, (size, sha) in wanted.items()
        },
        "refused": dict(truth["refused"]),
        "counts": dict(sorted(counts.items())),
    }


def parted(keys: Iterable[str]) -> tuple[list[str], list[str]]:
    """Keys in any order, and those that come after all of them: what leads to others."""
    pointers = [k for k in keys if k == REPO or k.endswith(".zmetadata")]
    return sorted(set(keys) - set(pointers)), sorted(pointers, key=lambda k: (k == REPO, k))


def carry(
    origin: Shelf, place: Shelf, key: str, wanted: tuple[int, str], there: Mapping[str, int]
) -> str:
    """Copy one key unless the mirror has the same bytes; what had to be done."""
    if there.get(key) == wanted[0] and place.digest(key) == wanted[1]:
        return "unchanged"
    if place.take(origin, key, key):
        return "copied"
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "bytes"
        file.write_bytes(origin.get(key) or b"")
        place.put(key, file)
    return "put"
