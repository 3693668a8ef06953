"""BRAN at full size: the rows of a 4-D ocean variable through store, view and forms, without its bytes.

    python bench/bran.py [--months 192] [--folder bench/work/bran] [--forms parquet kerchunk …]

Writes what a scan of monthly files of 28 to 31 days would have written (chunks of 1 x 1 x 300 x 300,
3,060 references a day, 17,882,640 in 192 months, offsets past 5e9), runs store, plan, view and emit as
the workflow does, one process each, then lets one more month arrive. Prints and keeps per stage the
seconds, processor seconds and peak memory, and per form the bytes that the month made it rewrite.
"""

from __future__ import annotations

import argparse
import calendar
import hashlib
import json
import shutil
import sqlite3
import time
from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow.parquet as pq
from measuring import ROOT, Cost, inodes, rewritten, script
from rich.console import Console
from rich.table import Table

from byterefs import codecs, store
from byterefs.model import ArrayMeta, Source, SourceArray, SourceScan

FIRST = date(2010, 1, 1)
EPOCH = date(1979, 1, 1)
SHAPE = (51, 1500, 3600)
CHUNKS = (1, 1, 300, 300)
PER_DAY = 51 * 5 * 12
PREFIX = "/archive/bran/"
FORMS = ("parquet", "kerchunk", "icechunk", "sqlite", "vrt")
VERSION = "bench"
CODEC = codecs.hdf5_codec([(2, 1, (2,), b"shuffle"), (1, 1, (4,), b"deflate")], "<i2")
DATASET = {
    "dataset": "bran",
    "title": "BRAN, daily temperature",
    "source": {"provider": "local", "path": PREFIX, "pattern": r"ocean_temp_(?P<month>\d{6})\.nc$"},
    "select": {"slot": ["month"], "prefer": {}},
    "scan": {"arrays": ["temp"]},
    "plan": {"concat": "Time", "engine": "coordinates", "axis": "packed", "eras": "refuse"},
    "remap": {},
    "targets": {},
}
OPTIONS: dict[str, dict[str, Any]] = {"parquet": {"partition": True}}


def month(number: int) -> tuple[str, int, int]:
    """Name, first day since EPOCH and number of days of a month, counted from FIRST."""
    year, m = divmod(FIRST.month - 1 + number, 12)
    first = date(FIRST.year + year, m + 1, 1)
    days = calendar.monthrange(first.year, first.month)[1]
    return f"{PREFIX}ocean_temp_{first:%Y%m}.nc", (first - EPOCH).days, days


