"""Public bug reports about joining files (research/peers.md B and E.3, lineage.md 6), each with its own trigger."""

from __future__ import annotations

import re
import zlib
from pathlib import Path

import h5py
import netCDF4
import numpy as np
import pytest

from building import build, config, replan, scan_into
from byterefs.errors import PlanError
from test_plan import day
from test_vrt import opened


def series(path: Path, first: int, data: np.ndarray, **options) -> Path:
    """A netCDF file of ``v(time, x)`` with one step a day from day ``first`` on."""
    time_type = options.pop("time_type", "f8")
    dtype = options.pop("dtype", "i4")
    order = "big" if dtype[0] == ">" else "native"
    coordinate = options.pop("coordinate", True)
    path.parent.mkdir(parents=True, exist_ok=True)
    with netCDF4.Dataset(path, "w") as nc:
        nc.createDimension("time", None)
        nc.createDimension("x", data.shape[1])
        if coordinate:
            time = nc.createVariable("time", time_type, ("time",), chunksizes=(512,), zlib=True)
            time.units = "days since 2000-01-01"
            time[:] = np.arange(first, first + len(data))
        chunks = {"chunksizes": (1, data.shape[1]), **options}
        v = nc.createVariable("v", dtype, ("time", "x"), fill_value=-1, endian=order, **chunks)
        v[:] = data
    return path


def numbers(n: int, start: int = 0) -> np.ndarray:
    """``n`` rows of three numbers."""
    return np.arange(start * 3, (start + n) * 3, dtype="i4").reshape(n, 3)


def read(view, name: str) -> np.ndarray:
    """An array of the plan's VRT through GDAL."""
    group, _keep = opened(view.vrt)
    return group.OpenMDArrayFromFullname(f"/{name}").ReadAsArray()


def test_b16_a_chunk_per_year_of_366_and_365_days_is_one_array_in_the_vrt_and_no_table_or_two_eras(
    tmp_path,
):
    files = [
        series(tmp_path / "0.nc", 0, numbers(6), chunksizes=(6, 3)),
        series(tmp_path / "1.nc", 6, numbers(5, 6), chunksizes=(5, 3)),
    ]
    with build(tmp_path, files) as view:
        assert view.referenced() == []
        why = str(view.arrays["v"].refused)
        assert re.search(r"1\.nc: array 'v' has chunks \[5, 3\], and .*0\.nc has \[6, 3\]", why)
        np.testing.assert_array_equal(read(view, "v"), numbers(11))
    with build(tmp_path, files, plan={"eras": "auto"}) as view:
        assert [view.arrays[f"{e}/v"].chunks for e in view.eras] == [(6, 3), (5, 3)]
        np.testing.assert_array_equal(read(view, "v"), numbers(11))


def test_chunks_that_are_no_whole_source_or_differ_on_another_axis_are_refused_with_both(tmp_path):
    for i, chunks in enumerate([(3, 3), (6, 2)]):
        files = [
            series(tmp_path / f"{i}" / "0.nc", 0, numbers(6), chunksizes=(6, 3)),
            series(tmp_path / f"{i}" / "1.nc", 6, numbers(6, 6), chunksizes=chunks),
        ]
        with pytest.raises(PlanError, match=r"1\.nc: array 'v' has chunks .*0\.nc has \[6, 3\]"):
            build(tmp_path / f"{i}", files)


def test_b17_a_coordinate_in_chunks_of_512_does_not_hinder_the_join(tmp_path):
    files = [series(tmp_path / f"{n}.nc", n * 5, numbers(5, n * 5)) for n in range(2)]
    with build(tmp_path, files) as view:
        assert view.referenced() == ["v"]
        assert np.frombuffer(view.arrays["time"].values).tolist() == list(range(10))


def test_b21_a_time_that_turns_from_double_to_float_is_refused_or_an_era(tmp_path):
    files = [
        series(tmp_path / f"{n}.nc", n, numbers(1, n), time_type=t)
        for n, t in enumerate(("f8", "f4"))
    ]
    with pytest.raises(PlanError, match=r"1\.nc: array 'time' has dtype <f4, and .*0\.nc has <f8"):
        build(tmp_path, files)
    with build(tmp_path, files, plan={"eras": "auto"}) as view:
        assert [view.arrays[f"{e}/time"].dtype for e in view.eras] == ["<f8", "<f4"]


def test_b38_the_same_file_scanned_twice_is_one_source(tmp_path):
    files = [day(tmp_path, n) for n in range(2)]
    conf = config()
    scan_into(tmp_path, files, conf)
    with replan(tmp_path, conf) as view:
        before = view.arrays["sst"].placements, view.fragments("sst")
    scan_into(tmp_path, files[1:], conf)
    with replan(tmp_path, conf) as view:
        assert (view.arrays["sst"].placements, view.fragments("sst")) == before


