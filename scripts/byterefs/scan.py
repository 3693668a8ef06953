"""Scan: one batch of pending sources to one file of rows, keyed inside each source."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from byterefs import progress, scanners, store
from byterefs.access import ranges
from byterefs.errors import ScanError
from byterefs.model import Source, SourceScan

log = logging.getLogger(__name__)


def scan_batch(
    receipt: Path,
    batch: str,
    out: Path,
    *,
    scan: Mapping[str, Any],
    concat: str | None,
    access: Mapping[str, Any] = MappingProxyType({}),
) -> dict[str, int]:
    """Scan the sources that the receipt of `discover` holds under ``batch`` into the file ``out``.

    ``scan`` is that section of a dataset config, ``access`` says who asks buckets (endpoint, profile,
    anonymous). Returns counts of sources, refused, arrays and
    rows. A source that is refused fails the batch and leaves no file, unless ``on_error: skip``
    sets it aside with its reason.
    """
    discovered = json.loads(receipt.read_text())
    refused: dict[Source, str] = {}
    done = scans(
        [Source(name) for name in discovered["batches"][batch]],
        format=scan["format"],
        arrays=scan["arrays"],
        concat=concat,
        split=scan["split"] == "step",
        multiple=scan.get("multiple", 1),
        file_name=scan.get("file_name"),
        references=scan.get("references"),
        refused=refused if scan["on_error"] == "skip" else None,
    )
    with ranges.asking(access):
        return store.write_scans(out, done, refused, version=discovered["version"])


def scans(
    sources: Sequence[Source], *, refused: dict[Source, str] | None, **options: Any
) -> Iterator[SourceScan]:
    """The scan of each source, one at a time; what cannot be read is put in ``refused`` if there is one."""
    for source in progress.shown(sources, "scan"):
        try:
            yield scanners.scan(source, **options)
        except ScanError as error:
            if refused is None:
                raise
            refused[source] = str(error)
            log.warning("set aside: %s", error)
