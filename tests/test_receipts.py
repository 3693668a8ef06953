"""Receipts: what a dataset owes, and which forms are not what was emitted any more."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from byterefs import emitters, files, receipts

DATASET = {
    "dataset": "demo",
    "emit": {"sqlite": {}, "vrt": {}, "icechunk": {}},
    "remap": {"public": {"/a/": "https://x.org/"}, "mirror": {"/a/": "/b/"}},
    "sync": [{"name": "here"}],
    "register": {"report": True},
}


def test_a_form_is_emitted_for_each_target_unless_it_serves_all() -> None:
    assert list(receipts.emitted(DATASET)) == [
        ("access", "sqlite"),
        ("access", "vrt"),
        ("mirror", "vrt"),
        ("public", "vrt"),
        ("access", "icechunk"),
    ]


def test_the_forms_that_serve_all_targets_are_those_that_say_so() -> None:
    one = {name for name in emitters.NAMES if not emitters.load(name).PER_TARGET}
    assert one == receipts.SERVES_ALL


def test_every_durable_receipt_is_wanted_once() -> None:
    wanted = receipts.wanted(DATASET)
    assert wanted[:4] == [
        f"results/demo/{s}/receipt.json" for s in ("discover", "store", "plan", "view")
    ]
    assert "results/demo/emit/public/vrt.receipt.json" in wanted
    assert "results/demo/verify/public/vrt.json" in wanted
    assert wanted[-3:] == [
        "results/demo/sync/here.json",
        "results/demo/register/receipt.json",
        "results/demo/report/coverage.html",
    ]
    assert len(wanted) == len(set(wanted)) == 4 + 5 + 5 + 1 + 1 + 1


@pytest.fixture
def emitted(tmp_path: Path) -> Path:
    """The form `vrt` of two files, with its receipt, state and verification; its folder."""
    folder = tmp_path / "emit/access/vrt"
    folder.mkdir(parents=True)
    for name in ("a.vrt", "open.json"):
        (folder / name).write_text(name)
    covered = files.covers(folder)
    state = {"own": {}, "files": emitters.stats(folder, covered)}
    folder.with_name("vrt.state.json").write_text(json.dumps(state))
    folder.with_name("vrt.receipt.json").write_text(json.dumps({"covers": covered}))
    (tmp_path / "verify/access").mkdir(parents=True)
    (tmp_path / "verify/access/vrt.json").write_text("{}")
    return folder


def left(results: Path) -> list[str]:
    return sorted(p.name for p in results.rglob("*.json") if p.parent.name == "access")


def test_a_form_that_is_as_it_was_keeps_its_receipts(emitted: Path) -> None:
    results = emitted.parents[2]
    assert receipts.void_damaged(results) == []
    assert left(results) == ["vrt.json", "vrt.receipt.json", "vrt.state.json"]


@pytest.mark.parametrize("damage", ["missing", "shorter", "same length", "no state"])
def test_a_form_that_is_missing_or_altered_loses_receipt_state_and_verification(
    emitted: Path, damage: str
) -> None:
    path = emitted / "a.vrt"
    match damage:
        case "missing":
            path.unlink()
        case "shorter":
            path.write_text("a")
        case "same length":
            path.write_text("b.vrt")
        case "no state":
            emitted.with_name("vrt.state.json").unlink()
    assert receipts.void_damaged(emitted.parents[2]) == [emitted]
    assert left(emitted.parents[2]) == []


def test_a_file_that_was_only_touched_is_read_once_and_then_known(emitted: Path) -> None:
    path = emitted / "a.vrt"
    os.utime(path, ns=(1, 1))
    assert receipts.void_damaged(emitted.parents[2]) == []
    state = json.loads(emitted.with_name("vrt.state.json").read_text())
    assert state["files"]["a.vrt"][1] == 1


def test_a_form_that_was_refused_has_nothing_to_damage(tmp_path: Path) -> None:
    receipt = tmp_path / "emit/access/kerchunk.receipt.json"
    receipt.parent.mkdir(parents=True)
    receipt.write_text(json.dumps({"refused": "misaligned", "covers": {}}))
    assert receipts.void_damaged(tmp_path) == []
    assert receipt.exists()


@pytest.mark.parametrize("alter", ["unlink", "edit", "nothing"])
def test_a_plan_without_what_it_covers_loses_its_receipt(tmp_path: Path, alter: str) -> None:
    plan = tmp_path / "plan"
    plan.mkdir()
    (plan / "plan.vrt").write_text("x")
    (plan / "receipt.json").write_text(json.dumps({"covers": files.covers(plan)}))
    if alter == "unlink":
        (plan / "plan.vrt").unlink()
    if alter == "edit":
        (plan / "plan.vrt").write_text("y")
    receipts.void_damaged(tmp_path)
    assert (plan / "receipt.json").exists() is (alter == "nothing")
