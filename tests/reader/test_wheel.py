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
OUTSIDE = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
"""an environment that leads no interpreter to this repository"""


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
    data = {"byterefs/schema.sql", "byterefs/py.typed", "byterefs/drb_topic/cortex.ttl"}
    assert own | data <= set(names)
    assert {n.partition("/")[0] for n in names} == {"byterefs", names[-1].partition("/")[0]}
    assert any(n.endswith("LICENSE") for n in names)


def test_a_bare_python_with_the_wheel_reads_a_table_here_and_at_a_url(bare, tmp_path):
    with web(tmp_path) as server:
        archive = Archive(tmp_path)
        archive.publish(public=server.url)
        for location in (tmp_path / FORMS["sqlite"], f"{server.url}/{FORMS['sqlite']}"):
            printed = run(bare, "-W", "ignore", "-c", READ, location, cwd=tmp_path, env=OUTSIDE)
            assert json.loads(printed) == archive.values["sst"][1, 2:6, 3:9].tolist()
        missing = [bare, "-c", READ, tmp_path / FORMS["parquet"]]
        done = subprocess.run(missing, capture_output=True, text=True, cwd=tmp_path, env=OUTSIDE)
        assert "pip install 'byterefs[parquet]'" in done.stderr


# --- drb-chunk -------------------------------------------------------------------------------------

DRB_PACKAGES = (
    "drb==2.11.2",
    "drb-chunk==0.6.2",
    "drb-chunk-netcdf==0.1.0",
    "drb-driver-netcdf==1.4.2",
)
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
    run(python, "-m", "pip", "install", *quiet, *DRB_PACKAGES)
    run(python, "-m", "pip", "install", *quiet, "--no-deps", wheel)
    return python


def test_drb_chunk_reads_through_the_provider_what_our_own_reader_reads(drb, tmp_path):
    with web(tmp_path) as server:
        archive = Archive(tmp_path)
        archive.publish(public=server.url)
        location = tmp_path / FORMS["sqlite"]
        printed = run(drb, "-W", "ignore", "-c", DRB, location, cwd=tmp_path, env=OUTSIDE)
        checked, window = json.loads(printed.splitlines()[-1])
        assert checked > 100
        assert window == archive.values["sst"][2:3, 2:6, 3:9].tolist()
        # 36 native chunks: drb-chunk asks for regions, and none of them costs a chunk twice
        asked = [r for r in server.requests if r[1].endswith(".nc")]
        assert len(asked) <= 36


# a product of drb's own kind: chunks of a table and of the granules behind it, each with a logical grid or without
TOPIC = """
@prefix owl: <http://www.w3.org/2002/07/owl#> .
@prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .
@prefix drb: <http://www.gael.fr/drb#> .

drb:archive a owl:Class ;
   drb:id "3f0c9a58-0e7f-4a0d-8f3b-6d1f6f1c7b20" ; drb:category "FORMATTING" ;
   rdfs:subClassOf drb:item ; rdfs:label "archive" ;
   drb:signature [ drb:nameMatch ".*\\\\.archive$" ]"""
CHUNK = """ ;
   drb:chunk [ drb:chunkName "{name}" ; drb:source [ drb:python "return {source}" ] ;
               drb:dims ( "time" "y" "x" ) ; drb:dtype "{dtype}"{grid} ]"""
RESOLVED = """
import json, sys
import netCDF4, numpy as np
from drb.addons.addon import AddonManager
from drb.chunk.selection import IselSelection
from drb.topics import resolver
from drb.topics.dao import ManagerDao

ManagerDao().add_dao("archive.ttl")
topic, product = resolver.resolve(sys.argv[1])
addon = AddonManager().get_addon("chunk")
chunks = {chunk.name: chunk for chunk in addon.apply(product)}
read = {chunk.array.transformer.chunk_shape for chunk in chunks.values()}
tiles = 0
for name, chunk in chunks.items():
    if not name.startswith("table "):
        continue
    for key in chunk.tiles():
        (start, stop), *window = chunk.tile(key).window
        wanted = []
        for day in range(start, stop):
            own = chunks[f"day{day} {name.split()[1]}"]
            # drb-chunk-netcdf gives what netCDF4 makes of the stored values, unless it is told not to
            own.node.get_impl(netCDF4.Variable).set_auto_maskandscale(False)
            y, x = window
            wanted.append(own._require_engine().materialize(((0, 1), y, x)))
        select = IselSelection({d: list(w) for d, w in zip(chunk.array.dims, [(start, stop), *window])})
        found = chunk.select(select).get_impl(np.ndarray)
        wanted = np.concatenate(wanted)
        assert found.dtype == wanted.dtype and found.tobytes() == wanted.tobytes(), (name, key)
        tiles += 1
names = [node.name for node in product["sqlite"]["store.sqlite"].children]
print(json.dumps([topic.label, sorted(chunks), sorted(read), tiles, names]))
"""


