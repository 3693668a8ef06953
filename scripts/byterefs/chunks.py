"""The packed chunk columns of the working store, by source and array."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
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


class ChunkIndex:
    """Reads chunk columns through an open connection and keeps those of small arrays."""

    def __init__(self, con: sqlite3.Connection) -> None:
        self._con = con
        self._held: dict[str, dict[str, Chunks]] = {}
        self._grids: dict[str, Key] = {}

    def chunks(self, source: str, array: str) -> Chunks:
        """Where a source's array lies, on its own chunk grid."""
        if array not in self._held:
            self._held[array] = self._load_all(array)
        held = self._held[array]
        return held[source] if held else self._load(array, source)[source]

    def _load_all(self, array: str) -> dict[str, Chunks]:
        """The chunks of an array in every source, in one query; {} where that is more than HELD_BYTES."""
        (size,) = self._con.execute(
            'SELECT sum(length("offset")) FROM byterefs_arrays WHERE "array" = ?', (array,)
        ).fetchone()
        return self._load(array) if size <= HELD_BYTES else {}

    def _load(self, array: str, source: str | None = None) -> dict[str, Chunks]:
        """Source -> the chunks of an array, of one source or of all."""
        one = "" if source is None else "AND source = :source"
        rows = self._con.execute(
            f"""
            SELECT source, meta, a."offset", a.size
            FROM sources JOIN byterefs_arrays AS a USING (source_id)
            WHERE "array" = :array AND a."offset" IS NOT NULL {one}
            """,
            {"array": array, "source": source},
        ).fetchall()
        inline = self._inline(array, source)
        out = {}
        for name, meta, offset, size in rows:
            grid = self._grid_of(meta)
            first, second = (np.frombuffer(c, "<i8").reshape(grid) for c in (offset, size))
            out[name] = Chunks(first, second, inline.get(name, {}))
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
