"""What a GRIB file holds as ecCodes reads it from the file: fields by their keys, values by coordinates.

It knows no offsets and no chunks: the fields of an array are found by the name that their keys spell, and
each of them by the time, step, member and level that the coordinates of the dataset say.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from itertools import product
from tempfile import TemporaryFile
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from byterefs import grib
from byterefs.access import ranges
from byterefs.proving.slab import Slab
from byterefs.urls import is_local, to_path

OPEN = 4
"""files whose keys are kept at a time"""
KEPT = 8
"""fields whose values are kept at a time"""
MISSING = -1e34
GRID = ("latitude", "longitude")
WHEN = ("time", "valid_time", "step", "number")
UNLEVELLED = ("surface", "meanSea", "entireAtmosphere", "atmosphere", "nominalTop", "tropopause")

Spot = tuple[int, int]
"""the byte that a message starts at, and which field of it"""
At = Mapping[str, NDArray[Any] | None]
"""axis -> the dataset's coordinate along it at a slab, None where there is none; in the order of the axes"""


class Field(NamedTuple):
    """One field of a file."""

    spot: Spot
    """its place in the file"""
    names: tuple[str, ...]
    """what an array of it is called: without its level, and with it where it has one"""
    nbytes: int
    """of its message"""
    level_type: str
    place: Mapping[str, float]
    """axis -> its coordinate: seconds, hours, members, level"""


class Fields:
    """Reads GRIB files through ecCodes; a reason in words takes the place of what cannot be read."""

    def __init__(self) -> None:
        self._fields = lru_cache(maxsize=OPEN)(fields)
        self._values = lru_cache(maxsize=KEPT)(values)

    def close(self) -> None:
        """Forget every file."""
        self._fields.cache_clear()
        self._values.cache_clear()

    def exists(self, source: str, array: str) -> bool:
        """Whether a source is GRIB on one grid with latitude and longitude for axes."""
        return array in GRID and not isinstance(self.axis(source, array), str)

    def axis(self, source: str, array: str) -> NDArray[Any] | str:
        """Latitude or longitude along the one grid of a file."""
        found = self._fields(source)
        if isinstance(found, str):
            return found
        return self._values(source, found[0].spot, array)

    def read(self, slab: Slab, at: At) -> NDArray[Any] | str:
        """Values of a slab, NaN where the file has no field for its coordinates."""
        source, array, start, count, wanted = slab
        if array in GRID:
            along = self.axis(source, array)
            return (
                along
                if isinstance(along, str)
                else along[start[0] : start[0] + count[0]].astype(wanted)
            )
        known = self._fields(source)
        if isinstance(known, str):
            return known
        found = [f for f in known if array in f.names]
        if not found:
            return f"no field that spells {array!r}"
        lead = [axis for axis in at if axis in (*WHEN, found[0].level_type)]
        plane = tuple(
            slice(s, s + n) for s, n in zip(start[len(lead) :], count[len(lead) :], strict=True)
        )
        out = np.full(tuple(count), np.nan, wanted)
        for key in product(*(range(n) for n in count[: len(lead)])):
            cell = {axis: coordinate(at, axis, i) for axis, i in zip(lead, key, strict=True)}
            here = [f for f in found if all(f.place[axis] == v for axis, v in cell.items())]
            if len(here) > 1:
                return f"{len(here)} fields lie at {cell}"
            if here:
                whole = self._values(source, here[0].spot, "values")
                if isinstance(whole, str):
                    return whole
                out[key] = (whole.ravel() if len(plane) == 1 else whole)[plane].astype(wanted)
        return out


def coordinate(at: At, axis: str, i: int) -> float:
    """The dataset's coordinate at a step of an axis; NaN, which no field has, where there is none."""
    along = at[axis]
    return float("nan") if along is None else float(along[i])


