"""The TIFF scanner against GDAL, and the traps of research/peers.md, A.3, B34-B36 and 0.8."""

from __future__ import annotations

import struct
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import tifffile
from osgeo import gdal, osr

from byterefs import codecs, literals, scanners
from byterefs.errors import ByteRefsError, ScanError
from byterefs.grid import chunk_grid
from byterefs.model import ABSENT, SourceArray
from conformance import ScannerTests, assembled, by_value, scanned, stored_bytes
from granules import Granule
from tiffs import CORNER, cog, ramp, turn, write

gdal.UseExceptions()
Shared = Callable[[str], Path]

REFUSED = {
    "flower-rgb-planar-24.tif": "24 bits",
    "tiled-cmyk-i8.tif": "CMYK",
    "ycbcr-cat.tif": "YCbCr",
}
"""real files that cannot be referenced, and a word of the reason"""


def by_gdal(path: Path, dims: tuple[str, ...]) -> np.ndarray:
    """All pixels as GDAL reads them, in the axes of the scan."""
    found = gdal.Open(str(path)).ReadAsArray()
    return np.ascontiguousarray(np.moveaxis(found, 0, -1) if dims[-1] == "band" else found)


def native(values: np.ndarray) -> np.ndarray:
    return values.astype(values.dtype.newbyteorder("="))


def equal_to_gdal(path: Path, item: SourceArray) -> bool:
    """The bits of every value that the references give are GDAL's."""
    got, expected = native(assembled(path, item)), by_gdal(path, item.meta.dims)
    assert (got.dtype, got.shape) == (expected.dtype, expected.shape)
    return got.tobytes() == expected.tobytes()


def data(path: Path, **options: Any) -> SourceArray:
    return scanned(path, **options).arrays["data"]


class TestTiff(ScannerTests):
    FORMAT: ClassVar[str] = "tiff"
    COORDINATES: ClassVar[frozenset[str]] = frozenset({"x", "y", "spatial_ref"})
    NOWHERE: ClassVar[tuple[str, ...]] = ("no such array", "nor this one")

    def granule(self, folder: Path) -> Granule:
        values = ramp((48, 64))
        path = write(
            folder / "plain.tif", values, transform=CORNER, epsg=4326,
            TILED="YES", BLOCKXSIZE=32, BLOCKYSIZE=16, COMPRESS="DEFLATE", PREDICTOR=2,
        )  # fmt: skip
        axes = {
            "x": 100.5 + (np.arange(64) + 0.5) * 0.25,
            "y": -30 + (np.arange(48) + 0.5) * -0.5,
            "spatial_ref": np.zeros((), "<i4"),
        }
        return Granule(path, {"data": values, **axes})

    def edges(self, folder: Path) -> Granule:
        values = ramp((50, 70))
        return Granule(
            write(folder / "edges.tif", values, TILED="YES", BLOCKXSIZE=32, BLOCKYSIZE=16, COMPRESS="LZW"),
            {"data": values},
        )  # fmt: skip

    def sparse(self, folder: Path) -> Granule:
        path = folder / "sparse.tif"
        values = np.full((64, 64), -999, "i2")
        write(path, values, nodata=-999, keep=False, TILED="YES", BLOCKXSIZE=32, BLOCKYSIZE=32, SPARSE_OK="TRUE", COMPRESS="ZSTD")  # fmt: skip
        values[:32, 32:] = ramp((32, 32))
        with gdal.Open(str(path), gdal.GA_Update) as made:
            made.GetRasterBand(1).WriteArray(values[:32, 32:], 32, 0)
        return Granule(path, {"data": values}, {"data": {(0, 0), (1, 0), (1, 1)}})

    def mixed(self, folder: Path) -> tuple[Path, str, str]:
        path = write(
            folder / "mixed.tif", ramp((32, 32)), TILED="YES", BLOCKXSIZE=16, BLOCKYSIZE=16
        )
        with tifffile.TiffFile(path, mode="r+") as made:
            made.pages[0].tags[325].overwrite((512, 511, 512, 512))
        return path, "data", "511 bytes of 512"


