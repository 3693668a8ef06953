"""Provider `s3`: every object, however many pages they are, or a refusal."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from byterefs.access import buckets
from byterefs.discover import s3 as provider
from byterefs.errors import DiscoverError
from serving import S3


@pytest.fixture(scope="module")
def archive(s3: S3) -> S3:
    s3.bucket("archive", public=True)
    names = [f"a/{i // 100:02d}/f{i:04d}.nc" for i in range(1050)] + [
        "a/é #%.nc",
        "b/x.nc",
        "a/dir/",
    ]

    def put(name: str) -> None:
        s3.client.put_object(Bucket="archive", Key=name, Body=b"x" * 3)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(put, names))
    return s3


def listed(s3: S3, url: str = "s3://archive/a/", **source: object) -> dict[str, tuple[object, ...]]:
    section = {
        "url": url,
        "pattern": r"\.nc$",
        "endpoint": s3.endpoint,
        "anonymous": True,
        **source,
    }
    return {s.source: s[1:] for s in provider.list(section)}


def test_a_listing_of_more_than_a_thousand_objects_is_whole(archive: S3) -> None:
    found = listed(archive)
    assert len(found) == 1051
    head = archive.client.head_object(Bucket="archive", Key="a/00/f0007.nc")
    when = round(head["LastModified"].timestamp()) * 10**9
    assert found["s3://archive/a/00/f0007.nc"] == (3, when, head["ETag"].strip('"'))
    assert "s3://archive/a/é #%.nc" in found


def test_sources_are_spelled_as_the_address_is(archive: S3) -> None:
    assert list(listed(archive, "/vsis3/archive/b")) == ["/vsis3/archive/b/x.nc"]


@pytest.mark.parametrize("url", ["s3://nobody-has-this/", "s3://archive/nothing/", "s3://"])
def test_a_bucket_or_prefix_that_is_not_there_is_refused(archive: S3, url: str) -> None:
    with pytest.raises(
        DiscoverError, match=r"NoSuchBucket|AccessDenied|there is nothing here|names no bucket"
    ):
        listed(archive, url)


def test_a_bucket_that_may_not_be_listed_is_refused_with_the_way_out(archive: S3) -> None:
    archive.bucket("locked")
    with pytest.raises(DiscoverError, match="name a profile that may read it"):
        listed(archive, "s3://locked/")


def test_a_listing_that_breaks_off_is_refused(archive: S3, monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken:
        def list_objects_v2(self, **_: object) -> dict[str, object]:
            return {"IsTruncated": True, "Contents": []}

    monkeypatch.setattr(buckets, "client", lambda _: Broken())
    with pytest.raises(DiscoverError, match="says that it goes on and not where"):
        listed(archive)
