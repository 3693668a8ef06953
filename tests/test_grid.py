"""Chunk-key arithmetic, by its algebra."""

import doctest

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from byterefs import grid

axis = st.tuples(
    st.integers(1, 7), st.integers(0, 20), st.integers(0, 20), st.integers(0, 20)
)  # chunk, key, source chunks skipped, destination chunk
axes = st.lists(axis, min_size=1, max_size=4)


def test_the_examples_in_the_docstrings_hold():
    assert doctest.testmod(grid).failed == 0


@given(axes)
def test_a_key_moves_by_the_distance_of_dest_and_src_offset_in_chunks(rows):
    chunks, key, skipped, placed = (tuple(x) for x in zip(*rows, strict=True))
    src_offset = tuple(s * c for s, c in zip(skipped, chunks, strict=True))
    dest = tuple(p * c for p, c in zip(placed, chunks, strict=True))
    there = grid.globalise(key, chunks, src_offset, dest)
    assert there == tuple(k + p - s for k, p, s in zip(key, placed, skipped, strict=True))


@given(
    st.lists(st.tuples(st.integers(1, 50), st.integers(1, 9)), min_size=1, max_size=3), st.data()
)
def test_chunk_windows_tile_the_array_once(sizes, data):
    shape, chunks = (tuple(x) for x in zip(*sizes, strict=True))
    hits = np.zeros(shape, int)
    for key in np.ndindex(*grid.chunk_grid(shape, chunks)):
        hits[grid.chunk_window(key, shape, chunks)] += 1
    assert (hits == 1).all()


@given(st.lists(st.integers(1, 6), min_size=1, max_size=4), st.data())
def test_linear_is_numpys_c_order_and_unlinear_its_inverse(shape, data):
    key = tuple(data.draw(st.integers(0, n - 1)) for n in shape)
    position = grid.linear(key, tuple(shape))
    assert position == np.ravel_multi_index(key, shape)
    assert grid.unlinear(position, tuple(shape)) == key


@given(st.integers(0, 20), st.integers(1, 8), st.integers(0, 20), st.integers(1, 20))
def test_misaligned_says_aligned_exactly_where_whole_chunks_are_covered(rest, chunk, dest, count):
    n = dest + count + rest
    covered = set(range(dest, dest + count))
    touched = {
        e for k in {e // chunk for e in covered} for e in range(k * chunk, min((k + 1) * chunk, n))
    }
    found = grid.misaligned((n,), (chunk,), (0,), (count,), (dest,))
    assert (found is None) == (touched == covered)


def test_a_fragment_border_does_not_move_when_the_leading_axis_grows():
    assert grid.fragment_steps((365, 51, 5, 12)) == grid.fragment_steps((5844, 51, 5, 12)) == 32
    assert grid.fragment_steps((10, 400, 400)) == 1
