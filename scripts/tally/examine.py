"""One file: scanned, planned, emitted in every form, read back and compared with its oracles."""

from __future__ import annotations

import re
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from byterefs import artefact, emitters, plan, sample, scanners, store, tables, verify
from byterefs.errors import ByteRefsError, EmitError, PlanError, ScanError
from byterefs.fields import At
from byterefs.grid import chunk_window, unlinear
from byterefs.model import Array, Source, SourceArray, SourceScan
from byterefs.oracle import native
from byterefs.scanners._common import setting_aside
from byterefs.view import View
from tally import files
from tally.files import DATA_ENDINGS, Job
from tally.line import Line
from tally.readers import ANY, BY_FORMAT
from tally.witness import Witnesses

WINDOW = 1 << 30
"""bytes of one run of chunks that are compared at a time, at most"""
ROWS = 1 << 21
"""chunks of one array that are compared, at most"""
ANSWER = 20.0
"""seconds in which an oracle must answer"""


@dataclass
class Tally:
    """What became of each array of one file."""

    stored: dict[str, int] = field(default_factory=dict)
    """array -> its bytes in the file"""
    refused: dict[str, str] = field(default_factory=dict)
    proven: dict[str, set[str]] = field(default_factory=dict)
    """array -> forms through which every value was compared"""
    unable: dict[str, dict[str, str]] = field(default_factory=dict)
    """array -> form -> why the form cannot hold it, or nobody can compare it"""
    wrong: dict[str, str] = field(default_factory=dict)
    file: list[str] = field(default_factory=list)
    """what is wrong with a form as a whole"""

    def outcome(self, array: str) -> str:
        """verified, refused, wrong or absent."""
        if array in self.wrong:
            return "wrong"
        if self.proven.get(array):
            return "verified"
        return "refused" if array in self.refused or array in self.unable else "absent"

    def why(self, array: str) -> str:
        """The reason of an array that is not verified, for a person."""
        if array in self.wrong:
            return f"{array}: {self.wrong[array]}"
        if array in self.refused:
            return f"{array}: {self.refused[array]}"
        forms: dict[str, list[str]] = {}
        for form, reason in self.unable.get(array, {}).items():
            forms.setdefault(reason, []).append(form)
        said = "; ".join(f"{', '.join(names)}: {reason}" for reason, names in forms.items())
        return f"{array}: {said or 'the scan says nothing of it'}"


def examine(job: Job, seconds: float) -> Line | None:
    """The line of one file; None if nothing knows it and its name does not say that it is data."""
    until = time.monotonic() + seconds
    names = BY_FORMAT.get(job.format or "", ANY)
    witnesses = Witnesses(names, str(job.data), min(ANSWER, seconds))
    try:
        line = Line(job.shown, job.format or "unknown", opened_by=witnesses.able)
        if job.format is None:
            return unknown(job, line, witnesses)
        return examined(job, line, witnesses, until)
    finally:
        witnesses.close()


def unknown(job: Job, line: Line, witnesses: Witnesses) -> Line | None:
    """The line of a file that no scanner knows."""
    if not witnesses.able and job.path.suffix.lower() not in DATA_ENDINGS:
        return None
    driver = next((w.driver for w in witnesses.all.values() if w.driver), "")
    listed = witnesses.listed()
    try:
        scanners.detect(Source(str(job.path)))
        reason = ""
    except ScanError as error:
        reason = str(error)
    return replace(
        line,
        format=driver or "unknown",
        arrays=len(listed),
        refused=len(listed),
        bytes=sum(a.nbytes for a in listed.values()),
        reason=reason,
    )


def examined(job: Job, line: Line, witnesses: Witnesses, until: float) -> Line:
    """The line of a file of a known format."""
    tally = Tally(stored=expected(job, witnesses))
    wanted = tuple(tally.stored) if job.format == "tiff" else ()
    try:
        with setting_aside() as tally.refused:
            found = scanners.scan(Source(str(job.data)), format=job.format or "auto", arrays=wanted)
    except ScanError as error:
        n = len(tally.stored)
        size = sum(tally.stored.values())
        return replace(line, arrays=n, refused=n, bytes=size, reason=str(error))
    for name, item in found.arrays.items():
        if item.offset is not None:
            tally.stored[name] = stored_bytes(item)
        elif item.meta.layout != "derived":
            tally.stored.setdefault(name, 0)
    for name in tally.refused:
        tally.stored.setdefault(name, 0)
    with tempfile.TemporaryDirectory(prefix="byterefs-census-") as folder:
        view = planned(Path(folder), job, found, tally)
        if view is not None:
            with view:
                through_forms(Path(folder), view, job, witnesses, tally, until)
    for name in found.arrays.keys() - tally.stored.keys():
        if tally.outcome(name) in ("verified", "wrong"):  # made from tags or keys, and compared
            tally.stored[name] = 0
    return summed(line, tally)


