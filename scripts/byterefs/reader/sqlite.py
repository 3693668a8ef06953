"""The SQLite form as a table: through ``refs_<array>`` alone, so any writer's mdim-refs/0.2 is read.

A file of this machine is opened by the standard library, one at a URL by apsw, page by page.
"""

from __future__ import annotations

import sqlite3
import threading
import weakref
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Any

from byterefs import FORMAT, urls
from byterefs.database import quote
from byterefs.errors import RangeError, StoreError
from byterefs.model import Source
from byterefs.reader.table import (
    Ref,
    Spans,
    Table,
    affine_values,
    array_of,
    check_version,
    checked_values,
    parsed,
    rules_of,
)

JSON = ("dims", "shape", "chunks", "codec", "attrs", "affine", "attr_dtypes", "chunk_edges")
COLUMNS = (
    *("array", "kind", "storage", "dims", "shape", "chunks", "dtype", "fill", "codec", "attrs"),
    "affine",
)
BEHIND = ("attr_dtypes", "grid_mapping", "chunk_edges")
"""columns that stand behind ``values``: SQLite reads all pages of a value to get at them"""
INDEX, INDEXED = "byterefs_behind", 2
"""the index in which a store of ours has the first of them too"""
LARGE = 100_000
"""bytes: values from which on, without the index, only ``chunk_edges`` is worth that"""


