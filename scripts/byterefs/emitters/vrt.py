"""Form ``vrt``: the plan with a target's paths, opened by stock GDAL as one multidimensional dataset."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from byterefs.access import hdf5_plugins
from byterefs.codecs import hdf5_plugin_filters, holding
from byterefs.emitters import Described, Place, Rows, _stars, write_open
from byterefs.errors import EmitError
from byterefs.files import digest, replacing
from byterefs.grid import chunk_grid
from byterefs.literals import cf_fill
from byterefs.model import ABSENT, Array
from byterefs.planning import vrt, vrt_plan
from byterefs.planning.raster import is_grib
from byterefs.view import View

PER_TARGET = True


def check(view: View, array: str) -> None:
    """Raise EmitError for an array that GDAL's VRT cannot hold."""
    if is_grib(view.arrays[array]):
        raise EmitError(
            f"{array}: its sources are GRIB, which this GDAL has no driver for, and another one reads in "
            f"units and an order of its own; the forms {holding(view.arrays[array].codec)} can hold it: "
            f"leave the form vrt out, or say emit.vrt.required: false"
        )
    reason = vrt.cannot(view.arrays[array])
    if reason is not None:
        raise EmitError(
            f"{array}: {reason}; the forms sqlite and parquet can hold it: leave the array or the form vrt out"
        )
    nodata = undefined(view.arrays[array])
    if nodata is not None and (view.refs(array).offset == ABSENT).any():
        raise EmitError(
            f"{array}: chunks that were never written have no value, as the source defines no fill, and GDAL reads "
            f"there what lies in memory, through a VRT its nodata {nodata}; the forms sqlite and parquet, where they "
            f"are zero, can hold it: leave the array or the form vrt out"
        )


def undefined(a: Array) -> np.generic | None:
    """The nodata of a referenced array whose source defines no fill, if that is not zero; else None.

    HDF5 leaves the buffer of the reader as it is where H5D_FILL_VALUE_UNDEFINED meets a chunk that is not there.
    """
    nodata = cf_fill(a) if a.storage == "referenced" and a.fill is None else None
    return None if nodata is None or not any(nodata.tobytes()) else nodata


def emit(
    view: View, out: Path, *, target: str, options: Mapping[str, Any], state: Mapping[str, Any]
) -> dict[str, Any]:
    """Write ``<dataset>.vrt`` if it changed. Raises EmitError for an array that :func:`check` refuses."""
    for name in view.arrays:
        check(view, name)
    text = view.vrt_for(target)
    file = f"{view.dataset}.vrt"
    if state.get("digest") != digest(text):
        with replacing(out / file) as part:
            part.write_text(text)
    lines = opening(view, target=target, options=options, place=Place())
    write_open(out, view, "vrt", target, lines, coverage(view))
    return {"digest": digest(text)}


def opening(
    view: View, *, target: str, options: Mapping[str, Any], place: Place
) -> dict[str, list[str]]:
    """The lines that open this form; R's read its last step."""
    whole = view.across_eras()
    shown = whole.shown
    file, array = place.gdal(f"{view.dataset}.vrt"), f"/{shown}"
    opened = f"gdal.OpenEx({file!r}, gdal.OF_MULTIDIM_RASTER).GetRootGroup()"
    lines = {
        "gdal": [
            f"gdal mdim info {file}",
            f"from osgeo import gdal; a = {opened}.OpenMDArrayFromFullname({array!r}); print(a.shape)",
        ],
        "r": _stars.lines(whole.arrays, shown, f"{view.dataset}.vrt", place),
    }
    return {reader: found for reader, found in lines.items() if found}


def coverage(view: View) -> dict[str, dict[str, bool | str]]:
    """GDAL reads every array whose filters its HDF5 has; R those of them that sf finds and has a type for."""
    arrays = view.across_eras().arrays
    found: dict[str, dict[str, bool | str]] = {}
    for name, said in _stars.coverage(arrays).items():
        gap = plugins_needed(arrays[name])
        found[name] = {"gdal": gap or True, "r": gap if gap and said is True else said}
    return found


def plugins_needed(array: Array) -> str | None:
    """What GDAL needs for the HDF5 filters of an array that are no part of HDF5; None if nothing."""
    if array.storage != "referenced" or array.info.startswith("DRIVER="):
        return None
    lacking = ", ".join(hdf5_plugin_filters(array.codec))
    return (
        f"GDAL reads it only where its HDF5 finds a plugin for {lacking} (HDF5_PLUGIN_PATH)"
        if lacking
        else None
    )


