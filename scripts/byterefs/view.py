"""The view: the global chunk index ``refs_<array>``, computed from chunks and placements.

It is arithmetic over packed columns and is not stored; what is stored are the digests of its
fragments, from which an emitter knows what changed.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Iterator, Mapping
from dataclasses import fields
from functools import cache, cached_property
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from byterefs import kept
from byterefs.chunks import ChunkIndex
from byterefs.files import canonical, digest
from byterefs.grid import chunk_grid, fragment_steps
from byterefs.model import Array, Fragment, Key, Refs, Source
from byterefs.planned import Planned
from byterefs.rows import rows
from byterefs.slabs import Slabs

RECEIPT = "receipt"
ROW_BYTES = 20
KEPT_BYTES = 64 * 2**20
"""rows of an array are kept up to this size; those of more are made again from its packed columns"""
NO_ROWS = Refs(np.empty(0, np.int32), np.empty(0, np.int64), np.empty(0, np.int64))


class View(Planned):
    """A planned dataset with its rows, on demand."""

    def __init__(self, con: sqlite3.Connection, store: Path) -> None:
        super().__init__(con, store)
        self._index = ChunkIndex(con)
        self._fragments: dict[str, list[Fragment]] = {}
        self._columns: dict[str, Slabs] = {}
        self._rows = (("", 0, 0), NO_ROWS)

    def across_digests(self) -> dict[str, Any]:
        """``{"across": {array: digest}}`` of what lies across all eras; ``{}`` where nothing does."""
        arrays = self.across_eras().arrays
        return (
            {"across": {n: array_digest(arrays[n]) for n in sorted(self._across)}}
            if self._across
            else {}
        )

    def grid(self, array: str) -> Key:
        """Global chunk grid: ``ceil(shape / chunks)``."""
        return chunk_grid(self.arrays[array].shape, self.arrays[array].chunks)

    def fragments(self, array: str) -> list[Fragment]:
        """The array's rows cut along ``dim_0`` into runs of about 100,000, each with its digest.

        The digest covers source, stat, slab and chunk ranges of everything inside, so it is made
        from one row per source without reading the chunks.
        """
        if array not in self._fragments:
            known = self.kept_receipt
            self._fragments[array] = (
                [Fragment(array, **f) for f in known["fragments"][array]]
                if known and array in known["fragments"]
                else list(self._cut(array))
            )
        return self._fragments[array]

    def kept(self, name: str) -> bytes | None:
        """A result that the stage `view` kept in the store; None where there is none."""
        return kept.read(self._con, name)

    @cached_property
    def kept_receipt(self) -> Mapping[str, Any] | None:
        """The receipt of the whole view as the stage `view` kept it."""
        data = self.kept(RECEIPT)
        return None if data is None else json.loads(data)

    def _cut(self, array: str) -> Iterator[Fragment]:
        a, grid, slabs = self.arrays[array], self.grid(array), self._slabs(array)
        steps, pairs = fragment_steps(grid), zip(slabs.sources, slabs.source_arrays, strict=True)
        made_of = [f"{self._spelled[s]} {name} {self._ranges[s, name]}" for s, name in pairs]
        first = slabs.dest[:, 0] // a.chunks[0]
        last = -(-(slabs.dest[:, 0] + slabs.count[:, 0]) // a.chunks[0])
        for start in range(0, grid[0], steps):
            stop = min(start + steps, grid[0])
            inside = np.flatnonzero((first < stop) & (last > start))
            h = hashlib.sha256(canonical([array, start, stop, grid[1:], a.chunks]).encode())
            h.update("\n".join(made_of[i] for i in inside.tolist()).encode())
            for column in (slabs.src_offset, slabs.count, slabs.dest):
                h.update(column[inside].astype("<i8").tobytes())
            yield Fragment(array, start, stop, h.hexdigest())

    def refs(self, array: str, start: int = 0, stop: int | None = None) -> Refs:
        """Rows of ``refs_<array>`` for ``dim_0`` chunk keys ``[start, stop)``, in C order."""
        stop = self.grid(array)[0] if stop is None else stop
        if self._rows[0] != (array, start, stop):
            self._rows = (array, start, stop), self._made(array, start, stop)
        return self._rows[1]

    def _made(self, array: str, start: int, stop: int) -> Refs:
        data = self.kept(rows_of(array))
        if data is not None:
            width = prod(self.grid(array)[1:])
            return unpacked(data, start * width, stop * width)
        slabs, chunks = self._slabs(array), self.arrays[array].chunks
        return rows(self._index, slabs, self.index, chunks, self.grid(array), start, stop)

    def _slabs(self, array: str) -> Slabs:
        if array not in self._columns:
            a = self.arrays[array]
            self._columns[array] = Slabs.of(a.placements, len(a.dims))
        return self._columns[array]

    @cached_property
    def _spelled(self) -> dict[str, str]:
        """Source -> everything that is known of it, as text."""
        return {s.source: spelled(s) for s in self.sources}

    @cached_property
    def _ranges(self) -> Mapping[tuple[str, str], str]:
        """(source, source array) -> digest of where its chunks lie."""
        found = self._con.execute(
            "SELECT source_id, array, chunks FROM byterefs_arrays WHERE chunks IS NOT NULL"
        )
        names = dict(self._con.execute("SELECT source_id, source FROM sources"))
        return {(names[source_id], array): chunks for source_id, array, chunks in found}


@cache
def spelled(source: Source) -> str:
    """Everything that is known of a source, as text."""
    return canonical(source)


def rows_of(array: str) -> str:
    """The name under which an array's rows are kept."""
    return f"rows {array}"


