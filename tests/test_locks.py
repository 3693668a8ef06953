"""A lock is taken over from an owner that is proven dead, and from no other."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from byterefs import locks


def test_a_lock_that_is_held_is_refused_and_free_again_afterwards(tmp_path: Path) -> None:
    path = tmp_path / "demo" / ".lock"
    with locks.held([path]) as first:
        assert not first.abandoned
        with pytest.raises(locks.Busy, match="another run of this dataset"), locks.held([path]):
            pass
    with locks.held([path]) as again:
        assert not again.abandoned


def test_one_lock_of_two_that_is_held_leaves_the_other_free(tmp_path: Path) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    with locks.held([b]), pytest.raises(locks.Busy), locks.held([a, b]):
        pass
    with locks.held([a]) as held:
        assert not held.abandoned


def ended() -> dict[str, object]:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        return locks.owner(process.pid)


def test_the_lock_of_a_process_that_ended_is_taken_over_and_says_so(tmp_path: Path) -> None:
    path = tmp_path / ".lock"
    path.write_text(json.dumps(ended()))
    with locks.held([path]) as held:
        assert held.abandoned
        assert json.loads(path.read_text())["pid"] == os.getpid()
    assert path.read_text() == ""


@pytest.mark.parametrize(
    ("change", "is_dead"),
    [
        ({}, False),
        ({"started": "1"}, True),
        ({"boot": "another"}, True),
        ({"host": "elsewhere", "boot": "another"}, False),
    ],
)
def test_only_a_process_of_this_host_that_is_not_there_is_proven_dead(
    change: dict[str, str], is_dead: bool
) -> None:
    assert locks.dead({**locks.owner(os.getpid()), **change}) is is_dead


def test_the_lock_of_another_host_is_refused_by_its_name(tmp_path: Path) -> None:
    path = tmp_path / ".lock"
    path.write_text(json.dumps({"host": "elsewhere", "boot": "x", "pid": 7, "started": "1"}))
    with pytest.raises(locks.Busy, match="process 7 on elsewhere"), locks.held([path]):
        pass
