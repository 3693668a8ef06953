"""Where HDF5 keeps the chunks of a dataset, in one pass over its index."""

from __future__ import annotations

import ctypes
import math
from array import array
from typing import Any, NamedTuple

import numpy as np
from h5py import h5d, h5p, h5s
from h5py._objects import phil
from numpy.typing import NDArray

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
from byterefs.scanners._hdf5_library import Visit, function
from byterefs.scanners._hdf5_tree import Node
from byterefs.scanners._hdf5_types import text, values

RAW_EDGES = 2  # H5D_CHUNK_DONT_FILTER_PARTIAL_CHUNKS


UNDEFINED = 2**64 - 1  # HADDR_UNDEF

_options, _iterate = function("H5Pget_chunk_opts"), function("H5Dchunk_iter")
_index_type = function("H5Dget_chunk_index_type")
EXTENSIBLE = 4  # H5D_CHUNK_IDX_EARRAY


def locate(node: Node, dtype: np.dtype[Any], *, steps: int, end: int) -> Chunks:
    """Every chunk of a dataset: offset and stored size in bytes on its chunk grid.

    ``steps`` is how many first axes of bytes in C order are cut to single steps; ``end`` is the file's size.
    Raises Unsupported for chunks of which some skip a filter and a range past ``end``.
    """
    if node.layout == h5d.CHUNKED:
        found = _chunked(node)
    else:
        found = _plain(node, dtype, steps, compact=node.layout == h5d.COMPACT)
    refuse_past(found, end)
    return found


def refuse_elsewhere(node: Node) -> None:
    """Raise Unsupported for a dataset whose bytes lie in other files."""
    if node.layout == h5d.VIRTUAL:
        raise Unsupported(
            "it is an HDF5 virtual dataset, so no byte of this file holds it",
            "scan the files that it is made of, or leave it out of scan.arrays",
        )
    if node.layout == h5d.CONTIGUOUS and node.plist.get_external_count():
        raise Unsupported(
            f"its bytes lie in {text(node.plist.get_external(0)[0])} (HDF5 external storage), so no byte of "
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
    pipeline = node.filters
    if pipeline and any(n % c for n, c in zip(node.shape, chunks, strict=True)):
        _refuse_raw_edges(node, chunks)
    if math.prod(grid) > 1:
        refuse_exchanged(node.id)
    found = _index(node)
    offset = np.full(grid, ABSENT, np.int64)
    size = offset.copy()
    skipped = 0
    if len(found.offset) == 1 == offset.size and not found.mask[0]:
        offset[:], size[:] = found.offset, found.size
    elif len(found.offset):
        keys = found.start // np.array(chunks)
        inside = (keys < np.array(grid)).all(axis=1)  # a shrunk dataset may keep chunks outside
        skipped = _one_mask(found.mask[inside], keys[inside], pipeline)
        at = tuple(keys[inside].T)
        offset[at], size[at] = found.offset[inside], found.size[inside]
    return Chunks("chunked", chunks, offset, size, skipped=skipped)


def refuse_exchanged(dsid: h5d.DatasetID) -> None:
    """Raise Unsupported for an array of whose chunks HDF5 tells places that are not theirs.

    An extensible array keeps the unlimited axis first, and HDF5 2.0 (1.14.6 too) gives its chunks as if
    that were the order of the axes: H5Dchunk_iter and H5Dget_chunk_info alike, while H5Dread is right.
    """
    axes = [n == h5s.UNLIMITED for n in dsid.get_space().get_simple_extent_dims(True)]
    if sum(axes) != 1 or axes[0]:
        return
    kind = ctypes.c_int()
    if _index_type(dsid.id, ctypes.byref(kind)) < 0:
        raise RuntimeError("H5Dget_chunk_index_type failed")
    if kind.value == EXTENSIBLE:
        raise Unsupported(
            f"its unlimited axis {axes.index(True)} is not the first, and the index of its chunks is an extensible "
            "array, of which HDF5 gives the places of chunks in another order",
            "write it again for older libraries (h5py's libver='earliest', nccopy), or leave it out by listing "
            "the wanted arrays in scan.arrays",
        )


class _Index(NamedTuple):
    """The chunks of a dataset that have a place, in the order of HDF5's index."""

    start: Ints
    """first element along each axis, a row per chunk"""
    mask: NDArray[np.uint32]
    offset: Ints
    size: Ints


def _index(node: Node) -> _Index:
    """One pass over the index; h5py's makes an object of each chunk, and takes three times as long."""
    starts, masks, offsets, sizes = bytearray(), array("I"), array("q"), array("q")
    start = ctypes.c_char * (8 * len(node.shape))
    seen, bytes_there = 0, memoryview(b"")

    def visit(where: int, mask: int, offset: int, size: int, _: int | None) -> int:
        nonlocal starts, seen, bytes_there
        if offset == UNDEFINED:
            return 0
        if where != seen:  # HDF5 fills the same memory again for each chunk
            seen, bytes_there = where, memoryview(start.from_address(where))
        starts += bytes_there
        masks.append(mask)
        offsets.append(offset)
        sizes.append(size)
        return 0

    with phil:
        done = _iterate(node.id.id, 0, Visit(visit), None)
    if done < 0:
        node.id.chunk_iter(lambda _: None)  # raises what HDF5 says
        raise RuntimeError("HDF5 cannot walk its chunk index")
    rows = np.frombuffer(starts, np.int64).reshape(len(offsets), len(node.shape))
    columns = (np.frombuffer(column, np.int64) for column in (offsets, sizes))
    return _Index(rows, np.frombuffer(masks, np.uint32), *columns)


def _one_mask(masks: NDArray[np.uint32], keys: Ints, pipeline: list[Filter]) -> int:
    """The filters that all chunks were stored without, as bits; Unsupported where chunks differ in them.

    HDF5 leaves out an optional filter that would make a chunk larger.
    """
    if not masks.any():
        return 0
    if (masks == masks[0]).all():
        return int(masks[0])
    masked = int(np.flatnonzero(masks)[0])
    mask = int(masks[masked])
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
    if _options(dcpl.id, ctypes.byref(options)) < 0:
        raise RuntimeError("H5Pget_chunk_opts failed")
    return options.value
