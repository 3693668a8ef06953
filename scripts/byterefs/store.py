"""The working store: one SQLite file per dataset that remembers every scan.

One writer job, one transaction: a killed job leaves the last committed state, and a rescan
replaces *all* rows of its source.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from byterefs.database import reading, writing
from byterefs.files import canonical, digest, replacing
from byterefs.grid import linear
from byterefs.model import ArrayMeta, Source, SourceArray, SourceScan

OF_SOURCE = (
    "byterefs_arrays",
    "byterefs_inline",
    "byterefs_scans",
    "byterefs_told",
    "sources",
)
"""tables with rows of a source"""


def known(store: Path) -> dict[str, tuple[int | None, int | None, str | None, str]]:
    """Source -> (size, mtime_ns, etag, scan version) of every scan in the store; {} without a store.

    Size, mtime and etag are what the source's catalogue told, where one did.
    """
    if not store.exists():
        return {}
    with reading(store) as con:
        rows = con.execute(
            "SELECT source, size, mtime_ns, etag, version, told FROM sources "
            "JOIN byterefs_scans USING (source_id) LEFT JOIN byterefs_told USING (source_id)"
        )
        return {
            source: (*(json.loads(told) if told else stat), version)
            for source, *stat, version, told in rows
        }


def write_scans(
    path: Path, scans: Iterable[SourceScan], refused: Mapping[Source, str], *, version: str
) -> dict[str, int]:
    """The scan stage's file: a small store with the physical layer of one batch.

    ``refused`` holds the sources that were set aside (``on_error: skip``) with the reason.
    Returns counts of sources, refused, arrays and rows (chunks).
    """
    counts = {"sources": 0, "refused": len(refused), "arrays": 0, "rows": 0}
    with replacing(path) as part, writing(part) as con:
        for scan in scans:
            add_scan(con, scan, version)
            counts["sources"] += 1
            counts["arrays"] += len(scan.arrays)
            counts["rows"] += sum(
                a.offset.size for a in scan.arrays.values() if a.offset is not None
            )
        for source, reason in refused.items():
            add_source(con, source, version=version, refused=reason)
    return counts


def add_source(
    con: sqlite3.Connection,
    source: Source,
    *,
    version: str,
    refused: str | None = None,
    root: Mapping[str, Any] | None = None,
) -> int:
    """Record one source without arrays; returns its ``source_id``. What was known of it is dropped."""
    drop_source(con, source.source)
    cursor = con.execute(
        "INSERT INTO sources (source, size, mtime, etag) VALUES (?, ?, ?, ?)",
        (source.source, source.size, source.mtime, source.etag),
    )
    source_id = cursor.lastrowid
    con.execute(
        "INSERT INTO byterefs_scans VALUES (?, ?, ?, ?, ?)",
        (
            source_id,
            source.mtime_ns,
            version,
            refused,
            canonical(root or {"attrs": {}, "dtypes": {}}),
        ),
    )
    return int(source_id or 0)


def drop_source(con: sqlite3.Connection, source: str) -> bool:
    """Delete every row of a source, whatever it had; True if it was known."""
    row = con.execute("SELECT source_id FROM sources WHERE source = ?", (source,)).fetchone()
    if row is None:
        return False
    for table in OF_SOURCE:
        con.execute(f"DELETE FROM {table} WHERE source_id = ?", row)
    return True


def add_scan(con: sqlite3.Connection, scan: SourceScan, version: str) -> None:
    """Record one source with its arrays, replacing all that was known of it."""
    root = {"attrs": dict(scan.root), "dtypes": dict(scan.root_dtypes)}
    source_id = add_source(con, scan.source, version=version, root=root)
    for name, item in sorted(scan.arrays.items()):
        record = canonical(asdict(item.meta))
        meta = hashlib.sha256(record.encode()).hexdigest()
        con.execute("INSERT OR IGNORE INTO byterefs_metas VALUES (?, ?)", (meta, record))
        if item.values is not None:
            con.execute(
                "INSERT OR IGNORE INTO byterefs_values VALUES (?, ?)", (item.digest, item.values)
            )
        con.execute(
            "INSERT INTO byterefs_arrays VALUES (?, ?, ?, ?, ?, ?, ?)",
            (
                source_id,
                name,
                meta,
                item.digest,
                chunks_digest(item),
                packed(item.offset),
                packed(item.size),
            ),
        )
        if item.offset is not None:
            grid = item.offset.shape
            con.executemany(
                "INSERT INTO byterefs_inline VALUES (?, ?, ?, ?)",
                [(source_id, name, linear(k, grid), d) for k, d in sorted(item.data.items())],
            )


def packed(column: np.ndarray | None) -> bytes | None:
    """A column of offsets or sizes as little-endian int64 in C order."""
    return None if column is None else np.ascontiguousarray(column, "<i8").tobytes()


def chunks_digest(item: SourceArray) -> str | None:
    """sha256 of where an array's chunks lie; what a view fragment's digest is made from."""
    if item.offset is None or item.size is None:
        return None
    h = hashlib.sha256(packed(item.offset) or b"")
    h.update(packed(item.size) or b"")
    for key, data in sorted(item.data.items()):
        h.update(canonical([list(key), hashlib.sha256(data).hexdigest()]).encode())
    return h.hexdigest()


def update(
    store: Path,
    batches: Iterable[Path],
    removed: Iterable[str],
    told: Mapping[str, Sequence[Any]] = MappingProxyType({}),
) -> dict[str, Any]:
    """Merge the scan files of a run and forget the removed sources, in one transaction.

    ``told`` is what a catalogue says of pending sources: size, mtime_ns, etag.
    Returns ``{"digest", "counts"}``: the digest of everything the store knows, and counts of
    sources known, new or replaced, removed, refused, and rows (chunks) written.
    """
    batches, removed = list(batches), list(removed)
    with writing(store) as con:
        replaced = sum(merge(con, batch) for batch in batches)
        for source in removed:
            drop_source(con, source)
        con.executemany(
            "INSERT INTO byterefs_told SELECT source_id, ? FROM sources WHERE source = ?",
            ((canonical(list(row)), source) for source, row in told.items()),
        )
        if removed or replaced:
            drop_orphans(con)
            drop_plan(con)
        return {"digest": state_digest(con), "counts": {**counts(con), "removed": len(removed)}}


def merge(con: sqlite3.Connection, batch: Path) -> int:
    """Take over one scan file; returns how many of its sources were known before."""
    replaced = 0
    with reading(batch) as part:
        for table in ("byterefs_metas", "byterefs_values"):
            con.executemany(
                f"INSERT OR IGNORE INTO {table} VALUES (?, ?)",
                part.execute(f"SELECT * FROM {table}"),
            )
        rows = part.execute(
            "SELECT source_id, source, size, etag, mtime_ns, version, refused, root "
            "FROM sources JOIN byterefs_scans USING (source_id) ORDER BY source"
        ).fetchall()
        for old_id, source, size, etag, mtime_ns, version, refused, root in rows:
            replaced += drop_source(con, source)
            record = Source(source, size, mtime_ns, etag)
            new_id = add_source(
                con, record, version=version, refused=refused, root=json.loads(root)
            )
            copy_rows(part, con, old_id, new_id)
    return replaced


def copy_rows(part: sqlite3.Connection, con: sqlite3.Connection, old_id: int, new_id: int) -> None:
    """Copy one source's arrays and inline chunks under its new ``source_id``."""
    for table, marks in (
        ("byterefs_arrays", "?, ?, ?, ?, ?, ?, ?"),
        ("byterefs_inline", "?, ?, ?, ?"),
    ):
        rows = part.execute(f"SELECT * FROM {table} WHERE source_id = ?", (old_id,))
        con.executemany(
            f"INSERT INTO {table} VALUES ({marks})", ((new_id, *row[1:]) for row in rows)
        )


