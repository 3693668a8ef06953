"""What a form holds and what its table says, against the granules themselves, as GDAL reads them."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Container, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cached_property
from math import prod
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from byterefs.access import ranges
from byterefs.axis import missing_marks
from byterefs.emitters import Reader
from byterefs.errors import DecoderError, RangeError, VerifyError
from byterefs.grid import chunk_window, linear, unlinear
from byterefs.literals import fill_value
from byterefs.model import Array, Key, Placement, Refs, Source
from byterefs.planning import vrt
from byterefs.planning.dimensions import folder
from byterefs.proving.artefact import first_difference, refuse, short, value_at
from byterefs.proving.fields import At
from byterefs.proving.oracle import Block, Oracle, native
from byterefs.proving.sample import Window
from byterefs.units import Units, is_time
from byterefs.urls import is_local, to_gdal, to_path
from byterefs.view import View

BOUNDS = ("bounds", "climatology")
PLANNED = 2_000
"""sources that GDAL may walk for the block info of one array's plan: a call is linear in their number"""


def check_sources(sources: Sequence[Source]) -> dict[str, int]:
    """That every local source is still what its scan saw: size, mtime. Raises VerifyError.

    Gives back how many were looked at; those that lie elsewhere are looked at by :func:`check_remote`.
    """
    counts = {"checked": 0}
    for s in sources:
        if not is_local(s.source):
            continue
        try:
            now = os.stat(to_path(s.source))
        except OSError as error:
            raise VerifyError(
                f"{s.source}: the source was scanned and is gone ({error.strerror}); "
                f"run the workflow again so that it is removed, or bring it back"
            ) from error
        refuse_other(s, s._replace(size=now.st_size, mtime_ns=now.st_mtime_ns))
        counts["checked"] += 1
    return counts


def refuse_other(scanned: Source, seen: Source) -> None:
    """Raise VerifyError if a source is not the one that was scanned, as far as both tell."""
    for what in ("size", "mtime_ns", "etag"):
        was, now = getattr(scanned, what), getattr(seen, what)
        if was is not None and now is not None and was != now:
            raise VerifyError(
                f"{scanned.source}: {what} was {was} when the source was scanned and is {now} now; "
                f"its byte ranges are void: run the workflow again so that it is scanned again"
            )


def check_remote(sources: Sequence[Source]) -> int:
    """That the given sources, those that lie elsewhere, are still what their scans saw; how many.

    Raises VerifyError for another size, mtime or etag, and for one that is gone.
    """
    elsewhere = [s for s in sources if not is_local(s.source)]
    with ThreadPoolExecutor(ranges.CONCURRENCY) as pool:
        for scanned, seen in zip(elsewhere, pool.map(seen_now, elsewhere), strict=True):
            refuse_other(scanned, seen)
    return len(elsewhere)


def seen_now(source: Source) -> Source:
    """A source as its server has it now."""
    try:
        with ranges.opened(source.source) as found:
            return Source(source.source, found.size, found.mtime_ns, found.etag)
    except RangeError as error:
        raise VerifyError(f"{error}; it was scanned, and cannot be read now") from error


# --- values ----------------------------------------------------------------------------------------


def check_window(
    form: str,
    array: Array,
    reader: Reader,
    oracle: Oracle,
    w: Window,
    axes: At | None = None,
) -> int:
    """Compare one window, read through the form, with the source, bit for bit; how many values.

    ``axes`` are its coordinates (see :func:`along`). Raises VerifyError naming form, array, chunk, source
    and both values.
    """
    answer = oracle.read(
        w.placement.source, w.placement.source_array, w.there, w.count, array.dtype, axes
    )
    got = decoded(form, array, reader, w, answer.by)
    at = first_difference(got, answer.values)
    if at is not None:
        place = tuple(s + i for s, i in zip(w.start, at, strict=True))
        raise VerifyError(
            f"form {form}, array {array.array!r}, {chunk_of(array, place)}, element {list(place)}, source "
            f"{w.placement.source}: it reads {short(value_at(got, at))} and {answer.by} reads "
            f"{short(answer.values[at])} at {[s + i for s, i in zip(w.there, at, strict=True)]} of the source; nothing is "
            f"published: remove the source's rows by touching it, or all of results/<dataset>, and run again"
        )
    return answer.values.size


