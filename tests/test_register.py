"""What is announced of a publication: rows that open it, STAC that validates, a page that escapes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import urljoin
from urllib.request import urlopen

import duckdb
import h5py
import numpy as np
import pyarrow.parquet as pq
import pystac
import pytest
import yaml
from jsonschema import Draft7Validator, Draft202012Validator
from osgeo import gdal, ogr
from pystac.validation.local_validator import get_local_schema_cache
from referencing import Registry, Resource

import byterefs
from announcing import Announced, served
from byterefs import register
from byterefs.errors import RegisterError
from byterefs.files import covers
from granules import EPOCH, packed
from serving import S3

gdal.UseExceptions()
ogr.UseExceptions()
KINDS = ["icechunk", "kerchunk_parquet", "mdim_refs", "mdim_vrt", "parquet"]
DATACUBE, PROJECTION = (
    yaml.safe_load((Path(__file__).parent / f"{name}.yaml").read_text())
    for name in ("datacube", "projection")
)
SHAPE = (18, 36)


@pytest.fixture(scope="module")
def announced(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Announced]:
    """Three days, published at a server of their own and mirrored."""
    folder = tmp_path_factory.mktemp("register")
    with served(folder) as server:
        made = Announced(folder, server.address, title="Sea <surface> temperature & ice")
        mirror = {"name": "copy", "to": str(folder / "mirror"), "url": f"{server.address}/mirror"}
        made.syncs.append({**mirror, "mirror_of": "here"})
        made.days(1, 3, arrays=["sst", "ice"])
        yield made


def rows(made: Announced, name: str = "here") -> list[dict[str, Any]]:
    table = pq.read_table(made.results.folder / "register" / name / "sds.parquet")
    return list(table.to_pylist())


def test_there_is_one_sds_row_per_published_form_with_its_kind_and_bowerbird_id(
    announced: Announced,
) -> None:
    found = rows(announced)
    assert sorted(row["kind"] for row in found) == KINDS
    assert {row["bowerbird"] for row in found} == {"noaa_oisst_daily"}
    assert (
        len({row["name"] for row in found} | {row["name"] for row in rows(announced, "copy")}) == 10
    )
    version = json.loads((announced.place / "latest.json").read_text())["version"]
    assert {row["version"] for row in found} == {version}


def test_csv_and_parquet_of_sds_hold_the_same_rows(announced: Announced) -> None:
    csv = duckdb.read_csv(str(announced.place / "sds.csv"), all_varchar=True)
    table = [tuple(row.values()) for row in rows(announced)]
    assert csv.fetchall() == table
    assert csv.columns == list(rows(announced)[0])


@pytest.mark.parametrize("column", ["dsn", "current"])
@pytest.mark.parametrize("publication", ["here", "copy"])
def test_the_strings_of_sds_open_the_form_over_http_and_give_the_granules_values(
    announced: Announced, publication: str, column: str
) -> None:
    found = {row["kind"]: row[column] for row in rows(announced, publication)}
    group = gdal.OpenEx(found["mdim_vrt"], gdal.OF_MULTIDIM_RASTER).GetRootGroup()
    days = group.OpenMDArray("time").ReadAsArray()
    for i, value in enumerate(group.OpenMDArray("sst").ReadAsArray()):
        day = EPOCH.fromordinal(EPOCH.toordinal() + int(days[i]))
        np.testing.assert_array_equal(value, packed(day, "sst", (1, 1, *SHAPE))[0])
    store = ogr.Open(found["mdim_refs"])
    assert store.GetLayerByName("refs_sst").GetFeatureCount() == 3
    with urlopen(found["parquet"]) as answer:
        assert answer.status == 200
    inside = found["kerchunk_parquet"].split("{/vsicurl/")[1].split("}")[0]
    with urlopen(f"{inside}/.zmetadata") as answer:
        assert "sst/.zarray" in json.load(answer)["metadata"]
    with urlopen(found["icechunk"] + "repo") as answer:
        assert answer.status == 200


@pytest.mark.parametrize("form", ["kerchunk", "icechunk", "parquet", "sqlite", "vrt"])
def test_the_lines_of_the_page_run_anywhere(
    announced: Announced, form: str, tmp_path: Path
) -> None:
    blocks = page(announced).blocks
    words = {
        "kerchunk": "kerchunk",
        "icechunk": "Icechunk",
        "sqlite": "SQLite",
        "parquet": "table, Parquet",
        "vrt": "VRT",
    }[form]
    tab = "GDAL" if form == "vrt" else "Python"
    code = [text for t, title, text in blocks if t == tab and words in title]
    if form == "parquet":  # DuckDB fetches its extension for HTTP from elsewhere
        code = [text for text in code if "byterefs" in text]
    lines = [line for line in "".join(code).splitlines() if not line.startswith("gdal ")]
    if form != "vrt":
        lines.append("print(float(ds.sst.isel(time=-1, zlev=0)[-1, -1]))")
    command = [sys.executable, "-c", "\n".join(lines)]
    own = {**os.environ, "PYTHONPATH": str(Path(byterefs.__file__).parents[1])}
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, check=False, env=own
    )
    assert done.returncode == 0, done.stderr
    day = EPOCH.fromisoformat("2026-09-03")
    wanted = packed(day, "sst", (1, 1, *SHAPE))[0, 0, -1, -1] * np.float32(0.01)
    if form != "vrt":
        assert float(done.stdout.splitlines()[-1]) == pytest.approx(float(wanted), abs=1e-6)
    else:
        assert done.stdout.strip()


# --- STAC ------------------------------------------------------------------------------------------


def test_the_collection_and_its_items_validate_offline_with_the_datacube_extension(
    announced: Announced,
) -> None:
    collection = pystac.Collection.from_file(str(announced.place / "stac/collection.json"))
    items = list(collection.get_items())
    assert [item.id for item in items] == ["demo"]
    for each in (collection, *items):
        content = each.to_dict()
        assert errors(content) == []
        assert each.ext.has("cube")
    dims = items[0].ext.cube.dimensions
    assert {name: d.dim_type for name, d in dims.items()} == {
        "time": "temporal", "zlev": "spatial", "lat": "spatial", "lon": "spatial",
    }  # fmt: skip
    assert dims["time"].extent == ["2026-09-01T12:00:00Z", "2026-09-03T12:00:00Z"]
    assert dims["lat"].extent == [-85.0, 85.0]
    assert set(items[0].ext.cube.variables) == {"sst", "ice"}
    assert items[0].bbox == [-180, -85, 180, 85]
    assert items[0].common_metadata.start_datetime.isoformat() == "2026-09-01T12:00:00+00:00"


def errors(content: dict[str, Any]) -> list[str]:
    """What the schemas that pystac ships, and those of the extensions, do not allow."""
    name = {"Feature": "item", "Collection": "collection", "Catalog": "catalog"}[content["type"]]
    shipped = get_local_schema_cache()
    known = Registry().with_resources((k, Resource.from_contents(v)) for k, v in shipped.items())
    uri = f"https://schemas.stacspec.org/v1.1.0/{name}-spec/json-schema/{name}.json"
    found = list(Draft7Validator(shipped[uri], registry=known).iter_errors(content))
    place = content.get("properties", content)
    if content["type"] != "Catalog":
        for schema in (DATACUBE, PROJECTION):
            found += list(Draft202012Validator(schema).iter_errors(place))
    return [error.message for error in found]


def test_a_validator_that_is_asked_finds_what_is_wrong(announced: Announced) -> None:
    content = json.loads((announced.place / "stac/items/demo.json").read_text())
    content["properties"]["cube:dimensions"]["time"]["extent"] = ["2026-09-01T12:00:00Z"]
    del content["geometry"]
    assert len(errors(content)) >= 2


def test_every_asset_and_every_link_leads_to_something(announced: Announced) -> None:
    base = f"{announced.at}/place/stac/"
    for name in ("collection.json", "items/demo.json"):
        with urlopen(urljoin(base, name)) as answer:
            content = json.load(answer)
        assert sorted(content["assets"]) == ["icechunk", "kerchunk", "parquet", "sqlite", "vrt"]
        hrefs = [a["href"] for a in content["assets"].values()]
        for href in [*hrefs, *(urljoin(urljoin(base, name), x["href"]) for x in content["links"])]:
            with urlopen(href) as answer:
                assert answer.status == 200


def test_the_root_catalogue_and_its_sds_table_hold_every_dataset(
    announced: Announced, tmp_path: Path
) -> None:
    results = tmp_path / "results"
    for name in ("one", "two"):
        shutil.copytree(announced.results.folder / "register", results / name / "register")
    found = [results / name / "register" / "receipt.json" for name in ("one", "two")]
    register.catalogue(results / "register" / "receipt.json", announced=found)
    catalogue = json.loads((results / "register" / "catalog.json").read_text())
    assert errors(catalogue) == []
    children = [link["href"] for link in catalogue["links"] if link["rel"] == "child"]
    assert children == [f"{announced.at}/place/stac/collection.json"] * 2
    assert pystac.Collection.from_file(children[0]).id == "demo"
    assert len(pq.read_table(results / "register" / "sds.parquet")) == 20


def catalogued(made: Announced, results: Path, where: dict[str, Any]) -> dict[str, Any]:
    found = [made.receipt("register", "receipt")]
    return register.catalogue(results / "register/receipt.json", announced=found, where=where)


def test_the_root_catalogue_in_a_directory_leads_to_each_collection_over_http(
    announced: Announced, tmp_path: Path
) -> None:
    where = announced.folder / "all"
    assert catalogued(announced, tmp_path, {"to": str(where)})["put"] == 4
    left = where / "other/data.bin"
    left.parent.mkdir()
    left.write_bytes(b"kept")
    assert catalogued(announced, tmp_path, {"to": str(where)})["unchanged"] == 4
    assert sorted(covers(where)) == [
        "catalog.html", "catalog.json", "other/data.bin", "sds.csv", "sds.parquet",
    ]  # fmt: skip
    root = pystac.Catalog.from_file(f"{announced.at}/all/catalog.json")
    (child,) = root.get_children()
    assert [item.bbox for item in child.get_items()] == [[-180, -85, 180, 85]]
    assert len(pq.read_table(where / "sds.parquet")) == 10


def test_the_root_catalogue_in_a_bucket_is_read_by_everybody(
    announced: Announced, tmp_path: Path, s3_environment: S3
) -> None:
    bucket, endpoint = s3_environment.bucket("catalogue", public=True), s3_environment.endpoint
    where = {"to": f"s3://{bucket}/a b/all", "endpoint": endpoint}
    assert catalogued(announced, tmp_path, where)["put"] == 4
    assert catalogued(announced, tmp_path, where)["unchanged"] == 4
    names = ("catalog.html", "catalog.json", "sds.csv", "sds.parquet")
    assert sorted(s3_environment.keys(bucket)) == [f"a b/all/{name}" for name in names]
    root = pystac.Catalog.from_file(f"{endpoint}/{bucket}/a%20b/all/catalog.json")
    assert [child.id for child in root.get_children()] == ["demo"]


def test_a_catalogue_in_a_bucket_never_leads_to_a_path_of_this_machine(
    announced: Announced, tmp_path: Path
) -> None:
    told = announced.told()
    for found in told["announced"].values():
        found["collection"] = "/srv/place/stac/collection.json"
    receipt = tmp_path / "demo/register/receipt.json"
    shutil.copytree(announced.results.folder / "register", receipt.parent)
    receipt.write_text(json.dumps(told))
    with pytest.raises(RegisterError, match=r"'demo' is published at /srv/place.*sync\.url"):
        register.catalogue(
            tmp_path / "register/receipt.json", announced=[receipt], where={"to": "s3://b/all"}
        )
    assert not (tmp_path / "register").exists()


# --- again -----------------------------------------------------------------------------------------


def test_the_same_publication_is_announced_with_the_same_bytes_and_nothing_is_sent_again(
    announced: Announced,
) -> None:
    before, there = covers(announced.results.folder / "register"), covers(announced.place)
    counts = announced.register()
    assert covers(announced.results.folder / "register").keys() == before.keys()
    assert {k: v for k, v in covers(announced.place).items() if v != there.get(k)} == {}
    assert counts["put"] == 0
    assert counts["unchanged"] == 10


def test_sync_and_its_mirror_leave_what_is_announced_alone(announced: Announced) -> None:
    mirror = announced.folder / "mirror"
    kept = {p: (p / "index.html").read_bytes() for p in (announced.place, mirror)}
    announced.sync()
    for place, text in kept.items():
        assert (place / "index.html").read_bytes() == text
        assert (place / "stac/collection.json").exists()
    receipt = json.loads(announced.receipt("sync", "here").read_text())
    assert not [k for k in receipt["keys"] if k.startswith(("stac", "sds", "index"))]
    assert kept[announced.place] != kept[mirror]


def test_what_is_no_longer_announced_is_removed_from_its_place(announced: Announced) -> None:
    left = announced.place / "stac" / "items" / "gone.json"
    left.write_text("{}")
    assert announced.register()["deleted"] == 1
    assert not left.exists()


def test_a_verification_of_another_state_is_refused(announced: Announced) -> None:
    path = announced.results.proof("public", "vrt")
    kept = path.read_text()
    path.write_text(json.dumps({**json.loads(kept), "view": "0" * 64}))
    with pytest.raises(RegisterError, match="another state of the table"):
        announced.register()
    path.write_text(kept)
    announced.register()


# --- the page --------------------------------------------------------------------------------------


class Page(HTMLParser):
    """Elements of a page, and its blocks of code as (tab, title, text)."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.blocks: list[tuple[str, str, str]] = []
        self.texts: list[str] = []
        self._tab = self._title = ""
        self._within: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        self._within.append(tag)
        if "data-tab" in dict(attrs):
            self._tab = str(dict(attrs)["data-tab"])

    def handle_endtag(self, tag: str) -> None:
        while self._within and self._within.pop() != tag:
            pass

    def handle_data(self, data: str) -> None:
        self.texts.append(data)
        if self._within[-1:] == ["h3"]:
            self._title = data
        if self._within[-2:] == ["pre", "code"]:
            self.blocks.append((self._tab, self._title, data))


