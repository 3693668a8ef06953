"""A small dataset that is ready to be published, and what a stranger sees of a publication."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import threading
from collections.abc import Callable, Sequence
from datetime import date, timedelta
from itertools import count
from pathlib import Path
from typing import Any

from byterefs import sync
from byterefs.files import digest
from byterefs.publishing import objects
from forms import Results
from granules import oisst

PUBLIC = "https://example.org/archive/"


def at(folder: Path) -> Results:
    """The results in a folder; their archive lies beside, where the store says it does."""
    archive = folder / "archive"
    return Results(folder / "results", remap={"public": {f"{archive}/": PUBLIC}})


def grow(
    results: Results, archive: Path, first: int, last: int, targets: Sequence[str] = ("access",)
) -> None:
    """Let days arrive; emit and verify every form of some targets."""
    paths = []
    for n in range(first, last + 1):
        day = date(2026, 9, 1) + timedelta(n - 1)
        paths.append(archive / f"{day:%Y%m%d}.nc")
        oisst(paths[-1], day, arrays=["sst"])
    results.scan(paths)
    pairs = [(target, form) for target, form in results.pairs if target in targets]
    results.emit(*pairs)
    for target, form in pairs:
        results.verify(target, form)


def publish(results: Results, to: Path | str, name: str = "here", **options: Any) -> dict[str, Any]:
    """Sync as the rule does: the receipt is removed first."""
    receipt = results.folder / "sync" / f"{name}.json"
    receipt.unlink(missing_ok=True)
    mirrored = (
        [results.folder / "sync" / f"{options['mirror_of']}.json"] if "mirror_of" in options else []
    )
    sync.run(
        receipt,
        options={"name": name, "target": "access", "to": str(to), **options},
        verified=results.proofs,
        mirrored=mirrored,
    )
    return dict(json.loads(receipt.read_text()))


def whole(get: Callable[[str], bytes | None], names: Callable[[str], Sequence[str]]) -> str | None:
    """The version that a stranger sees; AssertionError unless every byte of it is there and its own.

    A version is named by the digest of its files, so it proves itself. None before the first publication.
    """
    pointer = get("latest.json")
    if pointer is None:
        return None
    latest = json.loads(pointer)
    base = f"v/{latest['version']}/"
    held = {}
    for name in names(base):
        data = get(base + name)
        assert data is not None, f"{name} of version {latest['version']} is gone"
        held[name] = hashlib.sha256(data).hexdigest()
    assert digest(held)[:16] == latest["version"], f"version {latest['version']} is not whole"
    for form, told in latest["forms"].items():
        path = told["path"].removeprefix(base)
        if path in held:
            assert held[path] == told["sha256"]
        else:
            files = {
                n.removeprefix(f"{form}/"): s for n, s in held.items() if n.startswith(f"{form}/")
            }
            assert digest(files) == told["sha256"]
    return str(latest["version"])


def turned(folder: Path, days: int) -> Results:
    """The results of three or four days; what sync keeps stays."""
    results = at(folder)
    results.folder.mkdir(exist_ok=True)
    for part in ("store", "emit", "verify"):
        link = results.folder / part
        link.unlink(missing_ok=True)
        link.symlink_to(folder / f"state{days}" / part)
    return results


def once(folder: Path, place: str, days: int, requests: int, delay: float) -> None:
    """What runs in a process that is killed: ``delay`` seconds after it sent so many requests."""
    results = turned(folder, days)
    shelf = objects.bucket({"to": place})
    sent = count(1)

    def before_send(**_: Any) -> None:
        if next(sent) == requests:
            threading.Timer(delay, os.kill, (os.getpid(), signal.SIGKILL)).start()

    shelf.client.meta.events.register("before-send.s3", before_send)
    sync.publish(results.folder / "sync" / "here.json", shelf, "access", results.proofs)
