"""GRIB, editions 1 and 2: where each message lies, and where its field lies on the axes that it shares.

An array is what has one variable, type of level, type of step and grid, each message a chunk of it; its
name says these: ``t_isobaricInhPa``, ``tp_surface_accum``, and with a single level ``t2m_heightAboveGround_2``.
Axes are ``time``, ``step``, ``number`` and the type of level as far as they vary among the wanted arrays of
the file, then those of the grid; ``plan.concat`` stays an axis, and ``valid_time`` there takes the place of time
and step. Where such a cell has no message the chunk is absent. Values are float32, as readers of GRIB
in xarray have them, with NaN for what is missing; messages of 64-bit floats are float64.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Any, BinaryIO

import numpy as np

from byterefs import grib
from byterefs.errors import ByteRefsError, ScanError
from byterefs.model import ABSENT, ArrayMeta, Ints, Key, Source, SourceArray, SourceScan
from byterefs.scanners._common import (
    Attributes,
    Chunks,
    Seen,
    Unsupported,
    opened,
    record,
    wanted,
)
from byterefs.scanners._derived import attributes, derived
from byterefs.scanners._grib_grid import Grid, grid
from byterefs.scanners._grib_keys import Product, product
from byterefs.scanners._recorded import recorded, together

HEADING = b"\1\r\r\n"
"""how a bulletin begins that has a message in it"""
MAPPING = "spatial_ref"
SPARSE = 10_000_000
"""cells: an array of more than these and of a hundred times its messages is no table that anybody reads"""
EPOCH = "seconds since 1970-01-01T00:00:00"
TIME = {"units": EPOCH, "calendar": "proleptic_gregorian"}
AXES: Mapping[str, Mapping[str, Any]] = {
    "time": {**TIME, "standard_name": "forecast_reference_time", "long_name": "initial time of forecast"},
    "valid_time": {**TIME, "standard_name": "time", "long_name": "time"},
    "step": {
        "units": "hours",
        "standard_name": "forecast_period",
        "long_name": "time since forecast_reference_time",
    },
    "number": {
        "units": "1",
        "standard_name": "realization",
        "long_name": "ensemble member numerical id",
    },
}  # fmt: skip
LEVELS: Mapping[str, Mapping[str, Any]] = {
    "isobaricInhPa": {"units": "hPa", "standard_name": "air_pressure", "positive": "down"},
    "isobaricInPa": {"units": "Pa", "standard_name": "air_pressure", "positive": "down"},
    "heightAboveGround": {"units": "m", "standard_name": "height", "positive": "up"},
    "heightAboveSea": {"units": "m", "standard_name": "altitude", "positive": "up"},
    "depthBelowSea": {"units": "m", "standard_name": "depth", "positive": "down"},
    "depthBelowLand": {"units": "m", "standard_name": "depth", "positive": "down"},
    "hybrid": {"units": "1", "standard_name": "atmosphere_hybrid_sigma_pressure_coordinate"},
    "potentialVorticity": {"units": "K m2 kg-1 s-1"},
    "theta": {"units": "K", "standard_name": "air_potential_temperature", "positive": "up"},
}
"""attributes of levels; another type of level has its name alone"""
AGAIN = "fetch it again, leave it out with source.pattern or set scan: {on_error: skip}"


def recognises(file: BinaryIO) -> bool:
    """Whether the file starts as a GRIB message of edition 1 or 2 does, or as a bulletin with one."""
    head = file.read(128)
    at = head.find(grib.MAGIC)
    return head[at + 7 : at + 8] in (b"\1", b"\2") and (at == 0 or head.startswith(HEADING))


def scan(
    source: Source, *, arrays: Sequence[str] = (), concat: str | None = None, split: bool = True
) -> SourceScan:
    """The wanted arrays of one GRIB file with their axes; see :func:`byterefs.scanners.scan`."""
    with opened(source.source) as seen:
        found = groups(products(source.source, seen), concat)
        chosen = wanted(source.source, found, arrays)
        axes = Axes.of([found[name] for name in chosen], concat)
        items: dict[str, SourceArray | None] = {}
        grids = Grids(source.source)
        for name in sorted(chosen):
            make = partial(cube, name, found[name], axes, grids)
            items[name] = recorded(source.source, name, True, make)
        items |= {**axes.coordinates(), **grids.coordinates()}
    return together(source, seen, items, root([p for name in chosen for p in found[name]]))


def products(source: str, seen: Seen) -> list[Product]:
    """Every field of a file; ScanError for a file that is cut off, damaged, or no GRIB."""
    found: list[Product] = []
    try:
        for message in grib.messages(seen.read, seen.size):
            heads = grib.fields(seen.read, message)
            for i, head in enumerate(heads):
                found.append(product(message, head, i, len(heads)))
    except (ByteRefsError, ValueError, OverflowError, grib.eccodes().CodesInternalError) as error:
        where = f"message {len(found) + 1}" if found else "its first message"
        raise ScanError(f"{source}: {where} cannot be read: {error}; {AGAIN}") from error
    if not found:
        raise ScanError(f"{source}: it has no GRIB message; {AGAIN}")
    return found


def groups(fields: Iterable[Product], concat: str | None) -> dict[str, list[Product]]:
    """The fields of each array, by its name; a second grid of one variable has ``_2`` in it."""
    found: dict[tuple[str, ...], dict[str, list[Product]]] = {}
    for p in fields:
        same = found.setdefault((p.variable, p.level_type, p.step_type, p.special), {})
        same.setdefault(p.grid, []).append(p)
    return {
        named(members, concat) + (f"_{i}" if i > 1 else ""): members
        for by_grid in found.values()
        for i, members in enumerate(by_grid.values(), 1)
    }


def named(members: Sequence[Product], concat: str | None) -> str:
    """The name of an array: variable, type of level, its level unless that is an axis, type of step."""
    first = members[0]
    words = [first.variable, first.level_type]
    words += [f"{first.level:g}"] if first.levelled and not levelled(members, concat) else []
    words += [first.step_type] if first.step_type != "instant" else []
    words += [first.special] if first.special else []
    return "_".join(words).replace("/", "_")


@dataclass(frozen=True)
class Axes:
    """The axes that the arrays of one file share: their values, in order, and which of them are axes."""

    values: Mapping[str, tuple[Any, ...]]
    """axis or scalar -> its values: seconds, members, levels"""
    kept: frozenset[str]
    """those that are dimensions"""
    concat: str | None

    @classmethod
    def of(cls, arrays: Iterable[Sequence[Product]], concat: str | None) -> Axes:
        """What varies among the messages of ``arrays``, and ``concat``; members wherever there are any."""
        values: dict[str, set[Any]] = {}
        levels: dict[str, set[Any]] = {}
        members = False
        for array in arrays:
            kind = array[0].level_type
            if levelled(array, concat):
                levels.setdefault(kind, set()).update(p.level for p in array)
            for p in array:
                members |= p.number is not None
                for axis, value in place(p, concat == "valid_time").items():
                    values.setdefault(axis, set()).add(value)
        kept = (
            {axis for axis, there in values.items() if len(there) > 1}
            | {concat or ""}
            | set(levels)
        )
        if members:
            kept.add("number")
        else:
            del values["number"]
        whole = {**values, **levels}
        return cls({a: ordered(a, there) for a, there in whole.items()}, frozenset(kept), concat)

    def dims(self, members: Sequence[Product]) -> tuple[str, ...]:
        """The axes of an array before those of its grid."""
        names = [n for n in ("time", "valid_time", "step", "number") if n in self.values]
        level = (members[0].level_type,) if levelled(members, self.concat) else ()
        return tuple(n for n in names if n in self.kept) + level

    def key(self, p: Product, dims: Sequence[str]) -> Key:
        """Where a field lies among the cells of ``dims``."""
        at = {**place(p, "valid_time" in self.values), p.level_type: p.level}
        return tuple(self.values[d].index(at[d]) for d in dims)

    def coordinates(self) -> dict[str, SourceArray]:
        """The axes and scalars by value, and valid_time where time and step give it."""
        found: dict[str, SourceArray] = {}
        for axis, values in self.values.items():
            dims: tuple[str, ...] = (axis,) if axis in self.kept else ()
            attrs = AXES.get(axis) or {"long_name": axis, **LEVELS.get(axis, {}), "axis": "Z"}
            found[axis] = derived(axis, dims, counted(axis, values, dims), attrs)
        if "step" in self.values:
            dims = tuple(d for d in ("time", "step") if d in self.kept)
            sums = np.add.outer(self.values["time"], self.values["step"]).astype("<i8")
            whole = sums.reshape(tuple(len(self.values[d]) for d in dims))
            found["valid_time"] = derived("valid_time", dims, whole, AXES["valid_time"])
        return found

    def scalars(self) -> list[str]:
        """Names of the coordinates that are no axes."""
        names = [n for n in self.values if n not in self.kept]
        return sorted([*names, "valid_time"] if "step" in self.values else names)


def levelled(members: Sequence[Product], concat: str | None) -> bool:
    """Whether the type of level of an array is an axis of it."""
    return len({p.level for p in members}) > 1 or members[0].level_type == concat


def place(p: Product, valid: bool) -> dict[str, Any]:
    """Where a field lies in time and among the members."""
    when = {"valid_time": p.time + p.step} if valid else {"time": p.time, "step": p.step}
    return {**when, "number": p.number or 0}


def ordered(axis: str, values: Iterable[Any]) -> tuple[Any, ...]:
    """Values of an axis from low to high, pressures from high to low."""
    return tuple(sorted(values, reverse=axis.startswith("isobaric")))


def counted(axis: str, values: Sequence[Any], dims: tuple[str, ...]) -> np.ndarray:
    """Values of an axis as readers of GRIB in xarray count them: seconds, hours, members, levels."""
    whole = np.array(values, "<i8" if axis in ("time", "valid_time", "number") else "<f8")
    whole = whole / 3600.0 if axis == "step" else whole
    return whole if dims else whole.reshape(())


class Grids:
    """The grids of one file: the second has axes with ``_2`` in their names."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.known: dict[str, tuple[Grid, str]] = {}

    def get(self, p: Product) -> tuple[Grid, str]:
        """The grid of a field, and what ends the names of its axes."""
        if p.grid not in self.known:
            number = len(self.known) + 1
            self.known[p.grid] = grid(p), f"_{number}" if number > 1 else ""
        return self.known[p.grid]

    def coordinates(self) -> dict[str, SourceArray]:
        """The coordinates of the grids by value, and their CF grid mappings."""
        found: dict[str, SourceArray] = {}
        for each, end in self.known.values():
            for name, (dims, values, attrs) in each.coordinates.items():
                found[name + end] = derived(name + end, tuple(d + end for d in dims), values, attrs)
            if each.mapping:
                found[MAPPING + end] = derived(MAPPING + end, (), np.zeros((), "<i4"), each.mapping)
        return found


