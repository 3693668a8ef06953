"""The HDF5 library that h5py has loaded, called directly where h5py has no function, or makes four objects for one number."""

from __future__ import annotations

import ctypes
from typing import Any

from h5py import h5p

_LIBRARY = ctypes.PyDLL(h5p.__file__)  # with the interpreter's lock held, as h5py holds it

Id = ctypes.c_int64
Size = ctypes.c_size_t
Address = ctypes.c_void_p

Visit = ctypes.CFUNCTYPE(
    ctypes.c_int, Address, ctypes.c_uint, ctypes.c_uint64, ctypes.c_uint64, Address
)
"""what H5Dchunk_iter calls for each chunk: start, filter mask, offset, stored bytes, nothing"""

FUNCTIONS: dict[str, tuple[Any, ...]] = {
    "H5Aopen": (Id, Id, ctypes.c_char_p, Id),
    "H5Aclose": (ctypes.c_int, Id),
    "H5Aget_type": (Id, Id),
    "H5Aget_space": (Id, Id),
    "H5Aget_storage_size": (ctypes.c_uint64, Id),
    "H5Aread": (ctypes.c_int, Id, Id, Address),
    "H5Dchunk_iter": (ctypes.c_int, Id, Id, Visit, Address),
    "H5Dget_chunk_index_type": (ctypes.c_int, Id, ctypes.POINTER(ctypes.c_int)),
    "H5Sclose": (ctypes.c_int, Id),
    "H5Sget_simple_extent_ndims": (ctypes.c_int, Id),
    "H5Tclose": (ctypes.c_int, Id),
    "H5Tencode": (ctypes.c_int, Id, Address, ctypes.POINTER(Size)),
    "H5Pget_chunk_opts": (ctypes.c_int, Id, ctypes.POINTER(ctypes.c_uint)),
    "H5Pget_fill_value": (ctypes.c_int, Id, Id, Address),
    "H5free_memory": (ctypes.c_int, Address),
}
"""name -> what it returns, then what it takes"""


def function(name: str) -> Any:
    """One function of the library; a negative id or number that it returns means that it failed."""
    found = getattr(_LIBRARY, name)
    found.restype, *found.argtypes = FUNCTIONS[name]
    return found
