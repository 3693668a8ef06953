"""Reading a published table: as a Zarr v3 store, and as windows on native chunks.

``xarray.open_zarr(byterefs.open("store.sqlite", target="public"), consolidated=False)`` is lazy;
``byterefs.read(store.array("sst"), (0, slice(100, 200)))`` gives stored values.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from byterefs.reader.fetch import CONCURRENCY
from byterefs.reader.held import LIMIT
from byterefs.reader.windows import DECODED, NativeArray, Values, Window
from byterefs.reader.zarr_store import TableStore


def open(
    location: str | Path,
    *,
    target: str = "access",
    drop: Sequence[str] = (),
    concurrency: int = CONCURRENCY,
    memory: int = DECODED,
    cache: str | Path | None = None,
    cache_limit: int = LIMIT,
) -> TableStore:
    """A published table (form ``sqlite`` or ``parquet``, a path or a URL) as a read-only Zarr v3 store.

    ``target`` says whose paths are read; ``drop`` names arrays to leave out; ``concurrency`` bounds the
    requests at a time, ``memory`` the bytes of decoded chunks that :func:`read` keeps. In the folder
    ``cache`` what was fetched stays, up to about ``cache_limit`` bytes, and is not fetched again.

    Raises StoreError for what is no table of mdim-refs/0.2 or cannot be read right, RemapError for a
    target that the table does not serve.
    """
    return TableStore(
        str(location),
        target=target,
        drop=drop,
        concurrency=concurrency,
        memory=memory,
        cache=cache,
        cache_limit=cache_limit,
    )


def read(array: NativeArray, window: Window = ()) -> Values:
    """The stored values of a window of ``store.array(name)``: slices of step 1 or integers, one per axis.

    Each native chunk is fetched and decoded once, in requests that neighbours share; windows that follow
    each other share what they decoded. An absent chunk reads as fill, a stale source is a RangeError.
    """
    return array.read(window)
