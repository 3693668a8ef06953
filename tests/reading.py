"""A small archive, published: what the tests of the table reader read, and what was written to it."""

from __future__ import annotations

from datetime import date, timedelta
from pathlib import Path
from typing import Any

import h5py
import numpy as np

import granules
from building import build
from byterefs import emitters

START = date(2020, 1, 1)
FORMS = {"sqlite": "sqlite/store.sqlite", "parquet": "parquet"}
CHUNKS = (1, 4, 5)


class Archive:
    """Days of (time, y, x) arrays in ``root``, forms sqlite and parquet beside them.

    ``values`` are the stored values along all days, fill where a chunk was never written: ``sst`` has partial
    edge chunks, ``gappy`` absent ones, ``small`` is compact (inline), ``g/deep`` lies in a group.
    """

    def __init__(
        self, root: Path, days: int = 4, shape: tuple[int, int] = (10, 13), **options: Any
    ) -> None:
        self.root, self.days, self.shape = root, days, shape
        root.mkdir(parents=True, exist_ok=True)
        self.files = [root / f"day{n}.nc" for n in range(days)]
        written = [self.write(n) for n in range(days)]
        self.values = {name: np.concatenate([w[name] for w in written]) for name in written[0]}
        self.options = options

    def write(self, n: int) -> dict[str, np.ndarray]:
        """One granule; what it holds."""
        day = START + timedelta(n)
        shape = (1, *self.shape)
        sst, deep = (granules.packed(day, "sst", shape, seed) for seed in (n, n + 50))
        gappy = np.full(shape, -7, "<i2")
        small = np.arange(6, dtype="<f4").reshape(1, 2, 3) + n
        with h5py.File(self.files[n], "w") as f:
            f.attrs["title"] = "reader test"
            granules.pipeline(f, "sst", sst, CHUNKS, "shuffle", "deflate", fill=-999)
            f.create_group("g")
            granules.pipeline(f, "g/deep", deep, CHUNKS, "deflate", fill=-999)
            d = granules.pipeline(
                f, "gappy", None, CHUNKS, "deflate", shape=shape, dtype="<i2", fill=-7
            )
            gappy[:, :4, 5:10] = d[:, :4, 5:10] = sst[:, :4, 5:10]
            granules.compact(f, "small", small)
            axes = {"time": np.array([n], "<f8"), "y": np.arange(self.shape[0], dtype="<f4"),
                    "x": np.arange(self.shape[1], dtype="<f4"), "j": np.arange(2.0), "i": np.arange(3.0)}  # fmt: skip
            for name, data in axes.items():
                f[name] = data
                f[name].make_scale(name)
            f["time"].attrs["units"] = f"days since {START}"
            f["sst"].attrs["scale_factor"] = np.float32(0.01)
            for name, dims in {
                "sst": "time y x",
                "g/deep": "time y x",
                "gappy": "time y x",
                "small": "time j i",
            }.items():
                for axis, dim in enumerate(dims.split()):
                    f[name].dims[axis].attach_scale(f[dim])
        return {"sst": sst, "g/deep": deep, "gappy": gappy, "small": small}

    def publish(self, **remap: str) -> Path:
        """Emit the forms for a target; ``remap`` is target=replacement of the root's path."""
        target = next(iter(remap), "access")
        rules = {name: {f"{self.root}/": f"{to}/"} for name, to in remap.items()}
        with build(self.root, self.files, remap=rules, **self.options) as view:
            for form in FORMS:
                emitters.load(form).emit(
                    view, self.root / form, target=target, options={}, state={}
                )
        return self.root
