"""What HDF5 says of a value, in numpy's and JSON's words: types, fills, attributes, whole arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
from h5py import Dataset, h5a, h5d, h5s, h5t
from numpy.typing import NDArray

from byterefs.codecs import attr_json
from byterefs.model import Key

BOOKKEEPING = {
    "CLASS",
    "NAME",
    "DIMENSION_LABELS",
    "DIMENSION_LIST",
    "REFERENCE_LIST",
    "_NCProperties",
    "_Netcdf4Coordinates",
    "_Netcdf4Dimid",
    "_nc3_strict",
}
"""attributes by which HDF5 and netCDF-4 keep dimensions; no CF reader wants them"""

CLASSES = {
    h5t.TIME: "a time type",
    h5t.BITFIELD: "a bit field",
    h5t.OPAQUE: "an opaque type",
    h5t.COMPOUND: "a compound type",
    h5t.REFERENCE: "a reference type",
    h5t.VLEN: "a variable-length type",
    h5t.ARRAY: "an array type",
}


class Unsupported(Exception):
    """Why an array cannot be recorded, as the middle of a sentence: "its type is …"."""


def text(raw: bytes) -> str:
    """An HDF5 name as text: UTF-8, or latin-1 where it is not."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw.decode("latin-1")


def is_text(tid: h5t.TypeID) -> bool:
    """Whether elements are variable-length strings: pointers into a heap, not bytes in place."""
    return tid.get_class() == h5t.STRING and bool(tid.is_variable_str())


def stored_dtype(tid: h5t.TypeID) -> np.dtype[Any]:
    """The numpy dtype of the stored bytes; an enumeration (and h5py's bool) is its integer type.

    Raises Unsupported where numpy has no type of the same bytes.
    """
    base = tid.get_super() if tid.get_class() == h5t.ENUM else tid
    kind = base.get_class()
    if kind == h5t.STRING and not base.is_variable_str():
        return np.dtype(f"S{base.get_size()}")
    if kind in CLASSES and kind != h5t.COMPOUND:
        raise Unsupported(f"its elements are {CLASSES[kind]}, which no published form holds")
    try:
        dtype: np.dtype[Any] = base.dtype
    except (TypeError, NotImplementedError, ValueError) as error:
        raise Unsupported(f"numpy has no type for its elements ({error})") from error
    if dtype.kind not in "iufc" or dtype.itemsize > (16 if dtype.kind == "c" else 8):
        raise Unsupported(
            f"its elements are {CLASSES.get(kind, dtype.str)}, which no published form holds"
        )
    if not base.equal(h5t.py_create(dtype)):
        raise Unsupported(
            f"its numbers use {base.get_size()} bytes in a way that {dtype.str} does not"
        )
    return dtype


def fill(dsid: h5d.DatasetID, dtype: np.dtype[Any]) -> np.generic | None:
    """What HDF5 gives for an element never written: the declared fill or 0; None if it is undefined."""
    dcpl = dsid.get_create_plist()
    if dcpl.fill_value_defined() == h5d.FILL_VALUE_UNDEFINED:
        return None
    value: NDArray[Any] = np.zeros((), dtype)
    if dcpl.fill_value_defined() == h5d.FILL_VALUE_USER_DEFINED:
        dcpl.get_fill_value(value)
    scalar: np.generic = np.atleast_1d(value)[0]
    return scalar


def values(dsid: h5d.DatasetID, dtype: np.dtype[Any], shape: Key) -> NDArray[Any]:
    """All elements as stored, in ``dtype``; what lies beyond HDF5's own extent is fill."""
    stored: NDArray[Any] = np.empty(dsid.shape, dtype)
    dsid.read(h5s.ALL, h5s.ALL, stored, mtype=dsid.get_type())
    if stored.shape == shape:
        return stored
    missing = fill(dsid, dtype)
    padded = np.full(shape, 0 if missing is None else missing, dtype)
    padded[tuple(slice(n) for n in stored.shape)] = stored
    return padded


def text_values(dsid: h5d.DatasetID, shape: Key) -> NDArray[Any]:
    """Variable-length strings as UTF-8 bytes of fixed length, as long as the longest."""
    found = np.asarray(Dataset(dsid)[()], object)
    raw = [x if isinstance(x, bytes) else str(x).encode() for x in found.ravel()]
    padded = np.zeros(shape, f"S{max([1, *map(len, raw)])}")
    padded[tuple(slice(n) for n in found.shape)] = np.array(raw, padded.dtype).reshape(found.shape)
    return padded


def attributes(owner: Any) -> tuple[dict[str, Any], dict[str, str]]:
    """The attributes of a group or dataset id as JSON values, and their dtypes.

    HDF5's and netCDF-4's bookkeeping is left out, and so is what is neither number nor text.
    """
    found: dict[str, Any] = {}
    dtypes: dict[str, str] = {}
    for i in range(h5a.get_num_attrs(owner)):
        attr = h5a.open(owner, index=i)
        name = text(attr.name)
        if name not in BOOKKEEPING and (value := _read(attr)) is not None:
            found[name], dtypes[name] = attr_json(value)
    return found, dtypes


def attribute(owner: Any, name: bytes) -> Any:
    """One attribute as numpy reads it, or None."""
    return _read(h5a.open(owner, name)) if h5a.exists(owner, name) else None


def _read(attr: h5a.AttrID) -> Any:
    tid = attr.get_type()
    kind = tid.get_class()
    if kind not in (h5t.INTEGER, h5t.FLOAT, h5t.STRING, h5t.ENUM):
        return None
    if attr.get_space().get_simple_extent_type() == h5s.NULL:
        return "" if kind == h5t.STRING else np.zeros(0, stored_dtype(tid))
    dtype = attr.dtype if is_text(tid) else stored_dtype(tid)
    value: NDArray[Any] = np.zeros(attr.shape, dtype)
    attr.read(value, mtype=h5t.py_create(dtype) if is_text(tid) else tid)
    return value
