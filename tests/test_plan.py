"""The plan: where sources lie, what is refused; the oracle is ``gdal mdim mosaic`` and the granules."""

import json
import zlib
from datetime import date, timedelta
from pathlib import Path

import h5py
import netCDF4
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from building import build, config, replan, scan_into
from byterefs.errors import PlanError, RemapError
from byterefs.grid import misaligned
from byterefs.planning import vrt_plan
from granules import oisst

START = date(2026, 1, 1)


def day(folder: Path, n: int, name: str = "", **options) -> Path:
    """The granule of day ``n``."""
    path = folder / f"{name or 'sst.' + (START + timedelta(n)).strftime('%Y%m%d')}.nc"
    oisst(path, START + timedelta(n), **{"shape": (6, 8), "arrays": ("sst",), **options})
    return path


def dests(view, array="sst"):
    """File name -> first element along the concat axis."""
    return {Path(p.source).name: p.dest[0] for p in view.arrays[array].placements}


def test_sources_are_placed_by_their_time_and_not_by_their_name(tmp_path):
    files = [day(tmp_path, 2, "a"), day(tmp_path, 0, "b"), day(tmp_path, 1, "c")]
    with build(tmp_path, files) as view:
        assert dests(view) == {"b.nc": 0, "c.nc": 1, "a.nc": 2}
        assert [Path(s.source).name for s in view.sources] == ["b.nc", "c.nc", "a.nc"]


def test_placements_are_those_of_gdal_mdim_mosaic(tmp_path):
    files = [day(tmp_path, n) for n in (4, 0, 1, 3)]
    with build(tmp_path, files) as view:
        theirs = vrt_plan.read(
            vrt_plan.mosaic(list(map(str, files)), [], tmp_path / "m.vrt"), str(tmp_path), "m"
        )
        assert sorted(theirs.arrays["sst"].placements) == sorted(view.arrays["sst"].placements)
        assert theirs.sizes["time"] == view.arrays["sst"].shape[0] == 4


@pytest.mark.parametrize("engine", ["mosaic", "vrt"])
def test_engines_agree_on_everything_that_readers_see(tmp_path, engine):
    files = [day(tmp_path, n) for n in (0, 1, 3)]
    with build(tmp_path / "ours", files) as ours:
        (tmp_path / "handed.vrt").write_text(ours.vrt)
        options = {"engine": engine, "vrt": str(tmp_path / "handed.vrt")}
        with build(tmp_path / "theirs", files, plan=options) as theirs:
            assert {n: a for n, a in theirs.arrays.items() if a.kind == "data"} == {
                n: a for n, a in ours.arrays.items() if a.kind == "data"
            }
            for name, array in ours.arrays.items():
                assert theirs.arrays[name].values == array.values


def test_a_vrt_with_relative_names_and_a_slab_offset_is_honoured(tmp_path):
    path = tmp_path / "d" / "long.nc"
    path.parent.mkdir()
    with h5py.File(path, "w") as f:
        time = f.create_dataset("time", data=np.arange(5.0))
        time.make_scale("time")
        time.attrs["units"] = "days since 2000-01-01"
        sst = f.create_dataset("sst", data=np.arange(20, dtype="<i2").reshape(5, 4), chunks=(1, 4))
        sst.dims[0].attach_scale(time)
    handed = """<VRTDataset><Group name="/"><Dimension name="time" size="2"/><Dimension name="x" size="4"/>
      <Array name="sst"><DataType>Int16</DataType><DimensionRef ref="time"/><DimensionRef ref="x"/>
      <Source><SourceFilename relativeToVRT="1">../d/long.nc</SourceFilename><SourceArray>/sst</SourceArray>
      <SourceSlab offset="3,0" count="2,4" step="1,1"/><DestSlab offset="0,0"/></Source></Array></Group></VRTDataset>"""
    (tmp_path / "plan").mkdir()
    (tmp_path / "plan" / "handed.vrt").write_text(handed)
    with build(
        tmp_path, [path], plan={"engine": "vrt", "vrt": str(tmp_path / "plan" / "handed.vrt")}
    ) as view:
        refs = view.refs("sst")
        raw = path.read_bytes()
        got = [
            np.frombuffer(raw[o : o + s], "<i2").tolist()
            for o, s in zip(refs.offset, refs.size, strict=True)
        ]
        assert got == [[12, 13, 14, 15], [16, 17, 18, 19]]


