"""What is written into an Icechunk repository: documents, native chunks, virtual references, splits."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from itertools import pairwise
from math import prod
from typing import Any
from urllib.parse import quote, unquote

import icechunk as ic
import numpy as np
from numpy.typing import NDArray
from zarr.core.buffer import cpu

from byterefs import urls
from byterefs.emitters._parts import Flat, cut
from byterefs.errors import EmitError
from byterefs.files import canonical
from byterefs.grid import chunk_span
from byterefs.model import Array, Key, Refs, Source
from byterefs.view import View

SPLIT_APPENDS = 8
"""appends that one manifest holds, to begin with (s3.md, 4.3: 7 to 30)"""
MAX_SPLITS = 400
MAX_SPLIT_ROWS = 1_000_000
"""GDAL's Icechunk driver verifies at most this many tables of one manifest (peers.md, B39)"""
FEW = 100
"""references of a source in one piece; a call for each source costs more than naming each one's checksum"""
Checksum = str | datetime | None


@dataclass(frozen=True, slots=True)
class Piece:
    """Rows of one array inside one manifest split: what is set again if any of it changed."""

    array: str
    start: int
    """first ``dim_0`` chunk key"""
    stop: int
    refs: Refs
    grid: Key
    """of the piece: ``(stop - start, …)``"""

    @property
    def absent(self) -> NDArray[np.int64]:
        """Row numbers without a chunk."""
        gone = self.refs.offset < 0
        gone[list(self.refs.data)] = False
        return np.flatnonzero(gone)

    def absent_digest(self, stop: int) -> str:
        """sha256 of which chunks are absent below the ``dim_0`` key ``stop``."""
        rows = (min(stop, self.stop) - self.start) * prod(self.grid[1:])
        return hashlib.sha256(self.absent[self.absent < rows].tobytes()).hexdigest()


class Places:
    """Where sources are, as Icechunk names them, and what guards them."""

    def __init__(self, view: View) -> None:
        self.view = view
        self.checked = True

    @cached_property
    def prefixes(self) -> dict[str, str]:
        """Source -> the longest of the view's prefixes that it lies under."""
        longest = sorted(self.view.prefixes(), key=lambda p: (-len(p), p))
        found = {}
        for s in self.view.sources:
            found[s.source] = next(p for p in longest if s.source.startswith(p))
        return found

    @cached_property
    def locations(self) -> NDArray[Any]:
        """``vcc://<slug>/<rest>`` of each source in the view's order, percent-encoded."""
        slugs = {p: slug(p) for p in set(self.prefixes.values())}
        found = np.empty(len(self.prefixes), object)
        found[:] = [
            f"vcc://{slugs[p]}/{quote(below(s, p), safe=urls.ICECHUNK_SAFE)}"
            for s, p in self.prefixes.items()
        ]
        return found

    def urls(self, target: str) -> dict[str, str]:
        """Slug -> URL prefix of each container for a target, unencoded; EmitError if it cannot serve."""
        found: dict[str, str] = {}
        for prefix in sorted(set(self.prefixes.values())):
            url = urls.plain(self.view.published(prefix, target))
            # Icechunk 2.3 compares a container's URL, as it is written, with the decoded location
            if odd := set(url) & set("%#?"):
                raise EmitError(
                    f"{prefix}: target {target!r} serves it from {url}, and Icechunk finds no virtual "
                    f"chunk under a container with {' '.join(sorted(odd))} in its URL; rename the "
                    f"folder, or list the archive from a folder above it"
                )
            # and keeps containers by URL: of two with one URL the last silently wins
            if url in found.values():
                other = next(p for p in self.prefixes.values() if found.get(slug(p)) == url)
                raise EmitError(
                    f"{other} and {prefix}: target {target!r} serves both from {url}, and Icechunk "
                    f"keeps one container per URL; give them different replacements under remap: {target}:"
                )
            found[slug(prefix)] = url
        return found

    @cached_property
    def checksums(self) -> list[Checksum]:
        """What Icechunk compares before it reads from a source: its ETag, else its mtime, else nothing.

        An ETag means nothing to a local file, and an mtime is another one at every other address.
        """
        only_here = self.view.targets == ["access"]
        return [checksum(s, only_here=only_here) for s in self.view.sources]


