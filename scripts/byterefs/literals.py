"""Fill values and attributes as the table holds them: text and JSON that give back the same bits."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from byterefs.model import Array, Key


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
    if not items:
        return items
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


def cf_fill(array: Array) -> np.generic | None:
    """The CF ``_FillValue`` in the array's dtype; None where the source has none that the dtype can hold.

    CF has one value: a list of several, text for numbers or numbers for text are none.
    """
    kind, raw = np.dtype(array.dtype), array.attrs.get("_FillValue")
    if raw is None or isinstance(raw, list) or kind.kind == "V":
        return None
    value = attr_value(raw, array.attr_dtypes.get("_FillValue", array.dtype))
    if isinstance(value, str) != (kind.kind == "S"):
        return None
    given = np.asarray(value.encode("latin-1") if isinstance(value, str) else value).reshape(-1)
    with np.errstate(invalid="ignore", over="ignore"):
        scalar: np.generic = given.astype(kind)[0]
    if kind.kind == "S":
        return scalar
    # ROMS has a float32 _FillValue of 1e37 on packed int16, which no stored value can equal and
    # which xarray 2026.9 cannot read: Zarr forms leave it out
    held = scalar == given[0] or (kind.kind in "fc" and bool(np.isnan(given[0])))
    return scalar if held else None
