"""Chunks under other keys: a published store shifted along an axis, or brought to other labels.

Operations on the rows of a table: no source is opened, no chunk is decoded. What they mean is what
xarray's ``Dataset.shift`` and ``Dataset.reindex`` mean, for whole chunks.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from byterefs.database import quote
from byterefs.errors import StoreError
from byterefs.files import canonical, replacing
from byterefs.grid import elements, from_elements
from byterefs.model import Array
from byterefs.reader.sqlite import SqliteTable
from byterefs.zarr_meta import storage_fill

GONE = -1
"""in place of an element or chunk of before: nothing of before lies there"""


@dataclass(frozen=True, slots=True)
class Axis:
    """What lies along one axis of one array afterwards: the element of before, or GONE."""

    array: Array
    number: int
    was: NDArray[np.int64]

    def chunks(self) -> dict[int, int]:
        """Chunk key afterwards -> chunk key before. Raises StoreError where a chunk would be cut or joined."""
        length = self.array.chunks[self.number] if self.array.storage == "referenced" else 1
        found = {}
        for key in range(-(-len(self.was) // length)):
            part = self.was[key * length : (key + 1) * length]
            if (part == GONE).all():
                continue
            whole = part[0] % length == 0 and (np.diff(part) == 1).all()
            if not whole or part[0] == GONE:
                raise StoreError(
                    f"{self.array.array}: its chunks hold {length} elements along {self.array.dims[self.number]}, "
                    f"and elements {key * length} to {key * length + len(part)} would be a part of one or of several: "
                    f"move whole chunks, or leave the array out of the table"
                )
            found[key] = int(part[0]) // length
        return found


def shift(table: Path, out: Path, dim: str, by: int) -> None:
    """Write ``table`` to ``out`` with the data moved ``by`` elements along ``dim``; coordinates stay.

    What leaves the axis is gone, what nothing moved to is absent. Raises StoreError for an axis that no
    array has, and where a chunk would be cut.
    """
    with closing(SqliteTable(str(table), "access")) as before:
        n = length(before, dim)
        was = np.arange(n) - by
        was[(was < 0) | (was >= n)] = GONE
        moved = [a for a in before.arrays.values() if a.kind == "data" and dim in a.dims]
        rewrite(before, out, [Axis(a, a.dims.index(dim), was) for a in moved], {})


def reindex(table: Path, out: Path, dim: str, labels: Sequence[Any] | NDArray[Any]) -> None:
    """Write ``table`` to ``out`` with ``labels`` along ``dim``; what had no such label is absent.

    Labels are values of the coordinate ``dim``, matched exactly. Raises StoreError where there is no such
    coordinate, where one of its values occurs twice, and where a chunk would be cut.
    """
    with closing(SqliteTable(str(table), "access")) as before:
        if dim not in before.arrays or before.arrays[dim].dims != (dim,):
            raise StoreError(f"{table}: it has no coordinate {dim!r} along its own axis to reindex")
        coordinate = before.arrays[dim]
        own = np.frombuffer(before.values(dim), coordinate.dtype)
        wanted = np.asarray(labels, own.dtype)
        if len(np.unique(own)) != len(own):
            raise StoreError(
                f"{table}: a value of {dim!r} occurs twice, and a label means one of them"
            )
        at = {value: i for i, value in enumerate(own.tolist())}
        was = np.array([at.get(value, GONE) for value in wanted.tolist()], np.int64)
        along = [a for a in before.arrays.values() if dim in a.dims and a.array != dim]
        moved = [Axis(a, a.dims.index(dim), was) for a in along]
        rewrite(before, out, [*moved, Axis(coordinate, 0, was)], {dim: wanted})


def length(table: SqliteTable, dim: str) -> int:
    """Elements along an axis; StoreError if no array has it, or two disagree."""
    found = {
        n for a in table.arrays.values() for d, n in zip(a.dims, a.shape, strict=True) if d == dim
    }
    if len(found) != 1:
        raise StoreError(
            f"{table.location}: arrays have {sorted(found) or 'no'} elements along {dim!r}: name an axis of one length"
        )
    return found.pop()


def rewrite(
    table: SqliteTable, out: Path, axes: Sequence[Axis], values: dict[str, NDArray[Any]]
) -> None:
    """The store at ``out``: rows, placements, shapes and values of the arrays that ``axes`` are of."""
    maps = [(axis, axis.chunks()) for axis in axes]
    new_values = {
        axis.array.array: values.get(axis.array.array, moved_values(table, axis))
        for axis in axes
        if axis.array.storage != "referenced"
    }
    with replacing(out) as part:
        table.copy(part)
        with closing(sqlite3.connect(part, isolation_level=None)) as con:
            con.execute("BEGIN")
            for axis, chunks in maps:
                if axis.array.storage == "referenced":
                    move_rows(con, axis, chunks)
                move_placements(con, axis, chunks)
                resize(con, axis, new_values.get(axis.array.array))
            con.execute("DELETE FROM meta WHERE key = 'plan'")
            con.execute("COMMIT")
            con.execute("VACUUM")


def moved_values(table: SqliteTable, axis: Axis) -> NDArray[Any]:
    """The values of an inline array afterwards; its fill where nothing lies."""
    array = axis.array
    before = np.frombuffer(table.values(array.array), array.dtype).reshape(array.shape)
    gone = axis.was == GONE
    if gone.any() and array.fill is None and before.dtype.kind != "f":
        raise StoreError(
            f"{array.array}: it has no fill for the elements along {array.dims[axis.number]} that are new: "
            f"leave the array out of the table"
        )
    after = np.take(before, np.where(gone, 0, axis.was), axis.number).copy()
    if gone.any():
        fill = np.nan if array.fill is None else storage_fill(array)
        after[(slice(None),) * axis.number + (gone,)] = fill
    return after


def move_rows(con: sqlite3.Connection, axis: Axis, chunks: dict[int, int]) -> None:
    """``refs_<array>`` under other keys."""
    name, at = quote(f"byterefs_refs_{axis.array.array}"), f"dim_{axis.number}"
    dims = [f"dim_{i}" for i in range(len(axis.array.dims))]
    keys = ", ".join("m.later" if d == at else f"r.{d}" for d in dims)
    rest = 'r.present, r.source_id, r."offset", r.size, r.info_id, r.data'
    con.execute("CREATE TEMP TABLE moved (later INTEGER PRIMARY KEY, earlier INTEGER)")
    con.executemany("INSERT INTO moved VALUES (?, ?)", chunks.items())
    con.execute(f"CREATE TEMP TABLE kept AS SELECT * FROM {name}")
    con.execute(f"DELETE FROM {name}")
    con.execute(
        f"INSERT INTO {name} SELECT {keys}, {rest} FROM kept AS r "
        f"JOIN moved AS m ON m.earlier = r.{at} ORDER BY {', '.join(str(i + 1) for i in range(len(dims)))}"
    )
    con.execute("DROP TABLE kept")
    con.execute("DROP TABLE moved")


def move_placements(con: sqlite3.Connection, axis: Axis, chunks: dict[int, int]) -> None:
    """Placements cut into the runs of chunks that stay together."""
    name = axis.array.array
    statement = (
        "SELECT dest, source_id, source_array, src_offset, count FROM placements WHERE array = ?"
    )
    placed = con.execute(statement, (name,)).fetchall()
    con.execute("DELETE FROM placements WHERE array = ?", (name,))
    later = sorted(
        (
            elements(tuple(dest)),
            source_id,
            source_array,
            elements(tuple(offset)),
            elements(tuple(count)),
        )
        for d, source_id, source_array, o, c in placed
        for dest, offset, count in pieces(axis, chunks, *map(from_elements, (d, o, c)))
    )
    con.executemany(
        "INSERT INTO placements VALUES (?, ?, ?, ?, ?, ?)", [(name, *row) for row in later]
    )


def pieces(
    axis: Axis,
    chunks: dict[int, int],
    dest: Sequence[int],
    offset: Sequence[int],
    count: Sequence[int],
) -> Iterator[tuple[list[int], list[int], list[int]]]:
    """``dest``, ``src_offset`` and ``count`` of what is left of a placement, run by run."""
    i = axis.number
    c = axis.array.chunks[i] if axis.array.storage == "referenced" else 1
    first, stop = dest[i] // c, -(-(dest[i] + count[i]) // c)
    inside = [(new, old) for new, old in sorted(chunks.items()) if first <= old < stop]
    runs: list[list[tuple[int, int]]] = []
    for new, old in inside:
        if runs and (new, old) == (runs[-1][-1][0] + 1, runs[-1][-1][1] + 1):
            runs[-1].append((new, old))
        else:
            runs.append([(new, old)])
    for run in runs:
        (new, old), n = run[0], len(run) * c
        own = [list(dest), list(offset), list(count)]
        own[0][i] = new * c
        own[1][i] = offset[i] + old * c - dest[i]
        own[2][i] = min(n, len(axis.was) - new * c, dest[i] + count[i] - old * c)
        yield own[0], own[1], own[2]


def resize(con: sqlite3.Connection, axis: Axis, values: NDArray[Any] | None) -> None:
    """The array's shape, and its values where they are in the table."""
    shape = list(axis.array.shape)
    shape[axis.number] = len(axis.was)
    con.execute("UPDATE arrays SET shape = ? WHERE array = ?", (canonical(shape), axis.array.array))
    if values is not None:
        con.execute(
            "UPDATE arrays SET storage = 'inline', affine = NULL, chunks = shape, \"values\" = ? WHERE array = ?",
            (values.tobytes(), axis.array.array),
        )
