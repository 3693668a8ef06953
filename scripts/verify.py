"""Verify one form of a dataset, byte for byte, against GDAL on the sources."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from byterefs import verify
from byterefs.access import ranges
from byterefs.entry import run


def main(
    *,
    store: Path,
    emitted: Path,
    receipt: Path,
    target: str = "access",
    form: str,
    options: Mapping[str, Any] | None = None,
    access: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Write RECEIPT if FORM says what the sources hold; name the first difference if it does not.

    Parameters
    ----------
    store
        Working store that has a plan: results/<dataset>/store/store.sqlite.
    emitted
        Receipt of the form, which lies beside it: results/<dataset>/emit/<target>/<form>.receipt.json.
    receipt
        File to write: results/<dataset>/verify/<target>/<form>.json.
    target
        Whose paths the form carries.
    form
        sqlite, vrt, parquet, kerchunk or icechunk.
    options
        The section `verify` of the dataset's config, as JSON.
    access
        Who asks buckets, as JSON: endpoint, profile, anonymous.
    """
    with ranges.asking(access or {}):
        return verify.run(store, emitted, receipt, form=form, target=target, options=options or {})


if __name__ == "__main__":
    run(main, globals().get("snakemake"))
