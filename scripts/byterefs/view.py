"""The view: the global chunk index ``refs_<array>``, computed from chunks and placements.

It is arithmetic over packed columns and is not stored; what is stored are the digests of its
fragments, from which an emitter knows what changed.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Iterator, Mapping
from dataclasses import fields
from functools import cache, cached_property
from math import prod
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np

from byterefs import kept, urls
from byterefs.axis import time_units
from byterefs.chunks import ChunkIndex
from byterefs.errors import StoreError
from byterefs.files import canonical, digest
from byterefs.grid import chunk_grid, fragment_steps
from byterefs.model import Array, Fragment, Key, Refs, Source
from byterefs.planning import vrt
from byterefs.planning.records import array_of
from byterefs.rows import rows
from byterefs.slabs import Placements, Slabs
from byterefs.store import opened

RECEIPT = "receipt"
ROW_BYTES = 20
KEPT_BYTES = 64 * 2**20
"""rows of an array are kept up to this size; those of more are made again from its packed columns"""
NO_ROWS = Refs(np.empty(0, np.int32), np.empty(0, np.int64), np.empty(0, np.int64))


class View:
    """A dataset as its table says it is: sources, arrays, coordinates, and rows on demand."""

    def __init__(self, con: sqlite3.Connection, store: Path) -> None:
        self._con, self.store = con, store
        self._meta: dict[str, str] = dict(
            con.execute("SELECT key, value FROM meta WHERE key != 'plan'")
        )
        self._index = ChunkIndex(con)
        self._fragments: dict[str, list[Fragment]] = {}
        self._columns: dict[str, Slabs] = {}
        self._rows = (("", 0, 0), NO_ROWS)
        self.left_out: Mapping[str, str] = {}
        """array -> why this view is without it"""
        self.with_across = False
        """whether ``arrays`` has what lies across all eras too, which only a VRT can hold"""

    @classmethod
    def open(cls, store: Path) -> Self:
        """The view of a working store that has a plan; close it, or use it in ``with``."""
        con = opened(store)
        view = cls(con, store)
        if "dataset" not in view._meta:
            con.close()
            raise StoreError(
                f"{store}: the store has no plan yet; run the workflow, or scripts/plan.py"
            )
        return view

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection to the store."""
        self._con.close()

    def without(self, arrays: Mapping[str, str]) -> Self:
        """The same view without some arrays, each with the reason; it shares this one's connection."""
        other = type(self)(self._con, self.store)
        other.left_out = {**self.left_out, **arrays}
        return other

    def across_eras(self) -> Self:
        """The same view with the arrays that lie across all eras; it shares this one's connection."""
        if self.with_across or not self._across:
            return self
        other = type(self)(self._con, self.store)
        other.left_out, other.with_across = self.left_out, True
        return other

    @property
    def dataset(self) -> str:
        """Name of the dataset."""
        return self._meta["dataset"]

    @property
    def title(self) -> str:
        """Title of the dataset, for people."""
        return self._meta["title"]

    @cached_property
    def vrt(self) -> str:
        """The plan as a VRT, sources verbatim."""
        if not self.left_out:
            (text,) = self._con.execute("SELECT value FROM meta WHERE key = 'plan'").fetchone()
            return str(text)
        return vrt.write(self.across_eras().arrays, self.root, self.root_dtypes)

    def vrt_for(self, target: str) -> str:
        """The plan as a VRT with the paths under which ``target`` serves the sources."""
        if not self.left_out and not self.remap.get(target):
            return self.vrt
        arrays = self.across_eras().arrays
        return vrt.write(
            arrays, self.root, self.root_dtypes, lambda source: self.published(source, target)
        )

    @cached_property
    def root(self) -> dict[str, Any]:
        """Root attributes that all planned sources share."""
        return dict(json.loads(self._meta["root"]))

    @cached_property
    def root_dtypes(self) -> dict[str, str]:
        """Numpy dtypes of the root attributes."""
        return dict(json.loads(self._meta["root_dtypes"]))

    @cached_property
    def varying(self) -> list[str]:
        """Names of root attributes that differ by source: listed, not copied."""
        return list(json.loads(self._meta["varying"]))

    @cached_property
    def sources(self) -> list[Source]:
        """Planned sources in plan order; ``Refs.source`` indexes this list."""
        rows = self._con.execute(
            "SELECT source, size, mtime_ns, etag FROM sources JOIN byterefs_scans USING (source_id)"
        )
        by_name = {row[0]: Source(*row) for row in rows}
        lost = [s for s in json.loads(self._meta["order"]) if s not in by_name]
        if lost:
            raise StoreError(
                f"{self.store}: source {lost[0]} of the plan is gone from the store; run the workflow again"
            )
        return [by_name[s] for s in json.loads(self._meta["order"])]

    @cached_property
    def index(self) -> dict[str, int]:
        """Source -> its position in ``sources``."""
        return {s.source: i for i, s in enumerate(self.sources)}

    @cached_property
    def arrays(self) -> dict[str, Array]:
        """All global arrays, sorted by name, coordinates among them."""
        placements = self._placements
        rows = self._con.execute(
            'SELECT array, kind, storage, dims, shape, chunks, dtype, fill, codec, attrs, affine, "values", '
            "attr_dtypes, grid_mapping, info, refused FROM arrays ORDER BY array"
        )
        hidden = set(self.left_out) | (set() if self.with_across else self._across)
        return {
            row[0]: array_of(row, placements.get(row[0], ()), self.eras)
            for row in rows
            if row[0] not in hidden
        }

    @cached_property
    def _across(self) -> set[str]:
        return set(json.loads(self._meta.get("across", "[]")))

    def across_digests(self) -> dict[str, Any]:
        """``{"across": {array: digest}}`` of what lies across all eras; ``{}`` where nothing does."""
        arrays = self.across_eras().arrays
        return (
            {"across": {n: array_digest(arrays[n]) for n in sorted(self._across)}}
            if self._across
            else {}
        )

    @cached_property
    def eras(self) -> list[str]:
        """Groups of the eras in the order of the axis; none where the dataset is not cut into eras."""
        return list(json.loads(self._meta.get("eras", "[]")))

    @cached_property
    def _placements(self) -> dict[str, Placements]:
        rows = self._con.execute(
            "SELECT array, dims, names, slabs FROM byterefs_placements JOIN arrays USING (array)"
        )
        order = json.loads(self._meta["order"])
        return {
            array: Placements(
                Slabs.unpacked(json.loads(names), slabs, len(json.loads(dims)), order)
            )
            for array, dims, names, slabs in rows
        }

    @cached_property
    def remap(self) -> dict[str, list[tuple[str, str]]]:
        """Target -> its (prefix, replacement) rules, longest prefix first."""
        out: dict[str, list[tuple[str, str]]] = {}
        for target, prefix, replacement in self._con.execute("SELECT * FROM remap"):
            out.setdefault(target, []).append((prefix, replacement))
        return {target: urls.longest_first(rules) for target, rules in sorted(out.items())}

    def endpoint(self, target: str) -> str | None:
        """Address of the object store that holds the sources of a target; None where it is AWS, or no bucket."""
        found: dict[str, str] = json.loads(self._meta.get("endpoints", "{}"))
        return found.get(target)

    @property
    def targets(self) -> list[str]:
        """``access`` (the sources as they were opened), then the remap targets."""
        return ["access", *(t for t in self.remap if t != "access")]

    def published(self, source: str, target: str) -> str:
        """The path under which ``target`` serves a source; RemapError if its rules do not cover it."""
        return urls.remap(source, self.remap.get(target, []), target=target)

    def paths(self, target: str) -> list[str]:
        """The published path of every source, in the order of ``sources``."""
        return [self.published(s.source, target) for s in self.sources]

    def own_units(self) -> dict[str, tuple[tuple[str, str], ...]]:
        """Source -> (time coordinate, the units in which this source has it), sorted."""
        names = {a.own for a in self.arrays.values() if a.kind == "coord" and time_units(a.attrs)}
        out: dict[str, list[tuple[str, str]]] = {}
        for name in sorted(names):
            rows = self._con.execute(
                "SELECT source, record ->> '$.attrs.units' FROM byterefs_arrays "
                "JOIN sources USING (source_id) JOIN byterefs_metas USING (meta) WHERE array = ?",
                (name,),
            )
            for source, units in rows:
                out.setdefault(source, []).append((name, str(units)))
        return {source: tuple(units) for source, units in out.items()}

    def prefixes(self) -> list[str]:
        """Stable source prefixes, each ending in ``/``: every source lies under one of them.

        They come from the remap rules and the provider's root, never from the sources at hand,
        so an append does not change them; a source outside them brings its server or top folder.
        """
        wanted = {p.rstrip("/") + "/" for rules in self.remap.values() for p, _ in rules}
        if self._meta.get("prefix"):
            wanted.add(self._meta["prefix"])
        for s in self.sources:
            if not any(s.source.startswith(p) for p in wanted):
                wanted.add(top_folder(s.source))
        return sorted(wanted)

    def referenced(self) -> list[str]:
        """Names of the arrays that have ``refs_<array>``."""
        return [
            a.array for a in self.arrays.values() if a.storage == "referenced" and not a.refused
        ]

    @property
    def shown(self) -> str:
        """The array that examples show: the config's first wanted one, else the data array with most axes.

        Of several eras it is that of the newest, or what lies across them.
        """
        data = [a for a in self.arrays.values() if a.kind == "data"] or list(self.arrays.values())
        newest = next((e for e in ("", *self.eras[::-1]) if any(a.era == e for a in data)), "")
        own = {a.own: a for a in data if a.era == newest}
        wanted = [own[name] for name in json.loads(self._meta["wanted"]) if name in own]
        return (wanted or [max(own.values(), key=lambda a: len(a.dims))])[0].array

    @property
    def shown_era(self) -> str:
        """The group that examples open; empty for the root."""
        return self.arrays[self.shown].era

    def grid(self, array: str) -> Key:
        """Global chunk grid: ``ceil(shape / chunks)``."""
        return chunk_grid(self.arrays[array].shape, self.arrays[array].chunks)

    def fragments(self, array: str) -> list[Fragment]:
        """The array's rows cut along ``dim_0`` into runs of about 100,000, each with its digest.

        The digest covers source, stat, slab and chunk ranges of everything inside, so it is made
        from one row per source without reading the chunks.
        """
        if array not in self._fragments:
            known = self.kept_receipt
            self._fragments[array] = (
                [Fragment(array, **f) for f in known["fragments"][array]]
                if known and array in known["fragments"]
                else list(self._cut(array))
            )
        return self._fragments[array]

    def kept(self, name: str) -> bytes | None:
        """A result that the stage `view` kept in the store; None where there is none."""
        return kept.read(self._con, name)

    @cached_property
    def kept_receipt(self) -> Mapping[str, Any] | None:
        """The receipt of the whole view as the stage `view` kept it."""
        data = self.kept(RECEIPT)
        return None if data is None else json.loads(data)

    def _cut(self, array: str) -> Iterator[Fragment]:
        a, grid, slabs = self.arrays[array], self.grid(array), self._slabs(array)
        steps, pairs = fragment_steps(grid), zip(slabs.sources, slabs.source_arrays, strict=True)
        made_of = [f"{self._spelled[s]} {name} {self._ranges[s, name]}" for s, name in pairs]
        first = slabs.dest[:, 0] // a.chunks[0]
        last = -(-(slabs.dest[:, 0] + slabs.count[:, 0]) // a.chunks[0])
        for start in range(0, grid[0], steps):
            stop = min(start + steps, grid[0])
            inside = np.flatnonzero((first < stop) & (last > start))
            h = hashlib.sha256(canonical([array, start, stop, grid[1:], a.chunks]).encode())
            h.update("\n".join(made_of[i] for i in inside.tolist()).encode())
            for column in (slabs.src_offset, slabs.count, slabs.dest):
                h.update(column[inside].astype("<i8").tobytes())
            yield Fragment(array, start, stop, h.hexdigest())

    def refs(self, array: str, start: int = 0, stop: int | None = None) -> Refs:
        """Rows of ``refs_<array>`` for ``dim_0`` chunk keys ``[start, stop)``, in C order."""
        stop = self.grid(array)[0] if stop is None else stop
        if self._rows[0] != (array, start, stop):
            self._rows = (array, start, stop), self._made(array, start, stop)
        return self._rows[1]

    def _made(self, array: str, start: int, stop: int) -> Refs:
        data = self.kept(rows_of(array))
        if data is not None:
            width = prod(self.grid(array)[1:])
            return unpacked(data, start * width, stop * width)
        slabs, chunks = self._slabs(array), self.arrays[array].chunks
        return rows(self._index, slabs, self.index, chunks, self.grid(array), start, stop)

    def _slabs(self, array: str) -> Slabs:
        if array not in self._columns:
            a = self.arrays[array]
            self._columns[array] = Slabs.of(a.placements, len(a.dims))
        return self._columns[array]

    @cached_property
    def _spelled(self) -> dict[str, str]:
        """Source -> everything that is known of it, as text."""
        return {s.source: spelled(s) for s in self.sources}

    @cached_property
    def _ranges(self) -> Mapping[tuple[str, str], str]:
        """(source, source array) -> digest of where its chunks lie."""
        found = self._con.execute(
            "SELECT source_id, array, chunks FROM byterefs_arrays WHERE chunks IS NOT NULL"
        )
        names = dict(self._con.execute("SELECT source_id, source FROM sources"))
        return {(names[source_id], array): chunks for source_id, array, chunks in found}


@cache
def spelled(source: Source) -> str:
    """Everything that is known of a source, as text."""
    return canonical(source)


def rows_of(array: str) -> str:
    """The name under which an array's rows are kept."""
    return f"rows {array}"


def few(view: View, array: str) -> bool:
    """Whether the rows of an array are kept, if it has any; of one that has none there is little to keep."""
    return array not in view.referenced() or prod(view.grid(array)) * ROW_BYTES <= KEPT_BYTES


def packed(refs: Refs) -> bytes | None:
    """Rows as they are kept: columns one after another; None if some are inline."""
    if refs.data:
        return None
    columns = ((refs.source, "<i4"), (refs.offset, "<i8"), (refs.size, "<i8"))
    return b"".join(column.astype(kind).tobytes() for column, kind in columns)


def unpacked(data: bytes, start: int, stop: int) -> Refs:
    """The rows ``[start, stop)`` of those that :func:`packed` made."""
    total = len(data) // ROW_BYTES
    source = np.frombuffer(data, "<i4", total)
    offset = np.frombuffer(data, "<i8", total, 4 * total)
    size = np.frombuffer(data, "<i8", total, 12 * total)
    return Refs(source[start:stop], offset[start:stop], size[start:stop])


def top_folder(source: str) -> str:
    """The server or first folder of a source: ``https://host/``, ``s3://bucket/``, ``/vsis3/bucket/``, ``/data/``."""
    for lead in ("/vsicurl/https://", "/vsicurl/http://", "/vsis3/"):
        if source.startswith(lead):
            return lead + source[len(lead) :].split("/")[0] + "/"
    if "://" in source:
        scheme, _, rest = source.partition("://")
        return f"{scheme}://{rest.split('/')[0]}/"
    return "/" + source.split("/")[1] + "/"


def array_digest(a: Array) -> str:
    """Digest of an array's row and values, without its placements."""
    row = {f.name: getattr(a, f.name) for f in fields(a) if f.name not in ("values", "placements")}
    return digest([row, hashlib.sha256(a.values or b"").hexdigest()])


def receipt(view: View) -> dict[str, Any]:
    """The receipt of the view: per array its fragments, and the arrays that cannot have refs."""
    if view.kept_receipt is not None and not view.left_out and not view.with_across:
        return dict(view.kept_receipt)
    fragments = {
        name: [{"start": f.start, "stop": f.stop, "digest": f.digest} for f in view.fragments(name)]
        for name in view.referenced()
    }
    rows = sum(int(np.prod(view.grid(name), dtype=np.int64)) for name in view.referenced())
    arrays = {a.array: array_digest(a) for a in view.arrays.values()}
    content = {
        "fragments": fragments,
        "arrays": arrays,
        "root": digest([view.root, view.root_dtypes, view.varying, view.title]),
        "sources": digest([list(s) for s in view.sources]),
        "remap": digest(view.remap),
        "refused": {a.array: a.refused for a in view.arrays.values() if a.refused},
        **view.across_digests(),
    }
    counts = {
        "arrays": len(view.arrays),
        "referenced": len(fragments),
        "rows": rows,
        "sources": len(view.sources),
    }
    return {"stage": "view", "digest": digest(content), "counts": counts, **content}
