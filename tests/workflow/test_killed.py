"""SIGKILL of the whole process group in scan, in store and in emit, then the documented command again."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from workflow.project import ENVIRONMENT, Project

DAILY = [sys.executable, "scripts/daily.py"]
DAYS = range(24)


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A build that nobody disturbed, of four batches."""
    project = Project(
        tmp_path_factory.mktemp("clean"), scan__batch=8, emit={"vrt": {}, "sqlite": {}}
    )
    project.add(*DAYS)
    project.run()
    project.assert_published(*DAYS)
    return project


def reached_scan(project: Project) -> bool:
    return any(project.results.glob("scan/*.sqlite"))


def reached_store(project: Project) -> bool:
    return any(project.results.glob("store/store.sqlite*"))


def reached_emit(project: Project) -> bool:
    return any(project.results.glob("emit/access/*/*"))


STAGES: Mapping[str, tuple[Callable[[Project], bool], str]] = {
    "scan": (reached_scan, "store/receipt.json"),
    "store": (reached_store, "store/receipt.json"),
    "emit": (reached_emit, "verify/access/sqlite.json"),
}


@pytest.mark.parametrize("stage", STAGES)
def test_a_run_that_was_killed_is_taken_up_by_the_same_command_with_the_same_result(
    clean: Project, tmp_path: Path, stage: str
) -> None:
    reached, unfinished = STAGES[stage]
    project = Project(tmp_path, **clean.config)
    project.configure(source__path=str(clean.archive))
    project.command = lambda *arguments: [*DAILY, "--cores", "2", *arguments]
    project.killed(lambda: reached(project))
    assert not (project.results / unfinished).exists()
    finished = len(list(project.results.glob("scan/*.sqlite")))
    again = project.run()
    if stage != "emit":
        batches = len(clean.receipt("discover/receipt.json")["batches"])
        assert batches >= 4
        assert again.jobs["scan"] == batches - finished
    assert project.tree() == clean.tree()


def test_a_second_run_beside_one_that_is_at_work_leaves_with_75(clean: Project) -> None:
    lock = clean.results / ".lock"
    hold = "import sys; from pathlib import Path; from byterefs import locks\n"
    hold += "with locks.held([Path(sys.argv[1])]): print('held', flush=True); input()"
    environment = {**ENVIRONMENT, "PYTHONPATH": str(clean.root / "scripts")}
    with subprocess.Popen(
        [sys.executable, "-c", hold, str(lock)], env=environment, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    ) as holder:  # fmt: skip
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        done = subprocess.run(
            DAILY, cwd=clean.root, env=ENVIRONMENT, capture_output=True, text=True
        )
        assert done.returncode == 75
        assert "another run of this dataset is at work" in done.stderr
        holder.communicate("\n")
    assert (
        subprocess.run(
            [*DAILY, "--cores", "2", "-n"], cwd=clean.root, env=ENVIRONMENT, check=False
        ).returncode
        == 0
    )
