"""What a granule holds, read by somebody else: GDAL, or the library that the granule's writer used.

Values come as they are stored (packed, not masked). The netCDF driver is asked first, the HDF5
driver where netCDF cannot, GTiff where neither can, h5py where GDAL cannot (netCDF4 for CDF-5), ecCodes for GRIB,
zarr for a Zarr store; who answered is counted and never silent.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from math import prod
from typing import Any, NamedTuple

import h5py
import numpy as np
from numpy.typing import NDArray
from osgeo import gdal

from byterefs.access import hdf5_plugins, ranges, vsi
from byterefs.errors import RangeError, VerifyError
from byterefs.proving import cdf5, stores
from byterefs.proving.fields import At, Fields
from byterefs.proving.pixels import Pixels
from byterefs.proving.slab import Slab
from byterefs.urls import is_local, to_gdal, to_path

DRIVERS = ("netCDF", "HDF5")
NUMPY = {
    "Byte": "u1",
    "Int8": "i1",
    "UInt16": "u2",
    "Int16": "i2",
    "UInt32": "u4",
    "Int32": "i4",
    "UInt64": "u8",
    "Int64": "i8",
    "Float16": "f2",
    "Float32": "f4",
    "Float64": "f8",
    "CFloat32": "c8",
    "CFloat64": "c16",
}
"""GDAL's numeric types as numpy's"""
OPEN_FILES = 16
"""handles that are kept open at a time, per driver"""
OPEN_ARRAYS = 64


class Block(NamedTuple):
    """A byte range as GDAL's ``GetRawBlockInfo`` gives it."""

    path: str
    offset: int
    size: int
    whole_of: tuple[int, ...] | None
    """shape of the array where GDAL has it as one run of bytes (contiguous), whatever the key"""


class Answer(NamedTuple):
    """Stored values in native byte order, and who read them: netCDF, HDF5, GTiff, ecCodes, zarr, netCDF4 or h5py."""

    values: NDArray[Any]
    by: str


