"""Real series that are awkward: products that differ for one month, months as chunks, packing that differs, overviews."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import cftime
import netCDF4
import numpy as np
import pytest
from osgeo import gdal

from byterefs import emitters
from byterefs.errors import EmitError, PlanError
from byterefs.view import View
from forms import Results

gdal.UseExceptions()
Shared = Callable[[str], Path]


def built(folder: Path, files: list[Path], **parts: Any) -> Results:
    source = {"provider": "local", "path": str(files[0].parent), **parts.pop("source", {})}
    results = Results(folder, source={"pattern": ".", **source}, **parts)
    results.scan(files)
    return results


def by_gdal(path: Path, array: str) -> np.ndarray:
    opened = gdal.OpenEx(str(path), gdal.OF_MULTIDIM_RASTER)
    return opened.GetRootGroup().OpenMDArrayFromFullname(f"/{array}").ReadAsArray()


# --- nClimGrid: netCDF and COGs, preliminary and scaled ---------------------------------------------

GRD = r"(?P<var>\w+)-(?P<month>\d{6})-grd-(?P<status>prelim|scaled)\.nc$"


def test_of_a_preliminary_and_a_scaled_month_the_preferred_one_is_planned(
    shared: Shared, tmp_path: Path
) -> None:
    files = sorted(shared("nclimgrid").glob("*-grd-*.nc"))
    assert len(files) == 4
    select = {"slot": ["var", "month"], "prefer": {"status": ["scaled", "prelim"]}}
    results = built(tmp_path / "demo", files, source={"pattern": GRD}, select=select)
    for form in ("sqlite",):
        for name in ("prcp", "tavg"):
            expected = by_gdal(shared(f"nclimgrid/{name}-202201-grd-scaled.nc"), name)
            assert results.proven(form, name).tobytes() == expected.tobytes()


def test_without_a_preference_the_two_products_of_a_month_are_refused_with_both(
    shared: Shared, tmp_path: Path
) -> None:
    files = [shared(f"nclimgrid/prcp-202201-grd-{status}.nc") for status in ("prelim", "scaled")]
    with pytest.raises(PlanError, match=r"time runs 81084 … 81085 and overlaps") as refusal:
        built(tmp_path / "demo", files)
    assert all(str(f) in str(refusal.value) for f in files)
    assert "select.prefer" in str(refusal.value)


def cogs(shared: Shared, names: list[str]) -> tuple[list[Path], dict[str, Any]]:
    """COGs and how their names say where they lie: by their last number."""
    files = [shared(f"nclimgrid/{name}.tif") for name in names]
    rules = {"pattern": r"(?P<step>\d+)\.tif$", "below": str(files[0].parent)}
    rules["coordinate"] = {"from": "step", "dtype": "int32"}
    return files, {"scan": {"arrays": ["prcp"], "file_name": rules}, "plan": {"concat": "step"}}


def test_cogs_of_one_product_are_a_stack_in_every_form(shared: Shared, tmp_path: Path) -> None:
    files, parts = cogs(shared, ["prcp-202201-grd-scaled-01", "prcp-202201-grd-scaled-02"])
    results = built(tmp_path / "demo", files, **parts)
    expected = np.stack([gdal.Open(str(f)).ReadAsArray() for f in files])
    for form in emitters.NAMES:
        assert results.proven(form, "prcp").tobytes() == expected.tobytes()


@pytest.mark.parametrize(
    ("names", "what"),
    [
        # GDAL reads a unit of the first file and none of the second
        (["nclimgrid-prcp-189501", "nclimgrid-prcp-189502"], "has units none.*has millimeter"),
        (["nclimgrid-prcp-189501", "prcp-202201-grd-scaled-01"], "array 'x' has no axis 'step' and differs|has units"),
    ],
)  # fmt: skip
def test_cogs_of_other_units_or_another_grid_are_refused_with_both(
    shared: Shared, tmp_path: Path, names: list[str], what: str
) -> None:
    files, parts = cogs(shared, names)
    with pytest.raises(PlanError, match=what) as refusal:
        built(tmp_path / "demo", files, **parts)
    assert all(str(f) in str(refusal.value) for f in files)


def test_rows_run_north_in_the_netcdf_and_south_in_the_cog_of_one_month(
    shared: Shared, tmp_path: Path
) -> None:
    day, cog = (shared(f"nclimgrid/prcp-202201-grd-scaled{end}") for end in (".nc", "-01.tif"))
    one = built(tmp_path / "nc", [day])
    two = built(tmp_path / "cog", [cog], plan={"concat": None})
    lat, y = one.proven("sqlite", "lat"), two.proven("sqlite", "y")
    assert np.all(np.diff(lat) > 0)
    assert np.all(np.diff(y) < 0)
    assert np.abs(lat[::-1] - y).max() < 1e-4
    north = one.proven("sqlite", "prcp")[0][::-1]
    np.testing.assert_array_equal(north, two.proven("sqlite", "data"))


# --- a chunk that is a whole month ------------------------------------------------------------------


def pair(shared: Shared) -> list[Path]:
    return [shared(f"hidefix_pair/{month}.nc4") for month in ("jan", "feb")]


@pytest.mark.parametrize("form", ["icechunk", "kerchunk", "parquet", "sqlite"])
def test_months_that_are_chunks_are_one_array_in_the_vrt_and_refused_elsewhere_with_both_lengths(
    shared: Shared, tmp_path: Path, form: str
) -> None:
    results = built(tmp_path / "demo", pair(shared))
    for name in ("P", "T"):
        expected = np.concatenate([by_gdal(f, name) for f in pair(shared)])
        assert results.proven("vrt", name).tobytes() == expected.tobytes()
    with pytest.raises(EmitError, match=r"chunks \[28, 3, 4\].*\[31, 3, 4\]") as refusal:
        results.emit(("access", form))
    assert all(str(f) in str(refusal.value) for f in pair(shared))
    assert "plan.eras: auto" in str(refusal.value)
    assert f"emit.{form}.required: false" in str(refusal.value)


def test_months_that_are_chunks_are_one_array_in_the_vrt_and_a_group_each_in_the_other_forms(
    shared: Shared, tmp_path: Path
) -> None:
    results = built(tmp_path / "demo", pair(shared), plan={"concat": "time", "eras": "auto"})
    whole = {n: np.concatenate([by_gdal(f, n) for f in pair(shared)]) for n in ("P", "T")}
    for name, expected in whole.items():
        assert results.proven("vrt", name).tobytes() == expected.tobytes()
        for form in ("icechunk", "kerchunk", "parquet", "sqlite"):
            results.emit(("access", form))
            groups = {a: v for a, v in results.values(form).items() if a.rpartition("/")[2] == name}
            assert name not in groups
            lengths = {len(part): part for part in groups.values()}
            assert np.concatenate([lengths[31], lengths[28]]).tobytes() == expected.tobytes()


def test_an_attribute_that_is_one_space_is_kept_in_the_vrt(shared: Shared, tmp_path: Path) -> None:
    path = shared("hidefix_pair/coads_climatology.nc4")
    results = built(tmp_path / "demo", [path], plan={"concat": "TIME"})
    expected = by_gdal(path, "SST")
    assert results.proven("vrt", "SST").tobytes() == expected.tobytes()
    opened = gdal.OpenEx(str(results.out("access", "vrt") / "demo.vrt"), gdal.OF_MULTIDIM_RASTER)
    array = opened.GetRootGroup().OpenMDArray("COADSX")
    assert array.GetAttribute("modulo").Read() == " "


# --- CMIP5: 3600, 1410 and 60 days a file ------------------------------------------------------------


def test_files_of_3600_1410_and_60_days_are_one_array(shared: Shared, tmp_path: Path) -> None:
    files = sorted(shared("cmip5_hadgem_mrsos_day").glob("*.nc"))
    assert len(files) == 11
    results = built(tmp_path / "demo", files[::-1], plan={"concat": "time"})
    expected = np.concatenate([by_gdal(f, "mrsos") for f in files])
    assert len(expected) == 9 * 3600 + 1410 + 60
    assert results.proven("sqlite", "mrsos").astype("<f4").tobytes() == expected.tobytes()


def test_the_last_three_of_unequal_length_read_equal_in_every_form(
    shared: Shared, tmp_path: Path
) -> None:
    files = sorted(shared("cmip5_hadgem_mrsos_day").glob("*.nc"))[-3:]
    results = built(tmp_path / "demo", files, plan={"concat": "time"})
    expected = np.concatenate([by_gdal(f, "mrsos") for f in files])
    assert len(expected) == 3600 + 1410 + 60
    for form in emitters.NAMES:
        found = results.proven(form, "mrsos").astype("<f4")
        assert found.tobytes() == expected.tobytes(), form


# --- Landsat: CRS of a stack -------------------------------------------------------------------------


@pytest.mark.parametrize(("glob", "date"), [("rgbn_*.tif", r"rgbn_(?P<date>\d{8})"), ("LC08_*.tif", r"_(?P<date>\d{8})_\d{8}_C01")])  # fmt: skip
def test_four_dates_of_a_tile_have_the_crs_and_the_place_of_each(
    shared: Shared, tmp_path: Path, glob: str, date: str
) -> None:
    files = sorted(shared("geotiff_landsat").glob(glob))
    assert len(files) == 4
    day = {"from": "date", "format": "%Y%m%d", "units": "days since 1970-01-01"}
    rules = {"pattern": date, "below": str(files[0].parent), "coordinate": day}
    results = built(tmp_path / "demo", files, scan={"file_name": rules}, plan={"concat": "time"})
    results.emit(("access", "vrt"))
    assert results.verify("access", "vrt")["verified"]
    opened = gdal.OpenEx(str(results.out("access", "vrt") / "demo.vrt"), gdal.OF_MULTIDIM_RASTER)
    array = opened.GetRootGroup().OpenMDArray("data")
    names = [dim.GetName() for dim in array.GetDimensions()]
    source = gdal.Open(str(files[2]))
    system = source.GetSpatialRef()
    for i, path in enumerate(files):
        view = array.GetView(f"[{i},...]")
        raster = view.AsClassicDataset(names.index("x") - 1, names.index("y") - 1)
        if system is not None:
            assert raster.GetSpatialRef().IsSame(system)
            assert raster.GetGeoTransform() == source.GetGeoTransform()
        np.testing.assert_array_equal(raster.ReadAsArray(), gdal.Open(str(path)).ReadAsArray())


# --- CMIP5: sixteen files that count from sixteen dates ---------------------------------------------


def test_months_that_count_from_sixteen_dates_keep_every_instant_bound_and_value_in_every_form(
    shared: Shared, tmp_path: Path
) -> None:
    files = sorted(shared("cmip5_ecearth_tas").glob("*.nc"))
    results = built(tmp_path / "demo", files)
    expected: dict[str, list[Any]] = {"time": [], "time_bnds": [], "tas": []}
    for path in files:
        with netCDF4.Dataset(path) as nc:
            nc.set_auto_mask(False)
            for name in ("time", "time_bnds"):
                v = nc[name]
                expected[name].append(cftime.num2date(v[...], v.units, v.calendar))
            expected["tas"].append(nc["tas"][...])
    with View.open(results.store) as view:
        units = view.arrays["time"].attrs["units"]
    for form in emitters.NAMES:
        np.testing.assert_array_equal(results.proven(form, "tas"), np.concatenate(expected["tas"]))
        for name in ("time", "time_bnds"):
            found = cftime.num2date(results.values(form, name)[name], units, "standard")
            np.testing.assert_array_equal(found, np.concatenate(expected[name]))