def few(view: View, array: str) -> bool:
    """Whether the rows of an array are kept, if it has any; of one that has none there is little to keep."""
    return array not in view.referenced() or prod(view.grid(array)) * ROW_BYTES <= KEPT_BYTES


def packed(refs: Refs) -> bytes | None:
    """Rows as they are kept: columns one after another; None if some are inline."""
    if refs.data:
        return None
    columns = ((refs.source, "<i4"), (refs.offset, "<i8"), (refs.size, "<i8"))
    return b"".join(column.astype(kind).tobytes() for column, kind in columns)


def unpacked(data: bytes, start: int, stop: int) -> Refs:
    """The rows ``[start, stop)`` of those that :func:`packed` made."""
    total = len(data) // ROW_BYTES
    source = np.frombuffer(data, "<i4", total)
    offset = np.frombuffer(data, "<i8", total, 4 * total)
    size = np.frombuffer(data, "<i8", total, 12 * total)
    return Refs(source[start:stop], offset[start:stop], size[start:stop])


def array_digest(a: Array) -> str:
    """Digest of an array's row and values, without its placements."""
    row = {f.name: getattr(a, f.name) for f in fields(a) if f.name not in ("values", "placements")}
    return digest([row, hashlib.sha256(a.values or b"").hexdigest()])


def receipt(view: View) -> dict[str, Any]:
    """The receipt of the view: per array its fragments, and the arrays that cannot have refs."""
    if view.kept_receipt is not None and not view.left_out and not view.with_across:
        return dict(view.kept_receipt)
    fragments = {
        name: [{"start": f.start, "stop": f.stop, "digest": f.digest} for f in view.fragments(name)]
        for name in view.referenced()
    }
    rows = sum(int(np.prod(view.grid(name), dtype=np.int64)) for name in view.referenced())
    arrays = {a.array: array_digest(a) for a in view.arrays.values()}
    content = {
        "fragments": fragments,
        "arrays": arrays,
        "root": digest([view.root, view.root_dtypes, view.varying, view.title]),
        "sources": digest([list(s) for s in view.sources]),
        "remap": digest(view.remap),
        "refused": {a.array: a.refused for a in view.arrays.values() if a.refused},
        **view.across_digests(),
    }
    counts = {
        "arrays": len(view.arrays),
        "referenced": len(fragments),
        "rows": rows,
        "sources": len(view.sources),
    }
    return {"stage": "view", "digest": digest(content), "counts": counts, **content}