@pytest.mark.parametrize(
    ("compress", "predictor"),
    [("NONE", 1), ("PACKBITS", 1), *product(("LZW", "DEFLATE", "ZSTD"), (1, 2, 3))],
)
def test_every_kind_of_sample_decodes_to_what_gdal_reads(
    tmp_path: Path, compress: str, predictor: int
) -> None:
    kinds = {2: ("u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8", "f4", "f8", "c8"), 3: ("f4", "f8")}
    kinds[1] = (*kinds[2], "f2", "c16")
    layouts = [{"TILED": "YES", "BLOCKXSIZE": 16, "BLOCKYSIZE": 32}, {"BLOCKYSIZE": 30}]
    checked = 0
    for kind, order, layout, bands in product(
        kinds[predictor], ("LITTLE", "BIG"), layouts, ("ONE", "PIXEL", "BAND")
    ):
        if predictor == 2 and kind == "c8" and order == "BIG":
            continue
        values = ramp((64, 40) if bands == "ONE" else (3, 64, 40), kind, checked)
        inner = {} if bands == "ONE" else {"INTERLEAVE": bands}
        path = write(
            tmp_path / f"{checked}.tif", values,
            COMPRESS=compress, PREDICTOR=predictor, ENDIANNESS=order, **layout, **inner,
        )  # fmt: skip
        item = data(path)
        assert item.meta.dims == {"ONE": ("y", "x"), "PIXEL": ("y", "x", "band"), "BAND": ("band", "y", "x")}[bands]  # fmt: skip
        assert equal_to_gdal(path, item), (kind, order, layout, bands)
        written = np.moveaxis(values, 0, -1) if bands == "PIXEL" else values
        np.testing.assert_array_equal(assembled(path, item), written)
        checked += 1
    assert checked == len(kinds[predictor]) * 12 - (6 if predictor == 2 else 0)


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("kind", ["u1", "i2", "u4", "f4", "f8"])
@pytest.mark.parametrize("compression", ["lzw", "zlib", "zstd", "packbits"])
def test_what_tifffile_writes_decodes_to_its_values_and_gdals(
    tmp_path: Path, compression: str, kind: str, order: str
) -> None:
    layouts: list[dict[str, Any]] = [{"tile": (32, 16)}, {"rowsperstrip": 30}]
    planes: list[tuple[tuple[int, ...], dict[str, Any]]] = [
        ((64, 40), {"photometric": "minisblack"}),
        ((64, 40, 3), {"photometric": "minisblack", "planarconfig": "contig"}),
        ((3, 64, 40), {"photometric": "minisblack", "planarconfig": "separate"}),
    ]
    predictors = (False,) if compression == "packbits" else (False, True)
    for layout, (shape, inner), predictor in product(layouts, planes, predictors):
        values = ramp(shape, kind)
        path = tmp_path / "t.tif"
        tifffile.imwrite(
            path, values, byteorder=order, compression=compression, predictor=predictor,
            metadata=None, bigtiff=predictor, **layout, **inner,
        )  # fmt: skip
        item = data(path)
        np.testing.assert_array_equal(native(assembled(path, item)), values)
        assert equal_to_gdal(path, item), (layout, inner, predictor)


def test_differences_of_big_endian_complex_numbers_are_refused(tmp_path: Path) -> None:
    options = {"COMPRESS": "LZW", "PREDICTOR": 2, "ENDIANNESS": "BIG"}
    path = write(tmp_path / "c.tif", ramp((8, 8), "c8"), **options)
    with pytest.raises(ScanError, match="predictor is 2 on samples of >c8"):
        scanned(path)


