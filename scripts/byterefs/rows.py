"""Rows of ``refs_<array>``: chunks of the sources, moved to where their slabs lie (mdim-refs/0.2, "The view")."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from byterefs.chunks import ChunkIndex, Chunks
from byterefs.grid import linear, unlinear
from byterefs.model import ABSENT, Key, Refs
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
        own = [index.chunks(slabs.sources[i], slabs.source_arrays[i]) for i in members]
        here = like.moved(-start).here
        ids = np.array([numbers[slabs.sources[i]] for i in members], np.int32)
        source[here] = ids.reshape(-1, *[1] * len(shape))
        offset[here] = together([c.offset for c in own], like)
        size[here] = together([c.size for c in own], like)
        for i, chunk in enumerate(own):
            if chunk.data:
                data |= inline(chunk, like, int(like.first[i]) - start, shape)
    return Refs(source.ravel(), offset.ravel(), size.ravel(), dict(sorted(data.items())))


def together(columns: Sequence[np.ndarray], like: Like) -> np.ndarray:
    """A column of each of some sources, cut to the box that they have in common; sources first."""
    if len({column.shape for column in columns}) == 1:
        return np.concatenate(columns).reshape(-1, *columns[0].shape)[(slice(None), *like.there)]
    return np.stack([column[like.there] for column in columns])


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
