"""The packed chunk columns of the working store, by source and array."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import NamedTuple

import numpy as np

from byterefs.grid import chunk_grid
from byterefs.model import Ints, Key

HELD_BYTES = 64 * 2**20
"""offsets of an array up to this size are read at once: 16,387 one-chunk sources in one query"""


class Chunks(NamedTuple):
    """Where one array of one source lies."""

    offset: Ints
    """on the source's chunk grid; ABSENT where there is no range"""
    size: Ints
    data: Mapping[int, bytes]
    """inline chunks by C-order position"""


@dataclass
class Held:
    """The chunks of one array in many sources of one chunk grid."""

    number: dict[str, int]
    """source -> its place along the first axis of the columns"""
    offset: Ints
    """(sources, grid …)"""
    size: Ints
    data: Mapping[str, Mapping[int, bytes]]

    def chunks(self, source: str) -> Chunks:
        """Where the array lies in one source."""
        i = self.number[source]
        return Chunks(self.offset[i], self.size[i], self.data.get(source, {}))


class ChunkIndex:
    """Reads chunk columns through an open connection and keeps those of small arrays."""

    def __init__(self, con: sqlite3.Connection) -> None:
        self._con = con
        self._held: dict[str, list[Held]] = {}
        self._grids: dict[str, Key] = {}

    def chunks(self, source: str, array: str) -> Chunks:
        """Where a source's array lies, on its own chunk grid."""
        held = self._of(array) or self._load(array, source)
        return next(h for h in held if source in h.number).chunks(source)

    def columns(self, sources: Sequence[str], array: str) -> Held | None:
        """The chunks of an array in many sources at once; None where they differ in their grid, or are too many."""
        for held in self._of(array):
            if held.number.keys() >= set(sources):
                return held
        return None

    def _of(self, array: str) -> list[Held]:
        """The chunks of an array in every source, in one query; [] where that is more than HELD_BYTES."""
        if array not in self._held:
            (size,) = self._con.execute(
                'SELECT sum(length("offset")) FROM byterefs_arrays WHERE "array" = ?', (array,)
            ).fetchone()
            self._held[array] = self._load(array) if size <= HELD_BYTES else []
        return self._held[array]

    def _load(self, array: str, source: str | None = None) -> list[Held]:
        """The chunks of an array, of one source or of all, by their grid."""
        one = "" if source is None else "AND source = :source"
        rows = self._con.execute(
            f"""
            SELECT meta, source, a."offset", a.size
            FROM sources JOIN byterefs_arrays AS a USING (source_id)
            WHERE "array" = :array AND a."offset" IS NOT NULL {one}
            ORDER BY meta
            """,
            {"array": array, "source": source},
        )
        inline = self._inline(array, source)
        out = []
        for meta, found in groupby(rows, itemgetter(0)):
            _, names, *packed = zip(*found, strict=True)
            shape = (len(names), *self._grid_of(meta))
            offset, size = (np.frombuffer(b"".join(c), "<i8").reshape(shape) for c in packed)
            numbers = {name: i for i, name in enumerate(names)}
            out.append(Held(numbers, offset, size, inline))
        return out

    def _inline(self, array: str, source: str | None) -> dict[str, dict[int, bytes]]:
        """Source -> its inline chunks by C-order position."""
        out: dict[str, dict[int, bytes]] = {}
        rows = self._con.execute(
            'SELECT source, position, data FROM byterefs_inline JOIN sources USING (source_id) WHERE "array" = ?',
            (array,),
        )
        for name, position, data in rows:
            if source is None or name == source:
                out.setdefault(name, {})[position] = data
        return out

    def _grid_of(self, meta: str) -> Key:
        """Chunk grid of a source's array, by the digest of its metadata."""
        if meta not in self._grids:
            (record,) = self._con.execute(
                "SELECT record FROM byterefs_metas WHERE meta = ?", (meta,)
            ).fetchone()
            found = json.loads(record)
            self._grids[meta] = chunk_grid(found["shape"], found["chunks"])
        return self._grids[meta]
