"""Public bug reports about values (research/peers.md B, lineage.md 6), each trigger through every form.

The oracle is what the files themselves give to netCDF4, xarray or h5py, never another half of ours.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import h5py
import icechunk
import netCDF4
import numpy as np
import pytest
import xarray as xr

import granules
from byterefs import emitters
from byterefs.emitters import _kerchunk
from byterefs.errors import EmitError, VerifyError
from forms import Results
from test_traps import numbers, series

ZARR = ("kerchunk", "icechunk")
"""forms that xarray opens by itself"""


def built(folder: Path, files: list[Path], *forms: str, **parts) -> Results:
    """Files through the whole flow, these forms verified."""
    results = Results(folder, **parts)
    results.scan(files)
    for form in forms:
        results.emit(("access", form))
        assert results.verify("access", form)["verified"]
    return results


@contextmanager
def by_xarray(results: Results, form: str, **options) -> Iterator[xr.Dataset]:
    """A Zarr form as a user of xarray opens it, none of our readers between."""
    out = results.out("access", form)
    if form == "kerchunk":
        store = {"fo": str(out), "remote_protocol": "file"}
        with (
            _kerchunk.quiet(),
            xr.open_dataset(
                "reference://", engine="zarr", consolidated=False, storage_options=store, **options
            ) as ds,
        ):
            yield ds
        return
    storage = icechunk.local_filesystem_storage(str(out))
    prefixes = icechunk.Repository.fetch_config(storage).virtual_chunk_containers
    here = icechunk.credentials.LocalFileSystemAccess
    repo = icechunk.Repository.open(
        storage, authorize_virtual_chunk_access=dict.fromkeys(prefixes, here)
    )
    with xr.open_zarr(repo.readonly_session("main").store, consolidated=False, **options) as ds:
        yield ds


def no_form_reads(results: Results, reason: str) -> None:
    """Every form's own reader, and xarray, raise what ``reason`` matches."""
    for form in emitters.NAMES:
        with pytest.raises(Exception, match=reason):
            results.values(form, "v")
    for form in ZARR:
        with by_xarray(results, form) as ds, pytest.raises(Exception, match=reason):
            ds["v"].load()


def one(path: Path, name: str, dtype: str, values, *, format: str = "NETCDF4", **attrs) -> Path:
    """A file of ``name(time, x)`` with these stored values and attributes."""
    fill = attrs.pop("_FillValue", False)
    with netCDF4.Dataset(path, "w", format=format) as nc:
        nc.createDimension("time", None)
        nc.createDimension("x", len(values[0]))
        time = nc.createVariable("time", "f8", ("time",))
        time.units = "days since 2000-01-01"
        time[:] = np.arange(len(values))
        v = nc.createVariable(name, dtype, ("time", "x"), fill_value=fill)
        v.set_auto_maskandscale(False)
        v.setncatts(attrs)
        v[:] = np.array(values, dtype)
    return path


@pytest.mark.filterwarnings("ignore:variable 'v' has multiple fill values")
@pytest.mark.parametrize("format", ["NETCDF4", "NETCDF3_CLASSIC", "NETCDF3_64BIT_OFFSET"])
def test_b2_two_sentinels_are_masked_in_every_form_as_xarray_masks_them_in_the_file(
    tmp_path, format
):
    attrs = {"_FillValue": np.float32(1e37), "missing_value": np.float32(-99)}
    path = one(
        tmp_path / "a.nc", "v", "f4", [[1, 1e37, -99], [np.nan, 0, 2]], format=format, **attrs
    )
    results = built(tmp_path / "r", [path], *emitters.NAMES)
    with netCDF4.Dataset(path) as nc:
        nc.set_auto_maskandscale(False)
        stored = nc["v"][:].astype("<f4")
        masked = nc["v"]
        masked.set_auto_mask(True)
        gone = np.ma.getmaskarray(masked[:])
    for form in emitters.NAMES:
        assert results.values(form, "v")["v"].astype("<f4").tobytes() == stored.tobytes()
    with xr.open_dataset(path) as ds:
        expected = ds["v"].values
    assert (np.isnan(expected) == (gone | np.isnan(stored))).all()
    for form in ZARR:
        with by_xarray(results, form) as ds:
            np.testing.assert_array_equal(ds["v"].values, expected)


