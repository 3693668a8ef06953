"""What a DMR++ sidecar holds itself: values of small arrays, strings, fills."""

from __future__ import annotations

import base64
import binascii
import math
import zlib
from typing import Any
from xml.etree.ElementTree import Element

import numpy as np
from numpy.typing import NDArray

from byterefs import literals
from byterefs.scanners._common import Unsupported
from byterefs.scanners._dmrpp_tree import Variable, integer

DIGITS = 6
"""what the sidecars' writer prints of a fill that is a float (C++'s default): it may have more"""
NETCDF_FILL = 9.9692099683868690e36
REBUILD = "build the sidecar again, or scan the data file itself (scan.format: auto)"


def held(variable: Variable, dtype: np.dtype[Any]) -> bytes | None:
    """The bytes of all elements where the sidecar itself holds them."""
    wanted = math.prod(variable.shape) * dtype.itemsize
    compact = variable.element.find("compact")
    missing = variable.element.find("missingdata")
    if compact is not None:
        raw = unbase64(compact.text)
    elif missing is not None:
        raw = unbase64(missing.text)
        if math.prod(variable.shape) != 1:
            raw = inflate(raw, wanted)
    else:
        return None
    if len(raw) != wanted:
        raise Unsupported(
            f"the sidecar holds {len(raw)} bytes of it, {list(variable.shape)} {dtype.str} has {wanted}",
            REBUILD,
        )
    return raw


def unbase64(text: str | None) -> bytes:
    """The bytes that base64 text stands for; Unsupported if it is none."""
    try:
        return base64.b64decode("".join((text or "").split()), validate=True)
    except (binascii.Error, ValueError) as error:
        raise Unsupported(f"its values in the sidecar are no base64 ({error})", REBUILD) from error


def inflate(raw: bytes, size: int) -> bytes:
    """At most one byte more than ``size`` bytes of a zlib stream; Unsupported if it is none."""
    try:
        return zlib.decompressobj().decompress(raw, size + 1)
    except zlib.error as error:
        raise Unsupported(
            f"its values in the sidecar are no zlib stream ({error})", REBUILD
        ) from error


def strings(variable: Variable) -> NDArray[np.bytes_]:
    """Strings of any length that the sidecar holds, as long as the longest; Unsupported if it holds none."""
    listed = variable.element.find("vlsa")
    compact = variable.element.find("compact")
    if listed is not None:
        raw = [text for v in listed.findall("v") for text in [_string(v)] * _repeats(v, variable)]
    elif compact is not None and not variable.shape:
        raw = [unbase64(compact.text)]
    else:
        raise Unsupported(
            "the sidecar gives neither the values nor the length of its strings", REBUILD
        )
    if len(raw) != math.prod(variable.shape):
        raise Unsupported(
            f"the sidecar holds {len(raw)} strings for the shape {list(variable.shape)}", REBUILD
        )
    return np.array(raw, f"S{max([1, *map(len, raw)])}").reshape(variable.shape)


def _repeats(v: Element, variable: Variable) -> int:
    """How often a string stands there; never more than the array has elements."""
    return min(integer(v.get("c", "1")), math.prod(variable.shape) + 1)


def _string(v: Element) -> bytes:
    """One string; with ``s``, its length, it is a zlib stream in base64."""
    if v.get("s") is None:
        return (v.text or "").encode()
    return inflate(unbase64(v.text), integer(v.get("s")))


def fill(variable: Variable, dtype: np.dtype[Any]) -> np.generic | None:
    """What a chunk that was never written reads as; None if the sidecar does not say, or not all digits."""
    storage = variable.storage
    text = None if storage is None else storage.get("fillValue")
    if text is None or dtype.kind == "V":
        return None
    try:
        if dtype.kind == "S":
            return _text_fill(text, dtype)
        if dtype.kind == "f":
            return _float_fill(text, dtype, variable)
        value: np.generic = np.array([int(text)], dtype)[0]
    except (ValueError, OverflowError):
        return None
    return value


def _text_fill(text: str, dtype: np.dtype[Any]) -> np.generic | None:
    raw = text.encode()
    known = text != "unsupported-string" and len(raw) <= dtype.itemsize
    value: np.generic = np.array([raw], dtype)[0]
    return value if known else None


def _float_fill(text: str, dtype: np.dtype[Any], variable: Variable) -> np.generic | None:
    """The number itself where it is short; else the attribute or netCDF's fill that prints like it."""
    digits = text.lower().partition("e")[0].replace(".", "").lstrip("-+0")
    value: np.generic = np.array([text]).astype(dtype)[0]
    if len(digits) != DIGITS or not np.isfinite(value):
        return value
    attrs, kinds = variable.attributes
    known = [
        literals.attr_value(attrs[name], dtype.str)
        for name in ("_FillValue", "missing_value")
        if kinds.get(name) == dtype.newbyteorder("<").str and not isinstance(attrs[name], list)
    ]
    known.append(np.array([NETCDF_FILL], dtype)[0])
    return next((k for k in known if float(f"{k:.{DIGITS}g}") == float(text)), None)
