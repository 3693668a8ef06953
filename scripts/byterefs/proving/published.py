"""The tables of a published store, beside ``refs_<array>``, against the view."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any, cast

from byterefs import FORMAT
from byterefs.database import quote
from byterefs.emitters import Reader
from byterefs.files import canonical
from byterefs.grid import elements
from byterefs.proving.artefact import refuse
from byterefs.view import View


def meta(con: sqlite3.Connection) -> dict[str, str]:
    """The table ``meta``."""
    return dict(con.execute("SELECT key, value FROM meta"))


def equal(form: str, table: str, published: Sequence[Any], expected: Sequence[Any]) -> None:
    """Compare the rows of a small table. Raises VerifyError naming the first that differs."""
    if len(published) != len(expected):
        raise refuse(form, table, "the number of rows", len(published), len(expected))
    for there, wanted in zip(published, expected, strict=True):
        if there != wanted:
            raise refuse(form, table, "a row", there, wanted)


def served(view: View, reader: Reader, target: str) -> list[str]:
    """The paths in ``sources``: verbatim, or with ``emit.sqlite.sources`` those of one target."""
    con = cast(Any, reader).con
    has = [row[0] for row in con.execute("SELECT source FROM sources ORDER BY source_id")]
    own = [s.source for s in view.sources]
    choices = [own, *(view.paths(t) for t in view.targets)]
    return next((paths for paths in choices if paths == has), own)


def target_of(view: View, paths: Sequence[str]) -> str:
    """The target that serves these paths."""
    return next(t for t in view.targets if view.paths(t) == list(paths))


def check_sqlite(view: View, con: sqlite3.Connection, paths: Sequence[str]) -> None:
    """Compare every table of the published store but the rows. Raises VerifyError."""
    verbatim = list(paths) == [s.source for s in view.sources]
    stats = [
        (i, p, s.size, s.mtime, s.etag)
        for i, (p, s) in enumerate(zip(paths, view.sources, strict=True), 1)
    ]
    equal("sqlite", "sources", con.execute("SELECT * FROM sources ORDER BY 1").fetchall(), stats)
    rules = sorted((t, p, r) for t, rows in view.remap.items() for p, r in rows) if verbatim else []
    equal("sqlite", "remap", con.execute("SELECT * FROM remap ORDER BY 1, 2").fetchall(), rules)
    placed = [
        (
            a.array,
            elements(p.dest),
            view.index[p.source] + 1,
            p.source_array,
            elements(p.src_offset),
            elements(p.count),
        )
        for a in view.arrays.values()
        for p in a.placements
    ]
    rows = con.execute(
        "SELECT array, dest, source_id, source_array, src_offset, count FROM placements"
    )
    equal("sqlite", "placements", sorted(rows.fetchall()), sorted(placed))
    described = con.execute(
        "SELECT array, kind, storage, affine, attr_dtypes, grid_mapping FROM arrays ORDER BY 1"
    )
    wanted = [
        (
            a.array,
            a.kind,
            a.storage,
            None if a.affine is None else canonical(a.affine),
            canonical(a.attr_dtypes),
            a.grid_mapping,
        )
        for a in view.arrays.values()
    ]
    equal("sqlite", "arrays", described.fetchall(), sorted(wanted))
    found = meta(con)
    says = {
        "format_version": FORMAT,
        "dataset": view.dataset,
        "title": view.title,
        "plan": view.vrt if verbatim else view.vrt_for(target_of(view, paths)),
    }
    for key, value in says.items():
        if found.get(key) != value:
            raise refuse("sqlite", "meta", f"key {key!r}", found.get(key), value)
    for name in view.referenced():
        check_physical(view, con, name)


def check_physical(view: View, con: sqlite3.Connection, name: str) -> None:
    """That the chunk table joined to its placements is ``refs_<array>`` (mdim-refs/0.2, "The view").

    Both ways, so no row of either is without its like. Raises VerifyError.
    """
    axes = range(len(view.arrays[name].dims))
    chunk = view.arrays[name].chunks
    dims = ", ".join(f"dim_{i}" for i in axes)
    at = ", ".join(
        f"a.dim_{i} - (p.src_offset ->> {i}) / {chunk[i]} + (p.dest ->> {i}) / {chunk[i]} AS dim_{i}"
        for i in axes
    )
    inside = " AND ".join(
        f"a.dim_{i} >= (p.src_offset ->> {i}) / {chunk[i]} "
        f"AND a.dim_{i} * {chunk[i]} < (p.src_offset ->> {i}) + (p.count ->> {i})"
        for i in axes
    )
    physical = f"""
        SELECT {at}, a.present, CASE WHEN a."offset" IS NULL THEN NULL ELSE s.source END AS path,
            a."offset", a.size, a.info, a.data
        FROM {quote(name)} AS a JOIN placements AS p USING (source_id) JOIN sources AS s USING (source_id)
        WHERE p.array = ? AND {inside}"""
    columns = f'{dims}, present, path, "offset", size, info, data'
    rows = f"SELECT {columns} FROM {quote(f'refs_{name}')}"
    for what, statement in (
        (
            "a row of the chunk table that refs_ does not have",
            f"SELECT {columns} FROM ({physical}) EXCEPT {rows}",
        ),
        (
            "a row of refs_ that the chunk table does not give",
            f"{rows} EXCEPT SELECT {columns} FROM ({physical})",
        ),
    ):
        found = con.execute(f"{statement} LIMIT 1", (name,)).fetchone()
        if found is not None:
            raise refuse("sqlite", name, what, found, None)
    infos = [
        row[0]
        for row in con.execute(
            f"SELECT DISTINCT info FROM {quote(f'refs_{name}')} WHERE present = 1"
        )
    ]
    if infos not in ([], [view.arrays[name].info]):
        raise refuse("sqlite", name, "info", infos, [view.arrays[name].info])
