"""Bad input: one sentence that names it, an exit code, and nothing lost that was built before.

The tests of this module share one archive, and each leaves it as it found it.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from byterefs.errors import ByteRefsError
from workflow.project import Project

FIRST_FORMS = "results/demo/emit/access/vrt.receipt.json"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Project:
    project = Project(tmp_path_factory.mktemp("refusals"))
    project.add(0, 1, 2)
    project.run()
    return project


@pytest.fixture
def kept(built: Project) -> Iterator[Project]:
    """The project; afterwards its forms are what they were."""
    tree, config = built.tree(), dict(built.config)
    yield built
    built.config = config
    built.configure()
    assert built.tree() == tree
    assert tree


def empty(project: Project) -> None:
    project.path(3).write_bytes(b"")


def truncated(project: Project) -> None:
    project.add(3)
    project.path(3).write_bytes(project.path(3).read_bytes()[:4000])


def text(project: Project) -> None:
    project.path(3).write_text("<html>502 Bad Gateway</html>\n")


def without_the_array(project: Project) -> None:
    project.add(3, arrays=("anom",))


def other_packing(project: Project) -> None:
    project.add(3, scale=0.1)


def other_fill(project: Project) -> None:
    project.add(3, fill=-998)


def other_dtype(project: Project) -> None:
    project.add(3, dtype="i4")


def other_codec(project: Project) -> None:
    project.add(3, shuffle=False)


def other_chunks(project: Project) -> None:
    project.add(3, chunks=(1, 1, 3, 8))


def other_calendar(project: Project) -> None:
    project.add(3, calendar="360_day")


def the_same_time(project: Project) -> None:
    project.add(3, time=15341.0)


BAD: list[tuple[Callable[[Project], None], list[str]]] = [
    (empty, ["20200104.nc", "empty file", "on_error: skip"]),
    (truncated, ["20200104.nc", "on_error: skip"]),
    (text, ["20200104.nc", "a web page", "on_error: skip"]),
    (without_the_array, ["20200104.nc", "sst", "anom"]),
    (other_packing, ["scale_factor", "sst", "0.1", "0.00999", "20200104.nc"]),
    (other_fill, ["_FillValue", "sst", "-998", "-999", "20200104.nc"]),
    (other_dtype, ["dtype", "sst", "<i4", "<i2", "20200104.nc"]),
    (other_codec, ["codec", "sst", "20200104.nc"]),
    (other_chunks, ["chunks", "sst", "20200104.nc"]),
    (other_calendar, ["360_day", "20200104.nc"]),
    (the_same_time, ["15341", "20200104.nc", "20200102.nc"]),
]


@pytest.mark.parametrize(("make", "words"), BAD, ids=[make.__name__ for make, _ in BAD])
def test_a_bad_granule_is_refused_with_one_sentence_that_names_it(
    kept: Project, make: Callable[[Project], None], words: list[str]
) -> None:
    make(kept)
    with pytest.raises(ByteRefsError) as refusal:
        kept.stage_by_stage()
    kept.path(3).unlink()
    assert "\n" not in str(refusal.value)
    assert [word for word in words if word not in str(refusal.value)] == []


def test_bad_granules_fail_their_own_scans_with_one_line_in_output_and_log(kept: Project) -> None:
    kept.configure(scan__batch=1)
    kept.path(3).write_bytes(b"")
    kept.path(4).write_text("<html>502 Bad Gateway</html>\n")
    kept.add(5)
    shutil.rmtree(kept.root / "logs")
    run = kept.run("--keep-going", ok=False)
    logs = [log.read_text() for log in kept.root.glob("logs/demo/scan/*.log")]
    refusals = [text for text in logs if "on_error: skip" in text]
    assert [text.count("\n") for text in refusals] == [1, 1]
    for day in (3, 4):
        assert any(text.startswith(f"{kept.path(day)}: ") for text in refusals)
    assert all(text.strip() in run.output for text in refusals)
    for day in (3, 4, 5):
        kept.path(day).unlink()


def test_after_all_of_it_the_archive_builds_to_the_same_forms(kept: Project) -> None:
    kept.run()
    assert not kept.run().jobs


def test_a_bad_granule_is_set_aside_where_the_config_says_so(tmp_path: Path) -> None:
    project = Project(tmp_path, scan__on_error="skip")
    project.add(0, 1, 2)
    project.path(3).write_text("<html>502 Bad Gateway</html>\n")
    assert f"set aside: {project.path(3)}" in project.run().output
    project.assert_published(0, 1, 2)
    assert project.receipt("store/receipt.json")["counts"]["refused"] == 1
    project.add(3)
    project.run()
    project.assert_published(0, 1, 2, 3)


def refused(project: Project) -> str:
    run = project.run(ok=False)
    assert "Traceback" not in run.output
    assert not run.jobs
    return run.said


def test_an_unknown_key_is_one_sentence_with_the_nearest_one(kept: Project) -> None:
    kept.configure(scan={"arays": ["sst"]})
    assert "datasets/demo.yaml: scan: unknown key `arays`; did you mean `arrays`?" in refused(kept)


def test_two_datasets_with_one_name_are_one_sentence(kept: Project) -> None:
    main = kept.root / "config/config.yaml"
    before = main.read_text()
    main.write_text("datasets: [demo, demo]\n")
    assert "two datasets have the name 'demo'" in refused(kept)
    main.write_text(before)


def test_a_pattern_that_matches_nothing_names_folder_pattern_and_files(kept: Project) -> None:
    kept.configure(
        source={**kept.config["source"], "pattern": r"(?P<date>\d{8})(?P<status>x)?\.hdf$"}
    )
    said = kept.run(FIRST_FORMS, ok=False).said
    assert str(kept.archive) in said
    assert r"\\.hdf$" in said
    assert "oisst.20200101.nc" in said


def test_a_target_that_does_not_cover_every_source_is_refused_by_name(kept: Project) -> None:
    kept.configure(remap={"public": {"archive/other/": "https://data.example.org/"}})
    said = kept.run(FIRST_FORMS, ok=False).said
    assert "public" in said
    assert "oisst.20200101.nc" in said


def test_results_that_cannot_be_written_are_one_sentence(tmp_path: Path) -> None:
    project = Project(tmp_path)
    project.add(0)
    (tmp_path / "results").write_text("a file where a folder should be")
    assert "results" in refused(project)


def test_a_published_tree_that_somebody_edited_is_refused_by_the_file(tmp_path: Path) -> None:
    project = Project(tmp_path, sync=[{"name": "here", "to": "published"}])
    project.add(0, 1)
    project.run()
    edited = next(p for p in (tmp_path / "published").rglob("v/*/vrt/*.vrt"))
    edited.write_text(edited.read_text() + "\n")
    latest = (tmp_path / "published/latest.json").read_bytes()
    project.add(2)
    run = project.run(ok=False)
    assert "Error in rule sync:" in run.output
    assert edited.name in run.said
    assert (tmp_path / "published/latest.json").read_bytes() == latest
