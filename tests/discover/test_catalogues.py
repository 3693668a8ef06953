"""Providers `thredds`, `stac` and `cmr`: catalogues on loopback, and documents that are none."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

import serving
from byterefs import discover
from byterefs.access import web
from byterefs.errors import DiscoverError
from serving import Handler, Web


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Web]:
    monkeypatch.setattr(web, "PAUSE", 0.001)
    with serving.web(tmp_path) as found:
        yield found


def listed(provider: str, url: str, **source: Any) -> dict[str, tuple[Any, ...]]:
    section = {"url": url, "pattern": r"\.nc$", **source}
    return {s.source: s[1:] for s in discover.load(provider).list(section)}


# --- thredds ---------------------------------------------------------------------------------------

CATALOG = """<?xml version="1.0" encoding="UTF-8"?>
<catalog xmlns="http://www.unidata.ucar.edu/namespaces/thredds/InvCatalog/v1.0" xmlns:xlink="http://www.w3.org/1999/xlink">
  <service name="all" serviceType="Compound" base="">
    <service name="odap" serviceType="OPENDAP" base="/thredds/dodsC/"/>
    <service name="file" serviceType="HTTPServer" base="/thredds/fileServer/"/>
  </service>
  <dataset name="top" ID="top">
    <metadata inherited="true"><serviceName>all</serviceName></metadata>
    <dataset name="a.nc" urlPath="x/a.nc"><dataSize units="Kbytes">1.5</dataSize>
      <date type="modified">2020-09-01T12:34:05Z</date></dataset>
    <dataset name="b.nc" urlPath="x/b.nc"><serviceName>odap</serviceName></dataset>
    <catalogRef xlink:href="sub/catalog.xml" xlink:title="sub"/>
    <catalogRef xlink:href="catalog.xml" xlink:title="itself"/>
  </dataset>
</catalog>"""
SUB = """<catalog xmlns="http://www.unidata.ucar.edu/namespaces/thredds/InvCatalog/v1.0">
  <service name="f" serviceType="HTTPServer" base="/thredds/fileServer/"/>
  <dataset name="c.nc" serviceName="f" urlPath="x/sub/c.nc"/>
