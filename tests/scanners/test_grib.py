"""The GRIB scanner against ecCodes and the second GDAL, and the traps of research/peers.md, B37."""

from __future__ import annotations

import json
import lzma
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from byterefs import codecs, emitters, grib
from byterefs.errors import ByteRefsError, EmitError, PlanError, ScanError, VerifyError
from byterefs.model import ABSENT
from byterefs.proving import fields
from conformance import ScannerTests, assembled, by_value, scanned, stored_bytes
from forms import Results
from granules import Granule
from gribs import SHAPE, joined, message, ramp, truth

Shared = Callable[[str], Path]

SOURCE = {"provider": "local", "path": "/", "pattern": r"\.grib2?$"}
T, U = {"shortName": "t"}, {"shortName": "u"}


def file(path: Path, *messages: bytes) -> Path:
    path.write_bytes(b"".join(messages))
    return path


def field(seed: int, *keys: dict[str, Any], sample: str = "regular_ll_pl_grib2") -> bytes:
    """A message of ``ramp(seed)`` with these keys."""
    return message(ramp(seed), {k: v for each in keys for k, v in each.items()}, sample)


def data(path: Path, **options: Any) -> Any:
    """The one array of a file that has byte ranges."""
    (found,) = (i for i in scanned(path, **options).arrays.values() if i.offset is not None)
    return found


class TestGrib(ScannerTests):
    FORMAT: ClassVar[str] = "grib"
    COORDINATES: ClassVar[frozenset[str]] = frozenset(
        {"latitude", "longitude", "isobaricInhPa", "step", "time", "valid_time"}
    )

    def granule(self, folder: Path) -> Granule:
        cells = list(product((6, 12), (500, 850)))
        made = [
            field(i + 10 * k, name, {"level": level, "step": step})
            for k, name in enumerate((T, U))
            for i, (step, level) in enumerate(cells)
        ]
        cube = {
            f"{name}_isobaricInhPa": np.stack(
                [[ramp(i + 10 * k) for i in row] for row in ((1, 0), (3, 2))]
            ).astype("<f4")
            for k, name in enumerate(("t", "u"))
        }
        # the reference time of ecCodes' sample
        start = int(np.datetime64("2007-03-23T12:00", "s").astype("i8"))
        axes = {
            "isobaricInhPa": np.array([850.0, 500.0]),
            "latitude": np.array([30.0, 20, 10, 0]),
            "longitude": np.arange(100.0, 151, 10),
            "step": np.array([6.0, 12]),
            "time": np.array(start),
            "valid_time": start + np.array([6, 12]) * 3600,
        }
        return Granule(file(folder / "plain.grib2", *made), {**cube, **axes})

    def test_edge_chunks_keep_their_full_stored_shape(self, tmp_path: Path) -> None:
        """A chunk is a message, and a message holds a whole grid: there are no edges."""
        made = self.granule(tmp_path)
        for item in self.scanned(made.path).arrays.values():
            if item.offset is not None:
                assert item.meta.chunks == (1, 1, *SHAPE)

    def sparse(self, folder: Path) -> Granule:
        path = file(
            folder / "sparse.grib2",
            field(1, T, {"level": 500, "step": 6}),
            field(2, T, {"level": 850, "step": 12}),
        )
        values = np.full((2, 2, *SHAPE), np.nan, "<f4")
        values[0, 1], values[1, 0] = ramp(1), ramp(2)
        name = "t_isobaricInhPa"
        return Granule(path, {name: values}, {name: {(0, 0, 0, 0), (1, 1, 0, 0)}})

    def mixed(self, folder: Path) -> tuple[Path, str, str]:
        wide = {"packingType": "grid_ieee", "precision": 2}
        path = file(
            folder / "mixed.grib2",
            field(1, T, {"level": 500, "packingType": "grid_ieee"}),
            field(2, T, {"level": 850}, wide),
        )
        return path, "t_isobaricInhPa", "64 bits"


# --- values ----------------------------------------------------------------------------------------

PACKINGS = {
    "regular_ll_pl_grib1": (
        *("grid_simple", "grid_ieee", "grid_second_order", "grid_second_order_no_SPD"),
        *("grid_second_order_SPD1", "grid_second_order_SPD3", "grid_simple_matrix"),
    ),
    "regular_ll_pl_grib2": (
        *("grid_simple", "grid_ieee", "grid_complex", "grid_complex_spatial_differencing"),
        *("grid_ccsds", "grid_jpeg", "grid_simple_log_preprocessing", "grid_second_order"),
    ),
}


