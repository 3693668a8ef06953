"""Which of its drivers GDAL 3.13 opens a source of a VRT with: it goes by the ending of the file's name.

A file of HDF5 whose name ends otherwise than netCDF's is opened by the HDF5 driver, which heeds no
``_Unsigned`` and has single characters as text; ``HDF5:`` before a name asks for that driver.
"""

from __future__ import annotations

import re

from byterefs.model import Array

NETCDF_ENDINGS = (".nc", ".nc2", ".nc3", ".nc4", ".cdf", ".grd", ".gmac")
"""of HDF5 files that GDAL 3.13 leaves to its netCDF driver"""
PREFIX = "HDF5:"
PHONY = re.compile(r"phony_dim_\d+")


def prefix(a: Array) -> str:
    """``HDF5:`` for an array that has an axis without dimension scale, or complex numbers in a netCDF file; else nothing.

    Where others of the file have scales, GDAL 3.13's netCDF driver says of the one "Invalid dimension ID";
    it has the other as a compound, which no VRT reads.
    """
    split = a.dtype[1] == "c" and any(by_netcdf(p.source) for p in a.placements)
    return PREFIX if split or any(map(PHONY.fullmatch, a.dims)) else ""


def by_netcdf(source: str) -> bool:
    """Whether GDAL opens a file of HDF5 under this name with its netCDF driver."""
    return source.lower().endswith(NETCDF_ENDINGS)


def of(a: Array) -> str | None:
    """``netCDF`` or ``HDF5``, whichever opens every source of an array; None where names and contents do not tell."""
    if prefix(a):
        return "HDF5"
    named = {by_netcdf(p.source) for p in a.placements}
    if named == {True}:
        return "netCDF"
    # what is coded is no netCDF-3, which the netCDF driver opens under any name
    coded = any(a.codec.get(part) for part in ("compressor", "filters"))
    return "HDF5" if named == {False} and coded else None
