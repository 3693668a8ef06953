"""The variables of a DMR++ sidecar by name: types, dimensions and attributes."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

import numpy as np

from byterefs.errors import ByteRefsError
from byterefs.literals import attr_json
from byterefs.model import Key
from byterefs.scanners._common import Attributes, Unsupported
from byterefs.scanners._hdf5_attributes import BOOKKEEPING
from byterefs.scanners._hdf5_tree import NOT_COORDINATE

TYPES = {
    "Byte": "u1",
    "Char": "u1",
    "UInt8": "u1",
    "Int8": "i1",
    "Int16": "i2",
    "UInt16": "u2",
    "Int32": "i4",
    "UInt32": "u4",
    "Int64": "i8",
    "UInt64": "u8",
    "Float32": "f4",
    "Float64": "f8",
}
"""numpy's name of each number of DAP4, without byte order"""
TEXTS = {"String", "URL"}
NO_VARIABLES = {"Dimension", "Enumeration", "Attribute"}
POINTERS = (12, 16)
"""bytes by which HDF5 points to a string of any length"""
ORDERS = {None: "<", "LE": "<", "BE": ">"}
BUILDER = {"origname", "fullnamepath", "build_dmrpp_metadata"}
"""attributes that the builder of a sidecar adds"""
ROOTS = {"HDF5_GLOBAL", "NC_GLOBAL"}
"""containers whose attributes are those of the root"""


@dataclass(frozen=True, slots=True)
class Variable:
    """One variable: what the sidecar says of it, and the element that says it."""

    name: str
    group: str
    dims: tuple[str, ...]
    shape: Key
    element: Element
    number: str | None
    """numpy's name of its numbers; None for text and for what is neither"""
    problem: str | None = None
    """why nothing can be made of it, as the middle of a sentence"""

    @property
    def attributes(self) -> Attributes:
        """Its attributes without the builder's own."""
        return attributes(self.element)

    @property
    def text(self) -> bool:
        """Whether its elements are strings."""
        return self.element.tag in TEXTS

    @property
    def storage(self) -> Element | None:
        """The element that holds the chunks; the variable itself in the oldest sidecars."""
        chunks = self.element.find("chunks")
        if chunks is None and self.element.find("chunk") is not None:
            return self.element
        return chunks

    @property
    def string_length(self) -> int | None:
        """Bytes of each string where all have the same number; None if that is not said.

        Sidecars before version 3.20.13 don't say it; then the size of a plain chunk does.
        """
        fixed = self.element.find("FixedLengthStringArray")
        if fixed is not None:
            return integer(fixed.get("string_length"))
        chunk = None if self.storage is None else self.storage.find("chunk")
        if self.storage is None or chunk is None or self.storage.get("compressionType"):
            return None
        sizes = self.storage.findtext("chunkDimensionSizes")
        shape = tuple(integer(n) for n in sizes.split()) if sizes else self.shape
        length, rest = divmod(integer(chunk.get("nBytes")), max(1, math.prod(shape)))
        return None if rest or length in POINTERS else length

    def dtype(self) -> np.dtype[Any]:
        """The dtype of the stored bytes; Unsupported if its elements have none."""
        if self.problem:
            raise Unsupported(self.problem)
        if self.text and self.string_length:
            return np.dtype(f"S{self.string_length}")
        if self.number is None:
            raise Unsupported(
                f"its elements are a {self.element.tag}, which no published form holds"
            )
        order = None if self.storage is None else self.storage.get("byteOrder")
        if order not in ORDERS:
            raise Unsupported(f"its byte order is {order!r}, which is neither LE nor BE")
        return np.dtype(ORDERS[order] + self.number)

    def structure(self) -> np.dtype[Any]:
        """Bytes for the elements of a structure, as many as an uncompressed chunk has of each."""
        storage = self.storage
        chunk = None if storage is None else storage.find("chunk")
        if storage is None or chunk is None or storage.get("compressionType"):
            raise Unsupported(
                "its elements are a Structure, and without HDF5 the sidecar does not say of how many bytes",
            )
        sizes = storage.findtext("chunkDimensionSizes")
        shape = tuple(integer(n) for n in sizes.split()) if sizes else self.shape
        size, rest = divmod(integer(chunk.get("nBytes")), max(1, math.prod(shape)))
        if rest or not size:
            raise Unsupported(
                "its elements are a Structure whose chunks are no whole number of them"
            )
        return np.dtype(f"V{size}")


def integer(text: str | None) -> int:
    """A number that the sidecar must give; Unsupported if it is none, or negative."""
    try:
        number = int(text or "")
    except ValueError:
        number = -1
    if number < 0:
        raise Unsupported(f"the sidecar has {text!r} where a size or position belongs")
    return number