def along(view: View, array: Array, w: Window) -> dict[str, NDArray[Any] | None]:
    """The coordinates of a window along each of its axes, as the dataset has them; None where it has none."""
    found: dict[str, NDArray[Any] | None] = {}
    for dim, here in zip(array.dims, w.here, strict=True):
        a = view.arrays.get(dim)
        known = a is not None and a.values is not None and a.dims == (dim,)
        found[dim] = np.frombuffer(a.values, a.dtype)[here] if a and a.values and known else None
    return found


def decoded(form: str, array: Array, reader: Reader, w: Window, by: str) -> NDArray[Any]:
    """The values of a window through the form's own reader, which ``by`` reads in the source.

    Raises VerifyError if it cannot decode.
    """
    try:
        return native(np.asarray(reader.read(array.array, w.here)))
    except DecoderError as error:
        raise VerifyError(
            f"form {form}, array {array.array!r}, source {w.placement.source}: its values are not proven, {error}"
        ) from error
    except Exception as error:
        raise VerifyError(
            f"form {form}, array {array.array!r}, {chunk_of(array, w.start)}, source {w.placement.source}: "
            f"its reader fails ({type(error).__name__}: {' '.join(str(error).split())}) where {unreadable(form, by)}"
        ) from error


def unreadable(form: str, by: str) -> str:
    """Who reads the source that a form's reader fails on, and what to do."""
    if form == "vrt" and by in ("h5py", "netCDF4"):
        library = (
            f"h5py does (HDF5 {h5py.version.hdf5_version})" if by == "h5py" else "netCDF4 does"
        )
        return (
            f"this GDAL reads nothing in the source itself and {library}: "
            f"leave the form vrt out of emit, or the array out with scan.arrays"
        )
    return f"{by} reads the source; a byte range or a codec is wrong: scan the source again"


def chunk_of(array: Array, place: Key) -> str:
    """The chunk that holds an element of the global array, in words."""
    return f"chunk {[i // c for i, c in zip(place, array.chunks, strict=True)]}"


def check_gap(form: str, array: Array, reader: Reader, row: int, grid: Key) -> int:
    """That a chunk which no source covers reads as fill; how many values. Raises VerifyError."""
    key = unlinear(row, grid)
    window = chunk_window(key, array.shape, array.chunks)
    got = native(np.asarray(reader.read(array.array, window)))
    fill = fill_value(array.fill, array.dtype)
    expected = np.full(got.shape, 0 if fill is None else fill, array.dtype)
    at = first_difference(got, native(expected))
    if at is not None:
        raise VerifyError(
            f"form {form}, array {array.array!r}, chunk {list(key)}: no source covers it, so it must read as "
            f"fill {short(expected[at])}, and it reads {short(value_at(got, at))}; remove the form's folder "
            f"below results/<dataset>/emit and run the workflow again"
        )
    return got.size


# --- coordinates -----------------------------------------------------------------------------------


def check_coordinate(view: View, array: Array, oracle: Oracle, w: Window) -> int:
    """Compare the view's coordinate at a slab with the source's own; how many values. Raises VerifyError."""
    return compare_coordinate(view, array, oracle, w.placement, w.here, w.there)


