"""R's lines of ``open.json``, run by Debian's R in the form's folder and at its address."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from datetime import date
from pathlib import Path

import h5py
import make
import numpy as np
import pytest
import run

import serving
from building import build
from byterefs import emitters
from byterefs.emitters import Place
from granules import oisst
from serving import Web

AFTER = {
    "vrt": (
        "cat(jsonlite::toJSON(list(class = class(shown), names = names(dim(shown)), values = as.vector(shown[[1]]), "
        "axes = lapply(seq_along(axes), function(i) as.character(st_get_dimension_values(shown, i)))), "
        "digits = NA, na = 'null'))"
    ),
    "sqlite": "cat(jsonlite::toJSON(dbGetQuery(con, 'SELECT * FROM \"refs_sst\"'), digits = NA))",
}
"""what a test adds, so that what R got can be compared"""


def r(lines: list[str], form: str, folder: Path) -> dict:
    """What R has after some lines, run in a folder."""
    script = "\n".join([*lines, AFTER[form]])
    done = subprocess.run(
        ["Rscript", "-e", script], capture_output=True, text=True, cwd=folder, check=False
    )
    assert done.returncode == 0, f"{script}\n{done.stderr}"
    return json.loads(done.stdout.strip().splitlines()[-1])


class Site:
    """Small datasets as VRT and SQLite, for this machine and for a web server."""

    def __init__(self, folder: Path, web: Web) -> None:
        self.folder, self.web = folder, web
        self.sst = [
            oisst(folder / "daily/archive" / f"day{n}.nc", date(2020, 1, n), arrays=["sst"])["sst"]
            for n in (1, 2, 3)
        ]
        self.lines = {name: self.publish(name) for name in ("daily", "eras", "grouped")}

    def publish(self, name: str) -> dict[tuple[str, str], list[str]]:
        """(form, target) -> R's lines."""
        write, parts = make.DATASETS.get(name, (lambda folder: None, {}))
        archive, found = self.folder / name / "archive", {}
        archive.mkdir(parents=True, exist_ok=True)
        write(archive)
        rules = {"web": {f"{self.folder}/": f"{self.web.url}/"}}
        with build(
            self.folder / name, sorted(archive.iterdir()), name=name, remap=rules, **parts
        ) as view:
            for form in AFTER:
                module = emitters.load(form)
                for target in ("access", "web"):
                    out = self.folder / name / target / form
                    module.emit(view, out, target=target, options={}, state={})
                    at = Place(f"{self.web.url}/{name}/{target}/{form}")
                    told = json.loads((out / "open.json").read_text())["open"]
                    remote = module.opening(view, target=target, options={}, place=at)
                    found[form, target] = (told if target == "access" else remote)["r"]
        return found

    def run(self, name: str, form: str, target: str, tmp_path: Path) -> dict:
        """Run them: those of the folder in it, those of the address anywhere."""
        folder = self.folder / name / target / form if target == "access" else tmp_path
        return r(self.lines[name][form, target], form, folder)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    for what in ("chunk.R", "stars.R"):
        run.installed(what)
    folder = tmp_path_factory.mktemp("r")
    with serving.web(folder) as web:
        yield Site(folder, web)


@pytest.mark.parametrize("target", ["access", "web"])
def test_stars_gets_the_last_step_on_its_coordinates_and_dates(
    site: Site, tmp_path: Path, target: str
) -> None:
    got = site.run("daily", "vrt", target, tmp_path)
    assert got["class"] == ["stars"]
    assert got["names"] == ["lon", "lat", "zlev", "time"]
    assert got["axes"][3] == ["2020-01-03 12:00:00"]
    assert [float(x) for x in got["axes"][0][:3]] == [5, 15, 25]
    assert [float(x) for x in got["axes"][1][:3]] == [-85, -75, -65]
    stored = site.sst[2].ravel()
    wanted = np.where(stored == -999, np.nan, stored * 0.01)
    # the scale of the file is a float32
    np.testing.assert_allclose(np.array(got["values"], "f8"), wanted, rtol=1e-6)


@pytest.mark.parametrize("target", ["access", "web"])
def test_of_two_eras_with_one_name_stars_gets_the_one_that_the_lines_name(
    site: Site, tmp_path: Path, target: str
) -> None:
    got = site.run("eras", "vrt", target, tmp_path)
    wanted = (np.arange(35) + 30) * 0.01
    np.testing.assert_allclose(got["values"], wanted, rtol=1e-12)
    assert got["axes"][2] == ["2020-01-04"]
    # the other one by the same lines: sf alone would give the first of that name
    lines = [line.replace('"new"', '"old"') for line in site.lines["eras"]["vrt", "access"]]
    older = r(lines, "vrt", site.folder / "eras/access/vrt")
    np.testing.assert_allclose(older["values"], (np.arange(35) + 10) * 0.1, rtol=1e-12)
    assert older["axes"][2] == ["2020-01-02"]


def test_stars_gets_an_array_in_a_group(site: Site, tmp_path: Path) -> None:
    assert site.run("grouped", "vrt", "access", tmp_path)["values"] == list(range(35))


@pytest.mark.parametrize("target", ["access", "web"])
def test_dbi_gets_the_rows_of_the_table(site: Site, tmp_path: Path, target: str) -> None:
    rows = site.run("daily", "sqlite", target, tmp_path)
    assert [row["dim_0"] for row in rows] == [0, 1, 2]
    for n, row in enumerate(rows, 1):
        path = site.folder / f"daily/archive/day{n}.nc"
        with h5py.File(path) as f:
            chunk = f["sst"].id.get_chunk_info(0)
        assert (row["path"], row["offset"], row["size"]) == (
            str(path), chunk.byte_offset, chunk.size,
        )  # fmt: skip


def test_what_r_does_not_get_is_told_with_the_reason_and_has_no_lines(tmp_path: Path) -> None:
    archive = tmp_path / "archive"
    archive.mkdir()
    make.daily(archive)
    with build(tmp_path, sorted(archive.iterdir()), scan={"arrays": ["wide"]}) as view:
        emitters.load("vrt").emit(view, tmp_path / "vrt", target="access", options={}, state={})
    told = json.loads((tmp_path / "vrt/open.json").read_text())
    assert "doubles" in told["coverage"]["wide"]["r"]
    assert told["coverage"]["y"] == {"gdal": True, "r": True}
    assert "r" not in told["open"]
    assert (
        "`wide`, r: sf gives 64-bit integers as doubles" in (tmp_path / "vrt/OPEN.md").read_text()
    )
