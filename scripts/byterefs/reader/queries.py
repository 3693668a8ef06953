"""What a box and a span touch: elements, chunks, sources, bytes and requests, before a byte is read.

``{"lat": "-60/-40", "time": "2020-01-01/2020-01-31"}`` is in the values of coordinates, both ends
included, a date as long as it is (a day, a month, a year); ``"@10/20"`` is in elements, the end excluded.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import numpy as np
from numpy.typing import NDArray

from byterefs.errors import ByteRefsError
from byterefs.literals import attr_value
from byterefs.reader.fetch import Request, requests
from byterefs.reader.table import Ref
from byterefs.reader.windows import NativeArray
from byterefs.reader.zarr_store import TableStore

DATE = re.compile(r"(-?\d{4,})(?:-(\d\d)(?:-(\d\d)(?:[T ](\d\d)(?::(\d\d)(?::(\d\d))?)?)?)?)?Z?$")
FIRST = (1, 1, 1, 0, 0, 0)
LASTS = {3: 86_400, 4: 3_600, 5: 60, 6: 1}
"""seconds of a date that has so many parts"""


@dataclass(frozen=True, slots=True)
class Touched:
    """What a query touches."""

    array: str
    window: tuple[slice, ...]
    """elements along each axis"""
    chunks: int
    """chunks of the grid that the window meets"""
    refs: tuple[Ref, ...]
    """those of them that are present"""
    requests: tuple[Request, ...]
    """by which they are fetched"""

    @property
    def inline(self) -> int:
        """Chunks whose bytes are in the table."""
        return sum(ref.data is not None for ref in self.refs)

    @property
    def absent(self) -> int:
        """Chunks that read as fill."""
        return self.chunks - len(self.refs)

    @property
    def bytes(self) -> int:
        """Encoded bytes of the chunks that lie in sources."""
        return sum(ref.size for ref in self.refs if ref.data is None)

    @property
    def fetched(self) -> int:
        """Bytes of the requests: those, and what lies between neighbours."""
        return sum(request.size for request in self.requests)

    @property
    def sources(self) -> dict[str, tuple[int, int]]:
        """Path of each source -> (chunks, encoded bytes), in the order of the paths."""
        chunks: Counter[str] = Counter()
        size: Counter[str] = Counter()
        for ref in self.refs:
            if ref.data is None:
                chunks[ref.path] += 1
                size[ref.path] += ref.size
        return {path: (chunks[path], size[path]) for path in sorted(chunks)}


def query(store: TableStore, array: str, where: Mapping[str, str] | None = None) -> Touched:
    """What a box of an array touches; no source is opened.

    Raises ByteRefsError for a name that is neither an axis nor a coordinate of the array, a text that is
    no range, and a range in which nothing lies.
    """
    found = store.array(array)
    window = window_of(store, found, where or {})
    spans = [
        range(s.start // c, -(-s.stop // c)) for s, c in zip(window, found.chunks, strict=True)
    ]
    refs = store.table.find(array, spans) if found.meta.storage == "referenced" else []
    chunks = int(np.prod([len(span) for span in spans], dtype=np.int64))
    return Touched(array, window, chunks, tuple(refs), tuple(requests(refs)))


def counts(touched: Touched) -> dict[str, int]:
    """The figures of an answer."""
    return {
        "chunks": touched.chunks,
        "absent": touched.absent,
        "inline": touched.inline,
        "sources": len(touched.sources),
        "bytes": touched.bytes,
        "requests": len(touched.requests),
        "bytes of requests": touched.fetched,
    }


def parsed_where(items: Sequence[str]) -> dict[str, str]:
    """``NAME=RANGE`` texts as a mapping; ByteRefsError for one that is none, or a name given twice."""
    found: dict[str, str] = {}
    for item in items:
        name, is_, text = item.partition("=")
        if not is_ or not name or not text or name in found:
            raise ByteRefsError(
                f"{item!r}: write NAME=LOW/HIGH or NAME=@FIRST/STOP, each name once"
            )
        found[name] = text
    return found


def window_of(store: TableStore, array: NativeArray, where: Mapping[str, str]) -> tuple[slice, ...]:
    """The smallest window of elements that holds everything that a query asks for."""
    bounds = [[0, n] for n in array.shape]
    masks: dict[tuple[str, ...], Any] = {}
    for name, text in where.items():
        if text.startswith("@"):
            axis = axis_of(array, name)
            bounds[axis] = list(elements(name, text, array.shape[axis]))
            continue
        coordinate = coordinate_of(store, array, name)
        inside = between(coordinate, text)
        masks[coordinate.dims] = masks.get(coordinate.dims, True) & inside
    for dims, inside in masks.items():
        if not inside.any():
            raise ByteRefsError(
                f"{array.name}: nothing lies where {', '.join(f'{k}={v}' for k, v in where.items())}: "
                f"ask for a wider range of {' and '.join(dims)}"
            )
        for dim, at in zip(dims, np.nonzero(inside), strict=True):
            axis = axis_of(array, dim)
            low, high = bounds[axis]
            bounds[axis] = [max(low, int(at.min())), min(high, int(at.max()) + 1)]
    return tuple(slice(low, max(low, high)) for low, high in bounds)


def axis_of(array: NativeArray, name: str) -> int:
    """The number of an axis by its name or ``dim_0``; ByteRefsError for another name."""
    names = [*array.dims, *(f"dim_{i}" for i in range(len(array.dims)))]
    if name not in names:
        raise ByteRefsError(
            f"{array.name}: it has no axis {name!r}; there are {', '.join(array.dims)}"
        )
    return names.index(name) % len(array.dims)


def elements(name: str, text: str, n: int) -> tuple[int, int]:
    """``@10/20`` as first and one-past-last element, ``@10`` as one."""
    found = re.fullmatch(r"@(\d+)(?:/(\d+))?", text)
    first, stop = (int(found[1]), int(found[2] or int(found[1]) + 1)) if found else (0, 0)
    if not first < stop <= n:
        raise ByteRefsError(
            f"{name}={text}: it names no elements of an axis of {n}: write {name}=@first/stop, the end excluded"
        )
    return first, stop


def coordinate_of(store: TableStore, array: NativeArray, name: str) -> NativeArray:
    """A coordinate whose axes are among the array's, in its group or further out; ByteRefsError if there is none."""
    group = array.name.rpartition("/")[0]
    while True:
        path = f"{group}/{name}" if group else name
        if path in store.table.arrays:
            found = store.array(path)
            if found.dims and set(found.dims) <= set(array.dims):
                return found
        if not group:
            break
        group = group.rpartition("/")[0]
    known = [a for a in store.arrays if set(store.table.arrays[a].dims) <= set(array.dims)]
    raise ByteRefsError(
        f"{array.name}: it has no coordinate {name!r}; there are {', '.join(k for k in known if k != array.name)}, "
        f"and elements as {array.dims[0] if array.dims else 'dim'}=@first/stop"
    )


