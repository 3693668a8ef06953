"""The DMR++ scanner against HDF5 files that h5py describes, and the traps of research/peers.md, B5, B32 and E.5."""

from __future__ import annotations

import base64
import shutil
import zlib
from collections.abc import Callable, Sequence
from datetime import date
from pathlib import Path
from typing import Any, ClassVar
from xml.sax.saxutils import escape, quoteattr

import h5py
import netCDF4
import numpy as np
import pytest
from osgeo import gdal

import granules
from building import build
from byterefs import codecs, literals, scanners
from byterefs.errors import ScanError
from byterefs.model import ABSENT, Source, SourceArray, SourceScan
from conformance import ScannerTests, assembled, by_value, stored_bytes
from conformance import scanned as scanned_as
from forms import Results
from granules import Granule

gdal.UseExceptions()
Shared = Callable[[str], Path]

HEAD = (
    '<Dataset xmlns="http://xml.opendap.org/ns/DAP/4.0#" dapVersion="4.0" dmrVersion="1.0" name="made"'
    ' xmlns:dmrpp="http://xml.opendap.org/dap/dmrpp/1.0.0#" dmrpp:href="OPeNDAP_DMRpp_DATA_ACCESS_URL">'
)
WORDS = {1: "deflate", 2: "shuffle", 3: "fletcher32"}
TAGS = {"i": "Int", "u": "UInt", "f": "Float"}
DATA = (np.arange(120, dtype="<i4") * 7 - 300).reshape(12, 10)
GRID = {(i, j) for i in range(3) for j in range(3)}


def scanned(path: Path, **options: Any) -> SourceScan:
    return scanned_as(path, **{"format": "dmrpp", **options})


def tag(dtype: np.dtype[Any]) -> str:
    return "String" if dtype.kind == "S" else f"{TAGS[dtype.kind]}{dtype.itemsize * 8}"


def axes(d: h5py.Dataset) -> str:
    """The dimensions of a dataset as netCDF-4 attached them, by size where there are none."""
    found = []
    for axis, size in enumerate(d.shape):
        if d.is_scale:
            found.append(f'<Dim name="{d.name}"/>')
        elif len(d.dims[axis]):
            found.append(f'<Dim name="{d.dims[axis][0].name}"/>')
        else:
            found.append(f'<Dim size="{size}"/>')
    return "".join(found)


def attributes(d: h5py.Dataset) -> str:
    found = ""
    for name, value in d.attrs.items():
        if isinstance(value, str):
            kind, texts = "String", [value]
        elif isinstance(value, np.ndarray | np.generic) and np.asarray(value).dtype.kind in "iuf":
            kind, texts = tag(value.dtype), [str(x) for x in np.asarray(value).ravel()]
        else:
            continue
        values = "".join(f"<Value>{escape(t)}</Value>" for t in texts)
        found += f"<Attribute name={quoteattr(name)} type={quoteattr(kind)}>{values}</Attribute>"
    return found


def storage(d: h5py.Dataset) -> str:
    """What the builder of a sidecar writes of where the bytes lie, from what h5py says."""
    plist = d.id.get_create_plist()
    order = "BE" if d.dtype.str[0] == ">" else "LE"
    fill = f"{d.fillvalue:g}" if d.dtype.kind == "f" else str(d.fillvalue)
    words = " ".join(WORDS[plist.get_filter(i)[0]] for i in range(plist.get_nfilters()))
    out = f'<dmrpp:chunks fillValue="{fill}" byteOrder="{order}"'
    out += f' compressionType="{words}" deflateLevel="4">' if words else ">"
    if plist.get_layout() == h5py.h5d.COMPACT:
        return f"<dmrpp:compact>{base64.b64encode(d[()].tobytes()).decode()}</dmrpp:compact>"
    if d.chunks is None:
        start = d.id.get_offset()
        if start is not None:
            out += f'<dmrpp:chunk offset="{start}" nBytes="{d.nbytes}"/>'
        return out + "</dmrpp:chunks>"
    sizes = " ".join(map(str, d.chunks))
    out += f"<dmrpp:chunkDimensionSizes>{sizes}</dmrpp:chunkDimensionSizes>"
    for i in range(d.id.get_num_chunks()):
        c = d.id.get_chunk_info(i)
        mask = f' fm="{c.filter_mask}"' if c.filter_mask else ""
        where = ",".join(map(str, c.chunk_offset))
        out += (
            f'<dmrpp:chunk offset="{c.byte_offset}" nBytes="{c.size}"'
            f' chunkPositionInArray="[{where}]"{mask}/>'
        )
    return out + "</dmrpp:chunks>"


