"""Jobs on a cluster parse the Snakefile again, and list no archive for that."""

from __future__ import annotations

import os
from pathlib import Path

from workflow.project import Project
from workflow.watch import Watch

PLUGINS = Path(__file__).parent / "plugins"


def test_a_listing_is_made_once_per_run_also_under_a_cluster_executor(
    project: Project,
) -> None:
    project.add(0, 1, 2)
    project.environment = {
        **project.environment,
        "PYTHONPATH": os.pathsep.join(
            [str(PLUGINS), *filter(None, [os.environ.get("PYTHONPATH")])]
        ),
    }
    with Watch(project.archive) as watch:
        run = project.run(
            "--executor", "neighbour", "--jobs", "2", "--seconds-between-status-checks", "1",
            "results/demo/store/receipt.json",
        )  # fmt: skip
    assert run.jobs["scan"] >= 1
    assert run.output.count("neighbour") >= 1
    assert watch.listed == 1
    assert set(watch.opened) == {project.path(day).name for day in range(3)}
