"""Our own part of the work that bench/peers.py does, in a process of its own; prints JSON.

python bench/ours.py TASK FILE_OF_SOURCES [OUT]
"""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import measuring  # noqa: F401  finds byterefs

from byterefs import scanners, store
from byterefs.model import Source


def scan(path: str) -> Any:
    """Our scan of one source: every array, every attribute, coordinates by value."""
    return scanners.scan(Source(path), concat="time")


def each(sources: Sequence[str]) -> dict[str, float]:
    """Seconds for all sources, one after another, after a first one to warm up."""
    scan(sources[0])
    started = time.perf_counter()
    for source in sources:
        scan(source)
    return {"seconds": time.perf_counter() - started}


def batch(sources: Sequence[str], out: Path) -> None:
    """The scan stage's file of some sources."""
    store.write_scans(out, map(scan, sources), {}, version="bench")


def stage(sources: Sequence[str], out: Path) -> dict[str, float]:
    """The scan stage with two workers, its files written: seconds."""
    shutil.rmtree(out, ignore_errors=True)
    parts = [sources[i : i + 256] for i in range(0, len(sources), 256)]
    started = time.perf_counter()
    with ProcessPoolExecutor(2) as pool:
        list(pool.map(batch, parts, [out / f"{i}.sqlite" for i in range(len(parts))]))
    return {"seconds": time.perf_counter() - started}


def write_kerchunk(rows: int, out: Path) -> dict[str, float]:
    """Our kerchunk writer alone, on about ``rows`` references in one array, view and all."""
    # here, so that a scan is measured in a process that has imported what a scan job imports
    import bran

    from byterefs import emitters, stages
    from byterefs.view import View

    shutil.rmtree(out, ignore_errors=True)
    months, days = 0, 0
    while days < rows // bran.PER_DAY:
        days += bran.month(months)[2]
        months += 1
    batches, where = out / "batch.sqlite", out / "store.sqlite"
    store.write_scans(batches, map(bran.scan, range(months)), {}, version=bran.VERSION)
    store.update(where, [batches], [])
    (out / "plan").mkdir()
    stages.make_plan(where, out / "plan" / "receipt.json", bran.DATASET)
    writer = emitters.load("kerchunk")
    started = time.perf_counter()
    with View.open(where) as view:
        writer.emit(view, out / "kerchunk", target="access", options={}, state={})
    return {"seconds": time.perf_counter() - started, "rows": days * bran.PER_DAY}


TASKS: dict[str, Callable[[list[str], Path], Any]] = {
    "scan": lambda sources, _: each(sources),
    "stage": stage,
    "write_kerchunk": lambda sources, out: write_kerchunk(int(sources[0]), out),
}

if __name__ == "__main__":
    task, listing, out = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    print(json.dumps(TASKS[task](listing.read_text().split(), out)))
