"""Reads an Icechunk repository through icechunk and zarr; its containers and their access."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from math import prod
from pathlib import Path
from typing import Any, cast

import icechunk as ic
import numpy as np
import zarr
from icechunk.credentials import HttpAccess, LocalFileSystemAccess
from numpy.typing import NDArray
from zarr.core.buffer import default_buffer_prototype

from byterefs import urls
from byterefs.codecs import COMPRESSORS
from byterefs.emitters import Described, Rows
from byterefs.errors import EmitError
from byterefs.grid import chunk_grid
from byterefs.zarr_meta import register_zarr3, zarr2_codec

CONTAINERS = "containers.json"
"""beside the repository: target -> slug -> URL prefix"""
REGION = "us-east-1"
VIRTUAL = 2
"""the kind of a virtual chunk in Icechunk's batches"""


def container(name: str, url: str, endpoint: str | None = None) -> ic.VirtualChunkContainer:
    """A container over local files, HTTP or anonymous S3, at an ``endpoint`` where it is not AWS's."""
    return ic.VirtualChunkContainer(url, chunk_store(url, endpoint), name=name)


def chunk_store(url: str, endpoint: str | None, *, anonymous: bool = True) -> Any:
    """The store that Icechunk reads a URL prefix from."""
    scheme, _, rest = url.partition("://")
    match scheme:
        case "file":
            return ic.local_filesystem_store(rest)
        case "http" | "https":
            return ic.http_store({"allow_http": "true"} if scheme == "http" else {})
        case "s3" if endpoint:
            return ic.s3_store(
                region=REGION, endpoint_url=endpoint, allow_http=endpoint.startswith("http://"), anonymous=anonymous,
                s3_compatible=True, force_path_style=True,
            )  # fmt: skip
        case "s3":
            return ic.s3_store(region=REGION, anonymous=anonymous)
    raise EmitError(
        f"{url}: Icechunk reads virtual chunks from file, http, https and s3, not from {scheme}; map "
        f"the prefix to one of these under remap:"
    )


def credential(url: str) -> Any:
    """Access without a login, by the kind of URL."""
    if url.startswith("file://"):
        return LocalFileSystemAccess
    return HttpAccess if url.startswith("http") else ic.s3_anonymous_credentials()


def reading(name: str, url: str) -> tuple[ic.VirtualChunkContainer, Any]:
    """A container that is read here and now, and the access to it: buckets as sources are asked for."""
    if not url.startswith("s3://"):
        return container(name, url), credential(url)
    from byterefs.access import buckets

    endpoint, keys = buckets.endpoint(), buckets.keys()
    store = chunk_store(url, endpoint, anonymous=keys is None)
    told = ic.s3_anonymous_credentials() if keys is None else ic.s3_credentials(**cast(Any, keys))
    return ic.VirtualChunkContainer(url, store, name=name), told


def stored_config(out: Path) -> ic.RepositoryConfig:
    """The configuration inside the repository; EmitError if there is none."""
    config = ic.Repository.fetch_config(ic.local_filesystem_storage(str(out)))
    if config is None:
        raise EmitError(f"{out}: the repository has no configuration; delete it and run again")
    return config


def own_containers(config: ic.RepositoryConfig) -> dict[str, str]:
    """Slug -> URL prefix, as configured."""
    found = config.virtual_chunk_containers or {}
    return {str(c.name): c.url_prefix for c in found.values()}


def own_endpoints(config: ic.RepositoryConfig) -> set[str | None]:
    """The endpoints of the containers that are buckets, as configured."""
    found = (config.virtual_chunk_containers or {}).values()
    return {
        getattr(cast(Any, c.store)._0, "endpoint_url", None)
        for c in found
        if c.url_prefix.startswith("s3://")
    }


class IcechunkReader:
    """Reads a repository without changing it."""

    def __init__(self, out: Path, access: Callable[[str], str], target: str) -> None:
        ic.set_logs_filter("error")
        self._storage = ic.local_filesystem_storage(str(out))
        published = published_containers(out, target)
        here = {name: bound(url, access) for name, url in published.items()}
        register_zarr3()
        self._published = self.session(out, published)
        self._group = zarr.open_group(self.session(out, here).store, mode="r", zarr_format=3)

    def close(self) -> None:
        """Nothing is held open: sessions read files as they need them."""

    def root(self) -> Mapping[str, Any]:
        """Root attributes."""
        return self._group.attrs.asdict()

    def session(self, out: Path, containers: Mapping[str, str]) -> ic.Session:
        """A session with these containers, whatever the configuration says."""
        config = stored_config(out)
        told = {}
        for name, url in containers.items():
            bound_here, told[url] = reading(name, url)
            config.set_virtual_chunk_container(bound_here)
        access = ic.containers_credentials(told)
        repo = ic.Repository.open(
            self._storage, config=config, authorize_virtual_chunk_access=access
        )
        return repo.readonly_session("main")

    def arrays(self) -> dict[str, Described]:
        """What the arrays' ``zarr.json`` say."""
        found = self._group.members(max_depth=None)
        return {n: describe(a) for n, a in sorted(found) if isinstance(a, zarr.Array)}

    def array(self, name: str) -> zarr.Array[Any]:
        """One array; EmitError if the repository has none of this name."""
        found = self._group.get(name)
        if not isinstance(found, zarr.Array):
            raise EmitError(f"{name}: the repository has no array of this name; emit it again")
        return found

    def refs(self, array: str) -> Rows:
        """Every reference of an array; locations as the target's containers spell them, encoded."""
        found = self.array(array)
        rows = References(chunk_grid(found.shape, found.chunks))
        asyncio.run(rows.read(self._published.store, array))
        return Rows(path=rows.path, offset=rows.offset, size=rows.size, data=rows.data)

    def read(self, array: str, window: tuple[slice, ...]) -> NDArray[Any]:
        """Stored values of a window through zarr."""
        found = self.array(array)
        return np.asarray(found[window]).astype(describe(found).dtype)


