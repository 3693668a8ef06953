"""S3 as object stores speak it: one client per access, ranges of an object.

Who asks, and where, is what the usual AWS configuration says (``~/.aws``, ``AWS_PROFILE``,
``AWS_ENDPOINT_URL_S3`` …) but for what a dataset config names: endpoint, profile, anonymous.
Credentials are in neither.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import boto3
from botocore import UNSIGNED
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError, HTTPClientError, IncompleteReadError
from urllib3.exceptions import HTTPError

from byterefs import urls
from byterefs.access.ranges import Ranges
from byterefs.access.web import PASSING, Passing, tried
from byterefs.errors import AbsentError, RangeError
from byterefs.model import Source

POOL = 32
"""connections that one client keeps"""
REGION = "us-east-1"
"""where no configuration names one; servers that are not AWS take any"""


class Access(NamedTuple):
    """Who asks and where; what is None is as the AWS configuration has it."""

    endpoint: str | None = None
    profile: str | None = None
    anonymous: bool = False

    @classmethod
    def of(cls, section: Mapping[str, Any]) -> Access:
        """From a section of a config that may have ``endpoint``, ``profile`` and ``anonymous``."""
        return cls(
            section.get("endpoint"), section.get("profile"), bool(section.get("anonymous", False))
        )


_sources = [Access()]
"""how sources are asked for; the last one holds"""


@contextmanager
def asking(section: Mapping[str, Any]) -> Iterator[None]:
    """Sources in buckets are asked for as the config's section ``source`` says, until the end of the block."""
    _sources.append(Access.of(section))
    try:
        yield
    finally:
        _sources.pop()


def current() -> Access:
    """How sources are asked for now."""
    return _sources[-1]


@cache
def client(access: Access) -> Any:
    """A boto3 client, which threads may share; RangeError where the configuration makes none."""
    try:
        session = boto3.Session(profile_name=access.profile)
        region = session.region_name or REGION
        made = session.client(
            "s3", region_name=region, endpoint_url=access.endpoint, config=config(access)
        )
        if is_aws(made.meta.endpoint_url):
            return made
        path = config(access).merge(Config(s3={"addressing_style": "path"}))
        return session.client("s3", region_name=region, endpoint_url=access.endpoint, config=path)
    except (BotoCoreError, ValueError) as error:
        raise RangeError(
            f"no S3 client for endpoint {access.endpoint or 'of the AWS configuration'}, profile "
            f"{access.profile or 'default'}: {' '.join(str(error).split())}; correct endpoint and profile"
        ) from error


def config(access: Access) -> Config:
    """What servers agree on: plain bodies, checksums only where they are asked for (research/s3.md, 1.3)."""
    return Config(
        signature_version=UNSIGNED if access.anonymous else None,
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
        retries={"max_attempts": 5, "mode": "standard"},
        max_pool_connections=POOL,
        connect_timeout=15,
        read_timeout=60,
    )


def endpoint() -> str | None:
    """Address of the object store that is asked for sources now; None where it is AWS."""
    found = str(client(current()).meta.endpoint_url)
    return None if is_aws(found) else found


def keys() -> dict[str, str] | None:
    """The keys by which sources are asked for now, as Icechunk takes them; None without any."""
    if current().anonymous:
        return None
    found = boto3.Session(profile_name=current().profile).get_credentials()
    if found is None:
        return None
    frozen = found.get_frozen_credentials()
    told = {
        "access_key_id": frozen.access_key, "secret_access_key": frozen.secret_key, "session_token": frozen.token,
    }  # fmt: skip
    return {name: value for name, value in told.items() if value}


def fsspec_options() -> dict[str, Any]:
    """Options of s3fs for the same access."""
    access = current()
    found: dict[str, Any] = {"anon": access.anonymous, "asynchronous": True}
    if access.profile:
        found["profile"] = access.profile
    if endpoint():
        found |= {"endpoint_url": endpoint(), "config_kwargs": {"s3": {"addressing_style": "path"}}}
    return found


def is_aws(endpoint: str) -> bool:
    """Whether an endpoint is AWS's own, where a bucket is part of the host name."""
    return str(urlsplit(endpoint).hostname).endswith((".amazonaws.com", ".amazonaws.com.cn"))


def split(url: str) -> tuple[str, str]:
    """Bucket and key of ``s3://bucket/key``; RangeError for what names no bucket."""
    bucket, _, key = urls.to_url(url).removeprefix("s3://").partition("/")
    if not bucket:
        raise RangeError(f"{url}: it names no bucket; write s3://bucket/key")
    return bucket, key