def described(path: Path) -> str:
    """The variables of an HDF5 file as a sidecar has them."""
    scales, variables = "", ""
    with h5py.File(path) as f:
        for name, d in f.items():
            if d.is_scale:
                scales += f'<Dimension name="{name}" size="{d.shape[0]}"/>'
            body = axes(d) + attributes(d) + storage(d)
            variables += f'<{tag(d.dtype)} name="{name}">{body}</{tag(d.dtype)}>'
    return scales + variables


def sidecar(path: Path, body: str | None = None, *, name: str | None = None) -> Path:
    """Write a sidecar beside a data file, by default one that describes it; returns the data file."""
    text = HEAD + (described(path) if body is None else body) + "</Dataset>"
    path.with_name(name or f"{path.name}.dmrpp").write_text(text)
    return path


def edited(path: Path, old: str, new: str) -> Path:
    """The data file after an edit of its sidecar."""
    beside = path.with_name(f"{path.name}.dmrpp")
    text = beside.read_text()
    assert old in text
    beside.write_text(text.replace(old, new, 1))
    return path


def pipelined(
    path: Path,
    *filters: str,
    data: np.ndarray = DATA,
    chunks: Sequence[int] = (5, 4),
    **options: Any,
) -> Path:
    with h5py.File(path, "w") as f:
        granules.pipeline(f, "v", data, chunks, *filters, **options)
    return sidecar(path)


def raw(path: Path, body: str, content: bytes = bytes(range(240))) -> Path:
    """A data file of no format that anybody knows, and its sidecar."""
    path.write_bytes(content)
    return sidecar(path, body)


def var(inner: str, tag: str = "Int32", dims: str = '<Dim size="3"/>') -> str:
    return f'<{tag} name="v">{dims}{inner}</{tag}>'


class TestDmrpp(ScannerTests):
    FORMAT = "dmrpp"
    COORDINATES = frozenset({"time", "zlev", "lat", "lon"})
    OPTIONS: ClassVar[dict[str, Any]] = {"format": "dmrpp"}

    # the content of a data file tells its own format, not that it has a sidecar
    test_the_format_is_found_by_content_whatever_the_name: ClassVar = None

    def granule(self, folder: Path) -> Granule:
        path = folder / "day.nc"
        values = granules.oisst(path, date(2020, 1, 2), chunks=(1, 1, 9, 12))
        return Granule(sidecar(path), values)

    def edges(self, folder: Path) -> Granule:
        path = folder / "edges.h5"
        with h5py.File(path, "w") as f:
            granules.pipeline(f, "v", DATA, (5, 4), "shuffle", "deflate")
            granules.pipeline(f, "larger", DATA, (20, 16), "deflate", unlimited=True)
        return Granule(sidecar(path), {"v": DATA, "larger": DATA})

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
            sidecar(path),
            {"some": expected, "none": nothing, "contiguous": nothing},
            {"some": GRID - {(0, 0)}, "none": GRID, "contiguous": {(0, 0)}},
        )

    def mixed(self, folder: Path) -> tuple[Path, str, str]:
        path = folder / "mixed.h5"
        with h5py.File(path, "w") as f:
            d = granules.pipeline(f, "v", DATA, (4, 5), "shuffle", "deflate")
            chunk = np.ascontiguousarray(DATA[:4, :5]).tobytes()
            d.id.write_direct_chunk((0, 0), chunk, filter_mask=0b11)
        return sidecar(path), "v", "shuffle and deflate"


def test_a_listed_sidecar_is_found_by_content_and_refused_with_the_way_out(tmp_path: Path) -> None:
    pipelined(tmp_path / "f.h5", "deflate")
    beside = (tmp_path / "f.h5.dmrpp").rename(tmp_path / "renamed.txt")
    assert scanners.detect(Source(str(beside))) == "dmrpp"
    assert scanners.detect(Source(str(tmp_path / "f.h5"))) == "hdf5"
    with pytest.raises(
        ScanError, match=r"renamed.txt: it is a DMR\+\+ sidecar; list the data file"
    ):
        scanned_as(beside)


def test_a_source_without_sidecar_is_refused_by_name(tmp_path: Path) -> None:
    path = pipelined(tmp_path / "f.h5", "deflate")
    (tmp_path / "f.h5.dmrpp").unlink()
    with pytest.raises(ScanError, match=r"f.h5: it has no DMR\+\+ sidecar f.h5.dmrpp beside it"):
        scanned(path)
    sidecar(path, name="f.dmrpp")
    np.testing.assert_array_equal(assembled(path, scanned(path).arrays["v"]), DATA)


def test_a_sidecar_without_its_data_file_is_refused_by_name(tmp_path: Path) -> None:
    path = pipelined(tmp_path / "f.h5", "deflate")
    path.unlink()
    with pytest.raises(ScanError, match=r"f.h5: cannot be read .*No such file"):
        scanned(path)