def scan(number: int) -> SourceScan:
    """What the scan of one month gives: chunks one after another, of 20 to 90 kB."""
    name, first, days = month(number)
    rng = np.random.default_rng(number)
    grid = (days, *(-(-n // c) for n, c in zip(SHAPE, CHUNKS[1:], strict=True)))
    size = rng.integers(20_000, 90_000, grid, np.int64)
    ends = np.cumsum(size.ravel())
    offset = (ends - size.ravel()).reshape(grid) + 40_000
    meta = ArrayMeta(
        array="temp",
        dims=("Time", "st_ocean", "yt_ocean", "xt_ocean"),
        shape=(days, *SHAPE),
        chunks=CHUNKS,
        dtype="<i2",
        fill="-32768",
        codec=CODEC,
        info=codecs.info(CODEC, "<i2"),
        attrs={
            "scale_factor": 0.001,
            "add_offset": 20.0,
            "_FillValue": -32768,
            "units": "degrees C",
        },
        attr_dtypes={"scale_factor": "<f4", "add_offset": "<f4", "_FillValue": "<i2"},
    )
    arrays = {"temp": SourceArray(meta, offset, size)}
    axes = {"Time": first + np.arange(days) + 0.5}
    axes |= {"st_ocean": np.geomspace(2.5, 4509, SHAPE[0])}
    axes |= {n: np.arange(s) * 0.1 for n, s in (("yt_ocean", SHAPE[1]), ("xt_ocean", SHAPE[2]))}
    for axis, values in axes.items():
        arrays[axis] = coordinate(axis, values)
    return SourceScan(Source(name, int(ends[-1]) + 40_000, number * 10**9), arrays)


def coordinate(axis: str, values: np.ndarray) -> SourceArray:
    """A coordinate as a scan gives it, by value."""
    units = {"Time": "days since 1979-01-01 00:00:00"}.get(axis, "1")
    raw = values.astype("<f8").tobytes()
    meta = ArrayMeta(
        axis,
        (axis,),
        values.shape,
        values.shape,
        "<f8",
        None,
        {"compressor": None, "filters": None},
        "",
        {"units": units},
        {"units": "str"},
    )
    return SourceArray(meta, values=raw, digest=hashlib.sha256(raw).hexdigest())


class Bench:
    """One store below ``folder``, and the cost of each stage that was run on it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.results = folder / "results" / "bran"
        self.costs: dict[str, Cost] = {}
        self.store = self.results / "store" / "store.sqlite"

    def scans(self, months: range) -> list[Path]:
        """Files as the scan stage writes them, sixteen months in each."""
        files = []
        for first in range(months.start, months.stop, 16):
            files.append(self.results / "scan" / f"{first:016x}.sqlite")
            rows = map(scan, range(first, min(first + 16, months.stop)))
            store.write_scans(files[-1], rows, {}, version=VERSION)
        return files

    def run(self, what: str, batches: Sequence[Path], forms: Sequence[str]) -> None:
        """Store, plan, view and the forms; the costs are kept under ``<what> <stage>``."""
        receipt, common = self.results / "discover" / "receipt.json", {"store": self.store}
        receipt.parent.mkdir(parents=True, exist_ok=True)
        receipt.write_text(json.dumps({"batches": {}, "removed": []}))
        self.stage(what, "store", discovered=receipt, batches=list(batches), **common)
        self.stage(what, "plan", config=DATASET, **common)
        self.stage(what, "view", **common)
        for form in forms:
            out = self.results / "emit" / "access"
            options = {"form": form, "options": OPTIONS.get(form, {}), **common}
            cost = script("emit", self.folder, receipt=out / f"{form}.receipt.json", **options)
            self.costs[f"{what} {form}"] = cost

    def stage(self, what: str, stage: str, **arguments: Any) -> None:
        """One stage that is no form."""
        receipt = self.results / stage / "receipt.json"
        self.costs[f"{what} {stage}"] = script(stage, self.folder, receipt=receipt, **arguments)


def lookup(path: Path, days: int) -> float:
    """Milliseconds to open a published store and look one chunk up, median of 51 chunks."""
    rng, took = np.random.default_rng(1), []
    for _ in range(51):
        key = [int(rng.integers(n)) for n in (days, 51, 5, 12)]
        started = time.perf_counter()
        con = sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)
        statement = 'SELECT path, "offset", size FROM refs_temp WHERE dim_0 = ? AND dim_1 = ? AND dim_2 = ? AND dim_3 = ?'
        row = con.execute(statement, key).fetchone()
        took.append((time.perf_counter() - started) * 1000)
        con.close()
        if row is None:
            raise SystemExit(f"{path}: no row for {key}")
    return round(float(np.median(took)), 2)


def box(folder: Path, days: int) -> dict[str, Any]:
    """Ten days of a box from the Parquet form by DuckDB: milliseconds, rows, and what had to be read of it."""
    first = days // 2
    bounds = {"dim_0": (first, first + 9), "dim_2": (1, 2), "dim_3": (3, 5)}
    where = " AND ".join(f"{name} BETWEEN {a} AND {b}" for name, (a, b) in bounds.items())
    took, rows = [], 0
    for _ in range(11):
        con = duckdb.connect()
        started = time.perf_counter()
        query = (
            f"SELECT path, \"offset\", size FROM read_parquet('{folder}/*.parquet') WHERE {where}"
        )
        rows = len(con.sql(query).fetchall())
        took.append((time.perf_counter() - started) * 1000)
        con.close()
    groups, needed = row_groups(folder, bounds)
    return {
        "milliseconds": round(float(np.median(took)), 1),
        "rows": rows,
        "row_groups": groups,
        "row_groups_needed": needed,
    }


def row_groups(folder: Path, bounds: Mapping[str, tuple[int, int]]) -> tuple[int, int]:
    """Row groups there are, and those whose statistics do not rule the box out."""
    groups = needed = 0
    for file in folder.glob("*.parquet"):
        metadata = pq.read_metadata(file)
        for g in range(metadata.num_row_groups):
            group = metadata.row_group(g)
            stats = {
                group.column(c).path_in_schema: group.column(c).statistics
                for c in range(group.num_columns)
            }
            groups += 1
            needed += all(
                stats[name].min <= b and stats[name].max >= a for name, (a, b) in bounds.items()
            )
    return groups, needed


def manifests(repository: Path) -> int:
    """Number of manifest files of an Icechunk repository."""
    return sum(1 for _ in (repository / "manifests").iterdir())


def main(months: int, folder: Path, forms: Sequence[str]) -> dict[str, Any]:
    """Run the bench; write ``bran.json`` into ``folder`` and give it back."""
    folder = folder.absolute()
    shutil.rmtree(folder / "results", ignore_errors=True)
    bench, out = Bench(folder), folder / "results" / "bran" / "emit" / "access"
    batches = bench.scans(range(months))
    bench.run("first", batches, forms)
    days = sum(month(n)[2] for n in range(months))
    found: dict[str, Any] = {"months": months, "days": days, "references": days * PER_DAY}
    before = {form: inodes(out / form) for form in forms}
    bench.run("append", bench.scans(range(months, months + 1)), forms)
    found["rewritten"] = {f: rewritten(before[f], inodes(out / f)) for f in forms}
    found["bytes"] = {f: sum(s[2] for s in inodes(out / f).values()) for f in forms}
    if "icechunk" in forms:
        found["manifests"] = manifests(out / "icechunk")
    if "sqlite" in forms:
        found["lookup_ms"] = lookup(out / "sqlite" / "store.sqlite", days)
    if "parquet" in forms:
        found["box"] = box(out / "parquet" / "refs_temp", days)
    found["costs"] = {name: cost._asdict() for name, cost in bench.costs.items()}
    (folder / "bran.json").write_text(json.dumps(found, indent=1))
    show(found, bench.costs)
    return found


def show(found: Mapping[str, Any], costs: Mapping[str, Cost]) -> None:
    """Print the table of stages and what else was measured."""
    table = Table(
        "stage", "first s", "cpu s", "peak MB", "one more s", "cpu s", "peak MB", "rewritten MB"
    )
    for name in costs:
        what, _, stage = name.partition(" ")
        if what == "first":
            again = costs[f"append {stage}"]
            mb = found["rewritten"].get(stage)
            table.add_row(
                stage, *map(str, costs[name]), *map(str, again), f"{mb / 1e6:.1f}" if mb else ""
            )
    table.title = f"{found['references']:,} references, then one more month"
    console = Console()
    console.print(table)
    console.print({k: v for k, v in found.items() if k not in ("costs", "rewritten")})


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--months", type=int, default=192)
    parser.add_argument("--folder", type=Path, default=ROOT / "bench" / "work" / "bran")
    parser.add_argument("--forms", nargs="*", default=list(FORMS))
    options = parser.parse_args()
    main(options.months, options.folder, options.forms)
