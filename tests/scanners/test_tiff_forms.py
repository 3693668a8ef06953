"""TIFFs through store, plan and every form: verified against GDAL, or refused by name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from osgeo import gdal

from byterefs import emitters
from byterefs.errors import EmitError, PlanError
from forms import Results
from tiffs import CORNER, cog, ramp, turn, write

gdal.UseExceptions()
Shared = Callable[[str], Path]

SOURCE = {"provider": "local", "path": "/", "pattern": r"\.tiff?$"}
TILES = {"TILED": "YES", "BLOCKXSIZE": 16, "BLOCKYSIZE": 32}
ZARR = ("icechunk", "kerchunk")
SINGLE: dict[str, tuple[str, dict[str, Any], int]] = {
    "plain": ("i2", TILES, 1),
    "big endian": ("f4", {**TILES, "ENDIANNESS": "BIG"}, 1),
    "strips cut": ("u2", {"BLOCKYSIZE": 30}, 1),
    "deflate, differences": ("i2", {**TILES, "COMPRESS": "DEFLATE", "PREDICTOR": 2}, 1),
    "lzw, differences, big endian": (
        "u4",
        {**TILES, "COMPRESS": "LZW", "PREDICTOR": 2, "ENDIANNESS": "BIG"},
        1,
    ),
    "zstd, float bytes": ("f4", {**TILES, "COMPRESS": "ZSTD", "PREDICTOR": 3}, 1),
    "float bytes, big endian": (
        "f8",
        {**TILES, "COMPRESS": "LZW", "PREDICTOR": 3, "ENDIANNESS": "BIG"},
        1,
    ),
    "half floats": ("f2", {**TILES, "COMPRESS": "DEFLATE"}, 1),
    "packbits": ("u1", {**TILES, "COMPRESS": "PACKBITS"}, 1),
    "lerc": ("i2", {**TILES, "COMPRESS": "LERC_ZSTD"}, 1),
    "jpeg": ("u1", {**TILES, "COMPRESS": "JPEG", "PHOTOMETRIC": "YCBCR", "INTERLEAVE": "PIXEL"}, 3),
    "jpeg, one band": ("u1", {**TILES, "COMPRESS": "JPEG"}, 1),
    "jpeg, planar": ("u1", {**TILES, "COMPRESS": "JPEG", "INTERLEAVE": "BAND"}, 3),
    "lerc, deflated": ("u2", {**TILES, "COMPRESS": "LERC_DEFLATE"}, 1),
    "bigtiff": ("i2", {**TILES, "COMPRESS": "ZSTD", "PREDICTOR": 2, "BIGTIFF": "YES"}, 1),
    "whole strips": ("i2", {"BLOCKYSIZE": 32, "COMPRESS": "LZW", "PREDICTOR": 2}, 1),
    "planar, differences, big endian": (
        "u2",
        {**TILES, "COMPRESS": "LZW", "PREDICTOR": 2, "INTERLEAVE": "BAND", "ENDIANNESS": "BIG"},
        3,
    ),
    "chunky, float bytes, big endian": (
        "f4",
        {**TILES, "COMPRESS": "ZSTD", "PREDICTOR": 3, "INTERLEAVE": "PIXEL", "ENDIANNESS": "BIG"},
        3,
    ),
    "webp": ("u1", {**TILES, "COMPRESS": "WEBP", "INTERLEAVE": "PIXEL"}, 4),
    "chunky, differences": (
        "u2",
        {**TILES, "COMPRESS": "ZSTD", "PREDICTOR": 2, "INTERLEAVE": "PIXEL"},
        3,
    ),
    "planar": ("f4", {**TILES, "COMPRESS": "DEFLATE", "INTERLEAVE": "BAND"}, 3),
    "packed bits": ("u2", {**TILES, "COMPRESS": "DEFLATE", "NBITS": 12}, 1),
    "packed bits, chunky": ("u1", {**TILES, "NBITS": 3, "INTERLEAVE": "PIXEL"}, 3),
}
"""a dtype, GDAL's options and the number of bands; what all five forms hold"""
PARTLY: dict[str, tuple[str, dict[str, Any], tuple[str, ...], str]] = {
    "a short last strip": ("i2", {"BLOCKYSIZE": 30, "COMPRESS": "LZW"}, ZARR, "only 4 of 30 rows"),
    "lerc floats": ("f4", {**TILES, "COMPRESS": "LERC"}, ZARR, "mask"),
    "differences of floats": (
        "f4",
        {**TILES, "COMPRESS": "LZW", "PREDICTOR": 2},
        ("icechunk",),
        "imagecodecs_delta of Zarr v3 cannot treat <f4",
    ),
    "lerc, big endian": (
        "i2",
        {**TILES, "COMPRESS": "LERC", "ENDIANNESS": "BIG"},
        ("icechunk",),
        "imagecodecs_lerc of Zarr v3 cannot treat >i2",
    ),
}
"""a dtype, GDAL's options, the forms that refuse it, and a word of why"""


