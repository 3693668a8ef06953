"""Placements against ``gdal mdim mosaic`` in a verification: equal, refused by GDAL, or caught."""

import sqlite3

import pytest

from building import build, config, replan, scan_into, turned
from byterefs.errors import VerifyError
from byterefs.proving import rival
from byterefs.view import View
from forms import Results
from test_plan import day, monthly


def test_a_verified_vrt_says_how_many_placements_gdal_mdim_mosaic_has_alike(tmp_path):
    results = Results(tmp_path)
    results.scan([day(tmp_path / "src", n, arrays=("sst", "ice")) for n in (0, 1, 3)])
    results.emit(("access", "vrt"))
    assert results.verify("access", "vrt")["mosaic"] == {
        "sources": 3,
        "placements": 6,
        "refused": {},
    }


def test_an_append_compares_the_last_sources_and_full_compares_all(tmp_path, monkeypatch):
    monkeypatch.setattr(rival, "LAST", 2)
    with build(tmp_path, [day(tmp_path, n) for n in range(4)]) as view:
        assert rival.check_mosaic(view, full=False)["placements"] == 2
        assert rival.check_mosaic(view, full=True)["placements"] == 4


def test_variables_in_several_files_are_several_mosaics(tmp_path):
    files = [day(tmp_path, n, f"{v}.{n}", arrays=(v,)) for n in range(2) for v in ("sst", "ice")]
    with build(tmp_path, files) as view:
        assert rival.check_mosaic(view, full=True) == {"sources": 4, "placements": 4, "refused": {}}


def test_a_gap_on_a_dense_axis_is_no_difference(tmp_path):
    with build(tmp_path, [day(tmp_path, n) for n in (0, 1, 3)], plan={"axis": "dense"}) as view:
        assert rival.check_mosaic(view, full=True)["placements"] == 3


def test_where_gdal_cannot_plan_its_own_words_are_reported(tmp_path):
    files = [*monthly(tmp_path, [3, 1], 1)]
    with build(tmp_path, files) as view:
        report = rival.check_mosaic(view, full=True)
    assert report["placements"] == 0
    assert "contrary to other datasets" in report["refused"]["v"]


def test_two_sources_in_each_others_place_are_caught_with_both_names(tmp_path):
    scan_into(tmp_path, [day(tmp_path, n) for n in range(3)], config())
    replan(tmp_path, config()).close()
    con = sqlite3.connect(tmp_path / "store.sqlite")
    turned(con, "sst", lambda sources: sources[[1, 0, 2]])
    con.commit()
    con.close()
    with (
        View.open(tmp_path / "store.sqlite") as view,
        pytest.raises(
            VerifyError, match=r"20260102\.nc: array 'sst', placement 0 .*mosaic has .*20260101\.nc"
        ),
    ):
        rival.check_mosaic(view, full=True)
