"""The plan's VRT as stock GDAL reads it: values, attributes, groups; the oracle is what was written."""

import h5py
import netCDF4
import numpy as np
import pytest

from building import build
from byterefs.errors import PlanError
from byterefs.planning import vrt, vrt_plan
from granules import oisst
from test_plan import START, day, timedelta


def opened(text):
    """Root group of a VRT's text in GDAL, and the dataset that keeps it alive."""
    from osgeo import gdal

    gdal.UseExceptions()
    dataset = gdal.OpenEx(text, gdal.OF_MULTIDIM_RASTER)
    return dataset.GetRootGroup(), dataset


def rich(path, n):
    """A granule with what a mosaic drops: groups, scalars, bounds, 2-D coordinates, typed attributes."""
    rng = np.random.default_rng(n)
    values = {"time_bnds": np.array([[n, n + 1.0]]), "lat2": np.arange(12.0).reshape(3, 4) / 7}
    values["v"] = rng.integers(-5, 5, (1, 3, 4), "i2")
    values["g/w"] = rng.random((1, 3, 4), "f4")
    with netCDF4.Dataset(path, "w") as nc:
        nc.title, nc.history = "rich", f"written {n}"
        nc.setncattr("version", np.int16(3))
        for name, size in (("time", None), ("y", 3), ("x", 4), ("nv", 2)):
            nc.createDimension(name, size)
        time = nc.createVariable("time", "f8", ("time",))
        time.setncatts({"units": "days since 2000-01-01", "bounds": "time_bnds"})
        time[:] = [n]
        nc.createVariable("time_bnds", "f8", ("time", "nv"))[:] = values["time_bnds"]
        nc.createVariable("lat2", "f8", ("y", "x"))[:] = values["lat2"]
        nc.createVariable("crs", "i4", ()).setncatts({"grid_mapping_name": "latitude_longitude"})
        v = nc.createVariable(
            "v", "i2", ("time", "y", "x"), fill_value=-9, zlib=True, chunksizes=(1, 3, 4)
        )
        v.setncatts({"coordinates": "lat2", "grid_mapping": "crs", "flags": np.array([1, 2], "i1")})
        v.setncatts({"scale_factor": np.float32(0.01), "note": 'a "quoted" <text> & more'})
        v.set_auto_maskandscale(False)
        v[:] = values["v"]
        w = nc.createGroup("g").createVariable(
            "w", "f4", ("time", "y", "x"), zlib=True, chunksizes=(1, 3, 4)
        )
        w[:] = values["g/w"]
    return values


def test_gdal_reads_every_value_of_every_array_through_the_plan(tmp_path):
    written = [rich(tmp_path / f"{n}.nc", n) for n in range(3)]
    with build(tmp_path, sorted(tmp_path.glob("*.nc"))) as view:
        group, _keep = opened(view.vrt)
        for name in ("time_bnds", "v", "g/w"):
            got = group.OpenMDArrayFromFullname("/" + name).ReadAsArray()
            assert got.tobytes() == np.concatenate([w[name] for w in written]).tobytes()
        assert group.OpenMDArray("lat2").ReadAsArray().tobytes() == written[0]["lat2"].tobytes()
        assert group.OpenMDArray("time").ReadAsArray().tolist() == [0, 1, 2]


def test_a_nan_with_a_sign_keeps_it_or_its_array_is_refused(tmp_path):
    lat = np.array([np.nan, np.copysign(np.nan, -1), 3.0])
    with netCDF4.Dataset(tmp_path / "n.nc", "w") as nc:
        nc.createDimension("x", 3)
        for name, values in {"v": lat, "lat": lat, "usual": np.array([np.nan, 1, 2])}.items():
            nc.createVariable(name, "f8", ("x",))[:] = values
        nc.createVariable("z", "f8", ())[...] = lat[1]
        nc["v"].coordinates = "lat usual z"
    with build(tmp_path, [tmp_path / "n.nc"], plan={"concat": None}) as view:
        assert all(view.arrays[name].values for name in ("lat", "usual", "z"))
        group, _keep = opened(view.vrt)
        assert group.OpenMDArray("lat").ReadAsArray().tobytes() == lat.tobytes()
        assert "sign or payload" in vrt.cannot(view.arrays["z"])
        assert vrt.inlined(view.arrays["usual"])
        assert "z" not in group.GetMDArrayNames()


def test_complex_numbers_of_a_netcdf_file_are_read(tmp_path):
    values = np.array([[1 + 2j, -0.5j], [3, np.nan]], "c8")
    with netCDF4.Dataset(tmp_path / "c.nc", "w") as nc:
        nc.createDimension("y", 2)
        nc.createDimension("x", 2)
        nc.createVariable("y", "f8", ("y",))[:] = [1, 2]
        nc.createVariable("x", "f8", ("x",))[:] = [1, 2]
    with h5py.File(tmp_path / "c.nc", "r+") as f:
        f["v"] = values
        f["v"].dims[0].attach_scale(f["y"])
        f["v"].dims[1].attach_scale(f["x"])
    with build(tmp_path, [tmp_path / "c.nc"], plan={"concat": None}) as view:
        assert view.arrays["v"].dims == ("y", "x")
        group, _keep = opened(view.vrt)
        assert group.OpenMDArray("v").ReadAsArray().tobytes() == values.tobytes()