</catalog>"""


@pytest.fixture
def catalog(site: Web) -> str:
    (site.root / "t/sub").mkdir(parents=True)
    (site.root / "t/catalog.xml").write_text(CATALOG)
    (site.root / "t/sub/catalog.xml").write_text(SUB)
    return f"{site.url}/t/catalog.xml"


def test_a_thredds_catalog_and_those_it_refers_to_give_what_a_file_server_has(
    site: Web, catalog: str
) -> None:
    base = f"{site.url}/thredds/fileServer/x/"
    assert listed("thredds", catalog) == {
        f"{base}a.nc": (1500, 1_598_963_645 * 10**9, None),
        f"{base}sub/c.nc": (None, None, None),
    }
    assert site.asked["/t/catalog.xml"] == 1


@pytest.mark.parametrize(
    ("fault", "why"),
    [
        (serving.status(500), "answers 500, 6 times"),
        (serving.page, r"a text/html of \d+ bytes, is no THREDDS catalog"),
        (serving.short, "its answer breaks off"),
    ],
    ids=["500", "page", "short"],
)
def test_one_catalog_that_is_not_whole_refuses_the_listing(
    site: Web, catalog: str, fault: serving.Fault, why: str
) -> None:
    site.faults["/t/sub/catalog.xml"] = fault
    with pytest.raises(DiscoverError, match=why):
        listed("thredds", catalog)
    (site.root / "t/sub/catalog.xml").write_text(SUB[:-30])
    site.faults.clear()
    with pytest.raises(DiscoverError, match="is no whole XML"):
        listed("thredds", catalog)


def test_a_server_is_asked_for_at_most_eight_catalogs_at_a_time(site: Web, catalog: str) -> None:
    names = [f"m{n}/catalog.xml" for n in range(24)]
    links = "".join(f'<catalogRef xlink:href="{name}" xlink:title="m" name=""/>' for name in names)
    top = site.root / "t" / "catalog.xml"
    top.write_text(top.read_text().replace("</catalog>", f"{links}</catalog>"))
    for name in names:
        (site.root / "t" / name).parent.mkdir()
        (site.root / "t" / name).write_text(SUB.replace("c.nc", name.replace("/", "-") + ".nc"))
    now, most = [0], [0]

    def slow(handler: Handler, _: int) -> bool:
        with site.lock:
            now[0] += 1
            most[0] = max(most[0], now[0])
        time.sleep(0.05)
        with site.lock:
            now[0] -= 1
        return False

    site.faults["*"] = slow
    listed("thredds", catalog)
    assert sum(site.asked[f"/t/{name}"] for name in names) == 24
    assert 2 <= most[0] <= 8


# --- stac ------------------------------------------------------------------------------------------


def item(name: str, **assets: Any) -> dict[str, Any]:
    found = assets or {"data": {"href": f"../files/{name}.nc", "roles": ["data"], "file:size": 10}}
    return {
        "type": "Feature",
        "id": name,
        "properties": {"updated": "2020-09-01T12:34:05Z"},
        "assets": found,
    }


def answering(body: Callable[[Handler], Any]) -> serving.Fault:
    def answer(handler: Handler, _: int) -> bool:
        handler.whole(json.dumps(body(handler)).encode(), "application/geo+json")
        return True

    return answer


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_an_api_is_followed_to_its_last_page(site: Web, method: str) -> None:
    def page(handler: Handler) -> Any:
        if handler.command == "POST":
            number = int(
                json.loads(handler.rfile.read(int(handler.headers["Content-Length"])))["page"]
            )
        else:
            number = int(parse_qs(urlsplit(handler.path).query).get("page", ["0"])[0])
        found = {"type": "FeatureCollection", "numberMatched": 5, "features": []}
        found["features"] = [item(f"i{n}") for n in range(number * 2, min(number * 2 + 2, 5))]
        link = {"rel": "next", "href": f"/search?page={number + 1}"}
        if method == "POST":
            link = {
                "rel": "next",
                "href": "/search",
                "method": "POST",
                "body": {"page": number + 1},
            }
        return {**found, "links": [link] if number < 2 else []}

    site.faults["/search"] = answering(page)
    found = listed("stac", f"{site.url}/search")
    assert list(found) == [f"{site.url}/files/i{n}.nc" for n in range(5)]
    assert set(found.values()) == {(10, 1_598_963_645 * 10**9, None)}


def test_an_api_that_gives_fewer_items_than_it_has_is_refused(site: Web) -> None:
    body = {"type": "FeatureCollection", "numberMatched": 9, "features": [item("a")]}
    site.faults["/search"] = answering(lambda _: body)
    with pytest.raises(DiscoverError, match="says that 9 items match and gave 1"):
        listed("stac", f"{site.url}/search")


def test_a_static_catalogue_is_walked_and_the_asset_chosen(site: Web) -> None:
    (site.root / "c/i").mkdir(parents=True)
    links = [{"rel": "child", "href": "col.json"}, {"rel": "self", "href": "catalog.json"}]
    (site.root / "c/catalog.json").write_text(json.dumps({"type": "Catalog", "links": links}))
    links = [{"rel": "item", "href": f"i/{n}.json"} for n in "ab"]
    (site.root / "c/col.json").write_text(json.dumps({"type": "Collection", "links": links}))
    for n in "ab":
        two = {k: {"href": f"{n}-{k}.nc", "roles": ["data"]} for k in ("low", "high")}
        (site.root / f"c/i/{n}.json").write_text(json.dumps(item(n, **two)))
    url = f"{site.url}/c/catalog.json"
    assert list(listed("stac", url, asset="high")) == [f"{site.url}/c/i/{n}-high.nc" for n in "ab"]
    with pytest.raises(
        DiscoverError, match=r"a: its assets are high, low.*name it in source\.asset"
    ):
        listed("stac", url)
    with pytest.raises(DiscoverError, match="'other' is not among them"):
        listed("stac", url, asset="other")
    (site.root / "c/i/b.json").unlink()
    with pytest.raises(DiscoverError, match=r"c/i/b\.json: it answers 404"):
        listed("stac", url, asset="high")


@pytest.mark.parametrize("fault", [serving.page, answering(lambda _: {"type": "no"})])
def test_a_document_that_is_no_stac_is_refused(site: Web, fault: serving.Fault) -> None:
    site.faults["/x"] = fault
    with pytest.raises(DiscoverError, match=r"is no whole JSON|is no STAC: its type is 'no'"):
        listed("stac", f"{site.url}/x")


# --- cmr -------------------------------------------------------------------------------------------


def granule(n: int) -> dict[str, Any]:
    return {
        "meta": {"concept-id": f"G{n}", "revision-id": 2},
        "umm": {
            "GranuleUR": f"g{n}",
            "DataGranule": {
                "ProductionDateTime": "2020-09-01T12:34:05.000Z",
                "ArchiveAndDistributionInformation": [{"Name": "x", "SizeInBytes": 77}],
            },
            "RelatedUrls": [
                {"URL": f"https://data.example/g{n}.nc", "Type": "GET DATA"},
                {"URL": f"s3://data/g{n}.nc", "Type": "GET DATA VIA DIRECT ACCESS"},
                {"URL": f"https://data.example/g{n}.html", "Type": "VIEW RELATED INFORMATION"},
            ],
        },
    }


def searched(total: int, hits: int, page: int = 3) -> serving.Fault:
    def answer(handler: Handler, _: int) -> bool:
        query = parse_qs(urlsplit(handler.path).query)
        assert query["collection_concept_id"] == ["C1"]
        assert query["page_size"] == ["2000"]
        start = int(handler.headers.get("CMR-Search-After") or 0)
        found = [granule(n) for n in range(start, min(start + page, total))]
        more = {"CMR_Search_After": str(start + len(found))} if found else {}
        body = json.dumps({"hits": hits, "items": found}).encode()
        handler.whole(body, "application/json", CMR_Hits=str(hits), **more)
        return True

    return answer


@pytest.mark.parametrize("scheme", ["https", "s3"])
def test_a_granule_search_is_followed_to_its_end(site: Web, scheme: str) -> None:
    site.faults["/search/granules.umm_json"] = searched(7, 7)
    url = f"{site.url}/search/granules.json?collection_concept_id=C1&page_size=10"
    found = listed("cmr", url, asset=scheme)
    host = "data.example" if scheme == "https" else "data"
    when = 1_598_963_645 * 10**9
    assert found == {f"{scheme}://{host}/g{n}.nc": (77, when, f"G{n}/2") for n in range(7)}


def test_a_search_that_gives_fewer_granules_than_it_found_is_refused(site: Web) -> None:
    site.faults["/search/granules.umm_json"] = searched(7, 9)
    with pytest.raises(DiscoverError, match="has 9 granules and gave 7"):
        listed("cmr", f"{site.url}/search/granules?collection_concept_id=C1")


def test_an_error_page_in_place_of_a_search_is_refused(site: Web) -> None:
    site.faults["/search/granules.umm_json"] = serving.page
    with pytest.raises(DiscoverError, match="is no whole JSON"):
        listed("cmr", f"{site.url}/search/granules.json?collection_concept_id=C1")
