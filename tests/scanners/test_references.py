"""References that somebody else wrote, taken as scans: proven against the files, or refused."""

from __future__ import annotations

import base64
import json
import logging
import sqlite3
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from byterefs import emitters, scanners
from byterefs.errors import ScanError
from byterefs.model import Source, SourceScan
from conformance import assembled, by_value, comparable, scanned
from forms import Results

Shared = Callable[[str], Path]

SHAPE, CHUNKS = (1, 5, 7), (1, 3, 4)
CODEC = {"compressor": {"id": "zlib", "level": 4}, "filters": [{"id": "shuffle", "elementsize": 2}]}


def field(day: int) -> np.ndarray:
    return (day * 100 + np.arange(35)).reshape(SHAPE).astype("<i2")


def granule(path: Path, day: int, *, pad: int = 0) -> Path:
    """A day with a chunked array, an uncompressed one, and coordinates, behind ``pad`` numbers."""
    with h5py.File(path, "w", track_order=True) as f:
        if pad:
            f["pad"] = np.arange(pad)
        for name, values in (("time", [float(day)]), ("y", np.arange(5.0)), ("x", np.arange(7.0))):
            f[name] = np.array(values)
            f[name].make_scale(name)
        f["time"].attrs["units"] = np.bytes_(b"days since 2000-01-01")
        f.create_dataset(
            "sst", data=field(day), chunks=CHUNKS, shuffle=True, compression=4, fillvalue=-999
        )
        f["plain"] = field(day) + 1
        f["sst"].attrs["scale_factor"] = 0.01
        for name in ("sst", "plain"):
            for i, dim in enumerate(("time", "y", "x")):
                f[name].dims[i].attach_scale(f[dim])
    return path


