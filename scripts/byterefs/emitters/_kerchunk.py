"""Reads the kerchunk form through fsspec and zarr, as its users do."""

from __future__ import annotations

import json
import shutil
import tempfile
import warnings
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import zarr
from numpy.typing import NDArray

from byterefs.codecs import register_imagecodecs
from byterefs.emitters import Described, Rows
from byterefs.errors import EmitError
from byterefs.grid import chunk_grid
from byterefs.model import Key


@contextmanager
def quiet() -> Iterator[None]:
    """No word of what fsspec 2026.9 does: it asks pandas for fastparquet, which pandas 3.1 deprecates."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The 'fastparquet' engine is deprecated")
        warnings.filterwarnings("ignore", message="The 'future.infer_string' option is deprecated")
        yield


class KerchunkReader:
    """Reads values through fsspec's LazyReferenceMapper, from copies of the partitions with mapped paths."""

    def __init__(self, out: Path, access: Callable[[str], str]) -> None:
        with quiet():
            import_module("fastparquet")  # here, and not first in the thread of zarr's event loop
        register_imagecodecs()
        self.out, self.access = out, access
        document = json.loads((out / ".zmetadata").read_text())
        self.metadata: dict[str, Any] = document["metadata"]
        self.record = int(document["record_size"])
        self._copy = Path(tempfile.mkdtemp(prefix="byterefs-kerchunk-"))
        self._remove = weakref.finalize(self, shutil.rmtree, self._copy, ignore_errors=True)
        self._copied: set[str] = set()
        self._protocols = {"file"}
        shutil.copy(out / ".zmetadata", self._copy)
        self._group = self.group()

    def group(self) -> zarr.Group:
        """The copy through fsspec, which has to be told the protocols of the paths."""
        options = {p: remote(p) for p in self._protocols}
        told: dict[str, Any] = {"fs": options} if len(options) > 1 else {"remote_protocol": "file"}
        store = zarr.storage.FsspecStore.from_url(
            "reference://", storage_options={"fo": str(self._copy), **told}, read_only=True
        )
        return zarr.open_group(store, mode="r", zarr_format=2)

    def close(self) -> None:
        """Remove the copies of the partitions."""
        self._remove()

    def root(self) -> Mapping[str, Any]:
        """Root attributes."""
        found: Mapping[str, Any] = self.metadata[".zattrs"]
        return found

    def arrays(self) -> dict[str, Described]:
        """What ``.zmetadata`` says."""
        names = sorted(k.removesuffix("/.zarray") for k in self.metadata if k.endswith("/.zarray"))
        return {name: self.described(name) for name in names}

    def described(self, name: str) -> Described:
        """One array as ``.zarray`` and ``.zattrs`` describe it."""
        meta, attrs = self.metadata[f"{name}/.zarray"], dict(self.metadata[f"{name}/.zattrs"])
        return Described(
            dims=tuple(attrs.pop("_ARRAY_DIMENSIONS")),
            shape=tuple(meta["shape"]),
            chunks=tuple(meta["chunks"]),
            dtype=meta["dtype"],
            fill=meta["fill_value"],
            attrs=attrs,
            codec={"compressor": meta["compressor"], "filters": meta["filters"]},
        )

    def grid(self, name: str) -> Key:
        """The chunk grid of an array."""
        meta = self.metadata[f"{name}/.zarray"]
        return chunk_grid(meta["shape"], meta["chunks"])

    def refs(self, array: str) -> Rows:
        """Every row of the partitions, absent ones with path None."""
        rows = prod(self.grid(array))
        path: list[str | None] = [None] * rows
        offset, size = np.full(rows, -1, np.int64), np.full(rows, -1, np.int64)
        data: dict[int, bytes] = {}
        for p in range(-(-rows // self.record)):
            file, start = self.out / array / f"refs.{p}.parq", p * self.record
            if file.exists():
                fill_rows(pq.ParquetFile(file).read(), start, path, offset, size, data)
        return Rows(path=path, offset=offset, size=size, data=data)

    def read(self, array: str, window: tuple[slice, ...]) -> NDArray[Any]:
        """Stored values of a window through zarr."""
        for p in self.partitions(array, window):
            self.copy(f"{array}/refs.{p}.parq")
        with quiet():
            found = self._group[array]
            if not isinstance(found, zarr.Array):
                raise EmitError(f"{array}: the form has a group of this name, not an array")
            # a scalar text comes as bytes without the NULs at its end
            return np.asarray(found[window], found.dtype)

    def partitions(self, array: str, window: tuple[slice, ...]) -> list[int]:
        """Numbers of the partitions that hold the chunks of a window."""
        grid, meta = self.grid(array), self.metadata[f"{array}/.zarray"]
        spans = [
            range(s.start // c, -(-s.stop // c))
            for s, c in zip(normal(window, meta["shape"]), meta["chunks"], strict=True)
        ]
        if not all(spans):
            return []
        rows = np.ravel_multi_index(np.ix_(*spans), grid) if grid else np.zeros(1, int)
        return [int(p) for p in np.unique(rows // self.record)]

    def copy(self, file: str) -> None:
        """A partition with its paths mapped, in the folder that is read."""
        if file in self._copied or not (self.out / file).exists():
            return
        self._copied.add(file)
        table = pq.ParquetFile(self.out / file).read()
        path = table["path"].combine_chunks().dictionary_encode()
        here = [self.access(p) for p in path.dictionary.to_pylist()]
        mapped = pa.array(here, pa.string())
        table = table.set_column(0, "path", pa.DictionaryArray.from_arrays(path.indices, mapped))
        (self._copy / file).parent.mkdir(parents=True, exist_ok=True)
        write_table(table, self._copy / file)
        protocols = self._protocols | {p.partition("://")[0] for p in here if "://" in p}
        if protocols != self._protocols:
            self._protocols = protocols
            self._group = self.group()


def remote(protocol: str) -> dict[str, Any]:
    """Options of the file system of a protocol; zarr asks for asynchronous ones where there are any."""
    if protocol == "s3":
        from byterefs.access import buckets

        return buckets.fsspec_options()
    return {} if protocol == "file" else {"asynchronous": True}


def normal(window: tuple[slice, ...], shape: Sequence[int]) -> list[slice]:
    """A window with its ends filled in."""
    return [slice(*s.indices(n)[:2]) for s, n in zip(window, shape, strict=True)]


def fill_rows(
    table: pa.Table,
    start: int,
    path: list[str | None],
    offset: NDArray[np.int64],
    size: NDArray[np.int64],
    data: dict[int, bytes],
) -> None:
    """Put the present rows of one partition into columns of the whole array."""
    stop = start + len(table)
    path[start:stop] = table["path"].to_pylist()
    here = table["path"].is_valid().to_numpy()
    offset[start:stop] = np.where(here, table["offset"].to_numpy(), -1)
    size[start:stop] = np.where(here, table["size"].to_numpy(), -1)
    raw = table["raw"]
    if raw.null_count < len(raw):
        data |= {start + i: d for i, d in enumerate(raw.to_pylist()) if d is not None}


def write_table(table: pa.Table, path: Path) -> bool:
    """One row group, plain types in the schema, no pandas metadata (peers.md, 0.12)."""
    pq.write_table(
        table,
        path,
        compression="zstd",
        use_dictionary=["path"],
        store_schema=False,
        row_group_size=max(1, len(table)),
    )
    return True
