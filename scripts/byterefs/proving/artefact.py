"""What a published artefact says, against what the view says: every array, attribute, coordinate and row.

No file of the archive is opened here. Each form spells fills, attributes and paths in its own way;
this module says what the view's would be in that spelling, without asking the emitter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from byterefs.codecs import pipeline
from byterefs.emitters import Described, Reader, Rows
from byterefs.errors import ByteRefsError, VerifyError
from byterefs.grid import unlinear
from byterefs.literals import cf_fill, fill_text, fill_value
from byterefs.model import Array, Key, Refs
from byterefs.planning.vrt import flat, holds
from byterefs.proving.oracle import native
from byterefs.proving.spelling import as_dtype, same_attribute, same_bits
from byterefs.view import View


def refuse(form: str, array: str, what: str, published: Any, expected: Any) -> VerifyError:
    """The sentence of a difference; raise what it gives back."""
    return VerifyError(
        f"form {form}, array {array!r}: {what} is {short(published)} in what is to be published and "
        f"{short(expected)} in the table; nothing is published: remove the form's folder below "
        f"results/<dataset>/emit and run the workflow again"
    )


def short(value: Any) -> str:
    """A value on one line, cut where it is long; a NaN that is not the usual one as its bits."""
    if isinstance(value, np.floating) and np.isnan(value):
        return str(fill_text(value))
    text = repr(value.item() if isinstance(value, np.generic) else value)
    return text if len(text) <= 200 else f"{text[:150]}… ({len(text)} characters)"


def answer[T](form: str, array: str, ask: Callable[[], T]) -> T:
    """What a form's reader says of an array. Raises VerifyError, naming both, if it fails."""
    try:
        return ask()
    except ByteRefsError:
        raise
    except Exception as error:
        raise VerifyError(
            f"form {form}, array {array!r}: its reader fails on what is to be published "
            f"({type(error).__name__}: {' '.join(str(error).split())}); remove the form's folder below "
            f"results/<dataset>/emit and run the workflow again"
        ) from error


# --- metadata --------------------------------------------------------------------------------------


def check_arrays(view: View, form: str, reader: Reader) -> Mapping[str, Described]:
    """Compare every array's metadata; gives back what the artefact says. Raises VerifyError."""
    found = reader.arrays()
    for name in sorted(view.arrays.keys() ^ found.keys()):
        there = name in found
        raise refuse(form, name, "whether the array exists", there, not there)
    for name, array in view.arrays.items():
        for what, published, expected in differences(form, array, found[name]):
            raise refuse(form, name, what, published, expected)
    return found


def differences(form: str, array: Array, found: Described) -> Iterator[tuple[str, Any, Any]]:
    """(what, published, expected) of everything in which ``found`` is not ``array``."""
    yield from unequal("dims", tuple(found.dims), array.dims)
    yield from unequal("shape", tuple(found.shape), array.shape)
    yield from unequal("dtype", *dtypes(form, array, found))
    if array.storage == "referenced":
        if found.chunks is not None or form != "vrt":
            yield from unequal("chunk shape", found.chunks, array.chunks)
        if form == "icechunk":
            yield from unequal("codec", pipeline(found.codec or {}), pipeline(array.codec))
        elif form != "vrt":
            yield from unequal("codec", found.codec, dict(array.codec))
    yield from fills(form, array, found)
    yield from attributes(form, array, found)


def unequal(what: str, published: Any, expected: Any) -> Iterator[tuple[str, Any, Any]]:
    """One difference, or none."""
    if published != expected:
        yield what, published, expected


def dtypes(form: str, array: Array, found: Described) -> tuple[str, str]:
    """Both dtypes; GDAL has native byte order and no bool, so the VRT's is compared without."""
    if form != "vrt":
        return found.dtype, array.dtype
    plain = array.dtype.replace("b1", "u1")
    return np.dtype(found.dtype).newbyteorder("=").str, np.dtype(plain).newbyteorder("=").str


