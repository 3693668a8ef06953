"""HDF5 and TIFF pipelines as codec JSON, decoding, and values that survive as text.

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
from byterefs.errors import ByteRefsError
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
        raise ByteRefsError(f"no decoder for codec {dict(config)}: only the HDF5 library has it")
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


def fill_text(value: np.generic | None) -> str | None:
    """A fill value as text that :func:`fill_value` turns back into the same bits.

    Integers exactly, floats with as many digits as they need, ``NaN``, ``Infinity``, ``-Infinity``;
    a NaN with a payload or sign as its bits, ``0x7fc00001``, and so are elements that are bytes;
    byte strings as latin-1.
    """
    if value is None:
        return None
    if isinstance(value, np.void):
        return "0x" + value.tobytes().hex()
    if isinstance(value, bytes):
        return value.decode("latin-1")
    if isinstance(value, np.floating) and np.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    text = "NaN" if isinstance(value, np.floating) and np.isnan(value) else str(value)
    if _parse(text, value.dtype).tobytes() == value.tobytes():
        return text
    big = np.asarray(value).astype(value.dtype.newbyteorder(">"))
    return "0x" + big.tobytes().hex()


def fill_value(text: str | None, dtype: str) -> np.generic | None:
    """The fill value of :func:`fill_text` as a numpy scalar."""
    return None if text is None else _parse(text, np.dtype(dtype))


def _parse(text: str, dtype: np.dtype[Any]) -> np.generic:
    if dtype.kind == "S":
        return _scalar(text.encode("latin-1"), dtype)
    if dtype.kind == "V":
        return _scalar(np.frombuffer(bytes.fromhex(text.removeprefix("0x")), dtype)[0], dtype)
    if text.startswith("0x"):
        return _scalar(np.frombuffer(bytes.fromhex(text[2:]), dtype.newbyteorder(">"))[0], dtype)
    if dtype.kind in "iu":
        return _scalar(int(text), dtype)
    return _scalar(complex(text) if dtype.kind == "c" else dtype.type(text), dtype)


def _scalar(value: Any, dtype: np.dtype[Any]) -> np.generic:
    scalar: np.generic = np.array([value], dtype)[0]
    return scalar


def attr_json(value: Any) -> tuple[Any, str]:
    """An attribute as a JSON value, and its numpy dtype (``<f4``; text ``str``, or ``latin-1`` if not UTF-8).

    One-element arrays become scalars, as in netCDF; floats keep all digits, and what JSON has no
    number for becomes :func:`fill_text`. A list is one of text. Raises TypeError for what is neither
    number nor text.
    """
    # numpy's own text types drop trailing NULs
    array = np.asarray(value, object if isinstance(value, str | bytes | list) else None)
    if array.dtype.kind in "OSU":
        return _text_json(array)
    if array.dtype.kind == "b":
        array = array.astype("i1")
    if array.dtype.kind == "f" and array.dtype.itemsize > 8:
        return _wide_json(array)
    if array.dtype.kind not in "iuf":
        raise TypeError(f"an attribute of {array.dtype} is neither number nor text")
    items = [_number(x) for x in array.ravel()]
    return (items[0] if array.size == 1 else _nested(items, array.shape)), array.dtype.str


def _wide_json(array: NDArray[Any]) -> tuple[Any, str]:
    """Floats of more than eight bytes: doubles where those are the same numbers, else text of all digits."""
    narrow = array.astype("<f8")
    same = (narrow.astype(array.dtype) == array) | np.isnan(array)
    return attr_json(narrow) if same.all() else attr_json([str(x) for x in array.ravel()])


def _number(x: Any) -> Any:
    return x.item() if np.isfinite(x) else fill_text(x)


def _nested(items: list[Any], shape: Key) -> list[Any]:
    for n in reversed(shape[1:]):
        items = [items[i : i + n] for i in range(0, len(items), n)]
    return items


def _text_json(array: NDArray[Any]) -> tuple[Any, str]:
    raw = [
        x if isinstance(x, bytes) else str(x).encode("utf-8", "surrogateescape")
        for x in array.ravel()
    ]
    try:
        texts, kind = [x.decode() for x in raw], "str"
    except UnicodeDecodeError:
        texts, kind = [x.decode("latin-1") for x in raw], "latin-1"
    return (texts[0] if array.size == 1 else _nested(texts, array.shape)), kind


def attr_value(value: Any, dtype: str) -> Any:
    """The attribute of :func:`attr_json` as text, list of texts, numpy scalar or numpy array."""
    if dtype in {"str", "latin-1"}:
        return value
    if not isinstance(value, list):
        return _unnumber(value, dtype)
    shape = np.shape(np.array(value, object)) if value else (0,)
    flat = np.array(value, object).ravel()
    return np.array([_unnumber(x, dtype) for x in flat], dtype).reshape(shape)


def _unnumber(x: Any, dtype: str) -> np.generic:
    return _parse(x, np.dtype(dtype)) if isinstance(x, str) else _scalar(x, np.dtype(dtype))


def same_number(cf: Any, value: np.generic) -> bool:
    """Whether an attribute is exactly the number ``value`` (NaN equals NaN)."""
    if cf is None or isinstance(cf, list):
        return False
    number = plain_number(cf)
    return bool(number == value.item() or (number != number and value.item() != value.item()))


def plain_number(value: Any) -> Any:
    """A number of an attribute without the bits that only a NaN has: ``0x7fc00001`` is NaN; text stays text."""
    if not isinstance(value, str):
        return value
    try:
        return float("nan") if value.startswith("0x") else float(value)
    except ValueError:
        return value