def below(source: str, prefix: str) -> str:
    """The part of a source behind a prefix, with names as a file system has them."""
    rest = source[len(prefix) :]
    return unquote(rest) if urls.is_http(source) else rest


def checksum(source: Source, *, only_here: bool) -> Checksum:
    """The checksum of one source."""
    local = urls.to_url(source.source).startswith("file://")
    if source.etag and not local:
        return source.etag
    if source.mtime_ns is not None and only_here:
        # a file's mtime has fractions, and Icechunk compares whole seconds (s3.md, 2.3)
        return datetime.fromtimestamp(-(-source.mtime_ns // 1_000_000_000) + 1, UTC)
    return None


def slug(prefix: str) -> str:
    """The stable name of the container of a source prefix: readable, and unique by a hash."""
    words = "".join(c if c.isascii() and c.isalnum() else "-" for c in prefix.split("://")[-1])
    short = "-".join(w for w in words.split("-") if w)[-40:].strip("-").lower()
    return f"{short or 'root'}-{hashlib.sha256(prefix.encode()).hexdigest()[:8]}"


def split_size(array: Array, grid: Key, before: int | None) -> int:
    """``dim_0`` keys in one manifest; ``before`` is kept as long as it will do."""
    unit = max(append_size(array), 1)
    if before is not None and unit <= before and -(-grid[0] // before) < MAX_SPLITS:
        return before
    appends = SPLIT_APPENDS
    while appends > 1 and appends * unit * prod(grid[1:]) > MAX_SPLIT_ROWS:
        appends //= 2
    while -(-grid[0] // (appends * unit)) >= MAX_SPLITS:
        appends *= 2
    return appends * unit


def append_size(array: Array) -> int:
    """``dim_0`` chunk keys of the largest source slab: what one append brings."""
    spans = (chunk_span(p.dest[0], p.count[0], array.chunks[0]) for p in array.placements)
    return max((stop - start for start, stop in spans), default=1)


def pieces(array: str, flat: Flat, fragment: int, split: int) -> Iterator[Piece]:
    """The rows of one fragment, cut at the borders of splits."""
    f, refs = flat.fragments[fragment], flat.fragment(fragment)
    borders = [f.start, *range((f.start // split + 1) * split, f.stop, split), f.stop]
    for start, stop in pairwise(borders):
        rows = cut(refs, (start - f.start) * flat.width, (stop - f.start) * flat.width)
        yield Piece(array, start, stop, rows, (stop - start, *flat.grid[1:]))


def piece_digest(piece: Piece, sources: list[Source]) -> str:
    """sha256 of what a piece's references say, whatever the numbers of its sources."""
    refs = piece.refs
    used, codes = np.unique(refs.source, return_inverse=True)
    names = [[] if i < 0 else list(sources[i]) for i in used.tolist()]
    h = hashlib.sha256(canonical([names, list(piece.grid)]).encode())
    for column in (codes, refs.offset, refs.size):
        h.update(np.ascontiguousarray(column, "<i8").tobytes())
    for row, data in sorted(refs.data.items()):
        h.update(canonical([row, hashlib.sha256(data).hexdigest()]).encode())
    return h.hexdigest()


def write_piece(session: ic.Session, piece: Piece, places: Places) -> None:
    """Set every present chunk of a piece: virtual ones by source, inline ones as native chunks."""
    groups = list(by_checksum(piece.refs, places.checksums))
    if sum(len(rows) for rows, _ in groups) < FEW * len(groups):
        set_each(session, piece, places)
    else:
        for rows, guard in groups:
            set_rows(session, piece, rows, places.locations, guard)
    keys = [(chunk_key(piece, row), data) for row, data in piece.refs.data.items()]
    put(session, keys)


def by_checksum(
    refs: Refs, checksums: list[Checksum]
) -> Iterator[tuple[NDArray[np.int64], Checksum]]:
    """Rows of referenced chunks and their checksum: one run per source, or one for all without."""
    rows = np.flatnonzero(refs.offset >= 0)
    if not len(rows):
        return
    used = np.unique(refs.source[rows])
    if all(checksums[i] is None for i in used.tolist()):
        yield rows, None
        return
    order = rows[np.argsort(refs.source[rows], kind="stable")]
    for group in np.split(order, np.flatnonzero(np.diff(refs.source[order])) + 1):
        yield group, checksums[int(refs.source[group[0]])]


def set_each(session: ic.Session, piece: Piece, places: Places) -> None:
    """Set every virtual reference with the checksum of its own source, in one call."""
    refs = piece.refs
    rows = np.flatnonzero(refs.offset >= 0)
    keys = np.transpose(np.unravel_index(rows, piece.grid))
    keys[:, 0] += piece.start
    columns = (keys, refs.source[rows], refs.offset[rows], refs.size[rows])
    specs = []
    for key, source, offset, size in zip(*(c.tolist() for c in columns), strict=True):
        guard = places.checksums[source]
        etag, mtime = (guard, None) if isinstance(guard, str) else (None, guard)
        specs.append(ic.VirtualChunkSpec(key, places.locations[source], offset, size, etag, mtime))
    refused = session.store.set_virtual_refs(piece.array, specs)
    if refused:
        first = next(s for s in specs if tuple(s.index) == tuple(refused[0]))
        raise not_set(piece, refused, first.location)


def set_rows(
    session: ic.Session,
    piece: Piece,
    rows: NDArray[np.int64],
    locations: NDArray[Any],
    guard: Checksum,
) -> None:
    """Set the virtual references of some rows: the box around them, empty where it has others."""
    keys = np.unravel_index(rows, piece.grid)
    low = [int(k.min()) for k in keys]
    box = tuple(int(k.max()) - lo + 1 for k, lo in zip(keys, low, strict=True))
    at = np.ravel_multi_index([k - lo for k, lo in zip(keys, low, strict=True)], box)
    names = np.full(prod(box), "", object)
    offsets, sizes = np.zeros(prod(box), np.uint64), np.zeros(prod(box), np.uint64)
    names[at] = locations[piece.refs.source[rows]]
    offsets[at], sizes[at] = piece.refs.offset[rows], piece.refs.size[rows]
    refused = session.store.set_virtual_refs_arr(
        piece.array,
        box,
        names.tolist(),
        offsets,
        sizes,
        arr_offset=(low[0] + piece.start, *low[1:]),
        checksum=guard,
    )
    if refused:
        raise not_set(piece, refused, names[at][0])


def not_set(piece: Piece, refused: Sequence[tuple[int, ...]], location: str) -> EmitError:
    """The sentence for references that no container matches."""
    return EmitError(
        f"{piece.array}: Icechunk refused {len(refused)} references, the first at chunk "
        f"{list(refused[0])}, location {location}; no virtual chunk container matches it: "
        f"check the prefixes under remap:"
    )


def chunk_key(piece: Piece, row: int) -> str:
    """The store key of a row's chunk."""
    key = [int(k) for k in np.unravel_index(row, piece.grid)]
    return "/".join(map(str, (piece.array, "c", key[0] + piece.start, *key[1:])))


def delete_vanished(session: ic.Session, piece: Piece, stop: int) -> None:
    """Delete the chunks below ``stop`` that the piece does not have: an old reference would survive."""
    rows = piece.absent[piece.absent < (stop - piece.start) * prod(piece.grid[1:])]

    async def delete() -> None:
        for row in rows.tolist():
            await session.store.delete(chunk_key(piece, row))

    asyncio.run(delete())


def put(session: ic.Session, entries: Iterable[tuple[str, bytes]]) -> None:
    """Set keys of the store: metadata documents and native chunks."""

    async def write() -> None:
        for key, data in entries:
            await session.store.set(key, cpu.Buffer.from_bytes(data))

    asyncio.run(write())


def remove(session: ic.Session, names: Iterable[str]) -> None:
    """Delete arrays or groups with everything in them."""

    async def delete() -> None:
        for name in names:
            await session.store.delete_dir(name)

    asyncio.run(delete())


def splitting(splits: Mapping[str, int]) -> ic.ManifestConfig:
    """Manifests cut along the first axis of each array named in ``splits``, in chunks."""
    rules: dict[ic.ManifestSplitCondition, dict[Any, int]] = {
        ic.ManifestSplitCondition.path_matches(f"^/{regex(name)}$"): {
            ic.ManifestSplitDimCondition.Axis(0): size
        }
        for name, size in sorted(splits.items())
    }
    return ic.ManifestConfig(splitting=ic.ManifestSplittingConfig.from_dict(rules))


def regex(name: str) -> str:
    """A name as a pattern that matches itself."""
    return "".join(c if c.isalnum() or c in "_/ " or not c.isascii() else "\\" + c for c in name)
