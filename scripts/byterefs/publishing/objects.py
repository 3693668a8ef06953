"""A prefix of a bucket as a shelf: uploads that the server checks, and one key that is swapped by its ETag.

The rules come from what SeaweedFS, Ceph and AWS agree on (research/s3.md, 1.2 and 3): ``Content-MD5`` on
every upload, since Ceph ignores other checksums; ``If-Match`` without quotes, since Ceph refuses it with
them for ever; pointers by single PUTs, since Ceph ignores conditions on multipart uploads.
"""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Iterable, Iterator, Mapping, MutableSequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from botocore.exceptions import ClientError

from byterefs.access import buckets
from byterefs.access.buckets import Access
from byterefs.access.web import Passing, tried
from byterefs.errors import AbsentError, RangeError, SyncError
from byterefs.files import file_digest
from byterefs.publishing import headers
from byterefs.publishing.shelf import Marks, Shelf

log = logging.getLogger(__name__)

COPIED = 5 << 30
"""bytes: the largest object that one request copies"""
PROBE = ".byterefs.probe"
FRESH = 1.0
"""days: what was touched less long ago is not touched again"""


class Seen(NamedTuple):
    """An object as a listing shows it."""

    size: int
    etag: str
    modified: float
    """seconds since 1970"""


class Bucket:
    """Keys below ``s3://bucket/prefix``.

    There is no lock: what is written before a pointer is named by its content or by Icechunk's random ids, and of
    two publishers that swap a pointer one is told that the other was faster.
    """

    concurrency = 16

    def __init__(self, where: str, access: Access) -> None:
        self.where, self.access = where.rstrip("/"), access
        self.bucket, prefix = buckets.split(self.where)
        self.prefix = f"{prefix}/" if prefix else ""
        self.client = buckets.client(access)
        self._sha256: dict[str, str] = {}
        """ETag -> sha256 of the bytes that have it"""
        self._etag: dict[str, str] = {}
        """sha256 of a local file -> the ETag that its upload has"""
        self._own: dict[Path, str] = {}
        """local file -> its sha256"""
        self._seen: dict[str, Seen] = {}

    # --- what is there -----------------------------------------------------------------------------

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Proof that the server honours conditions, and an end to uploads that a killed sync left."""
        self.prove_conditions()
        self.abort_uploads()
        yield

    def prove_conditions(self) -> None:
        """Raise SyncError unless a PUT under a condition that does not hold is refused."""
        with self.speaking():
            self.client.put_object(Bucket=self.bucket, Key=self.name(PROBE), Body=b"byterefs")
            conditions: list[dict[str, str]] = [{"IfNoneMatch": "*"}, {"IfMatch": "0" * 32}]
            for condition in conditions:
                if self.put_if(PROBE, b"other", condition) is not None:
                    raise SyncError(
                        f"{self.where}: the server takes a PUT whose condition {' '.join(condition)} does not hold, so "
                        f"two publishers would overwrite each other; publish to a store that honours conditions"
                    )
            self.client.delete_object(Bucket=self.bucket, Key=self.name(PROBE))

    def abort_uploads(self) -> None:
        """End multipart uploads below the prefix."""
        with self.speaking():
            found = self.client.list_multipart_uploads(Bucket=self.bucket, Prefix=self.prefix)
            for upload in found.get("Uploads", []):
                self.client.abort_multipart_upload(
                    Bucket=self.bucket, Key=upload["Key"], UploadId=upload["UploadId"]
                )

    def list(self, prefix: str = "") -> dict[str, int]:
        """Every key below ``prefix`` with its size, the probe left out."""
        below = self.name(f"{prefix}/" if prefix else "")
        found: dict[str, Seen] = {}
        with self.speaking():
            pages = self.client.get_paginator("list_objects_v2")
            for page in pages.paginate(Bucket=self.bucket, Prefix=below):
                for item in page.get("Contents", []):
                    key = item["Key"][len(self.prefix) :]
                    found[key] = Seen(
                        item["Size"], item["ETag"].strip('"'), item["LastModified"].timestamp()
                    )
        found.pop(PROBE, None)
        self._seen = {**self._seen, **found} if prefix else found
        return {key: found[key].size for key in sorted(found)}

    def learn(self, files: Iterable[tuple[Path, str]]) -> None:
        """Local files with their sha256: an object with the ETag of one of them has its bytes."""
        for path, sha256 in files:
            self._own[path] = sha256
            if sha256 not in self._etag:
                self._etag[sha256] = headers.etag_of(path)
                self._sha256[self._etag[sha256]] = sha256

    def recall(self, marks: Marks) -> None:
        """What is known from before: ETag -> sha256."""
        self._sha256 = {**marks, **self._sha256}

    def mark(self, key: str) -> str | None:
        """The ETag of a key, as the last listing or upload showed it."""
        seen = self._seen.get(key)
        return seen.etag if seen else None

    def digest(self, key: str) -> str:
        """sha256 of an object; its bytes are read only if nothing with its ETag is known."""
        etag = self.mark(key)
        return self._sha256[etag] if etag in self._sha256 else self.reread(key)

    def reread(self, key: str) -> str:
        """sha256 of an object's bytes as they come now."""

        def once() -> tuple[str, str, int]:
            with buckets.speaking(f"{self.where}/{key}"):
                answer = self.client.get_object(Bucket=self.bucket, Key=self.name(key))
                found = hashlib.sha256()
                for part in answer["Body"].iter_chunks(1 << 20):
                    found.update(part)
                return found.hexdigest(), answer["ETag"].strip('"'), answer["ContentLength"]

        with self.speaking():
            sha256, etag, size = tried(once, f"{self.where}/{key}")
        self.saw(key, size, etag)
        self._sha256[etag] = sha256
        return sha256

    def get(self, key: str) -> bytes | None:
        """The object's bytes; None where there is none."""
        found = self.tagged(key)
        return found and found[0]

    def tagged(self, key: str) -> tuple[bytes, str] | None:
        """The object's bytes and ETag; None where there is none."""

        def once() -> tuple[bytes, str]:
            with buckets.speaking(f"{self.where}/{key}"):
                answer = self.client.get_object(Bucket=self.bucket, Key=self.name(key))
                return answer["Body"].read(), answer["ETag"].strip('"')

        try:
            with self.speaking():
                return tried(once, f"{self.where}/{key}")
        except Absent:
            return None

    # --- what is written ---------------------------------------------------------------------------

    def put(self, key: str, file: Path) -> None:
        """Upload a file, checked by the server; tried again as a whole, or part by part."""
        size = file.stat().st_size
        head = self.head(key, file)

        def once() -> str:
            with buckets.speaking(f"{self.where}/{key}"), file.open("rb") as f:
                if size <= headers.PART:
                    body = f.read()
                    answer = self.client.put_object(**head, Body=body, ContentMD5=headers.md5(body))
                    return str(answer["ETag"])
                return self.put_parts(head, f)

        with self.speaking():
            self.saw(key, size, tried(once, f"{self.where}/{key}").strip('"'))

    def head(self, key: str, file: Path) -> dict[str, Any]:
        """What every upload of a file says."""
        sha256 = self._own.get(file) or file_digest(file)
        return {"Bucket": self.bucket, "Key": self.name(key), **headers.of(key, sha256)}

    def put_parts(self, head: Mapping[str, Any], f: BinaryIO) -> str:
        """A large file in parts; aborted if one of them fails."""
        where = {"Bucket": head["Bucket"], "Key": head["Key"]}
        upload = self.client.create_multipart_upload(**head)["UploadId"]
        try:
            parts: MutableSequence[Any] = []
            while body := f.read(headers.PART):
                number = len(parts) + 1
                answer = self.client.upload_part(
                    **where,
                    UploadId=upload,
                    PartNumber=number,
                    Body=body,
                    ContentMD5=headers.md5(body),
                )
                parts.append({"ETag": answer["ETag"], "PartNumber": number})
            done = self.client.complete_multipart_upload(
                **where, UploadId=upload, MultipartUpload={"Parts": parts}
            )
        except BaseException:
            with suppress(ClientError):
                self.client.abort_multipart_upload(**where, UploadId=upload)
            raise
        return str(done["ETag"])

    def copy(self, key: str, to: str) -> None:
        """Copied by the server."""
        if not self.take(self, key, to):
            raise SyncError(f"{self.where}/{key}: it is too large for the server to copy")

    def take(self, other: Shelf, key: str, to: str) -> bool:
        """Let the server copy from another shelf that it has too; False where it can't."""
        if (
            not isinstance(other, Bucket)
            or other.client.meta.endpoint_url != self.client.meta.endpoint_url
        ):
            return False
        seen = other._seen.get(key) or Seen(0, "", 0.0)
        if seen.size > COPIED:
            return False
        guard = {"CopySourceIfMatch": seen.etag} if seen.etag else {}
        sha256 = other._sha256.get(seen.etag)
        told = {"MetadataDirective": "COPY"}
        if headers.fixed(key) != headers.fixed(to) and sha256 is not None:
            told = {"MetadataDirective": "REPLACE", **headers.of(to, sha256)}
        with self.speaking():
            answer = self.client.copy_object(
                Bucket=self.bucket, Key=self.name(to), **told, **guard,
                CopySource={"Bucket": other.bucket, "Key": other.name(key)},
            )  # fmt: skip
        etag = answer["CopyObjectResult"]["ETag"].strip('"')
        if sha256 is not None:
            self._sha256[etag] = sha256
        self.saw(to, seen.size, etag)
        return True

    def swap(self, key: str, new: bytes, expected: bytes | None) -> bool:
        """One conditional PUT; a lost answer to it is asked for, not taken for a defeat."""
        now = self.tagged(key)
        if (now and now[0]) != expected:
            return False
        condition = {"IfNoneMatch": "*"} if now is None else {"IfMatch": now[1]}
        with self.speaking():
            etag = self.put_if(key, new, condition)
        if etag is None:
            return self.get(key) == new
        self.saw(key, len(new), etag)
        self._sha256[etag] = hashlib.sha256(new).hexdigest()
        return True

    def put_if(self, key: str, body: bytes, condition: Mapping[str, str]) -> str | None:
        """The ETag of a PUT under a condition; None where the condition does not hold."""

        def once() -> str | None:
            try:
                answer = self.client.put_object(
                    Bucket=self.bucket, Key=self.name(key), Body=body, ContentMD5=headers.md5(body), CacheControl=headers.NEVER, ContentType=headers.kind(key),
                    Metadata={"sha256": hashlib.sha256(body).hexdigest()}, **condition,
                )  # fmt: skip
            except ClientError as error:
                if buckets.status(error) == 412:
                    return None
                if buckets.status(error) == 409:
                    raise Passing("another request changes the same key") from error
                raise
            return str(answer["ETag"]).strip('"')

        return tried(once, f"{self.where}/{key}")

    def delete(self, key: str) -> None:
        """Remove an object."""
        with self.speaking():
            self.client.delete_object(Bucket=self.bucket, Key=self.name(key))
        self._seen.pop(key, None)

    # --- age ---------------------------------------------------------------------------------------

    def touch(self, key: str) -> None:
        """Copy an object, or the smallest one of a folder, onto itself: what counts its age."""
        if self.age(key) < FRESH:
            return
        name = self.name(min(self.within(key), key=lambda k: (self._seen[k].size, k)))
        with self.speaking():
            head = self.client.head_object(Bucket=self.bucket, Key=name)
            # a copy onto itself that changes nothing is refused
            self.client.copy_object(
                Bucket=self.bucket, Key=name, MetadataDirective="REPLACE", Metadata=head["Metadata"], ContentType=head["ContentType"],
                CopySource={"Bucket": self.bucket, "Key": name},
            )  # fmt: skip

    def age(self, key: str) -> float:
        """By the newest LastModified of a key, or of the keys below it."""
        newest = max((self._seen[k].modified for k in self.within(key)), default=time.time())
        return (time.time() - newest) / 86_400

    def within(self, key: str) -> Iterator[str]:
        """The keys that are ``key`` or lie below it."""
        return (k for k in self._seen if k == key or k.startswith(f"{key}/"))

    # --- names -------------------------------------------------------------------------------------

    def name(self, key: str) -> str:
        """The object's key in the bucket."""
        return self.prefix + key

    def saw(self, key: str, size: int, etag: str) -> None:
        """Remember what lies under a key now."""
        self._seen[key] = Seen(size, etag, time.time())

    @contextmanager
    def speaking(self) -> Iterator[None]:
        """Errors of the server as SyncError, in one sentence."""
        try:
            with buckets.speaking(self.where):
                yield
        except AbsentError as error:
            raise Absent(str(error)) from error
        except (RangeError, Passing) as error:
            raise SyncError(f"{error}; nothing points to what was written: run again") from error


class Absent(SyncError):
    """There is no such object or bucket."""


def bucket(options: Mapping[str, Any]) -> Bucket:
    """The shelf that an entry of the config's ``sync``, or its receipt, names."""
    try:
        return Bucket(str(options["to"]), Access.of(options))
    except RangeError as error:
        raise SyncError(str(error)) from error
