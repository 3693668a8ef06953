"""The consistency report, as a page and as a table: what differs, by whom, from where to where."""

import json
import re
import time
from datetime import date, timedelta
from html.parser import HTMLParser
from pathlib import Path

import netCDF4
import pytest

from building import build
from byterefs.errors import PlanError
from byterefs.planning import consistency, consistency_page, consistency_table
from test_eras import AUTO, two_eras
from test_plan import day

ROOT = Path(__file__).parents[1]


class Page(HTMLParser):
    """What is in a page: its strips with their segments, its visible text, all its tags and attributes."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.strips: list[tuple[str, list[tuple[str, float, float]]]] = []
        self.tags: list[tuple[str, dict]] = []
        self.words = ""
        self.style = ""
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        self.tags.append((tag, found))
        if found.get("role") == "img":
            self.strips.append((found["aria-label"], []))
        elif tag == "span" and "style" in found and "title" in found:
            left, width = (float(n) for n in re.findall(r"([\d.]+)%", found["style"]))
            self.strips[-1][1].append((found["class"], left, width))

    def handle_data(self, data):
        if self.lasttag == "style":
            self.style += data
        else:
            self.words += data


def page_of(folder) -> Page:
    return Page((folder / "plan" / "consistency.html").read_text())


def many(n: int, kinds: int):
    """The report of ``n`` sources whose one array changes with every source between ``kinds`` signatures."""
    names = [f"/data/{date(1981, 9, 1) + timedelta(i)}.nc" for i in range(n)]
    order = [
        (s, {"dims": ["t"], "dtype": "<i2", "scale_factor": i % kinds}) for i, s in enumerate(names)
    ]
    found = consistency.report({"sst": order}, names, lambda s: s[6:16])
    ends = {"first": names[0], "last": names[-1], "from": names[0][6:16], "to": names[-1][6:16]}
    return {"dataset": "many", "sources": {"count": n, **ends}, "axis": "time", **found}


def test_a_refused_plan_leaves_a_page_that_says_what_differs_and_by_whom(tmp_path):
    with pytest.raises(PlanError) as refusal:
        build(tmp_path, two_eras(tmp_path, scale=0.02))
    found = page_of(tmp_path)
    assert (
        str(refusal.value).removesuffix("; see plan/consistency.html for the runs") in found.words
    )
    strips = dict(found.strips)
    label = "sst: 2 signatures in 2 runs: 1 in 2 sources, 2 in 2 sources"
    assert strips[label] == [("k1", 0, 50), ("k2", 50, 50)]
    assert strips["lat: 4 sources of 4, all the same"] == [("k1", 0, 100)]
    for words in ("scale_factor", "0.019999999552965164", "sst.20260103.nc", "2026-01-03T12:00"):
        assert words in found.words


def test_a_plan_that_is_refused_before_sources_are_placed_leaves_a_page_too(tmp_path):
    with pytest.raises(PlanError, match="calendar '360_day'"):
        build(tmp_path, [day(tmp_path, 0), day(tmp_path, 1, calendar="360_day")])
    assert (
        "calendar '360_day', and the sources before it have 'standard'" in page_of(tmp_path).words
    )
    with pytest.raises(PlanError, match="no dimension or coordinate 'tiem'"):
        build(tmp_path / "b", [day(tmp_path, 0)], plan={"concat": "tiem"})
    found = page_of(tmp_path / "b")
    assert "no dimension or coordinate 'tiem'" in found.words
    assert "Nothing could be compared." in found.words


def test_eras_have_a_strip_of_their_own(tmp_path):
    build(tmp_path, two_eras(tmp_path, shuffle=False), plan=AUTO).close()
    found = page_of(tmp_path)
    assert found.strips[0] == ("2 eras along the archive", [("e0", 0, 50), ("e1", 50, 50)])
    assert "from_2026-01-03T1200" in found.words


def test_markup_in_attributes_stays_text(tmp_path):
    files = [day(tmp_path, n) for n in range(2)]
    evil = "<script>alert(1)</script>\"'>&<img src=x onerror=alert(2)>"
    with netCDF4.Dataset(files[1], "a") as nc:
        nc["sst"].units = evil
    with pytest.raises(PlanError, match="units"):
        build(tmp_path, files)
    found = page_of(tmp_path)
    assert evil in found.words
    assert {tag for tag, _ in found.tags}.isdisjoint({"script", "img", "link", "iframe", "a"})
    assert not [a for _, attrs in found.tags for a in attrs if a.startswith("on")]
    assert "url(" not in found.style
    assert "@import" not in found.style


@pytest.mark.parametrize("kinds", [2, 16_387])
def test_a_page_of_16387_sources_is_small_and_quick(kinds):
    report = many(16_387, kinds)
    start = time.monotonic()
    html = consistency_page.page(report)
    table = consistency_table.text(report)
    assert time.monotonic() - start < 10
    assert len(html) < 200_000
    ((label, segments),) = Page(html).strips
    assert label.startswith(f"sst: {kinds:,} signatures in 16,387 runs: 1 in ")
    assert {kind for kind, *_ in segments} == {"several"}
    assert sum(width for *_, width in segments) == pytest.approx(100, abs=0.1)
    assert ("16375 more signatures" in table) is (kinds > 2)


def test_one_odd_source_of_16387_is_seen():
    report = many(16_387, 1)
    order = report["arrays"]["sst"]["runs"][0]
    odd = {
        **order,
        "id": "odd",
        "first": "/data/x.nc",
        "last": "/data/x.nc",
        "start": 8000,
        "stop": 8001,
        "count": 1,
    }
    runs = [{**order, "stop": 8000, "count": 8000}, odd, {**order, "start": 8001, "count": 8386}]
    signatures = {order["id"]: {"dtype": "<i2"}, "odd": {"dtype": "<f4"}}
    report["arrays"]["sst"] |= {"consistent": False, "runs": runs, "signatures": signatures}
    ((_, segments),) = Page(consistency_page.page(report)).strips
    kind, left, width = segments[-1]  # drawn last, on top of the others
    assert (kind, width >= 0.3) == ("k2", True)
    assert left == pytest.approx(100 * 8000 / 16_387, abs=0.1)


def luminance(colour: str) -> float:
    """Relative luminance of ``#rrggbb`` or ``#rgb`` (WCAG 2)."""
    digits = colour[1:] if len(colour) == 7 else "".join(c * 2 for c in colour[1:])
    parts = [int(digits[i : i + 2], 16) / 255 for i in (0, 2, 4)]
    r, g, b = (p / 12.92 if p <= 0.03928 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 0.2126 * r + 0.7152 * g + 0.0722 * b


def test_text_has_contrast_in_light_and_dark():
    schemes = re.findall(r":root\{([^}]*)\}", Page(consistency_page.page(many(3, 1))).style)
    assert len(schemes) == 2
    for scheme in schemes:
        c = dict(re.findall(r"--(\w+):(#\w+)", scheme))
        pairs = [
            ("ink", "card"),
            ("dim", "card"),
            ("dim", "ground"),
            ("bad", "badground"),
            ("ink", "e0"),
            ("ink", "e1"),
        ]
        pairs += [
            ({"k1": "on1", "k4": "on4"}.get(k, "on"), k)
            for k in (*(f"k{i}" for i in range(1, 9)), "more")
        ]
        for text, ground in pairs:
            light, dark = sorted((luminance(c[text]), luminance(c[ground])), reverse=True)
            assert (light + 0.05) / (dark + 0.05) >= 4.5, (text, ground, c)


def contrast(one: str, other: str) -> float:
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def test_the_landing_page_and_the_report_have_contrast_in_light_and_dark_and_a_focus_that_is_seen():
    style = (ROOT / "scripts/byterefs/assets/page.css").read_text()
    schemes = re.findall(r":root\{([^}]*)\}", style)
    assert len(schemes) == 2
    (focus,) = re.findall(r":focus-visible\{outline:3px solid (#\w+)", style)
    for scheme in schemes:
        c = dict(re.findall(r"--(\w+):(#\w+)", scheme))
        pairs = [
            (text, ground) for text in ("ink", "dim", "accent") for ground in ("card", "ground")
        ]
        pairs += [
            ("dim", "soft"),
            ("ink", "code"),
            ("ink", "land"),
            ("good", "card"),
            ("bad", "card"),
        ]
        for text, ground in pairs:
            assert contrast(c[text], c[ground]) >= 4.5, (text, ground, c)
        # WCAG 2.2, 1.4.11: what is no text
        for ground in ("card", "soft", "code"):
            assert contrast(focus, c[ground]) >= 3, (focus, ground)


def test_the_command_prints_the_table(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "150")
    with pytest.raises(PlanError):
        build(tmp_path, two_eras(tmp_path, chunks=(1, 1, 3, 8)))
    import consistency as command

    command.main(report=tmp_path / "plan" / "consistency.json")
    out = capsys.readouterr().out
    assert out.startswith("4 sources, 5 arrays: sst is not the same in all of them.\nRefused: ")
    rows = [re.split(r"\s{2,}", line.strip()) for line in out.splitlines()]
    assert [
        "sst",
        "1",
        "2",
        "1",
        "2026-01-01T12:00",
        "2026-01-02T12:00",
        "chunks 1 × 1 × 6 × 8",
    ] in rows
    assert ["2", "2", "1", "2026-01-03T12:00", "2026-01-04T12:00", "chunks 1 × 1 × 3 × 8"] in rows


def test_the_table_is_in_the_log_where_sources_differ(tmp_path, caplog):
    caplog.set_level("INFO", "byterefs")
    build(tmp_path / "same", [day(tmp_path, n) for n in range(2)]).close()
    assert "the same in all" not in caplog.text
    build(tmp_path / "eras", two_eras(tmp_path, shuffle=False), plan=AUTO).close()
    assert "codec shuffle(elementsize 2) → zlib" in caplog.text
    report = json.loads((tmp_path / "eras" / "plan" / "consistency.json").read_text())
    assert "refused" not in report
