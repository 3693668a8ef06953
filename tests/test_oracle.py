"""GDAL, as the verifier asks it, gives the very bits that the granules' own library gives."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pytest

from byterefs.errors import VerifyError
from byterefs.proving.oracle import Block, Oracle, native
from conftest import Shared

REAL = {
    "roms_nordic/Nordic_subset.nc": 50,
    "roms_nordic/Nordic_subset_day2.nc": 50,
    "seaice_cdr/seaice_conc_daily_nh_20211231_f17_v04r00.nc": 10,
    "seaice_cdr/seaice_conc_monthly_sh_202112_f17_v04r00.nc": 9,
    "cmip6_siconc_mpi/siconc_SImon_MPI-ESM1-2-HR_historical_r1i1p1f1_gn_185001-185412.nc": 8,
    "cmip6_dcpp_hadgem_pr/pr_Amon_HadGEM3-GC31-MM_dcppA-hindcast_s2004-r3i1p1f2_gn_201501-201503.nc": 7,
    "nclimgrid/prcp-202201-grd-scaled.nc": 4,
    "nclimgrid/tavg-202201-grd-scaled.nc": 4,
    "oisst/oisst-avhrr-v02r01.20220913.nc": 8,
    "harmony_granules/2020_01_01_7f00ff_global.nc": 6,
}
"""file -> the least number of arrays that must have been compared"""


def datasets(path: Path) -> dict[str, h5py.Dataset]:
    """Arrays that netCDF shows: no text of variable length, no dimension without a coordinate."""
    found = {}

    def visit(name: str, item: h5py.HLObject) -> None:
        bare = b"This is a netCDF dimension but not a netCDF variable"
        if not isinstance(item, h5py.Dataset) or item.dtype.kind in "OV":
            return
        if not item.attrs.get("NAME", b"").startswith(bare):
            found[name] = item

    h5py.File(path).visititems(visit)
    return found


@pytest.mark.parametrize("name", REAL)
def test_gdal_reads_the_bits_dtype_and_shape_that_h5py_reads_of_every_array(
    shared: Shared, name: str
) -> None:
    path = shared(name)
    arrays = datasets(path)
    with Oracle() as oracle:
        for array, dataset in arrays.items():
            zero = (0,) * dataset.ndim
            answer = oracle.read(str(path), array, zero, dataset.shape, dataset.dtype.str)
            expected = native(np.asarray(dataset[()]))
            assert answer.values.dtype == expected.dtype
            assert answer.values.shape == expected.shape
            assert answer.values.tobytes() == expected.tobytes(), array
        assert set(oracle.values) == {"netCDF"}
        assert not oracle.reasons
    assert len(arrays) >= REAL[name]


def test_a_window_is_read_at_its_place(shared: Shared) -> None:
    path = shared("roms_nordic/Nordic_subset.nc")
    with Oracle() as oracle, h5py.File(path) as f:
        answer = oracle.read(str(path), "temp", (1, 3, 5, 7), (1, 2, 3, 4), "<i2")
        assert answer.values.tobytes() == f["temp"][1:2, 3:5, 5:8, 7:11].tobytes()


def test_what_gdal_cannot_read_is_read_by_h5py_and_counted_with_the_reason(shared: Shared) -> None:
    path = shared("hdf5_tricky/jhdf_float_special_values_latest.hdf5")
    with Oracle() as oracle, h5py.File(path) as f:
        answer = oracle.read(str(path), "float16", (0,), (5,), "<f2")
        assert answer.by == "h5py"
        assert answer.values.tobytes() == f["float16"][()].tobytes()
        assert oracle.values == {"h5py": 5}
        assert "GDAL reads Float32 where the source has <f2" in oracle.reasons["float16"]


def test_a_filter_that_gdal_does_not_have_is_read_by_h5py(tmp_path: Path) -> None:
    file = tmp_path / "a.h5"
    wanted = np.full((2, 30, 40), 7, "<i4")
    with h5py.File(file, "w") as f:
        f.create_dataset("a", data=wanted, chunks=(1, 30, 40), compression="lzf")
    with Oracle() as oracle:
        answer = oracle.read(str(file), "a", (0, 0, 0), wanted.shape, "<i4")
        np.testing.assert_array_equal(answer.values, wanted)
        assert answer.by == "h5py"
        assert oracle.reasons["a"]


def test_nan_payloads_and_big_endian_bytes_survive(tmp_path: Path) -> None:
    bits = np.array([0x7FC00001, 0xFFC00000, 0x7FC00000, 0x3F800000], ">u4")
    with h5py.File(tmp_path / "a.h5", "w") as f:
        f["x"] = bits.view(">f4")
    with Oracle() as oracle:
        answer = oracle.read(str(tmp_path / "a.h5"), "x", (0,), (4,), ">f4")
    assert answer.by == "netCDF"
    assert answer.values.view("u4").tolist() == bits.tolist()


def test_a_file_that_nobody_can_read_is_refused_with_every_reason(tmp_path: Path) -> None:
    path = tmp_path / "a.nc"
    path.write_bytes(b"not a granule")
    with Oracle() as oracle, pytest.raises(VerifyError, match=r"a\.nc: .*netCDF: .*HDF5: .*h5py: "):
        oracle.read(str(path), "x", (0,), (4,), "<f4")


def test_block_info_is_given_where_gdal_has_it_and_says_why_where_not(shared: Shared) -> None:
    with Oracle() as oracle:
        oisst = oracle.block(
            str(shared("oisst/oisst-avhrr-v02r01.20220913.nc")), "sst", (0, 0, 0, 0)
        )
        assert isinstance(oisst, Block)
        assert (oisst.offset, oisst.size, oisst.whole_of) == (47587, 646618, None)
        contiguous = oracle.block(str(shared("roms_nordic/Nordic_subset_day1.nc")), "h", (0, 0))
        assert isinstance(contiguous, Block)
        assert (contiguous.offset, contiguous.whole_of) == (109707, (21, 31))
        ice = shared("seaice_cdr/seaice_conc_daily_nh_20211231_f17_v04r00.nc")
        assert "invalid block coordinate" in str(
            oracle.block(str(ice), "cdr_seaice_conc", (0, 0, 0))
        )