def variants(packings: tuple[str, ...]) -> Iterator[tuple[str, bool, int, str]]:
    """(packing, with missing values, decimal scale, noisy or constant)."""
    yield from product(packings, (False, True), (0, 2), ("noisy",))
    yield from product(packings[:1], (False, True), (0,), ("constant",))


@pytest.mark.parametrize("sample", PACKINGS)
def test_every_packing_decodes_to_what_eccodes_gives(tmp_path: Path, sample: str) -> None:
    noise = np.random.default_rng(7).normal(250, 20, (4, 60))
    wide = {"Ni": 60, "longitudeOfLastGridPointInDegrees": 100 + 59 * 4.0, "iDirectionIncrementInDegrees": 4.0}  # fmt: skip
    decoders = set()
    for packing, masked, scale, kind in variants(PACKINGS[sample]):
        values = noise.copy() if kind == "noisy" else np.full(noise.shape, 273.15)
        values[1:3, 5:9] = np.nan if masked else values[1:3, 5:9]
        made = message(
            values, {**wide, "decimalScaleFactor": scale, "packingType": packing}, sample
        )
        path = file(tmp_path / "one.grib", made)
        item = data(path)
        got, expected = assembled(path, item), truth(made).reshape(4, 60)
        np.testing.assert_array_equal(got, expected, err_msg=f"{packing} {masked} {scale} {kind}")
        assert np.isnan(got).sum() == (8 if masked else 0)
        decoders.add(item.meta.codec["compressor"]["id"])
    assert decoders == {grib.GRIBBERISH, grib.ECCODES}


@pytest.mark.parametrize("packing", ["grid_simple", "grid_second_order", "grid_ieee"])
@pytest.mark.parametrize("edition", [1, 2])
def test_a_gaussian_grid_has_its_rows_and_columns_in_both_editions(
    tmp_path: Path, edition: int, packing: str
) -> None:
    values = np.random.default_rng(3).normal(250, 20, (64, 128))
    made = message(values, {"packingType": packing}, f"regular_gg_pl_grib{edition}")
    item = data(file(tmp_path / "gauss.grib", made))
    assert (item.meta.dims, item.meta.shape) == (("latitude", "longitude"), (64, 128))
    got = assembled(tmp_path / "gauss.grib", item)
    np.testing.assert_array_equal(got, truth(made).reshape(64, 128))


@pytest.mark.parametrize("packing", ["grid_second_order", "grid_second_order_SPD3"])
def test_second_order_packing_beside_simple_packing_is_one_array(
    tmp_path: Path, packing: str
) -> None:
    draw = np.random.default_rng(5)
    keys = {"level": 850, "Ni": 16, "Nj": 31}
    first = draw.normal(250, 20, (31, 16))
    first[draw.random(first.shape) < 0.3] = np.nan
    second = draw.normal(250, 20, (31, 16))
    made = [
        message(first, {**keys, "step": 0}, "regular_ll_pl_grib1"),
        message(second, {**keys, "step": 12, "packingType": packing}, "regular_ll_pl_grib1"),
    ]
    item = data(file(tmp_path / "both.grib", *made))
    assert item.meta.dims == ("step", "latitude", "longitude")
    expected = np.stack([truth(one).reshape(31, 16) for one in made])
    np.testing.assert_array_equal(assembled(tmp_path / "both.grib", item), expected)


@pytest.mark.parametrize("bits", [1, 2, 4, 5, 8, 12, 16, 24, 25, 32])
def test_ccsds_of_any_number_of_bits_decodes_to_what_eccodes_gives(
    tmp_path: Path, bits: int
) -> None:
    values = np.random.default_rng(1).random((4, 6)) * 1000 + 200
    made = message(values, {"bitsPerValue": bits, "packingType": "grid_ccsds"})
    path = file(tmp_path / "one.grib", made)
    item = data(path)
    np.testing.assert_array_equal(assembled(path, item), truth(made).reshape(4, 6))
    # gribberish 1.9 gives other values, or none, outside of these
    proven = 5 <= bits <= 24
    assert item.meta.codec["compressor"]["id"] == (grib.GRIBBERISH if proven else grib.ECCODES)


