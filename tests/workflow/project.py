"""A project in a temporary folder, run as people run it: the repository's own files, `snakemake`."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from osgeo import gdal

import granules
from byterefs import config as configs
from byterefs import discover, stages
from byterefs.scan import scan_batch

ROOT = Path(__file__).parents[2]
SNAKEMAKE = [sys.executable, "-m", "snakemake", "--cores", "2"]
PATTERN = r"oisst\.(?P<date>\d{8})(?P<status>_preliminary)?\.nc$"
FIRST = date(2020, 1, 1)
SHAPE = (6, 8)


# compiled once: a start of snakemake costs three times as much without
ENVIRONMENT = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}

gdal.UseExceptions()


@dataclass(frozen=True)
class Run:
    """What one call of snakemake did."""

    code: int
    output: str
    jobs: Counter[str] = field(default_factory=Counter)
    """rule to number of jobs that were started"""

    @property
    def said(self) -> str:
        """The output in one line, for sentences that a terminal would wrap."""
        return " ".join(self.output.split())


class Project:
    """A working directory with the repository's workflow, one dataset and its archive."""

    def __init__(self, root: Path, **changes: Any) -> None:
        self.root = root
        self.environment = dict(ENVIRONMENT)
        self.timeout = 300  # seconds
        self.archive = root / "archive" / "demo"
        self.results = root / "results" / "demo"
        self.archive.mkdir(parents=True)
        for name in ("rules", "profiles", "envs", "scripts"):
            shutil.copytree(ROOT / name, root / name, ignore=shutil.ignore_patterns("byterefs"))
        shutil.copy(ROOT / "Snakefile", root)
        (root / "scripts" / "byterefs").symlink_to(ROOT / "scripts" / "byterefs")
        (root / "config" / "datasets").mkdir(parents=True)
        (root / "config" / "config.yaml").write_text("datasets: [demo]\n")
        self.config: dict[str, Any] = {
            "dataset": "demo",
            "source": {"provider": "local", "path": "archive/demo", "pattern": PATTERN},
            "select": {"slot": ["date"], "prefer": {"status": ["", "_preliminary"]}},
            "scan": {"arrays": ["sst"]},
            "plan": {"concat": "time"},
            "emit": {"vrt": {}},
            "register": {"report": False},  # a second of every run; tests/workflow/test_report.py
        }
        self.configure(**changes)

    def configure(self, **changes: Any) -> None:
        """Replace keys of the dataset's config; ``scan__batch`` is the key `batch` of `scan`."""
        for key, value in changes.items():
            *down, last = key.split("__")
            place = self.config
            for step in down:
                place = place.setdefault(step, {})
            place[last] = value
        path = self.root / "config" / "datasets" / "demo.yaml"
        path.write_text(yaml.safe_dump(self.config, sort_keys=False))

    def path(self, day: int, status: str = "") -> Path:
        """Where the granule of a day lies; days count from the first of January 2020."""
        return self.archive / f"oisst.{FIRST + timedelta(day):%Y%m%d}{status}.nc"

    def add(self, *days: int, status: str = "", **options: Any) -> None:
        """Write the granule of each day: six rows of eight columns, one array."""
        options = {"shape": SHAPE, "arrays": ("sst",), **options}
        for day in days:
            granules.oisst(self.path(day, status), FIRST + timedelta(day), **options)

    def command(self, *arguments: str) -> list[str]:
        return [*SNAKEMAKE, *arguments]

    def run(self, *arguments: str, ok: bool = True) -> Run:
        """Run the documented command to its end."""
        done = subprocess.run(
            self.command(*arguments), cwd=self.root, env=self.environment, text=True, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=self.timeout,
        )  # fmt: skip
        started = re.findall(r"^(?:local)?(?:rule|checkpoint) (\w+):$", done.stdout, re.M)
        assert (done.returncode == 0) is ok, done.stdout
        return Run(done.returncode, done.stdout, Counter(started))

    def stage_by_stage(self) -> None:
        """What the scripts of the stages do, up to the forms, in this process and without Snakemake.

        A tenth of the time of a run, since nothing is imported anew.
        """
        with contextlib.chdir(self.root):
            config = configs.load(Path("config/datasets/demo.yaml"))
        discover.refresh(config, self.results)
        store, found = self.results / "store/store.sqlite", self.results / "discover/receipt.json"
        listing = self.results / "discover/listing.json"
        discover.discover(listing, found, store, config, allow_removal=False)
        scans = []
        for batch in self.receipt("discover/receipt.json")["batches"]:
            scans.append(self.results / "scan" / f"{batch}.sqlite")
            scan_batch(
                found, batch, scans[-1], scan=config["scan"], concat=config["plan"]["concat"]
            )
        stages.update_store(found, scans, store, self.results / "store/receipt.json")
        for scan in scans:
            scan.unlink()
        stages.make_plan(store, self.results / "plan/receipt.json", config)
        stages.look(store, self.results / "view/receipt.json")
        for form, options in config["emit"].items():
            receipt = self.results / "emit/access" / f"{form}.receipt.json"
            stages.emit(store, receipt, "access", form, options)

    def killed(self, reached: Callable[[], bool], *arguments: str) -> None:
        """Start the command and end its whole process group with SIGKILL once ``reached`` holds."""
        assert self.killed_if(reached, *arguments), (self.root / "killed.log").read_text()

    def killed_if(self, reached: Callable[[], bool], *arguments: str) -> bool:
        """The same; False where the command came to its end before."""
        with (self.root / "killed.log").open("w") as log:
            process = subprocess.Popen(
                self.command(*arguments), cwd=self.root, env=self.environment, stdin=subprocess.DEVNULL, stdout=log,
                stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
            until = time.monotonic() + 120
            while not reached() and process.poll() is None and time.monotonic() < until:
                time.sleep(0.002)
            if process.poll() is not None:
                return False
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            return True

    def published(self) -> dict[int, np.ndarray]:
        """Day to stored values of ``sst``, as GDAL reads the published VRT."""
        path = next((self.results / "emit/access/vrt").glob("*.vrt"))
        dataset = gdal.OpenEx(str(path), gdal.OF_MULTIDIM_RASTER)
        group = dataset.GetRootGroup()
        times = group.OpenMDArray("time").ReadAsArray()
        values = group.OpenMDArray("sst").ReadAsArray()
        start = (FIRST - granules.EPOCH).days
        return {round(time) - start: value for time, value in zip(times, values, strict=True)}

    def assert_published(self, *days: int, seeds: Mapping[int, int] | None = None) -> None:
        """The VRT holds exactly these days in this order, each as its granule's writer wrote it.

        ``seeds`` are those of granules that were not written with seed 0.
        """
        found = self.published()
        assert list(found) == sorted(days)
        for day in days:
            date_, seed = FIRST + timedelta(day), (seeds or {}).get(day, 0)
            wanted = granules.packed(date_, "sst", (1, 1, *SHAPE), seed)[0]
            np.testing.assert_array_equal(found[day], wanted)

    def receipt(self, path: str) -> dict[str, Any]:
        """The content of a receipt below the dataset's results."""
        content: dict[str, Any] = json.loads((self.results / path).read_text())
        return content

    def tree(self, below: str = "emit") -> Mapping[str, bytes]:
        """Every file of the results below a folder, without receipts and private states."""
        root = self.results / below
        files = (p for p in sorted(root.rglob("*")) if p.is_file() and p.parent != root)
        return {
            p.relative_to(root).as_posix(): p.read_bytes()
            for p in files
            if not p.name.endswith((".receipt.json", ".state.json"))
        }
