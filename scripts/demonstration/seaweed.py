"""An S3 server on loopback: SeaweedFS in one process, its telemetry off."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import boto3
from botocore.config import Config

KEY, SECRET = "loopback-key-71", "loopback-secret-4d20"


class S3:
    """SeaweedFS on loopback, ready to take buckets; ``environment`` is what a client is told with."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder = folder.resolve()
        folder.mkdir(parents=True, exist_ok=True)
        self.port = free_port()
        self.endpoint = f"http://127.0.0.1:{self.port}"
        actions = ["Admin", "Read", "Write", "List", "Tagging"]
        identity = {"name": "admin", "credentials": [{"accessKey": KEY, "secretKey": SECRET}]}
        (folder / "s3.json").write_text(
            json.dumps({"identities": [{**identity, "actions": actions}]})
        )
        command = [
            shutil.which("weed", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}") or "weed",
            "-logtostderr=true", "mini", f"-dir={folder / 'data'}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1",
            "-master.telemetry=false", "-webdav=false", "-admin.ui=false", f"-s3.config={folder / 's3.json'}",
            f"-s3.port={self.port}", "-s3.port.iceberg=0", "-s3.port.lance=0", "-s3.autoCreateBucket=false",
            "-s3.allowDeleteBucketNotEmpty=false",
        ]  # fmt: skip
        (folder / "data").mkdir(exist_ok=True)
        self.log = (folder / "weed.log").open("w")
        self.process = subprocess.Popen(
            command, stdout=self.log, stderr=self.log, stdin=subprocess.DEVNULL, start_new_session=True,
            cwd=folder,
        )  # fmt: skip
        self.client = client(self.endpoint)
        try:
            self.wait()
        except BaseException:
            self.close()
            raise

    @property
    def environment(self) -> dict[str, str]:
        """The usual AWS variables for this server."""
        return {
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_ENDPOINT_URL_S3": self.endpoint,
            "AWS_REGION": "us-east-1",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    def wait(self) -> None:
        """Until a bucket can be made and written to."""
        until = time.monotonic() + 180
        while True:
            try:
                self.bucket("ready")
                self.client.put_object(Bucket="ready", Key="ready", Body=b"1")
            except Exception:
                if time.monotonic() > until or self.process.poll() is not None:
                    raise RuntimeError((self.folder / "weed.log").read_text()[-3000:]) from None
                time.sleep(0.05)
            else:
                return

    def bucket(self, name: str, *, public: bool = False) -> str:
        """Make a bucket; a public one is read and listed by everybody."""
        self.client.create_bucket(Bucket=name)
        if public:
            self.client.put_bucket_policy(Bucket=name, Policy=json.dumps(anyone(name)))
        return name

    def put_tree(self, bucket: str, folder: Path, prefix: str = "") -> None:
        """Every file of a folder under its relative path."""
        for path in sorted(p for p in folder.rglob("*") if p.is_file()):
            key = prefix + path.relative_to(folder).as_posix()
            self.client.put_object(Bucket=bucket, Key=key, Body=path.read_bytes())

    def keys(self, bucket: str, prefix: str = "") -> dict[str, bytes]:
        """Every object of a bucket by key."""
        pages = self.client.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix)
        names = [item["Key"] for part in pages for item in part.get("Contents", [])]
        return {n: self.client.get_object(Bucket=bucket, Key=n)["Body"].read() for n in names}

    def close(self) -> None:
        """End the server with what it started."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.log.close()


def client(endpoint: str) -> Any:
    """An S3 client with the test's key."""
    return boto3.client(
        "s3", endpoint_url=endpoint, aws_access_key_id=KEY, aws_secret_access_key=SECRET, region_name="us-east-1",
        config=Config(s3={"addressing_style": "path"}, retries={"max_attempts": 1}, request_checksum_calculation="when_required"),
    )  # fmt: skip


def anyone(bucket: str) -> dict[str, Any]:
    """A policy by which everybody reads and lists a bucket."""
    allow = {"Effect": "Allow", "Principal": "*"}
    return {
        "Version": "2012-10-17",
        "Statement": [
            {**allow, "Action": ["s3:GetObject"], "Resource": [f"arn:aws:s3:::{bucket}/*"]},
            {**allow, "Action": ["s3:ListBucket"], "Resource": [f"arn:aws:s3:::{bucket}"]},
        ],
    }


def free_port() -> int:
    """A port that nothing listens at now."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])