@pytest.mark.parametrize(
    "case", ["a constant field with missing points", "floats", "a reduced grid"]
)
def test_what_gribberish_gets_wrong_in_edition_1_is_left_to_eccodes(
    tmp_path: Path, case: str
) -> None:
    import gribberish

    if case == "a reduced grid":
        made = message(ramp(1, (6114,)), T, "reduced_gg_pl_32_grib1")
    else:
        values = np.full(SHAPE, 273.15) if case.startswith("a constant") else ramp(1)
        values = values.copy()
        values[0, :2] = np.nan if case.startswith("a constant") else values[0, :2]
        packing = {} if case.startswith("a constant") else {"packingType": "grid_ieee"}
        made = message(values, {**T, **packing}, "regular_ll_pl_grib1")
    theirs = np.asarray(gribberish.parse_grib_array(made, 0)).ravel()
    expected = truth(made)
    assert not np.array_equal(theirs.astype("<f4"), expected, equal_nan=True)
    path = file(tmp_path / "one.grib", made)
    item = data(path)
    assert item.meta.codec["compressor"]["id"] == grib.ECCODES
    np.testing.assert_array_equal(assembled(path, item).ravel(), expected)


@pytest.mark.parametrize("flags", [0, 64, 128, 192, 32, 96])
def test_axes_run_as_the_scanning_mode_says(tmp_path: Path, flags: int) -> None:
    keys = {
        "iScansNegatively": int(bool(flags & 128)),
        "jScansPositively": int(bool(flags & 64)),
        "jPointsAreConsecutive": int(bool(flags & 32)),
    }
    lats, lons = (30.0, 0.0), (100.0, 150.0)
    lats, lons = (lats[::-1] if flags & 64 else lats), (lons[::-1] if flags & 128 else lons)
    keys |= {
        "latitudeOfFirstGridPointInDegrees": lats[0],
        "latitudeOfLastGridPointInDegrees": lats[1],
        "longitudeOfFirstGridPointInDegrees": lons[0],
        "longitudeOfLastGridPointInDegrees": lons[1],
    }
    made = field(3, T, keys)
    path = file(tmp_path / "one.grib2", made)
    found = scanned(path).arrays
    item = data(path)
    lat, lon = (by_value(found[n]) for n in ("latitude", "longitude"))
    assert item.meta.dims[-2:] == (
        ("longitude", "latitude") if flags & 32 else ("latitude", "longitude")
    )
    # ecCodes' own list of points: latitude, longitude and value of each
    handle = grib.eccodes().codes_new_from_message(made)
    expected = {
        (p["lat"], p["lon"]): p["value"] for p in grib.eccodes().codes_grib_get_data(handle)
    }
    values = assembled(path, item)
    values = values.T if flags & 32 else values
    got = {(y, x): float(values[j, i]) for j, y in enumerate(lat) for i, x in enumerate(lon)}
    assert got == expected


def test_rows_that_run_to_and_fro_are_refused(tmp_path: Path) -> None:
    path = file(tmp_path / "one.grib2", field(3, T, {"alternativeRowScanning": 1}))
    with pytest.raises(ScanError, match="to and fro"):
        scanned(path)


@pytest.mark.parametrize("sample", ["reduced_gg_pl_32_grib1", "reduced_gg_pl_32_grib2"])
def test_a_reduced_grid_is_one_axis_of_values_with_its_points(tmp_path: Path, sample: str) -> None:
    made = message(ramp(1, (6114,)), T, sample)
    path = file(tmp_path / "one.grib", made)
    item, found = data(path), scanned(path).arrays
    assert item.meta.dims == ("values",)
    np.testing.assert_array_equal(assembled(path, item), truth(made))
    handle = grib.eccodes().codes_new_from_message(made)
    for name in ("latitude", "longitude"):
        expected = grib.eccodes().codes_get_array(handle, f"{name}s")
        np.testing.assert_array_equal(by_value(found[name]), expected)
        assert name in item.meta.attrs["coordinates"].split()


