"""The table reader against GDAL on the VRT, over loopback HTTP with latency; and what opening a large table costs.

    python bench/reader.py [--store STORE.sqlite] [--folder bench/work/reader]

A day of 36 x 71 tiles of 128 x 128 int16 is written once as netCDF-4 (shuffle, deflate) and once as GeoTIFF
(deflate, predictor 2). A server in a process of its own waits 20 ms before each answer. Read is one row of 71
tiles, five times, alternating, from tables and VRTs that are open, GDAL's cache emptied; medians are printed and
kept in ``reader.json``. ``--store`` is a published store of millions of references, such as bench/bran.py leaves.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from measuring import ROOT
from osgeo import gdal
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(ROOT / "tests"))

import h5py

import byterefs
import granules
import serving
import tiffs
from building import build
from byterefs import emitters

gdal.UseExceptions()
TILE, ROWS, COLUMNS = 128, 36, 71
ROW = 10
LATENCY = 0.02
"""seconds"""
ROUNDS = 5
FASTER = 5
OPENING = 5e6
"""bytes"""
NAMES = {
    "pattern": r"(?P<array>sst)_(?P<day>\d{8})\.tif$",
    "array": "array",
    "coordinate": {"from": "day", "format": "%Y%m%d", "units": "days since 2024-01-01"},
}
DAYS: dict[str, tuple[str, dict[str, Any]]] = {
    "netCDF-4": ("sst_20240101.nc", {}),
    "GeoTIFF": (
        "sst_20240101.tif",
        {
            "source": {"pattern": r"\.tif$"},
            "scan": {"file_name": NAMES, "format": "tiff"},
        },
    ),
}


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--store", type=Path)
    parser.add_argument("--folder", type=Path, default=ROOT / "bench" / "work" / "reader")
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    rows = [row for kind in DAYS for row in one_day(arguments.folder / kind, kind)]
    if arguments.store:
        rows += opening(arguments.store)
    (arguments.folder / "reader.json").write_text(json.dumps(rows, indent=1) + "\n")
    shown = Table("what", "value", "unit", "reach", "holds")
    for row in rows:
        holds = "" if row["holds"] is None else "yes" if row["holds"] else "no"
        shown.add_row(row["name"], f"{row['value']:.4g}", row["unit"], row["reach"], holds)
    Console().print(shown)


def figure(name: str, value: float, unit: str, reach: str = "", holds: bool | None = None) -> Any:
    """One row."""
    return {"name": name, "value": value, "unit": unit, "reach": reach, "holds": holds}


def one_day(folder: Path, kind: str) -> Iterator[Any]:
    """A full-width row of a day of one format: GDAL through the VRT, and the table."""
    name, parts = DAYS[kind]
    folder.mkdir(parents=True, exist_ok=True)
    values = np.cumsum(
        np.random.default_rng(0).integers(-3, 4, (ROWS * TILE, COLUMNS * TILE), "i2"), axis=1
    ).astype("<i2")
    write(folder / name, values)
    wanted = values[ROW * TILE : (ROW + 1) * TILE]
    with server(folder, LATENCY) as url:
        published(folder, folder / name, url, parts)
        readers = {"GDAL, VRT": through_gdal(folder), "table, sqlite": through_table(folder)}
        seconds: dict[str, list[float]] = {who: [] for who in readers}
        for _ in range(ROUNDS):
            for who, prepare in readers.items():
                read = prepare()
                started = time.perf_counter()
                found = read()
                seconds[who].append(time.perf_counter() - started)
                if not (np.asarray(found).reshape(wanted.shape) == wanted).all():
                    raise SystemExit(f"{who}: other values than those that were written")
    taken = {who: median(each) for who, each in seconds.items()}
    for who, value in taken.items():
        yield figure(f"{kind}: row of {COLUMNS} tiles, {who}", value, "s")
    ratio = taken["GDAL, VRT"] / taken["table, sqlite"]
    yield figure(f"{kind}: the table is faster", ratio, "times", f">= {FASTER}", ratio >= FASTER)


def write(path: Path, values: np.ndarray) -> None:
    """The day, unless it is there."""
    if path.exists():
        return
    if path.suffix == ".tif":
        options = {"TILED": "YES", "BLOCKXSIZE": TILE, "BLOCKYSIZE": TILE, "PREDICTOR": 2}
        size = (360 / values.shape[1], -180 / values.shape[0])
        transform = (-180.0, size[0], 0.0, 90.0, 0.0, size[1])
        tiffs.write(path, values, transform=transform, epsg=4326, COMPRESS="DEFLATE", **options)
        return
    with h5py.File(path, "w") as f:
        granules.pipeline(f, "sst", values[None], (1, TILE, TILE), "shuffle", "deflate", fill=-9)
        axes = {"time": np.zeros(1), "y": np.arange(values.shape[0] * 1.0), "x": np.arange(values.shape[1] * 1.0)}  # fmt: skip
        for axis, (name, data) in enumerate(axes.items()):
            f[name] = data
            f[name].make_scale(name)
            f["sst"].dims[axis].attach_scale(f[name])
        f["time"].attrs["units"] = "days since 2024-01-01"


def published(folder: Path, day: Path, url: str, parts: dict[str, Any]) -> None:
    """The forms sqlite and vrt for the server's address."""
    for work in ("store.sqlite", "store.sqlite-journal"):
        (folder / work).unlink(missing_ok=True)
    remap = {"web": {f"{folder}/": f"{url}/"}}
    with build(folder, [day], remap=remap, **parts) as view:
        for form in ("sqlite", "vrt"):
            emitters.load(form).emit(view, folder / form, target="web", options={}, state={})


