"""What `snakemake --report` shows of a dataset: coverage, sizes, consistency, verification, a quick look."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from byterefs.catalogue import cube, page, times
from byterefs.errors import VerifyError
from byterefs.files import digest, replacing
from byterefs.literals import plain_number
from byterefs.model import Array
from byterefs.proving.oracle import Oracle
from byterefs.proving.proofs import along
from byterefs.proving.sample import Window
from byterefs.receipts import read
from byterefs.view import View

log = logging.getLogger(__name__)

LARGEST = 4_000
"""rows and columns of a quick look; of a larger plane its middle"""
MASKS = ("_FillValue", "missing_value")
VALID = "valid_range"
NUMERIC = {*MASKS, VALID, "valid_min", "valid_max", "scale_factor", "add_offset"}
"""of stored numbers where it has the array's own type, else of values (CF 2.5.1)"""


def run(
    store: Path,
    *,
    verified: Sequence[Path],
    coverage: Path,
    sizes: Path,
    consistency: Path,
    verification: Path,
    newest: Path,
) -> dict[str, Any]:
    """Write the parts of the report, each to its path; gives back counts.

    ``store`` is the working store, ``verified`` are the receipts of all verifications.
    """
    results = store.parents[1]
    with View.open(store) as view:
        write(coverage, view, sheets=calendars(view), nothing="There is no time axis.")
        write(sizes, view, tables=weights(view, results))
        write(verification, view, tables=proofs(verified))
        draw(view, newest)
        counts = {"sources": len(view.sources), "forms": len(verified)}
    shutil.copyfile(results / "plan" / "consistency.html", consistency)
    return counts


def write(
    path: Path,
    view: View,
    *,
    sheets: Sequence[tuple[str, Mapping[str, Any]]] = (),
    tables: Sequence[tuple[str, Sequence[str], Sequence[Sequence[str]]]] = (),
    nothing: str = "",
) -> None:
    """One part as a page of its own."""
    template = page.environment().get_template("report.html")
    text = template.render(
        title=view.title or view.dataset,
        style=page.asset("page.css"),
        sheets=sheets,
        tables=tables,
        nothing=nothing,
    )
    with replacing(path) as part:
        part.write_text(text, encoding="utf-8")


def calendars(view: View) -> list[tuple[str, dict[str, Any]]]:
    """Per array its calendar sheet, the eras taken together; arrays that share one are told together."""
    found: dict[str, tuple[list[str], dict[str, Any]]] = {}
    covered: dict[tuple[str, ...], dict[str, Any] | None] = {}
    for name in dict.fromkeys(a.array for c in cube.cubes(view) for a in c.arrays):
        own = times.time_axis(view, name)
        along = (own.array if own else "", *(a.array for a in times.axes(view, name)))
        if along not in covered:
            covered[along] = page.coverage(view, name)
        held = covered[along]
        if held is not None:
            leaf = name.rpartition("/")[2]
            names = found.setdefault(digest(held), ([], held))[0]
            names += [leaf] if leaf not in names else []
    return [(", ".join(names), held) for names, held in found.values()]


def weights(view: View, results: Path) -> list[tuple[str, list[str], list[list[str]]]]:
    """Bytes of the archive and of everything that was made of it."""
    held = sum(s.size or 0 for s in view.sources)
    rows = read(results / "view" / "receipt.json")["counts"]["rows"]
    archive = [["sources", f"{len(view.sources):,}", page.size(held)]]
    archive.append(["chunks of referenced arrays", f"{rows:,}", ""])
    store = (results / "store" / "store.sqlite").stat().st_size
    archive.append(["working store", "1", page.size(store)])
    forms = []
    for path in sorted(results.glob("emit/*/*.receipt.json")):
        done, form = read(path), path.name.removesuffix(".receipt.json")
        files = [path.with_name(form) / name for name in done["covers"]]
        size = sum(f.stat().st_size for f in files)
        share = f"{100 * size / held:.3g} %" if held else ""
        forms.append([page.WORDS[form], path.parent.name, str(len(files)), page.size(size), share])
    columns = ["Form", "Target", "Files", "Bytes", "Of the archive"]
    return [("Archive", ["What", "Number", "Bytes"], archive), ("Forms", columns, forms)]


def proofs(verified: Sequence[Path]) -> list[tuple[str, list[str], list[list[str]]]]:
    """What each form was compared with."""
    rows = []
    for path in sorted(verified):
        proof = page.proof(path.stem, read(path))
        result = f"equal, {proof.via}" if proof.verified else "not verified"
        rows.append([proof.words, path.parent.name, result, f"{proof.rows:,}", f"{proof.values:,}"])
    columns = ["Form", "Target", "Result", "References compared", "Values compared"]
    return [("Forms against the source files", columns, rows)]


# --- quick look ------------------------------------------------------------------------------------


