"""Receipts: small sorted files that say what a stage did. Snakemake follows these, never a store or form.

Paths start at the working directory, as a rule's do. The Snakefile imports this module.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from byterefs import files

log = logging.getLogger(__name__)

SERVES_ALL = frozenset({"sqlite", "icechunk"})
"""Forms that carry the rules of every target and are emitted once, for `access`."""


def read(path: Path) -> dict[str, Any]:
    """The content of a receipt."""
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return content


def write(path: Path, stage: str, done: Mapping[str, Any]) -> dict[str, Any]:
    """Write what a stage did, with its name; gives back the counts."""
    files.write_json(path, {"stage": stage, "counts": {}, **done})
    return dict(done.get("counts", {}))


def emitted(dataset: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """(target, form) of everything that a dataset config asks to emit."""
    for form in dataset["emit"]:
        targets = [] if form in SERVES_ALL else sorted(dataset["remap"])
        yield from ((target, form) for target in ["access", *targets])


def verified(dataset: Mapping[str, Any]) -> list[str]:
    """The receipt of every verification of a dataset."""
    results = f"results/{dataset['dataset']}"
    return [f"{results}/verify/{target}/{form}.json" for target, form in emitted(dataset)]


def published(dataset: Mapping[str, Any]) -> list[str]:
    """The receipt of every publication of a dataset."""
    return [f"results/{dataset['dataset']}/sync/{entry['name']}.json" for entry in dataset["sync"]]


def announced(dataset: Mapping[str, Any]) -> list[str]:
    """The receipt of `register`, if a dataset is published somewhere."""
    return [f"results/{dataset['dataset']}/register/receipt.json"] if dataset["sync"] else []


def reported(dataset: Mapping[str, Any]) -> list[str]:
    """One part of the report, which stands for all, if the config wants them."""
    wanted = dataset["register"]["report"]
    return [f"results/{dataset['dataset']}/report/coverage.html"] if wanted else []


def wanted(dataset: Mapping[str, Any]) -> list[str]:
    """Every durable receipt of a dataset, in the order of the flow."""
    results = f"results/{dataset['dataset']}"
    stages = [f"{results}/{s}/receipt.json" for s in ("discover", "store", "plan", "view")]
    forms = [f"{results}/emit/{target}/{form}.receipt.json" for target, form in emitted(dataset)]
    proofs, syncs = verified(dataset), published(dataset)
    return [*stages, *forms, *proofs, *syncs, *announced(dataset), *reported(dataset)]


def void_damaged(results: Path) -> list[Path]:
    """Remove the receipts of forms that are not what was emitted; gives back their folders.

    Such a form is emitted again from scratch, and verified again. A file is read only if its size or
    mtime is not what it was.
    """
    damaged = []
    for receipt in sorted(results.glob("emit/*/*.receipt.json")):
        form = receipt.name.removesuffix(".receipt.json")
        folder, state = receipt.with_name(form), receipt.with_name(f"{form}.state.json")
        if "refused" in read(receipt) or intact(folder, state):
            continue
        log.warning("%s: missing or altered, and made again", folder)
        damaged.append(folder)
        for path in (receipt, state, results / "verify" / receipt.parent.name / f"{form}.json"):
            path.unlink(missing_ok=True)
    if (results / "plan" / "receipt.json").exists() and not plan_intact(results / "plan"):
        (results / "plan" / "receipt.json").unlink()
    return damaged


def intact(folder: Path, state: Path) -> bool:
    """Whether every file that ``state`` tells of lies in ``folder`` with the same bytes.

    Where only the time of a file changed, ``state`` is brought up to date.
    """
    if not state.exists():
        return False
    content = read(state)
    touched = False
    for name, held in content["files"].items():
        path = folder / name
        if not path.is_file():
            return False
        stat = path.stat()
        now = [stat.st_size, stat.st_mtime_ns]
        if now == held[:2]:
            continue
        if now[0] != held[0] or files.file_digest(path) != held[2]:
            return False
        held[1] = now[1]
        touched = True
    if touched:
        files.write_json(state, content)
    return True


def plan_intact(folder: Path) -> bool:
    """Whether what the receipt of a plan covers lies beside it with the same bytes."""
    covers = read(folder / "receipt.json").get("covers", {})
    return all(
        (folder / name).is_file() and files.file_digest(folder / name) == sha256
        for name, sha256 in covers.items()
    )
