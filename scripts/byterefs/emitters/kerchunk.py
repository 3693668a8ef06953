"""The kerchunk form: fsspec's reference layout in Parquet, Zarr v2 metadata, one folder per target.

``.zmetadata`` holds ``metadata`` and ``record_size``; ``<array>/refs.<p>.parq`` holds the references
``p * record_size`` onwards in C order, columns path, offset, size and raw. A partition without any
present chunk is omitted. ``json: true`` adds ``<dataset>.json``, the same references in one file.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from byterefs import urls
from byterefs.codecs import pipeline
from byterefs.emitters import Place, Reader, write_open
from byterefs.emitters._arrow import binary, locations
from byterefs.emitters._kerchunk import KerchunkReader, write_table
from byterefs.emitters._parts import Flat, Parts, inline_values
from byterefs.errors import EmitError
from byterefs.files import canonical
from byterefs.model import Array, Refs
from byterefs.view import View
from byterefs.zarr_meta import attributes, groups, one_fill, refuse_codec, registering

PER_TARGET = True
RECORD_SIZE = 100_000
NOTES = (
    "fsspec over HTTP takes the folder for the Parquet layout by its name: serve it under one that ends in .parq, as "
    "current.parq does, and open it without a slash at its end; with one at its end other names work where the server "
    "takes // for / (Ceph does not)",
    "the engine is fastparquet (fsspec cannot be told another), and s3:// paths are read by s3fs",
)
"""what a reader has to mind (research/s3.md, 2.4)"""
FORM = "kerchunk"
GDAL_IDS = {"blosc", "gzip", "lz4", "lzma", "shuffle", "zlib", "zstd"}
"""codecs that GDAL's Zarr driver decodes"""


def emit(
    view: View, out: Path, *, target: str, options: Mapping[str, Any], state: Mapping[str, Any]
) -> dict[str, Any]:
    """Bring the folder ``out`` up to date; only partitions whose rows or paths changed are rewritten.

    Raises EmitError for an array that :func:`check` refuses and RemapError for a source that the target
    does not cover.
    """
    covered = {name: coverage(array) for name, array in view.arrays.items()}
    record = int(options.get("record_size", RECORD_SIZE))
    paths = [urls.to_fsspec(path) for path in view.paths(target)]
    flats = {name: Flat(view, name) for name in view.referenced()}
    gaps = {n: find_gaps(flat, state.get("gaps", {}).get(n, {})) for n, flat in flats.items()}
    metadata = zarr_metadata(view, gaps)
    parts = Parts(out, state)
    for name, flat in flats.items():
        write_partitions(parts, name, flat, paths, record, view.remap.get(target, []))
    for name, array in view.arrays.items():
        if name not in flats:
            write_inline(parts, name, inline_values(array))
    if options.get("json", False):
        write_json(parts, view, target, metadata, flats, paths)
    parts.bytes(".zmetadata", canonical({"metadata": metadata, "record_size": record}).encode())
    result = {**parts.finish(), "gaps": gaps}
    lines = opening(view, target=target, options=options, place=Place())
    write_open(out, view, FORM, target, lines, covered, NOTES)
    return result


def check(view: View, array: str) -> None:
    """Raise EmitError for an array that Zarr v2 or numcodecs cannot express."""
    coverage(view.arrays[array])
    gaps = array in view.referenced() and any(find_gaps(Flat(view, array), {}).values())
    one_fill(view.arrays[array], absent=gaps)


def coverage(array: Array) -> dict[str, bool | str]:
    """Which readers decode the array from this form; EmitError if none can."""
    refuse_codec(array, FORM)
    parts = array.array.split("/")
    if "\\" in array.array or any(p in {"", ".", ".."} or p.startswith(".z") for p in parts):
        raise EmitError(
            f"{array.array}: fsspec's folder for this name would lie outside the form or pass for "
            f"metadata; the forms sqlite, vrt and parquet can hold it: leave the array or the form "
            f"kerchunk out"
        )
    lost = sorted({str(config["id"]) for config in pipeline(array.codec)} - GDAL_IDS)
    rows_only = "it sees the references and decodes no chunk"
    return {
        "xarray": True,
        "gdal": f"GDAL has no decoder for {', '.join(lost)}" if lost else True,
        "duckdb": rows_only,
        "r": rows_only,
    }


def find_gaps(flat: Flat, known: Mapping[str, bool]) -> dict[str, bool]:
    """Fragment digest -> whether it has a chunk that is neither referenced nor inline."""
    return {
        f.digest: known[f.digest] if f.digest in known else has_gap(flat.fragment(i))
        for i, f in enumerate(flat.fragments)
    }


