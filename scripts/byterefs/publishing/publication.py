"""What a publication consists of: which file of which form lies under which key (design, section 10)."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

from byterefs.errors import SyncError
from byterefs.files import covers, digest
from byterefs.receipts import SERVES_ALL, read
from byterefs.view import View

LATEST = "latest.json"
REPO = "icechunk/repo"
MAIN: Mapping[str, str] = {"vrt": "*.vrt", "sqlite": "store.sqlite"}
"""forms that are one file, and its name; the others are a folder"""
OPENING = ("open.json", "OPEN.md")
REGISTERED = ("index.html", "sds.csv", "sds.parquet", "stac/")
"""keys, and a prefix, beside a publication that belong to `register`"""


def registered(key: str) -> bool:
    """Whether a key belongs to `register`: a publication neither lists, mirrors nor removes it."""
    return key in REGISTERED or key.startswith("stac/")


class Held(NamedTuple):
    """A local file that is to lie under a key."""

    path: Path
    size: int
    """bytes"""
    sha256: str


@dataclass
class Tree:
    """Everything that a version publishes, in the order in which it is written."""

    dataset: str
    version: str
    versioned: dict[str, Held]
    """below ``v/<version>/``: immutable"""
    icechunk: dict[str, Held]
    """below ``icechunk/``, ``repo`` last"""
    current: dict[str, Held]
    """convenience names"""
    latest: bytes
    refused: dict[str, str] = field(default_factory=dict)
    """form -> why it is not published"""
    verbatim: str | None = None
    """a source's own path that the form sqlite carries where the target serves another one"""

    @property
    def files(self) -> dict[str, Held]:
        """All of them by key, ``latest.json`` left out."""
        return {**self.versioned, **self.icechunk, **self.current}


def tree(results: Path, verified: Sequence[Path], target: str, repository: Path) -> Tree:
    """What there is to publish of a target. ``repository`` is where Icechunk's copy for it is made.

    Raises SyncError unless every form of the target is verified as it lies there now.
    """
    forms, refused = proven(results, verified, target)
    with View.open(results / "store" / "store.sqlite") as view:
        dataset = view.dataset
        held = {form: files(folder) for form, folder in forms.items() if form != "icechunk"}
        repo = icechunk(view, forms["icechunk"], target, repository) if "icechunk" in forms else {}
        shown = verbatim(view, forms["sqlite"], target) if "sqlite" in forms else None
    flat = {f"{form}/{n}": h for form, found in held.items() for n, h in found.items()}
    version = digest({key: h.sha256 for key, h in flat.items()})[:16]
    versioned = {f"v/{version}/{key}": h for key, h in sorted(flat.items())}
    latest = {
        "dataset": dataset,
        "version": version,
        "target": target,
        "forms": {form: pointer(form, version, found) for form, found in held.items()},
        "icechunk": {
            "path": "icechunk",
            "open": "icechunk/open.json",
            "snapshot": snapshot(repository),
        }
        if repo
        else None,
    }
    text = json.dumps(latest, sort_keys=True, indent=1, ensure_ascii=False) + "\n"
    files_ = current(dataset, held)
    return Tree(dataset, version, versioned, repo, files_, text.encode(), refused, shown)


def proven(
    results: Path, verified: Sequence[Path], target: str
) -> tuple[dict[str, Path], dict[str, str]]:
    """Form -> its folder, and form -> why it was refused. Raises SyncError for one that is not proven."""
    folders, refused = {}, {}
    for path in sorted(verified):
        form, of = path.stem, path.parent.name
        if of != ("access" if form in SERVES_ALL else target):
            continue
        emitted = results / "emit" / of / f"{form}.receipt.json"
        if not path.exists() or not emitted.exists():
            raise SyncError(
                f"form {form} of target {of!r} has no {'emission' if path.exists() else 'verification'}; "
                f"run the workflow again, nothing is published before all forms are proven"
            )
        proof, done = read(path), read(emitted)
        if proof["digest"] != done["digest"]:
            raise SyncError(
                f"{path}: it proves form {form} with digest {proof['digest']}, and {done['digest']} was "
                f"emitted since; run the workflow again"
            )
        if not proof["verified"]:
            refused[form] = str(done.get("refused", "not verified"))
            continue
        folders[form] = emitted.with_name(form)
        unchanged(form, folders[form], done["covers"])
    if not folders:
        raise SyncError(
            f"target {target!r} has no verified form to publish; list forms under emit:, or another target"
        )
    return folders, refused


