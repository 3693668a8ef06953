"""Scan one batch of sources: the byte range of every chunk of their arrays."""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from byterefs.entry import run
from byterefs.scan import scan_batch
from byterefs.scanners import SCAN_VERSION


def main(
    *,
    receipt: Path,
    batch: str,
    scans: Path,
    scan: Mapping[str, Any],
    concat: str | None = None,
    access: Mapping[str, Any] = MappingProxyType({}),
    scan_version: int = SCAN_VERSION,
) -> dict[str, Any]:
    """Write one row per chunk of the sources of BATCH to SCANS.

    Parameters
    ----------
    receipt
        What `discover` found: results/<dataset>/discover/receipt.json.
    batch
        Name of one of its batches.
    scans
        File to write: results/<dataset>/scan/<batch>.sqlite.
    scan
        The section `scan` of the dataset's config, as JSON.
    concat
        The dataset's plan.concat.
    access
        Who asks buckets, as JSON: endpoint, profile, anonymous.
    scan_version
        Version of the scanners; a rule states it so that another one is seen.
    """
    return scan_batch(receipt, batch, scans, scan=scan, concat=concat, access=access)


if __name__ == "__main__":
    run(main, globals().get("snakemake"))