@pytest.mark.parametrize("compress", ["LERC", "LERC_DEFLATE", "LERC_ZSTD"])
@pytest.mark.parametrize("kind", ["u1", "i2", "u4", "f4", "f8"])
def test_lerc_decodes_to_what_gdal_reads_nan_too(tmp_path: Path, compress: str, kind: str) -> None:
    values = ramp((64, 64), kind)
    if values.dtype.kind == "f":
        values[3:9, 5:20] = np.nan
    for order in ("LITTLE",) if values.dtype.kind == "f" else ("LITTLE", "BIG"):
        path = write(
            tmp_path / f"{order}.tif", values,
            COMPRESS=compress, MAX_Z_ERROR=0, ENDIANNESS=order, TILED="YES", BLOCKXSIZE=32, BLOCKYSIZE=32,
        )  # fmt: skip
        assert equal_to_gdal(path, data(path))


def test_lerc_floats_in_big_endian_order_are_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "b.tif", ramp((16, 16), "f4"), COMPRESS="LERC", ENDIANNESS="BIG")
    with pytest.raises(ScanError, match="LERC holds floats in big-endian"):
        scanned(path)


def test_lerc_floats_are_refused_to_zarr_readers_for_their_mask(tmp_path: Path) -> None:
    path = write(tmp_path / "f.tif", ramp((16, 16), "f4"), COMPRESS="LERC")
    assert "mask" in str(codecs.numcodecs_refusal(data(path).meta.codec))
    path = write(tmp_path / "i.tif", ramp((16, 16), "i2"), COMPRESS="LERC")
    assert codecs.numcodecs_refusal(data(path).meta.codec) is None


@pytest.mark.parametrize(("count", "photometric"), [(1, "MINISBLACK"), (3, "RGB"), (3, "YCBCR")])
@pytest.mark.parametrize("layout", [{"TILED": "YES", "BLOCKXSIZE": 32, "BLOCKYSIZE": 32}, {"BLOCKYSIZE": 16}])  # fmt: skip
def test_jpeg_with_tables_decodes_to_what_gdal_reads(
    tmp_path: Path, count: int, photometric: str, layout: dict[str, Any]
) -> None:
    smooth = (np.add.outer(np.arange(72), np.arange(96)) % 256).astype("u1")
    values = np.stack([np.roll(smooth, 20 * i, 1) for i in range(count)])
    path = write(
        tmp_path / "j.tif", values, COMPRESS="JPEG", PHOTOMETRIC=photometric, INTERLEAVE="PIXEL", **layout
    )  # fmt: skip
    item = data(path)
    assert codecs.pipeline(item.meta.codec)[-1]["tables"]
    assert equal_to_gdal(path, item)


@pytest.mark.parametrize("count", [3, 4])
@pytest.mark.parametrize("lossless", ["TRUE", "FALSE"])
def test_webp_decodes_to_what_gdal_reads_opaque_tiles_too(
    tmp_path: Path, count: int, lossless: str
) -> None:
    values = ramp((count, 64, 64), "u1")
    if count == 4:
        values[3] = 255
        values[3, :32, :32] = 7
    path = write(
        tmp_path / "w.tif", values, COMPRESS="WEBP", WEBP_LOSSLESS=lossless, INTERLEAVE="PIXEL",
        TILED="YES", BLOCKXSIZE=32, BLOCKYSIZE=32,
    )  # fmt: skip
    assert equal_to_gdal(path, data(path))


@pytest.mark.parametrize("big", ["YES", "NO"])
@pytest.mark.parametrize("order", ["LITTLE", "BIG"])
def test_bigtiff_is_read_in_both_byte_orders(tmp_path: Path, big: str, order: str) -> None:
    path = write(tmp_path / "b.tif", ramp((40, 40)), BIGTIFF=big, ENDIANNESS=order, COMPRESS="LZW")
    assert path.read_bytes()[2 if order == "LITTLE" else 3] == (43 if big == "YES" else 42)
    assert equal_to_gdal(path, data(path))


