"""Filters that an HDF5 library loads while it runs: those of the netCDF4 package, for GDAL and h5py too."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path

VARIABLE = "HDF5_PLUGIN_PATH"


def offer() -> None:
    """Let HDF5 find Blosc, bzip2 and Zstandard where the user has named no folder of plugins.

    GDAL 3.13's and h5py 3.16's wheels have neither of them and read the variable at the first filter that
    they lack; the package netCDF4 brings them, and names them likewise once it is imported.
    """
    found = find_spec("netCDF4")
    if VARIABLE in os.environ or found is None or found.origin is None:
        return
    folder = Path(found.origin).parent / "plugins"
    if folder.is_dir():
        os.environ[VARIABLE] = str(folder)
