"""What Zarr metadata says of an array: values of inline ones, attributes, and fills in JSON.

Zarr v2 has one fill per array, which readers take both for a chunk that is absent and for CF's
``_FillValue``; Zarr v3 keeps the two apart.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

import numpy as np
from zarr.abc.codec import ArrayArrayCodec, ArrayBytesCodec, BytesBytesCodec, Codec
from zarr.dtype import parse_dtype
from zarr.errors import UnknownCodecError
from zarr.registry import get_codec_class

from byterefs import grib
from byterefs.codecs import (
    IMAGE,
    PREDICTORS,
    codec_words,
    holding,
    numcodecs_refusal,
    pipeline,
    zarr3_refusal,
)
from byterefs.errors import EmitError
from byterefs.literals import cf_fill, fill_text, fill_value
from byterefs.model import Array, Key

OF_ARRAY = ("id", "shape", "dtype")
"""keys of a numcodecs config that a codec of Zarr v3 takes from its array"""


def groups(names: Iterable[str]) -> list[str]:
    """The groups that paths lie in, outermost first; the root is not one of them.

    >>> groups(["sst", "a/b/c"])
    ['a', 'a/b']
    """
    parents = {
        "/".join(name.split("/")[:depth])
        for name in names
        for depth in range(1, len(name.split("/")))
    }
    return sorted(parents)


def storage_fill(array: Array) -> np.generic:
    """What an absent chunk reads as: the source's fill, or zero where it defines none (as HDF5 does)."""
    value = fill_value(array.fill, array.dtype)
    return zero(array) if value is None else value


def zero(array: Array) -> np.generic:
    """Zero in the array's dtype; an empty string for text."""
    scalar: np.generic = np.zeros(1, array.dtype)[0]
    return scalar


def attributes(array: Array) -> dict[str, Any]:
    """CF attributes but ``_FillValue``, as JSON: scalars unboxed, floats with all digits."""
    return {key: value for key, value in sorted(array.attrs.items()) if key != "_FillValue"}


def json_fill(value: np.generic, dtype: str) -> Any:
    """A fill value as Zarr v2 and v3 write it: number, ``"NaN"``, ``[real, imag]`` or base64 of bytes.

    Bytes are as many as ``dtype`` has: numpy's scalars drop trailing NULs.
    """
    if isinstance(value, bytes | np.void):
        return base64.b64encode(np.asarray(value, dtype).tobytes()).decode()
    if isinstance(value, np.complexfloating):
        return [json_fill(value.real, dtype), json_fill(value.imag, dtype)]
    if isinstance(value, np.floating):
        return float(value) if np.isfinite(value) else fill_text(value)
    return value.item()


def one_fill(array: Array, *, absent: bool) -> Any:
    """The Zarr v2 ``fill_value``: CF's ``_FillValue``, or null where the source has none.

    Raises EmitError if the array has absent chunks, which Zarr v2 reads as that same value, and the
    source fills them with another one.
    """
    wanted = cf_fill(array)
    stored = storage_fill(array)
    read = zero(array) if wanted is None else wanted
    if absent and (read.tobytes() != stored.tobytes() or _has_payload(stored)):
        raise EmitError(
            f"{array.array}: absent chunks of the sources read as {fill_text(stored)} but "
            f"{'there is no CF _FillValue' if wanted is None else f'_FillValue is {fill_text(wanted)}'}, "
            f"and Zarr v2 (kerchunk) has one fill for both; the forms sqlite, vrt, parquet and "
            f"icechunk keep the two apart: leave the array or the kerchunk form out"
        )
    return None if wanted is None else _plain_nan(wanted, array.dtype)


def _has_payload(value: np.generic) -> bool:
    return (fill_text(value) or "").startswith("0x")


def _plain_nan(value: np.generic, dtype: str) -> Any:
    return "NaN" if isinstance(value, np.floating) and np.isnan(value) else json_fill(value, dtype)


