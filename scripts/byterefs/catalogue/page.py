"""The landing page of a publication: one self-contained HTML file that needs no server and no network.

What a dataset says of itself is text: Jinja escapes it, links are followed only to HTTP, and the page's
own policy runs no script but the one whose digest it names.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from byterefs import FORMAT
from byterefs.catalogue import cube, times
from byterefs.catalogue.announced import Form, Publication
from byterefs.codecs import pipeline
from byterefs.grid import chunk_grid
from byterefs.model import Array
from byterefs.view import View

ASSETS = Path(__file__).parents[1] / "assets"
TABS: Mapping[str, tuple[str, ...]] = {
    "R": ("r",),
    "Python": ("xarray", "python"),
    "GDAL": ("gdal",),
    "DuckDB": ("duckdb",),
    "Browser": ("browser",),
}
"""tab -> the readers of open.json whose lines it shows"""
FORMS = ("vrt", "icechunk", "kerchunk", "parquet", "sqlite")
"""forms in the order in which a tab shows them"""
WORDS: Mapping[str, str] = {
    "vrt": "GDAL multidimensional VRT",
    "icechunk": "Icechunk repository",
    "kerchunk": "kerchunk references",
    "parquet": "reference table, Parquet",
    "sqlite": "reference table, SQLite (mdim-refs)",
}
TOLD = (
    "institution",
    "creator_name",
    "source",
    "references",
    "license",
    "acknowledgement",
    "history",
)
"""root attributes that the page shows"""
AS: Mapping[str, str] = {"xarray": ", as arrays", "python": ", as rows"}
"""what is opened where a form opens as both"""
VIA: Mapping[str, str] = {
    "access": "bytes read from the archive",
    "public": "public copies asked too",
}
"""what `verified_via` of a receipt means"""
GAPS_SHOWN = 12
BRIEF = 320
"""characters of the summary at the top, about"""


class Proof(NamedTuple):
    """What the receipt of a form's verification says."""

    form: str
    words: str
    verified: bool
    rows: int
    values: int
    via: str


def render(
    view: View,
    publication: Publication,
    proofs: Mapping[str, Mapping[str, Any]],
    files: Mapping[str, Sequence[Mapping[str, Any]]],
) -> str:
    """The page.

    ``proofs`` are the receipts of verification by form; ``files`` says of each referenced array which
    Parquet files hold its rows: ``file`` below the form's folder, ``size`` in bytes, ``first`` key of dim_0.
    """
    script, style = asset("page.js"), asset("page.css")
    parquet = publication.form("parquet")
    return (
        environment()
        .get_template("page.html")
        .render(
            view=view,
            publication=publication,
            title=view.title or view.dataset,
            summary=brief(str(view.root.get("summary") or view.root.get("comment") or "")),
            facts=facts(view, publication),
            coverage=coverage(view, view.shown),
            variables=[variable(a) for c in cube.cubes(view) for a in c.arrays],
            tabs=tabs(publication),
            proofs=[proof(name, receipt) for name, receipt in sorted(proofs.items())],
            newest=newest(view),
            told=told(view.root),
            forms=[(f, WORDS[f.form]) for f in ordered(publication.forms)],
            map=None if parquet is None else settings(view, parquet, files),
            script=script,
            style=style,
            script_digest=policy(script),
            style_digest=policy(style),
            format=FORMAT,
        )
    )


@cache
def environment() -> Environment:
    """Jinja with escaping on, and nothing undefined."""
    made = Environment(
        loader=FileSystemLoader(ASSETS),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    made.filters |= {"bytes": size, "thousands": "{:,}".format, "link": is_link}
    return made


@cache
def asset(name: str) -> str:
    """A file that goes into the page as it is."""
    return (ASSETS / name).read_text(encoding="utf-8")


def policy(text: str) -> str:
    """The source expression by which a content security policy permits this very text."""
    found = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(found).decode()}'"


def size(n: int) -> str:
    """Bytes for people, in powers of 1000."""
    value = float(n)
    for unit in ("bytes", "kB", "MB", "GB", "TB"):
        if value < 1000 or unit == "TB":
            break
        value /= 1000
    return f"{value:.0f} {unit}" if unit == "bytes" else f"{value:.3g} {unit}"


def is_link(text: str) -> bool:
    """Whether a text is nothing but an address of the web."""
    return text.startswith(("https://", "http://")) and not any(c.isspace() for c in text)


def brief(text: str) -> str:
    """The first sentences of a text, whole ones, or its first words."""
    if len(text) <= BRIEF:
        return text
    head = text[:BRIEF]
    stop = head.rfind(". ")
    return head[: stop + 1] if stop > 0 else head.rpartition(" ")[0] + " …"


