"""Provider `stac`: the assets of the items of a STAC document: ItemCollection, catalogue, or API.

An ItemCollection leads on by its links `next` (GET or POST), a catalogue or collection by `item`,
`child` and `items`. A source is new or changed where its item says so (`updated`, `file:size`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple
from urllib.parse import urljoin

from byterefs import urls
from byterefs.access.web import Answer, post
from byterefs.discover._remote import crawled, document, odd, parsed_json, refusing
from byterefs.discover.match import matching
from byterefs.errors import DiscoverError
from byterefs.files import canonical
from byterefs.model import Source

TOLD = True


class Page(NamedTuple):
    """A document of the catalogue: where it is, and what is posted to get it."""

    url: str
    body: str | None = None


class Found(NamedTuple):
    """What one document holds."""

    sources: Sequence[Source]
    matched: int | None
    """items of the whole search, as an API says"""


def list(source: Mapping[str, Any]) -> Iterator[Source]:
    """Sources by the address of the chosen asset of each item; refused if an API gave fewer items than it has."""
    root = urls.to_url(source["url"])
    asset = source.get("asset")
    found = crawled(Page(root), lambda page: visit(page, asset), canonical)
    sources = [s for each in found for s in each.sources]
    matched = max((f.matched for f in found if f.matched is not None), default=None)
    if matched is not None and matched > len(sources):
        raise DiscoverError(
            f"{root}: it says that {matched} items match and gave {len(sources)}; the listing is cut, run again"
        )
    return matching(((s.source, s) for s in sources), source["pattern"], root)


def visit(page: Page, asset: str | None) -> tuple[Sequence[Found], Sequence[Page]]:
    """The sources of one document, and the documents that it leads to; DiscoverError if it is no STAC."""
    answer = fetched(page)
    found = parsed_json(page.url, answer)
    links = [x for x in found.get("links", []) if isinstance(x, dict) and x.get("href")]
    match found.get("type"):
        case "FeatureCollection":
            items = found.get("features", [])
            following = [turned(page, answer.url, x) for x in links if x.get("rel") == "next"]
            return [Found([chosen(i, asset, answer.url) for i in items], matched(found))], following
        case "Feature":
            return [Found([chosen(found, asset, answer.url)], None)], []
        case "Catalog" | "Collection":
            return [], [Page(urljoin(answer.url, x["href"])) for x in ways(links)]
    raise odd(page.url, f"is no STAC: its type is {found.get('type')!r}", answer)


def ways(links: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
    """The links of a catalogue to what it holds: an API's `items` say all that its `item` links do."""
    items = [x for x in links if x.get("rel") == "items"]
    return [x for x in links if x.get("rel") == "child"] + (
        items or [x for x in links if x.get("rel") == "item"]
    )


def fetched(page: Page) -> Answer:
    """A document, by POST where its body says what is asked for."""
    if page.body is None:
        return document(page.url)
    with refusing():
        return post(page.url, page.body.encode())


def turned(page: Page, here: str, link: Mapping[str, Any]) -> Page:
    """The next page of an ItemCollection."""
    url = urljoin(here, link["href"])
    if str(link.get("method", "GET")).upper() == "GET":
        return Page(url)
    body = dict(link.get("body") or {})
    return Page(url, canonical(body))


def matched(found: Mapping[str, Any]) -> int | None:
    """How many items a search has in all, as its page says."""
    number = found.get("numberMatched", (found.get("context") or {}).get("matched"))
    return number if isinstance(number, int) else None


def chosen(item: Mapping[str, Any], asset: str | None, here: str) -> Source:
    """The chosen asset of one item: the named one, or the only one that is data."""
    assets = item.get("assets") or {}
    names = [asset] if asset else data(assets)
    if len(names) != 1 or names[0] not in assets:
        raise DiscoverError(
            f"{item.get('id')}: its assets are {', '.join(sorted(assets)) or 'none'}, and "
            f"{f'{asset!r} is not among them' if asset else 'not one of them is the data'}; name it in source.asset"
        )
    picked = assets[names[0]]
    properties = item.get("properties") or {}
    when = picked.get("updated") or properties.get("updated")
    size = picked.get("file:size")
    return Source(
        urljoin(here, picked["href"]),
        int(size) if size is not None else None,
        mtime_ns(when),
        picked.get("file:checksum"),
    )


def data(assets: Mapping[str, Any]) -> Sequence[str]:
    """The assets whose role is data, or the only asset."""
    roles = [name for name, a in assets.items() if "data" in (a.get("roles") or [])]
    return roles or ([*assets] if len(assets) == 1 else [])


def mtime_ns(when: str | None) -> int | None:
    """An ISO date as nanoseconds since 1970."""
    if not when:
        return None
    found = datetime.fromisoformat(when)
    utc = found if found.tzinfo else found.replace(tzinfo=UTC)
    return round(utc.timestamp() * 1000) * 10**6