def page(made: Announced) -> Page:
    return Page((made.place / "index.html").read_text())


def test_the_page_is_one_file_that_needs_nothing_from_elsewhere(announced: Announced) -> None:
    found = page(announced).found
    assert [
        a
        for t, a in found
        if t in ("script", "img", "iframe", "link") and ("src" in a or "href" in a)
    ] == []
    assert "@import" not in (announced.place / "index.html").read_text()
    links = [str(a["href"]) for t, a in found if t == "a" and not str(a["href"]).startswith("#")]
    for link in links:
        with urlopen(urljoin(f"{announced.at}/place/", link)) as answer:
            assert answer.status == 200
    assert len(links) >= 8


def test_the_page_says_what_the_dataset_is_in_escaped_text(announced: Announced) -> None:
    text = (announced.place / "index.html").read_text()
    assert "<h1>Sea &lt;surface&gt; temperature &amp; ice</h1>" in text
    said = " ".join(page(announced).texts)
    for words in ("2026-09-01", "2026-09-03", "No gap", "Celsius", "equal", "shuffle, zlib"):
        assert words in said


def test_the_page_has_a_tab_for_each_language(announced: Announced) -> None:
    assert list(dict.fromkeys(tab for tab, _, _ in page(announced).blocks)) == [
        "R", "Python", "GDAL", "DuckDB", "Browser",
    ]  # fmt: skip


