"""SQLite over byte ranges: a published store at a URL is read page by page, never downloaded.

apsw is SQLite with a file system that Python may provide; its own SQLite asks for the pages that a
query needs, and the cache of :meth:`byterefs.access.ranges.Ranges.file` fetches and keeps them in blocks.
"""

from __future__ import annotations

from itertools import count
from typing import Any

import apsw

from byterefs.access import ranges
from byterefs.errors import RangeError, StoreError

BLOCK = 32 << 10
"""bytes: eight pages in one request"""
MAGIC = b"SQLite format 3\0"

_numbers = count()


class Connection(apsw.Connection):
    """A read-only connection to the SQLite file at a URL.

    Raises RangeError where no ranges can be had, StoreError for what is no SQLite file.
    """

    def __init__(self, location: str) -> None:
        self._ranges = ranges.open(location)
        self._pages: Any = self._ranges.file(block=BLOCK)
        if self._pages.read(len(MAGIC)) != MAGIC:
            self._ranges.close()
            raise StoreError(f"{location}: it is no SQLite file: name the store.sqlite of the form")
        name = f"byterefs-{next(_numbers)}"
        self._vfs = Vfs(name, Pages(self._ranges, self._pages))
        super().__init__("store", vfs=name, flags=apsw.SQLITE_OPEN_READONLY)

    def failed(self) -> RangeError | None:
        """Why the last bytes could not be read, which SQLite words as an input/output error."""
        found: RangeError | None = self._pages.failed
        return found


class Pages(apsw.VFSFile):
    """The file as SQLite sees it: immutable, so neither locked nor written."""

    def __init__(self, opened: ranges.Ranges, pages: Any) -> None:
        # no file of this machine is behind it: the base class is not initialised
        self._ranges, self._pages = opened, pages

    def xRead(self, amount: int, offset: int) -> bytes:
        """Bytes of some pages."""
        self._pages.seek(offset)
        data: bytes = self._pages.read(amount)
        return data

    def xFileSize(self) -> int:
        """Bytes of the file."""
        return self._ranges.size

    def xClose(self) -> None:
        """Let go of the connection."""
        self._ranges.close()

    def xLock(self, level: int) -> None:
        """Nothing: nobody writes."""

    def xUnlock(self, level: int) -> None:
        """Nothing."""

    def xCheckReservedLock(self) -> bool:
        """False."""
        return False

    def xFileControl(self, op: int, pointer: int) -> bool:
        """False: no control is known."""
        return False

    def xSectorSize(self) -> int:
        """A page."""
        return 4096

    def xDeviceCharacteristics(self) -> int:
        """Immutable."""
        return int(apsw.SQLITE_IOCAP_IMMUTABLE)


class Vfs(apsw.VFS):
    """A file system with one file."""

    def __init__(self, name: str, pages: Pages) -> None:
        super().__init__(name, "")
        self._file = pages

    def xOpen(self, name: Any, flags: list[int]) -> Pages:
        """The file."""
        flags[1] = flags[0]
        return self._file

    def xAccess(self, path: str, flags: int) -> bool:
        """False: there is no journal."""
        return False

    def xFullPathname(self, name: str) -> str:
        """The name."""
        return name
