"""Reading a window of an array from rows of byte ranges: the part that table forms share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from byterefs.access import ranges
from byterefs.codecs import decode
from byterefs.emitters import Described
from byterefs.errors import EmitError
from byterefs.grid import chunk_window
from byterefs.literals import fill_value
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
    wanted = {key: found for key in product(*spans) if (found := chunk(key)) is not None}
    for key, raw in zip(wanted, fetch(list(wanted.values())), strict=True):
        values = decode(described.codec or {}, raw, described.dtype, chunks)
        inside = chunk_window(key, shape, chunks)
        cut = [
            (max(s.start, lo), min(s.stop, hi)) for s, (lo, hi) in zip(inside, bounds, strict=True)
        ]
        place = tuple(slice(a - lo, b - lo) for (a, b), (lo, _) in zip(cut, bounds, strict=True))
        part = tuple(slice(a - s.start, b - s.start) for (a, b), s in zip(cut, inside, strict=True))
        out[place] = values[part]
    return out


def fetch(chunks: Sequence[Chunk]) -> list[bytes]:
    """The encoded bytes of chunks, each source opened once; RangeError where one no longer has them."""
    found: list[bytes | None] = [chunk.data for chunk in chunks]
    lying: dict[str, list[int]] = {}
    for i, (path, offset, size, data) in enumerate(chunks):
        if data is not None:
            continue
        if path is None or offset is None or size is None:
            raise EmitError(
                f"a row names neither bytes nor a byte range ({chunks[i]}): the form is damaged; remove its "
                f"folder and run the workflow again"
            )
        lying.setdefault(path, []).append(i)
    for path, rows in lying.items():
        with ranges.opened(path) as source:
            spans = [(chunks[i].offset or 0, chunks[i].size or 0) for i in rows]
            for i, data in zip(rows, source.read_many(spans), strict=True):
                found[i] = data
    return [data for data in found if data is not None]