def built(folder: Path, path: Path, **parts: Any) -> Results:
    """The store and plan of one TIFF."""
    results = Results(folder, **{"source": SOURCE, "plan": {"concat": None}, **parts})
    results.scan([path])
    return results


def image(path: Path, kind: str, options: dict[str, Any], bands: int = 1) -> np.ndarray:
    """Write a georeferenced image; its pixels as GDAL reads them back, samples last where they are in its chunks."""
    values = ramp((64, 40) if bands == 1 else (bands, 64, 40), kind)
    write(path, values, transform=CORNER, epsg=32755, **options)
    read = gdal.Open(str(path)).ReadAsArray()
    return np.moveaxis(read, 0, -1) if options.get("INTERLEAVE") == "PIXEL" else read


def check(results: Results, form: str, expected: np.ndarray) -> None:
    """Emit and verify a form, and read its array through its own reader."""
    results.emit(("access", form))
    report = results.verify("access", form)
    assert report["verified"]
    assert report["counts"]["values_compared"] >= expected.size
    assert report["counts"]["coordinates_compared"] > 100
    reader = emitters.load(form).open(results.out("access", form), access=lambda path: path)
    got = np.asarray(reader.read("data", tuple(map(slice, expected.shape))))
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("case", SINGLE)
def test_an_image_reads_equal_to_gdal_through_every_form(tmp_path: Path, case: str) -> None:
    kind, options, bands = SINGLE[case]
    expected = image(tmp_path / "one.tif", kind, options, bands)
    results = built(tmp_path / "demo", tmp_path / "one.tif")
    for form in emitters.NAMES:
        check(results, form, expected)


@pytest.mark.parametrize("case", PARTLY)
def test_a_form_that_cannot_hold_an_image_refuses_it_and_the_others_read_equal(
    tmp_path: Path, case: str
) -> None:
    kind, options, refusing, why = PARTLY[case]
    expected = image(tmp_path / "one.tif", kind, options)
    results = built(tmp_path / "demo", tmp_path / "one.tif")
    for form in emitters.NAMES:
        if form not in refusing:
            check(results, form, expected)
            continue
        with pytest.raises(EmitError) as refusal:
            results.emit(("access", form))
        assert all(word in str(refusal.value) for word in ("data", why, "sqlite, vrt"))


def test_what_a_reader_needs_for_tiff_codecs_stands_in_open_json(tmp_path: Path) -> None:
    image(tmp_path / "one.tif", "u1", {**TILES, "COMPRESS": "LZW"})
    results = built(tmp_path / "demo", tmp_path / "one.tif")
    for form, module in (("kerchunk", "numcodecs"), ("icechunk", "zarr")):
        results.emit(("access", form))
        lines = (results.out("access", form) / "OPEN.md").read_text()
        assert f"imagecodecs.{module}.register_codecs()" in lines
    gaps = (results.out("access", "kerchunk") / "OPEN.md").read_text()
    assert "GDAL has no decoder for imagecodecs_lzw" in gaps


def test_packed_bits_in_reverse_order_are_refused_to_icechunk_and_read_by_kerchunk(
    tmp_path: Path,
) -> None:
    image(tmp_path / "one.tif", "u1", {"NBITS": 2, "BLOCKYSIZE": 32})
    turn(tmp_path / "one.tif")
    expected = gdal.Open(str(tmp_path / "one.tif")).ReadAsArray()
    results = built(tmp_path / "demo", tmp_path / "one.tif")
    check(results, "kerchunk", expected)
    with pytest.raises(EmitError, match="filters elements after bytes"):
        results.emit(("access", "icechunk"))


