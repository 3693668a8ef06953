"""The oracles: each opens one file with one library that is not ours, lists its arrays and reads windows of them.

Values come as they are stored, in native byte order. A reader raises :class:`Cannot` for what its
library has no answer to, in the middle of a sentence.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from math import prod
from typing import Any, ClassVar

import h5py
import netCDF4
import numpy as np
import tifffile
from numpy.typing import NDArray
from osgeo import gdal

from byterefs.grid import chunk_grid
from byterefs.proving import fields, oracle, stores
from byterefs.proving.pixels import Pixels
from byterefs.proving.slab import Slab
from tally.reading import Cannot, Listed, Reader, alike, window
from tally.referring import ByFsspec

NOT_COORDINATE = "_nc4_non_coord_"
NO_VARIABLE = b"This is a netCDF dimension but not a netCDF variable"


class ByH5py:
    """HDF5 by h5py, dataset by dataset."""

    name: ClassVar[str] = "h5py"

    def __init__(self, path: str) -> None:
        self.file = h5py.File(path, "r", locking=False)
        top = frozenset([h5py.h5o.get_info(self.file.id).addr])
        self.found = dict(self._walk(self.file, "", top))

    def _walk(
        self, group: h5py.Group, path: str, above: frozenset[int]
    ) -> Iterator[tuple[str, h5py.Dataset]]:
        for key in group:
            try:
                if isinstance(group.get(key, getlink=True), h5py.ExternalLink):
                    continue
                item = group[key]
            except (KeyError, OSError, RuntimeError, TypeError):
                continue  # a link that leads nowhere is no array
            address = h5py.h5o.get_info(item.id).addr
            if isinstance(item, h5py.Group) and address not in above:
                yield from self._walk(item, f"{path}{key}/", above | {address})
            elif isinstance(item, h5py.Dataset) and item.shape is not None and variable(item):
                yield f"{path}{key.removeprefix(NOT_COORDINATE)}", item

    def arrays(self) -> dict[str, Listed]:
        """Every dataset that has a dataspace; dimensions without variable are none."""
        return {
            n: Listed(d.shape, int(d.id.get_storage_size()), undefined(d))
            for n, d in self.found.items()
        }

    def read(
        self,
        array: str,
        start: Sequence[int],
        count: Sequence[int],
        dtype: str,
    ) -> NDArray[Any]:
        """A window as h5py's high-level interface reads it."""
        if array not in self.found:
            raise Cannot("it has no such dataset")
        if np.dtype(dtype).kind == "V":
            return self._bytes(self.found[array], start, count, dtype)
        return alike(padded(self.found[array], start, count), dtype, count)

    def _bytes(
        self, found: h5py.Dataset, start: Sequence[int], count: Sequence[int], dtype: str
    ) -> NDArray[Any]:
        """Elements as the file has them, padding included."""
        tid = found.id.get_type()
        if tid.get_size() != np.dtype(dtype).itemsize:
            raise Cannot(f"its elements have {tid.get_size()} bytes")
        out = np.zeros(tuple(count), dtype)
        space = found.id.get_space()
        if count:
            space.select_hyperslab(tuple(start), tuple(count))
        memory = h5py.h5s.create_simple(tuple(count)) if count else h5py.h5s.create(h5py.h5s.SCALAR)
        found.id.read(memory, space, out, mtype=tid)
        return out

    def raw(self, array: str, offset: Sequence[int]) -> bytes:
        """The stored bytes of the chunk that starts at an element."""
        if array not in self.found:
            raise Cannot("it has no such dataset")
        return bytes(self.found[array].id.read_direct_chunk(tuple(offset))[1])


