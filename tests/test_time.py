"""Times of every CF calendar, type and unit, joined from files that count from other instants; the oracle is cftime."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import cftime
import netCDF4
import numpy as np
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st

from building import build
from byterefs.emitters._kerchunk import quiet
from byterefs.errors import PlanError
from byterefs.view import View
from forms import Results


def granule(
    path: Path, values, units: str, calendar: str | None, dtype: str = "f8", bounds: bool = True
) -> Path:
    """A netCDF file with these times, bounds half a step around them that inherit the units, and data."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with netCDF4.Dataset(path, "w") as nc:
        for name, size in (("time", None), ("nv", 2), ("x", 3)):
            nc.createDimension(name, size)
        time = nc.createVariable("time", dtype, ("time",))
        time.units = units
        if calendar is not None:
            time.calendar = calendar
        time[:] = np.asarray(values, dtype)
        if bounds:
            time.bounds = "time_bnds"
            edges = np.asarray(values, dtype)[:, None] + np.array([-1, 1], dtype)
            nc.createVariable("time_bnds", dtype, ("time", "nv"))[:] = edges
        v = nc.createVariable("v", "i4", ("time", "x"), chunksizes=(1, 3), zlib=True, fill_value=-1)
        v[:] = np.arange(len(values) * 3).reshape(-1, 3)
    return path


def instants(path: Path, name: str) -> list:
    """What cftime makes of a file's own times or bounds."""
    with netCDF4.Dataset(path) as nc:
        time = nc["time"]
        return list(
            np.ravel(
                cftime.num2date(nc[name][:].data, time.units, getattr(time, "calendar", "standard"))
            )
        )


def planned(view, name: str) -> list:
    """What cftime makes of the plan's."""
    array, time = view.arrays[name], view.arrays["time"].attrs
    values = np.frombuffer(array.values, array.dtype)
    return list(cftime.num2date(values, time["units"], time.get("calendar", "standard")))


