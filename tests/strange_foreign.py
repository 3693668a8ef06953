"""HDF5 and netCDF files of random options in what other writers than h5py and netCDF-C make of them, and of links."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np
from h5py import h5d, h5p, h5s, h5t

from strange_hdf5 import ODD, Random, chunks_of, decorate, fill_of, numbers, pick, shape_of

BITS = ["STD_B8LE", "STD_B8BE", "STD_B16LE", "STD_B32BE", "STD_B64LE", "STD_I8BE", "STD_U8BE"]


def elsewhere(path: Path, rng: Random) -> None:
    """Arrays behind links, in other files, made of other arrays, of references, of bits, with NaNs of either sign."""
    with h5py.File(path, "w", libver=pick(rng, [None, "earliest", ("v110", "v114")])) as f:
        decorate(rng, f)
        group = f.create_group("g/deep")
        group["v"] = numbers(rng, (4, 3), pick(rng, ["<f4", ">i2", "<f2", "|u1"]))
        group["x"] = np.where(rng.random(3) < 0.5, -np.float64(np.nan), 1.0)
        f["z"] = pick(rng, [-np.float32(np.nan), np.float32(np.nan), np.float64(2)])
        for name, target in {
            "soft": "/g/deep/v",
            "g/near": "deep/./v",
            "way": "g",
            "twice": "/way/deep/v",
            "g/loop": "/g",
            "gone": "/nowhere",
            "g/coordinate": "/g/deep/x",
        }.items():
            if rng.random() < 0.6:
                f[name] = h5py.SoftLink(target)
        for make in (external, virtual, references, bits, compounds):
            if rng.random() < 0.6:
                make(rng, f)
        if rng.random() < 0.5:
            group["v"].attrs["coordinates"] = pick(rng, ["x", "/z", "/g/deep/x z"])


def external(rng: Random, f: h5py.File) -> None:
    """Bytes in other files, there or not."""
    name = f"{Path(f.filename).name}.raw"
    if rng.random() < 0.5:
        Path(f.filename).with_name(name).write_bytes(rng.bytes(60))
    f.create_dataset("external", (3, 5), "<i4", external=[(name, 0, h5py.h5f.UNLIMITED)])


def virtual(rng: Random, f: h5py.File) -> None:
    """A virtual dataset of the file itself, and one of a file that is not there."""
    for name, source in {"virtual": ".", "unseen": "nowhere.h5"}.items():
        layout = h5py.VirtualLayout((2, 4, 3), "<f4")
        layout[0] = h5py.VirtualSource(source, "/g/deep/v", (4, 3))
        f.create_virtual_dataset(name, layout, fillvalue=pick(rng, [None, 7]))


def references(rng: Random, f: h5py.File) -> None:
    """Object and region references, and an attribute of each."""
    v = f["g/deep/v"]
    f.create_dataset("objects", data=[v.ref, f.ref], dtype=h5py.ref_dtype)
    f.create_dataset("regions", data=[v.regionref[0:2, 1:]], dtype=h5py.regionref_dtype)
    f["objects"].attrs["ref"] = v.ref


def bits(rng: Random, f: h5py.File) -> None:
    """Bit fields, bytes of either order and opaque elements, in some layout."""
    for name in [*rng.permutation(BITS)[:3], "opaque"]:
        tid = h5t.create(h5t.OPAQUE, 3) if name == "opaque" else getattr(h5t, name)
        shape = shape_of(rng, 3)
        plist = h5p.create(h5p.DATASET_CREATE)
        if shape and rng.random() < 0.6:
            plist.set_chunk(tuple(map(min, chunks_of(rng, shape), (max(1, n) for n in shape))))
            plist.set_shuffle()
            plist.set_deflate(1)
        made = h5d.create(f.id, str(name).encode(), tid, h5s.create_simple(shape), plist)
        if rng.random() < 0.8 and 0 not in shape:
            size = tid.get_size()
            raw = np.frombuffer(rng.bytes(int(np.prod(shape)) * size), f"V{size}").reshape(shape)
            made.write(h5s.ALL, h5s.ALL, raw, mtype=tid)


def compounds(rng: Random, f: h5py.File) -> None:
    """Compounds in compounds, of half floats, enumerations and arrays; one holds a reference, one text."""
    enum = h5py.enum_dtype({"a": 0, "b": 1}, basetype="u1")
    inner = np.dtype([("h", "<f2"), ("e", enum), ("m", ">i4", (2, 2))], align=bool(rng.integers(2)))
    outer = np.dtype([("in", inner), ("list", inner, (2,)), ("s", "S3")])
    raw = np.frombuffer(rng.bytes(6 * outer.itemsize), outer).reshape(2, 3).copy()
    f.create_dataset("nested", data=raw, chunks=(1, 2), compression=pick(rng, ["gzip", "lzf"]))
    for name, dtype in {"pointer": h5py.ref_dtype, "words": h5py.string_dtype()}.items():
        f.create_dataset(f"with {name}", (2,), np.dtype([("n", "i4"), (name, dtype)]))


def plugins(path: Path, rng: Random) -> None:
    """Every lossless filter of the package hdf5plugin, with random options."""
    import hdf5plugin as p

    blosc = ["blosclz", "lz4", "lz4hc", "zlib", "zstd"]
    filters: list[Any] = [
        p.Bitshuffle(nelems=int(pick(rng, [0, 8, 64])), cname=pick(rng, ["none", "lz4", "zstd"])),
        p.Blosc(cname=pick(rng, blosc), clevel=int(rng.integers(10)), shuffle=int(rng.integers(3))),
        p.Blosc2(cname=pick(rng, blosc), clevel=int(rng.integers(10)), filters=int(rng.integers(3))),
        p.BZip2(),
        p.LZ4(nbytes=int(pick(rng, [0, 64, 1000]))),
        p.Zstd(clevel=int(rng.integers(1, 9))),
        p.Zfp(reversible=True),
    ]  # fmt: skip
    with h5py.File(path, "w") as f:
        for i, option in enumerate(filters):
            dtype = pick(rng, ["<f4", "<i4", ">i2", "<f8", "|u1", "<u8"])
            shape = pick(rng, [(20,), (7, 9), (5, 6, 7), (40, 30)])
            try:
                f.create_dataset(
                    f"{i}-{type(option).__name__}",
                    data=numbers(rng, shape, dtype),
                    chunks=tuple(int(rng.integers(1, n + 1)) for n in shape),
                    shuffle=bool(rng.random() < 0.2),
                    fletcher32=bool(rng.random() < 0.2),
                    fillvalue=fill_of(rng, dtype),
                    **option,
                )
            except (OSError, TypeError, ValueError):
                f.pop(f"{i}-{type(option).__name__}", None)


def by_h5netcdf(path: Path, rng: Random) -> None:
    """A netCDF-4 file by h5netcdf: groups, unlimited dimensions, dimensions without variables, types that netCDF lacks."""
    import h5netcdf

    with h5netcdf.File(path, "w", invalid_netcdf=bool(rng.integers(2))) as f:
        f.dimensions = {"time": None, "x": 3, "é y": 5, "one": 1}
        f.resize_dimension("time", int(rng.integers(0, 4)))
        groups = [f, f.create_group("g")]
        for i in range(int(rng.integers(2, 7))):
            dims = tuple(rng.permutation(["time", "x", "é y", "one"])[: int(rng.integers(0, 4))])
            name = dims[0] if len(dims) == 1 and rng.random() < 0.5 else pick(rng, [f"v{i}", *ODD])
            dtype = pick(rng, ["<f4", ">i2", "<f8", "|u1", "<f2", "<c8", "?", "<u8"])
            try:
                v = pick(rng, groups).create_variable(
                    name,
                    tuple(map(str, dims)),
                    dtype,
                    fillvalue=fill_of(rng, dtype),
                    **pick(
                        rng, [{}, {"compression": "gzip", "shuffle": True}, {"compression": "lzf"}]
                    ),
                )
                v[...] = numbers(rng, v.shape, dtype)
                v.attrs["units"] = "K"
            except (TypeError, ValueError, OSError, h5netcdf.CompatibilityError):
                continue


def by_scipy(path: Path, rng: Random) -> None:
    """A netCDF-3 file by scipy, which pads and orders in its own way."""
    from scipy.io import netcdf_file

    with netcdf_file(path, "w", version=pick(rng, [1, 2])) as f:
        f.title, steps = "scipy", int(rng.integers(0, 5))
        sizes = {"t": None, "x": 3, "y": 5, "one": 1}
        for name, size in sizes.items():
            f.createDimension(name, size)
        for i in range(int(rng.integers(1, 7))):
            rest = rng.permutation(["x", "y", "one"])[: int(rng.integers(0, 3))].tolist()
            dims = ("t", *rest) if rng.random() < 0.5 else tuple(rest)
            kind = pick(rng, ["b", "h", "i", "f", "d", "c"])
            made = f.createVariable(f"v{i}", kind, dims)
            shape = tuple(steps if d == "t" else sizes[d] for d in dims)
            if 0 not in shape:
                values = np.full(shape, b"z") if kind == "c" else numbers(rng, shape, f">{kind}")
                made[tuple(slice(n) for n in shape)] = values
            made.units, made.missing_value = "K", np.float32(-9)
