"""The landing page in a browser: its live map shows the granules' values, or says in a sentence why not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import tifffile
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

import granules
from announcing import Announced, served
from browser import Browser, started
from demonstration.server import Handler, Server
from serving import S3

SHAPE = (18, 36)
SCALE = float(np.float32(0.01))


class Closed(Handler):
    """A server that lets no page of another site read."""

    cors = False


class Whole(Handler):
    """A server that sends whole files only."""

    ranges = False


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with started() as found:
        yield found


@pytest.fixture(scope="module")
def announced(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Announced]:
    """Three days, their granules at a server of another origin than the page's."""
    folder = tmp_path_factory.mktemp("page")
    with served(folder) as server, served(folder) as granules_server:
        made = Announced(folder, server.address, granules_server.address, title="Sea surface")
        made.days(1, 3, arrays=["sst", "ice"], shape=SHAPE)
        yield made


@pytest.fixture
def page(browser: Browser, announced: Announced) -> Browser:
    """The page, its map drawn."""
    browser.size(1200)
    browser.open(f"{announced.at}/place/")
    assert browser.says == ""
    return browser


def stored(day: int, array: str = "sst") -> np.ndarray:
    """What the granule's writer stored on a day of September 2026; row 0 is the south."""
    return granules.packed(date(2026, 9, day), array, (1, 1, *SHAPE))[0, 0]


