"""The plan as GDAL reads it: a multidimensional VRT, in the grammar of ``gdal mdim mosaic``.

Written here so that CF attributes, scalars, groups and root attributes stay, which the mosaic of
GDAL 3.13 drops (research/peers.md, E.3); read from any mdim VRT.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache, lru_cache
from math import prod
from typing import Any
from xml.sax.saxutils import escape, quoteattr

import numpy as np

from byterefs.axis import time_units
from byterefs.codecs import NEW_AXIS
from byterefs.literals import fill_value, plain_number, same_number
from byterefs.model import LINK, TYPE, Array, Key
from byterefs.planning import driver, raster
from byterefs.planning.dimensions import Declared, declared, extents, folder, of_text, reference
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
"""what an array is where its VRT says otherwise: ``|S7`` is Byte with a dimension of 7, ``<i2`` may be UInt16"""
NOT_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")
"""characters that no XML document may have"""
BREAKS = {c: f"&#{ord(c)};" for c in "\t\n\r"}
NAMED = {"scale_factor": "Scale", "add_offset": "Offset", "units": "Unit"}


def write(
    arrays: Mapping[str, Array],
    root: Mapping[str, Any],
    root_dtypes: Mapping[str, str],
    published: Callable[[str], str] = lambda source: source,
) -> str:
    """The VRT's text, without arrays of which :func:`cannot` says why they cannot be in one.

    ``published`` turns a source into the path that the VRT names.
    """
    arrays = {name: a for name, a in arrays.items() if cannot(a) is None}
    where = declared(arrays.values())
    lines = ["<VRTDataset>", '  <Group name="/">']
    lines += [f"    {line}" for line in dimensions(arrays, where, "")]
    lines += [
        f"    {line}"
        for name in sorted(root)
        for line in attribute(name, root[name], root_dtypes.get(name))
    ]
    lines += indented(group(arrays, where, "", published), "    ")
    return "\n".join([*lines, "  </Group>", "</VRTDataset>", ""])


def dimensions(arrays: Mapping[str, Array], where: Declared, path: str) -> Iterator[str]:
    """The dimensions declared in one group, each with the coordinate that indexes it."""
    for d, n in sorted(where.get(path, {}).items()):
        along = [
            a
            for a in arrays.values()
            if a.dims == (d,)
            and a.kind == "coord"
            and folder(a.array) == path
            and a.dtype[1] != "S"
        ]
        named = next((a for a in along if a.array.rpartition("/")[2] == d), None)
        best = named or (along[0] if len(along) == 1 else None)
        kind = ' type="TEMPORAL"' if best and time_units(best.attrs) else ""
        index = f" indexingVariable={quoteattr(best.array.rpartition('/')[2])}" if best else ""
        yield f'<Dimension name={quoteattr(d)}{kind} size="{n}"{index} />'


def group(
    arrays: Mapping[str, Array], where: Declared, path: str, published: Callable[[str], str]
) -> Iterator[str]:
    """The arrays of one group, then its groups."""
    lead = f"{path}/" if path else ""
    inside = [a for a in arrays.values() if a.array.startswith(lead)]
    for a in inside:
        if folder(a.array) == path:
            yield from array(a, where, published, arrays)
    below = {
        lead + a.array.removeprefix(lead).split("/")[0] for a in inside if folder(a.array) != path
    }
    for sub in sorted(below):
        yield f"<Group name={quoteattr(sub.removeprefix(lead))}>"
        yield from (f"  {line}" for line in dimensions(arrays, where, sub))
        yield from indented(group(arrays, where, sub, published))
        yield "</Group>"


def array(
    a: Array, where: Declared, published: Callable[[str], str], arrays: Mapping[str, Array]
) -> Iterator[str]:
    """One array: type, dimensions, block size, CRS, CF packing, values or sources, attributes."""
    yield f"<Array name={quoteattr(a.array.rpartition('/')[2])}>"
    yield f"  <DataType>{gdal_type(a)}</DataType>"
    for d, _ in extents(a):
        yield f"  <DimensionRef ref={quoteattr(reference(a, d, where))} />"
    inline = inlined(a)
    if not inline and a.dims:
        yield f"  <BlockSize>{joined((*a.chunks, *(n for _, n in of_text(a))))}</BlockSize>"
    yield from (f"  {line}" for line in raster.srs(a, arrays))
    plain = dict(a.attrs)
    for attr, tag in NAMED.items():
        value = plain.get(attr)
        if isinstance(value, str if tag == "Unit" else (int, float)):
            yield f"  <{tag}>{spaced(number(plain.pop(attr)))}</{tag}>"
    nodata = no_data(a)
    if nodata is not None and exact(nodata.item()):
        yield f"  <NoDataValue>{number(nodata.view(unsigned(a) or nodata.dtype).item())}</NoDataValue>"
        if same_number(plain.get("_FillValue"), nodata):
            del plain["_FillValue"]
    yield from indented(inline_values(a) if inline else sources(a, published))
    if a.dtype[1] == "S":
        plain[DTYPE_ATTRIBUTE] = a.dtype
    elif unsigned(a):
        plain[DTYPE_ATTRIBUTE] = np.dtype(a.dtype).newbyteorder("=").str
    for attr in sorted(plain):
        yield from (f"  {line}" for line in attribute(attr, plain[attr], a.attr_dtypes.get(attr)))
    yield "</Array>"


def gdal_type(a: Array) -> str:
    """GDAL's name of an array's dtype; strings are bytes with an axis of their own."""
    return "Byte" if a.dtype[1] == "S" else GDAL_TYPES[unsigned(a) or a.dtype[1:]]


def unsigned(a: Array) -> str | None:
    """``u1`` or ``u2`` where GDAL 3.13's netCDF driver reads signed bytes or shorts as such; else None.

    It follows ``_Unsigned``; a VRT of another type would clamp what it reads.
    """
    return f"u{a.dtype[2:]}" if told_unsigned(a) and driver.of(a) == "netCDF" else None


def told_unsigned(a: Array) -> bool:
    """Whether ``_Unsigned`` is said of signed bytes or shorts that are read from the sources."""
    told = str(a.attrs.get("_Unsigned")).lower() == "true" and not inlined(a)
    return told and a.dtype[1:] in ("i1", "i2")


def exact(value: Any) -> bool:
    """Whether a double holds a number: GDAL 3.13 reads a nodata, and an unsigned attribute, as one."""
    return not isinstance(value, int) or int(float(value)) == value


def cannot(a: Array) -> str | None:
    """Why an array cannot be in a VRT, as part of a sentence; None if it can."""
    if not all(map(holds, {a.array, *a.dims, *(p.source_array for p in a.placements)})):
        return "its name, or that of a dimension, has a character that no XML document may have"
    if a.dtype[1] != "S" and a.dtype[1:] not in GDAL_TYPES:
        return f"its dtype {a.dtype} has no name in GDAL's VRT"
    netcdf = half_by_netcdf(a)
    if netcdf:
        return f"GDAL's netCDF driver, which opens {netcdf}, has no 16-bit floats"
    covered = sum(prod(p.count) for p in a.placements) >= prod(a.shape) or inlined(a)
    fill = fill_value(a.fill, a.dtype)
    if not covered and fill is not None and not exact(fill.item()):
        return f"it has stretches without source, which would read as {fill}, more than GDAL's nodata holds"
    if 0 in a.shape:
        return f"its shape {list(a.shape)} has an axis without elements, which GDAL's VRT refuses"
    if inlined(a) and odd_nan(a):
        return "it is kept by value and has a NaN with a sign or payload, which no text of GDAL's VRT has"
    if a.dtype[1] == "c" and inlined(a):
        return "it is kept by value, and GDAL's VRT has no text for complex numbers"
    if of_text(a) and not inlined(a):
        return f"its elements are text ({a.dtype}) that is read from the sources, where GDAL's VRT reads numbers only"
    if a.dtype == "|S1" and not inlined(a) and (len(a.dims) > 1 or driver.of(a) != "netCDF"):
        return "its elements are single characters that are read from the sources, where GDAL has text and not bytes"
    if told_unsigned(a) and driver.of(a) is None:
        return (
            "it is marked _Unsigned, and whether GDAL heeds that goes by the ending of each source's name "
            "(let all end in .nc, or none)"
        )
    if TYPE in a.attrs and not inlined(a):
        return f"its elements are of the HDF5 type {a.attrs[TYPE]}, which GDAL has no type for"
    if LINK in a.attrs and not inlined(a) and driver.of(a) != "netCDF":
        return (
            f"it is a soft link, which GDAL's HDF5 driver does not follow (list {a.attrs[LINK]!r}, to which it "
            "leads, in scan.arrays instead)"
        )
    far = next((d for d in a.dims if "/" in d), None)
    if far is not None:
        return f"its dimension {far!r} is another group's beside one of the same name, which a VRT cannot tell apart"
    return None


def half_by_netcdf(a: Array) -> str | None:
    """The first source of 16-bit floats that GDAL 3.13 opens with its netCDF driver, which takes them for text."""
    if a.dtype[1:] != "f2" or raster.is_raster(a) or inlined(a):
        return None
    return next((p.source for p in a.placements if driver.by_netcdf(p.source)), None)


def inlined(a: Array) -> bool:
    """Whether the VRT carries an array's values itself."""
    if a.values is None:
        return False
    if not a.placements or not a.shape or time_units(a.attrs) is not None or a.dtype[1] == "S":
        return True
    return prod(a.shape) <= INLINE_ELEMENTS and not odd_nan(a)