def fills(form: str, array: Array, found: Described) -> Iterator[tuple[str, Any, Any]]:
    """The fill in the form's spelling: what readers take an absent chunk for."""
    if form in ("sqlite", "parquet"):
        yield from unequal("fill", found.fill, array.fill)
    elif form == "kerchunk":
        cf = None if cf_fill(array) is None else array.attrs["_FillValue"]
        yield from same_bits("fill_value", found.fill, cf, array)
    elif form == "icechunk" and array.storage == "referenced":
        stored = fill_value(array.fill, array.dtype)
        zero = np.zeros((), array.dtype)[()]
        yield from same_bits("fill_value", found.fill, zero if stored is None else stored, array)


def attributes(form: str, array: Array, found: Described) -> Iterator[tuple[str, Any, Any]]:
    """Every CF attribute, by its own dtype; ``_FillValue`` is a field of its own in Zarr v2."""
    expected = dict(array.attrs)
    published = dict(found.attrs)
    if form == "kerchunk":
        expected.pop("_FillValue", None)  # it is .zarray's fill_value, compared there
    if form == "icechunk" and (array.dtype[1] == "S" or cf_fill(array) is None):
        expected.pop(
            "_FillValue", None
        )  # left out as zarr_meta.cf_fill says, or text on which xarray 2026.9 raises
    if form == "vrt":
        expected, published = gdal_words(array, expected, published)
    for name in sorted(expected.keys() | published.keys()):
        if name not in expected or name not in published:
            yield f"attribute {name!r}", published.get(name), expected.get(name)
        elif not same_attribute(
            published[name], expected[name], attribute_dtype(form, array, name), array.dtype
        ):
            yield f"attribute {name!r}", published[name], expected[name]


def attribute_dtype(form: str, array: Array, name: str) -> str:
    """The dtype of an attribute as a form has it: Zarr v3 writes ``_FillValue`` as the array's own."""
    if form == "icechunk" and name == "_FillValue":
        return array.dtype
    return array.attr_dtypes.get(name, "str")


