"""Configs: defaults filled, the real datasets valid, and one sentence for each thing that is wrong."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

import config_readme
from byterefs import config
from byterefs.errors import ConfigError

ROOT = Path(__file__).parents[1]
SMALL = {
    "dataset": "mine",
    "source": {
        "provider": "local",
        "path": "archive",
        "pattern": r"(?P<date>\d{8})(?P<st>_p)?\.nc$",
    },
    "plan": {"concat": "time"},
}


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Write a dataset file that is SMALL with some keys replaced; a dotted key goes down."""
    monkeypatch.chdir(tmp_path)

    def writer(name: str = "mine", **changes: Any) -> Path:
        content = yaml.safe_load(yaml.safe_dump({**SMALL, "dataset": name}))
        for key, value in changes.items():
            *down, last = key.split("__")
            place = content
            for step in down:
                place = place.setdefault(step, {})
            place[last] = value
        path = tmp_path / f"{name}.yaml"
        path.write_text(yaml.safe_dump(content))
        return path

    return writer


def refusal(path: Path) -> str:
    with pytest.raises(ConfigError) as error:
        config.load(path)
    text = str(error.value)
    assert text.startswith(f"{path}: ")
    assert "\n" not in text
    return text


@pytest.mark.parametrize(
    "path", sorted((ROOT / "config/datasets").glob("*.yaml")), ids=lambda p: p.stem
)
def test_every_dataset_of_the_repository_passes_its_schema(path: Path) -> None:
    dataset = config.load(path)
    assert dataset["dataset"] == path.stem
    assert set(dataset["emit"]) == {"sqlite", "vrt", "parquet", "kerchunk", "icechunk"}


def test_ten_lines_are_a_config_and_every_other_key_has_its_default(write) -> None:
    dataset = config.load(write())
    assert dataset["scan"] == {
        "format": "auto",
        "arrays": [],
        "split": "step",
        "multiple": 1,
        "batch": 64,
        "on_error": "fail",
    }
    assert dataset["plan"]["axis"] == "packed"
    assert dataset["select"] == {"slot": [], "prefer": {}}
    assert dataset["emit"]["kerchunk"]["record_size"] == 100000
    assert dataset["emit"]["vrt"] == {"required": True}
    assert dataset["sync"] == []


def test_a_form_written_without_options_gets_its_defaults(write) -> None:
    assert config.load(write(emit={"vrt": None}))["emit"] == {"vrt": {"required": True}}


def test_relative_paths_become_absolute_and_keep_their_path_boundary(write, tmp_path: Path) -> None:
    dataset = config.load(
        write(
            remap={"public": {"archive/": "https://x.org/a/", "s3://b/c/": "https://x.org/c/"}},
            sync=[{"name": "here", "target": "public", "to": "out"}],
            scan={"references": {"path": "refs.json", "rename": {"s3://b/": "archive/"}}},
        )
    )
    references = {
        "path": str(tmp_path / "refs.json"),
        "rename": {"s3://b/": f"{tmp_path}/archive/"},
    }
    assert dataset["scan"]["references"] == references
    assert dataset["source"]["path"] == str(tmp_path / "archive")
    assert list(dataset["remap"]["public"]) == [f"{tmp_path}/archive/", "s3://b/c/"]
    assert dataset["sync"][0]["to"] == str(tmp_path / "out")


def test_every_key_of_both_schemas_has_a_description_and_optional_ones_a_default_or_a_reason() -> (
    None
):
    for name in ("config", "dataset"):
        for key, rule in walk(config.load_schema(name)):
            assert rule.get("description"), key
            if rule.get("type") == "object" and "properties" in rule:
                assert rule["additionalProperties"] is False, key


def walk(schema: dict[str, Any], prefix: str = ""):
    for key, rule in schema.get("properties", {}).items():
        yield prefix + key, rule
        yield from walk(rule, f"{prefix}{key}.")
        yield from walk(rule.get("items", {}), f"{prefix}{key}[].")


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"scan__arays": ["sst"]}, "scan: unknown key `arays`; did you mean `arrays`?"),
        ({"concat": "time"}, "unknown key `concat`; it belongs at `plan.concat`"),
        ({"zzz": 1}, "unknown key `zzz`; known here: dataset, title, source"),
        ({"emit": {"zarr": {}}}, "emit: unknown key `zarr`; known here: sqlite, vrt, parquet"),
        ({"scan__batch": "many"}, "scan.batch: 'many' is no integer"),
        ({"scan__batch": 0}, "scan.batch: 0 is less than the minimum of 1"),
        ({"plan__axis": "sparse"}, "plan.axis: 'sparse' is none of: packed, dense"),
        ({"plan__eras": 3}, "plan.eras: 3 does not fit: What a change of codec"),
        ({"source": {"provider": "local", "path": "a"}}, "source: the key `pattern` is missing"),
        ({"plan__engine": "vrt"}, "plan: the key `vrt` is missing"),
        ({"source__provider": "s3"}, "source: the key `url` is missing"),
        ({"source__provider": "ftp"}, "source.provider: 'ftp' is none of: local, listing"),
        ({"source__pattern": "(a"}, "source.pattern: '(a' is no regular expression"),
        ({"select__slot": ["day"]}, "select.slot: 'day' is no named group of source.pattern (it has: date, st)"),
        ({"select__prefer": {"kind": ["a"]}}, "select.prefer: 'kind' is no named group"),
        ({"remap": {"access": {"/a/": "/b/"}}}, "remap: "),
        ({"sync": [{"name": "a", "to": "x", "target": "public"}]}, "there is no target 'public'; `remap` makes these: access"),
        ({"sync": [{"name": "a", "to": "x"}, {"name": "a", "to": "y"}]}, "two publications have the name 'a'"),
        ({"sync": [{"name": "a", "to": "x", "mirror_of": "b"}]}, "no publication 'b' stands before it"),
        ({"emit": {"sqlite": {"sources": "public"}}}, "emit.sqlite.sources: there is no target 'public'"),
        ({"emit": {}}, "emit: "),
    ],
)  # fmt: skip
def test_a_wrong_key_is_one_sentence_that_names_it(
    write, changes: dict[str, Any], says: str
) -> None:
    assert says in refusal(write(**changes))