def compare_coordinate(
    view: View, array: Array, oracle: Oracle, p: Placement, here: tuple[slice, ...], there: Key
) -> int:
    """Compare values of a coordinate with what the source of ``p`` has from ``there`` on; how many.

    Equal bits where the units are the same; where the plan converted them, the same instants. Raises
    VerifyError.
    """
    own = native(np.frombuffer(array.values or b"", array.dtype).reshape(array.shape)[here])
    answer = oracle.read(p.source, p.source_array, there, own.shape, array.dtype)
    converted = time_units(view, array, p, oracle)
    if converted is None:
        at = first_difference(own, answer.values)
        pair: tuple[Any, ...] = () if at is None else (own[at], answer.values[at])
    else:
        ours, theirs = converted
        marks = missing_marks(array.attrs)
        at, pair = None, ()
        for i, (a, b) in enumerate(zip(own.ravel(), answer.values.ravel(), strict=True)):
            if a.tobytes() == b.tobytes() and (a in marks or not np.isfinite(a)):
                continue  # missing in both, which is no time
            one, two = ours.dates(a), theirs.dates(b)
            if a in marks or b in marks or one != two:
                at, pair = unlinear(i, own.shape), (one, two)
                break
    if at is not None:
        place = [s.start + i for s, i in zip(here, at, strict=True)]
        raise VerifyError(
            f"array {array.array!r} is {pair[0]} at {place} of the plan, and {answer.by} reads {pair[1]} at its "
            f"place in {p.source}: the source lies at the wrong place; remove results/<dataset>/plan and run again"
        )
    return answer.values.size


class Axes:
    """Whether slabs of data lie where the source's own coordinates say, axis by axis."""

    def __init__(self, view: View, oracle: Oracle) -> None:
        self.view, self.oracle = view, oracle
        self.of: dict[tuple[str, str], list[Array]] = {}
        """(group, dimension) -> the one-dimensional coordinates there"""
        for a in view.arrays.values():
            if a.kind == "coord" and a.values is not None and len(a.dims) == 1:
                self.of.setdefault((folder(a.array), a.dims[0]), []).append(a)
        self.seen: set[tuple[str, str, int, int, int]] = set()

    def along(self, array: Array, dim: str) -> list[Array]:
        """The coordinates of a dimension in the nearest group that has some of the array's length, up to its era."""
        length, group = array.shape[array.dims.index(dim)], folder(array.array)
        while True:
            found = [c for c in self.of.get((group, dim), []) if c.shape == (length,)]
            if found or group == array.era:
                return found
            group = folder(group)

    def check(self, array: Array, p: Placement) -> int:
        """Compare the coordinates at a slab with the source's own; how many values. Raises VerifyError.

        A source without the coordinate has nothing to compare, nor a slab that was compared already.
        """
        compared = 0
        for dim, src, n, dest in zip(array.dims, p.src_offset, p.count, p.dest, strict=True):
            for coordinate in self.along(array, dim):
                name = coordinate.own
                key = (p.source, coordinate.array, src, n, dest)
                if key in self.seen or not self.oracle.exists(p.source, name):
                    continue
                self.seen.add(key)
                axis = Placement(p.source, name, (src,), (n,), (dest,))
                here = (slice(dest, dest + n),)
                compared += compare_coordinate(
                    self.view, coordinate, self.oracle, axis, here, (src,)
                )
        return compared


def time_units(
    view: View, array: Array, p: Placement, oracle: Oracle
) -> tuple[Units, Units] | None:
    """Units of the plan and of the source, if they are times in other units; else None.

    Bounds without units of their own count as the coordinate that names them (CF 7.1).
    """
    parents = [a for a in view.arrays.values() if a.era == array.era and bounds(a) & {array.own}]
    for a in (array, *parents):
        units = a.attrs.get("units")
        if not isinstance(units, str) or not is_time(units):
            continue
        name = p.source_array if a is array else a.own
        own = oracle.text(p.source, name, "units")
        if own is None or own == units:
            return None
        calendar = str(a.attrs.get("calendar", "standard"))
        theirs = oracle.text(p.source, name, "calendar") or "standard"
        return Units(units, calendar.lower()), Units(own, theirs.lower())
    return None


def bounds(coordinate: Array) -> set[str]:
    """The arrays that a coordinate names as its bounds, by their names in the sources."""
    here = folder(coordinate.own)
    words = [str(coordinate.attrs[b]) for b in BOUNDS if b in coordinate.attrs]
    return {*words, *(f"{here}/{w}" for w in words if here)}


