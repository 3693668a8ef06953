"""The pattern, searched in names: what providers share."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from byterefs.errors import DiscoverError

SHOWN = 5
"""Names that a refusal shows."""


def matching[T](names: Iterable[tuple[str, T]], pattern: str, where: str) -> Iterator[T]:
    """The second of each pair whose first the pattern finds; refuses names of which none matches."""
    search = re.compile(pattern).search
    found = False
    others: list[str] = []
    for name, value in names:
        if search(name):
            found = True
            yield value
        elif len(others) < SHOWN:
            others.append(name)
    if not found:
        raise DiscoverError(
            f"{where}: nothing here matches source.pattern {pattern!r}; there are, for example: "
            f"{', '.join(others)}"
            if others
            else f"{where}: there is nothing here; is the archive mounted?"
        )
