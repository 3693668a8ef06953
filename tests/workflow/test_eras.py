"""Eras in the workflow: a refused build leaves the page, `auto` builds it, the next era costs what is new."""

from __future__ import annotations

from pathlib import Path

from workflow.project import Project

FORMS = {"sqlite": {}, "vrt": {}, "parquet": {}, "kerchunk": {}, "icechunk": {}}


def test_a_source_that_begins_an_era_is_refused_or_appended_as_the_config_says(tmp_path: Path):
    project = Project(tmp_path, emit=FORMS)
    project.add(0, 1)
    project.stage_by_stage()
    project.add(2, shuffle=False)
    refused = project.run(ok=False)
    assert "array 'sst' has codec [{'id': 'zlib'}]" in refused.said
    page = (project.results / "plan/consistency.html").read_text()
    assert "The plan was refused." in page
    log = (project.root / "logs/demo/plan/plan.log").read_text()
    assert "codec shuffle(elementsize 2) → zlib" in log
    project.assert_published(0, 1)  # what was published stays

    project.configure(plan__eras="auto")
    done = project.run()
    assert done.jobs["scan"] == 0  # the store holds the scan of the refused run
    assert project.receipt("plan/receipt.json")["counts"]["eras"] == 2
    project.assert_published(0, 1, 2)  # the VRT reads across
    for form in FORMS:
        proof = project.receipt(f"verify/access/{form}.json")
        assert proof["verified"] is True
        assert proof["counts"]["arrays"] == (15 if form == "vrt" else 10)
