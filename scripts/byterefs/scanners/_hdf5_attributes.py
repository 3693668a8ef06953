"""The attributes of HDF5 objects as JSON values, and those by which HDF5 and netCDF-4 keep dimensions."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from h5py import h5a, h5t
from h5py._objects import phil
from numpy.typing import NDArray

from byterefs.literals import attr_json
from byterefs.scanners._hdf5_library import Size, function
from byterefs.scanners._hdf5_types import is_text, text

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

KINDS = (h5t.INTEGER, h5t.FLOAT, h5t.STRING, h5t.ENUM)
"""classes of attributes that are numbers or text"""
POINTER = ctypes.sizeof(ctypes.c_void_p)
HEAP = 16
"""bytes of a file that lead to a text of any length, where its addresses have 8"""
ROOM = 65536
"""bytes: attributes up to this size are read without h5py"""
ENCODED = 128
"""bytes: types that HDF5 encodes in so many are known again"""

_open, _close = function("H5Aopen"), function("H5Aclose")
_type, _close_type = function("H5Aget_type"), function("H5Tclose")
_space, _close_space = function("H5Aget_space"), function("H5Sclose")
_rank, _stored = function("H5Sget_simple_extent_ndims"), function("H5Aget_storage_size")
_encode, _fetch, _free = function("H5Tencode"), function("H5Aread"), function("H5free_memory")


def names(owner: Any) -> list[bytes]:
    """The names of the attributes of a group or dataset id, as they are in the file."""
    found: list[bytes] = []
    h5a.iterate(owner, found.append)  # 37 attributes: 0.4 ms by name, 1.2 ms by index
    return found


def attributes(owner: Any, listed: list[bytes]) -> tuple[dict[str, Any], dict[str, str]]:
    """The attributes of these names as JSON values, and their dtypes.

    HDF5's and netCDF-4's bookkeeping is left out, and so is what is neither number nor text.
    """
    found: dict[str, Any] = {}
    dtypes: dict[str, str] = {}
    with phil:
        for raw in listed:
            name = text(raw)
            if name in BOOKKEEPING:
                continue
            value = _quick(owner.id, raw) or _slow(owner, raw)
            if value is not None:
                found[name], dtypes[name] = value
    return found, dtypes


def attribute(owner: Any, name: bytes) -> Any:
    """One attribute as a JSON value; None if it is neither number nor text."""
    with phil:
        found = _quick(owner.id, name) or _slow(owner, name)
    return None if found is None else found[0]


# --- without h5py: h5py makes and registers an object for each attribute, type and space -----------


@dataclass(frozen=True, slots=True)
class _Kind:
    """What a type's elements are."""

    stored: int
    """bytes of an element in the file"""
    size: int
    """bytes of an element as it is read"""
    dtype: str | None
    """None for text of any length"""


_RAW = ctypes.create_string_buffer(ROOM)
_ENCODED = ctypes.create_string_buffer(ENCODED)
"""memory that HDF5 writes into; whoever holds ``phil`` has it"""
_AT, _ENCODED_AT = ctypes.addressof(_RAW), ctypes.addressof(_ENCODED)
_LENGTH = Size()
_LENGTH_AT = ctypes.byref(_LENGTH)


def _quick(owner: int, name: bytes) -> tuple[Any, str] | None:
    """One attribute as JSON value and dtype; None for what h5py has to be asked for."""
    attr = _open(owner, name, 0)
    tid = _type(attr)
    ctypes.memset(_ENCODED_AT, 0, ENCODED)
    _LENGTH.value = ENCODED
    # a longer encoding is not written, and its length is
    whole = _encode(tid, _ENCODED_AT, _LENGTH_AT) >= 0 and _LENGTH.value == ENCODED
    kind = _kind(_ENCODED.raw) if whole else None
    found = _value(attr, tid, kind) if kind else None
    _close_type(tid)
    _close(attr)
    return found


@lru_cache(1024)
def _kind(encoded: bytes) -> _Kind | None:
    """The type that HDF5 encodes so; None for one whose elements need more than their bytes."""
    tid = h5t.decode(encoded)
    if is_text(tid):
        return _Kind(HEAP, POINTER, None)
    if tid.get_class() not in KINDS:
        return None
    if tid.get_class() == h5t.STRING:
        return _Kind(tid.get_size(), tid.get_size(), f"S{tid.get_size()}")
    base, dtype = _base(tid), _number_dtype(tid)
    if dtype is None or not base.equal(h5t.py_create(dtype)):
        return None
    return _Kind(dtype.itemsize, dtype.itemsize, dtype.str)


def _value(attr: int, tid: int, kind: _Kind) -> tuple[Any, str] | None:
    count, rest = divmod(_stored(attr), kind.stored)
    if not count or rest or count * kind.size > ROOM:
        return None
    if count > 1 and (kind.dtype is None or not _is_list(attr)):
        return None
    if _fetch(attr, tid, _AT) < 0:
        return None
    if kind.dtype is None:
        return _of_heap()
    return _parsed(kind.dtype, ctypes.string_at(_AT, count * kind.size))


def _is_list(attr: int) -> bool:
    space = _space(attr)
    rank = _rank(space)
    _close_space(space)
    return bool(rank == 1)


def _of_heap() -> tuple[Any, str]:
    where = ctypes.c_void_p.from_buffer(_RAW).value
    if where is None:
        return attr_json(b"")
    found = attr_json(ctypes.string_at(where))
    _free(where)
    return found


@lru_cache(8192)
def _parsed(dtype: str, raw: bytes) -> tuple[Any, str]:
    """The JSON value of some elements; most attributes are the same in every file of an archive."""
    return attr_json(np.frombuffer(raw, dtype))


# --- with h5py -------------------------------------------------------------------------------------


def _slow(owner: Any, name: bytes) -> tuple[Any, str] | None:
    value = _read(h5a.open(owner, name))
    return None if value is None else attr_json(value)


def _read(attr: h5a.AttrID) -> Any:
    tid, shape = attr.get_type(), attr.shape
    kind = tid.get_class()
    if kind not in KINDS:
        return None
    if is_text(tid):
        dtype, mtype = attr.dtype, h5t.py_create(attr.dtype)
    elif kind == h5t.STRING:
        dtype, mtype = np.dtype(f"S{tid.get_size()}"), tid
    else:
        dtype, mtype = _number_dtype(tid), None
        if dtype is None:
            return None
    if shape is None:  # a null dataspace
        return "" if kind == h5t.STRING else np.zeros(0, dtype)
    value: NDArray[Any] = np.zeros(shape, dtype)
    attr.read(value, mtype=tid if kind == h5t.ENUM else mtype)
    return value


def _base(tid: h5t.TypeID) -> h5t.TypeID:
    return tid.get_super() if tid.get_class() == h5t.ENUM else tid


def _number_dtype(tid: h5t.TypeID) -> np.dtype[Any] | None:
    """None where numpy has no such number: three bytes, say."""
    try:
        dtype: np.dtype[Any] = _base(tid).dtype
    except TypeError:
        return None
    return dtype