def padded(found: h5py.Dataset, start: Sequence[int], count: Sequence[int]) -> NDArray[Any]:
    """A window; fill where it lies beyond what is stored along an unlimited axis, as netCDF reads it."""
    ends = [s + n for s, n in zip(start, count, strict=True)]
    if not found.shape or all(e <= n for e, n in zip(ends, found.shape, strict=True)):
        return np.asarray(found[window(start, count)])
    if any(
        e > n and m is not None for e, n, m in zip(ends, found.shape, found.maxshape, strict=True)
    ):
        raise Cannot(f"it has the shape {list(found.shape)}")
    out = np.full(tuple(count), found.fillvalue, found.dtype)
    there = tuple(
        slice(s, max(s, min(e, n))) for s, e, n in zip(start, ends, found.shape, strict=True)
    )
    inside = np.asarray(found[there])
    out[tuple(slice(0, n) for n in inside.shape)] = inside
    return out


def undefined(item: h5py.Dataset) -> bool:
    """Whether HDF5 fills in nothing for what was never written, and there is such."""
    if item.chunks:
        whole = item.id.get_num_chunks() == prod(chunk_grid(item.shape, item.chunks))
    else:
        whole = bool(item.id.get_storage_size())
    if whole:
        return False
    made = item.id.get_create_plist()
    never: bool = made.get_fill_time() == h5py.h5d.FILL_TIME_NEVER
    nothing = made.fill_value_defined() == h5py.h5d.FILL_VALUE_UNDEFINED
    return never or nothing


def variable(item: h5py.Dataset) -> bool:
    """Whether a dataset is more than the length of a dimension."""
    try:
        label = item.attrs.get("NAME")
    except (OSError, RuntimeError, TypeError, ValueError):
        return True
    raw = label if isinstance(label, bytes) else str(label).encode(errors="replace")
    return not raw.startswith(NO_VARIABLE)


class ByNetCDF:
    """NetCDF of every generation by netCDF-C."""

    name: ClassVar[str] = "netCDF4"

    def __init__(self, path: str) -> None:
        self.file = netCDF4.Dataset(path, "r")
        self.classic = self.file.data_model.startswith("NETCDF3")
        self.found = dict(self._walk(self.file, ""))

    def _walk(self, group: Any, path: str) -> Iterator[tuple[str, Any]]:
        for name, item in group.variables.items():
            item.set_auto_maskandscale(False)
            item.set_auto_chartostring(False)
            item.set_always_mask(False)
            yield f"{path}{name}", item
        for name, inner in group.groups.items():
            yield from self._walk(inner, f"{path}{name}/")

    def arrays(self) -> dict[str, Listed]:
        """Every variable; the bytes that it occupies only in a classic file."""
        return {
            n: Listed(
                tuple(v.shape), prod(v.shape) * np.dtype(v.dtype).itemsize if self.classic else 0
            )
            for n, v in self.found.items()
        }

    def read(
        self,
        array: str,
        start: Sequence[int],
        count: Sequence[int],
        dtype: str,
    ) -> NDArray[Any]:
        """A window as netCDF4-python gives it without mask and scale."""
        if array not in self.found:
            raise Cannot("it has no such variable")
        found = self.found[array]
        if found.shape and any(
            s + n > m for s, n, m in zip(start, count, found.shape, strict=True)
        ):
            raise Cannot(f"it has the shape {list(found.shape)}")
        return alike(np.asarray(found[window(start, count)] if count else found[...]), dtype, count)


