"""The global arrays of a dataset: at the root, or one group per era and what lies across all of them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from types import MappingProxyType
from typing import Any

from byterefs import axis
from byterefs.discover import select
from byterefs.errors import ByteRefsError, PlanError
from byterefs.model import Array
from byterefs.planning import consistency, eras
from byterefs.planning.arrays import Maker
from byterefs.planning.checks import refuse_names
from byterefs.planning.consistency import Signature
from byterefs.planning.engines import ENGINES, Concat, Layout, find_concat
from byterefs.planning.eras import Era, Stretch
from byterefs.planning.physical import Physical
from byterefs.planning.roles import NAMING, Roles, by_value
from byterefs.planning.tiles import tiled
from byterefs.units import Units

log = logging.getLogger(__name__)

Signatures = Mapping[str, Sequence[tuple[str, Signature]]]


@dataclass(frozen=True)
class Plan:
    """The global arrays of a dataset and what is said of it as a whole."""

    arrays: Mapping[str, Array]
    across: Mapping[str, Array]
    """arrays across all eras, which only a VRT can hold; none without eras"""
    eras: tuple[str, ...]
    order: tuple[str, ...]
    """planned sources in plan order"""
    root: Mapping[str, Any]
    root_dtypes: Mapping[str, str]
    varying: Sequence[str]

    @property
    def all_arrays(self) -> dict[str, Array]:
        """Every array that the VRT has, sorted."""
        return dict(sorted({**self.arrays, **self.across}.items()))


def compose(
    physical: Physical, chosen: Sequence[str], config: Mapping[str, Any], report: dict[str, Any]
) -> Plan:
    """The plan of the chosen sources. Fills ``report`` as far as it comes before it refuses (PlanError)."""
    options = config.get("plan") or {}
    roles = Roles.of(physical, chosen, config)
    concat = find_concat(physical, chosen, options["concat"]) if options.get("concat") else None
    if concat is None and len(chosen) > 1:
        raise PlanError(
            f"dataset {config['dataset']!r}: {len(chosen)} sources and no plan.concat; name the axis that joins them"
        )
    work = Composer(physical, roles, concat, config, report)
    layout = Layout(tuple(chosen), {}, {})
    if concat is not None:
        try:
            layout = ENGINES[options.get("engine", "coordinates")](
                physical, chosen, concat, options
            )
        except ByteRefsError:
            work.tell(layout)
            raise
    if options.get("tiles"):
        layout = tiled(physical, layout, options["tiles"])
    work.tell(layout)
    found = work.eras(layout)
    if found:
        arrays = work.by_era(layout, found)
        across = work.across(layout, [e.era for e in found])
    else:
        arrays, across = work.arrays(layout), {}
    names = tuple(e.era for e in found)
    refuse_names({**arrays, **across}, names)
    root, dtypes, varying = physical.roots(layout.order)
    return Plan(arrays, across, names, layout.order, root, dtypes, varying)


@dataclass
class Composer:
    """Makes the arrays of layouts of the same sources."""

    physical: Physical
    roles: Roles
    concat: Concat | None
    config: Mapping[str, Any]
    report: dict[str, Any]
    signatures: Signatures = field(default_factory=dict)
    """of the whole archive, as it was last told"""

    @property
    def dataset(self) -> str:
        """Name of the dataset."""
        return str(self.config["dataset"])

    @property
    def along(self) -> Concat:
        """The concat axis. Raises PlanError without one."""
        if self.concat is None:
            raise PlanError(
                f"dataset {self.dataset!r}: plan.eras without plan.concat; name the axis along which eras follow"
            )
        return self.concat

    def tell(self, layout: Layout) -> None:
        """Put the runs of all arrays into the report, and where each run begins and ends along the axis."""
        self.signatures = sign(self.physical, layout.order, self.concat, self.roles, layout.sizes)
        at = labelling(self.physical, self.concat)
        self.report |= consistency.report(self.signatures, layout.order, at)
        ends = [layout.order[0], layout.order[-1]]
        self.report["sources"] = {
            "count": len(layout.order), "first": ends[0], "last": ends[1],
            "from": at(ends[0]), "to": at(ends[1]),
        }  # fmt: skip
        self.report["axis"] = None if self.concat is None else self.concat.coordinate

    def arrays(self, layout: Layout, era: str = "") -> dict[str, Array]:
        """The arrays of one layout; what nobody asked for and cannot be is left out, and the report says why."""
        signatures = self.signatures
        if era:
            signatures = sign(self.physical, layout.order, self.concat, self.roles, layout.sizes)
        maker = Maker(self.physical, layout, self.concat, self.roles, self.config)
        made, lead = {}, f"{era}/" if era else ""
        dim = self.concat.dim if self.concat else None
        way_out = f"in era {era!r}: end it between them in plan.eras" if era else consistency.APART
        for name, order in sorted(signatures.items()):
            try:
                if not (apart := consistency.unlike_lengths(self.physical, name, order, dim)):
                    consistency.check(name, order, way_out)
                found = maker.array(name)
                made[name] = replace(found, refused=apart) if apart else found
            except PlanError as e:
                if name in self.roles.needed:
                    raise
                self.report.setdefault("left_out", {})[lead + name] = str(e)
                log.warning("plan %s: %r is left out: %s", self.dataset, name, e)
        varying = {lead + n: v for n, v in maker.varying.items() if v}
        self.report["varying_attrs"] = {**self.report.get("varying_attrs", {}), **varying}
        return made

    # --- eras --------------------------------------------------------------------------------------

    def eras(self, layout: Layout) -> list[Era]:
        """The eras that ``plan.eras`` asks for; none for ``refuse``."""
        wanted = (self.config.get("plan") or {}).get("eras", "refuse")
        if wanted == "refuse":
            return []
        where = eras.stretches(self.physical, layout, self.along)
        if wanted == "auto":
            found = eras.auto(
                self.signatures, self.roles.needed, where, self.names(where), self.dataset
            )
        else:
            found = eras.named(wanted, self.slots(layout.order), where, self.dataset)
        self.report["eras"] = [
            {"era": e.era, "sources": len(inside), "first": inside[0], "last": inside[-1], "because": list(e.because)}
            for e in found
            for inside in [[s for s, at in where.items() if e.start <= at.start < e.stop]]
        ]  # fmt: skip
        return found

    def names(self, where: Mapping[str, Stretch]) -> dict[int, str]:
        """First element -> the name of an era that begins there: ``from_2010-01-01``."""
        at = labelling(self.physical, self.concat)
        names: dict[int, str] = {}
        for source, stretch in where.items():
            label = str(at(source)).replace(":", "").replace("/", "_")
            names.setdefault(stretch.start, f"from_{label}")
        return names

    def slots(self, sources: Sequence[str]) -> dict[str, tuple[str, ...]]:
        """The slot of every source, as ``select.slot`` has it."""
        source, slot = self.config["source"], self.config["select"]["slot"]
        root = select.root(source)
        return {s: select.slot_of(s, source["pattern"], slot, root=root) or (s,) for s in sources}

    def by_era(self, layout: Layout, found: Sequence[Era]) -> dict[str, Array]:
        """The arrays of every era, each in the group of its era."""
        concat = self.along
        whole = Maker(self.physical, layout, concat, self.roles, self.config)
        for name in sorted(self.roles.needed & layout.placements.keys()):
            first = self.physical.meta(layout.placements[name][0].source, name)
            whole.check_missing(name, first, layout.placements[name])
        where = eras.stretches(self.physical, layout, concat)
        out: dict[str, Array] = {}
        for era in found:
            part = self.in_units(eras.cut(self.physical, layout, concat, era, where), whole)
            made = self.arrays(part, era.era)
            out |= {f"{era.era}/{n}": placed(a, era.era, made) for n, a in made.items()}
        return out

    def in_units(self, part: Layout, whole: Maker) -> Layout:
        """The layout of an era with what it knows of coordinates counted as the era's first source counts."""
        own = Maker(self.physical, part, self.concat, self.roles, self.config)
        values = {}
        for name, known in part.values.items():
            old, new = whole.units(name), own.units(name)
            both = old is not None and new is not None
            values[name] = axis.convert(known, old, new, name) if both else known  # type: ignore[arg-type]
        return replace(part, values=values)

    def across(self, layout: Layout, names: Sequence[str]) -> dict[str, Array]:
        """What can be read across all eras as one array, by decoding; the report says what cannot, and why."""
        maker = Maker(self.physical, layout, self.concat, self.roles, self.config)
        made, lost = {}, {}
        for name, order in sorted(self.signatures.items()):
            try:
                readable = {id(sig): consistency.readable(sig) for _, sig in order}
                one = [(s, readable[id(sig)]) for s, sig in order]
                consistency.check(name, one, "makes one array")
                made[name] = maker.array(name)
            except PlanError as e:
                lost[name] = str(e)
        for name in [n for n, a in made.items() if a.kind == "data"]:
            gone = next((c for c in lost if self.describes(c, made[name])), None)
            if gone is not None:
                lost[name] = f"its coordinate {gone!r} is not one: {lost[gone]}"
                del made[name]
        dims = {d for a in made.values() if a.kind == "data" for d in a.dims}
        if not dims:
            made = {}  # coordinates of nothing
        kept = {n: a for n, a in made.items() if not a.dims or dims & set(a.dims)}
        self.report["across"] = {n: lost.get(n) for n in sorted({*kept, *lost})}
        why = f"it lies across the eras {', '.join(names)}, which only a VRT reads as one array"
        return {
            n: replace(a, refused=f"array {n!r}: {why}" if a.storage == "referenced" else None)
            for n, a in kept.items()
        }

    def describes(self, coordinate: str, array: Array) -> bool:
        """Whether a coordinate says where the elements of an array lie."""
        if coordinate not in self.roles.coords:
            return False
        words = " ".join(str(array.attrs.get(a, "")) for a in NAMING).split()
        dims = next(m.dims for m in self.physical.metas.values() if m.array == coordinate)
        return coordinate in words or (bool(dims) and set(dims) <= set(array.dims))


