"""Zarr arrays by their metadata, v2 and v3: shape, chunks, codec, attributes, and the keys of their chunks.

An array in Fortran order (v2 ``order: F``, v3 ``transpose`` of all axes) has its axes reversed here: its
bytes are those of the reversed array in C order.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from byterefs import literals
from byterefs.model import Key
from byterefs.scanners._common import Attributes, Unsupported

COMPRESSORS = ("zlib", "gzip", "bz2", "zstd", "lz4", "lzma", "blosc")
CODECS = (*COMPRESSORS, "shuffle", "fletcher32", "crc32c", "adler32", "delta", "fixedscaleoffset")
"""numcodecs ids whose decoding gives bytes without what is not in the chunk"""
V3_NAMES = {"gzip": "gzip", "zstd": "zstd", "blosc": "blosc", "crc32c": "crc32c"}
"""codecs of Zarr v3 by name, and their numcodecs id"""
V3_DROPPED = ("checksum", "typesize")
"""keys that a v3 codec has and the numcodecs one has not; no decoder needs them"""
SHUFFLES = {"noshuffle": 0, "shuffle": 1, "bitshuffle": 2}
DIMENSIONS = "_ARRAY_DIMENSIONS"
REWRITE = (
    "rewrite the store without it, or leave the array out by listing the wanted ones in scan.arrays"
)


@dataclass(frozen=True, slots=True)
class Node:
    """One array of a store."""

    name: str
    """path without leading slash"""
    dims: tuple[str, ...]
    shape: Key
    chunks: Key
    dtype: str
    fill: str | None
    codec: Mapping[str, Any]
    attributes: Attributes
    separator: str
    lead: str
    """what a chunk's key begins with: ``c`` in Zarr v3"""
    reversed: bool

    @property
    def group(self) -> str:
        """The path of the group, ``""`` for the root."""
        return self.name.rpartition("/")[0]

    def key(self, key: Sequence[int]) -> str:
        """The name of a chunk below the array: ``0.1``, ``c/0/1``; of a scalar ``0`` or ``c``."""
        stored = key[::-1] if self.reversed else key
        words = [self.lead] if self.lead else []
        return self.separator.join([*words, *map(str, stored)]) or "0"

    def place(self, text: str) -> Key | None:
        """The chunk that a name means; None for a name of something else."""
        words = text.split(self.separator)
        if self.lead:
            if words[0] != self.lead:
                return None
            words = words[1:]
        if not self.shape:
            return () if words in ([], ["0"]) else None
        if len(words) != len(self.shape) or not all(w.isdecimal() for w in words):
            return None
        key = tuple(map(int, words))
        return key[::-1] if self.reversed else key


def v2(name: str, array: Mapping[str, Any], attrs: Mapping[str, Any]) -> Node:
    """An array by ``.zarray`` and ``.zattrs``. Raises Unsupported for what no row can refer to."""
    dtype = numpy_dtype(array["dtype"])
    turned = array.get("order", "C") == "F" and len(array["shape"]) > 1
    dims = tuple(named(attrs, name, len(array["shape"])))
    filters = [known(c) for c in array.get("filters") or ()]
    last = array.get("compressor")
    compressor = known(last) if last else None
    if compressor is None and filters and filters[-1]["id"] in COMPRESSORS:
        compressor = filters.pop()
    fill = array.get("fill_value")
    given = {k: v for k, v in attrs.items() if k != DIMENSIONS}
    if fill is not None and "_FillValue" not in given:
        given["_FillValue"] = fill_scalar(fill, dtype)
    return Node(
        name=name,
        dims=flipped(dims, turned),
        shape=flipped(tuple(array["shape"]), turned),
        chunks=flipped(tuple(max(1, n) for n in array["chunks"]), turned),
        dtype=dtype,
        fill=None if fill is None else literals.fill_text(fill_scalar(fill, dtype)),
        codec={"compressor": compressor, "filters": filters or None},
        attributes=attributes(given, dtype),
        separator=array.get("dimension_separator", "."),
        lead="",
        reversed=turned,
    )