@pytest.mark.parametrize("kept", [0, 7, 0.6, 0.99])
def test_a_truncated_data_file_is_refused_although_its_sidecar_is_whole(
    tmp_path: Path, kept: float
) -> None:
    path = pipelined(tmp_path / "f.h5", "deflate")
    whole = path.read_bytes()
    path.write_bytes(whole[: int(kept * len(whole)) if kept < 1 else int(kept)])
    with pytest.raises(ScanError, match=r"f.h5: "):
        scanned(path)


def test_a_sidecar_cut_anywhere_is_refused_with_both_names(tmp_path: Path) -> None:
    path = pipelined(tmp_path / "f.h5", "deflate")
    beside = tmp_path / "f.h5.dmrpp"
    whole = beside.read_bytes()
    for kept in range(len(whole)):
        beside.write_bytes(whole[:kept])
        with pytest.raises(ScanError, match=r"f.h5: its DMR\+\+ sidecar f.h5.dmrpp cannot be read"):
            scanned(path)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "no XML"),
        (HEAD, "no XML"),
        ('<?xml version="1.0" encoding="martian"?><Dataset/>', "no XML"),
        ("<html><body>Sign in</body></html>", r"no DMR\+\+: its root is html"),
    ],
)
def test_a_file_that_is_no_sidecar_is_refused_with_both_names(
    tmp_path: Path, text: str, reason: str
) -> None:
    path = pipelined(tmp_path / "f.h5", "deflate")
    (tmp_path / "f.h5.dmrpp").write_text(text)
    with pytest.raises(
        ScanError, match=rf"f.h5: its DMR\+\+ sidecar f.h5.dmrpp .*{reason}.*; fetch"
    ):
        scanned(path)


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
@pytest.mark.parametrize("dtype", ["<i4", ">f4", "|u1", ">i2", "<f8"])
def test_every_order_of_filters_and_bytes_decodes_to_what_was_written(
    tmp_path: Path, filters: tuple[str, ...], dtype: str
) -> None:
    data = DATA.astype(dtype)
    path = pipelined(tmp_path / "f.h5", *filters, data=data)
    item = scanned(path).arrays["v"]
    words = {"deflate": "zlib"}
    assert [c["id"] for c in codecs.pipeline(item.meta.codec)] == [words.get(f, f) for f in filters]
    assert item.meta.dtype == dtype
    np.testing.assert_array_equal(assembled(path, item), data)
    assert records(item) == records(scanned_as(path).arrays["v"])


def records(item: SourceArray) -> tuple[Any, ...]:
    """What of an array decides its values."""
    where = (
        None
        if item.offset is None or item.size is None
        else (item.offset.tolist(), item.size.tolist())
    )
    meta = item.meta
    how = meta.shape, meta.chunks, meta.dtype, meta.layout, meta.info, codecs.decisive(meta.codec)
    return how, where, dict(item.data), item.values, item.digest


@pytest.mark.parametrize("dtype", [">i2", ">f8", "<i2"])
@pytest.mark.parametrize("chunks", [None, (5, 4)])
def test_big_endian_bytes_are_read_as_such_contiguous_or_chunked(
    tmp_path: Path, dtype: str, chunks: tuple[int, int] | None
) -> None:
    path = tmp_path / "b.h5"
    with h5py.File(path, "w") as f:
        f.create_dataset("v", data=DATA.astype(dtype), chunks=chunks)
        f["x"] = np.arange(3).astype(dtype)
    found = scanned(sidecar(path)).arrays
    np.testing.assert_array_equal(assembled(path, found["v"]), DATA.astype(dtype))
    np.testing.assert_array_equal(by_value(found["x"]), np.arange(3))
    assert found["v"].meta.info == f"ENDIANNESS={'BIG' if dtype[0] == '>' else 'LITTLE'}"


def test_contiguous_data_is_keyed_by_step_of_the_concat_axis(tmp_path: Path) -> None:
    path = tmp_path / "c.h5"
    with h5py.File(path, "w") as f:
        f["v"] = DATA
    sidecar(path)
    dim = scanned(path).arrays["v"].meta.dims[0]
    whole, steps = (scanned(path, concat=dim, split=s).arrays["v"] for s in (False, True))
    assert (whole.meta.chunks, steps.meta.chunks) == ((12, 10), (1, 10))
    np.testing.assert_array_equal(assembled(path, whole), DATA)
    np.testing.assert_array_equal(assembled(path, steps), DATA)


def test_compact_data_is_inline_and_coordinates_of_it_by_value(tmp_path: Path) -> None:
    path = tmp_path / "c.h5"
    with h5py.File(path, "w") as f:
        granules.compact(f, "v", DATA)
        granules.compact(f, "x", np.arange(4, dtype="<f8"))
    sidecar(path)
    for found in (scanned(path), scanned(path, concat="phony_dim_0")):
        v = found.arrays["v"]
        assert v.meta.layout == "compact"
        np.testing.assert_array_equal(assembled(path, v), DATA)
        np.testing.assert_array_equal(by_value(found.arrays["x"]), np.arange(4))