class open:
    """The VRT through GDAL, its source paths mapped by ``access``."""

    def __init__(self, out: Path, *, access: Callable[[str], str], target: str = "access") -> None:
        from osgeo import gdal

        gdal.UseExceptions()
        hdf5_plugins.offer()
        file = next(iter(sorted(out.glob("*.vrt"))), None)
        if file is None:
            raise EmitError(f"{out}: no .vrt in the folder; emit the form again")
        self.file, self.text = file, file.read_text()
        self.plan = vrt_plan.read(self.text, str(out), str(file))
        names = {p.source for a in self.plan.arrays.values() for p in a.placements}
        mapped = vrt_plan.renamed(self.text, {name: access(name) for name in names})
        self.root = gdal.OpenEx(mapped, gdal.OF_MULTIDIM_RASTER).GetRootGroup()

    def close(self) -> None:
        """Let go of GDAL's dataset; one that lives until the interpreter ends outlives HDF5, and GDAL 3.13 aborts."""
        self.root = None

    def _open(self, array: str) -> Any:
        return self.root.OpenMDArrayFromFullname("/" + array)

    def arrays(self) -> dict[str, Described]:
        """What GDAL sees: packing and nodata are given as CF attributes; strings as Byte say what they are."""
        return {name: self._described(name) for name in sorted(self.plan.arrays)}

    def _described(self, name: str) -> Described:
        a = self._open(name)
        attrs = {x.GetName(): value(x) for x in a.GetAttributes()}
        dtype = attrs.pop(vrt.DTYPE_ATTRIBUTE, None) or numpy_dtype(
            a.GetDataType().GetNumericDataType()
        )
        packing = {
            "scale_factor": a.GetScale(),
            "add_offset": a.GetOffset(),
            "units": a.GetUnit() or None,
        }
        nodata = a.GetNoDataValue()
        if nodata is not None and dtype[1] == "i":
            # of an array that GDAL has as unsigned, the same bits
            nodata = np.array([nodata]).astype(dtype).item()
        if nodata is not None:
            packing["_FillValue"] = nodata
        attrs |= {k: v for k, v in packing.items() if v is not None}
        dims = [d.GetName() for d in a.GetDimensions()]
        shape = [d.GetSize() for d in a.GetDimensions()]
        if dtype[1] == "S" and dtype != "|S1":
            dims, shape = dims[:-1], shape[:-1]
        block = tuple(a.GetBlockSize())[: len(shape)]
        chunks = block if all(block) else None
        return Described(tuple(dims), tuple(shape), chunks, dtype, nodata, attrs, None)

    def refs(self, array: str) -> Rows:
        """Byte ranges as GDAL's block info gives them through the VRT (small arrays: one call per chunk)."""
        a, described = self._open(array), self._described(array)
        grid = chunk_grid(described.shape, described.chunks or described.shape)
        paths: list[str | None] = []
        ranges = []
        for key in np.ndindex(*grid):
            block = a.GetRawBlockInfo(list(map(int, key)))
            paths.append(block.GetFilename() if block else None)
            ranges.append((block.GetOffset(), block.GetSize()) if block else (ABSENT, ABSENT))
        columns = np.array(ranges, "i8").reshape(-1, 2)
        return Rows(paths, columns[:, 0], columns[:, 1], {})

    def read(self, array: str, window: tuple[slice, ...]) -> NDArray[Any]:
        """Stored values of a window through GDAL, in the array's own dtype (native byte order)."""
        from osgeo import gdal

        a, described = self._open(array), self._described(array)
        bounds = [s.indices(n)[:2] for s, n in zip(window, described.shape, strict=True)]
        start, count = [lo for lo, _ in bounds], [hi - lo for lo, hi in bounds]
        if described.dtype[1] == "S" and described.dtype != "|S1":
            width = int(described.dtype[2:])
            start, count = [*start, 0], [*count, width]
        data = a.Read(start, count) if count else a.Read()
        if data is None:  # GDAL 3.13, for a filter that its HDF5 does not have
            reason = gdal.GetLastErrorMsg() or "it does not say why"
            raise EmitError(
                f"{array}: GDAL reads nothing through {self.file} ({reason}): where a source has an HDF5 filter "
                f"that OPEN.md names, install its plugin and set {hdf5_plugins.VARIABLE}"
            )
        dtype = np.dtype(described.dtype)
        # MDArray.Read of GDAL 3.13 gives Float16 as float32
        held = np.dtype("f4") if dtype.str[1:] == "f2" else dtype
        values = np.frombuffer(bytes(data), held).reshape([hi - lo for lo, hi in bounds])
        return values.astype(dtype, copy=False)


def value(attribute: Any) -> Any:
    """An attribute as GDAL has it; its Python reads an integer of 64 bits without sign as a double."""
    from osgeo import gdal

    kind = attribute.GetDataType()
    numeric = kind.GetClass() == gdal.GEDTC_NUMERIC
    if not numeric or kind.GetNumericDataType() != gdal.GDT_UInt64:
        return attribute.Read()
    found = np.frombuffer(bytes(attribute.ReadAsRaw()), np.uint64).tolist()
    return found if len(found) > 1 else found[0]


def numpy_dtype(gdal_type: int) -> str:
    """Numpy's name of a GDAL numeric type, native byte order."""
    from osgeo import gdal_array

    return str(np.dtype(gdal_array.GDALTypeCodeToNumericTypeCode(gdal_type)).str)
