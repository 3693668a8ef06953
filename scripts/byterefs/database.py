"""The working store as a database: its schema, its version, and connections that commit wholly or not at all.

It may lie on a shared file system, so the journal is DELETE.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from byterefs.errors import StoreError

STORE_VERSION = "byterefs-store/3"
MADE_OF = (
    "arrays",
    "byterefs_arrays",
    "byterefs_inline",
    "byterefs_metas",
    "byterefs_placements",
    "byterefs_scans",
    "byterefs_values",
    "meta",
    "remap",
    "sources",
)
"""tables that a view is made of"""


def voiding() -> Iterator[str]:
    """Triggers that empty ``byterefs_kept`` at any change of what it was made of, whoever makes it."""
    for table in MADE_OF:
        for event in ("INSERT", "UPDATE", "DELETE"):
            yield (
                f"CREATE TRIGGER kept_{table}_{event.lower()} AFTER {event} ON {table} "
                f"BEGIN DELETE FROM byterefs_kept; END"
            )


def quote(name: str) -> str:
    """An SQL identifier: the one place where a name becomes part of a statement."""
    return '"' + name.replace('"', '""') + '"'


@cache
def schema(part: str) -> str:
    """One named part of ``schema.sql``."""
    text = (Path(__file__).parent / "schema.sql").read_text()
    parts = dict(p.split("\n", 1) for p in text.split("-- name: ")[1:])
    return parts[part]


@contextmanager
def writing(store: Path) -> Iterator[sqlite3.Connection]:
    """A connection in one write transaction: committed at the end, rolled back if anything is raised."""
    store.parent.mkdir(parents=True, exist_ok=True)
    con = sqlite3.connect(store, timeout=60, isolation_level=None)
    try:
        con.execute("PRAGMA journal_mode = DELETE")
        con.execute("BEGIN IMMEDIATE")
        if not con.execute("SELECT 1 FROM sqlite_master").fetchone():
            for statement in (*schema("working").split(";\n"), *voiding()):
                con.execute(statement)
            con.execute("INSERT INTO meta VALUES ('store_version', ?)", (STORE_VERSION,))
        check_version(con, store)
        yield con
        con.execute("COMMIT")
    except sqlite3.DatabaseError as e:
        raise StoreError(unusable(store, e)) from e
    finally:
        con.close()


def opened(store: Path) -> sqlite3.Connection:
    """A read-only connection to an existing store of ours; the caller closes it."""
    if not store.exists():
        raise StoreError(f"{store}: there is no store yet; run the workflow to build it")
    con = sqlite3.connect(f"{store.absolute().as_uri()}?mode=ro", uri=True, timeout=60)
    try:
        check_version(con, store)
    except sqlite3.DatabaseError as e:
        con.close()
        raise StoreError(unusable(store, e)) from e
    except StoreError:
        con.close()
        raise
    return con


@contextmanager
def reading(store: Path) -> Iterator[sqlite3.Connection]:
    """A read-only connection to an existing store, closed at the end."""
    con = opened(store)
    try:
        yield con
    except sqlite3.DatabaseError as e:
        raise StoreError(unusable(store, e)) from e
    finally:
        con.close()


def unusable(store: Path, error: Exception) -> str:
    """The sentence for a store that SQLite cannot use."""
    return (
        f"{store}: SQLite says {str(error)!r}; if the file is damaged, delete it and run again: "
        f"it is rebuilt from the sources"
    )


def check_version(con: sqlite3.Connection, store: Path) -> None:
    """Refuse a store of another make."""
    row = con.execute("SELECT value FROM meta WHERE key = 'store_version'").fetchone()
    if row is None or row[0] != STORE_VERSION:
        raise StoreError(
            f"{store}: the store is {row and row[0]!r} and this program writes {STORE_VERSION!r}; "
            f"delete it and run again: it is rebuilt from the sources"
        )
