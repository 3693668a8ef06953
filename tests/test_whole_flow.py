"""Whatever is written to granules is read back from every form: random archives through the library, end to end."""

from __future__ import annotations

import tempfile
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import netCDF4
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import granules
from building import config, replan, scan_into
from byterefs import emitters
from byterefs.grid import chunk_grid, chunk_window
from byterefs.view import View

ORDERS = ((), ("deflate",), ("shuffle", "deflate"), ("deflate", "shuffle"), ("fletcher32",), ("shuffle", "deflate", "fletcher32"), ("fletcher32", "deflate"), ("nbit", "deflate"))  # fmt: skip
"""pipelines in HDF5's order; netCDF-C writes only some of them"""
BY_NETCDF = {(), ("deflate",), ("shuffle", "deflate"), ("fletcher32",), ("shuffle", "deflate", "fletcher32")}  # fmt: skip
TYPES = [
    "|i1",
    "|u1",
    "<i2",
    ">i2",
    "<u2",
    ">u2",
    "<i4",
    ">i4",
    "<u4",
    ">u4",
    "<i8",
    ">i8",
    "<u8",
    ">u8",
    "<f4",
    ">f4",
    "<f8",
    ">f8",
]


@dataclass(frozen=True)
class Archive:
    """Sources along ``time``: what is written to each, and what of it never is."""

    dtype: str
    chunks: tuple[int, int, int]
    layout: str
    filters: tuple[str, ...]
    writer: str
    fill: Any
    named: bool
    """whether CF's _FillValue says what the storage fill says"""
    starts: tuple[int, ...]
    """the first step of each source"""
    parts: tuple[np.ndarray, ...]
    absent: tuple[frozenset[tuple[int, ...]], ...]
    """chunk keys of each source that are never written"""
    axis: str

    def expected(self) -> np.ndarray:
        """All values that were written, the fill where none were."""
        dense = self.axis == "dense"
        places = self.starts if dense else np.cumsum([0, *map(len, self.parts[:-1])])
        end = int(places[-1]) + len(self.parts[-1])
        out = np.full((end, *self.parts[0].shape[1:]), self.fill, self.dtype)
        for at, part, gone in zip(places, self.parts, self.absent, strict=True):
            out[at : at + len(part)] = self.held(part, gone)
        return out

    def held(self, part: np.ndarray, gone: frozenset[tuple[int, ...]]) -> np.ndarray:
        """What a source holds: its values, the fill in chunks that were never written."""
        out = part.copy()
        for key in gone:
            out[chunk_window(key, part.shape, self.chunks)] = self.fill
        return out


@st.composite
def archives(draw: st.DrawFn) -> Archive:
    dtype = np.dtype(draw(st.sampled_from(TYPES)))
    shape = draw(st.tuples(st.integers(1, 6), st.integers(1, 7)))
    chunks = tuple(draw(st.integers(1, n)) for n in (3, *shape))
    layout = draw(st.sampled_from(["chunked", "chunked", "chunked", "contiguous"]))
    filters = draw(st.sampled_from(ORDERS)) if layout == "chunked" else ()
    able = layout == "chunked" and filters in BY_NETCDF
    writer = draw(st.sampled_from(["h5py", "netCDF4"] if able else ["h5py"]))
    dense = draw(st.booleans())
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    starts, parts, absent, at = [], [], [], 0
    for i in range(count := draw(st.integers(1, 4))):
        whole = chunks[0] * draw(st.integers(1, 3))
        loose = draw(st.integers(0, 9)) == 0 or i == count - 1
        steps = max(1, whole - (draw(st.integers(0, 2)) if loose else 0))
        starts.append(at)
        raw = rng.bytes(int(np.prod((steps, *shape))) * dtype.itemsize)
        parts.append(np.frombuffer(raw, dtype).reshape(steps, *shape).copy())
        grid = list(np.ndindex(chunk_grid(parts[-1].shape, chunks)))
        some = draw(st.sets(st.sampled_from(grid), max_size=3)) if layout == "chunked" else ()
        absent.append(frozenset(some))
        at += steps + (chunks[0] * draw(st.integers(0, 2)) if dense else draw(st.integers(0, 3)))
    bounds = np.iinfo(dtype) if dtype.kind in "iu" else None
    fills = [bounds.min, bounds.max, 0, 7] if bounds else [np.nan, -999.9, 0.0, np.inf]
    fill = dtype.type(draw(st.sampled_from(fills)))
    return Archive(
        dtype.str, chunks, layout, filters, writer, fill,
        dense or draw(st.booleans()),  # a gap that no _FillValue says is missing is refused
        tuple(starts), tuple(parts), tuple(absent), "dense" if dense else "packed",
    )  # fmt: skip


