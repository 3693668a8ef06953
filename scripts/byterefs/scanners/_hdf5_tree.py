"""The arrays of an HDF5 file by name, with netCDF-4's dimensions resolved."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Any

import h5py
import numpy as np
from h5py import h5, h5d, h5ds, h5f, h5g, h5l, h5o, h5p, h5s, h5t

from byterefs import urls
from byterefs.access.ranges import Local
from byterefs.codecs import Filter
from byterefs.errors import ScanError
from byterefs.model import Key
from byterefs.scanners._common import Seen
from byterefs.scanners._hdf5_attributes import attribute, names
from byterefs.scanners._hdf5_types import text

NO_VARIABLE = "This is a netCDF dimension but not a netCDF variable"
NOT_COORDINATE = "_nc4_non_coord_"
"""netCDF-4's prefix of a variable that has the name of a dimension but is not its coordinate"""


@contextmanager
def hdf5_file(source: str, seen: Seen) -> Iterator[h5py.File]:
    """The source as HDF5 reads it, without locks: itself on this machine, through a cache of blocks elsewhere.

    Raises what HDF5 raises, and ScanError if the name of a file leads to another one by now.
    """
    if not isinstance(seen.ranges, Local):
        with h5py.File(seen.file, "r") as file:
            yield file
        return
    opened = h5f.open(os.fsencode(urls.to_path(source)), h5f.ACC_RDONLY, fapl=_access())
    try:
        if not os.path.samestat(os.fstat(opened.get_vfd_handle()), os.fstat(seen.ranges.fd)):
            raise ScanError(f"{source}: it was replaced while it was scanned; run again")
        yield h5py.File(opened)
    finally:
        opened.close()


@cache
def _access() -> h5p.PropFAID:
    """How files are opened: without locks, and closed with all that is open in them."""
    found = h5p.create(h5p.FILE_ACCESS)
    found.set_fclose_degree(h5f.CLOSE_STRONG)
    found.set_file_locking(False, True)
    return found


@dataclass
class Node:
    """One dataset under one name."""

    name: str
    """path without leading slash, as netCDF calls it"""
    id: h5d.DatasetID
    address: int
    """where the object header lies: the identity of a dataset that has several names"""
    link: str
    """where the name leads if it or a group on the way is a soft link, else ``""``"""
    shape: Key
    unlimited: tuple[bool, ...]
    listed: list[bytes]
    """names of its attributes"""
    scale: bool
    variable: bool = True
    """False for a dimension without a variable"""
    axes: list[Hashable] = field(default_factory=list)
    """identity of each axis: the address of its scale, or a phony dimension"""
    dims: tuple[str, ...] = ()

    @cached_property
    def plist(self) -> h5p.PropDCID:
        """The dataset creation property list."""
        return self.id.get_create_plist()

    @cached_property
    def type(self) -> h5t.TypeID:
        """The type of an element in the file."""
        return self.id.get_type()

    @cached_property
    def layout(self) -> int:
        """HDF5's storage class."""
        return int(self.plist.get_layout())

    @cached_property
    def filters(self) -> list[Filter]:
        """The filter pipeline in the order in which it encodes, repeats kept."""
        return [self.plist.get_filter(i) for i in range(self.plist.get_nfilters())]

    @property
    def group(self) -> str:
        """The path of the group, ``""`` for the root."""
        return self.name.rpartition("/")[0]


@dataclass(slots=True)
class Tree:
    """Every array of a file by name, and the names that lead out of it."""

    nodes: dict[str, Node]
    elsewhere: dict[str, str]
    """links out of the file: name -> what they are, as part of a sentence"""


def tree(file: h5py.File) -> Tree:
    """All datasets of a file in netCDF's order, dimensions resolved and extents as netCDF gives them.

    Soft links are followed, one that leads nowhere is no array; a dataset without dataspace is none.
    """
    found = Tree({}, {})
    order = list(_walk(file.id, "", "", (int(h5o.get_info(file.id).addr),), found))
    _resolve(order)
    _extend(order)
    found.nodes = {node.name: node for node in order if node.variable}
    return found


def _walk(
    group: h5g.GroupID | h5f.FileID, path: str, linked: str, above: tuple[int, ...], out: Tree
) -> Iterator[Node]:
    """Child groups first, then datasets: the order in which netCDF-C names phony dimensions.

    ``linked`` is the path that the group has without soft links, where one leads to it.
    """
    datasets = []
    for raw, link, address in _links(group):
        name = f"{path}{text(raw)}"
        if link not in (h5l.TYPE_HARD, h5l.TYPE_SOFT):
            out.elsewhere[name] = _outside(group, raw, link)
            continue
        try:
            item = h5o.open(group, raw)
        except (KeyError, OSError, RuntimeError) as error:
            if link == h5l.TYPE_SOFT:  # it leads nowhere, or in a circle
                continue
            raise OSError(f"{name}: {error.args[0]}") from error
        at = address if link == h5l.TYPE_HARD else int(h5o.get_info(item).addr)
        leads = f"{linked}{text(raw)}" if linked else ""
        if link == h5l.TYPE_SOFT:
            leads = _target(text(group.links.get_val(raw)), linked or path)
        if isinstance(item, h5g.GroupID):
            if at not in above:
                below = f"{leads}/" if leads else ""
                yield from _walk(item, f"{name}/", below, (*above, at), out)
        elif isinstance(item, h5d.DatasetID):
            space = item.get_space()
            if space.get_simple_extent_type() != h5s.NULL:
                datasets.append(_node(path, text(raw), item, space, at, leads))
    yield from datasets


