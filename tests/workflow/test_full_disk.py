"""A file system that fills up under each stage: a clear error, an intact store, and the same bytes once there is room."""

from __future__ import annotations

import contextlib
import json
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from byterefs import config, discover
from workflow.project import ROOT, Project

DAYS = range(60)
LEFT = 12
"""kB that a stage finds"""
SMALL_DISK = """
set -e
results=$1 kept=$2 left=$3; shift 3
cp -a "$results" "$kept.before"
mount -t tmpfs -o size=32m tmpfs "$results"
cp -a "$kept.before/." "$results"
free=$(df --output=avail -k "$results" | tail -n 1)
head -c $(((free - left) * 1024)) /dev/zero >"$results/filler"
code=0; "$@" 2>"$kept.said" || code=$?
rm "$results/filler"
cp -a "$results" "$kept"
exit $code
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Project:
    project = Project(
        tmp_path_factory.mktemp("full"),
        scan__batch=1000,
        emit={form: {} for form in ("sqlite", "parquet", "kerchunk", "icechunk", "vrt")},
    )
    project.add(*DAYS)
    project.stage_by_stage()
    return project


def stage(project: Project, name: str, **arguments: object) -> list[str]:
    """A stage's script as a rule runs it, from the project's folder."""
    command = [sys.executable, str(ROOT / "scripts" / f"{name}.py")]
    for key, value in arguments.items():
        text = json.dumps(value) if isinstance(value, dict) else str(value)
        command += [f"--{key}", text]
    return command


def on_a_small_disk(
    project: Project, kept: Path, command: list[str], left: int = LEFT
) -> tuple[int, str]:
    """Exit code and words of a command whose results lie on a disk that is nearly full; they are kept."""
    done = subprocess.run(
        ["unshare", "--map-root-user", "--mount", "sh", "-c", SMALL_DISK, "sh", project.results, kept, str(left), *command],
        cwd=project.root, capture_output=True, text=True,
    )  # fmt: skip
    said = kept.with_name(f"{kept.name}.said")
    assert said.exists(), done.stderr
    return done.returncode, said.read_text()


@pytest.mark.parametrize("form", ["sqlite", "parquet", "kerchunk", "icechunk", "vrt"])
def test_a_form_on_a_full_disk_ends_with_one_clear_line_and_no_receipt(
    built: Project, tmp_path: Path, form: str
) -> None:
    for path in built.results.glob(f"emit/access/{form}*"):
        subprocess.run(["rm", "-r", path], check=True)
    store, receipt = (
        "results/demo/store/store.sqlite",
        f"results/demo/emit/access/{form}.receipt.json",
    )
    command = stage(built, "emit", store=store, receipt=receipt, form=form)
    code, said = on_a_small_disk(built, tmp_path / "kept", command)
    assert code == 1
    assert "there is no space left to write to" in said
    assert "Traceback" not in said
    assert not (tmp_path / "kept" / "emit" / "access" / f"{form}.receipt.json").exists()
    assert intact(tmp_path / "kept" / "store" / "store.sqlite")


@pytest.mark.parametrize("name", ["plan", "view"])
def test_a_plan_and_a_view_on_a_full_disk_leave_the_store_as_it_was(
    built: Project, tmp_path: Path, name: str
) -> None:
    store, receipt = "results/demo/store/store.sqlite", f"results/demo/{name}/receipt.json"
    (built.root / receipt).unlink()
    with contextlib.chdir(built.root):
        whole = config.load(Path("config/datasets/demo.yaml"))
    more = {"config": whole} if name == "plan" else {}
    command = stage(built, name, store=store, receipt=receipt, **more)
    code, said = on_a_small_disk(built, tmp_path / "kept", command, left=0)
    assert (code, "there is no space left to write to" in said) == (1, True), said
    assert not (tmp_path / "kept" / name / "receipt.json").exists()
    kept = tmp_path / "kept" / "store" / "store.sqlite"
    assert intact(kept)
    assert held(kept) == held(built.root / store)
    subprocess.run(command, cwd=built.root, check=True, capture_output=True)


def held(store: Path) -> list[str]:
    """All that is in a store, as SQL."""
    with closing(sqlite3.connect(store)) as con:
        return list(con.iterdump())


def test_a_store_on_a_full_disk_is_what_it_was(built: Project, tmp_path: Path) -> None:
    before = (built.results / "store" / "store.sqlite").read_bytes()
    built.add(*range(60, 200))
    receipt = "results/demo/discover/receipt.json"
    found = subprocess.run(
        stage(built, "discover", listing="results/demo/discover/listing.json", receipt=receipt,
              store="results/demo/store/store.sqlite", config=refreshed(built)),
        cwd=built.root, capture_output=True, text=True,
    )  # fmt: skip
    assert found.returncode == 0, found.stderr
    (batch,) = built.receipt("discover/receipt.json")["batches"]
    scans = f"results/demo/scan/{batch}.sqlite"
    scan = stage(
        built, "scan", receipt=receipt, batch=batch, scans=scans, scan=refreshed(built)["scan"], concat="time"
    )  # fmt: skip
    code, said = on_a_small_disk(built, tmp_path / "scan", scan)
    assert (code, "there is no space left" in said) == (1, True)
    assert not list((tmp_path / "scan" / "scan").iterdir())  # no half-written batch
    subprocess.run(scan, cwd=built.root, check=True, capture_output=True)
    update = stage(built, "store", discovered=receipt, store="results/demo/store/store.sqlite",
                   receipt="results/demo/store/receipt.json", batches=scans)  # fmt: skip
    code, said = on_a_small_disk(built, tmp_path / "store", update)
    assert (code, "there is no space left" in said) == (1, True)
    kept = tmp_path / "store" / "store" / "store.sqlite"
    assert intact(kept)
    assert sources(kept) == len(DAYS)
    assert kept.read_bytes()[100:] == before[100:]
    subprocess.run(update, cwd=built.root, check=True, capture_output=True)
    assert sources(built.results / "store" / "store.sqlite") == 200


def refreshed(project: Project) -> dict[str, dict[str, object]]:
    """The config with its defaults, after the archive was listed anew."""
    with contextlib.chdir(project.root):
        whole = config.load(Path("config/datasets/demo.yaml"))
    discover.refresh(whole, project.results)
    return {key: whole[key] for key in ("source", "select", "scan", "plan")}


def intact(store: Path) -> bool:
    with closing(sqlite3.connect(store)) as con:
        return con.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def sources(store: Path) -> int:
    with closing(sqlite3.connect(store)) as con:
        return int(con.execute("SELECT count(*) FROM sources").fetchone()[0])
