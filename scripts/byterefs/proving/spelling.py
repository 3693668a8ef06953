"""How forms spell paths, fills and attributes, and when two spellings are the same value."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from byterefs import urls
from byterefs.literals import attr_value
from byterefs.model import Array

SPELLED: Mapping[str, Callable[[str], str]] = {
    "kerchunk": urls.to_fsspec,
    "vrt": urls.to_gdal,
    "icechunk": urls.to_icechunk,
}
"""form -> how its reader gives a published path; the others give it verbatim"""


@lru_cache(maxsize=2**17)
def spelled(form: str, path: str) -> str:
    """A published path as ``form`` writes it."""
    return SPELLED.get(form, str)(path)


def same_bits(
    what: str, published: Any, expected: Any, array: Array
) -> Iterator[tuple[str, Any, Any]]:
    """A difference unless both are the same value of the array's dtype; None equals None only."""
    if (published is None) != (expected is None):
        yield what, published, expected
    elif published is not None:
        one, two = (as_dtype(v, array.dtype) for v in (published, expected))
        if one.tobytes() != two.tobytes() and not (plain_nan(one) and plain_nan(two)):
            yield what, one[0], two[0]


def plain_nan(value: NDArray[Any]) -> bool:
    """Whether a value is a NaN; JSON has one NaN only, so its payload is not compared."""
    return value.dtype.kind == "f" and bool(np.isnan(value).all())


def as_dtype(value: Any, dtype: str) -> NDArray[Any]:
    """A fill or attribute, however it is spelled, as a flat array of ``dtype``."""
    kind = np.dtype(dtype)
    if kind.kind == "c" and isinstance(value, list):
        return np.array([complex(*(float(one(x, np.dtype("f8"))) for x in value))], kind)
    items = np.ravel(np.asarray(value, object)).tolist()
    return np.array([one(item, kind) for item in items], kind)


def one(item: Any, kind: np.dtype[Any]) -> Any:
    """One number or text: ``"NaN"``, base64 of bytes (Zarr) or of a double (xarray) as what they mean."""
    if kind.kind == "S":
        return text_bytes(item, kind)
    if kind.kind == "V" and isinstance(item, str):
        raw = base64.b64decode(item) if not item.startswith("0x") else bytes.fromhex(item[2:])
        return np.frombuffer(raw, kind)[0]
    if isinstance(item, np.void):
        return item
    if isinstance(item, bytes):
        return np.frombuffer(item, kind)[0] if len(item) == kind.itemsize else item
    if isinstance(item, str) and kind.kind in "fc" and is_double(item):
        return np.frombuffer(base64.b64decode(item), "<f8")[0].astype(kind)
    return attr_value(item, kind.str) if isinstance(item, str) else kind.type(item)


def is_double(text: str) -> bool:
    """Whether a text is the base64 of eight bytes."""
    try:
        return len(text) == 12 and len(base64.b64decode(text, validate=True)) == 8
    except binascii.Error:
        return False


def text_bytes(item: Any, kind: np.dtype[Any]) -> bytes:
    """A fixed-length text as bytes: as it is, latin-1, or base64 as Zarr v2 writes it."""
    if isinstance(item, bytes):
        return item
    text = str(item)
    if len(text) == -(-kind.itemsize // 3) * 4:
        try:
            raw = base64.b64decode(text, validate=True)
        except binascii.Error:
            raw = b""
        if len(raw) == kind.itemsize:
            return raw
    return text.encode("latin-1")


def same_attribute(published: Any, expected: Any, dtype: str, own: str) -> bool:
    """Whether two spellings of an attribute are the same value of its dtype."""
    if dtype in ("str", "latin-1"):
        return [str(x) for x in np.ravel(np.asarray(published, object))] == [
            str(x) for x in np.ravel(np.asarray(expected, object))
        ]
    try:
        one_, two = as_dtype(published, dtype), as_dtype(expected, dtype)
    except (TypeError, ValueError, OverflowError):
        return False
    return one_.tobytes() == two.tobytes() or (
        one_.shape == two.shape and plain_nan(one_) and plain_nan(two)
    )
