"""Publication that is never half: data, then pointers, ``latest.json`` last and only if nobody was faster.

What lies at the destination is compared by size and sha256, never by mtime. A version that was
published is immutable: if a file of it is not what the last sync left, somebody edited it and
nothing is published.
"""

from __future__ import annotations

import logging
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

from byterefs import progress
from byterefs.errors import SyncError
from byterefs.files import digest, write_json
from byterefs.publishing.before import Before, Keys, held_keys, orphans, state, state_of
from byterefs.publishing.destinations import shelf
from byterefs.publishing.mirrors import mirror
from byterefs.publishing.publication import LATEST, REPO, Held, Tree, tree
from byterefs.publishing.shelf import Shelf
from byterefs.receipts import read

log = logging.getLogger(__name__)

KEEP_VERSIONS = 7
KEEP_DAYS = 30.0
NOTHING: Mapping[str, Held] = MappingProxyType({})
NO_TWINS: Mapping[str, str] = MappingProxyType({})


def run(
    receipt: Path,
    *,
    options: Mapping[str, Any],
    verified: Sequence[Path],
    mirrored: Sequence[Path] = (),
) -> dict[str, Any]:
    """Publish as one entry of the config's ``sync`` says and write its receipt; gives back the counts.

    Raises SyncError, and then ``latest.json`` at the destination is what it was.
    """
    place = shelf(options)
    try:
        if options.get("dry_run"):
            report = rehearse(receipt, place, options, verified, mirrored)
        elif options.get("mirror_of"):
            report = mirror(place, read(mirrored[0]))
        else:
            report = publish(receipt, place, options.get("target", "access"), verified)
        asked = {k: options[k] for k in ("endpoint", "profile") if k in options}
        head = {"stage": "sync", "name": options["name"], "to": place.where, **asked}
        write_json(receipt, {**head, **report})
    except OSError as error:
        raise SyncError(
            f"{options['to']}: cannot publish there: {error.strerror or error} ({error.filename or place.where}); "
            f"make it writable or name another place in sync.to, then run again"
        ) from error
    return dict(report["counts"])


def repository_of(receipt: Path) -> Path:
    """Icechunk's copy for the publication's target."""
    return receipt.with_name(f"{receipt.stem}.icechunk")


def publish(receipt: Path, place: Shelf, target: str, verified: Sequence[Path]) -> dict[str, Any]:
    """Bring the destination to the newest verified version; the receipt's content."""
    made = tree(receipt.parents[1], verified, target, repository_of(receipt))
    with place.lock():
        place.learn((held.path, held.sha256) for held in made.files.values())
        before = Before.of(place, receipt)
        before.refuse_other(made.dataset, receipt)
        if made.verbatim and before.latest is None:
            log.warning(
                "%s: the form sqlite publishes the sources' own paths, %s for one, with the rules of every target; "
                "emit.sqlite.sources: %s publishes the target's", place.where, made.verbatim, target,
            )  # fmt: skip
        broken = before.broken(made, receipt)
        counts = Counter({"repaired": len(broken)} if broken else {})
        data = {k: h for k, h in {**made.versioned, **made.icechunk}.items() if k != REPO}
        counts += fill(place, data, before)
        arrived(place, data)
        if REPO in made.icechunk:
            repo = made.icechunk[REPO]
            if repo.sha256 != before.sha256(REPO):
                before.intend(receipt, repo.sha256)
            counts[turn(place, REPO, repo.path.read_bytes(), before.repo)] += 1
        if made.versioned:
            place.touch(f"v/{made.version}")
        counts[turn(place, LATEST, made.latest, before.latest)] += 1
        counts += fill(place, made.current, before, made.versioned)
        gone = unneeded(place, made, before)
        keys = held_keys(place, made.files, before.keys)
        keys = {key: held for key, held in keys.items() if key not in gone}
        # before anything is deleted: a sync killed while it deletes is then no stranger's edit
        write_json(state_of(receipt), state(place, keys, before, made))
        delete(place, gone)
        counts["deleted"] += len(gone)
    return {
        "target": target,
        "version": made.version,
        "digest": digest({k: list(v) for k, v in keys.items()}),
        "keys": {
            k: {"size": size, "sha256": sha} | ({"etag": mark} if (mark := place.mark(k)) else {})
            for k, (size, sha) in keys.items()
        },
        "refused": made.refused,
        "counts": dict(sorted(counts.items())),
    }


