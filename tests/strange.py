"""A folder of strange and of damaged files, the same for the same seed: ``python tests/strange.py FOLDER SEED COUNT``."""

from __future__ import annotations

import os
import sys
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np

import strange_foreign as foreign
import strange_hdf5 as hdf5
import strange_rasters as rasters
from strange_hdf5 import Random, pick

WRITERS: dict[str, tuple[str, Callable[[Path, Random], None]]] = {
    "hdf5": ("h5", hdf5.hdf5),
    "netcdf4": ("nc", hdf5.netcdf4),
    "elsewhere": ("h5", foreign.elsewhere),
    "classic": ("nc", hdf5.classic),
    "xarray": ("nc", hdf5.by_xarray),
    "tifffile": ("tif", rasters.by_tifffile),
    "gdal": ("tif", rasters.by_gdal),
    "cog": ("tif", rasters.by_cog),
    "grib": ("grib", rasters.grib),
    "grids": ("grib", rasters.grids),
}

ASKED: dict[str, tuple[str, Callable[[Path, Random], None]]] = {
    "plugins": ("h5", foreign.plugins),
    "h5netcdf": ("nc", foreign.by_h5netcdf),
    "scipy": ("nc", foreign.by_scipy),
}
"""written only where asked for: their libraries (hdf5plugin, h5netcdf, scipy) come with nothing of ours"""


def write(folder: Path, seed: int, count: int, kinds: list[str] | None = None) -> list[str]:
    """``count`` files of each kind, every second one with a damaged copy; the names of those that no writer would write."""
    folder.mkdir(parents=True, exist_ok=True)
    unwritten = []
    for kind in kinds or WRITERS:
        ending, writer = (WRITERS | ASKED)[kind]
        for n in range(count):
            rng = np.random.default_rng([seed, n, zlib.crc32(kind.encode())])
            path = folder / f"{kind}-{seed}-{n:03}.{ending}"
            why = alone(writer, path, rng)
            if why:
                path.unlink(missing_ok=True)
                unwritten.append(f"{path.name}: {why}")
                continue
            if n % 2:
                (folder / f"{kind}-{seed}-{n:03}.damaged.{ending}").write_bytes(
                    damaged(path.read_bytes(), rng)
                )
    return unwritten


def alone(writer: Callable[[Path, Random], None], path: Path, rng: Random) -> str:
    """Write a file in a process of its own; why there is none, where the library refuses the mixture or dies of it."""
    out, into = os.pipe()
    pid = os.fork()
    if not pid:
        code = 1
        try:
            writer(path, rng)
            code = 0
        except Exception as error:
            os.write(into, f"{type(error).__name__}: {error}".encode(errors="replace")[:400])
        finally:
            os._exit(code)
    os.close(into)
    with open(out, "rb") as said:
        why = said.read().decode()
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return why or (f"its writer ended with {status}" if status else "")


def damaged(raw: bytes, rng: Random) -> bytes:
    """The bytes cut off, with bytes flipped near the head or anywhere, a run of them zeroed, repeated or moved."""
    data = bytearray(raw)
    size = len(data)
    match pick(rng, ["cut", "head", "flip", "flip", "zero", "grow", "number", "shift"]):
        case "cut":
            return bytes(data[: int(rng.integers(1, size))])
        case "head":
            for at in rng.integers(8, max(9, min(size, 512)), 3):
                data[min(at, size - 1)] ^= 1 << int(rng.integers(8))
        case "flip":
            for at in rng.integers(0, size, int(rng.integers(1, 20))):
                data[at] ^= int(rng.integers(1, 256))
        case "zero":
            at = int(rng.integers(size))
            data[at : at + 64] = bytes(len(data[at : at + 64]))
        case "grow":
            data += rng.bytes(100)
        case "number":  # a length or a place that lies
            at = int(rng.integers(4, max(5, min(size - 8, 4096))))
            data[at : at + 4] = pick(
                rng, [b"\xff\xff\xff\xff", b"\xff\xff\xff\x7f", b"\0\0\0\0", b"\0\0\0\x80"]
            )
        case "shift":
            at = int(rng.integers(size))
            return bytes(data[:at] + b"\0" + data[at:])
    return bytes(data)


if __name__ == "__main__":
    for line in write(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4:]):
        print(line)
