"""What is written for people agrees with what the repository does."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from byterefs import config, discover, scanners

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
SCRIPTS = sorted(p.name for p in (ROOT / "scripts").glob("*.py"))


def committed() -> list[Path]:
    """Every file of the repository, also one that is not committed yet."""
    command = [
        "git",
        "-c",
        "safe.directory=*",
        "ls-files",
        "-z",
        "--cached",
        "--others",
        "--exclude-standard",
    ]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    files = (ROOT / name for name in listed.split("\0") if name)
    return [path for path in files if path.is_file() and not path.is_symlink()]


def section(title: str) -> str:
    """The text of one section of the README."""
    found = re.search(rf"(?ms)^## {re.escape(title)}\n(.*?)(?=^## |\Z)", README)
    assert found, f"README.md has no section {title!r}"
    return found[1]


def test_the_readme_lists_every_stage_in_the_order_of_the_flow_in_the_words_of_its_rule():
    listed = re.findall(r"(?m)^\| \[`(\w+)`\]\(rules/\1\.smk\) \| (.*) \|$", section("Stages"))
    stages = re.findall(r'(?m)^include: "rules/(\w+)\.smk"', (ROOT / "Snakefile").read_text())
    stages.remove("common")
    assert {f"{stage}.smk" for stage in stages} | {"common.smk"} == {
        p.name for p in (ROOT / "rules").iterdir()
    }
    assert [(stage, said.replace("`", "")) for stage, said in listed] == [
        (stage, docstring(stage)) for stage in stages
    ]


def docstring(stage: str) -> str:
    """What a rule says of itself."""
    text = (ROOT / "rules" / f"{stage}.smk").read_text()
    found = re.search(rf'(?m)^(?:rule|checkpoint) {stage}:\n    """(.*)"""$', text)
    assert found, f"rules/{stage}.smk: rule {stage} has no docstring of one line"
    return found[1]


def test_every_stage_has_its_script():
    stages = re.findall(r"(?m)^\| \[`(\w+)`\]", section("Stages"))
    assert [s for s in stages if f"{s}.py" not in SCRIPTS] == []


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_script_says_what_it_does_when_it_is_asked(script, tmp_path):
    command = [sys.executable, ROOT / "scripts" / script, "--help"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.split()) > 10
    assert list(tmp_path.iterdir()) == []


def test_what_the_readme_links_to_exists():
    links = re.findall(r"\]\((?!https?:)([^)#]+)", README)
    assert links
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_every_make_target_of_the_readme_exists():
    targets = set(re.findall(r"\bmake (?:-s )?([a-z0-9-]+)", README))
    assert {"demo", "test", "run"} <= targets
    assert targets <= set(re.findall(r"(?m)^([a-z0-9-]+):", (ROOT / "Makefile").read_text()))


def test_the_readme_describes_every_form():
    forms = re.findall(r"(?m)^\| `(\w+)` \|", section("Forms"))
    assert sorted(forms) == sorted(
        config.load_schema("dataset")["properties"]["emit"]["properties"]
    )


def test_the_readme_promises_no_format_and_no_provider_that_is_not_built():
    for words, names in {"Formats": scanners.NAMES, "Providers": discover.NAMES}.items():
        said = re.search(rf"(?ms)^- {words}: (.*?)^- ", section("Limits"))
        assert said, f"README.md, Limits: no item that starts with {words}"
        promised = re.findall(r"(?<!\[)`(\w+)`", said[1])
        assert promised
        assert set(promised) <= set(names)


def test_the_config_of_the_readme_passes_its_schema(tmp_path):
    dataset, datasets, remap = re.findall(r"(?ms)^```yaml\n(.*?)^```", section("Your own archive"))
    file = tmp_path / "mine.yaml"
    file.write_text(dataset + remap)
    assert config.load(file)["plan"]["concat"] == "time"
    assert yaml.safe_load(datasets) == {"datasets": ["mine"]}


def test_the_conda_environment_has_the_versions_that_the_tests_run_on():
    pins = dict(
        re.findall(r"(?m)^([\w.-]+)==([\w.]+)", (ROOT / "envs/requirements.txt").read_text())
    )
    asked = re.findall(r"(?m)^([\w-]+)", (ROOT / "envs/requirements.in").read_text())
    environment = yaml.safe_load((ROOT / "envs/byterefs.yaml").read_text())["dependencies"]
    *conda, pip = environment
    named = dict(re.split("==?", line) for line in [*conda, *pip["pip"]] if "=" in line)
    wanted = {name.lower(): pins[name.lower()] for name in asked} | {"python": "3.13"}
    gdal = wanted.pop("gdal-wheel")
    wanted |= {name: gdal for name in named if "gdal" in name}
    assert named == wanted


# where packages come from, and where this repository once lay
HOSTS = [
    "pypi[.]org",
    "pythonhosted[.]org",
    "conda[.]anaconda[.]org",
    "deb[.]debian[.]org",
    "npmjs[.]org",
]
PLACES = [r"/root/", r"/work/", r"/home/\w+/", r"/Users/\w+/", r"/opt/wheels", r"/opt/pypi"]


def test_the_container_is_made_of_what_the_tests_run_on():
    recipe = (ROOT / "envs/byterefs.def").read_text()
    version = yaml.safe_load((ROOT / "envs/byterefs.yaml").read_text())["dependencies"][0]
    assert f"From: docker.io/library/python:{version.removeprefix('python=')}-slim" in recipe
    copied = re.search(r"(?ms)^%files\n(.*?)^%", recipe)[1].split()[::2]
    assert "envs/requirements.txt" in copied
    assert [path for path in copied if not (ROOT / path).exists()] == []
    assert "--require-hashes -r /opt/byterefs/envs/requirements.txt" in recipe
    assert not re.search(r"(?m)^ *(?!#).*pip install (?!.*--require-hashes)", recipe)
    assert "not run where byterefs is developed" in recipe.lower()


def test_no_file_names_a_registry_host_or_a_path_of_one_machine():
    pattern = re.compile(rf"{'|'.join(HOSTS)}|(?<![\w.])(?:{'|'.join(PLACES)})".encode())
    own = {Path(__file__)}
    found = {p: pattern.findall(p.read_bytes()) for p in committed() if p not in own}
    assert {p: hits for p, hits in found.items() if hits} == {}


def test_no_file_is_larger_than_500_kb():
    assert {p: p.stat().st_size for p in committed() if p.stat().st_size > 500_000} == {}
