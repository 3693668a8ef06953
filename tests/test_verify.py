"""What is compared when: everything once, then what is new and a seeded sample; and what is counted."""

from __future__ import annotations

import json
import os
from datetime import date, timedelta
from pathlib import Path

import h5py
import netCDF4
import numpy as np
import pytest

from byterefs import emitters, verify
from byterefs.errors import VerifyError
from byterefs.files import write_json
from byterefs.model import Array, Placement
from byterefs.proving import sample
from byterefs.view import View, receipt
from forms import Results
from granules import compact, oisst, pipeline

FORMS = ("sqlite", "vrt", "parquet", "kerchunk", "icechunk")


def days(folder: Path, first: int, last: int, **options: object) -> list[Path]:
    """Granules of September 2026 by day of month, and their paths."""
    paths = []
    for n in range(first, last + 1):
        day = date(2026, 9, 1) + timedelta(n - 1)
        paths.append(folder / f"{day:%Y%m%d}.nc")
        oisst(paths[-1], day, arrays=["sst"], **{"chunks": [1, 1, 6, 12], **options})  # type: ignore[arg-type]
    return paths


def test_an_append_compares_the_new_slots_and_a_sample_of_the_old(tmp_path: Path) -> None:
    results = Results(tmp_path / "results")
    results.scan(days(tmp_path, 1, 6))
    results.emit(("access", "sqlite"))
    first = results.verify("access", "sqlite", sample=5)
    assert first["slots"] == {
        "new": 6 + 6 + 3,
        "old_sampled": 0,
    }  # sst, time; zlev, lat and lon once
    assert first["chunks_compared"] == 6 * 9

    results.scan(days(tmp_path, 7, 8))
    results.emit(("access", "sqlite"))
    second = results.verify("access", "sqlite", sample=5)
    assert second["slots"]["new"] == 2 + 2
    assert second["rows_compared"] == 8 * 9
    fresh, corners = 2 * 9, 4
    assert fresh + corners < second["chunks_compared"] <= fresh + corners + 5


def test_the_sample_is_the_same_for_the_same_content_and_another_for_another(
    tmp_path: Path,
) -> None:
    results = Results(tmp_path / "results")
    results.scan(days(tmp_path, 1, 6))
    with View.open(results.store) as view:
        sst = view.arrays["sst"]
    seen = np.ones(6, bool)
    one, again, other = (
        sample.windows(sst, seen, n=5, seed=seed, full=False) for seed in (1, 1, 2)
    )
    assert one == again
    assert one != other
    assert all(not w.new and w.chunks == 1 for w in one)


def test_a_sample_has_the_corners_of_the_first_and_the_last_slab(tmp_path: Path) -> None:
    results = Results(tmp_path / "results")
    results.scan(days(tmp_path, 1, 6))
    with View.open(results.store) as view:
        sst = view.arrays["sst"]
    windows = sample.windows(sst, np.ones(6, bool), n=0, seed=0, full=False)
    starts = [w.start for w in windows]
    assert starts == [(t, 0, y, x) for t in (0, 5) for y in (0, 12) for x in (0, 24)]


def test_full_compares_every_chunk_again(tmp_path: Path) -> None:
    results = Results(tmp_path / "results")
    results.scan(days(tmp_path, 1, 4))
    results.emit(("access", "sqlite"))
    results.verify("access", "sqlite")
    again = results.verify("access", "sqlite", full=True)
    assert again["slots"]["new"] == 0
    assert again["chunks_compared"] == 4 * 9


def test_a_slot_whose_source_was_rewritten_is_new(tmp_path: Path) -> None:
    results = Results(tmp_path / "results")
    paths = days(tmp_path, 1, 4)
    results.scan(paths)
    results.emit(("access", "sqlite"))
    results.verify("access", "sqlite", sample=0)
    oisst(paths[1], date(2026, 9, 2), arrays=["sst"], chunks=[1, 1, 6, 12], seed=3)
    results.scan([paths[1]])
    results.emit(("access", "sqlite"))
    report = results.verify("access", "sqlite", sample=0)
    assert report["slots"]["new"] == 2  # its sst and its time
    assert report["chunks_compared"] == 9 + 8  # and the corners of the first and the last slab


@pytest.mark.parametrize("form", FORMS)
def test_a_receipt_is_the_same_for_the_same_content(tmp_path: Path, form: str) -> None:
    results = Results(tmp_path / "results")
    results.scan(days(tmp_path, 1, 3))
    results.emit(("access", form))
    results.verify("access", form)
    checked = results.proof("access", form).with_name(f"{form}.checked.npy")
    first = (results.proof("access", form).read_bytes(), checked.read_bytes())
    checked.unlink()
    results.verify("access", form)
    assert (results.proof("access", form).read_bytes(), checked.read_bytes()) == first


