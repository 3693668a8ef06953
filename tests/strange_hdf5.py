"""HDF5 and netCDF files of random options: valid, each by its own writer, as odd as the formats allow."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import netCDF4
import numpy as np
from h5py import h5d, h5p, h5s, h5t

import granules

Random = np.random.Generator

ODD = ["a b", "é", "x.y", "quo'te", 'dou"ble', "per%cent", "a+b", "[0]", "naïve ünï", "semi;colon", "h#sh", "&amp", "<lt", "back\\slash", "-", "ſ", "日本", "time", "data", "meta", "sources", "A", "a", "q?x", "c:d", "lead ", " trail", "tab\tx"]  # fmt: skip
NUMBERS = ["i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f4", "f8"]
WHOLE = ("nbit", "scaleoffset")
FILTERS = ["shuffle", "deflate", "fletcher32", "lzf", "szip", "nbit", "scaleoffset"]


def pick(rng: Random, options: Any) -> Any:
    """One of some options, as Python has it."""
    return options[int(rng.integers(len(options)))]


def numbers(rng: Random, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """Values of every size that the type has, NaN of several payloads and infinities among them."""
    kind = np.dtype(dtype)
    if kind.kind == "b":
        return rng.integers(0, 2, shape).astype(kind)
    raw = rng.bytes(int(np.prod(shape, dtype=int)) * kind.itemsize)
    values = np.frombuffer(raw, kind).reshape(shape).copy()
    smooth = (np.arange(values.size) % 97).reshape(shape)
    if rng.random() < 0.5:
        return smooth.astype(kind)
    return (
        values
        if rng.random() < 0.7
        else np.where(rng.random(shape) < 0.5, smooth, values).astype(kind)
    )


def fill_of(rng: Random, dtype: Any) -> Any:
    """A fill value: a usual one, an end of the range, NaN or an infinity; None for none."""
    kind = np.dtype(dtype)
    if rng.random() < 0.3 or kind.kind not in "iuf":
        return None
    if kind.kind == "f":
        return kind.type(pick(rng, [np.nan, np.inf, -np.inf, 1e4, -999.9, 0.1, -0.0]))
    bounds = np.iinfo(kind)
    return kind.type(pick(rng, [bounds.min, bounds.max, 0, 7]))


def shape_of(rng: Random, most: int = 5) -> tuple[int, ...]:
    """A few dimensions, now and then none, many, or one of length 0 or 1."""
    rank = int(pick(rng, [0, 1, 1, 2, 2, 2, 3, 3, 4, most]))
    return tuple(
        int(
            pick(
                rng,
                [0, 1, 1, 2, 3, 5, 7, 8, 13, 20] if rng.random() < 0.3 else [1, 2, 3, 4, 5, 7, 11],
            )
        )
        for _ in range(rank)
    )


def chunks_of(rng: Random, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Chunks that divide a shape, or do not, or are longer than it."""
    return tuple(int(rng.integers(1, max(2, n + (4 if rng.random() < 0.2 else 1)))) for n in shape)


def element_type(rng: Random) -> Any:
    """A dtype of h5py's, of either byte order."""
    odd = ["f2", "c8", "c16", "?", "S1", "S5", "enum", "compound", "nested", "array", "opaque", "vlen", "text", "ascii", "ref", "g", "u3", "n12"]  # fmt: skip
    name = pick(rng, NUMBERS) if rng.random() < 0.6 else pick(rng, odd)
    order = pick(rng, "<>")
    match name:
        case "enum":
            return h5py.enum_dtype({"RED": 0, "GREEN": 1, "é": 2}, basetype=order + "i2")
        case "compound":
            return np.dtype(
                [("a", order + "i2"), ("b c", "f4"), ("s", "S3")], align=bool(rng.integers(2))
            )
        case "nested":
            return np.dtype([("p", [("x", order + "f8"), ("y", "u1")]), ("q", "i4", (2, 3))])
        case "array":
            return np.dtype((order + "i2", (2, 3)))
        case "opaque":
            return np.dtype("V5")
        case "vlen":
            return h5py.vlen_dtype(np.dtype("i4"))
        case "text" | "ascii":
            return h5py.string_dtype("utf-8" if name == "text" else "ascii")
        case "ref":
            return h5py.ref_dtype
        case "g":
            return np.dtype("longdouble")
        case "u3" | "n12":
            return name
    return np.dtype(name if name[0] in "?S" else order + name)