def expected(job: Job, witnesses: Witnesses) -> dict[str, int]:
    """Every array that the file should have, with its bytes: what an oracle lists, or a sidecar names."""
    if job.format != "dmrpp":
        return {n: a.nbytes for n, a in witnesses.listed().items()}
    listed = {spelled(n): a.nbytes for n, a in witnesses.listed().items()}
    return {n: listed.get(spelled(n), 0) for n in files.described_arrays(job.path)}


def stored_bytes(item: SourceArray) -> int:
    """The bytes that an array's chunks occupy."""
    assert item.size is not None
    return int(item.size[item.size > 0].sum()) + sum(map(len, item.data.values()))


def planned(folder: Path, job: Job, found: SourceScan, tally: Tally) -> View | None:
    """The view of one source; arrays that no plan can have are set aside, one by one."""
    while found.arrays:
        try:
            batch = folder / "batch.sqlite"
            store.write_scans(batch, [found], {}, version="census")
            store.update(folder / "store.sqlite", [batch], [])
            plan.plan(folder / "store.sqlite", folder / "plan", config(job))
            return View.open(folder / "store.sqlite")
        except PlanError as error:
            if error.array is None or error.array not in found.arrays:
                tally.refused |= dict.fromkeys(found.arrays, str(error))
                return None
            tally.refused[error.array] = str(error)
            rest = {n: a for n, a in found.arrays.items() if n != error.array}
            found = replace(found, arrays=rest)
            (folder / "store.sqlite").unlink(missing_ok=True)
    return None


def config(job: Job) -> dict[str, Any]:
    """The dataset config of one file by itself."""
    return {
        "dataset": "census",
        "title": job.shown,
        "source": {"provider": "local", "path": str(job.data.parent), "pattern": ""},
        "select": {"slot": [], "prefer": {}},
        "scan": {"arrays": [], "format": job.format, "split": "step"},
        "plan": {"engine": "coordinates", "concat": None, "axis": "packed", "missing": "refuse"},
        "remap": {},
    }


def through_forms(
    folder: Path,
    view: View,
    job: Job,
    witnesses: Witnesses,
    tally: Tally,
    until: float,
) -> None:
    """Every form of a view, emitted, compared with the view as a whole, and array by array with the oracles."""
    for form in emitters.NAMES:
        lost = {**too_large(view), **emitters.refusals(view, form)}
        for name, reason in lost.items():
            tally.unable.setdefault(name, {})[form] = reason
        held = view.without(lost) if lost else view
        if not held.arrays:
            continue
        out = folder / form
        options = {"json": True} if form == "kerchunk" else {}
        try:
            emitters.load(form).emit(held, out, target="access", options=options, state={})
        except EmitError as error:
            for name in held.arrays:
                tally.unable.setdefault(name, {})[form] = str(error)
            continue
        try:
            with verify.opened(held, form, out, "access") as reader:
                whole(held, form, reader, out, tally)
                look = Look(held, form, reader, witnesses, job.format or "", until)
                for name in sorted(held.arrays, key=lambda n: (tally.stored.get(n, 0), n)):
                    look.at(name, tally)
        except ByteRefsError as error:
            tally.file.append(f"{form}: {error}")
        shutil.rmtree(out, ignore_errors=True)


def too_large(view: View) -> dict[str, str]:
    """Arrays with more chunks than the census compares."""
    return {
        name: f"it has {prod(view.grid(name))} chunks, more than the {ROWS} that the census compares; "
        "publish it as a dataset of its own, whose verification draws a sample"
        for name in view.referenced()
        if prod(view.grid(name)) > ROWS
    }