def cube(name: str, members: Sequence[Product], axes: Axes, grids: Grids) -> SourceArray:
    """One array: its messages on the cells of its axes. Raises Unsupported for what is no such cube."""
    plane, end = grids.get(members[0])
    dims = axes.dims(members)
    cells = tuple(len(axes.values[d]) for d in dims)
    if prod(cells) > max(SPARSE, 100 * len(members)):
        raise Unsupported(
            f"its {len(members)} messages lie scattered over {prod(cells)} cells of {', '.join(dims)}",
            "give time and step as one axis with plan.concat: valid_time, or scan fewer arrays at a time",
        )
    place = cells + (1,) * len(plane.shape)
    offset: Ints = np.full(place, ABSENT, np.int64)
    size: Ints = offset.copy()
    there: dict[Key, Product] = {}
    for p in members:
        key = axes.key(p, dims)
        other = there.setdefault(key, p)
        if other is not p:
            raise Unsupported(
                f"two messages have one place: {other.shown}, and {p.shown}",
                "take one of them out (grib_copy -w), or leave the array out by listing the wanted ones "
                "in scan.arrays",
            )
        offset[key], size[key] = p.message.offset, p.message.size
    found = Chunks("chunked", (1,) * len(dims) + plane.shape, offset, size)
    attrs, dtypes = described(members, axes, plane, end)
    codec = coded(members)
    meta = ArrayMeta(
        array=name,
        dims=(*dims, *(d + end for d in plane.dims)),
        shape=cells + plane.shape,
        chunks=found.chunks,
        dtype=members[0].dtype,
        fill="NaN",
        codec=codec,
        info=f"DRIVER=GRIB; EDITION={members[0].message.edition}",
        attrs=attrs,
        attr_dtypes=dtypes,
    )
    return record(meta, found, None, False)


