"""A publication in a bucket is whole or not there: the rules of test_sync.py, at a server's other end."""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import random
import re
import shutil
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import icechunk as ic
import netCDF4
import numpy as np
import pytest
import xarray as xr
from icechunk.credentials import LocalFileSystemAccess
from osgeo import gdal

import publishing
import serving
from byterefs import sync
from byterefs.access import buckets
from byterefs.errors import SyncError
from byterefs.publishing import headers, objects
from byterefs.publishing.objects import Bucket
from forms import Results
from publishing import at, grow, publish, turned
from serving import S3

NUMBERS = count()


@pytest.fixture(scope="module")
def two_states(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Results of three days and of four, everything verified; ``state3`` and ``state4`` hold them."""
    folder = tmp_path_factory.mktemp("objects")
    results = at(folder)
    for days, first in ((3, 1), (4, 4)):
        grow(results, folder / "archive", first, days)
        shutil.copytree(results.folder, folder / f"state{days}")
    shutil.rmtree(results.folder)
    return folder


@pytest.fixture
def results(two_states: Path) -> Iterator[Results]:
    yield turned(two_states, 3)
    shutil.rmtree(two_states / "results")


@pytest.fixture
def place(s3_environment: S3) -> str:
    return f"s3://{s3_environment.bucket(f'published-{next(NUMBERS)}', public=True)}/a b/demo"


def split(place: str) -> tuple[str, str]:
    bucket, _, prefix = place.removeprefix("s3://").partition("/")
    return bucket, f"{prefix}/"


def stranger(s3: S3, place: str) -> str | None:
    """The version that somebody sees who polls the bucket; AssertionError if it is not whole."""
    bucket, prefix = split(place)

    def get(key: str) -> bytes | None:
        try:
            return bytes(s3.client.get_object(Bucket=bucket, Key=prefix + key)["Body"].read())
        except s3.client.exceptions.NoSuchKey:
            return None

    def names(base: str) -> list[str]:
        pages = s3.client.get_paginator("list_objects_v2").paginate(
            Bucket=bucket, Prefix=prefix + base
        )
        return [i["Key"].removeprefix(prefix + base) for p in pages for i in p.get("Contents", [])]

    return publishing.whole(get, names)


def icechunk_days(s3: S3, place: str, archive: Path) -> np.ndarray | None:
    """Every value of the published repository, anonymously; None where there is none yet."""
    bucket, prefix = split(place)
    storage = ic.s3_storage(
        bucket=bucket, prefix=f"{prefix}icechunk", region="us-east-1", endpoint_url=s3.endpoint, allow_http=True,
        force_path_style=True, anonymous=True,
    )  # fmt: skip
    if not ic.Repository.exists(storage):
        return None
    access = ic.containers_credentials({f"file://{archive}/": LocalFileSystemAccess})
    repo = ic.Repository.open(storage, authorize_virtual_chunk_access=access)
    store = repo.readonly_session("main").store
    found = xr.open_zarr(store, consolidated=False, mask_and_scale=False)["sst"].values
    return np.asarray(found)


def published(s3: S3, place: str) -> dict[str, bytes]:
    bucket, prefix = split(place)
    return {k.removeprefix(prefix): v for k, v in s3.keys(bucket, prefix).items()}


# --- what is written -------------------------------------------------------------------------------


def test_a_bucket_gets_what_a_directory_gets(
    results: Results, place: str, s3_environment: S3, tmp_path: Path
) -> None:
    receipt = publish(results, place)
    publish(results, tmp_path / "place", name="there")
    files = {
        p.relative_to(tmp_path / "place").as_posix(): p.read_bytes()
        for p in (tmp_path / "place").rglob("*")
        if p.is_file() and p.name != ".byterefs.lock"
    }
    found = published(s3_environment, place)
    # Icechunk's copy for a target has a `repo` of its own making
    assert {k: v for k, v in found.items() if k != "icechunk/repo"} == {
        k: v for k, v in files.items() if k != "icechunk/repo"
    }
    assert stranger(s3_environment, place) == receipt["version"]
    for key, told in receipt["keys"].items():
        bucket, prefix = split(place)
        head = s3_environment.client.head_object(Bucket=bucket, Key=prefix + key)
        assert told["size"] == head["ContentLength"] == len(found[key])
        assert told["etag"] == head["ETag"].strip('"')
        assert told["sha256"] == head["Metadata"]["sha256"]
        assert head["ContentType"] == headers.kind(key)
        lasting = key.startswith("v/") or re.match(r"icechunk/\w+/", key)
        assert head.get("CacheControl") == (None if lasting else "no-cache")


def test_the_same_again_sends_nothing_and_an_append_only_what_changed(
    results: Results,
    two_states: Path,
    place: str,
    s3_environment: S3,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    publish(results, place)
    sent: list[str] = []
    put = Bucket.put
    monkeypatch.setattr(
        Bucket, "put", lambda self, key, file: (sent.append(key), put(self, key, file))[1]
    )
    again = publish(results, place)
    assert set(again["counts"]) - {"deleted"} == {"unchanged"}
    assert sent == []
    first = stranger(s3_environment, place)
    appended = publish(turned(two_states, 4), place)
    assert stranger(s3_environment, place) == appended["version"] != first
    assert appended["counts"]["linked"] >= 1
    assert appended["counts"]["put"] == len(sent) + 2  # the pointers repo and latest.json
    before = {h["sha256"] for h in again["keys"].values()}
    assert not [k for k in sent if appended["keys"][k]["sha256"] in before]
    assert not [k for k in sent if k.startswith("current.")]  # copied there from the version
    values = icechunk_days(s3_environment, place, two_states / "archive")
    assert values is not None
    assert values.shape[0] == 4


def test_a_large_file_goes_in_parts_and_is_known_again_by_its_etag(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, s3_environment: S3
) -> None:
    monkeypatch.setattr(headers, "PART", 5 << 20)
    file = tmp_path / "large"
    file.write_bytes(os.urandom(12 << 20))
    shelf = objects.bucket({"to": place})
    shelf.put("v/1/large", file)
    assert shelf.mark("v/1/large") == headers.etag_of(file)
    assert headers.etag_of(file).endswith("-3")
    other = objects.bucket({"to": place})
    other.list()
    other.learn([(file, "its sha256")])
    assert other.digest("v/1/large") == "its sha256"
    assert shelf.take(shelf, "v/1/large", "v/2/large")
    assert shelf.get("v/2/large") == file.read_bytes()


# --- what is refused, found, repaired --------------------------------------------------------------


@pytest.mark.parametrize("key", ["v/{version}/sqlite/store.sqlite", "icechunk/repo"])
def test_an_object_that_was_tampered_with_is_found_and_repaired(
    results: Results, two_states: Path, place: str, s3_environment: S3, key: str, caplog: pytest.LogCaptureFixture
) -> None:  # fmt: skip
    receipt = publish(results, place)
    bucket, prefix = split(place)
    name = key.format(version=receipt["version"])
    good = published(s3_environment, place)
    head = s3_environment.client.head_object(Bucket=bucket, Key=prefix + name)
    bad = good[name][:-1] + bytes([good[name][-1] ^ 1])
    s3_environment.client.put_object(
        Bucket=bucket, Key=prefix + name, Body=bad, Metadata=head["Metadata"]
    )
    again = publish(results, place)
    assert again["counts"]["repaired"] == 1
    assert f"{place}/{name}: it is not what was published there" in caplog.text
    assert published(s3_environment, place) == good


def test_an_old_version_that_was_tampered_with_stops_the_next_publication(
    results: Results, two_states: Path, place: str, s3_environment: S3
) -> None:
    receipt = publish(results, place)
    bucket, prefix = split(place)
    name = f"v/{receipt['version']}/vrt/demo.vrt"
    s3_environment.client.delete_object(Bucket=bucket, Key=prefix + name)
    with pytest.raises(SyncError, match=rf"{name}: its sha256 is None .* somebody edited it"):
        publish(turned(two_states, 4), place)


def test_a_server_that_ignores_conditions_is_refused_before_anything_is_written(
    results: Results, place: str, s3_environment: S3, monkeypatch: pytest.MonkeyPatch
) -> None:
    heedless = serving.client(s3_environment.endpoint)

    def forget(params: Any, **_: Any) -> None:
        for header in ("If-None-Match", "If-Match"):
            params["headers"].pop(header, None)

    heedless.meta.events.register("before-call.s3.PutObject", forget)
    with monkeypatch.context() as patch:
        patch.setattr(buckets, "client", lambda _: heedless)
        with pytest.raises(SyncError, match="a PUT whose condition IfNoneMatch does not hold"):
            publish(results, place)
    assert list(published(s3_environment, place)) == [objects.PROBE]


def test_a_bucket_that_is_not_there_or_not_ours_is_one_sentence(
    results: Results, s3_environment: S3
) -> None:
    for options in (
        {"to": "s3://there-is-none/x"},
        {"to": "s3://ready/x", "profile": "nobody"},
        {"to": "ftp://x/y"},
    ):
        with pytest.raises(SyncError) as caught:
            publish(results, **options)
        assert "\n" not in str(caught.value)
        assert "; " in str(caught.value)


def test_of_two_publishers_at_once_one_wins_and_the_other_is_told(
    two_states: Path, place: str, s3_environment: S3, tmp_path: Path
) -> None:
    homes = []
    for days in (3, 4):
        home = tmp_path / str(days)
        shutil.copytree(two_states / f"state{days}", home / "results")
        homes.append(Results(home / "results", remap=at(two_states).config["remap"]))
    barrier = threading.Barrier(2)
    swap = Bucket.swap

    def together(self: Bucket, key: str, new: bytes, expected: bytes | None) -> bool:
        if key == "icechunk/repo":
            barrier.wait(30)
        return swap(self, key, new, expected)

    told: list[Any] = []

    def run(home: Results) -> None:
        try:
            told.append(publish(home, place)["version"])
        except SyncError as error:
            told.append(error)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Bucket, "swap", together)
        threads = [threading.Thread(target=run, args=(home,)) for home in homes]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    (lost,) = (t for t in told if isinstance(t, SyncError))
    (won,) = (t for t in told if not isinstance(t, SyncError))
    assert "another publisher replaced it" in str(lost)
    assert stranger(s3_environment, place) == won


def test_a_dry_run_writes_nothing_to_the_bucket(
    results: Results, place: str, s3_environment: S3
) -> None:
    receipt = publish(results, place, dry_run=True)
    assert receipt["counts"]["put"] > 10
    assert published(s3_environment, place) == {}


# --- time ------------------------------------------------------------------------------------------


def test_versions_and_orphans_go_after_a_time_of_grace(
    results: Results,
    two_states: Path,
    place: str,
    s3_environment: S3,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first = publish(results, place)["version"]
    publish(turned(two_states, 4), place)
    publish(turned(two_states, 3), place)
    lost = [k for k in published(s3_environment, place) if k.startswith("icechunk/")]
    monkeypatch.setattr(sync, "KEEP_VERSIONS", 1)
    monkeypatch.setattr(sync, "KEEP_DAYS", -1.0)
    receipt = publish(turned(two_states, 3), place)
    left = published(s3_environment, place)
    assert {k.split("/")[1] for k in left if k.startswith("v/")} == {first}
    assert len([k for k in left if k.startswith("icechunk/")]) < len(lost)
    assert set(left) == set(receipt["keys"])
    values = icechunk_days(s3_environment, place, two_states / "archive")
    assert values is not None
    assert values.shape[0] == 3


# --- mirrors ---------------------------------------------------------------------------------------


def test_a_mirror_is_copied_by_the_server_and_is_the_truth_byte_for_byte(
    results: Results, two_states: Path, place: str, s3_environment: S3
) -> None:
    mirror = f"s3://{s3_environment.bucket(f'mirror-{next(NUMBERS)}')}/m"
    publish(results, place, name="truth")
    done = publish(results, mirror, name="mirror", mirror_of="truth")
    assert published(s3_environment, mirror) == published(s3_environment, place)
    assert done["counts"]["copied"] > 10
    publish(turned(two_states, 4), place, name="truth")
    again = publish(turned(two_states, 4), mirror, name="mirror", mirror_of="truth")
    assert published(s3_environment, mirror) == published(s3_environment, place)
    assert again["counts"]["unchanged"] > 10
    assert {k: h["sha256"] for k, h in again["keys"].items()} == {
        k: h["sha256"] for k, h in json.loads((results.folder / "sync/truth.json").read_text())["keys"].items()
    }  # fmt: skip


def test_a_directory_is_mirrored_to_a_bucket_and_a_bucket_to_a_directory(
    results: Results, place: str, s3_environment: S3, tmp_path: Path
) -> None:
    publish(results, tmp_path / "truth", name="truth")
    publish(results, place, name="second", mirror_of="truth")
    publish(results, tmp_path / "third", name="third", mirror_of="second")
    files = {
        p.relative_to(tmp_path / "third").as_posix(): p.read_bytes()
        for p in (tmp_path / "third").rglob("*")
        if p.is_file() and p.name != ".byterefs.lock"
    }
    assert files == published(s3_environment, place)


# --- killed ----------------------------------------------------------------------------------------


class States:
    """What a stranger may see and nothing else: per version, what its receipt says and what its granules hold."""

    def __init__(self, folder: Path, aside: Path) -> None:
        self.keys: dict[str, dict[str, str]] = {}
        self.values: dict[str, np.ndarray] = {}
        self.version: dict[int, str] = {}
        for days in (3, 4):
            receipt = publish(turned(folder, days), aside / str(days), name=f"aside-{days}")
            version = self.version[days] = receipt["version"]
            self.keys[version] = {key: told["sha256"] for key, told in receipt["keys"].items()}
            self.values[version] = granules(sorted((folder / "archive").iterdir())[:days])

    def whole(self, s3: S3, place: str) -> str:
        """The version that is published; AssertionError unless all of it is as its receipt says."""
        version = stranger(s3, place)
        assert version in self.keys, f"version {version} was never published whole"
        bucket, prefix = split(place)
        found = s3.keys(bucket, f"{prefix}v/{version}/")
        held = {k.removeprefix(prefix): hashlib.sha256(v).hexdigest() for k, v in found.items()}
        assert held == {k: v for k, v in self.keys[version].items() if k.startswith("v/")}
        return version

    def single(self, s3: S3, place: str) -> None:
        """Each convenience name that is one file holds that file of one version."""
        bucket, prefix = split(place)
        for key in ("current.vrt", "current.json", "current.sqlite"):
            body = s3.client.get_object(Bucket=bucket, Key=prefix + key)["Body"].read()
            assert hashlib.sha256(body).hexdigest() in {keys[key] for keys in self.keys.values()}


def granules(paths: list[Path]) -> np.ndarray:
    """The stored values of the granules themselves, by netCDF4."""
    days = []
    for path in paths:
        with netCDF4.Dataset(path) as nc:
            nc.set_auto_maskandscale(False)
            days.append(nc["sst"][:])
    return np.concatenate(days)


def by_gdal(s3: S3, place: str, version: str) -> np.ndarray:
    """The values of a version's VRT in the bucket, asked for again."""
    bucket, prefix = split(place)
    options = {"AWS_S3_ENDPOINT": s3.endpoint.partition("://")[2], "AWS_HTTPS": "NO", "AWS_VIRTUAL_HOSTING": "FALSE", "AWS_NO_SIGN_REQUEST": "YES"}  # fmt: skip
    for key, value in options.items():
        gdal.SetPathSpecificOption(f"/vsis3/{bucket}", key, value)
    gdal.VSICurlClearCache()
    with gdal.OpenEx(f"/vsis3/{bucket}/{prefix}v/{version}/vrt/demo.vrt", gdal.OF_MULTIDIM_RASTER) as opened:  # fmt: skip
        return np.asarray(opened.GetRootGroup().OpenMDArray("sst").ReadAsArray())


class Poller(threading.Thread):
    """Reads the published store all the while, as strangers do, and compares every byte and value."""

    def __init__(self, s3: S3, place: str, archive: Path, states: States) -> None:
        super().__init__()
        self.s3, self.place, self.archive, self.states = s3, place, archive, states
        self.stop, self.looking = threading.Event(), threading.Lock()
        self.wrong: list[str] = []
        self.seen: Counter[str] = Counter()

    def run(self) -> None:
        while not self.stop.is_set():
            try:
                with self.looking:
                    self.look()
            except Exception as error:
                self.wrong.append(repr(error))
            self.stop.wait(0.01)  # so that who waits for the lock gets it

    def look(self) -> None:
        version = self.states.whole(self.s3, self.place)
        self.states.single(self.s3, self.place)
        assert np.array_equal(by_gdal(self.s3, self.place, version), self.states.values[version]), (
            f"the VRT of version {version} gives other values"
        )
        values = icechunk_days(self.s3, self.place, self.archive)
        assert any(np.array_equal(values, own) for own in self.states.values.values()), (
            "the Icechunk repository gives values of no version"
        )
        self.seen[version] += 1


def requests_of_a_sync(folder: Path, place: str) -> int:
    """How many requests it takes to publish a state in place of another."""
    sent: list[Any] = []
    events = buckets.client(buckets.Access()).meta.events

    def note(request: Any, **_: Any) -> None:
        sent.append(request)

    events.register("before-send.s3", note)
    publish(turned(folder, 3), place)
    events.unregister("before-send.s3", note)
    return len(sent)


def remove_version(s3: S3, place: str, version: str) -> None:
    """Delete a version that nobody is pointed to, so that it has to be published as a new one is."""
    bucket, prefix = split(place)
    for key in s3.keys(bucket, f"{prefix}v/{version}/"):
        s3.client.delete_object(Bucket=bucket, Key=key)


def killed(two_states: Path, place: str, s3: S3, times: int, aside: Path) -> str:
    """Kill syncs while strangers look; what happened."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(
        ["byterefs.sync", "byterefs.publishing.objects", "byterefs.view", "publishing"]
    )
    draw = random.Random(5)
    states = States(two_states, aside)
    publish(turned(two_states, 4), place)
    requests = requests_of_a_sync(two_states, place)
    poller = Poller(s3, place, two_states / "archive", states)
    poller.start()
    ends = []
    try:
        for _ in range(times):
            with poller.looking:
                now = stranger(s3, place)
                days, version = next((d, v) for d, v in states.version.items() if v != now)
                if draw.random() < 0.7:  # else the killed one's files are there, and it goes on
                    remove_version(s3, place, version)
            arguments = (two_states, place, days, draw.randint(3, requests), draw.uniform(0, 0.02))
            process = context.Process(target=publishing.once, args=arguments)
            process.start()
            process.join()
            ends.append(process.exitcode)
            assert process.exitcode in (0, -signal.SIGKILL)
        receipt = publish(turned(two_states, days), place)
    finally:
        poller.stop.set()
        poller.join()
    assert poller.wrong == []
    assert poller.seen.total() > times / 4
    assert ends.count(-signal.SIGKILL) > times / 2
    assert states.whole(s3, place) == receipt["version"] == states.version[days]
    bucket, prefix = split(place)
    assert "Uploads" not in s3.client.list_multipart_uploads(Bucket=bucket, Prefix=prefix)
    assert {k: h["size"] for k, h in receipt["keys"].items()} == {
        k: len(v) for k, v in published(s3, place).items()
    }
    return (
        f"{times} syncs of {requests} requests each: {ends.count(-signal.SIGKILL)} killed, {ends.count(0)} done before "
        f"they were; {poller.seen.total()} looks at versions {dict(poller.seen)}, {len(poller.wrong)} wrong"
    )


def test_a_reader_that_polls_never_sees_a_state_that_is_not_whole_whenever_a_sync_is_killed(
    two_states: Path, place: str, s3_environment: S3, tmp_path: Path
) -> None:
    killed(two_states, place, s3_environment, 6, tmp_path)


@pytest.mark.soak
def test_a_hundred_kills_show_a_polling_reader_nothing_that_is_not_whole(
    two_states: Path, place: str, s3_environment: S3, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:  # fmt: skip
    told = killed(two_states, place, s3_environment, 100, tmp_path)
    with capsys.disabled():
        print(f"\n{told}")
