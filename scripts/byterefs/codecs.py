"""HDF5 and TIFF pipelines as codec JSON, and decoding.

A codec is ``{"compressor": config | None, "filters": [config, …] | None}``. Configs carry Zarr v2
(numcodecs) ids in pipeline order: what an encoder applies first stands first and the compressor
last; a decoder walks back. The last filter is the compressor if it is one. What numcodecs cannot
decode has an id ``hdf5:<name or number>`` with HDF5's ``cd_values``: such rows are valid, and a
form that serves numcodecs' readers refuses them by that prefix. TIFF's ids ``imagecodecs_…`` are
numcodecs' once ``imagecodecs.numcodecs.register_codecs()`` was called; what they cannot say is ``tiff:…``.
A GRIB message is ``gribberish``, as the Zarr codec of that package is called, or ``grib:eccodes``.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any

import numcodecs
import numpy as np
from numpy.typing import NDArray

from byterefs import grib, hdf5_filters
from byterefs.errors import ByteRefsError, DecoderError
from byterefs.model import Key

Config = Mapping[str, Any]
Filter = tuple[int, int, Sequence[int], bytes]
"""one entry of an HDF5 pipeline as h5py gives it: (id, flags, cd_values, name)"""

PLAIN: dict[str, Any] = {"compressor": None, "filters": None}
"""the codec of bytes as they are"""

FOREIGN = {
    5: "nbit",
    6: "scaleoffset",
    32000: "lzf",
    32008: "bitshuffle",
    32013: "zfp",
    32026: "blosc2",
}
COMPRESSORS = {"zlib", "zstd", "bz2", "blosc", "imagecodecs_szip", "imagecodecs_lz4h5"} | {
    f"hdf5:{name}" for name in FOREIGN.values() if name not in {"nbit", "scaleoffset"}
}
ENCODER_ONLY = {"level", "clevel", "cname", "shuffle", "blocksize", "name"}
"""keys of a config that no decoder needs: zlib, zstd, bz2 and blosc streams describe themselves"""

OF_HDF5 = {"zlib", "shuffle", "fletcher32", "imagecodecs_szip", "hdf5:nbit", "hdf5:scaleoffset"}
"""ids of the filters that the HDF5 library has"""
PLUGIN_NAMES = {"bz2": "bzip2", "imagecodecs_lz4h5": "lz4"}
GDAL_WORDS = {
    "shuffle": "SHUFFLE",
    "fletcher32": "FLETCHER32",
    "zstd": "ZSTD",
    "bz2": "BZIP2",
    "blosc": "BLOSC",
    "imagecodecs_lz4h5": "LZ4",
    "hdf5:nbit": "NBIT",
    "hdf5:scaleoffset": "SCALEOFFSET",
}
IMAGE = "imagecodecs_"
PREDICTORS = (f"{IMAGE}delta", f"{IMAGE}floatpred")
TIFF_REFUSALS = {
    "tiff:strips": "the last strip of a source holds only {last} of {rows} rows, and a Zarr chunk is whole",
    "tiff:lerc": "LERC keeps NaN in a mask, which its numcodecs codec leaves out",
}
GRIB = (grib.GRIBBERISH, grib.ECCODES)
"""ids of codecs whose bytes are a GRIB message"""
GDAL_COMPRESSIONS = {"zlib": "DEFLATE", "imagecodecs_szip": "SZIP"}
NEW_AXIS = "NEW_AXIS=0"
"""how ``info`` ends for an array whose first axis is in the name of its source only (scan.file_name)"""
BLOSC_NAMES = ("blosclz", "lz4", "lz4hc", "snappy", "zlib", "zstd")


def hdf5_codec(filters: Iterable[Filter], dtype: str) -> dict[str, Any]:
    """The codec JSON of a filter pipeline as the dataset creation property list orders it."""
    configs = [_config(f, np.dtype(dtype).itemsize) for f in filters]
    compressor = configs.pop() if configs and configs[-1]["id"] in COMPRESSORS else None
    return {"compressor": compressor, "filters": configs or None}


def _config(entry: Filter, itemsize: int) -> dict[str, Any]:
    number, _, cd, name = entry
    match number:
        case 1:
            return {"id": "zlib", "level": int(cd[0]) if cd else 6}
        case 2:
            return {"id": "shuffle", "elementsize": int(cd[0]) if cd else itemsize}
        case 3:
            return {"id": "fletcher32"}
        case 307:
            return {"id": "bz2", "level": int(cd[0]) if cd else 9}
        case 4 if len(cd) == 4:
            words = ("options_mask", "pixels_per_block", "bits_per_pixel", "pixels_per_scanline")
            known = dict(zip(words, map(int, cd), strict=True))
            return {"id": "imagecodecs_szip", **known, "header": True}
        case 32001:
            return _blosc(cd)
        case 32004:
            return {"id": "imagecodecs_lz4h5"}
        case 32015:
            return {"id": "zstd", "level": int(cd[0]) if cd else 3}
    return {
        "id": f"hdf5:{FOREIGN.get(number, number)}",
        "cd_values": [int(v) for v in cd],
        "name": name.decode("latin-1"),
    }


def _blosc(cd: Sequence[int]) -> dict[str, Any]:
    """The Blosc filter's cd_values are revision, version, typesize, bytes, level, shuffle, compressor."""
    level, shuffle, compressor = (*cd[4:7], *(5, 1, 0)[max(0, len(cd) - 4) :])
    cname = BLOSC_NAMES[compressor] if compressor < len(BLOSC_NAMES) else str(compressor)
    return {"id": "blosc", "cname": cname, "clevel": level, "shuffle": shuffle, "blocksize": 0}


