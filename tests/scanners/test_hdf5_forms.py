"""HDF5 filters, layouts and types through store, plan and every form: equal to what was written, or refused by name."""

from __future__ import annotations

import ctypes
import json
import os
import struct
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import h5py
import imagecodecs
import netCDF4
import numpy as np
import pytest
from h5py import h5d, h5p, h5s, h5t, h5z

from byterefs import emitters
from byterefs.access import hdf5_plugins
from byterefs.errors import EmitError, VerifyError
from byterefs.files import write_json
from byterefs.view import View, receipt
from forms import Results
from granules import compact, library, pipeline

V = (np.arange(24 * 20, dtype="<i4").reshape(24, 20) // 7) % 50 - 9
"""what every number array holds, in its own type"""
CHUNKS = (12, 10)
BLOSC = [f"blosc_{name}" for name in ("lz", "lz4", "lz4hc", "zlib", "zstd")]
BY_NETCDF: dict[str, dict[str, Any]] = {
    **{
        f"{name}_{shuffle}": {"compression": name, "blosc_shuffle": shuffle}
        for name in BLOSC
        for shuffle in (0, 1, 2)
    },
    "zstd": {"compression": "zstd"},
    "zstd_shuffled": {"compression": "zstd", "shuffle": True, "fletcher32": True},
    "bzip2": {"compression": "bzip2"},
    "szip": {"compression": "szip", "szip_coding": "ec"},
}
"""netCDF-C's options"""
PIPELINES: dict[str, tuple[str, ...]] = {
    "lzf": ("shuffle", "lzf"),
    "nbit": ("nbit",),
    "scaleoffset": ("scaleoffset", "deflate"),
    "szip_nn": ("szip",),
    "order": ("deflate", "shuffle"),
    "twice": ("shuffle", "deflate", "deflate"),
    "checked": ("deflate", "fletcher32"),
}
"""filters of h5py's HDF5, in their order"""
TYPES = {"be": ">f4", "wide": "<u8", "half": "<f2", "bytes": "|u1", "be_wide": ">i8"}
UNREAD = ("bitshuffle", "bitshuffle_lz4", "bitshuffle_zstd", "lz4", "lzf")
"""arrays of filters that neither HDF5 nor the package netCDF4 brings, so that GDAL has no decoder"""
NO_NUMCODECS = {
    "bitshuffle": "the HDF5 filter bitshuffle",
    "bitshuffle_lz4": "the HDF5 filter bitshuffle",
    "bitshuffle_zstd": "the HDF5 filter bitshuffle",
    "lzf": "the HDF5 filter lzf",
    "nbit": "the HDF5 filter nbit",
    "scaleoffset": "the HDF5 filter scaleoffset",
    "order": "no whole number of elements",
}
ONE_FILL = dict.fromkeys(["never", "contiguous_never", "part"], "one fill for both")
REFUSED: Mapping[str, Mapping[str, str]] = {
    "icechunk": NO_NUMCODECS,
    "kerchunk": {**NO_NUMCODECS, **ONE_FILL},
    "parquet": {},
    "sqlite": {},
    "vrt": {
        **{"fixed": "text", "half": "netCDF driver"},
        **dict.fromkeys(["alias", "h/deep"], "soft link"),
        **dict.fromkeys(["bits", "byte_of_bits"], "type bitfield"),
        **dict.fromkeys(["compound", "aligned", "opaque", "triples"], "no name in GDAL's VRT"),
    },
}
"""form -> the arrays that it refuses, and words of why"""
PLUGINS = {
    **{name: "blosc" for name in BY_NETCDF if name.startswith("blosc")},
    **{"zstd": "zstd", "zstd_shuffled": "zstd", "bzip2": "bzip2", "lz4": "lz4", "lzf": "lzf"},
    **dict.fromkeys(["bitshuffle", "bitshuffle_lz4", "bitshuffle_zstd"], "bitshuffle"),
}
"""array -> the filter that stock GDAL lacks"""


# --- writers ---------------------------------------------------------------------------------------


def transposed(values: np.ndarray) -> bytes:
    """Bits of all elements by place, as bitshuffle has them: the lowest bit of every element first."""
    raw = np.ascontiguousarray(values).view("u1").reshape(values.size, values.itemsize)
    bits = np.unpackbits(raw, axis=1, bitorder="little")
    return np.packbits(bits.T, axis=1, bitorder="little").tobytes()


def bitshuffled(values: np.ndarray, kind: int) -> bytes:
    """A chunk of one block, its bits transposed, compressed by LZ4 (2), Zstandard (3) or not at all."""
    plain = transposed(values)
    if not kind:
        return plain
    packed = (imagecodecs.lz4_encode if kind == 2 else imagecodecs.zstd_encode)(plain)
    return struct.pack(">QII", len(plain), len(plain), len(packed)) + packed


def lz4(values: np.ndarray) -> bytes:
    """A chunk of one block of HDF5's filter 32004."""
    packed = imagecodecs.lz4_encode(values.tobytes())
    return struct.pack(">QII", values.nbytes, values.nbytes, len(packed)) + packed


def direct(
    file: h5py.File,
    name: str,
    number: int,
    cd: tuple[int, ...],
    encode: Callable[[np.ndarray], bytes],
) -> None:
    """An array whose chunks are encoded here, by a filter that HDF5 lacks."""
    plist = h5p.create(h5p.DATASET_CREATE)
    plist.set_chunk(CHUNKS)
    plist.set_filter(number, h5z.FLAG_OPTIONAL, cd)
    made = h5d.create(file.id, name.encode(), h5t.STD_I32LE, h5s.create_simple(V.shape), plist)
    for y in range(0, V.shape[0], CHUNKS[0]):
        for x in range(0, V.shape[1], CHUNKS[1]):
            chunk = np.ascontiguousarray(V[y : y + CHUNKS[0], x : x + CHUNKS[1]])
            made.write_direct_chunk((y, x), encode(chunk))


WORDS = [b"", b"a", "é".encode(), b"longer words"]
VALUES: dict[str, np.ndarray] = {
    **dict.fromkeys([*BY_NETCDF, *PIPELINES, *UNREAD, "compact", "contiguous", "latest"], V),
    **dict.fromkeys(["alias", "netcdf_alias", "h/deep"], V),
    **{name: V.astype(dtype) for name, dtype in TYPES.items()},
    "never": np.full(V.shape, -7, "<i4"),
    "contiguous_never": np.full(V.shape, -7, "<i4"),
    "early": np.full(V.shape, -7, "<i4"),
    "part": np.where(np.indices(V.shape).sum(0) < 0, V, -7).astype("<i4"),
    "edges": V,
    "larger": V,
    "g/deep": V,
    "fixed": np.array(WORDS, "S12").reshape(2, 2),
    "variable": np.array(WORDS, "S12").reshape(2, 2),
    "enum": (V % 3).astype("|i1"),
    "bool": (V % 2).astype("|i1"),
}
VALUES["noise"] = np.random.default_rng(1).integers(-(2**31), 2**31, V.shape).astype("<i4")
FIELDS = np.zeros((4, 6), [("a", "<i2"), ("b", ">f4")])
FIELDS["a"] = np.arange(24).reshape(4, 6)
FIELDS["b"] = FIELDS["a"] / 4
ALIGNED = FIELDS.astype(
    {"names": ["a", "b"], "formats": ["<i2", ">f4"], "offsets": [0, 4], "itemsize": 8}
)
VALUES["compound"], VALUES["aligned"] = FIELDS.view("V6"), ALIGNED.view("V8")
VALUES["opaque"] = V.view("V4")
BITS = {"bits": h5t.STD_B16BE, "byte_of_bits": h5t.STD_B8LE, "byte_be": h5t.STD_I8BE}
"""HDF5 types that are other ones than numpy's integers of the same bytes"""
VALUES |= {"bits": V.astype(">u2"), "byte_of_bits": V.astype("|u1"), "byte_be": V.astype("|i1")}
VALUES["triples"] = np.arange(6, dtype=">i4").view("V12").reshape(2, 1)
VALUES["part"][:12, 10:] = V[:12, 10:]


def written(path: Path) -> None:
    """One array of every filter, layout and type: netCDF-C's, h5py's, and chunks that are encoded here."""
    with netCDF4.Dataset(path, "w") as nc:
        nc.createDimension("y", V.shape[0])
        nc.createDimension("x", V.shape[1])
        for name, options in BY_NETCDF.items():
            nc.createVariable(name, "i4", ("y", "x"), chunksizes=CHUNKS, **options)[:] = V
    with h5py.File(path, "r+") as f:
        for name, filters in PIPELINES.items():
            pipeline(f, name, V, CHUNKS, *filters)
        for name, kind in {"bitshuffle": 0, "bitshuffle_lz4": 2, "bitshuffle_zstd": 3}.items():
            direct(f, name, 32008, (0, 4, 4, 0, kind), lambda c, kind=kind: bitshuffled(c, kind))
        direct(f, "lz4", 32004, (0,), lz4)
        noise = pipeline(f, "noise", VALUES["noise"], CHUNKS, "shuffle", "lzf")
        # HDF5 itself leaves out LZF where it would make a chunk larger
        assert noise.id.get_chunk_info(0).filter_mask == 0b10
        layouts(f)
        types(f)
        f["alias"], f["netcdf_alias"] = h5py.SoftLink("contiguous"), h5py.SoftLink("/szip")
        f["h"] = h5py.SoftLink("g")


def layouts(f: h5py.File) -> None:
    """Arrays that differ in where their bytes lie, if anywhere."""
    compact(f, "compact", V)
    f["contiguous"] = V
    f.create_dataset("contiguous_never", V.shape, "<i4", fillvalue=-7)
    pipeline(f, "never", None, CHUNKS, "deflate", shape=V.shape, fill=-7)
    part = pipeline(f, "part", None, CHUNKS, "deflate", shape=V.shape, fill=-7)
    part[:12, 10:] = V[:12, 10:]
    pipeline(f, "edges", V, (7, 9), "shuffle", "deflate", unlimited=True)
    pipeline(f, "larger", V, (30, 64), "deflate", unlimited=True)
    pipeline(f.create_group("g"), "deep", V, CHUNKS, "deflate")
    f.create_dataset("latest", data=V, chunks=CHUNKS, maxshape=(None, None), compression="gzip")
    plist = h5p.create(h5p.DATASET_CREATE)
    plist.set_chunk(CHUNKS)
    plist.set_alloc_time(h5d.ALLOC_TIME_EARLY)
    plist.set_fill_value(np.array(-7, "<i4"))
    h5d.create(f.id, b"early", h5t.STD_I32LE, h5s.create_simple(V.shape), plist)


def types(f: h5py.File) -> None:
    """Arrays of other types than 32-bit integers."""
    for name, dtype in TYPES.items():
        pipeline(f, name, V.astype(dtype), CHUNKS, "shuffle", "deflate")
    f["fixed"] = VALUES["fixed"]
    words = np.array([w.decode() for w in WORDS], object).reshape(2, 2)
    f.create_dataset("variable", data=words, dtype=h5py.string_dtype())
    f.create_dataset("compound", data=FIELDS, chunks=(2, 3), compression="gzip")
    f["aligned"], f["opaque"] = ALIGNED, VALUES["opaque"]
    triple = h5t.array_create(h5t.STD_I32BE, (3,))
    made = h5d.create(f.id, b"triples", triple, h5s.create_simple((2, 1)))
    made.write(h5s.ALL, h5s.ALL, np.arange(6, dtype=">i4").reshape(2, 3), mtype=triple)
    for name, tid in BITS.items():
        plist = h5p.create(h5p.DATASET_CREATE)
        plist.set_chunk(CHUNKS)
        plist.set_deflate(1)
        made = h5d.create(f.id, name.encode(), tid, h5s.create_simple(V.shape), plist)
        made.write(h5s.ALL, h5s.ALL, VALUES[name], mtype=tid)
    enum = h5py.enum_dtype({"land": 0, "sea": 1, "ice": 2}, basetype="i1")
    f.create_dataset("enum", data=V % 3, dtype=enum, chunks=CHUNKS, compression="gzip")
    f.create_dataset("bool", data=V % 2 == 1, chunks=CHUNKS)


# --- forms -----------------------------------------------------------------------------------------


def built(folder: Path, arrays: list[str]) -> Results:
    """The store and plan of some of the arrays of the one file."""
    folder.mkdir()
    written(folder / "all.nc")
    results = Results(
        folder / "demo", source={"pattern": ""}, scan={"arrays": arrays}, plan={"concat": None}
    )
    results.scan([folder / "all.nc"])
    return results


def emitted(results: Results, form: str) -> dict[str, str]:
    """Emit a form without what it cannot hold; that, and why."""
    with View.open(results.store) as view:
        digest = receipt(view)["digest"]
    where = {"form": form, "target": "access"}
    out, options = results.out("access", form), {"required": False}
    done = emitters.build(results.store, digest, out, options=options, **where)
    write_json(results.emitted("access", form), done)
    return dict(done.get("left_out", {}))


def covered(results: Results, form: str) -> dict[str, dict[str, bool | str]]:
    """What ``open.json`` of a form says of who decodes each array."""
    told = json.loads((results.out("access", form) / "open.json").read_text())
    return dict(told["coverage"])


@pytest.fixture(scope="module")
def proven(tmp_path_factory: pytest.TempPathFactory) -> Results:
    """All arrays that GDAL or HDF5 reads with what is installed."""
    arrays = [name for name in VALUES if name not in UNREAD]
    return built(tmp_path_factory.mktemp("proven") / "one", arrays)


@pytest.fixture(scope="module")
def unread(tmp_path_factory: pytest.TempPathFactory) -> Results:
    """The arrays that only we decode."""
    return built(tmp_path_factory.mktemp("unread") / "one", list(UNREAD))


def check_refusals(form: str, left_out: Mapping[str, str], arrays: list[str]) -> None:
    """Exactly the arrays that a form cannot hold are left out, each by name, with why and the forms that can."""
    expected = {name: why for name, why in REFUSED[form].items() if name in arrays}
    assert set(left_out) == set(expected)
    for name, why in expected.items():
        assert left_out[name].startswith(f"{name}: ")
        assert why in left_out[name]
        assert "sqlite" in left_out[name]
        assert "parquet" in left_out[name]


@pytest.mark.filterwarnings("ignore:.*does not have a Zarr V3 specification")
@pytest.mark.parametrize("form", emitters.NAMES)
def test_every_filter_layout_and_type_reads_as_written_through_a_form_or_is_refused_by_name(
    proven: Results, form: str
) -> None:
    arrays = [name for name in VALUES if name not in UNREAD]
    left_out = emitted(proven, form)
    check_refusals(form, left_out, arrays)
    report = proven.verify("access", form)
    assert report["verified"]
    assert set(report["refused"]) == set(left_out)
    held = [name for name in arrays if name not in left_out]
    for name, got in proven.values(form, *held).items():
        np.testing.assert_array_equal(got, VALUES[name], err_msg=name)
        assert got.dtype.newbyteorder("=") == VALUES[name].dtype.newbyteorder("="), name
    if form == "vrt":
        told = {name: said["gdal"] for name, said in covered(proven, form).items() if name in held}
        for name, said in told.items():
            assert said is True or PLUGINS[name] in said, name
        assert {name for name, said in told.items() if said is not True} == set(PLUGINS) - {*UNREAD}


@pytest.mark.parametrize("form", emitters.NAMES)
def test_filters_that_no_library_here_has_are_decoded_by_us_and_told_of_by_every_form(
    unread: Results, form: str
) -> None:
    left_out = emitted(unread, form)
    check_refusals(form, left_out, list(UNREAD))
    held = [name for name in UNREAD if name not in left_out]
    told = covered(unread, form)
    if form == "vrt":
        for name in held:
            assert f"plugin for {PLUGINS[name]}" in str(told[name]["gdal"])
            with pytest.raises((EmitError, RuntimeError), match=r"GDAL reads nothing|Filter error"):
                unread.values(form, name)
        return
    for name, got in unread.values(form, *held).items():
        np.testing.assert_array_equal(got, V, err_msg=name)
        if form in ("parquet", "sqlite"):
            reason = NO_NUMCODECS.get(name)
            said = told[name]["numcodecs"]
            assert said is True if reason is None else reason in str(said)


def test_what_nobody_else_decodes_is_not_called_verified(unread: Results) -> None:
    emitted(unread, "sqlite")
    with pytest.raises(
        VerifyError, match=r"bitshuffle' cannot be read by GDAL nor by h5py.*scan\.arrays"
    ):
        unread.verify("access", "sqlite")


class Filter(ctypes.Structure):
    """H5Z_class2_t."""

    CALL = ctypes.CFUNCTYPE(
        ctypes.c_size_t,
        ctypes.c_uint,
        ctypes.c_size_t,
        ctypes.c_void_p,
        ctypes.c_size_t,
        ctypes.c_void_p,
        ctypes.c_void_p,
    )
    _fields_ = [
        ("version", ctypes.c_int),
        ("id", ctypes.c_int),
        ("encodes", ctypes.c_uint),
        ("decodes", ctypes.c_uint),
        ("name", ctypes.c_char_p),
        ("can_apply", ctypes.c_void_p),
        ("set_local", ctypes.c_void_p),
        ("call", CALL),
    ]


def test_what_only_hdf5_decodes_is_not_proven_and_no_byte_range_is_blamed(tmp_path: Path) -> None:
    same = Filter.CALL(lambda flags, n, cd, nbytes, size, buffer: nbytes)
    plugin = Filter(1, 300, 1, 1, b"as it is", None, None, same)
    assert library().H5Zregister(ctypes.byref(plugin)) >= 0
    with h5py.File(tmp_path / "p.h5", "w") as f:
        f.create_dataset("v", data=V, chunks=CHUNKS, compression=300)
    results = Results(
        tmp_path / "demo", source={"pattern": ""}, scan={"arrays": ["v"]}, plan={"concat": None}
    )
    results.scan([tmp_path / "p.h5"])
    emitted(results, "sqlite")
    match = (
        r"'v', source .*p.h5: its values are not proven, no decoder for codec .*300.*scan\.arrays"
    )
    with pytest.raises(VerifyError, match=match):
        results.verify("access", "sqlite")
    h5z.unregister_filter(300)


def test_gdal_reads_the_filters_of_netcdfs_package_in_a_process_that_never_imports_it(
    proven: Results,
) -> None:
    """Stock GDAL has no Blosc, bzip2 or Zstandard for HDF5; the verification has."""
    emitted(proven, "vrt")
    names = [name for name in PLUGINS if name not in UNREAD]
    code = """
import json, sys
from pathlib import Path
from byterefs.emitters import vrt
read = vrt.open(Path(sys.argv[1]), access=str).read
found = {name: int(read(name, (slice(24), slice(20))).sum()) for name in sys.argv[2:]}
assert "netCDF4" not in sys.modules
print(json.dumps(found))
"""
    plain = {k: v for k, v in os.environ.items() if k != hdf5_plugins.VARIABLE}
    plain["PYTHONPATH"] = str(Path(emitters.__file__).parents[2])
    said = subprocess.run(
        [sys.executable, "-c", code, proven.out("access", "vrt"), *names],
        capture_output=True, text=True, env=plain, check=False,
    )  # fmt: skip
    assert said.returncode == 0, said.stderr
    assert json.loads(said.stdout) == dict.fromkeys(names, int(V.sum()))


def test_a_folder_of_plugins_that_the_user_names_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(hdf5_plugins.VARIABLE, "/mine")
    hdf5_plugins.offer()
    assert os.environ[hdf5_plugins.VARIABLE] == "/mine"
