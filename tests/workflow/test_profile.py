"""What `profiles/default` may say, and what it must leave to the people who run the workflow."""

from __future__ import annotations

from pathlib import Path

import yaml

from workflow.project import Project

ROOT = Path(__file__).parents[2]


def test_the_default_profile_says_nothing_about_where_or_how_many() -> None:
    (profile,) = (ROOT / "profiles" / "default").iterdir()
    assert set(yaml.safe_load(profile.read_text())) == {
        "rerun-triggers",
        "rerun-incomplete",
        "scheduler",
        "printshellcmds",
    }


def test_cores_and_resources_of_the_command_line_are_the_effective_ones(project: Project) -> None:
    project.add(0)
    profile = project.root / "site"
    profile.mkdir()
    (profile / "profile.v9+.yaml").write_text(
        "default-resources:\n  disk_mb: 123\nset-resources:\n  scan:\n    mem_mb: 777\n"
    )
    run = project.run("--profile", "site", "results/demo/store/receipt.json")
    assert "Provided cores: 2" in run.output
    scan = run.output.split("rule scan:")[1].split("Shell command")[0]
    assert "mem_mb=777" in scan
    assert "disk_mb=123" in scan
    assert "runtime=30" in scan


def test_the_other_profiles_say_nothing_that_the_default_one_would_override() -> None:
    keys = {
        folder.name: set(yaml.safe_load(next(folder.iterdir()).read_text()))
        for folder in (ROOT / "profiles").iterdir()
    }
    default = keys.pop("default")
    assert {"slurm"} <= keys.keys()
    assert {name: default & others for name, others in keys.items() if default & others} == {}


def test_the_slurm_profile_is_found_by_its_name() -> None:
    link = ROOT / "slurm"
    assert link.is_symlink()
    assert link.resolve() == ROOT / "profiles" / "slurm"


def test_the_cut_of_the_work_is_no_reason_to_do_it_again(project: Project) -> None:
    project.add(0, 1)
    project.run("results/demo/store/receipt.json")
    again = project.run("results/demo/store/receipt.json", "--set-resources", "discover:batch=1")
    assert not again.jobs