def test_e3_files_without_any_time_are_refused_and_not_overlaid(tmp_path):
    files = [series(tmp_path / f"{n}.nc", 0, numbers(2), coordinate=False) for n in range(2)]
    with pytest.raises(PlanError, match="no coordinate along 'time' tells where a step lies"):
        build(tmp_path, files)


def test_e3_a_month_beside_single_days_is_planned_although_mosaic_refuses(tmp_path):
    files = [series(tmp_path / "m.nc", 0, numbers(30))]
    files += [series(tmp_path / f"d{n}.nc", n, numbers(1, n)) for n in (30, 31)]
    with build(tmp_path, files) as view:
        np.testing.assert_array_equal(read(view, "v"), numbers(32))


def test_lineage_11_bytes_in_another_order_are_another_array(tmp_path):
    files = [
        series(tmp_path / f"{n}.nc", n, numbers(1, n), dtype=d)
        for n, d in enumerate(("<i4", ">i4"))
    ]
    with pytest.raises(PlanError, match=r"1\.nc: array 'v' has dtype >i4, and .*0\.nc has <i4"):
        build(tmp_path, files)
    with build(tmp_path, files, plan={"eras": "auto"}) as view:
        assert [view.arrays[f"{e}/v"].dtype for e in view.eras] == ["<i4", ">i4"]
        np.testing.assert_array_equal(read(view, "v"), numbers(2))


def test_lineage_12_a_slab_inside_a_chunk_of_a_handed_over_vrt_has_no_refs(tmp_path):
    files = [
        series(tmp_path / f"{n}.nc", n * 4, numbers(4, n * 4), chunksizes=(2, 3)) for n in range(2)
    ]
    with build(tmp_path / "ours", files) as view:
        text = view.vrt.replace('<DestSlab offset="4,0" />', '<DestSlab offset="3,0" />')
        text = text.replace(
            '<SourceSlab offset="0,0" count="4,3" step="1,1" />',
            '<SourceSlab offset="0,0" count="3,3" step="1,1" />',
            1,
        )
        text = text.replace(
            'name="time" type="TEMPORAL" size="8"', 'name="time" type="TEMPORAL" size="7"'
        )
        text = text.replace(
            'count="8">0.0 1.0 2.0 3.0 4.0 5.0 6.0 7.0<', 'count="7">0 1 2 4 5 6 7<'
        )
    (tmp_path / "handed.vrt").write_text(text)
    with build(
        tmp_path / "theirs", files, plan={"engine": "vrt", "vrt": str(tmp_path / "handed.vrt")}
    ) as view:
        assert "it ends at element 3 of 7, inside a chunk of 2" in view.arrays["v"].refused
        np.testing.assert_array_equal(read(view, "v"), numbers(8)[[0, 1, 2, 4, 5, 6, 7]])


def test_lineage_17_two_grids_live_in_one_store(tmp_path):
    files = []
    for n in range(2):
        files.append(series(tmp_path / f"{n}.nc", n, numbers(1, n)))
        with netCDF4.Dataset(files[-1], "a") as nc:
            nc.createDimension("y", 2)
            w = nc.createVariable("w", "f4", ("time", "y"), chunksizes=(1, 2))
            w[:] = [[n, n + 0.5]]
    with build(tmp_path, files) as view:
        assert view.referenced() == ["v", "w"]
        assert read(view, "w").tolist() == [[0, 0.5], [1, 1.5]]


def test_lineage_24_a_file_written_again_with_fewer_chunks_leaves_no_stale_row(tmp_path):
    path, conf = tmp_path / "a.nc", config()
    scan_into(tmp_path, [series(path, 0, numbers(4), zlib=True)], conf)
    replan(tmp_path, conf).close()
    scan_into(tmp_path, [series(path, 0, numbers(2, 7), zlib=True, shuffle=False)], conf)
    with replan(tmp_path, conf) as view:
        refs, raw = view.refs("v"), path.read_bytes()
        stored = [
            zlib.decompress(raw[o : o + s]) for o, s in zip(refs.offset, refs.size, strict=True)
        ]
        assert (
            np.frombuffer(b"".join(stored), "<i4").reshape(2, 3).tolist() == numbers(2, 7).tolist()
        )


def test_b20_shuffle_that_begins_with_a_file_is_found_as_the_border_of_an_era(tmp_path):
    files = [
        series(tmp_path / f"{n:02}.nc", n, numbers(1, n), zlib=True, shuffle=n >= 7)
        for n in range(12)
    ]
    with build(tmp_path, files, plan={"eras": "auto"}) as view:
        assert view.eras == ["from_2000-01-01", "from_2000-01-08"]
        with h5py.File(files[7]) as f:
            assert f["v"].shuffle
        np.testing.assert_array_equal(read(view, "v"), numbers(12))
