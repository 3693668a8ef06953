"""HTTP as archives speak it: requests that are tried again, a bounded number at a time, checked lengths.

A status that may pass (429, 500, 502, 503, 504), a connection that breaks and a body that is cut are
tried again with growing pauses. What is still wrong then, or can't pass, is a RangeError: the address, what
was answered, and what to do. No query string is ever shown: it may hold a signature.
"""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable, Collection, Mapping
from email.utils import parsedate_to_datetime
from functools import cache
from types import MappingProxyType
from typing import NamedTuple
from urllib.parse import urljoin, urlsplit, urlunsplit

import urllib3
from urllib3.exceptions import HTTPError, MaxRetryError

from byterefs import urls
from byterefs.access.ranges import CONCURRENCY, Ranges
from byterefs.errors import AbsentError, RangeError
from byterefs.model import Source

ATTEMPTS = 6
PAUSE = 0.2
"""seconds before the second attempt; each further pause is twice as long"""
LONGEST = 30.0
"""seconds: the longest pause, whatever a server's Retry-After asks for"""
REDIRECTS = 5
PASSING = (408, 425, 429, 500, 502, 503, 504)
"""statuses that may be others in a moment"""
ABSENT = (404, 410)
TIMEOUT = urllib3.Timeout(connect=15, read=60)
WHOLE = 256 << 20
"""bytes: the longest document that is read as a whole"""
AGENT = "byterefs"
NO_HEADERS: Mapping[str, str] = MappingProxyType({})


class Passing(Exception):
    """An answer that may be another one in a moment, as the middle of a sentence."""

    def __init__(self, why: str, after: float = 0.0) -> None:
        super().__init__(why)
        self.after = after
        """seconds that the server asks to wait"""


class Answer(NamedTuple):
    """A whole document."""

    url: str
    """where redirects led"""
    headers: Mapping[str, str]
    body: bytes

    @property
    def kind(self) -> str:
        """The media type, without parameters, in lower case."""
        return self.headers.get("Content-Type", "").partition(";")[0].strip().lower()


@cache
def pool(concurrency: int = CONCURRENCY) -> urllib3.PoolManager:
    """Connections, at most ``concurrency`` per host at a time."""
    return urllib3.PoolManager(
        maxsize=concurrency, block=True, timeout=TIMEOUT, headers={"User-Agent": AGENT}
    )


def shown(url: str) -> str:
    """An address as it may stand in a log: without user, password, query and fragment."""
    parts = urlsplit(url)
    if not parts.scheme:
        return url
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit((parts.scheme, host, parts.path, "", ""))


def tried[T](what: Callable[[], T], where: str) -> T:
    """The result of ``what``, tried again while it raises Passing; RangeError in the end."""
    for attempt in range(ATTEMPTS):
        try:
            return what()
        except Passing as error:
            why, after = str(error), error.after
        if attempt + 1 < ATTEMPTS:
            time.sleep(min(LONGEST, max(after, PAUSE * 2**attempt * random.uniform(0.5, 1.0))))
    raise RangeError(f"{where}: {why}, {ATTEMPTS} times; see to the server, then run again")


def request(
    method: str,
    url: str,
    headers: Mapping[str, str],
    concurrency: int = CONCURRENCY,
    fine: Collection[int] = (),
    data: bytes | None = None,
) -> urllib3.BaseHTTPResponse:
    """One answer whose body is not read yet; Passing or RangeError unless it is a success or ``fine``.

    An address with a fragment is refused: no client sends it, and without it another file is meant.
    """
    if "#" in url:
        raise RangeError(
            f"{shown(url.replace('#', '%23'))}: the address has a bare '#', behind which nothing is sent to a server, "
            f"which would answer with another file; write %23, as here"
        )
    retries = urllib3.Retry(total=None, connect=0, read=0, status=0, other=0, redirect=REDIRECTS)
    try:
        answer = pool(concurrency).request(
            method,
            url,
            headers={"User-Agent": AGENT, "Accept-Encoding": "identity", **headers},
            body=data,
            preload_content=False,
            retries=retries,
        )
    except MaxRetryError as error:
        if error.reason is not None and "redirect" in str(error.reason):
            raise RangeError(
                f"{shown(url)}: it redirects more than {REDIRECTS} times; correct the address"
            ) from None
        raise Passing(f"no connection ({type(error.reason or error).__name__})") from error
    except HTTPError as error:
        raise Passing(f"no connection ({type(error).__name__})") from error
    if answer.status in PASSING:
        after = answer.headers.get("Retry-After", "")
        drop(answer)
        raise Passing(f"it answers {answer.status}", float(after) if after.isdigit() else 0.0)
    if answer.status >= 300 and answer.status not in fine:
        drop(answer)
        kind = AbsentError if answer.status in ABSENT else RangeError
        raise kind(f"{shown(url)}: it answers {answer.status}; {way_out(answer.status)}")
    return answer


def drop(answer: urllib3.BaseHTTPResponse) -> None:
    """Let go of an answer; what is left of its body must not become the start of the next one."""
    answer.close()
    answer.release_conn()


def way_out(status: int) -> str:
    """What a person can do about a status."""
    if status in (401, 403):
        return "the server wants an account, or the address is not public: use another address or a mirror"
    if status in ABSENT:
        return "there is nothing at this address: correct it, or list the archive again"
    return "correct the address, or see to the server"


def body(answer: urllib3.BaseHTTPResponse, size: int | None, limit: int = WHOLE) -> bytes:
    """The body of an answer: exactly ``size`` bytes, or as many as it says; Passing if it is cut."""
    try:
        data = answer.read(limit + 1 if size is None else size + 1)
        if size is None and len(data) > limit:
            raise RangeError(f"a document of more than {limit} bytes")
    except (HTTPError, OSError) as error:
        raise Passing(f"its answer breaks off ({type(error).__name__})") from error
    finally:
        drop(answer)
    if size is not None and len(data) != size:
        raise Passing(f"it sends {len(data)} of {size} bytes")
    return data