def test_missing_data_in_the_sidecar_is_inline(tmp_path: Path) -> None:
    values = np.array([1, -2, 3], "<i4")
    packed = base64.b64encode(zlib.compress(values.tobytes())).decode()
    one = base64.b64encode(values[:1].tobytes()).decode()
    body = var(f"<dmrpp:missingdata>{packed}</dmrpp:missingdata>")
    body += f'<Int32 name="one"><Dim size="1"/><dmrpp:missingdata>{one}</dmrpp:missingdata></Int32>'
    found = scanned(raw(tmp_path / "m.hdf", body)).arrays
    np.testing.assert_array_equal(by_value(found["v"]), values)
    np.testing.assert_array_equal(by_value(found["one"]), values[:1])
    assert stored_bytes(tmp_path / "m.hdf", found["v"], (0,)) == values.tobytes()


def test_strings_of_any_length_come_by_value(tmp_path: Path) -> None:
    long = "elephant " * 50
    packed = base64.b64encode(zlib.compress(long.encode())).decode()
    body = var(
        f'<dmrpp:vlsa><v>größer</v><v c="2">b</v><v s="{len(long)}">{packed}</v></dmrpp:vlsa>',
        "String",
        '<Dim size="2"/><Dim size="2"/>',
    )
    scalar = base64.b64encode(b"a scalar").decode()
    body += f'<String name="s"><dmrpp:compact>{scalar}</dmrpp:compact></String>'
    found = scanned(raw(tmp_path / "s.h5", body)).arrays
    expected = [["größer".encode(), b"b"], [b"b", long.encode()]]
    np.testing.assert_array_equal(by_value(found["v"]), np.array(expected))
    assert by_value(found["s"]).item() == b"a scalar"


def test_strings_of_fixed_length_are_referenced(tmp_path: Path) -> None:
    fixed = '<dmrpp:FixedLengthStringArray string_length="5" pad="null_pad"/>'
    chunk = '<dmrpp:chunks fillValue=""><dmrpp:chunk offset="4" nBytes="15"/></dmrpp:chunks>'
    for inner in (chunk + fixed, chunk):
        path = raw(tmp_path / "s.bin", var(inner, "String"), b"....appleb\0\0\0\0pears")
        item = scanned(path).arrays["v"]
        assert item.meta.dtype == "|S5"
        np.testing.assert_array_equal(assembled(path, item), [b"apple", b"b", b"pears"])
    pointers = chunk.replace('"15"', '"48"')
    with pytest.raises(ScanError, match="v: the sidecar gives neither the values nor the length"):
        scanned(raw(tmp_path / "s.bin", var(pointers, "String")))


def test_a_scalar_is_read_by_value_and_is_its_fill_where_it_has_no_chunk(tmp_path: Path) -> None:
    body = var(
        '<dmrpp:chunks byteOrder="BE"><dmrpp:chunk offset="2" nBytes="4"/></dmrpp:chunks>', dims=""
    )
    body += '<Int16 name="crs"><dmrpp:chunks fillValue="-32767"/></Int16>'
    found = scanned(raw(tmp_path / "s.bin", body)).arrays
    assert by_value(found["v"]).item() == 0x02030405
    assert by_value(found["crs"]).item() == -32767
    assert {i.offset for i in found.values()} == {None}


def test_a_variable_that_cannot_be_read_is_refused_by_name_and_loses_no_other(
    tmp_path: Path,
) -> None:
    good = var('<dmrpp:chunks><dmrpp:chunk offset="0" nBytes="12"/></dmrpp:chunks>')
    bad = {
        "nothing": "<Int32 name='nothing'/>",
        "far": "<Int32 name='far'><Dim name='/gone'/><dmrpp:chunks fillValue='0'/></Int32>",
        "pair": "<Structure name='pair'><Int32 name='a'/></Structure>",
        "any": "<String name='any'><dmrpp:chunks fillValue='a'/></String>",
    }
    path = raw(tmp_path / "b.bin", good + "".join(bad.values()))
    assert set(scanned(path, arrays=["v"]).arrays) == {"v"}
    for name in bad:
        with pytest.raises(ScanError, match=rf"b.bin: {name}: .*; "):
            scanned(path, arrays=["v", name])
    with pytest.raises(ScanError, match=r"b.bin: \w+: "):
        scanned(path)


CHUNK = '<dmrpp:chunk offset="0" nBytes="8" chunkPositionInArray="[0]"/>'


