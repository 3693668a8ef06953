"""The netCDF-3 scanner against netCDF4 and GDAL, and the traps of research/peers.md, B33 and E.2."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import cftime
import h5py
import netCDF4
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from osgeo import gdal

import forms
from building import build
from byterefs import codecs, literals, scanners
from byterefs.errors import PlanError, ScanError
from byterefs.model import ABSENT, SourceArray, SourceScan
from byterefs.scanners import _netcdf3_header
from byterefs.scanners._common import opened
from conformance import ScannerTests, assembled, by_value, recognised, scanned
from granules import Granule

gdal.UseExceptions()
Shared = Callable[[str], Path]

CLASSIC = ("i1", "S1", "i2", "i4", "f4", "f8")
WIDE = ("u1", "u2", "u4", "i8", "u8")
VERSIONS = {
    "NETCDF3_CLASSIC": CLASSIC,
    "NETCDF3_64BIT_OFFSET": CLASSIC,
    "NETCDF3_64BIT_DATA": CLASSIC + WIDE,
}
REAL = (
    "ersst_v5_187001_cdf1.nc",
    "ersst_v5_187001_cdf2.nc",
    "ersst_v5_187001_cdf5.nc",
    "fnoc1.nc",
    "netcdf_classic_dummy.nc",
    "ref_nctest_classic.nc",
    "ref_null_byte_padding_test.nc",
    "ref_test_360_day_1900.nc",
    "ref_test_365_day_1900.nc",
    "wrf_latlon.nc",
    "wrf_mercator.nc",
    "wrf_polar.nc",
)


def numbers(shape: tuple[int, ...], dtype: str, seed: int = 0) -> np.ndarray:
    """Values in the byte order of netCDF-3 that differ from each other as far as the type allows."""
    count = int(np.prod(shape))
    if dtype == "S1":
        letters = np.frombuffer(bytes(97 + (i + seed) % 26 for i in range(count)), "S1")
        return letters.reshape(shape)
    ramp = (np.arange(count) * 7 + seed) % 120
    return ramp.astype(np.dtype(dtype).newbyteorder(">")).reshape(shape)


def write(
    path: Path,
    arrays: dict[str, tuple[tuple[str, ...], np.ndarray]],
    *,
    format: str = "NETCDF3_CLASSIC",
    record: str | None = "time",
    attrs: dict[str, dict[str, Any]] | None = None,
    fills: dict[str, Any] | None = None,
) -> Granule:
    """A file of netCDF4's own making; the dimension ``record`` is unlimited."""
    with netCDF4.Dataset(path, "w", format=format) as nc:
        nc.set_auto_maskandscale(False)
        for dims, data in arrays.values():
            for dim, n in zip(dims, data.shape, strict=True):
                if dim not in nc.dimensions:
                    nc.createDimension(dim, None if dim == record else n)
        for name, (dims, data) in arrays.items():
            fill = (fills or {}).get(name)
            v = nc.createVariable(name, data.dtype.newbyteorder("="), dims, fill_value=fill)
            v.set_auto_maskandscale(False)
            v.setncatts((attrs or {}).get(name, {}))
            v[...] = data
        nc.setncatts((attrs or {}).get("", {}))
    return Granule(path, {name: data for name, (_, data) in arrays.items()})


def monthly(path: Path, format: str = "NETCDF3_CLASSIC") -> Granule:
    return write(
        path,
        {
            "t": (("time", "lat", "lon"), numbers((5, 3, 5), "i2")),
            "q": (("time", "lat", "lon"), numbers((5, 3, 5), "f4", 3)),
            "mask": (("lat", "lon"), numbers((3, 5), "i1")),
            "time": (("time",), numbers((5,), "f8")),
            "bnds": (("time", "nv"), numbers((5, 2), "f8")),
            "lat": (("lat",), numbers((3,), "f4")),
            "lon": (("lon",), numbers((5,), "f4")),
            "crs": ((), numbers((), "i4")),
        },
        format=format,
        attrs={"time": {"bounds": "bnds"}, "t": {"grid_mapping": "crs"}, "": {"title": "made"}},
    )


