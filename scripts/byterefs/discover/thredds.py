"""Provider `thredds`: the datasets of a THREDDS catalog and of those that it refers to, by fileServer.

A catalog rounds sizes and may tell no date, so a source is new or changed where the catalog tells
something else of it. A dataset that no HTTP file service serves is passed over.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableSequence, Sequence
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urljoin
from xml.etree.ElementTree import Element

from byterefs import urls
from byterefs.discover._remote import crawled, document, odd, parsed_xml
from byterefs.discover.match import matching
from byterefs.model import Source

TOLD = True
HREF = "{http://www.w3.org/1999/xlink}href"
UNITS = {"bytes": 1, "Kbytes": 1000, "Mbytes": 1000**2, "Gbytes": 1000**3, "Tbytes": 1000**4}


def list(source: Mapping[str, Any]) -> Iterator[Source]:
    """Sources by the address at which the server's files lie, in the catalogs' order."""
    given = source["url"]
    root = urls.to_url(given)
    prefix = given[: len(given) - len(root)]
    found = crawled(root, catalog, str)
    return matching(
        ((s.source, s._replace(source=prefix + s.source)) for s in found), source["pattern"], root
    )


def catalog(url: str) -> tuple[Sequence[Source], Sequence[str]]:
    """Datasets of one catalog, and the catalogs that it refers to; DiscoverError if it is none."""
    answer = document(url)
    root = parsed_xml(url, answer)
    if local(root) != "catalog":
        raise odd(url, f"is no THREDDS catalog: its root is {local(root)!r}", answer)
    served = {
        str(s.get("name")): urljoin(answer.url, str(s.get("base")))
        for s in root.iter()
        if local(s) == "service" and str(s.get("serviceType")).lower() in ("httpserver", "http")
    }
    compound = {
        str(s.get("name")): [str(c.get("name")) for c in s if local(c) == "service"]
        for s in root.iter()
        if local(s) == "service"
    }
    sources: MutableSequence[Source] = []
    named: MutableSequence[str] = []
    walk(root, None, Served(served, compound), sources, named, answer.url)
    return sources, named


class Served:
    """Which services of a catalog give whole files."""

    def __init__(self, bases: Mapping[str, str], compound: Mapping[str, Sequence[str]]) -> None:
        self.bases, self.compound = bases, compound

    def base(self, service: str | None) -> str | None:
        """The address below which a service, or one that it is made of, serves files."""
        for name in [service or "", *self.compound.get(service or "", [])]:
            if name in self.bases:
                return self.bases[name]
        return None


def walk(
    element: Element,
    service: str | None,
    served: Served,
    sources: MutableSequence[Source],
    named: MutableSequence[str],
    here: str,
) -> None:
    """Add the datasets below an element; ``service`` is what they inherit."""
    service = own_service(element, inherited=True) or service
    for child in element:
        kind = local(child)
        if kind == "catalogRef":
            named.append(urljoin(here, str(child.get(HREF))))
        elif kind == "dataset":
            base = served.base(own_service(child) or service)
            path = child.get("urlPath")
            if path and base:
                sources.append(Source(urljoin(base, path), size(child), mtime_ns(child)))
            walk(child, service, served, sources, named, here)


def own_service(element: Element, *, inherited: bool = False) -> str | None:
    """The service that an element names for itself, or for what lies below it."""
    name = element.get("serviceName")
    if name and not inherited:
        return name
    for child in element:
        if local(child) == "serviceName" and not inherited:
            return str(child.text).strip()
        if local(child) == "metadata" and (not inherited or child.get("inherited") == "true"):
            for inner in child:
                if local(inner) == "serviceName":
                    return str(inner.text).strip()
    return None


def size(dataset: Element) -> int | None:
    """Bytes, as far as the catalog says."""
    for child in dataset:
        if local(child) == "dataSize" and child.get("units") in UNITS:
            return round(float(child.text or "") * UNITS[str(child.get("units"))])
    return None


def mtime_ns(dataset: Element) -> int | None:
    """When a dataset was modified, as far as the catalog says."""
    for child in dataset:
        if local(child) == "date" and child.get("type") == "modified" and child.text:
            when = datetime.fromisoformat(child.text.strip())
            utc = when if when.tzinfo else when.replace(tzinfo=UTC)
            return round(utc.timestamp()) * 10**9
    return None


def local(element: Element) -> str:
    """An element's name without its namespace."""
    return element.tag.rpartition("}")[2]
