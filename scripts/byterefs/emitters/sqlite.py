"""Form ``sqlite``: the published store, exactly mdim-refs/0.2, written from scratch in canonical order.

One file serves every target: sources are verbatim and ``remap`` is carried. OGR shows a layer
``refs_<array>`` per array; a chunk is one seek.
"""

from __future__ import annotations

import json
import sqlite3
import weakref
from collections.abc import Callable, Iterator, Mapping
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from byterefs import FORMAT
from byterefs.codecs import numcodecs_refusal
from byterefs.database import quote, schema
from byterefs.emitters import Described, Place, Rows, as_zarr, write_open
from byterefs.emitters._table import Chunk, read_window
from byterefs.files import canonical, digest, replacing
from byterefs.grid import chunk_grid, elements, linear
from byterefs.model import ABSENT, Array, Fragment, Key
from byterefs.planning.records import array_row
from byterefs.slabs import Slabs
from byterefs.view import View, array_digest

PER_TARGET = False
FILE = "store.sqlite"
LAYOUT = 2
"""raised when the same content is written differently"""
COLUMNS = (
    "array",
    "storage",
    "dims",
    "shape",
    "chunks",
    "dtype",
    "fill",
    "codec",
    "attrs",
    "affine",
    "values",
)


def check(view: View, array: str) -> None:
    """Nothing: rows of any codec and dtype can be held; ``coverage`` says who decodes them."""


def emit(
    view: View, out: Path, *, target: str, options: Mapping[str, Any], state: Mapping[str, Any]
) -> dict[str, Any]:
    """Write ``store.sqlite`` if anything in it changed; sources are renumbered in plan order."""
    fragments = {name: [f.digest for f in view.fragments(name)] for name in view.referenced()}
    rows = {name: array_digest(a) for name, a in view.arrays.items()}
    wanted = digest(
        [
            FORMAT,
            LAYOUT,
            fragments,
            rows,
            view.remap,
            view.title,
            view.root,
            view.root_dtypes,
            view.varying,
            [list(s) for s in view.sources],
            options.get("sources"),
            view.vrt,
        ]
    )
    if state.get("digest") != wanted:
        with replacing(out / FILE) as part:
            write(view, part, options.get("sources"))
    lines = opening(view, target=target, options=options, place=Place())
    write_open(out, view, "sqlite", target, lines, coverage(view))
    return {"digest": wanted}


def write(view: View, path: Path, sources: str | None) -> None:
    """The published store at ``path``; ``sources`` names a target whose paths stand for the sources'."""
    con = sqlite3.connect(path, isolation_level=None)
    try:
        con.executescript(
            "PRAGMA page_size = 4096; PRAGMA journal_mode = DELETE; PRAGMA synchronous = OFF;"
        )
        con.executescript(schema("published"))
        con.execute("BEGIN")
        write_plan(con, view, sources)
        words = {
            info: i
            for i, info in enumerate(sorted({view.arrays[n].info for n in view.referenced()}), 1)
        }
        con.executemany(
            "INSERT INTO byterefs_info VALUES (?, ?)", [(i, w) for w, i in words.items()]
        )
        con.execute("COMMIT")
        for name in view.referenced():
            con.executescript(array_schema(view.arrays[name]))
            con.execute("BEGIN")
            write_refs(con, view, name, words[view.arrays[name].info])
            write_chunks(con, view, name)
            con.execute("COMMIT")
    finally:
        con.close()


def write_plan(con: sqlite3.Connection, view: View, sources: str | None) -> None:
    """``meta``, ``sources``, ``arrays``, ``placements`` and ``remap``."""
    paths = view.paths(sources) if sources else [s.source for s in view.sources]
    meta = {
        "format_version": FORMAT,
        "dataset": view.dataset,
        "title": view.title,
        "plan": view.vrt_for(sources) if sources else view.vrt,
        "attrs": canonical(view.root),
        "attr_dtypes": canonical(view.root_dtypes),
        "varying_attrs": canonical(view.varying),
    }
    con.executemany("INSERT INTO meta VALUES (?, ?)", sorted(meta.items()))
    con.executemany(
        "INSERT INTO sources VALUES (?, ?, ?, ?, ?)",
        [
            (i, path, s.size, s.mtime, s.etag)
            for i, (s, path) in enumerate(zip(view.sources, paths, strict=True), 1)
        ],
    )
    if not sources:
        rules = [(t, p, r) for t, rules in view.remap.items() for p, r in sorted(rules)]
        con.executemany("INSERT INTO remap VALUES (?, ?, ?)", rules)
    for a in view.arrays.values():
        con.execute(f"INSERT INTO arrays VALUES ({', '.join('?' * 14)})", array_row(a)[:14])
        con.executemany(
            "INSERT INTO placements VALUES (?, ?, ?, ?, ?, ?)",
            [
                (
                    a.array,
                    elements(p.dest),
                    view.index[p.source] + 1,
                    p.source_array,
                    elements(p.src_offset),
                    elements(p.count),
                )
                for p in a.placements
            ],
        )


