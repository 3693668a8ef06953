"""Provider `listing`: a CSV, JSON lines or Parquet file that names the sources, by its ending.

Columns: `source` (or `url`, or `path`), and where known `size` (bytes), `mtime` (seconds since
1970, or ISO 8601) or `mtime_ns`, and `etag`. Other columns are ignored.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any

from byterefs.discover.match import matching
from byterefs.errors import DiscoverError
from byterefs.model import Source

NAMES = ("source", "url", "path")
"""Columns that may hold the source; the first that is there does."""

Row = tuple[int, Mapping[str, Any]]
"""Line (or row, in Parquet) from 1, and its columns."""


def list(source: Mapping[str, Any]) -> Iterator[Source]:
    """Sources verbatim, in the file's order; the file is refused as a whole if any line is odd."""
    path = Path(source["path"])
    if not path.is_file():
        raise DiscoverError(f"{path}: source.path is no file; the provider `listing` reads one")
    seen: dict[str, int] = {}
    found = [_source(path, line, row, seen) for line, row in _rows(path)]
    return matching(((s.source, s) for s in found), source["pattern"], str(path))


def _rows(path: Path) -> Iterable[Row]:
    match path.suffix:
        case ".csv":
            return _csv(path)
        case ".jsonl" | ".ndjson":
            return _jsonl(path)
        case ".parquet":
            return _parquet(path)
    raise DiscoverError(f"{path}: a listing ends in .csv, .jsonl, .ndjson or .parquet")


def _lines(path: Path) -> Iterator[str]:
    """Lines of a text file whose last one is whole: a listing cut short would shrink the archive."""
    try:
        with path.open(encoding="utf-8", newline="") as f:
            for number, line in enumerate(f, 1):
                if not line.endswith("\n"):
                    raise _odd(
                        path, number, "does not end the line; is the file still being written?"
                    )
                yield line
    except UnicodeDecodeError as error:
        raise DiscoverError(f"{path}: this is not UTF-8 text: {error.reason}") from None


def _csv(path: Path) -> Iterator[Row]:
    reader = csv.reader(_lines(path), strict=True)
    try:
        header = next(reader, [])
        if not set(NAMES) & set(header):
            raise _odd(path, 1, f"has none of the columns {', '.join(NAMES)}: {header}")
        for row in reader:
            if row and len(row) != len(header):
                raise _odd(path, reader.line_num, f"has {len(row)} fields, not {len(header)}")
            if row:
                yield reader.line_num, dict(zip(header, row, strict=True))
    except csv.Error as error:
        raise _odd(path, reader.line_num, f"is no CSV: {error}") from None


def _jsonl(path: Path) -> Iterator[Row]:
    for number, line in enumerate(_lines(path), 1):
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            raise _odd(path, number, f"is no JSON: {error}") from None
        if not isinstance(row, dict):
            raise _odd(path, number, f"is no JSON object: {row!r}")
        yield number, row


def _parquet(path: Path) -> Iterator[Row]:
    import pyarrow
    from pyarrow import parquet

    try:
        table = parquet.read_table(path)
    except (pyarrow.ArrowException, OSError) as error:
        raise DiscoverError(f"{path}: this is no whole Parquet file: {error}") from None
    yield from enumerate(table.to_pylist(), 1)


def _source(path: Path, line: int, row: Mapping[str, Any], seen: dict[str, int]) -> Source:
    uri = next((row[name] for name in NAMES if name in row), None)
    if not isinstance(uri, str) or not uri:
        raise _odd(path, line, f"names no source: {dict(row)}")
    if "://" not in uri and not uri.startswith("/"):
        raise _odd(path, line, f"has the relative path {uri!r}; write it whole, or as an address")
    if uri in seen:
        raise _odd(path, line, f"has the source of line {seen[uri]} again: {uri}")
    seen[uri] = line
    try:
        size = None if row.get("size") in (None, "") else int(row["size"])
        return Source(uri, size, _mtime_ns(row), row.get("etag") or None)
    except (ValueError, TypeError, InvalidOperation) as error:
        raise _odd(path, line, f"has a size or mtime that is none: {error}") from None


def _mtime_ns(row: Mapping[str, Any]) -> int | None:
    if row.get("mtime_ns") not in (None, ""):
        return int(row["mtime_ns"])
    value = row.get("mtime")
    if value in (None, ""):
        return None
    if isinstance(value, str) and "-" in value[1:]:
        value = datetime.fromisoformat(value)
    if isinstance(value, datetime):
        utc = value if value.tzinfo else value.replace(tzinfo=UTC)
        # timestamp() is a double, which holds microseconds of our days but not every one of them
        return round(utc.replace(microsecond=0).timestamp()) * 10**9 + utc.microsecond * 1000
    return int(Decimal(str(value)) * 10**9)


def _odd(path: Path, line: int, why: str) -> DiscoverError:
    return DiscoverError(f"{path}: line {line} {why}")
