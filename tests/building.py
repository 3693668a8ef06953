"""A dataset built in a test: granules -> scans -> store -> plan -> view, without Snakemake."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from byterefs import plan, scanners, store
from byterefs.model import Source
from byterefs.view import View


def listed(path: Path) -> Source:
    """A file as a provider lists it."""
    stat = path.stat()
    return Source(str(path), stat.st_size, stat.st_mtime_ns)


def config(name: str = "demo", **parts: Any) -> dict[str, Any]:
    """A dataset config with every default that the library reads; ``parts`` replace sections."""
    sections: dict[str, Any] = {
        "dataset": name,
        "title": "",
        "source": {"provider": "local", "path": "/", "pattern": r"\.nc$"},
        "select": {"slot": [], "prefer": {}},
        "scan": {"arrays": [], "format": "auto", "split": "step"},
        "plan": {"engine": "coordinates", "concat": "time", "axis": "packed", "missing": "refuse"},
        "remap": {},
        "targets": {},
    }
    for key, value in parts.items():
        merged = isinstance(sections.get(key), dict) and isinstance(value, Mapping)
        sections[key] = {**sections[key], **value} if merged else value
    return sections


def scan_into(
    folder: Path, files: Iterable[Path], conf: Mapping[str, Any], removed: Iterable[str] = ()
) -> None:
    """Scan ``files`` and merge them into ``folder/store.sqlite`` as one batch."""
    concat = conf["plan"].get("concat")
    arrays = conf["scan"]["arrays"]
    format = conf["scan"].get("format", "auto")
    options = {"format": format, "arrays": arrays, "concat": concat}
    options |= {
        "split": conf["scan"]["split"] == "step",
        "multiple": conf["scan"].get("multiple", 1),
    }
    named = conf["scan"].get("file_name")
    said = conf["scan"].get("references")
    scans = [scanners.scan(listed(f), file_name=named, references=said, **options) for f in files]
    batch = folder / "batch.sqlite"
    store.write_scans(batch, scans, {}, version="1")
    store.update(folder / "store.sqlite", [batch], removed)
    batch.unlink()


def build(folder: Path, files: Iterable[Path], **parts: Any) -> View:
    """The view of ``files`` as one dataset, its store and plan in ``folder``."""
    conf = config(**parts)
    scan_into(folder, files, conf)
    return replan(folder, conf)


def turned(con: sqlite3.Connection, array: str, turn: Callable[[Any], Any]) -> None:
    """Put other sources at the places of an array in a working store; ``turn`` is given their numbers, in order."""
    (dims,) = con.execute("SELECT dims FROM arrays WHERE array = ?", (array,)).fetchone()
    (slabs,) = con.execute(
        "SELECT slabs FROM byterefs_placements WHERE array = ?", (array,)
    ).fetchone()
    rows = np.frombuffer(slabs, "<i8").reshape(-1, 2 + 3 * len(json.loads(dims))).copy()
    rows[:, 0] = turn(rows[:, 0].copy())
    con.execute("UPDATE byterefs_placements SET slabs = ? WHERE array = ?", (rows.tobytes(), array))


def replan(folder: Path, conf: Mapping[str, Any]) -> View:
    """The view after planning again what the store knows."""
    plan.plan(folder / "store.sqlite", folder / "plan", conf)
    return View.open(folder / "store.sqlite")
