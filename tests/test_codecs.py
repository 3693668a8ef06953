"""Codec JSON and its decoder against bytes that HDF5 and numcodecs wrote."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import h5py
import hypothesis.extra.numpy as hnp
import numcodecs
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from osgeo import gdal

import granules
from byterefs import codecs
from byterefs.errors import ByteRefsError
from conftest import Shared

gdal.UseExceptions()

DTYPES = ["|i1", "|u1", "<i2", ">u2", "<i4", ">f4", "<f8", ">i8", "<u8", "<c8", "|S3"]
CONFIGS: list[dict[str, Any]] = [
    {"id": "shuffle", "elementsize": 4},
    {"id": "fletcher32"},
    {"id": "zlib", "level": 4},
    {"id": "zstd", "level": 3},
    {"id": "bz2", "level": 9},
]


def encode(codec: dict[str, Any], values: np.ndarray) -> bytes:
    """What numcodecs writes for a pipeline, filters in order and the compressor last."""
    data: Any = values.tobytes()
    for config in codecs.pipeline(codec):
        data = numcodecs.get_codec(dict(config)).encode(np.frombuffer(data, "u1"))
        data = bytes(np.ascontiguousarray(data).view("u1"))
    return bytes(data)


@st.composite
def pipelines(draw: st.DrawFn) -> dict[str, Any]:
    """Shuffles first, since numcodecs' own refuses other than whole elements."""
    after = draw(st.lists(st.sampled_from(CONFIGS[1:]), max_size=3))
    filters = [*([CONFIGS[0]] if draw(st.booleans()) else []), *after]
    last = filters.pop() if filters and filters[-1]["id"] in codecs.COMPRESSORS else None
    return {"compressor": last, "filters": filters or None}


@given(pipelines(), hnp.arrays("<f4", st.tuples(st.integers(1, 5), st.integers(1, 7))))
def test_what_numcodecs_encoded_decodes_to_the_same_bits(
    codec: dict[str, Any], values: np.ndarray
) -> None:
    out = codecs.decode(codec, encode(codec, values), "<f4", values.shape)
    assert out.tobytes() == values.tobytes()
    assert (out.dtype.str, out.shape) == ("<f4", values.shape)


@settings(max_examples=60)
@given(
    words=st.lists(st.sampled_from(["shuffle", "deflate", "fletcher32"]), max_size=4),
    dtype=st.sampled_from([d for d in DTYPES if d != "<c8"]),
    seed=st.integers(0, 2**32 - 1),
)
def test_what_hdf5_encoded_decodes_to_the_same_bits(
    words: list[str], dtype: str, seed: int
) -> None:
    raw = np.random.default_rng(seed).integers(0, 5, 35 * np.dtype(dtype).itemsize, "u1")
    values = np.frombuffer(raw.tobytes(), dtype).reshape(5, 7)
    with h5py.File.in_memory() as f:
        dset = granules.pipeline(f, "v", values, (5, 7), *words)
        plist = dset.id.get_create_plist()
        filters = [plist.get_filter(i) for i in range(plist.get_nfilters())]
        mask, data = dset.id.read_direct_chunk((0, 0))
    if mask == 0:
        codec = codecs.hdf5_codec(filters, dtype)
        assert codecs.decode(codec, data, dtype, (5, 7)).tobytes() == values.tobytes()


def test_the_last_filter_is_the_compressor_if_it_is_one() -> None:
    shuffle, deflate, check = (2, 1, (4,), b"shuffle"), (1, 1, (6,), b"deflate"), (3, 0, (), b"f")
    z, s = {"id": "zlib", "level": 6}, {"id": "shuffle", "elementsize": 4}
    f = {"id": "fletcher32"}
    cases = {
        (): (None, None),
        (deflate,): (z, None),
        (shuffle, deflate): (z, [s]),
        (deflate, shuffle): (None, [z, s]),
        (shuffle, deflate, check): (None, [s, z, f]),
        (check, shuffle, deflate): (z, [f, s]),
        (deflate, deflate): (z, [z]),
    }
    for filters, (compressor, rest) in cases.items():
        codec = {"compressor": compressor, "filters": rest}
        assert codecs.hdf5_codec(filters, "<f4") == codec
        assert codecs.hdf5_codec((), "<f4") == codecs.PLAIN


