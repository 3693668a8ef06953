"""The plan as GDAL reads it: a multidimensional VRT, in the grammar of ``gdal mdim mosaic``.

Written here so that CF attributes, scalars, groups and root attributes stay, which the mosaic of
GDAL 3.13 drops (research/peers.md, E.3); read from any mdim VRT.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import prod
from typing import Any
from xml.sax.saxutils import escape, quoteattr

import numpy as np

from byterefs import raster
from byterefs.axis import time_units
from byterefs.codecs import fill_value, plain_number, same_number
from byterefs.errors import PlanError
from byterefs.model import Array
from byterefs.urls import to_gdal

GDAL_TYPES = {
    "b1": "Byte",
    "u1": "Byte",
    "i1": "Int8",
    "u2": "UInt16",
    "i2": "Int16",
    "u4": "UInt32",
    "i4": "Int32",
    "u8": "UInt64",
    "i8": "Int64",
    "f2": "Float16",
    "f4": "Float32",
    "f8": "Float64",
    "c8": "CFloat32",
    "c16": "CFloat64",
}
INLINE_ELEMENTS = 100_000
"""a coordinate with more elements than this is read from its sources, unless its units were converted"""
DTYPE_ATTRIBUTE = "byterefs_dtype"
"""GDAL's VRT holds no strings: ``|S7`` becomes Byte with a dimension of 7, and this attribute says so"""
NAMED = {"scale_factor": "Scale", "add_offset": "Offset", "units": "Unit"}


def write(
    arrays: Mapping[str, Array],
    root: Mapping[str, Any],
    root_dtypes: Mapping[str, str],
    published: Callable[[str], str] = lambda source: source,
) -> str:
    """The VRT's text. ``published`` turns a source into the path that the VRT names."""
    lines = ["<VRTDataset>", '  <Group name="/">']
    lines += [f"    {line}" for line in dimensions(arrays)]
    lines += [
        f"    {line}"
        for name in sorted(root)
        for line in attribute(name, root[name], root_dtypes.get(name))
    ]
    lines += [f"    {line}" for line in group(arrays, "", published)]
    return "\n".join([*lines, "  </Group>", "</VRTDataset>", ""])


def dimensions(arrays: Mapping[str, Array]) -> Iterator[str]:
    """Every dimension once, at the root, with the coordinate that indexes it."""
    sizes: dict[str, int] = {}
    for a in arrays.values():
        for d, n in zip(a.dims, a.shape, strict=True):
            if sizes.setdefault(d, n) != n:
                raise PlanError(
                    f"dimension {d!r} has {sizes[d]} elements and {n} in array {a.array!r}; choose arrays with scan.arrays"
                )
        sizes |= dict(string_dimension(a))
    for d, n in sorted(sizes.items()):
        along = [
            a
            for a in arrays.values()
            if a.dims == (d,) and a.kind == "coord" and "/" not in a.array and a.dtype[1] != "S"
        ]
        best = next((a for a in along if a.array == d), along[0] if len(along) == 1 else None)
        kind = ' type="TEMPORAL"' if best and time_units(best.attrs) else ""
        index = f" indexingVariable={quoteattr(best.array)}" if best else ""
        yield f'<Dimension name={quoteattr(d)}{kind} size="{n}"{index} />'


def string_dimension(a: Array) -> list[tuple[str, int]]:
    """The dimension that a string array needs for its characters: none unless it is ``|S2`` or longer."""
    width = np.dtype(a.dtype).itemsize if a.dtype[1] == "S" else 1
    return [(f"string{width}", width)] if width > 1 else []


def group(arrays: Mapping[str, Array], path: str, published: Callable[[str], str]) -> Iterator[str]:
    """The arrays of one group, then its groups."""
    inside = [a for a in arrays.values() if a.array.startswith(path)]
    names = {a.array: a.array.removeprefix(path) for a in inside}
    for a in inside:
        if "/" not in names[a.array]:
            yield from array(a, names[a.array], published, arrays)
    for sub in sorted({n.split("/")[0] for n in names.values() if "/" in n}):
        yield f"<Group name={quoteattr(sub)}>"
        yield from (f"  {line}" for line in group(arrays, f"{path}{sub}/", published))
        yield "</Group>"


