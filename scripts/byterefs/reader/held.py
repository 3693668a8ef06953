"""A range cache: bytes that were read once, in a folder, by what the table says of their source.

``held.sqlite`` has a row per chunk that was asked for: ``inline`` (its bytes are in the row), ``copy`` (in
a file of the folder), ``link`` (in a local copy of its source), ``ref`` (known, its bytes were let go). The
key is source, version, offset and size, so that a remapped path changes nothing and a new ETag everything.

A killed process leaves at most a file without a row: rows come after files, and bytes are checked when
they are read. Several processes may share a folder.
"""

from __future__ import annotations

import logging
import os
import sqlite3
import threading
import time
import weakref
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path

from byterefs.database import schema
from byterefs.errors import StoreError
from byterefs.files import digest
from byterefs.model import Source
from byterefs.reader.places import Place, place, recipe, version
from byterefs.reader.table import Ref

log = logging.getLogger(__name__)

LIMIT = 10 << 30
"""bytes that a cache keeps, about"""
INLINE = 16 << 10
"""bytes: what is no larger is kept in its row"""
ORPHANED = 3600
"""seconds after which a file without a row is nobody's work in progress"""
TOUCHES = 1000
"""hits after which the order of use is written"""


class Held:
    """The cache in ``folder``, which keeps about ``limit`` bytes and lets go of what was used longest ago."""

    def __init__(self, folder: Path, limit: int = LIMIT) -> None:
        self.folder, self.limit = folder, limit
        self._lock = threading.RLock()
        self._touched: dict[Place, int] = {}
        folder.mkdir(parents=True, exist_ok=True)
        self._con = connect(folder / "held.sqlite")
        weakref.finalize(self, self._con.close)
        self._sweep()

    def close(self) -> None:
        """Write the order of use, and let go of the file."""
        with self._lock:
            self._write_touched()
            self._con.close()

    # --- reading -----------------------------------------------------------------------------------

    def get(self, refs: Mapping[int, Ref]) -> dict[int, bytes]:
        """The bytes that are held, by the number under which they were asked for."""
        found = {}
        with self._lock:
            for i, ref in refs.items():
                at = place(ref)
                data = None if at is None else self._read(at)
                if at is not None and data is not None:
                    found[i] = data
                    self._touched[at] = time.time_ns()
            if len(self._touched) > TOUCHES:
                self._write_touched()
        return found

    def _read(self, at: Place) -> bytes | None:
        row = self._con.execute(
            'SELECT held, data, path, crc FROM held WHERE source = ? AND version = ? AND "offset" = ? AND size = ?',
            at,
        ).fetchone()
        held, data, path, crc = row or ("ref", None, None, None)
        if held == "copy" and path is not None:
            data = content(self.folder / path)
        if held in ("inline", "copy") and data is not None and zlib.crc32(data) == crc:
            return bytes(data)
        return self._linked(at, held)

    def _linked(self, at: Place, held: str) -> bytes | None:
        row = self._con.execute(
            "SELECT path, size, mtime_ns FROM links WHERE source = ? AND version = ?", at[:2]
        ).fetchone()
        if row is None:
            return None
        path, size, mtime_ns = row
        data = content(Path(path), at.offset, at.size, (size, mtime_ns))
        if data is None:
            log.warning(
                "%s: it is no more the copy of %s that it was; fetched again", path, at.source
            )
            with self._con:
                self._con.execute("DELETE FROM links WHERE source = ? AND version = ?", at[:2])
                self._con.execute(
                    "UPDATE held SET held = 'ref', path = NULL WHERE held = 'link' AND source = ? AND version = ?",
                    at[:2],
                )
            return None
        if held != "link":
            with self._con:
                self._row(at, "link", None, path, zlib.crc32(data))
        return data

    def state(self, ref: Ref) -> str:
        """``inline``, ``copy``, ``link`` or ``ref``."""
        at = place(ref)
        if at is None:
            return "ref" if ref.data is None else "inline"
        statement = (
            'SELECT held FROM held WHERE source = ? AND version = ? AND "offset" = ? AND size = ?'
        )
        with self._lock:
            row = self._con.execute(statement, at).fetchone()
        return row[0] if row else "ref"

    @property
    def kept(self) -> int:
        """Bytes that are kept now, links not among them."""
        with self._lock:
            statement = "SELECT total(size) FROM held WHERE held IN ('inline', 'copy')"
            return int(self._con.execute(statement).fetchone()[0])

    # --- keeping -----------------------------------------------------------------------------------

    def put(self, refs: Sequence[Ref], data: Sequence[bytes]) -> None:
        """Keep the bytes of chunks; what cannot be written is not kept, and said in the log."""
        wanted = [
            (at, chunk)
            for at, chunk in ((place(ref), d) for ref, d in zip(refs, data, strict=True))
            if at is not None and 0 < len(chunk) <= self.limit
        ]
        with self._lock:
            try:
                self._put(wanted)
                self._evict()
            except (OSError, sqlite3.OperationalError) as error:
                log.warning(
                    "%s: bytes cannot be kept (%s); they are fetched again", self.folder, error
                )

    def _put(self, wanted: Sequence[tuple[Place, bytes]]) -> None:
        for at, chunk in wanted:
            if len(chunk) > INLINE:
                write(self.folder / file_of(at), chunk)
        self._write_touched()
        with self._con:
            for at, chunk in wanted:
                small = len(chunk) <= INLINE
                path = None if small else file_of(at)
                self._row(
                    at,
                    "inline" if small else "copy",
                    chunk if small else None,
                    path,
                    zlib.crc32(chunk),
                )

    def _row(self, at: Place, held: str, data: bytes | None, path: str | None, crc: int) -> None:
        self._con.execute(
            "INSERT OR REPLACE INTO held VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (*at, held, data, path, crc, time.time_ns()),
        )

    def _write_touched(self) -> None:
        with self._con:
            self._con.executemany(
                'UPDATE held SET used = ? WHERE source = ? AND version = ? AND "offset" = ? AND size = ?',
                [(used, *at) for at, used in self._touched.items()],
            )
        self._touched.clear()

    def _evict(self) -> None:
        excess = self.kept - self.limit
        oldest = self._con.execute(
            "SELECT source, version, \"offset\", size, path FROM held WHERE held IN ('inline', 'copy') ORDER BY used"
        )
        gone = []
        while excess > 0:
            gone.append(next(oldest))
            excess -= gone[-1][3]
        oldest.close()
        with self._con:
            self._con.executemany(
                "UPDATE held SET held = 'ref', data = NULL, path = NULL "
                'WHERE source = ? AND version = ? AND "offset" = ? AND size = ?',
                [row[:4] for row in gone],
            )
        for row in gone:
            if row[4]:
                (self.folder / row[4]).unlink(missing_ok=True)

    def _sweep(self) -> None:
        """Remove old files that no row names: what a killed process left."""
        before = time.time() - ORPHANED
        for path in self.folder.glob("chunks/*/*"):
            name = path.relative_to(self.folder).as_posix()
            known = self._con.execute("SELECT 1 FROM held WHERE path = ?", (name,)).fetchone()
            if known is None and path.stat().st_mtime < before:
                path.unlink(missing_ok=True)

    # --- copies of whole sources, and what was made of chunks --------------------------------------

    def link(self, source: Source, path: Path) -> None:
        """Read a source's bytes from a whole copy of it on this machine from now on.

        Raises StoreError for a copy of another size, or a source whose version the table does not say.
        """
        known, stat = version(source), path.stat()
        if known is None or source.size != stat.st_size:
            raise StoreError(
                f"{path}: it has {stat.st_size} bytes, and {source.source} has {source.size} by the table: link "
                f"a copy of the version that was scanned"
            )
        with self._lock, self._con:
            self._con.execute(
                "INSERT OR REPLACE INTO links VALUES (?, ?, ?, ?, ?)",
                (source.source, known, str(path.absolute()), stat.st_size, stat.st_mtime_ns),
            )

    def derived(self, name: str, refs: Sequence[Ref]) -> bytes | None:
        """What :meth:`derive` kept under a name, if it was made of exactly these chunks."""
        known = recipe(refs)
        if known is None:
            return None
        with self._lock:
            size = self._con.execute(
                "SELECT size FROM held WHERE source = ? AND version = ?", (name, known)
            ).fetchone()
            at = None if size is None else Place(name, known, 0, size[0])
            data = None if at is None else self._read(at)
            if at is not None and data is not None:
                self._touched[at] = time.time_ns()
            return data

    def derive(self, name: str, refs: Sequence[Ref], data: bytes) -> None:
        """Keep what was made of chunks, and of which ones; not if one of them has no version."""
        known = recipe(refs)
        if known is None or not 0 < len(data) <= self.limit:
            return
        at = Place(name, known, 0, len(data))
        made_of = sorted({p for p in map(place, refs) if p is not None})
        with self._lock:
            try:
                self._put([(at, data)])
                with self._con:
                    self._con.execute("DELETE FROM lineage WHERE derived = ?", (name,))
                    self._con.executemany(
                        "INSERT INTO lineage VALUES (?, ?, ?, ?, ?, ?)",
                        [(name, known, *p) for p in made_of],
                    )
                self._evict()
            except (OSError, sqlite3.OperationalError) as error:
                log.warning("%s: %s cannot be kept (%s)", self.folder, name, error)

    def lineage(self, name: str) -> list[Place]:
        """The chunks that a derived one was made of, by source and offset."""
        statement = 'SELECT source, source_version, "offset", size FROM lineage WHERE derived = ? ORDER BY 1, 2, 3, 4'
        with self._lock:
            return [Place(*row) for row in self._con.execute(statement, (name,))]