def coded(members: Sequence[Product]) -> dict[str, Any]:
    """The codec of an array's messages. Raises Unsupported where they need more than one."""
    fields = {p.field for p in members}
    if len(fields) > 1:
        p = members[0]
        raise Unsupported(
            f"the message at byte {p.message.offset} holds {p.fields} fields, of which it needs several",
            "copy them to messages of their own (grib_copy old.grib new.grib), or leave the array out by "
            "listing the wanted ones in scan.arrays",
        )
    kinds = {p.dtype for p in members}
    if len(kinds) > 1:
        raise Unsupported("some of its messages hold floats of 64 bits and some do not")
    config: dict[str, Any] = {"id": grib.GRIBBERISH, "dtype": members[0].dtype}
    if any(p.decoder == grib.ECCODES for p in members):
        config |= {"id": grib.ECCODES, "field": members[0].field}
    return {"compressor": config, "filters": None}


def described(members: Sequence[Product], axes: Axes, plane: Grid, end: str) -> Attributes:
    """CF attributes of an array, and as ``GRIB_<key>`` what all of its messages say."""
    first = members[0].attrs
    same = {k: v for k, v in first.items() if all(p.attrs.get(k) == v for p in members)}
    found: dict[str, Any] = {f"GRIB_{k}": v for k, v in same.items() if k != "stepRange"}
    for name, key in (("units", "units"), ("standard_name", "cfName"), ("long_name", "name")):
        if key in same:
            found[name] = same[key]
    found["_FillValue"] = np.dtype(members[0].dtype).type(np.nan)
    level = members[0].level
    if all(p.level == level for p in members):
        found["GRIB_level"] = level
    flat = {n + end for n, (dims, _, _) in plane.coordinates.items() if dims != (n,)}
    found["coordinates"] = " ".join([*axes.scalars(), *sorted(flat)])
    if plane.mapping:
        found["grid_mapping"] = MAPPING + end
    return attributes({k: v for k, v in found.items() if v != ""})


def root(fields: Sequence[Product]) -> Attributes:
    """What all fields say of the file as a whole."""
    first = fields[0].root
    same = {k: v for k, v in first.items() if all(p.root.get(k) == v for p in fields)}
    found = {f"GRIB_{k}": v for k, v in same.items() if v is not None}
    if "centreDescription" in same:
        found["institution"] = same["centreDescription"]
    return attributes({**found, "Conventions": "CF-1.7"})
