"""Plan the sources of a store: where each one's slab sits in the global arrays."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from byterefs.entry import run
from byterefs.stages import make_plan


def main(*, store: Path, receipt: Path, config: Mapping[str, Any]) -> dict[str, Any]:
    """Write placements into STORE, and plan.vrt and consistency.json beside RECEIPT.

    Parameters
    ----------
    store
        Working store: results/<dataset>/store/store.sqlite.
    receipt
        File to write: results/<dataset>/plan/receipt.json.
    config
        Dataset file, or its content as JSON.
    """
    return make_plan(store, receipt, config)


if __name__ == "__main__":
    run(main, globals().get("snakemake"))