def xarray_fill(value: np.generic, dtype: str) -> Any:
    """A ``_FillValue`` attribute as xarray reads it in Zarr v3: floats are base64 of a ``<f8``."""
    if isinstance(value, np.complexfloating):
        return [xarray_fill(value.real, dtype), xarray_fill(value.imag, dtype)]
    if isinstance(value, np.floating):
        return base64.b64encode(struct.pack("<d", float(value))).decode()
    return json_fill(value, dtype)


def refuse_codec(array: Array, form: str) -> None:
    """Raise EmitError if readers of the form, which has Zarr metadata, cannot decode the array."""
    refusal = zarr3_refusal if form == "icechunk" else numcodecs_refusal
    reason = refusal(array.codec)
    if reason is not None:
        raise EmitError(
            f"{array.array}: codec {codec_words(array.codec)} cannot be read in the form {form}, since "
            f"{reason}; the forms {holding(array.codec)} can hold it: leave the array or the form out"
        )


def zarr3_group(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """``zarr.json`` of a group."""
    return {"zarr_format": 3, "node_type": "group", "attributes": dict(attributes)}


def zarr3_array(array: Array) -> dict[str, Any]:
    """``zarr.json`` of an array; an inline array is one chunk without a codec.

    Raises EmitError for a dtype or an order of codecs that Zarr v3 cannot express.
    """
    referenced = array.storage == "referenced"
    chunks = array.chunks if referenced else tuple(max(1, n) for n in array.shape)
    document = {
        "zarr_format": 3,
        "node_type": "array",
        "shape": list(array.shape),
        "data_type": zarr3_dtype(array),
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": list(chunks)}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "fill_value": json_fill(storage_fill(array), array.dtype),
        "codecs": zarr3_codecs(array) if referenced else [bytes_codec(array)],
        "attributes": attributes(array),
        "dimension_names": list(array.dims),
    }
    fill = cf_fill(array)
    # xarray 2026.9 raises on a _FillValue of fixed-length text
    if fill is not None and np.dtype(array.dtype).kind not in "SU":
        document["attributes"]["_FillValue"] = xarray_fill(fill, array.dtype)
    return document


def zarr3_dtype(array: Array) -> Any:
    """The Zarr v3 name of the array's dtype, without its byte order."""
    try:
        return parse_dtype(np.dtype(array.dtype), zarr_format=3).to_json(zarr_format=3)
    except (TypeError, ValueError) as error:
        raise EmitError(
            f"{array.array}: dtype {array.dtype} has no Zarr v3 data type ({error}); the forms sqlite, "
            f"vrt and parquet can hold it: leave the array or the form icechunk out"
        ) from error


def bytes_codec(array: Array) -> dict[str, Any]:
    """Zarr's ``bytes`` codec with the byte order of the stored bytes."""
    kind = np.dtype(array.dtype)
    if kind.itemsize == 1 or kind.kind not in "iufc":
        return {"name": "bytes"}
    return {
        "name": "bytes",
        "configuration": {"endian": "big" if kind.str[0] == ">" else "little"},
    }


def zarr3_codecs(array: Array) -> list[dict[str, Any]]:
    """The codec pipeline around the ``bytes`` codec, in encoding order: ``numcodecs.*``, of TIFF ``imagecodecs_*``.

    An image codec makes bytes of elements itself and takes the place of ``bytes``.
    """
    before: list[dict[str, Any]] = []
    middle = [bytes_codec(array)]
    after: list[dict[str, Any]] = []
    for config in pipeline(array.codec):
        codec = zarr3_codec(array, config)
        kind = zarr3_codec_class(array, codec["name"])
        made = bool(after) or middle != [bytes_codec(array)]
        if not issubclass(kind, BytesBytesCodec) and made:
            raise EmitError(
                f"{array.array}: codec {codec_words(array.codec)} filters elements after bytes, which "
                f"Zarr v3 has no order for; the forms sqlite, vrt and parquet can hold it: leave the "
                f"array or the form icechunk out"
            )
        if issubclass(kind, ArrayBytesCodec):
            refuse_numbers(array, config, array.dtype[0] != ">")
            middle = [codec]
        else:
            (before if issubclass(kind, ArrayArrayCodec) else after).append(codec)
    return [*before, *middle, *after]


def zarr3_codec(array: Array, config: Mapping[str, Any]) -> dict[str, Any]:
    """One codec as Zarr v3 names it; a predictor and packed bits take shape and dtype from the array."""
    name = str(config["id"])
    if name == grib.GRIBBERISH:
        # gribberish 1.9 asks for a name, and decodes coordinates for those of "latitude" and "longitude"
        return {"name": name, "configuration": {"var": "values"}}
    if not name.startswith(IMAGE):
        return {
            "name": f"numcodecs.{name}",
            "configuration": {k: v for k, v in config.items() if k != "id"},
        }
    register_zarr3()
    if name == f"{IMAGE}delta":
        refuse_numbers(array, config, array.dtype[1] in "iu")
    known = {k: v for k, v in config.items() if k not in OF_ARRAY and v is not None}
    return {"name": name, "configuration": known} if known else {"name": name}


def zarr2_codec(
    codec: Mapping[str, Any], dtype: np.dtype[Any], chunks: Key
) -> dict[str, Any] | None:
    """The inverse of :func:`zarr3_codec` for an array of ``dtype`` and ``chunks``; None for ``bytes``."""
    name, known = str(codec["name"]), dict(codec.get("configuration", {}))
    if name.startswith("numcodecs."):
        return {"id": name.removeprefix("numcodecs."), **known}
    if name == grib.GRIBBERISH:
        return {"id": name, "dtype": dtype.str}
    if not name.startswith(IMAGE):
        return None
    if name in PREDICTORS:
        number = f"{dtype.str[0]}u{dtype.itemsize}" if name == f"{IMAGE}delta" else dtype.str
        known |= {
            "shape": list(chunks[-3:] if known["axis"] == -2 else chunks[-2:]),
            "dtype": number,
        }
    if name == f"{IMAGE}packints":
        known["dtype"] = dtype.str
    return {"id": name, **known}


def refuse_numbers(array: Array, config: Mapping[str, Any], expressible: bool) -> None:
    """Refuse a codec that works on other numbers than the array's: other bits, or another byte order."""
    if not expressible:
        raise EmitError(
            f"{array.array}: codec {config['id']} of Zarr v3 cannot treat {array.dtype} as the integers that "
            f"the source encoded; the forms sqlite, vrt, parquet and kerchunk can hold it: leave the array "
            f"or the form icechunk out"
        )


@cache
def register_zarr3() -> None:
    """Make the codecs of TIFF known to Zarr v3; ImportError if imagecodecs is not installed."""
    from imagecodecs.zarr import register_codecs

    register_codecs(verbose=False)


def registering(arrays: Iterable[Array], module: str) -> list[str]:
    """The lines by which a reader makes the codecs of TIFF and GRIB known, where an array needs them."""
    ids = {str(c["id"]) for a in arrays if a.storage == "referenced" for c in pipeline(a.codec)}
    lines = ["import gribberish.zarr"] if grib.GRIBBERISH in ids else []
    if any(name.startswith(IMAGE) for name in ids):
        lines.append(f"import imagecodecs.{module}; imagecodecs.{module}.register_codecs()")
    return lines


def zarr3_codec_class(array: Array, name: str) -> type[Codec]:
    """Zarr's class of a codec; EmitError if it has none."""
    try:
        return get_codec_class(name)
    except (KeyError, UnknownCodecError) as error:
        raise EmitError(
            f"{array.array}: Zarr v3 knows no codec {name} of {codec_words(array.codec)}; the forms "
            f"sqlite, vrt and parquet can hold it: leave the array or the form icechunk out"
        ) from error