def published_containers(out: Path, target: str) -> dict[str, str]:
    """Slug -> URL prefix for a target; a copy of :func:`retarget` has those of its own target only."""
    own = own_containers(stored_config(out))
    if not (out / CONTAINERS).exists():
        return own
    known: dict[str, dict[str, str]] = json.loads((out / CONTAINERS).read_text())
    if own != known["access"]:
        raise EmitError(
            f"{out}: the repository's containers are {own}, but it was written with "
            f"{known['access']}; somebody edited it: delete the folder and run again"
        )
    if target not in known:
        raise EmitError(f"{out}: no remap target {target!r}; there are {', '.join(known)}")
    return known[target]


def bound(url: str, access: Callable[[str], str]) -> str:
    """A container's URL prefix where ``access`` says that it can be read."""
    published = urls.to_icechunk(url)
    here = access(published)
    return url if here == published else urls.plain(here)


def describe(array: zarr.Array[Any]) -> Described:
    """One array as its ``zarr.json`` describes it; the dtype with the byte order of the bytes codec."""
    document = json.loads(
        array.metadata.to_buffer_dict(default_buffer_prototype())["zarr.json"].to_bytes()
    )
    codecs = document["codecs"]
    endian = next(
        (c.get("configuration", {}).get("endian") for c in codecs if c["name"] == "bytes"), None
    )
    kind = np.dtype(array.dtype).newbyteorder(">" if endian == "big" else "<")
    filters = [f for c in codecs if (f := zarr2_codec(c, kind, array.chunks))]
    return Described(
        dims=tuple(document.get("dimension_names") or ()),
        shape=array.shape,
        chunks=array.chunks,
        dtype=kind.str,
        fill=document["fill_value"],
        attrs=document["attributes"],
        codec=v2_codec(filters),
    )


def v2_codec(configs: list[dict[str, Any]]) -> dict[str, Any]:
    """A pipeline as the table writes it: the last config is the compressor if it is one."""
    compressor = configs.pop() if configs and configs[-1]["id"] in COMPRESSORS else None
    return {"compressor": compressor, "filters": configs or None}


class References:
    """Columns over an array's chunk grid, filled from Icechunk's batches."""

    def __init__(self, grid: tuple[int, ...]) -> None:
        self.grid = grid
        self.path: list[str | None] = [None] * prod(grid)
        self.offset = np.full(prod(grid), -1, np.int64)
        self.size = np.full(prod(grid), -1, np.int64)
        self.data: dict[int, bytes] = {}

    async def read(self, store: ic.IcechunkStore, array: str) -> None:
        """Take in every chunk of an array."""
        names: dict[str, str] = {}
        async for keys, kinds, paths, offsets, sizes, inlined in store.array_chunk_iterator(
            f"/{array}"
        ):
            rows = np.zeros(len(kinds), np.int64)
            if self.grid:
                rows[:] = np.ravel_multi_index(tuple(keys.T), self.grid)
            for i in np.flatnonzero(kinds == VIRTUAL).tolist():
                url = paths[i]
                if url not in names:  # the container's part comes unencoded, the rest encoded
                    names[url] = urls.to_icechunk(urls.from_icechunk(url))
                self.path[rows[i]] = names[url]
            virtual = kinds == VIRTUAL
            self.offset[rows[virtual]], self.size[rows[virtual]] = offsets[virtual], sizes[virtual]
            for i in np.flatnonzero(~virtual).tolist():
                self.data[int(rows[i])] = inlined.get(i) or await self.native(store, array, keys[i])

    async def native(self, store: ic.IcechunkStore, array: str, key: NDArray[Any]) -> bytes:
        """The bytes of a chunk that is stored in the repository."""
        name = "/".join([array, "c", *map(str, key.tolist())])
        buffer = await store.get(name, default_buffer_prototype())
        if buffer is None:
            raise EmitError(f"{name}: the repository lists this chunk and does not have it")
        return buffer.to_bytes()
