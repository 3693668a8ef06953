"""The header of a netCDF-3 file: dimensions, attributes, and where each variable's bytes lie.

CDF-1, CDF-2 (64-bit offsets) and CDF-5 (64-bit data) have one grammar with numbers of other widths.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np

from byterefs.errors import ByteRefsError
from byterefs.literals import attr_json, attr_value
from byterefs.model import Key
from byterefs.scanners._common import Attributes, Seen

MAGICS = {b"CDF\x01": 1, b"CDF\x02": 2, b"CDF\x05": 5}
TYPES = ("i1", "S1", ">i2", ">i4", ">f4", ">f8", "u1", ">u2", ">u4", ">i8", ">u8")
"""numpy's name of each nc_type from 1 on; those after CLASSIC are CDF-5's"""
CLASSIC = 6
"""the last nc_type of CDF-1 and CDF-2"""
FILLS: dict[str, Any] = {
    "|i1": -127,
    "|S1": b"\0",
    ">i2": -32767,
    ">i4": -2147483647,
    ">f4": 9.9692099683868690e36,
    ">f8": 9.9692099683868690e36,
    "|u1": 255,
    ">u2": 65535,
    ">u4": 4294967295,
    ">i8": -9223372036854775806,
    ">u8": 18446744073709551614,
}
"""what netCDF writes where nothing was put and a variable has no _FillValue"""
DIMENSIONS, VARIABLES, ATTRIBUTES = 10, 11, 12
"""the tags of the three lists"""


@dataclass(frozen=True, slots=True)
class Variable:
    """One variable: what it is and where it lies."""

    name: str
    dims: tuple[str, ...]
    shape: Key
    dtype: np.dtype[Any]
    attributes: Attributes
    begin: int
    """byte of the first element"""
    nbytes: int
    """bytes of one record, without padding; of all elements for a variable without record dimension"""
    stride: int | None
    """bytes from one record to the next; None without record dimension"""

    @property
    def group(self) -> str:
        """Netcdf-3 has the root group only."""
        return ""

    @property
    def pieces(self) -> int:
        """How many runs of ``nbytes`` there are, ``stride`` apart: the records, or one."""
        return 1 if self.stride is None else self.shape[0]

    @property
    def contiguous(self) -> bool:
        """Whether all elements are one run of bytes."""
        return self.stride is None or self.stride == self.nbytes

    @property
    def end(self) -> int:
        """One past the last byte."""
        return self.begin + max(0, self.pieces - 1) * (self.stride or 0) + self.nbytes

    @property
    def fill(self) -> np.generic:
        """What elements never written read as: ``_FillValue`` if it has the variable's type, or netCDF's."""
        value, kind = (part.get("_FillValue") for part in self.attributes)
        if self.dtype.kind == "S":
            text = value if isinstance(value, str) and len(value) == 1 else ""
            return np.bytes_(text.encode("latin-1"))
        default: np.generic = np.array([FILLS[self.dtype.str]], self.dtype)[0]
        if kind is None or isinstance(value, list) or kind != self.dtype.newbyteorder("<").str:
            return default
        declared: np.generic = attr_value(value, self.dtype.str)
        return declared


@dataclass(frozen=True, slots=True)
class Header:
    """What a netCDF-3 file says of itself."""

    variables: dict[str, Variable]
    root: Attributes
    end: int
    """bytes of the header"""


def header(seen: Seen) -> Header:
    """The header of an open file; ByteRefsError if it is not one of netCDF-3."""
    magic = seen.read(0, min(4, seen.size))
    if magic not in MAGICS:
        raise ByteRefsError(
            f"its first bytes {magic!r} are not those of netCDF-3 (CDF-1, -2 or -5)"
        )
    return _Parser(seen, MAGICS[magic]).header()


def _text(raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw.decode("latin-1")


class _Parser:
    """Reads the grammar front to back; every count is held against the bytes that are left."""

    def __init__(self, seen: Seen, version: int) -> None:
        self.seen, self.version = seen, version
        self.wide = 8 if version == 5 else 4
        self.file = seen.file
        self.file.seek(4)

    def header(self) -> Header:
        count = self.number(self.wide)
        records = None if count == 256**self.wide - 1 else count  # all ones: a stream
        dimensions = [(self.name(), self.number(self.wide)) for _ in self.each(DIMENSIONS)]
        if sum(not n for _, n in dimensions) > 1:
            raise ByteRefsError("its header has two record dimensions, netCDF-3 has one")
        root = self.attributes()
        found = [self.variable(dimensions) for _ in self.each(VARIABLES)]
        variables = _records(found, records, self.seen.size)
        _refuse_overlap(variables)
        named = {v.name: v for v in variables}
        if len(named) < len(variables):
            raise ByteRefsError("its header has two variables of one name")
        return Header(named, root, self.file.tell())

    def take(self, size: int) -> bytes:
        at = self.file.tell()
        if size > self.seen.size - at:
            raise ByteRefsError(
                f"its netCDF-3 header wants {size} bytes at byte {at} of {self.seen.size}: the file "
                "is truncated or damaged"
            )
        return self.file.read(size)

    def number(self, width: int = 4) -> int:
        return int.from_bytes(self.take(width), "big")

    def padded(self, size: int) -> bytes:
        """``size`` bytes; what fills them up to a multiple of four is passed over unread."""
        return self.take(size + -size % 4)[:size]

    def name(self) -> str:
        # netCDF-C reads names as C strings: nctest_classic.nc has a variable "yy\0"
        return _text(self.padded(self.number(self.wide)).partition(b"\0")[0])

    def each(self, tag: int) -> Iterator[int]:
        """The numbers of the items of a list."""
        at = self.file.tell()
        found, count = self.number(), self.number(self.wide)
        if found != tag and (found or count):
            raise ByteRefsError(
                f"its header has tag {found} at byte {at}, where netCDF-3 has {tag}"
            )
        yield from range(count)

    def dtype(self) -> np.dtype[Any]:
        number = self.number()
        if not 1 <= number <= (len(TYPES) if self.version == 5 else CLASSIC):
            raise ByteRefsError(f"its header has type {number}, which CDF-{self.version} lacks")
        return np.dtype(TYPES[number - 1])

    def attributes(self) -> Attributes:
        values: dict[str, Any] = {}
        dtypes: dict[str, str] = {}
        for _ in self.each(ATTRIBUTES):
            name = self.name()
            values[name], dtypes[name] = self.attribute()
        return values, dtypes

    def attribute(self) -> tuple[Any, str]:
        dtype = self.dtype()
        raw = self.padded(self.number(self.wide) * dtype.itemsize)
        if dtype.kind == "S":
            return attr_json(raw.rstrip(b"\0"))
        return attr_json(np.frombuffer(raw, dtype).astype(dtype.newbyteorder("<")))

    def variable(self, dimensions: list[tuple[str, int]]) -> Variable:
        """A variable before the records are counted: the length of the record dimension is 0."""
        name = self.name()
        ids = [self.number(self.wide) for _ in range(self.count())]
        if any(i >= len(dimensions) for i in ids):
            raise ByteRefsError(
                f"its variable {name} is on dimension {max(ids)} of {len(dimensions)}"
            )
        attributes = self.attributes()
        dtype = self.dtype()
        self.take(self.wide)  # vsize: redundant, and wrong for variables of 4 GiB and more
        begin = int.from_bytes(self.take(4 if self.version == 1 else 8), "big", signed=True)
        dims = tuple(dimensions[i][0] for i in ids)
        shape = tuple(dimensions[i][1] for i in ids)
        if 0 in shape[1:]:
            raise ByteRefsError(
                f"its variable {name} has the record dimension at another place than first"
            )
        record = shape[:1] == (0,)
        nbytes = math.prod(shape[1:] if record else shape) * dtype.itemsize
        return Variable(name, dims, shape, dtype, attributes, begin, nbytes, 0 if record else None)

    def count(self) -> int:
        """A number of things of which each takes ``wide`` bytes."""
        count = self.number(self.wide)
        if count * self.wide > self.seen.size:
            raise ByteRefsError(f"its header counts {count} dimensions of one variable")
        return count


def _records(found: list[Variable], records: int | None, size: int) -> list[Variable]:
    """The variables with their record stride and the number of records."""
    running = [v for v in found if v.stride is not None]
    padded = [v.nbytes + -v.nbytes % 4 for v in running]
    # netCDF pads each variable of a record to four bytes, unless it is the only one
    stride = sum(padded) if len(running) != 1 else running[0].nbytes
    if records is None:
        whole = [(size - v.begin - v.nbytes) // stride + 1 for v in running]
        records = max(0, min(whole, default=0))
    return [
        v if v.stride is None else replace(v, shape=(records, *v.shape[1:]), stride=stride)
        for v in found
    ]


def _refuse_overlap(variables: list[Variable]) -> None:
    """ByteRefsError if two variables share bytes: the header is damaged, and netCDF-C refuses it too."""
    there = sorted((v for v in variables if v.pieces and v.nbytes), key=lambda v: v.begin)
    for one, two in pairwise(there):
        if two.begin < one.begin + one.nbytes:
            raise ByteRefsError(
                f"its variables {one.name} and {two.name} both hold byte {two.begin}: the header is "
                "damaged"
            )
    running = [v for v in there if v.stride is not None]
    if running and running[-1].begin + running[-1].nbytes > running[0].begin + (
        running[0].stride or 0
    ):
        raise ByteRefsError(
            f"its record variables lie in {running[-1].begin + running[-1].nbytes - running[0].begin} "
            f"bytes and its records are {running[0].stride} apart: the header is damaged"
        )
