"""Zarr v2 and v3 in a folder, without shards: each chunk is a file, and each such file is a source.

Nothing in a chunk's file tells what it is, so ``scan.format: zarr`` names it, and ``source.pattern`` lists
chunk files. Metadata and coordinates come from the store around it, cut to what the chunk spans. A
chunk that is not there is no source: it is absent (``plan.missing: absent``) where another array has a
chunk for its place.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

from byterefs.errors import ScanError
from byterefs.model import Source, SourceScan
from byterefs.scanners._common import opened
from byterefs.scanners._imported import Look, by_metadata
from byterefs.scanners._reference_sets import METADATA, ReferenceSet, load, target_of
from byterefs.urls import is_local, to_path

HEAD = 4096
"""bytes: metadata of an array or a group says its version within them"""


def recognises(file: BinaryIO) -> bool:
    """Whether the file is metadata of a store; a chunk's file has no sign of its own."""
    head = file.read(HEAD)
    return head.lstrip().startswith(b"{") and b'"zarr_format"' in head


def scan(
    source: Source, *, arrays: Sequence[str] = (), concat: str | None = None, split: bool = True
) -> SourceScan:
    """The array that one chunk file belongs to, cut to the chunk; see :func:`byterefs.scanners.scan`.

    Raises ScanError for a file that is no chunk of a store, for metadata, and for shards.
    """
    if source.source.rpartition("/")[2] in METADATA:
        raise ScanError(
            f"{source.source}: it is metadata of a Zarr store; list the files of its chunks (source.pattern) and "
            f"say scan: {{format: zarr}}"
        )
    if not is_local(source.source):
        raise ScanError(
            f"{source.source}: a Zarr store is read from a folder, since only a folder tells which chunks there "
            f"are; mount or copy it, or import references to it (scan.references)"
        )
    with opened(source.source) as seen:
        found = load(str(root(source.source)))
        refuse(source.source, found)
        number = target_of(found, source.source, ())
        look = Look(source.source, found, number, seen.ranges, ())
        return by_metadata(seen.of(source), found, look, arrays, concat)


def refuse(source: str, found: ReferenceSet) -> None:
    """Raise ScanError for a chunk of an array whose metadata cannot be followed."""
    path = os.path.relpath(to_path(source), found.path)
    for name, listed in found.arrays.items():
        if listed.refused and path.startswith(f"{name}/"):
            raise ScanError(f"{source}: {name}: {listed.refused}")


def root(source: str) -> Path:
    """The folder of the store that a chunk file lies in: the outermost one with metadata. ScanError if there is none."""
    place = Path(to_path(source))
    inside = [p for p in place.parents if any((p / name).is_file() for name in METADATA)]
    if not inside:
        raise ScanError(
            f"{source}: no folder above it has the metadata of a Zarr store; correct source.pattern or scan.format"
        )
    outer = inside[0]
    for p in inside[1:]:
        if p == outer.parent:
            outer = p
    return outer
