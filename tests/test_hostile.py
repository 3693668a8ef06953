"""Names, attributes and titles that would be markup, paths or numbers, through every page and every catalogue."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import h5py
import numpy as np
import pytest

from announcing import Announced, served
from browser import Browser, started
from byterefs import register, report, urls
from byterefs.errors import EmitError
from byterefs.view import View
from forms import Results
from test_register import Page, errors, rows

EVIL = '"><script>document.title="owned"</script><img src=x onerror=alert(1)>'

NAMES = (
    "<img src=x onerror=alert(1)>", "quo\"te'`", "line\nbreak", "rtl\u202eevil", "n" * 180, "../../up", "{{7*7}}",
    "a;b --", "<b>/<i>",
)  # fmt: skip


def write_hostile(file: Path) -> None:
    """Arrays, attributes and a history that would be markup, paths or numbers where they are not escaped."""
    with h5py.File(file, "w") as f:
        f.attrs["title"] = f.attrs["history"] = EVIL + "\n\u202e" + "w" * 3000
        f["time"] = np.arange(2.0)
        f["time"].make_scale("time")
        f["time"].attrs["units"] = "days since 2020-01-01"
        for name in NAMES:
            d = f.create_dataset(name, data=np.zeros((2, 4), "i2"), chunks=(1, 4))
            d.dims[0].attach_scale(f["time"])
            d.attrs["long_name"] = d.attrs["units"] = d.attrs["standard_name"] = EVIL
            d.attrs["scale_factor"] = d.attrs["add_offset"] = EVIL
            d.attrs["coordinates"] = d.attrs["grid_mapping"] = "../../etc"


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Announced]:
    """Two files of hostile names, published, catalogued and reported on."""
    folder = tmp_path_factory.mktemp("hostile")
    with served(folder) as server:
        made = Announced(folder, server.address, title=EVIL)
        made.emit = {"parquet": {}, "sqlite": {}, "vrt": {}}
        made.archive.mkdir()
        file = made.archive / "<script>alert(1)<\u202e'\".nc"
        write_hostile(file)
        made.publish([file])
        register.catalogue(
            made.results.folder / "root" / "receipt.json",
            announced=[made.receipt("register", "receipt")],
            where={"to": str(made.place / "all")},
        )
        folder = made.results.folder / "report"
        folder.mkdir()
        plan = made.results.folder / "plan" / "consistency.html"
        plan.parent.mkdir(exist_ok=True)
        shutil.copy(made.results.store.parent / "plan" / "consistency.html", plan)
        paths = {
            n: folder / f"{n}.html" for n in ("coverage", "sizes", "consistency", "verification")
        }
        proofs = [p for p in made.results.proofs if p.stem in made.emit]
        report.run(made.results.store, verified=proofs, newest=folder / "newest.png", **paths)
        yield made


def test_hostile_names_run_nothing_on_any_page(hostile: Announced) -> None:
    pages = sorted(hostile.folder.rglob("*.html"))
    assert {p.name for p in pages} == {
        "index.html", "catalog.html", "consistency.html", "coverage.html", "sizes.html", "verification.html",
    }  # fmt: skip
    for path in pages:
        found = Page(path.read_text()).found
        tags = [t for t, _ in found]
        assert tags.count("script") == (2 if path.name == "index.html" else 0), path
        assert not {"img", "iframe", "object", "b", "i"} & set(tags), path
        assert [a for _, a in found if any(k.startswith("on") for k in a)] == [], path


def test_hostile_names_are_shown_as_they_are(hostile: Announced) -> None:
    said = Page((hostile.place / "index.html").read_text()).texts
    for name in (*NAMES, EVIL):
        assert name.removeprefix("../../") in "\n".join(said)
    assert EVIL in Page((hostile.place / "all" / "catalog.html").read_text()).texts
    collection = json.loads((hostile.place / "stac" / "collection.json").read_text())
    assert collection["title"] == EVIL
    shown = {name.rpartition("/")[2] for name in collection["cube:variables"]}
    assert {name.rpartition("/")[2] for name in NAMES} <= shown
    assert errors(collection) == []
    assert {row["dataset"] for row in rows(hostile)} == {"demo"}


def test_hostile_names_write_nothing_outside_their_folders(hostile: Announced) -> None:
    below = {p.relative_to(hostile.folder).parts[0] for p in hostile.folder.rglob("*")}
    assert below == {"archive", "place", "results"}
    assert {p.name for p in hostile.folder.parent.iterdir()} & {"up", "etc"} == set()
    parquet = hostile.place / "current.parquet"
    with View.open(hostile.results.store) as view:
        wanted = {f"refs_{urls.file_name(name)}.parquet" for name in view.referenced()}
    assert len(wanted) == len(NAMES)
    there = {str(p.relative_to(parquet)) for p in parquet.rglob("*.parquet")}
    assert there == {*wanted, "sources.parquet"}


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with started() as found:
        yield found


@pytest.mark.parametrize("width", [360, 1200])
def test_no_page_of_hostile_names_is_wider_than_its_screen(
    hostile: Announced, browser: Browser, width: int
) -> None:
    browser.size(width)
    for path in sorted(hostile.folder.rglob("*.html")):
        browser.driver.get(path.as_uri())
        assert browser.js("return document.documentElement.scrollWidth") <= width, path
        assert browser.js("return document.title") != "owned"


@pytest.mark.parametrize(
    ("form", "name", "words"),
    [
        ("icechunk", "../../up", "for no name"),
        ("icechunk", "zarr.json", "for no name"),
        ("kerchunk", "../../up", "outside the form"),
        ("vrt", "bell\x07", "no XML document"),
    ],
)
def test_a_form_that_cannot_say_a_name_refuses_it_by_name(
    tmp_path: Path, form: str, name: str, words: str
) -> None:
    file = tmp_path / "archive" / "a.nc"
    file.parent.mkdir()
    with h5py.File(file, "w") as f:
        f["time"] = np.arange(2.0)
        f["time"].make_scale("time")
        f["time"].attrs["units"] = "days since 2020-01-01"
        d = f.create_dataset(name, data=np.zeros((2, 4), "i2"), chunks=(1, 4))
        d.dims[0].attach_scale(f["time"])
    made = Results(tmp_path / "results")
    made.scan([file])
    with pytest.raises(EmitError, match=words) as refusal:
        made.emit(("access", form))
    assert str(refusal.value).startswith(f"{name}: ")
