"""The records that pass between stages, in the words of mdim-refs/0.2.

Offsets and sizes are bytes, ``dim_i`` are chunk keys, ``dest``, ``src_offset`` and ``count`` are
elements. Records are frozen; their numpy members are never written to after construction.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

Key = tuple[int, ...]
Ints = NDArray[np.int64]
Kind = Literal["data", "coord"]
Storage = Literal["referenced", "inline", "affine"]

ABSENT = -1
"""The value of ``offset`` and ``size`` where a chunk has no byte range."""

TYPE = "byterefs_type"
"""attribute of an array whose elements are no numbers in HDF5: ``bitfield``, recorded as unsigned integers"""
LINK = "byterefs_link"
"""attribute of an array that is a soft link, or lies in a group that is one: the path that it leads to"""


class Source(NamedTuple):
    """One file as a provider lists it; ``source`` is the URI that a scan opens, verbatim."""

    source: str
    size: int | None = None
    """bytes"""
    mtime_ns: int | None = None
    """nanoseconds since 1970-01-01 UTC"""
    etag: str | None = None

    @property
    def mtime(self) -> int | None:
        """UTC seconds, as the table's ``sources.mtime`` holds them."""
        return None if self.mtime_ns is None else self.mtime_ns // 1_000_000_000


@dataclass(frozen=True, slots=True)
class ArrayMeta:
    """What one source says of one array, without its chunks; equal records are stored once."""

    array: str
    """path without leading slash: ``sst``, ``g/sst``"""
    dims: tuple[str, ...]
    shape: Key
    chunks: Key
    """chunk shape in elements; the whole shape for data that is one chunk"""
    dtype: str
    """numpy's ``dtype.str`` of the stored bytes: ``<i2``, ``>f4``, ``|u1``, ``|S8``"""
    fill: str | None
    """storage fill as text (see :func:`literals.fill_text`); None where the source defines none"""
    codec: Mapping[str, Any]
    """``{"compressor": …, "filters": […]}``: Zarr v2 ids in pipeline (encoding) order"""
    info: str
    """the codec in GDAL's words: ``COMPRESSION=DEFLATE; FILTER=SHUFFLE; ENDIANNESS=LITTLE``"""
    attrs: Mapping[str, Any] = field(default_factory=dict)
    """CF attributes as JSON values; HDF5's own dimension-scale bookkeeping is left out"""
    attr_dtypes: Mapping[str, str] = field(default_factory=dict)
    """numpy dtype of each attribute: ``<f4``, ``<i2``; ``str`` for text"""
    layout: str = "chunked"
    """chunked, contiguous, compact, values (read by value only) or derived (no array of the file)"""


@dataclass(frozen=True, slots=True)
class SourceArray:
    """One array of one source: its metadata, where its chunks lie, and its values where they are small."""

    meta: ArrayMeta
    offset: Ints | None = None
    """bytes from the start of the source, on the source's chunk grid; ``ABSENT`` where there is no range"""
    size: Ints | None = None
    """stored (encoded) bytes, same grid"""
    data: Mapping[Key, bytes] = field(default_factory=dict)
    """inline chunks by key: the *encoded* bytes, as ``offset`` and ``size`` would give them"""
    values: bytes | None = None
    """decoded values in C order and ``meta.dtype``; only of coordinates, scalars and small static arrays"""
    digest: str | None = None
    """sha256 of the decoded values; also taken of static arrays too large to keep"""


@dataclass(frozen=True, slots=True)
class SourceScan:
    """Everything that a scan of one source learned."""

    source: Source
    """as seen in the same open: size, mtime and etag are what the offsets are bound to"""
    arrays: Mapping[str, SourceArray]
    root: Mapping[str, Any] = field(default_factory=dict)
    """root (global) attributes as JSON values"""
    root_dtypes: Mapping[str, str] = field(default_factory=dict)


class Placement(NamedTuple):
    """Where one source's slab of one array sits in the global array; all in elements, step 1."""

    source: str
    source_array: str
    src_offset: Key
    count: Key  # type: ignore[assignment]  # the spec's word, which tuple has too
    dest: Key


@dataclass(frozen=True, slots=True)
class Array:
    """One global array of a dataset: a row of the table's ``arrays`` and its placements."""

    array: str
    kind: Kind
    storage: Storage
    dims: tuple[str, ...]
    shape: Key
    """global shape, from the plan"""
    chunks: Key
    """chunk shape of the sources; the whole shape where values are inline"""
    dtype: str
    fill: str | None
    codec: Mapping[str, Any]
    info: str = ""
    attrs: Mapping[str, Any] = field(default_factory=dict)
    attr_dtypes: Mapping[str, str] = field(default_factory=dict)
    grid_mapping: str | None = None
    affine: Mapping[str, float | int] | None = None
    """``{"start", "step"}``; only where it gives every stored value back bit for bit"""
    values: bytes | None = None
    """all values, C order, ``dtype``, of a coordinate that is inline"""
    placements: Sequence[Placement] = ()
    """sorted by dest; an inline array may have some too, for the VRT to read its sources"""
    refused: str | None = None
    """why ``refs_<array>`` cannot exist although the VRT reads it: the misaligned placement, named"""
    era: str = ""
    """the group of the array's era; empty where the dataset has none, and for what lies across all of them"""

    @property
    def own(self) -> str:
        """The array's name in its sources, without the group of its era."""
        return self.array.removeprefix(f"{self.era}/") if self.era else self.array


@dataclass(frozen=True, slots=True)
class Fragment:
    """A run of ``dim_0`` chunk keys of one array, and the digest of what it holds."""

    array: str
    start: int
    stop: int
    digest: str


@dataclass(frozen=True, slots=True)
class Refs:
    """Rows of ``refs_<array>`` in C order, as columns.

    Row ``i`` is one of: referenced (``source[i] >= 0`` and ``offset[i] >= 0``), inline (``i`` in
    ``data``), absent and known (``source[i] >= 0``, ``offset[i] == ABSENT``, not in ``data``), or
    covered by no source (``source[i] == -1``): the table has no row for it and readers use fill.
    """

    source: NDArray[np.int32]
    """index into the view's ``sources`` (plan order); the table's ``source_id`` is this plus one"""
    offset: Ints
    size: Ints
    data: Mapping[int, bytes] = field(default_factory=dict)
    """encoded bytes of inline chunks, by row number"""
