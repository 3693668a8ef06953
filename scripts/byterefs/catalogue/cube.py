"""A dataset as STAC's datacube extension has it: dimensions, variables, extents, one cube per era."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from byterefs.catalogue import times
from byterefs.model import Array
from byterefs.view import View

WORLD = [-180.0, -90.0, 180.0, 90.0]
UNITS = {
    "x": {"degrees_east", "degree_east", "degree_e", "degrees_e", "degreee", "degreese"},
    "y": {"degrees_north", "degree_north", "degree_n", "degrees_n", "degreen", "degreesn"},
}
"""CF's spellings of the units by which a coordinate is a longitude or a latitude"""
NAMES = {
    "x": {"longitude", "projection_x_coordinate", "grid_longitude"},
    "y": {"latitude", "projection_y_coordinate", "grid_latitude"},
    "z": {"depth", "height", "altitude", "air_pressure"},
}


class Cube(NamedTuple):
    """Arrays that lie in one group, and so share their axes: the whole dataset, or an era of it."""

    group: str
    """"" for the root"""
    arrays: list[Array]
    """its data arrays, sorted by name"""


def cubes(view: View) -> list[Cube]:
    """The groups that hold data arrays, sorted."""
    found: dict[str, list[Array]] = {}
    for name, array in view.arrays.items():
        if array.kind == "data" and array.dims:
            found.setdefault(name.rpartition("/")[0], []).append(array)
    return [Cube(group, found[group]) for group in sorted(found)]


def coordinate(view: View, group: str, dim: str) -> Array | None:
    """The coordinate of a dimension, in its group or in the root."""
    for name in (f"{group}/{dim}" if group else dim, dim):
        found = view.arrays.get(name)
        if found is not None and len(found.shape) == 1 and found.values is not None:
            return found
    return None


def axis_of(found: Array) -> str | None:
    """The spatial axis x, y or z that a coordinate's attributes say it is; None if they say none."""
    attrs = {k: str(v) for k, v in found.attrs.items()}
    for axis in "xyz":
        if attrs.get("axis", "").lower() == axis or attrs.get("standard_name") in NAMES[axis]:
            return axis
        if attrs.get("units", "").lower() in UNITS.get(axis, ()):
            return axis
    return "z" if attrs.get("positive", "").lower() in {"up", "down"} else None


def dimensions(view: View, cube: Cube) -> dict[str, dict[str, Any]]:
    """``cube:dimensions``: every dimension of the cube's arrays, with its extent."""
    found: dict[str, dict[str, Any]] = {}
    for array in cube.arrays:
        for dim, size in zip(array.dims, array.shape, strict=True):
            if dim not in found:
                found[dim] = dimension(coordinate(view, cube.group, dim), size)
    return found


def dimension(found: Array | None, size: int) -> dict[str, Any]:
    """One dimension; without a coordinate it is the index itself."""
    if found is None or np.dtype(found.dtype).kind not in "iuf" or not size:
        return {"type": "index", "extent": [0, max(size - 1, 0)]}
    if times.has_calendar(found):
        steps = times.instants(found)
        return {"type": "temporal", "extent": [times.text(steps[0]), times.text(steps[-1])]}
    values = times.numbers(found)
    out: dict[str, Any] = {"extent": [float(np.nanmin(values)), float(np.nanmax(values))]}
    if found.affine is not None:
        out["step"] = float(found.affine["step"]) * float(found.attrs.get("scale_factor") or 1)
    if "units" in found.attrs:
        out["unit"] = str(found.attrs["units"])
    axis = axis_of(found)
    if axis is None:
        return {"type": "custom", **out}
    geographic = str(found.attrs.get("units", "")).lower() in UNITS.get(axis, ())
    return {"type": "spatial", "axis": axis, **out} | (
        {"reference_system": 4326} if geographic else {}
    )


def variables(cube: Cube) -> dict[str, dict[str, Any]]:
    """``cube:variables``: the data arrays by their name in the cube."""
    return {a.array.rpartition("/")[2]: variable(a) for a in cube.arrays}


def variable(array: Array) -> dict[str, Any]:
    """One data array."""
    out: dict[str, Any] = {"dimensions": list(array.dims), "type": "data"}
    if words := array.attrs.get("long_name") or array.attrs.get("standard_name"):
        out["description"] = str(words)
    if "units" in array.attrs:
        out["unit"] = str(array.attrs["units"])
    return out


def bounds(view: View, cube: Cube) -> list[float] | None:
    """West, south, east, north in degrees; None where no latitude and longitude are known by value.

    Longitudes of a whole circle, 0 to 360 say, are those of the world. Of a grid that is no latitude
    by longitude, the 2-D latitudes and longitudes say it if they are inline.
    """
    known: dict[str, Any] = {}
    for name, array in view.arrays.items():
        inside = name.rpartition("/")[0] in {cube.group, ""}
        for axis in "xy":
            units = str(array.attrs.get("units", "")).lower()
            if inside and array.dims and array.values is not None and units in UNITS[axis]:
                values = times.numbers(array)
                if values.size == 1 or np.ptp(values):  # ROMS subsets have grids of zeros
                    known.setdefault(axis, values)
    if known.keys() != {"x", "y"}:
        return None
    west, east = circle(known["x"])
    return [west, clip(known["y"].min(), 90), east, clip(known["y"].max(), 90)]


def circle(lon: Any) -> tuple[float, float]:
    """West and east of some longitudes."""
    low, high = float(np.nanmin(lon)), float(np.nanmax(lon))
    step = (high - low) / max(lon.shape[-1] - 1, 1)
    if high - low + step >= 359.99:
        return WORLD[0], WORLD[2]
    turn = [v - 360 if v > 180 else v for v in (low, high)]
    return (turn[0], turn[1]) if turn[0] <= turn[1] else (WORLD[0], WORLD[2])


def clip(value: float, limit: float) -> float:
    """A finite number within the limits."""
    return float(np.clip(value, -limit, limit))


def union(boxes: Iterable[list[float] | None]) -> list[float]:
    """The box around all boxes; the world where one is unknown."""
    found = list(boxes)
    known = [box for box in found if box is not None]
    if not known or len(known) < len(found):
        return list(WORLD)
    west, south, east, north = zip(*known, strict=True)
    return [min(west), min(south), max(east), max(north)]
