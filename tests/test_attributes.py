"""What `gdal mdim mosaic` drops, and numbers that GDAL's words do not hold, arrive in every form; the oracle is netCDF4."""

from __future__ import annotations

import json
from pathlib import Path

import netCDF4
import numpy as np
import pytest

from byterefs import emitters
from byterefs.literals import attr_value
from byterefs.planning import vrt_plan
from forms import Results
from test_vrt import opened, rich


def own(path: Path, name: str) -> dict:
    """The attributes of a variable as netCDF4 gives them."""
    with netCDF4.Dataset(path) as nc:
        return {key: nc[name].getncattr(key) for key in nc[name].ncattrs()}


@pytest.fixture(scope="module")
def archive(tmp_path_factory):
    """Two rich granules in every form, verified; and what the mosaic of GDAL makes of them."""
    folder = tmp_path_factory.mktemp("attributes")
    files = [folder / "in" / f"{n}.nc" for n in range(2)]
    files[0].parent.mkdir()
    for n, path in enumerate(files):
        rich(path, n)
        with netCDF4.Dataset(path, "a") as nc:
            v = nc["v"]
            v.setncatts(
                {"nan": np.float32("nan"), "big": np.int64(2**60 + 1), "uint": np.uint64(2**64 - 1)}
            )
            v.setncatts(
                {"tiny": np.float32(0.1), "short": np.int16([1, 2]), "empty": "", "word": "Grad °"}
            )
    results = Results(folder)
    results.scan(files)
    results.emit()
    mosaic = vrt_plan.mosaic(list(map(str, files)), ["v", "g/w"], folder / "m.vrt")
    return files, results, mosaic


def test_the_mosaic_of_gdal_drops_units_scalars_groups_and_root_attributes(archive):
    _, _, mosaic = archive
    group, _keep = opened(mosaic)
    assert group.OpenMDArray("time").GetUnit() == ""
    assert list(group.GetAttributes()) == []
    assert "crs" not in group.GetMDArrayNames()
    assert not group.GetGroupNames()


@pytest.mark.parametrize("form", emitters.NAMES)
@pytest.mark.parametrize("name", ["v", "time", "crs", "lat2", "g/w"])
def test_every_attribute_of_the_granule_is_in_every_form(archive, form, name):
    files, results, _ = archive
    reader = emitters.load(form).open(results.out("access", form), access=str)
    try:
        found = dict(reader.arrays()[name].attrs)
    finally:
        reader.close()
    wanted = own(files[0], name)
    if form in ("kerchunk", "icechunk", "vrt"):  # their own fields, which verify compares
        wanted.pop("_FillValue", None)
        found.pop("_FillValue", None)
    assert set(found) == set(wanted)
    for key, value in wanted.items():
        kind = "str" if isinstance(value, str) else np.asarray(value).dtype.str
        told = list(found[key]) if isinstance(found[key], tuple) else found[key]
        if form == "vrt" and key == "uint":
            told = int(told)
        np.testing.assert_array_equal(attr_value(told, kind), value)


@pytest.mark.parametrize("form", emitters.NAMES)
def test_every_form_of_them_is_verified(archive, form):
    assert archive[1].verify("access", form)["verified"]


def test_the_table_has_the_dtype_of_every_attribute(archive):
    files, results, _ = archive
    document = json.loads((results.out("access", "parquet") / "arrays.json").read_text())
    told = document["arrays"]["v"]["attr_dtypes"]
    for key, value in own(files[0], "v").items():
        assert told[key] == ("str" if isinstance(value, str) else np.asarray(value).dtype.str)


@pytest.mark.parametrize(
    ("dtype", "fill", "attrs", "values"),
    [
        ("i8", np.int64(2**63 - 2), {}, [1, 2**60 + 1, 2**63 - 2]),
        ("i8", np.int64(-(2**63) + 1), {}, [1, -(2**63) + 1, 5]),
        ("u8", np.uint64(2**64 - 2), {}, [1, 2**64 - 2, 2**63 + 1]),
        ("i1", np.int8(-1), {"_Unsigned": "true"}, [-1, -128, 127]),
        ("i2", np.int16(-1), {"_Unsigned": "True"}, [-1, -32768, 32767]),
        ("i4", np.int32(-1), {"_Unsigned": "true"}, [-1, -(2**31), 127]),
        ("u1", np.uint8(255), {"_Unsigned": "false"}, [255, 128, 127]),
    ],
)  # fmt: skip
def test_numbers_beyond_gdals_words_are_in_the_vrt(tmp_path, dtype, fill, attrs, values):
    files = [tmp_path / f"{n}.nc" for n in range(2)]
    for n, path in enumerate(files):
        with netCDF4.Dataset(path, "w") as nc:
            nc.createDimension("time", None)
            nc.createDimension("x", 3)
            time = nc.createVariable("time", "f8", ("time",))
            time.units = "days since 2000-01-01"
            time[:] = [n]
            v = nc.createVariable("v", dtype, ("time", "x"), fill_value=fill, chunksizes=(1, 3))
            v.set_auto_maskandscale(False)
            v.setncatts(attrs)
            v[:] = np.array([values], dtype)
    results = Results(tmp_path / "out")
    results.scan(files)
    results.emit(("access", "vrt"))
    assert results.verify("access", "vrt")["verified"]
    reader = emitters.load("vrt").open(results.out("access", "vrt"), access=str)
    got = reader.read("v", (slice(0, 2), slice(0, 3)))
    reader.close()
    assert got.dtype == np.dtype(dtype)
    assert got.tolist() == [values, values]