def words(error: Exception) -> str:
    """An error of S3 in one line: code and message, never a request."""
    if isinstance(error, ClientError):
        found = error.response.get("Error", {})
        return f"{found.get('Code')} ({found.get('Message') or status(error)})"
    return f"{type(error).__name__}: {' '.join(str(error).split())}"


def status(error: ClientError) -> int:
    """The HTTP status of an error of S3."""
    return int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))


def gdal_options(access: Access) -> dict[str, str]:
    """GDAL's configuration for the same access."""
    endpoint = client(access).meta.endpoint_url
    found = {"AWS_NO_SIGN_REQUEST": "YES" if access.anonymous else "NO"}
    if access.profile:
        found["AWS_PROFILE"] = access.profile
    if not is_aws(endpoint):
        parts = urlsplit(endpoint)
        found["AWS_S3_ENDPOINT"] = parts.netloc + parts.path.rstrip("/")
        found["AWS_HTTPS"] = "YES" if parts.scheme == "https" else "NO"
        found["AWS_VIRTUAL_HOSTING"] = "FALSE"
    if not os.environ.get("AWS_REGION"):
        found["AWS_REGION"] = client(access).meta.region_name
    return found


class open(Ranges):
    """An object, as the access that holds now reads it."""

    def __init__(self, source: str, seen: Source | None = None) -> None:
        self.source, self.access = source, current()
        self.bucket, self.key = split(source)
        self.etag: str | None
        if seen is not None and seen.size is not None:
            self.size, self.etag, self.mtime_ns = seen.size, seen.etag, None
            return
        head = tried(self._head, source)
        self.size = int(head["ContentLength"])
        self.etag = str(head.get("ETag", "")).strip('"') or None
        self.mtime_ns = round(head["LastModified"].timestamp()) * 10**9

    def _head(self) -> Mapping[str, Any]:
        with speaking(self.source):
            found: Mapping[str, Any] = client(self.access).head_object(
                Bucket=self.bucket, Key=self.key
            )
        return found

    def close(self) -> None:
        """Nothing: connections are shared."""

    def fetch(self, offset: int, size: int) -> bytes:
        """One request; of the same version as the first one, or RangeError."""

        def once() -> bytes:
            with speaking(self.source):
                answer = client(self.access).get_object(
                    Bucket=self.bucket, Key=self.key, Range=f"bytes={offset}-{offset + size - 1}"
                )
                try:
                    self._check(answer, offset, size)
                except BaseException:
                    answer["Body"].close()
                    raise
                data: bytes = answer["Body"].read()
            if len(data) != size:
                raise Passing(f"it sends {len(data)} of {size} bytes")
            return data

        return tried(once, self.source)

    def _check(self, answer: Mapping[str, Any], offset: int, size: int) -> None:
        """Raise unless an answer is of the range that was asked for, of the version that was opened."""
        said = str(answer.get("ContentRange", ""))
        found = re.fullmatch(r"bytes (\d+)-(\d+)/(\d+)", said.strip())
        if not found:
            raise RangeError(
                f"{self.source}: the server sends whole files and no byte ranges; copy the archive to a disk, a "
                f"bucket or a server with ranges, and name that in source"
            )
        first, last, total = map(int, found.groups())
        etag = str(answer.get("ETag", "")).strip('"') or None
        if total != self.size or (self.etag and etag != self.etag):
            raise RangeError(
                f"{self.source}: it changed while it was read, or since its scan; run again"
            )
        if (first, last) != (offset, offset + size - 1):
            raise Passing(f"it sends bytes {first}-{last} for {offset}-{offset + size - 1}")


@contextmanager
def speaking(where: str) -> Iterator[None]:
    """Errors of S3 as Passing or RangeError, in one sentence."""
    try:
        yield
    except ClientError as error:
        if status(error) in PASSING:
            raise Passing(f"it answers {words(error)}") from error
        kind = AbsentError if status(error) == 404 else RangeError
        raise kind(f"{where}: {words(error)}; {way_out(error)}") from error
    except (HTTPClientError, IncompleteReadError, HTTPError, OSError) as error:
        raise Passing(f"no whole answer ({type(error).__name__})") from error
    except BotoCoreError as error:
        raise RangeError(f"{where}: {words(error)}; correct endpoint and profile") from error


def way_out(error: ClientError) -> str:
    """What a person can do about an error of S3."""
    if status(error) in (401, 403):
        return "name a profile that may read it, or anonymous: true where it is public"
    if status(error) in (404, 416):
        return "there is nothing under this name: correct it, or list the archive again"
    return "correct endpoint, bucket and key"
