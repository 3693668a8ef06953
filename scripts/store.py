"""Merge scans into the working store, in one transaction."""

from pathlib import Path
from typing import Any

from byterefs.entry import run
from byterefs.stages import update_store


def main(
    *, discovered: Path, store: Path, receipt: Path, batches: tuple[Path, ...] = ()
) -> dict[str, Any]:
    """Put BATCHES into STORE, drop what DISCOVERED says is gone, and write RECEIPT.

    Parameters
    ----------
    discovered
        What `discover` found: results/<dataset>/discover/receipt.json.
    store
        Working store, made if it is not there: results/<dataset>/store/store.sqlite.
    receipt
        File to write: results/<dataset>/store/receipt.json.
    batches
        Scans of all its batches: results/<dataset>/scan/<batch>.sqlite.
    """
    return update_store(discovered, batches, store, receipt)


if __name__ == "__main__":
    run(main, globals().get("snakemake"))
