"""The Parquet form: flat reference tables that describe themselves, one folder per target.

``refs_<array>.parquet`` has the columns of ``refs_<array>`` (mdim-refs/0.2: ``dim_0`` … , present,
path, offset, size, info, data), sorted, with row groups of about 64,000 rows whose statistics tell
a query which of them to skip; ``partition:`` cuts it into ``refs_<array>/part-<k>.parquet``. Beside
them ``sources.parquet``, and ``arrays.json`` with every array's row and the coordinates' values.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from byterefs import FORMAT, urls
from byterefs.codecs import numcodecs_refusal
from byterefs.emitters import Place, Reader, as_zarr, write_open
from byterefs.emitters._arrow import binary, locations
from byterefs.emitters._parquet import ParquetReader
from byterefs.emitters._parts import Flat, Parts, cut, inline_values
from byterefs.files import canonical
from byterefs.grid import fragment_steps
from byterefs.model import Array, Key, Refs
from byterefs.view import View

PER_TARGET = True
FORM = "parquet"
ROW_GROUP = 65_536
PART_ROWS = 1_000_000
"""rows of one file, about, with ``partition: true``"""


def emit(
    view: View, out: Path, *, target: str, options: Mapping[str, Any], state: Mapping[str, Any]
) -> dict[str, Any]:
    """Bring the folder ``out`` up to date; a file is rewritten only if its rows, paths or array changed.

    Raises RemapError for a source that the target does not cover.
    """
    paths, rules = view.paths(target), view.remap.get(target, [])
    parts = Parts(out, state)
    files: dict[str, list[str]] = {name: [] for name in view.referenced()}
    for name in view.referenced():
        for file, flat, fragments, described in tables(view, name, rules, options.get("partition")):

            def render(
                path: Path,
                flat: Flat = flat,
                fragments: Sequence[int] = fragments,
                described: Mapping[str, str] = described,
                info: str = view.arrays[name].info,
            ) -> bool:
                return write_rows(path, flat, fragments, paths, info, described)

            files[name].append(file)
            digests = [flat.fragments[i].digest for i in fragments]
            parts.file(file, [digests, rules, described], render)
    sources = source_table(view, paths)
    parts.file("sources.parquet", sources.to_pydict(), lambda path: write_table(sources, path))
    parts.bytes("arrays.json", canonical(arrays_document(view, target, files)).encode() + b"\n")
    result = parts.finish()
    covered = {name: coverage(array) for name, array in view.arrays.items()}
    lines = opening(view, target=target, options=options, place=Place())
    write_open(out, view, FORM, target, lines, covered)
    return result


def check(view: View, array: str) -> None:
    """Nothing: rows of any codec and dtype can be held; ``coverage`` says who decodes them."""


def coverage(array: Array) -> dict[str, bool | str]:
    """Every reader of Parquet sees the rows; bytes are decoded by the reader's own numcodecs."""
    rows = {"duckdb": True, "gdal": True, "r": True}
    return {**rows, "numcodecs": numcodecs_refusal(array.codec) or True}


def tables(
    view: View, name: str, rules: urls.Rules, partition: Any
) -> list[tuple[str, Flat, list[int], dict[str, str]]]:
    """File, rows, fragment numbers and key-value metadata of each Parquet file of an array."""
    flat = Flat(view, name)
    numbers = list(range(len(flat.fragments)))
    stem = f"refs_{urls.file_name(name)}"
    head = {"meta": canonical({"format_version": FORMAT, "dataset": view.dataset})}
    head["remap"] = canonical([list(rule) for rule in rules])
    row = array_row(view.arrays[name])
    if not partition:
        return [(f"{stem}.parquet", flat, numbers, {**head, "array": canonical(row)})]
    del row["shape"]  # it grows with an append, which rewrites the last part only
    each = fragments_per_part(flat, PART_ROWS if partition is True else int(partition))
    starts = range(0, len(numbers), each)
    return [
        (f"{stem}/part-{k}.parquet", flat, numbers[i : i + each], {**head, "array": canonical(row)})
        for k, i in enumerate(starts)
    ]