def located(item: SourceArray) -> tuple[list[int], list[int]]:
    assert item.offset is not None
    assert item.size is not None
    return item.offset.ravel().tolist(), item.size.ravel().tolist()


def decoded(path: Path, item: SourceArray) -> np.ndarray:
    return by_value(item) if item.offset is None else assembled(path, item)


def equal(path: Path, found: SourceScan, expected: dict[str, np.ndarray]) -> bool:
    """Every array by its references, and by value where it is kept, bit for bit."""
    assert set(found.arrays) == set(expected)
    for name, values in expected.items():
        item = found.arrays[name]
        assert item.meta.shape == values.shape
        assert decoded(path, item).tobytes() == values.tobytes(), name
        assert item.values in (None, values.tobytes()), name
    return True


def by_netcdf4(path: Path) -> dict[str, np.ndarray]:
    """Stored values of every variable in the byte order of netCDF-3, as netCDF4 reads them."""
    with netCDF4.Dataset(path) as nc:
        nc.set_auto_maskandscale(False)
        nc.set_auto_chartostring(False)
        found = {name: np.asarray(v[...]) for name, v in nc.variables.items()}
    return {n: v.astype(v.dtype.newbyteorder(">")) for n, v in found.items()}


class TestNetcdf3(ScannerTests):
    FORMAT = "netcdf3"
    COORDINATES = frozenset({"time", "bnds", "lat", "lon", "crs"})

    # every chunk is whole, there, and encoded alike: the three tests below say so instead
    test_edge_chunks_keep_their_full_stored_shape: ClassVar = None
    test_a_chunk_never_written_is_a_row_without_offset_that_reads_as_fill: ClassVar = None
    test_a_chunk_with_another_codec_is_refused_by_name: ClassVar = None

    def granule(self, folder: Path) -> Granule:
        return monthly(folder / "month.nc")

    @pytest.mark.parametrize("concat", [None, "time", "lat"])
    def test_no_chunk_is_an_edge_absent_or_encoded(
        self, tmp_path: Path, concat: str | None
    ) -> None:
        made = self.granule(tmp_path)
        for item in scanned(made.path, concat=concat).arrays.values():
            meta = item.meta
            assert not any(n % c for n, c in zip(meta.shape, meta.chunks, strict=bool(meta.chunks)))
            assert meta.codec == codecs.PLAIN
            assert item.offset is None or (item.offset != ABSENT).all()


@pytest.mark.parametrize("format", VERSIONS)
def test_every_type_of_every_version_reads_as_written(tmp_path: Path, format: str) -> None:
    types = VERSIONS[format]
    arrays = {f"r{t}": (("time", "x"), numbers((4, 3), t)) for t in types}
    arrays |= {f"f{t}": (("x",), numbers((3,), t)) for t in types}
    arrays |= {f"s{t}": ((), numbers((), t)) for t in types}
    made = write(tmp_path / "t.nc", arrays, format=format)
    found = scanned(made.path, concat="time")
    assert equal(made.path, found, made.values)
    for name, item in found.arrays.items():
        assert item.meta.dtype == made.values[name].dtype.str
        big = made.values[name].dtype.itemsize > 1
        assert item.meta.info == ("ENDIANNESS=BIG" if big else "")


@pytest.mark.parametrize("format", VERSIONS)
@pytest.mark.parametrize("dtype", ["i1", "S1", "i2", "f8"])
def test_an_only_record_variable_has_no_padding(tmp_path: Path, format: str, dtype: str) -> None:
    made = write(
        tmp_path / "o.nc",
        {"v": (("time", "x"), numbers((10, 3), dtype)), "x": (("x",), numbers((3,), "i2"))},
        format=format,
    )
    found = scanned(made.path, concat="time")
    offset, size = located(found.arrays["v"])
    assert set(size) == {3 * np.dtype(dtype).itemsize}
    assert set(np.diff(offset)) == set(size)
    assert equal(made.path, found, made.values)


