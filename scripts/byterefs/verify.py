"""Proof that a form says what the sources hold, on the artefact itself, before anything is published.

In this order: the sources are what the scan saw; the artefact's metadata, coordinates and rows are
the view's, exhaustively; values decoded from the artefact, its paths mapped back to where the
sources can be opened, are bit for bit what GDAL reads from the granules; coordinates and byte ranges
are GDAL's. The first difference is a VerifyError, and without a receipt nothing is published.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from byterefs import emitters, progress
from byterefs.emitters import Reader
from byterefs.errors import ByteRefsError, VerifyError
from byterefs.files import covers, digest, replacing, write_json
from byterefs.model import Array, Refs
from byterefs.planning.raster import is_grib
from byterefs.proving import artefact, proofs, public, published, sample, spelling, tables
from byterefs.proving.oracle import Oracle
from byterefs.proving.rival import check_mosaic
from byterefs.proving.sample import Prints, Window
from byterefs.view import View, receipt

log = logging.getLogger(__name__)

NONE = np.empty(0, np.uint64)
COUNTS: tuple[str, ...] = (
    "arrays",
    "rows_compared",
    "values_compared",
    "chunks_compared",
    "coordinates_compared",
    "gaps_compared",
)
DEFAULTS: Mapping[str, Any] = {"new": "all", "sample": 24, "full": False, "public": False}


def run(
    store: Path,
    emitted: Path,
    receipt: Path,
    *,
    form: str,
    target: str,
    options: Mapping[str, Any],
) -> dict[str, Any]:
    """Verify one form of one target and write its receipt; gives back the counts.

    ``emitted`` is the receipt of the emission, the form lies beside it. Fingerprints of the slots
    verified go to ``<form>.checked.npy`` beside ``receipt``. Raises VerifyError, and then there is no
    receipt, not even an older one.
    """
    receipt.unlink(missing_ok=True)
    done = json.loads(emitted.read_text())
    if "refused" in done:
        report = refused(form, target, done)
        write_json(receipt, report)
        return dict(report["counts"])
    out, beside = emitted.with_name(form), receipt.with_name(f"{form}.checked.npy")
    with View.open(store) as view:
        check_folder(form, out, done, view)
        report, prints = verify(
            view.without(done["left_out"]) if done.get("left_out") else view,
            form,
            out,
            target=target,
            options=options,
            previous=load(beside),
            seed=done["digest"],
        )
    save(beside, prints)
    write_json(receipt, {**report, "digest": done["digest"]})
    return dict(report["counts"])


def refused(form: str, target: str, done: Mapping[str, Any]) -> dict[str, Any]:
    """The receipt of a form that was not emitted: refused, and not verified."""
    return {
        "stage": "verify",
        "form": form,
        "target": target,
        "verified": False,
        "refused": {"*": done["refused"]},
        "counts": {"refused": 1},
        "digest": done["digest"],
    }


def check_folder(form: str, out: Path, done: Mapping[str, Any], view: View) -> None:
    """That the form's files are those of its receipt. Raises VerifyError."""
    now, then = covers(out) if out.is_dir() else {}, done["covers"]
    for name in sorted(now.keys() | then.keys()):
        if now.get(name) != then.get(name):
            raise VerifyError(
                f"form {form}, {out / name}: its sha256 is {now.get(name)} and was {then.get(name)} when "
                f"it was emitted; somebody edited it: remove {out} and run the workflow again"
            )


def load(path: Path) -> Prints:
    """Fingerprints verified before; none where there is no such file."""
    return np.load(path) if path.exists() else NONE


def save(path: Path, prints: Prints) -> None:
    """Write fingerprints, sorted."""
    with replacing(path) as part, part.open("wb") as f:
        np.save(f, prints)


@dataclass
class Work:
    """One verification under way: what is compared with what, and what was counted."""

    view: View
    form: str
    reader: Reader
    oracle: Oracle
    options: Mapping[str, Any]
    previous: Prints
    seed: str
    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(COUNTS, 0))
    prints: list[Prints] = field(default_factory=list)
    new: int = 0
    """slots that were not verified before"""
    old: set[tuple[str, Any]] = field(default_factory=set)
    """old slots that were compared again"""

    def seed_of(self, array: str) -> int:
        """The seed of the draws from one array: the same for the same content.

        Arrays of as many slabs have one seed, so that a source which is opened for one serves all.
        """
        return self.drawn(len(self.view.arrays[array].placements))

    def drawn(self, what: int | str) -> int:
        """A seed of its own for one kind of draw."""
        return int(digest([self.seed, self.form, what])[:16], 16)


