"""The HDF5 scanner against the writers of small files, and the traps of research/peers.md, A.2 and E.1."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import h5py
import netCDF4
import numpy as np
import pytest
from h5py import h5d, h5p, h5s, h5t, h5z

import granules
from byterefs import codecs
from byterefs.errors import ScanError
from byterefs.model import ABSENT
from byterefs.scanners import _common, hdf5
from byterefs.scanners._hdf5_attributes import BOOKKEEPING
from conformance import ScannerTests, assembled, by_value, scanned, stored_bytes
from granules import Granule

DATA = (np.arange(120, dtype="<i4") * 7 - 300).reshape(12, 10)
GRID = {(i, j) for i in range(3) for j in range(3)}


class TestHdf5(ScannerTests):
    FORMAT = "hdf5"
    COORDINATES = frozenset({"time", "zlev", "lat", "lon"})

    def granule(self, folder: Path) -> Granule:
        path = folder / "day.nc"
        return Granule(path, granules.oisst(path, date(2020, 1, 2), chunks=(1, 1, 9, 12)))

    def edges(self, folder: Path) -> Granule:
        path = folder / "edges.h5"
        with h5py.File(path, "w") as f:
            granules.pipeline(f, "v", DATA, (5, 4), "shuffle", "deflate")
            granules.pipeline(f, "larger", DATA, (20, 16), "deflate", unlimited=True)
        return Granule(path, {"v": DATA, "larger": DATA})

    def sparse(self, folder: Path) -> Granule:
        path = folder / "sparse.h5"
        expected = np.full((12, 10), -999, "<i4")
        expected[0:4, 0:4] = 1
        with h5py.File(path, "w") as f:
            some = granules.pipeline(f, "some", None, (4, 4), "deflate", shape=(12, 10), fill=-999)
            some[0:4, 0:4] = 1
            granules.pipeline(f, "none", None, (4, 4), shape=(12, 10), fill=-999)
            f.create_dataset("contiguous", (12, 10), "<i4", fillvalue=-999)
        nothing = np.full((12, 10), -999, "<i4")
        return Granule(
            path,
            {"some": expected, "none": nothing, "contiguous": nothing},
            {"some": GRID - {(0, 0)}, "none": GRID, "contiguous": {(0, 0)}},
        )

    def mixed(self, folder: Path) -> tuple[Path, str, str]:
        path = folder / "mixed.h5"
        with h5py.File(path, "w") as f:
            d = granules.pipeline(f, "v", DATA, (4, 5), "shuffle", "deflate")
            raw = np.ascontiguousarray(DATA[:4, :5]).tobytes()
            d.id.write_direct_chunk((0, 0), raw, filter_mask=0b11)
        return path, "v", "shuffle and deflate"


@pytest.mark.parametrize(
    "filters",
    [
        (),
        ("deflate",),
        ("shuffle", "deflate"),
        ("deflate", "shuffle"),
        ("fletcher32",),
        ("deflate", "fletcher32"),
        ("fletcher32", "shuffle", "deflate"),
        ("shuffle", "deflate", "fletcher32"),
        ("deflate", "deflate"),
        ("shuffle", "deflate", "deflate"),
        ("shuffle",),
    ],
)
@pytest.mark.parametrize("dtype", ["<i4", ">f4", "|u1", "<f8"])
def test_every_order_of_filters_decodes_to_what_was_written(
    tmp_path: Path, filters: tuple[str, ...], dtype: str
) -> None:
    data = DATA.astype(dtype)
    with h5py.File(tmp_path / "f.h5", "w") as f:
        granules.pipeline(f, "v", data, (5, 4), *filters)
    item = scanned(tmp_path / "f.h5").arrays["v"]
    words = {"deflate": "zlib"}
    assert [c["id"] for c in codecs.pipeline(item.meta.codec)] == [words.get(f, f) for f in filters]
    assert item.meta.dtype == dtype
    np.testing.assert_array_equal(assembled(tmp_path / "f.h5", item), data)


@pytest.mark.parametrize("word", ["lzf", "nbit", "scaleoffset"])
def test_filters_that_numcodecs_lacks_are_rows_and_decoded_here_only(
    tmp_path: Path, word: str
) -> None:
    data = (np.arange(12 * 16, dtype="<i4").reshape(12, 16) ** 2 % 7) - 3
    with h5py.File(tmp_path / "f.h5", "w") as f:
        d = granules.pipeline(f, "v", data, (6, 16), word)
        lengths = [d.id.read_direct_chunk((r, 0))[1] for r in (0, 6)]
    item = scanned(tmp_path / "f.h5").arrays["v"]
    assert [c["id"] for c in codecs.pipeline(item.meta.codec)] == [f"hdf5:{word}"]
    assert [stored_bytes(tmp_path / "f.h5", item, (k, 0)) for k in (0, 1)] == lengths
    assert codecs.numcodecs_refusal(item.meta.codec) is not None
    np.testing.assert_array_equal(assembled(tmp_path / "f.h5", item), data)


@pytest.mark.parametrize("dtype", ["<i4", ">i2", "|u1", "<f4", ">f8"])
def test_szip_is_a_codec_that_xarray_users_can_install(tmp_path: Path, dtype: str) -> None:
    data = (np.arange(12 * 16).reshape(12, 16) % 5).astype(dtype)
    with h5py.File(tmp_path / "f.h5", "w") as f:
        granules.pipeline(f, "v", data, (6, 16), "szip")
    item = scanned(tmp_path / "f.h5").arrays["v"]
    assert [c["id"] for c in codecs.pipeline(item.meta.codec)] == ["imagecodecs_szip"]
    assert codecs.numcodecs_refusal(item.meta.codec) is None
    np.testing.assert_array_equal(assembled(tmp_path / "f.h5", item), data)


SCALED = [
    ("<i4", None, [5, -3, 1000, 7]),
    (">i8", None, [2**62, 2**62 + 9, 2**62 + 3, 2**62]),
    ("<u2", None, [65535, 0, 1, 2]),  # every bit counts: stored as it is
    ("|u1", 255, [3, 255, 9, 4]),
    ("<i2", -9, [-9, -9, -9, -9]),
    ("<i2", None, [-9, -9, -9, -9]),
    ("<f4", None, [0.25, -1.5, 3.75, 1e3]),
    (">f8", -1.0, [0.25, -1.0, 3.75, 1e3]),
    ("<f8", None, [1.125, 1.126, 1.127, 1.128]),
]


@pytest.mark.parametrize(("dtype", "fill", "values"), SCALED)
@pytest.mark.parametrize("digits", [0, 2])
def test_scaleoffset_decodes_to_what_hdf5_reads(
    tmp_path: Path, dtype: str, fill: Any, values: list[float], digits: int
) -> None:
    data = np.array(values * 6, dtype).reshape(4, 6)
    kind = h5z.SO_FLOAT_DSCALE if data.dtype.kind == "f" else h5z.SO_INT
    with h5py.File(tmp_path / "f.h5", "w") as f:
        plist = h5p.create(h5p.DATASET_CREATE)
        plist.set_chunk((2, 6))
        plist.set_scaleoffset(kind, digits if data.dtype.kind == "f" else 0)
        if fill is not None:
            plist.set_fill_value(np.array(fill, data.dtype))
        space = h5s.create_simple(data.shape)
        made = h5d.create(f.id, b"v", h5t.py_create(data.dtype), space, plist)
        made.write(h5s.ALL, h5s.ALL, data)
    item = scanned(tmp_path / "f.h5").arrays["v"]
    with h5py.File(tmp_path / "f.h5") as f:
        read = f["v"][()]
    found = assembled(tmp_path / "f.h5", item)
    assert found.tobytes() == read.tobytes()


@pytest.mark.parametrize(("mask", "skipped"), [(0b01, "shuffle"), (0b10, "deflate")])
def test_one_skipped_filter_is_refused_with_chunk_filter_and_way_out(
    tmp_path: Path, mask: int, skipped: str
) -> None:
    with h5py.File(tmp_path / "m.h5", "w") as f:
        d = granules.pipeline(f, "v", DATA, (4, 5), "shuffle", "deflate")
        d.id.write_direct_chunk((8, 5), b"x" * 80, filter_mask=mask)
    with pytest.raises(ScanError, match=rf"m.h5: v: chunk \[2, 1\].*{skipped} .*era"):
        scanned(tmp_path / "m.h5", arrays=["v"])


def test_lzf_that_gave_up_on_a_small_edge_chunk_is_refused(tmp_path: Path) -> None:
    noise = np.random.default_rng(1).integers(-(2**31), 2**31, (12, 10)).astype("<i4")
    with h5py.File(tmp_path / "l.h5", "w") as f:
        f.create_dataset("v", data=noise, chunks=(4, 4), compression="lzf")
    with pytest.raises(ScanError, match=r"v: chunk .* without the filter lzf"):
        scanned(tmp_path / "l.h5")


@pytest.mark.parametrize("filters", [("shuffle",), ("shuffle", "deflate")])
def test_unfiltered_edge_chunks_are_refused_although_their_mask_is_zero(
    tmp_path: Path, filters: tuple[str, ...]
) -> None:
    with h5py.File(tmp_path / "e.h5", "w", libver="latest") as f:
        d = granules.pipeline(f, "v", DATA, (5, 4), *filters, raw_edges=True)
        assert d.id.get_chunk_info_by_coord((10, 8)).filter_mask == 0
        granules.pipeline(f, "even", DATA, (4, 5), *filters, raw_edges=True)
        granules.pipeline(f, "unfiltered", DATA, (5, 4), raw_edges=True)
    with pytest.raises(ScanError, match=r"v: .*DONT_FILTER_PARTIAL_CHUNKS.*era"):
        scanned(tmp_path / "e.h5", arrays=["v"])
    found = scanned(tmp_path / "e.h5", arrays=["even", "unfiltered"]).arrays
    for name in ("even", "unfiltered"):
        np.testing.assert_array_equal(assembled(tmp_path / "e.h5", found[name]), DATA)


@pytest.mark.parametrize("listed", [True, False])
def test_a_coordinate_that_skips_a_filter_is_kept_by_value_unless_it_is_asked_for(
    tmp_path: Path, listed: bool
) -> None:
    with h5py.File(tmp_path / "c.h5", "w") as f:
        f["v"] = DATA
        x = granules.pipeline(f, "x", DATA[0], (5,), "deflate")
        x.id.write_direct_chunk((5,), DATA[0, 5:].tobytes(), filter_mask=1)
    item = scanned(tmp_path / "c.h5", arrays=["v"] if listed else []).arrays["x"]
    assert by_value(item).tolist() == DATA[0].tolist()
    assert (item.offset, item.meta.layout) == (None, "values")
    with pytest.raises(ScanError, match=r"x: chunk \[1\]"):
        scanned(tmp_path / "c.h5", arrays=["x"])


@pytest.mark.parametrize("libver", ["earliest", "v110", "latest"])
@pytest.mark.parametrize("unlimited", [0, 1, 2])
@pytest.mark.parametrize("filters", [{}, {"compression": "gzip", "shuffle": True}])
@pytest.mark.parametrize("chunks", [(5, 4), (12, 10)])
def test_every_kind_of_chunk_index_is_walked(
    tmp_path: Path, libver: str, unlimited: int, filters: dict[str, Any], chunks: tuple[int, int]
) -> None:
    path = tmp_path / "i.h5"
    with h5py.File(path, "w", libver=libver) as f:
        limits = tuple(None if i < unlimited else n for i, n in enumerate(DATA.shape))
        f.create_dataset("v", data=DATA, maxshape=limits, chunks=chunks, **filters)
    np.testing.assert_array_equal(assembled(path, scanned(path).arrays["v"]), DATA)


def test_early_allocated_chunks_have_ranges_before_they_are_written(tmp_path: Path) -> None:
    path = tmp_path / "e.h5"
    with h5py.File(path, "w", libver="v110") as f:
        plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        plist.set_chunk((4, 5))
        plist.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
        plist.set_fill_value(np.array(-7, "<i4"))
        space = h5py.h5s.create_simple((12, 10))
        h5py.h5d.create(f.id, b"v", h5py.h5t.STD_I32LE, space, plist)
    item = scanned(path).arrays["v"]
    assert item.offset is not None
    assert (item.offset != ABSENT).all()
    assert (assembled(path, item) == -7).all()


def test_a_dataset_that_shrank_has_rows_of_its_present_extent_only(tmp_path: Path) -> None:
    path = tmp_path / "s.h5"
    with h5py.File(path, "w") as f:
        d = f.create_dataset("v", data=DATA, maxshape=(None, None), chunks=(4, 4))
        d.resize((5, 7))
    item = scanned(path).arrays["v"]
    assert item.offset is not None
    assert item.offset.shape == (2, 2)
    np.testing.assert_array_equal(assembled(path, item), DATA[:5, :7])


def test_compact_data_is_inline(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "c.h5", "w") as f:
        granules.compact(f, "v", DATA)
    item = scanned(tmp_path / "c.h5").arrays["v"]
    assert item.meta.layout == "compact"
    assert dict(item.data) == {(0, 0): DATA.tobytes()}
    assert item.offset is not None
    assert item.offset.tolist() == [[ABSENT]]


def test_contiguous_data_is_keyed_by_single_steps_of_concat_unless_split_is_off(
    tmp_path: Path,
) -> None:
    path = tmp_path / "c.nc"
    with netCDF4.Dataset(path, "w") as nc:
        nc.createDimension("time", 12)
        nc.createDimension("x", 10)
        nc.createVariable("v", "i4", ("time", "x"))[:] = DATA
        nc.createVariable("w", "i4", ("x", "time"))[:] = DATA.T
    split = scanned(path, concat="time").arrays
    whole = scanned(path, concat="time", split=False).arrays
    assert split["v"].meta.chunks == (1, 10)
    assert whole["v"].meta.chunks == split["w"].meta.chunks[::-1] == (12, 10)
    offset, first = split["v"].offset, whole["v"].offset
    assert offset is not None
    assert first is not None
    assert offset.tolist() == [[int(first[0, 0]) + 40 * i] for i in range(12)]
    for item, data in ((split["v"], DATA), (whole["v"], DATA), (split["w"], DATA.T)):
        np.testing.assert_array_equal(assembled(path, item), data)


def test_offsets_count_from_the_start_of_the_file_not_of_hdf5(tmp_path: Path) -> None:
    for block in (0, 512, 2048):
        path = tmp_path / f"{block}.h5"
        with h5py.File(path, "w", userblock_size=block) as f:
            f["contiguous"] = DATA
            granules.pipeline(f, "chunked", DATA, (5, 4), "deflate")
        with path.open("r+b") as raw:
            raw.write(b"#" * block)
        with path.open("rb") as file:
            assert hdf5.recognises(file)
        for item in scanned(path).arrays.values():
            np.testing.assert_array_equal(assembled(path, item), DATA)


def test_big_endian_is_part_of_dtype_and_info(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "b.h5", "w") as f:
        f["v"] = DATA.astype(">f4")
    item = scanned(tmp_path / "b.h5").arrays["v"]
    assert (item.meta.dtype, item.meta.info) == (">f4", "ENDIANNESS=BIG")
    np.testing.assert_array_equal(assembled(tmp_path / "b.h5", item), DATA)


def external(f: h5py.File, folder: Path) -> None:
    (folder / "raw.bin").write_bytes(DATA.tobytes())
    f.create_dataset("v", data=DATA, external=[(str(folder / "raw.bin"), 0, DATA.nbytes)])


def virtual(f: h5py.File, folder: Path) -> None:
    with h5py.File(folder / "source.h5", "w") as s:
        s["v"] = DATA
    layout = h5py.VirtualLayout(DATA.shape, DATA.dtype)
    layout[:] = h5py.VirtualSource(folder / "source.h5", "v", DATA.shape)
    f.create_virtual_dataset("v", layout)


def link(f: h5py.File, folder: Path) -> None:
    with h5py.File(folder / "source.h5", "w") as s:
        s["v"] = DATA
    f["v"] = h5py.ExternalLink("source.h5", "v")


@pytest.mark.parametrize(
    ("make", "word"),
    [(external, "external storage"), (virtual, "virtual dataset"), (link, "external link")],
)
def test_data_that_lies_in_another_file_is_refused_unless_it_is_not_wanted(
    tmp_path: Path, make: Callable[[h5py.File, Path], None], word: str
) -> None:
    with h5py.File(tmp_path / "f.h5", "w") as f:
        f["other"] = DATA
        make(f, tmp_path)
    for arrays in ((), ("v",)):
        with pytest.raises(ScanError, match=f"f.h5: v.*{word}"):
            scanned(tmp_path / "f.h5", arrays=arrays)
    assert set(scanned(tmp_path / "f.h5", arrays=["other"]).arrays) == {"other"}


@pytest.mark.parametrize(
    ("dtype", "word"),
    [
        (np.dtype([("a", "<i4"), ("b", h5py.string_dtype())]), "variable-length"),
        (np.dtype([("a", "<i4"), ("b", h5py.ref_dtype)]), "reference"),
        (h5py.ref_dtype, "reference"),
        (h5py.vlen_dtype("<f4"), "variable-length"),
    ],
)
def test_types_that_no_form_holds_are_refused_by_name_unless_not_wanted(
    tmp_path: Path, dtype: np.dtype, word: str
) -> None:
    with h5py.File(tmp_path / "t.h5", "w") as f:
        f.create_dataset("odd", (2,), dtype)
        f["plain"] = DATA
    with pytest.raises(ScanError, match=rf"odd: .*{word}.*scan\.arrays"):
        scanned(tmp_path / "t.h5")
    assert set(scanned(tmp_path / "t.h5", arrays=["plain"]).arrays) == {"plain"}


STRUCTURES = {
    "packed": np.dtype([("a", "<i2"), ("b", ">f8"), ("c", "S3")]),
    "aligned": np.dtype([("a", "i1"), ("b", "<f8"), ("c", "<i2", (2, 3))], align=True),
    "nested": np.dtype([("p", [("x", "<i2"), ("y", "<f4")]), ("q", "?")]),
}


@pytest.mark.parametrize("name", STRUCTURES)
@pytest.mark.parametrize("chunks", [None, (2, 3)])
def test_elements_of_several_fields_are_bytes_that_numpy_can_view(
    tmp_path: Path, name: str, chunks: tuple[int, int] | None
) -> None:
    data = np.zeros((4, 5), STRUCTURES[name])
    raw = data.view("u1").reshape(-1)
    raw[:] = np.arange(raw.size) % 2
    with h5py.File(tmp_path / "s.h5", "w") as f:
        f.create_dataset("v", data=data, chunks=chunks, compression=chunks and "gzip")
    item = scanned(tmp_path / "s.h5").arrays["v"]
    assert item.meta.dtype == f"|V{data.dtype.itemsize}"
    as_numpy = np.dtype(rebuilt(json.loads(item.meta.attrs["byterefs_fields"])))
    found = assembled(tmp_path / "s.h5", item).view(as_numpy)
    with h5py.File(tmp_path / "s.h5") as f:
        np.testing.assert_array_equal(found, f["v"][()])


def rebuilt(told: Any) -> Any:
    """A dtype from the JSON of ``byterefs_fields``, as a reader would make it."""
    if isinstance(told, list):
        return np.dtype((rebuilt(told[0]), tuple(told[1])))
    if isinstance(told, dict):
        return np.dtype({**told, "formats": [rebuilt(part) for part in told["formats"]]})
    return np.dtype(told)


def test_opaque_elements_and_arrays_as_elements_are_bytes(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "o.h5", "w") as f:
        f["opaque"] = np.array([b"abcde", b"fghij"], "V5")
        tid = h5t.array_create(h5t.STD_I32BE, (3,))
        made = h5d.create(f.id, b"triples", tid, h5s.create_simple((2,)))
        made.write(h5s.ALL, h5s.ALL, np.arange(6, dtype=">i4").reshape(2, 3), mtype=tid)
    found = scanned(tmp_path / "o.h5").arrays
    assert [found[n].meta.dtype for n in ("opaque", "triples")] == ["|V5", "|V12"]
    assert assembled(tmp_path / "o.h5", found["opaque"]).tobytes() == b"abcdefghij"
    triples = assembled(tmp_path / "o.h5", found["triples"]).view(">i4")
    np.testing.assert_array_equal(triples, np.arange(6))
    assert json.loads(found["triples"].meta.attrs["byterefs_fields"]) == [">i4", [3]]


def test_integers_that_numpy_lacks_are_refused(tmp_path: Path) -> None:
    tid = h5py.h5t.STD_I32LE.copy()
    tid.set_precision(24)
    tid.set_size(3)
    with h5py.File(tmp_path / "p.h5", "w") as f:
        space = h5py.h5s.create_simple((3, 4))
        h5py.h5d.create(f.id, b"v", tid, space)
    with pytest.raises(ScanError, match=r"v: numpy has no type .*i3"):
        scanned(tmp_path / "p.h5")


def test_an_array_of_enormous_elements_is_refused(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "e.h5", "w") as f:
        for name, dtype in {"v": ("u1", (4097, 4096)), "s": "S16777217"}.items():
            f.create_dataset(name, (1,), dtype)
    for name in ("v", "s"):
        with pytest.raises(ScanError, match=f"{name}: each of its elements has 16.* bytes"):
            scanned(tmp_path / "e.h5", arrays=[name])


@pytest.mark.parametrize("precision", [5, 12])
def test_bit_fields_and_bytes_of_fewer_bits_than_they_occupy_are_refused(
    tmp_path: Path, precision: int
) -> None:
    tid = (h5py.h5t.STD_I8BE if precision < 8 else h5py.h5t.STD_B16LE).copy()
    assert granules.library().H5Tset_precision(tid.id, precision) >= 0
    with h5py.File(tmp_path / "p.h5", "w") as f:
        h5py.h5d.create(f.id, b"v", tid, h5py.h5s.create_simple((3, 4)))
    with pytest.raises(ScanError, match=r"v: its numbers use \d bytes in a way that .* does not"):
        scanned(tmp_path / "p.h5")


def test_enumerations_and_booleans_are_their_integers(tmp_path: Path) -> None:
    flags = np.array([[0, 1], [1, 0]])
    with h5py.File(tmp_path / "e.h5", "w") as f:
        f["flag"] = flags.astype(bool)
        f.create_dataset(
            "cloud",
            data=flags.astype("<i2"),
            dtype=h5py.enum_dtype({"CLEAR": 0, "CLOUD": 1}, "<i2"),
        )
    found = scanned(tmp_path / "e.h5").arrays
    assert (found["flag"].meta.dtype, found["cloud"].meta.dtype) == ("|i1", "<i2")
    for name in found:
        np.testing.assert_array_equal(assembled(tmp_path / "e.h5", found[name]), flags)


def test_strings_come_as_fixed_bytes(tmp_path: Path) -> None:
    words = [["Reykjavík", ""], ["b", "Höfn"]]
    with h5py.File(tmp_path / "s.h5", "w") as f:
        f["fixed"] = np.array([[b"ab", b"c"]], "S4")
        f.create_dataset("vlen", data=words, dtype=h5py.string_dtype())
        f["one"] = "a scalar"
        f.create_dataset("never", (2, 2), h5py.string_dtype())
    found = scanned(tmp_path / "s.h5").arrays
    assert assembled(tmp_path / "s.h5", found["fixed"]).tolist() == [[b"ab", b"c"]]
    assert found["vlen"].meta.dtype == "|S10"
    assert by_value(found["vlen"]).tolist() == [[w.encode() for w in row] for row in words]
    assert found["vlen"].meta.layout == "values"
    assert by_value(found["one"]).item() == b"a scalar"
    assert by_value(found["never"]).tolist() == [[b"", b""]] * 2


def test_scalars_come_by_value_without_references(tmp_path: Path) -> None:
    with netCDF4.Dataset(tmp_path / "s.nc", "w") as nc:
        crs = nc.createVariable("crs", "i4")
        crs.grid_mapping_name = "latitude_longitude"
        crs[...] = -5
    item = scanned(tmp_path / "s.nc").arrays["crs"]
    assert (item.offset, item.meta.shape, item.meta.layout) == (None, (), "values")
    assert by_value(item)[()] == -5
    assert item.meta.attrs == {"grid_mapping_name": "latitude_longitude"}


def test_fill_is_hdf5s_and_no_fill_attribute_is_invented(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "f.h5", "w") as f:
        granules.pipeline(f, "default", None, (2, 2), shape=(4, 4))
        granules.pipeline(f, "nan", None, (2, 2), shape=(4, 4), dtype="<f4", fill=np.nan)
        granules.pipeline(f, "big", None, (2, 2), shape=(4, 4), dtype="<u8", fill=2**64 - 1)
        payload = np.array(0x7FC00001, "<u4").view("<f4")[()]
        granules.pipeline(f, "payload", None, (2, 2), shape=(4, 4), dtype="<f4", fill=payload)
        plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        plist.set_chunk((2, 2))
        plist.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
        space = h5py.h5s.create_simple((4, 4))
        h5py.h5d.create(f.id, b"never", h5py.h5t.STD_I32LE, space, plist)
    with netCDF4.Dataset(tmp_path / "n.nc", "w") as nc:
        nc.createDimension("x", 2)
        nc.createVariable("off", "i4", ("x", "x"), fill_value=False)
        nc.createVariable("1e37", "f4", ("x", "x"), fill_value=1e37)
    h5, n = scanned(tmp_path / "f.h5").arrays, scanned(tmp_path / "n.nc").arrays
    assert {name: i.meta.fill for name, i in h5.items()} == {
        "default": "0",
        "nan": "NaN",
        "big": "18446744073709551615",
        "payload": "0x7fc00001",
        "never": "0",
    }
    assert n["1e37"].meta.fill == "1e+37"
    assert n["1e37"].meta.attrs["_FillValue"] == float(np.float32(1e37))
    assert all("_FillValue" not in i.meta.attrs for i in (*h5.values(), n["off"]))


def test_a_fill_that_hdf5_leaves_undefined_is_none(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "u.h5", "w") as f:
        plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        plist.set_chunk((2, 2))
        assert granules.library().H5Pset_fill_value(plist.id, h5py.h5t.STD_I32LE.id, None) >= 0
        space = h5py.h5s.create_simple((4, 4))
        h5py.h5d.create(f.id, b"v", h5py.h5t.STD_I32LE, space, plist)
        h5py.h5d.create(f.id, b"x", h5py.h5t.STD_I32LE, h5py.h5s.create_simple((4,)))
    found = scanned(tmp_path / "u.h5", concat="time").arrays
    assert (found["v"].meta.fill, found["x"].meta.fill) == (None, "0")
    assert found["v"].digest == hashlib.sha256(bytes(64)).hexdigest()


def test_a_number_of_three_bytes_is_no_attribute_but_no_obstacle(tmp_path: Path) -> None:
    tid = h5py.h5t.STD_I32LE.copy()
    tid.set_precision(24)
    tid.set_size(3)
    with h5py.File(tmp_path / "a.h5", "w") as f:
        f["v"] = DATA
        h5py.h5a.create(f["v"].id, b"odd", tid, h5py.h5s.create_simple((1,)))
        f["v"].attrs["even"] = 4
        f["v"].attrs["flag"] = True
        f["v"].attrs["nothing"] = h5py.Empty("f4")
        f["v"].attrs["empty"] = np.zeros((0, 0), "i4")
    assert scanned(tmp_path / "a.h5").arrays["v"].meta.attrs == {
        "even": 4,
        "flag": 1,
        "nothing": [],
        "empty": [],
    }


def test_fill_of_text_is_its_bytes_whatever_the_character_set(tmp_path: Path) -> None:
    with netCDF4.Dataset(tmp_path / "t.nc", "w") as nc:
        nc.createDimension("n", 3)
        nc.createVariable("v", "S1", ("n", "n"), fill_value="X")
    assert scanned(tmp_path / "t.nc").arrays["v"].meta.fill == "X"


def test_attributes_keep_dtype_digits_and_text(tmp_path: Path) -> None:
    with netCDF4.Dataset(tmp_path / "a.nc", "w") as nc:
        nc.createDimension("x", 2)
        v = nc.createVariable("v", "i2", ("x",))
        v.scale_factor = np.float32(0.01)
        v.valid_range = np.array([-300, 4500], "i2")
        v.big = np.int64(2**53 + 1)
        v.nan = np.float32("nan")
        v.empty = ""
        v.units = "°C"
        v.setncattr_string("words", ["a", "b"])
    with h5py.File(tmp_path / "a.nc", "a") as f:
        f["v"].attrs.create("latin", np.bytes_("°C".encode("latin-1")))
        f["v"].attrs["ref"] = f["v"].ref
    meta = scanned(tmp_path / "a.nc").arrays["v"].meta
    assert meta.attrs == {
        "scale_factor": float(np.float32(0.01)),
        "valid_range": [-300, 4500],
        "big": 2**53 + 1,
        "nan": "NaN",
        "empty": "",
        "units": "°C",
        "words": ["a", "b"],
        "latin": "°C",
    }
    assert meta.attr_dtypes["scale_factor"] == "<f4"
    assert meta.attr_dtypes["valid_range"] == "<i2"
    assert meta.attr_dtypes["big"] == "<i8"
    assert meta.attr_dtypes["latin"] == "latin-1"
    assert meta.attr_dtypes["units"] == meta.attr_dtypes["words"] == "str"


def test_root_attributes_come_without_bookkeeping(tmp_path: Path) -> None:
    granules.oisst(tmp_path / "d.nc", date(2020, 1, 1))
    found = scanned(tmp_path / "d.nc")
    assert dict(found.root) == {
        "title": "byterefs test granule",
        "id": "d.nc",
        "Conventions": "CF-1.6",
    }
    assert dict(found.root_dtypes) == dict.fromkeys(found.root, "str")
    assert not [k for i in found.arrays.values() for k in i.meta.attrs if k in BOOKKEEPING]


def test_groups_have_full_names_and_the_dimensions_nearest_to_them(tmp_path: Path) -> None:
    path = tmp_path / "g.nc"
    with netCDF4.Dataset(path, "w") as nc:
        nc.createDimension("x", 3)
        nc.createVariable("x", "f4", ("x",))[:] = [1, 2, 3]
        g = nc.createGroup("g")
        g.createDimension("y", 2)
        g.createVariable("sst", "i2", ("y", "x"))[:] = 1
        sub = g.createGroup("deep")
        sub.createDimension("x", 4)
        sub.createVariable("x", "f4", ("x",))[:] = [5, 6, 7, 8]
        sub.createVariable("v", "i2", ("y", "x"))[:] = 2
    found = scanned(path).arrays
    assert {n: i.meta.dims for n, i in found.items()} == {
        "x": ("x",),
        "g/sst": ("y", "x"),
        "g/deep/x": ("g/deep/x",),
        "g/deep/v": ("y", "g/deep/x"),
    }
    assert set(scanned(path, arrays=["g/sst"]).arrays) == {"g/sst", "x"}


def test_dimensions_without_variables_are_no_arrays(tmp_path: Path) -> None:
    with netCDF4.Dataset(tmp_path / "d.nc", "w") as nc:
        nc.createDimension("time", None)
        nc.createDimension("nv", 2)
        nc.createVariable("v", "i4", ("time", "nv"))[:] = np.arange(6).reshape(3, 2)
    item = scanned(tmp_path / "d.nc").arrays
    assert set(item) == {"v"}
    assert (item["v"].meta.dims, item["v"].meta.shape) == (("time", "nv"), (3, 2))


def test_a_coordinate_that_was_never_written_is_absent_and_fill(tmp_path: Path) -> None:
    with netCDF4.Dataset(tmp_path / "d.nc", "w") as nc:
        nc.createDimension("nv", 2)
        nc.createVariable("nv", "f4", ("nv",), fill_value=-1)
    item = scanned(tmp_path / "d.nc").arrays["nv"]
    assert by_value(item).tolist() == [-1, -1]
    assert item.offset is not None
    assert item.offset.tolist() == [ABSENT]


def test_arrays_on_one_unlimited_dimension_are_as_long_as_the_longest(tmp_path: Path) -> None:
    path = tmp_path / "u.nc"
    with netCDF4.Dataset(path, "w") as nc:
        nc.set_auto_maskandscale(False)
        nc.createDimension("time", None)
        nc.createVariable("time", "f8", ("time",), fill_value=-1, chunksizes=(2,))[:] = [1, 2, 3]
        nc.createVariable("v", "i4", ("time",), fill_value=-9, chunksizes=(2,))[:5] = range(5)
    with netCDF4.Dataset(path) as nc:
        nc.set_auto_maskandscale(False)
        expected = {name: nc[name][:].data for name in ("time", "v")}
    found = scanned(path).arrays
    for name, values in expected.items():
        assert found[name].meta.shape == (5,)
        np.testing.assert_array_equal(by_value(found[name]), values)
        np.testing.assert_array_equal(assembled(path, found[name]), values)


def test_names_of_dimensions_without_scales_are_those_of_netcdf(tmp_path: Path) -> None:
    path = tmp_path / "p.h5"
    with h5py.File(path, "w") as f:
        f["b"] = np.zeros((3, 4, 3))
        f["a"] = np.zeros((4, 5))
        f.create_dataset("u", (4, 2), "f4", maxshape=(None, 2), chunks=(2, 2))
        f["g/c"] = np.zeros((4, 4))
    with netCDF4.Dataset(path) as nc:
        theirs = {name: nc[name].dimensions for name in ("a", "b", "u", "g/c")}
    assert {n: i.meta.dims for n, i in scanned(path).arrays.items()} == theirs
    assert scanned(path, arrays=["b"]).arrays["b"].meta.dims == theirs["b"]


def test_a_variable_with_the_name_of_a_dimension_it_does_not_describe_keeps_its_name(
    tmp_path: Path,
) -> None:
    path = tmp_path / "n.nc"
    with netCDF4.Dataset(path, "w") as nc:
        nc.createDimension("x", 2)
        nc.createDimension("y", 5)
        nc.createDimension("n", 3)
        nc.createVariable("y", "f4", ("x", "y"))[:] = np.arange(10).reshape(2, 5)
        nc.createVariable("n", "S1", ("n", "x"))[:] = np.full((3, 2), b"c", "S1")
    with h5py.File(path) as f:
        assert "_nc4_non_coord_y" in f
    found = scanned(path).arrays
    assert {n: i.meta.dims for n, i in found.items()} == {"y": ("x", "y"), "n": ("n", "x")}
    np.testing.assert_array_equal(assembled(path, found["y"]), np.arange(10).reshape(2, 5))


def test_soft_links_are_followed_and_loops_and_dangling_links_end(tmp_path: Path) -> None:
    path = tmp_path / "l.h5"
    with h5py.File(path, "w") as f:
        f["real/v"] = DATA
        f["alias"] = h5py.SoftLink("/real/v")
        f["hard"] = f["real/v"]
        f["gone"] = h5py.SoftLink("/nowhere")
        f["real/loop"] = h5py.SoftLink("/real")
        f["real/up"] = f["/"]
    found = scanned(path).arrays
    assert set(found) == {"real/v", "alias", "hard"}
    for item in found.values():
        np.testing.assert_array_equal(assembled(path, item), DATA)


def test_an_array_behind_a_soft_link_tells_where_the_link_leads(tmp_path: Path) -> None:
    path = tmp_path / "l.h5"
    with h5py.File(path, "w") as f:
        f["g/v"] = DATA
        f["far"], f["near"] = h5py.SoftLink("/g/v"), h5py.SoftLink("g/./v")
        f["g/beside"], f["h"] = h5py.SoftLink("v"), h5py.SoftLink("/g")
    found = scanned(path).arrays
    links = {name: item.meta.attrs.get("byterefs_link") for name, item in found.items()}
    named = dict.fromkeys(["far", "near", "g/beside", "h/v", "h/beside"], "g/v")
    assert links == {"g/v": None, **named}


def test_a_link_of_a_class_that_hdf5_lacks_is_refused_by_name_and_the_rest_is_read(
    tmp_path: Path,
) -> None:
    path = tmp_path / "u.h5"
    with h5py.File(path, "w") as f:  # of the oldest format, which has no checksums
        f["v"] = DATA
        f["own"] = h5py.ExternalLink("EXTERNAL-NAME", "x")
    raw = path.read_bytes()
    # the class of a link message is a byte before the length and the bytes of its name
    at = raw.index(b"\x40\x03own")
    raw = raw[:at] + b"\x41" + raw[at + 1 :]
    path.write_bytes(raw)
    with pytest.raises(ScanError, match="own: it is a link of a class of its writer's own"):
        scanned(path)
    assert set(scanned(path, arrays=["v"]).arrays) == {"v"}


def test_what_attributes_name_comes_along_transitively(tmp_path: Path) -> None:
    path = tmp_path / "c.nc"
    with netCDF4.Dataset(path, "w") as nc:
        for name, n in {"time": None, "y": 3, "x": 4, "nv": 2}.items():
            nc.createDimension(name, n)
        for name, dims in {
            "t": ("time", "y", "x"),
            "other": ("time", "y", "x"),
            "mask": ("y", "x"),
            "lat": ("y", "x"),
            "lat_b": ("y", "x", "nv"),
            "time": ("time",),
            "time_b": ("time", "nv"),
            "area": ("y", "x"),
        }.items():
            nc.createVariable(name, "f8", dims)[: 2 if dims[0] == "time" else None] = 1.5
        nc.createVariable("crs", "i4")
        nc["t"].setncatts(
            {
                "coordinates": "lat missing",
                "grid_mapping": "crs: y x",
                "cell_measures": "area: area",
            }
        )
        nc["lat"].bounds = "lat_b"
        nc["time"].bounds = "time_b"
    found = scanned(path, arrays=["t", "mask"], concat="time").arrays
    kept = {"lat", "lat_b", "time", "time_b", "area", "crs"}
    assert set(found) == {"t", "mask", *kept}
    assert {n for n, i in found.items() if i.values is not None} == kept
    assert found["mask"].digest is not None
    assert found["t"].digest is None


def test_large_arrays_are_not_kept_by_value(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with h5py.File(tmp_path / "l.h5", "w") as f:
        f["long"] = np.arange(100.0)
        f["longer"] = np.arange(200.0)
    monkeypatch.setattr(_common, "KEPT", 100)
    monkeypatch.setattr(_common, "DIGESTED", 1000)
    found = scanned(tmp_path / "l.h5", concat="time").arrays
    assert found["long"].values is None
    assert found["long"].digest is not None
    # read in pieces: nothing else could tell that it is the same in the next source
    assert found["longer"].digest == hashlib.sha256(np.arange(200.0).tobytes()).hexdigest()


def test_a_compressed_coordinate_whose_filter_hdf5_lacks_is_decoded_from_its_bytes(
    shared: Callable[[str], Path],
) -> None:
    path = shared("hdf5_tricky/hdf5_compression_zstd.h5")
    item = scanned(path).arrays["data"]
    assert item.meta.info == "FILTER=ZSTD; ENDIANNESS=LITTLE"
    np.testing.assert_array_equal(by_value(item), np.arange(100))


def test_a_chunk_that_passes_the_end_of_the_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "t.h5"
    with h5py.File(path, "w") as f:
        granules.pipeline(f, "v", DATA, (4, 5), "deflate")
    node = hdf5.tree(h5py.File(path)).nodes["v"]
    with pytest.raises(hdf5.Unsupported, match=r"chunk \[0, 0\].*truncated"):
        hdf5.locate(node, np.dtype("<i4"), steps=False, end=10)


def test_a_damaged_object_is_a_refusal_with_its_file(tmp_path: Path) -> None:
    path = tmp_path / "d.h5"
    with h5py.File(path, "w", libver="latest") as f:
        granules.pipeline(f, "v", DATA, (5, 4), "deflate")
        header = h5py.h5o.get_info(f["v"].id).addr
    with path.open("r+b") as raw:
        raw.seek(header)
        raw.write(b"\0" * 32)
    with pytest.raises(ScanError, match=r"d.h5: HDF5 cannot read it \(v: .*HDF5 \d"):
        scanned(path)


def test_no_hdf5_error_is_a_crash_on_files_that_other_readers_crash_on(
    shared: Callable[[str], Path],
) -> None:
    path = shared("hdf5_tricky/jhdf_float_special_values_latest.hdf5")
    with h5py.File(path) as f:
        expected = {name: f[name][()] for name in f}
    found = scanned(path).arrays
    assert set(found) == {"float16", "float32", "float64"}
    for name, values in expected.items():
        assert by_value(found[name]).tobytes() == values.tobytes()


def test_a_broken_heap_is_a_refusal_with_file_array_and_version(
    shared: Callable[[str], Path],
) -> None:
    with pytest.raises(ScanError, match=r"strings-reused.hdf5: a0: .*heap.*HDF5 \d"):
        scanned(shared("hdf5_tricky/jhdf_var-length-strings-reused.hdf5"))
