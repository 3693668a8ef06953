"""The census: a line for every data file, whatever is wrong with it, and no value that two libraries read differently."""

from __future__ import annotations

import base64
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import h5py
import netCDF4
import numcodecs
import numpy as np
import pytest
import tifffile
import zarr
from h5py import h5d, h5p, h5s, h5t
from zarr.codecs import GzipCodec

from granules import compact, oisst, pipeline
from gribs import message, ramp
from tally import compare, line, pool
from test_plan import START

ROOT = Path(__file__).parents[1]
NUMBERS = (np.arange(20 * 30, dtype="<i4").reshape(20, 30) ** 2) % 97


def taken(data: Path, out: Path, seconds: int = 120) -> dict[str, dict[str, str]]:
    """The lines of a census by path, each by column."""
    command = [sys.executable, ROOT / "scripts" / "census.py", "--data", data, "--out", out]
    done = subprocess.run(command, capture_output=True, text=True, timeout=seconds)
    assert done.returncode == 0, done.stderr
    head, *rows = out.read_text(encoding="utf-8").splitlines()
    cells = [dict(zip(head.split("\t"), row.split("\t"), strict=True)) for row in rows]
    return {one["path"]: one for one in cells}


def odd_hdf5(path: Path) -> None:
    with h5py.File(path, "w") as f:
        for words in (
            ("shuffle", "deflate"),
            ("lzf",),
            ("szip",),
            ("scaleoffset",),
            ("fletcher32", "nbit"),
        ):
            pipeline(f, "-".join(words), NUMBERS, (7, 11), *words)
        compact(f, "compact", NUMBERS[:2])
        f.create_dataset("never", (200, 300), ">f4", chunks=(7, 7), fillvalue=np.nan)
        f.create_dataset("huge", (10**7, 10**7), "i1", chunks=(10, 10))[0, 0] = 1
        f.create_dataset(
            "words",
            data=np.array([["a", "longer é"], ["", "z"]], object),
            dtype=h5py.string_dtype(),
        )
        f["a b/é"] = f["scalar"] = np.float32(3)
        f["zero"] = np.zeros((0, 3))
        f["ext"] = h5py.ExternalLink("nofile.h5", "/x")
        f.attrs["lead"], f.attrs["control"], f.attrs["latin"] = (
            "  a ",
            "a\x01b",
            np.bytes_(b"\xb0C"),
        )


def undefined(path: Path) -> None:
    """Chunks that were never written and that HDF5 fills with nothing; and an array that it fills."""
    with h5py.File(path, "w") as f:
        f.create_dataset("filled", (3,), "i4", fillvalue=7)
        made = h5p.create(h5p.DATASET_CREATE)
        made.set_chunk((7, 11))
        made.set_fill_time(h5d.FILL_TIME_NEVER)
        h5d.create(f.id, b"v", h5t.NATIVE_INT32, h5s.create_simple((20, 30)), made)
        f["v"][0, 0] = 3


def nothing(path: Path) -> None:
    """An array of which not one element was written, and that HDF5 fills with nothing."""
    with h5py.File(path, "w") as f:
        made = h5p.create(h5p.DATASET_CREATE)
        made.set_chunk((4,))
        made.set_fill_time(h5d.FILL_TIME_NEVER)
        h5d.create(f.id, b"v", h5t.NATIVE_INT32, h5s.create_simple((20,)), made)


def classic(path: Path) -> None:
    with netCDF4.Dataset(path, "w", format="NETCDF3_CLASSIC") as nc:
        nc.title = " leads with a blank"
        nc.createDimension("t", None)
        nc.createDimension("x", 3)
        nc.createVariable("only", "i1", ("t", "x"))[0:5] = np.arange(15).reshape(5, 3)


def image(path: Path) -> None:
    pages = np.stack([NUMBERS, NUMBERS[::-1]]).astype(">u2")
    tifffile.imwrite(
        path,
        pages,
        byteorder=">",
        compression="zlib",
        predictor=True,
        photometric="minisblack",
        tile=(16, 16),
    )


def forecasts(path: Path) -> None:
    """Two steps of two levels of a variable, one of them missing, and one of another."""
    t = {"shortName": "t"}
    cells = ((6, 500), (6, 850), (12, 500))
    made = [message(ramp(i), {**t, "step": s, "level": v}) for i, (s, v) in enumerate(cells)]
    path.write_bytes(b"".join([*made, message(ramp(9), {"shortName": "u", "step": 12})]))


ODD = {"tab\\tand\\nbreak.nc", "lat\\udce9in/v.nc"}
"""names that no form can publish, as the TSV has them"""
WRITERS: dict[str, Callable[[Path], object]] = {
    "day.nc": lambda path: oisst(path, START, shape=(18, 36)),
    "odd.h5": odd_hdf5,
    "deep/down/classic": classic,
    "undefined.h5": undefined,
    "nothing.h5": nothing,
    "image.tif": image,
    "forecasts.grib2": forecasts,
}