def ranges(path: Path, name: str) -> dict[tuple[int, ...], tuple[int, int]]:
    """Chunk -> offset and size as the HDF5 library tells them."""
    with h5py.File(path) as f:
        dataset = f[name]
        if dataset.chunks is None:
            return {(0,) * dataset.ndim: (dataset.id.get_offset(), dataset.id.get_storage_size())}
        found = {}
        for i in range(dataset.id.get_num_chunks()):
            info = dataset.id.get_chunk_info(i)
            key = tuple(o // c for o, c in zip(info.chunk_offset, dataset.chunks, strict=True))
            found[key] = (info.byte_offset, info.size)
        return found


def inline(values: np.ndarray) -> str:
    return "base64:" + base64.b64encode(values.tobytes()).decode()


def zarray(shape: tuple[int, ...], chunks: tuple[int, ...], dtype: str, **more: Any) -> str:
    said = {"zarr_format": 2, "shape": shape, "chunks": chunks, "dtype": dtype, "order": "C"}
    return json.dumps({**said, "compressor": None, "filters": None, "fill_value": None, **more})


def kerchunk(paths: Mapping[int, Path], name: Callable[[Path], str] = str) -> dict[str, Any]:
    """Kerchunk references of days joined along time, as HDF5 says where their chunks lie."""
    days = sorted(paths)
    dims = {"time": np.array(days, "<f8"), "y": np.arange(5.0), "x": np.arange(7.0)}
    refs: dict[str, Any] = {".zgroup": json.dumps({"zarr_format": 2}), ".zattrs": "{}"}
    for dim, values in dims.items():
        refs[f"{dim}/.zarray"] = zarray(values.shape, values.shape, "<f8")
        units = {"units": "days since 2000-01-01"} if dim == "time" else {}
        refs[f"{dim}/.zattrs"] = json.dumps({"_ARRAY_DIMENSIONS": [dim], **units})
        refs[f"{dim}/0"] = inline(values)
    for array, chunks, more in (
        ("sst", CHUNKS, {**CODEC, "fill_value": -999}),
        ("plain", SHAPE, {}),
    ):
        refs[f"{array}/.zarray"] = zarray((len(days), *SHAPE[1:]), chunks, "<i2", **more)
        refs[f"{array}/.zattrs"] = json.dumps({"_ARRAY_DIMENSIONS": ["time", "y", "x"]})
        for i, day in enumerate(days):
            for key, (offset, size) in ranges(paths[day], array).items():
                text = ".".join(map(str, (i, *key[1:])))
                refs[f"{array}/{text}"] = [name(paths[day]), offset, size]
    return refs


def written(path: Path, refs: Any) -> Path:
    path.write_text(json.dumps(refs))
    return path


def imported(source: Path | str, refs: Path, **options: Any) -> SourceScan:
    rename = options.pop("rename", {})
    said = {"path": str(refs), "rename": rename}
    return scanners.scan(Source(str(source)), references=said, **options)


@pytest.fixture
def days(tmp_path: Path) -> dict[int, Path]:
    return {day: granule(tmp_path / f"{day}.nc", day) for day in (3, 4, 7)}


# --- proven by the file ----------------------------------------------------------------------------


def test_references_that_say_what_the_file_says_give_the_scan_of_the_file(
    tmp_path: Path, days: dict[int, Path]
) -> None:
    one = written(tmp_path / "one.json", kerchunk({3: days[3]}))
    many = written(tmp_path / "many.json", {"version": 1, "refs": kerchunk(days)})
    for refs, day in ((one, 3), (many, 3), (many, 7)):
        found = imported(days[day], refs, concat="time")
        assert comparable(found) == comparable(scanned(days[day], concat="time"))
        np.testing.assert_array_equal(assembled(days[day], found.arrays["sst"]), field(day))


def test_templates_generated_keys_and_renamed_prefixes_lead_to_the_files(
    tmp_path: Path, days: dict[int, Path]
) -> None:
    refs = kerchunk({3: days[3]}, lambda p: "{{u}}" + p.name)
    keys = [k for k in refs if k.startswith("sst/0")]
    offset, size = refs["plain/0.0.0"][1:]
    del refs["plain/0.0.0"]
    gen = [{"key": "plain/{{i}}.0.0", "url": "{{ u }}3.nc", "offset": f"{{{{ i * 8 + {offset} }}}}", "length": str(size), "dimensions": {"i": {"stop": 1}}}]  # fmt: skip
    said = {"version": 1, "templates": {"u": "s3://bucket/a/"}, "gen": gen, "refs": refs}
    path = written(tmp_path / "refs.json", said)
    found = imported(days[3], path, rename={"s3://bucket/a": str(tmp_path)})
    assert len(keys) == 4
    assert comparable(found) == comparable(scanned(days[3]))
    with pytest.raises(ScanError, match="do not refer to it"):
        imported(days[3], path)


def test_templates_run_in_a_sandbox(tmp_path: Path, days: dict[int, Path]) -> None:
    attack = "{{ ''.__class__.__mro__[1].__subclasses__() }}"
    said = {"version": 1, "templates": {}, "refs": {**kerchunk({3: days[3]}), "sst/0.0.0": [attack, 1, 2]}}  # fmt: skip
    with pytest.raises(ScanError, match="unsafe"):
        imported(days[3], written(tmp_path / "refs.json", said))


def test_kerchunk_parquet_in_partitions_is_read(tmp_path: Path, days: dict[int, Path]) -> None:
    refs = kerchunk(days)
    folder, record = tmp_path / "refs.parq", 5
    folder.mkdir()
    metadata = {k: json.loads(v) for k, v in refs.items() if k.rpartition("/")[2].startswith(".z")}
    (folder / ".zmetadata").write_text(json.dumps({"metadata": metadata, "record_size": record}))
    for array, grid in (("sst", (3, 2, 2)), ("plain", (3, 1, 1)), ("time", (1,)), ("y", (1,)), ("x", (1,))):  # fmt: skip
        rows = [refs.get(f"{array}/{'.'.join(map(str, key))}") for key in np.ndindex(grid)]
        (folder / array).mkdir()
        for start in range(0, len(rows), record):
            part = rows[start : start + record]
            there = [isinstance(r, list) for r in part]
            table = {
                "path": pa.array([r[0] if ok else None for r, ok in zip(part, there, strict=True)], pa.string()),
                "offset": [r[1] if ok else 0 for r, ok in zip(part, there, strict=True)],
                "size": [r[2] if ok else 0 for r, ok in zip(part, there, strict=True)],
                "raw": pa.array([base64.b64decode(r[7:]) if isinstance(r, str) else None for r in part], pa.binary()),
            }  # fmt: skip
            pq.write_table(pa.table(table), folder / array / f"refs.{start // record}.parq")
    for day, path in days.items():
        found = imported(path, folder, concat="time")
        np.testing.assert_array_equal(assembled(path, found.arrays["sst"]), field(day))


def spoiled(refs: dict[str, Any], how: str) -> dict[str, Any]:
    url, offset, size = refs["sst/0.0.0"]
    if how == "moved":
        refs["sst/0.0.0"] = [url, offset + 1, size]
    if how == "cut":
        refs["sst/0.0.0"] = [url, offset, size - 1]
    if how == "swapped":
        refs["sst/0.0.0"], refs["sst/0.0.1"] = refs["sst/0.0.1"], refs["sst/0.0.0"]
    if how == "dropped":
        del refs["sst/0.1.1"]
    if how == "plain moved":
        url, offset, size = refs["plain/0.0.0"]
        refs["plain/0.0.0"] = [url, offset + 2, size]
    if how == "other type":
        refs["plain/.zarray"] = refs["plain/.zarray"].replace("<i2", ">i2")
    return refs


@pytest.mark.parametrize("how", ["moved", "cut", "swapped", "dropped", "plain moved", "other type"])
def test_references_that_the_file_contradicts_are_refused_with_both_values(
    tmp_path: Path, days: dict[int, Path], how: str
) -> None:
    path = written(tmp_path / "refs.json", spoiled(kerchunk({3: days[3]}), how))
    with pytest.raises(ScanError, match="another version of it") as refusal:
        imported(days[3], path)
    text = str(refusal.value)
    assert str(path) in text
    assert str(days[3]) in text
    assert ("plain" if how in ("plain moved", "other type") else "sst") in text


def test_a_file_rewritten_since_is_refused(tmp_path: Path, days: dict[int, Path]) -> None:
    path = written(tmp_path / "refs.json", kerchunk(days))
    granule(days[4], 4, pad=100)
    with pytest.raises(ScanError, match="another version"):
        imported(days[4], path)


def test_chunks_that_are_inline_in_the_references_are_the_files(
    tmp_path: Path, days: dict[int, Path]
) -> None:
    refs = kerchunk({3: days[3]})
    _, offset, size = refs["sst/0.0.0"]
    refs["sst/0.0.0"] = (
        "base64:" + base64.b64encode(days[3].read_bytes()[offset : offset + size]).decode()
    )
    found = imported(days[3], written(tmp_path / "refs.json", refs))
    assert comparable(found) == comparable(scanned(days[3]))
    refs["sst/0.0.1"][1] += 1
    with pytest.raises(ScanError, match="another version"):
        imported(days[3], written(tmp_path / "moved.json", refs))


# --- stores ----------------------------------------------------------------------------------------


def raad(path: Path, days: Mapping[int, Path]) -> Path:
    """A store of raad.virtualize 0.1: rows by file and its own chunk keys, no metadata."""
    with sqlite3.connect(path) as con:
        con.executescript(
            """
            CREATE TABLE files(file_id INTEGER PRIMARY KEY, source TEXT UNIQUE);
            CREATE TABLE arrays(name TEXT PRIMARY KEY, ndim INTEGER) WITHOUT ROWID;
            CREATE TABLE sst(
                file_id INTEGER REFERENCES files, idx0 INTEGER NOT NULL, idx1 INTEGER NOT NULL,
                idx2 INTEGER NOT NULL, present INTEGER DEFAULT 1, "offset" BIGINT, size BIGINT,
                PRIMARY KEY(file_id, idx0, idx1, idx2)) WITHOUT ROWID;
            INSERT INTO arrays VALUES ('sst', 3);
            """
        )
        for i, (_, file) in enumerate(sorted(days.items()), 1):
            con.execute("INSERT INTO files VALUES (?, ?)", (i, f"/rdsi/PUBLIC/{file.name}"))
            for key, where in ranges(file, "sst").items():
                con.execute("INSERT INTO sst VALUES (?, ?, ?, ?, 1, ?, ?)", (i, *key, *where))
    con.close()
    return path


def mdim01(path: Path, days: Mapping[int, Path]) -> Path:
    """A store of mdim-refs/0.1: rows by global chunk key, the codec never filled in."""
    with sqlite3.connect(path) as con:
        con.executescript(
            """
            CREATE TABLE meta(key TEXT PRIMARY KEY, value TEXT);
            CREATE TABLE sources(file_id INTEGER PRIMARY KEY, access TEXT, public TEXT UNIQUE);
            CREATE TABLE arrays(name TEXT PRIMARY KEY, kind TEXT, storage TEXT, dims TEXT, shape TEXT,
                chunks TEXT, dtype TEXT, fill TEXT, codec TEXT, crs TEXT, attrs TEXT, affine TEXT);
            CREATE TABLE sst(idx0 INTEGER, idx1 INTEGER, idx2 INTEGER, present INTEGER, file_id INTEGER,
                "offset" BIGINT, size BIGINT, info TEXT, data BLOB, PRIMARY KEY(idx0, idx1, idx2));
            CREATE TABLE time(idx0 INTEGER PRIMARY KEY, present INTEGER, file_id INTEGER,
                "offset" BIGINT, size BIGINT, info TEXT, data BLOB);
            INSERT INTO meta VALUES ('format_version', 'mdim-refs/0.1');
            """
        )
        shape = json.dumps([len(days), 5, 7])
        con.execute(
            "INSERT INTO arrays VALUES ('sst', 'data', 'referenced', '[\"time\",\"y\",\"x\"]', ?, '[1,3,4]', '<i2', "
            "'-999', '{\"id\":null}', NULL, '{}', NULL)",
            (shape,),
        )
        con.execute(
            "INSERT INTO arrays VALUES ('time', 'coord', 'inline', '[\"time\"]', '[3]', '[3]', '<f8', NULL, NULL, "
            'NULL, \'{"units":"days since 2000-01-01"}\', NULL)'
        )
        values = np.array(sorted(days), "<f8").tobytes()
        con.execute("INSERT INTO time VALUES (0, 1, NULL, NULL, NULL, NULL, ?)", (values,))
        for i, (_, file) in enumerate(sorted(days.items())):
            public = f"https://example.org/{file.name}"
            con.execute(
                "INSERT INTO sources VALUES (?, ?, ?)", (i + 1, f"/rdsi/PUBLIC/{file.name}", public)
            )
            for key, where in ranges(file, "sst").items():
                row = (i, *key[1:], 1, i + 1, *where, "COMPRESSION=DEFLATE", None)
                con.execute("INSERT INTO sst VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", row)
    con.close()
    return path


@pytest.mark.parametrize("make", [raad, mdim01])
def test_earlier_stores_are_proven_by_the_files_or_refused(
    tmp_path: Path, days: dict[int, Path], make: Callable[..., Path]
) -> None:
    store = make(tmp_path / "store.sqlite", days)
    rename = {"/rdsi/PUBLIC": str(tmp_path)}
    for day, path in days.items():
        found = imported(path, store, rename=rename, arrays=("sst",), concat="time")
        np.testing.assert_array_equal(assembled(path, found.arrays["sst"]), field(day))
        assert by_value(found.arrays["time"]).tolist() == [day]
    with sqlite3.connect(store) as con:
        con.execute(
            'UPDATE sst SET "offset" = "offset" + 1 WHERE file_id = 2 AND idx1 = 1 AND idx2 = 0'
        )
    con.close()
    with pytest.raises(ScanError, match=r"chunk \[0, 1, 0\] at byte"):
        imported(days[4], store, rename=rename, arrays=("sst",))
    with pytest.raises(ScanError, match="no metadata to follow"):
        imported("/rdsi/PUBLIC/7.nc", store)


def test_a_database_of_another_kind_is_refused_by_name(
    tmp_path: Path, days: dict[int, Path]
) -> None:
    other = tmp_path / "other.sqlite"
    with sqlite3.connect(other) as con:
        con.execute("CREATE TABLE t(a)")
    con.close()
    for path in (other, written(tmp_path / "list.json", [1, 2]), tmp_path / "gone.json"):
        with pytest.raises(ScanError, match=r"no reference set|cannot be read"):
            imported(days[3], path)


# --- by their own metadata -------------------------------------------------------------------------


def raw(tmp_path: Path, **changes: Any) -> tuple[Path, Path, dict[str, np.ndarray]]:
    """A binary file that no scanner knows, and references to it: a whole file, a range, inline text."""
    values = np.arange(24, dtype=">f4").reshape(2, 3, 4)
    file = tmp_path / "raw.bin"
    file.write_bytes(values.tobytes())
    refs: dict[str, Any] = {
        ".zgroup": {"zarr_format": 2},
        "v/.zarray": json.loads(zarray((2, 3, 4), (2, 3, 4), ">f4", fill_value="NaN")),
        "v/.zattrs": {"_ARRAY_DIMENSIONS": ["time", "y", "x"], "units": "K", "coordinates": "lat"},
        "v/0.0.0": [str(file)],
        "half/.zarray": json.loads(zarray((2, 3, 4), (1, 3, 4), ">f4")),
        "half/.zattrs": {"_ARRAY_DIMENSIONS": ["time", "y", "x"]},
        "half/0.0.0": [str(file), 0, 48],
        "time/.zarray": json.loads(zarray((2,), (2,), "<i4")),
        "time/.zattrs": {"_ARRAY_DIMENSIONS": ["time"], "units": "hours since 2000-01-01"},
        "time/0": inline(np.array([6, 12], "<i4")),
        "lat/.zarray": json.loads(zarray((3,), (3,), "|S2")),
        "lat/.zattrs": {"_ARRAY_DIMENSIONS": ["y"]},
        "lat/0": "aabbcc",
    }
    refs |= changes
    said = {k: v for k, v in refs.items() if v is not None}
    return file, written(tmp_path / "raw.json", said), {"v": values}


def test_a_format_that_no_scanner_knows_is_read_by_the_references_own_metadata(
    tmp_path: Path,
) -> None:
    file, refs, values = raw(tmp_path)
    found = imported(file, refs, arrays=("v",)).arrays
    assert set(found) == {"v", "time", "lat"}
    np.testing.assert_array_equal(assembled(file, found["v"]), values["v"])
    assert by_value(found["time"]).tolist() == [6, 12]
    assert by_value(found["lat"]).tolist() == [b"aa", b"bb", b"cc"]
    assert found["v"].meta.attrs["units"] == "K"
    half = imported(file, refs, arrays=("half",)).arrays
    assert half["half"].meta.shape == (1, 3, 4)
    assert by_value(half["time"]).tolist() == [6]
    with pytest.raises(ScanError, match="one at a time"):
        imported(file, refs)


def test_a_coordinate_that_lies_in_another_file_comes_by_value(tmp_path: Path) -> None:
    steps = [np.arange(6, dtype="<f4").reshape(1, 6) + 10 * i for i in range(2)]
    lon = np.linspace(0, 50, 6)
    refs: dict[str, Any] = {".zgroup": {"zarr_format": 2}}
    for name, shape, chunks, dims in (("v", (2, 6), (1, 6), ["time", "x"]), ("lon", (6,), (6,), ["x"]), ("time", (2,), (1,), ["time"])):  # fmt: skip
        refs[f"{name}/.zarray"] = json.loads(zarray(shape, chunks, "<f4" if name == "v" else "<f8"))
        refs[f"{name}/.zattrs"] = {"_ARRAY_DIMENSIONS": dims, **({"coordinates": "lon"} if name == "v" else {})}  # fmt: skip
    for i, values in enumerate(steps):
        raw = [values.tobytes(), np.array([i * 24.0]).tobytes(), lon.tobytes()]
        (tmp_path / f"{i}.bin").write_bytes(b"".join(raw))
        refs[f"v/{i}.0"] = [f"s3://a/{i}.bin", 0, 24]
        refs[f"time/{i}"] = [f"s3://a/{i}.bin", 24, 8]
    refs["lon/0"] = ["s3://a/0.bin", 32, 48]
    path = written(tmp_path / "refs.json", refs)
    for i, values in enumerate(steps):
        source = tmp_path / f"{i}.bin"
        found = imported(source, path, rename={"s3://a": str(tmp_path)}, arrays=("v",)).arrays
        np.testing.assert_array_equal(assembled(source, found["v"]), values)
        assert by_value(found["lon"]).tolist() == lon.tolist()
        assert by_value(found["time"]).tolist() == [i * 24.0]


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"v/0.0.0": ["FILE", 4, 96]}, "truncated"),
        ({"v/0.0.0": ["FILE", 0, 92]}, "does not decode"),
        ({"v/0.0.0": ["FILE", -4, 96]}, "no bytes"),
        ({"v/0.0.9": ["FILE", 0, 96]}, "no chunk of a grid"),
        ({"w/0": ["FILE", 0, 96]}, "lies in no array"),
        ({"v/.zarray": json.loads(zarray((2, 3, 4), (2, 3, 4), ">f4", compressor={"id": "pcodec"}))}, "pcodec"),
    ],
)  # fmt: skip
def test_a_range_that_cannot_be_is_refused(
    tmp_path: Path, change: dict[str, Any], word: str
) -> None:
    named = {k: [str(tmp_path / "raw.bin"), *v[1:]] if isinstance(v, list) else v for k, v in change.items()}  # fmt: skip
    file, refs, _ = raw(tmp_path, **named)
    with pytest.raises(ScanError, match=word):
        imported(file, refs, arrays=("v",))


