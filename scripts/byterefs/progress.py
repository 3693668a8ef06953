"""A progress bar where a person looks on, and nothing at all in a log."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence


def shown[T](items: Sequence[T], stage: str) -> Iterator[T]:
    """The items, with a bar on stderr if that is a terminal."""
    if not sys.stderr.isatty():
        yield from items
        return
    from rich.console import Console
    from rich.progress import track

    yield from track(items, description=stage, console=Console(stderr=True), transient=True)


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
