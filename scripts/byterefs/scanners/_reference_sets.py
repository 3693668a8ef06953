"""Reference sets that others wrote, read as tables: kerchunk JSON and Parquet, raad.virtualize v0.1, mdim-refs/0.1.

The schemas of the two stores are in research/lineage.md, 1.1 and 1.2; of kerchunk they are fsspec's.
"""

from __future__ import annotations

import base64
import json
import os
import re
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from functools import lru_cache
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from byterefs import urls
from byterefs.errors import ScanError
from byterefs.grid import chunk_grid, linear
from byterefs.model import ABSENT, Ints, Key
from byterefs.scanners import _zarr_nodes
from byterefs.scanners._common import LEAVE_OUT, Unsupported
from byterefs.scanners._zarr_nodes import Node

WHOLE = -2
"""a size: the whole file, whose size the references do not say"""
SQLITE = b"SQLite format 3\0"
FORMAT_01 = "mdim-refs/0.1"
AGAIN = "correct scan.references, or scan the files themselves (leave scan.references out)"


@dataclass(slots=True)
class Listed:
    """One array of a set, as columns over its chunk grid in C order (kerchunk) or over rows (stores)."""

    name: str
    node: Node | None
    """its metadata; None in a store that has none to rely on"""
    keys: NDArray[np.int64]
    """(rows, axes): chunk keys, of the whole array or, in raad.virtualize, of each file's own"""
    target: NDArray[np.int32]
    """index into the set's targets; -1 where a row names none"""
    offset: Ints
    size: Ints
    data: Mapping[int, bytes] = field(default_factory=dict)
    """encoded bytes of inline chunks by row"""
    refused: str | None = None
    """why its metadata cannot be followed, and the way out"""


@dataclass(frozen=True, slots=True)
class ReferenceSet:
    """Everything that a set says."""

    path: str
    targets: tuple[str, ...]
    """the files that it refers to, as it names them"""
    arrays: Mapping[str, Listed]
    root: Mapping[str, Any]
    """root attributes"""


def load(path: str) -> ReferenceSet:
    """A set by its path. Raises ScanError for what is none of the kinds that are known, or is damaged."""
    place = Path(path)
    try:
        stat = place.stat()
    except OSError as error:
        raise ScanError(f"{path}: these references cannot be read ({error}); {AGAIN}") from error
    return _load(path, stat.st_mtime_ns, stat.st_size)


@lru_cache(maxsize=2)
def _load(path: str, mtime_ns: int, size: int) -> ReferenceSet:
    place = Path(path)
    try:
        if place.is_dir():
            return parquet(place) if is_parquet(place) else zarr_store(place)
        with place.open("rb") as f:
            store = f.read(len(SQLITE)) == SQLITE
        return sqlite(place) if store else kerchunk_json(place)
    except (KeyError, TypeError, ValueError, IndexError, sqlite3.Error) as error:
        raise ScanError(
            f"{path}: it is no reference set of kerchunk, raad.virtualize 0.1 or {FORMAT_01} "
            f"({type(error).__name__}: {' '.join(str(error).split())}); {AGAIN}"
        ) from error


# --- kerchunk --------------------------------------------------------------------------------------


class Targets:
    """Names of files and their numbers, in the order in which they come."""

    def __init__(self) -> None:
        self.number: dict[str, int] = {}

    def of(self, name: str) -> int:
        """The number of a file."""
        return self.number.setdefault(name, len(self.number))


def kerchunk_json(path: Path) -> ReferenceSet:
    """Kerchunk JSON: version 0 (flat) or 1 (templates, generated keys)."""
    said = json.loads(path.read_bytes())
    if not isinstance(said, dict):
        raise ValueError(f"it is a JSON {type(said).__name__}, not an object")
    refs = expanded(said) if "refs" in said or "version" in said else said
    metadata = {k: document(v) for k, v in refs.items() if is_metadata(k)}
    targets, arrays = Targets(), {}
    chunks: dict[str, dict[str, Any]] = {}
    for key, value in refs.items():
        if not is_metadata(key):
            array, name = split(key, metadata)
            chunks.setdefault(array, {})[name] = value
    for name, node in nodes(metadata):
        arrays[name] = from_keys(name, node, chunks.get(name, {}), targets)
    return ReferenceSet(str(path), tuple(targets.number), arrays, root(metadata))


