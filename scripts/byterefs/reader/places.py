"""What the bytes of a chunk are known by: source and version as the table says, never where they were read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from byterefs.files import digest
from byterefs.model import Source
from byterefs.reader.table import Ref


class Place(NamedTuple):
    """What a chunk's bytes are known by."""

    source: str
    version: str
    offset: int
    size: int


def version(source: Source) -> str | None:
    """ETag, or else size and mtime; None where the table says neither: such bytes are not kept."""
    if source.etag is not None:
        return f"etag {source.etag}"
    if source.size is None or source.mtime is None:
        return None
    return f"size {source.size}, mtime {source.mtime}"


def place(ref: Ref) -> Place | None:
    """The key of a referenced chunk; None for one that cannot be kept."""
    known = None if ref.source is None else version(ref.source)
    if ref.source is None or known is None or ref.data is not None:
        return None
    return Place(ref.source.source, known, ref.offset, ref.size)


def recipe(refs: Sequence[Ref]) -> str | None:
    """What something was made of, as a digest: chunk keys, and the bytes that lie there.

    None if one of the chunks has no version by which other bytes at its place would be noticed.
    """
    places = [place(ref) for ref in refs]
    if None in places:
        return None
    return digest([[list(r.key), *p] for r, p in zip(refs, places, strict=True) if p is not None])
