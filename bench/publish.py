"""Throughput of `sync`'s uploads beside `rclone sync`, on one S3 server of this machine, in one run.

    python bench/publish.py [--small 5000] [--large 3] [--rounds 3]

Five thousand small files (0.5 to 4 KB) and some of 100 MB. In each round each tool uploads them into an empty bucket,
one after the other, sixteen at a time, then again with nothing new. rclone is Debian's (apt-get install rclone).
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import median
from typing import Any

from measuring import ROOT  # puts scripts/ on the path

from byterefs import sync
from byterefs.files import covers
from byterefs.publishing import objects
from byterefs.publishing.before import Before
from byterefs.publishing.publication import Held
from demonstration.seaweed import KEY, S3, SECRET

WORK = ROOT / "bench" / "work" / "publish"
LARGE = 100 << 20


def files(folder: Path, small: int, large: int) -> int:
    """Write the files; their bytes."""
    folder.mkdir(parents=True)
    draw = random.Random(1)
    for i in range(small):
        path = folder / f"{i // 500:02d}" / f"{i:05d}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(draw.randbytes(draw.randint(512, 4096)))
    for i in range(large):
        (folder / f"large{i}").write_bytes(draw.randbytes(LARGE))
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def ours(folder: Path, server: S3, bucket: str) -> None:
    """Hash, list, compare and upload as a publication does, and list again."""
    held = {
        f"v/1/{n}": Held(folder / n, (folder / n).stat().st_size, sha)
        for n, sha in covers(folder).items()
    }
    place = objects.bucket({"to": f"s3://{bucket}/p", "endpoint": server.endpoint})
    with place.lock():
        place.learn((h.path, h.sha256) for h in held.values())
        before = Before(place, place.list(), {})
        sync.fill(place, held, before)
        sync.arrived(place, held)


def rclone(folder: Path, server: S3, bucket: str) -> None:
    """The same files by rclone, with as many transfers at a time."""
    remote = {
        "RCLONE_S3_PROVIDER": "Other", "RCLONE_S3_ACCESS_KEY_ID": KEY, "RCLONE_S3_SECRET_ACCESS_KEY": SECRET,
        "RCLONE_S3_ENDPOINT": server.endpoint, "RCLONE_CONFIG": str(WORK / "rclone.conf"),
    }  # fmt: skip
    # with AWS_CA_BUNDLE rclone's AWS library refuses the HTTP client that rclone hands it
    told = {k: v for k, v in os.environ.items() if k != "AWS_CA_BUNDLE"} | remote
    command = ["rclone", "sync", "--checksum", "--transfers", "16", "--checkers", "16"]
    subprocess.run([*command, str(folder), f":s3:{bucket}/p"], check=True, env=told)


TOOLS: Mapping[str, Callable[[Path, S3, str], None]] = {"byterefs": ours, "rclone": rclone}


def cost(tool: Callable[[Path, S3, str], None], *arguments: Any) -> tuple[float, float]:
    """Seconds that a tool takes, and processor seconds of its own."""
    who = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)

    def cpu() -> float:
        return sum(u.ru_utime + u.ru_stime for u in map(resource.getrusage, who))

    started, spent = time.monotonic(), cpu()
    tool(*arguments)
    return time.monotonic() - started, cpu() - spent


def main(small: int = 5000, large: int = 3, rounds: int = 3) -> dict[str, Any]:
    """Upload, again and again; per tool the medians of seconds, and MB and objects per second."""
    if shutil.which("rclone") is None:
        raise SystemExit("there is no rclone to compare with: apt-get install rclone")
    shutil.rmtree(WORK, ignore_errors=True)
    size = files(WORK / "files", small, large)
    server = S3(WORK / "server")
    os.environ |= server.environment
    taken: dict[str, list[tuple[float, ...]]] = {name: [] for name in TOOLS}
    try:
        for n in range(rounds):
            for name, tool in TOOLS.items():
                bucket = server.bucket(f"bench-{name}-{n}")
                first = cost(tool, WORK / "files", server, bucket)
                taken[name].append((*first, *cost(tool, WORK / "files", server, bucket)))
                print(name, *(round(t, 1) for t in taken[name][-1]), flush=True)
    finally:
        server.close()
        shutil.rmtree(WORK)
    found: dict[str, Any] = {"small": small, "large": large, "bytes": size}
    for name, rows in taken.items():
        seconds, spent, again, _ = (median(column) for column in zip(*rows, strict=True))
        found[name] = {
            "seconds": round(seconds, 2), "cpu": round(spent, 2), "seconds_nothing_new": round(again, 2),
            "objects_per_second": round((small + large) / seconds), "mb_per_second": round(size / 1e6 / seconds, 1),
        }  # fmt: skip
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--small", type=int, default=5000)
    parser.add_argument("--large", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=3)
    print(json.dumps(main(**vars(parser.parse_args())), indent=1))