def test_the_byte_ranges_are_those_of_gdal(tmp_path: Path) -> None:
    options = {"TILED": "YES", "BLOCKXSIZE": 16, "BLOCKYSIZE": 32, "COMPRESS": "DEFLATE"}
    path = write(tmp_path / "r.tif", ramp((3, 70, 50)), INTERLEAVE="BAND", **options)
    item, opened = data(path), gdal.Open(str(path))
    assert item.offset is not None
    assert item.size is not None
    for b, y, x in np.ndindex(item.offset.shape):
        band = opened.GetRasterBand(b + 1)
        expected = [band.GetMetadataItem(f"BLOCK_{w}_{x}_{y}", "TIFF") for w in ("OFFSET", "SIZE")]
        assert [str(item.offset[b, y, x]), str(item.size[b, y, x])] == expected
    assert item.offset.size == 3 * 3 * 4


# --- strips ----------------------------------------------------------------------------------------


def test_a_short_last_strip_that_is_compressed_is_decoded_and_refused_to_zarr_readers_by_name(
    tmp_path: Path,
) -> None:
    path = write(tmp_path / "s.tif", ramp((64, 20)), BLOCKYSIZE=30, COMPRESS="DEFLATE", PREDICTOR=2)
    item = data(path)
    assert item.meta.chunks == (30, 20)
    assert equal_to_gdal(path, item)
    assert "only 4 of 30 rows" in str(codecs.numcodecs_refusal(item.meta.codec))
    raw = stored_bytes(path, item, (2, 0))
    assert raw is not None
    last = codecs.decode(item.meta.codec, raw, item.meta.dtype, item.meta.chunks)
    assert last.shape == (30, 20)
    assert not last[4:].any()


def test_strips_that_divide_the_image_carry_no_mark(tmp_path: Path) -> None:
    path = write(tmp_path / "s.tif", ramp((60, 20)), BLOCKYSIZE=30, COMPRESS="DEFLATE")
    assert data(path).meta.codec == {"compressor": {"id": "zlib", "level": 6}, "filters": None}


@pytest.mark.parametrize("bands", ["ONE", "PIXEL", "BAND"])
def test_uncompressed_strips_are_cut_to_pieces_that_divide_the_image(
    tmp_path: Path, bands: str
) -> None:
    inner = {} if bands == "ONE" else {"INTERLEAVE": bands}
    values = ramp((64, 20) if bands == "ONE" else (3, 64, 20))
    path = write(tmp_path / "s.tif", values, BLOCKYSIZE=30, **inner)
    item = data(path)
    assert item.meta.chunks[item.meta.dims.index("y")] == 2
    assert codecs.numcodecs_refusal(item.meta.codec) is None
    assert equal_to_gdal(path, item)


def test_uncompressed_strips_stay_whole_without_split(tmp_path: Path) -> None:
    path = write(tmp_path / "s.tif", ramp((64, 20)), BLOCKYSIZE=30)
    item = data(path, split=False)
    assert item.meta.chunks == (30, 20)
    assert "only 4 of 30 rows" in str(codecs.numcodecs_refusal(item.meta.codec))
    assert equal_to_gdal(path, item)


def test_a_strip_of_neither_all_nor_the_last_rows_is_no_chunk(tmp_path: Path) -> None:
    path = write(tmp_path / "s.tif", ramp((64, 20)), BLOCKYSIZE=30, COMPRESS="DEFLATE")
    item = data(path)
    import zlib

    with pytest.raises(ByteRefsError, match="200 came out"):
        codecs.decode(item.meta.codec, zlib.compress(bytes(200)), item.meta.dtype, (30, 20))


def test_sparse_strips_are_absent_and_read_as_zero_without_nodata(tmp_path: Path) -> None:
    path = write(tmp_path / "s.tif", ramp((64, 20)), keep=False, BLOCKYSIZE=30, SPARSE_OK="TRUE")
    item = data(path)
    assert item.offset is not None
    assert (item.offset == ABSENT).all()
    assert item.meta.fill is None
    assert equal_to_gdal(path, item)


