"""One file per published form; this folder is the registry.

A form is a module with ``PER_TARGET``, ``emit``, ``opening`` and ``open``: an emitter ships with the reader that
proves it. A module whose name starts with an underscore is a helper of its neighbours.
"""

from __future__ import annotations

import json
import logging
import pkgutil
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol, cast
from urllib.parse import quote

from numpy.typing import NDArray

from byterefs import urls
from byterefs.errors import ConfigError, EmitError
from byterefs.files import covers, digest, write_json
from byterefs.model import Array, Ints, Key
from byterefs.view import View, receipt

log = logging.getLogger(__name__)

NAMES: tuple[str, ...] = tuple(
    sorted(m.name for m in pkgutil.iter_modules(__path__) if not m.name.startswith("_"))
)
"""the forms that can be emitted"""


@dataclass(frozen=True, slots=True)
class Described:
    """What a published artefact says of one array."""

    dims: tuple[str, ...]
    shape: Key
    chunks: Key | None
    dtype: str
    fill: Any
    """as the form spells it"""
    attrs: Mapping[str, Any]
    codec: Mapping[str, Any] | None
    """as the form spells it; None where the form carries no codec (VRT)"""


@dataclass(frozen=True, slots=True)
class Rows:
    """References as published, over an array's whole chunk grid in C order."""

    path: Sequence[str | None]
    """None where the chunk is inline or absent"""
    offset: Ints
    size: Ints
    data: Mapping[int, bytes]
    """encoded bytes of inline chunks, by row number"""


@dataclass(frozen=True, slots=True)
class Place:
    """How the lines that open a form name its files: relative to its folder, or below ``base``."""

    base: str = ""
    """address of the form's folder, a path or URL without a slash at its end; "" for the folder itself"""
    endpoint: str = ""
    """of the object store, where ``base`` is a bucket that is not AWS's"""

    def url(self, name: str = "") -> str:
        """A file of the form, or its folder, for readers that take URLs."""
        if not self.base:
            return name or "."
        if self.base.startswith(("http://", "https://")):
            name = quote(name)  # of a name that is percent-encoded itself, as a server wants it
        return f"{self.base}/{name}" if name else self.base

    def gdal(self, name: str = "") -> str:
        """The same for GDAL: ``/vsicurl/https://…``, ``/vsis3/…`` or a path."""
        return urls.to_gdal(self.url(name))

    @property
    def remote(self) -> bool:
        """Whether a reader without a network of its own has to fetch the file first."""
        return "://" in self.base

    def https(self, name: str) -> str:
        """The same for a reader that knows only HTTP."""
        return urls.to_https(self.url(name))


def as_zarr(location: str, target: str, targets: Sequence[str] = ()) -> list[str]:
    """The lines by which xarray opens a table with the reader of byterefs; ``targets`` are those that it serves."""
    others = f"  # targets: {', '.join(targets)}" if len(targets) > 1 else ""
    return [
        "import byterefs, xarray as xr  # pip install 'byterefs[remote,parquet,xarray]', from its repository",
        f"store = byterefs.open({location!r}, target={target!r}){others}",
        "ds = xr.open_zarr(store, consolidated=False)",
    ]


class Reader(Protocol):
    """A form opened through its own reader."""

    def arrays(self) -> Mapping[str, Described]:
        """Every array that the artefact has."""

    def refs(self, array: str) -> Rows:
        """The references of an array, paths as published."""

    def read(self, array: str, window: tuple[slice, ...]) -> NDArray[Any]:
        """Stored (packed) values of a window; a chunk that is absent reads as fill."""

    def close(self) -> None:
        """Let go of files and connections."""


class Form(Protocol):
    """What a module in this folder offers."""

    PER_TARGET: bool
    """whether the form carries paths of one target, or serves all targets"""

    def check(self, view: View, array: str) -> None:
        """Raise EmitError if the form cannot hold an array, or no reader of the form could decode it."""

    def emit(
        self,
        view: View,
        out: Path,
        *,
        target: str,
        options: Mapping[str, Any],
        state: Mapping[str, Any],
    ) -> dict[str, Any]:
        """Bring ``out`` up to date with the view; returns the state from which the next emit goes on.

        ``{}`` as state means: start from scratch, whatever lies in ``out``.
        """

    def opening(
        self, view: View, *, target: str, options: Mapping[str, Any], place: Place
    ) -> dict[str, list[str]]:
        """Reader (gdal, xarray, duckdb, python, r, browser) -> the lines that open the form at ``place``."""

    def open(self, out: Path, *, access: Callable[[str], str], target: str = "access") -> Reader:
        """Open the form; ``access`` maps a published path to one that can be read here."""


def load(form: str) -> Form:
    """The emitter of a form in NAMES; ConfigError for any other name."""
    if form not in NAMES:
        raise ConfigError(f"emit: {form!r} is no form; there are {', '.join(NAMES)}")
    return cast(Form, import_module(f"{__name__}.{form}"))


