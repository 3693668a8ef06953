"""What HDF5 says of a value, in numpy's and JSON's words: types, fills, whole arrays."""

from __future__ import annotations

import ctypes
import json
from functools import lru_cache
from typing import Any

import numpy as np
from h5py import Dataset, h5d, h5p, h5s, h5t
from numpy.typing import NDArray

from byterefs.model import Key
from byterefs.scanners._common import KEPT, Unsupported
from byterefs.scanners._hdf5_library import function

_fill_value = function("H5Pget_fill_value")

CLASSES = {
    h5t.TIME: "a time type",
    h5t.REFERENCE: "a reference type",
    h5t.VLEN: "a variable-length type",
}
STRUCTURED = (h5t.COMPOUND, h5t.OPAQUE, h5t.ARRAY)
"""classes whose elements are recorded as so many bytes each"""
LARGEST = 1 << 20
"""bytes of one element, of which tables name the dtype and write out the fill"""
FIELDS = "byterefs_fields"
"""attribute of an array of bytes: JSON of numpy's dtype (names, formats, offsets, itemsize) to view them with"""


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

    Elements of several fields, of several numbers or of no known meaning are bytes, ``|V12``. Raises
    Unsupported where numpy has no type of the same bytes, or where they point elsewhere.
    """
    return _dtype(tid.encode())


@lru_cache(1024)
def _dtype(encoded: bytes) -> np.dtype[Any]:
    tid = h5t.decode(encoded)
    base = tid.get_super() if tid.get_class() == h5t.ENUM else tid
    kind = base.get_class()
    if base.get_size() > LARGEST:
        raise Unsupported(
            f"each of its elements has {base.get_size()} bytes, more than the {LARGEST} of which one is recorded"
        )
    if kind == h5t.STRING and not base.is_variable_str():
        return np.dtype(f"S{base.get_size()}")
    if kind in CLASSES:
        raise Unsupported(f"its elements are {CLASSES[kind]}, which no published form holds")
    if kind in STRUCTURED and not is_complex(base):
        return np.dtype(f"V{size_in_place(base)}")
    try:
        dtype: np.dtype[Any] = base.dtype
    except (TypeError, NotImplementedError, ValueError) as error:
        raise Unsupported(f"numpy has no type for its elements ({error})") from error
    if dtype.kind not in "iufc" or dtype.itemsize > (16 if dtype.kind == "c" else 8):
        raise Unsupported(f"its elements are {dtype.str}, which no published form holds")
    if not every_bit(base, dtype):
        raise Unsupported(
            f"its numbers use {base.get_size()} bytes in a way that {dtype.str} does not"
        )
    return dtype


def every_bit(tid: h5t.TypeID, dtype: np.dtype[Any]) -> bool:
    """Whether a number's bytes are those of a dtype: bit fields are unsigned integers, one byte has no order."""
    kind = "B" if tid.get_class() == h5t.BITFIELD else dtype.kind.upper()
    if kind == "B" or (dtype.itemsize == 1 and kind in "IU"):
        orders = ("LE", "BE") if dtype.itemsize == 1 else ("BE" if dtype.str[0] == ">" else "LE",)
        names = (f"STD_{kind}{8 * dtype.itemsize}{order}" for order in orders)
        return any(tid.equal(getattr(h5t, name)) for name in names)
    return bool(tid.equal(h5t.py_create(dtype)))


def is_complex(tid: h5t.TypeID) -> bool:
    """Whether a compound is what h5py writes for a complex number."""
    return tid.get_class() == h5t.COMPOUND and numpy_type(tid).kind == "c"


def numpy_type(tid: h5t.TypeID) -> np.dtype[Any]:
    """The dtype that h5py has for a type; bytes where it has none."""
    try:
        found: np.dtype[Any] = tid.dtype
    except (TypeError, NotImplementedError, ValueError):
        return np.dtype(f"V{tid.get_size()}")
    return found