def test_a_message_of_several_fields_is_an_array_of_each_that_it_holds_once(tmp_path: Path) -> None:
    made = [field(1, U), field(2, {"shortName": "v"})]
    path = file(tmp_path / "one.grib2", joined(*made), joined(field(3, U, {"step": 6}), field(4, {"shortName": "v"}, {"step": 6})))  # fmt: skip
    found = scanned(path).arrays
    for name, seeds in (("u_isobaricInhPa_1000", (1, 3)), ("v_isobaricInhPa_1000", (2, 4))):
        np.testing.assert_array_equal(
            assembled(path, found[name]), np.stack([ramp(s) for s in seeds]).astype("f4")
        )
    assert found["v_isobaricInhPa_1000"].meta.codec["compressor"]["field"] == 1


def test_the_oracle_reads_each_field_of_a_file_in_whatever_order_it_is_asked(
    tmp_path: Path,
) -> None:
    two = [
        joined(field(s, U, {"step": s}), field(s + 20, {"shortName": "v"}, {"step": s}))
        for s in (1, 2)
    ]
    path = str(file(tmp_path / "a.grib2", two[0], field(5, T), b"junk", two[1]))
    known = fields.fields(path)
    assert not isinstance(known, str)
    expected = dict(zip([f.spot for f in known], (1, 21, 5, 2, 22), strict=True))
    # the first field of two leaves the second one in ecCodes, which gave it for the next file
    for spot in [*expected, *reversed(expected), *expected]:
        got = fields.values(path, spot, "values")
        assert not isinstance(got, str)
        np.testing.assert_array_equal(got.astype("f4"), ramp(expected[spot]).astype("f4"))


def test_fields_of_one_message_that_one_array_needs_are_refused_with_the_way_out(
    tmp_path: Path, shared: Shared
) -> None:
    path = file(tmp_path / "one.grib2", joined(field(1, T), field(2, T, {"level": 500})))
    with pytest.raises(ScanError, match=r"t_isobaricInhPa: .* holds 2 fields.*grib_copy"):
        scanned(path)
    name = "Z__C_RJTD_20190304000000_MSM_GUID_Rjp_P-all_FH03-39_Toorg_grib2.bin"
    real = file(tmp_path / name, lzma.decompress(shared(f"grib/{name}.xz").read_bytes()))
    with pytest.raises(ScanError, match="holds 45 fields"):
        scanned(real)


def test_fields_that_eccodes_copies_to_messages_of_their_own_are_one_array(tmp_path: Path) -> None:
    """The way out of the refusal is one: what grib_copy does, with its support of several fields."""
    made = [field(1, T), field(2, T, {"level": 500})]
    path, apart = file(tmp_path / "one.grib2", joined(*made)), tmp_path / "apart.grib2"
    ec = grib.eccodes()
    ec.codes_grib_multi_support_on()
    try:
        with path.open("rb") as old, apart.open("wb") as new:
            while (handle := ec.codes_grib_new_from_file(old)) is not None:
                ec.codes_write(handle, new)
                ec.codes_release(handle)
    finally:
        ec.codes_grib_multi_support_off()
    item = data(apart)
    assert by_value(scanned(apart).arrays["isobaricInhPa"]).tolist() == [1000, 500]
    np.testing.assert_array_equal(assembled(apart, item), np.stack([ramp(1), ramp(2)]).astype("f4"))


# --- axes ------------------------------------------------------------------------------------------


def test_two_messages_of_one_place_are_refused_with_both(tmp_path: Path) -> None:
    first = field(1, T, {"level": 500})
    path = file(
        tmp_path / "one.grib2", first, field(2, T, {"level": 850}), field(3, T, {"level": 500})
    )
    with pytest.raises(ScanError, match="two messages have one place") as refusal:
        scanned(path)
    text = str(refusal.value)
    assert "at byte 0" in text
    assert f"at byte {len(first) + len(field(2, T, {'level': 850}))}" in text


def test_members_are_an_axis_even_if_there_is_one(tmp_path: Path) -> None:
    ensemble = {"productDefinitionTemplateNumber": 1, "numberOfForecastsInEnsemble": 3}
    made = [field(i, T, ensemble, {"perturbationNumber": i}) for i in (2, 1)]
    found = scanned(file(tmp_path / "two.grib2", *made)).arrays
    assert by_value(found["number"]).tolist() == [1, 2]
    assert data(tmp_path / "two.grib2").meta.dims[0] == "number"
    assert data(file(tmp_path / "one.grib2", made[0])).meta.shape[0] == 1


