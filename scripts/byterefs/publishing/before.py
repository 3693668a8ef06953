"""What lies at a destination, and what the last sync from here left there."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from byterefs.errors import SyncError
from byterefs.files import write_json
from byterefs.publishing.publication import LATEST, REPO, Held, Tree, registered
from byterefs.publishing.shelf import Shelf
from byterefs.receipts import read

log = logging.getLogger(__name__)

Keys = dict[str, tuple[int, str]]
"""key -> size in bytes, sha256"""


def state_of(receipt: Path) -> Path:
    """What the last sync left at the destination; Snakemake removes a receipt before its rule runs."""
    return receipt.with_name(f"{receipt.stem}.state.json")


class Before:
    """What lies at the destination, and what the last sync from here left there."""

    def __init__(self, place: Shelf, there: Mapping[str, int], left: Mapping[str, Any]) -> None:
        self.place, self.there = place, there
        self.keys: Keys = {k: (size, sha) for k, (size, sha) in left.get("keys", {}).items()}
        self.orphans: list[str] = list(left.get("orphans", []))
        self.left = dict(left)
        self.intended: list[str] = list(left.get("intended", []))
        """sha256 of what a sync that was killed may have put in place of `repo`"""
        self.latest = place.get(LATEST)
        self.repo = place.get(REPO) if REPO in there else None

    @classmethod
    def of(cls, place: Shelf, receipt: Path) -> Before:
        """Read both."""
        state = state_of(receipt)
        left = read(state) if state.exists() else {}
        left = left if left.get("to") == place.where else {}
        place.recall({m: left["keys"][k][1] for k, m in left.get("marks", {}).items()})
        return cls(place, place.list(), left)

    @property
    def version(self) -> str | None:
        """The version that readers see."""
        return None if self.latest is None else str(json.loads(self.latest)["version"])

    def sha256(self, key: str) -> str | None:
        """Of what lies under a key; None if nothing does."""
        return self.place.digest(key) if key in self.there else None

    def refuse_other(self, dataset: str, receipt: Path) -> None:
        """Refuse a destination that holds another dataset or that another publisher went on with."""
        if self.latest is None:
            return
        there = json.loads(self.latest)["dataset"]
        if there != dataset:
            raise SyncError(
                f"{self.place.where}/{LATEST}: dataset {there!r} is published there, not {dataset!r}; "
                f"give sync.to a place of its own"
            )

    def intend(self, receipt: Path, sha256: str) -> None:
        """Note that `repo` is about to hold something else, for a sync that comes after a kill."""
        self.intended = [*self.intended, sha256]
        write_json(
            state_of(receipt), {"to": self.place.where, **self.left, "intended": self.intended}
        )

    def broken(self, made: Tree, receipt: Path) -> list[str]:
        """Immutable files that are not what the last sync left, and that this one brings again.

        Raises SyncError for one whose bytes are not at hand.
        """
        found = []
        for key, (_, sha256) in self.keys.items():
            if not key.startswith(("v/", "icechunk/")):
                continue
            now = self.sha256(key)
            pending = made.files.get(key)
            if now == sha256 or (key == REPO and now in self.intended):
                continue
            if pending and pending.sha256 == sha256:
                log.warning(
                    "%s/%s: it is not what was published there; it is put again",
                    self.place.where,
                    key,
                )
                found.append(key)
            else:
                raise SyncError(
                    f"{self.place.where}/{key}: its sha256 is {now} and was {sha256} when it was published; somebody "
                    f"edited it: bring it back, or remove {self.place.where}/{key.split('/')[0]} and "
                    f"{state_of(receipt)} to publish it afresh"
                )
        return found


def orphans(before: Before, made: Tree) -> list[str]:
    """Icechunk's files that the repository does not have any more."""
    return [k for k in before.there if k.startswith("icechunk/") and k not in made.icechunk]


def held_keys(place: Shelf, fresh: Mapping[str, Held], known: Keys) -> Keys:
    """Size and sha256 of everything at the destination, without reading again what is known."""
    keys: Keys = {}
    for key, size in place.list().items():
        if registered(key):
            continue
        if key in fresh:
            keys[key] = (size, fresh[key].sha256)
        elif key in known and key != LATEST and not key.startswith("current."):
            keys[key] = known[key]
        else:
            keys[key] = (size, place.digest(key))
    return keys


def state(place: Shelf, keys: Keys, before: Before, made: Tree) -> dict[str, Any]:
    """What the next sync compares the destination with."""
    left = [key for key in orphans(before, made) if key in keys]
    marks = {key: mark for key in keys if (mark := place.mark(key))}
    return {
        "to": place.where,
        "keys": {k: list(v) for k, v in keys.items()},
        "marks": marks,
        "orphans": left,
    }
