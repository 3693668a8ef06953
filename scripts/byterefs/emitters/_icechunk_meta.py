"""What an Icechunk repository holds beside chunks: documents, containers and splits, and the lines that open it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import icechunk as ic

from byterefs.codecs import pipeline
from byterefs.emitters import Place
from byterefs.emitters._icechunk import Places, splitting
from byterefs.emitters._icechunk_reader import (
    REGION,
    container,
    own_containers,
    own_endpoints,
    stored_config,
)
from byterefs.errors import EmitError
from byterefs.files import canonical, digest
from byterefs.model import Array
from byterefs.view import View
from byterefs.zarr_meta import groups, refuse_codec, registering, zarr3_array, zarr3_group

FORM = "icechunk"
UNNAMED = frozenset(("", ".", "..", "zarr.json"))
"""parts of a name that are no key of a Zarr store, or its metadata"""


def coverage(array: Array) -> dict[str, bool | str]:
    """Which readers decode the array from this form; EmitError if none can."""
    parts = array.array.split("/")
    if "\\" in array.array or not UNNAMED.isdisjoint(parts):
        raise EmitError(
            f"{array.array}: zarr takes a backslash for a group's slash, and dots or zarr.json for no name; the forms "
            f"sqlite, vrt and parquet can hold it: leave the array or the form icechunk out"
        )
    refuse_codec(array, FORM)
    zarr3_array(array)
    lost = sorted(
        {str(c["id"]) for c in pipeline(array.codec)} if array.storage == "referenced" else ()
    )
    return {
        "xarray": True,
        "gdal": f"its Zarr v3 reader has no decoder for {', '.join(lost)}" if lost else True,
        "duckdb": "it does not read Icechunk",
        "r": "it does not read Icechunk",
    }


def depth(key: str) -> tuple[int, str]:
    """Groups before what is in them."""
    return key.count("/"), key


def documents(view: View) -> dict[str, bytes]:
    """``zarr.json`` of the root, of every group and of every array."""
    found = {"zarr.json": zarr3_group(view.root)}
    found |= {f"{group}/zarr.json": zarr3_group({}) for group in groups(view.arrays)}
    found |= {f"{name}/zarr.json": zarr3_array(a) for name, a in view.arrays.items()}
    return {key: canonical(document).encode() for key, document in found.items()}


def fixed(array: Array, view: View) -> str:
    """Digest of what cannot change under an array's chunks: layout, codec, how sources are guarded."""
    if array.storage != "referenced":
        return digest([len(array.shape), array.dtype])
    layout = [array.dims, array.shape[1:], array.chunks, array.dtype, dict(array.codec)]
    return digest([layout, view.targets == ["access"]])


def whole_key(array: Array) -> str:
    """The key of an inline array's only chunk."""
    return "/".join([array.array, "c", *("0" for _ in array.shape)])


def configured(
    containers: Mapping[str, str], splits: Mapping[str, int], endpoint: str | None
) -> ic.RepositoryConfig:
    """Icechunk's defaults, the containers by slug, and the manifest splits."""
    config = ic.RepositoryConfig.default()
    config.storage = for_object_stores()
    for name, url in sorted(containers.items()):
        config.set_virtual_chunk_container(container(name, url, endpoint))
    if splits:
        config.manifest = splitting(splits)
    return config


def for_object_stores() -> ic.StorageSettings:
    """Icechunk's own defaults, said aloud.

    Unsaid, a local build saves those of a local disk, which never tries twice, and the copy in an
    object store keeps them (run with Icechunk 2.3).
    """
    return ic.StorageSettings(
        concurrency=ic.StorageConcurrencySettings(18, 12 * 1024**2),
        retries=ic.StorageRetriesSettings(10, 100, 180_000),
    )


def container_urls(view: View, target: str) -> dict[str, str]:
    """Slug -> URL prefix of every container for a target, unencoded."""
    return Places(view).urls(target)


def up_to_date(out: Path, to: Path, containers: Mapping[str, str], endpoint: str | None) -> bool:
    """Whether a copy holds the same snapshot with these containers."""
    if not (to / "repo").exists() or tip(out) != tip(to):
        return False
    config = stored_config(to)
    same_splits = str(config.manifest) == str(stored_config(out).manifest)
    same_places = own_containers(config) == dict(containers)
    return same_splits and same_places and own_endpoints(config) <= {endpoint}


def tip(out: Path) -> str:
    """The snapshot that branch main points to."""
    return ic.Repository.open(ic.local_filesystem_storage(str(out))).lookup_branch("main")


def opening(
    view: View, *, target: str, options: Mapping[str, Any], place: Place
) -> dict[str, list[str]]:
    """The lines that open this form."""
    containers = container_urls(view, target)
    access = {
        "file": "icechunk.credentials.LocalFileSystemAccess",
        "http": "icechunk.credentials.HttpAccess",
        "https": "icechunk.credentials.HttpAccess",
        "s3": "icechunk.s3_anonymous_credentials()",
    }
    group = f"group={view.shown_era!r}, " if view.shown_era else ""
    pairs = ", ".join(f"{u!r}: {access[u.partition('://')[0]]}" for u in containers.values())
    return {
        "gdal": [f"gdal mdim info 'ZARR:\"/vsiicechunk/{{{place.gdal()}}}\"'"],
        "xarray": [
            "import icechunk, icechunk.credentials, xarray as xr",
            *registering(view.arrays.values(), "zarr"),
            f"access = icechunk.containers_credentials({{{pairs}}})",
            f"repo = icechunk.Repository.open({storage(place)}, authorize_virtual_chunk_access=access)",
            f'ds = xr.open_zarr(repo.readonly_session("main").store, {group}consolidated=False)',
        ],
    }


def storage(place: Place) -> str:
    """The expression by which icechunk reaches the repository."""
    scheme, _, rest = place.url().partition("://")
    if scheme == "s3":
        bucket, _, prefix = rest.partition("/")
        where = {"bucket": bucket, "prefix": prefix, "anonymous": True, "region": REGION}
        if place.endpoint:
            where |= {"endpoint_url": place.endpoint, "force_path_style": True}
        if place.endpoint.startswith("http://"):
            where["allow_http"] = True
        return f"icechunk.s3_storage({', '.join(f'{k}={v!r}' for k, v in where.items())})"
    if place.remote:
        plain = ', {"allow_http": "true"}' if scheme == "http" else ""
        return f'icechunk.http_storage("{place.url()}"{plain})'
    return f'icechunk.local_filesystem_storage("{place.url()}")'
