"""Publish the verified forms of a dataset in one place, never half of them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from byterefs import sync
from byterefs.entry import run


def main(
    *,
    receipt: Path,
    options: Mapping[str, Any],
    verified: tuple[Path, ...],
    mirrored: tuple[Path, ...] = (),
) -> dict[str, Any]:
    """Publish what VERIFIED proves and write RECEIPT.

    Parameters
    ----------
    receipt
        File to write: results/<dataset>/sync/<name>.json.
    options
        One entry of the section `sync` of the dataset's config, as JSON.
    verified
        Receipts of all verifications: results/<dataset>/verify/<target>/<form>.json.
    mirrored
        Receipt of the publication that this one copies, for an entry with `mirror_of`.
    """
    return sync.run(receipt, options=options, verified=verified, mirrored=mirrored)


if __name__ == "__main__":
    run(main, globals().get("snakemake"))
