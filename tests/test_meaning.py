"""What stored values mean is kept or refused: packing, missing times, large arrays, handed-over slabs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import netCDF4
import numpy as np
import pytest

import building
from byterefs.emitters import sqlite
from byterefs.errors import PlanError
from byterefs.planning import roles
from byterefs.scanners import _common
from forms import Results

Extra = Callable[[Any, int], None]
UNITS = ("days since 2000-01-01", "days since 2000-01-02")


def granules(
    folder: Path,
    *,
    units: Sequence[str] = (UNITS[0], UNITS[0]),
    days: Sequence[float] = (0, 5),
    extra: Extra = lambda nc, n: None,
    **time: Any,
) -> list[Path]:
    """One file per day with ``v`` (time, y, x) int16; ``extra`` adds to it, ``time`` are attributes."""
    paths = []
    for n, (day, unit) in enumerate(zip(days, units, strict=True)):
        paths.append(folder / f"{n}.nc")
        with netCDF4.Dataset(paths[-1], "w") as nc:
            for name, size in (("time", None), ("y", 4), ("x", 6), ("nv", 2)):
                nc.createDimension(name, size)
            t = nc.createVariable("time", "f8", ("time",))
            t[:] = day
            t.setncatts({"units": unit, **time})
            v = nc.createVariable(
                "v", "i2", ("time", "y", "x"), chunksizes=(1, 4, 6), zlib=True, fill_value=-32767
            )
            v[:] = np.arange(24).reshape(1, 4, 6) + 100 * n
            extra(nc, n)
    return paths


def values(view: Any, name: str) -> list[Any]:
    """The values of an inline array."""
    array = view.arrays[name]
    return np.frombuffer(array.values, array.dtype).reshape(array.shape).tolist()


def test_a_scale_that_is_float_in_one_source_and_double_in_another_is_kept(tmp_path):
    def packing(nc, n):
        nc["v"].scale_factor = (np.float32, np.float64)[n](0.5)
        nc["v"].missing_value = (np.int16, np.int32)[n](-1)

    with building.build(tmp_path, granules(tmp_path, extra=packing)) as view:
        v = view.arrays["v"]
        assert (v.attrs["scale_factor"], v.attr_dtypes["scale_factor"]) == (0.5, "<f4")
        assert (v.attrs["missing_value"], v.attr_dtypes["missing_value"]) == (-1, "<i2")


def missing_reftime(nc, n):
    """An auxiliary time that is missing in the second source, in other units there."""
    v = nc.createVariable("reftime", "i4", ("time",), fill_value=-999)
    v.units = UNITS[n]
    v[:] = (3, -999)[n]
    nc["v"].coordinates = "reftime"


def test_a_missing_time_stays_missing_where_units_are_converted(tmp_path):
    results = Results(tmp_path / "results")
    results.scan(granules(tmp_path, units=UNITS, extra=missing_reftime))
    with building.View.open(results.store) as view:
        assert values(view, "reftime") == [3, -999]
    results.emit(("access", "sqlite"))
    results.verify("access", "sqlite")


def test_a_time_that_would_pass_for_missing_in_other_units_is_refused(tmp_path):
    def reftime(nc, n):
        missing_reftime(nc, n)
        nc["reftime"][:] = (3, -1000)[n]

    with pytest.raises(PlanError, match="-1000 'days since 2000-01-02' is -999 in"):
        building.build(tmp_path, granules(tmp_path, units=UNITS, extra=reftime))


def test_packed_times_in_other_units_are_refused(tmp_path):
    with pytest.raises(PlanError, match=r"1\.nc: time: it has scale_factor 0\.5 and counts in"):
        building.build(tmp_path, granules(tmp_path, units=UNITS, scale_factor=0.5))


def test_bounds_that_begin_in_a_later_source_count_from_the_first_sources_day(tmp_path):
    def bounds(nc, n):
        if n:
            nc.createVariable("time_bnds", "f8", ("time", "nv"))[:] = [[4, 6]]

    files = granules(tmp_path, units=UNITS, extra=bounds, bounds="time_bnds")
    with building.build(tmp_path, files, plan={"missing": "absent"}) as view:
        assert values(view, "time") == [0, 6]
        assert values(view, "time_bnds")[1] == [5, 7]
        assert np.isnan(values(view, "time_bnds")[0]).all()


def swath(
    chunks: tuple[Any, Any] = ((1, 4, 6), (1, 4, 6)), shuffle: tuple[bool, bool] = (True, True)
) -> Extra:
    """A coordinate of three dimensions along time."""

    def extra(nc, n):
        options = {"chunksizes": chunks[n], "shuffle": shuffle[n], "zlib": True}
        nc.createVariable("lat", "f8", ("time", "y", "x"), **options)[:] = n
        nc["v"].coordinates = "lat"

    return extra


@pytest.mark.parametrize(
    ("what", "extra"),
    [
        ("chunks", swath(chunks=((1, 4, 6), (1, 2, 6)))),
        ("codec", swath(shuffle=(False, True))),
    ],
)
def test_a_coordinate_too_large_for_the_plan_must_have_one_layout(
    tmp_path, monkeypatch, what, extra
):
    files = granules(tmp_path, extra=extra)
    with building.build(tmp_path / "inline", files) as view:
        assert view.arrays["lat"].storage == "inline"
    monkeypatch.setattr(roles, "INLINE_BYTES", 300)  # one source's is 192
    with pytest.raises(PlanError, match=rf"1\.nc: array 'lat' has {what}"):
        building.build(tmp_path / "referenced", files)


def test_bounds_too_large_for_the_plan_must_count_from_one_day(tmp_path, monkeypatch):
    def bounds(nc, n):
        nc.createVariable("time_bnds", "f8", ("time", "nv"), chunksizes=(1, 2))[:] = [[4, 6]]

    monkeypatch.setattr(roles, "INLINE_BYTES", 16)
    files = granules(tmp_path, units=UNITS, extra=bounds, bounds="time_bnds")
    with pytest.raises(
        PlanError, match=r"1\.nc: array 'time_bnds' has units days since 2000-01-02"
    ):
        building.build(tmp_path, files)


def test_data_without_the_axis_that_no_scan_could_compare_is_refused(tmp_path, monkeypatch):
    def field(nc, n):
        nc.createVariable("field", "f8", ("y", "x"))[:] = n

    monkeypatch.setattr(_common, "DIGESTED", 100)
    with pytest.raises(
        PlanError, match="'field' has no axis 'time', so one source would stand for"
    ):
        building.build(tmp_path, granules(tmp_path, extra=field))


def polar(longitude: Sequence[float]) -> Extra:
    """A grid mapping whose pole lies elsewhere in the second source."""

    def extra(nc, n):
        crs = nc.createVariable("crs", "i4", ())
        crs.setncatts({"grid_mapping_name": "polar_stereographic", "long_name": f"file {n}"})
        crs.straight_vertical_longitude_from_pole = longitude[n]
        nc["v"].grid_mapping = "crs"

    return extra


def test_a_grid_mapping_whose_numbers_change_is_refused_with_both(tmp_path):
    files = granules(tmp_path, extra=polar((0.0, -45.0)))
    words = (
        r"1\.nc: array 'crs' has straight_vertical_longitude_from_pole -45\.0, and .*0\.nc has 0\.0"
    )
    with pytest.raises(PlanError, match=words):
        building.build(tmp_path, files)
    with pytest.raises(PlanError, match=words):
        building.build(tmp_path, files, scan={"arrays": ["v"]})
    with building.build(tmp_path, files, plan={"eras": "auto"}) as view:
        kept = [view.arrays[f"{era}/crs"].attrs for era in view.eras]
        assert [a["straight_vertical_longitude_from_pole"] for a in kept] == [0.0, -45.0]


def test_a_grid_mapping_whose_name_for_people_changes_is_one(tmp_path):
    files = granules(tmp_path, extra=polar((0.0, 0.0)))
    with building.build(tmp_path, files) as view:
        assert view.arrays["crs"].attrs["straight_vertical_longitude_from_pole"] == 0.0
        assert "long_name" not in view.arrays["crs"].attrs


@pytest.mark.parametrize(
    ("name", "two"),
    [("flag_meanings", ("land sea", "sea land")), ("positive", ("up", "down"))],
)
def test_flags_and_directions_that_mean_something_else_are_refused_with_both(tmp_path, name, two):
    def extra(nc, n):
        nc["v"].setncattr(name, two[n])

    with pytest.raises(PlanError, match=rf"1\.nc: array 'v' has {name} {two[1]}, and .*0\.nc has"):
        building.build(tmp_path, granules(tmp_path, extra=extra))


def test_a_scalar_of_each_source_is_left_out_with_its_reason_though_data_names_it(tmp_path):
    def issued(nc, n):
        v = nc.createVariable("reftime", "f8", ())
        v.setncatts({"units": UNITS[0], "bounds": "reftime_bnds"})
        v[...] = n
        nc.createVariable("reftime_bnds", "f8", ("nv",))[:] = [n, n + 1]
        nc["v"].coordinates = "reftime"

    files = granules(tmp_path, extra=issued)
    with pytest.raises(
        PlanError, match=r"1\.nc: array 'reftime' .* 1\.0 against 0\.0; .*scan\.arrays"
    ):
        building.build(tmp_path, files)
    with building.build(tmp_path, files, scan={"arrays": ["v"]}) as view:
        assert view.referenced() == ["v"]
        assert not {"reftime", "reftime_bnds"} & set(view.arrays)


def test_a_coordinate_that_drifts_in_its_last_bit_is_refused_with_eras_as_the_way_out(tmp_path):
    def grid(nc, n):
        y = nc.createVariable("y", "f4", ("y",))
        y[:] = np.arange(1, 5, dtype="f4")
        if n:
            y[2] = np.nextafter(np.float32(3), np.float32(4))

    files = granules(tmp_path, extra=grid)
    words = r"1\.nc: array 'y' .*element 2 is 3\.000000238\d+ against 3\.0; .*plan\.eras: auto"
    with pytest.raises(PlanError, match=words) as refusal:
        building.build(tmp_path, files, scan={"arrays": ["v"]})
    assert "scan.arrays" not in str(refusal.value)  # v brings its coordinates along
    with building.build(tmp_path, files, plan={"eras": "auto"}) as view:
        assert len(view.eras) == 2


def test_a_time_without_units_beside_one_with_units_is_refused(tmp_path):
    with pytest.raises(PlanError, match="'time' has units"):
        building.build(tmp_path, granules(tmp_path, units=(UNITS[0], "days")))


def test_bounds_in_a_gap_are_nan_and_not_a_number_that_readers_take_for_a_time(tmp_path):
    def bounds(nc, n):
        nc.createVariable("time_bnds", "f8", ("time", "nv"))[:] = [[0, 1]]

    files = granules(
        tmp_path, days=(0, 2, 3), units=UNITS[:1] * 3, extra=bounds, bounds="time_bnds"
    )
    with building.build(tmp_path, files, plan={"axis": "dense"}) as view:
        assert np.isnan(values(view, "time_bnds")).tolist() == [[n == 1] * 2 for n in range(4)]


# --- a VRT that somebody hands over --------------------------------------------------------------------


def handed(tmp_path: Path, size: int, *slabs: tuple[int, int, int, int], more: str = "") -> Any:
    """The view after a VRT with slabs (file, offset, count, dest) of ``v`` along time, two steps a file."""

    def longer(nc, n):
        nc["time"][1] = nc["time"][0] + 1
        nc["v"][1] = 100 * n + 50

    files = granules(tmp_path, extra=longer)
    sources = "".join(
        f"<Source><SourceFilename>{files[n]}</SourceFilename><SourceArray>/v</SourceArray>{more}"
        f'<SourceSlab offset="{offset},0,0" count="{count},4,6"/><DestSlab offset="{dest},0,0"/></Source>'
        for n, offset, count, dest in slabs
    )
    dims = (("time", size), ("y", 4), ("x", 6))
    (tmp_path / "plan.vrt").write_text(
        '<VRTDataset><Group name="/">'
        + "".join(f'<Dimension name="{d}" size="{n}"/>' for d, n in dims)
        + '<Array name="v"><DataType>Int16</DataType>'
        + "".join(f'<DimensionRef ref="/{d}"/>' for d, _ in dims)
        + f"{sources}</Array></Group></VRTDataset>"
    )
    return building.build(
        tmp_path, files, plan={"engine": "vrt", "vrt": str(tmp_path / "plan.vrt")}
    )


@pytest.mark.parametrize(
    ("size", "slabs", "words"),
    [
        (3, [(0, 0, 2, 0), (1, 0, 2, 1)], r"1\.nc at \[1, 0, 0\] on top of that of .*0\.nc"),
        (5, [(0, 0, 2, 0), (1, 0, 3, 2)], r"a slab of \[3, 4, 6\] .*whose 'v' is \[2, 4, 6\]"),
        (3, [(0, 0, 2, 0), (1, 0, 2, 2)], r"'v' of \[3, 4, 6\] has at \[2, 0, 0\] a slab of \[2, 4, 6\]"),
        (5, [(0, 0, 2, 0), (1, 0, 2, 3)], r"'time' has no value at step 2"),
    ],
)  # fmt: skip
def test_slabs_that_overlap_pass_an_end_or_leave_time_unknown_are_refused(
    tmp_path, size, slabs, words
):
    with pytest.raises(PlanError, match=words):
        handed(tmp_path, size, *slabs)


@pytest.mark.parametrize("part", ["<SourceView>[::-1]</SourceView>", "<SourceTranspose>0,2,1</SourceTranspose>"])  # fmt: skip
def test_a_vrt_that_turns_its_sources_around_is_refused(tmp_path, part):
    with pytest.raises(PlanError, match=r"through <Source(View|Transpose)>"):
        handed(tmp_path, 4, (0, 0, 2, 0), (1, 0, 2, 2), more=part)


def test_an_array_along_the_axis_that_the_vrt_leaves_out_is_refused(tmp_path):
    files = granules(tmp_path)
    with building.build(tmp_path / "ours", files) as view:
        text = view.vrt.replace('<Array name="v">', '<Array name="w">')
    (tmp_path / "plan.vrt").write_text(text)
    options = {"engine": "vrt", "vrt": str(tmp_path / "plan.vrt"), "missing": "absent"}
    with pytest.raises(
        PlanError, match="'v' lies along 'time' and the plan places no source of it"
    ):
        building.build(tmp_path / "theirs", files, plan=options)


def test_a_source_may_lie_at_two_places_of_a_handed_over_vrt(tmp_path):
    with handed(tmp_path, 3, (0, 0, 2, 0), (0, 1, 1, 2)) as view:
        sqlite.emit(view, tmp_path / "out", target="access", options={}, state={})
        reader = sqlite.open(tmp_path / "out", access=str)
        assert reader.read("v", (slice(0, 3), slice(0, 1), slice(0, 1))).ravel().tolist() == [0, 50, 50]  # fmt: skip


def test_a_table_is_written_again_where_only_the_title_changed(tmp_path):
    results = Results(tmp_path / "results")
    results.scan(granules(tmp_path))
    results.emit(("access", "sqlite"))
    results.config["title"] = "Another"
    building.replan(results.store.parent, results.config).close()
    results.emit(("access", "sqlite"))
    reader = sqlite.open(results.out("access", "sqlite"), access=str)
    row = reader.con.execute("SELECT value FROM meta WHERE key = 'title'")
    assert row.fetchone() == ("Another",)


def test_an_array_may_be_called_slab(tmp_path):
    def named(nc, n):
        nc.renameVariable("v", "slab")

    with building.build(tmp_path, granules(tmp_path, extra=named)) as view:
        sqlite.emit(view, tmp_path / "out", target="access", options={}, state={})
        reader = sqlite.open(tmp_path / "out", access=str)
        assert reader.refs("slab").size.min() > 0


def test_a_fill_that_is_a_nan_with_its_own_bits_is_a_nan_in_the_vrt(tmp_path):
    odd = np.array([0xFFC00000], "u4").view("f4")[0]  # what 0/0 is on x86

    def field(nc, n):
        f = nc.createVariable("f", "f4", ("time", "y", "x"), fill_value=odd)
        f.missing_value = odd
        f[:] = n

    results = Results(tmp_path / "results")
    results.scan(granules(tmp_path, extra=field))
    results.emit(("access", "vrt"))
    results.verify("access", "vrt")
    with building.View.open(results.store) as view:
        assert view.arrays["f"].attrs["_FillValue"] == "0xffc00000"


@pytest.mark.parametrize("differs", [False, True])
def test_a_coordinate_without_the_axis_is_compared_whatever_its_size(
    tmp_path, monkeypatch, differs
):
    def grid(nc, n):
        lat = nc.createVariable("lat", "f8", ("y", "x"), zlib=True, chunksizes=(3, 6))
        lat[:] = np.arange(24.0).reshape(4, 6)
        lat[3, 5] += differs * n
        nc["v"].coordinates = "lat"

    monkeypatch.setattr(_common, "KEPT", 20)
    monkeypatch.setattr(_common, "DIGESTED", 30)
    files = granules(tmp_path, extra=grid)
    if differs:
        with pytest.raises(
            PlanError, match=r"1\.nc: array 'lat' has no axis 'time' and differs from that of"
        ):
            building.build(tmp_path, files)
    else:
        with building.build(tmp_path, files) as view:
            assert view.arrays["lat"].storage == "referenced"


def test_a_coordinate_that_no_scan_can_decode_is_refused_for_several_sources(tmp_path, monkeypatch):
    def grid(nc, n):
        nc.createVariable("lat", "f8", ("y", "x"), zlib=True, chunksizes=(4, 6))[:] = 1
        nc["v"].coordinates = "lat"

    monkeypatch.setattr(_common, "KEPT", 20)
    monkeypatch.setattr(_common, "DIGESTED", 30)
    monkeypatch.setattr(_common, "numcodecs_refusal", lambda codec: "no decoder")
    with pytest.raises(
        PlanError, match=r"'lat' has no axis 'time'.*has an encoding that the scan cannot decode"
    ):
        building.build(tmp_path, granules(tmp_path, extra=grid))