def test_a_vrt_that_steps_over_elements_is_refused(tmp_path):
    files = [day(tmp_path, 0)]
    with build(tmp_path, files) as view:
        text = view.vrt.replace('step="1,1,1,1"', 'step="1,1,2,1"')
    (tmp_path / "handed.vrt").write_text(text)
    with pytest.raises(
        PlanError, match="with step 1,1,2,1; chunks can be referenced with step 1 only"
    ):
        build(tmp_path, files, plan={"engine": "vrt", "vrt": str(tmp_path / "handed.vrt")})


def test_a_day_that_arrives_late_moves_what_follows_on_a_packed_axis_and_nothing_on_a_dense_one(
    tmp_path,
):
    files = [day(tmp_path, n) for n in (0, 1, 3)]
    late = day(tmp_path, 2)
    for axis, before, after in (
        ("packed", [0, 1, 2], [0, 1, 2, 3]),
        ("dense", [0, 1, 3], [0, 1, 2, 3]),
    ):
        folder = tmp_path / axis
        with build(folder, files, plan={"axis": axis}) as view:
            assert sorted(dests(view).values()) == before
        conf = config(plan={"axis": axis})
        scan_into(folder, [late], conf)
        with replan(folder, conf) as view:
            assert sorted(dests(view).values()) == after


def test_a_gap_on_a_dense_axis_has_coordinates_and_no_rows(tmp_path):
    files = [day(tmp_path, n) for n in (0, 1, 3)]
    with build(tmp_path, files, plan={"axis": "dense"}) as view:
        time = np.frombuffer(view.arrays["time"].values, view.arrays["time"].dtype)
        assert np.diff(time).tolist() == [1, 1, 1]
        assert view.refs("sst").source.tolist() == [0, 1, -1, 2]


def drifted(tmp_path, **options):
    """Two good days and a third that differs by ``options``."""
    return [day(tmp_path, 0), day(tmp_path, 1), day(tmp_path, 2, **options)]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"scale": 0.02}, r"has scale_factor 0\.0199\d+, and .*20260101\.nc has 0\.0099"),
        ({"fill": -998}, "has _FillValue -998, and .* has -999"),
        ({"dtype": "i4"}, "has dtype <i4, and .* has <i2"),
        ({"shuffle": False}, r"has codec \[\{'id': 'zlib'\}\], and"),
        ({"chunks": (1, 1, 3, 8)}, r"has chunks \[1, 1, 3, 8\], and .* has \[1, 1, 6, 8\]"),
        ({"shape": (6, 4)}, r"has shape \[None, 1, 6, 4\], and .* has \[None, 1, 6, 8\]|'lon'"),
        ({"calendar": "360_day"}, "calendar '360_day', and the sources before it have 'standard'"),
        ({"units": "months since 2020-01-01"}, "no fixed length"),
    ],
)
def test_a_source_that_differs_is_refused_with_both_names_and_values(tmp_path, options, text):
    with pytest.raises(PlanError, match=text) as refusal:
        build(tmp_path, drifted(tmp_path, **options))
    assert "20260103.nc" in str(refusal.value)


def test_a_different_level_of_deflate_is_the_same_codec(tmp_path):
    with build(tmp_path, drifted(tmp_path, complevel=9)) as view:
        assert len(view.arrays["sst"].placements) == 3


def test_a_base_date_that_moves_is_converted_and_the_first_units_stay(tmp_path):
    files = [day(tmp_path, n, time=0.0, units=f"days since 2026-01-0{n + 1}") for n in range(3)]
    with build(tmp_path, files) as view:
        time = view.arrays["time"]
        assert np.frombuffer(time.values, time.dtype).tolist() == [0, 1, 2]
        assert time.attrs["units"] == "days since 2026-01-01"