CASES = {
    # calendar, dtype, (values, units) of each file in the order of time
    "standard": (None, "f8", ([0, 1], "days since 1850-01-01"), ([0, 31], "days since 1860-02-28 00:00:00")),
    "gregorian and standard": ("gregorian", "f8", ([0], "days since 2000-01-01"), ([0], "days since 2000-03-01")),
    "proleptic_gregorian": ("proleptic_gregorian", "i8", ([577736], "days since 1-1-1"), ([0], "days since 1600-01-01")),
    "julian": ("julian", "i4", ([0], "days since 1500-02-28"), ([2], "days since 1500-02-28 00:00")),
    "noleap": ("noleap", "f8", ([58, 59], "days since 2000-01-01"), ([0], "days since 2001-03-01")),
    "365_day": ("365_day", "f4", ([0.5], "days since 1999-12-31"), ([0.5], "days since 2000-03-01")),
    "366_day": ("366_day", "i4", ([59], "days since 2001-01-01"), ([0], "days since 2001-03-01")),
    "all_leap": ("all_leap", "i2", ([59], "days since 2001-01-01"), ([0], "days since 2001-03-01")),
    "360_day": ("360_day", "f8", ([29.5, 59.5], "days since 2005-12-01"), ([15.5], "days since 2006-02-30")),
    "minutes of that day": ("standard", "i4", ([0, 720], "minutes since 2020-02-28"), ([0, 720], "minutes since 2020-02-29")),
    "seconds in floats": ("standard", "f8", ([0.5], "seconds since 2020-01-01"), ([0.25], "seconds since 2020-01-01 00:01:00")),
    "milliseconds": ("standard", "i8", ([1], "milliseconds since 2020-01-01"), ([1], "seconds since 2020-01-01")),
    "hours, then days": ("standard", "i4", ([0, 23], "hours since 2020-01-01"), ([1], "days since 2020-01-01")),
    "an offset in the units": ("standard", "f8", ([0], "hours since 2020-01-01 00:00:00 +05:30"), ([0], "hours since 2020-01-01 00:00:00")),
    "Zulu": ("standard", "f8", ([0], "hours since 2020-01-01T00:00:00Z"), ([0], "hours since 2020-01-01T05:30:00-01:00")),
    "units in capitals": ("standard", "i4", ([0], "Hours since 2020-01-01"), ([0], "hrs since 2020-01-02")),
    "SINCE in capitals": ("standard", "i4", ([0], "days SINCE 2020-01-01"), ([0], "days  since  2020-01-02")),
    "ten hours east and one and a half west": ("standard", "f8", ([0.5], "hours since 1990-01-01 00:00:00 +10"), ([0], "hours since 1990-01-02 00:00:00 -0130")),
    "one zone that cftime passes over": ("standard", "i4", ([0], "hours since 1990-01-01 00:00:00 EST"), ([0], "hours since 1990-01-02 00:00:00 EST")),
    "seconds with a fraction": ("standard", "f8", ([0.25], "seconds since 2020-01-01 00:00:0.5"), ([0.25], "seconds since 2020-01-01 00:01:00.25")),
    "months of thirty days": ("360_day", "i4", ([0, 1], "months since 1900-01-01"), ([0], "months since 1900-04-01")),
    "years of 365 days": ("noleap", "i4", ([0, 1], "common_years since 1900-01-01"), ([0], "common_years since 1903-01-01")),
    "negative": ("standard", "i4", ([-10], "days since 2020-01-01"), ([-10], "days since 2020-01-11")),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_every_time_and_bound_is_the_instant_that_cftime_reads_in_its_file(tmp_path, case):
    calendar, dtype, *sources = CASES[case]
    files = [
        granule(tmp_path / f"{n}.nc", values, units, calendar, dtype)
        for n, (values, units) in enumerate(sources)
    ]
    if case == "gregorian and standard":
        with netCDF4.Dataset(files[1], "a") as nc:
            nc["time"].calendar = "standard"
    with build(tmp_path, files) as view:
        assert view.arrays["time"].attrs["units"] == sources[0][1]
        assert view.arrays["time"].dtype[1:] == dtype
        for name in ("time", "time_bnds"):
            assert planned(view, name) == [t for path in files for t in instants(path, name)]


@pytest.mark.parametrize(
    ("one", "two"), [("noleap", "365_day"), ("all_leap", "366_day"), ("standard", "gregorian"), ("NOLEAP", "noleap")]
)  # fmt: skip
def test_two_names_of_one_calendar_are_one_calendar(tmp_path, one, two):
    files = [
        granule(tmp_path / f"{n}.nc", [0], f"days since 2001-0{n + 1}-01", calendar)
        for n, calendar in enumerate((one, two))
    ]
    with build(tmp_path, files) as view:
        assert np.frombuffer(view.arrays["time"].values).tolist() == [0, 31]


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        (([0], "days since 2020-01-01", "i4"), ([5], "hours since 2020-01-02", "i4"), r"1\.nc: time: 5 'hours since 2020-01-02' is 1\.2083\d+ in 'days since 2020-01-01', which int32 cannot hold exactly"),
        (([0], "days since 2020-01-01", "f4"), ([16777217], "seconds since 2020-01-01", "f8"), "dtype|cannot hold exactly"),
        (([0], "months since 2020-01-01", "f8"), ([0], "months since 2021-01-01", "f8"), "no fixed length"),
        (([0], "years since 2020-01-01", "f8"), ([0], "days since 2021-01-01", "f8"), "no fixed length"),
        (([0], "hours since 2020-01-01", "i4"), ([0], "hours since 2020-01-02 00:00:00 EST", "i4"), r"1\.nc: time: '.* EST' ends in 'est', which readers do not agree on"),
        (([0], "hours since 2020-01-01 00:00:00", "i4"), ([0], "hours since 2020-01-02 6", "i4"), r"ends in '6', which readers do not agree on"),
        (([0], "hours since 2020-01-01 00:00:00 -3", "i4"), ([0], "hours since 2020-01-02 00:00:00", "i4"), r"1\.nc: time: '.* -3' ends in '-3', which readers"),
        (([0], "hours since 2020-01-01", "i4"), ([0], "hours since 20200102", "i4"), r"count from no date of the form 2000-01-31"),
        (([0], "days since 2020-00-00", "i4"), ([0], "days since 2021-00-00", "i4"), r"counts from no instant of the calendar 'standard' \(invalid month"),
        (([0], "days since 2020-01-01", "i2"), ([0], "days since 2220-01-01", "i2"), r"is 73048\.0 in .* which int16 cannot hold exactly"),
    ],
)  # fmt: skip
def test_a_time_that_cannot_be_converted_exactly_is_refused_with_its_value(
    tmp_path, first, second, message
):
    files = [
        granule(tmp_path / f"{n}.nc", values, units, "standard", dtype)
        for n, (values, units, dtype) in enumerate((first, second))
    ]
    with pytest.raises(PlanError, match=message):
        build(tmp_path, files)