def expanded(said: Mapping[str, Any]) -> dict[str, Any]:
    """The references of version 1 with templates filled in and generated keys written out."""
    templates = said.get("templates") or {}
    refs = {key: filled(value, templates) for key, value in said["refs"].items()}
    for rule in said.get("gen") or ():
        for values in combinations(rule["dimensions"]):
            names = {**templates, **values}
            value = [filled(rule["url"], names)]
            if "offset" in rule:
                value += [int(filled(str(rule[k]), names)) for k in ("offset", "length")]
            refs[filled(rule["key"], names)] = value
    return refs


def combinations(dimensions: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Every combination of the values of a ``gen`` rule's dimensions."""
    if not dimensions:
        yield {}
        return
    (name, said), *rest = dimensions.items()
    values = said if isinstance(said, list) else range(said.get("start", 0), said["stop"], said.get("step", 1))  # fmt: skip
    for value in values:
        for others in combinations(dict(rest)):
            yield {name: value, **others}


def filled(value: Any, names: Mapping[str, Any]) -> Any:
    """A text, or the file of a reference, with its templates filled in."""
    if isinstance(value, list):
        return [filled(value[0], names), *value[1:]]
    if not isinstance(value, str) or "{{" not in value:
        return value
    simple = re.sub(
        r"\{\{\s*(\w+)\s*\}\}", lambda m: str(names[m[1]]) if m[1] in names else m[0], value
    )
    return rendered(simple, names) if "{{" in simple else simple


def rendered(text: str, names: Mapping[str, Any]) -> str:
    """A Jinja template, in a sandbox: a set of references is data and runs nothing."""
    from jinja2 import TemplateError
    from jinja2.sandbox import SandboxedEnvironment

    environment = SandboxedEnvironment()
    values = {
        k: environment.from_string(v).render if isinstance(v, str) and "{{" in v else v
        for k, v in names.items()
    }
    try:
        return environment.from_string(text).render(**values)
    except TemplateError as error:
        raise ValueError(f"the template {text!r} cannot be filled in: {error}") from error


METADATA = (".zarray", ".zattrs", ".zgroup", ".zmetadata", "zarr.json")


def is_metadata(key: str) -> bool:
    """Whether a key names metadata and no chunk."""
    return key.rpartition("/")[2] in METADATA


def document(value: Any) -> Mapping[str, Any]:
    """A metadata document, which may be JSON text in JSON, or in base64."""
    if isinstance(value, str):
        found = base64.b64decode(value[7:]) if value.startswith("base64:") else value
        return dict(json.loads(found))
    return dict(value)


def nodes(metadata: Mapping[str, Mapping[str, Any]]) -> Iterator[tuple[str, Node | Unsupported]]:
    """Every array by its metadata, or why that cannot be followed."""
    for key, said in metadata.items():
        name, _, file = key.rpartition("/")
        try:
            if file == ".zarray":
                yield name, _zarr_nodes.v2(name, said, metadata.get(f"{name}/.zattrs", {}))
            elif file == "zarr.json" and said.get("node_type") == "array":
                yield name, _zarr_nodes.v3(name, said)
        except Unsupported as why:
            yield name, why


def root(metadata: Mapping[str, Mapping[str, Any]]) -> Mapping[str, Any]:
    """The root attributes."""
    return metadata.get(".zattrs") or metadata.get("zarr.json", {}).get("attributes", {})


def split(key: str, metadata: Mapping[str, Any]) -> tuple[str, str]:
    """The array that a chunk's key lies in, and the rest of the key."""
    words = key.split("/")
    for i in range(len(words) - 1, 0, -1):
        name = "/".join(words[:i])
        if f"{name}/.zarray" in metadata or f"{name}/zarr.json" in metadata:
            return name, "/".join(words[i:])
    raise ValueError(f"the key {key!r} lies in no array")


def empty(name: str, node: Node | Unsupported) -> Listed:
    """An array of which no chunk is known yet."""
    if isinstance(node, Unsupported):
        none: Ints = np.empty(0, np.int64)
        return Listed(name, None, np.empty((0, 0), np.int64), np.empty(0, np.int32), none, none, {}, f"{node}; {node.out or LEAVE_OUT}")  # fmt: skip
    grid = chunk_grid(node.shape, node.chunks)
    n = prod(grid)
    keys = (
        np.indices(grid, np.int64).reshape(len(grid), n).T if grid else np.empty((1, 0), np.int64)
    )
    gone: Ints = np.full(n, ABSENT, np.int64)
    return Listed(name, node, keys, np.full(n, -1, np.int32), gone, gone.copy(), {})


def from_keys(
    name: str, node: Node | Unsupported, chunks: Mapping[str, Any], targets: Targets
) -> Listed:
    """The columns of one array from its keys."""
    found = empty(name, node)
    if isinstance(node, Unsupported):
        return found
    grid, data = chunk_grid(node.shape, node.chunks), dict[int, bytes]()
    for text, value in chunks.items():
        key = node.place(text)
        if key is None or any(k >= n for k, n in zip(key, grid, strict=True)):
            raise ValueError(f"{name}/{text} is no chunk of a grid of {list(grid)}")
        row = linear(key, grid)
        if isinstance(value, str):
            data[row] = base64.b64decode(value[7:]) if value.startswith("base64:") else value.encode()  # fmt: skip
        elif value:
            found.target[row] = targets.of(str(value[0]))
            whole = len(value) < 3 or value[2] is None
            found.offset[row], found.size[row] = (0, WHOLE) if whole else (value[1], value[2])
    found.data = data
    return found


def parquet(folder: Path) -> ReferenceSet:
    """Kerchunk Parquet: ``.zmetadata`` and partitions of ``record_size`` rows."""
    from pyarrow import parquet as pq

    said = json.loads((folder / ".zmetadata").read_bytes())
    metadata, record = said["metadata"], int(said["record_size"])
    targets, arrays = Targets(), {}
    for name, node in nodes(metadata):
        found = arrays[name] = empty(name, node)
        data = dict[int, bytes]()
        for part in range(0, len(found.target), record):
            file = folder / name / f"refs.{part // record}.parq"
            if file.exists():
                rows = pq.read_table(file).slice(0, len(found.target) - part).to_pydict()
                fill_part(found, part, rows, targets, data)
        found.data = data
    return ReferenceSet(str(folder), tuple(targets.number), arrays, root(metadata))


def is_parquet(folder: Path) -> bool:
    """Whether a folder is kerchunk Parquet and no Zarr store."""
    metadata = folder / ".zmetadata"
    return metadata.is_file() and "record_size" in json.loads(metadata.read_bytes())


def zarr_store(folder: Path) -> ReferenceSet:
    """A Zarr store as references to the files of its chunks; consolidated metadata is not asked."""
    metadata, files = dict[str, Mapping[str, Any]](), dict[str, list[Any]]()
    for place, folders, names in os.walk(folder):
        folders.sort()
        for name in sorted(names):
            path = os.path.join(place, name)
            key = os.path.relpath(path, folder)
            if name in METADATA:
                metadata[key] = json.loads(Path(path).read_bytes())
            elif not name.startswith("."):
                files[key] = [path, 0, os.stat(path).st_size]
    if not any(key.rpartition("/")[2] in (".zarray", "zarr.json") for key in metadata):
        raise ValueError("it is a folder with neither kerchunk Parquet nor arrays of Zarr")
    targets, arrays = Targets(), {}
    chunks: dict[str, dict[str, Any]] = {}
    for key, value in files.items():
        array, name = split(key, metadata)
        chunks.setdefault(array, {})[name] = value
    for name, node in nodes(metadata):
        arrays[name] = from_keys(name, node, chunks.get(name, {}), targets)
    return ReferenceSet(str(folder), tuple(targets.number), arrays, root(metadata))


def fill_part(
    found: Listed, start: int, rows: Mapping[str, Any], targets: Targets, data: dict[int, bytes]
) -> None:
    """Columns of one partition: a null path is an inline or an absent chunk."""
    columns = (rows["path"], rows["offset"], rows["size"], rows["raw"])
    for i, (path, offset, size, raw) in enumerate(zip(*columns, strict=True), start):
        if raw is not None and len(raw):
            data[i] = bytes(raw)
        elif path:
            found.target[i] = targets.of(path)
            found.offset[i], found.size[i] = (offset, size) if size else (0, WHOLE)


# --- stores ----------------------------------------------------------------------------------------


def sqlite(path: Path) -> ReferenceSet:
    """A store of raad.virtualize 0.1, or one of mdim-refs/0.1."""
    with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as con:
        tables = {row[0] for row in con.execute("SELECT name FROM sqlite_master")}
        if {"files", "arrays"} <= tables:
            files = con.execute("SELECT file_id, source FROM files ORDER BY file_id").fetchall()
            names = [row[0] for row in con.execute("SELECT name FROM arrays ORDER BY name")]
        elif {"meta", "sources", "arrays"} <= tables:
            files, names = mdim01(con)
        else:
            raise ValueError(f"its tables are {', '.join(sorted(tables)) or 'none'}")
        numbers = {file_id: i for i, (file_id, _) in enumerate(files)}
        arrays = {name: store_rows(con, name, numbers) for name in names if name in tables}
    return ReferenceSet(str(path), tuple(source for _, source in files), arrays, {})


def mdim01(con: sqlite3.Connection) -> tuple[list[tuple[int, str]], list[str]]:
    """Files and referenced arrays of an mdim-refs/0.1 store; ValueError for another version."""
    said = dict(con.execute("SELECT key, value FROM meta"))
    version = said.get("format_version") or said.get("format") or said.get("version")
    if version not in (FORMAT_01, "0.1"):
        raise ValueError(f"its format is {version}, not {FORMAT_01}")
    files = con.execute("SELECT file_id, access FROM sources ORDER BY file_id").fetchall()
    rows = con.execute("SELECT name FROM arrays WHERE storage = 'referenced' ORDER BY name")
    return files, [row[0] for row in rows]


def store_rows(con: sqlite3.Connection, name: str, numbers: Mapping[int, int]) -> Listed:
    """The rows of an array's table; its rank is that of its ``idx`` columns."""
    table = '"' + name.replace('"', '""') + '"'
    columns = [row[1] for row in con.execute(f"PRAGMA table_info({table})")]
    axes = sorted((c for c in columns if re.fullmatch(r"idx\d+", c)), key=lambda c: int(c[3:]))
    rows = con.execute(
        f'SELECT file_id, present, "offset", size, {", ".join(axes)} FROM {table} '
        f"ORDER BY file_id, {', '.join(axes)}"
    ).fetchall()
    n = len(rows)
    here = np.array([bool(r[1]) and r[2] is not None for r in rows], bool)
    offset = np.array([r[2] if ok else ABSENT for r, ok in zip(rows, here, strict=True)], np.int64)
    size = np.array([r[3] if ok else ABSENT for r, ok in zip(rows, here, strict=True)], np.int64)
    target = np.array([numbers.get(r[0], -1) for r in rows], np.int32)
    keys = np.array([r[4:] for r in rows], np.int64).reshape(n, len(axes))
    return Listed(name, None, keys, target, offset, size)


# --- what a set says of one file -------------------------------------------------------------------


def target_of(found: ReferenceSet, source: str, rules: urls.Rules) -> int:
    """The number of the target that a source is, under its own name or as ``rules`` rename it.

    Raises ScanError for a source that the references do not know.
    """
    wanted = urls.to_url(source)
    for number, name in enumerate(found.targets):
        if urls.to_url(renamed(name, rules)) == wanted:
            return number
    some = ", ".join(found.targets[:3]) or "none"
    raise ScanError(
        f"{source}: the references {found.path} do not refer to it (they refer to {some}…); say in "
        f"scan.references.rename which prefix of theirs stands for which of source, or {AGAIN}"
    )


def renamed(name: str, rules: urls.Rules) -> str:
    """A target with its longest matching prefix replaced; as it is where none matches."""
    for prefix, replacement in rules:
        if urls.matches(name, prefix):
            return replacement + name.removeprefix(prefix)
    return name


def local(keys: NDArray[np.int64]) -> list[Key]:
    """Chunk keys counted from the first one of them along each axis."""
    return [tuple(k) for k in (keys - keys.min(axis=0)).tolist()] if len(keys) else []