class Oracle:
    """Reads source files; close it, or use it in ``with``.

    A handle stays open for a while, so a file that is rewritten meanwhile needs a new Oracle.
    """

    def __init__(self) -> None:
        gdal.UseExceptions()
        hdf5_plugins.offer()
        vsi.forget()
        self._open = lru_cache(maxsize=OPEN_FILES * len(DRIVERS))(open_group)
        self._array = lru_cache(maxsize=OPEN_ARRAYS)(self._open_array)
        self._plan = lru_cache(maxsize=1)(open_group)
        self._pixels, self._fields = Pixels(), Fields()
        self.values: Counter[str] = Counter()
        """values read, by who read them"""
        self.reasons: dict[str, str] = {}
        """array -> why GDAL could not read it, the first time that h5py or netCDF4 had to"""

    def __enter__(self) -> Oracle:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close every file."""
        for cache in (self._array, self._open, self._plan):
            cache.cache_clear()
        self._pixels.close()
        self._fields.close()

    def read(
        self,
        source: str,
        array: str,
        start: Sequence[int],
        count: Sequence[int],
        dtype: str,
        at: At | None = None,
    ) -> Answer:
        """Stored values of a slab. Raises VerifyError, naming all reasons, if nobody can read it.

        ``at`` are the dataset's coordinates there, by which a field of GRIB is looked for.
        """
        slab = Slab.of(source, array, start, count, dtype)
        if is_grib(source):
            return self._answer(slab, self._fields.read(slab, at or {}), "ecCodes", "ecCodes")
        if stores.place(source):
            return self._answer(slab, stores.read(slab), "zarr", "zarr")
        if not prod(count):
            return Answer(np.empty(tuple(count), slab.dtype), DRIVERS[0])
        reasons = []
        for driver in DRIVERS:
            found = self._gdal(slab, driver)
            if not isinstance(found, str):
                self.values[driver] += found.size
                return Answer(found, driver)
            reasons.append(f"{driver}: {found}")
        with gdal.quiet_errors():
            found = self._pixels.read(slab)
        if not isinstance(found, str):
            self.values["GTiff"] += found.size
            return Answer(found, "GTiff")
        reasons.append(f"GTiff: {found}")
        by, found = (
            ("netCDF4", cdf5.read(slab)) if cdf5.is_one(source) else ("h5py", self._h5py(slab))
        )
        if isinstance(found, str):
            found = "; ".join([*reasons, f"{by}: {found}"])
        answer = self._answer(slab, found, by, f"GDAL nor by {by}")
        self.reasons.setdefault(array, "; ".join(reasons))
        return answer

    def _answer(self, slab: Slab, found: NDArray[Any] | str, by: str, asked: str) -> Answer:
        """What the last one that was asked has read; VerifyError with its reason if it read nothing."""
        if isinstance(found, str):
            raise VerifyError(
                f"{slab.source}: array {slab.array!r} cannot be read by {asked} ({found}), so its bytes cannot be proven; "
                f"leave it out with scan.arrays, or the source with source.pattern"
            )
        self.values[by] += found.size
        return Answer(found, by)

    def _gdal(self, slab: Slab, driver: str) -> NDArray[Any] | str:
        with gdal.quiet_errors():
            found = self.array(slab.source, slab.array, driver)
            if isinstance(found, str):
                return found
            reason = unlike(found, slab.dtype)
            if reason:
                return reason
            try:
                own = slab.of_rank(found.GetDimensionCount())
                data = found.Read(list(own.start), list(own.count)) if own.count else found.Read()
            except RuntimeError as error:
                return words(error)
            if data is None:  # GDAL 3.13, for a filter that its HDF5 does not have
                return gdal.GetLastErrorMsg() or "it reads nothing and does not say why"
        return np.frombuffer(bytes(data), slab.dtype).reshape(list(slab.count))

    def _h5py(self, slab: Slab) -> NDArray[Any] | str:
        wanted = slab.dtype
        try:
            with opened_h5py(slab.source) as f:
                found = f[slab.array]
                own = slab.of_rank(found.ndim) if isinstance(found, h5py.Dataset) else slab
                values = np.asarray(found[own.window])
                values = values if own is slab else values[np.newaxis]
        except (OSError, RangeError, KeyError, TypeError, ValueError) as error:
            return words(error)
        if values.dtype.kind == "O" and wanted.kind == "S":
            raw = [x if isinstance(x, bytes) else str(x).encode() for x in values.ravel()]
            if max(map(len, raw), default=0) <= wanted.itemsize:
                return np.array(raw, wanted).reshape(values.shape)
        if wanted.kind == "V" and not values.dtype.hasobject:
            # fields in their places and byte order, or arrays as elements: the stored bytes
            raw_bytes = np.ascontiguousarray(values).tobytes()
            if len(raw_bytes) == prod(slab.count) * wanted.itemsize:
                return np.frombuffer(raw_bytes, wanted).reshape(tuple(slab.count))
        if values.dtype.newbyteorder("=") != wanted:
            return f"dtype {values.dtype.str}, not {wanted.str}"
        return native(values)

    def array(self, source: str, array: str, driver: str) -> Any:
        """GDAL's ``MDArray`` by one driver, or the reason why there is none."""
        return self._array(source, array, driver)

    def _open_array(self, source: str, array: str, driver: str) -> Any:
        return open_array(self._open(vsi.name(source), driver), array)

    def exists(self, source: str, array: str) -> bool:
        """Whether GDAL, or of GRIB ecCodes, sees an array of this name in a source."""
        if is_grib(source):
            return self._fields.exists(source, array)
        if stores.place(source):
            return stores.exists(source, array)
        with gdal.quiet_errors():
            seen = any(not isinstance(self.array(source, array, d), str) for d in DRIVERS)
            seen = seen or self._pixels.exists(source, array)
        return seen or (cdf5.is_one(source) and cdf5.exists(source, array))

    def text(self, source: str, array: str, attribute: str) -> str | None:
        """A text attribute of a source's array (``units``, ``calendar``) as GDAL gives it; None without one."""
        with gdal.quiet_errors():
            for driver in DRIVERS:
                found = self.array(source, array, driver)
                if isinstance(found, str):
                    continue
                if attribute == "units" and found.GetUnit():
                    return str(found.GetUnit())
                names = [a.GetName() for a in found.GetAttributes()]
                if attribute in names:
                    return str(found.GetAttribute(attribute).ReadAsString())
        return cdf5.text(source, array, attribute) if cdf5.is_one(source) else None

    def block(
        self, source: str, array: str, key: Sequence[int], chunks: Sequence[int] = ()
    ) -> Block | str:
        """GDAL's byte range of a chunk of a source, which may be several of its own, or why GDAL gives none."""
        reason = "no driver"
        with gdal.quiet_errors():
            for driver in DRIVERS:
                found = self.array(source, array, driver)
                answer = found if isinstance(found, str) else chunk_block(found, key, chunks)
                if isinstance(answer, Block):
                    return answer
                reason = answer
            pixels = self._pixels.block(source, array, key)
        return reason if isinstance(pixels, str) else Block(to_gdal(source), *pixels, None)

    def planned(self, vrt: str, array: str, key: Sequence[int]) -> Block | str:
        """GDAL's byte range of a chunk of a whole dataset, through the text of its VRT."""
        with gdal.quiet_errors():
            found = open_array(self._plan(vrt, "VRT"), array)
            return found if isinstance(found, str) else raw_block(found, key)


@contextmanager
def opened_h5py(source: str) -> Iterator[h5py.File]:
    """A source as h5py reads it, by ranges where it does not lie on this machine."""
    if is_local(source):
        with h5py.File(to_path(source), "r") as f:
            yield f
        return
    with ranges.opened(source) as found, found.file() as file, h5py.File(file, "r") as f:
        yield f


