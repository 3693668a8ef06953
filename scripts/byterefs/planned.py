"""The plan as the working store holds it: what the arrays of a dataset are, and whose sources they have."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from byterefs import urls
from byterefs.axis import time_units
from byterefs.database import opened
from byterefs.errors import StoreError
from byterefs.model import Array, Source
from byterefs.planning import vrt
from byterefs.planning.records import array_of
from byterefs.slabs import Placements, Slabs


class Planned:
    """A dataset as its plan says it is: sources, arrays, coordinates, and where the sources are served."""

    def __init__(self, con: sqlite3.Connection, store: Path) -> None:
        self._con, self.store = con, store
        self._meta: dict[str, str] = dict(
            con.execute("SELECT key, value FROM meta WHERE key != 'plan'")
        )
        self.left_out: Mapping[str, str] = {}
        """array -> why this view is without it"""
        self.with_across = False
        """whether ``arrays`` has what lies across all eras too, which only a VRT can hold"""

    @classmethod
    def open(cls, store: Path) -> Self:
        """What a working store that has a plan holds; close it, or use it in ``with``."""
        con = opened(store)
        found = cls(con, store)
        if "dataset" not in found._meta:
            con.close()
            raise StoreError(
                f"{store}: the store has no plan yet; run the workflow, or scripts/plan.py"
            )
        return found

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


def top_folder(source: str) -> str:
    """The server or first folder of a source: ``https://host/``, ``s3://bucket/``, ``/vsis3/bucket/``, ``/data/``."""
    for lead in ("/vsicurl/https://", "/vsicurl/http://", "/vsis3/"):
        if source.startswith(lead):
            return lead + source[len(lead) :].split("/")[0] + "/"
    if "://" in source:
        scheme, _, rest = source.partition("://")
        return f"{scheme}://{rest.split('/')[0]}/"
    return "/" + source.split("/")[1] + "/"
