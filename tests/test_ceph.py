"""Ceph's radosgw, which Pawsey's Acacia runs, as the S3 server: what SeaweedFS lets pass, it does not.

Part of `make ceph-test` and not of `make test`: it installs Ceph, as root on Debian.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from byterefs.access import buckets, ranges
from byterefs.discover import s3 as provider
from byterefs.publishing import objects
from demonstration.seaweed import KEY, SECRET, anyone, client
from publishing import at, grow, publish, turned, whole

pytestmark = pytest.mark.ceph
HERE = Path(__file__).parent / "ceph"


@pytest.fixture(scope="module")
def ceph(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("ceph")
    try:
        done = subprocess.run(
            ["bash", str(HERE / "up.sh"), str(folder), KEY, SECRET], stdout=subprocess.PIPE, text=True, check=True
        )  # fmt: skip
        yield done.stdout.split()[-1]
    finally:
        subprocess.run(["bash", str(HERE / "down.sh"), str(folder)], check=True)


@pytest.fixture
def endpoint(ceph: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", ceph)
    buckets.client.cache_clear()
    yield ceph
    buckets.client.cache_clear()


def test_ranges_and_listings_are_read_from_ceph(endpoint: str) -> None:
    s3 = client(endpoint)
    s3.create_bucket(Bucket="archive")
    s3.put_bucket_policy(Bucket="archive", Policy=json.dumps(anyone("archive")))
    data = os.urandom(100_000)
    s3.put_object(Bucket="archive", Key="a b/#é.nc", Body=data)
    with (
        buckets.asking({"endpoint": endpoint, "anonymous": True}),
        ranges.open("s3://archive/a b/#é.nc") as found,
    ):
        assert found.read_many([(5, 10), (99_990, 10)]) == [data[5:15], data[-10:]]
    section = {"url": "s3://archive/a b", "pattern": r"\.nc$", "endpoint": endpoint}
    assert [s.source for s in provider.list(section)] == ["s3://archive/a b/#é.nc"]


def test_a_publication_its_append_its_repair_and_its_mirror_stand_on_ceph(
    endpoint: str, tmp_path: Path
) -> None:
    s3 = client(endpoint)
    for bucket in ("truth", "mirror"):
        s3.create_bucket(Bucket=bucket)
    results = at(tmp_path)
    for days, first in ((3, 1), (4, 4)):
        grow(results, tmp_path / "archive", first, days)
        shutil.copytree(results.folder, tmp_path / f"state{days}")
    shutil.rmtree(results.folder)

    def held(bucket: str) -> dict[str, bytes]:
        pages = s3.get_paginator("list_objects_v2").paginate(Bucket=bucket)
        names = [i["Key"] for p in pages for i in p.get("Contents", [])]
        return {n: s3.get_object(Bucket=bucket, Key=n)["Body"].read() for n in names}

    def seen(bucket: str) -> str | None:
        found = {k.removeprefix("demo/"): v for k, v in held(bucket).items()}
        return whole(
            found.get, lambda base: [k.removeprefix(base) for k in found if k.startswith(base)]
        )

    for days in (3, 4):
        receipt = publish(turned(tmp_path, days), "s3://truth/demo", "truth")
        assert seen("truth") == receipt["version"]
    good = held("truth")
    name = f"demo/v/{receipt['version']}/sqlite/store.sqlite"
    s3.put_object(Bucket="truth", Key=name, Body=b"x")
    assert publish(turned(tmp_path, 4), "s3://truth/demo", "truth")["counts"]["repaired"] == 1
    assert held("truth") == good
    done = publish(turned(tmp_path, 4), "s3://mirror/demo", "mirror", mirror_of="truth")
    assert done["counts"]["copied"] > 10
    assert held("mirror") == good


def test_of_two_swaps_one_wins_on_ceph(endpoint: str) -> None:
    client(endpoint).create_bucket(Bucket="swaps")
    one, two = (objects.bucket({"to": "s3://swaps/x"}) for _ in range(2))
    with one.lock():
        assert one.swap("latest.json", b"1", None)
        assert not two.swap("latest.json", b"2", None)
        assert two.swap("latest.json", b"2", b"1")
        assert not one.swap("latest.json", b"3", b"1")
        assert one.get("latest.json") == b"2"
