"""Where a DMR++ sidecar says that the bytes of a variable lie."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any
from xml.etree.ElementTree import Element

import numpy as np

from byterefs import codecs
from byterefs.model import ABSENT, Key
from byterefs.scanners._common import (
    Chunks,
    Unsupported,
    grid_of,
    inline,
    refuse_past,
    run,
    skipped_filters,
    stepped,
)
from byterefs.scanners._dmrpp_held import REBUILD, fill, held
from byterefs.scanners._dmrpp_tree import Variable, integer

FILTERS = {"deflate": 1, "shuffle": 2, "fletcher32": 3}
"""HDF5's number of each word of compressionType"""


@dataclass(frozen=True, slots=True)
class Located:
    """The chunks of one variable and how they are encoded."""

    found: Chunks
    codec: dict[str, Any]
    fill: np.generic | None


def locate(variable: Variable, dtype: np.dtype[Any], *, steps: int, data: str, end: int) -> Located:
    """Every chunk of a variable; ``data`` is the name of the data file and ``end`` its size in bytes.

    Raises Unsupported if the sidecar does not say where the bytes lie, or says what cannot be.
    """
    raw = held(variable, dtype)
    if raw is not None:
        where = inline(variable.shape, dtype.itemsize, raw, steps=steps)
        return Located(where, codecs.PLAIN, fill(variable, dtype))
    storage = variable.storage
    if storage is None:
        raise Unsupported("the sidecar does not say where its bytes lie", REBUILD)
    codec = _codec(storage, dtype)
    sizes = storage.findtext("chunkDimensionSizes")
    chunks = tuple(integer(n) for n in sizes.split()) if sizes else None
    ranges = [_Range.of(e, data) for e in (*storage.findall("chunk"), *storage.findall("block"))]
    if chunks is None or not ranges:
        found = _whole(variable, dtype, codec, ranges, chunks, steps)
    else:
        found = _chunked(variable, dtype, codec, ranges, chunks)
    refuse_past(found, end)
    value = fill(variable, dtype)
    if value is None and (found.offset == ABSENT).any():
        key = np.argwhere(found.offset == ABSENT)[0].tolist()
        raise Unsupported(
            f"chunk {key} was never written, and its fill ({storage.get('fillValue')!r} in the sidecar) "
            "is not known to the last digit",
            REBUILD,
        )
    return Located(found, codec, value)


@dataclass(frozen=True, slots=True)
class _Range:
    """One byte range of the data file and the first element that it holds (None: not said)."""

    offset: int
    size: int
    position: Key | None
    mask: int

    @classmethod
    def of(cls, element: Element, data: str) -> _Range:
        href = element.get("href")
        if href is not None and href.rpartition("/")[2] != data:
            raise Unsupported(f"one of its chunks lies in another file ({href})")
        where = element.get("chunkPositionInArray")
        position = None
        if where is not None:
            position = tuple(integer(n) for n in where.strip("[] ").split(",") if n.strip())
        size = integer(element.get("nBytes"))
        if not size:
            raise Unsupported("one of its chunks has no bytes", REBUILD)
        return cls(integer(element.get("offset")), size, position, integer(element.get("fm", "0")))


def _codec(storage: Element, dtype: np.dtype[Any]) -> dict[str, Any]:
    words = (storage.get("compressionType") or "").split()
    unknown = [w for w in words if w not in FILTERS]
    if unknown:
        raise Unsupported(
            f"its chunks are encoded with {unknown[0]}, of which a DMR++ gives no details"
        )
    levels = [int(n) for n in (storage.get("deflateLevel") or "").split() if n.isdigit()]
    filters: list[codecs.Filter] = []
    for word in words:
        details = levels[:1] if word == "deflate" else []
        levels = levels[1:] if word == "deflate" and len(levels) > 1 else levels
        filters.append((FILTERS[word], 0, details, word.encode()))
    return codecs.hdf5_codec(filters, dtype.str)


