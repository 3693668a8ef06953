"""Provider `s3`: every object below a prefix of a bucket, at any endpoint, anonymous or by profile."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from byterefs.access import buckets
from byterefs.access.buckets import Access
from byterefs.access.web import tried
from byterefs.discover._remote import refusing
from byterefs.discover.match import matching
from byterefs.errors import DiscoverError
from byterefs.model import Source


def list(source: Mapping[str, Any]) -> Iterator[Source]:
    """Sources as ``s3://bucket/key``, or ``/vsis3/bucket/key`` where source.url is spelled so.

    Objects whose key ends in ``/`` are folders that a console made. A listing that breaks off is refused.
    """
    with refusing():
        buckets.split(source["url"])
    url = source["url"].rstrip("/") + "/"
    bucket, prefix = buckets.split(url)
    root = url[: len(url) - len(prefix)]
    found = [
        (item["Key"][len(prefix) :], described(root, item))
        for item in objects(Access.of(source), url, bucket, prefix)
        if not item["Key"].endswith("/")
    ]
    return matching(found, source["pattern"], url)


def described(root: str, item: Mapping[str, Any]) -> Source:
    """One object of a listing."""
    mtime_ns = round(item["LastModified"].timestamp()) * 10**9
    return Source(root + item["Key"], int(item["Size"]), mtime_ns, item["ETag"].strip('"'))


def objects(access: Access, url: str, bucket: str, prefix: str) -> Iterator[Mapping[str, Any]]:
    """Every object below a prefix, a thousand at a time; each page is tried again by itself."""
    token: dict[str, str] = {}

    def page() -> Mapping[str, Any]:
        with buckets.speaking(url):
            found: Mapping[str, Any] = buckets.client(access).list_objects_v2(
                Bucket=bucket, Prefix=prefix, **token
            )
        return found

    while True:
        with refusing():
            found = tried(page, url)
        yield from found.get("Contents", [])
        if not found.get("IsTruncated"):
            return
        following = found.get("NextContinuationToken")
        if not following or following == token.get("ContinuationToken"):
            raise DiscoverError(
                f"{url}: the listing says that it goes on and not where; the server is at fault, run again"
            )
        token = {"ContinuationToken": following}
