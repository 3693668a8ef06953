"""A mirror of a publication: the same keys, the same bytes, ``latest.json`` last."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from byterefs.errors import SyncError
from byterefs.publication import LATEST, REPO, registered
from byterefs.shelf import Shelf, shelf


def mirror(place: Shelf, truth: Mapping[str, Any]) -> dict[str, Any]:
    """Copy what the publication ``truth`` (its receipt) left, byte for byte, ``latest.json`` last."""
    origin = shelf(truth["to"])
    wanted = {key: (int(h["size"]), str(h["sha256"])) for key, h in truth["keys"].items()}
    with origin.lock(), place.lock():
        for key, (_, sha256) in wanted.items():
            now = origin.digest(key) if origin.get(key) is not None else None
            if now != sha256:
                raise SyncError(
                    f"{origin.where}/{key}: its sha256 is {now} and was {sha256} when it was published; "
                    f"publish again before it is mirrored to {place.where}"
                )
        there = {key: size for key, size in place.list().items() if not registered(key)}
        pinned = place.get(LATEST)
        counts: Counter[str] = Counter()
        for key in sorted(
            wanted.keys() - {LATEST}, key=lambda k: (k == REPO, k.endswith(".zmetadata"), k)
        ):
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
        "keys": dict(truth["keys"]),
        "refused": dict(truth["refused"]),
        "counts": dict(sorted(counts.items())),
    }


def carry(
    origin: Shelf, place: Shelf, key: str, wanted: tuple[int, str], there: Mapping[str, int]
) -> str:
    """Copy one key unless the mirror has the same bytes; what had to be done."""
    if there.get(key) == wanted[0] and place.digest(key) == wanted[1]:
        return "unchanged"
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "bytes"
        file.write_bytes(origin.get(key) or b"")
        place.put(key, file)
    return "put"
