"""The README's section on one's own archive does what it says, as it stands there."""

import json
import re
import shutil
import subprocess
import sys
from datetime import date, timedelta

import granules
from workflow.project import ENVIRONMENT, ROOT


def test_the_config_of_the_readme_builds_and_updates_an_archive(tmp_path):
    text = (ROOT / "README.md").read_text()
    section = re.search(r"(?ms)^## Your own archive\n(.*?)(?=^## )", text)[1]
    dataset, datasets, _remap = re.findall(r"(?ms)^```yaml\n(.*?)^```", section)
    assert len(dataset.splitlines()) <= 10
    for name in ("rules", "profiles", "envs", "scripts", "config"):
        shutil.copytree(ROOT / name, tmp_path / name)
    shutil.copy(ROOT / "Snakefile", tmp_path)
    archive = tmp_path / "data"
    config = dataset.replace("/data/mine", str(archive))
    (tmp_path / "config/datasets/mine.yaml").write_text(config)
    (tmp_path / "config/config.yaml").write_text(datasets)

    arrive(archive, 0, 1, 2)
    assert "discover" in run(tmp_path, "-n")
    assert not (tmp_path / "results/mine/store").exists()
    run(tmp_path)
    assert sources(tmp_path) == 3
    for receipt in ("access/vrt", "access/sqlite", "access/kerchunk"):
        verified = json.loads((tmp_path / f"results/mine/verify/{receipt}.json").read_text())
        assert verified["verified"]
        assert (tmp_path / "results/mine/emit" / receipt / "OPEN.md").exists()
    arrive(archive, 3)
    run(tmp_path)
    assert sources(tmp_path) == 4
    assert "Nothing to be done" in run(tmp_path)


def arrive(archive, *days):
    archive.mkdir(exist_ok=True)
    for day in (date(2024, 1, 1) + timedelta(n) for n in days):
        granules.oisst(archive / f"sst.{day:%Y%m%d}.nc", day, arrays=("sst",), shape=(6, 8))


def run(root, *arguments):
    """What `make run` does, once .venv stands."""
    assert "scripts/daily.py $(ARGS)" in (ROOT / "Makefile").read_text()
    done = subprocess.run(
        [sys.executable, "scripts/daily.py", *arguments],
        cwd=root, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    return done.stdout


def sources(root):
    return json.loads((root / "results/mine/view/receipt.json").read_text())["counts"]["sources"]