class ByGDAL:
    """Whatever GDAL's multidimensional drivers open, and TIFF by its raster driver."""

    name: ClassVar[str] = "GDAL"

    def __init__(self, path: str) -> None:
        gdal.UseExceptions()
        gdal.PushErrorHandler("CPLQuietErrorHandler")
        self.path = path
        opened = {
            driver: group
            for driver in (*oracle.DRIVERS, "HDF4")
            if not isinstance(group := oracle.open_group(path, driver), str)
        }
        self.groups = list(opened.values())
        self.driver = next(iter(opened), "")
        self.pixels = Pixels()
        if not self.groups:
            data = gdal.OpenEx(path, gdal.OF_RASTER | gdal.OF_MULTIDIM_RASTER)
            self.driver = data.GetDriver().ShortName

    def arrays(self) -> dict[str, Listed]:
        """The arrays of the first driver that opens the file."""
        return dict(self._walk(self.groups[0][1], "")) if self.groups else {}

    def _walk(self, group: Any, path: str) -> Iterator[tuple[str, Listed]]:
        for name in group.GetMDArrayNames() or ():
            array = group.OpenMDArray(name)
            if array is not None:
                yield f"{path}{name}", Listed(oracle.shape_of(array), 0)
        for name in group.GetGroupNames() or ():
            inner = group.OpenGroup(name)
            if inner is not None:
                yield from self._walk(inner, f"{path}{name}/")

    def read(
        self,
        array: str,
        start: Sequence[int],
        count: Sequence[int],
        dtype: str,
    ) -> NDArray[Any]:
        """A window by the netCDF driver, the HDF5 driver or GTiff, whichever has the array as such numbers."""
        wanted = np.dtype(dtype).newbyteorder("=")
        reasons = []
        for group in self.groups:
            found = oracle.open_array(group, array)
            if isinstance(found, str):  # GDAL puts the arrays of an HDF4 file into a group
                found = oracle.open_array(group, f"scientific_datasets/{array}")
            reason = found if isinstance(found, str) else oracle.unlike(found, wanted)
            if reason is None:
                data = found.Read(list(start), list(count)) if count else found.Read()
                return np.frombuffer(bytes(data), wanted).reshape(tuple(count))
            reasons.append(str(reason))
        if not self.groups:
            pixels = self.pixels.read(Slab(self.path, array, start, count, wanted))
            if not isinstance(pixels, str):
                return pixels
            reasons.append(pixels)
        raise Cannot("; ".join(reasons))


class ByTifffile:
    """TIFF by tifffile, page by page, named as byterefs names images."""

    name: ClassVar[str] = "tifffile"
    REDUCED, MASK = 1, 4

    def __init__(self, path: str) -> None:
        self.file = tifffile.TiffFile(path)
        self.found = dict(self._images())
        self.read_before: tuple[str, NDArray[Any]] | None = None

    def _images(self) -> Iterator[tuple[str, Any]]:
        overviews = 0
        for i, page in enumerate(self.file.pages):
            kind = int(page.aspage().subfiletype)
            if i == 0:
                yield "data", page.aspage()
            elif kind & self.MASK:
                yield f"mask_{i + 1}", page.aspage()
            else:
                overviews += kind & self.REDUCED
                yield (
                    f"overview_{overviews}" if kind & self.REDUCED else f"page_{i + 1}",
                    page.aspage(),
                )

    def arrays(self) -> dict[str, Listed]:
        """Every image, and the bytes of its tiles or strips."""
        return {n: Listed(p.shape, sum(p.databytecounts)) for n, p in self.found.items()}

    def read(
        self,
        array: str,
        start: Sequence[int],
        count: Sequence[int],
        dtype: str,
    ) -> NDArray[Any]:
        """A window of one decoded page."""
        if re.fullmatch(r"(overview|page|mask)_\d+", array) is None:
            array = "data"
        if array not in self.found:
            raise Cannot("it has no such page")
        if self.read_before is None or self.read_before[0] != array:
            page = self.found[array]
            if page.compression == tifffile.COMPRESSION.LERC:
                raise Cannot("tifffile leaves out LERC's mask of what is missing")
            if prod(page.shape) * 8 > 1 << 31:
                raise Cannot("the page is too large to be decoded at once")
            self.read_before = (array, page.asarray())
        pixels = self.read_before[1]
        if pixels.ndim != len(count):
            pixels = pixels.reshape(
                [n for n in pixels.shape if n != 1 or pixels.ndim == len(count)]
            )
        return alike(pixels[window(start, count)], dtype, count)


