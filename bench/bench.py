"""The whole bench: the reaches of the design, measured, against peers where there are some.

    python bench/bench.py [--only SECTION …] [--days 16387] [--folder bench/work]

Sections: scan, month, writers, bran, oisst, peers, publish, full. Prints a table and keeps
``bench/results.json``; with ``--only`` the rows of other sections stay as they were measured.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import archive
import bran
import figure
import h5py
import month
import oisst
import publish
from measuring import ROOT, machine
from rich.console import Console
from rich.table import Table

RESULTS = ROOT / "bench" / "results.json"
PEERS = ROOT / "bench" / "work" / "peers" / "bin" / "python"
ROUNDS = 5
SOURCES = 200
LENGTHS = (250, 1000, 4000)
"""days of the archives beside the full one, for the plot"""
VERSIONS = ("snakemake", "h5py", "icechunk", "pyarrow", "zarr", "numpy")


class Row(NamedTuple):
    """One figure; ``reach`` in the words of the design, ``holds`` None where there is none to hold."""

    name: str
    value: float
    unit: str
    reach: str
    holds: bool | None


def below(name: str, value: float, unit: str, limit: float) -> Row:
    """A figure that is to be no more than ``limit``."""
    return Row(name, value, unit, f"<= {limit:g}", value <= limit)


def above(name: str, value: float, unit: str, limit: float) -> Row:
    """A figure that is to be no less than ``limit``."""
    return Row(name, value, unit, f">= {limit:g}", value >= limit)


def plain(name: str, value: float, unit: str) -> Row:
    """A figure without a reach."""
    return Row(name, value, unit, "", None)


class Bench:
    """The sections; each yields rows."""

    def __init__(self, folder: Path, days: int) -> None:
        self.folder, self.days = folder.absolute(), days
        self.archive = self.folder / "oisst" / "archive"

    def run(self, who: str, task: str, sources: list[str]) -> dict[str, float]:
        """One task of bench/ours.py or bench/peers.py in a process of its own."""
        listing, out = self.folder / "sources.txt", self.folder / "out"
        listing.write_text("\n".join(sources))
        python = sys.executable if who == "ours" else str(PEERS)
        command = [python, str(ROOT / "bench" / f"{who}.py"), task, str(listing), str(out)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"{who} {task}\n{done.stderr[-3000:]}")
        found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
        return found

    def alternating(
        self, tasks: Mapping[str, tuple[str, str]], sources: list[str], rounds: int = ROUNDS
    ) -> dict[str, float]:
        """Median seconds of each task, all of them once in every round."""
        took: dict[str, list[float]] = {name: [] for name in tasks}
        for _ in range(rounds):
            for name, (who, task) in tasks.items():
                took[name].append(self.run(who, task, sources)["seconds"])
        return {name: median(seconds) for name, seconds in took.items()}

    def granules(self, days: int) -> list[str]:
        """The first granules of the archive, written where they are missing."""
        archive.extend(self.archive, range(days))
        return [str(self.archive / archive.name(day)) for day in range(days)]

    def scan(self) -> Iterator[Row]:
        """Scanning daily granules of four arrays, one source after another."""
        tasks = {
            "byterefs": ("ours", "scan"),
            "VirtualiZarr HDFParser": ("peers", "parse"),
            "VirtualiZarr open_virtual_dataset": ("peers", "virtual"),
            "kerchunk SingleHdf5ToZarr": ("peers", "kerchunk"),
        }
        took = self.alternating(tasks, self.granules(SOURCES))
        ours = took.pop("byterefs")
        yield plain("scan: byterefs", round(ours / SOURCES * 1000, 2), "ms per source")
        for name, seconds in took.items():
            limit = 4 if "HDFParser" in name else 8
            yield plain(f"scan: {name}", round(seconds / SOURCES * 1000, 2), "ms per source")
            yield above(f"scan: {name} / byterefs", round(seconds / ours, 2), "times", limit)

    def month(self) -> Iterator[Row]:
        """Scanning a real HDF5 file of 94,860 chunks."""
        path = month.write(self.folder / "month" / "ocean_temp_201001.nc")
        tasks = {
            "byterefs": ("ours", "scan"),
            "VirtualiZarr HDFParser": ("peers", "parse"),
            "kerchunk SingleHdf5ToZarr": ("peers", "kerchunk"),
        }
        took = self.alternating(tasks, [str(path)], 3)
        ours = took.pop("byterefs")
        rate = month.CHUNKS / ours
        yield plain("month of 94,860 chunks: byterefs", round(rate), "references/s")
        for name, seconds in took.items():
            rate = month.CHUNKS / seconds
            yield plain(f"month of 94,860 chunks: {name}", round(rate), "references/s")
            yield above(
                f"month of 94,860 chunks: byterefs / {name}", round(seconds / ours, 2), "times", 3
            )

    def writers(self) -> Iterator[Row]:
        """Writing kerchunk Parquet of 1.1 million references of one array."""
        rows = 365 * bran.PER_DAY
        tasks = {"byterefs": ("ours", "write_kerchunk"), "peer": ("peers", "write_kerchunk")}
        took = self.alternating(tasks, [str(rows)], 3)
        yield plain("kerchunk writer: byterefs", round(rows / took["byterefs"]), "references/s")
        yield plain("kerchunk writer: VirtualiZarr", round(rows / took["peer"]), "references/s")
        times = round(took["peer"] / took["byterefs"], 1)
        yield above("kerchunk writer: byterefs / VirtualiZarr", times, "times", 20)

    def bran(self) -> Iterator[Row]:
        """17,882,640 references of a 4-D variable (bench/bran.py)."""
        found = bran.main(192, self.folder / "bran", bran.FORMS)
        costs, references = found["costs"], found["references"]
        seconds = {name: cost["seconds"] for name, cost in costs.items()}
        wanted = ("view", "parquet", "kerchunk")
        rate = round(references / seconds["first store"])
        yield above("17.9 M references: store upsert, process and all", rate, "rows/s", 600_000)
        total = round(sum(seconds[f"first {stage}"] for stage in wanted), 1)
        yield below("17.9 M references: view + parquet + kerchunk", total, "s", 90)
        peak = max(costs[f"first {stage}"]["mb"] for stage in wanted)
        yield below("17.9 M references: their peak memory", peak, "MB", 4096)
        yield below("17.9 M references: icechunk", seconds["first icechunk"], "s", 120)
        mb = costs["first icechunk"]["mb"]
        yield below("17.9 M references: icechunk, peak memory", mb, "MB", 6144)
        yield plain("17.9 M references: icechunk manifests", found["manifests"], "files")
        yield plain("17.9 M references: sqlite", seconds["first sqlite"], "s")
        for form, size in found["rewritten"].items():
            took = seconds[f"append {form}"]
            yield plain(f"one more month on 17.9 M: {form}", took, "s")
            yield plain(f"one more month on 17.9 M: {form}, rewritten", size, "bytes")
        yield below("one chunk of 17.9 M from SQLite", found["lookup_ms"], "ms", 5)
        box = found["box"]
        yield below("ten days of a box from Parquet", box["milliseconds"], "ms", 200)
        yield plain("ten days of a box: row groups needed", box["row_groups_needed"], "row groups")
        yield plain("ten days of a box: row groups there are", box["row_groups"], "row groups")

    def oisst(self) -> Iterator[Row]:
        """Daily granules at several lengths, each run as a user runs it (bench/oisst.py)."""
        runs: dict[int, dict[str, dict[str, Any]]] = {}
        for days in (*(n for n in LENGTHS if n < self.days), self.days):
            folder = self.folder / "oisst"
            runs[days] = {run["run"]: run for run in oisst.main(days, folder, full=False)}
        for days, found in runs.items():
            last = days == self.days
            built, day = found["first build"]["seconds"], found["one new day"]["seconds"]
            idle = found["nothing new"]
            name = f"{days:,} days"
            yield (below(f"{name}: first build", built, "s", 240) if last else plain(f"{name}: first build", built, "s"))  # fmt: skip
            yield (below(f"{name}: one new day", day, "s", 25) if last else plain(f"{name}: one new day", day, "s"))  # fmt: skip
            used = found["one new day"]["cpu"]
            yield plain(f"{name}: one new day, processor time", used, "s")
            yield (below(f"{name}: nothing new", idle["seconds"], "s", 8) if last else plain(f"{name}: nothing new", idle["seconds"], "s"))  # fmt: skip
        whole = runs[self.days]
        opened = whole["one new day"]["opened"]
        yield below(f"{self.days:,} days: sources that one new day opens", opened, "sources", 1)
        jobs = whole["nothing new"]["jobs"]
        yield below(f"{self.days:,} days: jobs with nothing new", jobs, "jobs", 0)
        if 1000 in runs:
            ratio = whole["one new day"]["seconds"] / runs[1000]["one new day"]["seconds"]
            name = f"one new day on {self.days:,} / on 1,000"
            yield below(name, round(ratio, 2), "times", 1.3)

    def peers(self) -> Iterator[Row]:
        """The whole archive by VirtualiZarr: open with two workers, concat, kerchunk Parquet, Icechunk."""
        sources = self.granules(self.days)
        ours = self.run("ours", "stage", sources)["seconds"]
        found = self.run("peers", "archive", sources)
        again = self.run("ours", "stage", sources)["seconds"]
        name, ours = f"{self.days:,} days", median([ours, again])
        yield plain(f"{name}: scan stage, two workers", round(ours, 1), "s")
        yield plain(f"{name}: VirtualiZarr opens, two workers", round(found["open"], 1), "s")
        ratio = round(found["open"] / ours, 2)
        yield above(f"{name}: VirtualiZarr opens / scan stage", ratio, "times", 6)
        yield plain(f"{name}: VirtualiZarr in all", round(found["seconds"], 1), "s")
        built = next((r["value"] for r in kept() if r["name"] == f"{name}: first build"), None)
        if built:
            ratio = round(found["seconds"] / built, 2)
            yield above(f"{name}: VirtualiZarr in all / first build", ratio, "times", 3)

    def publish(self) -> Iterator[Row]:
        """Uploads of small and large files to an S3 server, by `sync` and by rclone (bench/publish.py)."""
        found = publish.main()
        what = f"publish {found['small']:,} small and {found['large']} of 100 MB"
        for name in publish.TOOLS:
            yield plain(f"{what}: {name}", found[name]["seconds"], "s")
            yield plain(f"{what}: {name}, processor", found[name]["cpu"], "s")
            yield plain(f"{what}: {name}, nothing new", found[name]["seconds_nothing_new"], "s")
        ratio = round(found["rclone"]["seconds"] / found["byterefs"]["seconds"], 2)
        yield above(f"{what}: throughput byterefs / rclone", ratio, "times", 1)

    def full(self) -> Iterator[Row]:
        """The first build with every chunk of every form verified."""
        found = {run["run"]: run for run in oisst.main(self.days, self.folder / "oisst", full=True)}
        minutes = round(found["first build"]["seconds"] / 60, 1)
        yield below(f"{self.days:,} days: first build, verify: full", minutes, "min", 30)


SECTIONS: dict[str, Callable[[Bench], Iterator[Row]]] = {
    "scan": Bench.scan,
    "month": Bench.month,
    "writers": Bench.writers,
    "bran": Bench.bran,
    "oisst": Bench.oisst,
    "peers": Bench.peers,
    "publish": Bench.publish,
    "full": Bench.full,
}


def kept() -> list[dict[str, Any]]:
    """The rows that bench/results.json holds."""
    if not RESULTS.exists():
        return []
    found: list[dict[str, Any]] = json.loads(RESULTS.read_text())["results"]
    return found


def save(section: str, rows: list[Row]) -> None:
    """Replace the rows of one section."""
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    fresh = [{"section": section, **row._asdict(), "commit": commit} for row in rows]
    others = [row for row in kept() if row["section"] != section]
    order = list(SECTIONS)
    results = sorted([*others, *fresh], key=lambda row: order.index(row["section"]))
    pinned = dict(
        line.split("==") for line in (ROOT / "bench" / "peers.txt").read_text().splitlines()
    )
    versions = {name: version(name) for name in VERSIONS}
    versions |= {"python": sys.version.split()[0], "hdf5": h5py.version.hdf5_version}
    versions |= {f"peer {name}": pinned[name] for name in ("virtualizarr", "kerchunk", "icechunk")}
    content = {"machine": machine(), "versions": versions, "commit": commit, "results": results}
    RESULTS.write_text(json.dumps(content, indent=1) + "\n")


def show(console: Console) -> None:
    """Print the table of all rows."""
    table = Table("figure", "value", "unit", "reach", "holds", title="make bench")
    words = {True: "yes", False: "NO", None: ""}
    for row in kept():
        value = f"{row['value']:,}"
        table.add_row(row["name"], value, row["unit"], row["reach"], words[row["holds"]])
    console.print(table)


def main(only: list[str], days: int, folder: Path) -> None:
    """Measure, keep, print, plot."""
    console = Console()
    folder.mkdir(parents=True, exist_ok=True)
    if set(only) - {"publish"}:
        subprocess.run(["sh", str(ROOT / "bench" / "peers.sh")], check=True)
    bench = Bench(folder, days)
    for name in only:
        console.rule(f"{name}: {(SECTIONS[name].__doc__ or '').splitlines()[0]}")
        save(name, list(SECTIONS[name](bench)))
    show(console)
    figure.draw(kept(), ROOT / "docs" / "bench.png")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="*", choices=list(SECTIONS), default=list(SECTIONS)[:-1])
    parser.add_argument("--days", type=int, default=16387)
    parser.add_argument("--folder", type=Path, default=ROOT / "bench" / "work")
    options = parser.parse_args()
    main(options.only, options.days, options.folder)
