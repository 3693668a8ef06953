"""Strange and damaged files: a census of generated ones, and each thing that such a census found, by itself."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import pytest

import gribs
import strange
from byterefs import axis, scanners
from byterefs.errors import ScanError
from byterefs.literals import cf_fill
from byterefs.model import Array, Source
from byterefs.planning import vrt
from forms import Results
from test_census import taken

PLAIN = Array(
    "v",
    "data",
    "referenced",
    ("x",),
    (4,),
    (4,),
    "<i2",
    None,
    {"compressor": None, "filters": None},
)


def found(folder: Path, seed: int, count: int) -> dict[str, dict[str, str]]:
    """The lines of a census of generated files by path."""
    strange.write(folder / "data", seed, count)
    return taken(folder / "data", folder / "census.tsv", seconds=1500)


def test_strange_and_damaged_files_are_verified_or_refused_and_never_wrong(tmp_path: Path) -> None:
    lines = found(tmp_path, 0, 2)
    assert len(lines) > 12
    assert {n: c["reason"] for n, c in lines.items() if c["outcome"] in ("wrong", "crashed")} == {}
    whole = {c["format"] for c in lines.values() if c["outcome"] == "verified"}
    assert {"hdf5", "netcdf3", "tiff", "grib"} <= whole, lines


@pytest.mark.soak
@pytest.mark.parametrize("seed", [1, 2])
def test_hundreds_of_strange_and_damaged_files_are_never_wrong(tmp_path: Path, seed: int) -> None:
    lines = found(tmp_path, seed, 40)
    assert len(lines) > 200
    assert {n: c["reason"] for n, c in lines.items() if c["outcome"] in ("wrong", "crashed")} == {}


def test_the_same_seed_gives_the_same_files(tmp_path: Path) -> None:
    kinds = ["classic", "gdal", "grib"]
    for folder in ("a", "b"):
        strange.write(tmp_path / folder, 5, 2, kinds)
    a, b = (
        {p.name: p.read_bytes() for p in (tmp_path / folder).iterdir()} for folder in ("a", "b")
    )
    assert a == b
    assert len(a) >= 6


@pytest.mark.parametrize("format", ["hdf5", "blockinfo"])
@pytest.mark.parametrize("most", [(5, None), (None, 7), (None, None), (4, 7)])
def test_chunks_whose_unlimited_axis_is_not_the_first_are_never_exchanged(
    tmp_path: Path, format: str, most: tuple[int | None, ...]
) -> None:
    values = np.arange(28, dtype="<i4").reshape(4, 7) + 1
    with h5py.File(tmp_path / "a.h5", "w", libver=("v110", "v110")) as f:
        f.create_dataset("v", data=values, chunks=(3, 3), maxshape=most)
    if most == (5, None):
        with pytest.raises(ScanError, match=r"v: .*(places of chunks|other values lie)"):
            scanners.scan(Source(str(tmp_path / "a.h5")), format=format, arrays=["v"])
        return
    item = scanners.scan(Source(str(tmp_path / "a.h5")), format=format, arrays=["v"]).arrays["v"]
    raw = (tmp_path / "a.h5").read_bytes()
    first = [int.from_bytes(raw[o : o + 4], "little") for o in item.offset.ravel()]
    assert first == values[::3, ::3].ravel().tolist()


@pytest.mark.parametrize(
    "values",
    [
        np.array([100, 120, -116, -96], "i1"),
        np.array([2**63 + 1, 2**63 + 2, 2**63 + 3], "u8"),
        np.array([0, 2**63 - 1, -2], "i8"),
    ],
)
def test_integers_that_wrap_around_or_pass_64_bits_are_no_affine_axis(values: np.ndarray) -> None:
    assert axis.affine(values) is None


def test_integers_in_even_steps_down_are_an_affine_axis() -> None:
    assert axis.affine(np.array([5, 2, -1, -4], "i1")) == {"start": 5, "step": -3}


@pytest.mark.parametrize(
    ("dtype", "fill", "kind"),
    [
        ("<i2", "NaN", "<f8"),
        ("<i2", [1, 2], "<i2"),
        ("<i2", "x", "str"),
        ("|S5", "NaN", "<f4"),
        ("|V4", 7, "<i2"),
        ("<u1", 300, "<i2"),
    ],
)
def test_a_fill_value_that_the_dtype_cannot_hold_masks_nothing(
    dtype: str, fill: object, kind: str
) -> None:
    odd = replace(PLAIN, dtype=dtype, attrs={"_FillValue": fill}, attr_dtypes={"_FillValue": kind})
    assert cf_fill(odd) is None


def test_nan_as_the_fill_of_packed_integers_leaves_every_value_in_the_zarr_forms(
    tmp_path: Path,
) -> None:
    stored = np.array([0, -32768, 7], "<i2")
    with h5py.File(tmp_path / "a.nc", "w") as f:
        f.create_dataset("v", data=stored.reshape(1, 3), chunks=(1, 3))
        f["v"].attrs["_FillValue"] = np.float64("nan")
    results = Results(tmp_path / "results", plan={"concat": None})
    results.scan([tmp_path / "a.nc"])
    for form in ("kerchunk", "icechunk"):
        assert results.proven(form, "v").tolist() == [[0, -32768, 7]]


def test_complex_numbers_by_value_are_refused_in_the_vrt_by_name() -> None:
    odd = replace(PLAIN, dtype="<c8", shape=(), dims=(), chunks=(), values=b"\0" * 8)
    assert "complex numbers" in str(vrt.cannot(odd))


def test_a_grib_grid_of_more_points_than_any_is_refused_by_name(tmp_path: Path) -> None:
    made = bytearray(gribs.message(gribs.ramp(1), {"shortName": "t"}))
    at = made.index(b"\0\0\0\x48\3")  # section 3 of 72 bytes: number of points at byte 6
    made[at + 6 : at + 10] = b"\xbb\0\0\0"
    (tmp_path / "a.grib").write_bytes(made)
    with pytest.raises(ScanError, match=r"a\.grib.*points"):
        scanners.scan(Source(str(tmp_path / "a.grib")))


@pytest.mark.parametrize(
    ("head", "words"),
    [
        (b"\x0e\x03\x13\x01" + bytes(99), "it is HDF4.*DMR.. sidecar"),
        (b"\x1f\x8b\x08" + bytes(99), "it is gzip.*unpack it"),
        (b"PK\3\4" + bytes(99), "it is a zip archive.*unpack it"),
        (b"<!DOCTYPE html><p>404", "it is a web page.*fetch the file again"),
    ],
)
def test_a_file_of_another_format_is_refused_by_its_name_with_the_way_out(
    tmp_path: Path, head: bytes, words: str
) -> None:
    (tmp_path / "a.nc").write_bytes(head)
    with pytest.raises(ScanError, match=words):
        scanners.detect(Source(str(tmp_path / "a.nc")))
