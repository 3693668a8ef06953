"""What a TIFF holds as GDAL's classic raster model reads it: pixels, and x and y of their centres."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from osgeo import gdal

from byterefs.access import vsi
from byterefs.proving.slab import Slab

OPEN = 16
"""files that are kept open at a time"""
AXES = ("x", "y")
PAGE = re.compile(r"(?:page|mask)_(\d+)")
"""names of images by their IFD"""


class Pixels:
    """Reads TIFFs through GDAL; a reason in words takes the place of what cannot be read."""

    def __init__(self) -> None:
        self._open = lru_cache(maxsize=OPEN)(opened)

    def close(self) -> None:
        """Close every file."""
        self._open.cache_clear()

    def exists(self, source: str, array: str) -> bool:
        """Whether a source is a TIFF with an axis of this name; its image has whatever name the plan gives it."""
        found = self._open(source, 0) if array in AXES else "no axis"
        return (
            not isinstance(found, str) and found.GetGeoTransform(can_return_null=True) is not None
        )

    def read(self, slab: Slab) -> NDArray[Any] | str:
        """Values of a slab in the axes of the bytes: (y, x), (y, x, band) or (band, y, x), after those of length one."""
        source, array, start, count, wanted = slab
        found = self._open(source, ifd(array))
        if isinstance(found, str):
            return found
        if array in AXES:
            return centres(found, array)[start[0] : start[0] + count[0]].astype(wanted)
        bands = image(found, array)
        if isinstance(bands, str):
            return bands
        order = axes(found)
        spare = len(count) - len(order)
        if spare < 0 or any(n != 1 for n in count[:spare]):
            return f"{len(count)} axes, and GDAL has {len(order)}"
        place = dict(zip(order, zip(start[spare:], count[spare:], strict=True), strict=True))
        (y, height), (x, width), (b, n) = place["y"], place["x"], place.get("band", (0, 1))
        read = [bands[i].ReadAsArray(x, y, width, height) for i in range(b, b + n)]
        if read[0].dtype != wanted:
            return f"GDAL reads {read[0].dtype} where the source has {wanted.str}"
        pixels = np.stack(read, order.index("band")) if "band" in order else read[0]
        return np.ascontiguousarray(pixels).reshape(tuple(count))

    def block(self, source: str, array: str, key: Sequence[int]) -> tuple[int, int] | str:
        """GDAL's offset and size of a tile or compressed strip, or the reason why GDAL gives none."""
        found = self._open(source, ifd(array))
        bands = found if isinstance(found, str) else image(found, array)
        if isinstance(bands, str):
            return bands
        if not found.GetMetadataItem("COMPRESSION", "IMAGE_STRUCTURE"):
            return "uncompressed strips may be cut to pieces"
        order = axes(found)
        place = dict(zip(order, key[len(key) - len(order) :], strict=True))
        at = f"{place['x']}_{place['y']}"
        band = bands[place["band"] if order[0] == "band" else 0]
        words = [band.GetMetadataItem(f"BLOCK_{word}_{at}", "TIFF") for word in ("OFFSET", "SIZE")]
        return (int(words[0]), int(words[1])) if all(words) else f"no block {at}"


def ifd(array: str) -> int:
    """The number of the IFD that an image is named by; 0 for the first image and its overviews."""
    number = PAGE.fullmatch(array)
    return int(number[1]) if number else 0


def opened(source: str, directory: int = 0) -> Any:
    """GDAL's dataset of a TIFF, or of one IFD of it, by its tags alone, or the reason why there is none."""
    name = vsi.name(source)
    try:
        return gdal.OpenEx(
            f"GTIFF_DIR:{directory}:{name}" if directory else name,
            gdal.OF_RASTER,
            allowed_drivers=["GTiff"],
            sibling_files=[],
        )
    except RuntimeError as error:
        return " ".join(str(error).split())


def image(dataset: Any, array: str) -> list[Any] | str:
    """The bands of the image of a name: that of the dataset, or one of its overviews."""
    bands = [dataset.GetRasterBand(i + 1) for i in range(dataset.RasterCount)]
    number = re.fullmatch(r"overview_(\d+)", array)
    if number is None:
        return bands
    if int(number[1]) > bands[0].GetOverviewCount():
        return f"no overview {number[1]}"
    return [band.GetOverview(int(number[1]) - 1) for band in bands]


def axes(dataset: Any) -> tuple[str, ...]:
    """The axes of an image in the order of its bytes."""
    if dataset.RasterCount == 1:
        return ("y", "x")
    pixel = dataset.GetMetadataItem("INTERLEAVE", "IMAGE_STRUCTURE") == "PIXEL"
    return ("y", "x", "band") if pixel else ("band", "y", "x")


def centres(dataset: Any, axis: str) -> NDArray[np.float64]:
    """Coordinates of pixel centres along x or y, as GDAL's own axes have them."""
    array = dataset.AsMDArray()
    dims = {dim.GetName().lower(): dim for dim in array.GetDimensions()}
    return np.frombuffer(bytes(dims[axis].GetIndexingVariable().Read()), np.float64)