@pytest.mark.parametrize("format", VERSIONS)
@pytest.mark.parametrize("dtype", ["i1", "S1", "i2"])
def test_beside_another_a_record_variable_is_padded_to_four_bytes(
    tmp_path: Path, format: str, dtype: str
) -> None:
    made = write(
        tmp_path / "p.nc",
        {
            "v": (("time", "x"), numbers((10, 3), dtype)),
            "w": (("time",), numbers((10,), "f8")),
            "b": (("time",), numbers((10,), "i1")),
        },
        format=format,
    )
    found = scanned(made.path, concat="time")
    offset, size = located(found.arrays["v"])
    odd = 3 * np.dtype(dtype).itemsize
    assert set(size) == {odd}
    assert set(np.diff(offset)) == {odd + -odd % 4 + 8 + 4}
    assert equal(made.path, found, made.values)


def test_record_variables_are_keyed_by_record_even_without_split(tmp_path: Path) -> None:
    made = monthly(tmp_path / "m.nc")
    for options in ({"split": False}, {"concat": "time", "split": False}, {"concat": "lat"}):
        found = scanned(made.path, **options)
        assert found.arrays["t"].meta.chunks == (1, 3, 5)
        assert found.arrays["time"].meta.chunks == (1,)
        assert equal(made.path, found, made.values)


def test_an_only_record_variable_is_one_chunk_without_split(tmp_path: Path) -> None:
    made = write(tmp_path / "o.nc", {"v": (("time", "x"), numbers((10, 3), "i2"))})
    assert scanned(made.path, split=False, concat="time").arrays["v"].meta.chunks == (10, 3)
    assert scanned(made.path, concat="time").arrays["v"].meta.chunks == (1, 3)
    assert equal(made.path, scanned(made.path), made.values)


def test_a_fixed_leading_concat_axis_is_keyed_by_step(tmp_path: Path) -> None:
    made = write(
        tmp_path / "f.nc",
        {"v": (("t", "x"), numbers((6, 4), "i2")), "when": (("t",), numbers((6,), "i4"))},
        record=None,
    )
    for concat, split, chunks in (
        ("t", True, (1, 4)),
        ("when", True, (1, 4)),
        ("t", False, (6, 4)),
        (None, True, (6, 4)),
        ("x", True, (6, 4)),
    ):
        found = scanned(made.path, concat=concat, split=split)
        assert found.arrays["v"].meta.chunks == chunks
        assert equal(made.path, found, made.values)


def streamed(path: Path) -> None:
    """Make the number of records unknown, as a writer does that never comes back to the header."""
    raw = bytearray(path.read_bytes())
    width = 8 if raw[3] == 5 else 4
    raw[4 : 4 + width] = b"\xff" * width
    path.write_bytes(raw)


@pytest.mark.parametrize("format", VERSIONS)
@pytest.mark.parametrize("variables", [1, 3])
def test_the_records_of_a_stream_are_counted_by_the_size_of_the_file(
    tmp_path: Path, format: str, variables: int
) -> None:
    arrays = {f"v{i}": (("time", "x"), numbers((7, 3), "i1", i)) for i in range(variables)}
    made = write(tmp_path / "s.nc", arrays, format=format)
    streamed(made.path)
    assert equal(made.path, scanned(made.path, concat="time"), made.values)
    whole = made.path.read_bytes()
    padding, stride = (0, 3) if variables == 1 else (1, 12)
    for cut, records in ((padding, 7), (padding + 1, 6), (stride, 6), (stride + 2, 5)):
        made.path.write_bytes(whole[: len(whole) - cut])
        found = scanned(made.path, concat="time")
        assert equal(made.path, found, {n: v[:records] for n, v in made.values.items()})


