"""Fill values and attributes that come back from the table with the same bits."""

from __future__ import annotations

from typing import Any

import hypothesis.extra.numpy as hnp
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from byterefs import literals
from byterefs.files import canonical

numbers = hnp.scalar_dtypes().filter(lambda t: t.kind in "iufc" and t.itemsize <= 16)


@given(numbers.flatmap(lambda t: hnp.arrays(t, 1)))
def test_a_fill_survives_as_text_bit_for_bit(values: np.ndarray) -> None:
    text = literals.fill_text(values[0])
    assert text is not None
    back = literals.fill_value(text, values.dtype.str)
    assert np.array([back], values.dtype).tobytes() == values.tobytes()


@given(st.integers(0, 2**32 - 1))
def test_every_bit_pattern_of_a_float_survives_as_text(bits: int) -> None:
    value = np.array([bits], "<u4").view("<f4")[0]
    back = literals.fill_value(literals.fill_text(value), "<f4")
    assert np.array([back], "<f4").view("<u4")[0] == bits


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, None),
        (np.int16(-999), "-999"),
        (np.uint64(2**64 - 1), "18446744073709551615"),
        (np.int64(-(2**63)), "-9223372036854775808"),
        (np.float32(1e37), "1e+37"),
        (np.float64(-0.0), "-0.0"),
        (np.float32("nan"), "NaN"),
        (np.float64("inf"), "Infinity"),
        (np.float64("-inf"), "-Infinity"),
        (np.array([0x7FC00001], "u4").view("f4")[0], "0x7fc00001"),
        (np.array([0xFFF8000000000000], "u8").view("f8")[0], "0xfff8000000000000"),
        (np.bytes_(b"a\xff"), "aÿ"),
    ],
)
def test_fills_have_readable_text(value: Any, text: str | None) -> None:
    assert literals.fill_text(value) == text


attributes = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"])),
    st.lists(st.text(st.characters(exclude_categories=["Cs"])), min_size=2, max_size=4),
    hnp.scalar_dtypes().filter(lambda t: t.kind in "iuf" and t.itemsize <= 8).flatmap(
        lambda t: hnp.arrays(t, st.integers(0, 4))
    ),
)  # fmt: skip


@given(attributes)
@example("\0")
def test_an_attribute_survives_json_with_its_dtype(value: Any) -> None:
    found, dtype = literals.attr_json(value)
    back = literals.attr_value(found, dtype)
    canonical(found)
    if isinstance(value, np.ndarray):
        assert dtype == value.dtype.str
        assert np.asarray(back, dtype).tobytes() == value.tobytes()
    else:
        assert (back, dtype) == (value, "str")


def test_attributes_of_one_element_are_scalars_and_others_keep_their_shape() -> None:
    assert literals.attr_json(np.array([3], "<i2")) == (3, "<i2")
    assert literals.attr_json(np.zeros((2, 3), "<i2")) == ([[0, 0, 0], [0, 0, 0]], "<i2")
    assert literals.attr_value([[0, 0, 0], [0, 0, 0]], "<i2").shape == (2, 3)
    assert literals.attr_json(np.array(["only"], object)) == ("only", "str")
    assert literals.attr_json(np.array([True, False])) == ([1, 0], "|i1")


def test_floats_wider_than_doubles_are_doubles_or_text_of_all_digits() -> None:
    assert literals.attr_json(np.longdouble(1.5)) == (1.5, "<f8")
    third = np.longdouble(1) / 3
    assert literals.attr_json(third) == (str(third), "str")


def test_text_that_is_not_utf8_is_latin1_and_says_so() -> None:
    assert literals.attr_json(np.bytes_(b"\xb0C")) == ("°C", "latin-1")
    assert literals.attr_json("°C".encode()) == ("°C", "str")
    assert literals.attr_json("\udcb0C") == ("°C", "latin-1")
    with pytest.raises(TypeError, match="neither number nor text"):
        literals.attr_json(np.zeros(1, "V3"))
