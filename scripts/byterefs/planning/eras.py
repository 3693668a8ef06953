"""Eras: runs of neighbouring sources that agree, each a group of arrays with an axis of its own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import Any

from byterefs.errors import PlanError
from byterefs.model import Key, Placement
from byterefs.planning.consistency import Signature, difference, shown
from byterefs.planning.engines import Concat, Layout
from byterefs.planning.physical import Physical

LIMIT = 64
"""eras that ``auto`` makes at most: an archive that changes with every file has no eras"""


@dataclass(frozen=True)
class Era:
    """A stretch of the concat axis, in elements, and the group that its arrays are in."""

    era: str
    start: int
    stop: int
    because: tuple[str, ...] = ()
    """what begins it, a sentence per array; nothing for the first and for a named one"""


@dataclass(frozen=True)
class Stretch:
    """Where one source lies on the concat axis, in elements."""

    start: int
    stop: int


def stretches(physical: Physical, layout: Layout, concat: Concat) -> dict[str, Stretch]:
    """Source -> its stretch of the axis, in the order of the axis."""
    found: dict[str, Stretch] = {}
    for places in layout.placements.values():
        for p in places:
            i = axis_of(physical, p, concat)
            if i is None:
                continue
            here = found.get(p.source, Stretch(p.dest[i], p.dest[i] + p.count[i]))
            found[p.source] = Stretch(
                min(here.start, p.dest[i]), max(here.stop, p.dest[i] + p.count[i])
            )
    return dict(sorted(found.items(), key=lambda kv: (kv[1].start, kv[0])))


def axis_of(physical: Physical, p: Placement, concat: Concat) -> int | None:
    """Which axis of a placement is the concat axis; None if none is."""
    dims = physical.meta(p.source, p.source_array).dims
    return dims.index(concat.dim) if concat.dim in dims else None


def auto(
    signatures: Mapping[str, Sequence[tuple[str, Signature]]],
    needed: Iterable[str],
    where: Mapping[str, Stretch],
    names: Mapping[int, str],
    dataset: str,
) -> list[Era]:
    """An era per run in which every needed array has one signature; ``names`` are by first element.

    Raises PlanError if there are more than ``LIMIT``.
    """
    begins: dict[int, list[str]] = {min((s.start for s in where.values()), default=0): []}
    for array in sorted(needed):
        for at, why in changes(array, signatures.get(array, ()), where):
            begins.setdefault(at, []).append(why)
    starts = sorted(begins)
    if len(starts) > LIMIT:
        raise PlanError(
            f"dataset {dataset!r}: plan.eras: auto finds {len(starts)} eras, more than {LIMIT}: {begins[starts[1]][0]}; "
            f"an archive that changes as often has no eras: leave the array out with scan.arrays, or name the eras; "
            f"see plan/consistency.html"
        )
    stops = [
        max((s.stop for s in where.values() if s.start < end), default=0)
        for end in (*starts[1:], 1 << 62)
    ]
    return [Era(names[a], a, b, tuple(begins[a])) for a, b in zip(starts, stops, strict=True)]


def changes(
    array: str, order: Sequence[tuple[str, Signature]], where: Mapping[str, Stretch]
) -> list[tuple[int, str]]:
    """Elements at which the signature of an array is not what it was before, and why in a sentence."""
    placed = sorted(
        ((where[s].start, s, sig) for s, sig in order if s in where), key=lambda x: x[:2]
    )
    steps = [
        (at, [(s, sig) for _, s, sig in group]) for at, group in groupby(placed, lambda x: x[0])
    ]
    out = []
    for (_, before), (at, now) in pairwise(steps):
        source, sig = next(((s, g) for s, g in now if g != before[0][1]), now[0])
        if sig != before[0][1]:
            what = str(difference(before[0][1], sig))
            old, new = shown(before[0][1].get(what)), shown(sig.get(what))
            out.append((at, f"{source}: array {array!r} has {what} {new}, before it {old}"))
    return out


def named(
    wanted: Mapping[str, Mapping[str, Any]],
    slots: Mapping[str, Key | tuple[str, ...]],
    where: Mapping[str, Stretch],
    dataset: str,
) -> list[Era]:
    """The eras that a config names by their first and last slot, in the order of the axis.

    Without ``from`` an era begins with the archive, without ``to`` it goes on with it. Raises PlanError
    for a slot that no source has, for eras that overlap, and for a source in none.
    """
    end = max(s.stop for s in where.values())
    found = []
    for name, ends in wanted.items():
        first, last = (ends.get(k) for k in ("from", "to"))
        start = 0 if first is None else min(s.start for s in at_slot(first, name, slots, where))
        stop = end if last is None else max(s.stop for s in at_slot(last, name, slots, where))
        if stop <= start:
            raise PlanError(
                f"plan.eras.{name}: its last slot {last!r} lies before its first {first!r}; exchange the two"
            )
        found.append(Era(name, start, stop))
    found.sort(key=lambda e: e.start)
    for one, two in pairwise(found):
        if two.start < one.stop:
            source = next(s for s, at in where.items() if at.start >= two.start)
            raise PlanError(
                f"plan.eras: {one.era!r} and {two.era!r} overlap from {source} on; end {one.era!r} before {two.era!r} begins"
            )
    for source, at in where.items():
        if not any(e.start <= at.start and at.stop <= e.stop for e in found):
            raise PlanError(
                f"{source}: it lies in none of the eras {', '.join(e.era for e in found)} of dataset {dataset!r}; "
                f"widen one in plan.eras, name another, or leave the source out with source.pattern"
            )
    return found


def at_slot(
    slot: Any, era: str, slots: Mapping[str, Sequence[Any]], where: Mapping[str, Stretch]
) -> list[Stretch]:
    """The stretches of the sources that have a slot: a text, or a list of one text per name in select.slot."""
    wanted = [str(x) for x in slot] if isinstance(slot, list) else [str(slot)]
    found = [where[s] for s in where if list(slots[s]) == wanted]
    if not found:
        known = sorted({"/".join(map(str, slots[s])) for s in where})
        raise PlanError(
            f"plan.eras.{era}: no planned source has the slot {'/'.join(wanted)!r}; they run from {known[0]!r} "
            f"to {known[-1]!r}"
        )
    return found


def cut(
    physical: Physical, layout: Layout, concat: Concat, era: Era, where: Mapping[str, Stretch]
) -> Layout:
    """The layout of one era: its sources, its stretch of the axis as an axis of its own."""
    inside = {s for s, at in where.items() if era.start <= at.start < era.stop}
    for source in sorted(inside):
        if where[source].stop > era.stop:
            raise PlanError(
                f"{source}: it reaches over the end of era {era.era!r}; a source lies in one era: move the border"
            )
    placements = {
        array: tuple(moved(physical, p, concat, era.start) for p in places if p.source in inside)
        for array, places in layout.placements.items()
    }
    along = {
        a
        for s in layout.order
        for a in physical.have[s]
        if physical.meta(s, a).dims == (concat.dim,)
    }
    values = {
        name: known[era.start : era.stop] if name in along else known
        for name, known in layout.values.items()
    }
    return Layout(
        tuple(s for s in layout.order if s in inside),
        {**layout.sizes, concat.dim: era.stop - era.start},
        {array: places for array, places in placements.items() if places},
        values,
    )


def moved(physical: Physical, p: Placement, concat: Concat, start: int) -> Placement:
    """A placement counted from the start of its era."""
    i = axis_of(physical, p, concat)
    return p._replace(dest=tuple(d - start * (k == i) for k, d in enumerate(p.dest)))