def assert_drawn(browser: Browser, values: np.ndarray) -> None:
    """Every pixel has the colour bar's colour of its value, and none where it is NaN; row 0 is on top."""
    colours, low, high = browser.ramp()
    pixels = browser.pixels()
    assert pixels.shape[:2] == values.shape
    missing = np.isnan(values)
    np.testing.assert_array_equal(pixels[..., 3] == 0, missing)
    at = (255 * (np.where(missing, low, values) - low)) / (high - low)
    at = np.clip(at, 0, 255)
    near = (
        np.abs(at - np.floor(at) - 0.5) < 1e-6
    )  # which way a half is rounded is nobody's business
    wanted = colours[np.floor(at + 0.5).astype(int)]
    differs = (pixels != wanted).any(axis=-1) & ~missing & ~near
    assert not differs.any(), (pixels[differs][:3], wanted[differs][:3], values[differs][:3])
    assert len(np.unique(pixels[~missing], axis=0)) > min(20, len(np.unique(values[~missing])) // 2)


def physical(packed: np.ndarray) -> np.ndarray:
    return np.where(packed == -999, np.nan, packed * SCALE)


def test_the_map_shows_every_value_of_the_newest_day_north_up(page: Browser) -> None:
    assert page.text("when") == "2026-09-03"
    assert_drawn(page, physical(stored(3))[::-1])
    assert "Celsius" in page.text("units")
    assert "oisst" not in page.text("provenance")
    assert "20260903.nc" in page.text("provenance")
    assert [m for m in page.log() if "favicon" not in m] == []


def test_the_pointer_tells_the_value_its_place_and_what_is_stored(page: Browser) -> None:
    values = stored(3)
    for row, column in ((0, 35), (9, 20), (17, 18), (5, 7)):
        told = page.value_at(row, column)
        wanted = values[17 - row, column]
        assert int(told["stored"]) == wanted
        assert float(told["value"]) == pytest.approx(wanted * SCALE, abs=1e-12)
        assert (int(told["y"]), int(told["x"])) == (17 - row, column)
    assert page.value_at(0, 35)["words"].startswith("85°N 5°W: ")
    assert page.value_at(17, 0)["words"] == "85°S 5°E: no value"


def test_the_slider_moves_by_keyboard_and_shows_the_day_before(page: Browser) -> None:
    slider, since = page.driver.find_element(By.ID, "step"), page.drawn
    slider.send_keys(Keys.ARROW_LEFT)
    page.settle(since)
    assert page.text("when") == "2026-09-02"
    assert_drawn(page, physical(stored(2))[::-1])
    since = page.drawn
    slider.send_keys(Keys.HOME)
    page.settle(since)
    assert page.text("when") == "2026-09-01"
    assert_drawn(page, physical(stored(1))[::-1])


def test_the_cross_moves_by_the_arrow_keys(page: Browser) -> None:
    page.value_at(9, 20)
    canvas = page.driver.find_element(By.ID, "canvas")
    canvas.send_keys(Keys.ARROW_UP)
    canvas.send_keys(Keys.ARROW_RIGHT)
    told = page.js("return {...document.getElementById('value').dataset}")
    assert (int(told["y"]), int(told["x"])) == (9, 21)
    assert int(told["stored"]) == stored(3)[9, 21]


def test_another_variable_and_other_colours_show_the_same_values(page: Browser) -> None:
    page.choose("ice")
    assert_drawn(page, physical(stored(3, "ice"))[::-1])
    for palette in page.js(
        "return [...document.getElementById('palette').options].map(o => o.value)"
    ):
        page.js(
            "const s = document.getElementById('palette'); s.value = arguments[0];"
            "s.dispatchEvent(new Event('change')); document.getElementById('fit').click()",
            palette,
        )
        assert_drawn(page, physical(stored(3, "ice"))[::-1])


def test_tabs_are_moved_by_arrow_keys_and_show_one_panel_at_a_time(page: Browser) -> None:
    shown = "return [...document.querySelectorAll('[role=tabpanel]')].filter(p => !p.hidden).map(p => p.dataset.tab)"
    assert page.js(shown) == ["R"]
    tab = page.driver.find_element(By.ID, "tab-1")
    tab.send_keys(Keys.ARROW_RIGHT)
    assert page.js(shown) == ["Python"]
    assert page.driver.switch_to.active_element.text == "Python"
    page.driver.switch_to.active_element.send_keys(Keys.END)
    assert page.js(shown) == ["Browser"]


@pytest.mark.parametrize("width", [320, 380, 768])
def test_nothing_is_wider_than_a_small_screen(
    browser: Browser, announced: Announced, width: int
) -> None:
    browser.size(width)
    browser.open(f"{announced.at}/place/")
    assert_drawn(browser, physical(stored(3))[::-1])
    assert browser.js("return document.documentElement.scrollWidth") <= width
    small = "return [...document.querySelectorAll('main button')].filter(b => b.offsetParent && b.offsetHeight < 32).length"
    assert browser.js(small) == 0


def test_dark_and_light_follow_what_the_person_prefers(page: Browser) -> None:
    ground = "return getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)"
    light = page.js(ground)
    page.size(1200, dark=True)
    assert sum(page.js(ground)) < 200 < sum(light)


def test_the_page_works_without_its_script(browser: Browser, announced: Announced) -> None:
    browser.driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    browser.driver.get(f"{announced.at}/place/")
    browser.driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})
    panels = browser.driver.find_elements(By.CSS_SELECTOR, "[role=tabpanel]")
    assert [panel.is_displayed() for panel in panels] == [True] * 5


def test_a_page_in_a_bucket_draws_granules_of_the_bucket(
    browser: Browser, s3_environment: S3, tmp_path: Path
) -> None:
    s3 = s3_environment
    bucket = s3.bucket("pages", public=True)
    made = Announced(tmp_path, "", f"{s3.endpoint}/{bucket}")
    made.emit = {"parquet": {}, "vrt": {}}
    entry = {"name": "here", "target": "public", "to": f"s3://{bucket}/demo"}
    made.syncs = [{**entry, "endpoint": s3.endpoint}]
    made.days(1, 2, arrays=["sst"])
    for file in made.archive.iterdir():
        s3.client.upload_file(str(file), bucket, f"archive/{file.name}")
    address = made.told()["announced"]["here"]["address"]
    assert address == f"{s3.endpoint}/{bucket}/demo"
    browser.size(1200)
    browser.open(f"{address}/index.html")
    assert browser.says == ""
    assert_drawn(browser, physical(stored(2))[::-1])
    assert browser.js("return document.contentType") == "text/html"
    made.sync()
    assert s3.client.head_object(Bucket=bucket, Key="demo/stac/collection.json")


