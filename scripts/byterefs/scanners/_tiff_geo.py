"""Where a TIFF's pixels lie: GeoTIFF tags as x and y of pixel centres and a CF grid mapping."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from osgeo import gdal
from tifffile import TiffPage

from byterefs.access import vsi
from byterefs.errors import ScanError
from byterefs.scanners._common import Unsupported
from byterefs.scanners._tiff_codec import WITHIN

Transform = tuple[float, float, float, float, float, float]
"""x of the corner, pixel width, row rotation, y of the corner, column rotation, pixel height (negative)"""

RASTER_TYPE, POINT = 1025, 2
CRS_KEYS = (34735, 34736, 34737)
"""GeoKeyDirectory, GeoDoubleParams, GeoAsciiParams"""
MAPPING = "spatial_ref"
"""the name of the grid mapping, as rioxarray and GDAL have it"""


def transform(page: TiffPage) -> Transform | None:
    """The affine transform as GDAL reads it from the tags; None where there is none, or only GCPs."""
    scale, tie, matrix = (page.tags.valueof(code) for code in (33550, 33922, 34264))
    if scale is not None and len(scale) >= 2 and scale[0] and scale[1]:
        if tie is None or len(tie) < 6:
            return None
        width, height = float(scale[0]), -abs(float(scale[1]))
        found = (tie[3] - tie[0] * width, width, 0.0, tie[4] - tie[1] * height, 0.0, height)
    elif matrix is not None and len(matrix) == 16:
        found = (matrix[3], matrix[0], matrix[1], matrix[7], matrix[4], matrix[5])
    else:
        return None
    x, width, row, y, column, height = map(float, found)
    if is_point(page):
        x, y = x - (width + row) * 0.5, y - (column + height) * 0.5
    return x, width, row, y, column, height


def turned(found: Transform) -> bool:
    """Whether a grid is rotated or sheared, so that x and y are no axes."""
    return bool(found[2] or found[4])


def is_point(page: TiffPage) -> bool:
    """Whether the tie point is the centre of a pixel (RasterPixelIsPoint), not its corner."""
    keys = page.tags.valueof(34735) or ()
    entries = (keys[i : i + 4] for i in range(4, len(keys) - 3, 4))
    return any(e[0] == RASTER_TYPE and e[3] == POINT for e in entries)


def centres(start: float, step: float, count: int) -> NDArray[Any]:
    """Coordinates of pixel centres, by the formula of GDAL's own axes; Unsupported if they are no numbers."""
    with np.errstate(over="ignore", invalid="ignore"):
        found = start + (np.arange(count) + 0.5) * step
    if not np.isfinite(found).all():
        raise Unsupported(f"its grid starts at {start!r} with step {step!r}", WITHIN)
    return found


System = tuple[dict[str, Any], dict[str, Any], dict[str, Any]]
"""CF attributes of the grid mapping, of x and of y"""
_SYSTEMS: dict[Any, System | None] = {}
"""CRSs by their GeoKeys: an archive has one, and GDAL opens one file for it"""


def crs(source: str, page: TiffPage) -> System | None:
    """CF attributes of the grid mapping, of x and of y; None where the file has no CRS."""
    keys = tuple(_hashable(page.tags.valueof(code)) for code in CRS_KEYS)
    if keys[0] is None:
        return None
    if keys not in _SYSTEMS:
        _SYSTEMS[keys] = _described(source)
    return _SYSTEMS[keys]


def _hashable(value: Any) -> Any:
    return tuple(value) if isinstance(value, list | tuple | np.ndarray) else value


def _described(source: str) -> System | None:
    gdal.UseExceptions()
    path = vsi.name(source)
    try:
        with gdal.quiet_errors():
            options = {"allowed_drivers": ["GTiff"], "sibling_files": []}
            system = gdal.OpenEx(path, gdal.OF_RASTER, **options).GetSpatialRef()
    except RuntimeError as error:
        raise ScanError(
            f"{source}: GDAL cannot tell its CRS ({' '.join(str(error).split())}); {WITHIN}"
        ) from error
    if system is None:
        return None
    attrs = cf(system)
    attrs["crs_wkt"] = system.ExportToWkt(["FORMAT=WKT2_2019", "MULTILINE=NO"])
    if system.IsGeographic():
        x = {"standard_name": "longitude", "units": "degrees_east"}
        y = {"standard_name": "latitude", "units": "degrees_north"}
    else:
        unit = {"metre": "m"}.get(system.GetLinearUnitsName(), system.GetLinearUnitsName())
        x = {"standard_name": "projection_x_coordinate", "units": unit}
        y = {"standard_name": "projection_y_coordinate", "units": unit}
    return attrs, x, y


def cf(system: Any) -> dict[str, Any]:
    """The parameters of a CRS as CF names them; empty for one that CF has no name for."""
    try:
        with gdal.quiet_errors():
            return {k: v for k, v in system.ExportToCF1({}).items() if k != "long_name"}
    except RuntimeError:
        # a CRS that CF 1 cannot name (a local or compound one) has its WKT all the same
        return {}
