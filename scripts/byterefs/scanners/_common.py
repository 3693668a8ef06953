"""What every scanner of files shares: which arrays are wanted, what is kept by value, how one refuses."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, BinaryIO, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from byterefs.access import ranges
from byterefs.access.ranges import Local, Ranges
from byterefs.codecs import decode, numcodecs_refusal
from byterefs.errors import RangeError, ScanError
from byterefs.grid import chunk_grid, chunk_window
from byterefs.literals import fill_value
from byterefs.model import ABSENT, ArrayMeta, Ints, Key, Source, SourceArray

SLAB = 4096
"""bytes: a chunk as small is not worth its row"""
KEPT = 4 << 20
"""bytes: coordinates up to this size come by value"""
DIGESTED = 16 << 20
"""bytes: static arrays up to this size get a digest"""
MOST = 50_000_000
"""chunks of one array of one source: each takes 16 bytes while it is scanned"""
ERA = "give these sources an era of their own (plan.eras) or leave the array out of scan.arrays"
OR_ELSE = ", or leave it out with source.pattern, or set scan: {on_error: skip}"
LEAVE_OUT = "leave it out by listing the wanted arrays in scan.arrays"

Attributes = tuple[dict[str, Any], dict[str, str]]
"""attributes as JSON values, and their dtypes"""


class Described(Protocol):
    """One array of a file as its format names it."""

    @property
    def name(self) -> str:
        """Path without leading slash."""

    @property
    def shape(self) -> Key:
        """Elements along each axis."""

    @property
    def dims(self) -> tuple[str, ...]:
        """Names of the axes."""

    @property
    def group(self) -> str:
        """The path of the group, ``""`` for the root."""


class Unsupported(Exception):
    """Why an array cannot be recorded, as the middle of a sentence: "its elements are …"."""

    def __init__(self, why: str, out: str | None = None) -> None:
        super().__init__(why)
        self.out = out
        """the way out; None where it is to leave the array out"""


@dataclass(frozen=True, slots=True)
class Seen:
    """An open source, and what it was when it was opened."""

    ranges: Ranges
    file: BinaryIO
    """the source as a file, with a cache of blocks where it is not on this machine"""

    @property
    def size(self) -> int:
        """Bytes."""
        return self.ranges.size

    @property
    def local(self) -> bool:
        """Whether the source is a file of this machine."""
        return isinstance(self.ranges, Local)

    def of(self, source: Source) -> Source:
        """The source as it was seen in this open: size, mtime and etag."""
        etag = self.ranges.etag or source.etag
        return source._replace(size=self.size, mtime_ns=self.ranges.mtime_ns, etag=etag)

    def read(self, offset: int, size: int) -> bytes:
        """``size`` bytes from ``offset`` on; ByteRefsError if the source has fewer."""
        if self.local:
            return self.ranges.read(offset, size)
        self.ranges.refuse_outside(offset, size)
        self.file.seek(offset)
        return self.file.read(size)


@contextmanager
def opened(source: str) -> Iterator[Seen]:
    """A source, read-only; ScanError if it cannot be read or changes while it is open."""
    try:
        with ranges.opened(source) as found, found.file() as file:
            yield Seen(found, cast(BinaryIO, file))
            same = found.unchanged()
    except OSError as error:
        raise ScanError(f"{source}: cannot be read ({error}); fetch it again{OR_ELSE}") from error
    except RangeError as error:
        raise ScanError(f"{error}{OR_ELSE}") from error
    if not same:
        raise ScanError(f"{source}: it changed while it was scanned; run again")


class NoneWantedError(ScanError):
    """A source that has none of the wanted arrays."""


def wanted(source: str, there: Collection[str], arrays: Sequence[str]) -> frozenset[str]:
    """The wanted ones of the arrays that are there, all if none is listed; NoneWantedError if there are none."""
    asked = [name.strip("/") for name in arrays]
    found = frozenset(asked) & frozenset(there) if asked else frozenset(there)
    if not found:
        what = f"none of the wanted arrays {', '.join(asked)}" if asked else "no arrays"
        has = f"; it has {', '.join(sorted(there)[:20])}" if there else ""
        raise NoneWantedError(
            f"{source}: it has {what}{has}; correct scan.arrays or source.pattern"
        )
    return found


def dimension(concat: str | None, nodes: Mapping[str, Described]) -> str | None:
    """The concat dimension; ``concat`` may also name its coordinate (``time`` on ``tdim``)."""
    node = nodes.get(concat) if concat else None
    if node is None or len(node.dims) != 1 or any(concat in n.dims for n in nodes.values()):
        return concat
    return node.dims[0]


def keeps(node: Described, nbytes: int, coordinate: bool, concat: str | None) -> tuple[bool, bool]:
    """Whether the values of an array of ``nbytes`` are kept, and whether a digest of them is.

    A coordinate without ``concat`` has one whatever its size: one source's stands for all.
    """
    static = concat is not None and concat not in node.dims
    keep = coordinate and nbytes <= KEPT
    small = (static or coordinate) and nbytes <= DIGESTED
    return keep, keep or small or (static and coordinate)


def large(nbytes: int) -> bool:
    """Whether an array of ``nbytes`` is too large to hold while its digest is taken."""
    return nbytes > DIGESTED


def digest(kept: NDArray[Any]) -> str:
    """sha256 of the values in C order, in hex."""
    return hashlib.sha256(kept.tobytes()).hexdigest()


@dataclass(frozen=True, slots=True)
class Chunks:
    """The chunk grid of one array: offset and stored size in bytes, ``ABSENT`` where there is no range."""

    layout: str
    chunks: Key
    offset: Ints
    size: Ints
    data: Mapping[Key, bytes] = field(default_factory=dict)
    skipped: int = 0
    """bits of the filters that every chunk was stored without"""


def grid_of(shape: Key, chunks: Key) -> Key:
    """The chunk grid; Unsupported for one that no table of one source should hold."""
    grid = chunk_grid(shape, chunks)
    if math.prod(grid) > MOST:
        raise Unsupported(f"its chunk grid {list(grid)} has more than {MOST} chunks")
    return grid


def run(shape: Key, itemsize: int, start: int | None, *, steps: int) -> Chunks:
    """Bytes in C order from ``start`` on (None if never written): one chunk, or cut as :func:`stepped` says."""
    chunks = stepped(shape, steps)
    grid = grid_of(shape, chunks)
    offset: Ints = np.full(grid, ABSENT, np.int64)
    if start is None:
        return Chunks("contiguous", chunks, offset, offset.copy())
    nbytes = math.prod(chunks) * itemsize
    offset = start + nbytes * np.arange(offset.size, dtype=np.int64).reshape(grid)
    return Chunks("contiguous", chunks, offset, np.full(grid, nbytes, np.int64))


def inline(shape: Key, itemsize: int, raw: bytes, *, steps: int) -> Chunks:
    """Bytes in C order that the metadata itself holds, cut as :func:`run` cuts them."""
    chunks = stepped(shape, steps)
    grid = grid_of(shape, chunks)
    nbytes = math.prod(chunks) * itemsize
    pieces = {k: raw[i * nbytes : (i + 1) * nbytes] for i, k in enumerate(np.ndindex(grid))}
    nothing: Ints = np.full(grid, ABSENT, np.int64)
    return Chunks("compact", chunks, nothing, nothing.copy(), pieces)


def stepped(shape: Key, steps: int) -> Key:
    """The chunk shape of bytes in C order: the whole, or single steps of the first ``steps`` axes."""
    whole = tuple(max(1, n) for n in shape)
    return (*(1 for _ in whole[:steps]), *whole[steps:])


def leading(dims: Sequence[str], concat: str | None, shape: Key, itemsize: int) -> int:
    """How many first axes have to be cut so that bytes in C order are keyed by steps of ``concat``.

    None are where that leaves slabs of less than ``SLAB`` bytes behind an axis that is not the first.
    """
    if concat not in dims:
        return 0
    axes = dims.index(concat) + 1
    return axes if axes == 1 or math.prod(shape[axes:]) * itemsize >= SLAB else 0


def refuse_past(found: Chunks, end: int) -> None:
    """Raise Unsupported for the first range that passes the end of a file of ``end`` bytes."""
    past = found.offset + found.size > end
    if past.any():
        key = tuple(np.argwhere(past)[0].tolist())
        raise Unsupported(
            f"chunk {list(key)} ends at byte {int((found.offset + found.size)[key])} of a file of "
            f"{end}: the file is truncated",
            "fetch it again",
        )


def skipped_filters(key: Sequence[int], mask: int, skipped: Sequence[str]) -> Unsupported:
    """The refusal of a chunk whose filter mask leaves filters out."""
    return Unsupported(
        f"chunk {list(key)} was stored without the filter {' and '.join(skipped)} (filter mask {mask}), "
        "so its codec is not the array's",
        ERA,
    )


def decoded(found: Chunks, meta: ArrayMeta, read: Callable[[int, int], bytes]) -> NDArray[Any]:
    """All elements, decoded from the chunks; ``read(offset, size)`` gives bytes of the file."""
    missing = fill_value(meta.fill, meta.dtype)
    out: NDArray[Any] = np.full(meta.shape, 0 if missing is None else missing, meta.dtype)
    for key in np.ndindex(found.offset.shape):
        if key in found.data:
            raw = found.data[key]
        elif found.offset[key] == ABSENT:
            continue
        else:
            raw = read(int(found.offset[key]), int(found.size[key]))
        window = chunk_window(key, meta.shape, found.chunks)
        whole = decode(meta.codec, raw, meta.dtype, found.chunks)
        out[window] = whole[tuple(slice(w.stop - w.start) for w in window)]
    return out


def in_bands(found: Chunks, meta: ArrayMeta, read: Callable[[int, int], bytes]) -> str | None:
    """The digest of all elements in C order, one row of chunks in memory at a time.

    None where the chunks cannot be decoded here.
    """
    if numcodecs_refusal(meta.codec) or not meta.shape:
        return None
    made = hashlib.sha256()
    for k in range(found.offset.shape[0]):
        rows = slice(k * found.chunks[0], min((k + 1) * found.chunks[0], meta.shape[0]))
        data = {(0, *key[1:]): raw for key, raw in found.data.items() if key[0] == k}
        band = replace(found, offset=found.offset[k : k + 1], size=found.size[k : k + 1], data=data)
        part = replace(meta, shape=(rows.stop - rows.start, *meta.shape[1:]))
        made.update(decoded(band, part, read).tobytes())
    return made.hexdigest()


def record(
    meta: ArrayMeta,
    found: Chunks | None,
    kept: NDArray[Any] | None,
    keep: bool,
    summed: str | None = None,
) -> SourceArray:
    """An array with its chunks (None: by value only) and the digest of ``kept``; its values if ``keep``.

    ``summed`` is the digest of what was read in pieces.
    """
    return SourceArray(
        meta=meta,
        offset=found.offset if found else None,
        size=found.size if found else None,
        data=found.data if found else {},
        values=kept.tobytes() if kept is not None and keep else None,
        digest=summed if kept is None else digest(kept),
    )
