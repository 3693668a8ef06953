"""Placements as columns: which boxes of chunk keys they cover, many at a time.

An archive of forty years has a slab per day and array; what is done for each of them is done here
for all that have the same form at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import overload

import numpy as np
from numpy.typing import NDArray

from byterefs.model import Ints, Key, Placement


@dataclass(frozen=True)
class Slabs:
    """The placements of one array, in their order, as columns of elements."""

    sources: Sequence[str]
    source_arrays: Sequence[str]
    src_offset: Ints
    """(placements, axes)"""
    count: Ints
    dest: Ints

    @classmethod
    def of(cls, placements: Sequence[Placement], rank: int) -> Slabs:
        """Columns of the placements of an array with ``rank`` axes."""
        if isinstance(placements, Placements):
            return placements.slabs
        sources, names, *boxes = zip(*placements, strict=True) if placements else [()] * 5
        columns = (np.array(box, np.int64).reshape(len(placements), rank) for box in boxes)
        return cls(sources, names, *columns)

    def packed(self, numbers: Mapping[str, int]) -> tuple[list[str], bytes]:
        """(names of source arrays, the columns as the working store keeps them); ``numbers`` are those of sources."""
        names = sorted(set(self.source_arrays))
        places = {name: i for i, name in enumerate(names)}
        lead = np.array(
            [
                [numbers[s], places[n]]
                for s, n in zip(self.sources, self.source_arrays, strict=True)
            ],
            np.int64,
        ).reshape(-1, 2)
        rows = np.hstack([lead, self.src_offset, self.count, self.dest])
        return names, rows.astype("<i8").tobytes()

    @classmethod
    def unpacked(cls, names: Sequence[str], data: bytes, rank: int, order: Sequence[str]) -> Slabs:
        """The columns that :meth:`packed` made; ``order`` are the sources by their number."""
        rows = np.frombuffer(data, "<i8").reshape(-1, 2 + 3 * rank)
        sources = [order[i] for i in rows[:, 0].tolist()]
        boxes = (rows[:, 2 + i * rank : 2 + (i + 1) * rank] for i in range(3))
        return cls(sources, [names[i] for i in rows[:, 1].tolist()], *boxes)


class Placements(Sequence[Placement]):
    """The placements of an array, made from columns when they are asked for."""

    def __init__(self, slabs: Slabs) -> None:
        self.slabs = slabs

    def __len__(self) -> int:
        return len(self.slabs.sources)

    @overload
    def __getitem__(self, at: int) -> Placement: ...

    @overload
    def __getitem__(self, at: slice) -> Sequence[Placement]: ...

    def __getitem__(self, at: int | slice) -> Placement | Sequence[Placement]:
        s = self.slabs
        if isinstance(at, slice):
            return tuple(self)[at]
        boxes = (tuple(c[at].tolist()) for c in (s.src_offset, s.count, s.dest))
        return Placement(s.sources[at], s.source_arrays[at], *boxes)

    def __iter__(self) -> Iterator[Placement]:
        s = self.slabs
        boxes = (map(tuple, c.tolist()) for c in (s.src_offset, s.count, s.dest))
        return map(Placement, s.sources, s.source_arrays, *boxes)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and tuple(self) == tuple(other)

    def __hash__(self) -> int:
        return hash(tuple(self))


@dataclass(frozen=True)
class Like:
    """Slabs that cover boxes of chunk keys of one form, shifted along ``dim_0`` only."""

    numbers: NDArray[np.intp]
    """positions of their placements"""
    first: Ints
    """the first ``dim_0`` chunk key of each box"""
    length: int
    """``dim_0`` chunk keys of a box"""
    rest: tuple[slice, ...]
    """chunk keys along the other axes"""
    there: tuple[slice, ...]
    """the box in the source's own chunk grid, all axes"""

    @property
    def here(self) -> tuple[NDArray[np.int64] | slice, ...]:
        """Index of all boxes in a grid that starts at ``dim_0`` key 0; shape (boxes, length, …)."""
        return (self.first[:, None] + np.arange(self.length), *self.rest)

    def moved(self, by: int) -> Like:
        """The same boxes ``by`` keys further along ``dim_0``."""
        return replace(self, first=self.first + by)


def all_aligned(slabs: Slabs, shape: Key, chunks: Key) -> bool:
    """Whether :func:`grid.misaligned` finds nothing in any of the slabs."""
    end, c = slabs.dest + slabs.count, np.array(chunks, np.int64)
    inside = (slabs.src_offset % c) | (slabs.dest % c) | np.where(end == shape, 0, end % c)
    return not inside.any()


def boxes(slabs: Slabs, chunks: Key, start: int, stop: int) -> Iterator[Like]:
    """The boxes that slabs cover between the ``dim_0`` chunk keys ``start`` and ``stop``, by their form."""
    c = np.array(chunks, np.int64)
    first, last = slabs.dest // c, -(-(slabs.dest + slabs.count) // c)
    own = slabs.src_offset // c
    low, high = np.maximum(first[:, 0], start), np.minimum(last[:, 0], stop)
    inside = np.flatnonzero(low < high)
    if not len(inside):
        return
    cut = low - first[:, 0]
    form = np.column_stack(
        [high - low, own[:, :1] + cut[:, None], own[:, 1:], first[:, 1:], last[:, 1:]]
    )
    for members, row in groups(inside, form[inside]):
        length, at, n = row[0], row[1], len(chunks) - 1
        lead, lo, hi = row[2 : 2 + n], row[2 + n : 2 + 2 * n], row[2 + 2 * n :]
        rest = tuple(slice(a, b) for a, b in zip(lo, hi, strict=True))
        there = (
            slice(at, at + length),
            *(slice(s, s + b - a) for s, a, b in zip(lead, lo, hi, strict=True)),
        )
        yield Like(members, low[members], length, rest, there)


def groups(members: NDArray[np.intp], forms: Ints) -> Iterator[tuple[NDArray[np.intp], list[int]]]:
    """The members that share a form, and the form."""
    if (forms == forms[0]).all():
        yield members, forms[0].tolist()
        return
    found, of = np.unique(forms, axis=0, return_inverse=True)
    order = np.argsort(of.ravel(), kind="stable")
    borders = np.cumsum(np.bincount(of.ravel()))[:-1]
    yield from zip(np.split(members[order], borders), found.tolist(), strict=True)