def through_gdal(folder: Path) -> Callable[[], Callable[[], Any]]:
    """Open the VRT with nothing cached; what is returned reads the row."""

    def prepare() -> Callable[[], Any]:
        gdal.VSICurlClearCache()
        opened = gdal.OpenEx(str(next((folder / "vrt").glob("*.vrt"))), gdal.OF_MULTIDIM_RASTER)
        array = opened.GetRootGroup().OpenMDArray("sst")
        return lambda: opened and array.ReadAsArray([0, ROW * TILE, 0], [1, TILE, COLUMNS * TILE])

    return prepare


def through_table(folder: Path) -> Callable[[], Callable[[], Any]]:
    """Open the table; what is returned reads the row."""

    def prepare() -> Callable[[], Any]:
        store = byterefs.open(folder / "sqlite", target="web")
        array = store.array("sst")
        return lambda: byterefs.read(array, (0, slice(ROW * TILE, (ROW + 1) * TILE)))

    return prepare


def opening(store: Path) -> Iterator[Any]:
    """Requests and bytes by which a store at a URL is opened, and one chunk of it is found."""
    with (
        serving.web(store.parent) as served,
        byterefs.open(f"{served.url}/{store.name}") as opened,
    ):
        name = max(opened.arrays, key=lambda a: int(np.prod(opened.array(a).grid)))
        grid = opened.array(name).grid
        count = int(np.prod(grid))
        yield figure("references of the large table", count, "")
        sent, asked = served.sent, len(served.requests)
        yield figure("opening it at a URL", sent, "bytes", f"<= {OPENING:g}", sent <= OPENING)
        yield figure("opening it at a URL", asked, "requests")
        served.forget()
        opened.table.at(name, [tuple(n // 2 for n in grid)])
        yield figure("finding one chunk in it", served.sent, "bytes")
        yield figure("finding one chunk in it", len(served.requests), "requests")


@contextmanager
def server(folder: Path, latency: float) -> Iterator[str]:
    """A web server in a process of its own that waits before each answer."""
    here, there = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(
        target=serve, args=(folder, latency, there)
    )
    process.start()
    try:
        yield here.recv()
    finally:
        here.send("end")
        process.join()


def serve(folder: Path, latency: float, pipe: Any) -> None:
    """The server's process."""

    def late(handler: Any, before: int) -> bool:
        time.sleep(latency)
        return False

    with serving.web(folder) as served:
        served.faults["*"] = late
        pipe.send(served.url)
        pipe.recv()


if __name__ == "__main__":
    main()