# --- what cannot be shown --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("handler", "sentence"),
    [
        (Closed, "does not permit pages of other sites to read its files"),
        (Whole, "does not answer byte ranges"),
    ],
)
def test_a_server_without_cors_or_ranges_gets_a_sentence_and_not_a_blank(
    browser: Browser, tmp_path: Path, handler: type[Handler], sentence: str
) -> None:
    with served(tmp_path) as server, served(tmp_path, handler) as other:
        made = Announced(tmp_path, server.address, other.address)
        made.emit = {"parquet": {}}
        made.days(1, 1, arrays=["sst"])
        browser.open(f"{server.address}/place/")
        assert sentence in browser.says
        assert f"127.0.0.1:{other.server_port}" in browser.says
        assert browser.drawn is None


def of_table(folder: Path, server: Server, file: str) -> Path:
    """A file of the form parquet of one day that is published."""
    made = Announced(folder, server.address)
    made.emit = {"parquet": {}}
    made.days(1, 1, arrays=["sst"])
    (found,) = made.place.glob(f"v/*/parquet/{file}")
    return found


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-200])


def damage(file: Path) -> None:
    file.write_bytes(bytes(file.stat().st_size))


@pytest.mark.parametrize(
    ("harm", "file", "sentence"),
    [
        (cut, "refs_sst.parquet", "the file has changed since it was indexed"),
        (damage, "refs_sst.parquet", "refs_sst.parquet is no whole Parquet file"),
        (Path.unlink, "refs_sst.parquet", "answers 404"),
        (cut, "arrays.json", "arrays.json is no whole JSON file"),
        (Path.unlink, "arrays.json", "answers 404"),
    ],
)
def test_a_table_that_is_cut_damaged_or_gone_gets_a_sentence_and_not_a_blank(
    browser: Browser, tmp_path: Path, harm: Callable[[Path], None], file: str, sentence: str
) -> None:
    with served(tmp_path) as server:
        harm(of_table(tmp_path, server, file))
        browser.open(f"{server.address}/place/")
        assert sentence in browser.says
        assert browser.drawn is None
        assert browser.text("h-open") == "Open it"


@pytest.mark.parametrize("where", ["arrays.json", "refs_sst.parquet"])
def test_a_table_of_another_format_version_gets_a_sentence_and_not_a_blank(
    browser: Browser, tmp_path: Path, where: str
) -> None:
    with served(tmp_path) as server:
        found = of_table(tmp_path, server, where)
        known = found.read_bytes()
        assert known.count(b"mdim-refs/0.2") >= 1
        found.write_bytes(known.replace(b"mdim-refs/0.2", b"mdim-refs/0.9"))
        browser.open(f"{server.address}/place/")
        assert "of the format mdim-refs/0.9, and this page reads mdim-refs/0.2" in browser.says
        assert browser.drawn is None


def test_files_that_are_gone_or_changed_get_a_sentence_and_the_others_are_drawn(
    browser: Browser, tmp_path: Path
) -> None:
    with served(tmp_path) as server:
        made = Announced(tmp_path, server.address)
        made.emit = {"parquet": {}}
        made.days(1, 3, arrays=["sst"])
        (made.archive / "20260903.nc").unlink()
        damaged = made.archive / "20260902.nc"
        damaged.write_bytes(bytes(damaged.stat().st_size))
        browser.open(f"{server.address}/place/")
        assert "answers 404" in browser.says
        back = browser.driver.find_element(By.ID, "back")
        for sentence in ("are no zlib stream", ""):
            browser.js("document.getElementById('says').textContent = ''")
            back.click()
            browser.settle()
            assert sentence in browser.says
        assert browser.text("when") == "2026-09-01"
        assert_drawn(browser, physical(stored(1))[::-1])


