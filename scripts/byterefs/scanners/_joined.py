"""Chunks that are a multiple of the native one: neighbours along the first axis whose bytes follow each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from byterefs.codecs import pipeline
from byterefs.errors import ScanError
from byterefs.model import ABSENT, Ints, Key, SourceArray, SourceScan


def joined(scan: SourceScan, multiple: int, arrays: Sequence[str]) -> SourceScan:
    """The scan with every chunk ``multiple`` native chunks long along its first axis, or the whole of it.

    Of the physical model of drb-chunk-netcdf (``probe(multiplier)``) this is what one byte range can hold.
    An array whose values were kept stays as it is, unless ``arrays`` names it. Raises ScanError, naming
    source, array and way out, where a multiple is no run of bytes.
    """
    if multiple == 1:
        return scan
    asked = {name.strip("/") for name in arrays}
    made = {}
    for name, item in scan.arrays.items():
        if (
            item.offset is None
            or not item.meta.shape
            or (item.values is not None and name not in asked)
        ):
            made[name] = item
            continue
        reason = obstacle(item, multiple)
        if reason:
            raise ScanError(
                f"{scan.source.source}: {name}: {reason}, so {multiple} of its chunks are no run of bytes; "
                f"set scan.multiple: 1, or leave it out of scan.arrays"
            )
        made[name] = join(item, multiple)
    return replace(scan, arrays=made)


def obstacle(item: SourceArray, multiple: int) -> str | None:
    """Why ``multiple`` chunks of an array are not one run of bytes, as part of a sentence; None if they are."""
    meta, size, offset = item.meta, item.size, item.offset
    if size is None or offset is None:
        return "it has no byte ranges"
    if offset.size <= 1:
        return None
    if pipeline(meta.codec):
        return "each of its chunks is encoded by itself"
    if any(n > 1 for n in offset.shape[1:]):
        return f"its chunks {list(meta.chunks)} divide other axes of {list(meta.shape)} too"
    length = meta.chunks[0] * multiple
    if length < meta.shape[0] and meta.shape[0] % length:
        return f"its {meta.shape[0]} steps are not divisible by {length}"
    gaps = np.diff(offset.ravel()) != size.ravel()[:-1]
    inside = np.arange(1, len(gaps) + 1) % multiple != 0
    if not item.data and (gaps & inside & (offset.ravel()[1:] != ABSENT)).any():
        return "its chunks do not follow each other in the file"
    return None


def join(item: SourceArray, multiple: int) -> SourceArray:
    """An array that has no obstacle, in longer chunks."""
    if item.offset is None or item.size is None or item.offset.size <= 1:
        return item
    chunks: Key = (min(item.meta.chunks[0] * multiple, item.meta.shape[0]), *item.meta.chunks[1:])
    rest = (1,) * (len(chunks) - 1)
    offset: Ints = item.offset.ravel()[::multiple].reshape(-1, *rest)
    starts = np.arange(0, item.size.shape[0], multiple)
    size: Ints = np.add.reduceat(item.size.ravel(), starts).reshape(-1, *rest)
    data = {
        (k, *([0] * len(rest))): b"".join(
            item.data[(i, *([0] * len(rest)))]
            for i in range(start, min(start + multiple, item.size.shape[0]))
        )
        for k, start in enumerate(starts.tolist())
        if item.data
    }
    absent = offset == ABSENT
    meta = replace(item.meta, chunks=chunks)
    return replace(item, meta=meta, offset=offset, size=np.where(absent, ABSENT, size), data=data)
