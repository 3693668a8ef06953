"""Build or update every dataset: `snakemake` behind our own lock, for hands and for cron.

    python scripts/daily.py [arguments of snakemake; none means --cores 2]

A run that was killed leaves Snakemake's lock, and the next one would stop there. This one removes
it if, and only if, the run that left it is proven dead. It leaves with snakemake's exit code, or
with 75 if another run of one of the datasets is at work.
"""

import signal
import subprocess
import sys
from pathlib import Path

from byterefs import locks
from byterefs.config import load_datasets, read
from byterefs.errors import ByteRefsError

SNAKEMAKE = [sys.executable, "-m", "snakemake"]


def main(arguments: list[str]) -> int:
    """Run snakemake in the working directory, unlocked where that is safe; its exit code."""
    settings = Path("config/config.yaml")
    datasets = load_datasets(read(settings), str(settings))
    with locks.held(Path("results", name, ".lock") for name in datasets) as held:
        if held.abandoned and any(Path(".snakemake/locks").glob("*")):
            subprocess.run([*SNAKEMAKE, "--cores", "1", "--unlock"], check=True)
        process = subprocess.Popen([*SNAKEMAKE, *(arguments or ["--cores", "2"])])
        held.name(locks.owner(process.pid))
        # the terminal sends Ctrl-C to both; a plain TERM can hang Snakemake's scheduler
        signal.signal(signal.SIGINT, lambda *_: None)
        signal.signal(signal.SIGTERM, lambda *_: process.send_signal(signal.SIGINT))
        return process.wait()


if __name__ == "__main__":
    if sys.argv[1:2] in (["-h"], ["--help"]):
        sys.exit(print(__doc__))
    try:
        code = main(sys.argv[1:])
    except locks.Busy as busy:
        print(busy, file=sys.stderr)
        code = 75
    except ByteRefsError as error:
        print(error, file=sys.stderr)
        code = 1
    sys.exit(code)