def placed(array: Array, era: str, made: Mapping[str, Array]) -> Array:
    """An array in the group of its era, and its grid mapping with it."""
    mapping = array.grid_mapping
    if mapping in made:
        mapping = f"{era}/{mapping}"
    return replace(array, array=f"{era}/{array.array}", era=era, grid_mapping=mapping)


def labelling(physical: Physical, concat: Concat | None) -> Callable[[str], str | None]:
    """Where a source begins along the concat axis, in words: a date, or the coordinate's own number."""

    @cache
    def at(source: str) -> str | None:
        if concat is None or concat.coordinate not in physical.have[source]:
            return None
        values = physical.values(source, concat.coordinate).ravel()
        units = axis.time_units(physical.meta(source, concat.coordinate).attrs)
        return axis.label(values[0], units) if values.size else None

    return at


def sign(
    physical: Physical,
    order: Sequence[str],
    concat: Concat | None,
    roles: Roles,
    sizes: Mapping[str, int] = MappingProxyType({}),
) -> dict[str, list[tuple[str, Signature]]]:
    """Per array, each source's signature in plan order; ``sizes`` are those of the layout."""
    dims = set(sizes) | ({concat.dim} if concat else set())
    out: dict[str, list[tuple[str, Signature]]] = {}
    cache: dict[tuple[str, bool, Units | None, str | None], Signature] = {}
    # units are converted along the concat axis only; a scalar that counts from another day differs
    lies_along = {m: not dims.isdisjoint(meta.dims) for m, meta in physical.metas.items()}
    for name in sorted({a for s in order for a in physical.have[s]}):
        inline = by_value(physical, order, name, roles, sizes)
        signed: list[tuple[str, Signature]] = []
        for source in order:
            have = physical.have[source].get(name)
            if have is None:
                continue
            along = lies_along[have.meta]
            units = roles.units(physical, source, name) if along else None
            static = None if along or concat is None else have.digest
            key = (have.meta, inline, units, static)
            if key not in cache:
                made = consistency.signature(
                    physical.metas[have.meta], concat=dims, by_value=inline, units=units
                )
                cache[key] = made if static is None else {**made, consistency.STATIC: static[:12]}
            signed.append((source, cache[key]))
        out[name] = signed
    return out