def test_a_filter_without_parameters_takes_the_element_size_of_the_dtype() -> None:
    codec = codecs.hdf5_codec([(2, 1, (), b"shuffle")], "<f8")
    assert codec["filters"] == [{"id": "shuffle", "elementsize": 8}]


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        (5, "hdf5:nbit"),
        (6, "hdf5:scaleoffset"),
        (32000, "hdf5:lzf"),
        (32008, "hdf5:bitshuffle"),
        (32099, "hdf5:32099"),
    ],
)
def test_what_numcodecs_lacks_keeps_its_parameters_and_is_refused_by_name(
    number: int, expected: str
) -> None:
    codec = codecs.hdf5_codec([(number, 1, (7, 8), b"its name")], "<i4")
    (config,) = codecs.pipeline(codec)
    assert config == {"id": expected, "cd_values": [7, 8], "name": "its name"}
    assert expected.removeprefix("hdf5:") in str(codecs.numcodecs_refusal(codec))
    with pytest.raises(ByteRefsError, match=rf"{expected}|NBIT"):
        codecs.decode(codec, b"x", "<i4", (1,))


def test_bitshuffle_of_jhdf_decodes_alike_whatever_its_blocks_and_compression(
    shared: Shared,
) -> None:
    seen = 0
    with h5py.File(shared("hdf5_tricky/jhdf_bitshuffle_datasets.hdf5")) as f:
        for name, dset in f.items():
            plist = dset.id.get_create_plist()
            filters = [plist.get_filter(i) for i in range(plist.get_nfilters())]
            codec = codecs.hdf5_codec(filters, dset.dtype.str)
            raw = dset.id.read_direct_chunk((0,))[1]
            found = codecs.decode(codec, raw, dset.dtype.str, dset.chunks)
            np.testing.assert_array_equal(found, np.arange(20), err_msg=name)
            seen += 1
    assert seen == 40


def test_blosc_bz2_and_zstd_filters_are_numcodecs_streams() -> None:
    values = np.arange(300, dtype="<i4")
    for number, cd, encoder in (
        (32001, (2, 2, 4, 1200, 5, 1, 5), numcodecs.Blosc("zstd", 5, 1)),
        (32001, (), numcodecs.Blosc()),
        (307, (9,), numcodecs.BZ2(9)),
        (32015, (3,), numcodecs.Zstd(3)),
        (32015, (), numcodecs.Zstd(1)),
    ):
        codec = codecs.hdf5_codec([(number, 1, cd, b"")], "<i4")
        assert codec["compressor"] is not None
        out = codecs.decode(codec, encoder.encode(values), "<i4", (300,))
        np.testing.assert_array_equal(out, values)
    assert codecs.hdf5_codec([(32001, 1, (2, 2, 4, 24, 5, 1, 1), b"")], "<i4")["compressor"] == {
        "id": "blosc",
        "cname": "lz4",
        "clevel": 5,
        "shuffle": 1,
        "blocksize": 0,
    }


def test_shuffled_bytes_that_are_no_whole_elements_keep_their_tail() -> None:
    values = np.arange(35, dtype="<i8").reshape(5, 7)
    with h5py.File.in_memory() as f:
        dset = granules.pipeline(f, "v", values, (5, 7), "fletcher32", "shuffle")
        data = dset.id.read_direct_chunk((0, 0))[1]
    codec = {
        "compressor": None,
        "filters": [{"id": "fletcher32"}, {"id": "shuffle", "elementsize": 8}],
    }
    assert len(data) % 8 == 4
    np.testing.assert_array_equal(codecs.decode(codec, data, "<i8", (5, 7)), values)
    assert "whole number of elements" in str(codecs.numcodecs_refusal(codec))


@pytest.mark.parametrize("size", [1, 2, 4, 8])
@pytest.mark.parametrize("first", ["fletcher32", "zlib"])
def test_a_shuffle_is_refused_where_numcodecs_own_fails(first: str, size: int) -> None:
    filters = [{"id": first}, {"id": "shuffle", "elementsize": size}]
    codec = {"compressor": None, "filters": filters}
    data = numcodecs.get_codec({"id": first}).encode(np.arange(3, dtype="<f8"))
    whole = len(bytes(data)) % size == 0
    refused = codecs.numcodecs_refusal(codec) is not None
    assert refused == (size > 1 and (first == "zlib" or not whole))


