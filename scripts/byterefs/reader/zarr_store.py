"""A table as a read-only Zarr v3 store: metadata made from its rows, chunks fetched where they lie."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

from zarr.abc.store import (
    ByteRequest,
    OffsetByteRequest,
    RangeByteRequest,
    Store,
    SuffixByteRequest,
)
from zarr.core.buffer import Buffer, BufferPrototype

from byterefs.errors import EmitError
from byterefs.model import Key
from byterefs.reader.fetch import CONCURRENCY, Fetcher
from byterefs.reader.held import LIMIT, Held
from byterefs.reader.table import Ref, Table
from byterefs.reader.tables import open_table
from byterefs.reader.windows import DECODED, Decoded, NativeArray
from byterefs.zarr_meta import groups, zarr3_array, zarr3_group

GATHER = 0.002
"""seconds: chunks that are asked for no further apart are fetched together"""

Chunk = tuple[str, Key]
"""an array and a chunk key"""


class TableStore(Store):
    """The arrays of a published table, each chunk's encoded bytes as its source has them.

    Chunks that are asked for together are fetched together: neighbours in one request. An absent chunk
    has no key. Nothing can be written.
    """

    supports_writes = False
    supports_deletes = False
    supports_listing = True
    supports_partial_writes = False
    supports_consolidated_metadata = False

    def __init__(
        self,
        location: str,
        *,
        target: str | None = "access",
        drop: Sequence[str] = (),
        concurrency: int = CONCURRENCY,
        memory: int = DECODED,
        cache: str | Path | None = None,
        cache_limit: int = LIMIT,
        read_only: bool = True,
    ) -> None:
        if not read_only:
            raise ValueError(f"{location}: a published table is read-only")
        super().__init__(read_only=True)
        self.location, self.drop = str(location), tuple(drop)
        self._options: dict[str, Any] = {
            "concurrency": concurrency,
            "memory": memory,
            "cache": cache,
            "cache_limit": cache_limit,
        }
        self.held = None if cache is None else Held(Path(cache), cache_limit)
        self.table: Table = open_table(self.location, target, self.drop)
        self.target = self.table.target
        self.fetcher = Fetcher(concurrency, self.held)
        self._decoded = Decoded(memory)
        self._documents: dict[str, bytes] = {}
        self._pending: dict[
            asyncio.AbstractEventLoop, dict[Chunk, asyncio.Future[bytes | None]]
        ] = {}

    # --- what it is --------------------------------------------------------------------------------

    def __repr__(self) -> str:
        return f"TableStore({self.location!r}, target={self.target!r})"

    __str__ = __repr__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TableStore) and self._same() == other._same()

    __hash__ = None  # type: ignore[assignment]

    def _same(self) -> tuple[Any, ...]:
        return self.location, self.target, self.drop

    def __reduce__(self) -> tuple[Any, ...]:
        return again, (self.location, self.target, self.drop, self._options)

    def with_read_only(self, read_only: bool = False) -> TableStore:
        """Another one of the same table; ValueError unless it is to be read-only."""
        return TableStore(
            self.location, target=self.target, drop=self.drop, read_only=read_only, **self._options
        )

    def close(self) -> None:
        """Let go of files and connections."""
        super().close()
        self.table.close()
        if self.held is not None:
            self.held.close()

    # --- native chunks -----------------------------------------------------------------------------

    @property
    def arrays(self) -> list[str]:
        """The names of all arrays."""
        return sorted(self.table.arrays)

    def array(self, name: str) -> NativeArray:
        """An array for :func:`byterefs.read`."""
        return NativeArray(self.table, name, self.fetcher, self._decoded)

    # --- reading -----------------------------------------------------------------------------------

    async def get(
        self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None = None
    ) -> Buffer | None:
        """The bytes of a metadata document or a chunk, or a part of them; None where there is none."""
        await self._ensure_open()
        wanted, chunk = part(byte_range), self._chunk(key)
        data = self._document(key) if chunk is None else await self._together(chunk)
        return None if data is None else prototype.buffer.from_bytes(data[wanted])

    async def get_partial_values(
        self, prototype: BufferPrototype, key_ranges: Iterable[tuple[str, ByteRequest | None]]
    ) -> list[Buffer | None]:
        """Several at once."""
        return await asyncio.gather(*(self.get(key, prototype, r) for key, r in key_ranges))

    async def exists(self, key: str) -> bool:
        """Whether a key has bytes; of a chunk by the table alone."""
        chunk = self._chunk(key)
        if chunk is None:
            return self._document(key) is not None
        return bool(await asyncio.to_thread(self._bytes_known, chunk))

    async def getsize(self, key: str) -> int:
        """Bytes of a value, of a chunk by the table alone; FileNotFoundError where there is none."""
        chunk = self._chunk(key)
        document = self._document(key) if chunk is None else None
        if chunk is None:
            size = None if document is None else len(document)
        else:
            size = await asyncio.to_thread(self._bytes_known, chunk)
        if size is None:
            raise FileNotFoundError(key)
        return size

    def _bytes_known(self, chunk: Chunk) -> int | None:
        name, key = chunk
        if self.table.array(name).storage != "referenced":
            return len(self.table.values(name))
        ref = self.table.at(name, [key]).get(key)
        return None if ref is None else ref.size

    def _chunk(self, key: str) -> Chunk | None:
        """``sst/c/0/1`` as an array and a chunk key; None for any other key."""
        head, _, tail = key.rpartition("/c/") if "/c/" in key else (key.removesuffix("/c"), "", "")
        if head == key or head not in self.table.arrays:
            return None
        texts = tail.split("/") if tail else []
        if not all(t.isdecimal() and t.isascii() for t in texts):
            return None
        at = tuple(map(int, texts))
        grid = self.array(head).grid
        inside = len(at) == len(grid) and all(k < n for k, n in zip(at, grid, strict=True))
        return (head, at) if inside else None

    def _document(self, key: str) -> bytes | None:
        """A ``zarr.json``; EmitError for an array that Zarr v3 cannot express."""
        if key not in self._documents:
            node = key.removesuffix("zarr.json").removesuffix("/")
            if node + ("/" if node else "") + "zarr.json" != key:
                return None
            if node in self.table.arrays:
                document = self._described(node)
            elif node == "" or node in groups(self.table.arrays):
                document = zarr3_group({} if node else self.table.root)
            else:
                return None
            self._documents[key] = json.dumps(document, allow_nan=False).encode()
        return self._documents[key]

    def _described(self, name: str) -> dict[str, Any]:
        try:
            return zarr3_array(self.table.array(name))
        except (EmitError, ImportError) as error:
            raise EmitError(
                f"{self.location}, array {name!r}: zarr cannot read it ({error}); open the table with "
                f"drop=[{name!r}], or read it by byterefs.read"
            ) from error

    # --- together ----------------------------------------------------------------------------------

    async def _together(self, chunk: Chunk) -> bytes | None:
        """The bytes of a chunk, fetched with all others that are asked for within GATHER."""
        loop = asyncio.get_running_loop()
        pending = self._pending.setdefault(loop, {})
        if not pending:
            loop.call_later(GATHER, self._flush, loop)
        if chunk not in pending:
            pending[chunk] = loop.create_future()
        # shielded: one reader that gives up must not take the bytes from another
        return await asyncio.shield(pending[chunk])

    def _flush(self, loop: asyncio.AbstractEventLoop) -> None:
        asked = self._pending.pop(loop)
        task = asyncio.ensure_future(asyncio.to_thread(self._fetch, list(asked)), loop=loop)
        task.add_done_callback(lambda done: settle(asked, done))

    def _fetch(self, chunks: Sequence[Chunk]) -> dict[Chunk, bytes | None]:
        found: dict[Chunk, bytes | None] = dict.fromkeys(chunks)
        refs: dict[Chunk, Ref] = {}
        for name in dict.fromkeys(name for name, _ in chunks):
            keys = [key for array, key in chunks if array == name]
            if self.table.array(name).storage == "referenced":
                refs |= {(name, key): ref for key, ref in self.table.at(name, keys).items()}
            else:
                found |= {(name, key): self.table.values(name) for key in keys}
        return found | dict(zip(refs, self.fetcher.fetch(list(refs.values())), strict=True))

    # --- listing -----------------------------------------------------------------------------------

    async def list(self) -> AsyncIterator[str]:
        """Every key, chunks row by row of their grid."""
        async for key in self.list_prefix(""):
            yield key

    async def list_prefix(self, prefix: str) -> AsyncIterator[str]:
        """Every key that starts with ``prefix``; absent chunks have none."""
        for node in sorted({"", *groups(self.table.arrays), *self.table.arrays}):
            key = f"{node}/zarr.json" if node else "zarr.json"
            if key.startswith(prefix):
                yield key
            if node in self.table.arrays and (node + "/c").startswith(prefix[: len(node) + 2]):
                for chunk in await asyncio.to_thread(self._present, node):
                    if chunk.startswith(prefix):
                        yield chunk

    def _present(self, name: str) -> Sequence[str]:
        grid = self.array(name).grid
        if self.table.array(name).storage != "referenced":
            keys: Iterable[Key] = product(*map(range, grid))
        else:
            keys = (ref.key for ref in self.table.find(name, [range(n) for n in grid]))
        return ["/".join([f"{name}/c", *map(str, key)]) for key in keys]

    async def list_dir(self, prefix: str) -> AsyncIterator[str]:
        """Names right below ``prefix``; below an array's ``c`` those of its whole grid's rows."""
        prefix = prefix.strip("/")
        nodes = {"", *groups(self.table.arrays), *self.table.arrays}
        if prefix not in nodes:
            inside = [k async for k in self.list_prefix(f"{prefix}/")] if prefix else []
            for name in sorted({k.removeprefix(f"{prefix}/").split("/")[0] for k in inside}):
                yield name
            return
        start = f"{prefix}/" if prefix else ""
        below = {n.removeprefix(start).split("/")[0] for n in nodes if n and n.startswith(start)}
        yield "zarr.json"
        for name in sorted(below | ({"c"} if prefix in self.table.arrays else set())):
            yield name

    # --- writing -----------------------------------------------------------------------------------

    async def set(self, key: str, value: Buffer) -> None:
        """ValueError: the store is read-only."""
        self._check_writable()

    async def delete(self, key: str) -> None:
        """ValueError: the store is read-only."""
        self._check_writable()


def again(
    location: str, target: str, drop: Sequence[str], options: Mapping[str, Any]
) -> TableStore:
    """A store that was pickled."""
    return TableStore(location, target=target, drop=drop, **options)


def part(byte_range: ByteRequest | None) -> slice:
    """A byte request as a slice; ValueError for anything else."""
    match byte_range:
        case None:
            return slice(None)
        case RangeByteRequest(start, end):
            return slice(start, end)
        case OffsetByteRequest(offset):
            return slice(offset, None)
        case SuffixByteRequest(suffix):
            return slice(-suffix, None) if suffix else slice(0)
    raise ValueError(f"Unexpected byte_range, got {byte_range}.")


def settle(
    asked: dict[Chunk, asyncio.Future[bytes | None]],
    done: asyncio.Future[dict[Chunk, bytes | None]],
) -> None:
    """Give every reader its chunk, or the error."""
    error = None if done.cancelled() else done.exception()
    for chunk, future in asked.items():
        if future.done():
            continue
        if done.cancelled():
            future.cancel()
        elif error is not None:
            future.set_exception(error)
        else:
            future.set_result(done.result()[chunk])
