"""The physical layer as the plan reads it: which source has which arrays, with what metadata and values."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from byterefs.axis import time_units
from byterefs.model import ArrayMeta, Source
from byterefs.store import meta_record
from byterefs.units import Units


class Have(NamedTuple):
    """One array of one source, by digests."""

    meta: str
    digest: str | None
    """of the decoded values, where the scan read them"""
    chunks: str | None
    """of where the chunks lie; None where there are no chunks to refer to"""
    kept: bool
    """whether the decoded values are in the store"""


@dataclass(frozen=True)
class Physical:
    """Everything the store knows of its sources, without the chunk rows."""

    con: sqlite3.Connection
    sources: Mapping[str, Source]
    refused: Mapping[str, str]
    """source -> why the scan set it aside"""
    have: Mapping[str, Mapping[str, Have]]
    """source -> array -> digests"""
    metas: Mapping[str, ArrayMeta]

    @classmethod
    def load(cls, con: sqlite3.Connection) -> Physical:
        """Read the physical layer through an open connection, which must outlive it."""
        sources, refused, have = {}, {}, {}
        rows = con.execute(
            "SELECT source, size, mtime_ns, etag, refused "
            "FROM sources JOIN byterefs_scans USING (source_id) ORDER BY source"
        )
        for source, size, mtime_ns, etag, reason in rows:
            sources[source] = Source(source, size, mtime_ns, etag)
            have[source] = dict[str, Have]()
            if reason is not None:
                refused[source] = reason
        kept = {row[0] for row in con.execute('SELECT "digest" FROM byterefs_values')}
        numbers = dict(con.execute("SELECT source_id, source FROM sources"))
        arrays = con.execute("SELECT source_id, array, meta, digest, chunks FROM byterefs_arrays")
        for source_id, array, meta, digest, chunks in arrays:
            have[numbers[source_id]][array] = Have(meta, digest, chunks, digest in kept)
        metas = {
            m: scoped(meta_record(r))
            for m, r in con.execute("SELECT meta, record FROM byterefs_metas")
        }
        return cls(con, sources, refused, have, metas)

    def meta(self, source: str, array: str) -> ArrayMeta:
        """What ``source`` says of ``array``."""
        return self.metas[self.have[source][array].meta]

    def values(self, source: str, array: str) -> np.ndarray:
        """Decoded values of a source's array, in its own shape and dtype."""
        meta = self.meta(source, array)
        return np.frombuffer(self._data[self.have[source][array].digest], meta.dtype).reshape(
            meta.shape
        )

    def units(self, meta: str, inherited: Units | None = None) -> Units | None:
        """Time units of an array by the digest of its metadata; see :func:`axis.time_units`."""
        key = (meta, inherited)
        if key not in self._units:
            self._units[key] = time_units(self.metas[meta].attrs, inherited)
        return self._units[key]

    @cached_property
    def _units(self) -> dict[tuple[str, Units | None], Units | None]:
        return {}

    @cached_property
    def _data(self) -> dict[str | None, bytes]:
        return dict(self.con.execute('SELECT "digest", data FROM byterefs_values'))

    def roots(self, sources: Iterable[str]) -> tuple[dict[str, Any], dict[str, str], list[str]]:
        """Root attributes that all ``sources`` share, their dtypes, and the names of those that vary."""
        wanted = set(sources)
        rows = self.con.execute(
            "SELECT source, root FROM sources JOIN byterefs_scans USING (source_id)"
        )
        texts = {root for source, root in rows if source in wanted}
        return shared_attrs([(r["attrs"], r["dtypes"]) for r in map(json.loads, sorted(texts))])


def scoped(meta: ArrayMeta) -> ArrayMeta:
    """The metadata with dimensions by their short names, as their groups tell them apart: ``g/x`` is ``x``.

    A name stays a path where the array would have two of it.
    """
    short = [d.rpartition("/")[2] for d in meta.dims]
    dims = (d if short.count(s) > 1 else s for d, s in zip(meta.dims, short, strict=True))
    return replace(meta, dims=tuple(dims))


def shared_attrs(
    records: Iterable[tuple[Mapping[str, Any], Mapping[str, str]]],
) -> tuple[dict[str, Any], dict[str, str], list[str]]:
    """Attributes equal (value and dtype) in all records, their dtypes, and the names of the others."""
    records = list(records)
    names = sorted({name for attrs, _ in records for name in attrs})
    attrs, dtypes, varying = {}, {}, []
    for name in names:
        one, kind = records[0][0].get(name), records[0][1].get(name)
        plain = isinstance(one, str)
        first = json.dumps([one, kind, name in records[0][0]])
        if any(
            not (plain and a.get(name) == one and d.get(name) == kind)
            and json.dumps([a.get(name), d.get(name), name in a]) != first
            for a, d in records
        ):
            varying.append(name)
            continue
        attrs[name] = records[0][0][name]
        if name in records[0][1]:
            dtypes[name] = records[0][1][name]
    return attrs, dtypes, varying