@pytest.mark.parametrize(
    "dtype", ["i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f4", "f8", "S1"]
)
def test_cdf_5_is_verified_by_netcdf4_in_every_form_but_the_vrt_which_is_refused(tmp_path, dtype):
    values = [[1, 2, 3], [4, 5, 6]] if dtype != "S1" else [[b"a", b"", b"c"], [b"d", b"e", b"f"]]
    files = []
    for n in range(2):
        files.append(one(tmp_path / f"{n}.nc", "v", dtype, values, format="NETCDF3_64BIT_DATA"))
        with netCDF4.Dataset(files[-1], "a") as nc:
            nc["time"].units = f"days since 2000-01-0{1 + 2 * n}"
    tables = [form for form in emitters.NAMES if form != "vrt"]
    results = built(tmp_path / "r", files, *tables)
    for form in tables:
        found = results.values(form, "v", "time")
        np.testing.assert_array_equal(found["v"], np.array(values * 2, dtype))
        assert found["time"].tolist() == [0, 1, 2, 3]
    with pytest.raises(
        (EmitError, VerifyError), match=r"netCDF4 does: leave the form vrt|characters"
    ):
        results.proven("vrt", "v")


def test_b3_a_chunk_never_written_without_any_fill_is_zero_or_refused_and_never_another_number(
    tmp_path,
):
    path = tmp_path / "u.nc"
    with h5py.File(path, "w") as f:
        plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        plist.set_chunk((1, 3))
        assert granules.library().H5Pset_fill_value(plist.id, h5py.h5t.IEEE_F32LE.id, None) >= 0
        h5py.h5d.create(f.id, b"v", h5py.h5t.IEEE_F32LE, h5py.h5s.create_simple((2, 3)), plist)
        f["v"][0] = [1, -9999.9, 3]
        f["v"].attrs["_FillValue"] = np.float32(-9999.9)
        expected = f["v"][:]
    results = built(tmp_path / "r", [path], "sqlite", "parquet", "icechunk", plan={"concat": None})
    for form in ("sqlite", "parquet", "icechunk"):
        assert results.values(form, "v")["v"].tobytes() == expected.tobytes()
    for form, words in (("kerchunk", "one fill for both"), ("vrt", "never written have no value")):
        with pytest.raises(EmitError, match=rf"v: .*{words}.*sqlite"):
            results.emit(("access", form))


def test_b4_integers_without_a_fill_stay_integers_and_their_zeros_stay(tmp_path):
    path = one(tmp_path / "a.nc", "v", "i4", [[0, 1, 2], [-(2**31), 0, 2**31 - 1]])
    results = built(tmp_path / "r", [path], *ZARR)
    for form in ZARR:
        with by_xarray(results, form) as ds, xr.open_dataset(path) as own:
            assert ds["v"].dtype == own["v"].dtype == np.int32
            np.testing.assert_array_equal(ds["v"].values, own["v"].values)


def test_b14_no_form_reads_fill_where_a_granule_is_gone(tmp_path):
    files = [series(tmp_path / f"{n}.nc", n, numbers(1, n), zlib=True) for n in range(2)]
    results = built(tmp_path / "r", files, *emitters.NAMES)
    files[1].unlink()
    no_form_reads(results, r"1\.nc")