# --- fill and words --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "nodata", "fill"),
    [
        ("f4", float("nan"), "NaN"),
        ("f4", -3.4e38, "-3.4e+38"),
        ("f8", float("-inf"), "-Infinity"),
        ("u1", 255, "255"),
        ("i2", -32768, "-32768"),
    ],
)
def test_sparse_tiles_read_as_nodata_as_gdal_reads_them(
    tmp_path: Path, kind: str, nodata: float, fill: str
) -> None:
    options = {"TILED": "YES", "BLOCKXSIZE": 16, "BLOCKYSIZE": 16, "SPARSE_OK": "TRUE"}
    path = write(tmp_path / "n.tif", np.zeros((32, 32), kind), nodata=nodata, keep=False, **options)
    item = data(path)
    assert item.meta.fill == fill
    assert literals.attr_json(literals.fill_value(fill, kind))[0] == item.meta.attrs["_FillValue"]
    assert equal_to_gdal(path, item)


@pytest.mark.parametrize("value", [2**63 - 1, -(2**63), 2**53 + 1])
def test_nodata_of_64_bits_keeps_every_digit(tmp_path: Path, value: int) -> None:
    path = write(tmp_path / "n.tif", np.zeros((8, 8), "i8"))
    with gdal.Open(str(path), gdal.GA_Update) as made:
        made.GetRasterBand(1).SetNoDataValueAsInt64(value)
    assert data(path).meta.fill == str(value)


def test_nodata_that_the_samples_cannot_hold_is_no_fill(tmp_path: Path) -> None:
    path = write(tmp_path / "n.tif", ramp((16, 16), "u1"), nodata=-9999)
    item = data(path)
    assert item.meta.fill is None
    assert "_FillValue" not in item.meta.attrs
    assert item.meta.attrs["GDAL_NODATA"] == "-9999"


def test_nodata_that_the_samples_cannot_hold_is_refused_where_tiles_are_sparse(
    tmp_path: Path,
) -> None:
    path = write(
        tmp_path / "n.tif", ramp((16, 16), "u1"), nodata=-9999, keep=False, SPARSE_OK="TRUE"
    )
    with pytest.raises(ScanError, match="absent chunks read as -9999") as refusal:
        scanned(path)
    assert str(path) in str(refusal.value)


def test_scale_offset_units_and_description_become_cf_attributes(tmp_path: Path) -> None:
    path = write(tmp_path / "w.tif", ramp((8, 8)))
    with gdal.Open(str(path), gdal.GA_Update) as made:
        band = made.GetRasterBand(1)
        band.SetScale(0.001)
        band.SetOffset(25)
        band.SetUnitType("degC")
        band.SetDescription("sea surface temperature")
        made.SetMetadata({"history": "made here", "TIFFTAG_SOFTWARE": "pen"})
    found = scanned(path)
    assert found.arrays["data"].meta.attrs == {
        "scale_factor": 0.001,
        "add_offset": 25.0,
        "units": "degC",
        "long_name": "sea surface temperature",
    }
    assert found.root == {
        "history": "made here",
        "TIFFTAG_SOFTWARE": "pen",
        "AREA_OR_POINT": "Area",
    }


def test_bands_of_different_scales_are_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "w.tif", ramp((2, 8, 8)))
    with gdal.Open(str(path), gdal.GA_Update) as made:
        made.GetRasterBand(1).SetScale(0.001)
        made.GetRasterBand(2).SetScale(0.01)
    with pytest.raises(ScanError, match=r"bands differ in scale \(0.001, 0.01\)"):
        scanned(path)


# --- where the pixels lie --------------------------------------------------------------------------


