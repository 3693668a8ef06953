"""TIFF and GRIB files of random options: valid, by tifffile, GDAL and ecCodes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import tifffile
from osgeo import gdal, gdal_array, osr

import gribs
import tiffs
from byterefs.grib import eccodes
from strange_hdf5 import Random, numbers, pick


def by_tifffile(path: Path, rng: Random) -> None:
    """One or two images by tifffile: every compression, predictor, planar layout, byte order and bit depth."""
    dtype = np.dtype(
        pick(rng, ["u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8", "f2", "f4", "f8", "c8"])
    )
    height, width = int(rng.integers(1, 70)), int(rng.integers(1, 70))
    samples = int(pick(rng, [1, 1, 1, 2, 3, 4]))
    planar = pick(rng, ["contig", "separate"])
    shape: tuple[int, ...] = (height, width)
    if samples > 1:
        shape = (samples, *shape) if planar == "separate" else (*shape, samples)
    compression = pick(
        rng,
        [
            None,
            None,
            "zlib",
            "lzw",
            "zstd",
            "packbits",
            "lzma",
            "lerc",
            "jpeg",
            "webp",
            "png",
            "jpeg2000",
            "jpegxl",
        ],
    )
    options: dict[str, Any] = {
        "byteorder": pick(rng, "<>"),
        "bigtiff": bool(rng.random() < 0.3),
        "compression": compression,
        "photometric": pick(rng, ["minisblack", "miniswhite", "rgb"])
        if samples == 3
        else pick(rng, ["minisblack", "minisblack", "miniswhite"]),
        "metadata": None,
    }
    if compression in ("zlib", "lzw", "zstd", "lzma") and rng.random() < 0.7 and dtype.kind != "c":
        options["predictor"] = pick(rng, [True, 2, 3]) if dtype.kind == "f" else True
    if samples > 1:
        options["planarconfig"] = planar
    if rng.random() < 0.5:
        options["tile"] = (int(pick(rng, [16, 32])), int(pick(rng, [16, 48])))
    else:
        options["rowsperstrip"] = int(rng.integers(1, height + 3))
    pages = int(pick(rng, [1, 1, 2]))
    values = [numbers(rng, shape, dtype) for _ in range(pages)]
    with tifffile.TiffWriter(
        path, byteorder=options.pop("byteorder"), bigtiff=options.pop("bigtiff")
    ) as out:
        for page in values:
            if rng.random() < 0.2:
                options["extratags"] = [
                    (42113, "s", 0, str(pick(rng, ["nan", "-9999", "0", "x", "1e400"])), True)
                ]
            out.write(page, **options)


def by_gdal(path: Path, rng: Random) -> None:
    """A GeoTIFF by GDAL: sparse, tiled or in strips, odd bit depths, nodata of every kind, COGs."""
    dtype = np.dtype(pick(rng, ["u1", "i1", "u2", "i2", "u4", "i4", "f4", "f8", "c8"]))
    bands, height, width = (
        int(pick(rng, [1, 1, 2, 3])),
        int(rng.integers(1, 90)),
        int(rng.integers(1, 90)),
    )
    values = numbers(rng, (bands, height, width), dtype)
    compress = pick(
        rng, ["NONE", "LZW", "DEFLATE", "ZSTD", "PACKBITS", "LERC", "LERC_ZSTD", "LZMA"]
    )
    options: dict[str, Any] = {"COMPRESS": compress, "INTERLEAVE": pick(rng, ["PIXEL", "BAND"])}
    if compress in ("LZW", "DEFLATE", "ZSTD") and dtype.kind != "c":
        options["PREDICTOR"] = pick(rng, [1, 2, 3] if dtype.kind == "f" else [1, 2])
    if rng.random() < 0.5:
        options |= {"TILED": "YES", "BLOCKXSIZE": int(pick(rng, [16, 64])), "BLOCKYSIZE": 16}
    else:
        options["BLOCKYSIZE"] = int(rng.integers(1, height + 1))
    if dtype.kind == "u" and rng.random() < 0.2:
        options |= {"NBITS": {1: 4, 2: 12, 4: 20}[dtype.itemsize]}
        values = values & dtype.type((1 << options["NBITS"]) - 1)
        options.pop("PREDICTOR", None)
    options |= {"ENDIANNESS": pick(rng, ["LITTLE", "BIG"]), "BIGTIFF": pick(rng, ["YES", "NO"])}
    sparse = rng.random() < 0.2
    if sparse:
        options["SPARSE_OK"] = "TRUE"
    nodata = pick(rng, [None, None, -999, 0, float("nan"), 255])
    place = tiffs.CORNER if rng.random() < 0.5 else None
    tiffs.write(
        path,
        values,
        nodata=nodata,
        transform=place,
        epsg=pick(rng, [None, 4326, 3857]),
        keep=not sparse,
        **options,
    )


def grib(path: Path, rng: Random) -> None:
    """A few messages by ecCodes: editions, packings, missing values, steps and levels, junk between them."""
    samples = {
        "regular_ll_pl_grib2": True,
        "regular_ll_sfc_grib2": True,
        "regular_ll_pl_grib1": False,
        "regular_ll_sfc_grib1": False,
    }
    sample = pick(rng, list(samples))
    two = samples[sample]
    packings = ["grid_simple", "grid_second_order"] + (
        ["grid_ccsds", "grid_complex", "grid_complex_spatial_differencing", "grid_ieee"]
        if two
        else []
    )
    parts = []
    for step in range(int(rng.integers(1, 4))):
        for level in (500, 850)[: int(rng.integers(1, 3))]:
            values = gribs.ramp(int(rng.integers(50)))
            if rng.random() < 0.3:
                values = np.where(rng.random(values.shape) < 0.3, np.nan, values)
            if rng.random() < 0.1:
                values = np.full_like(values, 5.0)
            keys: dict[str, Any] = {"shortName": pick(rng, ["t", "u", "2t"]), "step": step * 6}
            if "pl" in sample:
                keys |= {"shortName": pick(rng, ["t", "u"]), "level": level}
            keys["bitsPerValue"] = int(pick(rng, [1, 8, 12, 16, 24]))
            if rng.random() < 0.5:
                keys["packingType"] = pick(rng, packings)
            if rng.random() < 0.2:
                keys["jScansPositively"] = 1
            try:
                parts.append(gribs.message(values, keys, sample))
            except Exception:
                parts.append(
                    gribs.message(gribs.ramp(step), {"shortName": "t", "step": step}, sample)
                )
            if rng.random() < 0.15:
                parts.append(pick(rng, [b"\0" * 37, b"junk", parts[-1]]))
    path.write_bytes(b"".join(parts))


def by_cog(path: Path, rng: Random) -> None:
    """What else GDAL writes: COGs and overviews, masks, alpha, odd bits and CCITT, JPEG and WebP, scales, GCPs, rotation."""
    kind = pick(rng, ["u1", "u1", "u2", "i2", "f4"])
    bands = int(pick(rng, [1, 1, 3, 4]))
    height, width = int(rng.integers(1, 150)), int(rng.integers(1, 150))
    values = numbers(rng, (bands, height, width), np.dtype(kind))
    if kind in ("u1", "u2"):
        values = values & np.dtype(kind).type((1 << int(pick(rng, [1, 2, 4, 8, 8]))) - 1)
    with memory(values) as made:
        dressed(made, rng)
        lossy = ["JPEG", *(["WEBP"] if bands > 1 else [])] if kind == "u1" else []
        options = {"COMPRESS": pick(rng, ["NONE", "LZW", "DEFLATE", "ZSTD", "LERC", *lossy])}
        driver = pick(rng, ["COG", "GTiff", "GTiff"])
        if driver == "COG":
            more = {"BLOCKSIZE": 128, "PREDICTOR": pick(rng, ["YES", "NO", "STANDARD"])}
            options |= more | {"OVERVIEWS": pick(rng, ["AUTO", "NONE"])}
        else:
            options |= odd(rng, kind, bands, options["COMPRESS"])
        inside = {"GDAL_TIFF_INTERNAL_MASK": "YES", "GDAL_PAM_ENABLED": "NO"}
        with gdal.config_options(inside):
            said = [f"{k}={v}" for k, v in options.items()]
            gdal.GetDriverByName(driver).CreateCopy(str(path), made, options=said).Close()
            if driver == "GTiff" and rng.random() < 0.3:
                with gdal.OpenEx(str(path), gdal.OF_UPDATE) as again:
                    again.BuildOverviews("NEAREST", [2, 4])


def memory(values: np.ndarray) -> Any:
    """A dataset in memory of (bands, height, width)."""
    bands, height, width = values.shape
    code = gdal_array.NumericTypeCodeToGDALTypeCode(values.dtype.type)
    made = gdal.GetDriverByName("MEM").Create("", width, height, bands, code)
    made.WriteArray(values)
    return made


def odd(rng: Random, kind: str, bands: int, compress: str) -> dict[str, Any]:
    """Options of GTiff that few files have."""
    found: dict[str, Any] = {"INTERLEAVE": pick(rng, ["PIXEL", "BAND"])}
    if kind == "u1" and rng.random() < 0.4:
        found["NBITS"] = int(pick(rng, [1, 2, 3, 5, 7]))
        if found["NBITS"] == 1 and bands == 1 and rng.random() < 0.6:
            found["COMPRESS"] = pick(rng, ["CCITTRLE", "CCITTFAX3", "CCITTFAX4"])
    elif kind == "u2" and rng.random() < 0.4:
        found["NBITS"] = int(pick(rng, [9, 10, 12, 14, 15]))
    elif kind in ("i2", "f4") and compress in ("LZW", "ZSTD"):
        found["PREDICTOR"] = 2
    if "NBITS" not in found:
        found |= {"ALPHA": pick(rng, ["YES", "NO"])} if bands == 4 else {}
        found["PHOTOMETRIC"] = pick(rng, ["MINISBLACK", "MINISWHITE"]) if bands == 1 else "RGB"
    return found | {
        "BLOCKYSIZE": int(rng.integers(1, 80)),
        "PROFILE": pick(rng, ["GDALGeoTIFF", "GeoTIFF"]),
    }


def system(code: int) -> Any:
    """A CRS by its EPSG code."""
    found = osr.SpatialReference()
    found.ImportFromEPSG(code)
    return found


def dressed(made: Any, rng: Random) -> None:
    """Give a dataset a place, scales, names, nodata, items and a mask, each or none."""
    if rng.random() < 0.7:
        turn = float(pick(rng, [0.0, 0.0, 0.0, 0.125]))
        made.SetGeoTransform((100.5, 0.25, turn, -30.0, turn, float(pick(rng, [-0.5, 0.5]))))
        made.SetSpatialRef(system(int(pick(rng, [4326, 3857, 32755, 3031]))))
    elif rng.random() < 0.5:
        points = [
            gdal.GCP(float(x), float(y), 0, x, y) for x, y in ((0, 0), (5, 1), (2, 7), (9, 9))
        ]
        made.SetGCPs(points, system(4326).ExportToWkt())
    if rng.random() < 0.3:
        axes = ("LINE", "SAMP", "LAT", "LONG", "HEIGHT")
        terms = [f"{a}_{b}_COEFF" for a in axes[:2] for b in ("NUM", "DEN")]
        known = {f"{axis}_{word}": "1.5" for axis in axes for word in ("OFF", "SCALE")}
        made.SetMetadata(known | dict.fromkeys(terms, " ".join(["0.25"] * 20)), "RPC")
    for i in range(made.RasterCount):
        band = made.GetRasterBand(i + 1)
        if rng.random() < 0.2:
            band.SetScale(0.5 if rng.random() < 0.8 else 0.5 + i)
            band.SetOffset(-7.25)
        if rng.random() < 0.3:
            band.SetDescription(str(pick(rng, ["b", "é ☃", "<&>"])))
            band.SetMetadataItem("wavelength", str(i))
            band.SetUnitType("m")
    if rng.random() < 0.3:
        made.GetRasterBand(1).SetNoDataValue(float(pick(rng, [0, 3, 255])))
    elif rng.random() < 0.4:
        made.CreateMaskBand(gdal.GMF_PER_DATASET)
        seen = (rng.random((made.RasterYSize, made.RasterXSize)) < 0.5).astype("u1") * 255
        made.GetRasterBand(1).GetMaskBand().WriteArray(seen)


GRIDS = {
    "regular_gg_pl_grib": ("grid_simple", "grid_second_order", "grid_ieee"),
    "reduced_gg_pl_32_grib": ("grid_simple", "grid_ieee"),
    "rotated_ll_pl_grib": ("grid_simple", "grid_second_order"),
    "polar_stereographic_pl_grib": ("grid_simple",),
    "sh_pl_grib": (),
    "regular_ll_pl_grib": (
        "grid_simple",
        "grid_jpeg",
        "grid_png",
        "grid_ccsds",
        "grid_second_order",
    ),
}
"""samples of ecCodes in both editions, and the packings that are tried on them"""


def grids(path: Path, rng: Random) -> None:
    """GRIB on other grids: Gaussian, reduced, rotated, polar, spectral, each with bitmaps, constants and packings."""
    name = str(pick(rng, list(GRIDS))) + str(pick(rng, [1, 2]))
    ec = eccodes()
    parts = []
    for step in range(int(rng.integers(1, 4))):
        handle = ec.codes_grib_new_from_samples(name)
        count = ec.codes_get_size(handle, "values")
        values = rng.normal(250, 20, count).round(2)
        if rng.random() < 0.15:
            values[:] = 273.25
        if rng.random() < 0.3 and not name.startswith("sh"):
            ec.codes_set(handle, "bitmapPresent", 1)
            values[rng.random(count) < 0.3] = ec.codes_get(handle, "missingValue", float)
        ec.codes_set(handle, "step", step * 6)
        ec.codes_set(handle, "bitsPerValue", int(pick(rng, [1, 7, 12, 16, 24])))
        ec.codes_set_values(handle, values)
        packings = GRIDS[name[:-1]]
        if packings and rng.random() < 0.6:
            ec.codes_set(handle, "packingType", str(pick(rng, packings)))
        parts.append(bytes(ec.codes_get_message(handle)))
        ec.codes_release(handle)
    path.write_bytes(b"".join(parts))
