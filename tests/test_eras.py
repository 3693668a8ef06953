"""Eras: runs of sources that agree are groups of their own in every form; the oracle is what was written, read by GDAL."""

import json
from datetime import timedelta
from pathlib import Path

import netCDF4
import numpy as np
import pytest

from building import build, config, replan, scan_into
from byterefs.emitters._kerchunk import quiet
from byterefs.errors import PlanError
from byterefs.files import covers
from byterefs.planning import vrt_plan
from forms import Results
from granules import packed
from test_plan import START, day
from test_vrt import opened

AUTO = {"eras": "auto"}
FIRST, SECOND = "from_2026-01-01T1200", "from_2026-01-03T1200"


def two_eras(folder, **options):
    """Four days; the last two differ by ``options``."""
    return [day(folder, n, **(options if n > 1 else {})) for n in range(4)]


def values(n: int, dtype="<i2"):
    """What ``day`` stores for day ``n``."""
    return packed(START + timedelta(n), "sst", (1, 1, 6, 8)).astype(dtype)


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"shuffle": False}, "codec"),
        ({"chunks": (1, 1, 3, 8)}, "chunks"),
        ({"scale": 0.02}, "scale_factor"),
        ({"fill": -998}, "_FillValue"),
        ({"dtype": "i4"}, "dtype"),
    ],
)
def test_every_form_of_every_era_holds_what_its_sources_hold(tmp_path, options, what):
    results = Results(tmp_path, plan=AUTO)
    results.scan(two_eras(tmp_path / "in", **options))
    results.emit()
    for target, form in results.pairs:
        proof = results.verify(target, form)
        assert proof["verified"]
        assert proof["counts"]["values_compared"] >= 4 * 48
    report = json.loads((tmp_path / "store" / "plan" / "consistency.json").read_text())
    assert [e["era"] for e in report["eras"]] == [FIRST, SECOND]
    assert f"has {what} " in report["eras"][1]["because"][0]
    readable = what in ("codec", "chunks")
    assert (report["across"]["sst"] is None) is readable


def arrays_of(view):
    """Array -> file names of its placements, of referenced arrays."""
    return {
        name: [Path(p.source).name[4:12] for p in view.arrays[name].placements]
        for name in view.referenced()
    }


def test_gdal_reads_across_eras_of_one_packing_as_one_array(tmp_path):
    with build(tmp_path, two_eras(tmp_path, shuffle=False), plan=AUTO) as view:
        group, _keep = opened(view.vrt)
        whole = group.OpenMDArrayFromFullname("/sst")
        assert (
            whole.ReadAsArray().tobytes() == np.concatenate([values(n) for n in range(4)]).tobytes()
        )
        assert group.OpenMDArrayFromFullname("/time").ReadAsArray().tolist() == [
            17532,
            17533,
            17534,
            17535,
        ]
        part = group.OpenMDArrayFromFullname(f"/{SECOND}/sst")
        assert part.ReadAsArray().tobytes() == np.concatenate([values(2), values(3)]).tobytes()
        assert part.GetDimensions()[0].GetFullName() == f"/{SECOND}/time"
        assert part.GetDimensions()[0].GetIndexingVariable().ReadAsArray().tolist() == [
            17534,
            17535,
        ]
        assert "sst" not in view.arrays


def test_eras_of_other_packing_are_not_read_as_one_array(tmp_path):
    with build(tmp_path, two_eras(tmp_path, scale=0.02), plan=AUTO) as view:
        group, _keep = opened(view.vrt)
        assert group.GetMDArrayNames() == []
        scales = [group.OpenMDArrayFromFullname(f"/{era}/sst").GetScale() for era in view.eras]
        assert scales == [float(np.float32(0.01)), float(np.float32(0.02))]
    report = json.loads((tmp_path / "plan" / "consistency.json").read_text())
    assert "20260103.nc: array 'sst' has scale_factor" in report["across"]["sst"]


def test_a_grid_that_changes_begins_an_era_and_data_on_it_is_not_read_across(tmp_path):
    files = two_eras(tmp_path)
    for path in files[2:]:
        with netCDF4.Dataset(path, "a") as nc:
            nc["lat"][3] = 12.5
    with build(tmp_path, files, plan=AUTO) as view:
        lats = [np.frombuffer(view.arrays[f"{e}/lat"].values, "<f4")[3] for e in view.eras]
        assert lats == [15, 12.5]
        assert opened(view.vrt)[0].GetMDArrayNames() == []
    report = json.loads((tmp_path / "plan" / "consistency.json").read_text())
    assert report["across"]["sst"].startswith("its coordinate 'lat' is not one: ")
    assert report["eras"][1]["because"][0].startswith(f"{files[2]}: array 'lat' has values ")


