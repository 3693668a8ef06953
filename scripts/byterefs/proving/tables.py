"""What a form carries beside metadata and rows: root attributes, sources, remap rules, placements."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow.parquet as pq

from byterefs import FORMAT
from byterefs.emitters import Reader
from byterefs.emitters.vrt import value
from byterefs.files import canonical
from byterefs.grid import unlinear
from byterefs.model import Placement
from byterefs.proving.artefact import refuse
from byterefs.proving.published import check_sqlite, equal, meta, served
from byterefs.proving.spelling import spelled
from byterefs.urls import file_name
from byterefs.view import View


def root(form: str, reader: Reader) -> Mapping[str, Any]:
    """Root attributes as the artefact has them."""
    opened = cast(Any, reader)
    match form:
        case "sqlite":
            return dict(json.loads(meta(opened.con)["attrs"]))
        case "vrt":
            return {a.GetName(): value(a) for a in opened.root.GetAttributes()}
    return dict(opened.root())


def check(view: View, form: str, reader: Reader, out: Path, target: str) -> None:
    """Compare the tables of the forms that have some. Raises VerifyError."""
    if form == "sqlite":
        check_sqlite(view, cast(Any, reader).con, served(view, reader, target))
    if form == "parquet":
        check_parquet(view, out, target)
    if form == "kerchunk":
        check_one_file(view, reader, out, target)


# --- parquet ---------------------------------------------------------------------------------------


def check_parquet(view: View, out: Path, target: str) -> None:
    """Compare ``sources.parquet``, ``arrays.json`` and the number of rows of each array. Raises VerifyError."""
    paths = view.paths(target)
    published = pq.ParquetFile(out / "sources.parquet").read().to_pylist()
    expected = [
        {"source_id": i, "source": p, "size": s.size, "mtime": s.mtime, "etag": s.etag}
        for i, (p, s) in enumerate(zip(paths, view.sources, strict=True), 1)
    ]
    equal("parquet", "sources", published, expected)
    document = json.loads((out / "arrays.json").read_text())
    for name, a in view.arrays.items():
        row = document["arrays"][name]
        for key in ("kind", "storage", "affine", "attr_dtypes", "grid_mapping"):
            wanted = json.loads(canonical(getattr(a, key)))
            if row[key] != wanted:
                raise refuse("parquet", name, key, row[key], wanted)
    for name in view.referenced():
        files = _files(out, name)
        told = sum(pq.read_metadata(f).num_rows for f in files)
        known = int(np.count_nonzero(view.refs(name).source >= 0))
        if told != known:
            raise refuse("parquet", name, "the number of rows", told, known)
        check_words(view, name, files, [list(rule) for rule in view.remap.get(target, [])])


def _files(out: Path, name: str) -> list[Path]:
    whole = out / f"refs_{file_name(name)}.parquet"
    return (
        [whole]
        if whole.exists()
        else sorted((out / f"refs_{file_name(name)}").glob("part-*.parquet"))
    )


def check_words(view: View, name: str, files: Sequence[Path], rules: list[list[str]]) -> None:
    """Compare what each Parquet file says of itself: array, meta, remap and info. Raises VerifyError."""
    a = view.arrays[name]
    for file in files:
        told = pq.read_metadata(file).metadata or {}
        missing = sorted({b"array", b"meta", b"remap"} - told.keys())
        if missing:
            raise refuse("parquet", name, f"key-value metadata in {file.name}", None, missing)
        words = {key: json.loads(told[key.encode()]) for key in ("array", "meta", "remap")}
        said = words["array"]
        for key in ("dtype", "fill", "codec", "dims", "chunks", "attrs", "attr_dtypes"):
            wanted = json.loads(canonical(getattr(a, key)))
            if said[key] != wanted:
                raise refuse("parquet", name, f"{key} in {file.name}", said[key], wanted)
        meta_ = {"format_version": FORMAT, "dataset": view.dataset}
        if words["meta"] != meta_:
            raise refuse("parquet", name, f"meta in {file.name}", words["meta"], meta_)
        if words["remap"] != rules:
            raise refuse("parquet", name, f"remap in {file.name}", words["remap"], rules)
        table = pq.ParquetFile(file).read(columns=["present", "info", "path", "data"])
        infos = set(table["info"].to_pylist()) - {None}
        if infos - {a.info}:
            raise refuse("parquet", name, f"info in {file.name}", sorted(infos), a.info)
        there = table["path"].is_valid().to_numpy() | table["data"].is_valid().to_numpy()
        if (there != (table["present"].to_numpy() == 1)).any():
            raise refuse(
                "parquet", name, f"present in {file.name}", "not what path and data say", "1 or 0"
            )


# --- kerchunk's one JSON file ----------------------------------------------------------------------


def check_one_file(view: View, reader: Reader, out: Path, target: str) -> None:
    """Compare the references in ``<dataset>.json``, where there is one, with the table. Raises VerifyError."""
    path = out / f"{file_name(view.dataset)}.json"
    if not path.exists():
        return
    refs = dict(json.loads(path.read_text())["refs"])
    for key, expected in cast(Any, reader).metadata.items():
        text = refs.pop(key, None)
        if text is None or json.loads(text) != expected:
            raise refuse("kerchunk", path.name, key, text, expected)
    paths = [spelled("kerchunk", p) for p in view.paths(target)]
    for key, expected in expected_refs(view, paths):
        if refs.pop(key, None) != expected:
            published = json.loads(path.read_text())["refs"].get(key)
            raise refuse("kerchunk", path.name, key, published, expected)
    for key, published in sorted(refs.items()):
        raise refuse("kerchunk", path.name, key, published, None)


def expected_refs(view: View, paths: Sequence[str]) -> Iterator[tuple[str, Any]]:
    """Key and value of every chunk that is present, as kerchunk's JSON writes it."""
    for name, a in view.arrays.items():
        if a.values:
            yield f"{name}/{'.'.join('0' * len(a.shape)) or '0'}", encoded(a.values)
    for name in view.referenced():
        refs, grid = view.refs(name), view.grid(name)
        rows = np.flatnonzero(refs.offset >= 0)
        keys = np.transpose(np.unravel_index(rows, grid)).tolist()
        columns = (
            keys,
            refs.source[rows].tolist(),
            refs.offset[rows].tolist(),
            refs.size[rows].tolist(),
        )
        for key, source, offset, size in zip(*columns, strict=True):
            yield f"{name}/{'.'.join(map(str, key))}", [paths[source], offset, size]
        for row, data in refs.data.items():
            yield f"{name}/{'.'.join(map(str, unlinear(row, grid)))}", encoded(data)


def encoded(data: bytes) -> str:
    """Bytes as kerchunk embeds them."""
    return "base64:" + base64.b64encode(data).decode()


# --- vrt -------------------------------------------------------------------------------------------


def check_placements(view: View, reader: Reader, target: str) -> int:
    """Compare every ``Source`` of a VRT with the plan's placements; how many. Raises VerifyError.

    An array that the VRT carries by value has none there, and its values are compared.
    """
    compared = 0
    names = {s.source: spelled("vrt", view.published(s.source, target)) for s in view.sources}
    for name, a in view.arrays.items():
        found = cast(Any, reader).plan.arrays[name].placements
        if a.values is not None and not found:
            continue
        expected = [Placement(names[p.source], *p[1:]) for p in a.placements]
        if len(found) != len(expected):
            raise refuse("vrt", name, "the number of sources", len(found), len(expected))
        for i, (there, wanted) in enumerate(zip(found, expected, strict=True)):
            if there != wanted:
                raise refuse(
                    "vrt", name, f"source {i} ({wanted.source})", tuple(there), tuple(wanted)
                )
        compared += len(expected)
    return compared
