"""Writers of tiny granules whose stored values are known: what they return is the oracle."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

import h5py
import netCDF4
import numpy as np
from h5py import h5d, h5p, h5s, h5t, h5z

EPOCH = date(1978, 1, 1)
OISST = ("sst", "anom", "err", "ice")


@dataclass(frozen=True)
class Granule:
    """A file and what was written to it."""

    path: Path
    values: dict[str, np.ndarray]
    """stored values by array, in the dtype stored"""
    absent: dict[str, set[tuple[int, ...]]] = field(default_factory=dict)
    """chunk keys never written, by array"""


def packed(day: date, array: str, shape: Sequence[int], seed: int = 0) -> np.ndarray:
    """Stored int16 of one array and day: smooth, of that day only, with fill on "land"."""
    ramp = np.arange(np.prod(shape), dtype=np.int64).reshape(shape)
    number = (day - EPOCH).days + 1000 * OISST.index(array) if array in OISST else seed
    stored = ((ramp * 7 + number * 13 + seed) % 3000 - 300).astype("<i2")
    stored[..., : shape[-2] // 3, : shape[-1] // 4] = -999
    return stored


def oisst(
    path: Path,
    day: date,
    *,
    shape: tuple[int, int] = (18, 36),
    arrays: Sequence[str] = OISST,
    units: str = "days since 1978-01-01 12:00:00",
    calendar: str | None = None,
    scale: float = 0.01,
    fill: int | None = -999,
    dtype: str = "i2",
    chunks: Sequence[int] | None = None,
    seed: int = 0,
    time: float | None = None,
    **filters: Any,
) -> dict[str, np.ndarray]:
    """Write a daily granule in the form of NOAA OISST v2.1; returns the stored values of every array.

    (1, 1, lat, lon) int16 with scale and fill on an unlimited ``time``; ``filters`` are netCDF4's
    (``zlib``, ``shuffle``, ``complevel``, ``fletcher32``); ``seed`` gives other data on the same day.
    """
    filters = {"zlib": True, "shuffle": True, "complevel": 4, **filters}
    path.parent.mkdir(parents=True, exist_ok=True)
    with netCDF4.Dataset(path, "w") as nc:
        nc.set_auto_maskandscale(False)
        nc.setncatts({"title": "byterefs test granule", "id": path.name, "Conventions": "CF-1.6"})
        days = float((day - EPOCH).days) if time is None else time
        values = _axes(nc, shape, days, units, calendar)
        for name in arrays:
            v = nc.createVariable(
                name, dtype, ("time", "zlev", "lat", "lon"),
                fill_value=fill if fill is not None else False, chunksizes=chunks, **filters,
            )  # fmt: skip
            v.setncatts({"long_name": name, "units": "Celsius", "valid_min": np.int16(-300)})
            v.setncatts({"scale_factor": np.float32(scale), "add_offset": np.float32(0)})
            v.set_auto_maskandscale(False)
            values[name] = packed(day, name, (1, 1, *shape), seed).astype(np.dtype(dtype))
            v[:] = values[name]
    return values


def _axes(nc: Any, shape: tuple[int, int], days: float, units: str, calendar: str | None) -> Any:
    ny, nx = shape
    axes = {
        "time": (np.array([days], "f4"), None, {"units": units}),
        "zlev": (np.zeros(1, "f4"), 1, {"units": "meters", "positive": "down"}),
        "lat": ((np.arange(ny) + 0.5) * 180 / ny - 90, ny, {"units": "degrees_north"}),
        "lon": ((np.arange(nx) + 0.5) * 360 / nx, nx, {"units": "degrees_east"}),
    }
    if calendar:
        axes["time"][2]["calendar"] = calendar
    values = {}
    for name, (data, length, attrs) in axes.items():
        nc.createDimension(name, length)
        v = nc.createVariable(name, "f4", (name,))
        v.setncatts(attrs)
        v[:] = values[name] = data.astype("<f4")
    return values


def pipeline(
    file: h5py.File,
    name: str,
    data: np.ndarray | None,
    chunks: Sequence[int],
    *filters: str,
    shape: Sequence[int] = (),
    dtype: str = "<i4",
    fill: Any = None,
    raw_edges: bool = False,
    unlimited: bool = False,
) -> h5py.Dataset:
    """A chunked dataset with exactly these filters in this order, which h5py's own API can't say.

    ``shuffle``, ``deflate``, ``fletcher32``, ``lzf``, ``szip``, ``nbit``, ``scaleoffset``; no data
    leaves every chunk unwritten.
    """
    kind = np.dtype(dtype) if data is None else data.dtype
    plist = h5p.create(h5p.DATASET_CREATE)
    plist.set_chunk(tuple(chunks))
    for word in filters:
        add_filter(plist, word)
    if fill is not None:
        plist.set_fill_value(np.array(fill, kind))
    if raw_edges:
        assert library().H5Pset_chunk_opts(plist.id, 2) >= 0  # DONT_FILTER_PARTIAL_CHUNKS
    extent = tuple(shape if data is None else data.shape)
    space = h5s.create_simple(extent, (h5s.UNLIMITED,) * len(extent) if unlimited else extent)
    dset = h5d.create(file.id, name.encode(), h5t.py_create(kind, logical=True), space, plist)
    if data is not None:
        dset.write(h5s.ALL, h5s.ALL, np.ascontiguousarray(data))
    return file[name]


def add_filter(plist: h5p.PropDCID, word: str) -> None:
    """One filter at the end of the pipeline; some only if the chunk lets them."""
    add: dict[str, Callable[[], object]] = {
        "shuffle": plist.set_shuffle,
        "deflate": lambda: plist.set_deflate(4),
        "fletcher32": plist.set_fletcher32,
        "lzf": lambda: plist.set_filter(32000, h5z.FLAG_OPTIONAL, ()),
        "szip": lambda: plist.set_szip(h5z.SZIP_NN_OPTION_MASK, 8),
        "nbit": lambda: plist.set_filter(h5z.FILTER_NBIT, 0, ()),
        "scaleoffset": lambda: plist.set_scaleoffset(h5z.SO_INT, 0),
    }
    add[word]()


def library() -> ctypes.CDLL:
    """The HDF5 library of h5py, for what h5py does not wrap."""
    found = ctypes.CDLL(h5p.__file__)
    found.H5Pset_chunk_opts.argtypes = [ctypes.c_int64, ctypes.c_uint]
    found.H5Tset_precision.argtypes = [ctypes.c_int64, ctypes.c_size_t]
    found.H5Pset_fill_value.argtypes = [ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p]
    return found


def compact(file: h5py.File, name: str, data: np.ndarray) -> h5py.Dataset:
    """A dataset whose bytes lie in its object header."""
    plist = h5p.create(h5p.DATASET_CREATE)
    plist.set_layout(h5d.COMPACT)
    space = h5s.create_simple(data.shape)
    h5d.create(file.id, name.encode(), h5t.py_create(data.dtype), space, plist).write(
        h5s.ALL, h5s.ALL, data
    )
    return file[name]
