"""The JavaScript of the landing page is made of the sources in page/, and of nothing else."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ASSETS = "scripts/byterefs/assets"


def test_the_committed_bundle_is_what_its_sources_make(tmp_path: Path) -> None:
    if not shutil.which("npm"):
        pytest.skip("npm is not installed")
    ignore = shutil.ignore_patterns("node_modules")
    shutil.copytree(ROOT / "page", tmp_path / "page", ignore=ignore)
    (tmp_path / ASSETS).mkdir(parents=True)
    makefile = ["make", "-f", ROOT / "Makefile", "page-bundle"]
    subprocess.run(makefile, cwd=tmp_path, check=True, capture_output=True)
    made = {p.name: p.read_bytes() for p in (tmp_path / ASSETS).iterdir()}
    assert made == {name: (ROOT / ASSETS / name).read_bytes() for name in made}
    assert set(made) == {"page.js", "page.js.LICENCES.txt"}


def test_the_bundle_names_the_licence_of_every_package_that_is_in_it() -> None:
    packages = json.loads((ROOT / "page/package.json").read_text())["dependencies"]
    text = (ROOT / ASSETS / "page.js.LICENCES.txt").read_text()
    assert [name for name, version in packages.items() if f"{name} {version}\n" not in text] == []
    assert text.count("Permission is hereby granted") == len(packages)


def test_versions_are_pinned_and_the_lock_names_no_place_to_download_from() -> None:
    package = json.loads((ROOT / "page/package.json").read_text())
    asked = package["dependencies"] | package["devDependencies"]
    assert all(version[0].isdigit() for version in asked.values())
    lock = json.loads((ROOT / "page/package-lock.json").read_text())
    assert [name for name, held in lock["packages"].items() if "resolved" in held] == []
    locked = {n.removeprefix("node_modules/"): h for n, h in lock["packages"].items()}
    assert {name: locked[name]["version"] for name in asked} == asked
    assert all("integrity" in held for name, held in locked.items() if name)
