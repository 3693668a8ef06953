"""Layouts, types and damage of research/peers.md A.2, E.4, E.6 and E.7 through every form, or refused by name."""

from __future__ import annotations

import json
import re
import zlib
from contextlib import closing
from pathlib import Path

import h5py
import netCDF4
import numpy as np
import pytest
from h5py import h5d, h5p, h5s, h5t

import building
import granules
from byterefs import emitters, scanners
from byterefs.errors import EmitError, PlanError, ScanError
from byterefs.model import Source
from byterefs.view import View
from forms import Results
from test_trap_values import ZARR, built, no_form_reads
from test_traps import numbers, series

ALL = {"concat": None}


def test_a2_data_behind_a_user_block_is_read_through_every_form(tmp_path: Path) -> None:
    path = tmp_path / "u.nc"
    with h5py.File(path, "w", userblock_size=4096) as f:
        f.create_dataset("chunked", data=numbers(5), chunks=(2, 3), compression="gzip")
        f.create_dataset("contiguous", data=numbers(5, 7))
        granules.compact(f, "small", numbers(2))
    with path.open("r+b") as raw:
        raw.write(b"\x89HDF is not at the start" * 9)
    results = built(tmp_path / "r", [path], *emitters.NAMES, plan=ALL)
    for form in emitters.NAMES:
        found = results.values(form, "chunked", "contiguous", "small")
        np.testing.assert_array_equal(found["chunked"], numbers(5))
        np.testing.assert_array_equal(found["contiguous"], numbers(5, 7))
        np.testing.assert_array_equal(found["small"], numbers(2))


@pytest.mark.parametrize("dtype", ["<c8", "<c16", ">c8"])
def test_a2_complex_numbers_are_read_through_every_form_or_refused_by_name(
    tmp_path: Path, dtype: str
) -> None:
    data = (numbers(4) + 1j * numbers(4, 4)).astype(dtype)
    with h5py.File(tmp_path / "c.h5", "w") as f:
        f.create_dataset("v", data=data, chunks=(2, 3), compression="gzip")
    results = Results(tmp_path / "r", plan=ALL, source={"pattern": ""})
    results.scan([tmp_path / "c.h5"])
    with View.open(results.store) as view:
        why = {form: emitters.refusals(view, form) for form in emitters.NAMES}
    read = {form for form in emitters.NAMES if not why[form]}
    for form in read:
        found = results.proven(form, "v")
        assert found.astype("<c16").tolist() == data.astype("<c16").tolist()
    for form in set(emitters.NAMES) - read:
        with pytest.raises(EmitError, match=r"^v: .*sqlite"):
            results.emit(("access", form))
    assert {"sqlite", "parquet"} <= read


@pytest.mark.parametrize("kind", [h5py.regionref_dtype, h5py.ref_dtype])
def test_a2_references_to_objects_and_regions_are_refused_by_name(tmp_path: Path, kind) -> None:
    with h5py.File(tmp_path / "r.h5", "w") as f:
        f.create_dataset("odd", (2,), kind)
    with pytest.raises(ScanError, match=r"odd: .*reference.*scan\.arrays"):
        scanners.scan(Source(str(tmp_path / "r.h5")))


@pytest.mark.parametrize("mask", [0b01, 0b10, 0b11])
def test_a2_filters_that_every_chunk_skips_are_no_part_of_the_codec_in_the_tables(
    tmp_path: Path, mask: int
) -> None:
    def encoded(values: np.ndarray) -> bytes:
        raw = values.tobytes()
        if not mask & 0b01:
            raw = np.frombuffer(raw, "u1").reshape(-1, 4).T.tobytes()
        return raw if mask & 0b10 else zlib.compress(raw)

    with h5py.File(tmp_path / "m.h5", "w") as f:
        d = granules.pipeline(f, "v", None, (2, 3), "shuffle", "deflate", shape=(4, 3))
        for at in (0, 2):
            d.id.write_direct_chunk((at, 0), encoded(numbers(2, at)), filter_mask=mask)
        np.testing.assert_array_equal(d[:], numbers(4))
    results = built(
        tmp_path / "r", [tmp_path / "m.h5"], "sqlite", "parquet", plan=ALL, source={"pattern": ""}
    )
    for form in ("sqlite", "parquet"):
        np.testing.assert_array_equal(results.values(form, "v")["v"], numbers(4))