def test_drb_finds_the_provider_by_itself_and_gets_the_stored_values_of_its_own_netcdf_reader(
    drb, tmp_path
):
    root = tmp_path / "oisst.archive"
    Archive(root).publish()
    grids = {"": "", " tiled": " ; drb:chunkShape ( 3 7 9 )"}
    sources = {"table": "node['sqlite']['store.sqlite']['{array}']"}
    sources |= {f"day{n}": f"node['day{n}.nc']['root']['variables']['{{array}}']" for n in range(4)}
    chunks = [
        CHUNK.format(name=f"{source} {array}{name}", source=how.format(array=array), dtype="int16", grid=grid)
        for source, how in sources.items() for array in ("sst", "gappy")
        for name, grid in grids.items() if source == "table" or not grid
    ]  # fmt: skip
    (tmp_path / "archive.ttl").write_text(TOPIC + "".join(chunks) + " .\n")
    printed = run(drb, "-W", "ignore", "-c", RESOLVED, root, cwd=tmp_path, env=OUTSIDE)
    label, names, shapes, tiles, arrays = json.loads(printed.splitlines()[-1])
    assert label == "archive"
    assert len(names) == 12
    assert shapes == [[1, 4, 5], [3, 7, 9]]
    assert tiles == 2 * (4 * 3 * 3 + 2 * 2 * 2)
    assert {"sst", "gappy", "g/deep", "small"} <= set(arrays)


ASKED = """
import json, sys
import numpy as np
from drb.topics import resolver
from byterefs.reader.windows import NativeArray
from byterefs.reader.zarr_store import TableStore

topic, table = resolver.resolve(sys.argv[1])
assert topic.label == "byterefs table"
with table:
    values = table["sst"].get_impl(NativeArray).read((1,)).tolist()
    print(json.dumps([table.get_impl(TableStore).target, values]))
"""


def test_a_target_in_the_address_is_where_drb_reads_and_a_foreign_store_is_refused(drb, tmp_path):
    with web(tmp_path) as server:
        archive = Archive(tmp_path)
        archive.publish(public=server.url)
        asked = f"{tmp_path / FORMS['sqlite']}?target=public"
        printed = run(drb, "-W", "ignore", "-c", ASKED, asked, cwd=tmp_path, env=OUTSIDE)
        assert json.loads(printed) == ["public", archive.values["sst"][1].tolist()]
        assert any(r[1].endswith("day1.nc") for r in server.requests)
    foreign = tmp_path / "store.sqlite"
    foreign.write_bytes(b"no table")
    command = [drb, "-W", "ignore", "-c", ASKED, foreign]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=OUTSIDE)
    assert "StoreError" in done.stderr


def test_drb_finds_a_parquet_table_and_takes_no_other_folder_of_its_name_for_one(drb, tmp_path):
    with web(tmp_path) as server:
        archive = Archive(tmp_path)
        archive.publish(public=server.url)
        asked = tmp_path / FORMS["parquet"]
        printed = run(drb, "-W", "ignore", "-c", ASKED, asked, cwd=tmp_path, env=OUTSIDE)
        target, values = json.loads(printed)
        assert values == archive.values["sst"][1].tolist()
        assert target == json.loads((asked / "arrays.json").read_text())["meta"]["target"]
    other = tmp_path / "other.parquet"
    other.mkdir()
    (other / "arrays.json").write_text("{}")
    command = [drb, "-W", "ignore", "-c", ASKED, other]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=OUTSIDE)
    assert "AssertionError" in done.stderr
    assert "StoreError" not in done.stderr
