"""A scan that takes the rows of a source from references that somebody else wrote (``scan.references``).

Nothing in them is trusted that can be looked at. Where the file can be read and a scanner knows its
format, that scanner scans it, and the references must say of every chunk what the file says: the import is
proven. Where no scanner knows the format, or none of its arrays by name, the references' own metadata
is taken, every range must lie inside the file and the first and last chunk of each array must
decode. Where the file cannot be reached, ranges are taken as they are, and the log says so.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from byterefs import codecs, literals, urls
from byterefs.access import ranges
from byterefs.access.ranges import Ranges
from byterefs.errors import ByteRefsError, RangeError, ScanError
from byterefs.grid import chunk_grid, chunk_window
from byterefs.model import ABSENT, ArrayMeta, Ints, Key, Source, SourceArray, SourceScan
from byterefs.scanners import _zarr_nodes
from byterefs.scanners._common import (
    Chunks,
    Unsupported,
    dimension,
    keeps,
    record,
    refuse_past,
    wanted,
)
from byterefs.scanners._reference_sets import (
    WHOLE,
    Listed,
    ReferenceSet,
    load,
    local,
    renamed,
    target_of,
)
from byterefs.scanners._roles import Roles
from byterefs.scanners._zarr_nodes import Node
from byterefs.urls import Rules

log = logging.getLogger(__name__)

Scan = Callable[[], SourceScan | None]
"""the source by the scanner of its own format; None where there is none"""
STALE = (
    "the references were made of another version of it: make them again, or scan the files themselves "
    "(leave scan.references out)"
)


def scan(
    source: Source,
    said: Mapping[str, Any],
    own: Scan,
    *,
    arrays: Sequence[str],
    concat: str | None,
) -> SourceScan:
    """The wanted arrays of a source as the references ``said["path"]`` have them; see above.

    Raises ScanError for a source that they do not know, and where the file says otherwise.
    """
    found, rules = load(said["path"]), urls.longest_first((said.get("rename") or {}).items())
    number = target_of(found, source.source, rules)
    reach = reachable(source.source)
    if reach is None:
        log.warning(
            "%s: it cannot be reached, so its size and the byte ranges that %s gives are not proven",
            source.source,
            found.path,
        )
        look = Look(source.source, found, number, None, rules)
        return by_metadata(source, found, look, arrays, concat)
    with reach:
        scanned = own()
        if scanned is not None and agree(source.source, found, number, scanned):
            return scanned
        look = Look(source.source, found, number, reach, rules)
        return by_metadata(source, found, look, arrays, concat)


def reachable(source: str) -> Ranges | None:
    """The open source, or None where it cannot be asked for."""
    try:
        return ranges.open(source)
    except RangeError as error:
        log.info("%s", error)
        return None


# --- against the file's own scan -------------------------------------------------------------------


def agree(source: str, found: ReferenceSet, number: int, scanned: SourceScan) -> bool:
    """Whether the references have arrays of the scan; ScanError where they say otherwise of one of them."""
    compared = False
    for name, listed in found.arrays.items():
        item = scanned.arrays.get(name)
        rows = np.nonzero(listed.target == number)[0]
        if item is None or item.offset is None or item.size is None or not len(rows):
            continue
        compare(source, found.path, listed, rows, item)
        compared = True
    return compared


def compare(source: str, path: str, listed: Listed, rows: NDArray[Any], item: SourceArray) -> None:
    """Refuse an array whose ranges in the references are not those of the file."""
    refuse_dtype(source, path, listed, item)
    offset, size = listed.offset[rows], listed.size[rows]
    at = Ranged(item)
    if listed.data and at.holds(list(zip(offset.tolist(), size.tolist(), strict=True))):
        return  # small chunks are inline, as kerchunk has them; the others are the file's, in its order
    if item.meta.layout == "contiguous" or len(rows) != at.present:
        theirs, ours = merged(offset, size), merged(at.offset, at.size)
        if theirs != ours:
            raise ScanError(
                f"{source}: {listed.name}: {path} has it in {shown(theirs)} and the file in {shown(ours)}; {STALE}"
            )
        return
    for key, said in zip(
        local(listed.keys[rows]), zip(offset.tolist(), size.tolist(), strict=True), strict=True
    ):
        there = at.range(key)
        if there != said:
            raise ScanError(
                f"{source}: {listed.name}: {path} has chunk {list(key)} at byte {said[0]} with {said[1]} bytes, and "
                f"the file has it at byte {there[0]} with {there[1]}; {STALE}"
            )


class Ranged:
    """The byte ranges of a scanned array."""

    def __init__(self, item: SourceArray) -> None:
        nothing: Ints = np.empty(0, np.int64)
        self.offset = nothing if item.offset is None else item.offset
        self.size = nothing if item.size is None else item.size
        self.present = int((self.offset >= 0).sum())

    def holds(self, some: Sequence[tuple[int, int]]) -> bool:
        """Whether ``some`` byte ranges are among those of the array, in the same order."""
        mine = iter(zip(self.offset.ravel().tolist(), self.size.ravel().tolist(), strict=True))
        return all(each in mine for each in some)

    def range(self, key: Key) -> tuple[int, int]:
        """Offset and size of a chunk; absent outside of the grid."""
        inside = len(key) == self.offset.ndim and all(
            k < n for k, n in zip(key, self.offset.shape, strict=True)
        )
        return (int(self.offset[key]), int(self.size[key])) if inside else (ABSENT, ABSENT)


def refuse_dtype(source: str, path: str, listed: Listed, item: SourceArray) -> None:
    """Refuse an array of another type in the references than in the file."""
    if listed.node is not None and np.dtype(listed.node.dtype) != np.dtype(item.meta.dtype):
        raise ScanError(
            f"{source}: {listed.name}: {path} has elements of {listed.node.dtype} and the file of "
            f"{item.meta.dtype}; {STALE}"
        )


def merged(offset: Any, size: Any) -> list[tuple[int, int]]:
    """Byte ranges (start, end), those that touch joined: what is there, however it is cut."""
    out: list[tuple[int, int]] = []
    pairs = sorted(zip(np.ravel(offset).tolist(), np.ravel(size).tolist(), strict=True))
    for start, n in pairs:
        if start < 0:
            continue
        if out and start <= out[-1][1]:
            out[-1] = (out[-1][0], max(out[-1][1], start + n))
        else:
            out.append((start, start + n))
    return out


def shown(found: list[tuple[int, int]]) -> str:
    """Byte ranges in words."""
    some = ", ".join(f"bytes {a} to {b}" for a, b in found[:2])
    return f"{len(found)} runs ({some}…)" if len(found) > 2 else some or "no bytes"


# --- by the references' own metadata ---------------------------------------------------------------

Span = tuple[int, int]
"""first element and one past the last"""


def by_metadata(
    source: Source,
    found: ReferenceSet,
    look: Look,
    arrays: Sequence[str],
    concat: str | None,
) -> SourceScan:
    """The arrays that a file has chunks of, and the coordinates of these, by the set's own metadata."""
    there = {n: a.node for n, a in found.arrays.items() if a.node is not None}
    mine = [n for n in there if look.has(n)]
    if not mine:
        why = next(
            (a.refused for a in found.arrays.values() if a.refused),
            "it says no types; leave the file out with source.pattern",
        )
        raise ScanError(
            f"{source.source}: {found.path} has no metadata to follow of what lies in it, and no scanner knows the "
            f"file by itself: {why}"
        )
    for name in arrays:
        listed = found.arrays.get(name)
        if listed is not None and listed.refused:
            raise ScanError(f"{source.source}: {name}: as {found.path} has it, {listed.refused}")
    chosen = wanted(source.source, mine, arrays)
    spans = look.spans(sorted(chosen))
    roles = Roles(there, chosen, lambda node: node.attributes)
    items: dict[str, SourceArray | None] = {}
    for name in sorted(roles.attributes):
        coordinate = name in roles.coordinates and name not in chosen
        items[name] = look.array(name, spans, coordinate, dimension(concat, there))
    items |= look.places({d for n in chosen for d in there[n].dims} - set(items), spans)
    attrs, dtypes = _zarr_nodes.attributes(found.root, "<f8")
    seen = source
    if look.reach is not None:
        seen = source._replace(size=look.reach.size, mtime_ns=look.reach.mtime_ns)
    return SourceScan(seen, {n: item for n, item in items.items() if item}, attrs, dtypes)