def between(coordinate: NativeArray, text: str) -> NDArray[np.bool_]:
    """Where a coordinate's values lie in ``low/high``, both included; one value alone is both."""
    low, _, high = text.partition("/")
    values = coordinate.read(())
    if " since " in str(coordinate.attrs.get("units", "")).lower():
        return between_dates(coordinate, values, low, high or low)
    try:
        ends = float(low), float(high or low)
    except ValueError:
        raise ByteRefsError(
            f"{coordinate.name}={text}: it is no range of numbers: write {coordinate.name}=low/high"
        ) from None
    real = unpacked(coordinate, values)
    inside: NDArray[np.bool_] = (real >= min(ends)) & (real <= max(ends))
    return inside


def unpacked(coordinate: NativeArray, values: NDArray[Any]) -> NDArray[np.float64]:
    """Values with CF's packing undone and missing ones as NaN."""
    attrs, kinds = coordinate.attrs, coordinate.meta.attr_dtypes
    real = values.astype("f8")
    for name in ("_FillValue", "missing_value"):
        if name in attrs:
            missing = attr_value(attrs[name], kinds.get(name, coordinate.meta.dtype))
            real[np.isin(values, np.asarray(missing))] = np.nan
    scaled = real * float(attrs.get("scale_factor", 1)) + float(attrs.get("add_offset", 0))
    return np.asarray(scaled)


def between_dates(
    coordinate: NativeArray, values: NDArray[Any], low: str, high: str
) -> NDArray[np.bool_]:
    """Where times lie from the start of ``low`` to the end of ``high``, in the coordinate's calendar."""
    from byterefs.axis import time_units

    units = time_units(coordinate.attrs)
    if units is None:
        raise ByteRefsError(f"{coordinate.name}: its units are no time")
    real = unpacked(coordinate, values)
    there = np.isfinite(real)
    times = units.dates(real[there])
    first = instant(coordinate.name, low, units.calendar, end=False)
    stop = instant(coordinate.name, high, units.calendar, end=True)
    inside = np.zeros(real.shape, bool)
    inside[there] = [first <= t < stop for t in times]
    return inside


def instant(name: str, text: str, calendar: str, *, end: bool) -> Any:
    """When a date, as short as ``2020`` or as long as ``2020-01-31T12:00:00``, begins or ends."""
    import cftime

    found = DATE.fullmatch(text)
    if not found:
        raise ByteRefsError(f"{name}={text}: it is no date: write {name}=2020-01-01/2020-01-31")
    given = [int(part) for part in found.groups() if part is not None]
    try:
        begins = cftime.datetime(*given, *FIRST[len(given) :], calendar=calendar)
        if not end:
            return begins
        if len(given) > 2:
            return begins + timedelta(seconds=LASTS[len(given)])
        year, month = begins.year, begins.month if len(given) == 2 else 12
        return cftime.datetime(year + month // 12, month % 12 + 1, 1, calendar=calendar)
    except ValueError as error:
        raise ByteRefsError(
            f"{name}={text}: calendar {calendar} has no such date ({error}): name one that it has"
        ) from error
