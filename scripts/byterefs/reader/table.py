"""A published table, whichever form holds it: arrays, coordinates, and where each chunk's bytes are.

What the forms share: the version that is read, what makes an array unreadable, and which path a
target gives a source. ``sqlite.py`` and ``parquet.py`` find the rows.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np

from byterefs import FORMAT, urls
from byterefs.errors import RemapError, StoreError
from byterefs.grid import chunk_grid
from byterefs.model import Array, Key, Source

Spans = Sequence[range]
"""chunk keys along each axis, step 1"""


class Ref(NamedTuple):
    """Where the encoded bytes of a present chunk are: a range of a source, or in the row."""

    key: Key
    source: Source | None
    """as the table has it: name verbatim, size, mtime and etag; None for an inline chunk"""
    path: str
    """where the target serves the source"""
    offset: int
    """bytes"""
    size: int
    """bytes"""
    data: bytes | None = None


class Table(ABC):
    """A table that is open for one target."""

    location: str
    target: str
    dataset: str
    title: str
    root: Mapping[str, Any]
    """root attributes"""
    arrays: Mapping[str, Array]
    """every array by name; ``values`` of inline ones are not in them, see :meth:`values`"""

    @abstractmethod
    def values(self, array: str) -> bytes:
        """All values of an array that is inline or affine: C order, its dtype."""

    @abstractmethod
    def find(self, array: str, spans: Spans) -> list[Ref]:
        """The present chunks whose keys lie in a box, by key; absent ones are left out."""

    @abstractmethod
    def close(self) -> None:
        """Let go of files and connections."""

    def array(self, name: str) -> Array:
        """One array. Raises StoreError if the table has none of that name."""
        if name not in self.arrays:
            raise StoreError(
                f"{self.location}: it has no array {name!r}; there are {', '.join(sorted(self.arrays))}"
            )
        return self.arrays[name]

    def grid(self, array: str) -> Key:
        """Number of chunks along each axis of an array."""
        found = self.array(array)
        return chunk_grid(found.shape, found.chunks)

    def at(self, array: str, keys: Iterable[Key]) -> dict[Key, Ref]:
        """The present chunks among ``keys``."""
        wanted = sorted(set(keys))
        found: dict[Key, Ref] = {}
        for spans in boxes(wanted):
            found |= {ref.key: ref for ref in self.find(array, spans)}
        return {key: found[key] for key in wanted if key in found}


def boxes(keys: Sequence[Key]) -> list[list[range]]:
    """Sorted keys as boxes: one if they fill it, else their runs along the last axis.

    >>> boxes([(0, 1), (0, 2), (4, 1)])
    [[range(0, 1), range(1, 3)], [range(4, 5), range(1, 2)]]
    """
    if not keys:
        return []
    spans = [range(min(axis), max(axis) + 1) for axis in zip(*keys, strict=True)]
    if prod(len(span) for span in spans) == len(keys):
        return [spans]
    runs: list[list[range]] = []
    for key in keys:
        *head, last = key
        before = runs[-1] if runs else None
        if before and [s.start for s in before[:-1]] == head and before[-1].stop == last:
            before[-1] = range(before[-1].start, last + 1)
        else:
            runs.append([range(k, k + 1) for k in key])
    return runs


# --- what a table says of itself -------------------------------------------------------------------


def check_version(location: str, version: Any) -> None:
    """Raise StoreError unless this version of the format is the one that is read here."""
    if version != FORMAT:
        raise StoreError(
            f"{location}: format_version is {version!r}, and this reader knows {FORMAT!r} only: "
            f"read it with the byterefs that wrote it, or publish it again with this one"
        )


def array_of(location: str, row: Mapping[str, Any]) -> Array:
    """An array from its row, JSON columns parsed already. Raises StoreError for what cannot be read right."""
    name = row["array"]
    where = f"{location}, array {name!r}"
    if row.get("chunk_edges") is not None:
        raise StoreError(
            f"{where}: it has chunk_edges, a grid of unequal chunks that this reader does not know and "
            f"will not misread: leave it out with drop=[{name!r}]"
        )
    refuse_name(where, name)
    try:
        found = Array(
            array=name,
            kind=row["kind"],
            storage=row["storage"],
            dims=tuple(map(str, row["dims"])),
            shape=tuple(map(int, row["shape"])),
            chunks=tuple(map(int, row["chunks"])),
            dtype=np.dtype(row["dtype"]).str,
            fill=row["fill"],
            codec=dict(row["codec"]),
            attrs=dict(row["attrs"] or {}),
            attr_dtypes=dict(row.get("attr_dtypes") or {}),
            grid_mapping=row.get("grid_mapping"),
            affine=row["affine"],
        )
    except (KeyError, TypeError, ValueError) as error:
        raise StoreError(
            f"{where}: its row is not what {FORMAT} has ({error}): publish the table again"
        ) from error
    if (
        not len(found.dims) == len(found.shape) == len(found.chunks)
        or min(found.chunks, default=1) < 1
    ):
        raise StoreError(
            f"{where}: dims {list(found.dims)}, shape {list(found.shape)} and chunks {list(found.chunks)} "
            f"do not fit each other: publish the table again"
        )
    return found


def refuse_name(where: str, name: str) -> None:
    """Raise StoreError for a name that is no path of a node: empty parts, dots, Zarr's own names."""
    parts = name.split("/")
    bad = [p for p in parts if p in ("", ".", "..", "zarr.json") or p.startswith("__")]
    if bad or "\\" in name or any(ord(c) < 32 for c in name):
        raise StoreError(
            f"{where}: its name is no path of an array in a Zarr hierarchy: leave it out with drop=[{name!r}]"
        )


def parsed(location: str, what: str, text: str | bytes | None) -> Any:
    """JSON, or None for nothing. Raises StoreError naming ``what``."""
    try:
        return None if text is None else json.loads(text)
    except ValueError as error:
        raise StoreError(
            f"{location}: {what} is no JSON ({error}): fetch the table again"
        ) from error


def affine_values(array: Array) -> bytes:
    """``start + step * i`` in the array's dtype (mdim-refs/0.2, ``affine``)."""
    spacing = array.affine or {}
    steps = spacing["start"] + spacing["step"] * np.arange(array.shape[0])
    return np.asarray(steps).astype(array.dtype).tobytes()


def checked_values(location: str, array: Array, values: bytes | None) -> bytes:
    """The values of an inline array. Raises StoreError unless there are as many as its shape has."""
    wanted = int(np.prod(array.shape, dtype=np.int64)) * np.dtype(array.dtype).itemsize
    if values is None or len(values) != wanted:
        raise StoreError(
            f"{location}, array {array.array!r}: it has {0 if values is None else len(values)} bytes of "
            f"values, and its shape needs {wanted}: fetch or publish the table again"
        )
    return values


def rules_of(location: str, target: str, rules: Mapping[str, urls.Rules]) -> urls.Rules:
    """The remap rules of a target; none for ``access``. Raises RemapError for a target without rules."""
    if target == "access":
        return ()
    if target not in rules:
        raise RemapError(
            f"{location}: it has no remap target {target!r}; there are access"
            f"{''.join(f', {name}' for name in sorted(rules))}"
        )
    return rules[target]
