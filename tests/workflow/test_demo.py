"""`make demo`: the flow from nothing to a map, and the figures that it prints."""

import json
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from datetime import date

import matplotlib.image
import numpy as np
import pytest

import demo
from demonstration import granules, picture
from demonstration.world import ocean
from workflow.project import ENVIRONMENT, ROOT

FORMS = ["icechunk", "kerchunk", "parquet", "sqlite", "vrt"]
VALUES = 30 * 4 * 180 * 360  # days, arrays, lat, lon


def copy_of_the_repository(root):
    for name in ("rules", "profiles", "envs", "scripts", "config"):
        shutil.copytree(ROOT / name, root / name)
    shutil.copy(ROOT / "Snakefile", root)


def run(root, *arguments):
    command = [sys.executable, "scripts/demo.py", *arguments]
    return subprocess.run(
        command, cwd=root, env=ENVIRONMENT, capture_output=True, text=True, check=False
    )


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    """The folder of a demo that ran, and what it printed."""
    root = tmp_path_factory.mktemp("demo")
    copy_of_the_repository(root)
    done = run(root)
    assert done.returncode == 0, done.stdout + done.stderr
    return root, done.stdout


@pytest.fixture
def figures(shown):
    return json.loads((shown[0] / "results/demo/summary.json").read_text())


def test_the_append_opens_three_files_and_adds_two_days(figures):
    assert figures["first"]["sources_opened"] == 30
    assert figures["append"]["sources_opened"] == 3
    assert figures["first"]["rows"] == 30 * 4
    assert figures["append"]["rows"] == 32 * 4


def test_every_form_is_verified_on_every_value(figures):
    assert sorted(figures["forms"]) == FORMS
    for form in figures["forms"].values():
        assert form["verified"]
        assert form["values_compared"] > VALUES


def test_the_summary_says_what_ran_for_how_long_and_with_what(figures):
    for name in ("first", "append"):
        assert figures[name].keys() == {"jobs", "sources_opened", "rows", "seconds"}
        assert figures[name]["jobs"] > len(FORMS)
        assert figures[name]["seconds"] > 0
    assert {"python", "snakemake", "gdal-wheel"} <= figures["versions"].keys()


def test_the_table_shows_the_figures_of_the_summary(shown, figures):
    words = [line.split() for line in shown[1].splitlines()]
    for label, key in {"jobs": "jobs", "files": "sources_opened", "rows": "rows"}.items():
        pair = [f"{figures[name][key]:,}" for name in ("first", "append")]
        assert [w for w in words if w[:1] == [label] and w[-2:] == pair], (label, pair)
    assert [w[0] for w in words if "yes" in w] == sorted([*FORMS, "kerchunk", "parquet", "vrt"])


def test_the_publication_is_announced_and_a_run_with_nothing_new_announces_nothing(shown):
    root = shown[0]
    place = root / "results/demo/published"
    assert "<h1>byterefs demo" in (place / "index.html").read_text()
    assert "results/demo/published/index.html" in shown[1]
    item = json.loads((place / "stac/items/demo.json").read_text())
    assert item["properties"]["end_datetime"] == "2026-10-02T12:00:00Z"
    assert len((root / "results/register/sds.csv").read_text().splitlines()) == 1 + len(FORMS)
    command = [sys.executable, "-m", "snakemake", "-n"]
    again = subprocess.run(command, cwd=root, env=ENVIRONMENT, capture_output=True, text=True)
    assert "Nothing to be done" in again.stdout + again.stderr


def test_a_final_file_has_replaced_its_preliminary_one(shown):
    store = shown[0] / "results/demo/emit/access/sqlite/store.sqlite"
    with closing(sqlite3.connect(store)) as con:
        names = {path.rsplit("/", 1)[1] for (path,) in con.execute("SELECT path FROM refs_sst")}
    assert "oisst-demo.20260929.nc" in names
    assert "oisst-demo.20260929_preliminary.nc" not in names
    assert len(names) == 32


def test_the_map_is_drawn_from_the_newest_day_as_it_was_written(shown):
    day = picture.newest(shown[0] / "results/demo/emit/access/sqlite/store.sqlite", "sst")
    assert day.when.date() == date(2026, 10, 2)
    wanted = ocean(date(2026, 10, 2), preliminary=True).sst
    np.testing.assert_allclose(day.values, np.round(wanted, 2), atol=0.0051)
    image = matplotlib.image.imread(shown[0] / "results/demo/map.png")
    assert image.shape[1] > 1000
    assert len(np.unique(image.reshape(-1, image.shape[2]), axis=0)) > 200


@pytest.mark.parametrize("form", ["icechunk", "kerchunk"])
def test_the_lines_for_xarray_open_the_form(shown, form):
    folder = shown[0] / "results/demo/emit/access" / form
    lines = json.loads((folder / "open.json").read_text())["open"]["xarray"]
    done = python([*lines, "print(float(ds.sst[-1, 0, 90, 180]))"], folder)
    wanted = round(ocean(date(2026, 10, 2), preliminary=True).sst[90, 180], 2)
    assert float(done.stdout) == pytest.approx(wanted, abs=0.0051)


def test_the_lines_for_duckdb_and_gdal_in_python_run(shown):
    ran = 0
    for file in (shown[0] / "results/demo/emit/access").glob("*/open.json"):
        lines = json.loads(file.read_text())["open"]
        sql = [x for x in lines.get("duckdb", ()) if "read_parquet" in x]
        gdal = [x for x in lines.get("gdal", ()) if x.startswith("from osgeo")]
        for line in [*(f"import duckdb; print(duckdb.sql({x!r}))" for x in sql), *gdal]:
            assert python([line], file.parent).stdout
            ran += 1
    assert ran >= 4


def python(lines, folder):
    command = [sys.executable, "-c", "\n".join(lines)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done


def test_a_demo_removes_its_two_folders_and_nothing_else(tmp_path, monkeypatch, capsys):
    for name in ("archive/demo", "archive/mine", "results/demo", "results/mine"):
        (tmp_path / name).mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    demo.remove(demo.Console())
    assert sorted(str(p.relative_to(tmp_path)) for p in tmp_path.glob("*/*")) == [
        "archive/mine",
        "results/mine",
    ]
    assert "removing archive/demo" in capsys.readouterr().out


def test_a_step_that_fails_ends_the_demo_with_its_reason(tmp_path):
    copy_of_the_repository(tmp_path)
    config = tmp_path / "config/datasets/demo.yaml"
    config.write_text(config.read_text().replace("slot: [date]", "slott: [date]"))
    done = run(tmp_path)
    assert done.returncode == 1
    assert "slott" in done.stderr
    assert "logs/demo/demo-first.log" in done.stderr
    assert not (tmp_path / "results/demo/summary.json").exists()


def test_the_same_day_is_the_same_file(tmp_path):
    first, second = (granules.write(tmp_path / n, granules.Day(date(2026, 9, 1))) for n in "ab")
    assert first.read_bytes() == second.read_bytes()