def test_what_cannot_be_reached_is_taken_as_said_and_the_log_says_so(
    tmp_path: Path, days: dict[int, Path], caplog: pytest.LogCaptureFixture
) -> None:
    refs = written(tmp_path / "refs.json", kerchunk(days, lambda p: f"/gone/{p.name}"))
    with caplog.at_level(logging.WARNING):
        found = imported("/gone/4.nc", refs, concat="time")
    assert "are not proven" in caplog.text
    assert found.source == Source("/gone/4.nc")
    sst = found.arrays["sst"]
    assert {k: (sst.offset[k], sst.size[k]) for k in np.ndindex(sst.offset.shape)} == ranges(
        days[4], "sst"
    )  # type: ignore[index, union-attr]
    assert by_value(found.arrays["time"]).tolist() == [4]
    one = {"sst/.zarray": zarray((1, 5, 7), (1, 5, 7), "<i2"), "sst/0.0.0": ["/gone/1.bin"]}
    whole = written(tmp_path / "whole.json", one)
    with pytest.raises(ScanError, match="size nobody knows"):
        imported("/gone/1.bin", whole)


def test_a_set_of_references_that_is_listed_is_recognised_and_refused_with_the_way_out(
    tmp_path: Path, days: dict[int, Path]
) -> None:
    path = written(tmp_path / "refs.json", kerchunk(days))
    assert scanners.detect(Source(str(path))) == "references"
    with pytest.raises(ScanError, match=r"scan: \{references: "):
        scanned(path)


# --- the whole flow --------------------------------------------------------------------------------


def test_imported_days_are_built_and_verified_in_every_form(
    tmp_path: Path, days: dict[int, Path]
) -> None:
    refs = written(tmp_path / "refs.json", kerchunk(days))
    results = Results(tmp_path / "demo", scan={"references": {"path": str(refs)}})
    results.scan(days.values())
    results.emit()
    expected = np.concatenate([field(day) for day in sorted(days)])
    for form in emitters.NAMES:
        assert results.verify("access", form)["verified"]
        reader = emitters.load(form).open(results.out("access", form), access=lambda path: path)
        np.testing.assert_array_equal(np.asarray(reader.read("sst", (slice(3), slice(5), slice(7)))), expected)  # fmt: skip
