"""Projected grids in STAC: the box in degrees is that of the grid's cells, or there is none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pystac
import pytest
from osgeo import gdal, osr

from announcing import Announced
from building import build
from byterefs.catalogue import cube, projected, stac
from byterefs.catalogue.projected import Projected
from byterefs.view import View
from conftest import Shared
from test_register import errors

gdal.UseExceptions()
osr.UseExceptions()
NONE = {"engine": "coordinates", "concat": None}
LAEA = {
    "grid_mapping_name": "lambert_azimuthal_equal_area",
    "latitude_of_projection_origin": 52.0,
    "longitude_of_projection_origin": 10.0,
    "false_easting": 4321000.0,
    "false_northing": 3210000.0,
    "semi_major_axis": 6378137.0,
    "inverse_flattening": 298.257222101,
}


def grid(view: View) -> Projected | None:
    (found,) = cube.cubes(view)
    return projected.projected(view, found)


def to_degrees(system: osr.SpatialReference, x: Any, y: Any) -> Any:
    """Longitude and latitude of every cell's centre, point by point."""
    world = osr.SpatialReference()
    world.ImportFromEPSG(4326)
    for each in (system, world):
        each.SetAxisMappingStrategy(osr.OAMS_TRADITIONAL_GIS_ORDER)
    xs, ys = np.meshgrid(np.asarray(x, "f8"), np.asarray(y, "f8"))
    turn = osr.CoordinateTransformation(system, world)
    return np.array(turn.TransformPoints(np.c_[xs.ravel(), ys.ravel()]))[:, :2]


def laea(path: Path, left: float = 4000000.0, units: str = "m", **mapping: Any) -> Path:
    """Four rows of five columns of 10 km, as CF describes them."""
    with h5py.File(path, "w") as f:
        f["crs"] = 0
        f["crs"].attrs.update(LAEA | mapping)
        axes = {"y": 3000000.0 - 1e4 * np.arange(4), "x": left + 1e4 * np.arange(5)}
        for name, values in axes.items():
            f[name] = values / {"km": 1000, "rad": 35786023.0}.get(units, 1)
            f[name].make_scale(name)
            f[name].attrs["standard_name"] = f"projection_{name}_coordinate"
            f[name].attrs["units"] = units
        d = f.create_dataset("v", data=np.ones((4, 5), "f4"), chunks=(4, 5))
        d.attrs["grid_mapping"] = "crs"
        for i, name in enumerate("yx"):
            d.dims[i].attach_scale(f[name])
    return path


@pytest.mark.parametrize(("pole", "south", "north"), [("nh", 30.98, 90.0), ("sh", -90.0, -39.23)])
def test_a_polar_grid_reaches_its_pole_and_the_latitude_that_its_publisher_gives(
    shared: Shared, tmp_path: Path, pole: str, south: float, north: float
) -> None:
    """NSIDC lists 30.98 N and 39.23 S as the outermost corners of its 25 km grids."""
    path = shared(f"seaice_cdr/seaice_conc_daily_{pole}_20211231_f17_v04r00.nc")
    with build(tmp_path, [path], plan=NONE) as view:
        found = grid(view)
        assert found is not None
        assert found.box == pytest.approx([-180, south, 180, north], abs=0.005)
        assert stac.bounds(view, cube.cubes(view)[0], grid(view)) == found.box
    system = osr.SpatialReference()
    system.ImportFromWkt(found.wkt)
    group = gdal.OpenEx(str(path), gdal.OF_MULTIDIM_RASTER).GetRootGroup()
    x, y = (group.OpenMDArray(name).ReadAsArray() for name in ("xgrid", "ygrid"))
    assert found.shape == [len(y), len(x)]
    points = to_degrees(system, x, y)
    assert (points[:, 1] >= found.box[1]).all()
    assert (points[:, 1] <= found.box[3]).all()
    corner = points[:, 1].min() if pole == "nh" else points[:, 1].max()
    assert corner == pytest.approx(south if pole == "nh" else north, abs=0.15)


@pytest.mark.parametrize("units", ["m", "km"])
def test_the_box_of_a_grid_is_that_of_its_cells_point_by_point(tmp_path: Path, units: str) -> None:
    with build(tmp_path, [laea(tmp_path / "a.nc", units=units)], plan=NONE) as view:
        found = grid(view)
    assert found is not None
    assert found.plane == pytest.approx([3995000, 2965000, 4045000, 3005000])
    system = osr.SpatialReference()
    system.ImportFromEPSG(3035)
    left, bottom, right, top = found.plane
    points = to_degrees(system, np.linspace(left, right, 301), np.linspace(bottom, top, 301))
    wanted = [*points.min(axis=0), *points.max(axis=0)]
    assert found.box == pytest.approx(wanted, abs=1e-5)


