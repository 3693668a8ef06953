"""A progress bar where a person looks on; in a log a line for each tenth of what takes long."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterable, Iterator, Sequence

log = logging.getLogger(__name__)
MANY = 10_000
"""items that take minutes"""


def shown[T](items: Sequence[T], stage: str) -> Iterator[T]:
    """The items, with a bar on stderr if that is a terminal, else with a line of log for each tenth of many."""
    if not sys.stderr.isatty():
        yield from logged(items, stage)
        return
    from rich.console import Console
    from rich.progress import track

    yield from track(items, description=stage, console=Console(stderr=True), transient=True)


def logged[T](items: Sequence[T], stage: str) -> Iterator[T]:
    """The items; of MANY or more each tenth is told when it is done."""
    total = len(items)
    for done, item in enumerate(items, 1):
        yield item
        if total >= MANY and done * 10 // total > (done - 1) * 10 // total:
            log.info("%s: %d of %d", stage, done, total)


def counted[T](items: Iterable[T], total: int, stage: str) -> Iterator[T]:
    """The items of an iterator of known length, with a bar on stderr if that is a terminal."""
    if not total or not sys.stderr.isatty():
        yield from items
        return
    from rich.console import Console
    from rich.progress import track

    yield from track(
        items, description=stage, total=total, console=Console(stderr=True), transient=True
    )