def test_b28_b29_a_coordinate_never_written_and_an_axis_without_one_are_what_netcdf4_reads(
    tmp_path,
):
    path = tmp_path / "a.nc"
    with netCDF4.Dataset(path, "w") as nc:
        for name, size in (("time", None), ("rec", None), ("nv", 2)):
            nc.createDimension(name, size)
        time = nc.createVariable("time", "f8", ("time",))
        time.setncatts({"units": "days since 2000-01-01", "bounds": "time_bnds"})
        time[:] = [0, 1]
        nc.createVariable("nv", "f4", ("nv",), fill_value=-1)
        nc.createVariable("time_bnds", "f8", ("time", "nv"))[:] = [[0, 1], [1, 2]]
        nc.createVariable("v", "i2", ("time", "rec"), chunksizes=(1, 2))[:] = [[1, 2, 3], [4, 5, 6]]
    with netCDF4.Dataset(path) as nc:
        nc.set_auto_mask(False)
        expected = {name: nc[name][:] for name in ("nv", "time_bnds", "v")}
    results = built(tmp_path / "r", [path], *emitters.NAMES)
    for form in emitters.NAMES:
        for name, found in results.values(form, *expected).items():
            np.testing.assert_array_equal(found, expected[name], err_msg=f"{form} {name}")


def test_b45_an_array_without_any_chunk_is_told_of_in_the_log(tmp_path, caplog):
    with h5py.File(tmp_path / "a.nc", "w") as f:
        f.create_dataset("v", (2, 3), "<i2", chunks=(1, 3))
        f.create_dataset("w", (2, 3), "<i2", chunks=(1, 3))[0] = 1
    built(tmp_path / "r", [tmp_path / "a.nc"], "sqlite", plan={"concat": None})
    said = [r.getMessage() for r in caplog.records if "no chunk in any source" in r.getMessage()]
    assert len(said) == 1
    assert "array 'v'" in said[0]


def test_b46_a_file_for_newer_hdf5_than_gdals_is_read_by_h5py_and_its_vrt_refused_with_the_version(
    tmp_path,
):
    with h5py.File(tmp_path / "a.nc", "w", libver="v200") as f:
        f.create_dataset("v", data=numbers(4), chunks=(1, 3), compression="gzip")
    tables = [form for form in emitters.NAMES if form != "vrt"]
    results = built(tmp_path / "r", [tmp_path / "a.nc"], *tables, plan={"concat": None})
    for form in tables:
        np.testing.assert_array_equal(results.values(form, "v")["v"], numbers(4))
    results.emit(("access", "vrt"))
    with pytest.raises(
        VerifyError, match=r"a\.nc: .*reads nothing .*HDF5 \d.*leave the form vrt out"
    ):
        results.verify("access", "vrt")


def test_lineage_3_bytes_beyond_four_gigabytes_are_read_through_every_form(tmp_path):
    path = tmp_path / "far.nc"
    with h5py.File(path, "w") as f:  # sparse: the hole costs no disk
        plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        plist.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
        plist.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
        space = h5py.h5s.create_simple((5, 2**30))
        h5py.h5d.create(f.id, b"hole", h5py.h5t.STD_U8LE, space, plist)
        f.create_dataset("v", data=numbers(4), chunks=(1, 3), compression="gzip")
        f.create_dataset("w", data=numbers(4, 9))
        assert f["w"].id.get_offset() > 2**32
    results = built(
        tmp_path / "r", [path], *emitters.NAMES, plan={"concat": None}, scan={"arrays": ["v", "w"]}
    )
    for form in emitters.NAMES:
        found = results.values(form, "v", "w")
        np.testing.assert_array_equal(found["v"], numbers(4))
        np.testing.assert_array_equal(found["w"], numbers(4, 9))


@pytest.mark.filterwarnings(
    "ignore:The .fastparquet. engine is deprecated", "ignore:The .future.infer_string. option"
)
def test_lineage_5_chunks_beyond_the_ninth_partition_are_at_their_place_for_fsspec(tmp_path):
    path = series(tmp_path / "a.nc", 0, numbers(25), zlib=True)
    results = built(tmp_path / "r", [path])
    with emitters.View.open(results.store) as view:
        emitters.load("kerchunk").emit(
            view,
            results.out("access", "kerchunk"),
            target="access",
            options={"record_size": 2},
            state={},
        )
    assert (results.out("access", "kerchunk") / "v" / "refs.12.parq").exists()
    with by_xarray(results, "kerchunk") as ds:
        np.testing.assert_array_equal(ds["v"].values, numbers(25))
