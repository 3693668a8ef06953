"""The codec of a TIFF image: compression, predictor, sample width and byte order as numcodecs ids."""

from __future__ import annotations

import base64
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from byterefs.model import Key
from byterefs.scanners._common import Unsupported

PREDICTED = {5: "LZW", 8: "DEFLATE", 32946: "DEFLATE", 34925: "LZMA", 50000: "ZSTD"}
"""compressions that have a predictor, in GDAL's words"""
COMPRESSIONS = {
    1: "NONE",
    **PREDICTED,
    7: "JPEG",
    32773: "PACKBITS",
    34887: "LERC",
    50001: "WEBP",
}
REFUSED = {
    # imagecodecs 2026.10 gives zeros from row 235 on of libtiff's own testfax4.tiff, and no error
    2: "CCITT RLE",
    3: "CCITT fax 3",
    4: "CCITT fax 4",
    6: "JPEG of the old style",
    34712: "JPEG 2000",
    34934: "JPEG XR",
    50002: "JPEG XL",
    52546: "JPEG XL",
}
BYTES: dict[int, dict[str, Any]] = {
    5: {"id": "imagecodecs_lzw"},
    8: {"id": "zlib", "level": 6},
    32946: {"id": "zlib", "level": 6},
    32773: {"id": "imagecodecs_packbits"},
    34925: {"id": "lzma", "format": 1, "check": -1, "preset": None, "filters": None},
    50000: {"id": "zstd", "level": 9},
}
"""compressions of bytes; the level is of no consequence to a decoder and is not in the file"""
LERC_INNER: dict[int, dict[str, Any] | None] = {
    0: None,
    1: {"id": "zlib", "level": 6},
    2: {"id": "zstd", "level": 9},
}
WITHIN = "convert it with gdal_translate, or leave it out with source.pattern"
"""the way out for a file that is whole, and of a kind that cannot be referenced"""
AS_STORED = (0, 1, 2, 3, 4)
"""photometric interpretations whose samples GDAL reads as they are: grey, RGB, palette, mask"""
YCBCR = 6
COLOURS = {
    5: "CMYK",
    8: "CIE L*a*b*",
    9: "ICC L*a*b*",
    10: "ITU L*a*b*",
    32844: "CIE Log2",
    32845: "CIE Log2",
}


