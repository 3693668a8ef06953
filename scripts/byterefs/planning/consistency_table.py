"""The consistency report as a table for a terminal and a log."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from byterefs.planning.consistency_words import Kind, count, short, told, verdict

KINDS = 12
"""signatures of an array that are listed; the rest is counted"""


def text(report: Mapping[str, Any], width: int = 140) -> str:
    """The table without colours, ``width`` columns wide."""
    out = io.StringIO()
    show(report, Console(file=out, width=width, no_color=True, legacy_windows=False))
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines())


def show(report: Mapping[str, Any], console: Console) -> None:
    """Print verdict, the refusal if there is one, the arrays and the eras."""
    console.print(verdict(report), markup=False, highlight=False)
    if report.get("refused"):
        console.print(f"Refused: {report['refused']}", markup=False, highlight=False)
    if report.get("arrays"):
        console.print(arrays(report))
    if report.get("eras"):
        console.print(eras(report))


def arrays(report: Mapping[str, Any]) -> Table:
    """A row per signature of every array."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, highlight=False)
    for name in ("array", "", "sources", "runs", "from", "to"):
        table.add_column(
            name, justify="right" if name in ("sources", "runs") else "left", overflow="fold"
        )
    table.add_column("what differs", overflow="fold", ratio=1)
    for a in told(report):
        alone = len(a.kinds) == 1
        for i, kind in enumerate(a.kinds[:KINDS]):
            differs = "the same in all" if alone else "; ".join(f"{k} {v}" for k, v in kind.differs)
            cells = (f"{kind.sources:,}", f"{kind.runs:,}", *ends(kind), differs)
            table.add_row(
                *map(plain, (a.array if i == 0 else "", "" if alone else str(kind.number), *cells))
            )
        if len(a.kinds) > KINDS:
            table.add_row("", "…", "", "", "", "", f"{len(a.kinds) - KINDS} more signatures")
    return table


def ends(kind: Kind) -> tuple[str, str]:
    """Where a signature begins and ends: by the axis, or by file where the axis does not tell."""
    return kind.since or short(kind.first), kind.until or short(kind.last)


def eras(report: Mapping[str, Any]) -> Table:
    """A row per era."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, highlight=False)
    for name in ("era", "sources", "first", "last"):
        table.add_column(name, justify="right" if name == "sources" else "left", overflow="fold")
    table.add_column("begins because", overflow="fold", ratio=1)
    for e in report["eras"]:
        why = e["because"][0] if e["because"] else ""
        more = (
            f" (and {count(len(e['because']) - 1, 'more change')})" if len(e["because"]) > 1 else ""
        )
        table.add_row(
            *map(
                plain,
                (e["era"], f"{e['sources']:,}", short(e["first"]), short(e["last"]), why + more),
            )
        )
    return table


def plain(cell: str) -> str:
    """A cell in which nothing is taken for markup."""
    return cell.replace("[", "\\[")
