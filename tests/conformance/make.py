"""The conformance fixture: tiny granules, their tables in every form, and the values that were written.

``python tests/conformance/make.py OUT`` fills OUT with ``granules/``, ``forms/<target>/<dataset>/<form>/`` and
``expected.json``: per case its dataset, array, shape, dtype and stored values in C order. Values are what the
granule's writer was given, never what a reader of byterefs found.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import h5py
import numpy as np

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "scripts"), str(ROOT / "tests")]

import granules  # noqa: E402
import tiffs  # noqa: E402
from building import build  # noqa: E402
from byterefs import emitters  # noqa: E402
from byterefs.errors import EmitError  # noqa: E402

DAYS = 3
SHAPE = (1, 5, 7)
CHUNKS = (1, 2, 4)
FAR = 1 << 33
START = date(2020, 1, 1)
FORMS = ("sqlite", "vrt", "parquet", "kerchunk", "icechunk")

SCALE = {"era-old": 0.1, "era-new": 0.01}
MISSING = {"absent": -999, "nan-fill": "NaN"}
"""what readers that undo CF packing and masking make of the stored values"""

CASES: Mapping[str, tuple[str, str, str]] = {
    "plain": ("granules", "plain", "whole chunks of uncompressed float64"),
    "partial-edge": ("granules", "edge", "chunks of 2 x 4 in 5 x 7, shuffle and deflate"),
    "absent": ("granules", "gappy", "chunks that were never written read as fill"),
    "inline": ("granules", "small", "compact data, its bytes in the table"),
    "big-endian": ("granules", "big", "big-endian float32"),
    "nan-fill": ("granules", "nan", "fill NaN, some chunks absent"),
    "int64": ("granules", "wide", "int64 beyond 2^53"),
    "checksum": ("granules", "checked", "shuffle, deflate, fletcher32"),
    "group": ("grouped", "g/deep", "an array in a group"),
    "era-old": ("eras", "old/v", "the older of two eras: scale 0.1"),
    "era-new": ("eras", "new/v", "the newer of two eras: scale 0.01, deflate"),
    "2^33": ("far", "far", "a chunk that lies beyond byte 2^33 of its source"),
    "predictor": ("tiles", "tile", "TIFF tiles, deflate with predictor 2"),
}


def main(out: Path, url: str = "") -> dict[str, Any]:
    """Fill ``out``; with ``url`` there is a target ``web`` whose paths lie below it."""
    out = out.absolute()
    written: dict[str, dict[str, np.ndarray]] = {}
    for dataset, (write, parts) in DATASETS.items():
        folder = out / "granules" / dataset
        folder.mkdir(parents=True)
        written[dataset] = write(folder)
        publish(out, dataset, sorted(folder.iterdir()), url, parts)
    cases = {case: described(written, case) for case in CASES}
    expected = {"fixture": "byterefs-conformance", "prefix": f"{out}/", "cases": cases}
    (out / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")
    return expected


def described(written: Any, case: str) -> dict[str, Any]:
    dataset, array, what = CASES[case]
    values = written[dataset][array]
    return {
        "dataset": dataset,
        "array": array,
        "what": what,
        "shape": list(values.shape),
        "dtype": values.dtype.str,
        "scale": SCALE.get(case, 1),
        "missing": MISSING.get(case),
        "values": spelled(values),
    }


def spelled(values: np.ndarray) -> list[Any]:
    """Values in C order as JSON: NaN as "NaN", int64 as text, since not every reader has them."""
    if values.dtype.kind == "f":
        return ["NaN" if np.isnan(v) else float(v) for v in values.ravel()]
    return [str(v) if values.dtype.itemsize == 8 else v for v in values.ravel().tolist()]


def publish(out: Path, dataset: str, files: list[Path], url: str, parts: Mapping[str, Any]) -> None:
    """Every form of a dataset for target access and, with a URL, for target web."""
    remap = {"web": {f"{out}/": f"{url}/"}} if url else {}
    work = out / "work" / dataset
    work.mkdir(parents=True)
    with build(work, files, name=dataset, remap=remap, **parts) as view:
        for target in ("access", *remap):
            for form in FORMS:
                module = emitters.load(form)
                options = {"json": True} if form == "kerchunk" else {}
                folder = out / "forms" / target / dataset / form
                try:
                    module.emit(view, folder, target=target, options=options, state={})
                except EmitError as error:
                    folder.mkdir(parents=True, exist_ok=True)
                    (folder / "refused.txt").write_text(f"{error}\n")


# --- granules --------------------------------------------------------------------------------------


def daily(folder: Path) -> dict[str, np.ndarray]:
    """HDF5 granules with one array per case."""
    days = [one_day(folder / f"day{n}.nc", n) for n in range(DAYS)]
    return {name: np.concatenate([day[name] for day in days]) for name in days[0]}


def one_day(path: Path, n: int) -> dict[str, np.ndarray]:
    ramp = np.arange(35, dtype="i8").reshape(SHAPE) + 100 * n
    gappy, nan = np.full(SHAPE, -999, "<i2"), np.full(SHAPE, np.nan, "<f4")
    values = {
        "plain": ramp / 8,
        "edge": (ramp - 50).astype("<i2"),
        "big": (ramp / 3).astype(">f4"),
        "wide": ramp + (1 << 60),
        "checked": (ramp * 1_000_003).astype("<i4"),
        "small": np.arange(6, dtype="<f4").reshape(1, 2, 3) + n,
    }
    with h5py.File(path, "w") as f:
        for name, filters in {
            "plain": (), "edge": ("shuffle", "deflate"), "big": ("deflate",), "wide": ("shuffle", "deflate"),
            "checked": ("shuffle", "deflate", "fletcher32"),
        }.items():  # fmt: skip
            granules.pipeline(f, name, values[name], CHUNKS, *filters)
        for name, whole, fill in (("gappy", gappy, -999), ("nan", nan, np.nan)):
            d = granules.pipeline(
                f, name, None, CHUNKS, "deflate", shape=SHAPE, dtype=whole.dtype, fill=fill
            )
            d.attrs["_FillValue"] = np.array([fill], whole.dtype)
            if n != 1:
                whole[:, :2, 4:] = d[:, :2, 4:] = ramp[:, :2, 4:]
        granules.compact(f, "small", values["small"])
        axes(f, n, {"y": 5, "x": 7, "j": 2, "i": 3})
        for name in (*values, "gappy", "nan"):
            attach(f, name, ("time", "j", "i") if name == "small" else ("time", "y", "x"))
    return {**values, "gappy": gappy, "nan": nan}


def axes(f: h5py.File, n: int, lengths: Mapping[str, int]) -> None:
    for name, data in {
        "time": np.array([float(n)]),
        **{d: np.arange(float(k)) for d, k in lengths.items()},
    }.items():
        f[name] = data
        f[name].make_scale(name)
    f["time"].attrs["units"] = f"days since {START}"


def attach(f: h5py.File, name: str, dims: tuple[str, ...]) -> None:
    for axis, dim in enumerate(dims):
        f[name].dims[axis].attach_scale(f[dim])


def grouped(folder: Path) -> dict[str, np.ndarray]:
    """A day whose array lies in a group."""
    values = np.arange(35, dtype="<u2").reshape(SHAPE)
    with h5py.File(folder / "day.nc", "w") as f:
        f.create_group("g")
        granules.pipeline(f, "g/deep", values, CHUNKS, "deflate")
        axes(f, 0, {"y": 5, "x": 7})
        attach(f, "g/deep", ("time", "y", "x"))
    return {"g/deep": values}


def two_eras(folder: Path) -> dict[str, np.ndarray]:
    """Two days packed one way and two another."""
    found: dict[str, list[np.ndarray]] = {"old/v": [], "new/v": []}
    for n in range(4):
        era = "old/v" if n < 2 else "new/v"
        values = (np.arange(35).reshape(SHAPE) + 10 * n).astype("<i2")
        with h5py.File(folder / f"v.{START + timedelta(n):%Y%m%d}.nc", "w") as f:
            d = granules.pipeline(f, "v", values, CHUNKS, *(() if n < 2 else ("deflate",)))
            d.attrs["scale_factor"] = 0.1 if n < 2 else 0.01
            axes(f, n, {"y": 5, "x": 7})
            attach(f, "v", ("time", "y", "x"))
        found[era].append(values)
    return {era: np.concatenate(parts) for era, parts in found.items()}


def beyond(folder: Path) -> dict[str, np.ndarray]:
    """A sparse file: nothing is stored of what lies before the chunk."""
    values = np.arange(35, dtype="<u2").reshape(SHAPE)
    with h5py.File(folder / "far.nc", "w", userblock_size=FAR) as f:
        granules.pipeline(f, "far", values, CHUNKS, "deflate")
        axes(f, 0, {"y": 5, "x": 7})
        attach(f, "far", ("time", "y", "x"))
    return {"far": values}


def tiled(folder: Path) -> dict[str, np.ndarray]:
    """Two days of one TIFF each."""
    days = [tiffs.ramp((32, 48), "u2", seed=n) for n in range(2)]
    for n, values in enumerate(days):
        name = folder / f"tile_{START + timedelta(n):%Y%m%d}.tif"
        tiffs.write(
            name, values, transform=tiffs.CORNER, epsg=4326,
            TILED="YES", BLOCKXSIZE=16, BLOCKYSIZE=16, COMPRESS="DEFLATE", PREDICTOR=2,
        )  # fmt: skip
    return {"tile": np.stack(days)}


NAMES = {
    "pattern": r"(?P<array>[a-z]+)_(?P<day>\d{8})\.tif$",
    "array": "array",
    "coordinate": {"from": "day", "format": "%Y%m%d", "units": f"days since {START}"},
}
DATASETS: Mapping[str, Any] = {
    "granules": (daily, {}),
    "grouped": (grouped, {}),
    "eras": (
        two_eras,
        {
            "select": {"slot": ["date"]},
            "source": {"pattern": r"v\.(?P<date>\d{8})\.nc$"},
            "plan": {"eras": {"old": {"to": "20200102"}, "new": {"from": "20200103"}}},
        },
    ),
    "far": (beyond, {}),
    "tiles": (
        tiled,
        {"source": {"pattern": r"\.tif$"}, "scan": {"file_name": NAMES, "format": "tiff"}},
    ),
}

if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:3])
