"""What one array cannot have must not end the rest: arrays set aside in a scan, and left out of a form."""

from __future__ import annotations

import json
from pathlib import Path

import h5py
import numpy as np
import pytest

from byterefs import emitters, scanners
from byterefs.errors import EmitError, ScanError
from byterefs.files import write_json
from byterefs.model import Source
from byterefs.scanners._recorded import setting_aside
from byterefs.view import View, receipt
from forms import Results
from granules import pipeline

NUMBERS = np.arange(24, dtype="<i4").reshape(4, 6)


@pytest.fixture
def mixed(tmp_path: Path) -> Path:
    """A file with an array of variable length beside one that every form holds, and one with n-bit."""
    path = tmp_path / "mixed.h5"
    with h5py.File(path, "w") as f:
        f["plain"] = NUMBERS
        pipeline(f, "narrow", NUMBERS, (4, 6), "nbit")
        f.create_dataset("when", (2,), h5py.vlen_dtype("<f4"))
    return path


def test_an_array_that_cannot_be_recorded_ends_the_scan_unless_it_is_set_aside(mixed: Path) -> None:
    with pytest.raises(ScanError, match=f"{mixed}: when: .* variable-length"):
        scanners.scan(Source(str(mixed)))
    with setting_aside() as refused:
        found = scanners.scan(Source(str(mixed)))
    assert set(found.arrays) == {"plain", "narrow"}
    assert list(refused) == ["when"]
    assert "scan.arrays" in refused["when"]


def test_a_form_that_is_not_required_leaves_out_what_it_cannot_hold_and_says_so(
    mixed: Path, tmp_path: Path
) -> None:
    results = Results(
        tmp_path / "results", plan={"concat": None}, scan={"arrays": ["plain", "narrow"]},
        source={"pattern": ""},
    )  # fmt: skip
    results.scan([mixed])
    with View.open(results.store) as view:
        digest = receipt(view)["digest"]
        assert set(emitters.refusals(view, "kerchunk")) == {"narrow"}
        assert emitters.refusals(view, "sqlite") == {}
    out, options = results.out("access", "kerchunk"), {"required": False}
    where = {"form": "kerchunk", "target": "access"}
    with pytest.raises(EmitError, match="nbit"):
        emitters.build(results.store, digest, out, options={}, **where)
    done = emitters.build(results.store, digest, out, options=options, **where)
    assert list(done["left_out"]) == ["narrow"]
    assert "sqlite, vrt and parquet" in done["left_out"]["narrow"]
    coverage = json.loads((out / "open.json").read_text())["coverage"]
    assert coverage["plain"]["xarray"] is True
    assert "nbit" in coverage["narrow"]["xarray"]
    write_json(results.emitted("access", "kerchunk"), done)
    proof = results.verify("access", "kerchunk")
    assert proof["values_compared"] == NUMBERS.size
    assert list(proof["refused"]) == ["narrow"]