def connect(path: Path) -> sqlite3.Connection:
    """The cache's table, made if it is not there. Raises StoreError for a file that is none."""
    con = sqlite3.connect(path, timeout=60, check_same_thread=False)
    try:
        con.execute("PRAGMA synchronous = NORMAL")
        con.executescript(schema("held"))
    except sqlite3.DatabaseError as error:
        con.close()
        raise StoreError(f"{path}: it is no range cache ({error}); remove its folder") from error
    return con


def file_of(at: Place) -> str:
    """The file of a chunk that is held as a copy, relative to the cache's folder."""
    name = digest(list(at))
    return f"chunks/{name[:2]}/{name}"


def write(path: Path, data: bytes) -> None:
    """A file that is whole or not there; not synchronised, since what a crash leaves of it is noticed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f"{path.name}.{os.getpid()}.{threading.get_ident()}.part")
    beside.write_bytes(data)
    beside.replace(path)


def content(
    path: Path, offset: int = 0, size: int | None = None, expected: tuple[int, int] | None = None
) -> bytes | None:
    """Bytes of a file, all by default; None if it is gone or not of the ``expected`` size and mtime."""
    try:
        with path.open("rb") as f:
            stat = os.fstat(f.fileno())
            if expected not in (None, (stat.st_size, stat.st_mtime_ns)):
                return None
            f.seek(offset)
            data = f.read() if size is None else f.read(size)
    except FileNotFoundError:
        return None
    return data if size is None or len(data) == size else None
