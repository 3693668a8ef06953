"""Tables of sources that exist in no file: for forms at sizes and offsets that no test could write."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

import building
from byterefs import store
from byterefs.codecs import PLAIN
from byterefs.model import ABSENT, ArrayMeta, Source, SourceArray, SourceScan
from byterefs.view import View

Grid = tuple[int, int]
BASE = 5_000_000_000
"""offsets start beyond 32 bits"""


def meta(name: str, dims: tuple[str, ...], shape: tuple[int, ...], **options: Any) -> ArrayMeta:
    given = {"chunks": shape, "dtype": "<i2", "fill": None, "codec": PLAIN, "info": "", **options}
    return ArrayMeta(name, dims, shape, **given)


def time(day: int) -> SourceArray:
    values = np.array([day], "<f8").tobytes()
    attrs = {"units": "days since 2000-01-01"}
    one = meta("time", ("time",), (1,), dtype="<f8", attrs=attrs, attr_dtypes={"units": "str"})
    return SourceArray(one, values=values, digest=hashlib.sha256(values).hexdigest())


def source(day: int, folder: str = "/data", etag: str | None = None) -> Source:
    return Source(f"{folder}/day{day:04d}.nc", 10**10, 1_600_000_000_500_000_000 + day, etag)


def scan(
    day: int,
    grid: Grid = (2, 3),
    *,
    array: str = "v",
    absent: Callable[[int], np.ndarray] | None = None,
    data: Mapping[tuple[int, ...], bytes] | None = None,
    at: Source | None = None,
    base: int = BASE,
    **options: Any,
) -> SourceScan:
    """One day of one array of (1, y, x) int16 elements, one element a chunk; each chunk at its own offset."""
    shape = (1, *grid)
    offset = (base + 1000 * day + 2 * np.arange(np.prod(shape), dtype="i8")).reshape(shape)
    size = np.full(shape, 2, "i8")
    gone = np.zeros(shape, bool) if absent is None else absent(day).reshape(shape)
    for key in data or {}:
        gone[key] = True
    offset[gone], size[gone] = ABSENT, ABSENT
    described = meta(array, ("time", "y", "x"), shape, **{"chunks": (1, 1, 1), **options})
    item = SourceArray(described, offset, size, dict(data or {}))
    return SourceScan(
        at or source(day), {array: item, "time": time(day)}, {"title": "no file"}, {"title": "str"}
    )


def table(folder: Path, scans: list[SourceScan], **parts: Any) -> View:
    """The view of scans that were never made."""
    batch = folder / "batch.sqlite"
    store.write_scans(batch, scans, {}, version="1")
    store.update(folder / "store.sqlite", [batch], [])
    return building.replan(folder, building.config(**parts))