def test_what_a_mosaic_drops_is_in_the_plan(tmp_path):
    for n in range(2):
        rich(tmp_path / f"{n}.nc", n)
    with build(tmp_path, sorted(tmp_path.glob("*.nc"))) as view:
        group, _keep = opened(view.vrt)
        v = group.OpenMDArray("v")
        attrs = {a.GetName(): a for a in v.GetAttributes()}
        assert attrs["note"].Read() == 'a "quoted" <text> & more'
        assert attrs["flags"].Read() == (1, 2)
        assert attrs["coordinates"].Read() == "lat2"
        assert (v.GetScale(), v.GetNoDataValue()) == (float(np.float32(0.01)), -9)
        assert group.OpenMDArray("time").GetUnit() == "days since 2000-01-01"
        root = {a.GetName(): a.Read() for a in group.GetAttributes()}
        assert root == {"title": "rich", "version": 3}
        crs = group.OpenMDArray("crs")
        assert {a.GetName(): a.Read() for a in crs.GetAttributes()} == {
            "grid_mapping_name": "latitude_longitude"
        }
        assert {d.GetName() for d in group.GetDimensions()} == {"time", "y", "x", "nv"}
        assert view.varying == ["history"]


def test_a_gap_on_a_dense_axis_reads_as_fill(tmp_path):
    with build(tmp_path, [day(tmp_path, n) for n in (0, 1, 3)], plan={"axis": "dense"}) as view:
        group, _keep = opened(view.vrt)
        got = group.OpenMDArray("sst").ReadAsArray()
        assert (got[2] == -999).all()
        assert (
            got[3].tobytes()
            == oisst(tmp_path / "again.nc", START + timedelta(3), shape=(6, 8))["sst"][0].tobytes()
        )


def test_strings_arrive_as_bytes_that_say_what_they_are(tmp_path):
    with h5py.File(tmp_path / "a.nc", "w") as f:
        t = f.create_dataset("time", data=np.array([1.0]))
        t.make_scale("time")
        t.attrs["units"] = "days since 2000-01-01"
        f.create_dataset("type", data=np.bytes_(b"sea_ice"))
        f.create_dataset("v", data=np.zeros(1, "i2")).dims[0].attach_scale(t)
    with build(tmp_path, [tmp_path / "a.nc"]) as view:
        group, _keep = opened(view.vrt)
        array = group.OpenMDArray("type")
        assert bytes(array.Read()) == b"sea_ice"
        assert array.GetAttribute(vrt.DTYPE_ATTRIBUTE).Read() == "|S7"


def test_reading_back_what_was_written_gives_the_same_placements(tmp_path):
    with build(tmp_path, [day(tmp_path, n) for n in range(3)]) as view:
        plan = vrt_plan.read(view.vrt, ".", "plan")
        for name, array in view.arrays.items():
            if array.storage == "referenced":
                assert plan.arrays[name].placements == array.placements


@pytest.mark.parametrize(
    ("text", "message"), [("<a", "not XML"), ("<a/>", "no multidimensional VRT")]
)
def test_what_is_no_mdim_vrt_is_refused(text, message):
    with pytest.raises(PlanError, match=message):
        vrt_plan.read(text, ".", "x.vrt")


def grouped(path):
    """A granule whose groups have dimensions of one name and three lengths."""
    values = {}
    with netCDF4.Dataset(path, "w") as nc:
        for name, lengths in (
            ("", {"time": 2, "x": 4}),
            ("g", {"x": 3}),
            ("g/h", {"x": 5}),
            ("k", {}),
        ):
            group = nc.createGroup(name) if name else nc
            for d, n in lengths.items():
                group.createDimension(d, n)
            n = {"g": 3, "g/h": 5}.get(name, 4)
            full = f"{name}/v".lstrip("/")
            values[full] = np.arange(2 * n, dtype="f4").reshape(2, n) + len(name)
            group.createVariable("v", "f4", ("time", "x"), chunksizes=(1, n))[:] = values[full]
            group.createVariable("x", "i4", ("x",))[:] = np.arange(n) * 10
        nc.createVariable("time", "f8", ("time",)).units = "days since 2000-01-01"
        nc["time"][:] = [0, 1]
    return values


def test_groups_may_have_dimensions_of_one_name_and_several_lengths(tmp_path):
    values = grouped(tmp_path / "a.nc")
    with build(tmp_path, [tmp_path / "a.nc"]) as view:
        group, _keep = opened(view.vrt)
        for name, expected in values.items():
            array = group.OpenMDArrayFromFullname(f"/{name}")
            assert array.ReadAsArray().tobytes() == expected.tobytes()
            index = array.GetDimensions()[1].GetIndexingVariable()
            assert index.ReadAsArray().tolist() == [i * 10 for i in range(expected.shape[1])]
        names = [
            group.OpenMDArrayFromFullname(f"/{n}").GetDimensions()[1].GetFullName() for n in values
        ]
        assert names == ["/x", "/g/x", "/g/h/x", "/x"]
        plan = vrt_plan.read(view.vrt, ".", "plan")
        assert plan.sizes == {"time": 2, "x": 4}
        assert {n: plan.arrays[n].shape for n in values} == {n: v.shape for n, v in values.items()}
