"""Zarr v2 and v3 in a folder, written by zarr-python and by hand, as sources and as datasets."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numcodecs
import numpy as np
import pytest
import zarr
from zarr.codecs import BloscCodec, BytesCodec, Crc32cCodec, GzipCodec, TransposeCodec, ZstdCodec

from byterefs import scanners
from byterefs.errors import PlanError, ScanError
from byterefs.model import Source
from conformance import assembled, by_value, scanned
from forms import Results

Shared = Callable[[str], Path]
SHAPE, CHUNKS = (4, 5, 7), (1, 3, 4)
LAT, LON = np.linspace(50, 10, 5), np.arange(7.0)


def values(dtype: str = "<i2") -> np.ndarray:
    return (np.arange(np.prod(SHAPE)) * 3 - 50).reshape(SHAPE).astype(dtype)


def store(
    path: Path,
    data: np.ndarray,
    *,
    version: int = 2,
    chunks: tuple[int, ...] = CHUNKS,
    skip: tuple[tuple[int, ...], ...] = (),
    **options: Any,
) -> Path:
    """A store of ``sst`` with coordinates, without the chunks ``skip``."""
    root = zarr.open_group(path, mode="w", zarr_format=version)
    attrs = {"units": "K", "scale_factor": 0.5}
    for name, axis in (("time", np.arange(4) * 6), ("lat", LAT), ("lon", LON)):
        named = {"dimension_names": [name]} if version == 3 else {}
        made = root.create_array(
            name, shape=axis.shape, chunks=axis.shape, dtype=axis.dtype, **named
        )
        made[:] = axis
        made.attrs["units"] = "hours since 2000-01-01" if name == "time" else "degrees"
        if version == 2:
            made.attrs["_ARRAY_DIMENSIONS"] = [name]
    named = {"dimension_names": ["time", "lat", "lon"]} if version == 3 else {}
    made = root.create_array(
        "sst", shape=data.shape, chunks=chunks, dtype=data.dtype, **named, **options
    )
    made[...] = data
    made.attrs.update(
        attrs if version == 3 else {**attrs, "_ARRAY_DIMENSIONS": ["time", "lat", "lon"]}
    )
    for key in skip:
        Path(
            path, "sst", *("c", *map(str, key)) if version == 3 else (".".join(map(str, key)),)
        ).unlink()
    return path


def chunk_files(path: Path, array: str = "sst") -> list[Path]:
    return sorted(p for p in (path / array).rglob("*") if p.is_file() and not p.name.startswith((".z", "zarr")))  # fmt: skip


def whole(path: Path, array: str = "sst") -> np.ndarray:
    """The array as zarr-python reads it."""
    return np.asarray(zarr.open_group(path, mode="r")[array][...])


V2: dict[str, dict[str, Any]] = {
    "zlib after shuffle": {"compressors": numcodecs.Zlib(3), "filters": [numcodecs.Shuffle(2)]},
    "blosc": {"compressors": numcodecs.Blosc("lz4", 5, 1)},
    "gzip": {"compressors": numcodecs.GZip(1)},
    "zstd after delta": {"compressors": numcodecs.Zstd(3), "filters": [numcodecs.Delta("<i2")]},
    "plain": {"compressors": None},
    "nested": {"compressors": None, "chunk_key_encoding": {"name": "v2", "separator": "/"}},
}
V3: dict[str, dict[str, Any]] = {
    "zstd": {"compressors": ZstdCodec(level=1, checksum=True)},
    "gzip, checked": {"compressors": [GzipCodec(level=1), Crc32cCodec()]},
    "blosc": {"compressors": BloscCodec(typesize=2, cname="lz4", shuffle="shuffle")},
    "plain, big endian": {"compressors": None, "serializer": BytesCodec(endian="big")},
    "keys of version 2": {
        "compressors": None,
        "chunk_key_encoding": {"name": "v2", "separator": "."},
    },
}


@pytest.mark.parametrize(("version", "case"), [*((2, c) for c in V2), *((3, c) for c in V3)])
def test_each_chunk_file_decodes_to_its_window_of_what_zarr_reads(
    tmp_path: Path, version: int, case: str
) -> None:
    path = store(
        tmp_path / "s.zarr", values(), version=version, **(V2 if version == 2 else V3)[case]
    )
    expected, files = whole(path), chunk_files(path)
    assert len(files) == 16
    for file in files:
        found = scanned(file, format="zarr", concat="time").arrays
        lat, lon, time = (by_value(found[n]) for n in ("lat", "lon", "time"))
        window = np.ix_(*(np.searchsorted(a, b) for a, b in ((np.arange(4) * 6, time), (-LAT, -lat), (LON, lon))))  # fmt: skip
        np.testing.assert_array_equal(assembled(file, found["sst"]), expected[window])
        assert found["sst"].meta.chunks == CHUNKS
        assert found["sst"].meta.attrs["scale_factor"] == 0.5
        assert found["time"].meta.attrs["units"] == "hours since 2000-01-01"


@pytest.mark.parametrize("version", [2, 3])
def test_an_array_in_fortran_order_has_its_axes_reversed(tmp_path: Path, version: int) -> None:
    options = {"order": "F"} if version == 2 else {"filters": [TransposeCodec(order=(2, 1, 0))]}
    path = store(tmp_path / "s.zarr", values(), version=version, compressors=None, **options)
    found = scanned(chunk_files(path)[0], format="zarr").arrays["sst"]
    assert found.meta.dims == ("lon", "lat", "time")
    np.testing.assert_array_equal(assembled(chunk_files(path)[0], found), values()[:1, :3, :4].T)


@pytest.mark.parametrize("dtype", [">i4", "<f4", ">f8", "|u1", "<u8", "|b1", "|S3"])
def test_every_type_of_number_keeps_its_bytes(tmp_path: Path, dtype: str) -> None:
    path = store(tmp_path / "s.zarr", values().astype(dtype), compressors=None, chunks=(1, 5, 7))
    for i, file in enumerate(chunk_files(path)):
        item = scanned(file, format="zarr").arrays["sst"]
        assert assembled(file, item).tobytes() == values().astype(dtype)[i : i + 1].tobytes()


def test_shards_and_codecs_of_their_own_are_refused_with_the_way_out(tmp_path: Path) -> None:
    path = store(tmp_path / "s.zarr", values(), version=3, chunks=(1, 5, 7), shards=(2, 5, 7))
    with pytest.raises(ScanError, match=r"shards .*; rewrite the store without it"):
        scanned(chunk_files(path)[0], format="zarr", arrays=("sst",))
    other = store(tmp_path / "p.zarr", values(), chunks=(1, 5, 7), compressors=None)
    said = json.loads((other / "sst" / ".zarray").read_text())
    (other / "sst" / ".zarray").write_text(json.dumps({**said, "filters": [{"id": "quantize"}]}))
    with pytest.raises(ScanError, match="quantize"):
        scanned(chunk_files(other)[0], format="zarr", arrays=("sst",))


def test_metadata_is_recognised_and_refused_with_the_way_out(tmp_path: Path) -> None:
    for version, name in ((2, ".zarray"), (3, "zarr.json")):
        path = store(tmp_path / f"{version}.zarr", values(), version=version)
        if version == 2:
            zarr.consolidate_metadata(path)
        for file in (path / "sst" / name, *path.glob("*.json"), *path.glob(".z[gm]*")):
            assert scanners.detect(Source(str(file))) == "zarr"
            with pytest.raises(ScanError, match="format: zarr"):
                scanned(file)


def test_what_is_no_chunk_of_a_store_is_refused_by_name(tmp_path: Path) -> None:
    path = store(tmp_path / "s.zarr", values(), compressors=None)
    stray = tmp_path / "0.0.0"
    stray.write_bytes(b"\0" * 24)
    with pytest.raises(ScanError, match="no folder above it"):
        scanned(stray, format="zarr")
    file = chunk_files(path)[0]
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(ScanError, match="does not decode"):
        scanned(file, format="zarr")
    other = store(tmp_path / "other.zarr", values(), compressors=None)
    (other / "sst" / "9.0.0").write_bytes(b"\0" * 24)
    with pytest.raises(ScanError, match="no chunk of a grid"):
        scanned(chunk_files(other)[0], format="zarr")


# --- the whole flow --------------------------------------------------------------------------------


def built(folder: Path, path: Path, **plan: Any) -> Results:
    source = {"provider": "local", "path": str(path), "pattern": r"/[0-9./]+$"}
    results = Results(folder, source=source, scan={"format": "zarr", "arrays": ["sst"]}, plan={"concat": "time", **plan})  # fmt: skip
    results.scan(chunk_files(path)[::-1])
    return results


def read(results: Results, form: str, array: str) -> np.ndarray:
    """An array of a verified form through its own reader."""
    results.emit(("access", form))
    report = results.verify("access", form)
    assert report["verified"]
    assert report["oracle"]["values"]["zarr"] > 0
    return results.values(form, array)[array]


@pytest.mark.parametrize(("version", "case"), [(2, "zlib after shuffle"), (3, "gzip, checked")])
def test_a_store_of_tiles_is_the_dataset_that_zarr_reads(
    tmp_path: Path, version: int, case: str
) -> None:
    gone = ((1, 0, 1), (2, 1, 0))
    options = {"fill_value": -9, **(V2 if version == 2 else V3)[case]}
    path = store(tmp_path / "s.zarr", values(), version=version, skip=gone, **options)
    if version == 3:  # a v3 store says of a value that it is missing in an attribute
        zarr.open_group(path, mode="a")["sst"].attrs["_FillValue"] = -9
    results = built(tmp_path / "demo", path, tiles=["lat", "lon"])
    expected = whole(path)
    assert (expected == -9).sum() == 17
    for form in ("icechunk", "kerchunk", "parquet", "sqlite"):
        np.testing.assert_array_equal(read(results, form, "sst"), expected)
    for name in ("time", "lat", "lon"):
        np.testing.assert_array_equal(read(results, "sqlite", name), whole(path, name))


def test_tiles_without_the_key_are_refused_and_tiles_of_the_same_place_too(tmp_path: Path) -> None:
    path = store(tmp_path / "s.zarr", values())
    with pytest.raises(PlanError, match=r"'lat'|'lon'|array 'sst'"):
        built(tmp_path / "demo", path)
    with pytest.raises(PlanError, match="no coordinate 'depth'"):
        built(tmp_path / "other", path, tiles=["depth"])


def test_axes_without_coordinates_are_indexed_where_they_are_cut(tmp_path: Path) -> None:
    path = store(tmp_path / "s.zarr", values())
    for name in ("lat", "lon"):
        for file in (path / name).iterdir():
            file.unlink()
        (path / name).rmdir()
    results = built(tmp_path / "demo", path, tiles=["lat", "lon"])
    np.testing.assert_array_equal(read(results, "sqlite", "sst"), values())
    assert read(results, "sqlite", "lat").tolist() == list(range(5))


STORES = {
    "ref_oldformat": 2,
    "ref_byte_fill_value_null.zarr": 1,
    "ref_oldkeys.file": 1,
}
"""stores that the netCDF library wrote, and how many of their arrays have a chunk"""


@pytest.mark.parametrize("name", STORES)
def test_the_real_stores_of_netcdf_are_what_zarr_reads(
    shared: Shared, tmp_path: Path, name: str
) -> None:
    with zipfile.ZipFile(shared(f"zarr/{name}.zip")) as f:
        f.extractall(tmp_path)
    files = [p for p in sorted(tmp_path.rglob("*")) if p.is_file() and not p.name.startswith(".")]
    seen = set()
    for file in files:
        for item in scanned(file, format="zarr").arrays.values():
            if item.offset is not None:
                expected = np.asarray(zarr.open(file.parent, mode="r")[...])
                assert assembled(file, item).tobytes() == expected.tobytes()
                seen.add(item.meta.array)
    assert len(seen) == STORES[name]


def test_a_scalar_with_more_bytes_than_one_number_is_refused(
    shared: Shared, tmp_path: Path
) -> None:
    with zipfile.ZipFile(shared("zarr/ref_noshape.file.zip")) as f:
        f.extractall(tmp_path)
    with pytest.raises(ScanError, match=r"chunk \[\] .* does not decode"):
        scanned(tmp_path / "ref_noshape.file" / "v" / "0", format="zarr")