def get(
    url: str, *, headers: Mapping[str, str] = NO_HEADERS, concurrency: int = CONCURRENCY
) -> Answer:
    """A whole document; RangeError where there is none, or only a part of it arrives."""
    return tried(lambda: document(request("GET", url, headers, concurrency), url), shown(url))


def post(url: str, data: bytes, *, concurrency: int = CONCURRENCY) -> Answer:
    """The answer to a JSON document that asks for something and changes nothing."""
    headers = {"Content-Type": "application/json"}
    return tried(
        lambda: document(request("POST", url, headers, concurrency, data=data), url), shown(url)
    )


def document(answer: urllib3.BaseHTTPResponse, url: str) -> Answer:
    """An answer with its body, which is as long as it says."""
    length = answer.headers.get("Content-Length", "")
    encoded = answer.headers.get("Content-Encoding", "identity") != "identity"
    data = body(answer, int(length) if length.isdigit() and not encoded else None)
    return Answer(urljoin(url, answer.geturl() or ""), answer.headers, data)


def head(url: str, *, concurrency: int = CONCURRENCY) -> Mapping[str, str]:
    """The headers of an address."""

    def once() -> Mapping[str, str]:
        answer = request("HEAD", url, {}, concurrency)
        drop(answer)
        return answer.headers

    return tried(once, shown(url))


def etag_of(headers: Mapping[str, str]) -> str | None:
    """A strong ETag without its quotes; None without one: a weak one says nothing of bytes."""
    found = headers.get("ETag", "").strip()
    return None if not found or found.startswith("W/") else found.strip('"')


def mtime_ns_of(headers: Mapping[str, str]) -> int | None:
    """Last-Modified in nanoseconds since 1970; None where it is not given or is no date."""
    text = headers.get("Last-Modified")
    try:
        return round(parsedate_to_datetime(text).timestamp()) * 10**9 if text else None
    except ValueError:
        return None


class open(Ranges):
    """A source on a web server that answers ranges."""

    def __init__(self, source: str, seen: Source | None = None) -> None:
        self.source, self.url = source, urls.to_url(source)
        self.known = seen is not None and seen.size is not None
        if seen is not None and seen.size is not None:
            self.size, self.etag, self.mtime_ns = seen.size, seen.etag, seen.mtime_ns
        else:
            self.size, self.etag, self.mtime_ns = tried(self._look, shown(self.url))

    def _look(self) -> tuple[int, str | None, int | None]:
        """Size, ETag and mtime by the first byte: HEAD is not allowed everywhere, nor does it prove ranges."""
        answer = self._ask(0, 1)
        if answer is None:
            return 0, None, None
        try:
            total = self._total(answer, 0, 1)
        except BaseException:
            drop(answer)
            raise
        headers = answer.headers
        body(answer, 1)
        return total, etag_of(headers), mtime_ns_of(headers)

    def close(self) -> None:
        """Nothing: connections are shared."""

    def fetch(self, offset: int, size: int) -> bytes:
        """One request; of the same version as the first one, or RangeError."""

        def once() -> bytes:
            answer = self._ask(offset, size)
            if answer is None:
                raise self._changed("it has fewer bytes now")
            try:
                total = self._total(answer, offset, size)
                self._refuse_other(total, answer.headers)
            except BaseException:
                drop(answer)
                raise
            return body(answer, size)

        return tried(once, shown(self.url))

    def _ask(self, offset: int, size: int) -> urllib3.BaseHTTPResponse | None:
        """The answer to a request for a range; None where the source has no such byte."""
        wanted = {"Range": f"bytes={offset}-{offset + size - 1}"}
        answer = request("GET", self.url, wanted, fine=(416,))
        if answer.status == 416:
            drop(answer)
            return None
        if answer.status == 206:
            return answer
        kind = answer.headers.get("Content-Type", "")
        empty = answer.headers.get("Content-Length") == "0"
        drop(answer)
        if empty:
            return None
        if kind.startswith("text/html"):
            raise RangeError(
                f"{shown(self.url)}: it answers with a web page, not with the file: the address is wrong, or the "
                f"server wants a login; correct it, or use a mirror"
            )
        raise RangeError(
            f"{shown(self.url)}: the server sends whole files and no byte ranges; copy the archive to a disk, a "
            f"bucket or a server with ranges, and name that in source"
        )

    def _total(self, answer: urllib3.BaseHTTPResponse, offset: int, size: int) -> int:
        said = answer.headers.get("Content-Range", "")
        found = re.fullmatch(r"bytes (\d+)-(\d+)/(\d+)", said.strip())
        if not found:
            raise RangeError(
                f"{shown(self.url)}: its Content-Range is {said!r}, which names no size; use a mirror"
            )
        first, last, total = map(int, found.groups())
        if (first, last) != (offset, min(offset + size, total) - 1):
            raise Passing(f"it sends bytes {first} to {last} for {offset} to {offset + size - 1}")
        return total

    def _refuse_other(self, total: int, headers: Mapping[str, str]) -> None:
        """RangeError if an answer is of another version than the first one."""
        now = (total, etag_of(headers), mtime_ns_of(headers))
        was = (self.size, self.etag, self.mtime_ns)
        if any(a is not None and b is not None and a != b for a, b in zip(now, was, strict=True)):
            when = "since it was scanned" if self.known else "while it was read"
            raise self._changed(f"it changed {when}")

    def _changed(self, why: str) -> RangeError:
        return RangeError(f"{shown(self.url)}: {why}; run again")