@pytest.mark.parametrize("point", [False, True])
@pytest.mark.parametrize("epsg", [4326, 3577, 32755, 3031])
def test_x_and_y_are_pixel_centres_bit_for_bit_as_gdal_has_them(
    tmp_path: Path, epsg: int, point: bool
) -> None:
    path = tmp_path / "g.tif"
    write(path, ramp((30, 40)), transform=(1 / 3, 0.1, 0, -7 / 9, 0, -0.3), epsg=epsg)
    if point:
        gdal.Translate(str(tmp_path / "p.tif"), str(path), metadataOptions=["AREA_OR_POINT=Point"])
        path = tmp_path / "p.tif"
    found, array = scanned(path).arrays, gdal.Open(str(path)).AsMDArray()
    for dim in array.GetDimensions()[1:]:
        expected = np.frombuffer(bytes(dim.GetIndexingVariable().Read()))
        assert by_value(found[dim.GetName().lower()]).tobytes() == expected.tobytes()
    system = osr.SpatialReference()
    system.ImportFromWkt(found["spatial_ref"].meta.attrs["crs_wkt"])
    options = ["IGNORE_DATA_AXIS_TO_SRS_AXIS_MAPPING=YES"]
    assert system.IsSame(gdal.Open(str(path)).GetSpatialRef(), options)
    names = {4326: "latitude_longitude", 3577: "albers_conical_equal_area", 32755: "transverse_mercator", 3031: "polar_stereographic"}  # fmt: skip
    assert found["spatial_ref"].meta.attrs["grid_mapping_name"] == names[epsg]
    assert found["data"].meta.attrs["grid_mapping"] == "spatial_ref"
    given = tuple(map(float, found["spatial_ref"].meta.attrs["GeoTransform"].split()))
    assert given == gdal.Open(str(path)).GetGeoTransform()


def test_a_rotated_grid_has_no_axes_and_its_mapping_says_where_pixels_lie(tmp_path: Path) -> None:
    path = write(tmp_path / "r.tif", ramp((8, 8)), transform=(0, 1, 0.5, 0, 0.5, -1), epsg=3577)
    found = scanned(path).arrays
    assert set(found) == {"data", "spatial_ref"}
    given = tuple(map(float, found["spatial_ref"].meta.attrs["GeoTransform"].split()))
    assert given == gdal.Open(str(path)).GetGeoTransform()
    np.testing.assert_array_equal(assembled(path, found["data"]), ramp((8, 8)))


def test_a_rotated_grid_without_a_crs_is_refused_by_name(tmp_path: Path) -> None:
    path = write(tmp_path / "r.tif", ramp((8, 8)), transform=(0, 1, 0.5, 0, 0.5, -1))
    with pytest.raises(ScanError, match="rotated") as refusal:
        scanned(path)
    assert str(path) in str(refusal.value)
    assert "gdalwarp" in str(refusal.value)


def test_a_file_without_georeference_has_no_axes(tmp_path: Path) -> None:
    assert set(scanned(write(tmp_path / "n.tif", ramp((8, 8)))).arrays) == {"data"}


# --- names and further images ----------------------------------------------------------------------


@pytest.mark.parametrize("compress", ["NONE", "DEFLATE", "ZSTD", "LZW"])
def test_a_cog_is_its_first_image_and_overviews_come_when_wanted(
    tmp_path: Path, compress: str
) -> None:
    path = cog(tmp_path / "c.tif", ramp((300, 300)), COMPRESS=compress, PREDICTOR="YES")
    assert b"GDAL_STRUCTURAL_METADATA" in path.read_bytes()[:100]
    found = scanned(path)
    assert set(found.arrays) == {"data", "x", "y", "spatial_ref"}
    assert equal_to_gdal(path, found.arrays["data"])
    more = scanned(path, arrays=("sst", "overview_1")).arrays
    assert set(more) == {"sst", "overview_1", "x", "y", "spatial_ref"}
    assert more["overview_1"].meta.dims == ("y_overview_1", "x_overview_1")
    with gdal.Open(str(path)) as opened:
        expected = opened.GetRasterBand(1).GetOverview(0).ReadAsArray()
    np.testing.assert_array_equal(assembled(path, more["overview_1"]), expected)


def test_an_overview_comes_alone_when_it_alone_is_wanted(tmp_path: Path) -> None:
    path = cog(tmp_path / "c.tif", ramp((300, 300)))
    assert set(scanned(path, arrays=("overview_1",)).arrays) == {"overview_1"}
    with pytest.raises(ScanError, match="overview_9"):
        scanned(path, arrays=("overview_9",))


