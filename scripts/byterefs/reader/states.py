"""What differs between two published states of a dataset: rows by EXCEPT, metadata field by field."""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from byterefs import urls
from byterefs.access import ranges
from byterefs.database import quote
from byterefs.errors import StoreError
from byterefs.reader.sqlite import SqliteTable
from byterefs.reader.table import Table
from byterefs.reader.tables import open_table

FIELDS = ("dims", "shape", "chunks", "dtype", "fill", "codec", "attrs", "storage", "grid_mapping")
ROW = 'present, path, "offset", size, data'


@dataclass(frozen=True, slots=True)
class Change:
    """How one array, or ``sources``, differs."""

    array: str
    new: dict[int, int] = field(default_factory=dict)
    """``dim_0`` chunk key -> rows that only the later state has"""
    changed: dict[int, int] = field(default_factory=dict)
    """``dim_0`` chunk key -> rows of both that lie elsewhere, or hold other bytes"""
    gone: dict[int, int] = field(default_factory=dict)
    """``dim_0`` chunk key -> rows that only the older state has"""
    meta: dict[str, tuple[Any, Any]] = field(default_factory=dict)
    """field of the array's row -> what it was and what it is; ``values`` only that they differ"""

    def __bool__(self) -> bool:
        return bool(self.new or self.changed or self.gone or self.meta)


def diff(old: str, new: str) -> list[Change]:
    """Every array that differs between two states of one form, by name, and then ``sources``.

    All rows are compared, so of states at a URL the files that hold them are fetched first, into a folder that is
    gone afterwards. Raises StoreError for states of different forms, RangeError where a file cannot be fetched.
    """
    with closing(open_table(old, None)) as before, closing(open_table(new, None)) as after:
        if type(before) is not type(after):
            raise StoreError(f"{old} and {new}: they are of two forms: compare two of one form")
        found = []
        with database(before, after) as execute:
            for name in sorted({*before.arrays, *after.arrays}):
                change = Change(name, meta=described(before, after, name))
                if name in before.arrays and name in after.arrays and "dims" not in change.meta:
                    count(execute, change, after)
                found.append(change)
            found.append(sources(execute))
    return [change for change in found if change]


def described(before: Table, after: Table, name: str) -> dict[str, tuple[Any, Any]]:
    """The fields of an array that differ; one that only one state has differs in ``array``."""
    was, now = before.arrays.get(name), after.arrays.get(name)
    if was is None or now is None:
        return {"array": (was and was.array, now and now.array)}
    told = {f: (getattr(was, f), getattr(now, f)) for f in FIELDS}
    differ = {f: pair for f, pair in told.items() if pair[0] != pair[1]}
    inline = "referenced" not in (was.storage, now.storage)
    if inline and before.values(name) != after.values(name):
        differ["values"] = ("", "other values")
    return differ


def count(execute: Any, change: Change, table: Table) -> None:
    """Count the rows of ``refs_<array>`` that differ, by ``dim_0`` key."""
    array = table.arrays[change.array]
    if array.storage != "referenced":
        return
    dims = ", ".join(f"dim_{i}" for i in range(len(array.dims))) or "0 AS dim_0"
    refs = quote(f"refs_{change.array}")
    keys = f"SELECT {dims} FROM {{}}.{refs}"
    rows = f"SELECT {dims}, {ROW} FROM {{}}.{refs}"
    only = f"{keys} EXCEPT {keys}"
    other = f"SELECT {dims} FROM ({rows.format('new')} EXCEPT {rows.format('old')}) AS r INTERSECT {keys.format('old')}"
    for into, statement in (
        (change.new, only.format("new", "old")),
        (change.gone, only.format("old", "new")),
        (change.changed, other),
    ):
        counted = execute(f"SELECT dim_0, count(*) FROM ({statement}) AS k GROUP BY 1 ORDER BY 1")
        into.update(counted)


def sources(execute: Any) -> Change:
    """Sources that are new, gone, or of another size, mtime or etag; key 0 stands for all."""
    name, row = "SELECT source FROM {}.sources", "SELECT source, size, mtime, etag FROM {}.sources"
    statements = {
        "new": f"{name.format('new')} EXCEPT {name.format('old')}",
        "gone": f"{name.format('old')} EXCEPT {name.format('new')}",
        "changed": f"SELECT source FROM ({row.format('new')} EXCEPT {row.format('old')}) AS r "
        f"INTERSECT {name.format('old')}",
    }
    counted = {w: execute(f"SELECT count(*) FROM ({s}) AS k")[0][0] for w, s in statements.items()}
    told = {what: {0: n} if n else {} for what, n in counted.items()}
    return Change("sources", told["new"], told["changed"], told["gone"])


@contextmanager
def database(before: Table, after: Table) -> Iterator[Any]:
    """A function that runs SQL with both states as schemas ``old`` and ``new``."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if isinstance(before, SqliteTable):
            con: Any = sqlite3.connect("file::memory:", uri=True)
            for schema, table in (("old", before), ("new", after)):
                uri = f"{here(table.location, folder / schema).absolute().as_uri()}?mode=ro"
                con.execute(f"ATTACH ? AS {schema}", (uri,))
        else:
            con = attached(before, after, folder)
        with closing(con):
            yield lambda statement: con.execute(statement).fetchall()


def attached(before: Table, after: Table, folder: Path) -> Any:
    """DuckDB with the Parquet files of both states as views."""
    import duckdb

    con = duckdb.connect()
    for schema, table in (("old", before), ("new", after)):
        con.execute(f"CREATE SCHEMA {schema}")
        files = {f"refs_{name}": list(table.files(name)) for name in table.arrays}  # type: ignore[attr-defined]
        for view, names in {**files, "sources": [f"{table.location}/sources.parquet"]}.items():
            found = [here(n, folder / schema / f"{view}.{i}") for i, n in enumerate(names)]
            if found:
                listed = ", ".join("'" + str(path).replace("'", "''") + "'" for path in found)
                con.execute(
                    f"CREATE VIEW {schema}.{quote(view)} AS SELECT * FROM read_parquet([{listed}])"
                )
    return con


def here(location: str, copy: Path) -> Path:
    """The path of a file of this machine; of one at a URL that of ``copy``, into which it is fetched."""
    if urls.is_local(location):
        return Path(urls.to_path(location))
    copy.parent.mkdir(parents=True, exist_ok=True)
    with ranges.open(location) as opened, copy.open("wb") as file:
        for at in range(0, opened.size, ranges.MERGED):
            file.write(opened.read(at, min(ranges.MERGED, opened.size - at)))
    return copy


def runs(keys: Sequence[int]) -> str:
    """Sorted keys in words.

    >>> runs([1, 2, 3, 7])
    '1-3, 7'
    """
    spans: list[list[int]] = []
    for key in keys:
        if spans and key == spans[-1][1] + 1:
            spans[-1][1] = key
        else:
            spans.append([key, key])
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in spans)


def lines(changes: Sequence[Change]) -> Iterator[str]:
    """Changes for people, one line per array and kind."""
    for change in changes:
        for what in ("new", "changed", "gone"):
            keys = asdict(change)[what]
            if keys:
                where = "" if change.array == "sources" else f" at dim_0 {runs(sorted(keys))}"
                yield f"{change.array}: {sum(keys.values())} {what}{where}"
        for name, (was, now) in change.meta.items():
            yield f"{change.array}: {name} {was} -> {now}"