def draw(view: View, path: Path) -> None:
    """The newest step of the shown array as a PNG, or in words why there is none."""
    from matplotlib.figure import Figure

    array = view.arrays[view.shown]
    figure = Figure(figsize=(9, 5.2), dpi=110, layout="constrained")
    axes = figure.subplots()
    try:
        values = plane(view, array)
    except VerifyError as error:
        log.warning("%s", error)
        axes.text(0.5, 0.5, str(error), ha="center", va="center", wrap=True)
        axes.set_axis_off()
    else:
        edges = extent(view, array, values.shape)
        drawn = axes.imshow(values, extent=edges, aspect="auto", interpolation="nearest")
        bar = figure.colorbar(drawn, shrink=0.85)
        bar.set_label(f"{array.array} ({array.attrs.get('units', 'no units')})", parse_math=False)
        if northings(view, array) and edges[2] > edges[3]:
            axes.invert_yaxis()
        axes.set_xlabel(array.dims[-1], parse_math=False)
        axes.set_ylabel(array.dims[-2], parse_math=False)
        axes.set_title(caption(view, array), parse_math=False)
    with replacing(path) as part:
        figure.savefig(part, format="png", metadata={"Software": "byterefs"})


def plane(view: View, array: Array) -> NDArray[np.float64]:
    """The last plane of an array in physical values, NaN where missing; of a large one the middle.

    Raises VerifyError where nobody can read it.
    """
    if len(array.dims) < 2 or not array.placements or np.dtype(array.dtype).kind not in "iuf":
        raise VerifyError(
            f"{array.array} has no plane of numbers in a source, so there is no picture"
        )
    last = max(array.placements, key=lambda p: p.dest)
    start, count = list(last.dest), list(last.count)
    for i in range(len(start) - 2):
        start[i], count[i] = start[i] + (count[i] - 1 if i == 0 else 0), 1
    for i in (-2, -1):
        cut = max(count[i] - LARGEST, 0)
        start[i], count[i] = start[i] + cut // 2, count[i] - cut
    w = Window(array.array, last, tuple(start), tuple(count), 1, True)
    with Oracle() as oracle:
        answer = oracle.read(
            last.source, last.source_array, w.there, w.count, array.dtype, along(view, array, w)
        )
    return physical(answer.values.reshape(count[-2:]), array)


def physical(stored: NDArray[Any], array: Array) -> NDArray[np.float64]:
    """Stored values scaled as CF has it, NaN where missing or outside the valid range."""
    attrs = {key: numbers(array.attrs[key]) for key in array.attrs.keys() & NUMERIC}
    missing = np.zeros(stored.shape, bool)
    for name in MASKS:
        missing |= np.isin(stored, attrs.get(name, ()))
    if str(array.attrs.get("_Unsigned", "")).lower() == "true":
        stored = stored.view(np.dtype(f"u{stored.dtype.itemsize}"))
    scale = next(iter(attrs.get("scale_factor", ())), 1)
    offset = next(iter(attrs.get("add_offset", ())), 0)
    values = stored * float(scale) + float(offset)
    for name, i, beyond in (("valid_min", 0, np.less), ("valid_max", -1, np.greater)):
        name = VALID if attrs.get(VALID) else name
        if attrs.get(name):
            own = array.attr_dtypes.get(name, array.dtype)[1:] == array.dtype[1:]
            missing |= beyond(stored if own else values, attrs[name][i])
    return np.where(missing, np.nan, values.astype("f8"))


def numbers(value: Any) -> list[int | float]:
    """The numbers of an attribute: none where it is text, which neither scales nor masks."""
    items = map(plain_number, value if isinstance(value, list) else [value])
    return [x for x in items if isinstance(x, int | float)]


def extent(view: View, array: Array, shape: tuple[int, ...]) -> tuple[float, float, float, float]:
    """Left, right, bottom and top edge: coordinates where they are known of the whole plane, else counts.

    The first row is on top.
    """
    edges = []
    for dim, n in zip(array.dims[-2:], shape, strict=True):
        found = cube.coordinate(view, array.array.rpartition("/")[0], dim)
        values = np.arange(n) if found is None else times.numbers(found)
        if len(values) != n or n < 2:
            values = np.arange(max(n, 2))
        half = (values[-1] - values[0]) / (len(values) - 1) / 2
        edges.append((float(values[0] - half), float(values[-1] + half)))
    (top, bottom), (left, right) = edges
    return left, right, bottom, top


def northings(view: View, array: Array) -> bool:
    """Whether the rows are latitudes or northings, which people have growing upwards."""
    found = cube.coordinate(view, array.array.rpartition("/")[0], array.dims[-2])
    return found is not None and cube.axis_of(found) == "y"


def caption(view: View, array: Array) -> str:
    """What the picture shows."""
    words = str(array.attrs.get("long_name", array.array))
    axis = times.time_axis(view, array.array)
    if axis is None or not axis.shape[0]:
        return words
    steps = times.instants(axis)
    return f"{words}, {times.text(steps[-1], whole_days=times.daily(steps))}"