def test_the_one_wanted_name_names_the_image(tmp_path: Path) -> None:
    path = write(tmp_path / "n.tif", ramp((8, 8)))
    assert set(scanned(path, arrays=("sst",)).arrays) == {"sst"}


def test_a_second_page_comes_when_wanted(tmp_path: Path) -> None:
    pages = ramp((2, 16, 16))
    tifffile.imwrite(tmp_path / "p.tif", pages, photometric="minisblack", metadata=None)
    found = scanned(tmp_path / "p.tif", arrays=("data", "page_2")).arrays
    np.testing.assert_array_equal(assembled(tmp_path / "p.tif", found["data"]), pages[0])
    np.testing.assert_array_equal(assembled(tmp_path / "p.tif", found["page_2"]), pages[1])


# --- damage ----------------------------------------------------------------------------------------


def test_a_tag_that_cannot_be_read_is_refused_and_not_left_out(tmp_path: Path) -> None:
    path = write(tmp_path / "t.tif", ramp((3, 8, 8)), INTERLEAVE="PIXEL")
    whole = bytearray(path.read_bytes())
    (first,) = struct.unpack_from("<I", whole, 4)
    (count,) = struct.unpack_from("<H", whole, first)
    at = next(
        p for p in range(first + 2, first + 2 + 12 * count, 12) if struct.unpack_from("<H", whole, p) == (258,)
    )  # fmt: skip
    struct.pack_into("<I", whole, at + 8, 2**31)
    path.write_bytes(whole)
    with pytest.raises(ScanError, match="tag 258 cannot be read") as refusal:
        scanned(path)
    assert str(path) in str(refusal.value)


PACKED = [1, 2, 3, 4, 7, 9, 12, 15, 17, 31]


@pytest.mark.parametrize("bits", PACKED)
@pytest.mark.parametrize("compress", ["NONE", "LZW", "PACKBITS"])
def test_samples_of_odd_bits_decode_to_what_gdal_reads(
    tmp_path: Path, compress: str, bits: int
) -> None:
    kind = "u1" if bits < 8 else "u2" if bits < 16 else "u4"
    layouts: list[dict[str, Any]] = [
        {"TILED": "YES", "BLOCKXSIZE": 16, "BLOCKYSIZE": 32},
        {"BLOCKYSIZE": 20},
    ]
    orders, inner = ("LITTLE", "BIG"), ((1, "BAND"), (3, "PIXEL"), (2, "BAND"))
    for layout, order, (bands, interleave) in product(layouts, orders, inner):
        values = ramp((bands, 45, 37), kind) & ((1 << bits) - 1)
        more = {"ENDIANNESS": order, "INTERLEAVE": interleave, "NBITS": bits, "COMPRESS": compress}
        path = write(tmp_path / "o.tif", values if bands > 1 else values[0], **layout, **more)
        assert equal_to_gdal(path, data(path)), (layout, more)


@pytest.mark.parametrize("compress", ["CCITTRLE", "CCITTFAX3", "CCITTFAX4"])
def test_ccitt_is_refused_for_its_decoders_differ_without_a_word(
    tmp_path: Path, compress: str
) -> None:
    path = write(tmp_path / "fax.tif", np.ones((16, 16), "u1"), NBITS=1, COMPRESS=compress)
    with pytest.raises(ScanError, match=r"data: its compression is CCITT .*gdal_translate"):
        scanned(path)


@pytest.mark.parametrize("bits", [1, 8, 12])
@pytest.mark.parametrize("compress", ["NONE", "LZW", "DEFLATE", "PACKBITS"])
def test_bytes_whose_bits_are_in_reverse_order_decode_to_what_gdal_reads(
    tmp_path: Path, compress: str, bits: int
) -> None:
    values = ramp((45, 37), "u2" if bits > 8 else "u1") & ((1 << bits) - 1)
    path = write(tmp_path / "r.tif", values, NBITS=bits, COMPRESS=compress, BLOCKYSIZE=20)
    turn(path)
    np.testing.assert_array_equal(gdal.Open(str(path)).ReadAsArray(), values)
    assert equal_to_gdal(path, data(path))