def has_gap(refs: Refs) -> bool:
    """Whether a row is absent or covered by no source."""
    return int((refs.offset < 0).sum()) > len(refs.data)


# --- Parquet ---------------------------------------------------------------------------------------


def write_partitions(
    parts: Parts, name: str, flat: Flat, paths: Sequence[str], record: int, rules: urls.Rules
) -> None:
    """``<name>/refs.<p>.parq`` for every partition that has a present chunk."""
    for p, start in enumerate(range(0, flat.rows, record)):
        stop = min(start + record, flat.rows)

        def render(path: Path, start: int = start, stop: int = stop) -> bool:
            refs = flat.slice(start, stop)
            if not refs.data and (refs.offset < 0).all():
                return False
            return write_table(partition(refs, paths), path)

        made_of = [flat.digests(start, stop), start, stop, rules]
        parts.file(f"{name}/refs.{p}.parq", made_of, render)


def partition(refs: Refs, paths: Sequence[str]) -> pa.Table:
    """Rows as fsspec reads them: a row that is inline or absent has a null path, offset 0 and size 0."""
    here = refs.offset >= 0
    return pa.table(
        {
            "path": locations(refs.source, here, paths),
            "offset": np.where(here, refs.offset, 0),
            "size": np.where(here, refs.size, 0),
            "raw": binary(refs.data, len(here)),
        }
    )


def write_inline(parts: Parts, name: str, values: bytes) -> None:
    """A coordinate or scalar as one raw chunk of the whole array."""
    if not values:
        return
    none = np.full(1, -1)
    table = partition(Refs(none.astype(np.int32), none, none, {0: values}), [])
    made_of = base64.b64encode(values).decode()
    parts.file(f"{name}/refs.0.parq", made_of, lambda path: write_table(table, path))


# --- Zarr v2 metadata ------------------------------------------------------------------------------


def zarr_metadata(view: View, gaps: Mapping[str, Mapping[str, bool]]) -> dict[str, Any]:
    """``.zgroup``, ``.zattrs`` and ``.zarray`` of every group and array, by key."""
    keys: dict[str, Any] = {".zgroup": {"zarr_format": 2}, ".zattrs": dict(view.root)}
    for group in groups(view.arrays):
        keys[f"{group}/.zgroup"], keys[f"{group}/.zattrs"] = {"zarr_format": 2}, {}
    for name, array in view.arrays.items():
        fill = one_fill(array, absent=any(gaps.get(name, {}).values()))
        keys[f"{name}/.zarray"] = zarray(array, fill)
        keys[f"{name}/.zattrs"] = {"_ARRAY_DIMENSIONS": list(array.dims), **attributes(array)}
    return keys


def zarray(array: Array, fill: Any) -> dict[str, Any]:
    """``.zarray``; an inline array is one chunk without a codec."""
    referenced = array.storage == "referenced"
    chunks = array.chunks if referenced else tuple(max(1, n) for n in array.shape)
    return {
        "zarr_format": 2,
        "shape": list(array.shape),
        "chunks": list(chunks),
        "dtype": array.dtype,
        "compressor": array.codec.get("compressor") if referenced else None,
        "filters": array.codec.get("filters") if referenced else None,
        "fill_value": fill,
        "order": "C",
        "dimension_separator": ".",
    }


# --- one JSON file ---------------------------------------------------------------------------------


def write_json(
    parts: Parts,
    view: View,
    target: str,
    metadata: Mapping[str, Any],
    flats: Mapping[str, Flat],
    paths: Sequence[str],
) -> None:
    """``<dataset>.json``: version 1, inline chunks as base64, absent chunks left out."""
    values = {n: inline_values(a) for n, a in view.arrays.items() if n not in flats}

    def render(path: Path) -> bool:
        with path.open("w", encoding="utf-8") as f:
            f.write('{"version":1,"refs":{')
            lead = "\n"
            for key, value in json_refs(view, metadata, values, flats, paths):
                f.write(f"{lead}{canonical(key)}:{canonical(value)}")
                lead = ",\n"
            f.write("\n}}\n")
        return True

    made_of = {
        "metadata": metadata,
        "rules": view.remap.get(target, []),
        "values": {n: hashlib.sha256(v).hexdigest() for n, v in values.items()},
        "fragments": {n: flat.digests(0, flat.rows) for n, flat in flats.items()},
    }
    parts.file(json_name(view), made_of, render)


def json_name(view: View) -> str:
    """The name of the one JSON file."""
    return f"{urls.file_name(view.dataset)}.json"


