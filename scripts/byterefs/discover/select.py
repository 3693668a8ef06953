"""Which of the sources are planned: named groups of the pattern make slots, one source wins each."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from byterefs.errors import DiscoverError

Slot = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Selection:
    """The planned source of every slot, and the source that each of the others lost to."""

    winners: Mapping[Slot, str]
    """sorted by slot"""
    losers: Mapping[str, str]
    """losing source to the winner of its slot, sorted"""


def winners(
    sources: Iterable[str],
    pattern: str,
    slot: Sequence[str] = (),
    prefer: Mapping[str, Sequence[str]] | None = None,
    *,
    root: str = "",
) -> Selection:
    """One winner per slot; without ``slot`` each source is its own.

    ``root`` is what :func:`root` gives: the pattern is searched in what follows it. Refuses two
    sources of one slot that ``prefer`` ranks equal, and a value that it does not list.
    """
    search = re.compile(pattern).search
    order = prefer or {}
    ranked: dict[Slot, list[tuple[tuple[int, ...], str]]] = {}
    for source in sorted(sources):
        match = search(below(source, root))
        if match is None:
            raise DiscoverError(f"{source}: the pattern {pattern!r} does not match this source")
        groups = {name: value or "" for name, value in match.groupdict().items()}
        key = _slot(source, groups, slot)
        ranked.setdefault(key, []).append((_rank(source, groups, order), source))
    chosen = {key: _winner(key, slot, ranked[key]) for key in sorted(ranked)}
    losers = {s: chosen[k] for k, rows in ranked.items() for _, s in rows if s != chosen[k]}
    return Selection(chosen, dict(sorted(losers.items())))


def slot_of(source: str, pattern: str, slot: Sequence[str], *, root: str = "") -> Slot | None:
    """The slot of one source; None where the pattern does not match it."""
    match = re.search(pattern, below(source, root))
    return None if match is None else _slot(source, match.groupdict(), slot)


def root(source: Mapping[str, Any]) -> str:
    """The folder or address that a config's ``source`` section lists below; "" for a listing."""
    if source["provider"] == "listing":
        return ""
    return str(source["path"] if "path" in source else source["url"])


def below(source: str, root: str) -> str:
    """The part of ``source`` below ``root``; the whole of a source that does not lie there."""
    prefix = root.rstrip("/") + "/"
    return source[len(prefix) :] if root and source.startswith(prefix) else source


def _slot(source: str, groups: Mapping[str, str | None], slot: Sequence[str]) -> Slot:
    return tuple(groups[name] or "" for name in slot) if slot else (source,)


def _rank(
    source: str, groups: Mapping[str, str], prefer: Mapping[str, Sequence[str]]
) -> tuple[int, ...]:
    for name, order in prefer.items():
        if groups[name] not in order:
            raise DiscoverError(
                f"{source}: its {name} is {groups[name]!r}, which select.prefer.{name} does not list "
                f"({', '.join(map(repr, order))}); add it there in its rank"
            )
    return tuple(list(order).index(groups[name]) for name, order in prefer.items())


def _winner(key: Slot, slot: Sequence[str], rows: list[tuple[tuple[int, ...], str]]) -> str:
    rows = sorted(rows)
    if len(rows) > 1 and rows[0][0] == rows[1][0]:
        name = ", ".join(f"{n}={v}" for n, v in zip(slot, key, strict=True))
        raise DiscoverError(
            f"{rows[0][1]} and {rows[1][1]} both claim the slot {name}; name what tells them apart in "
            "select.slot, or rank it in select.prefer"
        )
    return rows[0][1]