def test_the_consistency_report_shows_the_runs_and_is_there_after_a_refusal(tmp_path):
    files = [day(tmp_path, n, shuffle=n < 2) for n in range(4)]
    with pytest.raises(PlanError, match=r"20260103\.nc.*codec"):
        build(tmp_path, files)
    runs = json.loads((tmp_path / "plan" / "consistency.json").read_text())["arrays"]["sst"]["runs"]
    assert [(Path(r["first"]).name, r["count"]) for r in runs] == [
        ("sst.20260101.nc", 2),
        ("sst.20260103.nc", 2),
    ]


def test_a_refused_plan_leaves_the_one_before_it(tmp_path):
    files = [day(tmp_path, n) for n in range(2)]
    build(tmp_path, files).close()
    before = (tmp_path / "plan" / "plan.vrt").read_bytes()
    scan_into(tmp_path, [day(tmp_path, 2, scale=0.5)], config())
    with pytest.raises(PlanError, match="scale_factor"):
        replan(tmp_path, config())
    assert (tmp_path / "plan" / "plan.vrt").read_bytes() == before


def test_two_sources_at_one_time_are_refused_with_both_names_and_the_value(tmp_path):
    files = [day(tmp_path, 0), day(tmp_path, 0, "again")]
    with pytest.raises(
        PlanError,
        match=r"20260101\.nc: array 'sst' lies at time 17532\.0 .*, where .*again\.nc lies already",
    ):
        build(tmp_path, files)


def test_a_final_granule_takes_the_slot_of_a_preliminary_one(tmp_path):
    files = [
        day(tmp_path, 0, "sst.20260101_preliminary"),
        day(tmp_path, 0),
        day(tmp_path, 1, "sst.20260102_preliminary"),
    ]
    parts = {
        "source": {"pattern": r"sst\.(?P<date>\d{8})(?P<status>_preliminary)?\.nc$"},
        "select": {"slot": ["date"], "prefer": {"status": ["", "_preliminary"]}},
    }
    with build(tmp_path, files, **parts) as view:
        assert dests(view) == {"sst.20260101.nc": 0, "sst.20260102_preliminary.nc": 1}
    lost = json.loads((tmp_path / "plan" / "consistency.json").read_text())["lost"]
    assert [Path(s).name for s in lost] == ["sst.20260101_preliminary.nc"]


def test_variables_in_several_files_share_one_axis(tmp_path):
    files = [day(tmp_path, n, f"{v}.{n}", arrays=(v,)) for n in range(3) for v in ("sst", "ice")]
    with build(tmp_path, files) as view:
        assert dests(view, "sst") == {f"sst.{n}.nc": n for n in range(3)}
        assert dests(view, "ice") == {f"ice.{n}.nc": n for n in range(3)}


def test_a_slot_without_an_array_is_refused_or_absent_as_the_config_says(tmp_path):
    files = [
        day(tmp_path, 0, arrays=("sst", "ice")),
        day(tmp_path, 1, arrays=("sst",)),
        day(tmp_path, 2, arrays=("sst", "ice")),
    ]
    with pytest.raises(
        PlanError,
        match=r"20260102\.nc: array 'ice' is missing at time 17533\.0 .*plan\.missing: absent",
    ):
        build(tmp_path, files)
    with build(tmp_path, files, plan={"missing": "absent"}) as view:
        assert view.refs("ice").source.tolist() == [0, -1, 2]
        assert view.refs("sst").source.tolist() == [0, 1, 2]


def test_a_wanted_array_that_no_source_has_is_refused_with_what_there_is(tmp_path):
    scans = config()
    scan_into(tmp_path, [day(tmp_path, 0)], scans)
    with pytest.raises(
        PlanError, match=r"no planned source has sea of scan\.arrays; there are lat, lon, sst"
    ):
        replan(tmp_path, config(scan={"arrays": ["sea"]}))


