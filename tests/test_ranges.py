"""Byte ranges of local files, web servers and buckets: exact, whole, of one version, or refused."""

from __future__ import annotations

import doctest
import os
import threading
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from botocore.config import Config
from hypothesis import given
from hypothesis import strategies as st

import serving
from byterefs.access import buckets, ranges, web
from byterefs.errors import AbsentError, RangeError
from byterefs.model import Source
from serving import S3, Web

DATA = os.urandom(300_000)
Spans = st.lists(st.tuples(st.integers(0, 990), st.integers(0, 200)), max_size=20)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Web]:
    root = tmp_path_factory.mktemp("site")
    (root / "a b#1.bin").write_bytes(DATA)
    (root / "empty").write_bytes(b"")
    with serving.web(root) as found:
        yield found


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web, "PAUSE", 0.001)


@pytest.fixture
def url(site: Web) -> Iterator[str]:
    site.forget()
    yield f"{site.url}/a%20b%231.bin"
    site.faults.clear()


PATH = "/a b#1.bin"


@pytest.fixture(params=["file", "http", "s3"])
def source(request: pytest.FixtureRequest, site: Web) -> str:
    if request.param == "file":
        return str(site.root / "a b#1.bin")
    if request.param == "http":
        return f"{site.url}/a%20b%231.bin"
    server: S3 = request.getfixturevalue("s3_environment")
    if "ranges" not in [b["Name"] for b in server.client.list_buckets()["Buckets"]]:
        server.bucket("ranges")
        server.client.put_object(Bucket="ranges", Key="x/a b#%1é.bin", Body=DATA)
    return "s3://ranges/x/a b#%1é.bin"


def test_a_range_is_read_wherever_the_source_lies(source: str) -> None:
    with ranges.open(source) as found:
        assert found.size == len(DATA)
        assert found.read(0, 10) == DATA[:10]
        assert found.read(299_990, 10) == DATA[-10:]
        assert found.read(5, 0) == b""
        spans = [(200_000, 50), (0, 3), (100, 70_000), (200_040, 20), (7, 0), (299_999, 1)]
        assert found.read_many(spans) == [DATA[o : o + n] for o, n in spans]
        with found.file(block=1000) as file:
            file.seek(-5, os.SEEK_END)
            assert file.read() == DATA[-5:]
            assert file.read(1) == b""
            file.seek(1234)
            assert file.read(4000) == DATA[1234:5234]
            buffer = bytearray(10)
            assert file.readinto(buffer) == 10
            assert bytes(buffer) == DATA[5234:5244]


def test_a_range_beyond_the_end_is_refused_and_never_short(source: str) -> None:
    with ranges.open(source) as found:
        for offset, size in ((299_995, 6), (300_000, 1), (-1, 5)):
            with pytest.raises(RangeError, match="it has 300000 bytes"):
                found.read(offset, size)
            with pytest.raises(RangeError, match="it has 300000 bytes"):
                found.read_many([(0, 1), (offset, size)])


def test_what_is_not_there_is_absent(source: str) -> None:
    with pytest.raises(AbsentError) as caught:
        ranges.open(f"{source}.no")
    assert "\n" not in str(caught.value)


def test_neighbours_share_a_request_and_requests_overlap(site: Web, url: str) -> None:
    at_once, most, lock = 0, 0, threading.Lock()

    def slow(handler: serving.Handler, _: int) -> bool:
        nonlocal at_once, most
        with lock:
            at_once += 1
            most = max(most, at_once)
        time.sleep(0.02)
        with lock:
            at_once -= 1
        return False

    with ranges.open(url) as found:
        site.forget()
        site.faults[PATH] = slow
        spans = [(i * 3000, 100) for i in range(100)]
        assert found.read_many(spans, gap=2899) == [DATA[o : o + n] for o, n in spans]
    assert site.asked[PATH] == 100
    assert 2 <= most <= ranges.CONCURRENCY
    site.faults.clear()
    with ranges.open(url) as found:
        site.forget()
        assert found.read_many(spans) == [DATA[o : o + n] for o, n in spans]
    assert site.asked[PATH] == 1


@given(Spans, st.integers(0, 50))
def test_coalesced_ranges_give_every_range_its_own_bytes(spans, gap):
    data = bytes(i % 251 for i in range(1200))
    parts = ranges.coalesced(spans, gap)
    blobs = [data[o : o + n] for o, n in parts]
    assert ranges.cut(spans, parts, blobs) == [data[o : o + n] for o, n in spans]
    assert all(a[0] + a[1] + gap < b[0] for a, b in pairwise(parts))


@given(st.lists(st.tuples(st.integers(0, 5000), st.integers(0, 900)), max_size=30))
def test_a_cached_file_reads_what_a_file_reads(reads):
    class Held(ranges.Ranges):
        source, size = "held", 4321

        def fetch(self, offset: int, size: int) -> bytes:
            return DATA[offset : offset + size]

        def close(self) -> None:
            pass

    file = Held().file(block=100)
    for offset, size in reads:
        file.seek(offset)
        assert file.read(size) == DATA[:4321][offset : offset + size]


