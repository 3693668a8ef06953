"""SIGKILL again and again, at seeded moments of every stage: what is published in the end is what it would have been."""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from workflow.project import Project

FORMS = ("sqlite", "vrt", "parquet", "kerchunk")
STAGES = ("discover", "scan", "store", "plan", "view", "emit", "verify", "sync", "register")
COMMAND = [sys.executable, "scripts/daily.py", "--cores", "2"]
LONGEST = 0.4
"""seconds that a stage may go on after its start, at most"""


def began(project: Project, stage: str, since: float, wait: float) -> Callable[[], bool]:
    """Whether a job of a stage has begun, and ``wait`` seconds have passed since."""
    seen: list[float] = []

    def reached() -> bool:
        if not seen and any(
            log.stat().st_mtime >= since
            for log in (project.root / "logs" / "demo" / stage).rglob("*.log")
        ):
            seen.append(time.monotonic())
        return bool(seen) and time.monotonic() - seen[0] >= wait

    return reached


def harass(project: Project, stages: Sequence[str], days: int, seed: int) -> int:
    """One run per stage, each killed as a whole in it; how many days there are in the end.

    Where a run came to its end before, another day arrives.
    """
    rng = random.Random(seed)
    for stage in stages:
        wait = rng.uniform(0, LONGEST)
        if not project.killed_if(began(project, stage, time.time(), wait)):
            project.add(days)
            days += 1
    return days


def compare(
    tmp_path: Path, days: int, stages: Sequence[str], seed: int, forms: Sequence[str] = FORMS
) -> tuple[Project, Project]:
    """Build ``days`` and what arrives meanwhile under kills, and compare with a build in peace."""
    project = Project(
        tmp_path / "harassed",
        scan__batch=max(1, days // 4),
        emit={form: {} for form in forms},
        sync=[{"name": "here", "to": "published"}],
    )
    project.command = lambda *arguments: [*COMMAND, *arguments]
    project.add(*range(days))
    days = harass(project, stages, days, seed)
    project.run()
    project.assert_published(*range(days))
    peaceful = Project(tmp_path / "peaceful", **project.config)
    peaceful.configure(source__path=str(project.archive))
    peaceful.stage_by_stage()
    assert project.tree() == peaceful.tree()
    assert not list(project.results.rglob(".*.part*"))
    # a kill between the job of `store` and Snakemake's removal of its inputs leaves them until the next `discover`
    pending = project.receipt("discover/receipt.json")["batches"]
    assert {path.stem for path in project.results.glob("scan/*")} <= pending.keys()
    return project, peaceful


def public(project: Project) -> dict[str, bytes]:
    """Every file that is published, but for versions that are kept beside the newest one, and addresses in Parquet."""
    root = project.root / "published"
    newest = json.loads((root / "latest.json").read_text())["version"]
    files = {p.relative_to(root).as_posix(): p for p in root.rglob("*") if p.is_file()}
    return {
        name: p.read_bytes().replace(str(root).encode(), b"ROOT")
        for name, p in sorted(files.items())
        if (not name.startswith("v/") or name.startswith(f"v/{newest}/")) and name != "sds.parquet"
    }


def test_a_build_killed_in_plan_and_in_verify_publishes_the_same_bytes(tmp_path: Path) -> None:
    compare(tmp_path, 12, ("plan", "verify"), seed=20261130, forms=["sqlite", "vrt"])


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(3))
def test_a_build_killed_in_every_stage_publishes_the_same_bytes(tmp_path: Path, seed: int) -> None:
    order = list(STAGES)
    random.Random(seed).shuffle(order)
    project, peaceful = compare(tmp_path, 400, [*STAGES, *order], seed)
    peaceful.run()
    held = public(project)
    assert {"latest.json", "index.html", "sds.csv"} <= held.keys()
    assert held == public(peaceful)
