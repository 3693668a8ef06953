"""NetCDF-3 (CDF-1, CDF-2, CDF-5): where the bytes of every wanted array lie, and the small arrays by value.

Nothing is compressed. A variable on the record dimension is keyed by record: the records of several
variables alternate in the file, so that such a variable is no run of bytes, whatever ``split`` says. Any
other variable is one chunk, or one chunk per step of the concat axis where that is its first.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from byterefs import codecs, literals
from byterefs.errors import ByteRefsError, ScanError
from byterefs.model import ArrayMeta, Source, SourceArray, SourceScan
from byterefs.scanners._common import (
    Chunks,
    Seen,
    Unsupported,
    dimension,
    grid_of,
    in_bands,
    keeps,
    large,
    leading,
    opened,
    record,
    run,
    stepped,
    wanted,
)
from byterefs.scanners._netcdf3_header import MAGICS, Header, Variable, header
from byterefs.scanners._recorded import recorded, together
from byterefs.scanners._roles import Roles


def recognises(file: BinaryIO) -> bool:
    """Whether the file starts as CDF-1, CDF-2 or CDF-5 does."""
    return file.read(4) in MAGICS


def scan(
    source: Source, *, arrays: Sequence[str] = (), concat: str | None = None, split: bool = True
) -> SourceScan:
    """The wanted arrays of one netCDF-3 file; see :func:`byterefs.scanners.scan`."""
    with opened(source.source) as seen:
        found = _header(source.source, seen)
        chosen = wanted(source.source, found.variables, arrays)
        roles = Roles(found.variables, chosen, lambda v: v.attributes)
        look = _Look(seen, found.end, dimension(concat, found.variables), split)
        there = found.variables
        items = {
            name: recorded(
                source.source,
                name,
                name in chosen,
                partial(look.at, there[name], name in roles.coordinates),
            )
            for name in sorted(roles.attributes)
        }
    return together(source, seen, items, found.root)


def _header(source: str, seen: Seen) -> Header:
    try:
        return header(seen)
    except ByteRefsError as error:
        raise ScanError(
            f"{source}: {error}; fetch it again, name its format in scan.format or set scan: "
            "{on_error: skip}"
        ) from error


@dataclass(frozen=True, slots=True)
class _Look:
    """What every variable of one file is looked at with."""

    seen: Seen
    header: int
    """bytes of the header"""
    concat: str | None
    split: bool

    def at(self, variable: Variable, coordinate: bool) -> SourceArray:
        """The record of one variable; Unsupported if its bytes cannot lie where the header says."""
        self._refuse_outside(variable)
        nbytes = math.prod(variable.shape) * variable.dtype.itemsize
        keep, sum_up = keeps(variable, nbytes, coordinate, self.concat)
        found = self._chunks(variable) if variable.shape else None
        meta = _meta(variable, found)
        if sum_up and large(nbytes) and found is not None:
            return record(meta, found, None, keep, in_bands(found, meta, self.seen.read))
        kept = self._values(variable) if sum_up else None
        return record(meta, found, kept, keep)

    def _refuse_outside(self, v: Variable) -> None:
        if not v.pieces or not v.nbytes:
            return
        if v.begin < self.header:
            raise Unsupported(
                f"it begins at byte {v.begin}, inside the header of {self.header} bytes: the file is "
                "damaged",
                "fetch it again",
            )
        if v.end > self.seen.size:
            raise Unsupported(
                f"it ends at byte {v.end} of a file of {self.seen.size}: the file is truncated",
                "fetch it again",
            )

    def _chunks(self, v: Variable) -> Chunks:
        steps = leading(v.dims, self.concat, v.shape, v.dtype.itemsize) if self.split else 0
        if v.contiguous:
            return run(v.shape, v.dtype.itemsize, v.begin, steps=steps)
        chunks = stepped(v.shape, 1)
        grid = grid_of(v.shape, chunks)
        offset = v.begin + (v.stride or 0) * np.arange(v.pieces, dtype=np.int64).reshape(grid)
        return Chunks("chunked", chunks, offset, np.full(grid, v.nbytes, np.int64))

    def _values(self, v: Variable) -> NDArray[Any]:
        """All elements as stored."""
        if v.contiguous:
            raw = self.seen.read(v.begin, v.nbytes * v.pieces)
        else:
            at = range(v.begin, v.end, v.stride or 1) if v.pieces else ()
            raw = b"".join(self.seen.ranges.read_many([(offset, v.nbytes) for offset in at]))
        return np.frombuffer(raw, v.dtype).reshape(v.shape)


def _meta(variable: Variable, found: Chunks | None) -> ArrayMeta:
    attrs, dtypes = variable.attributes
    return ArrayMeta(
        array=variable.name,
        dims=variable.dims,
        shape=variable.shape,
        chunks=found.chunks if found else (),
        dtype=variable.dtype.str,
        fill=literals.fill_text(variable.fill),
        codec=codecs.PLAIN,
        info=codecs.info(codecs.PLAIN, variable.dtype.str),
        attrs=attrs,
        attr_dtypes=dtypes,
        layout=found.layout if found else "values",
    )
