"""What GDAL's ``GetRawBlockInfo`` tells of a file's arrays, and the order of filters that proves it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import permutations
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray
from osgeo import gdal

from byterefs import codecs, literals
from byterefs.access import vsi
from byterefs.errors import ByteRefsError, ScanError
from byterefs.grid import chunk_grid, chunk_window
from byterefs.model import ABSENT, ArrayMeta, Ints, Key, Source, SourceArray, SourceScan
from byterefs.scanners._common import (
    Attributes,
    Chunks,
    Seen,
    Unsupported,
    dimension,
    keeps,
    opened,
    record,
    refuse_past,
    wanted,
)
from byterefs.scanners._recorded import recorded
from byterefs.scanners._roles import Roles

NUMPY = {
    **{"Byte": "u1", "Int8": "i1", "UInt16": "u2", "Int16": "i2", "UInt32": "u4", "Int32": "i4"},
    **{"UInt64": "u8", "Int64": "i8", "Float32": "f4", "Float64": "f8"},
}
"""GDAL's numeric types as numpy's"""
MOST = 10_000
"""chunks of one array: more would cost minutes (research/peers.md, 0.3)"""
ORDER = ("shuffle", "zlib", "fletcher32")
"""the usual order of filters, which is tried first"""
WORDS = {"DEFLATE": "zlib", "SHUFFLE": "shuffle", "FLETCHER32": "fletcher32"}


def scan(source: Source, *, arrays: Sequence[str], concat: str | None) -> SourceScan:
    """The wanted arrays of one file by GDAL; see :mod:`byterefs.scanners.blockinfo`."""
    gdal.UseExceptions()
    name = vsi.name(source.source)
    with opened(source.source) as seen, gdal.quiet_errors():
        try:
            root = gdal.OpenEx(name, gdal.OF_MULTIDIM_RASTER).GetRootGroup()
        except RuntimeError as error:
            raise ScanError(
                f"{source.source}: GDAL {gdal.__version__} opens no arrays in it ({words(error)}); name its format in "
                f"scan.format or leave it out with source.pattern"
            ) from error
        there = {node.name: node for node in walk(root, "")}
        chosen = wanted(source.source, there, arrays)
        roles = Roles(there, chosen, lambda node: node.attributes)
        look = Look(seen, name, dimension(concat, there))
        items = {
            n: recorded(
                source.source, n, n in chosen, partial(look.at, there[n], n in roles.coordinates)
            )
            for n in sorted(roles.attributes)
        }
        attrs = attributes(root.GetAttributes())
    return SourceScan(seen.of(source), {n: i for n, i in items.items() if i}, *attrs)


def walk(group: Any, path: str) -> Iterator[Node]:
    """The arrays of a group and of the groups in it."""
    for name in group.GetMDArrayNames() or ():
        array = group.OpenMDArray(name)
        if array is not None:
            yield Node(f"{path}{name}", path.rstrip("/"), array)
    for name in group.GetGroupNames() or ():
        inner = group.OpenGroup(name)
        if inner is not None:
            yield from walk(inner, f"{path}{name}/")


@dataclass(frozen=True)
class Node:
    """One array as GDAL has it."""

    name: str
    group: str
    array: Any

    @cached_property
    def shape(self) -> Key:
        """Elements along each axis."""
        return tuple(d.GetSize() for d in self.array.GetDimensions())

    @cached_property
    def dims(self) -> tuple[str, ...]:
        """Names of the axes."""
        return tuple(d.GetName() for d in self.array.GetDimensions())

    @cached_property
    def kind(self) -> np.dtype[Any]:
        """The type of its elements, in this machine's byte order. Raises Unsupported for what is no number."""
        said = self.array.GetDataType()
        name = gdal.GetDataTypeName(said.GetNumericDataType())
        if said.GetClass() != gdal.GEDTC_NUMERIC or name not in NUMPY:
            raise Unsupported(
                f"its elements are no numbers that GDAL shares with numpy ({said.GetName() or name})"
            )
        return np.dtype(NUMPY[name])

    @cached_property
    def attributes(self) -> Attributes:
        """CF attributes, packing and units among them."""
        found, dtypes = attributes(self.array.GetAttributes())
        spare = {
            "units": self.array.GetUnit() or None,
            "scale_factor": self.array.GetScale(),
            "add_offset": self.array.GetOffset(),
        }
        for name, value in spare.items():
            if value is not None and name not in found:
                found[name], dtypes[name] = literals.attr_json(value)
        return found, dtypes

    def read(self, start: Sequence[int], count: Sequence[int]) -> NDArray[Any]:
        """A window as GDAL reads it."""
        raw = self.array.Read(list(start), list(count)) if count else self.array.Read()
        return np.frombuffer(bytes(raw), self.kind).reshape(tuple(count))


