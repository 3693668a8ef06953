"""Where the points of a GRIB field lie: the axes of its grid, their coordinates, and its CRS.

Axes are in the order of the bytes. Geographic grids have latitude and longitude; a projected or rotated
one has y and x with a CF grid mapping, and latitude and longitude of two dimensions where they are
small; all others (reduced, unstructured, spectral) have one axis ``values``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from byterefs.model import Key
from byterefs.scanners._common import KEPT, Unsupported
from byterefs.scanners._grib_keys import Keys, Product

GEOGRAPHIC = ("regular_ll", "regular_gg")
NEAR = 1e-3
"""degrees: how far ecCodes' own corner may lie from the projected one, whose keys count millionths"""
LATITUDE = {"units": "degrees_north", "standard_name": "latitude", "long_name": "latitude"}
LONGITUDE = {"units": "degrees_east", "standard_name": "longitude", "long_name": "longitude"}

MOST = 200_000_000
"""points of a grid: four times those of the globe at two kilometres"""
AGAIN = "fetch the file again, or leave it out with source.pattern"

Coordinate = tuple[tuple[str, ...], NDArray[Any], dict[str, Any]]
"""dimensions, values, attributes"""


@dataclass(frozen=True, slots=True)
class Grid:
    """The axes of a field and what tells where they lie."""

    dims: tuple[str, ...]
    shape: Key
    coordinates: Mapping[str, Coordinate]
    mapping: Mapping[str, Any] | None = None
    """attributes of the CF grid mapping"""


_GRIDS: dict[str, Grid] = {}
"""grids by what tells them apart: an archive has few, and a large one costs half a second"""


def grid(product: Product) -> Grid:
    """The grid of a field. Raises Unsupported for one whose rows run to and fro."""
    if product.grid not in _GRIDS:
        with Keys(product.head) as keys:
            _GRIDS[product.grid] = _read(keys, product.grid_type)
    return _GRIDS[product.grid]


def _read(keys: Keys, kind: str) -> Grid:
    nx, ny = keys.get("Nx", int), keys.get("Ny", int)
    count = keys.get("numberOfPoints", int)
    if count is None:
        raise Unsupported("its grid does not say how many points it has", AGAIN)
    if not 0 < count <= MOST:
        raise Unsupported(f"its grid has {count} points, where 1 to {MOST} can be", AGAIN)
    if keys.get("alternativeRowScanning"):
        raise Unsupported(
            "its rows run to and fro (alternativeRowScanning), so that it has no axes"
        )
    if kind in GEOGRAPHIC and nx and ny and nx * ny != count:
        raise Unsupported(f"its grid has {nx} by {ny} points and its field {count}", AGAIN)
    lat, lon = (_points(keys, key, count) for key in ("latitudes", "longitudes"))
    if not nx or not ny or nx * ny != count or kind == "unstructured_grid":
        return _listed(keys.get("numberOfDataPoints", int) or count, lat, lon)
    turned = bool(keys.get("jPointsAreConsecutive"))
    shape = (nx, ny) if turned else (ny, nx)
    if lat is not None and lon is not None:
        lat, lon = lat.reshape(shape), lon.reshape(shape)
        if kind in GEOGRAPHIC:
            return _geographic(lat, lon, turned)
    axes = None
    if lat is not None and lon is not None:
        axes = (
            _rotated(keys, nx, ny) if kind == "rotated_ll" else _projected(keys, lat, lon, turned)
        )
    return _plane(shape, turned, axes, lat, lon)


def _points(keys: Keys, key: str, count: int) -> NDArray[np.float64] | None:
    """Latitudes or longitudes of all points in the order of the bytes, where ecCodes can tell."""
    found = keys.array(key)
    return found if found is not None and len(found) == count else None


def _listed(count: int, lat: Any, lon: Any) -> Grid:
    coordinates: dict[str, Coordinate] = {}
    if lat is not None and lon is not None and lat.nbytes <= KEPT and len(lat) == count:
        coordinates = {
            "latitude": (("values",), lat, LATITUDE),
            "longitude": (("values",), lon, LONGITUDE),
        }
    return Grid(("values",), (count,), coordinates)


def _geographic(lat: NDArray[Any], lon: NDArray[Any], turned: bool) -> Grid:
    along_lat, along_lon = (lat[0], lon[:, 0]) if turned else (lat[:, 0], lon[0])
    whole = np.broadcast_to(along_lat if turned else along_lat[:, None], lat.shape)
    if not np.array_equal(whole, lat):
        raise Unsupported("latitude changes along its rows, so that it has no axes")
    dims = ("longitude", "latitude") if turned else ("latitude", "longitude")
    coordinates = {
        "latitude": (("latitude",), np.ascontiguousarray(along_lat), {**LATITUDE, "axis": "Y"}),
        "longitude": (("longitude",), np.ascontiguousarray(along_lon), {**LONGITUDE, "axis": "X"}),
    }
    return Grid(dims, lat.shape, coordinates)


