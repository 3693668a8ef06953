"""Throughput of `sync`'s uploads beside `rclone sync`, on one S3 server of this machine, in one run.

    python bench/publish.py [--small 5000] [--large 3]

Five thousand small files (0.5 to 4 KB) and some of 100 MB; each tool uploads them into an empty bucket, then again
with nothing new. rclone is Debian's (apt-get install rclone). The figures go to bench/work/publish.json.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "scripts"))

from byterefs import sync
from byterefs.files import covers
from byterefs.publishing import objects
from byterefs.publishing.publication import Held
from demonstration.seaweed import KEY, S3, SECRET

WORK = Path(__file__).resolve().parent / "work"


def files(folder: Path, small: int, large: int) -> None:
    """Write the files once."""
    draw = random.Random(1)
    for i in range(small):
        path = folder / f"{i // 500:02d}" / f"{i:05d}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(draw.randbytes(draw.randint(512, 4096)))
    for i in range(large):
        (folder / f"large{i}").write_bytes(draw.randbytes(100 << 20))


def ours(folder: Path, server: S3, bucket: str) -> dict[str, int]:
    """Hash, list, compare and upload as a publication does; what had to be done."""
    held = {
        f"v/1/{n}": Held(folder / n, (folder / n).stat().st_size, sha)
        for n, sha in covers(folder).items()
    }
    place = objects.bucket({"to": f"s3://{bucket}/p", "endpoint": server.endpoint})
    with place.lock():
        place.learn((h.path, h.sha256) for h in held.values())
        before = sync.Before(place, place.list(), {})
        counts = sync.fill(place, held, before)
        sync.arrived(place, held)
    return dict(counts)


def rclone(folder: Path, server: S3, bucket: str) -> None:
    """The same files by rclone, with as many transfers at a time."""
    remote = {
        "RCLONE_S3_PROVIDER": "Other", "RCLONE_S3_ACCESS_KEY_ID": KEY, "RCLONE_S3_SECRET_ACCESS_KEY": SECRET,
        "RCLONE_S3_ENDPOINT": server.endpoint, "RCLONE_CONFIG": str(WORK / "rclone.conf"),
    }  # fmt: skip
    subprocess.run(
        ["rclone", "sync", "--checksum", "--transfers", "16", "--checkers", "16", str(folder), f":s3:{bucket}/p"],
        check=True, env={k: v for k, v in os.environ.items() if k != "AWS_CA_BUNDLE"} | remote,
    )  # fmt: skip


def timed(what: Callable[[], object]) -> float:
    """Seconds that a call takes."""
    started = time.monotonic()
    what()
    return round(time.monotonic() - started, 1)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--small", type=int, default=5000)
    parser.add_argument("--large", type=int, default=3)
    told = parser.parse_args()
    folder = WORK / "publish"
    shutil.rmtree(folder, ignore_errors=True)
    files(folder / "files", told.small, told.large)
    server = S3(folder / "server")
    os.environ |= server.environment
    tools: dict[str, Callable[[Path, S3, str], object]] = {"byterefs": ours}
    if shutil.which("rclone"):
        tools["rclone"] = rclone
    figures = {}
    try:
        for name, tool in tools.items():
            bucket = server.bucket(f"bench-{name}")
            first = timed(lambda tool=tool, bucket=bucket: tool(folder / "files", server, bucket))
            again = timed(lambda tool=tool, bucket=bucket: tool(folder / "files", server, bucket))
            figures[name] = {"seconds": first, "seconds_nothing_new": again}
    finally:
        server.close()
        shutil.rmtree(folder)
    result = {"small": told.small, "large_100_mb": told.large, **figures}
    WORK.mkdir(exist_ok=True)
    (WORK / "publish.json").write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
