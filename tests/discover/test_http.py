"""Provider `http`: index pages as nginx and Apache write them, and what is none."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

import serving
from byterefs.access import web
from byterefs.discover import http
from byterefs.errors import DiscoverError
from serving import Web

NAMES = ["2020/day 1.nc", "2020/day2.nc", "2021/day+3.nc", "2021/é#4.nc", "x.txt"]
LONG = f"2021/{'long' * 20}.nc"
WHEN = 1_598_963_645  # 2020-09-01 12:34:05 UTC


@pytest.fixture(params=["nginx", "apache"])
def site(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Web]:
    monkeypatch.setattr(web, "PAUSE", 0.001)
    for i, name in enumerate([*NAMES, LONG]):
        path = tmp_path / "archive" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x" * (100 + i))
        os.utime(path, (WHEN, WHEN))
    (tmp_path / "archive" / "empty").mkdir()
    with serving.web(tmp_path, style=request.param) as found:
        yield found


def listed(site: Web, **source: str) -> dict[str, tuple[int | None, int | None]]:
    source = {"url": f"{site.url}/archive", "pattern": r"\.nc$", **source}
    return {s.source: (s.size, s.mtime_ns) for s in http.list(source)}


def test_files_of_all_folders_come_with_size_and_date(site: Web) -> None:
    found = listed(site)
    base = f"{site.url}/archive/"
    minute = (WHEN - WHEN % 60) * 10**9
    spelled = ["2020/day%201.nc", "2020/day2.nc", "2021/day%2B3.nc", "2021/%C3%A9%234.nc", LONG]
    assert found == {
        base + name: (100 + i if name != LONG else 105, minute) for i, name in enumerate(spelled)
    }
    assert not any(method == "HEAD" for method, _, _ in site.requests)


def test_sources_are_spelled_as_the_address_is(site: Web) -> None:
    found = listed(site, url=f"/vsicurl/{site.url}/archive/2020/")
    assert list(found) == [
        f"/vsicurl/{site.url}/archive/2020/{n}" for n in ("day%201.nc", "day2.nc")
    ]


def test_a_file_without_a_date_on_the_page_is_asked_for_it(site: Web, tmp_path: Path) -> None:
    def plain(handler: serving.Handler, _: int) -> bool:
        body = b"<html><head><title>Index of /</title></head><a href='day2.nc'>day2.nc</a></html>"
        handler.whole(body, "text/html")
        return True

    site.faults["/archive/2020/"] = plain
    found = listed(site, url=f"{site.url}/archive/2020/")
    assert found == {f"{site.url}/archive/2020/day2.nc": (101, WHEN * 10**9)}


def test_a_server_that_fails_for_a_while_is_asked_again(site: Web) -> None:
    site.faults["/archive/2021/"] = serving.first(2, serving.status(503))
    site.faults["/archive/"] = serving.first(1, serving.short)
    assert len(listed(site)) == 5


@pytest.mark.parametrize(
    ("fault", "why"),
    [
        (serving.status(500), "answers 500, 6 times"),
        (serving.status(404), "answers 404"),
        (serving.page, "is a web page, and no index"),
        (serving.short, r"its answer breaks off \(ProtocolError\), 6 times"),
        (serving.redirect("/archive/2021/"), "redirects more than 5 times"),
    ],
    ids=["500", "404", "page", "short", "ring"],
)
def test_one_folder_that_is_not_whole_refuses_the_listing(
    site: Web, fault: serving.Fault, why: str
) -> None:
    site.faults["/archive/2021/"] = fault
    with pytest.raises(DiscoverError, match=why) as caught:
        listed(site)
    assert "/archive/2021/" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_page_that_is_cut_at_a_whole_line_is_refused(site: Web) -> None:
    page = site.index(site.root / "archive/2021", "/archive/2021/")
    half = page[: page.index("\n", len(page) // 2)]

    def cut(handler: serving.Handler, _: int) -> bool:
        handler.whole(half.encode(), "text/html")
        return True

    site.faults["/archive/2021/"] = cut
    with pytest.raises(DiscoverError, match="is cut: it does not end with </html>"):
        listed(site)


def test_links_that_lead_out_of_the_archive_are_left_alone(site: Web) -> None:
    def page(handler: serving.Handler, _: int) -> bool:
        links = "".join(
            f'<a href="{href}">x</a> 01-Sep-2020 12:34 100\n'
            for href in ("http://elsewhere.example/a.nc", "/archive/other.nc", "?C=N;O=D", "../", "in.nc", "#top", "mailto:x")
        )  # fmt: skip
        handler.whole(f"<html><title>Index of</title>{links}</html>".encode(), "text/html")
        return True

    site.faults["/archive/2020/"] = page
    assert list(listed(site, url=f"{site.url}/archive/2020/")) == [f"{site.url}/archive/2020/in.nc"]
