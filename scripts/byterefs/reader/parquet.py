"""The flat Parquet form as a table: footers first, then only the row groups that a box needs."""

from __future__ import annotations

import base64
import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from byterefs import urls
from byterefs.access import ranges
from byterefs.errors import StoreError
from byterefs.model import Key, Source
from byterefs.reader.table import (
    Ref,
    Spans,
    Table,
    affine_values,
    array_of,
    check_version,
    checked_values,
    parsed,
)

KEPT = 16
"""row groups of references that stay in memory"""
BLOCK = 64 << 10
"""bytes: the unit in which a file at a URL is fetched"""


class ParquetTable(Table):
    """A folder with ``arrays.json``, ``sources.parquet`` and ``refs_<array>.parquet`` of one target."""

    def __init__(self, location: str, target: str | None, drop: Sequence[str] = ()) -> None:
        self.location = location.removesuffix("arrays.json").rstrip("/")
        self._lock = threading.RLock()
        self._open: dict[str, Rows] = {}
        text = read_whole(f"{self.location}/arrays.json")
        document = parsed(f"{self.location}/arrays.json", "it", text)
        meta, rows = (document.get(key) for key in ("meta", "arrays"))
        if not isinstance(meta, Mapping) or not isinstance(rows, Mapping):
            raise StoreError(
                f"{self.location}/arrays.json: it has no meta and arrays: fetch it again"
            )
        check_version(self.location, meta.get("format_version"))
        self.target = target or str(meta.get("target", "access"))
        if self.target != meta.get("target", self.target):
            raise StoreError(
                f"{self.location}: it serves target {meta['target']!r}, not {target!r}; the Parquet form "
                f"is one folder per target: open that one, or say target={meta['target']!r}"
            )
        self.dataset, self.title = meta.get("dataset", ""), meta.get("title", "")
        self.root = meta.get("attrs") or {}
        self._rules = [(str(a), str(b)) for a, b in meta.get("remap") or []]
        self.arrays = {
            name: array_of(self.location, {**row, "array": name})
            for name, row in sorted(rows.items())
            if name not in drop
        }
        self._described = rows
        self._sources: dict[str, Source] | None = None

    def values(self, array: str) -> bytes:
        """All values of an array that is inline or affine."""
        described, row = self.array(array), self._described[array]
        if row.get("values") is None and described.affine is not None:
            return affine_values(described)
        values = base64.b64decode(row["values"]) if row.get("values") else b""
        return checked_values(self.location, described, values)

    def find(self, array: str, spans: Spans) -> list[Ref]:
        """The present chunks of a box, from the row groups whose statistics meet it."""
        with self._lock:
            if array not in self._open:
                self._open[array] = Rows(self.files(array), self.grid(array))
            found = self._open[array].box(spans)
        return [self._ref(array, key, row) for key, row in found]

    def files(self, array: str) -> list[str]:
        """The Parquet files of an array's references, in the order of their rows; none of an inline one."""
        if self.array(array).storage != "referenced":
            return []
        named = self._described[array].get("files") or [f"refs_{urls.file_name(array)}.parquet"]
        if any(part in ("", ".", "..") for name in named for part in str(name).split("/")):
            raise StoreError(
                f"{self.location}/arrays.json: files of {array!r} lie outside of its folder: {named}; "
                f"publish the table again"
            )
        return [f"{self.location}/{name}" for name in named]

    def _ref(self, array: str, key: Key, row: Mapping[str, Any]) -> Ref:
        if row["data"] is not None:
            return Ref(key, None, "", 0, len(row["data"]), row["data"])
        if row["path"] is None or row["offset"] is None or row["size"] is None:
            raise StoreError(
                f"{self.location}, {array}: the row {list(key)} is present and names neither bytes nor a "
                f"byte range: publish the table again"
            )
        source = self._all_sources().get(row["path"]) or Source(row["path"])
        return Ref(key, source, row["path"], row["offset"], row["size"])

    def _all_sources(self) -> dict[str, Source]:
        with self._lock:
            if self._sources is None:
                table = read_table(f"{self.location}/sources.parquet")
                self._sources = {
                    r["source"]: Source(
                        original(r["source"], self._rules),
                        r["size"],
                        None if r["mtime"] is None else r["mtime"] * 1_000_000_000,
                        r["etag"],
                    )
                    for r in table.to_pylist()
                }
            return self._sources

    def close(self) -> None:
        """Close the files."""
        for rows in self._open.values():
            rows.close()
        self._open.clear()


