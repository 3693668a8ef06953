"""Read again what is published: drift, broken links, sources that are gone or changed."""

from pathlib import Path
from typing import Any

from byterefs import config
from byterefs.entry import run
from byterefs.errors import ConfigError
from byterefs.publishing import release


def main(
    *, datasets: tuple[str, ...] = (), settings: Path = Path("config/config.yaml")
) -> dict[str, Any]:
    """Compare every publication of DATASETS with its receipt, byte for byte, and ask for every source.

    The report of a dataset is results/<dataset>/release.json. The first fault ends it with exit code 1.

    Parameters
    ----------
    datasets
        Names of datasets; all that have a receipt of `sync` where none is given.
    settings
        The file config.yaml that lists them.
    """
    known = config.load_datasets(config.read(settings), str(settings))
    counts: dict[str, int] = {}
    for name in datasets or known:
        if name not in known:
            raise ConfigError(f"{settings}: datasets: {name!r} is not listed there; add it")
        results = Path("results", name)
        receipts = [results / "sync" / f"{e['name']}.json" for e in known[name]["sync"]]
        there = [r for r in receipts if r.exists()]
        if not there:
            continue
        told = release.check(results / "store" / "store.sqlite", there, results / "release.json")
        counts = {what: counts.get(what, 0) + n for what, n in told.items()}
    return counts


if __name__ == "__main__":
    run(main, globals().get("snakemake"))