def test_a2_a_filter_that_nobody_here_decodes_keeps_its_rows_in_the_tables(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "b.h5", "w") as f:
        plist = h5p.create(h5p.DATASET_CREATE)
        plist.set_chunk((2, 3))
        plist.set_filter(32026, 1, (1, 2, 3))  # Blosc2
        made = h5d.create(f.id, b"v", h5t.STD_I32LE, h5s.create_simple((4, 3)), plist)
        for at in (0, 2):
            made.write_direct_chunk((at, 0), b"blosc2 bytes of chunk %d" % at)
        places = [made.get_chunk_info(i) for i in range(2)]
    results = Results(tmp_path / "r", plan=ALL, source={"pattern": ""})
    results.scan([tmp_path / "b.h5"])
    for form in ("sqlite", "parquet"):
        results.emit(("access", form))
        reader = emitters.load(form).open(results.out("access", form), access=str)
        rows = reader.refs("v")
        reader.close()
        assert list(rows.offset) == [p.byte_offset for p in places]
        assert list(rows.size) == [p.size for p in places]
    for form in ZARR:
        with pytest.raises(EmitError, match=r"v: .*blosc2.*sqlite.*parquet"):
            results.emit(("access", form))


def test_e4_steps_appended_after_a_partial_chunk_never_overwrite_it(tmp_path: Path) -> None:
    first = series(tmp_path / "0.nc", 0, numbers(5), chunksizes=(3, 3), zlib=True)
    second = series(tmp_path / "1.nc", 5, numbers(6, 5), chunksizes=(3, 3), zlib=True)
    results = built(tmp_path / "r", [first], *emitters.NAMES)
    results.scan([second])
    for form in emitters.NAMES:
        if form == "vrt":
            np.testing.assert_array_equal(results.proven("vrt", "v"), numbers(11))
            continue
        with pytest.raises(
            EmitError, match=r"0\.nc: .*it ends at element 5 of 11, inside a chunk of 3"
        ):
            results.emit(("access", form))
        np.testing.assert_array_equal(results.values(form, "v")["v"], numbers(5))