def test_a_source_that_differs_begins_a_new_era_and_moves_no_array_before_it(tmp_path):
    conf = config(plan=AUTO)
    scan_into(tmp_path, [day(tmp_path, 0), day(tmp_path, 1)], conf)
    with replan(tmp_path, conf) as view:
        before = arrays_of(view), view.fragments(f"{FIRST}/sst")
        assert before[0] == {f"{FIRST}/sst": ["20260101", "20260102"]}
    scan_into(tmp_path, [day(tmp_path, 2, shuffle=False)], conf)
    with replan(tmp_path, conf) as view:
        assert arrays_of(view) == {**before[0], f"{SECOND}/sst": ["20260103"]}
        assert view.fragments(f"{FIRST}/sst") == before[1]
    scan_into(tmp_path, [day(tmp_path, 3, shuffle=False)], conf)
    with replan(tmp_path, conf) as view:
        assert arrays_of(view) == {**before[0], f"{SECOND}/sst": ["20260103", "20260104"]}


def test_a_late_arrival_joins_the_era_that_it_agrees_with_or_divides_it(tmp_path):
    conf = config(plan=AUTO)
    early = [day(tmp_path, n) for n in (0, 2)] + [day(tmp_path, 4, shuffle=False)]
    scan_into(tmp_path, early, conf)
    scan_into(tmp_path, [day(tmp_path, 1)], conf)
    with replan(tmp_path, conf) as view:
        assert list(arrays_of(view).values()) == [
            ["20260101", "20260102", "20260103"],
            ["20260105"],
        ]
    scan_into(tmp_path, [day(tmp_path, 1, shuffle=False)], conf)
    with replan(tmp_path, conf) as view:
        assert list(arrays_of(view).values()) == [
            ["20260101"],
            ["20260102"],
            ["20260103"],
            ["20260105"],
        ]


def test_daily_appends_over_the_border_of_an_era_make_the_same_forms_as_one_build(tmp_path):
    files = two_eras(tmp_path / "in", chunks=(1, 1, 3, 8))
    daily, once = Results(tmp_path / "daily", plan=AUTO), Results(tmp_path / "once", plan=AUTO)
    for path in files:
        daily.scan([path])
        daily.emit()
    once.scan(files)
    once.emit()
    for target, form in once.pairs:
        if form == "icechunk":
            assert daily.verify(target, form)["verified"]
        else:
            assert covers(daily.out(target, form)) == covers(once.out(target, form))


def test_xarray_opens_an_era_by_the_line_in_open_json(tmp_path, monkeypatch):
    results = Results(tmp_path, plan=AUTO)
    results.scan(two_eras(tmp_path / "in", scale=0.5))
    for form in ("kerchunk", "icechunk"):
        results.emit(("access", form))
        out = results.out("access", form)
        monkeypatch.chdir(out)
        scope: dict = {}
        with quiet():
            exec("\n".join(json.loads((out / "open.json").read_text())["open"]["xarray"]), scope)
            got = scope["ds"].sst.isel(time=1).values
        expected = np.where(values(3) == -999, np.nan, values(3) * np.float32(0.5))
        np.testing.assert_array_equal(got, expected[0])
        assert str(scope["ds"].time.values[0])[:10] == "2026-01-03"


SLOTS = {
    "source": {"pattern": r"sst\.(?P<date>\d{8})\.nc$"},
    "select": {"slot": ["date"], "prefer": {}},
}


def named(folder, eras, files=None):
    """The view of four days, two of them shuffled, in named eras."""
    return build(folder, files or two_eras(folder, shuffle=False), plan={"eras": eras}, **SLOTS)


def test_named_eras_hold_what_lies_between_their_slots_and_the_last_may_grow(tmp_path):
    eras = {"old": {"to": "20260102"}, "new": {"from": "20260103"}}
    with named(tmp_path, eras) as view:
        assert view.eras == ["old", "new"]
        assert arrays_of(view) == {
            "old/sst": ["20260101", "20260102"],
            "new/sst": ["20260103", "20260104"],
        }
    conf = config(plan={"eras": eras}, **SLOTS)
    scan_into(tmp_path, [day(tmp_path, 4, shuffle=False)], conf)
    with replan(tmp_path, conf) as view:
        assert arrays_of(view)["new/sst"][-1] == "20260105"


@pytest.mark.parametrize(
    ("eras", "message"),
    [
        ({"old": {"to": "20260102"}, "new": {"from": "20260104"}}, r"20260103\.nc: it lies in none of the eras old, new"),
        ({"old": {"to": "20260103"}, "new": {"from": "20260103"}}, r"'old' and 'new' overlap from .*20260103\.nc on"),
        ({"old": {"to": "20251231"}}, "no planned source has the slot '20251231'; they run from '20260101' to '20260104'"),
        ({"old": {"from": "20260103", "to": "20260101"}}, "its last slot '20260101' lies before its first '20260103'"),
        ({"all": {}}, r"20260103\.nc: array 'sst' has codec .*in era 'all'"),
        ({"old": {"to": "20260102"}, "sst": {"from": "20260103"}}, "'sst' is an array and an era"),
    ],
)  # fmt: skip
def test_named_eras_that_cannot_be_are_refused(tmp_path, eras, message):
    with pytest.raises(PlanError, match=message):
        named(tmp_path, eras)


