"""Reads the Parquet form: rows through DuckDB, bytes from the sources, decoded with numcodecs."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping, Sequence
from math import prod
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from byterefs import urls
from byterefs.database import quote
from byterefs.emitters import Described, Rows
from byterefs.emitters._table import Chunk, read_window
from byterefs.errors import EmitError
from byterefs.grid import chunk_grid
from byterefs.model import ABSENT, Key


class ParquetReader:
    """Rows by DuckDB, bytes from the sources, decoded with numcodecs."""

    def __init__(self, out: Path, access: Callable[[str], str]) -> None:
        self.out, self.access = out, access
        document = json.loads((out / "arrays.json").read_text())
        self.meta: dict[str, Any] = document["meta"]
        self.rows: dict[str, dict[str, Any]] = document["arrays"]
        self.con = duckdb.connect()

    def close(self) -> None:
        """Close DuckDB."""
        self.con.close()

    def root(self) -> Mapping[str, Any]:
        """Root attributes."""
        found: Mapping[str, Any] = self.meta["attrs"]
        return found

    def arrays(self) -> dict[str, Described]:
        """What ``arrays.json`` says."""
        return {name: self.described(name) for name in sorted(self.rows)}

    def described(self, name: str) -> Described:
        """One array's row."""
        row = self.rows[name]
        return Described(
            dims=tuple(row["dims"]),
            shape=tuple(row["shape"]),
            chunks=tuple(row["chunks"]),
            dtype=row["dtype"],
            fill=row["fill"],
            attrs=row["attrs"],
            codec=row["codec"],
        )

    def files(self, name: str) -> list[str]:
        """The array's Parquet file, or its parts in order."""
        stem = self.out / f"refs_{urls.file_name(name)}"
        whole = stem.with_name(f"{stem.name}.parquet")
        if whole.exists():
            return [str(whole)]
        parts = sorted(stem.glob("part-*.parquet"), key=lambda p: int(p.stem.removeprefix("part-")))
        if not parts:
            raise EmitError(f"{whole}: the form has no rows of {name}; emit it again")
        return [str(part) for part in parts]

    def select(self, name: str, spans: Sequence[range]) -> pa.Table:
        """The rows of a box of chunk keys."""
        where = " AND ".join(f"{quote(f'dim_{i}')} BETWEEN ? AND ?" for i in range(len(spans)))
        bounds = [edge for span in spans for edge in (span.start, span.stop - 1)]
        statement = f"SELECT * FROM read_parquet(?) WHERE {where or 'true'}"
        return self.con.sql(statement, params=[self.files(name), *bounds]).to_arrow_table()

    def refs(self, array: str) -> Rows:
        """Every row on the whole chunk grid; no row and ``present`` 0 alike are absent."""
        row = self.rows[array]
        grid = chunk_grid(row["shape"], row["chunks"])
        table = self.select(array, [range(n) for n in grid])
        dims = [table[f"dim_{i}"].to_numpy() for i in range(len(grid))]
        at = np.ravel_multi_index(dims, grid)
        path: list[str | None] = [None] * prod(grid)
        for i, name in zip(at.tolist(), table["path"].to_pylist(), strict=True):
            path[i] = name
        here = table["path"].is_valid().to_numpy()
        offset, size = np.full(prod(grid), ABSENT, np.int64), np.full(prod(grid), ABSENT, np.int64)
        offset[at[here]] = table["offset"].filter(pa.array(here)).to_numpy()
        size[at[here]] = table["size"].filter(pa.array(here)).to_numpy()
        data = zip(at.tolist(), table["data"].to_pylist(), strict=True)
        return Rows(
            path=path, offset=offset, size=size, data={i: d for i, d in data if d is not None}
        )

    def read(self, array: str, window: tuple[slice, ...]) -> NDArray[Any]:
        """Stored values of a window, decoded from the bytes that the rows name."""
        described, row = self.described(array), self.rows[array]
        if row["storage"] != "referenced":
            values = np.frombuffer(base64.b64decode(row["values"]), described.dtype)
            return np.asarray(values.reshape(described.shape)[window], described.dtype)
        bounds = [s.indices(n)[:2] for s, n in zip(window, described.shape, strict=True)]
        spans = [
            range(lo // c, -(-hi // c)) for (lo, hi), c in zip(bounds, row["chunks"], strict=True)
        ]
        found = self.chunks(self.select(array, spans), len(spans))
        return read_window(described, window, found.get)

    def chunks(self, table: pa.Table, rank: int) -> dict[Key, Chunk]:
        """Present chunks by key, their paths mapped."""
        found = {}
        for row in table.to_pylist():
            if row["present"]:
                path = None if row["path"] is None else self.access(row["path"])
                key = tuple(row[f"dim_{i}"] for i in range(rank))
                found[key] = Chunk(path, row["offset"], row["size"], row["data"])
        return found
