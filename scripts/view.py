"""Digest the global chunk index of a planned store, fragment by fragment."""

from pathlib import Path
from typing import Any

from byterefs.entry import run
from byterefs.stages import look


def main(*, store: Path, receipt: Path) -> dict[str, Any]:
    """Write what refs_<array> holds, as digests, to RECEIPT.

    Parameters
    ----------
    store
        Working store that has a plan: results/<dataset>/store/store.sqlite.
    receipt
        File to write: results/<dataset>/view/receipt.json.
    """
    return look(store, receipt)


if __name__ == "__main__":
    run(main, globals().get("snakemake"))