def v3(name: str, array: Mapping[str, Any]) -> Node:
    """An array by ``zarr.json``. Raises Unsupported for shards and for what no row can refer to."""
    grid = array["chunk_grid"]
    if grid["name"] != "regular":
        raise Unsupported(f"its chunk grid is {grid['name']}, and a table's is regular", REWRITE)
    rank = len(array["shape"])
    turned, endian, encoded = v3_codecs(array["codecs"], rank)
    dtype = v3_dtype(array["data_type"], endian)
    names = array.get("dimension_names") or [None] * rank
    attrs = dict(array.get("attributes", {}))
    spare = named(attrs, name, rank)
    attrs.pop(DIMENSIONS, None)
    dims = tuple(n or s for n, s in zip(names, spare, strict=True))
    if "_FillValue" in attrs:
        attrs["_FillValue"] = xarray_fill(attrs["_FillValue"], dtype)
    coding = array.get("chunk_key_encoding", {"name": "default"})
    default = coding["name"] == "default"
    separator = coding.get("configuration", {}).get("separator", "/" if default else ".")
    compressor = encoded.pop() if encoded and encoded[-1]["id"] in COMPRESSORS else None
    return Node(
        name=name,
        dims=flipped(dims, turned),
        shape=flipped(tuple(array["shape"]), turned),
        chunks=flipped(tuple(max(1, n) for n in grid["configuration"]["chunk_shape"]), turned),
        dtype=dtype,
        fill=literals.fill_text(fill_scalar(array["fill_value"], dtype)),
        codec={"compressor": compressor, "filters": encoded or None},
        attributes=attributes(attrs, dtype),
        separator=separator,
        lead="c" if default else "",
        reversed=turned,
    )


def v3_codecs(chain: Sequence[Any], rank: int) -> tuple[bool, str, list[dict[str, Any]]]:
    """Whether all axes are transposed, the byte order, and the other codecs in numcodecs' words."""
    turned, endian, found = False, "little", list[dict[str, Any]]()
    for entry in chain:
        name = entry if isinstance(entry, str) else entry["name"]
        config = {} if isinstance(entry, str) else dict(entry.get("configuration") or {})
        if name == "sharding_indexed":
            raise Unsupported(
                "its chunks lie in shards (sharding_indexed), which a row cannot tell apart yet",
                REWRITE,
            )
        if name == "transpose":
            turned = list(config["order"]) == list(range(rank))[::-1] and rank > 1
            if not turned and list(config["order"]) != list(range(rank)):
                raise Unsupported(f"its axes are transposed as {config['order']}", REWRITE)
        elif name == "bytes":
            endian = config.get("endian", "little")
        else:
            found.append(v3_codec(name, config))
    return turned, endian, found


def v3_codec(name: str, config: dict[str, Any]) -> dict[str, Any]:
    """One codec of Zarr v3 in numcodecs' words."""
    if name.startswith("numcodecs."):
        return known({"id": name.removeprefix("numcodecs."), **config})
    if name not in V3_NAMES:
        raise Unsupported(f"its codec {name} is none that readers of references decode", REWRITE)
    config = {k: v for k, v in config.items() if k not in V3_DROPPED}
    if "shuffle" in config:
        config["shuffle"] = SHUFFLES.get(config["shuffle"], config["shuffle"])
    return known({"id": V3_NAMES[name], **config})


def known(config: Mapping[str, Any]) -> dict[str, Any]:
    """A codec that readers of references decode; Unsupported for another."""
    if config.get("id") not in CODECS:
        raise Unsupported(
            f"its codec {config.get('id')} is none that readers of references decode", REWRITE
        )
    return dict(config)


def flipped[T](items: tuple[T, ...], turned: bool) -> tuple[T, ...]:
    """Items of axes, reversed where the array is."""
    return items[::-1] if turned else items