def array_schema(a: Array) -> str:
    """The statements that make an array's chunk table, its keyed rows and ``refs_<array>``."""
    dims = [f"dim_{i}" for i in range(len(a.dims))]
    return schema("published_array").format(
        array=quote(a.array),
        refs_table=quote(f"byterefs_refs_{a.array}"),
        refs_view=quote(f"refs_{a.array}"),
        dims=", ".join(dims),
        dims_declared=",\n    ".join(f"{d} INTEGER NOT NULL" for d in dims),
        dims_of_r=",\n    ".join(f"r.{d} AS {d}" for d in dims),
    )


def write_refs(con: sqlite3.Connection, view: View, name: str, info_id: int) -> None:
    """The global rows of one array, fragment by fragment, in the order of their key."""
    n = len(view.arrays[name].dims)
    statement = f"INSERT INTO {quote(f'byterefs_refs_{name}')} VALUES ({', '.join('?' * (n + 6))})"
    for fragment in view.fragments(name):
        con.executemany(statement, rows_of(view, fragment, info_id))


def rows_of(view: View, fragment: Fragment, info_id: int) -> Iterator[tuple[Any, ...]]:
    """dims, present, source_id, offset, size, info_id, data of every row that the table has."""
    refs = view.refs(fragment.array, fragment.start, fragment.stop)
    grid = (fragment.stop - fragment.start, *view.grid(fragment.array)[1:])
    known = np.flatnonzero(refs.source >= 0)
    keys = np.array(np.unravel_index(known, grid)).T
    keys[:, 0] += fragment.start
    columns = (known, refs.source[known] + 1, refs.offset[known], refs.size[known])
    for key, row, source_id, offset, size in zip(
        keys.tolist(), *(c.tolist() for c in columns), strict=True
    ):
        data = refs.data.get(row)
        if offset != ABSENT:
            yield (*key, 1, source_id, offset, size, info_id, None)
        elif data is not None:
            yield (*key, 1, source_id, None, len(data), info_id, data)
        else:
            yield (*key, 0, source_id, None, None, None, None)


def write_chunks(con: sqlite3.Connection, view: View, name: str) -> None:
    """The physical rows of one array: the same chunks, keyed by their place in the source.

    ``dim_i(source) = dim_i(global) + src_offset_i / c_i - dest_i / c_i`` (mdim-refs/0.2, "The view").
    """
    axes = range(len(view.arrays[name].dims))
    con.execute(
        f"CREATE TEMP TABLE byterefs_slab (source_id, {', '.join(f'first_{i}, last_{i}, shift_{i}' for i in axes)})"
    )
    con.executemany(
        f"INSERT INTO byterefs_slab VALUES (?{', ?, ?, ?' * len(axes)})",
        slabs(view, view.arrays[name]),
    )
    # CROSS JOIN keeps SQLite's order of loops: one seek on dim_0 per slab
    con.execute(
        f"""
        INSERT OR IGNORE INTO {quote(name)}
        SELECT
            r.source_id,
            {", ".join(f"r.dim_{i} + shift_{i}" for i in axes)},
            r.present, r."offset", r.size, i.info, r.data
        FROM byterefs_slab
        CROSS JOIN {quote(f"byterefs_refs_{name}")} AS r
        LEFT JOIN byterefs_info AS i ON i.info_id = r.info_id
        WHERE {" AND ".join(f"r.dim_{i} BETWEEN first_{i} AND last_{i}" for i in axes)}
        ORDER BY {", ".join(str(n + 1) for n in range(len(axes) + 1))}
        """
    )
    con.execute("DROP TABLE byterefs_slab")


