"""The plot of cost against archive length."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot as plt

NAME = re.compile(r"([\d,]+) days: (first build|one new day|nothing new)$")


def draw(rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Seconds against days of the archive, one line per kind of run; nothing without such rows."""
    lines: dict[str, list[tuple[int, float]]] = {}
    for row in rows:
        if found := NAME.match(row["name"]):
            days = int(found[1].replace(",", ""))
            lines.setdefault(found[2], []).append((days, row["value"]))
    if not lines:
        return
    figure, axes = plt.subplots(figsize=(7, 4.2), constrained_layout=True)
    for name, points in lines.items():
        axes.plot(*zip(*sorted(points), strict=True), marker="o", label=name)
    axes.set(xscale="log", yscale="log", xlabel="days in the archive (4 arrays each)")
    axes.set(ylabel="seconds, two cores", title="Five forms, verified by sample, whole runs")
    axes.grid(which="both", alpha=0.3)
    axes.legend()
    figure.savefig(path, dpi=120, metadata={"Software": None})
    plt.close(figure)
