"""The HDF5 scanner on real files, against GDAL's block-info and the values that GDAL and h5py read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from time import process_time

import h5py
import numpy as np
import pytest
from osgeo import gdal

from byterefs import scanners
from byterefs.errors import ScanError
from byterefs.model import ABSENT, Source, SourceArray
from conformance import assembled, by_value, recognised, scanned

gdal.UseExceptions()
Shared = Callable[[str], Path]

FOREIGN = ("bitshuffle_datasets.hdf5", "szip.h5")
"""files whose filters only HDF5 decodes"""

# rows that GDAL's block-info confirms, and rows of ours with a range. They differ where GDAL cannot
# say: unlimited dimensions without coordinate (peers.md, 0.6), layouts that its HDF5 lacks (0.9)
CONFIRMED = {
    "oisst/oisst-avhrr-v02r01.20220913.nc": (8, 8),
    "roms_nordic/Nordic_subset_day1.nc": (46, 46),
    "roms_nordic/Nordic_subset.nc": (74, 74),
    "cmip6_siconc_mpi/siconc_SImon_MPI-ESM1-2-HR_historical_r1i1p1f1_gn_185001-185412.nc": (
        189,
        189,
    ),
    "cmip6_siconc_mpi/siconc_SImon_MPI-ESM1-2-HR_historical_r1i1p1f1_gn_190501-190912.nc": (
        189,
        189,
    ),
    "seaice_cdr/seaice_conc_daily_nh_20211231_f17_v04r00.nc": (2, 11),
    "seaice_cdr/seaice_conc_daily_sh_20211231_f17_v04r00.nc": (2, 10),
    "seaice_cdr/seaice_conc_monthly_nh_202112_f17_v04r00.nc": (2, 9),
    "seaice_cdr/seaice_conc_monthly_sh_202112_f17_v04r00.nc": (2, 8),
    "nclimgrid/prcp-202201-grd-prelim.nc": (4, 4),
    "nclimgrid/prcp-202201-grd-scaled.nc": (5, 5),
    "nclimgrid/tavg-202201-grd-prelim.nc": (4, 4),
    "nclimgrid/tavg-202201-grd-scaled.nc": (5, 5),
    "harmony_granules/2020_01_01_7f00ff_global.nc": (67, 67),
    "harmony_granules/2020_01_05_00b2ff_global.nc": (67, 67),
    "era5/psl_ERA5_mon_194001-202212.nc": (17, 17),
    "goes/OR_ABI-L2-LSTM2-M6_G16_s20211381700538_e20211381700595_c20211381701211.nc": (16, 16),
    "hdf5_tricky/air.nc": (4, 4),
    "hdf5_tricky/bes_One_chunk_fletcher_shuf_deflate.h5": (1, 1),
    "hdf5_tricky/bes_SDS_shuf_2def_fle.h5": (4, 4),
    "hdf5_tricky/bes_Three_chunks_partial_shuf_2deflates.h5": (3, 3),
    "hdf5_tricky/bes_Two_chunks_2deflates.h5": (2, 2),
    "hdf5_tricky/bes_compact_example.h5": (0, 0),
    "hdf5_tricky/bes_d_size64_chunk_be.h5": (1, 1),
    "hdf5_tricky/bes_h5_odd_chunk_size.h5": (12, 12),
    "hdf5_tricky/bes_h5_one_bigger_chunk_size.h5": (1, 1),
    "hdf5_tricky/bes_multi_chunks.h5": (320, 320),
    "hdf5_tricky/hdf5_ea_filtered.h5": (0, 434),
    "hdf5_tricky/hdf5_implicit_index.h5": (8, 8),
    "hdf5_tricky/hdf5_mini_shuffle_zstd.h5": (1, 1),
    "hdf5_tricky/hdf5_v1_symboltable.h5": (9, 9),
    "hdf5_tricky/hdf5_v2_linkinfo.h5": (10, 10),
    "hdf5_tricky/jhdf_bitshuffle_datasets.hdf5": (40, 40),
    "hdf5_tricky/jhdf_hdf_v14_test2.hdf5": (20, 20),
    "hdf5_tricky/jhdf_test_odd_datasets_latest.hdf5": (344, 344),
    "hdf5_tricky/pyfive_compressed.hdf5": (124, 124),
    "hdf5_tricky/pyfive_compressed_v1.hdf5": (13, 13),
    "hdf5_tricky/pyfive_resizable.hdf5": (3, 3),
    "hdf5_tricky/ref_szip.h5": (4, 4),
}


def gdal_arrays(path: Path) -> Iterator[tuple[str, gdal.MDArray]]:
    """Every array that GDAL sees, by path; the file stays open while the arrays are used."""
    gdal.PushErrorHandler("CPLQuietErrorHandler")
    try:
        dataset = gdal.OpenEx(str(path), gdal.OF_MULTIDIM_RASTER)
        todo = [("", dataset.GetRootGroup())]
        while todo:
            prefix, group = todo.pop()
            for name in group.GetMDArrayNames() or ():
                array = opened(group, name)
                if array is not None:
                    yield prefix + name, array
            todo += [(f"{prefix}{n}/", group.OpenGroup(n)) for n in group.GetGroupNames() or ()]
    finally:
        gdal.PopErrorHandler()


def opened(group: gdal.Group, name: str) -> gdal.MDArray | None:
    """None where the HDF5 1.14 in GDAL's wheel cannot open what HDF5 2 wrote (peers.md, 0.9)."""
    try:
        return group.OpenMDArray(name)
    except RuntimeError as error:
        if "does not exist" not in str(error):
            raise
        return None


