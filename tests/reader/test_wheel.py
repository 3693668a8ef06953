"""The wheel: built from scripts/byterefs, installed where nothing else is, and read with."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from reading import FORMS, Archive
from serving import web

ROOT = Path(__file__).parents[2]
READ = """
import json, sys
import byterefs
names = {m.partition(".")[0] for m in sys.modules}
assert not names & {"zarr", "numpy", "pyarrow", "urllib3"}, names
with byterefs.open(sys.argv[1], target="public") as store:
    values = byterefs.read(store.array("sst"), (1, slice(2, 6), slice(3, 9)))
    import zarr
    assert (zarr.open_group(store, mode="r")["sst"][1, 2:6, 3:9] == values).all()
print(json.dumps(values.tolist()))
"""


def run(*command: object, **options: object) -> str:
    done = subprocess.run(
        [str(c) for c in command], capture_output=True, text=True, check=False, **options
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    quiet = ["--quiet", "--disable-pip-version-check"]
    # a copy: setuptools leaves build/ and egg-info beside what it builds
    run("cp", "-r", ROOT / "scripts", ROOT / "pyproject.toml", ROOT / "LICENSE", folder)
    run(sys.executable, "-m", "pip", "wheel", *quiet, "--no-deps", "-w", folder, folder)
    return next(folder.glob("*.whl"))


@pytest.fixture(scope="module")
def bare(wheel, tmp_path_factory):
    """A Python of its own with the wheel, what it asks for, and nothing of this repository."""
    folder = tmp_path_factory.mktemp("bare")
    pins = re.findall(r"(?m)^[\w.-]+==[\w.]+", (ROOT / "envs/requirements.txt").read_text())
    (folder / "pins.txt").write_text("\n".join(pins))
    run(sys.executable, "-m", "venv", folder / "venv")
    python = folder / "venv/bin/python"
    run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-c", folder / "pins.txt",
        f"{wheel}[remote]")  # fmt: skip
    return python


def test_the_wheel_has_the_library_its_licence_and_nothing_else(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    own = {
        p.relative_to(ROOT / "scripts").as_posix()
        for p in (ROOT / "scripts/byterefs").rglob("*.py")
    }
    assert own | {"byterefs/schema.sql", "byterefs/py.typed"} <= set(names)
    assert {n.partition("/")[0] for n in names} == {"byterefs", names[-1].partition("/")[0]}
    assert any(n.endswith("LICENSE") for n in names)


def test_a_bare_python_with_the_wheel_reads_a_table_here_and_at_a_url(bare, tmp_path):
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    with web(tmp_path) as server:
        archive = Archive(tmp_path)
        archive.publish(public=server.url)
        for location in (tmp_path / FORMS["sqlite"], f"{server.url}/{FORMS['sqlite']}"):
            printed = run(bare, "-W", "ignore", "-c", READ, location, cwd=tmp_path, env=environment)
            assert json.loads(printed) == archive.values["sst"][1, 2:6, 3:9].tolist()
        missing = [bare, "-c", READ, tmp_path / FORMS["parquet"]]
        done = subprocess.run(
            missing, capture_output=True, text=True, cwd=tmp_path, env=environment
        )
        assert "pip install 'byterefs[parquet]'" in done.stderr