def test_a_file_without_records_has_arrays_of_length_zero(tmp_path: Path) -> None:
    made = write(
        tmp_path / "z.nc",
        {"v": (("time", "x"), numbers((0, 3), "i2")), "w": (("time",), numbers((0,), "f8"))},
    )
    for path in (made.path, tmp_path / "stream.nc"):
        path.write_bytes(made.path.read_bytes())
        found = scanned(path, concat="time")
        assert found.arrays["v"].meta.shape == (0, 3)
        assert equal(path, found, made.values)
        streamed(made.path)


def test_attributes_keep_their_values_and_types(tmp_path: Path) -> None:
    attrs = {
        "text": "Grüße",
        "empty": "",
        "byte": np.int8(-3),
        "shorts": np.array([1, -2, 3], "i2"),
        "int": np.int32(-7),
        "float": np.float32(0.1),
        "doubles": np.array([np.nan, np.inf, -np.inf, 0.1]),
        "ubyte": np.uint8(200),
        "long": np.int64(2**62 + 1),
        "ulong": np.uint64(2**64 - 1),
    }
    made = write(
        tmp_path / "a.nc",
        {"v": (("x",), numbers((3,), "i2"))},
        format="NETCDF3_64BIT_DATA",
        attrs={"v": attrs, "": attrs},
    )
    found = scanned(made.path)
    meta = found.arrays["v"].meta
    with netCDF4.Dataset(made.path) as nc:
        theirs = {name: nc["v"].getncattr(name) for name in nc["v"].ncattrs()}
    assert (dict(meta.attrs), dict(meta.attr_dtypes)) == (found.root, found.root_dtypes)
    assert set(theirs) == set(meta.attrs) == set(attrs)
    for name, value in theirs.items():
        ours = literals.attr_value(meta.attrs[name], meta.attr_dtypes[name])
        assert isinstance(value, str) or ours.dtype == value.dtype
        np.testing.assert_array_equal(ours, value)


def test_text_that_is_not_utf8_survives_as_latin_1(tmp_path: Path) -> None:
    made = write(
        tmp_path / "l.nc",
        {"v": (("x",), numbers((3,), "i2"))},
        attrs={"v": {"units": "degXC"}},
    )
    made.path.write_bytes(made.path.read_bytes().replace(b"degXC", b"deg\xb0C"))
    meta = scanned(made.path).arrays["v"].meta
    assert (meta.attrs["units"], meta.attr_dtypes["units"]) == ("deg°C", "latin-1")


@pytest.mark.parametrize("dtype", CLASSIC + WIDE)
def test_fill_is_declared_or_netcdfs_own(tmp_path: Path, dtype: str) -> None:
    declared = b"x" if dtype == "S1" else 7
    v = (("x",), numbers((3,), dtype))
    made = write(
        tmp_path / "f.nc",
        {"own": v, "declared": v},
        format="NETCDF3_64BIT_DATA",
        fills={"declared": declared},
    )
    found = {n: i.meta for n, i in scanned(made.path).arrays.items()}
    default = netCDF4.default_fillvals[dtype]
    default = default.encode() if isinstance(default, str) else default
    for name, value in (("own", default), ("declared", declared)):
        ours = literals.fill_value(found[name].fill, found[name].dtype)
        assert ours == np.array([value], found[name].dtype)[0]


def test_a_fill_of_another_type_is_no_fill(tmp_path: Path) -> None:
    made = write(
        tmp_path / "f.nc",
        {"v": (("x",), numbers((3,), "f4")), "w": (("x",), numbers((3,), "f4"))},
        attrs={"v": {"FillValue_": np.int32(7)}, "w": {"FillValue_": np.array([7, 8], "f4")}},
    )
    made.path.write_bytes(made.path.read_bytes().replace(b"FillValue_", b"_FillValue"))
    found = {n: i.meta for n, i in scanned(made.path).arrays.items()}
    assert found["v"].attrs["_FillValue"] == 7
    default = np.float32(netCDF4.default_fillvals["f4"])
    assert {literals.fill_value(m.fill, m.dtype) for m in found.values()} == {default}


