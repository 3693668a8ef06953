"""Byte ranges of a source, wherever it lies: one layer for scanners, providers, verification and readers.

``open(source)`` gives a :class:`Ranges`: exact reads by offset and size, many at once (coalesced, a
bounded number at a time), and a file-like with a block cache for libraries that want one. A read is
whole or a RangeError: never short, never of another version of the source than the first one.
"""

from __future__ import annotations

import io
import os
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from importlib import import_module
from typing import Any, Self, cast

from byterefs import urls
from byterefs.errors import AbsentError, RangeError
from byterefs.model import Source

Range = tuple[int, int]
"""offset and size, bytes"""

CONCURRENCY = 8
"""requests at a time for one source"""
GAP = 64 << 10
"""bytes: ranges that lie no further apart are fetched in one request"""
MERGED = 16 << 20
"""bytes: ranges are not merged beyond this size"""
BLOCK = 16 << 10
"""bytes: the unit of the block cache"""
AHEAD = 64
"""blocks: a file-like that is read in sequence fetches at most so many at once"""
CACHED = 64 << 20
"""bytes that a file-like keeps"""


CLIENTS = {
    "http": "byterefs.access.web",
    "https": "byterefs.access.web",
    "s3": "byterefs.access.buckets",
}
"""scheme -> the module that opens its addresses"""


def asking(section: Mapping[str, Any]) -> AbstractContextManager[None]:
    """Sources in buckets are asked for as the config's section ``source`` says, until the end of the block.

    Nothing where the section says nothing: boto3 is a third of the start of a job.
    """
    if not section:
        return nullcontext()
    found: AbstractContextManager[None] = import_module(CLIENTS["s3"]).asking(section)
    return found


class Ranges(ABC):
    """One source that is open; ``size``, ``mtime_ns`` and ``etag`` are of the version that is read."""

    source: str
    """as it was asked for"""
    size: int
    mtime_ns: int | None = None
    etag: str | None = None
    """without quotes"""

    @abstractmethod
    def fetch(self, offset: int, size: int) -> bytes:
        """Exactly ``size`` (more than none) bytes from ``offset`` on, in one request; RangeError otherwise."""

    @abstractmethod
    def close(self) -> None:
        """Let go of files and connections."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def read(self, offset: int, size: int) -> bytes:
        """Exactly ``size`` bytes from ``offset`` on; RangeError if the source does not have them."""
        self.refuse_outside(offset, size)
        return self.fetch(offset, size) if size else b""

    def read_many(self, ranges: Iterable[Range], *, gap: int = GAP) -> list[bytes]:
        """The bytes of each range, in the order given; neighbours share a request, requests overlap in time."""
        asked = list(ranges)
        for offset, size in asked:
            self.refuse_outside(offset, size)
        parts = coalesced(asked, gap)
        if len(parts) == 1:
            blobs = [self.fetch(*parts[0])]
        else:
            with ThreadPoolExecutor(CONCURRENCY) as pool:
                blobs = list(pool.map(lambda part: self.fetch(*part), parts))
        return cut(asked, parts, blobs)

    def refuse_outside(self, offset: int, size: int) -> None:
        """Raise RangeError for a range that the source does not have."""
        if offset < 0 or size < 0 or offset + size > self.size:
            raise RangeError(
                f"{self.source}: it has {self.size} bytes, and bytes {offset} to {offset + size} were asked "
                f"for: it was cut or replaced since its scan; run the workflow again"
            )

    def file(self, *, block: int = BLOCK) -> io.BufferedIOBase:
        """The source as a read-only binary file with a cache of blocks."""
        return Cached(self, block)

    def unchanged(self) -> bool:
        """Whether what was read is still what the source's name leads to; True where every read tells."""
        return True


class Local(Ranges):
    """A file of this machine."""

    def __init__(self, source: str) -> None:
        self.source, self.path = source, urls.to_path(source)
        self._file = io.FileIO(self.path)
        stat = os.fstat(self.fd)
        self.size, self.mtime_ns = stat.st_size, stat.st_mtime_ns

    @property
    def fd(self) -> int:
        """The file's descriptor."""
        return self._file.fileno()

    def fetch(self, offset: int, size: int) -> bytes:
        """One ``pread`` after the other: one gives 2 GiB at most."""
        parts: list[bytes] = []
        while size:
            try:
                part = os.pread(self.fd, size, offset)
            except OSError as error:
                raise RangeError(
                    f"{self.source}: byte {offset} cannot be read ({error})"
                ) from error
            if not part:
                raise RangeError(f"{self.source}: it ends at byte {offset}: it was cut while open")
            parts.append(part)
            offset, size = offset + len(part), size - len(part)
        return b"".join(parts)

    def read_many(self, ranges: Iterable[Range], *, gap: int = GAP) -> list[bytes]:
        """One read after the other: the system's cache needs no help."""
        return [self.read(*each) for each in ranges]

    def file(self, *, block: int = BLOCK) -> io.BufferedIOBase:
        """The file itself; it has one position, however often it is asked for."""
        return io.BufferedReader(io.FileIO(os.dup(self.fd)))

    def unchanged(self) -> bool:
        """Whether the open file has the size and mtime that it had."""
        stat = os.fstat(self.fd)
        return (stat.st_size, stat.st_mtime_ns) == (self.size, self.mtime_ns)

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def open(source: str, seen: Source | None = None) -> Ranges:
    """The byte ranges of a source: a path, ``file://``, ``http(s)://``, ``s3://`` or GDAL's name of one.

    A server is asked first which version it has; with the size that an earlier look has ``seen`` it is
    not, and each answer is compared with ``seen``. Raises RangeError where it is not there, cannot be asked for ranges, or answers with a page.
    """
    url = urls.to_url(source)
    scheme = url.partition("://")[0]
    if scheme == "file":
        try:
            return Local(source)
        except OSError as error:
            absent = isinstance(error, FileNotFoundError)
            kind = AbsentError if absent else RangeError
            raise kind(f"{source}: cannot be read ({error}); fetch it again") from error
    if scheme not in CLIENTS:
        raise RangeError(
            f"{source}: no byte can be asked of a {scheme!r} address; there are file, http, https and s3"
        )
    # a string, so that a local archive needs neither client
    return cast(Ranges, import_module(CLIENTS[scheme]).open(source, seen))


