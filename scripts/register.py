"""Announce what was published: sds rows, STAC, a landing page; or the catalogue over all datasets."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from byterefs import register
from byterefs.entry import run


def main(
    *,
    receipt: Path,
    store: Path | None = None,
    config: Mapping[str, Any] | None = None,
    synced: tuple[Path, ...] = (),
    announced: tuple[Path, ...] = (),
    pages: str = "",
    place: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Announce the publications of a dataset, or with ANNOUNCED write the catalogue over all datasets.

    Parameters
    ----------
    receipt
        File to write: results/<dataset>/register/receipt.json, or results/register/receipt.json.
    store
        Working store that has a plan: results/<dataset>/store/store.sqlite.
    config
        The dataset's config, as JSON or as its file.
    synced
        Receipts of its publications: results/<dataset>/sync/<name>.json.
    announced
        Receipts of all datasets' `register`: results/<dataset>/register/receipt.json.
    pages
        Digest of the templates; as a param of the rule, another one makes the job run again.
    place
        Where the catalogue over all datasets is placed, as JSON: to, endpoint, profile.
    """
    if store is None or config is None:
        return register.catalogue(receipt, announced=announced, where=place)
    return register.run(receipt, store=store, config=config, synced=synced)


if __name__ == "__main__":
    run(main, globals().get("snakemake"))
