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
        console.print(
            f"An S3 server (SeaweedFS) is up at {server.endpoint} while this runs: granules go into the bucket archive,\n"
            f"the dataset {WORK}/{NAME}.yaml publishes to s3://truth/demo, and s3://mirror/demo is its mirror.\n"
        )
        config = buckets.configure(WORK, NAME, server.endpoint)
        figures = {}
        for name, since, until in ((f"{days} days", 0, days), ("1 day more", days, days + 1)):
            written = arrive(
                server, [granules.Day(FIRST + timedelta(n)) for n in range(since, until)]
            )
            console.print(f"s3://archive/data: {name}, {written / 1e6:.1f} MB")
            figures[name] = step(console, server, config, cores)
        read = strangers.read_all(WORK, NAME, server, days + 1)
        same = buckets.alike(server)
    finally:
        server.close()
    told = {"runs": figures, "readers": read, "alike": same, "verified": buckets.proven(WORK)}
    write_json(WORK / "summary.json", told)
    strangers.show(console, told)
    console.print(
        f"\nThese figures are {WORK}/summary.json; Snakemake's words are logs/{NAME}/s3-demo.log; the server is stopped."
    )


def arrive(server: S3, days: list[granules.Day]) -> int:
    """Write the files of some days and put them into the archive; their bytes."""
    size = 0
    for day in days:
        path = granules.write(WORK / "granules", day)
        server.client.put_object(Bucket="archive", Key=f"data/{day.name}", Body=path.read_bytes())
        size += path.stat().st_size
    return size


def step(console: Console, server: S3, config: Path, cores: int) -> dict[str, object]:
    """Run the workflow; seconds, what each publication did, and what is new in its bucket."""
    before = {b: buckets.listing(server, b) for b in ("truth", "mirror")}
    started = time.monotonic()
    buckets.workflow(config, cores, Path("logs") / NAME / "s3-demo.log")
    seconds = round(time.monotonic() - started, 1)
    told = buckets.told(WORK, before, server)
    console.print(f"snakemake --cores {cores}: {seconds} s")
    return {"seconds": seconds, **told}


if __name__ == "__main__":
    run(main)
