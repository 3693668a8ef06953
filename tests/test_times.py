"""Steps as dates in the axis' own calendar, the sheet of them, their gaps."""

from __future__ import annotations

from datetime import date, timedelta

import cftime
import numpy as np
import pytest

from byterefs.catalogue import times
from byterefs.model import Array


def axis(values, units, calendar=None, dtype="<f8"):
    attrs = {"units": units} | ({"calendar": calendar} if calendar else {})
    data = np.array(values, dtype)
    return Array(
        "time", "coord", "inline", ("time",), data.shape, data.shape, dtype, None, {}, attrs=attrs,
        values=data.tobytes(),
    )  # fmt: skip


def days(first, count):
    start = (first - date(1978, 1, 1)).days
    return times.instants(axis(range(start, start + count), "days since 1978-01-01 12:00:00"))


def test_an_instant_has_the_date_of_its_own_calendar():
    found = times.instants(axis([59, 60], "days since 2000-01-01", "360_day"))
    assert [times.text(s, whole_days=True) for s in found] == ["2000-02-30", "2000-03-01"]
    (noon,) = times.instants(axis([1339], "days since 1978-01-01 12:00:00"))
    assert times.text(noon) == "1981-09-01T12:00:00Z"


@pytest.mark.parametrize("units", ["months since 2000-01-01", "days", "degrees_north"])
def test_units_without_a_fixed_length_make_no_calendar(units):
    assert not times.has_calendar(axis([1, 2], units))


def test_a_short_archive_has_a_column_per_day_and_empty_months_are_rows_too():
    found = times.sheet(days(date(2026, 1, 30), 2) + days(date(2026, 3, 1), 1))
    assert found.cell == "day"
    assert [label for label, _ in found.rows] == ["2026 Jan", "2026 Feb", "2026 Mar"]
    assert [sum(cells) for _, cells in found.rows] == [2, 0, 1]
    assert found.rows[0][1][29:31] == [1, 1]


def test_a_long_archive_has_a_column_per_month_and_counts_every_step():
    found = times.sheet(days(date(1981, 9, 1), 16387))
    assert (found.cell, found.most, len(found.rows)) == ("month", 31, 46)
    assert found.rows[0] == ("1981", [0] * 8 + [30, 31, 30, 31])
    assert sum(sum(cells) for _, cells in found.rows) == 16387


def test_gaps_are_named_by_the_steps_on_both_sides():
    steps = days(date(2026, 1, 1), 3) + days(date(2026, 1, 6), 2)
    assert times.gaps(steps) == [("2026-01-03", "2026-01-06")]
    assert times.gaps(steps[:1]) == []


def test_steps_within_a_day_are_told_with_their_time():
    steps = [cftime.datetime(2026, 1, 1, hour) for hour in (0, 6, 18)]
    assert not times.daily(steps)
    assert times.gaps([*steps, steps[-1] + timedelta(hours=6)]) == [
        ("2026-01-01T06:00:00Z", "2026-01-01T18:00:00Z")
    ]


def test_packed_coordinates_are_scaled():
    packed = axis([0, 2], "days since 2000-01-01", dtype="<i2")
    packed.attrs.update(scale_factor=0.5, add_offset=1.0)
    assert [times.text(s) for s in times.instants(packed)] == [
        "2000-01-02T00:00:00Z",
        "2000-01-03T00:00:00Z",
    ]
