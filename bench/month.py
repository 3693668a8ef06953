"""A real HDF5 file with the geometry of one BRAN month: 94,860 chunks, each of a few bytes."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
from bran import CHUNKS as CHUNK
from bran import SHAPE
from numcodecs import Shuffle, Zlib

DAYS = 31
CHUNKS = DAYS * 51 * 5 * 12


def write(path: Path) -> Path:
    """Write the file unless it is there; every chunk is zeros, deflated once and written as it is."""
    if path.exists():
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    raw = Zlib(4).encode(Shuffle(2).encode(np.zeros(CHUNK, "<i2")))
    with h5py.File(part, "w", libver="latest") as file:
        axes = {"time": np.arange(DAYS) + 11323.5, "zlev": np.geomspace(2.5, 4509, SHAPE[0])}
        axes |= {n: np.arange(s) * 0.1 for n, s in (("lat", SHAPE[1]), ("lon", SHAPE[2]))}
        for name, values in axes.items():
            file[name] = values
            file[name].make_scale(name)
        file["time"].attrs["units"] = "days since 1979-01-01"
        temp = file.create_dataset(
            "temp", (DAYS, *SHAPE), "<i2", chunks=CHUNK, shuffle=True, compression="gzip"
        )
        for i, name in enumerate(axes):
            temp.dims[i].attach_scale(file[name])
        for key in np.ndindex(DAYS, 51, 5, 12):
            temp.id.write_direct_chunk(tuple(k * c for k, c in zip(key, CHUNK, strict=True)), raw)
    part.replace(path)
    return path