def test_a_failed_verification_leaves_no_receipt_and_keeps_what_was_checked(tmp_path: Path) -> None:
    results = Results(tmp_path / "results")
    paths = days(tmp_path, 1, 3)
    results.scan(paths)
    results.emit(("access", "sqlite"))
    results.verify("access", "sqlite")
    checked = results.proof("access", "sqlite").with_name("sqlite.checked.npy").read_bytes()
    paths[0].write_bytes(paths[0].read_bytes() + b"x")
    with pytest.raises(VerifyError, match="size was"):
        results.verify("access", "sqlite")
    assert not results.proof("access", "sqlite").exists()
    assert results.proof("access", "sqlite").with_name("sqlite.checked.npy").read_bytes() == checked


def test_a_refused_form_is_reported_and_not_called_verified(tmp_path: Path) -> None:
    results = Results(tmp_path / "results")
    results.scan(days(tmp_path, 1, 1))
    results.emit(("access", "sqlite"))
    receipt = results.emitted("access", "sqlite")
    content = json.loads(receipt.read_text())
    receipt.write_text(json.dumps({**content, "refused": "sst: codec szip …", "covers": {}}))
    report = results.verify("access", "sqlite")
    assert report["verified"] is False
    assert report["refused"] == {"*": "sst: codec szip …"}
    assert report["digest"] == content["digest"]


@pytest.mark.parametrize("form", FORMS)
def test_a_gap_in_a_dense_axis_must_read_as_fill(tmp_path: Path, form: str) -> None:
    results = Results(tmp_path / "results", plan={"axis": "dense"})
    results.scan([*days(tmp_path, 1, 2), *days(tmp_path, 5, 5)])
    results.emit(("access", form))
    report = results.verify("access", form)
    assert report["counts"]["gaps_compared"] == 2 * 9
    assert report["chunks_compared"] == 3 * 9


@pytest.mark.parametrize("form", FORMS)
def test_time_in_other_units_is_compared_as_instants(tmp_path: Path, form: str) -> None:
    results = Results(tmp_path / "results")
    paths = days(tmp_path, 1, 2)
    paths.append(tmp_path / "20260903.nc")
    hours = (date(2026, 9, 3) - date(1990, 1, 1)).days * 24.0 + 12
    oisst(
        paths[-1], date(2026, 9, 3), arrays=["sst"], chunks=[1, 1, 6, 12],
        units="hours since 1990-01-01 00:00:00", time=hours,
    )  # fmt: skip
    results.scan(paths)
    results.emit(("access", form))
    assert results.verify("access", form)["verified"]


def test_a_misaligned_array_is_verified_through_the_vrt_and_listed(tmp_path: Path) -> None:
    paths = []
    for i, n in enumerate((5, 6)):
        paths.append(tmp_path / f"{i}.nc")
        with netCDF4.Dataset(paths[-1], "w") as nc:
            nc.createDimension("time", None)
            nc.createDimension("x", 4)
            t = nc.createVariable("time", "f8", ("time",))
            t.units = "days since 2026-01-01"
            t[:] = np.arange(n) + 5.0 * i
            v = nc.createVariable("v", "i2", ("time", "x"), chunksizes=(3, 4), zlib=True)
            v[:] = np.arange(n * 4).reshape(n, 4) + 100 * i
    results = Results(tmp_path / "results")
    results.scan(paths)
    results.emit(("access", "vrt"))
    report = results.verify("access", "vrt")
    assert report["verified"]
    assert "not chunk-aligned" in report["refused"]["v"]
    assert report["values_compared"] >= 11 * 4


