"""Build or update every dataset: `snakemake` behind our own lock, for hands and for cron.

    python scripts/daily.py [arguments of snakemake; none means --cores 2]
    python scripts/daily.py --cron [arguments of snakemake; none means --profile profiles/cron]

A run that was killed leaves Snakemake's lock, and on a cluster its jobs, and the next one would stop
or write beside them. This one removes the lock and cancels the jobs if, and only if, the run that
left them is proven dead. It leaves with snakemake's exit code, or with 75 if another run of one of
the datasets is at work. Of a TERM it makes an INT, so that Snakemake cancels its jobs, and a KILL
two minutes later.

With --cron it prints nothing where nothing is new; else what arrived, what was verified and what was
published. If something failed, one line on stderr says what. All that snakemake printed is kept in
logs/daily, for the last thirty runs.
"""

import signal
import subprocess
import sys
import time
from collections.abc import Collection
from pathlib import Path
from typing import TextIO

from byterefs import locks
from byterefs.config import load_datasets, read
from byterefs.errors import ByteRefsError
from unattended import failures, logs, orphans, summary

SNAKEMAKE = [sys.executable, "-m", "snakemake"]
GRACE = 120
"""Seconds between INT and KILL."""


def main(arguments: list[str]) -> int:
    """Run snakemake in the working directory, unlocked where that is safe; its exit code."""
    settings = Path("config/config.yaml")
    datasets = load_datasets(read(settings), str(settings))
    with locks.held(Path("results", name, ".lock") for name in datasets) as held:
        if arguments[:1] == ["--cron"]:
            return cron(arguments[1:] or ["--profile", "profiles/cron"], held, datasets)
        return run(arguments or ["--cores", "2"], held)


def cron(arguments: list[str], held: locks.Locks, datasets: Collection[str]) -> int:
    """Run snakemake with its words in a log, and say in a few lines what it did."""
    log, begun = logs.fresh(), time.monotonic()
    since = log.stat().st_mtime
    with log.open("w") as words:
        code = run(arguments, held, words)
    if code:
        print(f"byterefs: {failures.line(log.read_text())}; all of it: {log}", file=sys.stderr)
    if lines := summary.news(datasets, since):
        print(*lines, f"{time.monotonic() - begun:.0f} seconds, log {log}", sep="\n")
    return code


def run(arguments: list[str], held: locks.Locks, words: TextIO | None = None) -> int:
    """Run snakemake to its end; its exit code, 128 and the signal's number if a signal ended it."""
    if held.abandoned:
        orphans.cancel(Path.cwd())
        if any(Path(".snakemake/locks").glob("*")):
            unlock = [*SNAKEMAKE, "--cores", "1", "--unlock"]
            subprocess.run(unlock, stdout=words, stderr=words, check=True)
    process = subprocess.Popen([*SNAKEMAKE, *arguments], stdout=words, stderr=words)
    held.name(locks.owner(process.pid))
    # the terminal sends Ctrl-C to both; a plain TERM can hang Snakemake's scheduler
    signal.signal(signal.SIGINT, lambda *_: None)
    signal.signal(signal.SIGTERM, lambda *_: stop(process))
    signal.signal(signal.SIGALRM, lambda *_: process.kill())
    code = process.wait()
    signal.alarm(0)
    if code < 0:
        held.leave()
    return code if code >= 0 else 128 - code


def stop(process: subprocess.Popen[bytes]) -> None:
    """Ask snakemake to end, and see that it does."""
    process.send_signal(signal.SIGINT)
    signal.alarm(GRACE)


if __name__ == "__main__":
    if sys.argv[1:2] in (["-h"], ["--help"]):
        sys.exit(print(__doc__))
    try:
        code = main(sys.argv[1:])
    except locks.Busy as busy:
        print(busy, file=sys.stderr)
        code = 75
    except ByteRefsError as error:
        print(error, file=sys.stderr)
        code = 1
    sys.exit(code)
