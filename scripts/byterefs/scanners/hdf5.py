"""HDF5 and netCDF-4: the chunk index of every wanted array, and the small arrays by value."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, BinaryIO

import h5py
import numpy as np
from h5py import h5t
from numpy.typing import NDArray

from byterefs import codecs, literals
from byterefs.errors import RangeError, ScanError
from byterefs.model import LINK, TYPE, ArrayMeta, Source, SourceArray, SourceScan
from byterefs.scanners._common import (
    KEPT,
    Attributes,
    Chunks,
    Seen,
    Unsupported,
    decoded,
    dimension,
    in_bands,
    keeps,
    large,
    leading,
    opened,
    record,
    wanted,
)
from byterefs.scanners._hdf5_attributes import attributes, names
from byterefs.scanners._hdf5_chunks import locate, refuse_elsewhere
from byterefs.scanners._hdf5_tree import Node, Tree, hdf5_file, tree
from byterefs.scanners._hdf5_types import (
    FIELDS,
    fields,
    fill,
    is_text,
    stored_dtype,
    text_values,
    values,
)
from byterefs.scanners._recorded import recorded, refused, together
from byterefs.scanners._roles import Roles

SIGNATURE = b"\x89HDF\r\n\x1a\n"
BROKEN = (
    OSError,
    RuntimeError,
    KeyError,
    MemoryError,
    NotImplementedError,
    OverflowError,
    TypeError,
    ValueError,
)
"""what h5py raises for a file that is damaged: which of them depends on where"""
VERSIONS = f"h5py {h5py.version.version}, HDF5 {h5py.version.hdf5_version}"


def recognises(file: BinaryIO) -> bool:
    """Whether HDF5's signature is at byte 0, or behind a user block of 512, 1024, 2048, … bytes."""
    end = file.seek(0, os.SEEK_END)
    at = 0
    while at + len(SIGNATURE) <= end:
        file.seek(at)
        if file.read(len(SIGNATURE)) == SIGNATURE:
            return True
        at = 2 * at or 512
    return False


def scan(
    source: Source, *, arrays: Sequence[str] = (), concat: str | None = None, split: bool = True
) -> SourceScan:
    """The wanted arrays of one HDF5 file; see :func:`byterefs.scanners.scan`."""
    with opened(source.source) as seen, _opened(source.source, seen) as file:
        found = tree(file)
        nodes = found.nodes
        _refuse_links(source.source, found, arrays)
        chosen = wanted(source.source, nodes, arrays)
        roles = Roles(nodes, chosen, lambda node: attributes(node.id, node.listed))
        look = _Look(
            source.source,
            seen,
            dimension(concat, nodes),
            split,
            bool(arrays),
        )
        items = {
            name: look.at(nodes[name], attrs, name in chosen, name in roles.coordinates)
            for name, attrs in sorted(roles.attributes.items())
        }
        root = attributes(file.id, names(file.id))
    return together(source, seen, items, root)


@contextmanager
def _opened(source: str, seen: Seen) -> Iterator[h5py.File]:
    """The file as HDF5 reads it; what HDF5 says against it becomes a ScanError."""
    try:
        with hdf5_file(source, seen) as file:
            yield file
    except (*BROKEN, RangeError) as error:
        raise ScanError(
            f"{source}: HDF5 cannot read it ({' '.join(str(error).split())}; {VERSIONS}); fetch it again, leave it out with "
            "source.pattern or set scan: {on_error: skip}"
        ) from error


def _refuse_links(source: str, found: Tree, arrays: Sequence[str]) -> None:
    """ScanError if a wanted array lies in another file."""
    asked = [name.strip("/") for name in arrays]
    for name, link in sorted(found.elsewhere.items()):
        if not asked or any(a == name or a.startswith(f"{name}/") for a in asked):
            why = (
                f"it is {link}, so no byte of this file holds it; scan the file that it leads to, or "
                "list the wanted arrays without it in scan.arrays"
            )
            refused(source, name, why, None)


