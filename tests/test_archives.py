"""Real archives, whole: built in every form, read through every form, equal to GDAL, and verified."""

from functools import cache
from pathlib import Path

import numpy as np
import pytest

from building import build
from byterefs import emitters
from byterefs.errors import PlanError
from byterefs.planning import vrt_plan
from byterefs.view import View
from conftest import Shared
from forms import Results

SEAICE = ("daily_nh_20211231", "daily_sh_20211231", "monthly_nh_202112", "monthly_sh_202112")
ARCHIVES = {
    "roms_nordic": ("roms_nordic/Nordic_subset_day*.nc", "ocean_time", 3),
    "siconc": ("cmip6_siconc_mpi/*.nc", "time", 12),
    "dcpp_pr": ("cmip6_dcpp_hadgem_pr/*.nc", "time", 12),
    "nclimgrid": ("nclimgrid/*-202201-grd-scaled.nc", "time", 2),
    "oisst": ("oisst/oisst-avhrr-v02r01.20220913.nc", "time", 1),
    **{
        f"seaice_{name[:-9] if 'daily' in name else name[:-7]}": (
            f"seaice_cdr/*{name}*.nc",
            "tdim",
            1,
        )
        for name in SEAICE
    },
}


@cache
def gdal_dataset(path):
    """A source opened by GDAL, once."""
    from osgeo import gdal

    gdal.UseExceptions()
    return gdal.OpenEx(path, gdal.OF_MULTIDIM_RASTER)


@pytest.fixture(scope="module", autouse=True)
def closed():
    """Datasets are closed with the module: at the interpreter's end HDF5 would be gone before them."""
    yield
    gdal_dataset.cache_clear()


def gdal_values(path, array):
    """Stored values of a source's array through GDAL."""
    return gdal_dataset(str(path)).GetRootGroup().OpenMDArrayFromFullname(f"/{array}").ReadAsArray()


@pytest.fixture(scope="module", params=ARCHIVES)
def archive(request, shared: Shared, tmp_path_factory):
    """A real archive in all five forms, as the workflow lays them out."""
    pattern, concat, count = ARCHIVES[request.param]
    files = sorted(shared(str(Path(pattern).parent)).glob(Path(pattern).name))
    assert len(files) == count
    results = Results(
        tmp_path_factory.mktemp(request.param), name=request.param, plan={"concat": concat}
    )
    results.scan(files)
    results.emit()
    return results


@pytest.mark.parametrize("form", emitters.NAMES)
def test_every_array_reads_equal_to_gdal_on_each_source(archive, form):
    reader = emitters.load(form).open(archive.out("access", form), access=lambda path: path)
    compared = 0
    with View.open(archive.store) as view:
        for name, array in view.arrays.items():
            for p in array.placements:
                if array.dtype[1] == "S":  # GDAL gives text, not bytes: see test_vrt and test_hdf5
                    continue
                window = tuple(slice(d, d + n) for d, n in zip(p.dest, p.count, strict=True))
                got = np.asarray(reader.read(name, window))
                expected = gdal_values(p.source, p.source_array)
                native = got.astype(got.dtype.newbyteorder("="))
                assert native.tobytes() == expected.tobytes(), (name, p.source)
                compared += got.size
    assert compared > 1000


@pytest.mark.parametrize("form", emitters.NAMES)
def test_every_form_is_verified(archive, form):
    proof = archive.verify("access", form, new="all", sample=24, full=True, public=False)
    assert proof["verified"] is True
    assert proof["values_compared"] > 1000


MOSAIC_REFUSES = {
    "roms_nordic": "is not 1D",
    "dcpp_pr": "regularly spaced labels, contrary to other datasets",
}


def test_placements_are_those_of_gdal_mdim_mosaic_wherever_it_can_plan(archive, tmp_path):
    name = archive.config["dataset"]
    with View.open(archive.store) as view:
        sources = [s.source for s in view.sources]
        if name in MOSAIC_REFUSES:
            with pytest.raises(PlanError, match=MOSAIC_REFUSES[name]):
                vrt_plan.mosaic(sources, [], tmp_path / "m.vrt")
            return
        compared = 0
        # two variables in two files at one time are two mosaics
        for group in [[s] for s in sources] if name == "nclimgrid" else [sources]:
            theirs = vrt_plan.read(
                vrt_plan.mosaic(group, [], tmp_path / "m.vrt"), str(tmp_path), "m"
            )
            for array in view.arrays.values():
                if array.kind == "data" and array.array in theirs.arrays:
                    assert sorted(theirs.arrays[array.array].placements) == sorted(array.placements)
                    compared += 1
        assert compared


def test_three_days_of_roms_are_the_three_day_file(shared, tmp_path):
    days = [shared(f"roms_nordic/Nordic_subset_day{n}.nc") for n in (3, 1, 2)]
    whole = shared("roms_nordic/Nordic_subset.nc")
    with build(tmp_path, days, plan={"concat": "ocean_time"}) as view:
        for form in emitters.NAMES:
            out = tmp_path / form
            emitters.load(form).emit(view, out, target="access", options={}, state={})
            reader = emitters.load(form).open(out, access=lambda path: path)
            for name in (
                "ocean_time",
                "temp",
                "salt",
                "zeta",
                "u",
                "v",
                "lat_rho",
                "h",
                "mask_rho",
            ):
                array = view.arrays[name]
                got = np.asarray(reader.read(name, tuple(slice(0, n) for n in array.shape)))
                assert got.tobytes() == gdal_values(whole, name).tobytes(), (form, name)


def test_the_oisst_day_is_equal_to_the_cogs_that_another_tool_made(shared, tmp_path):
    import rasterio

    day = shared("oisst/oisst-avhrr-v02r01.20220913.nc")
    with build(tmp_path, [day]) as view:
        for form in emitters.NAMES:
            emitters.load(form).emit(view, tmp_path / form, target="access", options={}, state={})
            reader = emitters.load(form).open(tmp_path / form, access=lambda path: path)
            for name in ("sst", "anom", "err", "ice"):
                got = np.asarray(
                    reader.read(name, (slice(0, 1), slice(0, 1), slice(0, 720), slice(0, 1440)))
                )[0, 0]
                with rasterio.open(shared(f"oisst/oisst-avhrr-v02r01.20220913-{name}.tif")) as cog:
                    other = cog.read(1)
                    scale, nodata = cog.scales[0], cog.nodata
                turned = np.roll(got[::-1], 720, axis=1)
                stored = np.round(other / 0.01) if other.dtype.kind == "f" and scale == 1 else other
                expected = np.where((other == nodata) | np.isnan(other), -999, stored).astype("i2")
                assert (turned == expected).all(), (form, name)


def test_granules_that_share_a_time_are_refused_with_both_names_and_the_value(shared, tmp_path):
    files = sorted(shared("harmony_granules").glob("*.nc"))
    assert len(files) == 5
    with pytest.raises(
        PlanError,
        match=r"2020_01_02_3200ff_global\.nc: .* time 166536 \(hours since 2001-01-01.*2020_01_01_7f00ff_global\.nc",
    ):
        build(tmp_path, files)
