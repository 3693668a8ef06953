"""The demo's archive: daily netCDF-4 files as NOAA's OISST has them, smaller and made up."""

from __future__ import annotations

from datetime import date, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from netCDF4 import Dataset, Variable
from numpy.typing import ArrayLike

from demonstration.world import EPOCH, LAT, LON, ocean

FILL = np.int16(-999)
VARIABLES = {
    # name: long_name, units, valid_min, valid_max (packed)
    "sst": ("Daily sea surface temperature", "Celsius", -300, 4500),
    "anom": ("Daily sea surface temperature anomalies", "Celsius", -1200, 1200),
    "err": ("Estimated error standard deviation of analysed_sst", "Celsius", 0, 1000),
    "ice": ("Sea ice concentration", "1", 0, 100),
}


class Day(NamedTuple):
    """One file of the archive."""

    date: date
    preliminary: bool = False

    @property
    def name(self) -> str:
        """Its place below the archive's folder: one folder a month."""
        suffix = "_preliminary" if self.preliminary else ""
        return f"{self.date:%Y%m}/oisst-demo.{self.date:%Y%m%d}{suffix}.nc"


def first_month() -> list[Day]:
    """Thirty days, the last two preliminary."""
    days = [date(2026, 9, 1) + timedelta(n) for n in range(30)]
    return [Day(day, preliminary=n >= 28) for n, day in enumerate(days)]


def arrivals() -> list[Day]:
    """Three files: a final that replaces a preliminary, a new day, a new preliminary."""
    return [
        Day(date(2026, 9, 29)),
        Day(date(2026, 10, 1)),
        Day(date(2026, 10, 2), preliminary=True),
    ]


def write(archive: Path, day: Day) -> Path:
    """Write one day's file; returns its path."""
    path = archive / day.name
    path.parent.mkdir(parents=True, exist_ok=True)
    with Dataset(path, "w", format="NETCDF4") as nc:
        nc.setncatts(attributes(day))
        coordinates(nc, day.date)
        for name, field in ocean(day.date, preliminary=day.preliminary)._asdict().items():
            packed = np.where(np.isnan(field), FILL, np.rint(np.nan_to_num(field) * 100))
            variable(nc, name)[0, 0] = packed.astype(np.int16)
    return path


def coordinates(nc: Dataset, day: date) -> None:
    """The dimensions and their variables: time is unlimited and has one value."""
    coordinate(nc, "time", [(day - EPOCH).days], size=None).setncatts(
        {"long_name": "Center time of the day", "units": f"days since {EPOCH} 12:00:00"}
    )
    coordinate(nc, "zlev", [0]).setncatts(
        {"long_name": "Sea surface height", "units": "meters", "positive": "down"}
    )
    coordinate(nc, "lat", LAT).setncatts({"long_name": "Latitude", "units": "degrees_north"})
    coordinate(nc, "lon", LON).setncatts({"long_name": "Longitude", "units": "degrees_east"})


def coordinate(nc: Dataset, name: str, values: ArrayLike, size: int | None = -1) -> Variable[Any]:
    """A dimension and its float32 variable; ``size=None`` makes it unlimited."""
    nc.createDimension(name, np.size(values) if size == -1 else size)
    made = nc.createVariable(name, "f4", (name,))
    made[:] = values
    return made


def variable(nc: Dataset, name: str) -> Variable[Any]:
    """An int16 array whose chunk is the whole day, byte-shuffled and deflated."""
    long_name, units, low, high = VARIABLES[name]
    made = nc.createVariable(
        name,
        "i2",
        ("time", "zlev", "lat", "lon"),
        zlib=True,
        complevel=4,
        shuffle=True,
        chunksizes=(1, 1, LAT.size, LON.size),
        fill_value=FILL,
    )
    made.setncatts(
        {
            "long_name": long_name,
            "units": units,
            "add_offset": np.float32(0),
            "scale_factor": np.float32(0.01),
            "valid_min": np.int16(low),
            "valid_max": np.int16(high),
        }
    )
    made.set_auto_maskandscale(False)
    return made


def attributes(day: Day) -> dict[str, str]:
    """Global attributes: some of the archive, some of the file."""
    status = "Preliminary" if day.preliminary else "Final"
    made = day.date + timedelta(1 if day.preliminary else 15)
    return {
        "Conventions": "CF-1.6, ACDD-1.3",
        "title": "Made-up daily sea surface temperature on a 1 degree grid",
        "source": "scripts/demonstration/world.py",
        "id": Path(day.name).name,
        "history": f"{status} file.",
        "date_created": f"{made}T09:14:00Z",
        "product_version": "demo 1",
        "processing_level": "Level 4",
        "time_coverage_start": f"{day.date}T00:00:00Z",
        "time_coverage_end": f"{day.date}T23:59:59Z",
    }