def test_a_server_that_does_not_answer_is_told_apart_from_one_that_permits_nothing(
    browser: Browser, tmp_path: Path
) -> None:
    with served(tmp_path) as server:
        with served(tmp_path) as gone:
            made = Announced(tmp_path, server.address, gone.address)
        made.emit = {"parquet": {}}
        made.days(1, 1, arrays=["sst"])
        browser.open(f"{server.address}/place/")
        assert f"127.0.0.1:{gone.server_port} cannot be reached from here" in browser.says


def test_paths_of_a_file_system_and_a_page_opened_as_a_file_get_a_sentence(
    browser: Browser, tmp_path: Path
) -> None:
    with served(tmp_path) as server:
        made = Announced(tmp_path, server.address)
        made.emit = {"parquet": {}}
        made.syncs[0]["target"] = "access"
        made.days(1, 1, arrays=["sst"])
        browser.open(f"{server.address}/place/")
        assert f"paths of a file system ({made.archive}/20260901.nc)" in browser.says
    browser.open((made.place / "index.html").as_uri())
    assert "was opened as a file" in browser.says


# --- every way of storing --------------------------------------------------------------------------

Y, X = 7, 10
FIELD = np.arange(2 * Y * X).reshape(2, Y, X)
HALF = np.where(FIELD % 11 == 3, np.nan, FIELD * 0.25 - 7)


def write_all_kinds(file: Path) -> dict[str, np.ndarray]:
    """One HDF5 file of (time, y, x) arrays, each stored another way; the values of its last step."""
    wanted: dict[str, np.ndarray] = {}
    with h5py.File(file, "w") as f:
        f["time"] = np.array([0.0, 6.0])
        f["time"].make_scale("time")
        f["time"].attrs["units"] = "hours since 2020-02-28"
        f["time"].attrs["calendar"] = "360_day"
        for dim, size in (("y", Y), ("x", X)):
            f[dim] = np.arange(size, 0.0, -1)
            f[dim].make_scale(dim)

        def add(name: str, dataset: h5py.Dataset, values: np.ndarray, **attrs: Any) -> None:
            for i, dim in enumerate(("time", "y", "x")):
                dataset.dims[i].attach_scale(f[dim])
            dataset.attrs.update(attrs)
            wanted[name] = values[-1].astype("f8")

        def chunked(name: str, data: np.ndarray, *filters: str, **attrs: Any) -> None:
            add(name, granules.pipeline(f, name, data, (1, 3, 4), *filters), data, **attrs)

        chunked("shuffled", FIELD.astype("<i4"), "shuffle", "deflate")
        chunked("checked", FIELD.astype("<i2"), "shuffle", "deflate", "fletcher32")
        chunked("big", HALF.astype(">f4"), "shuffle", "deflate")
        chunked("double", HALF.astype("<f8"), "deflate")
        chunked("plain", FIELD.astype(">u2"))
        chunked("bytes", FIELD.astype("u1"), "deflate")
        chunked("halves", HALF.astype("<f2"), "deflate")
        chunked("long", (FIELD * 10_000_000_019).astype("<i8"), "shuffle", "deflate")
        chunked("twice", FIELD.astype("<i2"), "deflate", "deflate")
        signed = (FIELD + 60).astype("u1")
        chunked("unsigned", signed.view("i1"), "deflate", _Unsigned="true")
        wanted["unsigned"] = signed[-1].astype("f8")
        packed = granules.pipeline(
            f, "packed", FIELD.astype("<i2"), (2, 7, 10), "deflate", fill=138
        )
        add("packed", packed, FIELD, scale_factor=0.5, add_offset=-20.0)
        wanted["packed"] = np.where(FIELD[-1] == 138, np.nan, FIELD[-1] * 0.5 - 20)
        sparse = granules.pipeline(
            f, "sparse", None, (1, 3, 4), "deflate", shape=FIELD.shape, fill=5
        )
        sparse[1, 0:3, 0:4] = FIELD[1, 0:3, 0:4]
        add("sparse", sparse, FIELD)
        wanted["sparse"] = np.full((Y, X), np.nan)
        wanted["sparse"][0:3, 0:4] = FIELD[1, 0:3, 0:4]
        flags = granules.pipeline(f, "ranged", FIELD.astype("u1"), (1, 7, 10), "deflate")
        ranged = np.array([80, 130], "u1")
        add("ranged", flags, FIELD, scale_factor=0.5, valid_range=ranged)
        wanted["ranged"] = np.where((FIELD[-1] >= 80) & (FIELD[-1] <= 130), FIELD[-1] / 2, np.nan)
        f.create_dataset("whole", data=FIELD.astype("<f4"))
        add("whole", f["whole"], FIELD)
    return wanted