def test_a_code_is_told_where_the_registry_has_the_same_system(tmp_path: Path) -> None:
    system = osr.SpatialReference()
    system.ImportFromEPSG(3035)
    wkt = system.ExportToWkt(["FORMAT=WKT2_2019"])
    with build(tmp_path, [laea(tmp_path / "a.nc", crs_wkt=wkt)], plan=NONE) as view:
        found = grid(view)
        assert found is not None
        assert found.code == "EPSG:3035"
        assert stac.projection(found)["proj:wkt2"].startswith("PROJCRS[")
    lying = wkt.replace('"Longitude of natural origin",10', '"Longitude of natural origin",20')
    mapping = {"crs_wkt": lying, "longitude_of_projection_origin": 20.0}
    (tmp_path / "lying").mkdir()
    with build(tmp_path / "lying", [laea(tmp_path / "b.nc", **mapping)], plan=NONE) as view:
        found = grid(view)
        assert found is not None
        assert found.code is None


def test_a_published_projected_grid_validates_offline_and_opens_as_the_extension(
    tmp_path: Path,
) -> None:
    made = Announced(tmp_path, "http://127.0.0.1:9", plan=NONE)
    made.emit = {"parquet": {}}
    made.archive.mkdir()
    made.publish([laea(made.archive / "a.nc")])
    content = json.loads((made.place / "stac" / "items" / "demo.json").read_text())
    assert errors(content) == []
    told = pystac.Item.from_dict(content).ext.proj
    assert told.shape == [4, 5]
    assert told.bbox == [3995000, 2965000, 4045000, 3005000]
    system = osr.SpatialReference()
    system.ImportFromWkt(told.wkt2)
    assert system.GetProjParm("latitude_of_center") == 52
    for wrong in ({"proj:shape": [4]}, {"proj:bbox": [1, 2, 3]}, {"proj:epsg": 3035}):
        assert errors({**content, "properties": content["properties"] | wrong}) != []


def test_x_and_y_of_a_cube_are_in_the_system_of_the_grid_or_no_spatial_axes(tmp_path: Path) -> None:
    """The datacube extension takes EPSG 4326 where a spatial dimension names no system."""
    with build(tmp_path / "known", [laea(tmp_path / "a.nc")], plan=NONE) as view:
        found = grid(view)
        assert found is not None
        told = stac.dimensions(view, cube.cubes(view)[0], grid(view))
    for name in "xy":
        assert (told[name]["type"], told[name]["axis"]) == ("spatial", name)
        assert told[name]["reference_system"] == found.wkt
    unknown = laea(tmp_path / "b.nc", grid_mapping_name="nobody_knows")
    with build(tmp_path / "unknown", [unknown], plan=NONE) as view:
        assert grid(view) is None
        told = stac.dimensions(view, cube.cubes(view)[0], grid(view))
    assert [told[name] for name in "xy"] == [
        {"type": "custom", "extent": [4e6, 4.04e6], "step": 1e4, "unit": "m"},
        {"type": "custom", "extent": [2.97e6, 3e6], "step": -1e4, "unit": "m"},
    ]


def test_a_grid_across_the_antimeridian_has_all_longitudes(tmp_path: Path) -> None:
    path = laea(tmp_path / "a.nc", left=4300000.0, longitude_of_projection_origin=180.0)
    with build(tmp_path, [path], plan=NONE) as view:
        found = grid(view)
    assert found is not None
    assert found.box[::2] == [-180, 180]
    assert 48 < found.box[1] < found.box[3] < 51


@pytest.mark.parametrize(
    "changes",
    [
        {"units": "rad"},
        {"left": 9e7},
        {"crs_wkt": "no WKT"},
        {"grid_mapping_name": "nobody_knows"},
        {
            "grid_mapping_name": "geostationary",
            "perspective_point_height": 35786023.0,
            "false_northing": -6e6,
        },
    ],
    ids=["angles", "off the Earth", "no WKT", "no projection", "beside the disk"],
)
def test_a_grid_whose_place_is_not_certain_has_no_box(
    tmp_path: Path, changes: dict[str, Any]
) -> None:
    if "crs_wkt" in changes:
        changes = {**changes, "grid_mapping_name": "nobody_knows"}
    with build(tmp_path, [laea(tmp_path / "a.nc", **changes)], plan=NONE) as view:
        assert grid(view) is None
        assert stac.bounds(view, cube.cubes(view)[0], grid(view)) is None


def test_a_wkt_and_attributes_that_lie_apart_give_no_box(tmp_path: Path) -> None:
    system = osr.SpatialReference()
    system.ImportFromEPSG(3035)
    wkt = system.ExportToWkt(["FORMAT=WKT2_2019"])
    path = laea(tmp_path / "a.nc", crs_wkt=wkt, longitude_of_projection_origin=-10.0)
    with build(tmp_path, [path], plan=NONE) as view:
        assert grid(view) is None


def test_the_geostationary_granule_of_goes_has_no_box(shared: Shared, tmp_path: Path) -> None:
    path = next(shared("goes").glob("*.nc"))
    with build(tmp_path, [path], plan=NONE, scan={"arrays": ["LST"]}) as view:
        assert grid(view) is None
