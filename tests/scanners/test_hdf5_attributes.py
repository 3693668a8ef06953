"""Attributes are read past h5py where they are numbers or text; h5py, which is not asked there, is the oracle."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from h5py import h5a, h5s, h5t

from byterefs.scanners._hdf5_attributes import attribute, attributes, names
from conformance import scanned

NUMBERS = [
    "|i1",
    "|u1",
    "<i2",
    ">i2",
    "<u4",
    ">u4",
    "<i8",
    ">u8",
    "<f2",
    "<f4",
    ">f4",
    "<f8",
    ">f8",
]


def found(path: Path) -> tuple[dict[str, Any], dict[str, str]]:
    with h5py.File(path) as f:
        return attributes(f.id, names(f.id))


@pytest.mark.parametrize("dtype", NUMBERS)
@pytest.mark.parametrize("shape", [(), (1,), (3,), (2, 3), (0,)])
def test_numbers_are_those_that_h5py_reads_in_their_own_type(
    tmp_path: Path, dtype: str, shape: tuple[int, ...]
) -> None:
    path = tmp_path / "a.h5"
    values = (np.arange(np.prod(shape, dtype=int)) * 7 + 1).reshape(shape).astype(dtype)
    with h5py.File(path, "w") as f:
        f.attrs.create("a", values, dtype=dtype)
    with h5py.File(path) as f:
        expected = np.asarray(f.attrs["a"])
    value, kinds = found(path)
    assert value["a"] == (expected.item() if expected.size == 1 else expected.tolist())
    assert kinds["a"] == np.dtype(dtype).str


@pytest.mark.parametrize(
    ("text", "fixed"),
    [
        *product(["", "m s-1", "°C", "a" * 70_000], [True, False]),
        ("\0", True),  # HDF5 ends text of any length at its first NUL
        ("tail \0", True),
    ],
    ids=lambda t: repr(t)[:8],
)
@pytest.mark.parametrize("utf8", [True, False])
def test_text_of_any_length_and_character_set_is_that_of_h5py(
    tmp_path: Path, text: str, utf8: bool, fixed: bool
) -> None:
    path, raw = tmp_path / "a.h5", text.encode()
    with h5py.File(path, "w", libver="latest") as f:
        tid = h5t.C_S1.copy()
        tid.set_size(max(1, len(raw)) if fixed else h5t.VARIABLE)
        tid.set_cset(h5t.CSET_UTF8 if utf8 else h5t.CSET_ASCII)
        attr = h5a.create(f.id, b"a", tid, h5s.create(h5s.SCALAR))
        value = np.array(raw, f"S{max(1, len(raw))}" if fixed else object)
        attr.write(value, mtype=tid if fixed else None)
    assert found(path) == ({"a": text.rstrip("\0")}, {"a": "str"})


def test_text_that_is_not_utf8_is_latin_1_whether_its_length_is_fixed_or_not(
    tmp_path: Path,
) -> None:
    path, raw = tmp_path / "a.h5", "°C".encode("latin-1")
    with h5py.File(path, "w") as f:
        f.attrs["fixed"] = np.bytes_(raw)
        f.attrs.create("variable", raw, dtype=h5py.string_dtype("ascii"))
    value, kinds = found(path)
    assert value == {"fixed": "°C", "variable": "°C"}
    assert kinds == {"fixed": "latin-1", "variable": "latin-1"}


def test_lists_of_text_null_spaces_and_enumerations_are_those_of_h5py(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    many = {f"a long name of member {i}": i for i in range(40)}  # a type of more than 128 bytes
    with h5py.File(path, "w") as f:
        f.attrs["words"] = ["a", "", "°"]
        f.attrs["fixed"] = np.array([b"a", b"bc"])
        f.attrs["no text"] = h5py.Empty("S5")
        f.attrs["no number"] = h5py.Empty("<f4")
        f.attrs["yes"] = np.bool_(True)
        f.attrs["flags"] = np.array([True, False])
        f.attrs.create("few", 2, dtype=h5py.enum_dtype({"a": 1, "b": 2}, basetype=">i2"))
        f.attrs.create("many", 17, dtype=h5py.enum_dtype(many, basetype="i4"))
    assert found(path) == (
        {
            "words": ["a", "", "°"],
            "fixed": ["a", "bc"],
            "no text": "",
            "no number": [],
            "yes": 1,
            "flags": [1, 0],
            "few": 2,
            "many": 17,
        },
        {
            "words": "str",
            "fixed": "str",
            "no text": "str",
            "no number": "<f4",
            "yes": "|i1",
            "flags": "|i1",
            "few": ">i2",
            "many": "<i4",
        },
    )


def test_a_type_that_the_file_names_and_a_number_of_its_own_precision_are_read(
    tmp_path: Path,
) -> None:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as f:
        f["kind"] = np.dtype("<i2")
        f.attrs.create("named", 300, dtype=f["kind"])
        narrow = h5t.STD_I32LE.copy()
        narrow.set_precision(24)
        narrow.set_offset(8)
        attr = h5a.create(f.id, b"narrow", narrow, h5s.create(h5s.SCALAR))
        attr.write(np.array(-5, "<i4"))
    value, kinds = found(path)
    assert value == {"named": 300, "narrow": -5}
    assert kinds["named"] == "<i2"


def test_what_is_neither_number_nor_text_is_left_out_and_no_obstacle(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as f:
        f.attrs["compound"] = np.zeros(1, "i4,f4")
        f.attrs["reference"] = f.ref
        f.attrs["opaque"] = np.void(b"abc")
        f.attrs["after"] = 1
    assert found(path) == ({"after": 1}, {"after": "<i8"})


def test_the_same_attribute_of_another_file_is_not_taken_from_memory(tmp_path: Path) -> None:
    for i, dtype in enumerate(["<i4", ">i4", "<f4"]):
        with h5py.File(tmp_path / f"{i}.h5", "w") as f:
            f.attrs.create("a", 1, dtype=dtype)
            f["v"] = np.zeros(1)
            f["v"].attrs["_Netcdf4Dimid"] = i
    kinds = [found(tmp_path / f"{i}.h5")[1]["a"] for i in range(3)]
    assert kinds == ["<i4", ">i4", "<f4"]
    for i in range(3):
        with h5py.File(tmp_path / f"{i}.h5") as f:
            assert attribute(f["v"].id, b"_Netcdf4Dimid") == i


def test_a_file_is_closed_with_all_that_was_open_in_it(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as f:
        f["v"] = np.arange(3)
    scanned(path)
    with h5py.File(path, "r+") as f:  # HDF5 refuses to write a file that it has open to read
        f["v"][0] = 7
    assert scanned(path).arrays["v"].meta.shape == (3,)