def pipeline(codec: Mapping[str, Any]) -> list[Config]:
    """Filters and compressor of a codec as one list, in encoding order."""
    last = codec.get("compressor")
    return [*(codec.get("filters") or ()), *([last] if last else [])]


def decisive(codec: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What of a codec decides how its bytes decode, in encoding order; a level, say, does not."""
    return [_decisive(config) for config in pipeline(codec)]


def _decisive(config: Config) -> dict[str, Any]:
    # h5py's lzf stores its own version and the chunk's bytes there (h5py 3.16: 4, 261, 480)
    ignored = ENCODER_ONLY | ({"cd_values"} if config["id"] == "hdf5:lzf" else set())
    return {key: value for key, value in config.items() if key not in ignored}


def same(a: Mapping[str, Any], b: Mapping[str, Any]) -> bool:
    """Whether the bytes of ``a`` and ``b`` decode alike: equality of :func:`decisive`."""
    return decisive(a) == decisive(b)


def zarr3_refusal(codec: Mapping[str, Any]) -> str | None:
    """Why readers of Zarr v3 cannot decode this codec, as part of a sentence; None if they can.

    They have numcodecs and, for GRIB, the codec of the package gribberish.
    """
    if [config["id"] for config in pipeline(codec)] == [grib.GRIBBERISH]:
        return None
    return numcodecs_refusal(codec)


def numcodecs_refusal(codec: Mapping[str, Any]) -> str | None:
    """Why Zarr readers with numcodecs cannot decode this codec, as part of a sentence; None if they can."""
    tail: int | None = 0  # bytes beyond whole elements that reach a filter; None if that varies
    for config in pipeline(codec):
        if config["id"].startswith("hdf5:"):
            return f"the HDF5 filter {config['id'].removeprefix('hdf5:')} has no numcodecs codec"
        if config["id"] == grib.GRIBBERISH:
            return "a GRIB message has no numcodecs codec, only gribberish's for Zarr v3"
        if config["id"] == grib.ECCODES:
            return "only ecCodes decodes its GRIB messages as they are packed"
        if config["id"] in TIFF_REFUSALS:
            return TIFF_REFUSALS[config["id"]].format(**config)
        if config["id"] == "shuffle":
            if config["elementsize"] > 1 and (tail is None or tail % config["elementsize"]):
                return "it shuffles bytes that are no whole number of elements"
        else:
            tail = tail + 4 if config["id"] == "fletcher32" and tail is not None else None
    return None


def holding(codec: Mapping[str, Any]) -> str:
    """The forms that hold what numcodecs does not decode, for a sentence."""
    if not any(config["id"] in GRIB for config in pipeline(codec)):
        return "sqlite, vrt and parquet"
    return "sqlite and parquet" if zarr3_refusal(codec) else "sqlite, parquet and icechunk"


def codec_words(codec: Mapping[str, Any]) -> str:
    """The ids of a codec in encoding order, for a sentence."""
    return " -> ".join(str(config["id"]) for config in pipeline(codec)) or "none"


def hdf5_plugin_filters(codec: Mapping[str, Any]) -> list[str]:
    """Filters of an HDF5 pipeline that HDF5 itself lacks and loads as plugins, by name and sorted."""
    words = {config["id"] for config in pipeline(codec)} - OF_HDF5
    return sorted(PLUGIN_NAMES.get(word, word.removeprefix("hdf5:")) for word in words)


def decode(codec: Mapping[str, Any], data: bytes, dtype: str, chunks: Key) -> NDArray[Any]:
    """The full chunk of shape ``chunks`` and ``dtype`` that the stored bytes ``data`` hold.

    The array is read-only. The rows that a TIFF's last strip does not hold are zero. Raises
    ByteRefsError for a codec that has no decoder here, damaged bytes, a wrong Fletcher-32 checksum and
    a decoded length that is not the chunk's.
    """
    steps = pipeline(codec)
    wanted = math.prod(chunks) * np.dtype(dtype).itemsize
    lengths = {wanted}
    for config in reversed(steps):
        if config["id"] == "tiff:strips":
            lengths.add(wanted // config["rows"] * config["last"])
        else:
            data = _undo(config, data)
    if len(data) not in lengths:
        raise ByteRefsError(
            f"a chunk of {list(chunks)} {dtype} has {wanted} bytes, {len(data)} came out of "
            f"{info(codec, dtype) or 'uncompressed bytes'}: the byte range or the codec is wrong"
        )
    return np.frombuffer(data.ljust(wanted, b"\0"), dtype).reshape(chunks)


def _undo(config: Config, data: bytes) -> bytes:
    if config["id"] in GRIB:
        return grib.decode(config, data).tobytes()
    if config["id"] == "shuffle":
        return _unshuffle(data, config["elementsize"])
    own = hdf5_filters.DECODERS.get(config["id"])
    if config["id"].startswith("hdf5:") and own is None:
        raise DecoderError(
            f"no decoder for codec {dict(config)}: only the HDF5 library has it, with a plugin; read the array "
            "through the form vrt, or leave it out with scan.arrays"
        )
    try:
        if own is not None:
            return own(config["cd_values"], data)
        if config["id"] == "tiff:lerc":
            return _unlerc(data)
        if config["id"] == "blosc":
            _refuse_cut_blosc(data)
        return bytes(_decoder(config, len(data)).decode(data))
    except (zlib.error, EOFError, IndexError, OSError, RuntimeError, ValueError) as error:
        raise ByteRefsError(
            f"{len(data)} bytes are no {config['id']} stream ({error}): the byte range is wrong or "
            "the source has changed"
        ) from error


def _refuse_cut_blosc(data: bytes) -> None:
    """ValueError for a Blosc buffer shorter than its header says, which Blosc itself decodes to other values."""
    stored = int.from_bytes(data[12:16], "little")
    if len(data) < max(stored, 16):
        raise ValueError(f"its header says {stored} bytes")


def _decoder(config: Config, nbytes: int) -> Any:
    """The numcodecs codec of a config; a predictor for as many rows as ``nbytes`` are."""
    if config["id"].startswith(IMAGE):
        register_imagecodecs()
    if config["id"] in PREDICTORS:
        rest = config["shape"][1:]
        width = math.prod(rest) * np.dtype(config["dtype"]).itemsize
        config = {**config, "shape": [nbytes // width, *rest]}
    return numcodecs.get_codec(dict(config))


@cache
def register_imagecodecs() -> None:
    """Make the codecs of TIFF known to numcodecs; ImportError if imagecodecs is not installed."""
    from imagecodecs.numcodecs import register_codecs

    register_codecs(verbose=False)


def _unlerc(data: bytes) -> bytes:
    """LERC floats; those outside its mask are NaN, as libtiff has them."""
    import imagecodecs

    values, mask = imagecodecs.lerc_decode(data, masks=True)
    if mask is None:
        return bytes(values.tobytes())
    valid = np.broadcast_to(
        mask.reshape(mask.shape + (1,) * (values.ndim - mask.ndim)), values.shape
    )
    return bytes(np.where(valid, values, np.array(np.nan, values.dtype)).tobytes())


def _unshuffle(data: bytes, size: int) -> bytes:
    # numcodecs refuses a tail of less than one element, which HDF5 leaves in place (peers.md, B9)
    whole = len(data) // size * size
    if not whole:
        return data
    planes = np.frombuffer(data, np.uint8, whole).reshape(size, -1)
    return planes.T.tobytes() + data[whole:]


def info(codec: Mapping[str, Any], dtype: str) -> str:
    """The codec as GDAL's block-info words it: ``COMPRESSION=DEFLATE; FILTER=SHUFFLE; ENDIANNESS=LITTLE``.

    As in GDAL only the last compression is named, the order of compression and filters is lost, and
    one-byte types and text have no ENDIANNESS.
    """
    ids = [c["id"] for c in pipeline(codec)]
    compressions = [GDAL_COMPRESSIONS[i] for i in ids if i in GDAL_COMPRESSIONS]
    filters = [
        GDAL_WORDS.get(c["id"]) or c.get("name") or c["id"]
        for c in pipeline(codec)
        if c["id"] not in GDAL_COMPRESSIONS
    ]
    words = [f"COMPRESSION={compressions[-1]}"] if compressions else []
    words += [f"FILTER={','.join(filters)}"] if filters else []
    kind = np.dtype(dtype)
    if kind.kind in "iufc" and kind.itemsize > 1:
        words.append(f"ENDIANNESS={'BIG' if kind.str[0] == '>' else 'LITTLE'}")
    return "; ".join(words)