def fragments_per_part(flat: Flat, rows: int) -> int:
    """Whole fragments in a file of about ``rows`` rows, at least one; the same after an append."""
    return max(1, rows // (fragment_steps(flat.grid) * flat.width))


# --- rows ------------------------------------------------------------------------------------------


def write_rows(
    path: Path,
    flat: Flat,
    fragments: Sequence[int],
    paths: Sequence[str],
    info: str,
    described: Mapping[str, str],
) -> bool:
    """The rows of some fragments as one Parquet file, each fragment in row groups of its own."""
    schema = row_schema(len(flat.grid)).with_metadata(dict(described))
    options = {"compression": "zstd", "use_dictionary": ["path", "info"], "store_schema": False}
    with pq.ParquetWriter(path, schema, **options) as writer:
        # without store_schema pyarrow 26 drops the metadata of the schema
        writer.add_key_value_metadata(dict(described))
        for i in fragments:
            refs, first = flat.fragment(i), flat.fragments[i].start
            for start in range(0, len(refs.source), ROW_GROUP):
                rows = cut(refs, start, min(start + ROW_GROUP, len(refs.source)))
                table = row_table(rows, start, first, flat.grid, paths, info, schema)
                if len(table):
                    writer.write_table(table, row_group_size=len(table))
    return True


def row_schema(rank: int) -> pa.Schema:
    """The columns of ``refs_<array>``, with 64-bit offset and size."""
    dims = [(f"dim_{i}", pa.int32()) for i in range(rank)]
    text = pa.dictionary(pa.int32(), pa.string())
    return pa.schema(
        [
            *dims,
            ("present", pa.int8()),
            ("path", text),
            ("offset", pa.int64()),
            ("size", pa.int64()),
            ("info", text),
            ("data", pa.binary()),
        ]
    )


def row_table(
    refs: Refs,
    start: int,
    first: int,
    grid: Key,
    paths: Sequence[str],
    info: str,
    schema: pa.Schema,
) -> pa.Table:
    """Rows of the table; ``start`` is the first row's position from ``dim_0`` key ``first``.

    A chunk that no source covers has no row; an absent one has ``present`` 0 and nothing else.
    """
    known = np.flatnonzero(refs.source >= 0)
    keys = np.unravel_index(known + start, grid)
    data = {int(np.searchsorted(known, i)): chunk for i, chunk in refs.data.items()}
    here, size = refs.offset[known] >= 0, refs.size[known].copy()
    present = here.copy()
    for i, chunk in data.items():
        present[i], size[i] = True, len(chunk)
    columns = [
        *((k + (first if i == 0 else 0)).astype(np.int32) for i, k in enumerate(keys)),
        present.astype(np.int8),
        locations(refs.source[known], here, paths),
        pa.array(refs.offset[known], mask=~here),
        pa.array(size, mask=~present),
        locations(np.zeros(len(known), np.int32), present, [info]),
        binary(data, len(known)),
    ]
    return pa.Table.from_arrays([pa.array(c) for c in columns], schema=schema)


def write_table(table: pa.Table, path: Path) -> bool:
    """A small table as one file."""
    pq.write_table(table, path, compression="zstd", store_schema=False)
    return True


def source_table(view: View, paths: Sequence[str]) -> pa.Table:
    """``sources``: source_id, source as the target serves it, size in bytes, mtime in UTC seconds, etag."""
    return pa.table(
        {
            "source_id": pa.array(range(1, len(paths) + 1), pa.int64()),
            "source": pa.array(paths, pa.string()),
            "size": pa.array([s.size for s in view.sources], pa.int64()),
            "mtime": pa.array([s.mtime for s in view.sources], pa.int64()),
            "etag": pa.array([s.etag for s in view.sources], pa.string()),
        }
    )


# --- arrays.json -----------------------------------------------------------------------------------


def arrays_document(view: View, target: str, files: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """``meta`` with the root attributes, every array's row by name, and the files of its references."""
    meta = {
        "format_version": FORMAT,
        "dataset": view.dataset,
        "title": view.title,
        "target": target,
        "remap": [list(rule) for rule in view.remap.get(target, [])],
        "attrs": view.root,
        "attr_dtypes": view.root_dtypes,
        "varying_attrs": view.varying,
    }
    rows = {name: array_row(array) for name, array in view.arrays.items()}
    for name, own in files.items():
        rows[name]["files"] = list(own)
    for name, array in view.arrays.items():
        if array.storage != "referenced":
            rows[name]["values"] = base64.b64encode(inline_values(array)).decode()
    return {"meta": meta, "arrays": rows}


def array_row(array: Array) -> dict[str, Any]:
    """A row of ``arrays``, without its values."""
    return {
        "array": array.array,
        "kind": array.kind,
        "storage": array.storage,
        "dims": list(array.dims),
        "shape": list(array.shape),
        "chunks": list(array.chunks),
        "dtype": array.dtype,
        "fill": array.fill,
        "codec": dict(array.codec),
        "attrs": dict(array.attrs),
        "attr_dtypes": dict(array.attr_dtypes),
        "affine": array.affine,
        "grid_mapping": array.grid_mapping,
    }


def opening(
    view: View, *, target: str, options: Mapping[str, Any], place: Place
) -> dict[str, list[str]]:
    """The lines that open this form; no server lists a folder, so at a URL every part is named."""
    if view.shown not in view.referenced():
        return {"duckdb": [f"SELECT * FROM {literal(place.url('sources.parquet'))};"]}
    stem, partition = f"refs_{urls.file_name(view.shown)}", options.get("partition")
    files = file_names(view, view.shown, partition) if place.remote else [f"{stem}/*.parquet"]
    files = files if partition else [f"{stem}.parquet"]
    table = listed([place.url(f) for f in files])
    lines = {
        "xarray": as_zarr(place.https("") if place.remote else place.url(), target),
        "gdal": [f'ogrinfo -al "{place.gdal(stem if partition else files[0])}"'],
        "duckdb": [
            f"SELECT * FROM read_parquet({table}) WHERE dim_0 BETWEEN 0 AND 2 AND present = 1;",
            f"SELECT path, count(*) AS chunks, sum(size) AS bytes FROM read_parquet({table}) "
            f"WHERE dim_0 BETWEEN 0 AND 2 AND path IS NOT NULL GROUP BY path ORDER BY path;",
        ],
        "r": in_r(
            [place.url(f) for f in files] if place.remote else [stem if partition else files[0]],
            place,
        ),
        "python": [
            "import duckdb",
            f'rows = duckdb.sql("SELECT * FROM read_parquet({table})").arrow()',
        ],
        "browser": [
            "import { asyncBufferFromUrl, parquetReadObjects } from 'hyparquet'",
            "import { compressors } from 'hyparquet-compressors'",
            f"const file = await asyncBufferFromUrl({{ url: '{place.https(files[0].replace('*', 'part-0'))}' }})",
            "const rows = await parquetReadObjects({ file, compressors, rowStart: 0, rowEnd: 5 })",
        ],
    }
    if partition and place.remote:
        del lines["gdal"]  # OGR opens a folder of parts, or one of them
    return lines


def file_names(view: View, name: str, partition: Any) -> list[str]:
    """The files that hold an array's rows, in their order."""
    return [file for file, *_ in tables(view, name, [], partition)]


def listed(names: Sequence[str]) -> str:
    """One file or several as SQL has them."""
    found = ", ".join(map(literal, names))
    return found if len(names) == 1 else f"[{found}]"


def in_r(names: Sequence[str], place: Place) -> list[str]:
    """The line for R; its arrow opens folders on disk, and files at URLs one by one."""
    if not place.remote:
        return [f'arrow::open_dataset("{names[0]}")']
    if len(names) == 1:
        return [f'arrow::read_parquet("{names[0]}")']
    quoted = ", ".join(f'"{name}"' for name in names)
    return [f"do.call(rbind, lapply(c({quoted}), arrow::read_parquet))"]


def literal(text: str) -> str:
    """An SQL string."""
    return "'" + text.replace("'", "''") + "'"


# --- the proving reader ----------------------------------------------------------------------------


def open(out: Path, *, access: Callable[[str], str], target: str = "access") -> Reader:
    """The form in ``out`` through DuckDB; ``access`` maps a published path to one that can be read here."""
    return ParquetReader(out, access)
