"""Rows of ``refs_<array>``: chunks of the sources, moved to where their slabs lie (mdim-refs/0.2, "The view")."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from byterefs.chunks import ChunkIndex, Chunks
from byterefs.grid import linear, unlinear
from byterefs.model import ABSENT, Ints, Key, Refs
from byterefs.slabs import Like, Slabs, boxes


def rows(
    index: ChunkIndex,
    slabs: Slabs,
    numbers: Mapping[str, int],
    chunks: Key,
    grid: Key,
    start: int,
    stop: int,
) -> Refs:
    """The rows for ``dim_0`` chunk keys ``[start, stop)`` of a global ``grid``, in C order.

    ``numbers`` gives each source its number; ``chunks`` is the chunk shape in elements.
    """
    shape = (stop - start, *grid[1:])
    source = np.full(shape, ABSENT, np.int32)
    offset = np.full(shape, ABSENT, np.int64)
    size = np.full(shape, ABSENT, np.int64)
    data: dict[int, bytes] = {}
    for like in boxes(slabs, chunks, start, stop):
        members = like.numbers.tolist()
        sources = [slabs.sources[i] for i in members]
        here = like.moved(-start).here
        ids = np.array([numbers[s] for s in sources], np.int32)
        source[here] = ids.reshape(-1, *[1] * len(shape))
        names = [slabs.source_arrays[i] for i in members]
        offset[here], size[here], held = together(index, sources, names, like)
        for i, chunk in held.items():
            data |= inline(chunk, like, int(like.first[i]) - start, shape)
    return Refs(source.ravel(), offset.ravel(), size.ravel(), dict(sorted(data.items())))


def together(
    index: ChunkIndex, sources: Sequence[str], names: Sequence[str], like: Like
) -> tuple[Ints, Ints, dict[int, Chunks]]:
    """Offsets and sizes of some sources in the box that they have in common, sources first.

    And the chunks of those that hold some inline, by their number in ``sources``.
    """
    held = index.columns(sources, names[0]) if len(set(names)) == 1 else None
    if held is not None:
        at = np.array([held.number[s] for s in sources])
        offset, size = (c[at][(slice(None), *like.there)] for c in (held.offset, held.size))
        inside = {i: held.chunks(s) for i, s in enumerate(sources) if s in held.data}
        return offset, size, inside
    own = [index.chunks(s, name) for s, name in zip(sources, names, strict=True)]
    offset = np.stack([c.offset[like.there] for c in own])
    size = np.stack([c.size[like.there] for c in own])
    return offset, size, {i: c for i, c in enumerate(own) if c.data}


def inline(own: Chunks, like: Like, first: int, shape: Key) -> dict[int, bytes]:
    """Inline chunks of one source inside a box that starts at ``dim_0`` key ``first``, by row number."""
    begin = (first, *(s.start for s in like.rest))
    found = {}
    for position, chunk in own.data.items():
        key = unlinear(position, own.offset.shape)
        if all(s.start <= k < s.stop for k, s in zip(key, like.there, strict=True)):
            place = [b + k - s.start for b, k, s in zip(begin, key, like.there, strict=True)]
            found[linear(tuple(place), shape)] = chunk
    return found
