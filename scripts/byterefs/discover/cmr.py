"""Provider `cmr`: granules of a search in NASA's Common Metadata Repository, by its UMM-JSON.

`source.url` is the search, `…/search/granules.umm_json?collection_concept_id=…` (`.json` is taken for it).
A granule is new or changed where its production date, size or revision is another one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableSequence
from datetime import datetime
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from byterefs.access import web
from byterefs.discover._remote import CONNECTIONS, parsed_json, refusing
from byterefs.discover.match import matching
from byterefs.errors import DiscoverError
from byterefs.model import Source

TOLD = True
PAGE = 2000
"""granules in one answer: what the server allows at most"""
AFTER = "CMR-Search-After"
DATA = {"https": ("GET DATA",), "s3": ("GET DATA VIA DIRECT ACCESS",)}
"""scheme -> the types of links that lead to a granule's file"""


def list(source: Mapping[str, Any]) -> Iterator[Source]:
    """Sources by https, or by s3 with `asset: s3`; refused if fewer granules came than the search found."""
    url = search(source["url"])
    scheme = "s3" if source.get("asset") == "s3" else "https"
    found: MutableSequence[Source] = []
    hits: int | None = None
    after: Mapping[str, str] = {}
    while True:
        answer = asked(url, after)
        page = parsed_json(url, answer).get("items", [])
        hits = int(answer.headers.get("CMR-Hits", 0)) if hits is None else hits
        found += [granule(item, scheme) for item in page]
        following = answer.headers.get(AFTER)
        if not following or not page:
            break
        after = {AFTER: following}
    if hits is not None and len(found) < hits:
        raise DiscoverError(
            f"{web.shown(url)}: the search has {hits} granules and gave {len(found)}; the listing is cut, run again"
        )
    return matching(((s.source, s) for s in found), source["pattern"], web.shown(url))


def search(url: str) -> str:
    """The search's address for UMM-JSON, in pages, in an order that does not change."""
    parts = urlsplit(url)
    path = parts.path.removesuffix(".json").removesuffix(".umm_json") + ".umm_json"
    query = dict(parse_qsl(parts.query)) | {"page_size": str(PAGE)}
    pairs = [(k, v) for k, v in parse_qsl(parts.query) if k != "page_size"]
    pairs.append(("page_size", query["page_size"]))
    return urlunsplit((parts.scheme, parts.netloc, path, urlencode(pairs), ""))


def asked(url: str, headers: Mapping[str, str]) -> web.Answer:
    """One page of the search."""
    with refusing():
        return web.get(url, headers=headers, concurrency=CONNECTIONS)


def granule(item: Mapping[str, Any], scheme: str) -> Source:
    """The file of one granule."""
    umm, meta = item.get("umm", {}), item.get("meta", {})
    links = [
        str(r["URL"])
        for r in umm.get("RelatedUrls", [])
        if r.get("Type") in DATA[scheme] and urlsplit(str(r.get("URL"))).scheme in (scheme, "http")
    ]
    if len(links) != 1:
        raise DiscoverError(
            f"{umm.get('GranuleUR')}: it has {len(links)} links to data by {scheme}, not one; choose the other "
            f"kind with source.asset (https or s3), or narrow the search in source.url"
        )
    return Source(links[0], size(umm), mtime_ns(umm), revision(meta))


def size(umm: Mapping[str, Any]) -> int | None:
    """Bytes of the granule's file, where there is one figure."""
    files = (umm.get("DataGranule") or {}).get("ArchiveAndDistributionInformation") or []
    sizes = [f["SizeInBytes"] for f in files if "SizeInBytes" in f]
    return int(sizes[0]) if len(sizes) == 1 else None


def mtime_ns(umm: Mapping[str, Any]) -> int | None:
    """When the granule was produced."""
    when = (umm.get("DataGranule") or {}).get("ProductionDateTime")
    return round(datetime.fromisoformat(when).timestamp() * 1000) * 10**6 if when else None


def revision(meta: Mapping[str, Any]) -> str | None:
    """Concept and revision of the granule's record."""
    if "concept-id" not in meta:
        return None
    return f"{meta['concept-id']}/{meta.get('revision-id', 1)}"