@pytest.mark.parametrize(
    ("inner", "reason"),
    [
        (f"{CHUNK}{CHUNK}", r"chunk \[0\] twice"),
        (CHUNK.replace("[0]", "[1]"), r"a chunk at \[1\] is none of its chunk grid \[2\] of \[2\]"),
        (CHUNK.replace("[0]", "[4]"), r"a chunk at \[4\]"),
        (CHUNK.replace("[0]", "[0,0]"), r"a chunk at \[0, 0\]"),
        (CHUNK.replace(' chunkPositionInArray="[0]"', ""), "a chunk at no position"),
        (CHUNK.replace('"8"', '"9"'), r"9 bytes for \[2\] <i4, which has 8"),
        (CHUNK.replace('"8"', '"0"'), "no bytes"),
        (CHUNK.replace('"0"', '"-1"'), "'-1' where a size or position belongs"),
        (CHUNK.replace('"0"', '"1e3"'), "'1e3' where"),
        (CHUNK.replace('"0"', '"236"'), r"chunk \[0\] ends at byte 244 of a file of 240"),
        (CHUNK.replace("/>", ' href="other.h5"/>'), "another file .other.h5."),
        (CHUNK.replace("/>", ' fm="1"/>'), r"chunk \[0\] was stored without the filter"),
    ],
)
def test_a_chunk_that_cannot_be_is_refused_with_the_reason(
    tmp_path: Path, inner: str, reason: str
) -> None:
    sizes = "<dmrpp:chunkDimensionSizes>2</dmrpp:chunkDimensionSizes>"
    body = var(f'<dmrpp:chunks fillValue="0">{sizes}{inner}</dmrpp:chunks>')
    with pytest.raises(ScanError, match=rf"c.bin: v: .*{reason}.*; "):
        scanned(raw(tmp_path / "c.bin", body))


@pytest.mark.parametrize(
    ("inner", "reason"),
    [
        ('<dmrpp:chunks byteOrder="PDP"/>', "byte order is 'PDP'"),
        ('<dmrpp:chunks compressionType="szip"/>', "encoded with szip"),
        ("<dmrpp:chunks/>", r"chunk \[0\] was never written, and its fill \(None"),
        ('<dmrpp:chunks fillValue="much"/>', r"never written, and its fill \('much'"),
        ('<dmrpp:chunks fillValue="99999999999"/>', "never written"),
        ("<dmrpp:compact>AAAA</dmrpp:compact>", r"holds 3 bytes of it, \[3\] <i4 has 12"),
        ("<dmrpp:compact>A*A</dmrpp:compact>", "no base64"),
        ("<dmrpp:missingdata>AAAA</dmrpp:missingdata>", "no zlib"),
        (
            "<dmrpp:chunks><dmrpp:chunkDimensionSizes>2 2</dmrpp:chunkDimensionSizes></dmrpp:chunks>",
            r"chunks \[2, 2\] are none of its shape \[3\]",
        ),
        (
            '<dmrpp:chunks><dmrpp:block offset="0" nBytes="6"/><dmrpp:block offset="9" nBytes="6"/></dmrpp:chunks>',
            "2 pieces",
        ),
    ],
)
def test_storage_that_cannot_be_followed_is_refused_with_the_reason(
    tmp_path: Path, inner: str, reason: str
) -> None:
    with pytest.raises(ScanError, match=rf"c.bin: v: .*{reason}.*; "):
        scanned(raw(tmp_path / "c.bin", var(inner)))


def test_a_size_that_no_file_holds_costs_no_memory(tmp_path: Path) -> None:
    sizes = "<dmrpp:chunkDimensionSizes>1</dmrpp:chunkDimensionSizes>"
    dims = f'<Dim size="{10**15}"/>'
    body = var(f'<dmrpp:chunks fillValue="0">{sizes}</dmrpp:chunks>', dims=dims)
    with pytest.raises(ScanError, match="more than 50000000 chunks"):
        scanned(raw(tmp_path / "c.bin", body))


def test_linked_blocks_are_one_chunk_per_step(tmp_path: Path) -> None:
    blocks = '<dmrpp:block offset="16" nBytes="16"/><dmrpp:block offset="4" nBytes="8"/>'
    body = var(f"<dmrpp:chunks>{blocks}</dmrpp:chunks>", dims='<Dim size="3"/><Dim size="2"/>')
    path = raw(tmp_path / "b.bin", body)
    item = scanned(path).arrays["v"]
    content = path.read_bytes()
    expected = np.frombuffer(content[16:32] + content[4:12], "<i4").reshape(3, 2)
    assert item.meta.chunks == (1, 2)
    np.testing.assert_array_equal(assembled(path, item), expected)