@pytest.mark.parametrize("epsg", [4326, 32755])
@pytest.mark.parametrize("inner", [{}, {"INTERLEAVE": "PIXEL"}, {"INTERLEAVE": "BAND"}])
def test_the_vrt_has_the_crs_that_gdal_gives_its_sources(
    tmp_path: Path, epsg: int, inner: dict[str, Any]
) -> None:
    values = ramp((3, 64, 40) if inner else (64, 40))
    write(tmp_path / "one.tif", values, transform=CORNER, epsg=epsg, **inner)
    results = built(tmp_path / "demo", tmp_path / "one.tif")
    results.emit(("access", "vrt"))
    opened = gdal.OpenEx(str(results.out("access", "vrt") / "demo.vrt"), gdal.OF_MULTIDIM_RASTER)
    array = opened.GetRootGroup().OpenMDArray("data")
    names = [dim.GetName() for dim in array.GetDimensions()]
    raster = array.AsClassicDataset(names.index("x"), names.index("y"))
    source = gdal.Open(str(tmp_path / "one.tif"))
    assert raster.GetSpatialRef().IsSame(source.GetSpatialRef())
    assert raster.GetGeoTransform() == source.GetGeoTransform()
    np.testing.assert_array_equal(raster.ReadAsArray(), source.ReadAsArray())


def test_an_overview_is_an_array_of_its_own_in_every_form(shared: Shared, tmp_path: Path) -> None:
    path = shared("hdf5_tricky") / "lcmap_tiny_cog_2020.tif"
    results = built(tmp_path / "demo", path, scan={"arrays": ["data", "overview_1"]})
    opened = gdal.Open(str(path))
    expected = opened.GetRasterBand(1).GetOverview(0).ReadAsArray()
    for form in emitters.NAMES:
        check(results, form, opened.ReadAsArray())
        reader = emitters.load(form).open(results.out("access", form), access=lambda path: path)
        got = np.asarray(reader.read("overview_1", tuple(map(slice, expected.shape))))
        np.testing.assert_array_equal(got, expected)


# --- stacks ----------------------------------------------------------------------------------------

DAY = {"from": "date", "format": "%Y%m%d", "units": "days since 1970-01-01"}
DAYS = ("20220912", "20220913", "20220914")
PATTERN = r"(?P<date>\d{8})(-(?P<what>\w+))?\.tiff?$"


def stack(folder: Path, root: Path, files: list[Path], **scan: Any) -> Results:
    """The store and plan of TIFFs that follow one another by the date in their names."""
    rules = {"pattern": PATTERN, "below": str(root), "coordinate": DAY, **scan.pop("file_name", {})}
    source = {"provider": "local", "path": str(root), "pattern": r"\.tiff?$"}
    results = Results(
        folder, source=source, scan={"file_name": rules, **scan}, plan={"concat": "time"}
    )
    results.scan(files)
    return results


def test_a_stack_of_cogs_reads_equal_through_every_form(tmp_path: Path) -> None:
    values = np.stack([ramp((300, 200), seed=i) for i in range(3)])
    files = [cog(tmp_path / f"sst.{day}.tif", v, COMPRESS="DEFLATE", PREDICTOR="YES") for day, v in zip(DAYS, values, strict=True)]  # fmt: skip
    results = stack(tmp_path / "demo", tmp_path, files[::-1], arrays=["sst"])
    for form in emitters.NAMES:
        np.testing.assert_array_equal(results.proven(form, "sst"), values)
        assert results.proven(form, "time").tolist() == [19247, 19248, 19249]


def test_stock_gdal_opens_the_stack_as_one_array_with_its_crs(tmp_path: Path) -> None:
    values = np.stack([ramp((300, 200), seed=i) for i in range(3)])
    files = [cog(tmp_path / f"{day}.tif", v) for day, v in zip(DAYS, values, strict=True)]
    results = stack(tmp_path / "demo", tmp_path, files)
    results.emit(("access", "vrt"))
    opened = gdal.OpenEx(str(results.out("access", "vrt") / "demo.vrt"), gdal.OF_MULTIDIM_RASTER)
    array = opened.GetRootGroup().OpenMDArray("data")
    assert [dim.GetName() for dim in array.GetDimensions()] == ["time", "y", "x"]
    np.testing.assert_array_equal(array.ReadAsArray(), values)
    assert array.GetNoDataValue() == -999
    slice_ = array.GetView("[1]").AsClassicDataset(1, 0)
    source = gdal.Open(str(files[1]))
    assert slice_.GetSpatialRef().IsSame(source.GetSpatialRef())
    assert slice_.GetGeoTransform() == source.GetGeoTransform()