def odd_nan(a: Array) -> bool:
    """Whether a NaN among the values has other bits than GDAL 3.13 makes of ``nan``."""
    if a.dtype[1] != "f" or a.values is None:
        return False
    values = np.frombuffer(a.values, a.dtype)
    nans = values[np.isnan(values)]
    return bool(nans.tobytes() != np.full(nans.shape, np.nan, a.dtype).tobytes())


def no_data(a: Array) -> np.generic | None:
    """What a stretch without source reads as: the storage fill where there is one, else CF's fill."""
    covered = sum(prod(p.count) for p in a.placements)
    if not inlined(a) and covered < prod(a.shape):
        return fill_value(a.fill, a.dtype)
    cf = a.attrs.get("_FillValue")
    if cf is None or a.dtype[1] == "S" or isinstance(cf, list):
        return None
    dtype, number_ = np.dtype(a.dtype), plain_number(cf)
    if isinstance(number_, str):
        return None
    if dtype.kind in "iu" and not (
        number_ == number_ and np.iinfo(dtype).min <= number_ <= np.iinfo(dtype).max
    ):
        # ROMS has _FillValue 1e37 on packed int16: a nodata that no stored value can be
        return None
    value: np.generic = dtype.type(number_)
    # GDAL 3.13 reads a nodata as a double
    held = dtype.kind not in "iu" or int(float(value.item())) == value.item()
    return value if held and same_number(cf, value) else None