def _outside(group: h5g.GroupID | h5f.FileID, raw: bytes, link: int) -> str:
    """What a link leads to that is neither hard nor soft: another file, or what only its writer knows."""
    if link == h5l.TYPE_EXTERNAL:
        return f"an external link into {text(group.links.get_val(raw)[0])}"
    return f"a link of a class of its writer's own ({link})"


def _target(value: str, path: str) -> str:
    """The path of a soft link's value, which counts from its own group where it has no leading slash."""
    parts = (value if value.startswith("/") else f"{path}{value}").split("/")
    return "/".join(part for part in parts if part not in ("", "."))


def _links(group: h5g.GroupID | h5f.FileID) -> list[tuple[bytes, int, int]]:
    """Name, kind and, of a hard link, address of each link."""
    found: list[tuple[bytes, int, int]] = []
    tracked = group.get_create_plist().get_link_creation_order() & 1
    group.links.iterate(
        lambda name, link: found.append((name, link.type, link.u)),
        idx_type=h5.INDEX_CRT_ORDER if tracked else h5.INDEX_NAME,
        info=True,
    )
    return found


def _node(
    path: str, name: str, dsid: h5d.DatasetID, space: h5s.SpaceID, address: int, link: str
) -> Node:
    limits = space.get_simple_extent_dims(True)
    listed = names(dsid)
    scale = b"CLASS" in listed and bool(h5ds.is_scale(dsid))
    label = attribute(dsid, b"NAME") if scale and b"NAME" in listed else None
    return Node(
        name=path + name.removeprefix(NOT_COORDINATE),
        id=dsid,
        address=address,
        link=link,
        shape=space.get_simple_extent_dims(),
        unlimited=tuple(n == h5s.UNLIMITED or n is None for n in limits),
        listed=listed,
        scale=scale,
        variable=not (isinstance(label, str) and label.startswith(NO_VARIABLE)),
    )


def _resolve(order: list[Node]) -> None:
    """Give every axis its identity, then every identity its name."""
    scales: dict[int, Node] = {}
    for node in order:
        if node.scale:
            scales.setdefault(node.address, node)
    numbers = {_dimid(node): address for address, node in scales.items()}
    phony: dict[Hashable, int] = {}
    for node in order:
        node.axes = _axes(node, scales, numbers)
        for axis, known in enumerate(node.axes):
            if known is None:
                node.axes[axis] = _phony(node, axis, phony, len(scales))
    names: dict[Hashable, str] = dict(_names_of(scales).items())
    names.update({key: f"phony_dim_{n}" for key, n in phony.items()})
    for node in order:
        node.dims = tuple(names[axis] for axis in node.axes)


def _dimid(node: Node) -> int | None:
    found = _bookkept(node, b"_Netcdf4Dimid")
    return None if found is None else int(found)


def _bookkept(node: Node, name: bytes) -> Any:
    return attribute(node.id, name) if name in node.listed else None


def _axes(node: Node, scales: dict[int, Node], numbers: dict[int | None, int]) -> list[Hashable]:
    """The scale of each axis by address; None where there is none."""
    rank = len(node.shape)
    if node.scale and rank == 1:
        return [node.address]
    ids = np.ravel(_bookkept(node, b"_Netcdf4Coordinates") or ()).tolist()
    if rank and len(ids) == rank and all(i in numbers for i in ids):
        return [numbers[i] for i in ids]
    if node.scale:
        return [node.address, *[None] * (rank - 1)]
    return [_attached(node, axis, scales) for axis in range(rank)]


def _attached(node: Node, axis: int, scales: dict[int, Node]) -> int | None:
    if not h5ds.get_num_scales(node.id, axis):
        return None
    found: list[int] = []
    h5ds.iterate(node.id, axis, lambda scale: found.append(int(h5o.get_info(scale).addr)))
    return found[0] if found[0] in scales else None


def _phony(node: Node, axis: int, phony: dict[Hashable, int], first: int) -> Hashable:
    """The phony dimension of an axis without scale: one per group, length and kind, never twice in an array."""
    for repeat in range(axis + 1):
        key = (node.group, node.shape[axis], node.unlimited[axis], repeat)
        if key not in node.axes[:axis]:
            break
    phony.setdefault(key, first + len(phony))
    return key


def _names_of(scales: dict[int, Node]) -> dict[int, str]:
    """The last part of a scale's path; the whole path where another scale nearer the root has that name."""
    shorts: dict[str, list[int]] = defaultdict(list)
    for address, node in scales.items():
        shorts[node.name.rpartition("/")[2]].append(address)
    return {
        a: node.name if len(shorts[short := node.name.rpartition("/")[2]]) > 1 else short
        for a, node in scales.items()
    }


def _extend(order: list[Node]) -> None:
    """Arrays on one unlimited dimension are as long as the longest of them, as netCDF reads them."""
    longest: dict[Hashable, int] = {}
    for node in order:
        for axis, size in zip(node.axes, node.shape, strict=True):
            longest[axis] = max(size, longest.get(axis, 0))
    for node in order:
        node.shape = tuple(
            longest[axis] if unlimited else size
            for axis, size, unlimited in zip(node.axes, node.shape, node.unlimited, strict=True)
        )