@pytest.mark.parametrize("format", VERSIONS)
def test_a_header_cut_anywhere_is_refused_with_the_file(tmp_path: Path, format: str) -> None:
    whole = monthly(tmp_path / "m.nc", format).path.read_bytes()
    with opened(str(tmp_path / "m.nc")) as seen:
        end = _netcdf3_header.header(seen).end
    short = tmp_path / "short.nc"
    for kept in range(end):
        short.write_bytes(whole[:kept])
        with pytest.raises(ScanError, match=r"short.nc: "):
            scanned(short, format="netcdf3")


def tried(path: Path) -> tuple[str | None, list[SourceArray]]:
    """The refusal of a file, or its arrays."""
    try:
        return None, list(scanned(path, format="netcdf3").arrays.values())
    except ScanError as refusal:
        return str(refusal), []


@pytest.mark.parametrize("value", [0x00, 0xFF])
def test_a_damaged_header_byte_is_refused_or_gives_ranges_inside_the_file(
    tmp_path: Path, value: int
) -> None:
    whole = monthly(tmp_path / "m.nc").path.read_bytes()
    with opened(str(tmp_path / "m.nc")) as seen:
        end = _netcdf3_header.header(seen).end
    path = tmp_path / "d.nc"
    refused = 0
    for at in range(4, end):
        path.write_bytes(whole[:at] + bytes([value]) + whole[at + 1 :])
        refusal, found = tried(path)
        if refusal is not None:
            assert refusal.startswith(f"{path}: ")
            refused += 1
        for item in found:
            if item.offset is not None and item.size is not None:
                assert ((item.offset + item.size) <= len(whole)).all()
                assert (item.offset >= 0).all()
    assert refused > 50


def test_data_cut_short_is_refused_with_array_and_bytes(tmp_path: Path) -> None:
    made = write(
        tmp_path / "d.nc",
        {"x": (("x",), numbers((3,), "i4")), "v": (("time", "x"), numbers((9, 3), "i4"))},
    )
    whole = made.path.read_bytes()
    made.path.write_bytes(whole[:-1])
    with pytest.raises(ScanError, match=rf"d.nc: v: it ends at byte {len(whole)} .*truncated"):
        scanned(made.path)
    assert set(scanned(made.path, arrays=["x"]).arrays) == {"x"}


def test_a_count_of_records_that_no_file_holds_costs_no_memory(tmp_path: Path) -> None:
    made = write(tmp_path / "n.nc", {"v": (("time",), numbers((3,), "i4"))})
    raw = bytearray(made.path.read_bytes())
    raw[4:8] = b"\xff\xff\xff\xfe"
    made.path.write_bytes(raw)
    with pytest.raises(ScanError, match=r"n.nc: v: it ends at byte \d{11} of a file of \d+:"):
        scanned(made.path)


def test_a_variable_inside_the_header_is_refused(tmp_path: Path) -> None:
    made = write(tmp_path / "h.nc", {"v": (("x",), numbers((3,), "i4"))}, record=None)
    raw = made.path.read_bytes()
    begin = len(raw) - 12
    made.path.write_bytes(raw.replace(struct.pack(">i", begin), struct.pack(">i", 16)))
    with pytest.raises(ScanError, match=r"h.nc: v: it begins at byte 16, inside the header"):
        scanned(made.path)


def test_variables_that_share_bytes_are_refused_where_netcdf_refuses_them(
    shared: Shared,
) -> None:
    path = shared("netcdf3/bad_cdf5_begin.nc")
    with pytest.raises(OSError, match="Unknown file format"):
        netCDF4.Dataset(path)
    with pytest.raises(ScanError, match=r"bad_cdf5_begin.nc: .*var_big and var_small both hold"):
        scanned(path)