def test_a_static_grid_that_changes_is_refused_with_the_first_difference(tmp_path):
    files = [day(tmp_path, n) for n in range(2)]
    with netCDF4.Dataset(files[1], "a") as nc:
        nc["lat"][3] = 12.5
    with pytest.raises(
        PlanError, match=r"20260102\.nc: array 'lat' .* element 3 is 12\.5 against 15\.0"
    ):
        build(tmp_path, files)


def monthly(folder: Path, lengths: list[int], chunk: int) -> list[Path]:
    """Files of several steps each, one after another."""
    files, at = [], 0
    for i, n in enumerate(lengths):
        path = folder / f"m{i}.nc"
        with netCDF4.Dataset(path, "w") as nc:
            nc.createDimension("time", None)
            nc.createDimension("x", 3)
            time = nc.createVariable("time", "f8", ("time",))
            time.units = "days since 2000-01-01"
            v = nc.createVariable(
                "v", "i4", ("time", "x"), chunksizes=(chunk, 3), zlib=True, shuffle=False
            )
            time[:] = np.arange(at, at + n)
            v[:] = np.arange(at * 3, (at + n) * 3).reshape(n, 3)
        files.append(path)
        at += n
    return files


def test_a_file_that_ends_inside_a_chunk_refuses_refs_and_not_the_vrt(tmp_path):
    from osgeo import gdal

    with build(tmp_path, monthly(tmp_path, [5, 6], 3)) as view:
        assert view.referenced() == []
        assert "it ends at element 5 of 11, inside a chunk of 3" in view.arrays["v"].refused
        array = gdal.OpenEx(view.vrt, gdal.OF_MULTIDIM_RASTER).GetRootGroup().OpenMDArray("v")
        assert array.ReadAsArray().ravel().tolist() == list(range(33))


@settings(max_examples=12)
@given(lengths=st.lists(st.integers(1, 6), min_size=1, max_size=4), chunk=st.integers(1, 3))
def test_a_chunk_of_the_view_holds_the_elements_at_its_global_place(
    tmp_path_factory, lengths, chunk
):
    folder = tmp_path_factory.mktemp("plan")
    total = sum(lengths)
    with build(folder, monthly(folder, lengths, chunk)) as view:
        array = view.arrays["v"]
        aligned = all(
            misaligned(array.shape, array.chunks, p.src_offset, p.count, p.dest) is None
            for p in array.placements
        )
        assert bool(array.refused) != aligned
        if not aligned:
            return
        refs = view.refs("v")
        for k, (source, offset, size) in enumerate(
            zip(refs.source, refs.offset, refs.size, strict=True)
        ):
            stored = Path(view.sources[source].source).read_bytes()[offset : offset + size]
            values = np.frombuffer(zlib.decompress(stored), "<i4").reshape(chunk, 3)
            steps = min(chunk, total - k * chunk)
            assert values[:steps].ravel().tolist() == list(
                range(k * chunk * 3, (k * chunk + steps) * 3)
            )


def test_an_axis_of_the_same_name_in_a_group_is_refused_unless_it_is_as_long(tmp_path):
    for n, steps in (("same", 1), ("other", 24)):
        files = [day(tmp_path / n, k) for k in range(2)]
        for path in files:
            with netCDF4.Dataset(path, "a") as nc:
                g = nc.createGroup("hourly")
                g.createDimension("time", steps)
                g.createVariable("v", "f4", ("time",))[:] = np.arange(steps)
    with build(tmp_path / "same", sorted((tmp_path / "same").glob("*.nc"))) as view:
        assert view.arrays["hourly/v"].shape == (2,)
    with pytest.raises(PlanError, match=r"'hourly/v' has 24 steps along 'time' and 'time' has 1"):
        build(tmp_path / "other", sorted((tmp_path / "other").glob("*.nc")))


def test_names_that_differ_only_in_case_are_refused(tmp_path):
    path = tmp_path / "a.nc"
    oisst(path, START, shape=(6, 8), arrays=("sst", "SST"))
    with pytest.raises(PlanError, match="'SST' and 'sst' differ only in case"):
        build(tmp_path, [path])


