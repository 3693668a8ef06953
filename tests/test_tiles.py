"""``plan.tiles``: sources that share out an axis beside the concat axis."""

from __future__ import annotations

from itertools import pairwise, product
from pathlib import Path
from tempfile import TemporaryDirectory

import h5py
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from building import build
from byterefs import emitters
from byterefs.errors import PlanError

SHAPE, CHUNK = (2, 6, 8), (1, 2, 4)
WHOLE = np.arange(np.prod(SHAPE), dtype="<i4").reshape(SHAPE)
AXES = {"time": np.arange(2.0), "y": np.linspace(60, 10, 6), "x": np.arange(8.0) * 10}


def tile(path: Path, step: int, y: slice, x: slice, *, falling: bool = True) -> Path:
    """One step of one tile of the grid; ``y`` falls from north to south or rises."""
    rows = AXES["y"] if falling else AXES["y"][::-1]
    with h5py.File(path, "w") as f:
        for name, axis in (
            ("time", AXES["time"][step : step + 1]),
            ("y", rows[y]),
            ("x", AXES["x"][x]),
        ):
            f[name] = axis
            f[name].make_scale(name)
        f["time"].attrs["units"] = np.bytes_(b"days since 2000-01-01")
        f.create_dataset(
            "v",
            data=WHOLE[step : step + 1, y, x],
            chunks=CHUNK,
            maxshape=(None, 6, 8),
            compression=1,
        )
        for i, name in enumerate(("time", "y", "x")):
            f["v"].dims[i].attach_scale(f[name])
    return path


def cuts(marks: set[int], size: int) -> list[slice]:
    """The stretches between marks."""
    ends = sorted({0, *marks, size})
    return [slice(a, b) for a, b in pairwise(ends)]


@settings(max_examples=12)
@given(y=st.sets(st.sampled_from([2, 4])), x=st.sets(st.sampled_from([4])), falling=st.booleans())
def test_tiles_cut_at_chunks_are_the_whole_grid_again(
    y: set[int], x: set[int], falling: bool
) -> None:
    with TemporaryDirectory() as folder:
        parts = product(range(2), cuts(y, 6), cuts(x, 8))
        files = [
            tile(Path(folder) / f"{i}.nc", *part, falling=falling) for i, part in enumerate(parts)
        ]
        with build(Path(folder) / "demo", files[::-1], plan={"tiles": ["y", "x"]}) as view:
            out = Path(folder) / "sqlite"
            emitters.load("sqlite").emit(view, out, target="access", options={}, state={})
            reader = emitters.load("sqlite").open(out, access=lambda path: path)
            got = np.asarray(reader.read("v", tuple(map(slice, SHAPE))))
            np.testing.assert_array_equal(got, WHOLE)
            rows = np.asarray(reader.read("y", (slice(6),)))
            np.testing.assert_array_equal(rows, AXES["y"] if falling else AXES["y"][::-1])
            reader.close()


def test_tiles_that_overlap_are_refused_with_both_and_their_ends(tmp_path: Path) -> None:
    one = tile(tmp_path / "one.nc", 0, slice(6), slice(0, 5))
    two = tile(tmp_path / "two.nc", 0, slice(6), slice(4, 8))
    with pytest.raises(
        PlanError, match=r"tile of 'x' begins at 40\.0 and overlaps .* ends at 40\.0"
    ) as refusal:
        build(tmp_path / "demo", [one, two], plan={"tiles": ["x"]})
    assert str(one) in str(refusal.value)
    assert str(two) in str(refusal.value)


def test_a_tile_that_ends_inside_a_chunk_refuses_the_rows_and_not_the_vrt(tmp_path: Path) -> None:
    one = tile(tmp_path / "one.nc", 0, slice(6), slice(0, 3))
    two = tile(tmp_path / "two.nc", 0, slice(6), slice(3, 8))
    with build(tmp_path / "demo", [one, two], plan={"tiles": ["x"]}) as view:
        assert "not chunk-aligned along 'x'" in str(view.arrays["v"].refused)
        assert view.arrays["v"].shape == (1, 6, 8)
