"""Uncompressed data by steps of the concat axis and by multiples of them; the oracle is what was written."""

from __future__ import annotations

from pathlib import Path

import h5py
import netCDF4
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import granules
from building import build
from byterefs.errors import ScanError
from byterefs.scanners import _common
from conformance import assembled, scanned

DATA = np.arange(12 * 3 * 5, dtype=">i4").reshape(12, 3, 5)


def classic(path: Path, *records: str) -> Path:
    """A netCDF-3 file with ``v`` along ``time``; each of ``records`` is one more record variable."""
    with netCDF4.Dataset(path, "w", format="NETCDF3_CLASSIC") as nc:
        for name, size in (("time", None if records else 12), ("y", 3), ("x", 5)):
            nc.createDimension(name, size)
        nc.createVariable("v", "i4", ("time", "y", "x"))[:] = DATA
        for name in records:
            nc.createVariable(name, "f8", ("time",))[:] = np.arange(12)
    return path


@pytest.mark.parametrize(("multiple", "chunk"), [(1, 1), (3, 3), (4, 4), (12, 12), (99, 12)])
def test_a_chunk_is_a_multiple_of_steps_or_the_whole(tmp_path: Path, multiple: int, chunk: int):
    path = classic(tmp_path / "c.nc")
    item = scanned(path, concat="time", multiple=multiple).arrays["v"]
    assert item.meta.chunks == (chunk, 3, 5)
    assert item.offset.shape == (12 // chunk, 1, 1)
    np.testing.assert_array_equal(assembled(path, item), DATA)


def test_chunks_that_follow_each_other_in_the_file_are_joined_and_absent_ones_stay_absent(
    tmp_path: Path,
):
    with h5py.File(tmp_path / "h.h5", "w") as f:
        f.create_dataset("v", data=DATA, chunks=(2, 3, 5))
        f.create_dataset("none", DATA.shape, "<i2", chunks=(2, 3, 5), fillvalue=-1)
        granules.compact(f, "c", DATA[:4])
    found = scanned(tmp_path / "h.h5", concat="phony_dim_0", multiple=2).arrays
    assert found["v"].meta.chunks == found["none"].meta.chunks == (4, 3, 5)
    np.testing.assert_array_equal(assembled(tmp_path / "h.h5", found["v"]), DATA)
    assert (assembled(tmp_path / "h.h5", found["none"]) == -1).all()
    np.testing.assert_array_equal(assembled(tmp_path / "h.h5", found["c"]), DATA[:4])


@pytest.mark.parametrize(
    ("multiple", "options", "message"),
    [
        (2, {"chunks": (1, 3, 5), "compression": "gzip"}, "v: each of its chunks is encoded by itself, so 2 of its"),
        (2, {"chunks": (1, 3, 3)}, r"v: its chunks \[1, 3, 3\] divide other axes of \[12, 3, 5\] too"),
        (5, {"chunks": (1, 3, 5)}, "v: its 12 steps are not divisible by 5, so 5 of its chunks are no run of bytes"),
        (2, {"chunks": (1, 3, 5), "reverse": True}, "v: its chunks do not follow each other in the file"),
    ],
)  # fmt: skip
def test_a_multiple_that_is_no_run_of_bytes_is_refused(tmp_path: Path, multiple, options, message):
    reverse = options.pop("reverse", False)
    with h5py.File(tmp_path / "h.h5", "w") as f:
        v = f.create_dataset("v", DATA.shape, DATA.dtype, **options)
        for i in range(12)[:: -1 if reverse else 1]:
            v[i] = DATA[i]
    with pytest.raises(ScanError, match=rf"h\.h5: {message}.*set scan\.multiple: 1"):
        scanned(tmp_path / "h.h5", multiple=multiple)


def test_records_of_several_variables_alternate_and_are_not_joined(tmp_path: Path):
    path = classic(tmp_path / "r.nc", "w")
    with pytest.raises(ScanError, match="v: its chunks do not follow each other in the file"):
        scanned(path, concat="time", multiple=2)
    only = classic(tmp_path / "o.nc", "time")  # a coordinate, kept by value, is no other chunk
    with pytest.raises(ScanError, match="do not follow each other"):
        scanned(only, arrays=["v"], concat="time", multiple=2)


def test_an_axis_before_the_concat_axis_is_cut_too_unless_that_leaves_crumbs(
    tmp_path: Path, monkeypatch
):
    monkeypatch.setattr(_common, "SLAB", 60)
    with h5py.File(tmp_path / "h.h5", "w") as f:
        f["v"], f["w"] = DATA, DATA.transpose(1, 2, 0).copy()
        t = f.create_dataset("t", data=np.arange(3))
        t.make_scale("t")
        f["v"].dims[1].attach_scale(t)
        f["w"].dims[0].attach_scale(t)
    found = scanned(tmp_path / "h.h5", concat="t").arrays
    assert found["v"].meta.chunks == (12, 3, 5)  # slabs of 20 bytes would be crumbs
    assert found["w"].meta.chunks == (1, 5, 12)
    monkeypatch.setattr(_common, "SLAB", 20)
    cut = scanned(tmp_path / "h.h5", concat="t").arrays["v"]
    assert cut.meta.chunks == (1, 1, 5)
    np.testing.assert_array_equal(assembled(tmp_path / "h.h5", cut), DATA)


def member(path: Path, first: int, steps: int) -> np.ndarray:
    """A netCDF-3 file of ``v(member, time, x)``, the concat axis in the middle."""
    data = np.arange(2 * steps * 1024, dtype="f4").reshape(2, steps, 1024) + first
    with netCDF4.Dataset(path, "w", format="NETCDF3_CLASSIC") as nc:
        for name, size in (("member", 2), ("time", steps), ("x", 1024)):
            nc.createDimension(name, size)
        nc.createVariable("v", "f4", ("member", "time", "x"))[:] = data
        time = nc.createVariable("time", "i4", ("time",))
        time.units = "days since 2000-01-01"
        time[:] = np.arange(first, first + steps)
    return data


@settings(max_examples=12)
@given(lengths=st.lists(st.integers(1, 4), min_size=1, max_size=3))
def test_files_of_unequal_length_align_along_a_middle_axis(tmp_path_factory, lengths):
    folder, at, written = tmp_path_factory.mktemp("member"), 0, []
    for i, n in enumerate(lengths):
        written.append(member(folder / f"{i}.nc", at, n))
        at += n
    with build(folder, sorted(folder.glob("*.nc"))) as view:
        array, refs = view.arrays["v"], view.refs("v")
        assert array.refused is None
        got = np.empty(array.shape, ">f4")
        for row, (m, t, _) in enumerate(np.ndindex(view.grid("v"))):
            raw = Path(view.sources[refs.source[row]].source).read_bytes()
            got[m, t] = np.frombuffer(raw, ">f4", 1024, refs.offset[row])
        np.testing.assert_array_equal(got, np.concatenate(written, axis=1))