def test_several_sources_without_a_concat_axis_are_refused(tmp_path):
    files = [day(tmp_path, n) for n in range(2)]
    with pytest.raises(
        PlanError, match=r"2 sources and no plan\.concat; name the axis that joins them"
    ):
        build(tmp_path, files, plan={"concat": None})


def test_a_concat_axis_that_is_not_there_is_refused_with_the_axes_that_are(tmp_path):
    with pytest.raises(
        PlanError, match=r"no dimension or coordinate 'tiem' .*it has lat, lon, time, zlev"
    ):
        build(tmp_path, [day(tmp_path, 0)], plan={"concat": "tiem"})


def with_scalar(path: Path, value: int, units: str) -> Path:
    """Add a scalar that no attribute names to a granule."""
    with netCDF4.Dataset(path, "a") as nc:
        v = nc.createVariable("issued", "i4", ())
        v.units = units
        v[:] = value
    return path


@pytest.mark.parametrize(
    "units", [("h", "h"), ("hours since 2026-01-01", "hours since 2026-01-02")]
)
def test_a_scalar_that_varies_is_refused_if_wanted_and_left_out_with_a_reason_if_it_came_along(
    tmp_path, units
):
    files = [with_scalar(day(tmp_path, n), n if units[0] == "h" else 0, units[n]) for n in range(2)]
    with pytest.raises(
        PlanError,
        match=r"20260102\.nc: array 'issued' .*scan\.arrays|20260102\.nc: array 'issued' has units",
    ):
        build(tmp_path / "all", files)
    with build(tmp_path / "some", files, scan={"arrays": ["sst"]}) as view:
        assert "issued" not in view.arrays
        assert "time" in view.arrays
    left_out = json.loads((tmp_path / "some" / "plan" / "consistency.json").read_text())["left_out"]
    assert "20260102.nc: array 'issued'" in left_out["issued"]


def test_an_attribute_that_varies_is_listed_and_not_copied_from_the_first_source(tmp_path):
    files = [day(tmp_path, n) for n in range(2)]
    for n, path in enumerate(files):
        with netCDF4.Dataset(path, "a") as nc:
            nc["sst"].actual_range = np.array([n, n + 1], "f4")
    with build(tmp_path, files) as view:
        assert "actual_range" not in view.arrays["sst"].attrs
        assert view.arrays["sst"].attrs["long_name"] == "sst"
    report = json.loads((tmp_path / "plan" / "consistency.json").read_text())
    assert report["varying_attrs"] == {"sst": ["actual_range"]}


def test_a_target_that_does_not_cover_a_source_is_refused_by_the_plan(tmp_path):
    with pytest.raises(RemapError, match=r"20260101\.nc: no remap rule of target 'public' covers"):
        build(tmp_path, [day(tmp_path, 0)], remap={"public": {"/elsewhere/": "s3://b/"}})


def test_strings_along_the_axis_are_as_wide_as_the_longest(tmp_path):
    files = []
    for n, word in enumerate(("noon", "midnight")):
        files.append(day(tmp_path, n))
        with netCDF4.Dataset(files[-1], "a") as nc:
            nc.createVariable("label", str, ("time",))[:] = np.array([word], object)
    with build(tmp_path, files) as view:
        label = view.arrays["label"]
        assert np.frombuffer(label.values, label.dtype).tolist() == [b"noon", b"midnight"]


@pytest.mark.parametrize(
    ("parts", "arrays"),
    [
        ({"axis": "dense"}, [("sst",)] * 3),
        ({"missing": "absent"}, [("sst", "ice"), ("sst",), ("sst", "ice")]),
    ],
)
def test_a_gap_that_no_attribute_declares_missing_is_refused(tmp_path, parts, arrays):
    days = (0, 1, 3) if "axis" in parts else (0, 1, 2)
    files = [day(tmp_path, n, arrays=a, fill=None) for n, a in zip(days, arrays, strict=True)]
    with pytest.raises(
        PlanError,
        match=r"places without a source, which read as 0, and its _FillValue \(none\)",
    ):
        build(tmp_path, files, plan=parts)
