"""A table's arrays as nodes of ``drb`` and a physical chunk model of ``drb-chunk``, which this module alone needs.

Installing byterefs beside drb-chunk is enough. A file or address named ``store.sqlite``, and a folder of the form parquet by
its name and what is in it, are of topic ``drb:byterefs`` (:mod:`byterefs.drb_topic`), which names the driver of its nodes and the provider ``byterefs-chunks``; its children
are its arrays under their whole names. ``store.sqlite?target=<name>`` reads the paths of that remap target.

A granule's own node stays with drb-chunk-netcdf: topic ``drb:netcdf`` has one ``drb:physicalTiling``, and drb-chunk
takes any of two.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qs

from drb.chunk.physical import PhysicalChunkModel, PhysicalTilingProvider, register_physical_reader
from drb.core.factory import DrbFactory
from drb.nodes.abstract_node import AbstractNode
from drb.nodes.url_node import UrlNode

from byterefs.reader.windows import NativeArray, Values
from byterefs.reader.zarr_store import TableStore

READER = "byterefs-array"


class ArrayNode(AbstractNode):  # type: ignore[misc]
    """One array of a table that is open, as a DRB node: it gives a ``NativeArray``."""

    def __init__(self, array: NativeArray, parent: Any = None) -> None:
        super().__init__()
        self.name, self.parent = array.name, parent
        self.add_impl(NativeArray, lambda node, **_: array)

    @property
    def children(self) -> list[Any]:
        """None: an array has no nodes below it."""
        return []


class TableNode(AbstractNode):  # type: ignore[misc]
    """A table over the node of its file: it gives a ``TableStore``, and what its file gives.

    The table is opened when its arrays are asked for: that raises what ``byterefs.open`` does for what is none.
    """

    def __init__(self, base: Any) -> None:
        super().__init__()
        self.name, self.parent, self._base = base.name, base.parent, base
        self._store: TableStore | None = None
        self._arrays: list[ArrayNode] = []
        self.add_impl(TableStore, lambda node, **_: node.store)

    @property
    def path(self) -> Any:
        """Its file's."""
        return self._base.path

    @property
    def store(self) -> TableStore:
        """The table, open."""
        if self._store is None:
            location, target = address(self._base)
            self._store = TableStore(location, target=target)
            self._arrays = [ArrayNode(self._store.array(a), self) for a in self._store.table.arrays]
        return self._store

    @property
    def children(self) -> list[Any]:
        """A node per array."""
        return self._arrays if self.store else []

    def has_impl(self, impl: type, identifier: str | None = None) -> bool:
        """Whether the table or its file gives a type."""
        return bool(super().has_impl(impl, identifier) or self._base.has_impl(impl, identifier))

    def get_impl(self, impl: type, identifier: str | None = None, **options: Any) -> Any:
        """What the table gives of a type, or else its file."""
        own = super().has_impl(impl, identifier)
        give = super().get_impl if own else self._base.get_impl
        return give(impl, identifier, **options)

    def close(self) -> None:
        """Let go of the table and of its file."""
        if self._store is not None:
            self._store.close()
        self._base.close()


class TableFactory(DrbFactory):  # type: ignore[misc]
    """Nodes of tables; opens none."""

    def _create(self, node: Any) -> Any:
        return node if isinstance(node, TableNode) else TableNode(node)


def address(base: Any) -> tuple[str, str | None]:
    """Where the table of a file's node lies, and the target in the address by which drb was asked for it."""
    # drb's file driver cuts the query off, and keeps the node of the whole address as the parent
    asked = base.parent.path if isinstance(base.parent, UrlNode) else base.path
    location = str(base.path.original_path)
    if base.path.scheme:
        location = location.partition("?")[0]
    query = asked.query if asked is not base.path or base.path.scheme else ""
    return location, parse_qs(query).get("target", [None])[0]


class TableChunksProvider(PhysicalTilingProvider):  # type: ignore[misc]
    """Native chunks of a table's array: its own chunk grid, over all of its sources."""

    name = "byterefs-chunks"

    def probe(self, node: Any, multiplier: int = 1) -> Any:
        """The physical model of a node's array, in units of ``multiplier`` native chunks; reads nothing."""
        array: NativeArray = node.get_impl(NativeArray)
        unit = tuple(c * multiplier for c in array.chunks)
        return PhysicalChunkModel(chunk_shape=unit, reader=READER, array_shape=array.shape)


def read_native(node: Any, window: tuple[tuple[int, int], ...]) -> Values:
    """The stored values of a window that drb-chunk has aligned to native chunks."""
    array: NativeArray = node.get_impl(NativeArray)
    return array.read(tuple(slice(start, stop) for start, stop in window))


register_physical_reader(READER, read_native)
