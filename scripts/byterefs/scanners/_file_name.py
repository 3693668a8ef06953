"""What the name of a source says and the source does not: its array's name, its place on the concat axis."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from typing import Any

import cftime
import numpy as np

from byterefs.axis import held_exactly
from byterefs.codecs import NEW_AXIS
from byterefs.errors import PlanError, ScanError
from byterefs.model import Source, SourceArray, SourceScan
from byterefs.scanners._derived import derived
from byterefs.units import Units


def groups(source: Source, rules: Mapping[str, Any]) -> dict[str, str]:
    """The named groups of ``scan.file_name.pattern`` in a source's name; ScanError where it does not match."""
    prefix = str(rules.get("below", "")).rstrip("/") + "/"
    found = re.search(rules["pattern"], source.source.removeprefix(prefix))
    if found is None:
        raise ScanError(
            f"{source.source}: the pattern {rules['pattern']!r} of scan.file_name does not match this source; "
            f"correct it, or leave the source out with source.pattern"
        )
    return {name: text or "" for name, text in found.groupdict().items()}


def wanted(source: Source, name: str, arrays: Sequence[str]) -> tuple[str, ...]:
    """The wanted arrays of a source whose one array has this name; ScanError if it is not wanted."""
    others = [a for a in arrays if re.fullmatch(r"(overview|page)_\d+", a)]
    if not name or (arrays and name not in arrays):
        raise ScanError(
            f"{source.source}: its name says that its array is {name!r}, and scan.arrays lists "
            f"{', '.join(arrays) or 'none'}; list it there, or leave the source out with source.pattern"
        )
    return (name, *others)


def coordinate(source: Source, concat: str, text: str, rule: Mapping[str, Any]) -> SourceArray:
    """The coordinate along ``concat`` with the one value that ``text`` means, exactly.

    Raises ScanError for a text that is no such date or number, and a value that the dtype cannot hold.
    """
    dtype = np.dtype(rule.get("dtype", "int64"))
    what = f"{source.source}: {concat} {text!r} of its name"
    units = rule.get("units")
    try:
        exact = instant(text, rule, what) if rule.get("format") else Fraction(Decimal(text))
        if dtype.kind == "f" and not rule.get("format"):
            value = dtype.type(text)  # a decimal fraction means the float that prints so
        else:
            value = held_exactly(exact, dtype, what, units or "its own units")
    except (ArithmeticError, ValueError) as error:
        raise ScanError(
            f"{what} is no {rule.get('format') or 'number'} ({error}); correct "
            f"scan.file_name.coordinate.format, or leave the source out with source.pattern"
        ) from error
    except PlanError as error:
        raise ScanError(
            f"{str(error).split(';')[0]}; choose finer units or dtype: float64 in scan.file_name.coordinate"
        ) from error
    attrs = {"units": units} if units else {}
    if rule.get("format"):
        attrs |= {
            "calendar": rule.get("calendar", "standard"),
            "standard_name": "time",
            "axis": "T",
        }
    values = np.array([value], dtype.newbyteorder("<"))
    return derived(concat, (concat,), values, attrs)


def instant(text: str, rule: Mapping[str, Any], what: str) -> Fraction:
    """A date as a number of the rule's units. Raises ValueError if it is none, PlanError for odd units."""
    units = Units(str(rule["units"]), rule.get("calendar", "standard"))
    date = cftime.datetime.strptime(text, rule["format"], calendar=units.calendar)
    return units.from_instant(date, what)


def lifted(scan: SourceScan, along: SourceArray) -> SourceScan:
    """The scan with the coordinate ``along``, and every referenced array with a leading axis of one step.

    Raises ScanError for a source that has that axis of its own.
    """
    concat = along.meta.array
    for name, item in scan.arrays.items():
        if name == concat or concat in item.meta.dims:
            raise ScanError(
                f"{scan.source.source}: array {name!r} has {concat!r} already; leave "
                f"scan.file_name.coordinate out, or name another axis in plan.concat"
            )
    arrays = {
        n: item if item.values is not None else lift(item, concat)
        for n, item in scan.arrays.items()
    }
    return replace(scan, arrays=dict(sorted({**arrays, concat: along}.items())))


def lift(item: SourceArray, dim: str) -> SourceArray:
    """An array with a leading axis of length one; ``info`` says so of one that GDAL reads by its own axes."""
    info = item.meta.info
    meta = replace(
        item.meta,
        info=info if info.startswith("DRIVER=") else f"{info}; {NEW_AXIS}",
        dims=(dim, *item.meta.dims),
        shape=(1, *item.meta.shape),
        chunks=(1, *item.meta.chunks),
    )
    return SourceArray(
        meta=meta,
        offset=None if item.offset is None else item.offset[None],
        size=None if item.size is None else item.size[None],
        data={(0, *key): raw for key, raw in item.data.items()},
    )
