"""The whole flow on sources that are not on this machine: listed, scanned, planned, emitted and proven remotely."""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import date, timedelta
from itertools import count
from pathlib import Path
from typing import Any

import pytest

import granules
import serving
from building import config
from byterefs import discover, stages, store, verify
from byterefs.access import buckets
from byterefs.emitters import NAMES
from byterefs.errors import VerifyError
from byterefs.receipts import read
from byterefs.scan import scan_batch
from byterefs.view import View
from serving import S3, Web

FIRST = date(2020, 1, 1)


class Archive:
    """A few days on a server, and the results that are made of them."""

    def __init__(self, folder: Path, url: str) -> None:
        self.files, self.results = folder / "files", folder / "results"
        self.files.mkdir()
        self.clock = count(1_500_000_000)
        source = {"provider": "http", "url": url, "pattern": r"(?P<day>\d{8})\.nc$"}
        self.config = config(
            source=source, select={"slot": ["day"]}, scan={"batch": 64, "on_error": "fail", "arrays": ["sst"]}
        )  # fmt: skip

    def add(self, *days: int, seed: int = 0) -> None:
        for n in days:
            day = FIRST + timedelta(n)
            path = self.files / f"{day:%Y%m%d}.nc"
            granules.oisst(path, day, arrays=["sst"], seed=seed)
            # long ago, each at its own second: one of the last seconds would be scanned once more
            os.utime(path, (second := next(self.clock), second))

    def access(self) -> dict[str, Any]:
        keys = ("endpoint", "profile", "anonymous")
        return {k: v for k, v in self.config["source"].items() if k in keys}

    def update(self) -> list[str]:
        """List, scan what is new, plan; the sources that were scanned."""
        at = self.results
        kept, found = at / "store/store.sqlite", at / "discover/receipt.json"
        discover.refresh(self.config, at)
        discover.discover(
            at / "discover/listing.json", found, kept, self.config, allow_removal=False
        )
        scans, todo = [], []
        for batch, names in read(found)["batches"].items():
            scans.append(at / "scan" / f"{batch}.sqlite")
            todo += names
            scan_batch(
                found,
                batch,
                scans[-1],
                scan=self.config["scan"],
                concat="time",
                access=self.access(),
            )
        if scans:
            stages.update_store(found, scans, kept, at / "store/receipt.json")
            stages.make_plan(kept, at / "plan/receipt.json", self.config)
            stages.look(kept, at / "view/receipt.json")
        return todo

    def prove(self, form: str) -> dict[str, Any]:
        """Emit and verify one form; the receipt of the verification."""
        kept, emitted = (
            self.results / "store/store.sqlite",
            self.results / f"emit/access/{form}.receipt.json",
        )
        stages.emit(kept, emitted, "access", form, {})
        proof = self.results / f"verify/access/{form}.json"
        with buckets.asking(self.access()):
            verify.run(kept, emitted, proof, form=form, target="access", options={})
        return dict(read(proof))


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Web]:
    with serving.web(tmp_path) as found:
        yield found


@pytest.fixture
def archive(tmp_path: Path, site: Web) -> Archive:
    return Archive(tmp_path, f"{site.url}/files")


def test_every_form_of_a_web_archive_is_proven_and_an_append_scans_one_source(
    archive: Archive, site: Web
) -> None:
    archive.add(0, 1, 2)
    assert len(archive.update()) == 3
    for form in NAMES:
        report = archive.prove(form)
        assert report["verified"]
        assert report["values_compared"] >= 3 * 18 * 36
        assert report["sources"] == {"checked": 0, "remote": 3}
    assert archive.update() == []
    archive.add(3)
    site.forget()
    assert archive.update() == [f"{site.url}/files/20200104.nc"]
    assert not any(site.asked[f"/files/2020010{n}.nc"] for n in (1, 2, 3))


def test_a_file_with_another_line_on_the_index_page_is_scanned_again(
    archive: Archive, site: Web
) -> None:
    archive.add(0, 1)
    archive.update()
    archive.add(1, seed=5)
    os.utime(archive.files / "20200102.nc", (1_600_000_000, 1_600_000_000))
    assert archive.update() == [f"{site.url}/files/20200102.nc"]
    assert archive.update() == []


def test_a_file_that_was_replaced_since_its_scan_fails_the_verification(
    archive: Archive,
) -> None:
    archive.add(0, 1)
    archive.update()
    archive.add(1, seed=5)
    with pytest.raises(
        VerifyError, match=r"20200102\.nc: (etag|mtime_ns|size) was .* and is .* now"
    ):
        archive.prove("sqlite")


@pytest.mark.parametrize("spelled", ["s3://{}/a b/", "/vsis3/{}/a b/"])
def test_every_form_of_a_bucket_is_proven(tmp_path: Path, s3: S3, spelled: str) -> None:
    bucket = f"flow-{'gdal' if spelled[0] == '/' else 'url'}"
    s3.bucket(bucket, public=True)
    archive = Archive(tmp_path, spelled.format(bucket))
    archive.config["source"] |= {"provider": "s3", "endpoint": s3.endpoint, "anonymous": True}
    archive.add(0, 1)
    s3.put_tree(bucket, archive.files, "a b/")
    assert len(archive.update()) == 2
    for form in NAMES:
        report = archive.prove(form)
        assert report["sources"] == {"checked": 0, "remote": 2}
    assert archive.update() == []
    known = store.known(archive.results / "store/store.sqlite")
    etags = [
        s3.client.head_object(Bucket=bucket, Key=f"a b/2020010{n}.nc")["ETag"].strip('"')
        for n in (1, 2)
    ]
    assert [row[2] for _, row in sorted(known.items())] == etags


@pytest.mark.parametrize("engine", ["mosaic", "vrt"])
@pytest.mark.parametrize("spelled", ["s3://{}/a b/", "/vsis3/{}/a b/"])
def test_gdal_plans_a_bucket_as_our_engine_does(
    tmp_path: Path, s3: S3, spelled: str, engine: str
) -> None:
    bucket = f"plan-{engine}-{'gdal' if spelled[0] == '/' else 'url'}"
    s3.bucket(bucket, public=True)
    archive = Archive(tmp_path, spelled.format(bucket))
    archive.config["source"] |= {"provider": "s3", "endpoint": s3.endpoint, "anonymous": True}
    other = "/vsis3/" if spelled[0] == "s" else "s3://"
    archive.config["remap"] = {"public": {f"{other}{bucket}/": f"{s3.endpoint}/{bucket}/"}}
    archive.add(1, 0, 3)
    s3.put_tree(bucket, archive.files, "a b/")
    archive.update()
    kept = archive.results / "store/store.sqlite"
    with View.open(kept) as view:
        ours = view.arrays["sst"].placements
        assert view.paths("public")[0] == f"{s3.endpoint}/{bucket}/a%20b/20200101.nc"
        (tmp_path / "handed.vrt").write_text(view.vrt)
    archive.config["plan"] |= {"engine": engine, "vrt": str(tmp_path / "handed.vrt")}
    stages.make_plan(kept, archive.results / "plan/receipt.json", archive.config)
    with View.open(kept) as view:
        assert view.arrays["sst"].placements == ours
        assert view.arrays["sst"].shape == (3, 1, 18, 36)