def test_contiguous_compact_absent_and_nan_payload_are_compared_bit_for_bit(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    payload = np.array([[0x7FC00001, 0xFFC12345], [0x7FC00000, 0x3F800000]], "<u4").view("<f4")
    with h5py.File(path, "w") as f:
        f["contiguous"] = np.arange(12, dtype="<i4").reshape(3, 4)
        f["payload"] = payload
        compact(f, "compact", np.arange(6, dtype="<i2").reshape(2, 3))
        absent = f.create_dataset("absent", (4, 4), "<i2", chunks=(2, 2), fillvalue=-7)
        absent[:2, :2] = 5
        pipeline(
            f, "swapped", np.arange(64, dtype="<i4").reshape(8, 8), (4, 8), "deflate", "shuffle"
        )
        f.create_dataset("big", data=np.arange(16, dtype=">f8").reshape(4, 4), chunks=(2, 4))
    results = Results(tmp_path / "results", plan={"concat": None}, source={"pattern": r"\.h5$"})
    results.scan([path])
    for form in ("sqlite", "parquet", "vrt"):
        results.emit(("access", form))
        report = results.verify("access", form)
        assert set(report["oracle"]["values"]) == {"netCDF"}
        assert report["oracle"]["ranges"]["source"] >= 4
    assert report["values_compared"] >= 12 + 4 + 6 + 16 + 64 + 16


def test_what_gdal_cannot_read_is_counted_as_read_by_h5py(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as f:
        f.create_dataset("half", data=np.arange(8, dtype="<f2").reshape(2, 4), chunks=(1, 4))
    results = Results(tmp_path / "results", plan={"concat": None}, source={"pattern": r"\.h5$"})
    results.scan([path])
    results.emit(("access", "parquet"))
    report = results.verify("access", "parquet")
    assert report["oracle"]["values"] == {"h5py": 8}
    assert "Float32 where the source has <f2" in report["oracle"]["h5py_because"]["half"]


def test_windows_of_a_large_slab_tile_it_without_overlap() -> None:
    shape, chunks = (10, 2000, 3000), (3, 2000, 3000)
    p = Placement("s", "v", (0, 0, 0), shape, (5, 0, 0))
    array = Array("v", "data", "referenced", ("t", "y", "x"), (15, 2000, 3000), chunks, "<f8", None, {}, placements=(p,))  # fmt: skip
    windows = list(sample.slabs(array, p, True))
    assert [(w.start[0], w.count[0], w.there[0]) for w in windows] == [
        (5, 3, 0),
        (8, 3, 3),
        (11, 3, 6),
        (14, 1, 9),
    ]
    assert sum(w.chunks for w in windows) == 4


def test_a_slab_that_starts_inside_a_chunk_is_cut_at_the_sources_own_chunks() -> None:
    p = Placement("s", "v", (4,), (6,), (20,))
    array = Array("v", "data", "referenced", ("t",), (26,), (3,), "<i2", None, {}, placements=(p,))
    cut = [sample.local_window("v", p, (3,), (k,), False) for k in range(3)]
    assert sample.local_grid(p, array.chunks) == (3,)
    assert [(w.start, w.count, w.there) for w in cut] == [
        ((20,), (2,), (4,)),
        ((22,), (3,), (6,)),
        ((25,), (1,), (9,)),
    ]


def test_fingerprints_follow_the_slab_the_stat_and_the_rows(tmp_path: Path) -> None:
    results = Results(tmp_path / "results")
    results.scan(days(tmp_path, 1, 3))
    with View.open(results.store) as view:
        sst, refs = view.arrays["sst"], view.refs("sst")
        sources = {s.source: s for s in view.sources}
    before = sample.fingerprints(sst, sources, refs)
    assert len(set(before.tolist())) == 3
    second = sst.placements[1].source
    touched = sources | {second: sources[second]._replace(mtime_ns=1)}
    assert (sample.fingerprints(sst, touched, refs) != before).tolist() == [False, True, False]
    moved = refs.offset.copy()
    moved[-1] += 1
    other = type(refs)(refs.source, moved, refs.size, refs.data)
    assert (sample.fingerprints(sst, sources, other) != before).tolist() == [False, False, True]


def test_the_default_options_are_those_of_the_schema() -> None:
    from byterefs.config import load_schema

    rules = load_schema("dataset")["properties"]["verify"]["properties"]
    assert {k: rules[k]["default"] for k in verify.DEFAULTS} == dict(verify.DEFAULTS)


def test_a_store_that_holds_the_paths_of_a_target_is_verified(tmp_path: Path) -> None:
    rules = {"public": {f"{tmp_path}/": "https://example.org/d/"}}
    results = Results(tmp_path / "results", remap=rules)
    results.scan(days(tmp_path, 1, 2))
    with View.open(results.store) as view:
        digest = receipt(view)["digest"]
    done = emitters.build(
        results.store, digest, results.out("access", "sqlite"),
        form="sqlite", target="access", options={"sources": "public"},
    )  # fmt: skip
    write_json(results.emitted("access", "sqlite"), done)
    assert results.verify("access", "sqlite")["rows_compared"] == 2 * 9


def test_strings_of_any_length_along_the_axis_are_read_by_h5py(tmp_path: Path) -> None:
    files = days(tmp_path, 1, 2)
    for path, word in zip(files, ("noon", "midnight"), strict=True):
        with netCDF4.Dataset(path, "a") as nc:
            nc.createVariable("label", str, ("time",))[:] = np.array([word], object)
    results = Results(tmp_path / "results")
    results.scan(files)
    results.emit(("access", "kerchunk"))
    results.verify("access", "kerchunk")
    stat = files[1].stat()
    raw = files[1].read_bytes()
    files[1].write_bytes(raw.replace(b"midnight", b"Midnight"))
    os.utime(files[1], ns=(stat.st_atime_ns, stat.st_mtime_ns))
    with pytest.raises(VerifyError, match=r"'label' is b'midnight' .*b'Midnight'"):
        results.verify("access", "kerchunk", full=True)
