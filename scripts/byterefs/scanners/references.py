"""A set of references that is listed as a source: recognised, and refused with the way out.

Its rows are of other files, and those are the sources (see :mod:`byterefs.scanners._imported`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import BinaryIO

from byterefs.errors import ScanError
from byterefs.model import Source, SourceScan

HEAD = 1 << 16
"""bytes: kerchunk writes the metadata of an array within them"""
SIGNS = (b'".zgroup"', b'".zattrs"', b'/.zarray"', b'"refs"', b'zarr.json"')


def recognises(file: BinaryIO) -> bool:
    """Whether the file is kerchunk JSON."""
    head = file.read(HEAD)
    consolidated = b'"zarr_consolidated_format"' in head or b'"consolidated_metadata"' in head
    signs = any(sign in head for sign in SIGNS)
    return head.lstrip().startswith(b"{") and signs and not consolidated


def scan(
    source: Source, *, arrays: Sequence[str] = (), concat: str | None = None, split: bool = True
) -> SourceScan:
    """Nothing: always a ScanError."""
    raise ScanError(
        f"{source.source}: it holds references to other files and no data; list those files (source.pattern) "
        f"and say scan: {{references: {{path: {source.source}}}}}"
    )