@dataclass(frozen=True, slots=True)
class Encoding:
    """What of an image's tags decides how its chunks decode."""

    compression: int
    predictor: int
    photometric: int
    samples: int
    """of one chunk: all of a chunky image, one of a planar one"""
    alpha: bool
    """whether the last sample is transparency"""
    dtype: str
    """of the samples, in the file's byte order"""
    chunks: Key
    """(rows, columns) or (rows, columns, samples) of a stored chunk"""
    tables: bytes | None = None
    """JPEG quantisation and Huffman tables that its chunks share"""
    lerc: int = 0
    """compression around LERC"""
    bits: int = 0
    """width of samples that are packed, most significant bit first and each row by itself; 0 of whole bytes"""
    reversed: bool = False
    """whether the bits of each stored byte are in reverse order (FillOrder 2)"""

    @property
    def row(self) -> int:
        """Bytes of a row of a chunk before it is compressed."""
        samples = self.chunks[1] * self.samples
        return (
            -(-samples * self.bits // 8) if self.bits else samples * np.dtype(self.dtype).itemsize
        )

    @property
    def predicted(self) -> int:
        """The predictor in effect: 1 (none), 2 (differences of integers) or 3 (of floats' bytes)."""
        return self.predictor if self.compression in PREDICTED else 1

    @property
    def stored(self) -> str:
        """The dtype that comes out of the codec, which is the file's but for bytes of floats that are sorted."""
        if self.predicted == 3:
            return np.dtype(self.dtype).newbyteorder("<").str
        return self.dtype


def codec(found: Encoding) -> dict[str, Any]:
    """The codec JSON of full chunks. Raises Unsupported for what no reader here decodes as GDAL does."""
    if found.compression not in COMPRESSIONS:
        name = REFUSED.get(found.compression, f"number {found.compression}")
        raise Unsupported(
            f"its compression is {name}, which no reader of references decodes", WITHIN
        )
    if found.photometric not in (*AS_STORED, YCBCR):
        raise Unsupported(
            f"its pixels are {COLOURS.get(found.photometric, 'of no known colour space')} (photometric "
            f"interpretation {found.photometric}), which GDAL converts to RGBA when it reads",
            WITHIN,
        )
    if found.photometric == YCBCR and found.compression not in (7, 50001):
        raise Unsupported(
            "its pixels are YCbCr, whose chroma is shared by neighbours, and not compressed as JPEG",
            WITHIN,
        )
    if found.reversed:
        return mirrored(found)
    if found.bits:
        return packed(found)
    if found.compression == 7:
        return {"compressor": jpeg(found), "filters": None}
    if found.compression == 50001:
        return {"compressor": webp(found), "filters": None}
    if found.compression == 34887:
        return lerc(found)
    predictor = difference(found)
    compressor = BYTES.get(found.compression)
    return {
        "compressor": dict(compressor) if compressor else None,
        "filters": [predictor] if predictor else None,
    }


def mirrored(found: Encoding) -> dict[str, Any]:
    """The codec of bytes whose bits are in reverse order; Unsupported where libtiff leaves them as they are."""
    if found.compression not in (*BYTES, 1) or found.compression == 34925:
        raise Unsupported(
            f"the bits of its bytes are in reverse order (FillOrder 2) around "
            f"{COMPRESSIONS[found.compression]}",
            WITHIN,
        )
    inner = codec(replace(found, reversed=False))
    before = [inner["compressor"]] if inner["compressor"] else []
    return {
        "compressor": {"id": "imagecodecs_bitorder"},
        "filters": [*(inner["filters"] or ()), *before] or None,
    }


def packed(found: Encoding) -> dict[str, Any]:
    """Samples of an odd number of bits as a numcodecs filter, and what compresses them."""
    if found.compression not in (*BYTES, 1) or found.predicted != 1:
        raise Unsupported(
            f"its samples have {found.bits} bits, and its {COMPRESSIONS[found.compression]} with predictor "
            f"{found.predicted} is not one of packed bits",
            WITHIN,
        )
    run = found.chunks[1] * found.samples
    first = {"dtype": found.dtype, "bitspersample": found.bits, "runlen": run}
    compressor = BYTES.get(found.compression)
    return {
        "compressor": dict(compressor) if compressor else None,
        "filters": [{"id": "imagecodecs_packints", **first}],
    }


def difference(found: Encoding) -> dict[str, Any] | None:
    """The predictor as a numcodecs filter; None without one.

    libtiff counts the bits of floats as integers (predictor 2), and sorts the bytes of floats most
    significant first whatever the file's byte order (predictor 3).
    """
    if found.predicted == 1:
        return None
    kind = np.dtype(found.dtype)
    axis = -2 if len(found.chunks) == 3 else -1
    shape = list(found.chunks)
    # libtiff 4.7 swaps a big-endian complex number as one integer of 8 bytes: real and imaginary parts too
    if found.predicted == 2 and kind.itemsize <= 8 and kind.str[:2] != ">c":
        # a byte order in a codec as the array has it: a big-endian file's differences are big-endian
        number = np.dtype(f"{kind.str[0]}u{kind.itemsize}").str
        return {"id": "imagecodecs_delta", "shape": shape, "dtype": number, "axis": axis, "dist": 1}
    if found.predicted == 3 and kind.kind == "f":
        return {
            "id": "imagecodecs_floatpred",
            "shape": shape,
            "dtype": found.stored,
            "axis": axis,
            "dist": 1,
        }
    raise Unsupported(f"its predictor is {found.predictor} on samples of {kind}", WITHIN)


def jpeg(found: Encoding) -> dict[str, Any]:
    """JPEG as a numcodecs compressor, with the tables that the file keeps apart."""
    if found.dtype[1:] != "u1":
        raise Unsupported(f"its JPEG has samples of {found.dtype}, not of 8 bits", WITHIN)
    space = {1: "GRAYSCALE", 3: "RGB"}.get(found.samples)
    if space is None or (found.photometric == YCBCR and space != "RGB"):
        raise Unsupported(f"its JPEG has {found.samples} samples a pixel", WITHIN)
    tables = {"tables": base64.b64encode(found.tables).decode()} if found.tables else {}
    source = "YCBCR" if found.photometric == YCBCR else space
    return {"id": "imagecodecs_jpeg", **tables, "colorspace_jpeg": source, "colorspace_data": space}


def webp(found: Encoding) -> dict[str, Any]:
    """WebP as a numcodecs compressor; of an image with alpha, opaque chunks are stored without it."""
    if found.dtype[1:] != "u1" or found.samples not in (3, 4):
        raise Unsupported(f"its WebP has {found.samples} samples of {found.dtype} a pixel", WITHIN)
    return {"id": "imagecodecs_webp", "hasalpha": found.samples == 4}


def lerc(found: Encoding) -> dict[str, Any]:
    """LERC, and what compresses it; floats under an id of our own, for their mask is their NaN."""
    if found.lerc not in LERC_INNER:
        raise Unsupported(f"its LERC is wrapped in compression {found.lerc}", WITHIN)
    if found.alpha:
        raise Unsupported("its LERC keeps the alpha sample as a mask", WITHIN)
    floats = np.dtype(found.dtype).kind == "f"
    if floats and found.dtype[0] == ">":
        # libtiff 4.7 gives LERC the swapped bytes, whose NaN are not those of the numbers
        raise Unsupported("its LERC holds floats in big-endian order", WITHIN)
    inner = LERC_INNER[found.lerc]
    first: dict[str, Any] = {"id": "tiff:lerc" if floats else "imagecodecs_lerc"}
    if inner is None:
        return {"compressor": first, "filters": None}
    return {"compressor": dict(inner), "filters": [first]}


def info(found: Encoding, planar: bool) -> str:
    """The encoding in GDAL's words: ``COMPRESSION=DEFLATE; PREDICTOR=2; INTERLEAVE=PIXEL; ENDIANNESS=BIG``."""
    words = ["DRIVER=GTiff"]
    name = COMPRESSIONS[found.compression]
    words += [f"COMPRESSION={name}"] if name != "NONE" else []
    words += [f"PREDICTOR={found.predicted}"] if found.predicted != 1 else []
    words += [f"NBITS={found.bits}"] if found.bits else []
    words.append(f"INTERLEAVE={'PIXEL' if found.samples > 1 and not planar else 'BAND'}")
    kind = np.dtype(found.stored)
    if kind.itemsize > 1:
        words.append(f"ENDIANNESS={'BIG' if kind.str[0] == '>' else 'LITTLE'}")
    return "; ".join(words)
