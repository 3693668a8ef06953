"""A table's arrays as a physical chunk model of ``drb-chunk``, which this module alone needs.

Installing byterefs beside drb-chunk is enough: the entry point ``drb.chunk.physical`` names the provider
``byterefs-chunks``. A node gives its array as ``node.get_impl(NativeArray)``; :class:`ArrayNode` is one.
"""

from __future__ import annotations

from typing import Any

from drb.chunk.physical import PhysicalChunkModel, PhysicalTilingProvider, register_physical_reader
from drb.nodes.abstract_node import AbstractNode

from byterefs.reader.windows import NativeArray, Values

READER = "byterefs-array"


class ArrayNode(AbstractNode):  # type: ignore[misc]
    """One array of a table that is open, as a DRB node."""

    def __init__(self, array: NativeArray) -> None:
        super().__init__()
        self.name = array.name
        self._array = array

    @property
    def children(self) -> list[Any]:
        """None: an array has no nodes below it."""
        return []

    def has_impl(self, impl: type, identifier: str | None = None) -> bool:
        """Whether a node gives a type."""
        return issubclass(NativeArray, impl)

    def get_impl(self, impl: type, identifier: str | None = None, **_: Any) -> Any:
        """The array; TypeError for another type."""
        if not self.has_impl(impl):
            raise TypeError(f"{self.name}: a byterefs array gives NativeArray, not {impl.__name__}")
        return self._array


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
