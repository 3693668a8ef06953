"""Where a projected grid lies in longitude and latitude, and what STAC's projection extension tells of it.

PROJ turns the rectangle, its edges densified; it knows a pole inside and the antimeridian.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from osgeo import osr

from byterefs.catalogue import times
from byterefs.catalogue.cube import Cube
from byterefs.model import Array
from byterefs.view import View

METRES: Mapping[str, float] = {
    **dict.fromkeys(("m", "meter", "meters", "metre", "metres"), 1.0),
    **dict.fromkeys(("km", "kilometer", "kilometers", "kilometre", "kilometres"), 1000.0),
}
FIGURES = ("semi_major_axis", "earth_radius", "reference_ellipsoid_name", "horizontal_datum_name")
"""CF's attributes that say on which figure of the Earth a grid is; GDAL takes WGS 84 where there is none"""
POINTS = 101
"""on each edge"""
APART = 0.01
"""degrees by which two descriptions of one grid may differ: that of CF may leave the figure of the Earth out"""


class Projected(NamedTuple):
    """A grid on a projection plane."""

    wkt: str
    """of its CRS, WKT2"""
    code: str | None
    """of its CRS, as ``EPSG:3031``; None where that is not proven to be the same"""
    box: list[float]
    """west, south, east, north in degrees, to the edges of the outer cells"""
    plane: list[float]
    """the same on the plane, in metres: left, bottom, right, top"""
    shape: list[int]
    """rows, columns"""


def projected(view: View, cube: Cube) -> Projected | None:
    """The grid of a cube; None unless all of its arrays are on one, whose CRS is told without a contradiction.

    A WKT (``crs_wkt``, or ``spatial_ref`` as GDAL writes it) comes first, as for GDAL. Where CF's own
    attributes give a CRS too and it lies elsewhere, neither is taken.
    """
    grids = {(a.grid_mapping, a.dims[-2:]) for a in cube.arrays if len(a.dims) > 1}
    if len(grids) != 1:
        return None
    ((mapping, dims),) = grids
    described = view.arrays.get(mapping or "")
    edges = [edge(plane_axis(view, cube.group, dims, axis)) for axis in "xy"]
    if described is None or None in edges:
        return None
    (left, right), (bottom, top) = (e for e in edges if e is not None)
    plane = [left, bottom, right, top]
    systems = [s for s in (by_wkt(described.attrs), by_cf(described.attrs)) if s is not None]
    boxes = [lonlat(system, plane) for system in systems]
    if not boxes or boxes[0] is None or any(not alike(boxes[0], box) for box in boxes):
        return None
    first = systems[0]
    wkt = first.ExportToWkt(["FORMAT=WKT2_2019", "MULTILINE=NO"])
    shape = [view.arrays[cube.arrays[0].array].shape[i] for i in (-2, -1)]
    return Projected(wkt, code(first), boxes[0], plane, shape)


def plane_axis(view: View, group: str, dims: tuple[str, ...], axis: str) -> Array | None:
    """The one coordinate of two dimensions that CF calls projection_x_coordinate, or y; None if not one."""
    name = f"projection_{axis}_coordinate"
    found = [
        array
        for path, array in view.arrays.items()
        if path.rpartition("/")[0] in {group, ""}
        and len(array.dims) == 1
        and array.dims[0] in dims
        and array.values is not None
        and array.attrs.get("standard_name") == name
    ]
    return found[0] if len(found) == 1 else None


def edge(axis: Array | None) -> tuple[float, float] | None:
    """The outer edges of the first and last cell in metres; None for other units or uneven steps."""
    if axis is None or axis.shape[0] < 2 or axis.attrs.get("units") not in METRES:
        return None
    values = np.asarray(times.numbers(axis), "f8") * METRES[axis.attrs["units"]]
    steps = np.diff(values)
    half = abs(steps.mean()) / 2
    if not np.isfinite(values).all() or not half or np.ptp(steps) > half / 10:
        return None
    return float(values.min() - half), float(values.max() + half)


def by_wkt(attrs: Mapping[str, Any]) -> osr.SpatialReference | None:
    """The projected CRS that a grid mapping gives as WKT; None if it gives none."""
    text = attrs.get("crs_wkt") or attrs.get("spatial_ref")
    return system(lambda made: made.ImportFromWkt(str(text))) if text else None


def by_cf(attrs: Mapping[str, Any]) -> osr.SpatialReference | None:
    """The projected CRS that CF's attributes of a grid mapping give; None if they give none."""
    told = {k: numbered(v) for k, v in attrs.items() if k not in ("crs_wkt", "spatial_ref")}
    has_wkt = "crs_wkt" in attrs or "spatial_ref" in attrs
    if "grid_mapping_name" not in told or not (has_wkt or told.keys() & set(FIGURES)):
        return None
    return system(lambda made: made.ImportFromCF1(told, "m"))


def numbered(value: Any) -> str:
    """An attribute as GDAL's CF import wants it: text, numbers of a list behind commas."""
    return ",".join(map(repr, value)) if isinstance(value, list) else str(value)


def system(read: Any) -> osr.SpatialReference | None:
    """What a description makes of a new CRS; None where it is no projected one."""
    with osr.ExceptionMgr(useExceptions=True):
        made = osr.SpatialReference()
        try:
            read(made)
        except RuntimeError:
            return None
    made.SetAxisMappingStrategy(osr.OAMS_TRADITIONAL_GIS_ORDER)
    return made if made.IsProjected() else None


def lonlat(made: osr.SpatialReference, plane: list[float]) -> list[float] | None:
    """The box in degrees; across the antimeridian all longitudes. None where an edge is not on Earth."""
    with osr.ExceptionMgr(useExceptions=True):
        world = osr.SpatialReference()
        world.ImportFromEPSG(4326)
        world.SetAxisMappingStrategy(osr.OAMS_TRADITIONAL_GIS_ORDER)
        unit = made.GetLinearUnits()
        try:
            turn = osr.CoordinateTransformation(made, world)
            west, south, east, north = turn.TransformBounds(*(v / unit for v in plane), POINTS)
        except RuntimeError:
            return None
    if not np.isfinite([west, south, east, north]).all() or south >= north:
        return None
    return [west, south, east, north] if west < east else [-180.0, south, 180.0, north]


def alike(one: list[float], other: list[float] | None) -> bool:
    """Whether two boxes are the same, as nearly as their figures of the Earth are."""
    return other is not None and bool(np.allclose(one, other, rtol=0, atol=APART))


def code(made: osr.SpatialReference) -> str | None:
    """The EPSG code that a CRS names as its own, if the registry has the same CRS under it."""
    number = made.GetAuthorityCode(None)
    if made.GetAuthorityName(None) != "EPSG" or not str(number).isdigit():
        return None
    registered = system(lambda new: new.ImportFromEPSG(int(number)))
    return f"EPSG:{number}" if registered is not None and registered.IsSame(made) else None
