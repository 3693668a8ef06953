"""The workflow as people run it: what runs again, what is opened, what is published, after each change.

The tests of this module follow one another on one archive, as days do.
"""

from __future__ import annotations

import json
import os
from collections import Counter

import pytest

from workflow.project import Project
from workflow.watch import Watch

STORE = "results/demo/store/receipt.json"
WHOLE = {
    "discover": 1,
    "scan": 1,
    "store": 1,
    "plan": 1,
    "view": 1,
    "emit": 1,
    "verify": 1,
    "all": 1,
}


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Project:
    project = Project(tmp_path_factory.mktemp("flow"))
    project.add(0, 1, 2, 4, 5, 6, 7, 9)  # 3 comes late, 8 never
    return project


def test_a_first_build_runs_every_stage_once(archive: Project) -> None:
    run = archive.run()
    assert run.jobs == Counter(WHOLE)
    archive.assert_published(0, 1, 2, 4, 5, 6, 7, 9)
    assert not list(archive.results.glob("scan/*"))


def test_the_same_command_again_runs_no_job_and_opens_no_source(archive: Project) -> None:
    listing = (archive.results / "discover/listing.json").stat().st_mtime_ns
    with Watch(archive.archive) as watch:
        run = archive.run()
    assert run.jobs == Counter()
    assert (watch.listed, watch.opened) == (1, Counter())
    assert (archive.results / "discover/listing.json").stat().st_mtime_ns == listing


def test_a_dry_run_shows_discover_when_something_is_new_and_does_nothing(archive: Project) -> None:
    archive.add(10)
    before = archive.receipt("store/receipt.json")
    run = archive.run("-n")
    assert run.jobs["discover"] == 1
    assert archive.receipt("store/receipt.json") == before


def test_one_new_source_is_one_scan_and_the_only_source_that_is_opened(archive: Project) -> None:
    with Watch(archive.archive) as watch:
        run = archive.run(STORE)
    assert run.jobs == Counter(discover=1, scan=1, store=1)
    assert set(watch.opened) == {archive.path(10).name}
    assert watch.listed == 1
    assert archive.run().jobs == Counter(plan=1, view=1, emit=1, verify=1, all=1)
    archive.assert_published(0, 1, 2, 4, 5, 6, 7, 9, 10)


def test_a_source_that_was_only_touched_is_scanned_again_and_changes_no_form(
    archive: Project,
) -> None:
    os.utime(archive.path(1))
    tree = archive.tree()
    assert archive.run().jobs["scan"] == 1
    assert archive.tree() == tree


def test_a_source_rewritten_in_place_has_its_rows_replaced(archive: Project) -> None:
    before = archive.path(2).stat()
    archive.add(2, seed=7, complevel=1)
    os.utime(archive.path(2), ns=(before.st_atime_ns, before.st_mtime_ns - 10**9))
    assert archive.run().jobs == Counter(WHOLE)
    archive.assert_published(0, 1, 2, 4, 5, 6, 7, 9, 10, seeds={2: 7})


def test_a_source_that_is_removed_leaves_the_forms(archive: Project) -> None:
    archive.path(6).unlink()
    jobs = archive.run().jobs
    assert jobs["scan"] == 0
    archive.assert_published(0, 1, 2, 4, 5, 7, 9, 10, seeds={2: 7})


def test_a_day_that_arrives_late_in_the_middle_stands_in_the_middle(archive: Project) -> None:
    archive.add(3)
    assert archive.run().jobs == Counter(WHOLE)
    archive.assert_published(0, 1, 2, 3, 4, 5, 7, 9, 10, seeds={2: 7})


def test_a_final_replaces_the_preliminary_of_its_day(archive: Project) -> None:
    archive.add(11, status="_preliminary", seed=5)
    archive.run()
    archive.assert_published(0, 1, 2, 3, 4, 5, 7, 9, 10, 11, seeds={2: 7, 11: 5})
    archive.add(11)
    assert archive.run().jobs == Counter(WHOLE)
    archive.assert_published(0, 1, 2, 3, 4, 5, 7, 9, 10, 11, seeds={2: 7})
    archive.path(11, "_preliminary").unlink()
    archive.run()
    archive.assert_published(0, 1, 2, 3, 4, 5, 7, 9, 10, 11, seeds={2: 7})


def test_a_form_that_is_missing_or_altered_is_made_again_and_verified_again(
    archive: Project,
) -> None:
    tree = archive.tree()
    vrt = next((archive.results / "emit/access/vrt").glob("*.vrt"))
    vrt.write_text(vrt.read_text().replace("8", "9"))
    run = archive.run()
    assert run.jobs == Counter(emit=1, verify=1, all=1)
    assert "missing or altered" in run.output
    assert archive.tree() == tree
    vrt.unlink()
    assert archive.run().jobs == Counter(emit=1, verify=1, all=1)
    assert archive.tree() == tree


def test_a_store_that_is_lost_is_made_again_from_every_source(archive: Project) -> None:
    tree = archive.tree()
    (archive.results / "store/store.sqlite").unlink()
    archive.run()
    counts = archive.receipt("discover/receipt.json")["counts"]
    assert counts["pending"] == counts["sources"] == len(list(archive.archive.iterdir()))
    assert archive.tree() == tree


def test_all_scripts_touched_by_a_git_pull_run_nothing(archive: Project) -> None:
    for path in (
        archive.root / "Snakefile",
        *archive.root.glob("rules/*"),
        *archive.root.glob("scripts/*.py"),
    ):
        os.utime(path)
    assert archive.run().jobs == Counter()


def test_an_archive_that_shrinks_by_half_or_is_not_mounted_is_refused_and_nothing_is_lost(
    archive: Project,
) -> None:
    tree = archive.tree()
    away = archive.root / "away"
    away.mkdir()
    gone = sorted(archive.archive.iterdir())[:5]
    for path in gone:
        path.rename(away / path.name)
    run = archive.run(STORE, ok=False)
    assert "5 of 10 known sources are gone" in run.said
    assert "--config allow_removal=true" in run.said
    for path in gone:
        (away / path.name).rename(path)
    archive.archive.rename(archive.root / "unmounted")
    assert "is the archive mounted?" in archive.run(STORE, ok=False).said
    (archive.root / "unmounted").rename(archive.archive)
    archive.run()
    assert archive.tree() == tree


def test_a_removal_that_is_permitted_happens_once(archive: Project) -> None:
    for path in sorted(archive.archive.iterdir())[:5]:
        path.unlink()
    archive.run("--config", "allow_removal=true")
    archive.assert_published(5, 7, 9, 10, 11)
    assert archive.run().jobs == Counter()
    assert (
        json.loads((archive.results / "discover/receipt.json").read_text())["counts"]["removed"]
        == 5
    )