def inline_values(a: Array) -> Iterator[str]:
    """``InlineValues`` of a coordinate, ``ConstantValue`` of a scalar, every digit kept."""
    data = a.values or b""
    values = np.frombuffer(data, "u1" if a.dtype[1] in "Sb" else a.dtype)
    shape = (*a.shape, *(n for _, n in of_text(a)))
    if not shape:
        yield f"<ConstantValue>{number(values[0].item())}</ConstantValue>"
    elif prod(shape):
        text = " ".join(map(number, values.tolist()))
        yield f'<InlineValues offset="{joined((0,) * len(shape))}" count="{joined(shape)}">{text}</InlineValues>'


def sources(a: Array, published: Callable[[str], str]) -> Iterator[str]:
    """One ``Source`` per placement (of a raster: per band), in the order of dest."""
    if raster.is_raster(a):
        yield from raster.sources(a, lambda source: to_gdal(published(source)))
        return
    ones, lead = joined((1,) * len(a.dims)), driver.prefix(a)
    turn = ""
    if a.info.endswith(NEW_AXIS):
        turn = f"  <SourceTranspose>{joined(range(-1, len(a.dims) - 1))}</SourceTranspose>\n"
    for source, name, src_offset, count, dest in a.placements:
        yield (
            "<Source>\n"
            f"  <SourceFilename>{escaped(lead + to_gdal(published(source)))}</SourceFilename>\n"
            f"  <SourceArray>{escaped('/' + name)}</SourceArray>\n"
            f"{turn}"
            f'  <SourceSlab offset="{joined(src_offset)}" count="{joined(count)}" step="{ones}" />\n'
            f'  <DestSlab offset="{joined(dest)}" />\n'
            "</Source>"
        )


@lru_cache(maxsize=2**17)
def escaped(name: str) -> str:
    """A source, or an array in it, as XML text on one line."""
    return escape(name, BREAKS)


def indented(lines: Iterable[str], by: str = "  ") -> Iterator[str]:
    """The lines further to the right, all of them joined; an array of forty years has sixty thousand."""
    text = "\n".join(lines)
    if text:
        yield by + text.replace("\n", "\n" + by)


def attribute(name: str, value: Any, dtype: str | None) -> Iterator[str]:
    """One CF attribute with the dtype it has in the source; nothing of text that XML cannot hold.

    GDAL's attributes have one axis: of more the elements are listed in C order.
    """
    items = flat(value)
    kind = "String" if dtype is None or dtype[1:] not in GDAL_TYPES else GDAL_TYPES[dtype[1:]]
    if kind == "UInt64" and not all(map(exact, items)):
        kind = "String"
    if not items or not all(holds(x) for x in (name, *items)):
        return
    yield f"<Attribute name={quoteattr(name)}>"
    yield f"  <DataType>{kind}</DataType>"
    for item in items:
        text = number(item if kind == "String" else plain_number(item))
        yield f"  <Value>{spaced(text)}</Value>"
    yield "</Attribute>"


def flat(value: Any) -> list[Any]:
    """The elements of an attribute in C order."""
    return [x for item in value for x in flat(item)] if isinstance(value, list) else [value]


def holds(value: Any) -> bool:
    """Whether XML has every character of a text."""
    return not isinstance(value, str) or not NOT_XML.search(value)


def spaced(text: str) -> str:
    """XML text that keeps white space: what leads unescaped is dropped by GDAL, line breaks are the file's own."""
    start = len(text) - len(text.lstrip())
    lead = "".join(f"&#{ord(c)};" for c in text[:start])
    return lead + escape(text[start:], BREAKS)


def number(value: Any) -> str:
    """A value as text that reads back to the same bits (shortest repr of a double)."""
    return (
        value if isinstance(value, str) else repr(value) if isinstance(value, float) else str(value)
    )


@cache
def joined(items: Key) -> str:
    """``1,1,720,1440``."""
    return ",".join(map(str, items))