def drop_orphans(con: sqlite3.Connection) -> None:
    """Forget values and metadata that no source has any more."""
    con.execute(
        "DELETE FROM byterefs_values WHERE digest NOT IN "
        "(SELECT digest FROM byterefs_arrays WHERE digest IS NOT NULL)"
    )
    con.execute("DELETE FROM byterefs_metas WHERE meta NOT IN (SELECT meta FROM byterefs_arrays)")


def drop_plan(con: sqlite3.Connection) -> None:
    """Forget the plan, which may place what is no more as it was."""
    for table in ("arrays", "byterefs_placements", "remap"):
        con.execute(f"DELETE FROM {table}")
    con.execute("DELETE FROM meta WHERE key != 'store_version'")


def state_digest(con: sqlite3.Connection) -> str:
    """Digest of every scan the store holds; a scan is determined by source, stat and scan version."""
    rows = con.execute(
        "SELECT source, size, mtime_ns, etag, version, refused "
        "FROM sources JOIN byterefs_scans USING (source_id) ORDER BY source"
    )
    return digest([list(row) for row in rows])


def counts(con: sqlite3.Connection) -> dict[str, int]:
    """How much the store knows: sources, refused ones, and rows (chunks)."""
    (sources,) = con.execute("SELECT count(*) FROM sources").fetchone()
    (refused,) = con.execute(
        "SELECT count(*) FROM byterefs_scans WHERE refused IS NOT NULL"
    ).fetchone()
    (rows,) = con.execute(
        'SELECT coalesce(sum(length("offset") / 8), 0) FROM byterefs_arrays'
    ).fetchone()
    return {"sources": sources, "refused": refused, "rows": rows}


def meta_record(text: str) -> ArrayMeta:
    """An ArrayMeta from the JSON that the store keeps."""
    record = json.loads(text)
    for name in ("dims", "shape", "chunks"):
        record[name] = tuple(record[name])
    return ArrayMeta(**record)
