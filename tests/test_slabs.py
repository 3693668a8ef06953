"""Slabs as columns: the boxes of chunk keys they cover are those of chunk arithmetic done one by one."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from byterefs.grid import chunk_span
from byterefs.model import Placement
from byterefs.slabs import Slabs, boxes


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