@pytest.mark.parametrize("content", ["hdf5", b"CDF\x03 and then some", b"GRIB", b"CDF"])
def test_what_is_not_netcdf3_is_refused_by_its_first_bytes(
    tmp_path: Path, content: bytes | str
) -> None:
    path = tmp_path / "no.nc"
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        with h5py.File(path, "w") as f:
            f["v"] = 1
    with pytest.raises(ScanError, match=r"no.nc: its first bytes .* not those of netCDF-3.*format"):
        scanned(path, format="netcdf3")
    with path.open("rb") as file:
        assert not scanners.load("netcdf3").recognises(file)


@st.composite
def files(draw: st.DrawFn) -> tuple[str, dict[str, tuple[tuple[str, ...], np.ndarray]]]:
    format = draw(st.sampled_from(sorted(VERSIONS)))
    lengths = {"time": draw(st.integers(0, 4)), "x": 3, "y": draw(st.integers(1, 5))}
    shapes = [(), ("time",), ("time", "x"), ("time", "x", "y"), ("y", "x"), ("x",)]
    arrays = {}
    for i in range(draw(st.integers(1, 6))):
        dims = draw(st.sampled_from(shapes))
        dtype = draw(st.sampled_from(VERSIONS[format]))
        arrays[f"v{i}"] = (dims, numbers(tuple(lengths[d] for d in dims), dtype, i))
    return format, arrays


@given(made=files(), concat=st.sampled_from([None, "time", "y"]), split=st.booleans())
def test_any_file_that_netcdf4_writes_reads_equal(
    tmp_path_factory: pytest.TempPathFactory,
    made: tuple[str, dict[str, tuple[tuple[str, ...], np.ndarray]]],
    concat: str | None,
    split: bool,
) -> None:
    format, arrays = made
    path = tmp_path_factory.mktemp("any") / "a.nc"
    expected = write(path, arrays, format=format).values
    assert equal(path, scanned(path, concat=concat, split=split), expected)
    path.unlink()


@pytest.mark.parametrize("name", REAL)
def test_every_variable_of_a_real_file_is_what_netcdf4_reads(name: str, shared: Shared) -> None:
    path = shared(f"netcdf3/{name}")
    expected = by_netcdf4(path)
    for concat in (None, "time", "rec", "time_a", "Time"):
        found = scanned(path, concat=concat)
        assert equal(path, found, expected)
    with netCDF4.Dataset(path) as nc:
        assert {n: v.dimensions for n, v in nc.variables.items()} == {
            n: i.meta.dims for n, i in found.arrays.items()
        }
        assert set(nc.ncattrs()) == set(found.root)
        for name, v in nc.variables.items():
            assert set(v.ncattrs()) == set(found.arrays[name].meta.attrs)


def gdal_arrays(path: Path) -> Iterator[tuple[str, np.ndarray]]:
    """Every numeric array of one or more dimensions that GDAL's netCDF driver reads."""
    dataset = gdal.OpenEx(str(path), gdal.OF_MULTIDIM_RASTER, ["netCDF"])
    group = dataset.GetRootGroup()
    for name in group.GetMDArrayNames():
        array = group.OpenMDArray(name)
        if array.GetDataType().GetClass() == gdal.GEDTC_NUMERIC and array.GetTotalElementsCount():
            yield name, array.ReadAsArray()


@pytest.mark.parametrize("name", [n for n in REAL if "cdf5" not in n])
def test_every_number_of_a_real_file_is_what_gdal_reads(name: str, shared: Shared) -> None:
    path = shared(f"netcdf3/{name}")
    found = scanned(path).arrays
    theirs = {n: v for n, v in gdal_arrays(path) if n in found}
    assert theirs or name == "ref_null_byte_padding_test.nc"
    for array, values in theirs.items():
        dtype = found[array].meta.dtype
        if dtype != "|S1":
            ours = decoded(path, found[array])
            assert np.asarray(values).astype(dtype).tobytes() == ours.tobytes(), array


