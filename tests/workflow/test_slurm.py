"""`snakemake --profile slurm` on a cluster of this one machine, which `tests/slurm/up.sh` starts."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from unattended import orphans
from workflow.project import ROOT, Project, Run

SCRIPTS = ROOT / "tests" / "slurm"
CONF = Path("/etc/slurm/slurm.conf")
FORMS = ("sqlite", "vrt", "parquet", "kerchunk")
BATCH = 5
BY_SLURM = [sys.executable, "-m", "snakemake", "--profile", "slurm"]


class Job(NamedTuple):
    """What slurmctld knows of a job."""

    id: int
    state: str
    what: str
    """comment of Snakemake: the rule and its wildcards, or the group"""
    memory: str
    limit: str


def records(project: Project) -> list[Job]:
    """The jobs of a project, in the order of their submission."""
    listed = subprocess.run(
        ["squeue", "--states=all", "--noheader", "--format=%i|%T|%k|%m|%l|%j|%Z"],
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    jobs = [line.split("|") for line in listed.splitlines()]
    return sorted(
        Job(int(number), *rest)
        for number, *rest, name, folder in jobs
        if name.startswith("byterefs_") and folder == str(project.root)
    )


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Up for the tests of this module; afterwards nothing of it runs, and its configuration is gone."""
    if os.geteuid() != 0:
        pytest.skip("a Slurm cluster can be started by root only")
    if not (shutil.which("slurmctld") or shutil.which("apt-get")):
        pytest.skip("Slurm is not installed, and there is no apt-get to install it")
    folder = tmp_path_factory.mktemp("cluster")
    until = time.monotonic() + 900
    while (up := script("up.sh", folder)).returncode == 75 and time.monotonic() < until:
        time.sleep(5)
    try:
        assert up.returncode == 0, up.stderr
        yield
    finally:
        down = script("down.sh", folder)
    assert (down.returncode, down.stderr) == (0, "")
    assert [p for p in folder.glob("*.pid") if Path("/proc", p.read_text().strip()).exists()] == []
    assert not CONF.exists()


def script(name: str, folder: Path) -> subprocess.CompletedProcess[str]:
    # a file, not a pipe: daemons keep what they inherit open
    with (folder / "said").open("w+") as said:
        done = subprocess.run(["sh", SCRIPTS / name, folder], stdout=said, stderr=said)
        said.seek(0)
        return subprocess.CompletedProcess(done.args, done.returncode, "", said.read())


@pytest.fixture(scope="module")
def built(cluster: None, tmp_path_factory: pytest.TempPathFactory) -> tuple[Project, Run]:
    """A dataset of six days, built by the documented command."""
    project = Project(
        tmp_path_factory.mktemp("project"),
        emit={form: {} for form in FORMS},
        sync=[{"name": "here", "to": "published"}],
    )
    prepare(project)
    project.add(*range(6))
    return project, by_slurm(project)


def prepare(project: Project, batch: int = BATCH) -> None:
    """Make the profile that of this cluster."""
    project.timeout = 900
    (project.root / "slurm").symlink_to("profiles/slurm")
    edit(project, "# slurm-status-command", "slurm-status-command")  # there is no accounting
    edit(project, "checks: 20", "checks: 12")  # a job is nine seconds, and a late look ten more
    edit(project, "batch: 256", f"batch: {batch}")


def edit(project: Project, old: str, new: str) -> None:
    """Change the project's profile, as people do for their cluster."""
    profile = next((project.root / "profiles" / "slurm").iterdir())
    text = profile.read_text()
    assert text.count(old) == 1
    profile.write_text(text.replace(old, new))


def by_slurm(project: Project, *arguments: str) -> Run:
    local = project.command
    project.command = lambda *more: [*BY_SLURM, *more]
    try:
        return project.run(*arguments)
    finally:
        project.command = local


def test_every_stage_but_discover_and_sync_ran_as_a_slurm_job(built: tuple[Project, Run]) -> None:
    project, run = built
    jobs = records(project)
    assert {job.state for job in jobs} == {"COMPLETED"}
    batches = project.receipt("discover/receipt.json")["batches"]
    assert len(batches) >= 2
    assert max(map(len, batches.values())) <= BATCH
    what = Counter(job.what.split("_wildcards_")[0] for job in jobs)
    assert what == {
        "rule_scan": len(batches),
        "rule_store": 1,
        "rule_plan": 1,
        "rule_view": 1,
        "rule_emit": len(FORMS),
        "rule_verify": len(FORMS),
    }
    assert "localrule sync:" in run.output
    assert (project.root / "published/latest.json").exists()


def test_the_forms_equal_those_of_a_build_without_slurm(
    built: tuple[Project, Run], tmp_path: Path
) -> None:
    project, _ = built
    project.assert_published(*range(6))
    assert project.tree() == of_one_process(project, tmp_path).tree()
    assert {path.split("/")[1] for path in project.tree()} == set(FORMS)


def of_one_process(project: Project, root: Path) -> Project:
    """Another project of the same archive, built here and now."""
    other = Project(root, **project.config)
    other.configure(source__path=str(project.archive))
    other.stage_by_stage()
    return other


def test_a_second_run_starts_no_job(built: tuple[Project, Run]) -> None:
    project, _ = built
    before = records(project)
    again = by_slurm(project)
    assert not again.jobs
    assert "Nothing to be done" in again.output
    assert not project.run().jobs  # nor one without Slurm
    assert records(project) == before