@pytest.fixture(scope="module")
def kinds(tmp_path_factory: pytest.TempPathFactory, browser: Browser) -> Iterator[Any]:
    """A page of arrays that are each stored another way, opened, and the values to be seen."""
    folder = tmp_path_factory.mktemp("kinds")
    with served(folder) as server:
        made = Announced(folder, server.address)
        made.emit = {"parquet": {}}
        made.archive.mkdir()
        wanted = write_all_kinds(made.archive / "all.nc")
        made.publish([made.archive / "all.nc"])
        browser.size(1200)
        browser.open(f"{server.address}/place/")
        yield browser, wanted


@pytest.mark.parametrize(
    "name",
    [
        "shuffled", "checked", "big", "double", "plain", "bytes", "halves", "long", "twice", "unsigned",
        "packed", "sparse", "ranged", "whole",
    ],
)  # fmt: skip
def test_each_way_of_storing_shows_the_values_of_its_writer(kinds: Any, name: str) -> None:
    browser, wanted = kinds
    browser.choose(name)
    assert browser.says == ""
    assert_drawn(browser, wanted[name])
    for row, column in ((0, 0), (2, 3), (3, 4), (6, 9)):
        told = float(browser.value_at(row, column)["value"])
        np.testing.assert_equal(told, wanted[name][row, column])
    assert browser.text("when") == "2020-02-28 06:00"


@contextmanager
def tiff(folder: Path, field: np.ndarray, **options: Any) -> Iterator[Announced]:
    """One TIFF of tiles of 16, announced."""
    with served(folder) as server:
        parts = {"scan": {"arrays": ["t"], "format": "tiff"}, "plan": {"concat": None}}
        made = Announced(folder, server.address, **parts)
        made.emit = {"parquet": {}}
        made.archive.mkdir()
        tifffile.imwrite(made.archive / "t.nc", field, **{"tile": (16, 16), **options})
        made.publish([made.archive / "t.nc"])
        yield made


def test_a_codec_that_the_page_does_not_have_is_named(browser: Browser, tmp_path: Path) -> None:
    with tiff(tmp_path, FIELD[0].astype("<i2"), compression="lerc") as made:
        browser.open(f"{made.at}/place/")
        assert "no decoder for imagecodecs_lerc, in which t is stored" in browser.says
        assert browser.drawn is None


NOISE = np.random.default_rng(6).integers(0, 40, (160, 208))


@pytest.mark.parametrize(
    ("compression", "dtype", "options"),
    [
        ("lzw", "<i2", {}),
        ("lzw", ">i2", {"predictor": 2}),
        ("lzw", "<f4", {"predictor": 3}),
        ("lzw", "u1", {"tile": (160, 208)}),  # a table of codes that is full and cleared
        ("packbits", "u1", {}),
        ("packbits", "<i4", {}),
        ("zlib", ">f4", {"predictor": 3}),
        ("zlib", "<f8", {"predictor": 3}),
    ],
)
def test_what_libtiff_and_tifffile_compress_is_drawn(
    browser: Browser, tmp_path: Path, compression: str, dtype: str, options: dict[str, Any]
) -> None:
    noise = NOISE if options.get("tile") else NOISE[:48, :64]
    field = np.where(noise < 25, 7, noise).astype(dtype)
    if np.dtype(dtype).kind == "f":
        field = (field * 0.37 - 3).astype(dtype)
    with tiff(
        tmp_path, field, compression=compression, byteorder=dtype[0].replace("u", "<"), **options
    ) as made:
        browser.open(f"{made.at}/place/")
        assert browser.says == ""
        assert_drawn(browser, field.astype("f8"))


