"""Which slots are compared: everything new, corners and edges, and a seeded sample of the old.

A *slot* is one placement: a source's slab of one array. Its fingerprint covers the slab, the
source's size, mtime and etag, what decodes it and its rows, so a slot whose fingerprint has been
verified once can change only by becoming another one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from math import prod

import numpy as np
from numpy.typing import NDArray

from byterefs.files import canonical
from byterefs.grid import chunk_grid, unlinear
from byterefs.model import Array, Ints, Key, Placement, Refs, Source
from byterefs.slabs import Slabs, boxes
from byterefs.view import View, spelled

Prints = NDArray[np.uint64]
WINDOW_BYTES = 64 * 2**20
"""a slab larger than this is compared in runs of whole chunks along its first axis"""


@dataclass(frozen=True, slots=True)
class Window:
    """A box of the global array that lies inside one placement."""

    array: str
    placement: Placement
    start: Key
    """elements of the global array"""
    count: Key
    chunks: int
    """how many chunks it touches"""
    new: bool

    @property
    def there(self) -> Key:
        """Where the box starts in the source, in elements."""
        p = self.placement
        return tuple(g - d + s for g, d, s in zip(self.start, p.dest, p.src_offset, strict=True))

    @property
    def here(self) -> tuple[slice, ...]:
        """The box as slices of the global array."""
        return tuple(slice(s, s + n) for s, n in zip(self.start, self.count, strict=True))


def refs_of(view: View, name: str) -> Refs | None:
    """Rows of a referenced array; None of one that has none."""
    array = view.arrays[name]
    return view.refs(name) if array.storage == "referenced" and not array.refused else None


def prints_of(name: str) -> str:
    """The name under which an array's fingerprints are kept."""
    return f"prints {name}"


def prints(view: View, name: str, refs: Refs | None) -> Prints:
    """The fingerprints of an array's slots in the order of its placements, as they were kept or made now."""
    data = view.kept(prints_of(name))
    return made(view, name, refs) if data is None else np.frombuffer(data, np.uint64)


def made(view: View, name: str, refs: Refs | None) -> Prints:
    """The fingerprints of an array's slots, made now from its rows."""
    return fingerprints(view.arrays[name], {s.source: s for s in view.sources}, refs)


def fingerprints(array: Array, sources: Mapping[str, Source], refs: Refs | None) -> Prints:
    """One 64-bit fingerprint per placement of the array, in their order.

    ``refs`` are the array's rows over the whole grid; None where it has none.
    """
    # an inline array's chunk is its global shape, which grows; its units decide what its values mean
    means = (
        array.chunks if refs is not None else [array.attrs.get(k) for k in ("units", "calendar")]
    )
    common = hashlib.sha256(
        canonical([array.array, array.dtype, array.fill, array.codec, means]).encode()
    )
    own = Slabs.of(array.placements, len(array.dims))
    places = np.hstack([own.src_offset, own.count, own.dest]).astype("<i8")
    covered = [b""] * len(places) if refs is None else rows_of_slabs(array, refs)
    out = []
    for source, name, place, rows in zip(
        own.sources, own.source_arrays, places, covered, strict=True
    ):
        one = common.copy()
        one.update(f"{spelled(sources[source])} {name} ".encode() + place.tobytes() + rows)
        out.append(one.digest()[:8])
    return np.frombuffer(b"".join(out), ">u8").astype(np.uint64)


def rows_of_slabs(array: Array, refs: Refs) -> list[bytes]:
    """The rows that each placement covers, as bytes: offset, size, and a hash of what is inline."""
    grid = chunk_grid(array.shape, array.chunks)
    inline = np.zeros(refs.offset.size, np.uint64)
    for row, data in refs.data.items():
        inline[row] = int.from_bytes(hashlib.sha256(data).digest()[:8], "big")
    columns = [c.reshape(grid) for c in (refs.offset, refs.size, inline)]
    out = [b""] * len(array.placements)
    slabs = Slabs.of(array.placements, len(grid))
    for like in boxes(slabs, array.chunks, 0, grid[0]):
        n = len(like.numbers)
        held = np.stack([c[like.here].view(np.uint64).reshape(n, -1) for c in columns], axis=1)
        for number, rows in zip(like.numbers.tolist(), held, strict=True):
            out[number] = rows.tobytes()
    return out


def known(prints: Prints, previous: Prints) -> NDArray[np.bool_]:
    """Which fingerprints are among ``previous``, which is sorted."""
    if not len(previous):
        return np.zeros(len(prints), bool)
    at = np.searchsorted(previous, prints)
    return np.asarray(previous[np.minimum(at, len(previous) - 1)] == prints)


