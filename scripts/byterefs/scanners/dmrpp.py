"""DMR++: what a sidecar says of where the chunks of a data file lie.

The source is the data file, as a provider lists it; the sidecar ``<source>.dmrpp`` (or the source's name
with ``.dmrpp`` for its suffix) lies beside it. Coordinates that the sidecar only references are read from
the data file by byte range. An array has the path that it has in the file: a sidecar in CF's manner spells
``Data Fields`` as ``Data_Fields``, and no other reader of the file knows that. Where HDF5 can open the data file, the first and the last chunk of
each array are compared with it: a sidecar that was made for another version of the file is refused.
"""

from __future__ import annotations

import math
import posixpath
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, BinaryIO
from xml.etree.ElementTree import Element

import h5py
import numpy as np

from byterefs import codecs, literals
from byterefs.access import ranges
from byterefs.errors import AbsentError, ByteRefsError, RangeError, ScanError
from byterefs.model import ArrayMeta, Source, SourceArray, SourceScan
from byterefs.scanners._common import (
    KEPT,
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
from byterefs.scanners._dmrpp_check import agree, as_in_file, structure, truth
from byterefs.scanners._dmrpp_chunks import Located, locate
from byterefs.scanners._dmrpp_held import strings
from byterefs.scanners._dmrpp_tree import Variable, attributes, parse, variables
from byterefs.scanners._recorded import recorded, together
from byterefs.scanners._roles import Roles

NAMESPACE = b"xml.opendap.org/dap/dmrpp"
HEAD = 4096
"""bytes: the namespace of a sidecar is declared within them"""


def recognises(file: BinaryIO) -> bool:
    """Whether the file is a sidecar itself; a data file beside one has a format of its own."""
    return NAMESPACE in file.read(HEAD)


def scan(
    source: Source, *, arrays: Sequence[str] = (), concat: str | None = None, split: bool = True
) -> SourceScan:
    """The wanted arrays that the sidecar beside a data file describes; see :func:`byterefs.scanners.scan`.

    Raises ScanError for a source without sidecar, and for a source that is a sidecar itself.
    """
    with opened(source.source) as seen, truth(source.source, seen) as file:
        _refuse_sidecar(source.source, seen)
        root = _sidecar(source.source)
        there = as_in_file(file, variables(root))
        chosen = wanted(source.source, there, arrays)
        roles = Roles(there, chosen, lambda v: v.attributes)
        look = _Look(seen, file, source.source.rpartition("/")[2], dimension(concat, there), split)
        items = {
            name: recorded(
                source.source,
                name,
                name in chosen,
                partial(look.at, there[name], name in roles.coordinates),
            )
            for name in sorted(roles.attributes)
        }
    return together(source, seen, items, attributes(root))


def _refuse_sidecar(source: str, seen: Seen) -> None:
    if NAMESPACE in seen.read(0, min(HEAD, seen.size)):
        raise ScanError(
            f"{source}: it is a DMR++ sidecar; list the data file that it describes (source.pattern), "
            "with the sidecar beside it, and say scan: {format: dmrpp}"
        )


def _sidecar(source: str) -> Element:
    """The sidecar of a data file."""
    places = [f"{source}.dmrpp", posixpath.splitext(source)[0] + ".dmrpp"]
    for place in places:
        try:
            with ranges.opened(place) as found:
                raw = found.read(0, found.size)
        except AbsentError:
            continue
        except RangeError as error:
            raise unreadable(source, place, error) from error
        try:
            return parse(raw)
        except ByteRefsError as error:
            raise unreadable(source, place, error) from error
    raise ScanError(
        f"{source}: it has no DMR++ sidecar {posixpath.basename(places[0])} beside it; fetch it, or scan the "
        "file itself (scan.format: auto)"
    )


def unreadable(source: str, place: str, error: Exception) -> ScanError:
    """The refusal of a sidecar that is there."""
    return ScanError(
        f"{source}: its DMR++ sidecar {posixpath.basename(place)} cannot be read: {error}; fetch it again, or "
        "scan the file itself (scan.format: auto)"
    )


@dataclass(frozen=True, slots=True)
class _Look:
    """What every variable of one sidecar is looked at with."""

    seen: Seen
    file: h5py.File | None
    data: str
    """the name of the data file"""
    concat: str | None
    split: bool

    def at(self, variable: Variable, coordinate: bool) -> SourceArray:
        """The record of one variable; Unsupported if the sidecar cannot be followed."""
        if variable.text and not variable.problem and not variable.string_length:
            return _text(variable)
        dtype = self._dtype(variable)
        nbytes = math.prod(variable.shape) * dtype.itemsize
        keep, sum_up = keeps(variable, nbytes, coordinate, self.concat)
        cut = leading(variable.dims, self.concat, variable.shape, dtype.itemsize)
        steps = cut if self.split else 0
        located = locate(variable, dtype, steps=steps, data=self.data, end=self.seen.size)
        if self.file is not None:
            agree(self.file, variable, dtype, located)
        meta = _meta(variable, dtype.str, located)
        if sum_up and large(nbytes):
            summed = in_bands(located.found, meta, self.seen.read)
            return record(meta, located.found, None, keep, summed)
        kept = decoded(located.found, meta, self.seen.read) if sum_up else None
        return record(meta, located.found if variable.shape else None, kept, keep)

    def _dtype(self, variable: Variable) -> np.dtype[Any]:
        """The dtype of the stored bytes; of a structure, whose padding a sidecar leaves out, as HDF5 has it."""
        if variable.element.tag == "Structure" and not variable.problem:
            return structure(self.file, variable) or variable.structure()
        return variable.dtype()


def _text(variable: Variable) -> SourceArray:
    """Strings of any length: by value only."""
    kept = strings(variable)
    if kept.nbytes > KEPT:
        raise Unsupported(
            f"{kept.size} strings of {kept.itemsize} bytes are too many to keep by value"
        )
    return record(_meta(variable, kept.dtype.str, None), None, kept, keep=True)


def _meta(variable: Variable, dtype: str, located: Located | None) -> ArrayMeta:
    attrs, dtypes = variable.attributes
    codec = located.codec if located else codecs.PLAIN
    chunked = located is not None and bool(variable.shape)
    return ArrayMeta(
        array=variable.name,
        dims=variable.dims,
        shape=variable.shape,
        chunks=located.found.chunks if located else tuple(max(1, n) for n in variable.shape),
        dtype=dtype,
        fill=literals.fill_text(located.fill) if located else None,
        codec=codec,
        info=codecs.info(codec, dtype),
        attrs=attrs,
        attr_dtypes=dtypes,
        layout=located.found.layout if located and chunked else "values",
    )