def by_h5py(path: Path, archive: Archive, i: int) -> None:
    part, gone = archive.parts[i], archive.absent[i]
    with h5py.File(path, "w") as f:
        f["time"] = np.arange(archive.starts[i], archive.starts[i] + len(part), dtype="f8")
        f["y"], f["x"] = (np.arange(n, dtype="f4") for n in part.shape[1:])
        f["time"].attrs["units"] = "days since 2000-01-01"
        if archive.layout == "contiguous":
            v = f.create_dataset("v", data=part, fillvalue=archive.fill)
        else:
            v = granules.pipeline(
                f, "v", None, archive.chunks, *archive.filters,
                shape=part.shape, dtype=archive.dtype, fill=archive.fill, unlimited=True,
            )  # fmt: skip
            written(v, part, archive, gone)
        for at, name in enumerate(("time", "y", "x")):
            f[name].make_scale(name)
            v.dims[at].attach_scale(f[name])
        if archive.named:
            v.attrs["_FillValue"] = archive.fill


def by_netcdf(path: Path, archive: Archive, i: int) -> None:
    part, words = archive.parts[i], archive.filters
    with netCDF4.Dataset(path, "w") as nc:
        for name, size in zip(("time", "y", "x"), part.shape, strict=True):
            nc.createDimension(name, None if name == "time" else size)
        time = nc.createVariable("time", "f8", ("time",))
        time.units = "days since 2000-01-01"
        time[:] = np.arange(archive.starts[i], archive.starts[i] + len(part))
        kind = np.dtype(archive.dtype)
        v = nc.createVariable(
            "v", kind, ("time", "y", "x"), chunksizes=archive.chunks,
            zlib="deflate" in words, shuffle="shuffle" in words, fletcher32="fletcher32" in words,
            fill_value=archive.fill, endian="big" if kind.str[0] == ">" else "little",
        )  # fmt: skip
        v.set_auto_maskandscale(False)
        written(v, part, archive, archive.absent[i])


def written(v: Any, part: np.ndarray, archive: Archive, gone: frozenset[tuple[int, ...]]) -> None:
    """Write every chunk but those that are to be absent."""
    for key in np.ndindex(chunk_grid(part.shape, archive.chunks)):
        if key not in gone:
            window = chunk_window(key, part.shape, archive.chunks)
            v[window] = part[window]


def read(view: View, form: str, out: Path) -> np.ndarray | str:
    """The array through a form's own reader, or why the form refuses it."""
    lost = emitters.refusals(view, form)
    if "v" in lost:
        return lost["v"]
    held = view.without(lost) if lost else view
    options = {"json": True} if form == "kerchunk" else {}
    emitters.load(form).emit(held, out, target="access", options=options, state={})
    with closing(emitters.load(form).open(out, access=lambda path: path)) as reader:
        shape = view.arrays["v"].shape
        return np.asarray(reader.read("v", tuple(map(slice, shape))))


def proven(archive: Archive) -> None:
    """Write, scan, plan and emit an archive; every form reads what was written, or says why it does not."""
    write = {"h5py": by_h5py, "netCDF4": by_netcdf}[archive.writer]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        files = [folder / f"{i}.nc" for i in range(len(archive.parts))]
        for i, path in enumerate(files):
            write(path, archive, i)
        step = {"step": 1} if archive.axis == "dense" else {}
        conf = config(plan={"axis": archive.axis, **step})
        scan_into(folder, files, conf)
        expected = archive.expected()
        with replan(folder, conf) as view:
            aligned = view.arrays["v"].refused is None
            for form in emitters.NAMES:
                got = read(view, form, folder / form)
                if isinstance(got, str):
                    assert len(got.split()) > 6, got
                    assert not aligned or form not in ("sqlite", "parquet"), got
                    continue
                assert got.shape == expected.shape
                assert got.astype(expected.dtype).tobytes() == expected.tobytes(), form


OPTIONS: dict[str, Any] = {"suppress_health_check": list(HealthCheck), "derandomize": True}


@settings(max_examples=60, **OPTIONS)
@given(archives())
def test_what_was_written_is_what_every_form_reads_or_refuses_with_a_sentence(
    archive: Archive,
) -> None:
    proven(archive)


@pytest.mark.soak
@settings(max_examples=500, suppress_health_check=list(HealthCheck))
@given(archives())
def test_what_was_written_is_what_every_form_reads_of_hundreds_of_archives(
    archive: Archive,
) -> None:
    proven(archive)