def test_an_archive_that_changes_with_every_file_has_no_eras(tmp_path, monkeypatch):
    monkeypatch.setattr("byterefs.planning.eras.LIMIT", 3)
    files = [day(tmp_path, n, scale=0.01 * (n + 1)) for n in range(4)]
    with pytest.raises(
        PlanError, match=r"finds 4 eras, more than 3: .*array 'sst' has scale_factor"
    ):
        build(tmp_path, files, plan=AUTO)


def test_a_dense_axis_of_an_era_counts_as_its_first_source_counts(tmp_path):
    files = [
        day(
            tmp_path,
            n,
            time=float(n - base),
            units=f"days since 2026-01-0{base + 1}",
            shuffle=n < 4,
        )
        for n, base in ((0, 0), (1, 0), (4, 4), (6, 4))
    ]
    with build(tmp_path, files, plan={"eras": "auto", "axis": "dense"}) as view:
        times = {
            e: (np.frombuffer(a.values, a.dtype).tolist(), a.attrs["units"])
            for e in view.eras
            for a in [view.arrays[f"{e}/time"]]
        }
        assert list(times.values()) == [
            ([0, 1], "days since 2026-01-01"),
            ([0, 1, 2], "days since 2026-01-05"),
        ]
        assert view.refs(f"{view.eras[1]}/sst").source.tolist() == [2, -1, 3]


def test_a_slot_without_an_array_is_refused_in_an_era_too(tmp_path):
    files = [
        day(tmp_path, n, arrays=("sst", "ice") if n else ("sst",), shuffle=n > 0) for n in range(2)
    ]
    with pytest.raises(PlanError, match=r"20260101\.nc: array 'ice' is missing at time"):
        build(tmp_path, files, plan=AUTO)
    with build(tmp_path, files, plan={**AUTO, "missing": "absent"}) as view:
        assert view.referenced() == [
            f"{FIRST}/sst",
            "from_2026-01-02T1200/ice",
            "from_2026-01-02T1200/sst",
        ]


@pytest.mark.parametrize(
    ("folder", "files", "scan", "because", "eras"),
    [
        (
            "era5", "era5_2t_*.nc", {}, "array 't2m' has scale_factor 0.001378182080020753, before it 0.00137827",
            ["from_2021-03-01T1200", "from_2021-03-02T1200"],
        ),
        (
            "oisst", "*.nc", {"arrays": ["sst"]}, "array 'lat' has shape [32], before it [720]",
            ["from_2022-09-13T1200", "from_2025-01-01T1200"],
        ),
    ],
)  # fmt: skip
def test_real_sources_that_differ_are_eras_in_every_form(
    tmp_path, shared, folder, files, scan, because, eras
):
    results = Results(tmp_path, plan=AUTO, scan=scan)
    results.scan(sorted(shared(folder).glob(files)))
    results.emit()
    proofs = [results.verify(target, form) for target, form in results.pairs]
    assert all(proof["verified"] for proof in proofs)
    assert len({proof["values_compared"] for proof in proofs}) == 1
    report = json.loads((tmp_path / "store" / "plan" / "consistency.json").read_text())
    assert [e["era"] for e in report["eras"]] == eras
    assert because in report["eras"][1]["because"][0]
    assert not [name for name, why in report["across"].items() if why is None]


@pytest.mark.parametrize("engine", ["mosaic", "vrt"])
def test_eras_are_cut_from_what_any_engine_places(tmp_path, engine):
    files = two_eras(tmp_path, shuffle=False)
    handed = tmp_path / "handed.vrt"
    vrt_plan.mosaic(list(map(str, files)), ["sst"], handed)
    with build(tmp_path, files, plan={**AUTO, "engine": engine, "vrt": str(handed)}) as view:
        assert arrays_of(view) == {
            f"{FIRST}/sst": ["20260101", "20260102"],
            f"{SECOND}/sst": ["20260103", "20260104"],
        }
        group, _keep = opened(view.vrt)
        for name, days in (("sst", range(4)), (f"{SECOND}/sst", (2, 3))):
            got = group.OpenMDArrayFromFullname(f"/{name}").ReadAsArray()
            assert got.tobytes() == np.concatenate([values(n) for n in days]).tobytes()
        time = view.arrays[f"{SECOND}/time"]
        assert np.frombuffer(time.values, time.dtype).tolist() == [17534, 17535]