class Rows:
    """The rows of one array, over all of its files."""

    def __init__(self, files: Sequence[str], grid: Key) -> None:
        self.grid = grid
        self._names = [f"dim_{i}" for i in range(len(grid))]
        self._files = [File(name, ("path",)) for name in files]
        self._groups = [
            (file, i, limits)
            for file in self._files
            for i, limits in enumerate(file.limits(self._names))
        ]
        self._kept: OrderedDict[int, tuple[Any, pa.Table]] = OrderedDict()

    def box(self, spans: Spans) -> list[tuple[Key, dict[str, Any]]]:
        """Present rows whose keys lie in a box, in the order of their keys."""
        found: list[tuple[Key, dict[str, Any]]] = []
        for number, (_, _, limits) in enumerate(self._groups):
            if all(
                low < s.stop and high >= s.start
                for (low, high), s in zip(limits, spans, strict=True)
            ):
                found += self._inside(number, spans)
        return found

    def _inside(self, number: int, spans: Spans) -> Iterable[tuple[Key, dict[str, Any]]]:
        keys, table = self._group(number)
        inside = table["present"].to_numpy() == 1
        for axis, span in zip(keys, spans, strict=True):
            inside &= (axis >= span.start) & (axis < span.stop)
        rows = np.flatnonzero(inside)
        chosen = table.select(["path", "offset", "size", "data"]).take(pa.array(rows))
        at = zip(*(axis[rows].tolist() for axis in keys), strict=True) if keys else [()] * len(rows)
        return zip(at, chosen.to_pylist(), strict=True)

    def _group(self, number: int) -> tuple[Any, pa.Table]:
        """The keys and columns of a row group; the last ones used are kept."""
        if number not in self._kept:
            file, i, _ = self._groups[number]
            table = file.group(i, [*self._names, "present", "path", "offset", "size", "data"])
            self._kept[number] = ([table[name].to_numpy() for name in self._names], table)
        self._kept.move_to_end(number)
        while len(self._kept) > KEPT:
            self._kept.popitem(last=False)
        return self._kept[number]

    def close(self) -> None:
        """Close the files."""
        for file in self._files:
            file.close()


class File:
    """One Parquet file, read by range. Raises StoreError where it is none or not whole."""

    def __init__(self, name: str, words: Sequence[str] = ()) -> None:
        self.name = name
        self._ranges = ranges.open(name)
        self._handle = self._ranges.file(block=BLOCK)
        try:
            with self._refusing():
                self._file = pq.ParquetFile(
                    pa.PythonFile(self._handle, "r"), read_dictionary=list(words), pre_buffer=True
                )
        except BaseException:
            self.close()
            raise

    @contextmanager
    def _refusing(self) -> Iterator[None]:
        try:
            yield
        except (pa.ArrowException, OSError, KeyError, ValueError) as error:
            raise StoreError(
                f"{self.name}: it is no whole Parquet file of references ({error}): fetch it again"
            ) from error

    def limits(self, names: Sequence[str]) -> list[list[tuple[int, int]]]:
        """Per row group the least and the greatest key of each axis, from the footer's statistics."""
        meta = self._file.metadata
        at = {meta.schema.column(i).name: i for i in range(meta.num_columns)}
        with self._refusing():
            groups = [
                [meta.row_group(g).column(at[n]) for n in names] for g in range(meta.num_row_groups)
            ]
        return [[limits_of(column.statistics) for column in group] for group in groups]

    def group(self, number: int, columns: Sequence[str]) -> pa.Table:
        """Some columns of one row group."""
        with self._refusing():
            return self._file.read_row_group(number, columns=list(columns)).select(list(columns))

    def table(self) -> pa.Table:
        """All rows."""
        with self._refusing():
            return self._file.read()

    def close(self) -> None:
        """Close it."""
        self._handle.close()
        self._ranges.close()


def original(path: str, rules: urls.Rules) -> str:
    """The source that a target's rules serve as ``path``; ``path`` itself where that is not one."""
    found = {
        prefix + path[len(replacement) :]
        for prefix, replacement in rules
        if path.startswith(replacement)
    }
    back = [s for s in found if urls.remap(s, rules, target="") == path]
    return back[0] if len(back) == 1 else path


def limits_of(statistics: Any) -> tuple[int, int]:
    """Least and greatest value by a column's statistics; every key where there are none."""
    if statistics is None or not statistics.has_min_max:
        return 0, 1 << 62
    return statistics.min, statistics.max


def read_whole(name: str) -> bytes:
    """All bytes of a file, wherever it lies."""
    with ranges.open(name) as opened:
        return opened.read(0, opened.size)


def read_table(name: str) -> pa.Table:
    """All rows of a Parquet file, wherever it lies."""
    file = File(name)
    try:
        return file.table()
    finally:
        file.close()