class SqliteTable(Table):
    """``store.sqlite``; one connection, used by one thread at a time."""

    def __init__(self, location: str, target: str, drop: Sequence[str] = ()) -> None:
        self.location, self.target = location, target
        self._lock = threading.RLock()
        self._con = connect(location)
        weakref.finalize(self, self._con.close)
        self._sources: dict[str, Source] = {}
        try:
            self._describe(drop)
        except BaseException:
            self.close()
            raise

    def _describe(self, drop: Sequence[str]) -> None:
        meta = {key: self._meta(key) for key in ("format_version", "dataset", "title", "attrs")}
        check_version(self.location, meta["format_version"])
        self.dataset, self.title = meta["dataset"] or "", meta["title"] or ""
        self.root = parsed(self.location, "meta.attrs", meta["attrs"]) or {}
        rules: dict[str, list[tuple[str, str]]] = {}
        for target, prefix, replacement in self._rows(
            "SELECT target, prefix, replacement FROM remap"
        ):
            rules.setdefault(target, []).append((prefix, replacement))
        self._rules = rules_of(self.location, self.target, rules)
        self.arrays = {row["array"]: array_of(self.location, row) for row in self._arrays(drop)}

    def _meta(self, key: str) -> str | None:
        # by key: `plan` is megabytes, and nobody here reads it
        rows = self._rows("SELECT value FROM meta WHERE key = ?", (key,))
        return rows[0][0] if rows else None

    def _arrays(self, drop: Sequence[str]) -> Iterator[dict[str, Any]]:
        there = {row[1] for row in self._rows("PRAGMA table_info(arrays)")}
        indexed = INDEX in {row[1] for row in self._rows("PRAGMA index_list(arrays)")}
        listed = ", ".join(map(quote, COLUMNS))
        statement = f'SELECT {listed}, length("values") FROM arrays ORDER BY 1'
        for *found, size in self._rows(statement):
            row = dict(zip(COLUMNS, found, strict=True))
            if row["array"] in drop:
                continue
            # without its dtype a _FillValue is one of the array's own
            if indexed or (size or 0) < LARGE:
                by = f"INDEXED BY {INDEX}" if indexed else ""
                row |= self._behind(row["array"], [n for n in BEHIND[:INDEXED] if n in there], by)
            row |= self._behind(row["array"], [n for n in BEHIND[INDEXED:] if n in there])
            where = f"{self.location}, array {row['array']!r}"
            yield row | {k: parsed(where, k, row[k]) for k in JSON if k in row}

    def _behind(self, array: str, names: Sequence[str], how: str = "") -> dict[str, Any]:
        if not names:
            return {}
        statement = f"SELECT {', '.join(map(quote, names))} FROM arrays {how} WHERE array = ?"
        return dict(zip(names, self._rows(statement, (array,))[0], strict=True))

    def _rows(self, statement: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        with self._lock:
            try:
                return list(self._con.execute(statement, values))
            except Exception as error:
                raise explained(self.location, self._con, error) from error

    def values(self, array: str) -> bytes:
        """All values of an array that is inline or affine."""
        described = self.array(array)
        if described.affine is not None:
            return affine_values(described)
        rows = self._rows('SELECT "values" FROM arrays WHERE array = ?', (array,))
        return checked_values(self.location, described, rows[0][0])

    def find(self, array: str, spans: Spans) -> list[Ref]:
        """The present chunks of a box; each run of rows is one seek in the key."""
        rank = len(self.array(array).dims)
        # a view that computes its keys, as the spec's own, has no key to seek in
        fixed = seek_axes(spans, self.grid(array)) if self._keyed(array) else 0
        dims = [f"dim_{i}" for i in range(rank)]
        where = [f"{d} = ?" for d in dims[:fixed]] + [f"{d} BETWEEN ? AND ?" for d in dims[fixed:]]
        statement = (
            f'SELECT {"".join(f"{d}, " for d in dims)}path, "offset", size, data '
            f"FROM {quote(f'refs_{array}')} WHERE {' AND '.join(['present = 1', *where])} "
            f"ORDER BY {', '.join(dims) or 1}"
        )
        ends = [end for span in spans[fixed:] for end in (span.start, span.stop - 1)]
        return [
            self._ref(array, row[:rank], *row[rank:])
            for head in product(*spans[:fixed])
            for row in self._rows(statement, (*head, *ends))
        ]

    def _keyed(self, array: str) -> bool:
        statement = "SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = ?"
        return bool(self._rows(statement, (f"byterefs_refs_{array}",)))

    def _ref(self, array: str, key: Any, path: Any, offset: Any, size: Any, data: Any) -> Ref:
        if data is not None:
            return Ref(key, None, "", 0, len(data), data)
        if path is None or offset is None or size is None:
            raise StoreError(
                f"{self.location}, refs_{array}: the row {list(key)} is present and names neither bytes nor "
                f"a byte range: publish the table again"
            )
        source = self._source(path)
        return Ref(key, source, urls.remap(path, self._rules, target=self.target), offset, size)

    def _source(self, path: str) -> Source:
        if path not in self._sources:
            rows = self._rows("SELECT size, mtime, etag FROM sources WHERE source = ?", (path,))
            size, mtime, etag = rows[0] if rows else (None, None, None)
            seconds = None if mtime is None else mtime * 1_000_000_000
            self._sources[path] = Source(path, size, seconds, etag)
        return self._sources[path]

    def copy(self, to: Path) -> None:
        """Write the whole store to a file that is not there yet."""
        self._rows("VACUUM INTO ?", (str(to),))

    def close(self) -> None:
        """Close the connection."""
        self._con.close()


def seek_axes(spans: Spans, grid: Sequence[int]) -> int:
    """How many leading axes are looked up key by key; the one after is a range, those behind it whole.

    >>> seek_axes([range(3), range(1), range(2, 4)], (9, 1, 8)), seek_axes([range(3), range(1)], (9, 1))
    (2, 0)
    """
    fixed = len(spans)
    while fixed and len(spans[fixed - 1]) == grid[fixed - 1]:
        fixed -= 1
    return max(0, fixed - 1)


def connect(location: str) -> Any:
    """A read-only connection. Raises StoreError if there is no such file, RangeError at a URL."""
    if not urls.is_local(location):
        try:
            from byterefs.reader.pages import Connection
        except ModuleNotFoundError as error:
            raise StoreError(
                f"{location}: an SQLite file at a URL is read with {error.name}, which is not installed: "
                f"pip install 'byterefs[remote]', or fetch the file"
            ) from error
        return Connection(location)
    path = Path(urls.to_path(location))
    if not path.is_file():
        raise StoreError(f"{location}: there is no such file")
    uri = f"{path.absolute().as_uri()}?mode=ro"
    return sqlite3.connect(uri, uri=True, check_same_thread=False)


def explained(location: str, con: Any, error: Exception) -> Exception:
    """The cause of a failed statement as a sentence."""
    failed = con.failed() if hasattr(con, "failed") else None
    if isinstance(failed, RangeError):
        return failed
    return StoreError(
        f"{location}: it cannot be read as a table of {FORMAT} ({error}): fetch it again"
    )
