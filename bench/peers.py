"""The same work done by VirtualiZarr and kerchunk; runs in their environment (bench/peers.sh), prints JSON.

python bench/peers.py TASK FILE_OF_SOURCES [OUT]
"""

from __future__ import annotations

import json
import shutil
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import icechunk
import numpy as np
import xarray as xr
from kerchunk.hdf import SingleHdf5ToZarr
from obspec_utils.registry import ObjectStoreRegistry
from obstore.store import LocalStore
from virtualizarr import open_virtual_dataset
from virtualizarr.manifests import ChunkManifest, ManifestArray
from virtualizarr.manifests.utils import create_v3_array_metadata
from virtualizarr.parsers import HDFParser

REGISTRY = ObjectStoreRegistry({"file://": LocalStore()})
COORDINATES = ["time", "zlev", "lat", "lon"]


def parse(path: str) -> Any:
    """VirtualiZarr's parser alone."""
    return HDFParser()(url=f"file://{path}", registry=REGISTRY)


def virtual(path: str) -> xr.Dataset:
    """A virtual dataset with its coordinates loaded, as concatenation needs them."""
    url = f"file://{path}"
    return open_virtual_dataset(
        url=url, registry=REGISTRY, parser=HDFParser(), loadable_variables=COORDINATES
    )


def kerchunk(path: str) -> Any:
    """Kerchunk's scan of one file, nothing inlined."""
    return SingleHdf5ToZarr(path, inline_threshold=0).translate()


def each(work: Callable[[str], Any], sources: Sequence[str]) -> dict[str, float]:
    """Seconds for all sources, one after another, after a first one to warm up."""
    work(sources[0])
    started = time.perf_counter()
    for source in sources:
        work(source)
    return {"seconds": time.perf_counter() - started}


def archive(sources: Sequence[str], out: Path) -> dict[str, float]:
    """Open with two workers, concatenate, write kerchunk Parquet and Icechunk: seconds of each step."""
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    marks = [time.perf_counter()]
    with ProcessPoolExecutor(2) as pool:
        parts = list(pool.map(virtual, sources, chunksize=64))
    marks.append(time.perf_counter())
    whole = xr.concat(
        parts, dim="time", coords="minimal", compat="override", combine_attrs="override"
    )
    marks.append(time.perf_counter())
    whole.vz.to_kerchunk(str(out / "all.parq"), format="parquet")
    marks.append(time.perf_counter())
    repository(out / "all.icechunk", sources[0], whole)
    marks.append(time.perf_counter())
    steps = ("open", "concat", "kerchunk", "icechunk")
    found = {s: b - a for s, a, b in zip(steps, marks, marks[1:], strict=False)}
    return {**found, "seconds": marks[-1] - marks[0]}


def repository(out: Path, source: str, whole: xr.Dataset) -> None:
    """An Icechunk repository of a virtual dataset, one commit."""
    prefix = "file:///" + source.split("/")[1] + "/"
    config = icechunk.RepositoryConfig.default()
    local = icechunk.local_filesystem_store(prefix.removeprefix("file://"))
    config.set_virtual_chunk_container(icechunk.VirtualChunkContainer(prefix, local))
    repo = icechunk.Repository.create(icechunk.local_filesystem_storage(str(out)), config=config)
    session = repo.writable_session("main")
    whole.vz.to_icechunk(session.store)
    session.commit("all")


def write_kerchunk(rows: int, out: Path) -> dict[str, float]:
    """VirtualiZarr's kerchunk Parquet writer alone, on ``rows`` references in one array."""
    shutil.rmtree(out, ignore_errors=True)
    grid = (rows // 3060, 51, 5, 12)
    paths = np.full(grid, "file:///archive/bran/ocean_temp_201001.nc", np.dtypes.StringDType())
    lengths = np.random.default_rng(0).integers(20_000, 90_000, grid, np.uint64)
    offsets = np.cumsum(lengths).reshape(grid)
    manifest = ChunkManifest.from_arrays(paths=paths, offsets=offsets, lengths=lengths)
    metadata = create_v3_array_metadata(
        shape=(grid[0], 51, 1500, 3600),
        data_type=np.dtype("int16"),
        chunk_shape=(1, 1, 300, 300),
        codecs=[{"name": "bytes", "configuration": {"endian": "little"}}],
        fill_value=0,
        dimension_names=["t", "z", "y", "x"],
    )
    array = ManifestArray(metadata, manifest)
    whole = xr.Dataset({"temp": xr.Variable(("t", "z", "y", "x"), array)})
    started = time.perf_counter()
    whole.vz.to_kerchunk(str(out), format="parquet")
    return {"seconds": time.perf_counter() - started}


TASKS: dict[str, Callable[..., Any]] = {
    "parse": lambda sources, _: each(parse, sources),
    "virtual": lambda sources, _: each(virtual, sources),
    "kerchunk": lambda sources, _: each(kerchunk, sources),
    "archive": archive,
    "write_kerchunk": lambda sources, out: write_kerchunk(int(sources[0]), out),
}

if __name__ == "__main__":
    warnings.simplefilter("ignore")
    task, listing, out = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    print(json.dumps(TASKS[task](listing.read_text().split(), out)))
