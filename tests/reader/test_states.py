"""Differences between two published states of a dataset."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from byterefs.errors import RangeError, StoreError
from byterefs.reader.states import diff, lines
from reading import FORMS, Archive
from serving import web

SCRIPT = Path(__file__).parents[2] / "scripts/query.py"


@pytest.fixture(scope="module")
def states(tmp_path_factory):
    """Four days; then day 1 rewritten, day 3 gone and days 4 and 5 new."""
    root = tmp_path_factory.mktemp("states")
    archive = Archive(root / "data", days=4)
    archive.publish().joinpath("sqlite").rename(root / "old")
    (root / "data/parquet").rename(root / "old_parquet")
    (root / "data/store.sqlite").unlink()
    archive.files += [root / f"data/day{n}.nc" for n in (4, 5)]
    archive.write(4)
    archive.write(5)
    archive.files[1].write_bytes(archive.files[5].read_bytes())
    archive.write(1)
    with archive.files[1].open("ab") as f:
        f.write(b"\0")
    del archive.files[3]
    archive.publish()
    return {
        "sqlite": (root / "old/store.sqlite", root / "data/sqlite/store.sqlite"),
        "parquet": (root / "old_parquet", root / "data/parquet"),
    }


@pytest.mark.parametrize("form", FORMS)
def test_what_is_new_changed_and_gone_is_counted_by_array_and_key(states, form):
    found = {change.array: change for change in diff(*map(str, states[form]))}
    sst = found["sst"]
    # nine chunks a day: five days now, four then; the fourth is another source
    assert (sst.new, sst.gone) == ({4: 9}, {})
    assert 3 in sst.changed
    assert sst.changed[3] == 9
    assert sst.meta["shape"] == ((4, 10, 13), (5, 10, 13))
    assert found["gappy"].new == {4: 9}
    assert found["time"].meta["shape"] == ((4,), (5,))
    assert "values" in found["time"].meta
    assert found["sources"].new == {0: 2}
    assert found["sources"].gone == {0: 1}
    assert found["sources"].changed == {0: 1}
    assert "x" not in found


@pytest.mark.parametrize("form", FORMS)
def test_a_state_does_not_differ_from_itself(states, form):
    assert diff(str(states[form][1]), str(states[form][1])) == []


@pytest.mark.parametrize("form", FORMS)
def test_states_at_urls_differ_as_they_do_here(states, form):
    old, new = states[form]
    with web(old.parents[1] if form == "sqlite" else old.parent) as server:
        root = server.root
        addresses = [f"{server.url}/{path.relative_to(root)}" for path in (old, new)]
        assert list(lines(diff(*addresses))) == list(lines(diff(str(old), str(new))))
        assert list(lines(diff(str(old), addresses[1]))) == list(lines(diff(str(old), str(new))))
        # an error page, or a file that is gone, is no empty state
        server.faults[
            f"/{new.relative_to(root)}" + ("" if form == "sqlite" else "/refs_sst.parquet")
        ] = gone
        with pytest.raises(RangeError, match="404"):
            diff(*addresses)


def gone(handler, before: int) -> bool:
    handler.whole(b"<html>404</html>", "text/html", 404)
    return True


def test_states_of_two_forms_are_refused(states):
    with pytest.raises(StoreError, match="of two forms"):
        diff(str(states["sqlite"][0]), str(states["parquet"][0]))


def test_the_command_prints_them(states):
    old, new = states["sqlite"]
    done = subprocess.run(
        [sys.executable, SCRIPT, "--table", new, "--against", old],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "sst: 9 new at dim_0 4" in done.stdout
    assert "sources: 2 new" in done.stdout.splitlines()
    assert done.stdout.splitlines() == list(lines(diff(str(old), str(new))))
