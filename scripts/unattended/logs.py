"""One log a run, the newest thirty kept."""

from __future__ import annotations

import time
from pathlib import Path

FOLDER = Path("logs/daily")
KEEP = 30


def fresh(folder: Path = FOLDER, keep: int = KEEP) -> Path:
    """A new, empty log named by the time in UTC; of the older ones the newest ``keep - 1`` stay."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / time.strftime("%Y%m%dT%H%M%SZ.log", time.gmtime())
    path.touch()
    for old in sorted(folder.glob("*Z.log"))[:-keep]:
        old.unlink()
    return path