def test_a_new_day_is_one_scan_job_that_gets_more_where_memory_runs_out(
    built: tuple[Project, Run], tmp_path: Path
) -> None:
    project, _ = built
    before = len(records(project))
    edit(
        project, "set-resources:", "set-resources:\n  scan:\n    mem_mb: 100 * 10 ** (attempt - 1)"
    )
    project.add(6)
    run = by_slurm(project, "results/demo/store/receipt.json")
    first, second, store = records(project)[before:]
    assert first.what == second.what
    assert first.what.startswith("rule_scan_")
    assert (first.state, first.memory, first.limit) == ("FAILED", "100M", "30:00")
    assert (second.state, second.memory, second.limit) == ("COMPLETED", "1000M", "1:00:00")
    assert store.what.startswith("rule_store_")
    assert "Trying to restart job" in run.output
    counts = project.receipt("discover/receipt.json")["counts"]
    assert (counts["pending"], counts["batches"]) == (1, 1)
    # what Slurm began may be finished anywhere
    project.run(*(f"results/demo/emit/access/{form}.receipt.json" for form in FORMS))
    project.assert_published(*range(7))
    assert project.tree() == of_one_process(project, tmp_path).tree()


FAULTS = ("scancel", "scontrol requeue", "kill -9")


def test_a_scan_that_is_cancelled_requeued_or_killed_is_done_again_whole(
    cluster: None, tmp_path: Path
) -> None:
    project = Project(tmp_path / "struck", emit={"sqlite": {}, "vrt": {}})
    prepare(project, batch=2)
    project.add(*range(8))
    struck: dict[str, int] = {}
    command = [*BY_SLURM, "results/demo/store/receipt.json"]
    with (tmp_path / "said").open("w+") as said:
        run = subprocess.Popen(
            command, cwd=project.root, env=project.environment, stdin=subprocess.DEVNULL,
            stdout=said, stderr=said, text=True,
        )  # fmt: skip
        try:
            while run.poll() is None:
                if len(struck) < len(FAULTS):
                    strike(project, struck)
                time.sleep(0.02)
        finally:
            run.kill()
            run.wait()
        said.seek(0)
        output = said.read()
    assert (run.returncode, [*struck]) == (0, [*FAULTS]), output
    jobs = {job.id: job for job in records(project)}
    states = [jobs[struck[fault]].state for fault in FAULTS]
    assert states == ["CANCELLED", "COMPLETED", "FAILED"]
    assert "Restarts=1 " in shown(struck["scontrol requeue"])
    scans = Counter(job.what for job in jobs.values() if job.what.startswith("rule_scan_"))
    again = {jobs[struck[fault]].what for fault in ("scancel", "kill -9")}
    assert {what for what, n in scans.items() if n == 2} == again
    assert output.count("Trying to restart job") == 2
    assert not list(project.results.glob("scan/*"))  # nor the beginning of one
    project.run(*(f"results/demo/emit/access/{form}.receipt.json" for form in ("sqlite", "vrt")))
    project.assert_published(*range(8))
    assert project.tree() == of_one_process(project, tmp_path / "whole").tree()


def strike(project: Project, struck: dict[str, int]) -> None:
    """Stop the script of a scan that is at work, so that it cannot come to its end, and do the next fault to its job.

    ``struck`` has the jobs of the faults that were done. There is no scan of that job then, whole or in part.
    """
    for path in Path("/proc").glob("[0-9]*"):
        try:
            script = path.joinpath("cmdline").read_bytes().split(b"\0")[-2:-1]
            variables = path.joinpath("environ").read_bytes().split(b"\0")
        except OSError:
            continue  # it ended
        lead = f"{project.root}/.snakemake/scripts/".encode()
        if not (script and script[0].startswith(lead) and script[0].endswith(b".scan.py")):
            continue
        number = next(int(v[13:]) for v in variables if v.startswith(b"SLURM_JOB_ID="))
        if number in struck.values():
            continue
        os.kill(int(path.name), signal.SIGSTOP)
        fault = FAULTS[len(struck)]
        struck[fault] = number
        batch = shown(number).partition("batch=")[2][:16]
        assert not (project.results / "scan" / f"{batch}.sqlite").exists()
        if fault == "kill -9":
            os.kill(int(path.name), signal.SIGKILL)
        else:
            subprocess.run([*fault.split(), str(number)], check=True)
        return


def shown(number: int) -> str:
    """What slurmctld says of a job."""
    return subprocess.run(
        ["scontrol", "show", "job", str(number)], capture_output=True, text=True, check=True
    ).stdout


def test_the_jobs_that_a_killed_run_left_are_cancelled_and_no_others(
    built: tuple[Project, Run], tmp_path: Path
) -> None:
    project, _ = built
    ours = submit("byterefs_1", project.root)
    others = {tmp_path: submit("byterefs_1", tmp_path), project.root: submit("mine", project.root)}
    assert orphans.cancel(project.root) == [ours]
    assert orphans.left(tmp_path) == [others[tmp_path]]
    assert orphans.cancel(project.root) == []
    held = {job.id: job.state for job in records(project)}
    assert held[int(ours)] == "CANCELLED"
    listed = subprocess.run(["squeue", "--noheader", "--format=%i"], capture_output=True, text=True)
    assert set(listed.stdout.split()) == set(others.values())
    subprocess.run(["scancel", *others.values()], check=True)


def submit(name: str, folder: Path) -> str:
    """The id of a job that would run for ten minutes."""
    command = ["sbatch", "--parsable", "--mem=50", "--output=/dev/null", f"--job-name={name}"]
    command += [f"--chdir={folder}", "--wrap=sleep 600"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