def test_metadata_costs_single_blocks_and_a_run_few_requests(site: Web, url: str) -> None:
    with ranges.open(url) as found:
        site.forget()
        file = found.file()
        for offset in (0, 100_000, 200_000, 8, 100_008):
            file.seek(offset)
            file.read(8)
        assert site.asked[PATH] == 3
        assert site.sent == 3 * ranges.BLOCK
        site.forget()
        file.seek(0)
        while file.read(1000):
            pass
        assert site.asked[PATH] <= 8


# --- servers that fail -----------------------------------------------------------------------------


def check_tried_again(site: Web, path: str, address: str, fault: serving.Fault, name: str) -> None:
    """Two answers with the fault and a good one are a read; an address that always has it is refused by name."""
    with ranges.open(address) as found:
        site.forget()
        site.faults[path] = serving.first(2, fault)
        assert found.read(1000, 5000) == DATA[1000:6000]
        assert site.asked[path] == 3
        site.faults[path] = fault
        with pytest.raises(RangeError, match=rf"{name}: .*6 times; see to the server") as caught:
            found.read(1000, 5000)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "fault",
    [
        serving.status(500),
        serving.status(503, Retry_After="0"),
        serving.status(429),
        serving.short,
        serving.wrong_length,
        serving.other_range,
    ],
    ids=["500", "503", "429", "short", "length", "other range"],
)
def test_what_may_pass_is_tried_again_and_refused_if_it_does_not(
    site: Web, url: str, fault: serving.Fault
) -> None:
    check_tried_again(site, PATH, url, fault, r"bin")


def test_a_server_without_ranges_is_refused_before_a_file_is_fetched(site: Web, url: str) -> None:
    site.faults[PATH] = serving.no_ranges
    with pytest.raises(RangeError, match="whole files and no byte ranges; copy the archive"):
        ranges.open(url)
    assert site.asked[PATH] == 1


def test_a_bare_hash_in_an_address_is_refused_and_no_other_file_is_read(site: Web) -> None:
    (site.root / "day").write_bytes(DATA[::-1])
    with pytest.raises(RangeError, match=r"/day%231: the address has a bare '#'.*write %23"):
        ranges.open(f"{site.url}/day#1")


def test_a_web_page_in_place_of_a_file_is_refused(site: Web, url: str) -> None:
    site.faults[PATH] = serving.page
    with pytest.raises(RangeError, match="answers with a web page, not with the file"):
        ranges.open(url)


def test_redirects_are_followed_and_a_ring_of_them_is_refused(site: Web, url: str) -> None:
    site.faults["/moved"] = serving.redirect("/a%20b%231.bin", 307)
    with ranges.open(f"{site.url}/moved") as found:
        assert found.read(10, 10) == DATA[10:20]
    site.faults["/ring"] = serving.redirect("/ring")
    with pytest.raises(RangeError, match="ring: it redirects more than 5 times"):
        ranges.open(f"{site.url}/ring")
    site.faults["/login"] = serving.redirect("/page")
    site.faults["/page"] = serving.page
    with pytest.raises(RangeError, match="web page"):
        ranges.open(f"{site.url}/login")


def test_a_status_that_stays_is_refused_at_once(site: Web, url: str) -> None:
    site.faults[PATH] = serving.status(403)
    with pytest.raises(RangeError, match=r"answers 403; the server wants an account"):
        ranges.open(url)
    assert site.asked[PATH] == 1


# --- object stores that fail -----------------------------------------------------------------------


@pytest.fixture
def store(site: Web, url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """An object in a store that does to it what the web server does to the file."""
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    (site.root / "bucket").mkdir(exist_ok=True)
    (site.root / "bucket" / "a.bin").write_bytes(DATA)
    buckets.client.cache_clear()
    # botocore tries five times itself, with pauses of seconds
    plain = buckets.config
    retries = Config(retries={"max_attempts": 0})
    monkeypatch.setattr(buckets, "config", lambda access: plain(access).merge(retries))
    with buckets.asking({"endpoint": site.url, "anonymous": True}):
        yield "s3://bucket/a.bin"
    buckets.client.cache_clear()


OBJECT = "/bucket/a.bin"


@pytest.mark.parametrize(
    "fault",
    [
        serving.status(500),
        serving.status(503),
        serving.short,
        serving.wrong_length,
        serving.other_range,
    ],
    ids=["500", "503", "short", "length", "other range"],
)
def test_what_may_pass_at_an_object_store_is_tried_again_and_refused_if_it_does_not(
    site: Web, store: str, fault: serving.Fault
) -> None:
    check_tried_again(site, OBJECT, store, fault, r"a\.bin")


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        (serving.no_ranges, "whole files and no byte ranges; copy the archive"),
        (serving.page, "whole files and no byte ranges"),
        (serving.status(403), "name a profile that may read it"),
        (serving.redirect("/bucket/ring.bin", 307), "correct endpoint, bucket and key"),
    ],
    ids=["no ranges", "page", "403", "redirect"],
)
def test_an_object_store_that_answers_otherwise_is_refused(
    site: Web, store: str, fault: serving.Fault, says: str
) -> None:
    with ranges.open(store) as found:
        site.faults[OBJECT] = fault
        with pytest.raises(RangeError, match=says) as caught:
            found.read(1000, 5000)
    assert "\n" not in str(caught.value)


