"""Programs that tests need and Debian has."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence


def install(what: str, packages: Sequence[str]) -> None:
    """Install packages; RuntimeError where that cannot be."""
    names = " ".join(packages)
    if os.geteuid() or not shutil.which("apt-get"):
        raise RuntimeError(f"{what} is missing, and only root on Debian can install {names}")
    # one at a time over the machine: tests of several files install packages
    script = (
        "exec 9>/run/byterefs-apt.lock; flock 9; apt-get update -qq && DEBIAN_FRONTEND=noninteractive "
        f"apt-get -o DPkg::Lock::Timeout=300 install -y -qq --no-install-recommends {names}"
    )
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{what} cannot be installed: {done.stderr[-500:]}")
