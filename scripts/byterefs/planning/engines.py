"""Plan engines: from sources to placements, by coordinates, by ``gdal mdim mosaic``, or from a VRT."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from byterefs import axis, urls
from byterefs.errors import PlanError
from byterefs.model import ArrayMeta, Key, Placement
from byterefs.planning import vrt_plan
from byterefs.planning.physical import Physical
from byterefs.units import Units


@dataclass(frozen=True)
class Concat:
    """The concat axis: its dimension, the array that holds its coordinate, and that array's units."""

    dim: str
    coordinate: str
    units: Units | None


@dataclass(frozen=True)
class Layout:
    """What an engine decides: the order of sources, the length of dimensions, the place of each slab."""

    order: tuple[str, ...]
    sizes: Mapping[str, int]
    """global length of the dimensions that the plan lengthens"""
    placements: Mapping[str, tuple[Placement, ...]]
    """of every array that has a lengthened dimension, sorted by dest"""
    values: Mapping[str, np.ndarray] = field(default_factory=dict)
    """coordinate values of the whole axis where the engine knows them beyond the sources"""


def find_concat(physical: Physical, chosen: Sequence[str], name: str) -> Concat:
    """The concat axis that ``plan.concat`` names: a dimension, or the coordinate along one.

    Raises PlanError if no source has it, or if no one-dimensional array tells where a step lies.
    """
    first = chosen[0]
    metas = {a: physical.meta(first, a) for a in physical.have[first]}
    dims = sorted({d for m in metas.values() for d in m.dims})
    dim = metas[name].dims[0] if name in metas and len(metas[name].dims) == 1 else name
    if name in metas and not metas[name].dims and name not in dims:
        raise PlanError(
            f"{first}: {name!r} is one number of the whole source and no axis of its arrays (they have "
            f"{', '.join(dims) or 'none'}); name another axis in plan.concat and say its step by the name of the "
            f"source (scan.file_name.coordinate)"
        )
    if dim not in dims:
        raise PlanError(
            f"{first}: no dimension or coordinate {name!r} to concatenate along (it has {', '.join(dims)}); "
            f"set plan.concat, or scan.file_name.coordinate where only the name of a source says it"
        )
    along = [a for a, m in sorted(metas.items()) if m.dims == (dim,)]
    timed = [a for a in along if axis.time_units(metas[a].attrs)]
    found = next((a for a in (name, dim) if a in along), None) or (
        timed[0] if len(timed) == 1 else None
    )
    if found is None:
        raise PlanError(
            f"{first}: no coordinate along {dim!r} tells where a step lies (one-dimensional arrays there: "
            f"{', '.join(along) or 'none'}); name it in plan.concat"
        )
    return Concat(dim, found, axis.time_units(metas[found].attrs))


def coordinate_values(
    physical: Physical, source: str, concat: Concat, units: Units | None
) -> np.ndarray:
    """A source's values along the concat axis, in ``units``."""
    if concat.coordinate not in physical.have[source]:
        raise PlanError(
            f"{source}: no array {concat.coordinate!r}, which says where its steps lie; "
            f"leave the source out with source.pattern"
        )
    values = physical.values(source, concat.coordinate).ravel()
    own = physical.units(physical.have[source][concat.coordinate].meta)
    if units is None or own is None or own == units:
        return values
    attrs = physical.meta(source, concat.coordinate).attrs
    return axis.convert(values, own, units, f"{source}: {concat.coordinate}", attrs)


def by_coordinates(
    physical: Physical, chosen: Sequence[str], concat: Concat, options: Mapping[str, Any]
) -> Layout:
    """Place sources by their own coordinates: cost of reading what the scan kept, no file is opened."""
    units = first_units(physical, chosen, concat)
    values = [(s, coordinate_values(physical, s, concat, units)) for s in chosen]
    ordered = axis.slabs(values, concat.coordinate)
    whole: dict[str, np.ndarray] = {}
    if options.get("axis", "packed") == "dense":
        step = None if options.get("step") is None else Fraction(str(options["step"]))
        starts, size, step = axis.dense(ordered, concat.coordinate, step)
        whole[concat.coordinate] = dense_values(
            values[0][1].dtype, ordered[0].values[0], step, size, concat
        )
    else:
        starts, size = axis.packed(ordered)
    order = tuple(s for slab in ordered for s in slab.sources)
    start = {s: at for slab, at in zip(ordered, starts, strict=True) for s in slab.sources}
    steps = {s: len(slab.values) for slab in ordered for s in slab.sources}
    placements: dict[str, list[Placement]] = {}
    along = {d: m for d, m in physical.metas.items() if concat.dim in m.dims}
    axes = {d: (m.dims.index(concat.dim), (0,) * len(m.dims)) for d, m in along.items()}
    for source in order:
        for array, have in physical.have[source].items():
            if have.meta in along:
                meta, (i, zero) = along[have.meta], axes[have.meta]
                check_length(source, meta, meta.shape[i], concat, steps[source])
                dest = (*zero[:i], start[source], *zero[i + 1 :])
                slab = Placement(source, array, zero, meta.shape, dest)
                placements.setdefault(array, []).append(slab)
    return Layout(order, {concat.dim: size}, {a: tuple(p) for a, p in placements.items()}, whole)


