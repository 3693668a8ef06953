"""Where HDF5 keeps the chunks of a dataset, in one pass over its index."""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from operator import attrgetter
from typing import Any

import numpy as np
from h5py import h5d, h5p

from byterefs.codecs import Filter
from byterefs.model import ABSENT, Ints, Key
from byterefs.scanners._common import (
    ERA,
    Chunks,
    Unsupported,
    grid_of,
    inline,
    refuse_past,
    run,
    skipped_filters,
)
from byterefs.scanners._hdf5_tree import Node
from byterefs.scanners._hdf5_types import library, text, values

RAW_EDGES = 2  # H5D_CHUNK_DONT_FILTER_PARTIAL_CHUNKS


def filters(dcpl: h5p.PropDCID) -> list[Filter]:
    """The filter pipeline in the order in which it encodes, repeats kept."""
    return [dcpl.get_filter(i) for i in range(dcpl.get_nfilters())]


def locate(node: Node, dtype: np.dtype[Any], *, steps: int, end: int) -> Chunks:
    """Every chunk of a dataset: offset and stored size in bytes on its chunk grid.

    ``steps`` is how many first axes of bytes in C order are cut to single steps; ``end`` is the file's size.
    Raises Unsupported for chunks that skip a filter and a range past ``end``.
    """
    layout = node.plist.get_layout()
    if layout == h5d.CHUNKED:
        found = _chunked(node)
    else:
        found = _plain(node, dtype, steps, compact=layout == h5d.COMPACT)
    refuse_past(found, end)
    return found


def refuse_elsewhere(node: Node) -> None:
    """Raise Unsupported for a dataset whose bytes lie in other files."""
    dcpl = node.plist
    if dcpl.get_layout() == h5d.VIRTUAL:
        raise Unsupported(
            "it is an HDF5 virtual dataset, so no byte of this file holds it",
            "scan the files that it is made of, or leave it out of scan.arrays",
        )
    if dcpl.get_external_count():
        raise Unsupported(
            f"its bytes lie in {text(dcpl.get_external(0)[0])} (HDF5 external storage), so no byte of "
            "this file holds it"
        )


def _plain(node: Node, dtype: np.dtype[Any], steps: int, compact: bool) -> Chunks:
    """Contiguous and compact data: bytes in C order, one chunk, or cut to steps."""
    if compact:
        raw = values(node.id, node.plist, dtype, node.shape).tobytes()
        return inline(node.shape, dtype.itemsize, raw, steps=steps)
    return run(node.shape, dtype.itemsize, node.id.get_offset(), steps=steps)


def _chunked(node: Node) -> Chunks:
    chunks = tuple(int(c) for c in node.plist.get_chunk())
    grid = grid_of(node.shape, chunks)
    pipeline = filters(node.plist)
    if pipeline and any(n % c for n, c in zip(node.shape, chunks, strict=True)):
        _refuse_raw_edges(node, chunks)
    offset = np.full(grid, ABSENT, np.int64)
    size = offset.copy()
    with uncollected():
        rows: list[Any] = []
        node.id.chunk_iter(rows.append)
        if len(rows) == 1 == offset.size and not rows[0].filter_mask:
            offset[:], size[:] = rows[0].byte_offset, rows[0].size
        elif rows:
            starts = chain.from_iterable(map(attrgetter("chunk_offset"), rows))
            keys = np.fromiter(starts, np.int64).reshape(len(rows), -1) // np.array(chunks)
            inside = (keys < np.array(grid)).all(axis=1)  # a shrunk dataset may keep chunks outside
            _refuse_masks(rows, keys, pipeline)
            at = tuple(keys[inside].T)
            offset[at] = np.fromiter(map(attrgetter("byte_offset"), rows), np.int64)[inside]
            size[at] = np.fromiter(map(attrgetter("size"), rows), np.int64)[inside]
            rows.clear()
    return Chunks("chunked", chunks, offset, size)


@contextmanager
def uncollected() -> Iterator[None]:
    """Without the collector, which would walk 94,860 records again and again: a sixth of their time."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def _refuse_masks(rows: list[Any], keys: Ints, pipeline: list[Filter]) -> None:
    masks = np.fromiter(map(attrgetter("filter_mask"), rows), np.int64)
    if not masks.any():
        return
    masked = int(np.flatnonzero(masks)[0])
    mask = rows[masked].filter_mask
    skipped = [f[3].decode("latin-1") or str(f[0]) for i, f in enumerate(pipeline) if mask >> i & 1]
    raise skipped_filters(keys[masked].tolist(), mask, skipped)


def _refuse_raw_edges(node: Node, chunks: Key) -> None:
    if _chunk_options(node.plist) & RAW_EDGES:
        raise Unsupported(
            f"its shape {list(node.shape)} is no multiple of its chunks {list(chunks)} and its edge chunks "
            f"are stored unfiltered (H5D_CHUNK_DONT_FILTER_PARTIAL_CHUNKS), so they have another codec",
            ERA,
        )


def _chunk_options(dcpl: h5p.PropDCID) -> int:
    """H5Pget_chunk_opts, which h5py 3.16 does not wrap."""
    options = ctypes.c_uint()
    if library().H5Pget_chunk_opts(dcpl.id, ctypes.byref(options)) < 0:
        raise RuntimeError("H5Pget_chunk_opts failed")
    return options.value