@lru_cache(maxsize=1024)
def is_grib(source: str) -> bool:
    """Whether a source begins as GRIB does, or as a bulletin with it."""
    with ranges.opened(source) as found:
        return b"GRIB" in found.read(0, min(128, found.size))


def open_group(path: str, driver: str) -> Any:
    """``(dataset, root group)``, or the reason why GDAL cannot open the path with this driver."""
    try:
        # elsewhere each name of a side file would be a request
        alone: dict[str, Any] = {"sibling_files": []} if path.startswith("/vsi") else {}
        dataset = gdal.OpenEx(path, gdal.OF_MULTIDIM_RASTER, allowed_drivers=[driver], **alone)
        return (dataset, dataset.GetRootGroup())
    except RuntimeError as error:
        return words(error)


def open_array(group: Any, array: str) -> Any:
    """GDAL's ``MDArray`` in an open group, or the reason why there is none."""
    if isinstance(group, str):
        return group
    try:
        return group[1].OpenMDArrayFromFullname("/" + array) or f"no array {array!r}"
    except RuntimeError as error:
        return words(error)


def raw_block(array: Any, key: Sequence[int]) -> Block | str:
    """``GetRawBlockInfo`` of an open array, or why there is none (research/peers.md 0.4, 0.6, 0.10)."""
    sizes = array.GetBlockSize()
    whole = bool(sizes) and not any(sizes)
    try:
        found = array.GetRawBlockInfo([0] * len(key) if whole else list(key))
    except RuntimeError as error:
        return words(error)
    if found is None:
        return "GetRawBlockInfo gives nothing"
    if not found.GetFilename():
        return "inline"
    shape = shape_of(array) if whole else None
    # GDAL 3.13's netCDF driver has other lengths for axes without scale beside others with one
    if shape and found.GetSize() != prod(shape) * array.GetDataType().GetSize():
        return "its lengths are not those of its bytes"
    return Block(found.GetFilename(), found.GetOffset(), found.GetSize(), shape)


def chunk_block(array: Any, key: Sequence[int], chunks: Sequence[int]) -> Block | str:
    """The range of a chunk of these lengths: GDAL's own block, or the run of its blocks that it joins."""
    try:
        shape, sizes = shape_of(array), tuple(array.GetBlockSize())
    except RuntimeError as error:  # GDAL 3.13's netCDF driver, of axes that it has not
        return words(error)
    new = len(shape) == len(key) - 1  # only the name of the source says the first axis
    if new:
        key, chunks = key[1:], chunks[1:]
    if not chunks or not sizes or not all(sizes) or sizes == tuple(chunks):
        found = raw_block(array, key)
        if new and isinstance(found, Block) and found.whole_of:
            return found._replace(whole_of=(1, *found.whole_of))
        return found
    starts = [k * c for k, c in zip(key, chunks, strict=True)]
    ends = [min(s + c, n) - 1 for s, c, n in zip(starts, chunks, shape, strict=True)]
    first, last = (
        raw_block(array, [x // n for x, n in zip(at, sizes, strict=True)]) for at in (starts, ends)
    )
    if isinstance(first, str) or isinstance(last, str):
        return first if isinstance(first, str) else last
    return first._replace(size=last.offset + last.size - first.offset)


def unlike(array: Any, wanted: np.dtype[Any]) -> str | None:
    """Why GDAL's type of an array is not ``wanted``; None if its buffer has the very bits.

    Single bytes are the same bits whether they are called text, flag, signed or unsigned.
    """
    if wanted.kind == "V":  # asking GDAL 3.13 for the type of opaque elements raises
        return f"GDAL has no number type for {wanted.str}"
    # reading a float16 by the netCDF driver of GDAL 3.13.3 kills the process: it poses as a string
    if array.GetDataType().GetClass() != gdal.GEDTC_NUMERIC:
        return f"GDAL has no number type for {wanted.str}"
    name = gdal.GetDataTypeName(array.GetDataType().GetNumericDataType())
    if NUMPY.get(name) == wanted.str[1:] or (
        wanted.itemsize == 1 and NUMPY.get(name) in ("u1", "i1")
    ):
        return None
    return f"GDAL reads {name} where the source has {wanted.str}"


def shape_of(array: Any) -> tuple[int, ...]:
    """Shape of GDAL's ``MDArray``."""
    return tuple(d.GetSize() for d in array.GetDimensions())


def native(values: NDArray[Any]) -> NDArray[Any]:
    """The same values, C-contiguous and in native byte order; bytes are swapped, never converted."""
    return np.ascontiguousarray(values.astype(values.dtype.newbyteorder("="))).reshape(values.shape)


def words(error: BaseException) -> str:
    """An error's message on one line."""
    return " ".join(str(error).split())
