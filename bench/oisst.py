"""OISST at full length: first build, rerun, one new day, each as a user runs it.

    python bench/oisst.py [--days 16387] [--folder bench/work/oisst] [--full]

Writes the archive once (it is kept), builds all five forms from nothing through Snakemake, runs
again with nothing new, lets one day arrive, and prints seconds, jobs and files opened.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import archive
import yaml
from measuring import ROOT
from rich.console import Console
from rich.table import Table

PATTERN = r"oisst-avhrr-v02r01\.(?P<date>\d{8})(?P<status>_preliminary)?\.nc$"
DONE = re.compile(r"(\d+) of \d+ steps \(\d+%\) done")


def settle(folder: Path, full: bool) -> None:
    """Configs of the bench in ``folder``, and no results."""
    for stale in ("results", "logs", ".snakemake"):
        shutil.rmtree(folder / stale, ignore_errors=True)
    dataset = {
        "dataset": "oisst",
        "source": {"provider": "local", "path": "present", "pattern": PATTERN},
        "select": {"slot": ["date"], "prefer": {"status": ["", "_preliminary"]}},
        "scan": {"arrays": list(archive.ARRAYS), "batch": 1024},
        "plan": {"concat": "time"},
        "emit": {form: {} for form in ("sqlite", "vrt", "parquet", "kerchunk", "icechunk")},
        "verify": {"full": True} if full else {"new": "sample"},
    }
    (folder / "config" / "datasets").mkdir(parents=True, exist_ok=True)
    (folder / "config" / "config.yaml").write_text("datasets: [oisst]\n")
    (folder / "config" / "datasets" / "oisst.yaml").write_text(yaml.safe_dump(dataset))


def snakemake(folder: Path, what: str) -> dict[str, Any]:
    """One run of the workflow: seconds, jobs and the files that scan opened."""
    before = opened(folder)
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    command = [
        sys.executable,
        "-m",
        "snakemake",
        "--cores",
        "2",
        "--snakefile",
        str(ROOT / "Snakefile"),
    ]
    started, used = time.monotonic(), processor()
    done = subprocess.run(
        [*command, "--directory", str(folder)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    seconds = time.monotonic() - started
    output = done.stdout + done.stderr
    if done.returncode:
        raise SystemExit(f"{what}: snakemake failed\n{output[-4000:]}")
    jobs = max((int(n) for n in DONE.findall(output)), default=0)
    return {
        "run": what,
        "seconds": round(seconds, 1),
        "cpu": round(processor() - used, 1),
        "jobs": jobs,
        "opened": opened(folder) - before,
    }


def processor() -> float:
    """Processor seconds, user and system, of every process that was started here and has ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def link(folder: Path, days: range) -> None:
    """Let granules of the archive be present."""
    for day in days:
        path = folder / "present" / archive.name(day)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.hardlink_to(folder / "archive" / archive.name(day))


def opened(folder: Path) -> int:
    """Sources that scan jobs have logged so far."""
    logs = (folder / "logs" / "oisst" / "scan").glob("*.log")
    return sum(
        int(n) for log in logs for n in re.findall(r"^sources: (\d+)", log.read_text(), re.M)
    )


def main(days: int, folder: Path, full: bool, more: bool = False) -> list[dict[str, Any]]:
    """Run the bench and write ``oisst.json`` into ``folder``; gives back its runs.

    With ``more`` the days are those that an earlier call built, and one more arrives.

    The archive is kept whole; the workflow's own view of it, ``days`` long, is made of links.
    """
    folder = folder.absolute()
    console = Console()
    written = archive.extend(folder / "archive", range(days + 1))
    console.print(f"{folder}/archive: {days} daily granules, {written} of them written now")
    runs = []
    if not more:
        settle(folder, full)
        shutil.rmtree(folder / "present", ignore_errors=True)
        link(folder, range(days))
        runs = [snakemake(folder, "first build"), snakemake(folder, "nothing new")]
    if not full:  # with `verify: full` a new day verifies everything again
        link(folder, range(days, days + 1))
        runs += [snakemake(folder, "one new day"), snakemake(folder, "nothing new")]
    table = Table(
        "run", "seconds", "processor", "jobs", "opened by scan", title=f"{days} days, five forms"
    )
    for run in runs:
        table.add_row(*(str(run[k]) for k in ("run", "seconds", "cpu", "jobs", "opened")))
    console.print(table)
    (folder / "oisst.json").write_text(
        json.dumps({"days": days, "full": full, "runs": runs}, indent=1)
    )
    return runs


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--days", type=int, default=16387)
    parser.add_argument("--folder", type=Path, default=ROOT / "bench" / "work" / "oisst")
    parser.add_argument("--full", action="store_true", help="verify every chunk of every form")
    parser.add_argument("--more", action="store_true", help="one more day on DAYS that are built")
    options = parser.parse_args()
    main(options.days, options.folder, options.full, options.more)
