"""TIFF and GRIB files of random options: valid, by tifffile, GDAL and ecCodes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import tifffile

import gribs
import tiffs
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