def verify(
    view: View,
    form: str,
    out: Path,
    *,
    target: str,
    options: Mapping[str, Any],
    previous: Prints = NONE,
    seed: str = "",
) -> tuple[dict[str, Any], Prints]:
    """The report of a form that is proven, and the fingerprints of its slots, sorted.

    ``previous`` are fingerprints proven before: of those slots a sample is compared. Raises
    VerifyError naming form, array, chunk or attribute, source, and both values.
    """
    options, planned = {**DEFAULTS, **options}, view
    if form == "vrt":
        view = view.across_eras()
    sources = proofs.check_sources(view.sources)
    with opened(view, form, out, target) as reader, Oracle() as oracle:
        work = Work(view, form, reader, oracle, options, previous, seed)
        work.counts["arrays"] = len(view.arrays)
        check_artefact(work, out, target)
        tasks = [task for name in view.arrays for task in chosen(work, name)]
        tasks.sort(key=lambda t: (view.index[t.window.placement.source], t.array.array))
        read = {t.window.placement.source for t in tasks}
        ranges, axes = proofs.Ranges(view, oracle, read), proofs.Axes(view, oracle)
        sources["remote"] = proofs.check_remote([s for s in view.sources if s.source in read])
        for task in progress.shown(tasks, f"verify {form}"):
            compare(work, task, ranges, axes)
        log.info("%s: %d windows are equal", form, len(tasks))
        report = reported(work, target, sources, ranges)
        if options["public"] and view.remap.get(target):
            chosen_ = [s for s in view.sources if s.source in read]
            report["public"] = public.check(view, target, chosen_, work.drawn("public"))
            report["verified_via"] = "public"
        report["view"] = receipt(planned)["digest"]
        if form == "vrt" and target == "access":
            report["mosaic"] = check_mosaic(planned, full=bool(options["full"]))
    prints = np.unique(np.concatenate([NONE, *work.prints]))
    return report, prints


@contextmanager
def opened(view: View, form: str, out: Path, target: str) -> Iterator[Reader]:
    """The form through its own reader, its published paths mapped back; closed at the end.

    Raises VerifyError if it cannot be opened.
    """
    try:
        reader = emitters.load(form).open(out, access=access(view, form, target), target=target)
    except ByteRefsError:
        raise
    except Exception as error:
        raise VerifyError(
            f"form {form}, {out}: its reader cannot open it ({type(error).__name__}: "
            f"{' '.join(str(error).split())}); remove the folder and run the workflow again"
        ) from error
    try:
        yield reader
    finally:
        # at once: the traceback of a refusal would keep the reader, and its file, open
        reader.close()


def access(view: View, form: str, target: str) -> Callable[[str], str]:
    """From a path that the form publishes to the source it stands for, both as the form spells them.

    It knows every source and every prefix of the view, and nothing else: VerifyError for the rest.
    """
    prefixes = [p for p in view.prefixes() if emitters.covers_prefix(view, p, target)]
    names = [*prefixes, *(s.source for s in view.sources)]
    known = {spelling.spelled(form, view.published(n, target)): n for n in names}
    if form == "sqlite":
        # its paths are the sources verbatim, or with emit.sqlite.sources those of any target
        known |= {view.published(s.source, t): s.source for t in view.targets for s in view.sources}

    def find(path: str) -> str:
        if path not in known:
            raise VerifyError(
                f"form {form}: it names {path}, which is no source of the plan as target {target!r} "
                f"serves it; remove the form's folder and run the workflow again"
            )
        # an Icechunk container's URL is encoded, what it is bound to is not
        return known[path] if form == "icechunk" else spelling.spelled(form, known[path])

    return find


# --- the artefact against the view -----------------------------------------------------------------


def check_artefact(work: Work, out: Path, target: str) -> None:
    """Metadata, root attributes, tables beside the rows, coordinates and rows, exhaustively."""
    view, form, reader = work.view, work.form, work.reader
    try:
        artefact.check_arrays(view, form, reader)
        artefact.check_root(view, form, tables.root(form, reader))
        work.counts["coordinates_compared"] = artefact.check_coordinates(view, form, reader)
        tables.check(view, form, reader, out, target)
        for each in targets(view, form, target):
            with nullcontext(reader) if each == target else opened(view, form, out, each) as there:
                work.counts["rows_compared"] += check_rows(view, form, there, each)
    except ByteRefsError:
        raise
    except Exception as error:
        raise VerifyError(
            f"form {form}, {out}: its reader fails on what was emitted ({type(error).__name__}: "
            f"{' '.join(str(error).split())}); remove the folder and run the workflow again"
        ) from error