@pytest.mark.parametrize(
    ("tag", "text", "attrs", "expected"),
    [
        ("Int16", "-999", "", np.int16(-999)),
        ("UInt64", str(2**64 - 1), "", np.uint64(2**64 - 1)),
        ("Float32", "-9999.9", "", np.float32(-9999.9)),
        ("Float32", "9.96921e+36", "", np.float32(netCDF4.default_fillvals["f4"])),
        ("Float64", "9.96921e+36", "", np.float64(netCDF4.default_fillvals["f8"])),
        ("Float64", "1.23457", "1.23456789", np.float64(1.23456789)),
        ("Float64", "1.23457", "", None),
        ("Float64", "1.23457", "2.5", None),
        ("Float64", "1.234567", "", np.float64(1.234567)),
        ("Float32", "nan", "", np.float32("nan")),
        ("Float32", "-inf", "", np.float32("-inf")),
        ("Float32", "0", "", np.float32(0)),
        ("Float64", "-1e+30", "", np.float64(-1e30)),
    ],
)
def test_a_fill_is_exact_or_refused(
    tmp_path: Path, tag: str, text: str, attrs: str, expected: np.generic | None
) -> None:
    if attrs:
        attrs = f'<Attribute name="_FillValue" type="{tag}"><Value>{attrs}</Value></Attribute>'
    path = raw(tmp_path / "f.bin", var(f'{attrs}<dmrpp:chunks fillValue="{text}"/>', tag))
    if expected is None:
        with pytest.raises(ScanError, match=r"v: chunk \[0\] was never written, and its fill"):
            scanned(path)
        return
    item = scanned(path).arrays["v"]
    fill = literals.fill_value(item.meta.fill, item.meta.dtype)
    assert fill is not None
    assert fill.tobytes() == expected.tobytes()
    assert by_value(item).tobytes() == np.full(3, expected).tobytes()


def test_an_array_has_the_path_of_the_file_where_its_sidecar_spells_another(tmp_path: Path) -> None:
    path = tmp_path / "a.nc"
    with h5py.File(path, "w") as f:
        d = f.create_dataset("GRIDS/Data Fields/sea temp", data=DATA, chunks=(5, 4))
        body = storage(d)
    noted = '<Attribute name="fullnamepath" type="String"><Value>/GRIDS/Data Fields/sea temp</Value></Attribute>'
    dims = '<Dim size="12"/><Dim size="10"/>'
    inner = f'<Int32 name="sea_temp">{dims}{noted}{body}</Int32>'
    sidecar(path, f'<Group name="GRIDS"><Group name="Data_Fields">{inner}</Group></Group>')
    results = Results(tmp_path / "results", scan={"format": "dmrpp"}, plan={"concat": None})
    results.scan([path])
    for form in ("vrt", "sqlite", "kerchunk"):
        got = results.proven(form, "GRIDS/Data Fields/sea temp")
        np.testing.assert_array_equal(got, DATA)


def test_groups_enumerations_and_dimensions_of_one_name_keep_their_paths(tmp_path: Path) -> None:
    stored = '<dmrpp:chunks><dmrpp:chunk offset="0" nBytes="2"/></dmrpp:chunks>'
    body = (
        '<Dimension name="x" size="2"/><Dimension name="y" size="1"/>'
        f'<Int8 name="x"><Dim name="/x"/>{stored}</Int8>'
        '<Group name="g"><Dimension name="x" size="1"/><Enumeration name="E" basetype="Int16"/>'
        f'<Group name="h"><Enum name="e" enum="/g/E"><Dim name="/g/x"/>{stored}</Enum></Group>'
        f'<Int8 name="v"><Dim name="/x"/><Dim name="/y"/>{stored}</Int8></Group>'
    )
    found = scanned(raw(tmp_path / "g.bin", body)).arrays
    metas = {n: (i.meta.dims, i.meta.shape, i.meta.dtype) for n, i in found.items()}
    assert metas == {
        "x": (("x",), (2,), "|i1"),
        "g/h/e": (("g/x",), (1,), "<i2"),
        "g/v": (("x", "y"), (2, 1), "|i1"),
    }
    only = scanned(tmp_path / "g.bin", arrays=["g/v"])
    assert set(only.arrays) == {"g/v", "x"}