def array(
    a: Array, name: str, published: Callable[[str], str], arrays: Mapping[str, Array]
) -> Iterator[str]:
    """One array: type, dimensions, block size, CRS, CF packing, values or sources, attributes."""
    yield f"<Array name={quoteattr(name)}>"
    yield f"  <DataType>{gdal_type(a)}</DataType>"
    for d in (*a.dims, *(d for d, _ in string_dimension(a))):
        yield f"  <DimensionRef ref={quoteattr('/' + d)} />"
    inline = inlined(a)
    if not inline and a.dims:
        yield f"  <BlockSize>{joined(a.chunks)}</BlockSize>"
    yield from (f"  {line}" for line in raster.srs(a, arrays))
    plain = dict(a.attrs)
    for attr, tag in NAMED.items():
        value = plain.get(attr)
        if isinstance(value, str if tag == "Unit" else (int, float)):
            yield f"  <{tag}>{escape(number(plain.pop(attr)))}</{tag}>"
    nodata = no_data(a)
    if nodata is not None:
        yield f"  <NoDataValue>{number(nodata.item())}</NoDataValue>"
        if same_number(plain.get("_FillValue"), nodata):
            del plain["_FillValue"]
    yield from (f"  {line}" for line in (inline_values(a) if inline else sources(a, published)))
    if a.dtype[1] == "S":
        plain[DTYPE_ATTRIBUTE] = a.dtype
    for attr in sorted(plain):
        yield from (f"  {line}" for line in attribute(attr, plain[attr], a.attr_dtypes.get(attr)))
    yield "</Array>"


def gdal_type(a: Array) -> str:
    """GDAL's name of an array's dtype. Raises PlanError for a dtype that a VRT cannot hold."""
    if a.dtype[1] == "S":
        return "Byte"
    if a.dtype[1:] not in GDAL_TYPES:
        raise PlanError(
            f"array {a.array!r} has dtype {a.dtype}, which GDAL's VRT cannot hold; leave it out with scan.arrays"
        )
    return GDAL_TYPES[a.dtype[1:]]


def inlined(a: Array) -> bool:
    """Whether the VRT carries an array's values itself."""
    if a.values is None:
        return False
    return (
        not a.placements
        or prod(a.shape) <= INLINE_ELEMENTS
        or time_units(a.attrs) is not None
        or a.dtype[1] == "S"
    )


def no_data(a: Array) -> np.generic | None:
    """What a stretch without source reads as: the storage fill where there is one, else CF's fill."""
    covered = sum(prod(p.count) for p in a.placements)
    if not inlined(a) and covered < prod(a.shape):
        return fill_value(a.fill, a.dtype)
    cf = a.attrs.get("_FillValue")
    if cf is None or a.dtype[1] == "S" or isinstance(cf, list):
        return None
    dtype, number_ = np.dtype(a.dtype), plain_number(cf)
    if dtype.kind in "iu" and not (
        number_ == number_ and np.iinfo(dtype).min <= number_ <= np.iinfo(dtype).max
    ):
        # ROMS has _FillValue 1e37 on packed int16: a nodata that no stored value can be
        return None
    value: np.generic = dtype.type(number_)
    return value if same_number(cf, value) else None


def inline_values(a: Array) -> Iterator[str]:
    """``InlineValues`` of a coordinate, ``ConstantValue`` of a scalar, every digit kept."""
    data = a.values or b""
    values = np.frombuffer(data, "u1" if a.dtype[1] in "Sb" else a.dtype)
    shape = (*a.shape, *(n for _, n in string_dimension(a)))
    if not shape:
        yield f"<ConstantValue>{number(values[0].item())}</ConstantValue>"
    elif prod(shape):
        text = " ".join(map(number, values.tolist()))
        yield f'<InlineValues offset="{joined([0] * len(shape))}" count="{joined(shape)}">{text}</InlineValues>'


def sources(a: Array, published: Callable[[str], str]) -> Iterator[str]:
    """One ``Source`` per placement (of a raster: per band), in the order of dest."""
    if raster.is_raster(a):
        yield from raster.sources(a, lambda source: to_gdal(published(source)))
        return
    ones = joined([1] * len(a.dims))
    for p in a.placements:
        yield "<Source>"
        yield f"  <SourceFilename>{escape(to_gdal(published(p.source)))}</SourceFilename>"
        yield f"  <SourceArray>{escape('/' + p.source_array)}</SourceArray>"
        yield f'  <SourceSlab offset="{joined(p.src_offset)}" count="{joined(p.count)}" step="{ones}" />'
        yield f'  <DestSlab offset="{joined(p.dest)}" />'
        yield "</Source>"


def attribute(name: str, value: Any, dtype: str | None) -> Iterator[str]:
    """One CF attribute with the dtype it has in the source."""
    kind = "String" if dtype is None or dtype[1:] not in GDAL_TYPES else GDAL_TYPES[dtype[1:]]
    yield f"<Attribute name={quoteattr(name)}>"
    yield f"  <DataType>{kind}</DataType>"
    for item in value if isinstance(value, list) else [value]:
        text = number(item if kind == "String" else plain_number(item))
        yield f"  <Value>{escape(text)}</Value>"
    yield "</Attribute>"


def number(value: Any) -> str:
    """A value as text that reads back to the same bits (shortest repr of a double)."""
    return (
        value if isinstance(value, str) else repr(value) if isinstance(value, float) else str(value)
    )


def joined(items: Sequence[int]) -> str:
    """``1,1,720,1440``."""
    return ",".join(map(str, items))