class ByEcCodes:
    """GRIB by ecCodes from the file: fields by their keys, whatever our records say of bytes."""

    name: ClassVar[str] = "ecCodes"

    def __init__(self, path: str) -> None:
        known = fields.fields(path)
        if isinstance(known, str):
            raise Cannot(known)
        self.path, self.known, self.fields = path, known, fields.Fields()

    def arrays(self) -> dict[str, Listed]:
        """Every variable, type and step of level: by its one level, or by none where there are several."""
        found: dict[str, Listed] = {}
        for first in self.known:
            mine = [f for f in self.known if f.names[0] == first.names[0]]
            one = len({f.place[f.level_type] for f in mine}) == 1
            size = sum(f.nbytes for f in mine)
            found[first.names[-1 if one else 0]] = Listed((), size)
        return found

    def read(
        self, array: str, start: Sequence[int], count: Sequence[int], dtype: str
    ) -> NDArray[Any]:
        """A window of a variable, or of the coordinates that ecCodes has."""
        wanted = np.dtype(dtype).newbyteorder("=")
        if not any(array in f.names for f in self.known):
            return alike(self.coordinate(array, wanted)[window(start, count)], dtype, count)
        first = fields.values(self.path, self.mine(array).spot, "values")
        if isinstance(first, str):
            raise Cannot(first)
        plane = len(first.shape)
        axes = fields.spanned(self.known, len(count) - plane, array)
        if isinstance(axes, str):
            raise Cannot(axes)
        at = {d: v[s : s + n] for (d, v), s, n in zip(axes.items(), start, count, strict=False)}
        found = self.fields.read(Slab(self.path, array, start, count, wanted), at)
        if isinstance(found, str):
            raise Cannot(found)
        return found

    def mine(self, array: str) -> fields.Field:
        """The first field of an array."""
        return next(f for f in self.known if array in f.names)

    def coordinate(self, name: str, wanted: np.dtype[Any]) -> NDArray[Any]:
        """Times, steps, members, levels, latitudes or longitudes of the whole file."""
        if name in fields.GRID:
            found = self.fields.axis(self.path, name)
            if isinstance(found, str):
                raise Cannot(found)
            return found.astype(wanted)
        if name == "valid_time":
            times, hours = (fields.steps(self.known, axis) for axis in ("time", "step"))
            return np.asarray(np.squeeze(np.add.outer(times, hours * 3600)), wanted)
        there = fields.steps(self.known, name)
        if not len(there):
            raise Cannot("ecCodes has no such coordinate")
        return there.astype(wanted)


class ByZarr:
    """The file of a chunk of a Zarr store by zarr-python, which opens the store around it."""

    name: ClassVar[str] = "zarr"

    def __init__(self, path: str) -> None:
        place = stores.place(path)
        found = None if place is None else stores.opened(place.root, place.array)
        if place is None or found is None:
            raise Cannot("it is no chunk of a store that zarr-python opens")
        self.path, self.place, self.found = path, place, found

    def arrays(self) -> dict[str, Listed]:
        """The one array that has the chunk, as long as the chunk."""
        lengths = zip(self.place.key, self.found.chunks, self.found.shape, strict=True)
        shape = tuple(min(c, n - k * c) for k, c, n in lengths)
        size = os.path.getsize(self.path)
        return {self.place.array: Listed(shape[::-1] if stores.turned(self.found) else shape, size)}

    def read(
        self, array: str, start: Sequence[int], count: Sequence[int], dtype: str
    ) -> NDArray[Any]:
        """A window of the chunk, or of a coordinate along it."""
        found = stores.read(Slab.of(self.path, array, start, count, dtype))
        if isinstance(found, str):
            raise Cannot(found)
        return found


KNOWN: tuple[type[Reader], ...] = (
    ByNetCDF,
    ByH5py,
    ByGDAL,
    ByTifffile,
    ByEcCodes,
    ByZarr,
    ByFsspec,
)
READERS = {reader.name: reader for reader in KNOWN}
BY_FORMAT = {
    "hdf5": ("netCDF4", "GDAL", "h5py"),
    "dmrpp": ("netCDF4", "GDAL", "h5py"),
    "netcdf3": ("netCDF4", "GDAL"),
    "tiff": ("GDAL", "tifffile"),
    "grib": ("ecCodes",),
    "zarr": ("zarr",),
    "references": ("fsspec",),
}
"""format -> the libraries that are asked, in this order"""
ANY = ("h5py", "netCDF4", "GDAL")
"""who is asked whether a file of no known format is data"""
