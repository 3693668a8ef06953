"""What made the forms of a dataset: versions, commit and config. Beside them, never inside one."""

from __future__ import annotations

import platform
import sqlite3
import subprocess
from collections.abc import Mapping
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

from byterefs import FORMAT, files, receipts

ROOT = Path(__file__).resolve().parents[2]


def write(results: Path, dataset: Mapping[str, Any]) -> bool:
    """Describe the forms in ``results/provenance.json``; False if it describes these very forms.

    ``dataset`` is the config that they were made with. A later version of byterefs that finds
    nothing to do leaves the file as it is.
    """
    path = results / "provenance.json"
    forms = {
        f"{receipt.parent.name}/{receipt.name.removesuffix('.receipt.json')}": receipts.read(
            receipt
        ).get("digest")
        for receipt in sorted(results.glob("emit/*/*.receipt.json"))
    }
    if not forms or (path.exists() and receipts.read(path)["forms"] == forms):
        return False
    files.write_json(path, {"forms": forms, "config": files.digest(dataset), **machine()})
    return True


def machine() -> dict[str, Any]:
    """Commit, format, and the version of everything that is installed here."""
    return {
        "commit": commit(),
        "format": FORMAT,
        "packages": {d.name.lower(): d.version for d in distributions()},
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "system": f"{platform.system()} {platform.machine()}",
    }


def commit() -> str | None:
    """The commit of this repository, with ``+`` where files differ from it; None outside of git."""
    head = _git("rev-parse", "HEAD")
    changed = _git("status", "--porcelain", "--untracked-files=no")
    return head and head + ("+" if changed else "")


def _git(*arguments: str) -> str | None:
    command = ["git", "-c", "safe.directory=*", "-C", str(ROOT), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    except (FileNotFoundError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()
