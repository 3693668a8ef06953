"""Slots and preferences: one source per slot is planned, and an ambiguous slot is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from byterefs.discover import select
from byterefs.errors import DiscoverError

PATTERN = r"(?P<date>\d{8})(?P<status>_preliminary)?\.nc$"
PREFER = {"status": ["", "_preliminary"]}


def test_a_final_wins_its_slot_and_the_preliminary_waits() -> None:
    sources = ["/a/20200101_preliminary.nc", "/a/20200101.nc", "/a/20200102_preliminary.nc"]
    chosen = select.winners(sources, PATTERN, ["date"], PREFER)
    assert chosen.winners == {
        ("20200101",): "/a/20200101.nc",
        ("20200102",): "/a/20200102_preliminary.nc",
    }
    assert chosen.losers == {"/a/20200101_preliminary.nc": "/a/20200101.nc"}


def test_two_sources_of_one_slot_are_refused_with_the_slot_and_both_names() -> None:
    with pytest.raises(DiscoverError) as error:
        select.winners(["/b/20200101.nc", "/a/20200101.nc"], PATTERN, ["date"], PREFER)
    assert "/a/20200101.nc and /b/20200101.nc both claim the slot date=20200101" in str(error.value)


def test_a_value_that_prefer_does_not_list_is_refused_with_the_list() -> None:
    with pytest.raises(DiscoverError, match=r"status is '_preliminary'.*\('', '_final'\)"):
        select.winners(
            ["/a/20200101_preliminary.nc"], PATTERN, ["date"], {"status": ["", "_final"]}
        )


def test_several_groups_make_one_slot() -> None:
    pattern = r"(?P<var>temp|salt)_(?P<year>\d{4})_(?P<month>\d\d)\.nc$"
    chosen = select.winners(
        ["/x/temp_2020_01.nc", "/x/salt_2020_01.nc"], pattern, ["var", "year", "month"]
    )
    assert chosen.winners == {
        ("salt", "2020", "01"): "/x/salt_2020_01.nc",
        ("temp", "2020", "01"): "/x/temp_2020_01.nc",
    }


def test_without_a_slot_each_source_is_its_own() -> None:
    chosen = select.winners(["/b.nc", "/a.nc"], r"\.nc$")
    assert chosen.winners == {("/a.nc",): "/a.nc", ("/b.nc",): "/b.nc"}
    assert chosen.losers == {}


def test_the_pattern_is_searched_below_the_root_only() -> None:
    root = "/archive/19990101.nc.d"
    chosen = select.winners([f"{root}/20200101.nc"], r"^(?P<date>\d{8})\.nc$", ["date"], root=root)
    assert list(chosen.winners) == [("20200101",)]


def test_a_source_that_the_pattern_does_not_match_is_refused() -> None:
    with pytest.raises(DiscoverError, match=r"/a/x\.txt: the pattern"):
        select.winners(["/a/x.txt"], PATTERN, ["date"])


@pytest.mark.parametrize(
    ("source", "root", "below"),
    [
        ("/a/b/c.nc", "/a/b", "c.nc"),
        ("/a/b/c.nc", "/a/b/", "c.nc"),
        ("/a/bc.nc", "/a/b", "/a/bc.nc"),
        ("/a/b.nc", "", "/a/b.nc"),
    ],
)
def test_below_is_cut_at_a_path_boundary(source: str, root: str, below: str) -> None:
    assert select.below(source, root) == below


names = st.builds(
    "/a/{}/{:08d}{}.nc".format,
    st.integers(0, 2),
    st.integers(0, 9),
    st.sampled_from(["", "_preliminary"]),
)


@given(st.sets(names, max_size=12))
def test_every_source_is_a_winner_or_a_loser_to_the_winner_of_its_slot(sources: set[str]) -> None:
    best: dict[object, list[bool]] = {}
    for source in sources:
        slot = select.slot_of(source, PATTERN, ["date"])
        best.setdefault(slot, []).append("_preliminary" in source)
    if any(ranks.count(min(ranks)) > 1 for ranks in best.values()):
        with pytest.raises(DiscoverError, match="both claim the slot"):
            select.winners(sources, PATTERN, ["date"], PREFER)
        return
    chosen = select.winners(sources, PATTERN, ["date"], PREFER)
    assert set(chosen.winners.values()) | set(chosen.losers) == sources
    for loser, winner in chosen.losers.items():
        slot = select.slot_of(loser, PATTERN, ["date"])
        assert chosen.winners[slot] == winner
        assert "_preliminary" in loser
        assert "_preliminary" not in winner
