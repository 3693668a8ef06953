"""Global arrays made from sources and a layout: shape, attributes, values, and what they refuse."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from byterefs import axis
from byterefs.codecs import PLAIN
from byterefs.errors import PlanError
from byterefs.grid import misaligned
from byterefs.model import Array, ArrayMeta, Key, Placement
from byterefs.planning import consistency
from byterefs.planning.checks import check_gaps, uncovered
from byterefs.planning.engines import Concat, Layout
from byterefs.planning.physical import Physical, shared_attrs
from byterefs.planning.roles import Roles, by_value
from byterefs.slabs import Slabs, all_aligned
from byterefs.units import Units


class Maker:
    """Makes the global arrays from a layout."""

    def __init__(
        self,
        physical: Physical,
        layout: Layout,
        concat: Concat | None,
        roles: Roles,
        config: Mapping[str, Any],
    ) -> None:
        self.physical, self.layout, self.concat, self.roles = physical, layout, concat, roles
        self.varying: dict[str, list[str]] = {}
        self.missing = (config.get("plan") or {}).get("missing", "refuse")

    def array(self, name: str) -> Array:
        """One global array, or a PlanError that says why it cannot be."""
        having = [s for s in self.layout.order if name in self.physical.have[s]]
        first = self.widest(name, having)
        placements = self.places(name, first, having)
        self.check_missing(name, first, placements)
        shape = tuple(
            self.layout.sizes.get(d, n) for d, n in zip(first.dims, first.shape, strict=True)
        )
        attrs, dtypes = self.attributes(name, first, having)
        inline = by_value(self.physical, having, name, self.roles, self.layout.sizes)
        if not inline:
            check_gaps(name, first, placements, shape, attrs)
        values = self.values(name, first, placements, shape) if inline else None
        spacing = axis.affine(values) if values is not None else None
        return Array(
            array=name,
            kind="coord" if name in self.roles.coords else "data",
            storage="affine" if spacing else "inline" if inline else "referenced",
            dims=first.dims,
            shape=shape,
            chunks=shape if inline else first.chunks,
            dtype=first.dtype,
            fill=first.fill,
            codec=PLAIN if inline else first.codec,
            info="" if inline else first.info,
            attrs=attrs,
            attr_dtypes=dtypes,
            grid_mapping=attrs.get("grid_mapping"),
            affine=spacing,
            values=None if values is None else values.tobytes(),
            # what was made from a georeference or a file's name is no array that a VRT could read
            placements=placements if shape and first.layout != "derived" else (),
            refused=None if inline else self.refused(name, first, placements, shape),
        )

    def metas(self, name: str, having: Sequence[str]) -> list[ArrayMeta]:
        """The distinct metadata that sources have of an array, in a fixed order."""
        used = sorted({self.physical.have[s][name].meta for s in having})
        return [self.physical.metas[m] for m in used]

    def widest(self, name: str, having: Sequence[str]) -> ArrayMeta:
        """The first source's metadata; strings as wide as the longest in any source."""
        first = self.physical.meta(having[0], name)
        if first.dtype[1] != "S":
            return first
        dtypes = [m.dtype for m in self.metas(name, having)]
        return replace(first, dtype=max(dtypes, key=lambda d: np.dtype(d).itemsize))

    def places(self, name: str, first: ArrayMeta, having: Sequence[str]) -> tuple[Placement, ...]:
        """One placement per place; an array without the concat axis comes from the first source."""
        placements = self.layout.placements.get(name, ())
        if placements:
            return self.one_per_place(name, placements, having)
        along = self.concat.dim if self.concat else "concat"
        if along in first.dims:
            raise PlanError(
                f"{having[0]}: array {name!r} lies along {along!r} and the plan places no source of it; "
                f"add it to the VRT, or list the wanted arrays without it in scan.arrays"
            )
        coordinate = name in self.roles.coords
        consistency.check_static(self.physical, name, having, along, coordinate=coordinate)
        zero = (0,) * len(first.dims)
        return (Placement(having[0], name, zero, first.shape, zero),)

    def attributes(
        self, name: str, first: ArrayMeta, having: Sequence[str]
    ) -> tuple[dict[str, Any], dict[str, str]]:
        """Attributes that all sources share, and the first source's where they decide what values mean.

        Those are equal numbers of other dtypes (0.5 as float and as double), or units that were converted.
        """
        known = [(m.attrs, m.attr_dtypes) for m in self.metas(name, having)]
        attrs, dtypes, self.varying[name] = shared_attrs(known)
        for key in consistency.DECISIVE:
            if key in first.attrs:
                attrs[key] = first.attrs[key]
                dtypes[key] = first.attr_dtypes.get(key, "str")
        return attrs, dtypes

    def one_per_place(
        self, name: str, placements: Sequence[Placement], having: Sequence[str]
    ) -> tuple[Placement, ...]:
        """Placements with one source each: coordinates that sources share must be equal, data must not collide."""
        shared = by_value(self.physical, having, name, self.roles)
        seen: dict[Key, Placement] = {}
        for p in placements:
            first = seen.setdefault(p.dest, p)
            if first.source == p.source:
                continue
            if not shared or not self.equal(name, first, p):
                raise PlanError(
                    f"{p.source}: array {name!r} lies at {self.where(p)}, where {first.source} lies already"
                    f"{' with other values' if shared else ''}; one source per place: tell them apart with "
                    f"select.slot and select.prefer, or leave one out"
                )
        return tuple(seen.values())

    def equal(self, name: str, a: Placement, b: Placement) -> bool:
        """Whether two sources hold the same values of an array, in the units of the first."""
        one, two = (self.physical.values(p.source, name) for p in (a, b))
        units, own = (self.roles.units(self.physical, p.source, name) for p in (a, b))
        if units is not None and own is not None:
            attrs = self.physical.meta(b.source, name).attrs
            two = axis.convert(two, own, units, f"{b.source}: {name}", attrs)
        return one.shape == two.shape and one.tobytes() == two.tobytes()

    def check_missing(self, name: str, first: ArrayMeta, placements: Sequence[Placement]) -> None:
        """Refuse a place along the concat axis without a source (``missing: refuse``)."""
        if self.missing == "absent" or self.concat is None or self.concat.dim not in first.dims:
            return
        i = first.dims.index(self.concat.dim)
        there = {p.dest[i] for p in placements}
        for p in self.layout.placements.get(self.concat.coordinate, ()):
            if p.dest[0] not in there:
                raise PlanError(
                    f"{p.source}: array {name!r} is missing at {self.where(p)}, and {placements[0].source} has it; "
                    f"add the source that has it, leave this one out, or say plan.missing: absent"
                )

    def where(self, placement: Placement) -> str:
        """The coordinate of a placement in words: ``time 16325.0 (days since …)``."""
        if (
            self.concat is None
            or self.concat.coordinate not in self.physical.have[placement.source]
        ):
            return f"element {list(placement.dest)}"
        value = self.physical.values(placement.source, self.concat.coordinate).flat[0]
        units = self.physical.meta(placement.source, self.concat.coordinate).attrs.get(
            "units", "no units"
        )
        return f"{self.concat.coordinate} {value} ({units})"

    def values(
        self,
        name: str,
        first: ArrayMeta,
        placements: Sequence[Placement],
        shape: Key,
    ) -> np.ndarray:
        """All values of an inline array; a stretch that no source covers is fill.

        Raises PlanError for two sources with other values at one place, and for a concat coordinate
        with a step that neither a source nor the engine knows.
        """
        out = np.full(shape, uncovered(first), first.dtype)
        known = self.layout.values.get(name)
        if known is not None:
            out[...] = known.astype(out.dtype)
        there = np.zeros(shape, bool)
        units = self.units(name)
        for p in placements:
            piece = self.physical.values(p.source, name)
            own = self.roles.units(self.physical, p.source, name)
            if units is not None and own is not None and own != units:
                attrs = self.physical.meta(p.source, name).attrs
                piece = axis.convert(piece, own, units, f"{p.source}: {name}", attrs)
            window = tuple(slice(s, s + n) for s, n in zip(p.src_offset, p.count, strict=True))
            place = tuple(slice(d, d + n) for d, n in zip(p.dest, p.count, strict=True))
            piece, before = piece[window].astype(out.dtype), there[place]
            if before.any() and piece[before].tobytes() != out[place][before].tobytes():
                raise PlanError(
                    f"{p.source}: array {name!r} has other values at {self.where(p)} than another source has there; "
                    f"one source per place: take one of them out of the VRT"
                )
            out[place], there[place] = piece, True
        if known is None and self.concat and name == self.concat.coordinate and not there.all():
            raise PlanError(
                f"array {name!r} has no value at step {int(np.argmin(there))}: no source lies there; close the gap "
                f"in the VRT, or give it the values of {name!r}"
            )
        return out

    def units(self, name: str) -> Units | None:
        """Time units of a global array: its first source's; bounds without their own have their coordinate's."""
        having = [s for s in self.layout.order if name in self.physical.have[s]]
        if not having:
            return None
        parent = self.roles.bounds_of.get(name)
        inherited = self.units(parent) if parent not in (None, name) else None
        return axis.time_units(self.physical.meta(having[0], name).attrs, inherited)

    def refused(
        self, name: str, first: ArrayMeta, placements: Sequence[Placement], shape: Key
    ) -> str | None:
        """Why ``refs_<array>`` cannot be, or None: the first misaligned placement, or no byte ranges."""
        aligned = all_aligned(Slabs.of(placements, len(shape)), shape, first.chunks)
        for p in placements:
            if self.physical.have[p.source][p.source_array].chunks is None:
                return f"{p.source}: array {name!r} has no byte ranges to refer to"
            if aligned:
                continue
            found = misaligned(shape, first.chunks, p.src_offset, p.count, p.dest)
            if found:
                i, reason = found
                return (
                    f"{p.source}: array {name!r} is not chunk-aligned along {first.dims[i]!r}: {reason}; "
                    f"refs_{name} needs a regular grid (mdim-refs/0.2), the VRT reads across it"
                )
        return None
