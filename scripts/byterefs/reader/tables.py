"""Which form a table has, by where it lies."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from byterefs import urls
from byterefs.errors import StoreError
from byterefs.reader.sqlite import SqliteTable
from byterefs.reader.table import Table

SQLITE = (".sqlite", ".sqlite3", ".db", ".gpkg")
STORE = "store.sqlite"


def open_table(location: str, target: str | None = "access", drop: Sequence[str] = ()) -> Table:
    """A table by its file (SQLite) or its folder (Parquet, or one that has ``store.sqlite``), here or at a URL.

    Target None is any that a Parquet folder is for, else ``access``. Raises StoreError for what is no table, RemapError for a target that it does not serve.
    """
    if urls.is_local(location):
        path = Path(urls.to_path(location))
        if (path / STORE).is_file():
            return SqliteTable(str(path / STORE), target or "access", drop)
        if path.is_file() and path.name != "arrays.json":
            return SqliteTable(location, target or "access", drop)
        if not (path / "arrays.json").is_file() and path.name != "arrays.json":
            raise StoreError(
                f"{location}: it is neither an SQLite file nor a folder with {STORE} or arrays.json: name "
                f"the form's folder, <…>/sqlite or <…>/parquet"
            )
    elif location.partition("?")[0].endswith(SQLITE):
        return SqliteTable(location, target or "access", drop)
    try:
        from byterefs.reader.parquet import ParquetTable
    except ModuleNotFoundError as error:
        raise StoreError(
            f"{location}: the Parquet form is read with {error.name}, which is not installed: "
            f"pip install 'byterefs[parquet]', or open the sqlite form"
        ) from error
    return ParquetTable(location, target, drop)
