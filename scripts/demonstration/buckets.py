"""The demo on object storage: its dataset, its runs, and what they left in the buckets."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from byterefs.errors import ByteRefsError
from demonstration.seaweed import S3

Listing = Mapping[str, tuple[str, int, str]]
"""key -> ETag, size, when it was put"""


def configure(folder: Path, name: str, endpoint: str) -> Path:
    """Write the dataset's file: sources by S3, a target by HTTP, a publication and its mirror."""
    places = {"endpoint": endpoint}
    config = {
        "dataset": name,
        "title": "byterefs demo on object storage",
        "source": {
            "provider": "s3",
            "url": "s3://archive/data/",
            "endpoint": endpoint,
            "anonymous": True,
            "pattern": r"oisst-demo\.(?P<date>\d{8})\.nc$",
        },
        "select": {"slot": ["date"]},
        "scan": {"arrays": ["sst", "ice"]},
        "plan": {"concat": "time"},
        "remap": {"public": {"s3://archive/": f"{endpoint}/archive/"}},
        "targets": {"public": {"allow": [f"{endpoint}/archive/data/"]}},
        "emit": {
            "sqlite": {"sources": "public"}, "vrt": {}, "parquet": {}, "kerchunk": {"json": True}, "icechunk": {},
        },
        "verify": {"public": True},
        "sync": [
            {"name": "truth", "target": "public", "to": "s3://truth/demo", "url": f"{endpoint}/truth/demo", **places},
            {"name": "mirror", "mirror_of": "truth", "target": "public", "to": "s3://mirror/demo", "url": f"{endpoint}/mirror/demo", **places},
        ],
    }  # fmt: skip
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump(config, sort_keys=False))
    return path


def workflow(config: Path, cores: int, log: Path) -> None:
    """Run Snakemake on the dataset, its words in ``log``; ByteRefsError with the last of them if it fails."""
    log.parent.mkdir(parents=True, exist_ok=True)
    command = ["snakemake", "--cores", str(cores), "--config", f"datasets=[{config}]"]
    with log.open("w") as words:
        done = subprocess.run(
            [sys.executable, "-m", *command], stdout=words, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL
        )  # fmt: skip
    if done.returncode:
        last = " | ".join(log.read_text().splitlines()[-12:])
        raise ByteRefsError(
            f"`{' '.join(command)}` ended with exit code {done.returncode}: {last}; see {log}"
        )


def listing(server: S3, bucket: str) -> Listing:
    """Every object of a bucket."""
    pages = server.client.get_paginator("list_objects_v2").paginate(Bucket=bucket)
    return {
        item["Key"]: (item["ETag"], item["Size"], item["LastModified"].isoformat())
        for page in pages
        for item in page.get("Contents", [])
    }


def told(folder: Path, before: Mapping[str, Listing], server: S3) -> dict[str, Any]:
    """What each publication says it did, and the objects in its bucket that are new or other ones."""
    found = {}
    for name, was in before.items():
        receipt = json.loads((folder / "sync" / f"{name}.json").read_text())
        now = listing(server, name)
        other = {key: item for key, item in now.items() if was.get(key, ("",))[0] != item[0]}
        found[name] = {
            "version": receipt["version"],
            "counts": receipt["counts"],
            "objects": len(now),
            "new": len(other),
            "new_bytes": sum(size for _, size, _ in other.values()),
        }
    return found