def whole(view: View, form: str, reader: Any, out: Path, tally: Tally) -> None:
    """Compare metadata, root attributes, tables and all rows of a form with the view; what differs is wrong."""
    found = reader.arrays()
    for name in sorted(view.arrays.keys() ^ found.keys()):
        there = "has" if name in found else "lacks"
        tally.wrong.setdefault(name, f"{form}: the form {there} it and the table does not")
    for name in sorted(view.arrays.keys() & found.keys()):
        for what, published, expected in artefact.differences(form, view.arrays[name], found[name]):
            values = f"{artefact.short(published)}, not {artefact.short(expected)}"
            tally.wrong.setdefault(name, f"{form}: {what} is {values}")
    for name in view.referenced() if form != "vrt" else ():
        others = dict.fromkeys(view.arrays.keys() - {name}, "")
        try:
            verify.check_rows(view.without(others), form, reader, "access")
        except ByteRefsError as error:
            tally.wrong.setdefault(name, f"{form}: {error}")
    artefact.check_root(view, form, tables.root(form, reader))
    tables.check(view, form, reader, out, "access")
    if form == "vrt":
        verify.check_rows(view, form, reader, "access")


@dataclass(frozen=True, slots=True)
class Look:
    """What the arrays of one form of one file are looked at with."""

    view: View
    form: str
    reader: Any
    witnesses: Witnesses
    format: str
    until: float

    def at(self, name: str, tally: Tally) -> None:
        """Compare every value of one array, and say in the tally what came of it."""
        try:
            compared = self.compare(self.view.arrays[name])
        except Undone as why:
            tally.unable.setdefault(name, {})[self.form] = str(why)
            return
        except Differs as why:
            tally.wrong.setdefault(name, f"{self.form}: {why}")
            return
        if compared:
            tally.proven.setdefault(name, set()).add(self.form)

    def compare(self, array: Array) -> bool:
        """Whether every value was compared; Differs at the first that is another one."""
        listed = self.witnesses.listed().get(self.named(array))
        known = written(self.view, array) if listed and listed.undefined else windows(array)
        for start, count in known:
            if time.monotonic() > self.until:
                raise Undone("it was not compared within the time of a file; raise --seconds")
            self.compare_window(array, start, count)
        return True

    def compare_window(self, array: Array, start: list[int], count: list[int]) -> None:
        """Compare one window with the first oracle that can read it; a second one must confirm a difference."""
        box = tuple(slice(s, s + n) for s, n in zip(start, count, strict=True))
        reasons = []
        difference = None
        for name in self.oracles():
            expected = self.witnesses.read(
                name, self.named(array), start, count, array.dtype, self.along(array, box)
            )
            if isinstance(expected, str):
                reasons.append(f"{name}: {expected}")
                continue
            try:
                got = native(np.asarray(self.reader.read(array.array, box)))
            except Exception as error:
                raise self.unread(array, start, count, error) from error
            at = artefact.first_difference(got, expected)
            if at is not None and array.dtype[1] == "S":
                # a string that ends at a NUL has bytes behind it, which libraries cut off
                at = artefact.first_difference(ended(got), ended(expected))
            if at is None:
                return
            place = [s + i for s, i in zip(start, at, strict=False)]
            difference = difference or (
                f"{place} reads {artefact.short(artefact.value_at(got, at))} and {name} reads "
                f"{artefact.short(artefact.value_at(expected, at))}"
            )
        if difference:
            raise Differs(difference)
        raise Undone(f"no independent library can read it here ({'; '.join(reasons)})")

    def named(self, array: Array) -> str:
        """The name that the array has for the libraries: a DMR++ sidecar spells it without odd characters."""
        name = array.placements[0].source_array if array.placements else array.array
        if self.format != "dmrpp":
            return name
        return next((n for n in self.witnesses.listed() if spelled(n) == spelled(name)), name)

    def along(self, array: Array, box: tuple[slice, ...]) -> At | None:
        """The coordinates of a window along each axis, by which fields of GRIB are found."""
        if self.format != "grib":
            return None
        found: dict[str, NDArray[Any] | None] = {}
        for dim, here in zip(array.dims, box, strict=True):
            a = self.view.arrays.get(dim)
            known = a is not None and a.values is not None and a.dims == (dim,)
            found[dim] = (
                np.frombuffer(a.values, a.dtype)[here] if a and a.values and known else None
            )
        return found

    def oracles(self) -> Iterator[str]:
        """The libraries that did not do the decoding of this form."""
        return (n for n in self.witnesses.able if not (self.form == "vrt" and n == "GDAL"))

    def unread(
        self, array: Array, start: list[int], count: list[int], error: Exception
    ) -> Exception:
        """What a failing reader means: no decoder in its library, damaged bytes, or a wrong reference."""
        said = " ".join(f"{type(error).__name__}: {error}".split())[:300]
        answers = [
            (n, self.witnesses.read(n, self.named(array), start, count, array.dtype))
            for n in self.witnesses.able
        ]
        others = [f"{n}: {text}" for n, text in answers if isinstance(text, str)]
        if others and self.form != "vrt":
            return Undone(f"its reader fails ({said}), and so does another ({'; '.join(others)})")
        if self.form == "vrt":
            direct = self.witnesses.read("GDAL", self.named(array), start, count, array.dtype)
            if isinstance(direct, str):
                return Undone(f"GDAL cannot read the source itself ({direct})")
        return Differs(f"its reader fails ({said})")


