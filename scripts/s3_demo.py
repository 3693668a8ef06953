"""The whole flow on object storage: granules in a bucket, published to another, mirrored to a third, read by strangers."""

import os
import shutil
import time
from datetime import date, timedelta
from pathlib import Path

from rich.console import Console

from byterefs.entry import run
from byterefs.files import write_json
from demonstration import buckets, granules, strangers
from demonstration.seaweed import S3

NAME = "s3demo"
WORK = Path("results") / NAME
FIRST = date(2026, 9, 1)


def main(*, cores: int = 2, days: int = 10) -> None:
    """Build, publish, mirror and read a small archive on an S3 server of this machine, then append one day.

    The server is SeaweedFS on loopback, started and stopped here. Everything lies in results/s3demo, which is
    removed first; the figures are in results/s3demo/summary.json.

    Parameters
    ----------
    cores
        Jobs that Snakemake may run at once.
    days
        Days of the archive before the append.
    """
    console = Console(highlight=False, soft_wrap=True)
    shutil.rmtree(WORK, ignore_errors=True)
    server = S3(WORK / "server")
    os.environ |= server.environment
    try:
        for bucket in ("archive", "truth", "mirror"):
            server.bucket(bucket, public=True)
        console.print(f"S3 at {server.endpoint}: buckets archive, truth, mirror")
        config = buckets.configure(WORK, NAME, server.endpoint)
        written = arrive(server, [granules.Day(FIRST + timedelta(n)) for n in range(days)])
        console.print(f"s3://archive/data: {days} days, {written / 1e6:.1f} MB")
        figures = {"first": step(console, server, config, cores)}
        written = arrive(server, [granules.Day(FIRST + timedelta(days))])
        console.print(f"s3://archive/data: one day more, {written / 1e6:.1f} MB")
        figures["append"] = step(console, server, config, cores)
        read = strangers.read_all(WORK, NAME, server, days + 1)
    finally:
        server.close()
    write_json(WORK / "summary.json", {"runs": figures, "readers": read})
    strangers.show(console, figures, read)


def arrive(server: S3, days: list[granules.Day]) -> int:
    """Write the files of some days and put them into the archive; their bytes."""
    size = 0
    for day in days:
        path = granules.write(WORK / "granules", day)
        server.client.put_object(Bucket="archive", Key=f"data/{day.name}", Body=path.read_bytes())
        size += path.stat().st_size
    return size


def step(console: Console, server: S3, config: Path, cores: int) -> dict[str, object]:
    """Run the workflow; seconds, what each publication did, and which objects are new in the buckets."""
    before = {b: buckets.listing(server, b) for b in ("truth", "mirror")}
    started = time.monotonic()
    buckets.workflow(config, cores, Path("logs") / NAME / "s3-demo.log")
    seconds = round(time.monotonic() - started, 1)
    told = buckets.told(WORK, before, server)
    console.print(f"snakemake --cores {cores}: {seconds} s")
    return {"seconds": seconds, **told}


if __name__ == "__main__":
    run(main)