def test_attributes_keep_types_and_containers_are_flattened(tmp_path: Path) -> None:
    def attribute(name: str, kind: str, *values: str) -> str:
        inner = "".join(f"<Value>{v}</Value>" for v in values)
        return f'<Attribute name="{name}" type="{kind}">{inner}</Attribute>'

    def container(name: str, inner: str) -> str:
        return f'<Attribute name="{name}" type="Container">{inner}</Attribute>'

    mine = (
        attribute("units", "String", " K &amp; more ")
        + attribute("flags", "Int16", "1", "2")
        + attribute("big", "UInt64", str(2**64 - 1))
        + attribute("scale", "Float32", "0.1")
        + attribute("none", "Float64", "NaN")
        + attribute("DIMENSION_LIST", "null", "UNKNOWN")
        + attribute("fullnamepath", "String", "/v")
        + container("inner", attribute("a", "Byte", "200"))
    )
    root = container("HDF5_GLOBAL", attribute("title", "String", "made"))
    root += container("build_dmrpp_metadata", attribute("bes", "String", "3.20"))
    body = var(mine + '<dmrpp:chunks fillValue="0"/>') + root
    found = scanned(raw(tmp_path / "a.bin", body))
    meta = found.arrays["v"].meta
    assert dict(meta.attrs) == {
        "units": " K & more ",
        "flags": [1, 2],
        "big": 2**64 - 1,
        "scale": float(np.float32(0.1)),
        "none": "NaN",
        "inner.a": 200,
    }
    assert meta.attr_dtypes["flags"] == "<i2"
    assert meta.attr_dtypes["inner.a"] == "|u1"
    assert (found.root, found.root_dtypes) == ({"title": "made"}, {"title": "str"})


@pytest.mark.parametrize(
    ("edit", "reason"),
    [
        (
            ('offset="', 'offset="1'),
            r"range of chunk \[0, 0\] as \(1\d+, \d+\), HDF5 as \(\d+, \d+\)",
        ),
        (
            ('"shuffle deflate"', '"deflate shuffle"'),
            "filters as zlib shuffle, HDF5 as shuffle zlib",
        ),
        (("5 4<", "5 5<"), "a chunk at .* is none of its chunk grid"),
        (("Int32", "Float32"), "type as <f4, HDF5 as <i4"),
        (('byteOrder="LE"', 'byteOrder="BE"'), "type as >i4, HDF5 as <i4"),
        (('name="v"', 'name="w"'), "HDF5 has no such array"),
        (
            ('" chunkPositionInArray="[475,8]', '0" chunkPositionInArray="[475,8]'),
            r"chunk \[95, 2\]",
        ),
    ],
)
def test_a_sidecar_of_another_version_of_the_file_is_refused(
    tmp_path: Path, edit: tuple[str, str], reason: str
) -> None:
    path = pipelined(tmp_path / "s.h5", "shuffle", "deflate", data=np.tile(DATA, (40, 1)))
    path.write_bytes(path.read_bytes() + bytes(2000))  # so that no range passes the end
    edited(path, *edit)
    if edit[0] == "Int32":
        edited(path, "</Int32>", "</Float32>")
    with pytest.raises(ScanError, match=rf"s.h5: \w: .*{reason}.*; build the sidecar again"):
        scanned(path)


def test_a_contiguous_or_compact_array_of_another_version_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "s.h5"
    with h5py.File(path, "w") as f:
        f["v"] = DATA
        granules.compact(f, "w", np.arange(3))
    sidecar(path)
    edited(path, 'offset="', 'offset="1')
    path.write_bytes(path.read_bytes() + bytes(20000))
    with pytest.raises(ScanError, match=r"v: the sidecar gives its offset as 1\d+, HDF5 as \d+"):
        scanned(path, arrays=["v"])
    values = base64.b64encode(np.arange(3).tobytes()).decode()
    edited(path, values, base64.b64encode(np.arange(1, 4).tobytes()).decode())
    with pytest.raises(ScanError, match=r"w: the sidecar gives its values as 01.*, HDF5 as 00"):
        scanned(path, arrays=["w"])


def test_a_dataset_of_sidecars_is_the_dataset_of_the_files_themselves(tmp_path: Path) -> None:
    files = [tmp_path / f"{day}.nc" for day in (1, 2, 3)]
    for day, path in enumerate(files, start=1):
        granules.oisst(path, date(2020, 1, day))
        sidecar(path)
    views = {
        format: build(tmp_path / format, files, scan={"arrays": ["sst"], "format": format})
        for format in ("hdf5", "dmrpp")
    }
    rows, coords = {}, {}
    for format, view in views.items():
        with view:
            refs = view.refs("sst")
            rows[format] = refs.source.tolist(), refs.offset.tolist(), refs.size.tolist()
            coords[format] = {n: (a.shape, a.values) for n, a in view.arrays.items()}
            assert view.arrays["sst"].attrs["scale_factor"] == float(np.float32(0.01))
    assert rows["dmrpp"] == rows["hdf5"]
    assert coords["dmrpp"] == coords["hdf5"]


def pairs(root: Path) -> list[Path]:
    """The data files that have a sidecar."""
    files = [p for p in sorted(root.rglob("*")) if p.is_file() and p.suffix != ".dmrpp"]
    return [
        p
        for p in files
        if p.with_name(f"{p.name}.dmrpp").exists() or p.with_suffix(".dmrpp").exists()
    ]