def test_a_source_that_changes_between_two_reads_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "x"
    file.write_bytes(b"a" * 1000)
    with serving.web(tmp_path) as site, ranges.open(f"{site.url}/x") as found:
        assert found.read(0, 3) == b"aaa"
        file.write_bytes(b"b" * 1000)
        with pytest.raises(RangeError, match="it changed while it was read"):
            found.read(0, 3)


def test_an_object_that_changes_between_two_reads_is_refused(s3_environment: S3) -> None:
    s3_environment.bucket("changing")
    s3_environment.client.put_object(Bucket="changing", Key="x", Body=b"a" * 1000)
    with ranges.open("s3://changing/x") as found:
        assert found.read(0, 3) == b"aaa"
        s3_environment.client.put_object(Bucket="changing", Key="x", Body=b"b" * 1000)
        with pytest.raises(RangeError, match="it changed while it was read"):
            found.read(0, 3)


@pytest.mark.parametrize("where", ["http", "s3"])
def test_a_source_whose_size_is_known_is_asked_for_its_bytes_only_and_compared(
    tmp_path: Path, s3_environment: S3, where: str
) -> None:
    bucket = s3_environment.bucket(f"known{os.getpid()}") if where == "s3" else ""
    (tmp_path / "a.bin").write_bytes(b"0123456789")
    with serving.web(tmp_path) as site:
        if bucket:
            s3_environment.put_tree(bucket, tmp_path)
        url = f"s3://{bucket}/a.bin" if bucket else f"{site.url}/a.bin"
        with ranges.open(url) as first:
            now = Source(url, first.size, None, first.etag)
        site.forget()
        with ranges.open(url, now) as known:
            assert known.read(2, 3) == b"234"
        assert len(site.requests) == (0 if bucket else 1)
        for other in (Source(url, 11, None, None), Source(url, 9), Source(url, 10, None, "other")):
            with ranges.open(url, other) as known, pytest.raises(RangeError, match="changed"):
                known.read(2, 3)


def test_an_empty_file_has_no_bytes_and_is_no_error(site: Web) -> None:
    with ranges.open(f"{site.url}/empty") as found:
        assert found.size == 0
        assert found.file().read() == b""


def test_nobody_listening_is_one_sentence() -> None:
    with pytest.raises(RangeError, match=r"http://127.0.0.1:\d+/x: no connection") as caught:
        ranges.open(f"http://127.0.0.1:{serving.free_port()}/x?token=secret")
    assert "secret" not in str(caught.value)
    assert "\n" not in str(caught.value)


# --- buckets ---------------------------------------------------------------------------------------


def test_a_bucket_is_asked_without_a_key_only_where_that_is_said(
    s3: S3, monkeypatch: pytest.MonkeyPatch
) -> None:
    s3.bucket("open-door", public=True)
    s3.client.put_object(Bucket="open-door", Key="x", Body=b"hello")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent")
    section = {"endpoint": s3.endpoint, "anonymous": True}
    with buckets.asking(section), ranges.open("s3://open-door/x") as found:
        assert found.read(1, 3) == b"ell"
    buckets.client.cache_clear()
    with (
        buckets.asking({"endpoint": s3.endpoint}),
        pytest.raises(RangeError, match=r"s3://open-door/x: NoCredentialsError: .*; correct"),
    ):
        ranges.open("s3://open-door/x")


def test_a_profile_names_who_asks_and_where(
    s3: S3, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    s3.bucket("closed-door")
    s3.client.put_object(Bucket="closed-door", Key="x", Body=b"hello")
    (tmp_path / "config").write_text(f"[profile pawsey]\nendpoint_url = {s3.endpoint}\n")
    (tmp_path / "keys").write_text(
        f"[pawsey]\naws_access_key_id = {serving.KEY}\naws_secret_access_key = {serving.SECRET}\n"
    )
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "keys"))
    buckets.client.cache_clear()
    with buckets.asking({"profile": "pawsey"}), ranges.open("s3://closed-door/x") as found:
        assert found.read(1, 3) == b"ell"
    anonymous = {"endpoint": s3.endpoint, "anonymous": True}
    with (
        buckets.asking(anonymous),
        pytest.raises(RangeError, match="name a profile that may read it"),
    ):
        ranges.open("s3://closed-door/x")
    with (
        buckets.asking({"profile": "nobody"}),
        pytest.raises(RangeError, match=r"nobody.*correct endpoint and profile"),
    ):
        ranges.open("s3://closed-door/x")


def test_the_examples_in_the_docstrings_hold() -> None:
    assert doctest.testmod(ranges).failed == 0
