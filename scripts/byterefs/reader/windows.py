"""Windows of an array on its native chunks: each chunk fetched and decoded once, whatever grid asks."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import batched, product
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from byterefs.codecs import decode
from byterefs.errors import ByteRefsError
from byterefs.files import digest
from byterefs.grid import chunk_grid, chunk_window
from byterefs.model import Array, Key
from byterefs.reader.fetch import Fetcher
from byterefs.reader.table import Ref, Table
from byterefs.zarr_meta import storage_fill

DECODED = 256 << 20
"""bytes of decoded chunks that stay in memory"""
AT_ONCE = 128 << 20
"""bytes of decoded chunks that one step of a read works on"""
DECODERS = min(8, os.cpu_count() or 1)
"""threads that decode: most codecs let go of Python's lock"""

Values = NDArray[Any]
Window = tuple[slice | int, ...]


class Decoded:
    """The decoded chunks that were used last, up to ``limit`` bytes; None is an absent one.

    Threads that ask for the same chunk at once get it from the one that asked first.
    """

    def __init__(self, limit: int = DECODED) -> None:
        self.limit, self.held = limit, 0
        self._lock = threading.Lock()
        self._chunks: OrderedDict[tuple[str, Key], Values | None] = OrderedDict()
        self._coming: dict[tuple[str, Key], Future[Values | None]] = {}

    def get(
        self,
        array: str,
        keys: Sequence[Key],
        load: Callable[[list[Key]], Mapping[Key, Values | None]],
    ) -> dict[Key, Values | None]:
        """Chunks by key; ``load`` is called once with those that nobody has and nobody else is loading."""
        found: dict[Key, Values | None] = {}
        others: dict[Key, Future[Values | None]] = {}
        mine: list[Key] = []
        with self._lock:
            for key in keys:
                at = (array, key)
                if at in self._chunks:
                    self._chunks.move_to_end(at)
                    found[key] = self._chunks[at]
                elif at in self._coming:
                    others[key] = self._coming[at]
                else:
                    self._coming[at] = Future()
                    mine.append(key)
        if mine:
            found |= self._load(array, mine, load)
        return found | {key: future.result() for key, future in others.items()}

    def _load(
        self, array: str, mine: list[Key], load: Callable[[list[Key]], Mapping[Key, Values | None]]
    ) -> Mapping[Key, Values | None]:
        try:
            loaded = load(mine)
        except BaseException as error:
            with self._lock:
                waiting = [self._coming.pop((array, key)) for key in mine]
            for future in waiting:
                future.set_exception(error)
            raise
        with self._lock:
            for key in mine:
                self._keep((array, key), loaded[key])
                self._coming.pop((array, key)).set_result(loaded[key])
        return loaded

    def _keep(self, at: tuple[str, Key], chunk: Values | None) -> None:
        self._chunks[at] = chunk
        self.held += 0 if chunk is None else chunk.nbytes
        while self.held > self.limit:
            _, old = self._chunks.popitem(last=False)
            self.held -= 0 if old is None else old.nbytes


