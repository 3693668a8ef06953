"""An archive of COGs through the workflow as people run it: no axis of time but in the files' names."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import numpy as np
import pytest
from osgeo import gdal

from byterefs import emitters
from tiffs import cog, ramp
from workflow.project import Project

FORMS = ("icechunk", "kerchunk", "parquet", "sqlite", "vrt")


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """A dataset of COGs in every form."""
    day = {"from": "date", "format": "%Y%m%d", "units": "days since 2020-01-01"}
    return Project(
        tmp_path,
        source__pattern=r"sst\.(?P<date>\d{8})\.tif$",
        select={},
        scan={"arrays": ["sst"], "file_name": {"coordinate": day}},
        emit={form: {} for form in FORMS},
    )


def add(project: Project, *days: int) -> None:
    """Write the COG of each day."""
    for day in days:
        name = f"sst.{date(2020, 1, 1 + day):%Y%m%d}.tif"
        cog(project.archive / name, ramp((200, 300), seed=day), COMPRESS="ZSTD", PREDICTOR="YES")


def equal(project: Project, *days: int) -> bool:
    """Every form holds exactly these days, as they were written."""
    expected = np.stack([ramp((200, 300), seed=day) for day in days])
    for form in FORMS:
        out = project.results / "emit/access" / form
        reader = emitters.load(form).open(out, access=lambda path: path)
        shape = reader.arrays()["sst"].shape
        np.testing.assert_array_equal(reader.read("sst", tuple(map(slice, shape))), expected)
        assert reader.read("time", (slice(None),)).tolist() == list(days)
        assert project.receipt(f"verify/access/{form}.json")["verified"]
    return True


def test_cogs_are_published_and_a_day_is_appended_at_the_cost_of_that_day(project: Project) -> None:
    add(project, 0, 1, 2)
    project.run()
    assert equal(project, 0, 1, 2)
    add(project, 3)
    assert project.run().jobs["scan"] == 1
    assert equal(project, 0, 1, 2, 3)
    vrt = next((project.results / "emit/access/vrt").glob("*.vrt"))
    array = gdal.OpenEx(str(vrt), gdal.OF_MULTIDIM_RASTER).GetRootGroup().OpenMDArray("sst")
    assert [dim.GetName() for dim in array.GetDimensions()] == ["time", "y", "x"]
