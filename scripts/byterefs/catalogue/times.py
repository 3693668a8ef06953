"""When a dataset's steps are: instants in the axis' own calendar, a calendar sheet of them, their gaps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import cftime
import numpy as np

from byterefs.axis import time_units
from byterefs.model import Array
from byterefs.units import Units
from byterefs.view import View

DAILY_SHEET = 24
"""months up to which a sheet has a column per day; a longer one has a column per month"""
MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


class Sheet(NamedTuple):
    """Steps counted by month and day, or by year and month."""

    columns: list[str]
    rows: list[tuple[str, list[int]]]
    """label, and how many steps fall into each column"""
    most: int
    """steps in the fullest cell"""
    cell: str
    """what a cell is: day or month"""


class Gap(NamedTuple):
    """The steps on both sides of a place where the axis skips more than its usual step."""

    last: str
    next: str


def time_axis(view: View, array: str) -> Array | None:
    """The time coordinate of the array's first such dimension; None if it has none that has a calendar."""
    folder = array.rpartition("/")[0]
    for dim in view.arrays[array].dims:
        name = f"{folder}/{dim}" if folder else dim
        found = view.arrays.get(name) or view.arrays.get(dim)
        if found is not None and len(found.shape) == 1 and has_calendar(found):
            return found
    return None


def has_calendar(coordinate: Array) -> bool:
    """Whether the values of a coordinate can be told as dates."""
    units = time_units(coordinate.attrs)
    return units is not None and units.fixed and coordinate.values is not None


def instants(coordinate: Array) -> list[cftime.datetime]:
    """The steps of a time coordinate, sorted."""
    units = time_units(coordinate.attrs)
    return [] if units is None else list(told(np.sort(numbers(coordinate)), units))


def numbers(coordinate: Array) -> Any:
    """The values of an inline coordinate, scaled as CF has it."""
    values = np.frombuffer(coordinate.values or b"", coordinate.dtype)
    scale, offset = (coordinate.attrs.get(k) for k in ("scale_factor", "add_offset"))
    if scale is None and offset is None:
        return values
    return values * float(scale or 1) + float(offset or 0)


def span(view: View, array: str) -> str:
    """First and last step of an array in words; "" without a time axis."""
    found = steps(view, array)
    if not found:
        return ""
    first, last = (text(at, whole_days=daily(found)) for at in (found[0], found[-1]))
    return first if first == last else f"{first} to {last}"


def steps(view: View, array: str) -> list[cftime.datetime]:
    """The steps of an array in all of its eras, sorted; none without a time axis."""
    return sorted({step for axis in axes(view, array) for step in instants(axis)})


def axes(view: View, array: str) -> list[Array]:
    """The time axes of an array, one per era: an era is another group with an array of the same name."""
    leaf = array.rpartition("/")[2]
    same = [name for name in view.arrays if name.rpartition("/")[2] == leaf]
    found = {axis.array: axis for name in same if (axis := time_axis(view, name)) is not None}
    return [found[name] for name in sorted(found)]


def told(values: Any, units: Units) -> Any:
    """The instants of some values."""
    return units.dates(values.astype("f8"))


def from_epoch(seconds: int) -> cftime.datetime:
    """UTC seconds since 1970 as an instant."""
    return cftime.num2date(seconds, "seconds since 1970-01-01", "standard")


def text(instant: cftime.datetime, *, whole_days: bool = False) -> str:
    """An instant as ISO 8601 has it; its date alone where every step is a whole day."""
    day = f"{instant.year:04d}-{instant.month:02d}-{instant.day:02d}"
    if whole_days:
        return day
    return f"{day}T{instant.hour:02d}:{instant.minute:02d}:{instant.second:02d}Z"


def daily(steps: Sequence[cftime.datetime]) -> bool:
    """Whether no two steps fall on one day, so that a date names a step."""
    days = {(s.year, s.month, s.day) for s in steps}
    return len(days) == len(steps)


def sheet(steps: Sequence[cftime.datetime]) -> Sheet:
    """The steps as a calendar sheet: rows without a gap from the first to the last."""
    first, last = (12 * s.year + s.month - 1 for s in (steps[0], steps[-1]))
    if last - first < DAILY_SHEET:
        found = Counter((12 * s.year + s.month - 1, s.day) for s in steps)
        rows = [
            (f"{m // 12:04d} {MONTHS[m % 12]}", [found[m, d] for d in range(1, 32)])
            for m in range(first, last + 1)
        ]
        return Sheet([str(d) for d in range(1, 32)], rows, max(found.values()), "day")
    found = Counter((s.year, s.month) for s in steps)
    rows = [
        (f"{year:04d}", [found[year, m] for m in range(1, 13)])
        for year in range(steps[0].year, steps[-1].year + 1)
    ]
    return Sheet(list(MONTHS), rows, max(found.values()), "month")


def gaps(steps: Sequence[cftime.datetime]) -> list[Gap]:
    """Where two neighbours lie more than one and a half usual steps apart."""
    lengths = [(b - a).total_seconds() for a, b in pairwise(steps)]
    if not lengths:
        return []
    usual, whole = Counter(lengths).most_common(1)[0][0], daily(steps)
    return [
        Gap(text(a, whole_days=whole), text(b, whole_days=whole))
        for (a, b), length in zip(pairwise(steps), lengths, strict=True)
        if length > 1.5 * usual
    ]
