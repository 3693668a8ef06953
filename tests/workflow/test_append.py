"""A store built by daily appends equals a store built in one go, byte for byte; Icechunk value for value."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from byterefs import emitters
from workflow.project import Project

FORMS = {"sqlite": {}, "vrt": {}, "parquet": {}, "kerchunk": {"json": True}, "icechunk": {}}
FORM_RECEIPTS = [f"results/demo/emit/access/{form}.receipt.json" for form in FORMS]
START = 5
"""Days of the first build."""


def append(project: Project, days: int, by_snakemake: int) -> None:
    """Build the first days, then append one day a run; a preliminary arrives on the way and is replaced.

    The last ``by_snakemake`` runs are the workflow's, those before them its stages in one process:
    a tenth of the time, since nothing is imported anew.
    """
    project.add(*range(START))
    project.stage_by_stage()
    for day in range(START, START + days):
        if day == START + 2:
            project.add(day, status="_preliminary", seed=9)
        else:
            project.add(day)
        if day == START + 4:
            project.add(START + 2)
            project.path(START + 2, "_preliminary").unlink()
        if day < START + days - by_snakemake:
            project.stage_by_stage()
        else:
            assert project.run(*FORM_RECEIPTS).jobs["emit"] == len(FORMS)


def assert_equal(appended: Project, whole: Project) -> None:
    """Every file of every form is equal, and what Icechunk reads."""
    one, other = appended.tree(), whole.tree()
    plain = {name for name in one.keys() | other.keys() if "/icechunk/" not in name}
    assert {name for name in plain if one.get(name) != other.get(name)} == set()
    assert len(plain) >= 2 * (len(FORMS) - 1)
    for array, values in icechunk(whole).items():
        np.testing.assert_array_equal(icechunk(appended)[array], values)


def icechunk(project: Project) -> dict[str, np.ndarray]:
    """Every array of the Icechunk form, through Icechunk."""
    out = project.results / "emit/access/icechunk"
    reader = emitters.load("icechunk").open(out, access=str)
    return {
        name: reader.read(name, tuple(slice(0, n) for n in described.shape))
        for name, described in reader.arrays().items()
    }


def compare(tmp_path: Path, days: int, by_snakemake: int) -> None:
    """Append ``days`` to one project, build another one from its archive, and compare the two."""
    appended = Project(tmp_path / "appended", emit=FORMS)
    append(appended, days, by_snakemake)
    appended.assert_published(*range(START + days))
    whole = Project(tmp_path / "whole", **appended.config)
    whole.configure(source__path=str(appended.archive))
    whole.run()
    assert_equal(appended, whole)
    appended.run()  # verifies every form


def test_twelve_daily_appends_equal_one_build(tmp_path: Path) -> None:
    compare(tmp_path, 12, by_snakemake=2)


@pytest.mark.soak
def test_forty_daily_appends_equal_one_build(tmp_path: Path) -> None:
    compare(tmp_path, 40, by_snakemake=40)
