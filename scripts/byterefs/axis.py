"""Coordinates along the concat axis: exact instants, one unit, an order, a place for each source."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from types import MappingProxyType
from typing import Any

import numpy as np

from byterefs.errors import PlanError
from byterefs.units import CALENDARS, Units, is_time

PACKED = ("scale_factor", "add_offset", "_Unsigned")


def label(value: Any, units: Units | None) -> str:
    """A coordinate value in words: ``2010-01-01``, with the time of day where there is one; else the number."""
    if units is None or not np.isfinite(value):
        return str(value)
    try:
        when = units.dates(value)
    except PlanError:
        return f"{value} {units.units}"
    day, _, clock = when.isoformat().partition("T")
    return str(day if clock.startswith("00:00:00") else f"{day}T{clock.removesuffix(':00')}")


def time_units(attrs: Any, inherited: Units | None = None) -> Units | None:
    """Units of a time coordinate; bounds without units of their own inherit (CF 7.1). None if not time."""
    units = attrs.get("units")
    if not is_time(units):
        return inherited
    calendar = str(attrs.get("calendar", inherited.calendar if inherited else "standard")).lower()
    return Units(units, CALENDARS.get(calendar, calendar))


def convert(
    values: np.ndarray,
    old: Units,
    new: Units,
    where: str,
    attrs: Mapping[str, Any] = MappingProxyType({}),
) -> np.ndarray:
    """The same instants counted in ``new``, in the dtype of ``values``; exact or refused.

    What ``attrs`` call missing stays as it is. Raises PlanError, naming ``where``, if a value cannot be
    held exactly (no rounding), if it would pass for missing, and for packed values.
    """
    if old == new:
        return values
    for name in PACKED:
        if name in attrs:
            raise PlanError(
                f"{where}: it has {name} {attrs[name]} and counts in {old.units!r}, and the sources before it "
                f"in {new.units!r}; packed times are not converted: build these sources as a dataset of their own"
            )
    if old.calendar != new.calendar:
        raise PlanError(
            f"{where}: calendar {old.calendar!r}, and the sources before it have {new.calendar!r}; "
            f"build these sources as a dataset of their own"
        )
    delta = old.after(new, where)
    if delta == 0 and old.name == new.name:
        return values
    scale, shift = old.seconds(where) / new.seconds(where), delta / new.seconds(where)
    out = np.empty_like(values)
    marks = missing_marks(attrs)
    for i, value in enumerate(values.flat):
        if value in marks or not np.isfinite(value):
            out.flat[i] = value
            continue
        exact = Fraction(value.item()) * scale + shift
        out.flat[i] = held_exactly(
            exact, values.dtype, f"{where}: {value} {old.units!r}", new.units
        )
        if out.flat[i] in marks:
            raise PlanError(
                f"{where}: {value} {old.units!r} is {out.flat[i]} in {new.units!r}, which means missing there; "
                f"build sources of these units as a dataset of their own"
            )
    return out


def missing_marks(attrs: Mapping[str, Any]) -> frozenset[int | float]:
    """The numbers that CF attributes call missing."""
    found = (attrs.get(name) for name in ("_FillValue", "missing_value"))
    items = [x for f in found for x in (f if isinstance(f, list) else [f])]
    return frozenset(x for x in items if isinstance(x, int | float))


def held_exactly(exact: Fraction, dtype: np.dtype[Any], what: str, units: str) -> Any:
    """``exact`` as a number of ``dtype``. Raises PlanError if the dtype cannot hold it."""
    try:
        number = dtype.type(exact if dtype.kind == "f" else int(exact))
    except OverflowError:
        number = None
    if number is None or Fraction(number.item()) != exact:
        raise PlanError(
            f"{what} is {float(exact)!r} in {units!r}, which {dtype} cannot hold exactly; "
            f"build sources of these units as a dataset of their own"
        )
    return number


@dataclass(frozen=True)
class Slab:
    """The stretch of the concat axis that one or more sources share."""

    values: tuple[Any, ...]
    """coordinate values in the global unit, as Python numbers"""
    sources: tuple[str, ...]
    """in the order of their names"""


def slabs(coordinates: Sequence[tuple[str, np.ndarray]], name: str) -> list[Slab]:
    """Sources that share their coordinate values, in ascending order of the first value.

    Raises PlanError where a source runs backwards or repeats itself, and where two sources overlap
    without being equal: with both names and both values.
    """
    shared: dict[tuple[Any, ...], list[str]] = {}
    for source, values in coordinates:
        check_ascending(source, values, name)
        shared.setdefault(tuple(values.tolist()), []).append(source)
    ordered = [Slab(v, tuple(sorted(s))) for v, s in sorted(shared.items(), key=lambda kv: kv[0])]
    for before, after in pairwise(ordered):
        if after.values[0] <= before.values[-1]:
            raise PlanError(
                f"{after.sources[0]}: {name} runs {after.values[0]} … {after.values[-1]} and overlaps "
                f"{before.sources[0]} with {before.values[0]} … {before.values[-1]}; "
                f"one value, one source: tell them apart with select.slot and select.prefer, or leave one out"
            )
    return ordered


def check_ascending(source: str, values: np.ndarray, name: str) -> None:
    """Refuse a source without steps, with a missing value, or whose steps do not ascend."""
    if values.size == 0:
        raise PlanError(f"{source}: {name} has no steps; leave the source out with source.pattern")
    if values.dtype.kind == "f" and (values != values).any():
        raise PlanError(f"{source}: {name} has a NaN among its values; leave the source out")
    if values.size == 1:
        return
    wrong = np.flatnonzero(values[1:] <= values[:-1])
    if wrong.size:
        i = int(wrong[0])
        raise PlanError(
            f"{source}: {name} goes from {values[i]} to {values[i + 1]} at step {i + 1}; steps must ascend, "
            f"because a source is placed as one slab: leave the source out or split it"
        )


def packed(ordered: Sequence[Slab]) -> tuple[list[int], int]:
    """Where each slab starts when slabs lie one after another, and the length of the axis."""
    starts, end = [], 0
    for slab in ordered:
        starts.append(end)
        end += len(slab.values)
    return starts, end


def dense(
    ordered: Sequence[Slab], name: str, step: Fraction | None = None
) -> tuple[list[int], int, Fraction]:
    """Where each slab starts when every step of the axis has its place, the length, and the step.

    The step is the smallest distance between two values unless it is given. Raises PlanError for a
    value that does not lie on the axis, with its source.
    """
    exact = [[Fraction(v) for v in slab.values] for slab in ordered]
    flat = [v for values in exact for v in values]
    if step is None:
        step = min((b - a for a, b in pairwise(flat)), default=Fraction(1))
    starts = []
    for slab, values in zip(ordered, exact, strict=True):
        at = [(v - flat[0]) / step for v in values]
        if any(a.denominator != 1 for a in at) or any(b - a != 1 for a, b in pairwise(at)):
            raise PlanError(
                f"{slab.sources[0]}: {name} {slab.values[0]} … {slab.values[-1]} does not lie on an axis of "
                f"step {float(step)} from {float(flat[0])}; use plan.axis: packed, or give plan.step"
            )
        starts.append(int(at[0]))
    return starts, starts[-1] + len(ordered[-1].values), step


def affine(values: np.ndarray) -> dict[str, float | int] | None:
    """``start`` and ``step`` if ``start + step*i`` gives every value back bit for bit, else None."""
    if values.ndim != 1 or values.size < 3 or values.dtype.kind not in "iuf":
        return None
    index = np.arange(values.size)
    start, last = values[0].item(), values[-1].item()
    whole = values.dtype.kind != "f"
    for step in (values[1].item() - start, (last - start) / (values.size - 1)):
        if whole and (step != int(step) or not _counts(start, int(step), last, values.size)):
            continue
        step = int(step) if whole else step
        with np.errstate(all="ignore"):
            again = (start + step * index).astype(values.dtype)
        if (
            np.isfinite(start)
            and np.isfinite(step)
            and step
            and again.tobytes() == values.tobytes()
        ):
            return {"start": start, "step": step}
    return None


def _counts(start: int, step: int, last: int, n: int) -> bool:
    """Whether ``n`` integers end at ``last`` without wrapping around, in numbers that SQL and numpy have."""
    bounds = np.iinfo(np.int64)
    held = all(bounds.min <= x <= bounds.max for x in (start, step, last))
    return held and start + step * (n - 1) == last
