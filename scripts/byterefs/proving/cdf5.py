"""CDF-5 as netCDF4 reads it: GDAL's wheel is built without it, and h5py reads HDF5 alone."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from byterefs.access import ranges
from byterefs.errors import RangeError
from byterefs.proving.slab import Slab
from byterefs.urls import is_local, to_path

MAGIC = b"CDF\x05"


@lru_cache(maxsize=1024)
def is_one(source: str) -> bool:
    """Whether a source on this machine begins as CDF-5 does; netCDF4 reads no ranges of one elsewhere."""
    if not is_local(source):
        return False
    try:
        with ranges.opened(source) as found:
            return found.size >= len(MAGIC) and found.read(0, len(MAGIC)) == MAGIC
    except RangeError:
        return False


def read(slab: Slab) -> NDArray[Any] | str:
    """Stored values of a slab in native byte order, or the reason why there are none."""
    try:
        with opened(slab.source) as nc:
            if slab.array not in nc.variables:
                return f"no array {slab.array!r}"
            values = np.asarray(nc[slab.array][slab.of_rank(nc[slab.array].ndim).window])
    except (OSError, IndexError, RuntimeError) as error:
        return " ".join(str(error).split())
    if values.dtype.newbyteorder("=") != slab.dtype:
        return f"dtype {values.dtype.str}, not {slab.dtype.str}"
    return np.ascontiguousarray(values.astype(slab.dtype)).reshape(tuple(slab.count))


def exists(source: str, array: str) -> bool:
    """Whether a source has an array of this name."""
    with opened(source) as nc:
        return array in nc.variables


def text(source: str, array: str, attribute: str) -> str | None:
    """A text attribute of an array; None without one."""
    with opened(source) as nc:
        found = getattr(nc.variables.get(array), attribute, None)
        return found if isinstance(found, str) else None


def opened(source: str) -> Any:
    """The source as netCDF4's dataset, its values as they are stored."""
    import netCDF4

    found = netCDF4.Dataset(to_path(source))
    found.set_auto_maskandscale(False)
    found.set_auto_chartostring(False)
    return found
