"""Provider `listing`: a CSV, JSON lines or Parquet file that names the sources, by its ending.

Columns: `source` (or `url`, or `path`), and where known `size` (bytes), `mtime` (seconds since
1970, or ISO 8601) or `mtime_ns`, and `etag`. Other columns are ignored but for those by which a listing of
aad-filelist (bowerbird) says what a row is worth: `ok` and `dry_run`. Its `was_downloaded` is also false of a file
that was there before, and its `sync_time` is the run's and no file's, so neither decides anything.
"""

from __future__ import annotations

import csv
import json
import logging
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any

from byterefs import urls
from byterefs.discover.match import matching
from byterefs.errors import DiscoverError
from byterefs.model import Source

log = logging.getLogger(__name__)

NAMES = ("source", "url", "path")
"""Columns that may hold the source; the first that has a value does."""
NOTHING = (None, "", "NA")
"""what says that a value is not known; NA is R's word"""
TRUTHS = {"true": True, "t": True, "1": True, "false": False, "f": False, "0": False}

Row = tuple[int, Mapping[str, Any]]
"""Line (or row, in Parquet) from 1, and its columns."""


def list(source: Mapping[str, Any]) -> Iterator[Source]:
    """Sources verbatim, in the file's order; the file is refused as a whole if any line is odd."""
    path = Path(source["path"])
    if not path.is_file():
        raise DiscoverError(f"{path}: source.path is no file; the provider `listing` reads one")
    column = source.get("column")
    names = NAMES if column is None else (column,)
    seen: dict[str, int] = {}
    found, failed, waiting = [], [], []
    for line, row in _rows(path, names):
        listed = _source(path, line, row, names, seen)
        if _truth(path, line, row, "ok") is False:
            failed.append((line, listed.source))
        elif _truth(path, line, row, "dry_run") and not _there(listed.source):
            waiting.append(listed.source)
        else:
            found.append(listed)
    _tell(path, failed, waiting, source.get("failed", "refuse"))
    return matching(((s.source, s) for s in found), source["pattern"], str(path))


def _there(uri: str) -> bool:
    """Whether a path that a dry run lists is on this machine; what lies elsewhere was listed where it lies."""
    return not urls.is_local(uri) or os.path.exists(urls.to_path(uri))


def _tell(path: Path, failed: Sequence[tuple[int, str]], waiting: Sequence[str], rule: str) -> None:
    """Refuse, or say, which rows name no source that is there."""
    if failed and rule == "refuse":
        line, uri = failed[0]
        raise _odd(
            path, line, f"says that the sync of {uri} failed (ok is false, in {len(failed)} rows); run the sync again, "
            f"or leave such rows out with source.failed: skip",
        )  # fmt: skip
    for rows, why in (([u for _, u in failed], "their sync failed"), (waiting, "a dry run lists them and they are not here yet")):  # fmt: skip
        if rows:
            log.warning("%s: %d rows are left out, %s: %s", path, len(rows), why, rows[0])


def _truth(path: Path, line: int, row: Mapping[str, Any], name: str) -> bool | None:
    """A column of yes and no, as R, JSON and Parquet write it; None where it says nothing."""
    value = row.get(name)
    if value in NOTHING or isinstance(value, bool):
        return value if isinstance(value, bool) else None
    if str(value).lower() not in TRUTHS:
        raise _odd(path, line, f"has {name} {value!r}, which is neither true nor false")
    return TRUTHS[str(value).lower()]


def _rows(path: Path, names: Sequence[str]) -> Iterable[Row]:
    match path.suffix:
        case ".csv":
            return _csv(path, names)
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


def _csv(path: Path, names: Sequence[str]) -> Iterator[Row]:
    reader = csv.reader(_lines(path), strict=True)
    try:
        header = next(reader, [])
        if not set(names) & set(header):
            raise _odd(path, 1, f"has none of the columns {', '.join(names)}: {header}")
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


def _source(
    path: Path, line: int, row: Mapping[str, Any], names: Sequence[str], seen: dict[str, int]
) -> Source:
    uri = next((row[name] for name in names if row.get(name) not in NOTHING), None)
    if not isinstance(uri, str) or not uri:
        raise _odd(path, line, f"names no source: {dict(row)}")
    if "://" not in uri and not uri.startswith("/"):
        raise _odd(path, line, f"has the relative path {uri!r}; write it whole, or as an address")
    if uri in seen:
        raise _odd(path, line, f"has the source of line {seen[uri]} again: {uri}")
    seen[uri] = line
    try:
        etag = row.get("etag")
        return Source(uri, _size(row), _mtime_ns(row), None if etag in NOTHING else etag)
    except (ValueError, TypeError, InvalidOperation) as error:
        raise _odd(path, line, f"has a size or mtime that is none: {error}") from None


def _size(row: Mapping[str, Any]) -> int | None:
    """Bytes; R has them as doubles, 1e+05 among them, and NaN for those that it does not know."""
    if row.get("size") in NOTHING or row["size"] != row["size"]:
        return None
    size = Decimal(str(row["size"]))
    if size != int(size) or size < 0:
        raise ValueError(f"{row['size']} bytes")
    return int(size)


def _mtime_ns(row: Mapping[str, Any]) -> int | None:
    if row.get("mtime_ns") not in NOTHING:
        return int(row["mtime_ns"])
    value = row.get("mtime")
    if value in NOTHING:
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
