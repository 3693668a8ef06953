"""GDAL's classic rasters as the oracle reads them, against what was written."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from osgeo import gdal

from building import build
from byterefs.errors import VerifyError
from byterefs.proving.oracle import Oracle
from forms import Results
from tiffs import CORNER, ramp, write

gdal.UseExceptions()


@pytest.mark.parametrize("inner", [{}, {"INTERLEAVE": "PIXEL"}, {"INTERLEAVE": "BAND"}])
@pytest.mark.parametrize("lifted", [False, True])
def test_a_slab_is_read_in_the_axes_of_the_bytes(
    tmp_path: Path, inner: dict[str, Any], lifted: bool
) -> None:
    values = ramp((3, 20, 30) if inner else (20, 30))
    path = str(write(tmp_path / "a.tif", values, **inner))
    stored = np.moveaxis(values, 0, -1) if inner.get("INTERLEAVE") == "PIXEL" else values
    stored = stored[None] if lifted else stored
    start = tuple(min(1, n - 1) for n in stored.shape)
    count = tuple(n - s for n, s in zip(stored.shape, start, strict=True))
    window = tuple(slice(s, s + n) for s, n in zip(start, count, strict=True))
    with Oracle() as oracle:
        answer = oracle.read(path, "any name", start, count, "<i2")
        np.testing.assert_array_equal(answer.values, stored[window])
        assert answer.by == "GTiff"
        assert oracle.values["GTiff"] == answer.values.size


def test_only_the_axes_of_a_georeferenced_image_exist(tmp_path: Path) -> None:
    placed = str(write(tmp_path / "p.tif", ramp((20, 30)), transform=CORNER))
    plain = str(write(tmp_path / "n.tif", ramp((20, 30))))
    with Oracle() as oracle:
        assert [oracle.exists(placed, name) for name in ("x", "y", "time")] == [True, True, False]
        assert not oracle.exists(plain, "x")
        x = oracle.read(placed, "x", (2,), (5,), "<f8").values
        np.testing.assert_array_equal(x, 100.5 + (np.arange(2, 7) + 0.5) * 0.25)


def test_pixels_of_another_type_are_nobodys_answer(tmp_path: Path) -> None:
    path = str(write(tmp_path / "a.tif", ramp((20, 30))))
    with Oracle() as oracle, pytest.raises(VerifyError, match="GDAL reads int16") as refusal:
        oracle.read(path, "a", (0, 0), (20, 30), "<f4")
    assert path in str(refusal.value)


def test_byte_ranges_of_compressed_images_are_compared_with_gdal(tmp_path: Path) -> None:
    options = {"TILED": "YES", "BLOCKXSIZE": 16, "BLOCKYSIZE": 16, "COMPRESS": "LZW"}
    path = write(tmp_path / "a.tif", ramp((40, 40)), **options)
    source = {"provider": "local", "path": "/", "pattern": r"\.tif$"}
    with build(tmp_path / "b", [path], source=source, plan={"concat": None}) as view:
        refs = view.refs("data")
        with Oracle() as oracle:
            found = [oracle.block(str(path), "data", key) for key in np.ndindex(3, 3)]
    assert [(b.offset, b.size) for b in found] == list(zip(refs.offset, refs.size, strict=True))


def test_an_axis_that_lies_elsewhere_than_the_source_says_is_found_by_verification(
    tmp_path: Path,
) -> None:
    path = write(tmp_path / "a.tif", ramp((40, 40)), transform=CORNER)
    source = {"provider": "local", "path": "/", "pattern": r"\.tif$"}
    results = Results(tmp_path / "demo", source=source, plan={"concat": None})
    results.scan([path])
    results.emit(("access", "parquet"))
    stat = path.stat()
    moved = bytearray(path.read_bytes())
    at = moved.index(np.float64(100.5).tobytes())
    moved[at : at + 8] = np.float64(101.5).tobytes()
    path.write_bytes(moved)
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    with pytest.raises(VerifyError, match=r"array 'x' is 100.625 at \[0\] of the plan"):
        results.verify("access", "parquet")
