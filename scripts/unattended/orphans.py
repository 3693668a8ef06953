"""Slurm jobs that outlive their run: it was killed, they write on."""

from __future__ import annotations

import shutil
import subprocess
import time
from pathlib import Path

from byterefs.errors import ByteRefsError

PREFIX = "byterefs_"
"""`slurm-jobname-prefix` of profiles/slurm, as Snakemake's plugin joins it."""


def cancel(folder: Path, patience: float = 120) -> list[str]:
    """Cancel the jobs that a run in ``folder`` left, and wait until they are gone; gives back their ids.

    Raises ByteRefsError if one of them is still there after ``patience`` seconds.
    """
    jobs = left(folder)
    if jobs:
        subprocess.run(["scancel", *jobs], check=True)
    until = time.monotonic() + patience
    while jobs and (still := left(folder)):
        if time.monotonic() > until:
            raise ByteRefsError(
                f"{folder}: Slurm job {still[0]} of a run that was killed does not end; see `scontrol show job "
                f"{still[0]}`, and run again when it is gone"
            )
        time.sleep(1)
    return jobs


def left(folder: Path) -> list[str]:
    """Ids of the jobs of runs in ``folder`` that wait or run."""
    if not shutil.which("squeue"):
        return []
    command = ["squeue", "--me", "--noheader", "--format=%i|%j|%Z"]
    # a cluster that does not answer takes no new job either, so the run fails and harms nothing
    listed = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    jobs = (line.split("|") for line in listed.splitlines())
    return [
        number for number, name, place in jobs if name.startswith(PREFIX) and place == str(folder)
    ]
