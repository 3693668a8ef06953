"""A second GDAL, the one in the rasterio wheel (3.12, with the Zarr driver), by its C API.

    python tests/second_gdal.py DATASET ARRAY DTYPE OUT

writes the stored values of ARRAY of a multidimensional DATASET to OUT. A process of its own, since
two GDALs in one process would share their symbols.
"""

import ctypes
import sys
from pathlib import Path

import numpy as np
import rasterio

MULTIDIM, VERBOSE = 0x10, 0x40
GDAL_TYPES = {
    "u1": 1,
    "u2": 2,
    "i2": 3,
    "u4": 4,
    "i4": 5,
    "f4": 6,
    "f8": 7,
    "u8": 12,
    "i8": 13,
    "i1": 14,
}


def library() -> ctypes.CDLL:
    """libgdal as rasterio loaded it."""
    folder = Path(rasterio.__file__).parents[1] / "rasterio.libs"
    (path,) = folder.glob("libgdal*.so*")
    gdal = ctypes.CDLL(str(path))
    for name in (
        "GDALOpenEx",
        "GDALDatasetGetRootGroup",
        "GDALGroupOpenMDArrayFromFullname",
        "GDALExtendedDataTypeCreate",
    ):
        getattr(gdal, name).restype = ctypes.c_void_p
    gdal.GDALMDArrayGetDimensions.restype = ctypes.POINTER(ctypes.c_void_p)
    gdal.GDALDimensionGetSize.restype = ctypes.c_uint64
    gdal.GDALVersionInfo.restype = ctypes.c_char_p
    return gdal


def read(gdal: ctypes.CDLL, dataset: str, array: str, dtype: str) -> np.ndarray:
    """All stored values of an array in the given numpy dtype."""
    handle = gdal.GDALOpenEx(dataset.encode(), MULTIDIM | VERBOSE, None, None, None)
    if not handle:
        raise SystemExit(f"{dataset}: GDAL cannot open it")
    group = ctypes.c_void_p(gdal.GDALDatasetGetRootGroup(ctypes.c_void_p(handle)))
    found = gdal.GDALGroupOpenMDArrayFromFullname(group, f"/{array}".encode(), None)
    if not found:
        raise SystemExit(f"{dataset}: no array {array}")
    n = ctypes.c_size_t()
    dims = gdal.GDALMDArrayGetDimensions(ctypes.c_void_p(found), ctypes.byref(n))
    shape = [gdal.GDALDimensionGetSize(ctypes.c_void_p(dims[i])) for i in range(n.value)]
    out = np.empty(shape, dtype)
    kind = ctypes.c_void_p(gdal.GDALExtendedDataTypeCreate(GDAL_TYPES[out.dtype.str[1:]]))
    start, count = (ctypes.c_uint64 * n.value)(), (ctypes.c_size_t * n.value)(*shape)
    buffer = out.ctypes.data_as(ctypes.c_void_p)
    done = gdal.GDALMDArrayRead(
        ctypes.c_void_p(found),
        start,
        count,
        None,
        None,
        kind,
        buffer,
        buffer,
        ctypes.c_size_t(out.nbytes),
    )
    if not done:
        raise SystemExit(f"{dataset}: GDAL cannot read {array}")
    return out


def main(dataset: str, array: str, dtype: str, out: str) -> None:
    gdal = library()
    gdal.GDALAllRegister()
    np.save(out, read(gdal, dataset, array, dtype))
    print(gdal.GDALVersionInfo(b"RELEASE_NAME").decode())


if __name__ == "__main__":
    main(*sys.argv[1:])