def test_e6_a_granule_cut_short_is_an_error_of_every_reader_and_never_fill(tmp_path: Path) -> None:
    path = series(tmp_path / "a.nc", 0, numbers(4), zlib=True)
    with h5py.File(path) as f:
        last = f["v"].id.get_chunk_info(3)
    results = built(tmp_path / "r", [path], *emitters.NAMES)
    whole = path.read_bytes()
    path.write_bytes(whole[: last.byte_offset + last.size // 2])
    no_form_reads(results, r".")


@pytest.mark.parametrize(
    "name", ["a.b", "a b", "é.ü", "v%20", "x#1", "a+b", "t:2", "v'", 'v"', "[0]"]
)
def test_e7_an_array_of_any_name_is_read_through_every_form(tmp_path: Path, name: str) -> None:
    path = tmp_path / "n.h5"
    with h5py.File(path, "w") as f:
        for full in (name, f"g/{name}"):
            f.create_dataset(full, data=numbers(4), chunks=(2, 3), compression="gzip")
    results = built(tmp_path / "r", [path], *emitters.NAMES, plan=ALL, source={"pattern": ""})
    for form in emitters.NAMES:
        for got in results.values(form, name, f"g/{name}").values():
            np.testing.assert_array_equal(got, numbers(4), err_msg=form)


def test_b18_chunks_of_another_shape_since_a_year_are_the_border_of_an_era(tmp_path: Path) -> None:
    files = [
        series(tmp_path / f"{n}.nc", n, numbers(1, n), chunksizes=(1, 3 if n < 3 else 2), zlib=True)
        for n in range(5)
    ]
    with pytest.raises(
        PlanError, match=r"3\.nc: array 'v' has chunks \[1, 2\], .*0\.nc has \[1, 3\]"
    ):
        Results(tmp_path / "refused").scan(files)
    told = json.loads((tmp_path / "refused" / "store" / "plan" / "consistency.json").read_text())
    runs = [(Path(r["first"]).name, r["count"]) for r in told["arrays"]["v"]["runs"]]
    assert runs == [("0.nc", 3), ("3.nc", 2)]
    results = built(tmp_path / "r", files, *emitters.NAMES, plan={"eras": "auto"})
    one, two = "from_2000-01-01/v", "from_2000-01-04/v"
    for form in emitters.NAMES:
        found = results.values(form, one, two)
        np.testing.assert_array_equal(np.concatenate([found[one], found[two]]), numbers(5))
    np.testing.assert_array_equal(results.values("vrt", "v")["v"], numbers(5))


@pytest.mark.parametrize(
    "values",
    [
        np.float32(0.05) + np.arange(40, dtype="f4") * np.float32(0.1),
        np.linspace(-89.95, 89.95, 40, dtype="f4"),
        np.cumsum(np.full(40, 0.1, "f8")),
        np.arange(40, dtype="f8") / 3,
    ],
)
def test_lineage_15_coordinates_that_are_nearly_regular_keep_their_bits_in_every_form(
    tmp_path: Path, values: np.ndarray
) -> None:
    path = series(tmp_path / "a.nc", 0, np.arange(80, dtype="i4").reshape(2, 40))
    with netCDF4.Dataset(path, "a") as nc:
        nc.createVariable("x", values.dtype, ("x",))[:] = values
    results = built(tmp_path / "r", [path], *emitters.NAMES)
    for form in emitters.NAMES:
        assert results.values(form, "x")["x"].tobytes() == values.tobytes(), form


@pytest.mark.parametrize("writer", ["h5py", "netcdf3"])
def test_lineage_26_text_that_is_not_utf8_is_in_every_form_as_its_latin_1(
    tmp_path: Path, writer: str
) -> None:
    path = series(tmp_path / "a.nc", 0, numbers(2), zlib=True)
    if writer == "h5py":
        with h5py.File(path, "a") as f:
            f["v"].attrs["units"] = np.bytes_(b"\xb0C")
    else:
        with netCDF4.Dataset(path, "w", format="NETCDF3_CLASSIC") as nc:
            nc.createDimension("time", 2)
            nc.createDimension("x", 3)
            nc.createVariable("time", "f8", ("time",))[:] = [0, 1]
            nc.createVariable("v", "i4", ("time", "x"))[:] = numbers(2)
            nc["v"].setncattr("units", "??")
        raw = path.read_bytes()
        assert raw.count(b"??") == 1
        path.write_bytes(raw.replace(b"??", b"\xb0C"))
    results = built(tmp_path / "r", [path], *emitters.NAMES)
    for form in emitters.NAMES:
        with closing(emitters.load(form).open(results.out("access", form), access=str)) as reader:
            assert reader.arrays()["v"].attrs["units"] == "\N{DEGREE SIGN}C", form
    plan = {"engine": "mosaic"}
    with building.build(tmp_path / "mosaic", [path], plan=plan) as view:
        assert view.arrays["v"].attrs["units"] == "\N{DEGREE SIGN}C"


def plain(path: Path, first: int, count: int, kind: str) -> Path:
    """``v(time, y, x)`` without any filter, one step a day, as each writer lays it out."""
    format = "NETCDF4" if kind.startswith("hdf5") else "NETCDF3_CLASSIC"
    with netCDF4.Dataset(path, "w", format=format) as nc:
        for name, size in (("time", None if kind == "records" else count), ("y", 4), ("x", 3)):
            nc.createDimension(name, size)
        options = {"chunksizes": (1, 4, 3)} if kind == "hdf5 chunks" else {}
        time = nc.createVariable("time", "f8", ("time",))
        time.units = "days since 2000-01-01"
        v = nc.createVariable("v", "i2", ("time", "y", "x"), **options)
        time[:] = np.arange(first, first + count)
        v[:] = np.arange(first * 12, (first + count) * 12).reshape(count, 4, 3)
    return path


def refused(results: Results, files: list[Path]) -> str | None:
    """The sentence of a scan that refuses; None of one that does not."""
    try:
        results.scan(files)
    except ScanError as error:
        return str(error)
    return None


@pytest.mark.parametrize("kind", ["fixed", "records", "hdf5", "hdf5 chunks"])
@pytest.mark.parametrize(
    ("scan", "lengths"),
    [
        ({"split": "none"}, (4, 4)),
        ({"split": "none"}, (4, 6)),
        ({"multiple": 2}, (4, 6)),
        ({"multiple": 3}, (4, 4)),
        ({"split": "none", "multiple": 2}, (4, 4)),
    ],
)
def test_chunks_of_any_multiple_are_what_was_written_in_every_form_or_refused(
    tmp_path: Path, kind: str, scan: dict, lengths: tuple[int, int]
) -> None:
    ends = np.cumsum([0, *lengths])
    files = [plain(tmp_path / f"{i}.nc", ends[i], n, kind) for i, n in enumerate(lengths)]
    expected = np.arange(ends[-1] * 12, dtype="i2").reshape(-1, 4, 3)
    results = Results(tmp_path / "r", scan=scan)
    if told := refused(results, files):
        assert "are no run of bytes; set scan.multiple: 1" in told
        return
    with View.open(results.store) as view:
        why = {form: emitters.refusals(view, form) for form in emitters.NAMES}
    assert not why["vrt"]
    for form in emitters.NAMES:
        if why[form]:
            assert re.search(r"inside a chunk of|has chunks \[", why[form]["v"])
            continue
        np.testing.assert_array_equal(results.proven(form, "v"), expected, err_msg=form)


@pytest.mark.parametrize("kind", ["NETCDF4", "contiguous", "NETCDF3_CLASSIC", "NETCDF3_64BIT_DATA"])
def test_files_without_a_time_axis_are_steps_that_their_names_tell_in_every_form(
    tmp_path: Path, kind: str
) -> None:
    format = "NETCDF4" if kind == "contiguous" else kind
    options = {"zlib": True} if kind == "NETCDF4" else {}
    files = [tmp_path / f"v_2000010{n}.nc" for n in (1, 2, 4)]
    for n, path in enumerate(files):
        with netCDF4.Dataset(path, "w", format=format) as nc:
            nc.createDimension("y", 4)
            nc.createDimension("x", 3)
            nc.createVariable("y", "f4", ("y",))[:] = [4, 3, 2, 1]
            nc.createVariable("v", "i4", ("y", "x"), **options)[:] = numbers(4, n)
    said = {"from": "date", "format": "%Y%m%d", "units": "days since 2000-01-01", "dtype": "int32"}
    rules = {"pattern": r"_(?P<date>\d{8})\.nc$", "below": str(tmp_path), "coordinate": said}
    forms = [f for f in emitters.NAMES if f != "vrt" or kind != "NETCDF3_64BIT_DATA"]
    results = built(
        tmp_path / "r", files, *forms, scan={"file_name": rules}, plan={"concat": "day"}
    )
    for form in forms:
        found = results.values(form, "v", "day")
        np.testing.assert_array_equal(found["v"], np.stack([numbers(4, n) for n in range(3)]))
        assert found["day"].tolist() == [0, 1, 3]


def test_a_time_that_is_one_number_of_its_file_is_told_of_with_a_way_out_that_works(
    tmp_path: Path,
) -> None:
    files = [tmp_path / f"v_2000010{n}.nc" for n in (1, 2)]
    for n, path in enumerate(files):
        with netCDF4.Dataset(path, "w") as nc:
            nc.createDimension("y", 4)
            nc.createDimension("x", 3)
            time = nc.createVariable("time", "f8", ())
            time.units = f"days since 2000-01-0{n + 1}"
            time[...] = 0
            nc.createVariable("v", "i4", ("y", "x"), zlib=True)[:] = numbers(4, n)
    with pytest.raises(PlanError, match=r"'time' is one number of the whole source .*another axis"):
        Results(tmp_path / "refused").scan(files)
    said = {"from": "date", "format": "%Y%m%d", "units": "days since 2000-01-01", "dtype": "int32"}
    rules = {"pattern": r"_(?P<date>\d{8})\.nc$", "below": str(tmp_path), "coordinate": said}
    results = built(
        tmp_path / "r", files, *emitters.NAMES,
        scan={"file_name": rules, "arrays": ["v"]}, plan={"concat": "day"},
    )  # fmt: skip
    for form in emitters.NAMES:
        found = results.values(form, "v", "day")
        np.testing.assert_array_equal(found["v"], np.stack([numbers(4), numbers(4, 1)]))
        assert found["day"].tolist() == [0, 1]
