"""The bytes of chunks: neighbours share a request, requests overlap in time, a stale source is an error."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from byterefs import urls
from byterefs.access import ranges
from byterefs.errors import RangeError
from byterefs.model import Source
from byterefs.reader.held import Held
from byterefs.reader.table import Ref

CONCURRENCY = 16
"""requests at a time, over all sources"""


class Request(NamedTuple):
    """A run of bytes of one source, and which chunks lie in it."""

    path: str
    source: Source
    """what the table says that it is"""
    offset: int
    size: int
    rows: tuple[int, ...]
    """positions in the list of chunks that was asked for"""


def requests(refs: Sequence[Ref]) -> list[Request]:
    """The requests that fetch some chunks, sorted: at most one per chunk, fewer where ranges touch."""
    by_source: dict[tuple[str, Source], list[int]] = {}
    for i, ref in enumerate(refs):
        if ref.data is None:
            by_source.setdefault((ref.path, ref.source or Source(ref.path)), []).append(i)
    planned = []
    for (path, source), rows in sorted(by_source.items()):
        parts = ranges.coalesced([(refs[i].offset, refs[i].size) for i in rows])
        starts = [offset for offset, _ in parts]
        inside: list[list[int]] = [[] for _ in parts]
        for i in rows:
            if refs[i].size:
                inside[bisect_right(starts, refs[i].offset) - 1].append(i)
        planned += [
            Request(path, source, *part, tuple(own))
            for part, own in zip(parts, inside, strict=True)
        ]
    return planned


class Fetcher:
    """Fetches the encoded bytes of chunks, at most ``concurrency`` requests at a time; not what is ``held``."""

    def __init__(self, concurrency: int = CONCURRENCY, held: Held | None = None) -> None:
        self.concurrency, self.held = concurrency, held

    def fetch(self, refs: Sequence[Ref]) -> list[bytes]:
        """The encoded bytes of each chunk, in the order given.

        Raises RangeError for a source that is not what was scanned, or that does not give its bytes.
        """
        if self.held is None:
            return self._fetch(refs)
        found = self.held.get(dict(enumerate(refs)))
        asked = [i for i in range(len(refs)) if i not in found]
        fresh = self._fetch([refs[i] for i in asked])
        self.held.put([refs[i] for i in asked], fresh)
        found |= dict(zip(asked, fresh, strict=True))
        return [found[i] for i in range(len(refs))]

    def _fetch(self, refs: Sequence[Ref]) -> list[bytes]:
        found = [ref.data or b"" for ref in refs]
        planned = requests(refs)
        for request, blob in zip(planned, self._blobs(planned), strict=True):
            for i in request.rows:
                at = refs[i].offset - request.offset
                found[i] = blob[at : at + refs[i].size]
        return found

    def _blobs(self, planned: Sequence[Request]) -> list[bytes]:
        if len(planned) <= 1:
            return [read(request) for request in planned]
        with ThreadPoolExecutor(min(self.concurrency, len(planned))) as pool:
            return list(pool.map(read, planned))


def read(request: Request) -> bytes:
    """The bytes of one request. Raises RangeError where they are not those that were scanned."""
    source = request.source
    itself = urls.to_url(request.path) == urls.to_url(source.source)
    # a copy has the size, but another server's ETag and another disk's mtime
    seen = Source(request.path, source.size, None, source.etag if itself else None)
    with ranges.open(request.path, seen) as opened:
        if source.size not in (None, opened.size):
            raise stale(
                request, f"it has {opened.size} bytes, and had {source.size} when it was scanned"
            )
        rewritten = opened.mtime_ns is not None and opened.mtime_ns // 10**9 != source.mtime
        if itself and urls.is_local(request.path) and source.mtime is not None and rewritten:
            raise stale(request, "it was modified since it was scanned")
        return opened.read(request.offset, request.size)


def stale(request: Request, why: str) -> RangeError:
    """The refusal of a source that is not what the table describes."""
    return RangeError(
        f"{request.path}: {why}: its byte ranges mean nothing now; fetch a newer table, or scan it again"
    )