def block_info(array: gdal.MDArray, key: tuple[int, ...]) -> tuple[int, int, str] | None:
    """GDAL's offset, size and info of one block; None where GDAL cannot say."""
    try:
        found = array.GetRawBlockInfo(list(key))
    except RuntimeError:
        return None
    if found is None or found.GetSize() == 0:
        return None
    return found.GetOffset(), found.GetSize(), "; ".join(found.GetInfo() or ())


def confirmed(item: SourceArray, array: gdal.MDArray) -> int:
    """How many of our rows GDAL confirms; fails on the first that it does not."""
    assert item.offset is not None
    assert item.size is not None
    rows = 0
    for key in np.ndindex(item.offset.shape):
        theirs = block_info(array, key)
        if theirs is not None:
            ours = int(item.offset[key]), int(item.size[key]), item.meta.info
            assert theirs == ours, (item.meta.array, key)
            rows += 1
    return rows


@pytest.mark.parametrize("name", CONFIRMED)
def test_our_rows_are_gdals_block_info(name: str, shared: Shared) -> None:
    path = shared(name)
    found = {n: i for n, i in scanned(path).arrays.items() if i.offset is not None}
    present = sum(int((i.offset != ABSENT).sum()) for i in found.values() if i.offset is not None)
    rows = sum(confirmed(found[n], theirs) for n, theirs in gdal_arrays(path) if n in found)
    assert (rows, present) == CONFIRMED[name]


def read(array: gdal.MDArray, item: SourceArray) -> np.ndarray | None:
    """What GDAL reads of an array, as bytes of our dtype; None for what its Python API cannot read."""
    dtype = np.dtype(item.meta.dtype)
    kind = array.GetDataType()
    if kind.GetClass() != gdal.GEDTC_NUMERIC or dtype.kind == "S":
        return None
    values = array.ReadAsArray()
    return None if values is None else np.asarray(values).astype(dtype).reshape(item.meta.shape)


def decoded(path: Path, item: SourceArray) -> np.ndarray:
    return by_value(item) if item.offset is None else assembled(path, item)


@pytest.mark.parametrize("name", [n for n in CONFIRMED if not n.endswith(FOREIGN)])
def test_every_chunk_decodes_to_what_gdal_and_h5py_read(name: str, shared: Shared) -> None:
    path = shared(name)
    found = scanned(path, concat="time").arrays
    ours = {array: decoded(path, item) for array, item in found.items()}
    with h5py.File(path) as f:
        theirs = {
            array: f[array].astype(item.meta.dtype)[()]
            for array, item in found.items()
            if f[array].id.get_create_plist().all_filters_avail()
        }
    by_gdal = {n: read(array, found[n]) for n, array in gdal_arrays(path) if n in found}
    assert theirs or any(v is not None for v in by_gdal.values())
    for array, values in [*theirs.items(), *by_gdal.items()]:
        if values is not None:
            bits = np.asarray(values, ours[array].dtype).tobytes()
            assert bits == ours[array].tobytes(), array
    for array, item in found.items():
        assert item.values in (None, ours[array].tobytes()), array


def test_a_granule_of_five_arrays_is_scanned_in_milliseconds(shared: Shared) -> None:
    path = shared("oisst/oisst-avhrr-v02r01.20220913.nc")
    wanted = ("sst", "anom", "err", "ice", "time")
    spent = []
    for _ in range(5):
        start = process_time()
        scanned(path, arrays=wanted, concat="time")
        spent.append(process_time() - start)
    assert min(spent) < 0.05


@pytest.mark.parametrize("name", ["bes_compact_example.h5", "pyfive_compact.hdf5"])
def test_compact_data_of_other_writers_is_inline(name: str, shared: Shared) -> None:
    path = shared(f"hdf5_tricky/{name}")
    compact = [i for i in scanned(path).arrays.values() if i.meta.layout == "compact"]
    assert compact
    with h5py.File(path) as f:
        for item in compact:
            assert b"".join(item.data.values()) == f[item.meta.array][()].tobytes()


def test_a_filter_that_some_chunks_skip_is_refused(shared: Shared) -> None:
    name = "hdf5_mali_chunk.h5"
    with pytest.raises(ScanError, match=rf"{name}: data: chunk .* without the filter"):
        scanned(shared(f"hdf5_tricky/{name}"))


def test_a_filter_that_every_chunk_skips_is_no_part_of_the_codec(shared: Shared) -> None:
    path = shared("hdf5_tricky/hdf5_mini_blosc.h5")
    item = scanned(path).arrays["data"]
    with h5py.File(path) as f:
        assert f["data"].id.get_chunk_info(0).filter_mask == 1
        np.testing.assert_array_equal(assembled(path, item), f["data"][()])


def refused(path: Path) -> str | None:
    try:
        found = scanners.scan(Source(str(path)))
    except ScanError as refusal:
        return str(refusal)
    return None if found.arrays else ""


def test_every_hdf5_file_at_hand_is_scanned_or_refused_in_one_sentence(shared: Shared) -> None:
    files = [p for p in sorted(shared(".").rglob("*")) if p.is_file() and recognised(p, "hdf5")]
    assert len(files) > 100
    for path in files:
        refusal = refused(path)
        assert refusal is None or refusal.startswith(f"{path}: ")
        assert refusal is None or refusal.count("; ") >= 1
