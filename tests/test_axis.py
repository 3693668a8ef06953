"""Instants, units, order: the oracle is cftime's own arithmetic."""

from fractions import Fraction

import cftime
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from byterefs import axis
from byterefs.errors import PlanError
from byterefs.units import Units

calendars = st.sampled_from(["standard", "360_day", "noleap", "proleptic_gregorian"])
steps = st.sampled_from(["days", "hours", "minutes", "seconds"])


@given(
    calendars, steps, steps, st.integers(1600, 2100), st.lists(st.integers(0, 10**5), min_size=1)
)
def test_converted_values_name_the_same_instants(calendar, old_step, new_step, year, numbers):
    old = Units(f"{old_step} since {year}-03-01 06:00:00", calendar)
    new = Units(f"{new_step} since 1850-01-01 00:00:00", calendar)
    values = np.array(numbers, "f8")
    try:
        converted = axis.convert(values, old, new, "f")
    except PlanError:
        delta = cftime.num2date(0, old.units, calendar) - cftime.num2date(0, new.units, calendar)
        length = {"days": 86_400, "hours": 3_600, "minutes": 60, "seconds": 1}
        shift = Fraction(round(delta.total_seconds()), length[new_step])
        scale = Fraction(length[old_step], length[new_step])
        exact = [Fraction(v) * scale + shift for v in values.tolist()]
        assert any(Fraction(float(e)) != e for e in exact)
        return
    before = cftime.num2date(values, old.units, calendar)
    after = cftime.num2date(converted, new.units, calendar)
    assert (before == after).all()


def test_a_base_date_that_moves_each_file_is_taken_out_exactly():
    old, new = (
        Units("days since 1860-01-01", "standard"),
        Units("days since 1850-01-01", "standard"),
    )
    got = axis.convert(np.array([15.5, 45.0]), old, new, "f")
    assert got.tolist() == [3652 + 15.5, 3652 + 45.0]


def test_a_value_that_the_dtype_cannot_hold_is_refused_with_both_units():
    old, new = (
        Units("seconds since 2000-01-01", "standard"),
        Units("days since 2000-01-01", "standard"),
    )
    with pytest.raises(
        PlanError,
        match=r"a\.nc: 1 'seconds since 2000-01-01' is .* in 'days since 2000-01-01', which int32",
    ):
        axis.convert(np.array([1], "i4"), old, new, "a.nc")


def test_another_calendar_is_refused_with_both_names():
    with pytest.raises(
        PlanError, match="calendar '360_day', and the sources before it have 'standard'"
    ):
        axis.convert(
            np.zeros(1),
            Units("days since 2000-01-01", "360_day"),
            Units("days since 2000-01-01", "standard"),
            "b.nc",
        )


def test_months_have_no_fixed_length():
    with pytest.raises(PlanError, match="'months since 2000-01-01' have no fixed length"):
        axis.convert(
            np.zeros(1),
            Units("months since 2000-01-01", "standard"),
            Units("days since 2000-01-01", "standard"),
            "b.nc",
        )


def test_gregorian_is_the_standard_calendar():
    attrs = {"units": "days since 1978-01-01", "calendar": "gregorian"}
    assert axis.time_units(attrs) == Units("days since 1978-01-01", "standard")


def test_slabs_come_in_ascending_order_and_sources_with_equal_values_share_one():
    slabs = axis.slabs(
        [("c", np.array([5.0])), ("b", np.array([1.0, 2.0])), ("a", np.array([5.0]))], "time"
    )
    assert [(s.values, s.sources) for s in slabs] == [((1.0, 2.0), ("b",)), ((5.0,), ("a", "c"))]


def test_overlapping_sources_are_refused_with_both_names_and_values():
    with pytest.raises(
        PlanError, match=r"b: time runs 2\.0 … 3\.0 and overlaps a with 1\.0 … 2\.0"
    ):
        axis.slabs([("a", np.array([1.0, 2.0])), ("b", np.array([2.0, 3.0]))], "time")


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ([2.0, 1.0], "goes from 2.0 to 1.0 at step 1"),
        ([1.0, np.nan], "NaN"),
        ([], "no steps"),
        ([1.0, 1.0], "steps must ascend"),
    ],
)
def test_a_source_whose_steps_do_not_ascend_is_refused(values, text):
    with pytest.raises(PlanError, match=text):
        axis.slabs([("a", np.array(values))], "time")


def test_a_dense_axis_keeps_a_place_for_each_step():
    slabs = axis.slabs(
        [("a", np.array([1.0])), ("b", np.array([2.0])), ("c", np.array([5.0]))], "time"
    )
    assert axis.dense(slabs, "time") == ([0, 1, 4], 5, 1)


def test_a_value_between_the_steps_of_a_dense_axis_is_refused():
    slabs = axis.slabs(
        [("a", np.array([1.0])), ("b", np.array([3.0])), ("c", np.array([5.5]))], "time"
    )
    with pytest.raises(
        PlanError, match=r"c: time 5\.5 … 5\.5 does not lie on an axis of step 2\.0 from 1\.0"
    ):
        axis.dense(slabs, "time")