def parse(xml: bytes) -> Element:
    """The root of a sidecar, names without their namespaces; ByteRefsError if it is no DMR++."""
    try:
        root = ElementTree.fromstring(xml)
    except (ElementTree.ParseError, ValueError, LookupError) as error:
        raise ByteRefsError(f"it is no XML ({error})") from error
    if _local(root.tag) != "Dataset":
        raise ByteRefsError(f"it is no DMR++: its root is {_local(root.tag)}, not Dataset")
    for element in root.iter():
        element.tag = _local(element.tag)
        for key in [k for k in element.attrib if k.startswith("{")]:
            element.set(_local(key), element.attrib.pop(key))
    return root


def _local(name: str) -> str:
    return name.rpartition("}")[2]


def variables(root: Element) -> dict[str, Variable]:
    """Every variable of a sidecar by path without leading slash."""
    return {v.name: v for v in _Tree(root).variables()}


class _Tree:
    """The declarations of a sidecar, and the variables that use them."""

    def __init__(self, root: Element) -> None:
        self.root = root
        self.lengths: dict[str, str | None] = {}
        self.enumerations: dict[str, str | None] = {}
        self.phony: dict[Any, int] = {}
        for group, element in _walk(root, ""):
            path = f"{group}/{element.get('name')}".lstrip("/")
            if element.tag == "Dimension":
                self.lengths[path] = element.get("size")
            elif element.tag == "Enumeration":
                self.enumerations[path] = element.get("basetype")
        self.shorts = Counter(path.rpartition("/")[2] for path in self.lengths)

    def variables(self) -> Iterator[Variable]:
        for group, element in _walk(self.root, ""):
            if element.tag not in NO_VARIABLES and element.get("name"):
                yield self._variable(group, element)

    def _variable(self, group: str, element: Element) -> Variable:
        short = (element.get("name") or "").removeprefix(NOT_COORDINATE)
        name = f"{group}/{short}".lstrip("/")
        number = TYPES.get(element.tag)
        if element.tag == "Enum":
            base = self.enumerations.get((element.get("enum") or "").lstrip("/"))
            number = TYPES.get(base or "")
        try:
            axes = self._axes(group, element.findall("Dim"))
        except Unsupported as why:
            return Variable(name, group, (), (), element, number, str(why))
        dims, shape = tuple(a[0] for a in axes), tuple(a[1] for a in axes)
        return Variable(name, group, dims, shape, element, number)

    def _axes(self, group: str, dims: list[Element]) -> list[tuple[str, int]]:
        axes: list[tuple[str, int]] = []
        for dim in dims:
            path = dim.get("name")
            if path is None:
                size = integer(dim.get("size"))
                axes.append((self._phony(group, size, [name for name, _ in axes]), size))
                continue
            path = path.lstrip("/")
            if path not in self.lengths:
                raise Unsupported(f"its dimension {path} is not declared in the sidecar")
            short = path.rpartition("/")[2]
            axes.append((path if self.shorts[short] > 1 else short, integer(self.lengths[path])))
        return axes

    def _phony(self, group: str, size: int, used: list[str]) -> str:
        """The name of an axis without dimension: one per group and length, never twice in an array."""
        for repeat in range(len(used) + 1):
            number = self.phony.setdefault(
                (group, size, repeat), len(self.lengths) + len(self.phony)
            )
            if f"phony_dim_{number}" not in used:
                break
        return f"phony_dim_{number}"


def _walk(element: Element, group: str) -> Iterator[tuple[str, Element]]:
    """Every declaration and variable with the path of its group, those of child groups first."""
    for child in element.findall("Group"):
        yield from _walk(child, f"{group}/{child.get('name')}".lstrip("/"))
    for child in element:
        if child.tag != "Group":
            yield group, child


def attributes(owner: Element) -> Attributes:
    """The attributes of a variable or of the root as JSON values, and their dtypes.

    A container's attributes are named ``container.attribute``; what is neither number nor text is left out.
    """
    values: dict[str, Any] = {}
    dtypes: dict[str, str] = {}
    for name, element in _attributes(owner, ""):
        texts = [v.get("value") or v.text or "" for v in element.findall("Value")]
        texts = texts or [element.get("value") or ""]
        found = _attribute(element.get("type") or "", texts)
        if found is not None:
            values[name], dtypes[name] = attr_json(found)
    return values, dtypes


def _attributes(owner: Element, prefix: str) -> Iterator[tuple[str, Element]]:
    for element in owner.findall("Attribute"):
        name = element.get("name") or ""
        if name in BUILDER or name in BOOKKEEPING:
            continue
        if element.get("type") == "Container":
            yield from _attributes(element, "" if name in ROOTS else f"{prefix}{name}.")
        else:
            yield prefix + name, element


def _attribute(kind: str, texts: list[str]) -> Any:
    """One attribute as numbers or text; None for another type. Numbers that do not parse stay text."""
    if kind in TEXTS:
        return texts
    if kind not in TYPES:
        return None
    dtype = np.dtype(TYPES[kind]).newbyteorder("<")
    try:
        return np.array([dtype.type(t) if dtype.kind == "f" else int(t) for t in texts], dtype)
    except (ValueError, OverflowError):
        return texts