def test_the_concat_axis_is_kept_and_valid_time_takes_the_place_of_time_and_step(
    tmp_path: Path,
) -> None:
    path = file(tmp_path / "one.grib2", field(1, T, {"step": 6, "level": 500}))
    assert data(path).meta.dims == ("latitude", "longitude")
    assert data(path, concat="time").meta.dims == ("time", "latitude", "longitude")
    assert data(path, concat="step").meta.dims == ("step", "latitude", "longitude")
    level = scanned(path, concat="isobaricInhPa").arrays
    assert level["t_isobaricInhPa"].meta.dims[0] == "isobaricInhPa"
    found = scanned(path, concat="valid_time").arrays
    assert "time" not in found
    assert "step" not in found
    start = int(np.datetime64("2007-03-23T18:00", "s").astype("i8"))
    assert by_value(found["valid_time"]).tolist() == [start]


def test_minutes_and_means_keep_their_steps_and_names(tmp_path: Path) -> None:
    mean = {"productDefinitionTemplateNumber": 8, "typeOfStatisticalProcessing": 0}
    path = file(
        tmp_path / "one.grib2",
        field(1, T, {"stepUnits": "m", "step": 15}),
        field(2, T, {"stepUnits": "m", "step": 30}),
        field(3, T, mean, {"stepRange": "0-1"}),
    )
    found = scanned(path).arrays
    assert by_value(found["step"]).tolist() == [0.25, 0.5, 1.0]
    assert found["t_isobaricInhPa_1000"].offset.ravel().tolist()[2] == ABSENT
    assert found["avg_t_isobaricInhPa_1000_avg"].offset.ravel().tolist()[:2] == [ABSENT, ABSENT]
    assert found["avg_t_isobaricInhPa_1000_avg"].meta.attrs["GRIB_stepType"] == "avg"


def test_percentiles_and_probabilities_are_arrays_of_their_own(shared: Shared) -> None:
    found = scanned(shared("grib/s2s-pdt9-pdt10-pdt12.grib2")).arrays
    names = {n.removeprefix("mn2t_heightAboveGround_2_min_") for n in found if n.startswith("mn2t")}
    assert names == {"derived0", "p1", "p50", "p99", "prob6_0_0", "prob10_1_10", "prob10_3_3", "prob10_10_10"}  # fmt: skip


@pytest.mark.parametrize("edition", [1, 2])
def test_levels_and_steps_are_axes_and_product_keys_attributes_in_both_editions(
    tmp_path: Path, edition: int
) -> None:
    sample = f"regular_ll_pl_grib{edition}"
    cells = list(product((0, 6, 12), (500, 850)))
    made = [
        field(i, T, {"step": step, "level": level}, sample=sample)
        for i, (step, level) in enumerate(cells)
    ]
    path = file(tmp_path / "cube.grib", *made[::-1])
    found, item = scanned(path).arrays, data(path)
    assert item.meta.dims == ("step", "isobaricInhPa", "latitude", "longitude")
    assert by_value(found["step"]).tolist() == [0, 6, 12]
    assert by_value(found["isobaricInhPa"]).tolist() == [850, 500]
    assert item.meta.info == f"DRIVER=GRIB; EDITION={edition}"
    expected = dict(zip(cells, map(truth, made), strict=True))
    whole = np.stack([[expected[s, v].reshape(SHAPE) for v in (850, 500)] for s in (0, 6, 12)])
    np.testing.assert_array_equal(assembled(path, item), whole)
    ec, handle = grib.eccodes(), grib.eccodes().codes_new_from_message(made[0])
    for key in ("paramId", "shortName", "name", "units", "typeOfLevel", "gridType", "Nx", "Ny"):
        assert item.meta.attrs[f"GRIB_{key}"] == ec.codes_get(handle, key), key
    ec.codes_release(handle)
    assert "GRIB_level" not in item.meta.attrs
    start = by_value(found["time"])
    np.testing.assert_array_equal(
        by_value(found["valid_time"]), start + np.array([0, 6, 12]) * 3600
    )


def test_keys_are_attributes_as_readers_of_grib_in_xarray_have_them(tmp_path: Path) -> None:
    item = data(file(tmp_path / "one.grib2", field(1, T, {"level": 500})))
    expected = {
        "units": "K",
        "standard_name": "air_temperature",
        "long_name": "Temperature",
        "GRIB_paramId": 130,
        "GRIB_shortName": "t",
        "GRIB_typeOfLevel": "isobaricInhPa",
        "GRIB_level": 500.0,
        "GRIB_gridType": "regular_ll",
        "GRIB_Nx": 6,
        "coordinates": "step time valid_time",
        "_FillValue": "NaN",
    }
    assert {k: item.meta.attrs.get(k) for k in expected} == expected
    assert (item.meta.dtype, item.meta.fill) == ("<f4", "NaN")


