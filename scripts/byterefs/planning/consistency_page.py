"""The consistency report as a page: one strip per array, sources along the axis, one colour per signature.

One HTML file without script, font or picture from elsewhere; every text of a source is escaped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from byterefs.planning.consistency_words import Told, count, short, told, verdict

ASSETS = Path(__file__).parents[1] / "assets"
COLUMNS = 600
"""places of a strip; where more runs than that lie, a place with several signatures is hatched"""
COLOURS = 8
"""signatures with a colour of their own; the others share one"""
KINDS = 12
"""signatures that a legend lists"""
NARROWEST = 0.35
"""percent of a strip that a run is drawn with at least: one odd source of 16,387 is seen"""


class Segment(NamedTuple):
    """A stretch of a strip in percent of its width."""

    left: float
    width: float
    colour: str
    label: str
    """what it shows on itself; empty where there is no room"""
    title: str


class Strip(NamedTuple):
    """One array as the page shows it."""

    of: Told
    segments: list[Segment]
    ticks: list[tuple[float, str]]
    """(place in percent, words) below the strip"""
    label: str
    more: int
    """signatures that its legend leaves out"""


def page(report: Mapping[str, Any]) -> str:
    """The whole HTML document."""
    environment = Environment(
        loader=FileSystemLoader(ASSETS), autoescape=True, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    environment.filters |= {"short": short}
    total = report.get("sources", {}).get("count", 0)
    arrays = told(report)
    strips = [
        Strip(
            a, segments(a, total), ticks(a, total), sentence(a, total), max(0, len(a.kinds) - KINDS)
        )
        for a in arrays
    ]
    return environment.get_template("consistency.html").render(
        dataset=report["dataset"], refused=report.get("refused"), sources=report.get("sources"),
        axis=report.get("axis"), lists=lists(report), verdict=verdict(report), total=total, count=count, colour=colour, kinds=KINDS,
        changed=[s for s in strips if len(s.of.kinds) > 1],
        same=[s for s in strips if len(s.of.kinds) == 1],
        eras=era_segments(report.get("eras", []), total),
    )  # fmt: skip


def colour(number: int) -> str:
    """The class of a signature's colour."""
    return f"k{number}" if number <= COLOURS else "more"


def segments(a: Told, total: int) -> list[Segment]:
    """The strip of an array: long runs first, so that short ones lie on top of them."""
    numbers = {key: i for i, key in enumerate(dict.fromkeys(run["id"] for run in a.runs), 1)}
    if len(a.runs) > COLUMNS:
        return columns(a, numbers, total)
    found = [
        piece(run["start"], run["stop"], total, numbers[run["id"]], title(run, numbers))
        for run in a.runs
    ]
    return sorted(found, key=lambda s: (-s.width, s.left))


def title(run: Mapping[str, Any], numbers: Mapping[str, int]) -> str:
    """What a run says when it is pointed at."""
    when = f", {run['from']} to {run['to']}" if run["from"] else ""
    return f"{numbers[run['id']]}: {count(run['count'], 'source')}{when}; {short(run['first'])} to {short(run['last'])}"


def piece(start: int, stop: int, total: int, number: int, text: str) -> Segment:
    """A run of sources as a segment, wide enough to be seen."""
    width = max(100 * (stop - start) / total, NARROWEST)
    left = min(100 * start / total, 100 - width)
    label = str(number) if width > 3 else ""
    return Segment(round(left, 3), round(width, 3), colour(number), label, text)


def columns(a: Told, numbers: Mapping[str, int], total: int) -> list[Segment]:
    """A strip of very many runs: each place has the colour of its signature, or is hatched where it has several."""
    inside: list[set[int]] = [set() for _ in range(COLUMNS)]
    for run in a.runs:
        first, last = run["start"] * COLUMNS // total, (run["stop"] - 1) * COLUMNS // total
        for i in range(first, last + 1):
            inside[i].add(numbers[run["id"]])
    out: list[Segment] = []
    for i, found in enumerate(inside):
        if not found:
            continue
        kind = colour(next(iter(found))) if len(found) == 1 else "several"
        left, width = 100 * i / COLUMNS, 100 / COLUMNS
        if out and out[-1].colour == kind and abs(out[-1].left + out[-1].width - left) < 0.01:
            out[-1] = out[-1]._replace(width=round(left + width - out[-1].left, 3))
        else:
            out.append(
                Segment(
                    round(left, 3),
                    round(width, 3),
                    kind,
                    "",
                    "several signatures" if kind == "several" else kind[1:],
                )
            )
    return out


def ticks(a: Told, total: int) -> list[tuple[float, str]]:
    """Where runs begin, in words below the strip, as far as there is room."""
    out: list[tuple[float, str]] = []
    for run in a.runs:
        left = round(100 * run["start"] / total, 3)
        if run["from"] and (not out or left - out[-1][0] >= 14) and left <= 76:
            out.append((left, run["from"]))
    return out


def sentence(a: Told, total: int) -> str:
    """A strip for those who do not see it."""
    if len(a.kinds) == 1:
        return f"{a.array}: {count(a.sources, 'source')} of {total:,}, all the same"
    parts = [f"{k.number} in {count(k.sources, 'source')}" for k in a.kinds[:COLOURS]]
    rest = f" and {len(a.kinds) - COLOURS} more" if len(a.kinds) > COLOURS else ""
    return f"{a.array}: {count(len(a.kinds), 'signature')} in {count(len(a.runs), 'run')}: {', '.join(parts)}{rest}"


def era_segments(
    eras: Sequence[Mapping[str, Any]], total: int
) -> list[tuple[Mapping[str, Any], Segment]]:
    """The eras as a strip of their own; neighbours alternate."""
    out, at = [], 0
    for i, e in enumerate(eras):
        width = 100 * e["sources"] / total
        segment = Segment(
            round(100 * at / total, 3),
            round(width, 3),
            f"e{i % 2}",
            e["era"] if width > 14 else "",
            e["era"],
        )
        out.append((e, segment))
        at += e["sources"]
    return out


def lists(report: Mapping[str, Any]) -> list[tuple[str, list[tuple[str, str]]]]:
    """(title, (name, words)) of what the report says beside the strips; nothing that is empty."""
    varying = {name: ", ".join(keys) for name, keys in report.get("varying_attrs", {}).items()}
    found = {
        "Arrays that a VRT cannot read across eras": {
            n: why for n, why in report.get("across", {}).items() if why
        },
        "Arrays left out: nobody asked for them, and their sources differ": report.get(
            "left_out", {}
        ),
        "Attributes that differ by source and are not published": varying,
        "Sources that are not planned": report.get("lost", {}),
    }
    return [(title, sorted(items.items())) for title, items in found.items() if items]