def gdal_words(
    array: Array, expected: dict[str, Any], published: dict[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Both sides without what GDAL has no word for: empty units, and a nodata that is the storage fill.

    A VRT has one nodata: in an array with a stretch that no source covers it is what that reads as.
    """
    if expected.get("units") == "":
        del expected["units"]
    expected = {k: v for k, v in expected.items() if in_xml(k, v)}
    for name, dtype in array.attr_dtypes.items():
        if dtype[1:] == "u8" and isinstance(published.get(name), str | tuple):
            published[name] = whole_numbers(published[name])
    stored = fill_value(array.fill, array.dtype)
    held = "_FillValue" not in expected or cf_fill(array) is not None
    if "_FillValue" in published and stored is not None and held:
        now = as_dtype(published["_FillValue"], array.dtype)
        if now.tobytes() == as_dtype(stored, array.dtype).tobytes():
            published.pop("_FillValue")
            expected.pop("_FillValue", None)
    return expected, published


def whole_numbers(value: Any) -> Any:
    """An unsigned attribute that GDAL holds as text, as numbers."""
    return int(value) if isinstance(value, str) else [int(v) for v in value]


def in_xml(name: str, value: Any) -> bool:
    """Whether a VRT can hold an attribute: one of text that XML has no characters for, or an empty one, it cannot."""
    items = flat(value)
    return bool(items) and all(map(holds, (name, *items)))


def check_root(view: View, form: str, published: Mapping[str, Any]) -> None:
    """Compare root attributes that all sources share. Raises VerifyError."""
    root = {k: v for k, v in view.root.items() if form != "vrt" or in_xml(k, v)}
    for name in sorted(root.keys() | published.keys()):
        there, wanted = published.get(name), root.get(name)
        dtype = view.root_dtypes.get(name, "str")
        if (
            name not in root
            or name not in published
            or not same_attribute(there, wanted, dtype, dtype)
        ):
            raise refuse(form, "/", f"root attribute {name!r}", there, wanted)


# --- coordinates -----------------------------------------------------------------------------------


def check_coordinates(view: View, form: str, reader: Reader) -> int:
    """Compare all values of every inline array, bit for bit; how many. Raises VerifyError."""
    compared = 0
    for name, array in view.arrays.items():
        if array.values is None:
            continue
        window = tuple(slice(0, n) for n in array.shape)
        expected = native(np.frombuffer(array.values, array.dtype).reshape(array.shape))
        published = native(np.asarray(answer(form, name, partial(reader.read, name, window))))
        at = first_difference(published, expected)
        if at is not None:
            raise refuse(
                form, name, f"the value at {list(at)}", value_at(published, at), expected[at]
            )
        compared += expected.size
    return compared


def first_difference(a: NDArray[Any], b: NDArray[Any]) -> Key | None:
    """Index of the first element whose bits differ; ``()`` too for a scalar or another shape or size."""
    if a.shape != b.shape or a.dtype.itemsize != b.dtype.itemsize:
        return (0,) * b.ndim
    if not b.size:
        return None
    bits = [np.frombuffer(x.tobytes(), np.uint8).reshape(-1, x.dtype.itemsize) for x in (a, b)]
    differ = np.flatnonzero((bits[0] != bits[1]).any(axis=1))
    return unlinear(int(differ[0]), b.shape) if len(differ) else None


def value_at(values: NDArray[Any], at: Key) -> Any:
    """An element, or in words the shape and dtype of what has no such element."""
    if len(at) == values.ndim and all(i < n for i, n in zip(at, values.shape, strict=True)):
        return values[at]
    return f"an array of shape {list(values.shape)} and dtype {values.dtype.str}"


# --- rows ------------------------------------------------------------------------------------------


def check_rows(
    form: str, array: str, grid: Key, rows: Rows, refs: Refs, paths: Sequence[str]
) -> int:
    """Compare every row of an array with the view's; how many. Raises VerifyError.

    ``paths`` are the sources in plan order as this form publishes them.
    """
    total = len(refs.offset)
    if not len(rows.path) == len(rows.offset) == len(rows.size) == total:
        raise refuse(form, array, "the number of rows", len(rows.path), total)
    here = refs.offset >= 0
    expected = np.array([*paths, None], object)[np.where(here, refs.source, -1)]
    columns = {
        "offset": (np.asarray(rows.offset), refs.offset),
        "size": (np.asarray(rows.size), refs.size),
        "path": (objects(rows.path), expected),
    }
    for what, (published, wanted) in columns.items():
        if what != "path":
            wanted = np.where(here, wanted, -1)
        differ = np.flatnonzero(published != wanted)
        if len(differ):
            i = int(differ[0])
            source = None if refs.source[i] < 0 else paths[refs.source[i]]
            raise refuse(
                form,
                array,
                f"{what} of chunk {list(unlinear(i, grid))} (source {source}, "
                f"{len(differ)} of {total} rows differ)",
                published[i],
                wanted[i],
            )
    check_inline(form, array, grid, rows.data, refs.data)
    return total


def objects(items: Iterable[Any]) -> NDArray[Any]:
    """A one-dimensional object array, also of strings of one length."""
    items = list(items)
    out = np.empty(len(items), object)
    out[:] = items
    return out


def check_inline(
    form: str, array: str, grid: Key, published: Mapping[int, bytes], expected: Mapping[int, bytes]
) -> None:
    """Compare the encoded bytes of inline chunks. Raises VerifyError."""
    for row in sorted(published.keys() | expected.keys()):
        there, wanted = published.get(row), expected.get(row)
        if there != wanted:
            what = f"the inline data of chunk {list(unlinear(row, grid))}"
            raise refuse(form, array, what, there, wanted)
