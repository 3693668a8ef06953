"""Placements held against those of ``gdal mdim mosaic``, the other program that can plan them."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from byterefs.codecs import NEW_AXIS
from byterefs.errors import PlanError, VerifyError
from byterefs.model import Array, Placement
from byterefs.planning import vrt_plan
from byterefs.slabs import Slabs
from byterefs.view import View

log = logging.getLogger(__name__)

LAST = 64
"""sources that an append compares; ``full`` compares all (2 ms a file with GDAL 3.13)"""


def check_mosaic(view: View, *, full: bool) -> dict[str, Any]:
    """Counts of sources and placements compared, and GDAL's words where it cannot plan.

    Raises VerifyError naming array, source and both places where GDAL puts a source elsewhere.
    """
    chosen = [s.source for s in view.sources][0 if full else -LAST :]
    report: dict[str, Any] = {"sources": 0, "placements": 0, "refused": {}}
    for names, by_units in groups(view, chosen).items():
        several = [sources for sources in by_units if len(sources) > 1 or len(by_units) == 1]
        if len(several) < len(by_units):
            report["refused"][", ".join(names)] = (
                f"{len(by_units) - len(several)} sources count their time from an instant of their own, and "
                f"gdal mdim mosaic compares the numbers alone"
            )
        for sources in several:
            compare_group(view, names, sources, report)
    return report


def compare_group(
    view: View, names: Sequence[str], sources: Sequence[str], report: dict[str, Any]
) -> None:
    """Compare the placements of sources that make one mosaic, and count them in ``report``."""
    own = [view.arrays[name].own for name in names]
    try:
        with TemporaryDirectory() as folder:
            text = vrt_plan.mosaic(sources, own, Path(folder) / "mosaic.vrt")
            theirs = vrt_plan.read(text, folder, "gdal mdim mosaic")
    except PlanError as e:
        report["refused"][", ".join(names)] = str(e)
        log.info("gdal mdim mosaic: %s", e)
        return
    report["sources"] += len(sources)
    for name in names:
        ours = view.arrays[name]
        report["placements"] += compare(ours, theirs.arrays[ours.own], sources)


def groups(view: View, chosen: Sequence[str]) -> dict[tuple[str, ...], list[list[str]]]:
    """Local sources that hold the same data arrays, by those arrays, apart where their times count otherwise."""
    several, wanted = len(view.sources) > 1, set(chosen)
    having: dict[str, list[str]] = {}
    for a in view.arrays.values():
        along = a.kind == "data" and a.storage == "referenced" and "/" not in a.own
        along = along and not a.info.endswith(NEW_AXIS)  # GDAL does not know the axis
        if along and (len(a.placements) > 1 or not several):
            for source in wanted.intersection(Slabs.of(a.placements, len(a.dims)).sources):
                having.setdefault(source, []).append(a.array)
    units = view.own_units()
    out: dict[tuple[str, ...], dict[Any, list[str]]] = {}
    for source in chosen:
        if source in having and source.startswith("/") and not source.startswith("/vsi"):
            names = tuple(sorted(set(having[source])))
            out.setdefault(names, {}).setdefault(units.get(source), []).append(source)
    return {names: list(found.values()) for names, found in out.items()}


def compare(ours: Array, theirs: vrt_plan.VrtArray, sources: Sequence[str]) -> int:
    """How many placements are equal: same order, same slabs, same distances where ours has no gap."""
    wanted = set(sources)
    slabs = Slabs.of(ours.placements, len(ours.dims))
    own = [ours.placements[i] for i, source in enumerate(slabs.sources) if source in wanted]
    mine = sorted(own, key=lambda p: p.dest)
    other = sorted(theirs.placements, key=lambda p: p.dest)
    for i, (a, b) in enumerate(zip(mine, other, strict=False)):
        if (a.source, a.src_offset, a.count) != (b.source, b.src_offset, b.count):
            raise VerifyError(differs(ours.array, i, a, b))
    if len(mine) != len(other):
        raise VerifyError(
            f"array {ours.array!r}: {len(mine)} placements, and gdal mdim mosaic has {len(other)} of the same "
            f"sources; nothing is published: see plan/consistency.json"
        )
    if gapless(mine):
        for i, (a, b) in enumerate(zip(mine, other, strict=True)):
            if distance(mine[0], a) != distance(other[0], b):
                raise VerifyError(differs(ours.array, i, a, b))
    return len(mine)


def gapless(placements: Sequence[Placement]) -> bool:
    """Whether slabs follow one another along the first axis."""
    ends = [p.dest[0] + p.count[0] for p in placements]
    return all(p.dest[0] == end for p, end in zip(placements[1:], ends, strict=False))


def distance(first: Placement, other: Placement) -> tuple[int, ...]:
    """Elements from one slab to another, axis by axis."""
    return tuple(b - a for a, b in zip(first.dest, other.dest, strict=True))


def differs(array: str, position: int, ours: Placement, theirs: Placement) -> str:
    """The sentence for a placement that GDAL has otherwise."""
    return (
        f"{ours.source}: array {array!r}, placement {position} is {list(ours.dest)} with {list(ours.count)} elements, and "
        f"gdal mdim mosaic has {theirs.source} at {list(theirs.dest)} with {list(theirs.count)}; nothing is published: "
        f"see plan/consistency.json"
    )
