"""All files of a folder, a pool of processes, a TSV and a table."""

from __future__ import annotations

from collections import Counter
from functools import partial
from pathlib import Path

# what every child needs, imported once: icechunk is not, for its threads would not survive a fork
import fsspec.implementations.reference  # noqa: F401
import imagecodecs.zarr  # noqa: F401
import pandas  # type: ignore[import-untyped]  # noqa: F401
import zarr  # noqa: F401
from rich.console import Console
from rich.table import Table

from tally import examine, files, line, pool
from tally.files import Job
from tally.line import Line

MEMORY = 6 << 30
"""bytes that one file may take"""


def take(data: Path, out: Path, *, seconds: float, cores: int, console: Console) -> dict[str, int]:
    """Examine every data file below ``data``; the TSV at ``out``, the sums on ``console``, the outcomes counted."""
    jobs = list(files.jobs(data.absolute()))
    work = partial(examine.examine, seconds=seconds)
    lines: list[Line] = []
    skipped = 0
    results = pool.results(jobs, work, cores=cores, seconds=2 * seconds, memory=MEMORY)
    for done, (job, found) in enumerate(results, 1):
        if isinstance(found, pool.Death):
            lines.append(crashed(job, found))
        elif found is None:
            skipped += 1
        else:
            lines.append(found)
        if done % 50 == 0:
            line.save(lines, out)
        if console.is_terminal:
            console.print(f"{done}/{len(jobs)}", end="\r")
    line.save(lines, out)
    console.print(table(lines))
    for odd in sorted(lines, key=lambda one: one.path):
        if odd.outcome in ("wrong", "crashed"):
            console.print(line.cell(f"{odd.outcome}: {odd.path}: {odd.reason}"), markup=False)
    console.print(
        f"{len(lines)} data files, {skipped} files that nothing knows: {out}", markup=False
    )
    outcomes = Counter(one.outcome for one in lines)
    return {word: outcomes[word] for word in line.OUTCOMES}


def crashed(job: Job, death: pool.Death) -> Line:
    """The line of a file whose process gave no result."""
    reason = f"{death.how} {death.last}".strip()
    return Line(job.shown, job.format or "unknown", outcome="crashed", reason=reason)


def table(lines: list[Line]) -> Table:
    """The sums per format; shares are of the files that an oracle can open."""
    shown = Table("format", box=None, title="census", title_justify="left")
    for name in ("files", "opened", "arrays", "verified", "share", "bytes", "verified", "share"):
        shown.add_column(name, justify="right")
    for name in line.OUTCOMES:
        shown.add_column(name, justify="right")
    for format, one in line.sums(lines).items():
        numbers = [one.files, one.opened, one.arrays, one.verified]
        cells = [f"{n:,}" for n in numbers] + [line.share(one.verified, one.arrays)]
        cells += [f"{one.bytes:,}", f"{one.bytes_verified:,}"]
        cells += [line.share(one.bytes_verified, one.bytes)]
        shown.add_row(format, *cells, *(str(one.outcomes[word]) for word in line.OUTCOMES))
    return shown