def test_tiles_with_zstd_and_a_predictor_are_drawn_and_a_large_plane_in_part(
    browser: Browser, tmp_path: Path
) -> None:
    rows, columns = 160, 480  # 10 x 30 tiles of 16
    field = (np.arange(rows * columns).reshape(rows, columns) * 7 % 3001).astype("<i2")
    with tiff(tmp_path, field, compression="zstd", predictor=True) as made:
        browser.size(1200)
        browser.open(f"{made.at}/place/")
        assert browser.says == ""
        height, width = browser.pixels().shape[:2]
        assert height * width // 256 <= 64 < rows * columns // 256
        told = browser.value_at(3, 5)
        top, left = int(told["y"]) - 3, int(told["x"]) - 5
        assert_drawn(browser, field[top : top + height, left : left + width].astype("f8"))
        assert "of 10 × 30 chunks" in browser.text("provenance")
        since = browser.drawn
        browser.driver.find_element(By.CSS_SELECTOR, "[data-dx='1']").click()
        browser.settle(since)
        told = browser.value_at(3, 5)
        assert int(told["x"]) - 5 > left
        assert float(told["value"]) == field[int(told["y"]), int(told["x"])]


def test_an_archive_of_two_eras_has_one_calendar_and_a_map_of_each(
    browser: Browser, tmp_path: Path
) -> None:
    with served(tmp_path) as server:
        made = Announced(tmp_path, server.address, plan={"eras": "auto"})
        made.emit = {"parquet": {}}
        paths = [made.archive / f"{n}.nc" for n in range(1, 5)]
        for n, path in enumerate(paths, 1):
            scale = 0.01 if n < 3 else 0.5
            granules.oisst(path, date(2026, 9, n), arrays=["sst"], scale=scale)
        made.publish(paths)
        browser.open(f"{server.address}/place/")
        facts = browser.js("return document.querySelector('.facts').innerText").split("\n")
        assert {"2026-09-01", "2026-09-04", "4"} <= set(facts)
        newest = np.where(stored(4) == -999, np.nan, stored(4) * 0.5)
        assert_drawn(browser, newest[::-1])
        eras = browser.js(
            "return [...document.getElementById('variable').options].map(o => o.value)"
        )
        assert len(eras) == 2
        browser.choose(eras[0])
        assert browser.text("when") == "2026-09-02"
        assert_drawn(browser, physical(stored(2))[::-1])
        items = sorted(p.name for p in (made.place / "stac/items").iterdir())
        assert items == [f"demo-{era.split('/')[0]}.json" for era in eras]


EVIL = '"><script>document.title="owned"</script><img src=x onerror="document.title=1">'


def test_hostile_names_run_nothing_and_are_shown_as_they_are(
    browser: Browser, tmp_path: Path
) -> None:
    with served(tmp_path) as server:
        made = Announced(tmp_path, server.address, title=EVIL)
        made.emit = {"parquet": {}}
        made.archive.mkdir()
        name = "<script>document.title='owned'<"
        with h5py.File(made.archive / "a.nc", "w") as f:
            f["time"] = np.arange(2.0)
            f["time"].make_scale("time")
            f["time"].attrs["units"] = "days since 2020-01-01"
            d = granules.pipeline(f, name, FIELD.astype("<i4"), (1, 7, 10), "deflate")
            d.dims[0].attach_scale(f["time"])
            d.attrs["long_name"] = d.attrs["units"] = EVIL
        made.publish([made.archive / "a.nc"])
        browser.open(f"{server.address}/place/")
        assert browser.says == ""
        assert_drawn(browser, FIELD[-1].astype("f8"))
        assert browser.js("return document.title") == EVIL
        assert browser.js("return document.querySelector('h1').textContent") == EVIL
        assert browser.js("return document.images.length") == 0
        assert EVIL in browser.value_at(0, 0)["words"]
