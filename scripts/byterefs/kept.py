"""What the stage `view` computed once and keeps in the working store for the jobs that follow.

Five emissions and as many verifications ask the same of the view: its digests, its rows, the fingerprints of
its slots. Triggers empty the table in the transaction that changes what it was made of (``database.voiding``), so
that what is found here is of the store as it is.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from pathlib import Path

from byterefs.database import writing


def write(store: Path, items: Mapping[str, bytes]) -> None:
    """Keep some results by name, instead of all that were kept before."""
    with writing(store) as con:
        con.execute("DELETE FROM byterefs_kept")
        con.executemany("INSERT INTO byterefs_kept VALUES (?, ?)", sorted(items.items()))


def read(con: sqlite3.Connection, name: str) -> bytes | None:
    """One result; None where it was not kept."""
    found = con.execute("SELECT data FROM byterefs_kept WHERE name = ?", (name,)).fetchone()
    return None if found is None else bytes(found[0])