def fill(
    place: Shelf, files: Mapping[str, Held], before: Before, beside: Mapping[str, Held] = NOTHING
) -> Counter[str]:
    """Let keys hold files' bytes, the largest first, ``.zmetadata`` last; what had to be done.

    ``beside`` are files that lie there by now: a server copies from them.
    """
    twins = {held.sha256: key for key, held in beside.items()}
    last = [k for k in files if k.endswith(".zmetadata")]
    first = sorted(files.keys() - set(last), key=lambda k: (-files[k].size, k))
    counts: Counter[str] = Counter()
    with ThreadPoolExecutor(place.concurrency) as pool:
        done = pool.map(lambda key: put(place, key, files[key], before, twins), first)
        counts.update(progress.counted(done, len(first), "sync"))
    counts.update(put(place, key, files[key], before, twins) for key in last)
    return counts


def put(
    place: Shelf, key: str, held: Held, before: Before, twins: Mapping[str, str] = NO_TWINS
) -> str:
    """Let a key hold a file's bytes; what had to be done: unchanged, linked or put."""
    if before.there.get(key) == held.size and before.sha256(key) == held.sha256:
        return "unchanged"
    twin = None
    if key.startswith("v/") and before.version:
        twin = f"v/{before.version}/{key.split('/', 2)[2]}"
    if twin and twin != key and before.sha256(twin) == held.sha256:
        place.copy(twin, key)
        return "linked"
    if held.sha256 in twins and place.take(place, twins[held.sha256], key):
        return "linked"
    place.put(key, held.path)
    return "put"


def arrived(place: Shelf, files: Mapping[str, Held]) -> None:
    """That the destination lists what pointers are about to lead to. Raises SyncError."""
    there = place.list()
    for key, held in files.items():
        if there.get(key) != held.size or place.digest(key) != held.sha256:
            raise SyncError(
                f"{place.where}/{key}: it was put and is not there as it was; see to the server, then run again"
            )


def turn(place: Shelf, key: str, new: bytes, before: bytes | None) -> str:
    """Let a pointer lead to what is new. Raises SyncError if another publisher was faster."""
    if before == new:
        return "unchanged"
    if not place.swap(key, new, before):
        raise SyncError(
            f"{place.where}/{key}: another publisher replaced it since this one began; "
            f"its version stands, run again to publish yours"
        )
    return "put"


def unneeded(place: Shelf, made: Tree, before: Before) -> set[str]:
    """What no reader needs any more: old versions, orphans of Icechunk, names that are gone."""
    now = set(made.files)
    gone = [k for k in before.there if k.startswith("current.") and k not in now]
    gone += [k for version in expired(place, made) for k in place.list(f"v/{version}")]
    for key in orphans(before, made):
        if key not in before.orphans:
            place.touch(key)  # the grace of readers in flight begins now
        elif place.age(key) > KEEP_DAYS:
            gone.append(key)
    return set(gone)


def delete(place: Shelf, keys: Iterable[str]) -> None:
    """Remove keys, several at a time."""
    with ThreadPoolExecutor(place.concurrency) as pool:
        list(pool.map(place.delete, sorted(keys)))


def expired(place: Shelf, made: Tree) -> list[str]:
    """Versions that are neither among the newest seven nor younger than 30 days."""
    versions = {key.split("/")[1] for key in place.list("v")} - {made.version}
    ages = sorted((place.age(f"v/{v}"), v) for v in versions)
    return [v for age, v in ages[KEEP_VERSIONS - 1 :] if age > KEEP_DAYS]


# --- rehearsal -------------------------------------------------------------------------------------


def rehearse(
    receipt: Path,
    place: Shelf,
    options: Mapping[str, Any],
    verified: Sequence[Path],
    mirrored: Sequence[Path],
) -> dict[str, Any]:
    """Say what a sync would write, and write nothing but its receipt."""
    lines = Counter(dict.fromkeys(("put", "linked", "unchanged"), 0))
    with planned(receipt, options, verified, mirrored) as (version, wanted):
        before = Before.of(place, receipt)
        for key, (size, sha256) in wanted.items():
            what = "unchanged" if before.sha256(key) == sha256 else "put"
            lines[what] += 1
            if what == "put":
                log.info("would put %s (%d bytes) to %s", key, size, place.where)
    log.info("would let %s/%s point to version %s", place.where, LATEST, version)
    return {
        "dry_run": True,
        "version": version,
        "digest": digest(version),
        "keys": {},
        "counts": dict(sorted(lines.items())),
    }


@contextmanager
def planned(
    receipt: Path, options: Mapping[str, Any], verified: Sequence[Path], mirrored: Sequence[Path]
) -> Iterator[tuple[str, Keys]]:
    """The version and the keys that a sync would bring."""
    if options.get("mirror_of"):
        truth = read(mirrored[0])
        yield truth["version"], {k: (h["size"], h["sha256"]) for k, h in truth["keys"].items()}
        return
    with tempfile.TemporaryDirectory() as folder:
        target = options.get("target", "access")
        made = tree(receipt.parents[1], verified, target, Path(folder) / "icechunk")
        yield made.version, {key: (h.size, h.sha256) for key, h in made.files.items()}