def named(attrs: Mapping[str, Any], name: str, rank: int) -> list[str]:
    """Names of the axes by xarray's attribute, where it has one for each."""
    found = attrs.get(DIMENSIONS)
    return found if isinstance(found, list) and len(found) == rank else phony(name, rank)


def phony(name: str, rank: int) -> list[str]:
    """Names of axes that have none: of this array only, as they say nothing of others."""
    return [f"{name.rpartition('/')[2]}_dim_{i}" for i in range(rank)]


def numpy_dtype(said: Any) -> str:
    """A dtype of Zarr v2; truth values are bytes. Raises Unsupported for records and objects."""
    if not isinstance(said, str):
        raise Unsupported("its elements are records of several fields")
    dtype = np.dtype(said)
    if dtype.kind == "b":
        return "|i1"
    if dtype.kind not in "iufcS":
        raise Unsupported(f"its elements are {said}, of no fixed number of bytes or no number")
    return dtype.str


def v3_dtype(said: Any, endian: str) -> str:
    """A data type of Zarr v3 with the byte order of its bytes."""
    name = said if isinstance(said, str) else said.get("name", "")
    if name == "bool":
        return "|i1"
    if name in ("null_terminated_bytes", "fixed_length_ascii") and isinstance(said, Mapping):
        config = said.get("configuration", {})
        return f"|S{config.get('length_bytes') or int(config.get('length_bits', 0)) // 8}"
    try:
        dtype = np.dtype(name)
    except TypeError as error:
        raise Unsupported(f"its data type is {name}") from error
    if dtype.kind not in "iufc":
        raise Unsupported(f"its data type is {name}")
    return dtype.newbyteorder(">" if endian == "big" else "<").str


def fill_scalar(value: Any, dtype: str) -> np.generic:
    """A fill value of Zarr metadata as a scalar of the dtype."""
    kind = np.dtype(dtype)
    if kind.kind == "S":
        raw = base64.b64decode(value) if isinstance(value, str) and value else b""
        return scalar(raw, kind)
    if isinstance(value, list):
        return scalar(complex(*(float(v) for v in value)), kind)
    if isinstance(value, str) and value.startswith("0x"):
        return scalar(np.frombuffer(bytes.fromhex(value[2:]), kind.newbyteorder(">"))[0], kind)
    return scalar(float(value) if isinstance(value, str) else value, kind)


def scalar(value: Any, dtype: np.dtype[Any]) -> np.generic:
    """A value as a scalar of a dtype; Unsupported for one that it cannot hold."""
    try:
        found: np.generic = np.array([value], dtype)[0]
    except (OverflowError, ValueError) as error:
        raise Unsupported(f"its fill value {value!r} is no {dtype}") from error
    return found


def xarray_fill(value: Any, dtype: str) -> Any:
    """A ``_FillValue`` in Zarr v3 attributes: xarray writes floats as base64 of a double."""
    if isinstance(value, str) and np.dtype(dtype).kind == "f" and len(value) == 12:
        return struct.unpack("<d", base64.b64decode(value))[0]
    return value


def attributes(given: Mapping[str, Any], dtype: str) -> Attributes:
    """Attributes as JSON values and their dtypes; ``_FillValue`` in the array's own. What is no text or number is left out."""
    pairs = {}
    for name, value in sorted(given.items()):
        if name == "_FillValue" and np.dtype(dtype).kind in "iuf":
            pairs[name] = literals.attr_json(np.asarray(fill_scalar(value, dtype))[()])
        elif isinstance(value, str | int | float | np.generic) or (
            isinstance(value, list) and value and all(isinstance(v, str) for v in value)
        ):
            pairs[name] = literals.attr_json(value)
        elif isinstance(value, list) and value and all(isinstance(v, int | float) for v in value):
            pairs[name] = literals.attr_json(np.array(value))
    return {n: v for n, (v, _) in pairs.items()}, {n: d for n, (_, d) in pairs.items()}
