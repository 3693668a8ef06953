"""Chunk-key arithmetic: element counts, chunk keys and placements; pure functions, no files.

All tuples are in C order (slowest axis first), one entry per dimension.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from math import prod

from byterefs.model import Key

FRAGMENT_ROWS = 100_000
"""rows of a view fragment, about; also kerchunk's usual record size"""


def chunk_grid(shape: Sequence[int], chunks: Sequence[int]) -> Key:
    """Number of chunks along each axis: ``ceil(shape / chunks)``.

    >>> chunk_grid((5, 720, 1440), (1, 720, 1000))
    (5, 1, 2)
    """
    return tuple(-(-s // c) for s, c in zip(shape, chunks, strict=True))


def globalise(key: Key, chunks: Key, src_offset: Key, dest: Key) -> Key:
    """Chunk key in the source -> chunk key in the global array (mdim-refs/0.2, "The view").

    For an aligned placement ``globalise(key) - key == (dest - src_offset) / chunks``, axis by axis.

    >>> globalise((0, 2), (1, 300), (0, 0), (31, 0))
    (31, 2)
    """
    return tuple(
        k - s // c + d // c for k, c, s, d in zip(key, chunks, src_offset, dest, strict=True)
    )


def misaligned(
    shape: Key, chunks: Key, src_offset: Key, count: Key, dest: Key
) -> tuple[int, str] | None:
    """The first axis on which a placement is not chunk-aligned, with the reason; None if aligned.

    Aligned (mdim-refs/0.2, "Chunk-aligned plan"): ``src_offset`` and ``dest`` are divisible by the
    chunk, and so is ``dest + count`` unless it reaches the end of the global axis.
    """
    for axis, (n, c, s, m, d) in enumerate(
        zip(shape, chunks, src_offset, count, dest, strict=True)
    ):
        if s % c:
            return axis, f"it starts at element {s} of the source, inside a chunk of {c}"
        if d % c:
            return axis, f"it starts at element {d} of the array, inside a chunk of {c}"
        if (d + m) % c and d + m != n:
            return axis, f"it ends at element {d + m} of {n}, inside a chunk of {c}"
    return None


def chunk_span(start: int, count: int, chunk: int) -> tuple[int, int]:
    """First and one-past-last chunk key of ``count`` elements from ``start`` (aligned).

    >>> chunk_span(31, 28, 1), chunk_span(0, 5, 3)
    ((31, 59), (0, 2))
    """
    return start // chunk, -(-(start + count) // chunk)


def chunk_window(key: Key, shape: Key, chunks: Key) -> tuple[slice, ...]:
    """The elements of the global array that a chunk holds, clipped at the array's edge."""
    return tuple(
        slice(k * c, min((k + 1) * c, n)) for k, c, n in zip(key, chunks, shape, strict=True)
    )


def fragment_steps(grid: Key) -> int:
    """How many ``dim_0`` keys make a fragment of about ``FRAGMENT_ROWS`` rows; never less than one.

    It depends on the other axes only, so an append does not move a fragment's border.
    """
    return max(1, FRAGMENT_ROWS // max(1, prod(grid[1:])))


@cache
def elements(key: Key) -> str:
    """A tuple as the compact JSON array that the table holds.

    >>> elements((0, 31, 0))
    '[0,31,0]'
    """
    return f"[{','.join(map(str, key))}]"


@cache
def from_elements(text: str) -> Key:
    """The inverse of :func:`elements`; few texts occur often (``[0,0,0,0]``), so they are kept."""
    return tuple(map(int, text[1:-1].split(","))) if text != "[]" else ()


def linear(key: Key, grid: Key) -> int:
    """C-order position of a chunk key in its grid.

    >>> linear((1, 0, 2), (5, 1, 3))
    5
    """
    position = 0
    for k, n in zip(key, grid, strict=True):
        position = position * n + k
    return position


def unlinear(position: int, grid: Key) -> Key:
    """Chunk key at a C-order position: the inverse of :func:`linear`."""
    key = []
    for n in reversed(grid):
        position, k = divmod(position, n)
        key.append(k)
    return tuple(reversed(key))
