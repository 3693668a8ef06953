"""One file: scanned, planned, emitted in every form, read back and compared with its oracles."""

from __future__ import annotations

import shutil
import signal
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from math import prod
from pathlib import Path
from typing import Any

from byterefs import config as configs
from byterefs import emitters, plan, scanners, store, verify
from byterefs.errors import ByteRefsError, EmitError, PlanError, ScanError
from byterefs.model import Source, SourceArray, SourceScan
from byterefs.proving import artefact, spelling, tables
from byterefs.scanners._recorded import setting_aside
from byterefs.view import View
from tally import files
from tally.compare import Look, spelled
from tally.files import DATA_ENDINGS, Job
from tally.line import Line
from tally.outcome import Tally, summed
from tally.readers import ANY, BY_FORMAT
from tally.witness import Witnesses

LATE = "it was not compared within the time of a file; raise it with --seconds"
ROWS = 250_000
"""chunks of one array that are compared, at most"""
ANSWER = 20.0
"""seconds in which an oracle must answer"""


def examine(job: Job, seconds: float) -> Line | None:
    """The line of one file; None if nothing knows it and its name does not say that it is data.

    What is not done after ``seconds`` is left undone: nothing more is begun then, and a form under way
    ends at half as much again.
    """
    until = time.monotonic() + seconds
    names = BY_FORMAT.get(job.format or "", ANY)
    witnesses = Witnesses(names, job.asked, min(ANSWER, seconds))
    line = Line(job.shown, job.format or "unknown", opened_by=witnesses.able)
    tally = Tally()
    try:
        with alarm(1.5 * seconds):
            if job.format is None:
                return unknown(job, line, witnesses)
            return examined(job, line, witnesses, tally, until)
    except TimeUp:
        late(tally, tally.stored)
        return replace(summed(line, tally), reason=f"{LATE} | {summed(line, tally).reason}")
    finally:
        witnesses.close()


class TimeUp(BaseException):
    """The time of a file is up."""


@contextmanager
def alarm(seconds: float) -> Iterator[None]:
    """Raise TimeUp in here after some seconds."""

    def ring(*_: object) -> None:
        raise TimeUp

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def late(tally: Tally, names: Iterable[str]) -> None:
    """Say of every array that has no outcome that its time was up."""
    for name in names:
        if tally.outcome(name) == "absent":
            tally.unable.setdefault(name, {})["every form"] = LATE


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


def examined(job: Job, line: Line, witnesses: Witnesses, tally: Tally, until: float) -> Line:
    """The line of a file of a known format."""
    tally.stored |= expected(job, witnesses)
    try:
        with setting_aside() as tally.refused:
            found = scanned(job, tuple(tally.stored))
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


def scanned(job: Job, listed: tuple[str, ...]) -> SourceScan:
    """The scan of a file; of one that references are to, as they have it."""
    if job.target is None:
        arrays = listed if job.format == "tiff" else ()
        return scanners.scan(Source(str(job.data)), format=job.format or "auto", arrays=arrays)
    said = {"path": str(job.path), "rename": {job.target: str(job.data)}}
    return scanners.scan(Source(str(job.data)), arrays=listed, references=said)


def expected(job: Job, witnesses: Witnesses) -> dict[str, int]:
    """Every array that the file should have, with its bytes: what an oracle lists, or a sidecar names."""
    if job.format != "dmrpp":
        return {n: a.nbytes for n, a in witnesses.listed().items()}
    listed = {spelled(n): (n, a.nbytes) for n, a in witnesses.listed().items()}
    return dict(listed.get(spelled(n), (n, 0)) for n in files.described_arrays(job.path))


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
    content = {
        "dataset": "census",
        "title": job.shown,
        "source": {"provider": "local", "path": str(job.data.parent), "pattern": "."},
        "scan": {"format": "auto" if job.target else job.format or "auto"},
    }
    return configs.check(content, "dataset", job.shown)


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
        if time.monotonic() > until:
            late(tally, view.arrays)
            return
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


def rows(view: View, form: str, reader: Any, tally: Tally) -> None:
    """Compare every row of every array of a form with the view's; what differs is wrong."""
    paths = [spelling.spelled(form, p) for p in view.paths("access")]
    for name in view.referenced():
        try:
            found = artefact.answer(form, name, partial(reader.refs, name))
            artefact.check_rows(form, name, view.grid(name), found, view.refs(name), paths)
        except ByteRefsError as error:
            tally.wrong.setdefault(name, f"{form}: {error}")


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
    if form != "vrt":
        rows(view, form, reader, tally)
    artefact.check_root(view, form, tables.root(form, reader))
    tables.check(view, form, reader, out, "access")
    if form == "vrt":
        verify.check_rows(view, form, reader, "access")