class NativeArray:
    """An array of a table, read on its native chunks; values are as stored (packed).

    ``shape``, ``chunks``, ``dtype``, ``dims`` and ``attrs`` are the table's.
    """

    def __init__(self, table: Table, name: str, fetcher: Fetcher, decoded: Decoded) -> None:
        self.table, self.name = table, name
        self.meta: Array = table.array(name)
        self._fetcher, self._decoded = fetcher, decoded
        self.held = fetcher.held
        self.fill: np.generic = storage_fill(self.meta)

    @property
    def shape(self) -> Key:
        """Elements along each axis."""
        return self.meta.shape

    @property
    def chunks(self) -> Key:
        """Elements of a native chunk along each axis; the whole shape of an array that is inline."""
        inline = self.meta.storage != "referenced"
        return tuple(max(1, n) for n in self.shape) if inline else self.meta.chunks

    @property
    def grid(self) -> Key:
        """Number of native chunks along each axis."""
        return chunk_grid(self.shape, self.chunks)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of the stored values."""
        return np.dtype(self.meta.dtype)

    @property
    def dims(self) -> tuple[str, ...]:
        """Names of the axes."""
        return self.meta.dims

    @property
    def attrs(self) -> Mapping[str, Any]:
        """CF attributes."""
        return self.meta.attrs

    def read(self, window: Window) -> Values:
        """The stored values of a window; where no chunk is, the fill. Integers drop their axis.

        Raises ByteRefsError for a window that is none, RangeError for bytes that cannot be read.
        """
        bounds = [edges(part, n) for part, n in zip(self._whole(window), self.shape, strict=True)]
        out = np.full([max(0, stop - start) for start, stop in bounds], self.fill, self.dtype)
        spans = [
            range(start // c, -(-stop // c) if stop > start else start // c)
            for (start, stop), c in zip(bounds, self.chunks, strict=True)
        ]
        step = max(1, AT_ONCE // max(1, prod(self.chunks) * self.dtype.itemsize))
        for keys in batched(product(*spans), step, strict=False):
            for key, values in self.native(keys).items():
                if values is not None:
                    place(out, bounds, values, key, self.shape, self.chunks)
        return out[tuple(0 if isinstance(w, int) else slice(None) for w in self._whole(window))]

    def _whole(self, window: Window) -> Window:
        if len(window) > len(self.shape):
            raise ByteRefsError(
                f"{self.name}: a window of {len(window)} axes, and the array has {len(self.shape)}: "
                f"give one slice or integer per axis of {list(self.dims)}"
            )
        return (*window, *[slice(None)] * (len(self.shape) - len(window)))

    def native(self, keys: Iterable[Key]) -> dict[Key, Values | None]:
        """Whole native chunks by key, decoded and read-only; None where a chunk is absent."""
        return self._decoded.get(self.name, list(keys), self._load)

    def _load(self, keys: list[Key]) -> dict[Key, Values | None]:
        if self.meta.storage != "referenced":
            values = np.frombuffer(self.table.values(self.name), self.dtype)
            return dict.fromkeys(keys, values.reshape(self.shape))
        refs = self.table.at(self.name, keys)
        encoded = list(zip(refs, self._fetcher.fetch(list(refs.values())), strict=True))
        shares = [encoded[i::DECODERS] for i in range(DECODERS) if encoded[i::DECODERS]]
        with ThreadPoolExecutor(DECODERS) as pool:
            decoded = [item for share in pool.map(self._decode, shares) for item in share]
        return {**dict.fromkeys(keys), **dict(decoded)}

    def _decode(self, share: Sequence[tuple[Key, bytes]]) -> list[tuple[Key, Values]]:
        found = []
        for key, data in share:
            try:
                values = decode(self.meta.codec, data, self.meta.dtype, self.meta.chunks)
            except ByteRefsError as error:
                raise ByteRefsError(f"{self.name}, chunk {list(key)}: {error}") from error
            found.append((key, values))
        return found


def edges(part: slice | int, n: int) -> tuple[int, int]:
    """First and one-past-last element; ByteRefsError for a step other than 1 and an integer outside."""
    if isinstance(part, int):
        if not -n <= part < n:
            raise ByteRefsError(f"element {part} of an axis of {n}: name one that is there")
        return part % n, part % n + 1
    if part.step not in (None, 1):
        raise ByteRefsError(f"a window of step {part.step}: read step 1 and thin out the result")
    start, stop, _ = part.indices(n)
    return start, max(start, stop)


def place(
    out: Values,
    bounds: Sequence[tuple[int, int]],
    values: Values,
    key: Key,
    shape: Key,
    chunks: Key,
) -> None:
    """Copy what a chunk has of a window into ``out``, whose first element is the window's."""
    into, part = [], []
    for (low, high), span in zip(bounds, chunk_window(key, shape, chunks), strict=True):
        first, last = max(low, span.start), min(high, span.stop)
        into.append(slice(first - low, last - low))
        part.append(slice(first - span.start, last - span.start))
    out[tuple(into)] = values[tuple(part)]


class Tiles:
    """An array on a logical grid, finer or coarser than the native one; reads stay on native chunks.

    With a range cache a tile is kept as it was derived, with the chunks that it was made of.
    """

    def __init__(self, array: NativeArray, chunks: Sequence[int] | None = None) -> None:
        self.array = array
        self.chunks: Key = tuple(chunks or array.chunks)
        if len(self.chunks) != len(array.shape) or min(self.chunks, default=1) < 1:
            raise ByteRefsError(
                f"{array.name}: tiles of {list(self.chunks)}, and its axes are {list(array.dims)}: give one "
                f"length per axis"
            )

    @property
    def grid(self) -> Key:
        """Number of tiles along each axis."""
        return chunk_grid(self.array.shape, self.chunks)

    def name(self, key: Key) -> str:
        """What a derived tile is called in a range cache."""
        meta, tile, grid = self.array.meta, *(".".join(map(str, k)) for k in (key, self.chunks))
        bounds = [[s.start, s.stop] for s in self.window(key)]
        how = digest([bounds, meta.dtype, meta.fill, meta.codec, meta.chunks])[:16]
        return f"{self.array.table.dataset}/{self.array.name} in tiles of {grid}: {tile}, {how}"

    def window(self, key: Key) -> tuple[slice, ...]:
        """The elements of a tile, cut at the array's edge. Raises ByteRefsError for one outside the grid."""
        if len(key) != len(self.grid) or not all(
            0 <= k < n for k, n in zip(key, self.grid, strict=True)
        ):
            raise ByteRefsError(
                f"{self.array.name}: tile {list(key)}, and the grid is {list(self.grid)}"
            )
        return chunk_window(key, self.array.shape, self.chunks)

    def refs(self, key: Key) -> list[Ref]:
        """The present native chunks that a tile is made of."""
        if self.array.meta.storage != "referenced":
            return []
        spans = [
            range(s.start // c, -(-s.stop // c))
            for s, c in zip(self.window(key), self.array.chunks, strict=True)
        ]
        return self.array.table.find(self.array.name, spans)

    def read(self, key: Key) -> Values:
        """The stored values of one tile."""
        window, held = self.window(key), self.array.held
        if held is None:
            return self.array.read(window)
        refs = self.refs(key)
        kept = held.derived(self.name(key), refs) if refs else None
        if kept is not None:
            return np.frombuffer(kept, self.array.dtype).reshape([s.stop - s.start for s in window])
        values = self.array.read(window)
        if refs:
            held.derive(self.name(key), refs, values.tobytes())
        return values