@dataclass(frozen=True, slots=True)
class _Look:
    """What every array of one file is looked at with."""

    source: str
    seen: Seen
    concat: str | None
    split: bool
    listed: bool
    """whether the config lists the wanted arrays"""

    def at(
        self, node: Node, attrs: Attributes, wanted: bool, coordinate: bool
    ) -> SourceArray | None:
        """The record of one array; None for one that is not wanted and cannot be recorded."""

        def make() -> SourceArray:
            if is_text(node.type):
                return self._text(node, attrs)
            return self._array(node, attrs, coordinate, strict=wanted and self.listed)

        try:
            return recorded(self.source, node.name, wanted, make)
        except BROKEN as error:
            why = (
                f"HDF5 cannot read it ({error}; {VERSIONS}); fetch the file again, or list the wanted "
                "arrays without it in scan.arrays"
            )
            refused(self.source, node.name, why, error)
        return None

    def _text(self, node: Node, attrs: Attributes) -> SourceArray:
        """Variable-length strings lie in heaps: by value only."""
        if math.prod(node.shape) * 16 > KEPT:
            raise Unsupported(
                f"{math.prod(node.shape)} variable-length strings are too many to keep by value"
            )
        kept = text_values(node.id, node.shape)
        meta = _meta(node, kept.dtype, attrs, None)
        return record(meta, None, kept, keep=True)

    def _array(self, node: Node, attrs: Attributes, coordinate: bool, strict: bool) -> SourceArray:
        refuse_elsewhere(node)
        tid = node.type
        dtype, told = stored_dtype(tid), _told(node)
        if told:
            attrs = {**attrs[0], **told}, {**attrs[1], **dict.fromkeys(told, "str")}
        nbytes = math.prod(node.shape) * dtype.itemsize
        keep, sum_up = keeps(node, nbytes, coordinate, self.concat)
        found = self._chunks(node, dtype, optional=keep and not strict) if node.shape else None
        meta = _meta(node, dtype, attrs, found)
        if sum_up and large(nbytes) and found is not None:
            return record(meta, found, None, keep, in_bands(found, meta, self.seen.read))
        kept = self._values(node, meta, found) if sum_up else None
        return record(meta, found, kept, keep)

    def _values(self, node: Node, meta: ArrayMeta, found: Chunks | None) -> NDArray[Any] | None:
        """All elements as stored; None where neither HDF5 nor numcodecs has the filters."""
        if found is not None and found.layout == "contiguous" and found.offset.size == 1:
            return decoded(found, meta, self.seen.read)  # a third of the time that HDF5 takes
        if node.plist.all_filters_avail() or found is None:
            return values(node.id, node.plist, np.dtype(meta.dtype), node.shape)
        if codecs.numcodecs_refusal(meta.codec):
            return None
        return decoded(found, meta, self.seen.read)

    def _chunks(self, node: Node, dtype: np.dtype[Any], optional: bool) -> Chunks | None:
        """Where the chunks lie; None if that cannot be said and the values are kept anyway."""
        steps = leading(node.dims, self.concat, node.shape, dtype.itemsize) if self.split else 0
        try:
            return locate(node, dtype, steps=steps, end=self.seen.size)
        except Unsupported:
            if optional and node.plist.all_filters_avail():
                return None
            raise


def _told(node: Node) -> dict[str, str]:
    """Attributes that say what dtype and name of an array do not."""
    bits = "bitfield" if node.type.get_class() == h5t.BITFIELD else None
    told = {FIELDS: fields(node.type), TYPE: bits, LINK: node.link or None}
    return {name: value for name, value in told.items() if value is not None}


def _meta(node: Node, dtype: np.dtype[Any], attrs: Attributes, found: Chunks | None) -> ArrayMeta:
    kept = enumerate(node.filters if found and found.layout == "chunked" else [])
    pipeline = [entry for i, entry in kept if found and not found.skipped >> i & 1]
    codec = codecs.hdf5_codec(pipeline, dtype.str)
    storage_fill = None if is_text(node.type) else fill(node.type, node.plist, dtype)
    return ArrayMeta(
        array=node.name,
        dims=node.dims,
        shape=node.shape,
        chunks=found.chunks if found else tuple(max(1, n) for n in node.shape),
        dtype=dtype.str,
        fill=literals.fill_text(storage_fill),
        codec=codec,
        info=codecs.info(codec, dtype.str),
        attrs=attrs[0],
        attr_dtypes=attrs[1],
        layout=found.layout if found else "values",
    )