def test_a_dataset_is_named_as_its_file(write) -> None:
    path = write()
    assert "the name 'mine' and the file's name differ" in refusal(
        path.rename(path.with_stem("ours"))
    )


def test_a_stage_is_no_name_for_a_dataset(write) -> None:
    assert "'store' is a reserved name" in refusal(write("store"))


def test_a_name_that_is_no_folder_name_is_refused(write) -> None:
    assert "dataset: 'My Data' does not match" in refusal(write("My Data"))


def test_two_datasets_with_one_name_are_refused(write, tmp_path: Path) -> None:
    first = write()
    (tmp_path / "other").mkdir()
    second = tmp_path / "other" / "mine.yaml"
    second.write_text(first.read_text())
    with pytest.raises(
        ConfigError, match=f"two datasets have the name 'mine' .the second is {second}"
    ):
        config.load_datasets({"datasets": [str(first), str(second)]})


def test_a_dataset_that_has_no_file_names_the_nearest_one(write, tmp_path: Path) -> None:
    write("mine")
    with pytest.raises(
        ConfigError, match=r"there is no such dataset file; did you mean .*mine.yaml"
    ):
        config.load_datasets({"datasets": ["mime"], "dataset_folder": str(tmp_path)})


def test_a_misspelt_key_of_the_main_config_names_the_file_and_the_nearest_key() -> None:
    with pytest.raises(
        ConfigError, match=r"^config/config.yaml: unknown key `dataset`; did you mean `datasets`"
    ):
        config.load_datasets({"dataset": ["demo"]})


@pytest.mark.parametrize("below", ["", "/stac"])
def test_a_catalogue_within_the_place_of_a_publication_is_refused(
    write, tmp_path: Path, below: str
) -> None:
    place = str(tmp_path / "place")
    write("mine", sync=[{"name": "here", "to": place}])
    main = {"datasets": ["mine"], "dataset_folder": str(tmp_path)}
    with pytest.raises(ConfigError, match=r"catalogue\.to: .* belongs to the publication 'here'"):
        config.load_datasets({**main, "catalogue": {"to": place + below}})
    assert list(config.load_datasets({**main, "catalogue": {"to": str(tmp_path)}})) == ["mine"]


def test_a_key_that_stands_twice_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("dataset: mine\ndataset: other\n")
    assert "the key 'dataset' stands twice" in refusal(path)


def test_text_that_is_no_yaml_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("dataset: [mine\n")
    assert "this is not YAML" in refusal(path)


def test_a_file_that_holds_no_mapping_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("- mine\n")
    assert "a mapping of keys is expected" in refusal(path)


def test_the_config_readme_is_what_the_schemas_say() -> None:
    assert (ROOT / "config/README.md").read_text() == config_readme.text(), (
        "run `python scripts/config_readme.py`"
    )


def test_the_modules_that_the_snakefile_imports_stay_light() -> None:
    code = "import byterefs.config, byterefs.discover, sys; print(*sys.modules)"
    env = {**os.environ, "PYTHONPATH": str(ROOT / "scripts")}
    done = subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True
    )
    heavy = {
        "osgeo",
        "pyarrow",
        "icechunk",
        "zarr",
        "xarray",
        "h5py",
        "netCDF4",
        "duckdb",
        "numcodecs",
    }
    assert heavy.isdisjoint(done.stdout.split())


def test_names_and_slots_of_eras_are_text_however_yaml_reads_them(write):
    path = write(select={"slot": ["date"]})
    eras = "plan:\n  eras: {2009: {to: 20091231}, new: {from: [20100101]}}"
    path.write_text(path.read_text().replace("plan:", eras))
    assert config.load(path)["plan"]["eras"] == {
        "2009": {"to": "20091231"},
        "new": {"from": ["20100101"]},
    }


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"plan": {"eras": "auto"}}, "plan.eras: eras follow each other along an axis; name it in plan.concat"),
        ({"plan__eras": {"old": {}}}, "plan.eras: eras begin and end at slots; name the groups that make a slot"),
        ({"plan__eras": {"a/b": {}}, "select": {"slot": ["date"]}}, "plan.eras: {'a/b': {}} does not fit: What a change"),
        ({"plan__eras": {"old": {"until": "1"}}, "select": {"slot": ["date"]}}, "does not fit: What a change"),
    ],
)  # fmt: skip
def test_eras_that_cannot_be_are_refused_by_the_config(write, changes, text):
    assert text in refusal(write(**changes))