def tried(path: Path, format: str) -> dict[str, SourceArray] | str:
    try:
        return dict(scanned(path, format=format).arrays)
    except ScanError as refusal:
        return str(refusal)


REFUSED = {
    "FletcherShuffle.nc4": "another version of the file",  # forty bytes off, filters reversed
    "FValue_string_sca2.h5": "neither the values nor the length",
    "grid_2_2d.h5": "lies in another file",
    "t_string_chunk.h5": "none of its chunk grid",  # one array has positions of two axes
    "chunked_compound.h5": "it has no arrays",
    "compound_array_fix_vlen_str.h5": "variable-length string",
    # fills of structures, which the sidecar prints field by field
    "comp_scalar2_udf_fv.h5": "was never written",
    "compound_filled_chunk.h5": "was never written",
    "compound_filled_cont.h5": "was never written",
}


def test_every_real_pair_gives_the_rows_of_the_hdf5_scanner_or_is_refused(shared: Shared) -> None:
    refused, arrays = {}, 0
    for path in pairs(shared("dmrpp_pairs")):
        ours, theirs = tried(path, "dmrpp"), tried(path, "hdf5")
        if isinstance(ours, str):
            assert ours.startswith(f"{path}: ")
            refused[path.name] = ours
            continue
        if isinstance(theirs, str):
            assert path.suffix == ".hdf"
            continue
        assert set(ours) == set(theirs)
        for name, item in ours.items():
            assert records(item) == records(theirs[name]), (path.name, name)
            assert item.meta.fill in (None, theirs[name].meta.fill)
            arrays += 1
    assert arrays > 100
    for name, why in refused.items():
        assert REFUSED[name] in why
    assert set(REFUSED) == set(refused)


def gdal_values(path: Path, name: str) -> np.ndarray:
    dataset = gdal.OpenEx(str(path), gdal.OF_MULTIDIM_RASTER, ["HDF4"])
    array = dataset.GetRootGroup().OpenMDArrayFromFullname(f"/scientific_datasets/{name}")
    return np.asarray(array.ReadAsArray())


def test_hdf4_files_with_a_sidecar_read_as_gdal_reads_them(shared: Shared) -> None:
    files = sorted(shared("dmrpp_pairs/h4_dmrpp").glob("*.hdf"))
    assert len(files) == 6
    for path in files:
        for name, item in scanned(path).arrays.items():
            expected = gdal_values(path, name)
            np.testing.assert_array_equal(assembled(path, item), expected)
            if (item.offset != ABSENT).all():
                assert item.meta.dtype[0] == ">"


# --- one granule three ways ------------------------------------------------------------------------


def published(folder: Path, path: Path, **parts: Any) -> dict[str, np.ndarray]:
    """The arrays of a verified table, read through it."""
    source = {"provider": "local", "path": str(path.parent), "pattern": "."}
    results = Results(folder, source=source, **parts)
    results.scan([path])
    results.emit(("access", "sqlite"))
    assert results.verify("access", "sqlite")["verified"]
    return results.values("sqlite")


@pytest.mark.parametrize("array", ["sst", "ice"])
def test_a_granule_as_hdf5_as_dmrpp_and_as_cog_gives_tables_that_read_equal(
    shared: Shared, tmp_path: Path, array: str
) -> None:
    path = tmp_path / "oisst-avhrr-v02r01.20220913.nc"
    shutil.copy(shared(f"oisst/{path.name}"), path)
    sidecar(path)
    cog = tmp_path / "20220913.tif"
    # as the archive of MUR is made: packed integers as they are, ZSTD, differences, tiles of 512
    options = ["COMPRESS=ZSTD", "PREDICTOR=2", "BLOCKSIZE=512", "OVERVIEWS=NONE"]
    gdal.Translate(str(cog), f'NETCDF:"{path}":{array}', format="COG", creationOptions=options)
    scan = {"arrays": [array]}
    hdf5 = published(tmp_path / "hdf5", path, scan={**scan, "format": "hdf5"})
    dmrpp = published(tmp_path / "dmrpp", path, scan={**scan, "format": "dmrpp"})
    tiff = published(tmp_path / "tiff", cog, scan=scan, plan={"concat": None})
    assert set(dmrpp) == set(hdf5)
    for name, values in hdf5.items():
        assert dmrpp[name].tobytes() == values.tobytes(), name
    # rows of the netCDF run north, those of the COG south
    np.testing.assert_allclose(tiff["y"], hdf5["lat"][::-1], atol=1e-5)
    np.testing.assert_allclose(tiff["x"], hdf5["lon"], atol=1e-5)
    np.testing.assert_array_equal(tiff[array], hdf5[array][0, 0][::-1])
    assert (tiff[array] == -999).any()