class Look:
    """What every array of one file is looked at with."""

    def __init__(
        self, source: str, found: ReferenceSet, number: int, reach: Ranges | None, rules: Rules
    ) -> None:
        self.source, self.found, self.number = source, found, number
        self.reach, self.rules = reach, rules

    def has(self, name: str) -> bool:
        """Whether the file has a chunk of an array."""
        return bool((self.found.arrays[name].target == self.number).any())

    def node(self, name: str) -> Node:
        """The metadata of an array."""
        node = self.found.arrays[name].node
        if node is None:
            raise ScanError(f"{self.source}: {name}: {self.found.path} has no metadata of it")
        return node

    def spans(self, names: Sequence[str]) -> dict[str, Span]:
        """Dimension -> what the file's chunks span of it in the whole array.

        Raises ScanError for two arrays that span different stretches.
        """
        out: dict[str, Span] = {}
        for name in names:
            node, listed = self.node(name), self.found.arrays[name]
            keys = listed.keys[listed.target == self.number]
            for i, dim in enumerate(node.dims):
                low, high = int(keys[:, i].min()), int(keys[:, i].max()) + 1
                span = (low * node.chunks[i], min(high * node.chunks[i], node.shape[i]))
                if out.setdefault(dim, span) != span:
                    raise ScanError(
                        f"{self.source}: {name} spans elements {span} of {dim} in {self.found.path} and another "
                        f"array {out[dim]}; import them one at a time (scan.arrays)"
                    )
        return out

    def places(self, dims: Iterable[str], spans: Mapping[str, Span]) -> dict[str, SourceArray]:
        """An index along each of ``dims`` that the file has a part of and that has no coordinate."""
        whole = {
            d: n
            for a in self.found.arrays.values()
            if a.node
            for d, n in zip(a.node.dims, a.node.shape, strict=True)
        }
        found = {}
        for dim in sorted(dims):
            start, stop = spans.get(dim, (0, whole[dim]))
            if (start, stop) != (0, whole[dim]):
                index = np.arange(start, stop, dtype="<i8")
                meta = ArrayMeta(dim, (dim,), index.shape, index.shape, "<i8", None, codecs.PLAIN, "", layout="derived")  # fmt: skip
                found[dim] = record(meta, None, index, True)
        return found

    def array(
        self, name: str, spans: Mapping[str, Span], coordinate: bool, concat: str | None
    ) -> SourceArray | None:
        """One array cut to what the file spans; None for a coordinate whose values cannot be had."""
        node = self.node(name)
        mine = [spans.get(d, (0, n)) for d, n in zip(node.dims, node.shape, strict=True)]
        meta = described(node, mine)
        found = self.chunks(name, node, mine) if self.has(name) else None
        if found is not None:
            self.refuse_outside(name, found)
            self.prove(name, found, meta)
        nbytes = math.prod(meta.shape) * np.dtype(meta.dtype).itemsize
        by_value = coordinate or not meta.shape
        keep, sum_up = keeps(node, nbytes, by_value, concat)
        if not sum_up:
            return record(meta, found, None, False) if found else None
        try:
            values = self.values(name, node, mine)
        except ByteRefsError as error:
            if not coordinate:
                raise
            log.warning("%s: %s is left out: %s", self.source, name, error)
            return None
        if found is None or not meta.shape:
            meta = replace(meta, chunks=meta.shape, codec=codecs.PLAIN, info="", layout="derived")
            return record(meta, None, values, True)
        return record(meta, found, values, keep)

    def chunks(self, name: str, node: Node, spans: Sequence[Span]) -> Chunks:
        """The chunk grid of the stretch that the file spans."""
        listed = self.found.arrays[name]
        grid = chunk_grid([b - a for a, b in spans], node.chunks)
        offset: Ints = np.full(grid, ABSENT, np.int64)
        size: Ints = offset.copy()
        first = [a // c for (a, _), c in zip(spans, node.chunks, strict=True)]
        data: dict[Key, bytes] = {}
        inline = np.isin(np.arange(len(listed.target)), list(listed.data))
        for row in np.nonzero((listed.target == self.number) | inline)[0].tolist():
            at = tuple(int(k) - f for k, f in zip(listed.keys[row], first, strict=True))
            if any(k < 0 or k >= n for k, n in zip(at, grid, strict=True)):
                continue
            if row in listed.data:
                data[at] = listed.data[row]
            else:
                offset[at], size[at] = listed.offset[row], self.size_of(name, row)
        return Chunks("chunked", node.chunks, offset, size, data)

    def size_of(self, name: str, row: int) -> int:
        """The size of a reference; of one to a whole file the file's. ScanError where nobody knows it."""
        size = int(self.found.arrays[name].size[row])
        if size != WHOLE:
            return size
        if self.reach is None:
            raise ScanError(
                f"{self.source}: {name}: {self.found.path} refers to the whole file, whose size nobody knows: it "
                f"cannot be reached; leave it out with source.pattern"
            )
        return self.reach.size

    def refuse_outside(self, name: str, found: Chunks) -> None:
        """Raise ScanError for a range that the file does not have."""
        if (found.size[found.offset >= 0] <= 0).any() or (found.offset < ABSENT).any():
            raise ScanError(
                f"{self.source}: {name}: {self.found.path} has a range of no bytes; {STALE}"
            )
        if self.reach is None:
            return
        try:
            refuse_past(found, self.reach.size)
        except Unsupported as why:
            raise ScanError(f"{self.source}: {name}: {why}; {STALE}") from why

    def prove(self, name: str, found: Chunks, meta: ArrayMeta) -> None:
        """Decode the first and the last chunk of the file. Raises ScanError if they are no chunks of the array."""
        keys = np.argwhere(found.offset >= 0)
        if self.reach is None or not len(keys):
            return
        for key in {tuple(keys[0].tolist()), tuple(keys[-1].tolist())}:
            raw = self.reach.read(int(found.offset[key]), int(found.size[key]))
            try:
                codecs.decode(meta.codec, raw, meta.dtype, meta.chunks)
            except ByteRefsError as error:
                raise ScanError(
                    f"{self.source}: {name}: chunk {list(key)} as {self.found.path} has it does not decode "
                    f"({error}); {STALE}"
                ) from error

    def values(self, name: str, node: Node, spans: Sequence[Span]) -> NDArray[Any]:
        """All elements of a stretch, decoded, whichever file each chunk lies in."""
        listed = self.found.arrays[name]
        fill = literals.fill_value(node.fill, node.dtype)
        out: NDArray[Any] = np.full(
            [b - a for a, b in spans], 0 if fill is None else fill, node.dtype
        )
        for row, key in enumerate(listed.keys.tolist()):
            window = chunk_window(tuple(key), node.shape, node.chunks)
            inside = [
                (max(w.start, a), min(w.stop, b)) for w, (a, b) in zip(window, spans, strict=True)
            ]
            if any(a >= b for a, b in inside):
                continue
            raw = self.raw(name, row)
            if raw is not None:
                whole = codecs.decode(node.codec, raw, node.dtype, node.chunks)
                cut = tuple(
                    slice(a - w.start, b - w.start)
                    for (a, b), w in zip(inside, window, strict=True)
                )
                place = tuple(
                    slice(a - s, b - s) for (a, b), (s, _) in zip(inside, spans, strict=True)
                )
                out[place] = whole[cut]
        return out

    def raw(self, name: str, row: int) -> bytes | None:
        """The encoded bytes of a reference; None of an absent chunk."""
        listed = self.found.arrays[name]
        if row in listed.data:
            return listed.data[row]
        if listed.target[row] < 0:
            return None
        file = renamed(self.found.targets[listed.target[row]], self.rules)
        with ranges.opened(file) as found:
            size = int(listed.size[row])
            return found.read(int(listed.offset[row]), found.size if size == WHOLE else size)


def described(node: Node, spans: Sequence[Span]) -> ArrayMeta:
    """The metadata of a stretch of an array."""
    attrs, dtypes = node.attributes
    return ArrayMeta(
        array=node.name,
        dims=node.dims,
        shape=tuple(b - a for a, b in spans),
        chunks=node.chunks,
        dtype=node.dtype,
        fill=node.fill,
        codec=node.codec,
        info=codecs.info(node.codec, node.dtype),
        attrs=attrs,
        attr_dtypes=dtypes,
    )