# --- byte ranges -----------------------------------------------------------------------------------


def first_chunk(array: Array, w: Window) -> Key:
    """The global key of the first chunk of a window."""
    return tuple(s // c for s, c in zip(w.start, array.chunks, strict=True))


def range_of(view: View, array: Array, refs: Refs, w: Window) -> tuple[int, int] | None:
    """Offset and size of the first chunk of a window; None where it is absent or inline.

    GDAL's block info raises on those (research/peers.md, 0.4).
    """
    row = linear(first_chunk(array, w), view.grid(array.array))
    return None if refs.offset[row] < 0 else (int(refs.offset[row]), int(refs.size[row]))


class Ranges:
    """Compares byte ranges of the table with GDAL's block info, on the sources and through the plan."""

    def __init__(self, view: View, oracle: Oracle, read: Container[str]) -> None:
        self.view, self.oracle, self.read = view, oracle, read
        self.counts: Counter[str] = Counter()
        self.planned: Counter[str] = Counter()
        """array -> how many ranges were asked of the plan"""
        self.reasons: Counter[str] = Counter()
        """why GDAL gave no range, with how often; such a range is proven by its values alone"""

    @cached_property
    def plan(self) -> str:
        """The plan as a VRT of the sources that are read, each at its place: GDAL opens sixty thousand slabs in a second.

        The whole text is compared, and opened, where it is published.
        """
        # fill only decides what GDAL would read between the slabs
        arrays = {
            name: replace(
                a, fill=None, placements=[p for p in a.placements if p.source in self.read]
            )
            for name, a in self.view.arrays.items()
        }
        return vrt.write(arrays, {}, {})

    def check(self, array: Array, w: Window, offset: int, size: int) -> None:
        """Compare the range of the first chunk of a window. Raises VerifyError."""
        key, ours = first_chunk(array, w), (w.placement.source, offset, size)
        local = tuple(s // c for s, c in zip(w.there, array.chunks, strict=True))
        block = self.oracle.block(w.placement.source, w.placement.source_array, local, array.chunks)
        self.compare("source", array, w, key, ours, block)
        if self.planned[array.array] * len(array.placements) < PLANNED:
            self.planned[array.array] += 1
            planned = self.oracle.planned(self.plan, array.array, key)
            self.compare("plan", array, w, key, ours, planned)

    def compare(
        self,
        via: str,
        array: Array,
        w: Window,
        key: Key,
        ours: tuple[str, int, int],
        block: Block | str,
    ) -> None:
        """Compare one range with GDAL's, and count it. Raises VerifyError."""
        if isinstance(block, str):
            self.counts[f"{via}_not_given"] += 1
            self.reasons[f"{via}: {general(block)}"] += 1
            return
        theirs = (block.path, block.offset, block.size)
        if block.whole_of is not None:
            theirs = self.part(array, w, block)
        if (to_gdal(ours[0]), *ours[1:]) != theirs:
            raise refuse(
                "of the table",
                array.array,
                f"the byte range of chunk {list(key)} by GDAL's block info ({via})",
                list(theirs),
                list(ours),
            )
        self.counts[via] += 1

    def part(self, array: Array, w: Window, block: Block) -> tuple[str, int, int]:
        """The range of a chunk that is a part of one contiguous run of bytes."""
        shape = block.whole_of or array.shape
        local = tuple(s // c * c for s, c in zip(w.there, array.chunks, strict=True))
        count = [min(c, n - s) for c, n, s in zip(array.chunks, shape, local, strict=True)]
        width = np.dtype(array.dtype).itemsize
        return block.path, block.offset + linear(local, shape) * width, prod(count) * width


def general(reason: str) -> str:
    """A reason of GDAL without the numbers and names that differ by file."""
    for lead in (
        "invalid block coordinate",
        "H5Dget_chunk_info() failed",
        "not chunked or contiguous",
    ):
        if lead in reason:
            return lead
    return reason