def attributes(found: Sequence[Any]) -> Attributes:
    """GDAL's attributes as JSON values, and their dtypes; those of compounds are left out."""
    pairs = {}
    for each in found:
        kind = each.GetDataType()
        if kind.GetClass() == gdal.GEDTC_COMPOUND:
            continue
        value = each.Read()
        name = gdal.GetDataTypeName(kind.GetNumericDataType())
        number = kind.GetClass() == gdal.GEDTC_NUMERIC and name in NUMPY
        pairs[each.GetName()] = literals.attr_json(
            np.array(value, NUMPY[name])[()] if number else value
        )
    return {n: v for n, (v, _) in pairs.items()}, {n: d for n, (_, d) in pairs.items()}


@dataclass(frozen=True)
class Look:
    """What every array of one file is looked at with."""

    seen: Seen
    path: str
    concat: str | None

    def at(self, node: Node, coordinate: bool) -> SourceArray:
        """The record of one array; Unsupported if GDAL does not tell where its bytes lie."""
        keep, sum_up = keeps(node, prod(node.shape) * node.kind.itemsize, coordinate, self.concat)
        kept = node.read((0,) * len(node.shape), node.shape) if sum_up or not node.shape else None
        if not node.shape:
            return record(self.meta(node, None, codecs.PLAIN, node.kind), None, kept, True)
        try:
            found, said = self.chunks(node)
            refuse_past(found, self.seen.size)
            dtype = ordered(node.kind, said)
            codec = self.codec(node, found, said, dtype)
            self.prove(node, found, codec, dtype)
        except Unsupported:
            if kept is None or not keep:
                raise
            return record(self.meta(node, None, codecs.PLAIN, node.kind), None, kept, True)
        values = None if kept is None else kept.astype(dtype)
        return record(self.meta(node, found, codec, dtype), found, values, keep)

    def chunks(self, node: Node) -> tuple[Chunks, Mapping[str, str]]:
        """The chunk grid, and GDAL's words of how its chunks are encoded."""
        sizes = tuple(node.array.GetBlockSize())
        whole = not any(sizes)
        chunks = tuple(max(1, n) for n in (node.shape if whole else sizes))
        grid = chunk_grid(node.shape, chunks)
        if prod(grid) > MOST:
            raise Unsupported(
                f"it has {prod(grid)} chunks, and GDAL walks over all of them for each"
            )
        offset: Ints = np.full(grid, ABSENT, np.int64)
        size, data, said = offset.copy(), dict[Key, bytes](), dict[str, str]()
        for i, key in enumerate(np.ndindex(grid)):
            block = self.block(node, key)
            here = dict(word.split("=", 1) for word in block.GetInfo() or () if "=" in word)
            if i and here != said:
                raise Unsupported(
                    f"chunk {list(key)} is encoded as {here}, and the first as {said}"
                )
            said = here
            if block.GetFilename():
                offset[key], size[key] = block.GetOffset(), block.GetSize()
            else:
                data[key] = bytes(block.GetInlineData())
        return Chunks("contiguous" if whole else "chunked", chunks, offset, size, data), said

    def prove(
        self, node: Node, found: Chunks, codec: Mapping[str, Any], dtype: np.dtype[Any]
    ) -> None:
        """Raise Unsupported if the second chunk along an axis, or the last, holds other values than GDAL reads there."""
        grid = found.offset.shape
        seconds = [tuple(int(i == axis) for i in range(len(grid))) for axis in range(len(grid))]
        for key in [k for k in seconds if max(np.subtract(k, grid)) < 0] + [
            tuple(n - 1 for n in grid)
        ]:
            if found.offset[key] == ABSENT or codecs.numcodecs_refusal(codec):
                continue
            window = chunk_window(key, node.shape, found.chunks)
            raw = self.seen.read(int(found.offset[key]), int(found.size[key]))
            whole = codecs.decode(codec, raw, dtype.str, found.chunks)
            ours = whole[tuple(slice(w.stop - w.start) for w in window)]
            theirs = node.read([w.start for w in window], ours.shape)
            if ours.astype(theirs.dtype).tobytes() != theirs.tobytes():
                raise Unsupported(
                    f"GDAL puts chunk {list(key)} at byte {found.offset[key]}, where other values lie than it reads "
                    "for that chunk"
                )

    def block(self, node: Node, key: Key) -> Any:
        """GDAL's block info of a chunk. Raises Unsupported where there is none, or it is of another file."""
        try:
            found = node.array.GetRawBlockInfo(list(key))
        except RuntimeError as error:
            # absent chunks too: GDAL 3.13 raises for them, and does not say which they are
            raise Unsupported(
                f"GDAL does not say where chunk {list(key)} lies ({words(error)})"
            ) from error
        if found is None or (not found.GetFilename() and not found.GetInlineData()):
            raise Unsupported("GDAL's driver of this format does not say where its bytes lie")
        if found.GetFilename() and found.GetFilename() != self.path:
            raise Unsupported(f"its bytes lie in {found.GetFilename()}")
        return found

    def codec(
        self, node: Node, found: Chunks, said: Mapping[str, str], dtype: np.dtype[Any]
    ) -> dict[str, Any]:
        """The one order of GDAL's filters by which the first and the last chunk are what GDAL reads."""
        names = [w for k in ("COMPRESSION", "FILTER") for w in said.get(k, "").split(",") if w]
        odd = [name for name in names if name not in WORDS]
        if odd:
            raise Unsupported(f"its filter {odd[0]} has parameters that GDAL does not tell")
        ids = sorted((WORDS[name] for name in names), key=ORDER.index)
        for order in permutations(ids):
            codec = ordered_codec(order, node.kind.itemsize)
            if all(self.same(node, found, codec, dtype, key) for key in ends(found)):
                return codec
        raise Unsupported(
            f"no order of its filters {', '.join(names) or 'none'} gives what GDAL reads"
        )

    def same(
        self, node: Node, found: Chunks, codec: Mapping[str, Any], dtype: np.dtype[Any], key: Key
    ) -> bool:
        """Whether a chunk decodes to what GDAL reads there."""
        raw = found.data.get(key)
        if raw is None:
            raw = self.seen.read(int(found.offset[key]), int(found.size[key]))
        window = chunk_window(key, node.shape, found.chunks)
        count = [w.stop - w.start for w in window]
        try:
            got = codecs.decode(codec, raw, dtype.str, found.chunks)[tuple(map(slice, count))]
        except ByteRefsError:
            return False
        return (
            got.astype(node.kind).tobytes() == node.read([w.start for w in window], count).tobytes()
        )

    def meta(
        self, node: Node, found: Chunks | None, codec: Mapping[str, Any], dtype: np.dtype[Any]
    ) -> ArrayMeta:
        """The metadata of an array."""
        attrs, dtypes = node.attributes
        fill = node.array.GetNoDataValue()
        text = None if fill is None else literals.fill_text(np.array([fill], dtype)[0])
        return ArrayMeta(
            array=node.name,
            dims=node.dims,
            shape=node.shape,
            chunks=found.chunks if found else node.shape,
            dtype=dtype.str,
            fill=text,
            codec=codec,
            info=codecs.info(codec, dtype.str),
            attrs=attrs,
            attr_dtypes=dtypes,
            layout=found.layout if found else "values",
        )


def ordered(kind: np.dtype[Any], said: Mapping[str, str]) -> np.dtype[Any]:
    """The type in the byte order of the file."""
    return kind.newbyteorder(">" if said.get("ENDIANNESS") == "BIG" else "<")


def ordered_codec(ids: Sequence[str], itemsize: int) -> dict[str, Any]:
    """Filters in encoding order as codec JSON."""
    known = {"shuffle": {"elementsize": itemsize}, "zlib": {"level": 6}, "fletcher32": {}}
    configs = [{"id": name, **known[name]} for name in ids]
    compressor = configs.pop() if configs and configs[-1]["id"] == "zlib" else None
    return {"compressor": compressor, "filters": configs or None}


def ends(found: Chunks) -> set[Key]:
    """The first and the last chunk that has bytes."""
    keys = [tuple(k) for k in np.argwhere(found.offset >= 0).tolist()] or sorted(found.data)
    return {keys[0], keys[-1]} if keys else set()


def words(error: BaseException) -> str:
    """An error's message on one line."""
    return " ".join(str(error).split())