@pytest.mark.parametrize(
    ("unit", "days"),
    [("nanoseconds", Fraction(1, 86_400 * 10**9)), ("ns", Fraction(1, 86_400 * 10**9)), ("weeks", Fraction(7))],
)  # fmt: skip
def test_units_that_cftime_does_not_have_are_converted_exactly_and_verified(tmp_path, unit, days):
    steps = [int(7 / days), int(7 / days) + 1]
    files = [
        granule(
            tmp_path / "in" / f"{n}.nc", steps, f"{unit} since 2020-01-{n:02}", None, "i8", False
        )
        for n in (1, 29)
    ]
    results = Results(tmp_path)
    results.scan(files)
    for form in ("sqlite", "vrt"):
        time = results.proven(form, "time")
        assert time.tolist() == [*steps, *(int(n + 28 / days) for n in steps)]


def test_a_calendar_that_nobody_knows_is_kept_and_refused_where_it_would_be_converted(tmp_path):
    same = [granule(tmp_path / f"{n}.nc", [n], "days since 2000-01-01", "lunar") for n in range(2)]
    with build(tmp_path, same) as view:
        assert view.arrays["time"].attrs["calendar"] == "lunar"
    other = granule(tmp_path / "2.nc", [2], "days since 2000-01-02", "lunar")
    with pytest.raises(PlanError, match=r"2\.nc: time: .*no instant of the calendar 'lunar'"):
        build(tmp_path, [*same, other])


@pytest.mark.parametrize(
    "pair", [("360_day", "standard"), ("noleap", "standard"), (None, "proleptic_gregorian")]
)
def test_a_file_of_another_calendar_is_refused_even_where_the_numbers_fit(tmp_path, pair):
    files = [
        granule(tmp_path / f"{n}.nc", [n], "days since 2000-01-01", c) for n, c in enumerate(pair)
    ]
    with pytest.raises(
        PlanError, match=rf"1\.nc: time: calendar '{pair[1]}', and the sources before it have"
    ):
        build(tmp_path, files)


@settings(max_examples=20)
@given(
    calendar=st.sampled_from(["standard", "noleap", "360_day", "all_leap", "julian"]),
    unit=st.sampled_from(["seconds", "minutes", "hours", "days"]),
    starts=st.lists(st.integers(0, 5000), min_size=2, max_size=4, unique=True),
    steps=st.integers(1, 3),
)
def test_any_series_of_reference_days_keeps_its_instants(
    tmp_path_factory, calendar, unit, starts, steps
):
    folder, files = tmp_path_factory.mktemp("time"), []
    for start in sorted(starts):
        day = cftime.num2date(start, "days since 1990-01-01", calendar).strftime(
            "%Y-%m-%d %H:%M:%S"
        )
        values = np.arange(steps) if unit != "days" else np.zeros(1)
        files.append(
            granule(folder / f"{start:05}.nc", values, f"{unit} since {day}", calendar, "i8")
        )
    with build(folder, files) as view:
        for name in ("time", "time_bnds"):
            assert planned(view, name) == [t for path in files for t in instants(path, name)]


def test_hours_of_two_days_in_every_form_are_the_instants_that_xarray_reads_in_the_files(tmp_path):
    files = [
        granule(
            tmp_path / "in" / f"{n}.nc",
            np.arange(0, 24, 6),
            f"hours since 2020-02-2{n} 03:00:00",
            "standard",
            "i4",
        )
        for n in (8, 9)
    ]
    results = Results(tmp_path)
    results.scan(files)
    results.emit()
    assert all(results.verify(target, form)["verified"] for target, form in results.pairs)
    fo = {"fo": str(results.out("access", "kerchunk")), "remote_protocol": "file"}
    expected = [xr.open_dataset(path) for path in files]
    with (
        quiet(),
        xr.open_dataset(
            "reference://", engine="zarr", consolidated=False, storage_options=fo
        ) as got,
    ):
        for name in ("time", "time_bnds", "v"):
            wanted = np.concatenate([one[name].values for one in expected])
            np.testing.assert_array_equal(got[name].values, wanted)


def test_a_real_series_whose_base_date_differs_in_every_file_keeps_every_instant(tmp_path, shared):
    files = sorted(shared("cmip5_ecearth_tas").glob("*.nc"))
    results = Results(tmp_path)
    results.scan(files)
    with View.open(results.store) as view:
        for name in ("time", "time_bnds"):
            assert planned(view, name) == [t for path in files for t in instants(path, name)]
    results.emit(("access", "vrt"))
    proof = results.verify("access", "vrt")
    assert proof["verified"]
    assert "count their time from an instant of their own" in proof["mosaic"]["refused"]["tas"]
