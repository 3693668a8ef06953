"""Provider `http`: the index pages of nginx and Apache below an address, subfolders included.

A page tells dates to the minute, in a time zone of its own, and Apache rounds sizes. So a source is
new or changed where its line on the page is another one; a file without a line is asked by HEAD.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, MutableSequence, Sequence
from datetime import UTC, datetime
from html.parser import HTMLParser
from typing import Any, NamedTuple
from urllib.parse import urljoin, urlsplit

from byterefs import urls
from byterefs.access import web
from byterefs.discover._remote import at_once, crawled, document, odd, refusing
from byterefs.discover.match import matching
from byterefs.model import Source

TOLD = True
DATES = {r"\d{4}-\d{2}-\d{2} \d{2}:\d{2}": "%Y-%m-%d %H:%M", r"\d{2}-[A-Z][a-z]{2}-\d{4} \d{2}:\d{2}": "%d-%b-%Y %H:%M"}  # fmt: skip
"""Apache's way to write a date, and nginx's"""
SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]?)(?:i?B)?\b")
UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
LETTERS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]


class Line(NamedTuple):
    """One link of an index page and the text behind it."""

    url: str
    text: str


def list(source: Mapping[str, Any]) -> Iterator[Source]:
    """Sources by address, spelled as the links are; the listing is refused whole if one page is odd."""
    given = source["url"].rstrip("/") + "/"
    root = urls.to_url(given)
    lines = crawled(root, lambda page: index(root, page), str)
    named = [(line.url[len(root) :], line) for line in sorted(lines)]
    chosen = [line for line in matching(named, source["pattern"], web.shown(root))]
    prefix = given[: len(given) - len(root)]
    for found in at_once(described, chosen):
        yield found._replace(source=prefix + found.source)


def index(root: str, page: str) -> tuple[Sequence[Line], Sequence[str]]:
    """Files and subfolders of one index page; DiscoverError if it is another page, or cut."""
    answer = document(page)
    text = answer.body.decode("utf-8", "replace")
    if answer.kind not in ("text/html", "application/xhtml+xml"):
        raise odd(page, "is no index page", answer)
    if not re.search(r"<title>\s*Index of", text, re.IGNORECASE):
        raise odd(
            page,
            "is a web page, and no index by nginx or Apache (its title is another one)",
            answer,
        )
    if not re.search(r"</html>\s*$", text, re.IGNORECASE):
        raise odd(page, "is cut: it does not end with </html>", answer)
    links = Links()
    links.feed(text)
    # where a redirect led is where relative links start; what leads out of the archive is left alone
    here = answer.url if answer.url.startswith(root) else page
    below = [Line(urljoin(here, href), text) for href, text in links.found if href]
    below = [line for line in below if line.url.startswith(here) and line.url != here]
    below = [
        line for line in below if not (urlsplit(line.url).query or urlsplit(line.url).fragment)
    ]
    files = [line for line in below if not line.url.endswith("/")]
    return files, [line.url for line in below if line.url.endswith("/")]


def described(line: Line) -> Source:
    """A source with the size and date of its line; by HEAD where there is no date."""
    mtime_ns, rest = date(line.text)
    if mtime_ns is None:
        with refusing():
            headers = web.head(line.url)
        length = headers.get("Content-Length")
        size = int(length) if length else None
        return Source(line.url, size, web.mtime_ns_of(headers), web.etag_of(headers))
    found = SIZE.match(rest)
    size = round(float(found[1]) * UNITS[found[2]]) if found else None
    return Source(line.url, size, mtime_ns)


def date(text: str) -> tuple[int | None, str]:
    """The date in the text behind a link, read as UTC, and the text behind the date."""
    for pattern, words in DATES.items():
        found = re.search(pattern, text)
        if found is None:
            continue
        said = found[0]
        for number, letters in enumerate(LETTERS, 1):
            # strptime knows the months of the machine's own language
            said = said.replace(f"-{letters}-", f"-{number:02d}-")
        when = datetime.strptime(said, words.replace("%b", "%m")).replace(tzinfo=UTC)
        return round(when.timestamp()) * 10**9, text[found.end() :]
    return None, text


class Links(HTMLParser):
    """Every link of a page, with the text from its end to the next link."""

    def __init__(self) -> None:
        super().__init__()
        self.found: MutableSequence[tuple[str, str]] = []
        self._inside = False

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        """Begin with a link."""
        if tag == "a":
            self.found.append((dict(attrs).get("href") or "", ""))
            self._inside = True

    def handle_endtag(self, tag: str) -> None:
        """What follows a link is its text; cells of a table are words apart."""
        if tag == "a":
            self._inside = False
        elif self.found:
            self.handle_data(" ")

    def handle_data(self, data: str) -> None:
        """Add to the text of the last link."""
        if self.found and not self._inside:
            href, text = self.found[-1]
            self.found[-1] = (href, text + data)