@contextmanager
def opened(source: str) -> Iterator[BinaryIO]:
    """A source as a file that the C library reads; one that lies elsewhere is copied while it is open."""
    if is_local(source):
        with open(to_path(source), "rb") as file:
            yield file
        return
    with ranges.opened(source) as found, found.file() as remote, TemporaryFile() as copy:
        shutil.copyfileobj(remote, copy)
        copy.seek(0)
        yield copy


def several(known: Sequence[Field]) -> frozenset[str]:
    """The arrays of a file whose fields lie at more than one level, by their name without it."""
    levels: dict[str, set[float]] = {}
    for f in known:
        levels.setdefault(f.names[0], set()).add(f.place[f.level_type])
    return frozenset(name for name, there in levels.items() if len(there) > 1)


def steps(known: Sequence[Field], axis: str) -> NDArray[Any]:
    """The coordinates that fields have along an axis: from low to high, pressures from high to low.

    Of a type of level those of the arrays that lie at several.
    """
    some = known if axis in WHEN else [f for f in known if f.names[0] in several(known)]
    there = sorted({f.place[axis] for f in some if axis in f.place})
    return np.array(there[::-1] if axis.startswith("isobaric") else there)


def spanned(known: Sequence[Field], lead: int, name: str) -> dict[str, NDArray[Any]] | str:
    """The ``lead`` axes of an array of a whole file and their coordinates: what varies in the file."""
    found = {a: v for a in ("time", "step", "number") if len(v := steps(known, a)) > 1}
    level = next((f.level_type for f in known if f.names[0] == name), "")
    levelled = name in several(known)
    if len(found) + levelled == lead - 1:
        found.setdefault("number", steps(known, "number"))  # one member is an axis too
    if levelled:
        found[level] = steps(known, level)
    return found if len(found) == lead else f"{len(found)} axes vary in the file, not {lead}"


def handles(source: str, start: int = 0) -> Iterator[Any]:
    """EcCodes' handle of each field of a file from a byte on, those of one message too."""
    ec = grib.eccodes()
    ec.codes_grib_multi_support_on()
    try:
        with opened(source) as file:
            os.lseek(file.fileno(), start, os.SEEK_SET)  # ecCodes reads by the descriptor
            try:
                while (handle := ec.codes_grib_new_from_file(file)) is not None:
                    yield handle
                    ec.codes_release(handle)
            finally:
                # ecCodes 2.50 keeps the rest of a message of several fields for the next file at this address
                ec.codes_grib_multi_support_reset_file(file)
    finally:
        ec.codes_grib_multi_support_off()


def fields(source: str) -> tuple[Field, ...] | str:
    """Every field of a file, or why there are none."""
    grids: dict[tuple[str, ...], list[str]] = {}
    found: list[Field] = []
    try:
        for handle in handles(source):
            found.append(field(spot(handle, found), handle, grids))
    except (OSError, grib.eccodes().CodesInternalError) as error:
        return " ".join(str(error).split())
    return tuple(found) or "no GRIB message"


def spot(handle: Any, before: Sequence[Field]) -> Spot:
    """Where a field lies that follows others of its file."""
    start = int(grib.eccodes().codes_get(handle, "offset", int))
    last = before[-1].spot if before else (-1, 0)
    return start, last[1] + 1 if last[0] == start else 0


def field(at: Spot, handle: Any, grids: dict[tuple[str, ...], list[str]]) -> Field:
    """One field by its keys; ``grids`` are those of each variable so far, in the order of the file."""
    ec = grib.eccodes()

    def get(key: str, kind: type | None = None) -> Any:
        return ec.codes_get(handle, key, kind) if ec.codes_is_defined(handle, key) else None

    kind, level, step_type = get("typeOfLevel"), get("level", float) or 0.0, get("stepType")
    variable = (variable_of(get), kind, step_type, ensemble(get))
    mesh = f"{get('md5GridSection')} {get('gridType')} {get('numberOfPoints')}"
    known = grids.setdefault(variable, [])
    if mesh not in known:
        known.append(mesh)
    number = known.index(mesh) + 1
    end = [w for w in (step_type if step_type != "instant" else "", variable[3]) if w]
    end += [str(number)] if number > 1 else []
    spelled = ["_".join([variable[0], kind, *end]).replace("/", "_")]
    if level and kind not in UNLEVELLED:
        spelled.append("_".join([variable[0], kind, f"{level:g}", *end]).replace("/", "_"))
    ec.codes_set(handle, "stepUnits", "s")
    step = int(get("endStep", int))
    clock = [int(get(k, int) or 0) for k in ("year", "month", "day", "hour", "minute", "second")]
    date = "{:04d}-{:02d}-{:02d}T{:02d}:{:02d}:{:02d}".format(*clock)
    time = int(np.datetime64(date, "s").astype(np.int64))
    place = {
        "time": time,
        "valid_time": time + step,
        "step": step / 3600,
        "number": get("number", int) or 0,
        kind: level,
    }
    return Field(at, tuple(spelled), get("totalLength", int), kind, place)