def test_sparse_tiles_of_a_stack_read_as_nodata_in_every_form(tmp_path: Path) -> None:
    values = np.full((3, 64, 64), -999, "i2")
    options = {**TILES, "SPARSE_OK": "TRUE", "COMPRESS": "ZSTD"}
    files = []
    for i, day in enumerate(DAYS):
        path = write(tmp_path / f"{day}.tif", values[i], nodata=-999, keep=False, **options)
        values[i, 32 * (i % 2) : 32 * (i % 2) + 32, :16] = ramp((32, 16), seed=i)
        with gdal.Open(str(path), gdal.GA_Update) as made:
            made.GetRasterBand(1).WriteArray(
                values[i, 32 * (i % 2) : 32 * (i % 2) + 32, :16], 0, 32 * (i % 2)
            )
        files.append(path)
    results = stack(tmp_path / "demo", tmp_path, files)
    for form in emitters.NAMES:
        np.testing.assert_array_equal(results.proven(form, "data"), values)


def test_a_stack_of_four_bands_reads_equal_through_every_form(
    shared: Shared, tmp_path: Path
) -> None:
    root = shared("geotiff_landsat")
    files = sorted(root.glob("rgbn_*.tif"))
    assert len(files) == 4
    results = stack(tmp_path / "demo", root, files, arrays=["rgbn"])
    expected = np.stack([np.moveaxis(gdal.Open(str(f)).ReadAsArray(), 0, -1) for f in files])
    for form in emitters.NAMES:
        np.testing.assert_array_equal(results.proven(form, "rgbn"), expected)


def test_a_stack_of_big_endian_strips_reads_equal_through_every_form(
    shared: Shared, tmp_path: Path
) -> None:
    root = shared("geotiff_landsat")
    files = sorted(root.glob("LC08_*.tif"))
    assert len(files) == 4
    rules = {"pattern": r"_(?P<date>\d{8})_\d{8}_C01"}
    results = stack(tmp_path / "demo", root, files, file_name=rules)
    expected = np.stack([gdal.Open(str(f)).ReadAsArray() for f in files])
    for form in emitters.NAMES:
        got = results.proven(form, "data")
        np.testing.assert_array_equal(got, expected)


def test_the_four_real_oisst_cogs_are_a_stack_of_four_variables(
    shared: Shared, tmp_path: Path
) -> None:
    root = shared("oisst")
    files = sorted(root.glob("oisst-avhrr-v02r01.20220913-*.tif"))
    assert len(files) == 4
    results = stack(tmp_path / "demo", root, files, file_name={"array": "what"})
    for form in emitters.NAMES:
        for path in files:
            name = path.stem.rsplit("-", 1)[1]
            expected = gdal.Open(str(path)).ReadAsArray()[None]
            np.testing.assert_array_equal(results.proven(form, name), expected)


def test_a_grid_that_changes_along_a_stack_is_refused(tmp_path: Path) -> None:
    one = write(tmp_path / "20220912.tif", ramp((8, 8)), transform=CORNER)
    other = write(tmp_path / "20220913.tif", ramp((8, 8)), transform=(100.75, *CORNER[1:]))
    with pytest.raises(PlanError, match="array 'x' has no axis 'time' and differs") as refusal:
        stack(tmp_path / "demo", tmp_path, [one, other])
    assert str(one) in str(refusal.value)
    assert str(other) in str(refusal.value)


def test_tiffs_without_a_time_are_told_where_to_say_it(tmp_path: Path) -> None:
    files = [write(tmp_path / f"{day}.tif", ramp((8, 8))) for day in DAYS]
    results = Results(tmp_path / "demo", source=SOURCE, plan={"concat": "time"})
    with pytest.raises(PlanError, match=r"scan\.file_name\.coordinate"):
        results.scan(files)
