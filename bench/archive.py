"""An archive like NOAA's OISST at full length on a small grid: daily netCDF-4 granules with real structure."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from datetime import date, timedelta
from pathlib import Path

import netCDF4
import numpy as np

FIRST = date(1981, 9, 1)
EPOCH = date(1978, 1, 1)
SHAPE = (18, 36)
ARRAYS = ("sst", "anom", "err", "ice")


def name(day: int) -> str:
    """Path of a day's granule below the archive, in a folder per month as NOAA has it."""
    when = FIRST + timedelta(day)
    return f"{when:%Y%m}/oisst-avhrr-v02r01.{when:%Y%m%d}.nc"


def write(root: Path, day: int) -> None:
    """One granule: four int16 arrays with scale and fill, one chunk each, shuffled and deflated."""
    path = root / name(day)
    path.parent.mkdir(parents=True, exist_ok=True)
    ny, nx = SHAPE
    rng = np.random.default_rng(day)
    with netCDF4.Dataset(path, "w") as nc:
        nc.setncatts({"title": "bench", "id": path.name, "Conventions": "CF-1.6"})
        axes = {
            "time": (None, [(FIRST - EPOCH).days + day], "days since 1978-01-01 12:00:00"),
            "zlev": (1, [0.0], "meters"),
            "lat": (ny, (np.arange(ny) + 0.5) * 180 / ny - 90, "degrees_north"),
            "lon": (nx, (np.arange(nx) + 0.5) * 360 / nx, "degrees_east"),
        }
        for axis, (size, values, units) in axes.items():
            nc.createDimension(axis, size)
            v = nc.createVariable(axis, "f4", (axis,))
            v.units = units
            v[:] = values
        for array in ARRAYS:
            v = nc.createVariable(
                array, "i2", tuple(axes), zlib=True, shuffle=True, fill_value=-999
            )
            v.setncatts({"long_name": array, "units": "Celsius"})
            v.setncatts({"scale_factor": np.float32(0.01), "add_offset": np.float32(0)})
            v.set_auto_maskandscale(False)
            v[:] = rng.integers(-180, 3000, (1, 1, ny, nx), "i2")


def extend(root: Path, days: range) -> int:
    """Write the granules of ``days`` that are not there yet, on two cores; returns how many."""
    missing = [day for day in days if not (root / name(day)).exists()]
    with ProcessPoolExecutor(2) as pool:
        list(pool.map(write, [root] * len(missing), missing, chunksize=64))
    return len(missing)