def facts(view: View, publication: Publication) -> list[tuple[str, str]]:
    """The figures at the top of the page: label and value."""
    shown, steps = view.arrays[view.shown], times.steps(view, view.shown)
    out = []
    if steps:
        whole = times.daily(steps)
        out.append(("From", times.text(steps[0], whole_days=whole)))
        out.append(("To", times.text(steps[-1], whole_days=whole)))
        out.append(("Steps", f"{len(steps):,}"))
    out.append(("Grid", " × ".join(f"{n:,}" for n in shown.shape[-2:])))
    out.append(("Files in the archive", f"{len(view.sources):,}"))
    out.append(("Archive", size(sum(s.size or 0 for s in view.sources))))
    form = publication.form("parquet") or publication.forms[0]
    out.append(("Index, as " + form.form, size(form.size)))
    return out


def coverage(view: View, array: str) -> dict[str, Any] | None:
    """The calendar sheet of an array and its gaps, its eras taken together; None without a time axis."""
    steps, axis = times.steps(view, array), times.time_axis(view, array)
    if not steps or axis is None:
        return None
    skipped = times.gaps(steps)
    return {
        "sheet": times.sheet(steps),
        "steps": len(steps),
        "gaps": skipped[:GAPS_SHOWN],
        "more_gaps": max(len(skipped) - GAPS_SHOWN, 0),
        "calendar": str(axis.attrs.get("calendar", "standard")),
    }


def variable(array: Array) -> dict[str, str]:
    """A row of the table of variables."""
    steps = [str(config["id"]) for config in pipeline(array.codec)]
    grid = chunk_grid(array.shape, array.chunks) if array.chunks else ()
    count = 1
    for n in grid:
        count *= n
    return {
        "name": array.array,
        "words": str(array.attrs.get("long_name") or array.attrs.get("standard_name") or ""),
        "units": str(array.attrs.get("units", "")),
        "dtype": array.dtype,
        "dims": ", ".join(f"{d} {n:,}" for d, n in zip(array.dims, array.shape, strict=True)),
        "chunks": f"{count:,} of {' × '.join(map(str, array.chunks))}",
        "codec": ", ".join(steps) or "none",
        "packing": packing(array.attrs),
        "refused": array.refused or "",
    }


def packing(attrs: Mapping[str, Any]) -> str:
    """How a stored value becomes a physical one."""
    scale, offset = (figure(attrs.get(key)) for key in ("scale_factor", "add_offset"))
    if not scale and not offset:
        return ""
    text = f"stored × {scale}" if scale else "stored"
    return f"{text} + {offset}" if offset not in ("", "0") else text


def figure(value: Any) -> str:
    """A number of an attribute, or what stands in its place; "" for none."""
    return "" if value is None else f"{value:.7g}" if isinstance(value, int | float) else str(value)


def tabs(publication: Publication) -> list[tuple[str, list[tuple[str, list[str]]]]]:
    """Tab -> (form, lines) pairs; a tab without lines is left out."""
    out = []
    for tab, readers in TABS.items():
        blocks = [
            (WORDS[form.form] + words, lines)
            for form in ordered(publication.forms)
            for reader in readers
            for words, lines in pasted(reader, form.lines)
            if lines
        ]
        if blocks:
            out.append((tab, blocks))
    return out


def pasted(reader: str, told: Mapping[str, Sequence[str]]) -> list[tuple[str, list[str]]]:
    """What of a reader's lines is copied together, and what its heading adds: a shell takes no Python."""
    lines = told.get(reader, ())
    if {"xarray", "python"} <= told.keys() and reader in AS:
        return [(AS[reader], list(lines))]
    python = [line for line in lines if line.startswith(("from ", "import "))]
    if reader != "gdal":
        return [("", list(lines))]
    return [("", [line for line in lines if line not in python]), (", in Python", python)]


def ordered(forms: Iterable[Form]) -> list[Form]:
    """Forms in the page's order."""
    return sorted(forms, key=lambda form: FORMS.index(form.form))


def proof(form: str, receipt: Mapping[str, Any]) -> Proof:
    """A row of the table of verifications."""
    return Proof(
        form,
        WORDS[form],
        bool(receipt["verified"]),
        int(receipt.get("rows_compared", 0)),
        int(receipt.get("values_compared", 0)),
        VIA.get(str(receipt.get("verified_via", "")), ""),
    )


def newest(view: View) -> dict[str, str]:
    """The source that was written last, by its own mtime."""
    dated = [(s.mtime, s.source) for s in view.sources if s.mtime is not None]
    if not dated:
        return {}
    mtime, source = max(dated)
    return {"source": source.rpartition("/")[2], "written": times.text(times.from_epoch(mtime))}


def told(root: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What the files say of themselves."""
    return [(key, str(root[key])) for key in TOLD if str(root.get(key, "")).strip()]


def settings(
    view: View, parquet: Form, files: Mapping[str, Sequence[Mapping[str, Any]]]
) -> dict[str, Any]:
    """What the live map starts from: everything else it reads from the Parquet form itself."""
    drawn = {name: list(files[name]) for name in sorted(view.referenced()) if name in files}
    return {
        "folder": f"{parquet.folder}/",
        "format": FORMAT,
        "show": view.shown if view.shown in drawn else next(iter(drawn), None),
        "arrays": drawn,
    }
