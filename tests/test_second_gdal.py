"""The kerchunk JSON read by a GDAL that has a Zarr driver equals what the granules' writer wrote."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from building import build
from byterefs import emitters
from granules import oisst
from test_plan import START, timedelta

SCRIPT = Path(__file__).parent / "second_gdal.py"


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    """A dense axis with a gap, chunks that end inside the grid; the JSON and what was written."""
    folder = tmp_path_factory.mktemp("second")
    written = {}
    for n in (0, 1, 3):
        written[n] = oisst(
            folder / f"sst.{n}.nc",
            START + timedelta(n),
            shape=(6, 8),
            arrays=("sst",),
            chunks=(1, 1, 4, 8),
        )
    with build(folder, sorted(folder.glob("*.nc")), plan={"axis": "dense"}) as view:
        emitters.load("kerchunk").emit(
            view, folder / "kerchunk", target="access", options={"json": True}, state={}
        )
    (path,) = (p for p in (folder / "kerchunk").glob("*.json") if p.name != "open.json")
    return path, written


def second_gdal(path, array, dtype, out):
    dataset = f'ZARR:"/vsikerchunk_json_ref/{{{path}}}"'
    done = subprocess.run(
        [sys.executable, SCRIPT, dataset, array, dtype, out],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("3.12")
    return np.load(out)


def test_stored_values_are_equal_and_a_gap_is_fill(reference, tmp_path):
    path, written = reference
    got = second_gdal(path, "sst", "<i2", tmp_path / "sst.npy")
    assert got.shape == (4, 1, 6, 8)
    for n, values in written.items():
        assert got[n].tobytes() == values["sst"][0].tobytes()
    assert (got[2] == -999).all()


def test_coordinates_are_equal(reference, tmp_path):
    path, written = reference
    assert (
        second_gdal(path, "lat", "<f4", tmp_path / "lat.npy").tobytes()
        == written[0]["lat"].astype("<f4").tobytes()
    )
    first = written[0]["time"][0]
    assert second_gdal(path, "time", "<f4", tmp_path / "time.npy").tolist() == [
        first + n for n in range(4)
    ]
