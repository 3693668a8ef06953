"""Our scan against ``drb-chunk-netcdf``'s probe(), in an environment of its own: the physical chunk model."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from byterefs.errors import ScanError
from conformance import scanned

PACKAGES = (
    "drb-chunk-netcdf==0.1.0",
    "drb-chunk==0.6.2",
    "drb==2.11.2",
    "netCDF4",
    "numpy",
    "cftime",
    "certifi",
    "packaging",
)
PROBE = """
import importlib.machinery, json, sys, types
import drb, netCDF4

# drb.chunk's own __init__ imports all of drb (rdflib, keyring, ...), of which probe() uses nothing
spec = importlib.machinery.PathFinder.find_spec("drb.chunk", drb.__path__)
package = sys.modules["drb.chunk"] = types.ModuleType("drb.chunk")
package.__path__ = spec.submodule_search_locations
from drb.addons.chunk.netcdf.provider import NetcdfChunksProvider

class Node:
    def __init__(self, variable):
        self.variable = variable
    def get_impl(self, kind):
        assert kind is netCDF4.Variable
        return self.variable

def walk(group, path=""):
    for name, variable in group.variables.items():
        model = {n: NetcdfChunksProvider().probe(Node(variable), n) for n in (1, 2)}
        yield path + name, [list(model[1].chunk_shape), list(model[2].chunk_shape), list(model[1].array_shape)]
    for name, inner in group.groups.items():
        yield from walk(inner, f"{path}{name}/")

found = {}
for path in sys.argv[1:]:
    try:
        with netCDF4.Dataset(path) as nc:
            found[path] = dict(walk(nc))
    except (OSError, RuntimeError) as error:
        found[path] = str(error)
print(json.dumps(found))
"""
FOLDERS = (
    "cmip5_hadgem_mrsos_day",
    "cmip6_misc",
    "era5",
    "netcdf3",
    "oisst",
    "roms_nordic",
    "seaice_cdr",
)


@pytest.fixture(scope="module")
def models(tmp_path_factory, shared):
    """File -> variable -> [native chunk, twice the native chunk, shape], as drb-chunk-netcdf probes it."""
    home = tmp_path_factory.mktemp("drb")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", home], check=True)
    python = str(home / "bin" / "python")
    pip = [sys.executable, "-m", "pip", "--python", python, "install", "-q", "--no-deps"]
    subprocess.run(
        [*pip, "--disable-pip-version-check", *PACKAGES], check=True, capture_output=True
    )
    files = [p for folder in FOLDERS for p in sorted(shared(folder).glob("*.nc"))]
    done = subprocess.run(
        [python, "-c", PROBE, *files], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def scan_or_reason(path: Path, **options):
    """The arrays of our scan, or why there is none."""
    try:
        return scanned(path, **options).arrays
    except ScanError as error:
        return str(error)


def test_split_none_is_the_physical_model_of_drb(models):
    compared = {"chunked": 0, "whole": 0}
    for path, variables in models.items():
        found = scan_or_reason(Path(path), split=False)
        if isinstance(variables, str) or isinstance(found, str):
            continue  # damaged on purpose: each says so in its own words
        for name, item in found.items():
            if item.offset is None or item.meta.layout == "values" or not item.meta.shape:
                continue
            native, _, shape = variables[name]
            # HDF5 lets a chunk be longer than the array; record variables of netCDF-3 lie record by record
            whole = [max(1, n) for n in shape]
            record = item.meta.layout == "chunked" and native == shape and item.meta.chunks[0] == 1
            expected = [1, *whole[1:]] if record else [max(1, n) for n in native]
            assert list(item.meta.chunks) == expected, (path, name)
            compared["whole" if native == shape else "chunked"] += 1
    assert min(compared.values()) > 40


def test_a_multiple_is_that_of_drb_within_the_array_or_refused(models):
    compared = refused = 0
    for path, variables in models.items():
        found = scan_or_reason(Path(path), split=False, multiple=2)
        if isinstance(found, str):
            refused += "are no run of bytes" in found
            continue
        for name, item in found.items():
            if item.offset is not None and item.values is None and item.meta.shape:
                _, double, shape = variables[name]
                inside = [max(1, min(d, n)) for d, n in zip(double, shape, strict=True)]
                assert [
                    min(c, max(1, n)) for c, n in zip(item.meta.chunks, shape, strict=True)
                ] == inside
                compared += 1
    assert compared > 5
    assert refused > 5
