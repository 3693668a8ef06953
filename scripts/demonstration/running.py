"""The workflow run as a user runs it, and what it said of itself."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

from rich.console import Console

from byterefs.errors import ByteRefsError

RESULTS = Path("results/demo")
LOGS = Path("logs/demo")
DONE = re.compile(r"(\d+) of (\d+) steps \(\d+%\) done")
TAIL = 40


class Run(NamedTuple):
    """One run of the workflow."""

    jobs: int
    """that Snakemake counts as done"""
    sources_opened: int
    """as the scan jobs of this run logged them"""
    rows: int
    """of all refs_<array> together, once it was through"""
    seconds: float


def snakemake(cores: int, log: Path, console: Console) -> Run:
    """Run the workflow on the demo's dataset, all its words in ``log``.

    Prints the end of the log and raises ByteRefsError where a step fails.
    """
    started = time.time()
    # whichever datasets config/config.yaml lists at the moment
    command = ["snakemake", "--cores", str(cores), "--config", "datasets=[demo]"]
    jobs = 0
    log.parent.mkdir(parents=True, exist_ok=True)
    with (
        log.open("w", encoding="utf-8") as words,
        console.status("Snakemake starts") as status,
        subprocess.Popen(
            [sys.executable, "-m", *command],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            text=True,
        ) as process,
    ):
        for line in process.stdout or ():
            words.write(line)
            if done := DONE.match(line):
                jobs = int(done[1])
                status.update(f"{jobs} of {done[2]} jobs done")
    if process.returncode:
        print(*log.read_text().splitlines()[-TAIL:], sep="\n", file=sys.stderr)
        raise ByteRefsError(
            f"`{' '.join(command)}` ended with exit code {process.returncode}; its last {TAIL} lines "
            f"are above, all of them in {log}; the reason: {blamed(log.read_text())}"
        )
    return Run(jobs, opened_since(started), rows(), round(time.time() - started, 1))


def blamed(words: str) -> str:
    """The last line of the log of the first job that failed, or else Snakemake's own."""
    found = re.search(r"log: (\S+) \(check log file", words)
    said = Path(found[1]).read_text() if found and Path(found[1]).exists() else words
    return next((line.strip() for line in reversed(said.splitlines()) if line.strip()), "no word")


def opened_since(started: float) -> int:
    """Sources that scan jobs have opened since a time, by their logs."""
    logs = [log for log in (LOGS / "scan").glob("*.log") if log.stat().st_mtime >= started]
    return sum(int(n) for log in logs for n in re.findall(r"(?m)^sources: (\d+)$", log.read_text()))


def rows() -> int:
    """Rows of the view, by its receipt."""
    return int(json.loads((RESULTS / "view/receipt.json").read_text())["counts"]["rows"])
