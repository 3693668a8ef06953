"""Bands of classic rasters as sources of a multidimensional VRT, and back to placements."""

from __future__ import annotations

from itertools import product

import pytest

from byterefs.model import Array, Placement
from byterefs.planning import raster, vrt, vrt_plan

SHAPES = {
    ("y", "x"): (4, 6),
    ("y", "x", "band"): (4, 6, 3),
    ("band", "y", "x"): (3, 4, 6),
    ("time", "y", "x"): (2, 4, 6),
    ("time", "y", "x", "band"): (2, 4, 6, 3),
    ("time", "band", "y", "x"): (2, 3, 4, 6),
}


def array(dims: tuple[str, ...], ifd: int = 1) -> Array:
    """An array of two sources along time, or of one."""
    shape = SHAPES[dims]
    count = (1, *shape[1:]) if dims[0] == "time" else shape
    zero = (0,) * len(shape)
    placements = tuple(
        Placement(f"/data/{i}.tif", "a", zero, count, (i, *zero[1:]))
        for i in range(shape[0] if dims[0] == "time" else 1)
    )
    info = "DRIVER=GTiff; INTERLEAVE=BAND" + (f"; IFD={ifd}" if ifd > 1 else "")
    return Array("a", "data", "referenced", dims, shape, count, "<i2", None, {}, info, placements=placements)  # fmt: skip


@pytest.mark.parametrize(("dims", "ifd"), list(product(SHAPES, (1, 3))))
def test_the_vrt_of_a_raster_gives_its_placements_back(dims: tuple[str, ...], ifd: int) -> None:
    a = array(dims, ifd)
    text = vrt.write({"a": a}, {}, {})
    bands = 3 if "band" in dims else 1
    assert text.count("<SourceBand>") == bands * len(a.placements)
    assert ("GTIFF_DIR:3:/data/0.tif" in text) is (ifd == 3)
    assert vrt_plan.read(text, "/", "plan.vrt").arrays["a"].placements == a.placements


def test_other_file_names_keep_the_directory_of_an_overview() -> None:
    text = vrt.write({"a": array(("y", "x"), 3)}, {}, {})
    moved = vrt_plan.renamed(text, {"/data/0.tif": "https://example.org/0.tif"})
    assert "GTIFF_DIR:3:/vsicurl/https://example.org/0.tif" in moved


def test_bands_that_do_not_follow_one_another_stay_apart() -> None:
    dims, one = ("y", "x", "band"), Placement("/0.tif", "a", (0, 0, 0), (4, 6, 1), (0, 0, 0))
    gap = one._replace(src_offset=(0, 0, 2), dest=(0, 0, 2))
    other = one._replace(source="/1.tif", src_offset=(0, 0, 1), dest=(0, 0, 1))
    assert raster.whole([one, gap], dims) == (one, gap)
    assert raster.whole([one, other], dims) == (one, other)