def check_length(source: str, meta: ArrayMeta, own: int, concat: Concat, steps: int) -> None:
    """Refuse an array whose axis has the name of the concat axis and another length (that of its group)."""
    if own != steps:
        raise PlanError(
            f"{source}: array {meta.array!r} has {own} steps along {concat.dim!r} and {concat.coordinate!r} has "
            f"{steps}: an axis of the same name in another group; list the wanted arrays without it in scan.arrays"
        )


def first_units(physical: Physical, chosen: Sequence[str], concat: Concat) -> Units | None:
    """Units of the earliest source: the ones the global coordinate keeps."""
    if concat.units is None:
        return None
    own = {
        s: physical.units(physical.have[s][concat.coordinate].meta)
        for s in chosen
        if concat.coordinate in physical.have[s]
    }
    if len(set(own.values())) <= 1:
        return concat.units
    earliest = min(own, key=lambda s: (coordinate_values(physical, s, concat, concat.units)[0], s))
    return own[earliest]


def dense_values(
    dtype: np.dtype[Any], start: Any, step: Fraction, size: int, concat: Concat
) -> np.ndarray:
    """Every step of a dense axis as a value of the coordinate's dtype; exact or refused."""
    name = f"{concat.coordinate} at step"
    units = concat.units.units if concat.units else "its units"
    exact = (Fraction(start) + i * step for i in range(size))
    return np.array(
        [axis.held_exactly(v, dtype, f"{name} {i}", units) for i, v in enumerate(exact)], dtype
    )


def by_mosaic(
    physical: Physical, chosen: Sequence[str], concat: Concat, options: Mapping[str, Any]
) -> Layout:
    """Place sources as ``gdal mdim mosaic`` does, after our own checks of what it accepts silently."""
    ours = by_coordinates(physical, chosen, concat, {**options, "axis": "packed"})
    arrays = [a for a in sorted(ours.placements) if len(ours.placements[a][0].dest) > 1]
    with TemporaryDirectory() as folder:
        text = vrt_plan.mosaic(ours.order, arrays, Path(folder) / "mosaic.vrt")
    return by_vrt_text(physical, ours.order, text, folder, "gdal mdim mosaic")


def by_vrt(
    physical: Physical, chosen: Sequence[str], concat: Concat, options: Mapping[str, Any]
) -> Layout:
    """Place sources as a handed-over mdim VRT says (``plan.vrt``)."""
    path = Path(options["vrt"])
    if not path.exists():
        raise PlanError(f"{path}: there is no such VRT; plan.vrt must name one for engine 'vrt'")
    return by_vrt_text(physical, tuple(chosen), vrt_plan.text_of(path), str(path.parent), str(path))


def by_vrt_text(
    physical: Physical, chosen: Sequence[str], text: str, base: str, name: str
) -> Layout:
    """Placements, sizes and inline coordinates from the text of an mdim VRT, which has sources by GDAL's names."""
    plan = vrt_plan.read(text, base, name)
    known = {urls.to_url(source): source for source in chosen}
    placements: dict[str, tuple[Placement, ...]] = {}
    first: dict[str, Key] = {}
    for held in plan.arrays.values():
        entry = of_sources(held, known, name)
        for p in entry.placements:
            first[p.source] = min(first.get(p.source, p.dest), p.dest)
            check_slab(physical, p, entry.array, entry.shape, name)
        check_overlap(entry, name)
        if entry.placements:
            placements[entry.array] = tuple(sorted(entry.placements, key=lambda p: p.dest))
    order = tuple(sorted(first, key=lambda source: (first[source], source)))
    for array, dim in along(physical, order, plan.sizes):
        if array not in placements:
            placements[array] = coordinate_placements(physical, plan, placements, array, dim)
    values = {a.array: a.values for a in plan.arrays.values() if a.values is not None}
    return Layout(order, plan.sizes, placements, values)