def unchanged(form: str, folder: Path, then: Mapping[str, str]) -> None:
    """That a form's files are those that were verified. Raises SyncError."""
    now = covers(folder) if folder.is_dir() else {}
    for name in sorted(now.keys() | then.keys()):
        if now.get(name) != then.get(name):
            raise SyncError(
                f"{folder / name}: its sha256 is {now.get(name)} and was {then.get(name)} when form {form} was "
                f"verified; remove {folder} and run the workflow again"
            )


def files(folder: Path) -> dict[str, Held]:
    """Every file of a folder by its relative path."""
    return {
        n: Held(folder / n, (folder / n).stat().st_size, sha) for n, sha in covers(folder).items()
    }


def icechunk(view: View, folder: Path, target: str, repository: Path) -> dict[str, Held]:
    """The repository with the target's containers, ``repo`` last, without ``overwritten/``."""
    # a string, so that a workflow without this form needs no icechunk
    import_module("byterefs.emitters.icechunk").retarget(folder, view, target, repository)
    found = {
        f"icechunk/{n}": h for n, h in files(repository).items() if not n.startswith("overwritten/")
    }
    return {key: found[key] for key in sorted(found, key=lambda k: (k == REPO, k))}


def verbatim(view: View, folder: Path, target: str) -> str | None:
    """A source's own path that the published store carries where the target serves another one; None without."""
    with closing(
        sqlite3.connect(f"file:{quote(str(folder / 'store.sqlite'))}?mode=ro", uri=True)
    ) as con:
        has = {source for (source,) in con.execute("SELECT source FROM sources")}
    pairs = zip(view.sources, view.paths(target), strict=True)
    return next((s.source for s, path in pairs if s.source in has and s.source != path), None)


def snapshot(repository: Path) -> str:
    """The id of the snapshot that the repository's main branch is at."""
    return str(import_module("byterefs.emitters._icechunk_meta").tip(repository))


def pointer(form: str, version: str, found: Mapping[str, Held]) -> dict[str, str]:
    """Where a form of a version is, the sha256 of its one file or of its list of files, and its open.json."""
    base = f"v/{version}/{form}"
    name = main_file(form, found)
    sha256 = found[name].sha256 if name else digest({n: h.sha256 for n, h in found.items()})
    return {
        "path": f"{base}/{name}" if name else base,
        "sha256": sha256,
        "open": f"{base}/open.json",
    }


def main_file(form: str, found: Mapping[str, Held]) -> str | None:
    """The name of the file that is the form; None where the form is a folder."""
    wanted = MAIN.get(form)
    return None if wanted is None else next(n for n in sorted(found) if Path(n).match(wanted))


def current(dataset: str, held: Mapping[str, Mapping[str, Held]]) -> dict[str, Held]:
    """The convenience names for tools that cannot follow ``latest.json``; ``.zmetadata`` after what it describes."""
    names: dict[str, Held] = {}
    for form, key in (("vrt", "current.vrt"), ("sqlite", "current.sqlite")):
        name = main_file(form, held[form]) if form in held else None
        if name:
            names[key] = held[form][name]
    for form, folder in (("parquet", "current.parquet"), ("kerchunk", "current.parq")):
        found = held.get(form, {})
        for name in sorted(found, key=lambda n: (n == ".zmetadata", n)):
            if name.endswith(".json") and form == "kerchunk" and name not in OPENING:
                names["current.json"] = found[name]
            else:
                names[f"{folder}/{name}"] = found[name]
    return names