def targets(view: View, form: str, target: str) -> list[str]:
    """Whose rows are compared: Icechunk's one repository serves every target by its containers."""
    return view.targets if form == "icechunk" and target == "access" else [target]


def check_rows(view: View, form: str, reader: Reader, target: str) -> int:
    """Compare the rows of every referenced array; how many. A VRT has placements for rows."""
    if form == "vrt":
        return tables.check_placements(view, reader, target)
    served = published.served(view, reader, target) if form == "sqlite" else view.paths(target)
    paths = [spelling.spelled(form, p) for p in served]
    compared = 0
    for name in view.referenced():
        rows = artefact.answer(form, name, partial(reader.refs, name))
        compared += artefact.check_rows(form, name, view.grid(name), rows, view.refs(name), paths)
    return compared


# --- values against the sources --------------------------------------------------------------------


class Task(NamedTuple):
    """A window to compare, and the byte range of its first chunk where that is to be compared too."""

    array: Array
    window: Window
    range: tuple[int, int] | None


def chosen(work: Work, name: str) -> list[Task]:
    """What is compared of one array: what is new, and a sample of the rest. Its gaps are compared at once."""
    array, refs = work.view.arrays[name], sample.refs_of(work.view, name)
    prints = sample.prints(work.view, name, refs)
    seen = sample.known(prints, work.previous)
    seed, n, full = work.seed_of(name), int(work.options["sample"]), bool(work.options["full"])
    windows = sample.windows(array, seen, n=n, seed=seed, full=full, new=work.options["new"])
    work.prints.append(prints)
    work.new += int((~seen).sum())
    if refs is None:
        return [Task(array, w, None) for w in windows]
    check_gaps(work, array, refs, sample.gaps(array, refs, n=n, seed=seed, full=full))
    drawn = set(sample.draw(len(windows), max(n, 1), seed))
    return [
        Task(array, w, proofs.range_of(work.view, array, refs, w) if i in drawn else None)
        for i, w in enumerate(windows)
    ]


def check_gaps(work: Work, array: Array, refs: Refs, rows: Sequence[int]) -> None:
    """Compare chunks that no source covers with fill."""
    grid = work.view.grid(array.array)
    for row in rows:
        found = proofs.check_gap(work.form, array, work.reader, row, grid)
        work.counts["values_compared"] += found
        work.counts["gaps_compared"] += 1


def compare(work: Work, task: Task, ranges: proofs.Ranges, axes: proofs.Axes) -> None:
    """Compare one window, its place and its byte range, and count them."""
    array, w, _ = task
    if array.values is not None:
        found = proofs.check_coordinate(work.view, array, work.oracle, w)
    else:
        there = proofs.along(work.view, array, w) if is_grib(array) else None
        found = proofs.check_window(work.form, array, work.reader, work.oracle, w, there)
        work.counts["coordinates_compared"] += axes.check(array, w.placement)
        work.counts["chunks_compared"] += w.chunks
    work.counts["values_compared"] += found
    if task.range is not None:
        ranges.check(array, w, *task.range)
    if not w.new:
        work.old.add((array.array, w.placement))


def reported(
    work: Work, target: str, sources: Mapping[str, int], ranges: proofs.Ranges
) -> dict[str, Any]:
    """What was proven, and by whom."""
    arrays = work.view.arrays.values()
    return {
        "stage": "verify",
        "form": work.form,
        "target": target,
        "verified": True,
        "verified_via": "access",
        "counts": work.counts,
        **{
            key: work.counts[key] for key in ("rows_compared", "values_compared", "chunks_compared")
        },
        "slots": {"new": work.new, "old_sampled": len(work.old)},
        "sources": dict(sources),
        "oracle": {
            "values": dict(sorted(work.oracle.values.items())),
            "h5py_because": dict(sorted(work.oracle.reasons.items())),
            "ranges": dict(sorted(ranges.counts.items())),
            "ranges_not_given": dict(sorted(ranges.reasons.items())),
        },
        "refused": {**work.view.left_out, **{a.array: a.refused for a in arrays if a.refused}},
    }