def test_what_is_copied_together_is_of_one_language(announced: Announced) -> None:
    blocks = page(announced).blocks
    assert len({(tab, title) for tab, title, _ in blocks}) == len(blocks)
    for tab, title, text in blocks:
        if tab == "GDAL":
            python = ["osgeo" in line for line in text.splitlines()]
            assert all(python) if title.endswith(", in Python") else not any(python)
        if tab == "DuckDB":
            assert [line for line in text.splitlines() if ";" not in line] == []
    assert [title for tab, title, _ in blocks if tab == "GDAL"].count(
        "GDAL multidimensional VRT, in Python"
    ) == 1


EVIL = '"><script>document.title="owned"</script><img src=x onerror=alert(1)>'


def test_hostile_names_and_attributes_are_text_and_nothing_leaves_its_folder(
    tmp_path: Path,
) -> None:
    with served(tmp_path) as server:
        made = Announced(tmp_path, server.address, title=EVIL)
        made.archive.mkdir()
        made.emit = {"parquet": {}, "sqlite": {}}
        file = made.archive / "a.nc"
        with h5py.File(file, "w") as f:
            f.attrs["references"] = "javascript:alert(1)"
            f.attrs["institution"] = EVIL
            f.attrs["summary"] = "</script></style>" + EVIL
            f["time"] = np.arange(2.0)
            f["time"].make_scale("time")
            f["time"].attrs["units"] = "days since 2020-01-01"
            for name in ("<script>alert(1)<", "..\\x' onload='y", "x..%2F..%2Fy"):
                d = f.create_dataset(name, data=np.zeros((2, 4), "i2"), chunks=(1, 4))
                d.dims[0].attach_scale(f["time"])
                d.attrs["long_name"] = d.attrs["units"] = EVIL
        made.publish([file])
        found = page(made)
        assert [t for t, _ in found.found].count("script") == 2
        assert [a for _, a in found.found if any(k.startswith("on") for k in a)] == []
        assert "img" not in [t for t, _ in found.found]
        assert [a for t, a in found.found if t == "a" and "script:" in str(a.get("href"))] == []
        below = {p.relative_to(tmp_path).parts[0] for p in tmp_path.rglob("*")}
        assert below == {"archive", "place", "results"}
        own = {p.name for p in (made.results.folder / "register" / "here").rglob("*")}
        assert own == {
            "index.html",
            "sds.csv",
            "sds.parquet",
            "stac",
            "collection.json",
            "items",
            "demo.json",
        }