def test_months_that_count_from_sixteen_dates_are_one_dataset(
    tmp_path: Path, shared: Shared
) -> None:
    files = sorted(shared("cmip5_ecearth_tas").glob("*.nc"))
    assert len(files) == 16
    expected: dict[str, list[Any]] = {"time": [], "time_bnds": []}
    origins = set()
    stored = []
    for path in files:
        with netCDF4.Dataset(path) as nc:
            origins.add((nc["time"].units, nc["time_bnds"].units))
            for name, instants in expected.items():
                v = nc[name]
                instants.append(cftime.num2date(v[...].data, v.units, v.calendar))
            stored.append(nc["tas"][...].data)
    assert len(origins) == 16
    with build(tmp_path, files) as view:
        arrays = dict(view.arrays)
        refs = view.refs("tas")
        paths = [s.source for s in view.sources]
    for name, instants in expected.items():
        made = arrays[name]
        numbers = np.frombuffer(made.values or b"", made.dtype).reshape(made.shape)
        found = cftime.num2date(numbers, arrays["time"].attrs["units"], "standard")
        np.testing.assert_array_equal(found, np.concatenate(instants))
    assert paths == [str(f) for f in files]
    raw = []
    for source, offset, size in zip(refs.source, refs.offset, refs.size, strict=True):
        with open(paths[source], "rb") as f:
            f.seek(offset)
            raw.append(f.read(size))
    assert b"".join(raw) == np.concatenate(stored).astype(">f4").tobytes()


def test_netcdf3_is_verified_through_every_form(tmp_path: Path, shared: Shared) -> None:
    results = forms.Results(tmp_path)
    results.scan(sorted(shared("cmip5_ecearth_tas").glob("*.nc"))[-2:])
    results.emit()
    for target, form in results.pairs:
        counts = results.verify(target, form)["counts"]
        assert (counts["arrays"], counts["chunks_compared"]) == (7, 239), form


def test_decades_of_unequal_length_align_step_by_step(tmp_path: Path, shared: Shared) -> None:
    files = sorted(shared("cmip5_hadgem_mrsos_day").glob("*.nc"))[-3:]
    with build(tmp_path, files, scan={"arrays": ["mrsos"]}) as view:
        array = view.arrays["mrsos"]
        time = view.arrays["time"]
        refs = view.refs("mrsos")
    assert array.refused is None
    assert [p.count[0] for p in array.placements] == [3600, 1410, 60]
    assert array.chunks[0] == 1
    assert time.shape == (5070,)
    with netCDF4.Dataset(files[1]) as nc:
        nc.set_auto_maskandscale(False)
        expected = nc["mrsos"][1409].astype(array.dtype).tobytes()
    with files[1].open("rb") as f:
        f.seek(refs.offset[3600 + 1409])
        assert f.read(refs.size[3600 + 1409]) == expected


def test_packing_that_differs_is_refused_with_both_values(tmp_path: Path, shared: Shared) -> None:
    files = [shared(f"era5/era5_2t_{i}.nc") for i in (1, 2)]
    scales = []
    for path in files:
        with netCDF4.Dataset(path) as nc:
            (name,) = (n for n, v in nc.variables.items() if "scale_factor" in v.ncattrs())
            scales.append(str(nc[name].scale_factor))
    with pytest.raises(PlanError, match=name) as refusal, build(tmp_path, files):
        pass
    assert all(part in str(refusal.value) for part in (*map(str, files), *scales))


def test_every_netcdf3_file_at_hand_is_scanned_or_refused_in_one_sentence(shared: Shared) -> None:
    files = [p for p in sorted(shared(".").rglob("*.nc")) if recognised(p, "netcdf3")]
    assert len(files) > 40
    refused = []
    for path in files:
        refusal, found = tried(path)
        assert found or str(refusal).startswith(f"{path}: ")
        refused += [] if found else [path.name]
    assert refused == ["bad_cdf5_begin.nc"]
