"""The wheel: built from scripts/byterefs, installed where nothing else is, and read with."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import sysconfig
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


# --- drb-chunk -------------------------------------------------------------------------------------

DRB = """
import json, sys
import numpy as np
import byterefs
from drb.chunk import Chunk, ChunkArray, RegularGrid, RemapEngine, get_physical_provider
from drb.chunk.model import RegularGridManifest
from drb.chunk.selection import IselSelection, SelectionAggregator, WindowSelection
from byterefs.reader.drb_chunks import ArrayNode

provider = get_physical_provider("byterefs-chunks")
with byterefs.open(sys.argv[1], target="public") as store:
    native = store.array("sst")
    node = ArrayNode(native)
    model = provider.probe(node)
    assert (model.chunk_shape, model.array_shape) == (native.chunks, native.shape)
    assert provider.probe(node, 3).chunk_shape == tuple(3 * c for c in native.chunks)
    engine = RemapEngine(node, model, model.array_shape)
    checked = 0
    for logical in (model.chunk_shape, (1, 3, 2), (1, 10, 13), (4, 7, 9)):
        array = ChunkArray(native.dims, native.shape, native.dtype.str, RegularGrid(logical))
        chunk = Chunk("sst", array, node, RegularGridManifest(array, node), engine=engine)
        for key in chunk.tiles():
            window = chunk.tile(key).window
            found = chunk.select(IselSelection(dict(zip(native.dims, map(list, window))))).get_impl(np.ndarray)
            wanted = byterefs.read(native, tuple(slice(*w) for w in window))
            assert (found == wanted).all() and found.shape == wanted.shape
            checked += 1
    array = ChunkArray(native.dims, native.shape, native.dtype.str, RegularGrid((1, 10, 13)))
    chunk = Chunk("sst", array, node, RegularGridManifest(array, node), engine=engine)
    day = SelectionAggregator([IselSelection({"time": 2}), WindowSelection(x=3, y=2, w=6, h=4)])
    print(json.dumps([checked, chunk.select(day).get_impl(np.ndarray).tolist()]))
"""


@pytest.fixture(scope="module")
def drb(wheel, tmp_path_factory):
    """A Python of its own with drb-chunk and the wheel, which sees the packages of this one too."""
    folder = tmp_path_factory.mktemp("drb")
    run(sys.executable, "-m", "venv", folder)
    (site,) = folder.glob("lib/python3*/site-packages")
    (site / "project.pth").write_text(f"{sysconfig.get_paths()['purelib']}\n")
    python = folder / "bin/python"
    quiet = ["--quiet", "--disable-pip-version-check"]
    run(python, "-m", "pip", "install", *quiet, "drb-chunk==0.6.2")
    run(python, "-m", "pip", "install", *quiet, "--no-deps", wheel)
    return python


def test_drb_chunk_reads_through_the_provider_what_our_own_reader_reads(drb, tmp_path):
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    with web(tmp_path) as server:
        archive = Archive(tmp_path)
        archive.publish(public=server.url)
        location = tmp_path / FORMS["sqlite"]
        printed = run(drb, "-W", "ignore", "-c", DRB, location, cwd=tmp_path, env=environment)
        checked, window = json.loads(printed.splitlines()[-1])
        assert checked > 100
        assert window == archive.values["sst"][2:3, 2:6, 3:9].tolist()
        # 36 native chunks: drb-chunk asks for regions, and none of them costs a chunk twice
        asked = [r for r in server.requests if r[1].endswith(".nc")]
        assert len(asked) <= 36
