"""What a Zarr store holds as zarr-python reads it: the window of an array that one chunk file stands for."""

from __future__ import annotations

import os
import re
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from byterefs.proving.slab import Slab
from byterefs.urls import is_local, to_path

METADATA = (".zarray", ".zgroup", "zarr.json")
CHUNK = re.compile(r"(?:^|/)(?:\d+(?:\.\d+)*|c(?:\.\d+)*)$")
"""how the path of a chunk file ends"""
NAMES = "_ARRAY_DIMENSIONS"


class Place(NamedTuple):
    """Where a chunk file lies in its store."""

    root: str
    array: str
    key: tuple[int, ...]


@lru_cache(maxsize=65536)
def place(source: str) -> Place | None:
    """The store, array and key of a chunk file; None for any other source."""
    path = to_path(source)
    if not is_local(source) or not CHUNK.search(path):
        return None
    inside = [p for p in Path(path).parents if described(str(p))]
    if not inside:
        return None
    inner = next((p for p in inside if is_array(str(p))), None)
    outer = inside[0]
    for p in inside[1:]:
        if p == outer.parent:
            outer = p
    if inner is None:
        return None
    key = tuple(map(int, re.findall(r"\d+", os.path.relpath(path, inner))))
    return Place(str(outer), inner.relative_to(outer).as_posix(), key)


@lru_cache(maxsize=4096)
def described(folder: str) -> bool:
    """Whether a folder has the metadata of a group or an array."""
    return any(os.path.isfile(os.path.join(folder, name)) for name in METADATA)


@lru_cache(maxsize=4096)
def is_array(folder: str) -> bool:
    """Whether a folder has the metadata of an array."""
    if os.path.isfile(os.path.join(folder, ".zarray")):
        return True
    document = os.path.join(folder, "zarr.json")
    return os.path.isfile(document) and b'"array"' in Path(document).read_bytes()


@lru_cache(maxsize=16)
def opened(root: str, array: str) -> Any:
    """An array of a store by zarr-python; None where there is none."""
    import zarr

    try:
        found: Any = zarr.open(root, mode="r", use_consolidated=False)
        return found if array in ("", ".") else found[array]
    except (KeyError, ValueError, TypeError):
        return None


def dims(array: Any) -> list[str]:
    """Names of the axes of an array, where it has them."""
    names = getattr(array.metadata, "dimension_names", None) or array.attrs.get(NAMES) or ()
    return [str(n) for n in names]


def turned(array: Any) -> bool:
    """Whether the axes of an array are reversed in its bytes."""
    return bool(getattr(array.metadata, "order", "C") == "F") or any(
        type(codec).__name__ == "TransposeCodec" for codec in getattr(array.metadata, "codecs", ())
    )


def read(slab: Slab) -> NDArray[Any] | str:
    """Values of a slab of what a chunk file stands for, or why there are none."""
    source, array, start, count, wanted = slab
    at = place(source)
    found = None if at is None else opened(at.root, at.array)
    other = None if at is None else opened(at.root, array)
    if at is None or found is None or other is None:
        return f"no array {array!r} in a Zarr store"
    origin = [k * c for k, c in zip(at.key, found.chunks, strict=True)]
    if other.name != found.name:
        begins = dict(zip(dims(found), origin, strict=False))
        origin = [begins.get(d, 0) for d in dims(other)] or [0] * other.ndim
    if turned(other):
        start, count = list(start)[::-1], list(count)[::-1]
    window = tuple(slice(o + s, o + s + n) for o, s, n in zip(origin, start, count, strict=True))
    values = np.asarray(other[window])
    values = np.ascontiguousarray(values.T if turned(other) else values)
    if values.dtype.kind == "b":
        values = values.view("i1")
    if values.dtype.newbyteorder("=") != wanted:
        return f"zarr reads {values.dtype} where the source has {wanted.str}"
    return values.astype(wanted)


def exists(source: str, array: str) -> bool:
    """Whether the store of a chunk file has a one-dimensional array of this name."""
    at = place(source)
    found = None if at is None else opened(at.root, array)
    return found is not None and getattr(found, "ndim", 0) == 1