@contextmanager
def opened(source: str) -> Iterator[Ranges]:
    """:func:`open`, closed at the end."""
    with open(source) as found:
        yield found


# --- many at once ----------------------------------------------------------------------------------


def coalesced(ranges: Sequence[Range], gap: int = GAP) -> list[Range]:
    """Sorted ranges that cover all given ones that are not empty; those closer than ``gap`` are one.

    >>> coalesced([(100, 10), (0, 10), (12, 5), (105, 20)], gap=2)
    [(0, 17), (100, 25)]
    """
    parts: list[Range] = []
    for offset, size in sorted(r for r in ranges if r[1]):
        if parts:
            start, length = parts[-1]
            end = max(start + length, offset + size)
            # a range that lies inside is never cut off, however long the merged one is
            if offset <= start + length + gap and (
                end - start <= MERGED or offset < start + length
            ):
                parts[-1] = (start, end - start)
                continue
        parts.append((offset, size))
    return parts


def cut(ranges: Sequence[Range], parts: Sequence[Range], blobs: Sequence[bytes]) -> list[bytes]:
    """Each range's bytes, out of those of the coalesced ``parts``."""
    order = sorted(range(len(ranges)), key=lambda i: ranges[i])
    found, p = [b""] * len(ranges), 0
    for i in order:
        offset, size = ranges[i]
        if not size:
            continue
        while offset + size > parts[p][0] + parts[p][1]:
            p += 1
        at = offset - parts[p][0]
        found[i] = blobs[p][at : at + size]
    return found


# --- as a file -------------------------------------------------------------------------------------


class Cached(io.BufferedIOBase):
    """A read-only file over ranges: whole blocks are fetched, the last ones used are kept.

    A read that goes on where the last one ended fetches twice as much as that did, up to ``AHEAD``
    blocks: metadata costs single blocks, a run of bytes few requests.
    """

    def __init__(self, ranges: Ranges, block: int = BLOCK) -> None:
        self._ranges, self._block, self._at = ranges, block, 0
        self._blocks: OrderedDict[int, bytes] = OrderedDict()
        self._next, self._ahead = -1, 1
        self.failed: RangeError | None = None
        """what a library that reads this file may have swallowed"""

    @property
    def name(self) -> str:
        """The source."""
        return self._ranges.source

    def readable(self) -> bool:
        """True."""
        return True

    def seekable(self) -> bool:
        """True."""
        return True

    def tell(self) -> int:
        """Where the next read starts."""
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Move there, beyond the end too."""
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._ranges.size}[whence]
        if base + offset < 0:
            raise ValueError(f"negative position {base + offset}")
        self._at = base + offset
        return self._at

    def read(self, size: int | None = -1, /) -> bytes:
        """At most ``size`` bytes, fewer only at the end of the source."""
        left = max(0, self._ranges.size - self._at)
        size = left if size is None or size < 0 else min(size, left)
        data = self._span(self._at, size)
        self._at += size
        return data

    def read1(self, size: int = -1, /) -> bytes:
        """As :meth:`read`."""
        return self.read(size)

    def readinto(self, buffer: memoryview | bytearray, /) -> int:  # type: ignore[override]
        """Fill a buffer; how many bytes."""
        view = memoryview(buffer).cast("B")
        data = self.read(len(view))
        view[: len(data)] = data
        return len(data)

    def _span(self, offset: int, size: int) -> bytes:
        if not size:
            return b""
        first, last = offset // self._block, (offset + size - 1) // self._block
        try:
            if (last - first + 1) * self._block > CACHED // 4:
                return self._ranges.read(offset, size)
            self._fill(first, last)
        except RangeError as error:
            self.failed = error
            raise
        data = b"".join(self._blocks[i] for i in range(first, last + 1))
        for i in range(first, last + 1):
            self._blocks.move_to_end(i)
        while len(self._blocks) * self._block > CACHED:
            self._blocks.popitem(last=False)
        start = offset - first * self._block
        return data[start : start + size]

    def _fill(self, first: int, last: int) -> None:
        missing = [i for i in range(first, last + 1) if i not in self._blocks]
        if not missing:
            return
        self._ahead = min(self._ahead * 2, AHEAD) if missing[0] == self._next else 1
        stop = max(missing[-1] + 1, missing[0] + self._ahead)
        stop = min(stop, -(-self._ranges.size // self._block))
        start = missing[0] * self._block
        data = self._ranges.read(start, min(stop * self._block, self._ranges.size) - start)
        for i in range(missing[0], stop):
            at = i * self._block - start
            self._blocks[i] = data[at : at + self._block]
        self._next = stop
