"""`make s3-demo`: from granules in a bucket to strangers that read truth and mirror, one day appended."""

import json
import subprocess
import sys

import pytest

from workflow.project import ENVIRONMENT
from workflow.test_demo import copy_of_the_repository

DAYS = 3
VALUES = (DAYS + 1) * 180 * 360


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    """What a demo that ran printed, and its figures."""
    root = tmp_path_factory.mktemp("s3-demo")
    copy_of_the_repository(root)
    command = [sys.executable, "scripts/s3_demo.py", "--days", str(DAYS)]
    done = subprocess.run(command, cwd=root, env=ENVIRONMENT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout, json.loads((root / "results/s3demo/summary.json").read_text())


def test_strangers_read_every_form_at_truth_and_mirror_as_the_granules_are(shown):
    text, figures = shown
    assert len(figures["readers"]) == 8
    assert all(r == {"equal": True, "values": VALUES} for r in figures["readers"].values())
    assert text.count(f"{VALUES:,}") == 8
    assert figures["verified"]["public_sources"] == DAYS + 1


def test_of_one_day_more_only_what_was_not_there_before_travels(shown):
    text, figures = shown
    first, append = (figures["runs"][run] for run in (f"{DAYS} days", "1 day more"))
    for run in (first, append):
        assert run["truth"]["sent"] == run["truth"]["contents_not_there_before"]
        told = run["truth"]["sent"] + run["truth"]["copied"] + run["truth"]["unchanged"]
        assert told <= run["truth"]["objects"]
    assert append["truth"]["sent"] < first["truth"]["sent"]
    assert append["truth"]["unchanged"] > 10
    assert append["mirror"]["sent"] == 1  # latest.json; the server copies the others
    assert figures["alike"] == append["truth"]["objects"]
    assert f"Truth and mirror: {figures['alike']} objects, the same names and bytes." in text
