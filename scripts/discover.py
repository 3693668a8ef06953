"""Compare the listing of an archive with the store: which sources are new, changed or gone."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from byterefs import discover
from byterefs.entry import run


def main(
    *,
    listing: Path,
    receipt: Path,
    store: Path,
    config: Mapping[str, Any],
    batch: int = 0,
    allow_removal: bool = False,
) -> dict[str, Any]:
    """Write the pending sources, in batches, and the removed ones to RECEIPT.

    Parameters
    ----------
    listing
        The archive as it is: results/<dataset>/discover/listing.json.
    receipt
        File to write: results/<dataset>/discover/receipt.json.
    store
        Working store, which may not exist yet: results/<dataset>/store/store.sqlite.
    config
        Dataset file, or its sections source, select and scan as JSON.
    batch
        Sources in one scan job, at most, instead of the config's `scan.batch`.
    allow_removal
        Accept that more than 1 % of the known sources are gone.
    """
    if batch:
        config = {**config, "scan": {**config["scan"], "batch": batch}}
    return discover.discover(listing, receipt, store, config, allow_removal=allow_removal)


if __name__ == "__main__":
    run(main, globals().get("snakemake"))