def json_refs(
    view: View,
    metadata: Mapping[str, Any],
    values: Mapping[str, bytes],
    flats: Mapping[str, Flat],
    paths: Sequence[str],
) -> Iterator[tuple[str, Any]]:
    """Key and value of every reference: JSON text, ``base64:`` text or ``[path, offset, size]``."""
    for key, value in sorted(metadata.items()):
        yield key, canonical(value)
    for name, array in view.arrays.items():
        if name in flats:
            yield from chunk_refs(name, flats[name], paths)
        elif values[name]:
            yield f"{name}/{'.'.join('0' * len(array.shape)) or '0'}", base64_text(values[name])


def chunk_refs(name: str, flat: Flat, paths: Sequence[str]) -> Iterator[tuple[str, Any]]:
    """The present chunks of one array in C order."""
    for i, fragment in enumerate(flat.fragments):
        refs, first = flat.fragment(i), fragment.start * flat.width
        rows = np.union1d(np.flatnonzero(refs.offset >= 0), list(refs.data)).astype(np.int64)
        keys = np.transpose(np.unravel_index(first + rows, flat.grid)).tolist()
        for row, key in zip(rows.tolist(), keys, strict=True):
            yield f"{name}/{'.'.join(map(str, key))}", json_ref(refs, row, paths)


def json_ref(refs: Refs, row: int, paths: Sequence[str]) -> Any:
    """One present chunk."""
    if row in refs.data:
        return base64_text(refs.data[row])
    return [paths[refs.source[row]], int(refs.offset[row]), int(refs.size[row])]


def base64_text(data: bytes) -> str:
    """Bytes as kerchunk embeds them."""
    return "base64:" + base64.b64encode(data).decode()


# --- opening ---------------------------------------------------------------------------------------


def opening(
    view: View, *, target: str, options: Mapping[str, Any], place: Place
) -> dict[str, list[str]]:
    """The lines that open this form."""
    paths = [urls.to_fsspec(path) for path in view.paths(target)]
    json = bool(options.get("json", False))
    # at a URL fsspec takes a folder for one by the slash at its end
    documents = {"ds": place.url() + "/" * place.remote}
    documents |= {"ds_json": place.url(json_name(view))} if json else {}
    group = f"group={view.shown_era!r}, " if view.shown_era else ""
    call = f'xr.open_dataset("reference://", engine="zarr", {group}consolidated=False, storage_options='
    lines = {
        "gdal": [f"gdal mdim info 'ZARR:\"/vsikerchunk_parquet_ref/{{{place.gdal()}}}\"'"],
        "xarray": ["import xarray as xr", *registering(view.arrays.values(), "numcodecs")]
        + [
            f"{name} = {call}{ {'fo': fo, **remotes(paths, view.endpoint(target))}!r})"
            for name, fo in documents.items()
        ],
    }
    if json:
        lines["gdal"].append(
            f"gdal mdim info 'ZARR:\"/vsikerchunk_json_ref/{{{place.gdal(json_name(view))}}}\"'"
        )
    if view.shown in view.referenced():
        file = place.url(f"{view.shown}/refs.0.parq")
        lines["duckdb"] = [
            f"SELECT * FROM read_parquet('{file.replace(chr(39), chr(39) * 2)}') LIMIT 5;"
        ]
        lines["r"] = [f'arrow::read_parquet("{file}")']
    return lines


def remotes(paths: Sequence[str], endpoint: str | None = None) -> dict[str, Any]:
    """The options of fsspec for the protocols that the paths use."""
    found = sorted({path.partition("://")[0] if "://" in path else "file" for path in paths}) or [
        "file"
    ]
    options = {p: remote_options(p, endpoint) for p in found}
    if len(found) > 1:
        return {"fs": options}
    (protocol,) = found
    return {"remote_protocol": protocol} | (
        {"remote_options": options[protocol]} if options[protocol] else {}
    )


def remote_options(protocol: str, endpoint: str | None) -> dict[str, Any]:
    """Zarr asks for asynchronous file systems where there are any (s3.md, 2.4)."""
    match protocol:
        case "file":
            return {}
        case "s3" if endpoint:
            path_style = {"s3": {"addressing_style": "path"}}
            return {
                "anon": True, "asynchronous": True, "endpoint_url": endpoint, "config_kwargs": path_style,
            }  # fmt: skip
        case "s3":
            return {"anon": True, "asynchronous": True}
    return {"asynchronous": True}


# --- the proving reader ----------------------------------------------------------------------------


def open(out: Path, *, access: Callable[[str], str], target: str = "access") -> Reader:
    """The form in ``out`` through zarr and fsspec; ``access`` maps a published fsspec path to a readable one."""
    return KerchunkReader(out, access)