class Undone(Exception):
    """Why an array is not compared through a form."""


class Differs(Exception):
    """A value that is another one, or a reader that fails where the source can be read."""


def ended(values: NDArray[Any]) -> NDArray[Any]:
    """Strings up to their first NUL."""
    cut = [bytes(x).split(b"\0", 1)[0] for x in values.ravel()]
    return np.array(cut, values.dtype).reshape(values.shape)


def spelled(name: str) -> str:
    """A name as Hyrax spells it in CF's manner."""
    return re.sub(r"[^A-Za-z0-9_/]", "_", name)


def written(view: View, array: Array) -> Iterator[tuple[list[int], list[int]]]:
    """Every chunk of an array that is there, one by one."""
    if array.values is not None or not array.shape:
        yield from windows(array) if array.values is not None else ()
        return
    refs, grid = view.refs(array.array), view.grid(array.array)
    for row in np.flatnonzero(
        (refs.offset >= 0) | np.isin(np.arange(len(refs.offset)), list(refs.data))
    ):
        box = chunk_window(unlinear(int(row), grid), array.shape, array.chunks)
        yield [s.start for s in box], [s.stop - s.start for s in box]


def windows(array: Array) -> Iterator[tuple[list[int], list[int]]]:
    """Runs of whole chunks along the first axis that cover an array."""
    if not array.shape:
        yield [], []
        return
    if array.values is not None or not prod(array.shape):
        yield [0] * len(array.shape), list(array.shape)
        return
    for w in sample.slabs(array, array.placements[0], True):
        if prod(w.count) * np.dtype(array.dtype).itemsize > WINDOW:
            raise Undone(
                f"one row of its chunks has {prod(w.count) * np.dtype(array.dtype).itemsize} bytes, more than "
                f"the {WINDOW} that the census decodes at a time"
            )
        yield list(w.start), list(w.count)


def summed(line: Line, tally: Tally) -> Line:
    """The line with everything counted."""
    outcomes: dict[str, list[str]] = {}
    for name in sorted(tally.stored):
        outcomes.setdefault(tally.outcome(name), []).append(name)
    count = {word: len(names) for word, names in outcomes.items()}
    verified = outcomes.get("verified", [])
    others = [n for word in ("wrong", "absent", "refused") for n in outcomes.get(word, [])]
    return replace(
        line,
        arrays=len(tally.stored),
        verified=len(verified),
        refused=count.get("refused", 0),
        absent=count.get("absent", 0),
        bytes=sum(tally.stored.values()),
        bytes_verified=sum(tally.stored[n] for n in verified),
        outcome="wrong" if tally.file else verdict(count),
        forms=per_form(tally.proven),
        reason=" | ".join([*tally.file, *(tally.why(n) for n in others[:20])]),
    )


def verdict(count: Mapping[str, int]) -> str:
    """The outcome of a file from how many of its arrays have which."""
    if count.get("wrong"):
        return "wrong"
    if not count.get("verified"):
        return "refused"
    return "partial" if count.get("refused") or count.get("absent") else "verified"


def per_form(proven: Mapping[str, set[str]]) -> dict[str, int]:
    """Form -> how many arrays were verified through it."""
    return {
        form: n for form in emitters.NAMES if (n := sum(form in forms for forms in proven.values()))
    }