def test_a_wrong_checksum_length_or_stream_is_an_error() -> None:
    values = np.arange(20, dtype="<i4")
    check = {"compressor": None, "filters": [{"id": "fletcher32"}]}
    data = bytearray(encode(check, values))
    assert codecs.decode(check, bytes(data), "<i4", (20,)).tolist() == values.tolist()
    data[3] ^= 1
    with pytest.raises(ByteRefsError, match="fletcher32"):
        codecs.decode(check, bytes(data), "<i4", (20,))
    for length in (76, 84):
        with pytest.raises(ByteRefsError, match=f"80 bytes, {length} came"):
            codecs.decode(codecs.PLAIN, b"x" * length, "<i4", (20,))
    for config in CONFIGS[1:]:
        codec = {"compressor": config, "filters": None}
        whole = encode(codec, values)
        for broken in (whole[:-3], whole[1:], b""):
            with pytest.raises(ByteRefsError, match=f"no {config['id']} stream|80 bytes, 0 came"):
                codecs.decode(codec, broken, "<i4", (20,))


def test_codecs_are_the_same_if_they_decode_alike() -> None:
    def deflated(level: int, size: int) -> dict[str, Any]:
        return codecs.hdf5_codec([(2, 1, (size,), b""), (1, 1, (level,), b"")], "<i4")

    assert codecs.same(deflated(1, 4), deflated(9, 4))
    assert not codecs.same(deflated(1, 4), deflated(1, 2))
    orders = [codecs.hdf5_codec(p, "<i4") for p in itertools.permutations(
        [(1, 1, (4,), b""), (2, 1, (4,), b""), (3, 0, (), b"")]
    )]  # fmt: skip
    assert sum(codecs.same(a, b) for a in orders for b in orders) == len(orders)
    once, twice = ([(1, 1, (4,), b"")] * n for n in (1, 2))
    assert not codecs.same(codecs.hdf5_codec(once, "<i4"), codecs.hdf5_codec(twice, "<i4"))
    lzf = [codecs.hdf5_codec([(32000, 1, (4, 261, n), b"lzf")], "<i4") for n in (480, 240)]
    assert codecs.same(*lzf)
    szip = [codecs.hdf5_codec([(4, 1, (169, n, 32, 10), b"szip")], "<i4") for n in (8, 16)]
    assert not codecs.same(*szip)


WORDS = ["shuffle", "deflate", "fletcher32", "lzf", "szip", "nbit", "scaleoffset"]


@pytest.mark.parametrize("words", [(), *[(w,) for w in WORDS], *itertools.permutations(WORDS[:3]),
    ("szip", "deflate"), ("deflate", "shuffle", "deflate"),
    ("shuffle", "lzf")])  # fmt: skip
@pytest.mark.parametrize("dtype", ["<i4", ">i2", "|u1"])
def test_info_is_what_gdal_says(words: tuple[str, ...], dtype: str, tmp_path: Path) -> None:
    path = tmp_path / "v.h5"
    with h5py.File(path, "w") as f:
        dset = granules.pipeline(f, "v", np.zeros((8, 32), dtype), (8, 32), *words)
        plist = dset.id.get_create_plist()
        filters = [plist.get_filter(i) for i in range(plist.get_nfilters())]
        assert dset.id.get_chunk_info(0).filter_mask == 0
    array = gdal.OpenEx(str(path), gdal.OF_MULTIDIM_RASTER).GetRootGroup().OpenMDArray("v")
    theirs = array.GetRawBlockInfo([0, 0]).GetInfo()
    assert codecs.info(codecs.hdf5_codec(filters, dtype), dtype) == "; ".join(theirs or ())


def test_info_joins_gdals_words_as_the_table_wants_them() -> None:
    codec = codecs.hdf5_codec([(2, 1, (2,), b"shuffle"), (1, 1, (4,), b"deflate")], "<i2")
    assert codecs.info(codec, "<i2") == "COMPRESSION=DEFLATE; FILTER=SHUFFLE; ENDIANNESS=LITTLE"


@pytest.mark.parametrize("cname", ["lz4", "zstd", "blosclz"])
@pytest.mark.parametrize("lost", [1, 3, 8])
def test_a_blosc_chunk_that_lost_its_end_is_refused_where_blosc_gives_other_values(
    cname: str, lost: int
) -> None:
    values = np.arange(1, 41, dtype="<i4")
    codec = {"compressor": {"id": "blosc", "cname": cname, "clevel": 5, "shuffle": 1}}
    data = numcodecs.get_codec(codec["compressor"]).encode(values)
    assert (codecs.decode(codec, data, "<i4", values.shape) == values).all()
    with pytest.raises(ByteRefsError, match=f"its header says {len(data)} bytes"):
        codecs.decode(codec, data[:-lost], "<i4", values.shape)