def local_grid(p: Placement, chunks: Key) -> Key:
    """How many of the source's own chunks a slab touches, per axis."""
    return tuple(
        -(-(s + n) // c) - s // c for s, n, c in zip(p.src_offset, p.count, chunks, strict=True)
    )


def local_grids(array: Array) -> Ints:
    """:func:`local_grid` of every slab of an array, one a row."""
    own, chunks = Slabs.of(array.placements, len(array.dims)), np.array(array.chunks, np.int64)
    return np.asarray(-(-(own.src_offset + own.count) // chunks) - own.src_offset // chunks)


def local_window(array: str, p: Placement, chunks: Key, key: Key, new: bool) -> Window:
    """The part of a slab in one chunk of the source; ``key`` counts from the slab's first chunk."""
    start, count = [], []
    for k, s, n, d, c in zip(key, p.src_offset, p.count, p.dest, chunks, strict=True):
        first = max((s // c + k) * c, s)
        last = min((s // c + k + 1) * c, s + n)
        start.append(d + first - s)
        count.append(last - first)
    return Window(array, p, tuple(start), tuple(count), 1, new)


def slabs(array: Array, p: Placement, new: bool) -> Iterator[Window]:
    """A whole slab, in runs of whole source chunks along the first axis of at most 64 MiB."""
    chunks, grid = array.chunks, local_grid(p, array.chunks)
    row = prod(p.count[1:]) * np.dtype(array.dtype).itemsize * chunks[0]
    step = max(1, WINDOW_BYTES // max(1, row))
    for k in range(0, grid[0], step):
        runs = min(step, grid[0] - k)
        first = local_window(array.array, p, chunks, (k, *([0] * (len(grid) - 1))), new)
        last = local_window(array.array, p, chunks, (k + runs - 1, *([0] * (len(grid) - 1))), new)
        length = last.start[0] + last.count[0] - first.start[0]
        yield Window(
            array.array,
            p,
            (first.start[0], *p.dest[1:]),
            (length, *p.count[1:]),
            runs * prod(grid[1:]),
            new,
        )


def corners(array: Array, p: Placement) -> Iterator[Window]:
    """The corner chunks of one slab, each once."""
    grid = local_grid(p, array.chunks)
    for key in sorted(set(product(*((0, n - 1) for n in grid)))):
        yield local_window(array.array, p, array.chunks, key, False)


def drawn(array: Array, old: NDArray[np.intp], n: int, seed: int) -> Iterator[Window]:
    """``n`` chunks drawn from the slabs at positions ``old``, without replacement; all if there are fewer."""
    grids = local_grids(array)[old]
    ends = np.cumsum(grids.prod(axis=1))
    for position in draw(int(ends[-1]) if len(ends) else 0, n, seed):
        slot = int(np.searchsorted(ends, position, "right"))
        before = int(ends[slot - 1]) if slot else 0
        key = unlinear(position - before, tuple(grids[slot].tolist()))
        yield local_window(array.array, array.placements[int(old[slot])], array.chunks, key, False)


def draw(total: int, n: int, seed: int) -> list[int]:
    """``n`` numbers below ``total``, sorted, all of them if there are no more; the same for the same seed."""
    if total <= n:
        return list(range(total))
    rng = np.random.default_rng(seed)
    return sorted(int(i) for i in rng.choice(total, n, replace=False))


def windows(
    array: Array, seen: NDArray[np.bool_], *, n: int, seed: int, full: bool, new: str = "all"
) -> list[Window]:
    """What is compared of one array, in the order of its placements, no box twice.

    ``seen`` says per placement whether it was verified before; ``n`` chunks are drawn from those.
    With ``full`` every slab is compared, with ``new="sample"`` the new ones are drawn from as well.
    """
    fresh, old = np.flatnonzero(~seen), np.flatnonzero(seen)
    found: dict[tuple[Key, Key], Window] = {}
    if full or new == "all":
        for i in range(len(array.placements)) if full else fresh.tolist():
            found |= {(w.start, w.count): w for w in slabs(array, array.placements[i], not seen[i])}
    else:
        found |= {(w.start, w.count): w for w in drawn(array, fresh, n, seed)}
    if not full and array.placements:
        ends = {0, len(array.placements) - 1} & set(old.tolist())
        picked = [w for i in sorted(ends) for w in corners(array, array.placements[i])]
        for w in (*picked, *drawn(array, old, n, seed)):
            found.setdefault((w.start, w.count), w)
    return [found[key] for key in sorted(found)]


def gaps(array: Array, refs: Refs, *, n: int, seed: int, full: bool) -> list[int]:
    """Rows that no source covers: all of them if few or ``full``, else the ends and a sample."""
    rows = np.flatnonzero(refs.source < 0)
    if full or len(rows) <= n + 2:
        return [int(r) for r in rows]
    chosen = {0, len(rows) - 1, *draw(len(rows), n, seed)}
    return [int(rows[i]) for i in sorted(chosen)]
