"""Which arrays of a file come with the wanted ones, because a reader cannot understand them without."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from byterefs.scanners._common import Attributes, Described

COORDINATES = (
    "coordinates",
    "bounds",
    "climatology",
    "grid_mapping",
    "cell_measures",
    "geometry",
    "node_coordinates",
    "node_count",
    "part_node_count",
    "interior_ring",
)
"""CF attributes whose words name coordinates in the wide sense"""
TERMS = ("formula_terms",)
"""CF attributes that may also name data, such as a sea surface that varies in time"""


class Roles[Node: Described]:
    """The arrays to scan, their attributes, and which of them are coordinates of others."""

    def __init__(
        self,
        nodes: Mapping[str, Node],
        wanted: Collection[str],
        attributes: Callable[[Node], Attributes],
    ) -> None:
        self._nodes, self._attributes = nodes, attributes
        self.attributes: dict[str, Attributes] = {}
        self.coordinates: set[str] = set()
        for name in visible(nodes, wanted):
            if len(nodes[name].shape) <= 1:
                self.coordinates.add(name)
        self._follow([*wanted, *self.coordinates])

    def _follow(self, names: Iterable[str]) -> None:
        """Read the attributes of ``names`` and of all that they name, transitively."""
        todo = list(names)
        while todo:
            name = todo.pop()
            if name in self.attributes:
                continue
            node = self._nodes[name]
            self.attributes[name] = found = self._attributes(node)
            named = self._named(node, found[0], COORDINATES)
            self.coordinates.update(named)
            todo += named
            todo += self._named(node, found[0], TERMS)

    def _named(self, node: Node, attrs: Mapping[str, Any], keys: Iterable[str]) -> list[str]:
        words = [w for key in keys if isinstance(attrs.get(key), str) for w in attrs[key].split()]
        found = (self._nearest(word.removesuffix(":"), node.group) for word in words)
        return [name for name in found if name is not None]

    def _nearest(self, word: str, group: str) -> str | None:
        """The array that a word means in a group: there, or in the groups above; or by absolute path."""
        if word.startswith("/"):
            return word[1:] if word[1:] in self._nodes else None
        while True:
            path = f"{group}/{word}" if group else word
            if path in self._nodes:
                return path
            if not group:
                return None
            group = group.rpartition("/")[0]


def visible(nodes: Mapping[str, Described], wanted: Collection[str]) -> list[str]:
    """The arrays in the groups of the wanted ones and in those above."""
    groups = {""}
    for name in wanted:
        group = nodes[name].group
        while group not in groups:
            groups.add(group)
            group = group.rpartition("/")[0]
    return [name for name, node in nodes.items() if node.group in groups]