@pytest.mark.parametrize("name", ["hrrr.wrfsubhf.sample.grib2", "png_eta_lambert.grib2", "aqm.t12z.ave_1hr_o3-HI-mercator.grib2", "aqm.t12z.ave_1hr_o3-AK-polar-stereographic.grib2", "lambert_grid.grib"])  # fmt: skip
def test_projected_axes_lie_where_eccodes_has_the_points(shared: Shared, name: str) -> None:
    from osgeo import osr

    osr.UseExceptions()
    path = shared(f"grib/{name}")
    found = scanned(path).arrays
    x, y, mapping = by_value(found["x"]), by_value(found["y"]), found["spatial_ref"].meta.attrs
    system, sphere = osr.SpatialReference(), osr.SpatialReference()
    system.ImportFromWkt(mapping["crs_wkt"])
    sphere.CopyGeogCSFrom(system)
    sphere.SetAxisMappingStrategy(osr.OAMS_TRADITIONAL_GIS_ORDER)
    back = osr.CoordinateTransformation(system, sphere)
    ec = grib.eccodes()
    with path.open("rb") as f:
        handle = ec.codes_grib_new_from_file(f)
    lat, lon = (ec.codes_get_array(handle, k).reshape(len(y), len(x)) for k in ("latitudes", "longitudes"))  # fmt: skip
    for j, i in ((0, 0), (0, -1), (-1, 0), (-1, -1), (len(y) // 2, len(x) // 3)):
        east, north, _ = back.TransformPoint(float(x[i]), float(y[j]))
        assert abs(north - lat[j, i]) < 1e-3
        assert abs((east - lon[j, i] + 180) % 360 - 180) < 1e-3
    item = next(i for i in found.values() if i.offset is not None)
    assert item.meta.attrs["grid_mapping"] == "spatial_ref"


# --- files -----------------------------------------------------------------------------------------

WHOLE = {k: field(1, T, sample=f"regular_ll_pl_grib{k}") for k in (1, 2)}


@given(st.lists(st.tuples(st.sampled_from([1, 2]), st.binary(max_size=40)), max_size=6))
def test_messages_are_found_among_whatever_lies_between(parts: list[tuple[int, bytes]]) -> None:
    whole, expected = b"", []
    for edition, between in parts:
        whole += between.replace(b"G", b"-")
        expected.append((len(whole), len(WHOLE[edition]), edition))
        whole += WHOLE[edition]
    assert [tuple(m) for m in grib.messages(lambda o, n: whole[o : o + n], len(whole))] == expected


@pytest.mark.parametrize("edition", [1, 2])
def test_a_file_cut_anywhere_is_refused_or_whole_messages_shorter(
    tmp_path: Path, edition: int
) -> None:
    one = WHOLE[edition]
    for kept in range(1, len(one)):
        path = file(tmp_path / "cut.grib", one, one[:kept])
        if b"GRIB" not in one[:kept]:
            continue  # less than the four letters is no message
        with pytest.raises(ScanError, match=r"truncated|edition 0"):
            scanned(path, format="grib")


def test_a_damaged_message_is_refused_by_file(tmp_path: Path, shared: Shared) -> None:
    with pytest.raises(ScanError, match="does not end in 7777"):
        scanned(shared("grib/era5-levels-corrupted.grib"))
    broken = bytearray(WHOLE[2])
    broken[16:20] = (1).to_bytes(4)
    with pytest.raises(ScanError, match="does not fit"):
        scanned(file(tmp_path / "one.grib2", bytes(broken)))
    dated = field(1, T, {"dataDate": 20070323})
    at = dated.index((2007).to_bytes(2) + b"\3\x17")
    with pytest.raises(ScanError, match="month must be in"):
        scanned(file(tmp_path / "two.grib2", dated[: at + 2] + b"\x17" + dated[at + 3 :]))


def test_a_range_that_is_no_message_is_refused_by_the_codec(tmp_path: Path) -> None:
    path = file(tmp_path / "one.grib2", field(1, T))
    item = data(path)
    raw = stored_bytes(path, item, (0,) * item.offset.ndim) or b""
    for wrong in (raw[1:], raw[:-1], b""):
        with pytest.raises(ByteRefsError, match="no GRIB message"):
            codecs.decode(item.meta.codec, wrong, "<f4", SHAPE)


# --- the whole flow --------------------------------------------------------------------------------

FORMS = ("icechunk", "parquet", "sqlite")


def built(folder: Path, paths: list[Path], concat: str | None, **scan: Any) -> Results:
    results = Results(folder, source=SOURCE, plan={"concat": concat}, scan=scan)
    results.scan(paths)
    return results


def verified(results: Results, form: str) -> None:
    results.emit(("access", form))
    report = results.verify("access", form)
    assert report["verified"]
    assert report["oracle"]["values"]["ecCodes"] > 0


def read(results: Results, form: str, array: str) -> np.ndarray:
    """An array of a form through its own reader."""
    reader = emitters.load(form).open(results.out("access", form), access=lambda path: path)
    return np.asarray(reader.read(array, tuple(slice(n) for n in reader.arrays()[array].shape)))


def test_three_variables_of_four_steps_are_one_dataset_in_every_form_that_holds_grib(
    shared: Shared, tmp_path: Path
) -> None:
    paths = sorted(shared("grib_pattern").glob("*.grib"))
    results = built(tmp_path / "demo", paths[::-1], "step")
    ec = grib.eccodes()
    expected: dict[str, dict[tuple[int, int], np.ndarray]] = {}
    for path in paths:
        with path.open("rb") as f:
            while (h := ec.codes_grib_new_from_file(f)) is not None:
                name = f"{ec.codes_get(h, 'shortName')}_isobaricInhPa"
                place = (ec.codes_get(h, "step"), ec.codes_get(h, "level"))
                expected.setdefault(name, {})[place] = ec.codes_get_values(h).reshape(5, 6)
                ec.codes_release(h)
    levels = sorted({level for _, level in expected["t_isobaricInhPa"]}, reverse=True)
    for form in FORMS:
        verified(results, form)
        assert read(results, form, "step").tolist() == [0, 6, 12, 24]
        assert read(results, form, "isobaricInhPa").tolist() == levels
        for name, cells in expected.items():
            whole = np.stack([[cells[s, v] for v in levels] for s in (0, 6, 12, 24)]).astype("f4")
            np.testing.assert_array_equal(read(results, form, name), whole)
    for form in sorted(set(emitters.NAMES) - set(FORMS)):
        with pytest.raises(EmitError, match="sqlite, parquet and icechunk"):
            results.emit(("access", form))


def test_xarray_reads_grib_through_icechunk_as_its_open_lines_say(tmp_path: Path) -> None:
    days = [field(i, T, {"dataDate": 20200101 + i, "level": 500}) for i in range(3)]
    paths = [file(tmp_path / f"{i}.grib2", made) for i, made in enumerate(days)]
    results = built(tmp_path / "demo", paths, "time")
    results.emit(("access", "icechunk"))
    out = results.out("access", "icechunk")
    lines = json.loads((out / "open.json").read_text())["open"]["xarray"]
    values = "ds.t_isobaricInhPa_500.values.tolist(), ds.time.values[1]"
    text = "\n".join([*lines, f"print({values}, flush=True)"])
    done = subprocess.run(
        [sys.executable, "-c", text], cwd=out, capture_output=True, text=True, check=False
    )
    # once in some fifty runs the process of gribberish 1.9 and icechunk 2.3 ended by a SIGSEGV
    assert done.returncode in (0, -signal.SIGSEGV), done.stderr
    expected = np.stack([ramp(i) for i in range(3)]).tolist()
    assert done.stdout.split("] 2020")[0] + "]" == str(expected)
    assert "2020-01-02T12:00:00" in done.stdout


def test_what_only_eccodes_decodes_is_held_by_the_tables_and_refused_elsewhere(
    shared: Shared, tmp_path: Path
) -> None:
    results = built(tmp_path / "demo", [shared("grib/runlength_regular_latlon.grib2")], None)
    for form in ("parquet", "sqlite"):
        verified(results, form)
    with pytest.raises(EmitError, match=r"only ecCodes decodes.*sqlite and parquet can hold"):
        results.emit(("access", "icechunk"))


def test_another_level_of_the_same_name_is_not_joined(tmp_path: Path) -> None:
    one = file(tmp_path / "1.grib2", field(1, T, {"level": 500, "dataDate": 20200101}))
    two = file(tmp_path / "2.grib2", field(2, T, {"level": 850, "dataDate": 20200102}))
    with pytest.raises(PlanError, match="t_isobaricInhPa_500"):
        built(tmp_path / "demo", [one, two], "time")


def test_another_step_is_not_joined_along_time(tmp_path: Path) -> None:
    one = file(tmp_path / "1.grib2", field(1, T, {"step": 6, "dataDate": 20200101}))
    two = file(tmp_path / "2.grib2", field(2, T, {"step": 12, "dataDate": 20200102}))
    with pytest.raises(PlanError, match="'step'"):
        built(tmp_path / "demo", [one, two], "time")
    results = built(tmp_path / "again", [two, one], "valid_time")
    verified(results, "sqlite")
    got = read(results, "sqlite", "t_isobaricInhPa_1000")
    np.testing.assert_array_equal(got, np.stack([ramp(1), ramp(2)]))


def test_a_message_exchanged_for_another_is_caught_by_its_coordinates(tmp_path: Path) -> None:
    made = [field(i, T, {"level": level}) for i, level in enumerate((850, 500))]
    path = file(tmp_path / "1.grib2", *made)
    results = built(tmp_path / "demo", [path], None)
    stat = path.stat()
    file(path, *made[::-1])
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    results.emit(("access", "sqlite"))
    with pytest.raises(VerifyError, match="t_isobaricInhPa"):
        results.verify("access", "sqlite")


# --- real files ------------------------------------------------------------------------------------

DAMAGED = "era5-levels-corrupted.grib"


def test_every_real_file_reads_equal_to_eccodes_or_is_refused_in_one_sentence(
    shared: Shared, tmp_path: Path
) -> None:
    checked = set()
    for path in sorted(shared("grib").glob("*.grib*")):
        if path.read_bytes()[:4] != b"GRIB" or path.stat().st_size > 100_000:
            continue  # an index, an archive; make census reads the large ones too
        if path.name == DAMAGED:
            with pytest.raises(ScanError, match="does not end in 7777"):
                scanned(path)
            continue
        verified(built(tmp_path / path.name, [path], None), "sqlite")
        checked.add(path.name)
    assert len(checked) == 13


BY_GDAL = (
    *("jpeg2000_regular_latlon.grib2", "hrrr.wrfsubhf.sample.grib2", "cams-egg4-monthly.grib"),
    "gfswave.20210826.t12z.atlocn.0p16.f000.grib2",
)
"""files that GDAL 3.12 reads: of the PNG one it gives a constant, of the run-length one nothing"""
GDAL = """
import sys, numpy as np, rasterio
from rasterio.env import Env
with Env(GRIB_NORMALIZE_UNITS="NO"):
    with rasterio.open(sys.argv[1]) as f:
        np.savez(sys.argv[2], *[f.read(i, masked=True).filled(np.nan) for i in f.indexes])
"""


@pytest.mark.parametrize("name", BY_GDAL)
def test_values_are_those_of_the_second_gdal(shared: Shared, tmp_path: Path, name: str) -> None:
    path = shared(f"grib/{name}")
    out = tmp_path / "bands.npz"
    subprocess.run(
        [sys.executable, "-c", GDAL, str(path), str(out)], check=True, capture_output=True
    )
    bands = list(np.load(out).values())
    found = []
    for item in scanned(path).arrays.values():
        if item.offset is None:
            continue
        north_up = item.meta.attrs["GRIB_jScansPositively"] == 0
        for key in zip(*np.nonzero(item.offset >= 0), strict=True):
            raw = stored_bytes(path, item, key) or b""
            plane = codecs.decode(item.meta.codec, raw, item.meta.dtype, item.meta.shape[-2:])
            found.append((item.offset[key], plane if north_up else plane[::-1]))
    assert len(found) == len(bands)
    for (_, plane), band in zip(sorted(found, key=lambda f: f[0]), bands, strict=True):
        # GDAL computes in float32 where the field's numbers are such: one unit in the last place
        np.testing.assert_allclose(plane, band.astype("f4"), rtol=3e-7, atol=0)
