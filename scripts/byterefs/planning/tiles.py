"""Sources that share out an axis beside the concat axis (``plan.tiles``): tiles of one grid, chunks of a Zarr store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from byterefs.errors import PlanError
from byterefs.model import Placement
from byterefs.planning.engines import Layout
from byterefs.planning.physical import Physical

Starts = Mapping[str, int]
"""source -> the element of the whole axis at which its tile begins"""


def tiled(physical: Physical, layout: Layout, dims: Sequence[str]) -> Layout:
    """The layout with each source at its place along ``dims``, by the values of their coordinates.

    Raises PlanError for a source without such a coordinate, and for tiles that overlap.
    """
    starts, sizes = {}, dict(layout.sizes)
    for dim in dims:
        starts[dim], sizes[dim] = along(physical, layout.order, dim)
    placements: dict[str, list[Placement]] = {}
    for array, there in layout.placements.items():
        placements[array] = [moved(physical, p, starts) for p in there]
    for source in layout.order:
        for array in physical.have[source]:
            meta = physical.meta(source, array)
            if array not in layout.placements and not starts.keys().isdisjoint(meta.dims):
                zero = (0,) * len(meta.dims)
                slab = Placement(source, array, zero, meta.shape, zero)
                placements.setdefault(array, []).append(moved(physical, slab, starts))
    inorder = {a: tuple(sorted(p, key=lambda p: (p.dest, p.source))) for a, p in placements.items()}
    return Layout(layout.order, sizes, inorder, layout.values)


def moved(physical: Physical, p: Placement, starts: Mapping[str, Starts]) -> Placement:
    """A placement at its tile."""
    dims = physical.meta(p.source, p.source_array).dims
    dest = tuple(
        starts[d][p.source] if d in starts else at for d, at in zip(dims, p.dest, strict=True)
    )
    return p._replace(dest=dest)


def along(physical: Physical, order: Sequence[str], dim: str) -> tuple[Starts, int]:
    """Where each source's tile begins along an axis, and the length of the whole axis."""
    tiles: dict[bytes, NDArray[np.generic]] = {}
    of: dict[str, bytes] = {}
    for source in order:
        if dim not in physical.have[source]:
            raise PlanError(
                f"{source}: no coordinate {dim!r} says where its tile lies; take {dim!r} out of plan.tiles, or "
                f"leave the source out with source.pattern"
            )
        values = physical.values(source, dim).ravel()
        of[source] = values.tobytes()
        tiles[of[source]] = values
    falling = any(len(v) > 1 and v[0] > v[-1] for v in tiles.values())
    ordered = sorted(tiles, key=lambda t: tiles[t][0], reverse=falling)
    for before, after in pairwise(ordered):
        a, b = tiles[before][-1], tiles[after][0]
        if not (a > b if falling else a < b):
            one, two = (next(s for s in order if of[s] == t) for t in (before, after))
            raise PlanError(
                f"{two}: its tile of {dim!r} begins at {b} and overlaps that of {one}, which ends at {a}; tiles of "
                f"one grid share it out: leave one of them out with source.pattern"
            )
    lengths = [len(tiles[t]) for t in ordered]
    begins = dict(zip(ordered, np.cumsum([0, *lengths[:-1]]).tolist(), strict=True))
    return {source: begins[t] for source, t in of.items()}, sum(lengths)
