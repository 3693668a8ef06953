"""The census: every data file below a folder, through every form, against an oracle of its own."""

import os

# before numpy: a thread of its linear algebra would not survive a fork
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("HDF5_USE_FILE_LOCKING", "FALSE")

from pathlib import Path

from rich.console import Console

from byterefs.entry import run
from tally import census


def main(*, data: Path, out: Path, seconds: float = 90.0, cores: int = 2) -> dict[str, int]:
    """Write OUT, a line per data file below DATA, and show the sums per format.

    Parameters
    ----------
    data
        Folder, at any depth of which data files may lie; what is data is decided by content.
    out
        TSV to write: path, format, arrays verified, refused and absent, bytes, outcome, reason.
    seconds
        What the comparison of one file may take; its process is killed at twice that.
    cores
        Files examined at once.
    """
    return census.take(
        data, out, seconds=seconds, cores=cores, console=Console(highlight=False, width=160)
    )


if __name__ == "__main__":
    run(main)
