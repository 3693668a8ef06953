"""What every oracle answers, and how values become comparable: stored bits in native byte order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray


class Cannot(Exception):
    """Why a library cannot answer."""


class Listed(NamedTuple):
    """An array as a library sees it."""

    shape: tuple[int, ...]
    nbytes: int
    """bytes that it occupies in the file, as far as the library says"""
    undefined: bool = False
    """whether what was never written reads as whatever lay in memory"""


class Reader(Protocol):
    """One file through one library."""

    name: ClassVar[str]

    def __init__(self, path: str) -> None:
        """Open the file; any exception says that the library cannot."""

    def arrays(self) -> dict[str, Listed]:
        """Every array of the file by its path without leading slash."""

    def read(
        self,
        array: str,
        start: Sequence[int],
        count: Sequence[int],
        dtype: str,
    ) -> NDArray[Any]:
        """Stored values of a window as ``dtype`` in native byte order; Cannot if that is not what there is."""


def window(start: Sequence[int], count: Sequence[int]) -> tuple[slice, ...]:
    """Slices from starts and counts."""
    return tuple(slice(s, s + n) for s, n in zip(start, count, strict=True))


def alike(values: NDArray[Any], dtype: str, count: Sequence[int]) -> NDArray[Any]:
    """The values in native byte order; Cannot if their type or shape is not what was asked for."""
    wanted = np.dtype(dtype).newbyteorder("=")
    if values.dtype.kind == "O" and wanted.kind == "S":
        values = texts(values, wanted)
    if values.dtype.kind == "S" and wanted.kind == "S" and values.dtype != wanted:
        values = values.astype(wanted) if values.dtype.itemsize <= wanted.itemsize else values
    if values.shape != tuple(count):
        raise Cannot(f"it has the shape {list(values.shape)} there, not {list(count)}")
    if values.dtype.kind == "b" and wanted.itemsize == 1:
        values = values.view("u1")
    if values.dtype.itemsize != wanted.itemsize:
        raise Cannot(f"it reads {values.dtype.str} where the table has {dtype}")
    same_bits = wanted.itemsize == 1 or values.dtype.kind == wanted.kind
    if not same_bits:
        raise Cannot(f"it reads {values.dtype.str} where the table has {dtype}")
    native = values.astype(values.dtype.newbyteorder("="), order="C")
    return np.frombuffer(native.tobytes(), wanted).reshape(values.shape)


def texts(values: NDArray[Any], wanted: np.dtype[Any]) -> NDArray[Any]:
    """Strings of any length as bytes of one length."""
    raw = [x if isinstance(x, bytes) else str(x).encode() for x in values.ravel()]
    longest = max(map(len, raw), default=0)
    if longest > wanted.itemsize:
        raise Cannot(f"it reads a string of {longest} bytes where the table has {wanted.str}")
    return np.array(raw, wanted).reshape(values.shape)
