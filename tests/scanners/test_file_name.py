"""What only the name of a source says: the array's name and its step along the concat axis."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import cftime
import h5py
import numpy as np
import pytest

from byterefs import config as configs
from byterefs.discover import scan_version
from byterefs.errors import ConfigError, ScanError
from conformance import assembled, by_value, scanned
from tiffs import ramp, write

DAY = {"from": "date", "format": "%Y%m%d", "units": "days since 1970-01-01"}


def named(folder: Path, coordinate: Any = None, **rules: Any) -> dict[str, Any]:
    """The section ``scan.file_name`` for sources below ``folder``."""
    more = {} if coordinate is None else {"coordinate": coordinate}
    return {
        "pattern": r"(?P<date>\d{8})(-(?P<what>\w+))?\.tif$",
        "below": str(folder),
        **more,
        **rules,
    }


def test_every_image_gets_a_leading_axis_of_one_step_and_its_coordinate(tmp_path: Path) -> None:
    values = ramp((64, 40))
    path = write(tmp_path / "sst.20220913.tif", values, TILED="YES", BLOCKXSIZE=16, BLOCKYSIZE=32)
    plain = scanned(path).arrays["data"]
    found = scanned(path, concat="time", file_name=named(tmp_path, DAY)).arrays
    assert set(found) == {"data", "time"}
    item = found["data"]
    assert (item.meta.dims, item.meta.shape, item.meta.chunks) == (
        ("time", "y", "x"),
        (1, 64, 40),
        (1, 32, 16),
    )
    np.testing.assert_array_equal(assembled(path, item), values[None])
    assert item.offset is not None
    assert plain.offset is not None
    assert item.offset.tolist() == plain.offset[None].tolist()
    expected = cftime.date2num(cftime.datetime(2022, 9, 13), DAY["units"])
    assert by_value(found["time"]).tolist() == [expected]
    assert found["time"].meta.dtype == "<i8"
    assert found["time"].meta.attrs == {
        "units": "days since 1970-01-01",
        "calendar": "standard",
        "standard_name": "time",
        "axis": "T",
    }


@pytest.mark.parametrize(
    ("text", "format", "units", "calendar", "dtype", "expected"),
    [
        ("20220913T06", "%Y%m%dT%H", "hours since 2022-09-13", "standard", "int64", 6),
        ("20220913T06", "%Y%m%dT%H", "days since 2022-09-13", "standard", "float64", 0.25),
        ("2022256", "%Y%j", "days since 2022-01-01 12:00", "standard", "float64", 254.5),
        ("20220230", "%Y%m%d", "days since 2022-02-01", "360_day", "int32", 29),
        ("19991231", "%Y%m%d", "seconds since 1970-01-01", "standard", "int64", 946598400),
        ("0250", None, "m", "standard", "int32", 250),
        ("0.1", None, None, "standard", "float64", 0.1),
    ],
)
def test_a_step_is_the_exact_value_that_the_text_means(
    tmp_path: Path,
    text: str,
    format: str | None,
    units: str,
    calendar: str,
    dtype: str,
    expected: float,
) -> None:
    path = write(tmp_path / f"a_{text}.tif", ramp((8, 8)))
    rule = {"from": "t", "format": format, "units": units, "calendar": calendar, "dtype": dtype}
    rule = {key: value for key, value in rule.items() if value is not None}
    rules = {"pattern": r"a_(?P<t>.+)\.tif$", "below": str(tmp_path), "coordinate": rule}
    time = scanned(path, concat="t", file_name=rules).arrays["t"]
    assert by_value(time).tolist() == [expected]
    assert time.meta.dtype == np.dtype(dtype).str


@pytest.mark.parametrize(
    ("name", "coordinate", "why"),
    [
        ("20221313.tif", DAY, r"is no %Y%m%d"),
        ("sst.tif", DAY, "does not match this source"),
        ("20220913.tif", {**DAY, "units": "months since 1970-01-01"}, "no fixed length"),
        (
            "20220913.tif",
            {**DAY, "units": "days since 1970-01-01 12:00"},
            "int64 cannot hold exactly",
        ),
    ],
)
def test_a_name_that_says_no_exact_step_is_refused_by_name(
    tmp_path: Path, name: str, coordinate: Any, why: str
) -> None:
    path = write(tmp_path / name, ramp((8, 8)))
    with pytest.raises(ScanError, match=why) as refusal:
        scanned(path, concat="time", file_name=named(tmp_path, coordinate))
    assert str(path) in str(refusal.value)
    assert "; " in str(refusal.value)


def test_the_folder_above_an_archive_is_no_part_of_a_name(tmp_path: Path) -> None:
    folder = tmp_path / "20000101"
    folder.mkdir()
    path = write(folder / "20220913.tif", ramp((8, 8)))
    rules = {"pattern": r"(?P<date>\d{8})", "below": str(folder), "coordinate": DAY}
    found = scanned(path, concat="time", file_name=rules).arrays["time"]
    assert by_value(found).tolist() == [19248]


def test_a_group_names_the_array_and_another_wanted_name_is_not_taken(tmp_path: Path) -> None:
    path = write(tmp_path / "20220913-sst.tif", ramp((8, 8)))
    rules = named(tmp_path, array="what")
    assert set(scanned(path, file_name=rules).arrays) == {"sst"}
    assert set(scanned(path, file_name=rules, arrays=("anom", "sst")).arrays) == {"sst"}
    with pytest.raises(ScanError, match=r"its array is 'sst', and scan\.arrays lists anom"):
        scanned(path, file_name=rules, arrays=("anom",))


def test_a_source_that_has_the_axis_itself_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "20220913.tif"
    with h5py.File(path, "w") as f:
        f["time"] = np.arange(3.0)
        f["time"].make_scale("time")
        f["v"] = np.zeros(3)
        f["v"].dims[0].attach_scale(f["time"])
    with pytest.raises(ScanError, match="has 'time' already"):
        scanned(path, concat="time", file_name=named(tmp_path, DAY))


def test_netcdf_without_a_time_axis_gets_one_too(tmp_path: Path) -> None:
    path = tmp_path / "20220913.tif"
    values = ramp((8, 6))
    with h5py.File(path, "w") as f:
        f.create_dataset("v", data=values, chunks=(4, 6), compression="gzip", shuffle=True)
    found = scanned(path, concat="time", file_name=named(tmp_path, DAY)).arrays["v"]
    assert found.meta.shape == (1, 8, 6)
    np.testing.assert_array_equal(assembled(path, found), values[None])


# --- the config ------------------------------------------------------------------------------------

CONFIG = r"""
dataset: demo
source: {provider: local, path: archive, pattern: '(?P<date>\d{8})\.tif$'}
scan: {file_name: {coordinate: {from: date, format: "%Y%m%d", units: days since 1970-01-01}}}
plan: {concat: time}
"""


def loaded(folder: Path, text: str) -> dict[str, Any]:
    (folder / "demo.yaml").write_text(text)
    return configs.load(folder / "demo.yaml")


def test_pattern_and_root_are_those_of_the_source(tmp_path: Path) -> None:
    rules = loaded(tmp_path, CONFIG)["scan"]["file_name"]
    assert rules["pattern"] == r"(?P<date>\d{8})\.tif$"
    assert rules["below"] == str(Path("archive").absolute())
    assert rules["coordinate"] == {**DAY, "calendar": "standard", "dtype": "int64"}


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("from: date", "from: day", r"'day' is no named group .*it has: date"),
        ("plan: {concat: time}", "plan: {}", "there is no axis for it"),
        ("units: days since 1970-01-01", "units: days", "count no time"),
        ("from: date, ", "", "the key `from` is missing"),
        ("coordinate:", "pattern: '(', coordinate:", "no regular expression"),
    ],
)
def test_a_section_that_cannot_mean_what_it_says_is_refused(
    tmp_path: Path, old: str, new: str, why: str
) -> None:
    assert old in CONFIG
    with pytest.raises(ConfigError, match=why):
        loaded(tmp_path, CONFIG.replace(old, new))


def test_other_rules_are_another_scan(tmp_path: Path) -> None:
    one = scan_version(loaded(tmp_path, CONFIG))
    assert one == scan_version(loaded(tmp_path, CONFIG))
    assert one != scan_version(loaded(tmp_path, CONFIG.replace("days since", "hours since")))
