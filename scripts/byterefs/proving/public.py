"""Whether the copies that strangers read are the files that were scanned: sizes, and sampled byte ranges."""

from __future__ import annotations

import random
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from byterefs.access import ranges
from byterefs.access.ranges import Range
from byterefs.errors import RangeError, VerifyError
from byterefs.model import Source
from byterefs.view import View

SPOT = 4096
"""bytes of one sampled range"""
SPOTS = 3
"""ranges inside a file, beside its first and its last bytes"""


def check(view: View, target: str, sources: Sequence[Source], seed: int) -> dict[str, int]:
    """Compare the target's copies of sources with the scanned ones; how many sources, ranges and bytes.

    Copies are asked for without credentials, as strangers do. Raises VerifyError for one that is not
    there, has another size or other bytes: the target is refused then.
    """
    from byterefs.access import (
        buckets,
    )  # boto3 takes a fifth of a second, and most verifications need none

    spots = {s.source: sampled(s, seed) for s in sources}
    with ThreadPoolExecutor(ranges.CONCURRENCY) as pool:
        with buckets.asking({"endpoint": view.endpoint(target), "anonymous": True}):
            paths = [view.published(s.source, target) for s in sources]
            theirs = list(
                pool.map(lambda s, p: copied(s, p, target, spots[s.source]), sources, paths)
            )
        own = list(pool.map(lambda s: read(s.source, spots[s.source]), sources))
    for source, path, one, other in zip(sources, paths, own, theirs, strict=True):
        for (offset, size), mine, copy in zip(spots[source.source], one, other, strict=True):
            if mine != copy:
                raise refused(
                    target,
                    path,
                    f"bytes {offset} to {offset + size} are not those of {source.source}",
                )
    compared = [size for found in spots.values() for _, size in found]
    return {"sources": len(sources), "ranges": len(compared), "bytes": sum(compared)}


def sampled(source: Source, seed: int) -> list[Range]:
    """The first and the last bytes of a source, and some between, the same for the same content."""
    size = source.size or 0
    spot = min(SPOT, size)
    draw = random.Random(f"{seed} {source.source} {source.size} {source.mtime_ns}")
    starts = {0, size - spot, *(draw.randint(0, size - spot) for _ in range(SPOTS))}
    return [(start, spot) for start in sorted(starts)] if size else []


def copied(source: Source, path: str, target: str, spots: Sequence[Range]) -> list[bytes]:
    """The sampled bytes of a public copy that has the size of its source."""
    try:
        with ranges.opened(path) as found:
            if source.size is not None and found.size != source.size:
                raise refused(
                    target, path, f"it has {found.size} bytes, and {source.source} had {source.size} when it was scanned"
                )  # fmt: skip
            return found.read_many(spots, gap=0)
    except RangeError as error:
        raise refused(target, path, str(error)) from error


def read(source: str, spots: Sequence[Range]) -> list[bytes]:
    """The sampled bytes of a source as it was scanned."""
    try:
        with ranges.opened(source) as found:
            return found.read_many(spots, gap=0)
    except RangeError as error:
        raise VerifyError(f"{error}; it was scanned, and cannot be read now") from error


def refused(target: str, path: str, why: str) -> VerifyError:
    """The refusal of a target."""
    return VerifyError(
        f"target {target!r} is refused: {path}: {why}; bring the public copy up to date, correct "
        f"remap.{target}, or set verify.public: false"
    )
