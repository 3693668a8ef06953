"""Slabs as columns: the boxes of chunk keys they cover are those of chunk arithmetic done one by one."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from byterefs.grid import chunk_span, misaligned
from byterefs.model import Placement
from byterefs.slabs import Slabs, all_aligned, boxes


@st.composite
def placed(draw):
    chunks = draw(st.tuples(st.integers(1, 3), st.integers(1, 3)))
    slabs, at = [], 0
    for i in range(draw(st.integers(0, 6))):
        keys = [draw(st.integers(1, 4)) for _ in chunks]
        lead = [draw(st.integers(0, 2)) for _ in chunks]
        dest = (at * chunks[0], draw(st.integers(0, 2)) * chunks[1])
        count = tuple(k * c for k, c in zip(keys, chunks, strict=True))
        offset = tuple(k * c for k, c in zip(lead, chunks, strict=True))
        slabs.append(Placement(f"s{i}", "v", offset, count, dest))
        at += keys[0] + draw(st.integers(0, 2))
    start = draw(st.integers(0, 8))
    return chunks, slabs, start, start + draw(st.integers(1, 12))


@given(placed())
def test_boxes_of_many_slabs_are_those_of_each_cut_to_the_range(case):
    chunks, placements, start, stop = case
    expected = {}
    for i, p in enumerate(placements):
        spans = [chunk_span(d, n, c) for d, n, c in zip(p.dest, p.count, chunks, strict=True)]
        low, high = max(spans[0][0], start), min(spans[0][1], stop)
        if low < high:
            shift = [(s - d) // c for s, d, c in zip(p.src_offset, p.dest, chunks, strict=True)]
            here = [(low, high), spans[1]]
            expected[i] = (here, [(a + k, b + k) for (a, b), k in zip(here, shift, strict=True)])
    found = {}
    for like in boxes(Slabs.of(placements, 2), chunks, start, stop):
        for number, first in zip(like.numbers.tolist(), like.first.tolist(), strict=True):
            rest = [(s.start, s.stop) for s in like.rest]
            there = [(s.start, s.stop) for s in like.there]
            found[number] = ([(first, first + like.length), *rest], there)
    assert found == expected


def test_a_year_of_equal_slabs_is_one_group():
    slabs = [Placement(f"s{i}", "v", (0, 0), (1, 4), (i, 0)) for i in range(365)]
    (like,) = boxes(Slabs.of(slabs, 2), (1, 2), 0, 365)
    assert like.length == 1
    assert np.array_equal(like.first, np.arange(365))


@st.composite
def anywhere(draw):
    """Slabs inside an array, on chunks or off them, at its end or before it."""
    chunks = draw(st.tuples(st.integers(1, 3), st.integers(1, 3)))
    shape = tuple(draw(st.integers(c, 9)) for c in chunks)
    slabs = []
    for i in range(draw(st.integers(0, 4))):
        unit = [draw(st.sampled_from([1, c])) for c in chunks]
        dest = tuple(
            draw(st.integers(0, (n - 1) // u)) * u for n, u in zip(shape, unit, strict=True)
        )
        count = tuple(
            draw(st.one_of(st.just(n - d), st.integers(1, n - d)))
            for n, d in zip(shape, dest, strict=True)
        )
        offset = tuple(draw(st.integers(0, 2)) * u for u in unit)
        slabs.append(Placement(f"s{i}", "v", offset, count, dest))
    return shape, chunks, slabs


@given(anywhere())
def test_slabs_are_aligned_all_at_once_where_none_is_misaligned_by_itself(case):
    shape, chunks, placements = case
    found = [misaligned(shape, chunks, p.src_offset, p.count, p.dest) for p in placements]
    assert all_aligned(Slabs.of(placements, 2), shape, chunks) is (found == [None] * len(found))