def size_in_place(tid: h5t.TypeID) -> int:
    """Bytes of an element; Unsupported if a part of it is a pointer into a heap, or to an object."""
    kind = tid.get_class()
    if kind in (h5t.VLEN, h5t.REFERENCE) or is_text(tid):
        what = CLASSES.get(kind, "a variable-length string")
        raise Unsupported(f"a part of its elements is {what}, which no published form holds")
    if kind == h5t.COMPOUND:
        for i in range(tid.get_nmembers()):
            size_in_place(tid.get_member_type(i))
    if kind == h5t.ARRAY:
        size_in_place(tid.get_super())
    return int(tid.get_size())


def fields(tid: h5t.TypeID) -> str | None:
    """JSON of the dtype with which elements that are recorded as bytes can be viewed; None of other arrays."""
    if tid.get_class() not in STRUCTURED or is_complex(tid):
        return None
    if tid.get_class() == h5t.OPAQUE:
        return None
    return json.dumps(described(numpy_type(tid)))


def described(dtype: np.dtype[Any]) -> Any:
    """A dtype as JSON: its ``str``, ``[dtype, shape]`` of several numbers, or a dict of its fields."""
    if dtype.subdtype:
        return [described(dtype.subdtype[0]), list(dtype.subdtype[1])]
    if dtype.names is None or dtype.fields is None:
        return dtype.str
    parts = [dtype.fields[name] for name in dtype.names]
    return {
        "names": list(dtype.names),
        "formats": [described(part[0]) for part in parts],
        "offsets": [int(part[1]) for part in parts],
        "itemsize": dtype.itemsize,
    }


def fill(tid: h5t.TypeID, dcpl: h5p.PropDCID, dtype: np.dtype[Any]) -> np.generic | None:
    """What HDF5 gives for an element never written: the declared fill or 0; None if it is undefined."""
    defined = dcpl.fill_value_defined()
    if defined == h5d.FILL_VALUE_UNDEFINED:
        return None
    raw = ctypes.create_string_buffer(dtype.itemsize)
    declared = defined == h5d.FILL_VALUE_USER_DEFINED
    # h5py 3.16 converts to its own string type, and refuses one that is not UTF-8 alike
    if declared and _fill_value(dcpl.id, tid.id, raw) < 0:
        raise Unsupported("HDF5 cannot convert its fill value to its type")
    scalar: np.generic = np.frombuffer(raw.raw, dtype)[0]
    return scalar


def values(
    dsid: h5d.DatasetID, dcpl: h5p.PropDCID, dtype: np.dtype[Any], shape: Key
) -> NDArray[Any]:
    """All elements as stored, in ``dtype``; fill where nothing was written or HDF5's extent ends."""
    missing = fill(dsid.get_type(), dcpl, dtype)
    out: NDArray[Any] = np.full(shape, 0 if missing is None else missing, dtype)
    if not dsid.get_storage_size():
        return out  # HDF5 refuses to read what has neither bytes nor a fill
    if dsid.shape == shape:
        # HDF5 leaves memory alone where a chunk is missing and its fill is undefined
        dsid.read(h5s.ALL, h5s.ALL, out, mtype=dsid.get_type())
        return out
    stored = values(dsid, dcpl, dtype, dsid.shape)
    out[tuple(slice(n) for n in stored.shape)] = stored
    return out


def text_values(dsid: h5d.DatasetID, shape: Key) -> NDArray[Any]:
    """Variable-length strings as UTF-8 bytes of fixed length, as long as the longest."""
    found = np.asarray(Dataset(dsid)[()], object)
    raw = [x if isinstance(x, bytes) else str(x).encode() for x in found.ravel()]
    longest = max([1, *map(len, raw)])
    if longest * len(raw) > KEPT:
        raise Unsupported(
            f"{len(raw)} strings, the longest of {longest} bytes, are too many to keep by value"
        )
    padded = np.zeros(shape, f"S{longest}")
    padded[tuple(slice(n) for n in found.shape)] = np.array(raw, padded.dtype).reshape(found.shape)
    return padded
