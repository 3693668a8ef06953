"""Bring one form of a dataset up to date."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from byterefs.entry import run
from byterefs.stages import emit


def main(
    *,
    store: Path,
    receipt: Path,
    target: str = "access",
    form: str,
    options: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Write FORM into the folder of its name beside RECEIPT, then RECEIPT.

    Parameters
    ----------
    store
        Working store that has a plan: results/<dataset>/store/store.sqlite.
    receipt
        File to write: results/<dataset>/emit/<target>/<form>.receipt.json.
    target
        Whose paths are published: `access`, or a target of the dataset's `remap`.
    form
        sqlite, vrt, parquet, kerchunk or icechunk.
    options
        What the dataset's config says below emit.<form>, as JSON.
    """
    return emit(store, receipt, target, form, options or {})


if __name__ == "__main__":
    run(main, globals().get("snakemake"))