def build(
    store: Path,
    view_digest: str,
    out: Path,
    *,
    form: str,
    target: str,
    options: Mapping[str, Any],
) -> dict[str, Any]:
    """Emit one form for one target into the folder ``out``; returns its receipt.

    The state beside it (``<form>.state.json``) is taken away first and written last, so a killed
    emit starts from scratch. An array that the form cannot hold is an EmitError; with
    ``required: false`` the receipt lists it as left out, or the form as refused if that leaves none.
    """
    state_file = out.with_name(f"{out.name}.state.json")
    state = json.loads(state_file.read_text()) if state_file.exists() else {}
    state_file.unlink(missing_ok=True)
    module = load(form)
    head = {"stage": "emit", "form": form, "target": target}
    with View.open(store) as view:
        if receipt(view)["digest"] != view_digest:
            raise EmitError(
                f"{store}: the store is not what results/{view.dataset}/view/receipt.json was made from; "
                f"run the workflow again"
            )
        try:
            held = holdable(view, form, required=options.get("required", True))
            own = module.emit(held, out, target=target, options=options, state=state.get("own", {}))
        except EmitError as e:
            if options.get("required", True):
                raise
            log.warning("%s", e)
            shutil.rmtree(out, ignore_errors=True)
            return {**head, "refused": str(e), "covers": {}, "counts": {}, "digest": digest(str(e))}
        counts = {"arrays": len(held.arrays), "sources": len(view.sources)}
    covered = covers(out)
    write_json(state_file, {"own": own, "files": stats(out, covered)})
    log.info("emit %s %s: %d files", target, form, len(covered))
    return {
        **head,
        "counts": {**counts, "files": len(covered)},
        "left_out": dict(held.left_out),
        "covers": covered,
        "digest": digest(covered),
    }


def holdable(view: View, form: str, *, required: bool) -> View:
    """The view without the arrays that a form cannot hold; EmitError if that leaves no data.

    Of a ``required`` form only what needs no look at rows is refused here; its emitter refuses the rest.
    """
    if required:
        for array in view.arrays.values():
            refuse_misaligned(array, form)
        return view
    lost = refusals(view, form)
    data = [a.array for a in view.arrays.values() if a.kind == "data"] or list(view.arrays)
    if lost and not set(data) - set(lost):
        raise EmitError(next(iter(lost.values())))
    for reason in lost.values():
        log.warning("left out: %s", reason)
    return view.without(lost) if lost else view


def refusals(view: View, form: str) -> dict[str, str]:
    """Array -> why a form cannot hold it, and which forms can; of those that it can hold, nothing."""
    module = load(form)
    found = {}
    for name, array in view.arrays.items():
        try:
            refuse_misaligned(array, form)
            module.check(view, name)
        except EmitError as error:
            found[name] = str(error)
    return found


def stats(out: Path, covered: Mapping[str, str]) -> dict[str, list[Any]]:
    """Relative path -> [size, mtime_ns, sha256]: how a later run sees that a file was touched."""
    found = {}
    for name, sha256 in covered.items():
        stat = (out / name).stat()
        found[name] = [stat.st_size, stat.st_mtime_ns, sha256]
    return found


def refuse_misaligned(array: Array, form: str) -> None:
    """Refuse an array that cannot have ``refs_<array>`` in a form made of them; the VRT needs none."""
    if array.refused and form != "vrt":
        raise EmitError(f"{array.refused}; leave {form} out, or say emit.{form}.required: false")


def write_open(
    out: Path,
    view: View,
    form: str,
    target: str,
    lines: Mapping[str, Sequence[str]],
    coverage: Mapping[str, Mapping[str, bool | str]],
    notes: Sequence[str] = (),
) -> None:
    """Write ``open.json``, and ``OPEN.md`` rendered from it: how a stranger opens this form.

    ``lines`` are per reader the exact lines, relative to the form's folder; ``coverage`` says per array which
    reader decodes it: True, or the reason why not; ``notes`` what a reader has to mind. Arrays that the view was emitted without are added.
    """
    prefixes = sorted(
        {
            view.published(p + "x", target)[:-1]
            for p in view.prefixes()
            if covers_prefix(view, p, target)
        }
    )
    lost = {name: dict.fromkeys(lines, reason) for name, reason in view.left_out.items()}
    covered = {**coverage, **lost}
    content = {
        "dataset": view.dataset,
        "title": view.title,
        "form": form,
        "target": target,
        "open": {reader: list(text) for reader, text in sorted(lines.items())},
        "notes": list(notes),
        "prefixes": prefixes,
        "coverage": {array: dict(sorted(c.items())) for array, c in sorted(covered.items())},
    }
    write_json(out / "open.json", content)
    (out / "OPEN.md").write_text(rendered(content))


def covers_prefix(view: View, prefix: str, target: str) -> bool:
    """Whether a target's rules say where a source prefix is served."""
    rules = view.remap.get(target, [])
    return not rules or any(prefix.startswith(p.rstrip("/") + "/") for p, _ in rules)


def rendered(content: Mapping[str, Any]) -> str:
    """``OPEN.md`` from ``open.json``."""
    lines = [f"# {content['title']}: {content['form']}", ""]
    for reader, text in content["open"].items():
        lines += [f"## {reader}", "", "```", *text, "```", ""]
    if content["notes"]:
        lines += ["## To mind", "", *(f"- {note}" for note in content["notes"]), ""]
    lines += ["## Reads from", "", *(f"- `{p}`" for p in content["prefixes"]), ""]
    gaps = [
        f"- `{array}`, {reader}: {reason}"
        for array, readers in content["coverage"].items()
        for reader, reason in readers.items()
        if reason is not True
    ]
    if gaps:
        lines += ["## Not read by every reader", "", *gaps, ""]
    return "\n".join(lines)
