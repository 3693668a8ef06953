"""The whole flow on a small archive: thirty days, then three more files, then a map."""

import shutil
import sys
from pathlib import Path

from rich.console import Console

from byterefs.entry import run
from byterefs.files import write_json
from demonstration import granules, picture, report, running
from demonstration.running import LOGS, RESULTS

ARCHIVE = Path("archive/demo")


def main(*, cores: int = 2) -> None:
    """Build, append to, verify and draw the demo's archive, in the working directory.

    Starts from nothing: archive/demo and results/demo are removed first. The figures of the table
    are in results/demo/summary.json, the map in results/demo/map.png.

    Parameters
    ----------
    cores
        Jobs that Snakemake may run at once.
    """
    console = Console(highlight=False, soft_wrap=True)
    remove(console)
    arrive(console, granules.first_month(), "30 days like NOAA's OISST")
    proven = {}
    first = build(console, cores, "first")
    proven["first"] = report.proofs()
    arrive(
        console, granules.arrivals(), "a new day, a new preliminary one, a final for a preliminary"
    )
    append = build(console, cores, "append")
    proven["append"] = report.proofs()
    figures = report.summary(first, append, proven)
    write_json(RESULTS / "summary.json", figures)
    day = picture.newest(next(RESULTS.glob("emit/access/sqlite/*.sqlite")), "sst")
    picture.draw(day, source(day.path), RESULTS / "map.png")
    report.show(console, figures, proven)
    console.print(
        f"The map of {day.when:%Y-%m-%d} is {RESULTS}/map.png, these figures are {RESULTS}/summary.json.\n"
        f"The landing page is {RESULTS}/published/index.html; its live map needs a server, and this is one:\n"
        f"\n  [bold]make serve[/]   then http://127.0.0.1:8000/{RESULTS}/published/"
    )


def remove(console: Console) -> None:
    """Empty what an earlier demo left, and nothing else."""
    for folder in (ARCHIVE, RESULTS):
        if folder.exists():
            console.print(f"removing {folder} of an earlier demo")
            shutil.rmtree(folder)


def arrive(console: Console, days: list[granules.Day], words: str) -> None:
    """Write the files of some days."""
    written = [granules.write(ARCHIVE, day) for day in days]
    size = sum(path.stat().st_size for path in written)
    console.print(f"{ARCHIVE}: {words}, {len(written)} files of {size / 1e6:.1f} MB")


def build(console: Console, cores: int, name: str) -> running.Run:
    """Run the workflow once."""
    console.print(f"snakemake --cores {cores}", style="bold", end="  ")
    done = running.snakemake(cores, LOGS / f"demo-{name}.log", console)
    console.print(f"{done.jobs} jobs in {done.seconds} s")
    return done


def source(path: str) -> str:
    """A granule's path as it is written here."""
    return str(Path(path).relative_to(Path.cwd()))


if __name__ == "__main__":
    try:
        run(main)
    except KeyboardInterrupt:
        sys.exit("interrupted; the same command starts anew")
