"""The consistency report as words: what differs between the sources of an array, from where to where."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any, NamedTuple

HIDDEN = ("dims",)
"""of a signature: shown as the names beside its shape"""


class Kind(NamedTuple):
    """One signature of an array, and who has it."""

    number: int
    """from 1, in the order of the axis"""
    differs: tuple[tuple[str, str], ...]
    """(what, value) of everything in which the array's signatures are not all equal"""
    sources: int
    runs: int
    first: str
    last: str
    since: str
    until: str


class Told(NamedTuple):
    """One array of the report."""

    array: str
    kinds: tuple[Kind, ...]
    same: str
    """what all its sources share, in one line"""
    sources: int
    runs: Sequence[Mapping[str, Any]]


def told(report: Mapping[str, Any]) -> list[Told]:
    """Every array of a report; those whose sources differ first."""
    arrays = [array(name, a) for name, a in sorted(report.get("arrays", {}).items())]
    return sorted(arrays, key=lambda a: len(a.kinds) == 1)


def array(name: str, entry: Mapping[str, Any]) -> Told:
    """The kinds of one array, in the order in which the axis meets them."""
    signatures, runs = entry["signatures"], entry["runs"]
    having: dict[str, list[Mapping[str, Any]]] = {}
    for run in runs:
        having.setdefault(run["id"], []).append(run)
    keys = list(dict.fromkeys(k for sig in signatures.values() for k in sig))
    varying = [k for k in keys if len({repr(sig.get(k)) for sig in signatures.values()}) > 1]
    kinds = []
    for number, (key, own) in enumerate(having.items(), 1):
        sig = signatures[key]
        kinds.append(
            Kind(
                number,
                tuple((word(k), value(k, sig.get(k))) for k in varying),
                sum(run["count"] for run in own),
                len(own),
                own[0]["first"],
                own[-1]["last"],
                own[0]["from"] or "",
                own[-1]["to"] or "",
            )
        )
    shared = [k for k in keys if k not in varying and k not in HIDDEN]
    first = signatures[next(iter(having))]
    same = ", ".join(f"{word(k)} {value(k, first[k])}" for k in shared if first.get(k) is not None)
    return Told(name, tuple(kinds), same, sum(run["count"] for run in runs), runs)


def word(key: str) -> str:
    """What a person calls a key of a signature."""
    return {"dims": "dimensions", "fill": "storage fill", "values": "values (sha256)"}.get(key, key)


def value(key: str, item: Any) -> str:
    """A value of a signature in one line."""
    if item is None:
        return "none"
    if key == "codec":
        return " → ".join(codec(c) for c in item) or "none"
    if key in ("shape", "chunks"):
        return " × ".join("n" if n is None else str(n) for n in item) or "scalar"
    if key == "dims":
        return ", ".join(item) or "none"
    return str(item)


def codec(config: Mapping[str, Any]) -> str:
    """``shuffle(elementsize 2)``."""
    rest = ", ".join(f"{k} {v}" for k, v in sorted(config.items()) if k != "id")
    return f"{config['id']}({rest})" if rest else str(config["id"])


def verdict(report: Mapping[str, Any]) -> str:
    """The report in one sentence."""
    arrays = report.get("arrays", {})
    if not arrays:
        return "Nothing could be compared."
    changed = [name for name, a in sorted(arrays.items()) if not a["consistent"]]
    n = report["sources"]["count"]
    head = f"{count(n, 'source')}, {count(len(arrays), 'array')}"
    if not changed:
        return f"{head}: every array is the same in all of them."
    *most, last = changed if len(changed) <= 6 else [*changed[:5], f"{len(changed) - 5} more"]
    names = f"{', '.join(most)} and {last}" if most else last
    return f"{head}: {names} {'is' if len(changed) == 1 else 'are'} not the same in all of them."


def count(n: int, noun: str) -> str:
    """``1 source``, ``16,387 sources``."""
    return f"{n:,} {noun}{'' if n == 1 else 's'}"


def short(source: str) -> str:
    """The last part of a source's path."""
    return PurePosixPath(source).name or source
