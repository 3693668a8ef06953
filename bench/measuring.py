"""What a process costs, and what it writes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "scripts"))


class Cost(NamedTuple):
    """One process, its start among it."""

    seconds: float
    cpu: float
    """processor seconds, user and system"""
    mb: int
    """peak memory"""


def process(command: list[str], folder: Path, **environment: str) -> Cost:
    """Run a command in ``folder``; SystemExit with its last words if it fails."""
    started = time.monotonic()
    done = subprocess.Popen(
        command,
        cwd=folder,
        env={**os.environ, **environment},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    words = done.stderr.read() if done.stderr else ""
    _, status, usage = os.wait4(done.pid, 0)
    seconds = time.monotonic() - started
    if status:
        raise SystemExit(f"{' '.join(command)[:300]}\n{words[-4000:]}")
    return Cost(
        round(seconds, 2), round(usage.ru_utime + usage.ru_stime, 2), usage.ru_maxrss // 1024
    )


def script(stage: str, folder: Path, **arguments: Any) -> Cost:
    """One stage's script, as a rule runs it: keyword arguments as options, mappings as JSON."""
    command = [sys.executable, str(ROOT / "scripts" / f"{stage}.py")]
    for name, value in arguments.items():
        option = f"--{name.replace('_', '-')}"
        if isinstance(value, Mapping):
            command += [option, json.dumps(value)]
        elif isinstance(value, list):
            command += [option, *map(str, value)] if value else []
        else:
            command += [option, str(value)]
    return process(command, folder)


def inodes(folder: Path) -> dict[str, tuple[int, int, int]]:
    """Every file below ``folder``: path -> (inode, mtime in ns, bytes)."""
    found = {}
    for path in folder.rglob("*"):
        if path.is_file():
            stat = path.stat()
            found[str(path.relative_to(folder))] = (stat.st_ino, stat.st_mtime_ns, stat.st_size)
    return found


def rewritten(
    before: Mapping[str, tuple[int, int, int]], after: Mapping[str, tuple[int, int, int]]
) -> int:
    """Bytes of the files that are new or were replaced."""
    return sum(stat[2] for name, stat in after.items() if before.get(name) != stat)


def machine() -> dict[str, Any]:
    """Processors and memory of this machine."""
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    model = next(
        (
            line.split(":")[1].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ),
        "unknown",
    )
    return {"cores": os.cpu_count(), "memory_gb": round(pages / 2**30), "processor": model}
