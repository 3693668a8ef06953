"""Reading a window of an array from rows of byte ranges: the part that table forms share."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from byterefs.codecs import decode, fill_value
from byterefs.emitters import Described
from byterefs.errors import ScanError
from byterefs.grid import chunk_window
from byterefs.model import Key


class Chunk(NamedTuple):
    """Where one chunk's encoded bytes are: a range of a file, or here."""

    path: str | None
    offset: int | None
    size: int | None
    data: bytes | None


def read_window(
    described: Described, window: tuple[slice, ...], chunk: Callable[[Key], Chunk | None]
) -> NDArray[Any]:
    """Stored values of a window, chunk by chunk; where ``chunk`` gives None the array's fill."""
    chunks, shape = described.chunks or described.shape, described.shape
    bounds = [s.indices(n)[:2] for s, n in zip(window, shape, strict=True)]
    fill = fill_value(described.fill, described.dtype)
    out = np.full([hi - lo for lo, hi in bounds], 0 if fill is None else fill, described.dtype)
    spans = [range(lo // c, -(-hi // c)) for (lo, hi), c in zip(bounds, chunks, strict=True)]
    for key in product(*spans):
        found = chunk(key)
        if found is None:
            continue
        values = decode(described.codec or {}, fetch(found), described.dtype, chunks)
        inside = chunk_window(key, shape, chunks)
        cut = [
            (max(s.start, lo), min(s.stop, hi)) for s, (lo, hi) in zip(inside, bounds, strict=True)
        ]
        place = tuple(slice(a - lo, b - lo) for (a, b), (lo, _) in zip(cut, bounds, strict=True))
        part = tuple(slice(a - s.start, b - s.start) for (a, b), s in zip(cut, inside, strict=True))
        out[place] = values[part]
    return out


def fetch(chunk: Chunk) -> bytes:
    """The encoded bytes of a chunk; a file that ends before the range does is an error."""
    if chunk.data is not None:
        return chunk.data
    if chunk.path is None or chunk.offset is None or chunk.size is None:
        raise ScanError(f"a row names neither bytes nor a byte range: {chunk}")
    with open(chunk.path.removeprefix("file://"), "rb") as f:
        f.seek(chunk.offset)
        data = f.read(chunk.size)
    if len(data) != chunk.size:
        raise ScanError(
            f"{chunk.path}: {len(data)} of {chunk.size} bytes at {chunk.offset}; the source was cut since its scan"
        )
    return data
