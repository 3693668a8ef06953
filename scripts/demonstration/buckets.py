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
from byterefs.publishing.publication import registered
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
    """What each publication says it did, beside what two listings of its bucket show."""
    found = {}
    for name, was in before.items():
        receipt = json.loads((folder / "sync" / f"{name}.json").read_text())
        now = {key: item for key, item in listing(server, name).items() if published(key)}
        known = {etag for etag, _, _ in was.values()}
        other = {key: item for key, item in now.items() if was.get(key, ("",))[0] != item[0]}
        fresh = {etag: size for etag, size, _ in other.values() if etag not in known}
        counts = receipt["counts"]
        found[name] = {
            "version": receipt["version"],
            "objects": len(now),
            "sent": counts.get("put", 0),
            "copied": counts.get("linked", 0) + counts.get("copied", 0),
            "unchanged": counts.get("unchanged", 0),
            "new_bytes": sum(fresh.values()),
            "contents_not_there_before": len(fresh),
        }
    return found


def published(key: str) -> bool:
    """Whether an object belongs to the publication, and not to the landing page beside it."""
    return not registered(key.removeprefix("demo/"))


def alike(server: S3) -> int:
    """How many published objects truth and mirror have, the same bytes under the same names; ValueError if not."""
    held = {
        name: {key: data for key, data in server.keys(name, "demo/").items() if published(key)}
        for name in ("truth", "mirror")
    }
    if held["truth"] != held["mirror"]:
        odd = {k for k in held["truth"].keys() | held["mirror"].keys() if held["truth"].get(k) != held["mirror"].get(k)}  # fmt: skip
        raise ValueError(f"truth and mirror differ in {sorted(odd)}")
    return len(held["truth"])


def proven(folder: Path) -> dict[str, int]:
    """What the last run's verification of the forms compared before they were published."""
    receipts = [json.loads(path.read_text()) for path in sorted(folder.glob("verify/*/*.json"))]
    if not all(receipt["verified"] for receipt in receipts):
        raise ValueError("a form is published that is not verified")
    public = next(r["public"] for r in receipts if r.get("public"))
    values = sum(r["counts"]["values_compared"] for r in receipts)
    return {"forms": len(receipts), "values": values, **{f"public_{k}": n for k, n in public.items()}}  # fmt: skip