def hdf5_type(dtype: Any) -> h5t.TypeID:
    """The HDF5 type of a dtype, and those that numpy lacks: three bytes, twelve bits of two bytes."""
    if dtype == "u3":
        made = h5t.STD_U32LE.copy()
        made.set_precision(24)
        made.set_size(3)
        return made
    if dtype == "n12":
        made = h5t.STD_I16LE.copy()
        made.set_precision(12)
        made.set_offset(2)
        return made
    return h5t.py_create(dtype, logical=True)


def elements(rng: Random, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """Values of any dtype that :func:`element_type` gives."""
    if dtype in ("u3", "n12"):
        return rng.integers(0, 1000, shape).astype("<i4")
    kind = np.dtype(dtype)
    count = int(np.prod(shape, dtype=int))
    if kind == np.dtype("longdouble"):
        return rng.random(shape).astype(kind)
    if h5py.check_string_dtype(kind) is not None and kind.kind == "O":
        texts = [pick(rng, ["", "a", "longer é", "x" * 40, "nul"]) for _ in range(count)]
        return np.array(texts, object).reshape(shape)
    if kind.kind == "O":
        out = np.empty(count, object)
        for i in range(count):
            out[i] = np.arange(i % 3, dtype="i4")
        return out.reshape(shape)
    if kind.subdtype:
        return numbers(rng, (*shape, *kind.subdtype[1]), kind.subdtype[0])
    if kind.kind == "S":
        texts = [pick(rng, [b"", b"a", b"abcde", b"\xff", b"a\0b"]) for _ in range(count)]
        return np.array(texts, kind).reshape(shape)
    if kind.kind in "V" or kind.names:
        return np.frombuffer(rng.bytes(count * kind.itemsize), kind).reshape(shape).copy()
    if h5py.check_enum_dtype(kind):
        return rng.integers(0, 3, shape).astype(kind)
    return numbers(rng, shape, kind)


def layout(rng: Random, shape: tuple[int, ...], dtype: Any) -> tuple[h5p.PropDCID, tuple[Any, ...]]:
    """A creation property list of random layout, filters, fill and times of allocation; the maximal shape."""
    plist = h5p.create(h5p.DATASET_CREATE)
    most: tuple[Any, ...] = shape
    kind = pick(rng, ["chunked"] * 6 + ["contiguous", "compact"])
    if not shape:
        kind = pick(rng, ["contiguous", "compact"])
    plist.set_layout(
        {"chunked": h5d.CHUNKED, "contiguous": h5d.CONTIGUOUS, "compact": h5d.COMPACT}[kind]
    )
    plist.set_alloc_time(
        pick(rng, [h5d.ALLOC_TIME_DEFAULT, h5d.ALLOC_TIME_EARLY, h5d.ALLOC_TIME_LATE])
        if kind != "compact"
        else h5d.ALLOC_TIME_EARLY
    )
    if kind == "chunked":
        plist.set_chunk(chunks_of(rng, shape))
        unlimited = rng.random(len(shape)) < pick(rng, [0, 0.4, 1])
        most = tuple(
            h5s.UNLIMITED if u else n + int(rng.integers(3))
            for u, n in zip(unlimited, shape, strict=True)
        )
        if rng.random() < 0.7:
            words = rng.permutation(FILTERS)[: int(rng.integers(0, 4))].tolist()
            # these read a whole chunk whatever they are given, beyond the end of what another filter left
            for word in sorted(words, key=lambda w: w not in WHOLE):
                granules.add_filter(plist, word)
            if rng.random() < 0.1:
                plist.set_deflate(1)
    fill = None if isinstance(dtype, str) or np.dtype(dtype).names else fill_of(rng, dtype)
    if fill is not None:
        plist.set_fill_value(np.array(fill))
    plist.set_fill_time(
        pick(
            rng,
            [h5d.FILL_TIME_IFSET, h5d.FILL_TIME_ALLOC, h5d.FILL_TIME_IFSET, h5d.FILL_TIME_NEVER],
        )
    )
    return plist, most


def dataset(rng: Random, group: h5py.Group, name: str) -> bool:
    """One dataset of random everything, written whole, in part or not at all; False if HDF5 refuses the mixture."""
    shape, dtype = shape_of(rng), element_type(rng)
    plist, most = layout(rng, shape, dtype)
    space = h5s.create_simple(shape, most) if shape else h5s.create(h5s.SCALAR)
    try:
        dsid = h5d.create(group.id, name.encode(), hdf5_type(dtype), space, plist)
        made = h5py.Dataset(dsid)
        values = elements(rng, shape, dtype)
        how = pick(rng, ["all", "all", "all", "part", "never"])
        if how == "all" or (not shape and how == "part"):
            write(made, values)
        elif how == "part" and 0 not in shape:
            window = tuple(slice(0, int(rng.integers(1, n + 1))) for n in shape)
            made[window] = values[window]
        if how == "all" and made.chunks and rng.random() < 0.15 and 0 not in shape:
            made.resize(
                tuple(int(rng.integers(0, n + 1)) if rng.random() < 0.5 else n for n in shape)
            )
    except (ValueError, TypeError, OSError, RuntimeError):
        if name in group:
            del group[name]
        return False
    decorate(rng, made)
    return True


def write(made: h5py.Dataset, values: np.ndarray) -> None:
    """All values of a dataset."""
    if values.dtype.kind == "O" or made.shape == ():
        made[...] = values
    else:
        made.write_direct(
            np.ascontiguousarray(values)
        ) if values.shape == made.shape and values.size else made.__setitem__(..., values)


def decorate(rng: Random, item: Any) -> None:
    """A few attributes, some of them odd, some that CF gives a meaning."""
    odd: dict[str, Any] = {
        "scale_factor": pick(rng, [np.float32(0.01), 0.1, np.int16(2), np.array([0.5]), "0.1"]),
        "add_offset": pick(rng, [273.15, np.float32(-1e-3), np.int32(0)]),
        "_FillValue": pick(rng, [np.int16(-999), np.float32(np.nan), "x", np.array([1, 2])]),
        "missing_value": pick(rng, [np.float32(1e20), "NaN", np.array([1.0, 2.0])]),
        "valid_range": pick(rng, [np.array([0, 250], "i2"), np.array([0, 250], "u1")]),
        "_Unsigned": pick(rng, ["true", "false"]),
        "units": pick(rng, ["K", "days since 2000-01-01", "", "1", "months since 1900-01"]),
        "coordinates": pick(rng, ["lat lon", "nowhere", "", " x  y "]),
        "flag_values": np.array([0, 1, 2], "i1"),
        "empty": h5py.Empty("f4"),
        "nan": np.array([np.nan, np.inf]),
        "big": np.uint64(2**64 - 1),
        "latin": np.bytes_(b"caf\xe9"),
        "control": "a\x01b",
        "bounds": "nowhere_bnds",
        "é ü": "x",
        "list": np.array(["a", "bé"], object),
        "half": np.float16(0.1),
        "bool": True,
        "grid_mapping": pick(rng, ["crs", "nowhere"]),
    }
    for name in rng.permutation(list(odd))[: int(rng.integers(0, 5))]:
        try:
            item.attrs[str(name)] = odd[str(name)]
        except (TypeError, ValueError, OSError):
            continue


def hdf5(path: Path, rng: Random) -> None:
    """An HDF5 file by h5py: random library versions, user block, groups, links, scales and datasets."""
    versions = [
        None,
        "earliest",
        "latest",
        ("earliest", "v108"),
        ("v110", "v114"),
        ("v108", "latest"),
        ("v112", "v112"),
    ]
    options: dict[str, Any] = {"libver": pick(rng, versions)}
    if rng.random() < 0.2:
        options["userblock_size"] = int(pick(rng, [512, 1024, 4096]))
    if rng.random() < 0.2:
        options["track_order"] = True
    with h5py.File(path, "w", **options) as f:
        decorate(rng, f)
        groups = [f, f.create_group("g"), f.create_group("g/é x")]
        made = []
        for i in range(int(rng.integers(2, 9))):
            group = pick(rng, groups)
            name = pick(rng, ODD) if rng.random() < 0.4 else f"v{i}"
            if name not in group and dataset(rng, group, name):
                made.append(group[name])
        link(rng, f, made)
        scales(rng, f, made)


def link(rng: Random, f: h5py.File, made: list[h5py.Dataset]) -> None:
    """Links of every kind: hard, soft, dangling, into a loop, into another file, a shared type."""
    if rng.random() < 0.3 and made:
        f["soft"] = h5py.SoftLink(pick(rng, made).name)
    if rng.random() < 0.2 and made:
        f["g/hard"] = pick(rng, made)
    if rng.random() < 0.2:
        f["dangling"] = h5py.SoftLink("/nowhere")
    if rng.random() < 0.2:
        f["g/up"] = f["/"]
    if rng.random() < 0.1:
        f["outside"] = h5py.ExternalLink("other.h5", "/v")
    if rng.random() < 0.1:
        f["type"] = np.dtype("i4")
    if rng.random() < 0.1:
        f["null"] = h5py.Empty("f8")


def scales(rng: Random, f: h5py.File, made: list[h5py.Dataset]) -> None:
    """Dimension scales on some axes of some datasets, of the right length or not."""
    for d in made:
        if not d.shape or rng.random() < 0.6:
            continue
        axis = int(rng.integers(len(d.shape)))
        name = f"scale{d.shape[axis]}"
        if name not in f:
            f[name] = np.arange(
                d.shape[axis] + int(rng.random() < 0.1), dtype=pick(rng, ["f8", "i4", ">f4"])
            )
            f[name].make_scale(pick(rng, ["", "x", name]))
        try:
            d.dims[axis].attach_scale(f[name])
        except (RuntimeError, ValueError):
            continue


def netcdf4(path: Path, rng: Random) -> None:
    """A netCDF-4 file by netCDF-C: groups, several unlimited dimensions, user types, every filter that it has."""
    with netCDF4.Dataset(
        path, "w", format=pick(rng, ["NETCDF4", "NETCDF4", "NETCDF4_CLASSIC"])
    ) as nc:
        nc.set_auto_maskandscale(False)
        classic = nc.data_model == "NETCDF4_CLASSIC"
        names = ["time", "lat", "lon x", "é", "n0", "one"]
        sizes = [None, 5, 7, 3, None if not classic else 2, 1]
        for name, size in zip(names, sizes, strict=True):
            nc.createDimension(name, size)
        groups = [nc] if classic else [nc, nc.createGroup("g"), nc.createGroup("g/deep er")]
        steps = int(rng.integers(0, 5))
        for i in range(int(rng.integers(2, 8))):
            rank = int(rng.integers(0, 4))
            dims = tuple(rng.permutation(names)[:rank].tolist())
            if classic and "time" in dims:
                dims = ("time", *(d for d in dims if d != "time"))
            name = (
                dims[0]
                if len(dims) == 1 and rng.random() < 0.4
                else pick(rng, [f"v{i}", f"odd é {i}", f"x-{i}", f"p.{i}"])
            )
            group = pick(rng, groups)
            if name not in group.variables:
                variable(rng, group, name, dims, classic, steps)


def variable(
    rng: Random, group: Any, name: str, dims: tuple[str, ...], classic: bool, steps: int
) -> None:
    """One netCDF-4 variable of random type, filters, byte order and fill."""
    types = ["i1", "i2", "i4", "f4", "f8", "S1"] + (
        [] if classic else ["u1", "u2", "u4", "i8", "u8", "str"]
    )
    kind = pick(rng, types)
    text = kind == "str"
    options: dict[str, Any] = {}
    if dims and not text and rng.random() < 0.7:
        compression = pick(
            rng, [None, "zlib", "zlib", "zstd", "bzip2", "szip", "blosc_lz4", "blosc_zstd"]
        )
        options = {
            "compression": compression,
            "shuffle": bool(rng.integers(2)),
            "fletcher32": bool(rng.random() < 0.3),
        }
        if compression == "blosc_lz4":
            options["blosc_shuffle"] = int(rng.integers(3))
    if kind not in ("S1", "str", "i1", "u1"):
        options["endian"] = pick(rng, ["native", "little", "big"])
    fill = None if kind in ("S1", "str") else fill_of(rng, kind)
    made = group.createVariable(
        name,
        str if text else kind,
        dims,
        fill_value=pick(rng, [fill, None, False]) if kind not in ("S1", "str") else None,
        **options,
    )
    made.set_auto_maskandscale(False)
    shape = tuple(steps if n == 0 else n for n in made.shape)
    for key, value in {
        "units": "K",
        "valid_range": np.array([0, 100], "i2"),
        "_Unsigned": "true",
        "scale_factor": 0.1,
    }.items():
        if rng.random() < 0.25:
            made.setncattr(key, value)
    if rng.random() < 0.2 or 0 in shape:
        return
    if text:
        values: Any = np.array(
            [pick(rng, ["", "a", "é" * 9]) for _ in range(int(np.prod(shape, dtype=int)))], object
        ).reshape(shape)
        made[...] = values if shape else str(values[()])
    else:
        made[...] = numbers(rng, shape, kind) if kind != "S1" else np.full(shape, b"q", "S1")


def classic(path: Path, rng: Random) -> None:
    """A netCDF-3 file of either of its three versions by netCDF-C, padding of every length in its records."""
    five = rng.random() < 0.35
    format = (
        "NETCDF3_64BIT_DATA" if five else pick(rng, ["NETCDF3_CLASSIC", "NETCDF3_64BIT_OFFSET"])
    )
    with netCDF4.Dataset(path, "w", format=format) as nc:
        nc.set_auto_maskandscale(False)
        nc.set_fill_off() if rng.random() < 0.3 else nc.set_fill_on()
        sizes: dict[str, int | None] = {"t": None, "x": 3, "é y": 5, "one": 1}
        for name, size in sizes.items():
            nc.createDimension(name, size)
        steps = int(rng.integers(0, 5))
        types = ["i1", "i2", "i4", "f4", "f8", "S1"] + (
            ["u1", "u2", "u4", "i8", "u8"] if five else []
        )
        made = []
        for i in range(int(rng.integers(1, 7))):
            rank = int(rng.integers(0, 4))
            rest = tuple(rng.permutation(["x", "é y", "one"])[:rank].tolist())
            dims = ("t", *rest) if rng.random() < 0.5 else rest
            name = (
                dims[0]
                if len(dims) == 1 and dims[0] not in nc.variables and rng.random() < 0.5
                else f"v{i}"
            )
            kind = pick(rng, types)
            fill = None if kind == "S1" else pick(rng, [None, fill_of(rng, kind)])
            one = nc.createVariable(name, kind, dims, fill_value=fill)
            one.units = pick(rng, ["K", "days since 2001-01-01", "é"])
            made.append((one, kind))
        for one, kind in made:
            shape = tuple(steps if n == 0 else n for n in one.shape)
            if 0 not in shape and rng.random() < 0.85:
                one[...] = numbers(rng, shape, kind) if kind != "S1" else np.full(shape, b"z", "S1")


def by_xarray(path: Path, rng: Random) -> None:
    """A dataset as xarray packs and writes it."""
    import pandas as pd
    import xarray as xr

    n = int(rng.integers(1, 6))
    time = pd.date_range("2000-01-01", periods=n, freq=pick(rng, ["D", "h", "37min", "MS"]))
    values = np.where(rng.random((n, 4, 6)) < 0.2, np.nan, rng.random((n, 4, 6)) * 50)
    ds = xr.Dataset(
        {"t2m": (("time", "lat", "lon"), values), "flag": (("lat", "lon"), rng.random((4, 6)) < 0.5),
         "name": (("time",), [f"é{i}" for i in range(n)]), "n": ((), int(rng.integers(99)))},
        coords={"time": time, "lat": np.linspace(-60, 60, 4), "lon": np.arange(6) * 60.0, "station": ("lat", list("abcd"))},
    )  # fmt: skip
    packed = {
        "dtype": pick(rng, ["i2", "u1", "i4"]),
        "scale_factor": 0.5,
        "add_offset": 3.0,
        "_FillValue": 99,
        "zlib": bool(rng.integers(2)),
    }
    encoding = {
        "t2m": pick(rng, [packed, {"_FillValue": np.nan}, {"dtype": "f4", "_FillValue": None}])
    }
    format = pick(rng, ["NETCDF4", "NETCDF4", "NETCDF3_64BIT", "NETCDF4_CLASSIC"])
    ds.to_netcdf(
        path,
        engine="netcdf4",
        format=format,
        encoding=encoding,
        unlimited_dims=pick(rng, [[], ["time"]]),
    )
