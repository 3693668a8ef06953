"""What providers over a network share: documents that are whole, many at a time, or a refusal."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any
from xml.etree import ElementTree

from byterefs.access import web
from byterefs.errors import DiscoverError, RangeError

CONNECTIONS = 8
"""requests at a time: what THREDDS servers ask of their guests"""


@contextmanager
def refusing() -> Iterator[None]:
    """What could not be read refuses the whole listing."""
    try:
        yield
    except RangeError as error:
        raise DiscoverError(f"{error} (source.url)") from error


def document(url: str) -> web.Answer:
    """A document; DiscoverError where it is not there or not whole."""
    with refusing():
        return web.get(url, concurrency=CONNECTIONS)


def parsed_json(url: str, answer: web.Answer) -> dict[str, Any]:
    """A JSON object; DiscoverError for a web page, a document that is cut, and anything else."""
    try:
        found = json.loads(answer.body)
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise odd(url, f"is no whole JSON ({error})", answer) from None
    if not isinstance(found, dict):
        raise odd(url, "is no JSON object", answer)
    return found


def parsed_xml(url: str, answer: web.Answer) -> ElementTree.Element:
    """An XML document; DiscoverError for a web page, a document that is cut, and anything else."""
    try:
        return ElementTree.fromstring(answer.body)
    except ElementTree.ParseError as error:
        raise odd(url, f"is no whole XML ({error})", answer) from None


def odd(url: str, why: str, answer: web.Answer | None = None) -> DiscoverError:
    """The refusal of a document that is no listing."""
    kind = f", a {answer.kind or 'document'} of {len(answer.body)} bytes" if answer else ""
    return DiscoverError(
        f"{web.shown(url)}: what it answers{kind}, {why}; correct source.url, or run again if the server failed"
    )


def at_once[A, B](what: Callable[[A], B], items: Iterable[A]) -> list[B]:
    """``what`` of each item, in order, at most ``CONNECTIONS`` at a time; the first error ends it."""
    with ThreadPoolExecutor(CONNECTIONS) as pool:
        return list(pool.map(what, items))


def crawled[A, B](
    start: A, visit: Callable[[A], tuple[Sequence[B], Sequence[A]]], key: Callable[[A], str]
) -> list[B]:
    """What all documents that lead on from ``start`` hold; each is visited once, level by level.

    ``visit`` gives what a document holds and the documents that it names.
    """
    found: list[B] = []
    seen, level = {key(start)}, [start]
    while level:
        following: list[A] = []
        for held, named in at_once(visit, level):
            found.extend(held)
            for each in named:
                if key(each) not in seen:
                    seen.add(key(each))
                    following.append(each)
        level = following
    return found