def slabs(view: View, a: Array) -> Iterator[tuple[int, ...]]:
    """source_id, then per axis the first and last global key of a placement and the shift to its source."""
    own, c = Slabs.of(a.placements, len(a.dims)), np.array(a.chunks, np.int64)
    ids = np.array([view.index[s] + 1 for s in own.sources], np.int64)
    first, last = own.dest // c, -(-(own.dest + own.count) // c) - 1
    axes = np.stack([first, last, own.src_offset // c - first], axis=2)
    return map(tuple, np.column_stack([ids, axes.reshape(len(ids), -1)]).tolist())


def opening(
    view: View, *, target: str, options: Mapping[str, Any], place: Place
) -> dict[str, list[str]]:
    """The lines that open this form; what is not GDAL fetches the file first."""
    table, file, url = f"refs_{view.shown}", place.gdal(FILE), place.https(FILE)
    python = [f"import urllib.request; urllib.request.urlretrieve({url!r}, {FILE!r})"]
    r = [f'download.file("{url}", "{FILE}", mode = "wb")']
    here = FILE if place.remote else file
    return {
        "gdal": [
            f'ogrinfo -al "{file}" "{table}"',
            f"from osgeo import ogr; ds = ogr.Open({file!r}); print(ds.GetLayerByName({table!r}).GetFeatureCount())",
        ],
        "duckdb": [
            "INSTALL sqlite; LOAD sqlite;"
            + (f"  -- {FILE} is fetched first, from {url}" if place.remote else ""),
            f"SELECT * FROM sqlite_scan('{here}', '{table}') LIMIT 5;",
        ],
        "xarray": as_zarr(
            url if place.remote else file, target, () if place.remote else view.targets
        ),
        "python": [
            *(python if place.remote else ()),
            "import sqlite3",
            f"print(sqlite3.connect({here!r}).execute('SELECT * FROM \"{table}\" LIMIT 5').fetchall())",
        ],
        "r": [
            *(r if place.remote else ()),
            "library(DBI)",
            f'con <- dbConnect(RSQLite::SQLite(), "{here}", bigint = "integer64")',
            f"dbGetQuery(con, 'SELECT * FROM \"{table}\" LIMIT 5')",
        ],
    }


def coverage(view: View) -> dict[str, dict[str, bool | str]]:
    """The rows are read by every SQLite client; decoding is the reader's own."""
    out: dict[str, dict[str, bool | str]] = {}
    for name, a in view.arrays.items():
        reason = numcodecs_refusal(a.codec)
        out[name] = {"rows": True, "numcodecs": True if reason is None else reason}
    return out


class open:
    """The published store as a reader: rows from SQLite, bytes from the sources, decoded with numcodecs."""

    def __init__(self, out: Path, *, access: Callable[[str], str], target: str = "access") -> None:
        # the garbage collector may run the finalizer in a thread of zarr's
        self.con = sqlite3.connect(
            f"{(out / FILE).absolute().as_uri()}?mode=ro", uri=True, check_same_thread=False
        )
        weakref.finalize(self, self.con.close)
        self.access = access
        self.row = {
            row[0]: dict(zip(COLUMNS, row, strict=True))
            for row in self.con.execute(
                f"SELECT {', '.join(map(quote, COLUMNS))} FROM arrays ORDER BY 1"
            )
        }

    def close(self) -> None:
        """Close the connection."""
        self.con.close()

    def arrays(self) -> dict[str, Described]:
        """What the table ``arrays`` says."""
        return {
            name: Described(
                dims=tuple(json.loads(r["dims"])),
                shape=tuple(json.loads(r["shape"])),
                chunks=tuple(json.loads(r["chunks"])),
                dtype=r["dtype"],
                fill=r["fill"],
                attrs=json.loads(r["attrs"]),
                codec=json.loads(r["codec"]),
            )
            for name, r in self.row.items()
        }

    def refs(self, array: str) -> Rows:
        """Every row of ``refs_<array>`` on the whole grid; no row and ``present = 0`` alike are absent."""
        grid = self.grid(array)
        total = prod(grid)
        path: list[str | None] = [None] * total
        offset, size = np.full(total, ABSENT, "i8"), np.full(total, ABSENT, "i8")
        data: dict[int, bytes] = {}
        n = len(grid)
        for row in self.con.execute(
            f"SELECT * FROM {quote(f'refs_{array}')} ORDER BY {', '.join(str(i + 1) for i in range(n))}"
        ):
            at = linear(row[:n], grid)
            present, where, start, length, _, inline = row[n:]
            if present and start is not None:
                path[at], offset[at], size[at] = where, start, length
            elif present:
                data[at] = inline
        return Rows(path, offset, size, data)

    def grid(self, array: str) -> Key:
        """Chunk grid of an array."""
        r = self.row[array]
        return chunk_grid(json.loads(r["shape"]), json.loads(r["chunks"]))

    def read(self, array: str, window: tuple[slice, ...]) -> NDArray[Any]:
        """Stored values of a window, decoded from the bytes that the rows name."""
        described = self.arrays()[array]
        if self.row[array]["storage"] != "referenced":
            return np.asarray(self.values(array, described)[window], described.dtype)
        statement = (
            f'SELECT present, path, "offset", size, data FROM {quote(f"refs_{array}")} '
            f"WHERE {' AND '.join(f'dim_{i} = ?' for i in range(len(described.dims)))}"
        )

        def chunk(key: Key) -> Chunk | None:
            row = self.con.execute(statement, key).fetchone()
            if row is None or not row[0]:
                return None
            _, path, offset, size, data = row
            return Chunk(None if path is None else self.access(path), offset, size, data)

        return read_window(described, window, chunk)

    def values(self, array: str, described: Described) -> NDArray[Any]:
        """All values of a coordinate that is inline or affine."""
        r = self.row[array]
        if r["affine"] is not None:
            spacing = json.loads(r["affine"])
            return np.asarray(
                spacing["start"] + spacing["step"] * np.arange(described.shape[0])
            ).astype(described.dtype)
        return np.frombuffer(r["values"], described.dtype).reshape(described.shape)
