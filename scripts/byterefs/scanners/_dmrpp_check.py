"""Whether a sidecar is of the data file that lies beside it, as far as HDF5 can say cheaply.

A sidecar carries no checksum. BES's own test data has one (FletcherShuffle.nc4) that is forty bytes off, and gives the
filters in another order than the file.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import h5py
import numpy as np
from h5py import h5d, h5o

from byterefs import codecs
from byterefs.errors import RangeError, ScanError
from byterefs.model import ABSENT
from byterefs.scanners._common import Seen, Unsupported
from byterefs.scanners._dmrpp_chunks import Located
from byterefs.scanners._dmrpp_held import REBUILD
from byterefs.scanners._dmrpp_tree import Variable
from byterefs.scanners._hdf5_chunks import refuse_exchanged
from byterefs.scanners._hdf5_tree import NOT_COORDINATE, hdf5_file
from byterefs.scanners._hdf5_types import stored_dtype, values

SIGNATURE = b"\x89HDF\r\n\x1a\n"


@contextmanager
def truth(source: str, seen: Seen) -> Iterator[h5py.File | None]:
    """The data file as HDF5 reads it; None if it is of another format (HDF4, say) or has a user block."""
    if seen.read(0, min(len(SIGNATURE), seen.size)) != SIGNATURE:
        yield None
        return
    try:
        with hdf5_file(source, seen) as file:
            yield file
    except (OSError, RuntimeError, RangeError) as error:
        raise ScanError(
            f"{source}: HDF5 cannot read it ({error}), so its sidecar cannot be trusted; fetch it again, "
            "leave it out with source.pattern or set scan: {on_error: skip}"
        ) from error


def agree(file: h5py.File, variable: Variable, dtype: np.dtype[Any], located: Located) -> None:
    """Raise Unsupported unless HDF5 puts the first and the last chunk of a variable where the sidecar does.

    Compared are dtype, chunk shape, filters, and offset and size of those two; values that the sidecar
    holds itself are compared whole where HDF5 has the array.
    """
    dsid = _dataset(file, variable)
    found = located.found
    present = np.argwhere(found.offset != ABSENT)
    if dsid is None:
        if len(present):
            raise Unsupported("HDF5 has no such array, the sidecar has bytes of it", REBUILD)
        return
    if found.data or len(present):
        _differ("type", dtype.str, stored_dtype(dsid.get_type()).str)
    if found.data and dsid.shape == variable.shape:
        held = b"".join(found.data[key] for key in np.ndindex(found.offset.shape))
        theirs = values(dsid, dsid.get_create_plist(), dtype, variable.shape).tobytes()
        _differ("values", _short(held), _short(theirs), equal=held == theirs)
    for key in sorted({tuple(at.tolist()) for at in present[[0, -1]]}) if len(present) else ():
        _same_chunk(dsid, located, key, dtype)


def structure(file: h5py.File | None, variable: Variable) -> np.dtype[Any] | None:
    """The bytes of a structure's elements as HDF5 has them; None where HDF5 cannot say."""
    dsid = None if file is None else _dataset(file, variable)
    return None if dsid is None else stored_dtype(dsid.get_type())


def as_in_file(file: h5py.File | None, there: Mapping[str, Variable]) -> dict[str, Variable]:
    """The variables by path, each that HDF5 knows by the path that the builder noted, and only by that, by that one."""
    found = {}
    for variable in there.values():
        path = next(iter(noted(variable)), variable.name)
        if file is not None and not _is_dataset(file, variable.name) and _is_dataset(file, path):
            variable = replace(variable, name=path, group=path.rpartition("/")[0])
        found[variable.name] = variable
    return found


def noted(variable: Variable) -> list[str]:
    """The path in the file as the sidecar's builder noted it, where it did."""
    value = variable.element.find("Attribute[@name='fullnamepath']/Value")
    return [value.text.lstrip("/")] if value is not None and value.text else []


def _is_dataset(file: h5py.File, path: str) -> bool:
    return file.get(path, getclass=True) is h5py.Dataset


def _dataset(file: h5py.File, variable: Variable) -> h5d.DatasetID | None:
    """The array of HDF5: by the path that the sidecar's builder noted, or by its name."""
    short = variable.name.rpartition("/")[2]
    paths = [variable.name, f"{variable.group}/{NOT_COORDINATE}{short}".lstrip("/")]
    for path in [*noted(variable), *paths]:
        if _is_dataset(file, path):
            found = h5o.open(file.id, path.encode())
            return found if isinstance(found, h5d.DatasetID) else None
    return None


def _same_chunk(
    dsid: h5d.DatasetID, located: Located, key: tuple[int, ...], dtype: np.dtype[Any]
) -> None:
    dcpl = dsid.get_create_plist()
    ours = int(located.found.offset[key]), int(located.found.size[key])
    if dcpl.get_layout() != h5d.CHUNKED:
        steps = int(np.ravel_multi_index(key, located.found.offset.shape)) if key else 0
        start = dsid.get_offset()
        _differ("offset", ours[0], None if start is None else start + steps * ours[1])
        return
    if math.prod(located.found.offset.shape) > 1:
        refuse_exchanged(dsid)  # who wrote the sidecar asked HDF5 too
    chunks = tuple(int(n) for n in dcpl.get_chunk())
    _differ("chunk shape", list(located.found.chunks), list(chunks))
    pipeline = [dcpl.get_filter(i) for i in range(dcpl.get_nfilters())]
    codec = codecs.hdf5_codec(pipeline, dtype.str)
    same = codecs.same(codec, located.codec)
    _differ("filters", _words(located.codec), _words(codec), equal=same)
    chunk = dsid.get_chunk_info_by_coord(tuple(k * c for k, c in zip(key, chunks, strict=True)))
    _differ(f"range of chunk {list(key)}", ours, (chunk.byte_offset, chunk.size))


def _words(codec: dict[str, Any]) -> str:
    return " ".join(str(c["id"]) for c in codecs.pipeline(codec)) or "none"


def _short(raw: bytes) -> str:
    return raw[:16].hex()


def _differ(what: str, sidecar: object, hdf5: object, *, equal: bool | None = None) -> None:
    if not (sidecar == hdf5 if equal is None else equal):
        raise Unsupported(
            f"the sidecar gives its {what} as {sidecar}, HDF5 as {hdf5}: it is of another version of the file",
            REBUILD,
        )