def of_sources(entry: vrt_plan.VrtArray, known: Mapping[str, str], name: str) -> vrt_plan.VrtArray:
    """An array of a VRT with its sources as the plan spells them: ``known`` is address -> source."""
    for p in entry.placements:
        if urls.to_url(p.source) not in known:
            raise PlanError(
                f"{name}: array {entry.array!r} reads {p.source}, which is not among the planned sources; "
                f"list it with source.pattern, or take it out of the VRT"
            )
    spelled = (p._replace(source=known[urls.to_url(p.source)]) for p in entry.placements)
    return replace(entry, placements=tuple(spelled))


def check_slab(
    physical: Physical, p: Placement, array: str, shape: Sequence[int], name: str
) -> None:
    """Refuse a slab that its source does not have, or that passes the end of the array."""
    have = physical.have[p.source]
    if p.source_array not in have:
        raise PlanError(
            f"{name}: array {array!r} reads {p.source_array!r} of {p.source}, which its scan did not record; "
            f"list it in scan.arrays, or take it out of the VRT"
        )
    own = physical.meta(p.source, p.source_array).shape
    inside = len(own) == len(p.count) == len(shape) and all(
        s + n <= m and d + n <= size
        for s, n, m, d, size in zip(p.src_offset, p.count, own, p.dest, shape, strict=True)
    )
    if not inside:
        raise PlanError(
            f"{name}: array {array!r} of {list(shape)} has at {list(p.dest)} a slab of {list(p.count)} from "
            f"{list(p.src_offset)} of {p.source}, whose {p.source_array!r} is {list(own)}; correct the VRT"
        )


def check_overlap(entry: vrt_plan.VrtArray, name: str) -> None:
    """Refuse two slabs that share an element: which of them a reader sees depends on the reader."""
    places = entry.placements
    if not places or not places[0].dest:
        return
    axes = range(len(places[0].dest))
    i = max(axes, key=lambda k: len({p.dest[k] for p in places}))
    open_: list[Placement] = []
    for p in sorted(places, key=lambda p: p.dest[i]):
        open_ = [o for o in open_ if o.dest[i] + o.count[i] > p.dest[i]]
        for o in open_:
            if all(
                o.dest[k] < p.dest[k] + p.count[k] and p.dest[k] < o.dest[k] + o.count[k]
                for k in axes
            ):
                raise PlanError(
                    f"{name}: array {entry.array!r} has a slab of {p.source} at {list(p.dest)} on top of that of "
                    f"{o.source} at {list(o.dest)}; one source per place: take one of them out of the VRT"
                )
        open_.append(p)


def along(
    physical: Physical, order: Sequence[str], sizes: Mapping[str, int]
) -> list[tuple[str, str]]:
    """One-dimensional arrays of the sources and the dimension of the VRT that each lies along."""
    metas = {a: physical.meta(s, a) for s in reversed(order) for a in physical.have[s]}
    return [
        (a, m.dims[0]) for a, m in sorted(metas.items()) if len(m.dims) == 1 and m.dims[0] in sizes
    ]


def coordinate_placements(
    physical: Physical,
    plan: vrt_plan.VrtPlan,
    placements: Mapping[str, tuple[Placement, ...]],
    name: str,
    dim: str,
) -> tuple[Placement, ...]:
    """Where each source's piece of a one-dimensional array lies, from the arrays that share its axis."""
    found: dict[tuple[str, Key], Placement] = {}
    for other in plan.arrays.values():
        if dim not in other.dims:
            continue
        i = other.dims.index(dim)
        for p in placements.get(other.array, ()):
            if name in physical.have[p.source]:
                slab = Placement(p.source, name, (p.src_offset[i],), (p.count[i],), (p.dest[i],))
                found.setdefault((p.source, slab.dest), slab)
    return tuple(sorted(found.values(), key=lambda p: (p.dest, p.source)))


ENGINES = {"coordinates": by_coordinates, "mosaic": by_mosaic, "vrt": by_vrt}