def _whole(
    variable: Variable,
    dtype: np.dtype[Any],
    codec: dict[str, Any],
    ranges: Sequence[_Range],
    chunks: Key | None,
    steps: int,
) -> Chunks:
    """A variable that is one range of bytes, or has none at all."""
    _refuse_masks(ranges, codec)
    if not ranges and chunks is None:
        grid_of(variable.shape[:1], (1,) * len(variable.shape[:1]))
        return run(variable.shape, dtype.itemsize, None, steps=steps)
    if not ranges:
        return _chunked(variable, dtype, codec, ranges, chunks or ())
    size = sum(r.size for r in ranges)
    if any(a.offset + a.size != b.offset for a, b in pairwise(ranges)):
        return _blocks(variable, dtype, codec, ranges)
    if not codecs.pipeline(codec):
        _refuse_size(size, variable.shape, dtype)
        return run(variable.shape, dtype.itemsize, ranges[0].offset, steps=steps)
    shape = tuple(max(1, n) for n in variable.shape)
    grid = (1,) * len(shape)
    return Chunks("chunked", shape, np.full(grid, ranges[0].offset), np.full(grid, size))


def _blocks(
    variable: Variable, dtype: np.dtype[Any], codec: dict[str, Any], ranges: Sequence[_Range]
) -> Chunks:
    """HDF4's linked blocks: one chunk per step of the first axis, if each step lies in one block."""
    chunks = stepped(variable.shape, 1)
    step = math.prod(chunks) * dtype.itemsize
    if codecs.pipeline(codec) or any(r.size % step for r in ranges):
        raise Unsupported(
            f"it lies in {len(ranges)} pieces of the file that cut through its encoded bytes or its steps"
        )
    _refuse_size(sum(r.size for r in ranges), variable.shape, dtype)
    starts = [np.arange(r.offset, r.offset + r.size, step, dtype=np.int64) for r in ranges]
    grid = grid_of(variable.shape, chunks)
    return Chunks("chunked", chunks, np.concatenate(starts).reshape(grid), np.full(grid, step))


def _chunked(
    variable: Variable,
    dtype: np.dtype[Any],
    codec: dict[str, Any],
    ranges: Sequence[_Range],
    chunks: Key,
) -> Chunks:
    """The ranges at their places in the chunk grid."""
    if len(chunks) != len(variable.shape) or not all(chunks):
        raise Unsupported(f"its chunks {list(chunks)} are none of its shape {list(variable.shape)}")
    grid = grid_of(variable.shape, chunks)
    _refuse_masks(ranges, codec, chunks)
    offset = np.full(grid, ABSENT, np.int64)
    size = offset.copy()
    for r in ranges:
        key = _key(r.position, chunks, grid)
        if offset[key] != ABSENT:
            raise Unsupported(f"the sidecar has chunk {list(key)} twice", REBUILD)
        if not codecs.pipeline(codec):
            _refuse_size(r.size, chunks, dtype)
        offset[key], size[key] = r.offset, r.size
    return Chunks("chunked", chunks, offset, size)


def _key(position: Key | None, chunks: Key, grid: Key) -> Key:
    if (
        position is None
        or len(position) != len(grid)
        or any(p % c or p // c >= n for p, c, n in zip(position, chunks, grid, strict=False))
    ):
        raise Unsupported(
            f"a chunk at {'no position' if position is None else list(position)} is none of its chunk "
            f"grid {list(grid)} of {list(chunks)}",
            REBUILD,
        )
    return tuple(p // c for p, c in zip(position, chunks, strict=True))


def _refuse_size(size: int, shape: Key, dtype: np.dtype[Any]) -> None:
    wanted = math.prod(shape) * dtype.itemsize
    if size != wanted:
        raise Unsupported(
            f"the sidecar gives {size} bytes for {list(shape)} {dtype.str}, which has {wanted}",
            REBUILD,
        )


def _refuse_masks(ranges: Sequence[_Range], codec: dict[str, Any], chunks: Key = ()) -> None:
    """Raise Unsupported for a chunk that skips filters (``fm``)."""
    masked = next((r for r in ranges if r.mask), None)
    if masked is None:
        return
    words = [c["id"].replace("zlib", "deflate") for c in codecs.pipeline(codec)]
    skipped = [w for i, w in enumerate(words) if masked.mask >> i & 1]
    position = masked.position or (0,) * len(chunks)
    key = [p // max(1, c) for p, c in zip(position, chunks, strict=False)]
    raise skipped_filters(key, masked.mask, skipped or ["that it names"])
