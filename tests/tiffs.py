"""Writers of tiny TIFFs by GDAL, and values that tell codecs apart."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
import tifffile
from osgeo import gdal, gdal_array, osr

gdal.UseExceptions()

CORNER = (100.5, 0.25, 0.0, -30.0, 0.0, -0.5)
"""a GeoTransform"""


def ramp(shape: tuple[int, ...], dtype: str = "i2", seed: int = 0) -> np.ndarray:
    """Values that differ from each other as far as the type allows, some of them far apart."""
    kind = np.dtype(dtype)
    count = int(np.prod(shape))
    rng = np.random.default_rng(seed)
    if kind.kind in "iu":
        bounds = np.iinfo(kind)
        flat = rng.integers(bounds.min, bounds.max, count, kind, endpoint=True)
        flat[: count // 2] = (np.arange(count // 2) + seed) % 100
    else:
        flat = (rng.standard_normal(count) * 1e3).astype(kind)
        flat[: count // 2] = np.arange(count // 2) / 8
    return flat.reshape(shape)


def write(
    path: Path,
    values: np.ndarray,
    *,
    nodata: float | None = None,
    transform: tuple[float, ...] | None = None,
    epsg: int | None = None,
    keep: bool = True,
    **options: Any,
) -> Path:
    """A TIFF of GDAL's own making from (y, x) or (band, y, x); ``keep=False`` writes no pixel."""
    planes = values[None] if values.ndim == 2 else values
    count, height, width = planes.shape
    kind = gdal_array.NumericTypeCodeToGDALTypeCode(values.dtype)
    words = [f"{key}={value}" for key, value in options.items()]
    made = gdal.GetDriverByName("GTiff").Create(str(path), width, height, count, kind, words)
    if transform:
        made.SetGeoTransform(transform)
    if epsg:
        system = osr.SpatialReference()
        system.ImportFromEPSG(epsg)
        made.SetSpatialRef(system)
    if nodata is not None:
        made.GetRasterBand(1).SetNoDataValue(nodata)
    if keep:
        made.WriteArray(planes)
    made.Close()
    return path


def cog(path: Path, values: np.ndarray, **options: Any) -> Path:
    """A COG of GDAL's own making, with its ghost header and overviews."""
    source = write(path.with_suffix(".src.tif"), values, transform=CORNER, epsg=4326, nodata=-999)
    words = [f"{key}={value}" for key, value in {"BLOCKSIZE": 128, **options}.items()]
    gdal.GetDriverByName("COG").CreateCopy(str(path), gdal.Open(str(source)), options=words).Close()
    source.unlink()
    return path


def turn(path: Path) -> None:
    """Reverse the bits of every byte of the strips, and say so (FillOrder 2) in the place of another tag."""
    with tifffile.TiffFile(path) as made:
        page = made.pages[0]
        spots = list(zip(page.dataoffsets, page.databytecounts, strict=True))
        spare = page.tags[339].offset
        early = page.tags[262].offset
    whole = bytearray(path.read_bytes())
    for at, size in spots:
        whole[at : at + size] = bytes(int(f"{b:08b}"[::-1], 2) for b in whole[at : at + size])
    # SampleFormat (339) goes, and what stands between moves up: tags are sorted
    moved = whole[early + 12 : spare]
    whole[early + 12 : spare + 12] = struct.pack("<HHII", 266, 3, 1, 2) + moved
    path.write_bytes(whole)