def variable_of(get: Any) -> str:
    """EcCodes' name of a parameter, or its numbers in the tables of WMO."""
    name = get("cfVarName")
    if name not in (None, "unknown", "~", "undef"):
        return str(name)
    keys = ("table2Version", "indicatorOfParameter")
    if get("edition") == 2:
        keys = ("discipline", "parameterCategory", "parameterNumber")  # type: ignore[assignment]
    return "_".join(["unknown", *(str(get(key)) for key in keys)])


def ensemble(get: Any) -> str:
    """Which statistic of an ensemble a field is: ``p50``, ``prob10_1_10``, ``derived4``."""
    if get("percentileValue") is not None:
        return f"p{get('percentileValue')}"
    if get("probabilityType", int) is not None:
        limits = []
        for which in ("Lower", "Upper"):
            scale = get(f"scaleFactorOf{which}Limit", int)
            limits.append(
                f"{get(f'scaledValueOf{which}Limit', int)}" + (f"e{-scale}" if scale else "")
            )
        return "_".join([f"prob{get('probabilityType', int)}", *limits])
    derived = get("derivedForecast", int)
    return "" if derived is None else f"derived{derived}"


def values(source: str, at: Spot, key: str) -> NDArray[Any] | str:
    """All values of a field, missing ones NaN, in the axes of its bytes; or its latitude or longitude axis."""
    ec = grib.eccodes()
    try:
        for i, handle in enumerate(handles(source, at[0])):
            if i < at[1]:
                continue
            if key != "values":
                return axis(handle, key)
            ec.codes_set(handle, "missingValue", MISSING)
            found = ec.codes_get_array(handle, "values")
            plane = shape(handle, len(found))
            return np.where(found == MISSING, np.nan, found).reshape(plane)
    except (OSError, ec.CodesInternalError) as error:
        return " ".join(str(error).split())
    return f"no field {at[1]} at byte {at[0]}"


def shape(handle: Any, count: int) -> tuple[int, ...]:
    """Rows and columns of a field in the order of its bytes; one axis where it has none."""
    ec = grib.eccodes()
    try:
        nx, ny = (ec.codes_get(handle, key, int) for key in ("Nx", "Ny"))
    except ec.CodesInternalError:
        return (count,)
    if nx * ny != count:
        return (count,)
    key = "jPointsAreConsecutive"  # which ecCodes 2.50 has not of a template that it does not know
    turned = ec.codes_is_defined(handle, key) and ec.codes_get(handle, key, int)
    return (nx, ny) if turned else (ny, nx)


def axis(handle: Any, key: str) -> NDArray[Any] | str:
    """Latitude or longitude: along a geographic grid, of each point of another one."""
    ec = grib.eccodes()
    kind = ec.codes_get(handle, "gridType", str)
    points = ec.codes_get_array(handle, f"{key}s")
    plane = points.reshape(shape(handle, len(points)))
    if kind not in ("regular_ll", "regular_gg"):
        return np.asarray(plane)
    rows = (key == "latitude") != bool(ec.codes_get(handle, "jPointsAreConsecutive", int))
    return np.ascontiguousarray(plane[:, 0] if rows else plane[0])