Axes = tuple[NDArray[Any], NDArray[Any], dict[str, Any], dict[str, Any], dict[str, Any]]
"""x, y, their attributes, and those of the grid mapping"""


def _plane(shape: Key, turned: bool, axes: Axes | None, lat: Any, lon: Any) -> Grid:
    dims = ("x", "y") if turned else ("y", "x")
    coordinates: dict[str, Coordinate] = {}
    if axes is not None:
        x, y, x_attrs, y_attrs, _ = axes
        coordinates = {
            "x": (("x",), x, {**x_attrs, "axis": "X"}),
            "y": (("y",), y, {**y_attrs, "axis": "Y"}),
        }
    if lat is not None and lat.nbytes <= KEPT:
        coordinates |= {"latitude": (dims, lat, LATITUDE), "longitude": (dims, lon, LONGITUDE)}
    return Grid(dims, shape, coordinates, None if axes is None else axes[4])


def _rotated(keys: Keys, nx: int, ny: int) -> Axes:
    """Axes of a rotated pole: degrees on the rotated sphere, which the keys count exactly."""
    start = [keys.get(f"{k}OfFirstGridPointInDegrees", float) for k in ("longitude", "latitude")]
    step = [keys.get(f"{k}DirectionIncrementInDegrees", float) for k in ("i", "j")]
    signs = (-1 if keys.get("iScansNegatively") else 1, 1 if keys.get("jScansPositively") else -1)
    x, y = (
        np.round(round(a * 1e6) + sign * round(d * 1e6) * np.arange(n)) / 1e6
        for a, d, sign, n in zip(start, step, signs, (nx, ny), strict=True)
    )
    south = [keys.get(f"{k}OfSouthernPoleInDegrees", float) for k in ("latitude", "longitude")]
    mapping = {
        "grid_mapping_name": "rotated_latitude_longitude",
        "grid_north_pole_latitude": -south[0],
        "grid_north_pole_longitude": (south[1] + 180.0) % 360.0,
        "north_pole_grid_longitude": keys.get("angleOfRotationInDegrees", float) or 0.0,
    }
    degrees = {"units": "degrees"}
    return (
        x,
        y,
        {**degrees, "standard_name": "grid_longitude"},
        {**degrees, "standard_name": "grid_latitude"},
        mapping,
    )


def _projected(keys: Keys, lat: NDArray[Any], lon: NDArray[Any], turned: bool) -> Axes | None:
    """Axes in metres; None where the projection is not known or does not give ecCodes' own far corner."""
    from osgeo import gdal, osr

    gdal.UseExceptions()
    text, dx, dy = keys.get("projString"), keys.get("DxInMetres"), keys.get("DyInMetres")
    if not text or not dx or not dy or "longlat" in text:
        return None
    system, sphere = osr.SpatialReference(), osr.SpatialReference()
    try:
        system.ImportFromProj4(text)
        sphere.CopyGeogCSFrom(system)
        for each in (system, sphere):
            each.SetAxisMappingStrategy(osr.OAMS_TRADITIONAL_GIS_ORDER)
        forth = osr.CoordinateTransformation(sphere, system)
        back = osr.CoordinateTransformation(system, sphere)
        x0, y0, _ = forth.TransformPoint(float(lon.flat[0]), float(lat.flat[0]))
        nx, ny = lat.shape if turned else lat.shape[::-1]
        x = x0 + np.arange(nx) * float(dx) * (-1 if keys.get("iScansNegatively") else 1)
        y = y0 + np.arange(ny) * float(dy) * (1 if keys.get("jScansPositively") else -1)
        far_lon, far_lat, _ = back.TransformPoint(float(x[-1]), float(y[-1]))
        mapping = {k: v for k, v in system.ExportToCF1({}).items() if k != "long_name"}
        mapping["crs_wkt"] = system.ExportToWkt(["FORMAT=WKT2_2019", "MULTILINE=NO"])
    except RuntimeError:
        # latitude and longitude, where they are small, still tell where the points lie
        return None
    off = abs((far_lon - float(lon.flat[-1]) + 180) % 360 - 180), abs(far_lat - float(lat.flat[-1]))
    if max(off) > NEAR:
        return None
    metres = {"units": "m"}
    return (
        x,
        y,
        {**metres, "standard_name": "projection_x_coordinate"},
        {**metres, "standard_name": "projection_y_coordinate"},
        mapping,
    )