@pytest.fixture(scope="module")
def census(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, str]]:
    folder = tmp_path_factory.mktemp("data")
    for name, write in WRITERS.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        write(folder / name)
    whole = (folder / "odd.h5").read_bytes()
    (folder / "cut.h5").write_bytes(whole[: len(whole) // 2])
    (folder / "signature.h5").write_bytes(whole[:8])
    (folder / "empty.nc").touch()
    (folder / "random.grib").write_bytes(np.random.default_rng(1).bytes(999))
    (folder / "notes.txt").write_text("no data")
    (folder / "tab\tand\nbreak.nc").write_bytes((folder / "day.nc").read_bytes())
    os.symlink("loop", folder / "loop")
    os.mkfifo(folder / "pipe.nc")
    os.makedirs(os.fsencode(folder) + b"/lat\xe9in")
    Path(os.fsdecode(os.fsencode(folder) + b"/lat\xe9in/v.nc")).write_bytes(whole)
    return taken(folder, tmp_path_factory.mktemp("out") / "census.tsv")


def test_every_data_file_has_one_line_and_what_is_no_data_has_none(
    census: dict[str, dict[str, str]],
) -> None:
    assert set(census) == ODD | set(WRITERS) | {"cut.h5", "signature.h5", "empty.nc", "random.grib"}


def test_no_file_is_wrong_or_crashes(census: dict[str, dict[str, str]]) -> None:
    assert {
        n: one["reason"] for n, one in census.items() if one["outcome"] in ("wrong", "crashed")
    } == {}


def test_whole_files_are_verified_through_every_form(census: dict[str, dict[str, str]]) -> None:
    for name in ("day.nc", "deep/down/classic", "undefined.h5", "image.tif"):
        assert census[name]["outcome"] == "verified", census[name]
        assert census[name]["arrays"] == census[name]["verified"]
        assert census[name]["bytes"] == census[name]["bytes_verified"]
        forms = dict(part.split("=") for part in census[name]["forms"].split())
        assert set(forms) == {"icechunk", "kerchunk", "parquet", "sqlite", "vrt"}
    assert census["image.tif"]["arrays"] == "2"


def test_what_was_never_written_and_is_never_filled_is_not_called_verified(
    census: dict[str, dict[str, str]],
) -> None:
    found = census["nothing.h5"]
    assert (found["outcome"], found["verified"], found["refused"]) == ("refused", "0", "1"), found
    assert "never written" in found["reason"]
    assert "scan.arrays" in found["reason"]


def test_grib_is_verified_through_the_forms_that_hold_it(
    census: dict[str, dict[str, str]],
) -> None:
    found = census["forecasts.grib2"]
    assert (found["outcome"], found["arrays"], found["verified"]) == ("verified", "7", "7"), found
    assert found["bytes"] == found["bytes_verified"]
    forms = dict(part.split("=") for part in found["forms"].split())
    assert int(forms["icechunk"]) == int(forms["sqlite"]) == int(forms["vrt"]) + 2


def test_an_array_that_cannot_be_had_is_refused_by_name_and_the_rest_verified(
    census: dict[str, dict[str, str]],
) -> None:
    found = census["odd.h5"]
    assert found["outcome"] == "partial"
    reasons = found["reason"].split(" | ")
    assert {reason.split(": ")[0] for reason in reasons} == {"ext", "huge"}
    assert int(found["verified"]) == int(found["arrays"]) - 2
    assert found["absent"] == "0"


def test_what_cannot_be_read_is_refused_with_a_sentence(census: dict[str, dict[str, str]]) -> None:
    for name in ("cut.h5", "signature.h5", "empty.nc", "random.grib", *ODD):
        assert census[name]["outcome"] == "refused"
        assert len(census[name]["reason"].split()) > 8, census[name]


@pytest.mark.parametrize("reasons", [[], ["GDAL: it has no such array"]])
def test_what_no_independent_library_reads_says_what_to_do(reasons: list[str]) -> None:
    said = compare.uncompared(reasons)
    assert "()" not in said
    assert all(one in said for one in reasons)
    assert said.endswith("leave the array out with scan.arrays")


def test_each_chunk_of_a_zarr_store_is_compared_with_zarr_python_and_a_damaged_one_refused(
    tmp_path: Path,
) -> None:
    for version in (2, 3):
        root = zarr.open_group(tmp_path / f"data/{version}", mode="w", zarr_format=version)
        root.create_array("g/v", shape=(20, 30), chunks=(7, 30), dtype="<i4")[...] = NUMBERS
        gzip = numcodecs.GZip() if version == 2 else GzipCodec()
        cut = root.create_array("cut", shape=(4,), chunks=(4,), dtype="f8", compressors=gzip)
        cut[:] = np.arange(4.0) + 1
    root.create_array("sharded", shape=(8,), chunks=(2,), shards=(4,), dtype="i2")[:4] = 7
    for file in (tmp_path / "data/2/cut/0", tmp_path / "data/3/cut/c/0"):
        file.write_bytes(file.read_bytes()[:-3])
    found = taken(tmp_path / "data", tmp_path / "census.tsv")
    outcomes = {name: one["outcome"] for name, one in found.items()}
    whole = {f"2/g/v/{n}.0" for n in range(3)} | {f"3/g/v/c/{n}/0" for n in range(3)}
    odd = {"2/cut/0", "3/cut/c/0", "3/sharded/c/0"}
    assert outcomes == dict.fromkeys(whole, "verified") | dict.fromkeys(odd, "refused")
    assert {one["opened_by"] for one in found.values()} == {"zarr"}
    assert all(len(found[name]["reason"].split()) > 8 for name in odd)


def kerchunk(names: list[str], size: int = 48) -> str:
    """Kerchunk JSON of an array of two steps a file, each chunk of 3 by 4 numbers after 16 other bytes."""
    shape = {"shape": [2 * len(names), 3, 4], "chunks": [1, 3, 4], "dtype": "<f4", "order": "C"}
    time = {**shape, "shape": shape["shape"][:1], "chunks": shape["shape"][:1], "dtype": "<f8"}
    more = {"zarr_format": 2, "compressor": None, "filters": None, "fill_value": None}
    steps = np.arange(2.0 * len(names)).tobytes()
    refs: dict[str, object] = {
        ".zgroup": json.dumps({"zarr_format": 2}),
        "t/.zarray": json.dumps({**shape, **more}),
        "t/.zattrs": json.dumps({"_ARRAY_DIMENSIONS": ["time", "y", "x"]}),
        "time/.zarray": json.dumps({**time, **more}),
        "time/.zattrs": json.dumps({"_ARRAY_DIMENSIONS": ["time"]}),
        "time/0": "base64:" + base64.b64encode(steps).decode(),
    }
    for i, name in enumerate(names):
        refs |= {f"t/{2 * i + k}.0.0": [name, 16 + 48 * k, size] for k in (0, 1)}
    return json.dumps({"version": 1, "refs": refs})


def test_a_set_of_references_is_compared_with_fsspec_file_by_file(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    for n, name in enumerate(("a.bin", "b.bin")):
        (data / name).write_bytes(b"\1" * 16 + np.arange(24, dtype="<f4").tobytes() * (n + 1))
    (data / "both.json").write_text(kerchunk(["a.bin", str(data / "b.bin")]))
    (data / "one.json").write_text(kerchunk(["s3://bucket/elsewhere/b.bin"]))
    (data / "short.json").write_text(kerchunk(["a.bin"], 47))
    (data / "gone.json").write_text(kerchunk(["s3://bucket/gone.bin"]))
    lines = taken(data, tmp_path / "out.tsv")
    verified = {n for n, c in lines.items() if c["outcome"] == "verified"}
    assert verified == {"both.json -> a.bin", f"both.json -> {data / 'b.bin'}", "one.json"}, lines
    assert all(lines[n]["forms"].count("=2") == 4 for n in verified), lines
    assert lines["short.json"]["outcome"] == lines["gone.json"]["outcome"] == "refused"
    assert "does not decode" in lines["short.json"]["reason"]
    assert "say scan: {references: {path:" in lines["gone.json"]["reason"]


def test_a_job_that_dies_hangs_or_eats_memory_ends_no_other() -> None:
    def work(job: str) -> str:
        if job == "dies":
            os.kill(os.getpid(), signal.SIGSEGV)
        if job == "hangs":
            time.sleep(60)
        if job == "eats":
            bytearray(1 << 34)
        return job

    started = time.monotonic()
    found = dict(
        pool.results(["dies", "hangs", "eats", "works"], work, cores=2, seconds=2, memory=1 << 30)
    )
    assert time.monotonic() - started < 20
    assert found["works"] == "works"
    assert found["dies"] == pool.Death("killed by signal 11", "")
    assert found["hangs"] == pool.Death("it took more than 2 s", "")
    assert found["eats"] == pool.Death("ended with code 1", "MemoryError")


def test_shares_are_of_the_files_that_an_oracle_can_open() -> None:
    lines = [
        line.Line("a", "hdf5", 4, 3, 1, 0, 100, 90, "partial", {}, ("h5py",)),
        line.Line("b", "hdf5", 4, 0, 4, 0, 900, 0, "refused"),
    ]
    found = line.sums(lines)["hdf5"]
    assert (found.files, found.opened, found.arrays, found.verified) == (2, 1, 4, 3)
    assert line.share(found.bytes_verified, found.bytes) == "90.0 %"