def test_samples_of_24_bits_are_refused_for_writers_differ_in_their_bytes(tmp_path: Path) -> None:
    path = write(tmp_path / "o.tif", np.ones((16, 16), "u4"), NBITS=24)
    with pytest.raises(ScanError, match="data: its samples have 24 bits, whose bytes") as refusal:
        scanned(path)
    assert str(path) in str(refusal.value)


@pytest.mark.parametrize("dtype", ["u2", "i4", "f4"])
@pytest.mark.parametrize("predictor", [False, True])
def test_lzma_decodes_to_what_was_written(tmp_path: Path, dtype: str, predictor: bool) -> None:
    values = ramp((45, 37)).astype(dtype)
    options = {"compression": "lzma", "predictor": predictor, "rowsperstrip": 15}
    tifffile.imwrite(tmp_path / "l.tif", values, metadata=None, **options)
    np.testing.assert_array_equal(assembled(tmp_path / "l.tif", data(tmp_path / "l.tif")), values)


def test_masks_are_images_of_single_bits_by_the_number_of_their_ifd(tmp_path: Path) -> None:
    path = write(tmp_path / "m.tif", ramp((64, 40)), COMPRESS="DEFLATE")
    seen = (ramp((64, 40), "u1") & 1).astype("u1")
    inside = gdal.config_option("GDAL_TIFF_INTERNAL_MASK", "YES")
    with inside, gdal.OpenEx(str(path), gdal.OF_UPDATE) as made:
        made.CreateMaskBand(gdal.GMF_PER_DATASET)
        made.GetRasterBand(1).GetMaskBand().WriteArray(seen * 255)
    item = scanned(path, arrays=["data", "mask_2"]).arrays["mask_2"]
    np.testing.assert_array_equal(assembled(path, item), seen)
    assert "mask_2" not in scanned(path).arrays


def test_cmyk_is_refused_since_gdal_converts_it(tmp_path: Path) -> None:
    path = write(
        tmp_path / "c.tif", ramp((4, 16, 16), "u1"), PHOTOMETRIC="CMYK", INTERLEAVE="PIXEL"
    )
    with pytest.raises(ScanError, match="CMYK"):
        scanned(path)


def test_a_strip_of_no_size_at_an_offset_is_refused_since_libtiff_guesses_its_size(
    tmp_path: Path,
) -> None:
    path = write(tmp_path / "z.tif", ramp((16, 16)))
    with tifffile.TiffFile(path, mode="r+") as made:
        made.pages[0].tags[279].overwrite(0)
    with pytest.raises(ScanError, match=r"chunk \[0, 0\] the offset \d+ and the size 0"):
        scanned(path)


def test_a_grid_beyond_numbers_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "i.tif", ramp((16, 16)), transform=(0, 1e308, 0, 0, 0, -1), epsg=3577)
    with pytest.raises(ScanError, match="its grid starts at"):
        scanned(path)


# --- the real ones ---------------------------------------------------------------------------------


def test_every_real_tiff_decodes_to_what_gdal_reads_or_is_refused_in_one_sentence(
    shared: Shared,
) -> None:
    root = shared("geotiff").parent
    files = sorted(p for p in root.rglob("*") if p.suffix.lower() in (".tif", ".tiff"))
    assert len(files) > 80
    refused = {}
    for path in files:
        try:
            item = data(path)
        except ScanError as error:
            refused[path.name] = str(error)
            continue
        with gdal.quiet_errors():
            assert equal_to_gdal(path, item), path
        assert item.offset is not None
        assert item.offset.shape == chunk_grid(item.meta.shape, item.meta.chunks)
    assert set(refused) == set(REFUSED)
    for name, word in REFUSED.items():
        assert word in refused[name]
        assert "; " in refused[name]
        assert "\n" not in refused[name]


def test_the_formats_know_tiff() -> None:
    assert "tiff" in scanners.NAMES
