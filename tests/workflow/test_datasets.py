"""The datasets of the repository: each plans its jobs on a small listing of names as its archive has them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from byterefs import config as configs
from byterefs import discover
from byterefs.discover import select
from workflow.project import Project

ROOT = Path(__file__).parents[2]
LISTINGS = Path(__file__).parent / "listings"
SOURCES = {"oisst": 7, "bran2023": 9, "seaice_cdr": 4, "mur": 3}
SLOTS = {
    "oisst": [("20260628",), ("20260701",), ("20260703",)],
    "bran2023": [("temp", "2010", "01"), ("eta_t", "2025", "12")],
    "seaice_cdr": [("19781025",), ("20250101",)],
    "mur": [("20020601",), ("20240229",)],
}


def from_listing(name: str, folder: Path) -> Path:
    """A copy of a dataset file whose sources are in its recorded listing."""
    content = yaml.safe_load((ROOT / "config/datasets" / f"{name}.yaml").read_text())
    listing = str(LISTINGS / f"{name}.csv")
    content["source"] = {**content["source"], "provider": "listing", "path": listing}
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump(content, sort_keys=False))
    return path


@pytest.mark.parametrize("name", SOURCES)
def test_the_pattern_finds_the_sources_of_the_archive_and_their_slots(
    name: str, tmp_path: Path
) -> None:
    config = configs.load(from_listing(name, tmp_path))
    sources = discover.listed(config)["sources"]
    assert len(sources) == SOURCES[name]
    chosen = select.winners(
        sources, config["source"]["pattern"], config["select"]["slot"], config["select"]["prefer"]
    )
    assert set(SLOTS[name]) <= set(chosen.winners)
    assert len(chosen.losers) == (name == "oisst")


@pytest.mark.parametrize("name", SOURCES)
def test_every_source_of_the_archive_is_covered_by_each_target(name: str, tmp_path: Path) -> None:
    config = configs.load(from_listing(name, tmp_path))
    for rules in config["remap"].values():
        for source in discover.listed(config)["sources"]:
            assert any(source.startswith(prefix) for prefix in rules)


def test_all_datasets_dry_run_on_their_listings(project: Project) -> None:
    for name in SOURCES:
        from_listing(name, project.root / "config/datasets")
    listed = ", ".join(SOURCES)
    (project.root / "config/config.yaml").write_text(f"datasets: [{listed}]\n")
    output = project.run("-n").output
    wanted = {"discover": 4, "store": 4, "plan": 4, "view": 4}
    for rule, count in wanted.items():
        assert re.search(rf"^{rule} +{count}$", output, re.M), output
