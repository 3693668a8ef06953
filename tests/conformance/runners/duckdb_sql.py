"""DuckDB on the Parquet form: SQL finds the rows, zlib and numpy decode the bytes."""

import json

import chunks
import duckdb

import report


def read(dataset, array):
    folder = report.form(dataset, "parquet")
    described = json.loads((folder / "arrays.json").read_text())["arrays"][array]
    keys = ", ".join(f"dim_{i}" for i in range(len(described["shape"])))
    files = [str(folder / name) for name in described["files"]]
    found = duckdb.sql(
        f'SELECT {keys}, path, "offset", size, data FROM read_parquet($files) WHERE present = 1',
        params={"files": files},
    ).fetchall()
    return chunks.assembled(described, {row[:-4]: row[-4:] for row in found})


report.main(f"DuckDB {duckdb.__version__}", "parquet", read)
