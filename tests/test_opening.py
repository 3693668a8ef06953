"""The lines that a form gives for its opening, run by strangers: in a copy of its folder, and at its address."""

from __future__ import annotations

import contextlib
import gc
import json
import warnings
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest
from osgeo import gdal

import serving
from byterefs import emitters
from byterefs.emitters import Place, icechunk
from byterefs.emitters._icechunk_reader import own_containers, stored_config
from byterefs.view import View
from forms import Results
from granules import oisst
from publishing import publish
from serving import S3, Web

NAMES = ("day 1.nc", "day+2.nc")


class Published:
    """Two days on a web server and in a bucket; forms of both published to a bucket, and mirrored."""

    def __init__(self, folder: Path, s3: S3, site: Web) -> None:
        self.s3, self.own = s3, []
        for n, name in enumerate(NAMES, 1):
            path = folder / "archive" / name
            self.own.append(oisst(path, date(2020, 1, n), arrays=["sst"])["sst"])
            s3.client.put_object(Bucket="opening", Key=f"a b/{name}", Body=path.read_bytes())
        rules = {
            "http": {f"{folder}/archive/": f"{site.url}/archive/"},
            "bucket": {f"{folder}/archive/": "s3://opening/a b/"},
        }
        self.results = Results(
            folder / "results", remap=rules, targets={"bucket": {"endpoint": s3.endpoint}}
        )
        self.results.scan(sorted((folder / "archive").iterdir()))
        self.results.emit()
        for pair in self.results.pairs:
            self.results.verify(*pair)
        for target in ("http", "bucket"):
            to = {"endpoint": s3.endpoint, "target": target}
            publish(self.results, f"s3://opening/truth/{target}", f"truth-{target}", **to)
            mirror = {"endpoint": s3.endpoint, "mirror_of": f"truth-{target}"}
            publish(self.results, f"s3://opening/mirror/{target}", f"mirror-{target}", **mirror)

    def path(self, place: str, target: str, form: str) -> str:
        """The folder of a form below a bucket."""
        prefix = f"{place}/{target}"
        body = self.s3.client.get_object(Bucket="opening", Key=f"{prefix}/latest.json")["Body"]
        latest = json.loads(body.read())
        return f"{prefix}/{latest['icechunk']['path'] if form == 'icechunk' else f'v/{latest["version"]}/{form}'}"

    def fetched(self, place: str, target: str, form: str, to: Path) -> dict[str, list[str]]:
        """Fetch a form's folder as it lies there; the lines of its open.json."""
        prefix = self.path(place, target, form) + "/"
        for key, data in self.s3.keys("opening", prefix).items():
            file = to / key.removeprefix(prefix)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(data)
        return dict(json.loads((to / "open.json").read_text())["open"])

    def at_address(self, place: str, target: str, form: str, scheme: str) -> dict[str, list[str]]:
        """The lines that open a form where it lies."""
        path = self.path(place, target, form)
        base = f"s3://opening/{path}" if scheme == "s3" else f"{self.s3.endpoint}/opening/{path}"
        with View.open(self.results.store) as view:
            told = emitters.load(form).opening(
                view, target=target, options={"json": True}, place=Place(base, self.s3.endpoint)
            )
        return dict(told)


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory, s3: S3) -> Iterator[Published]:
    folder = tmp_path_factory.mktemp("opening")
    s3.bucket("opening", public=True)
    with pytest.MonkeyPatch.context() as patch, serving.web(folder) as site:
        for name, value in s3.environment.items():
            patch.setenv(name, value)
        yield Published(folder, s3, site)


@pytest.fixture(autouse=True)
def stranger(monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody without keys."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_ENDPOINT_URL_S3"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


def dataset(lines: list[str], name: str = "ds") -> np.ndarray:
    """Run lines of Python; the stored values of ``sst`` in the dataset that they leave."""
    left: dict[str, Any] = {}
    text = "\n".join(lines).replace(
        "consolidated=False", "consolidated=False, mask_and_scale=False"
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exec(text, left)
        values = np.asarray(left[name]["sst"].values)
        if hasattr(left.get("store"), "close"):
            left["store"].close()
        return values


def same(found: np.ndarray, published: Published) -> bool:
    return bool(np.array_equal(found, np.concatenate(published.own)))


PLACES = [(p, t) for p in ("truth", "mirror") for t in ("http", "bucket")]


@pytest.mark.parametrize(("place", "target"), PLACES)
@pytest.mark.parametrize("form", ["kerchunk", "icechunk"])
def test_xarray_opens_a_fetched_copy_and_the_address_itself(
    published: Published, tmp_path: Path, place: str, target: str, form: str
) -> None:
    lines = published.fetched(place, target, form, tmp_path)["xarray"]
    with contextlib.chdir(tmp_path):
        assert same(dataset(lines), published)
        if form == "kerchunk":
            assert same(dataset(lines, "ds_json"), published)
    for scheme in ("http", *(["s3"] if form == "icechunk" else [])):
        assert same(dataset(published.at_address(place, target, form, scheme)["xarray"]), published)


@pytest.mark.parametrize("form", ["parquet", "sqlite"])
@pytest.mark.parametrize("place", ["truth", "mirror"])
def test_xarray_opens_a_table_by_our_own_reader_in_a_fetched_copy_and_at_its_address(
    published: Published, tmp_path: Path, place: str, form: str
) -> None:
    lines = published.fetched(place, "http", form, tmp_path)["xarray"]
    here = "\n".join(lines)
    if form == "sqlite":
        assert here.count("# targets: access, bucket, http") == 1
        here = here.replace("target='access'", "target='http'")
    with contextlib.chdir(tmp_path):
        assert same(dataset([here]), published)
    assert same(dataset(published.at_address(place, "http", form, "http")["xarray"]), published)


@pytest.mark.parametrize(("place", "target"), PLACES)
def test_gdal_opens_the_vrt_in_a_fetched_copy_and_at_its_address(
    published: Published, tmp_path: Path, place: str, target: str
) -> None:
    options = {
        "AWS_S3_ENDPOINT": published.s3.endpoint.partition("://")[2], "AWS_HTTPS": "NO",
        "AWS_VIRTUAL_HOSTING": "FALSE", "AWS_NO_SIGN_REQUEST": "YES",
    }  # fmt: skip
    lines = published.fetched(place, target, "vrt", tmp_path)["gdal"]
    for scheme in ("file", "http", "s3"):
        if scheme != "file":
            lines = published.at_address(place, target, "vrt", scheme)["gdal"]
        left: dict[str, Any] = {}
        with gdal.config_options(options, thread_local=False), contextlib.chdir(tmp_path):
            exec(next(line for line in lines if line.startswith("from osgeo")), left)
            assert same(left["a"].ReadAsArray(), published)


@pytest.mark.parametrize("form", ["parquet", "sqlite"])
@pytest.mark.parametrize("place", ["truth", "mirror"])
def test_tables_are_opened_in_a_fetched_copy_by_python_and_duckdb(
    published: Published, tmp_path: Path, place: str, form: str
) -> None:
    lines = published.fetched(place, "http", form, tmp_path)
    with contextlib.chdir(tmp_path):
        left: dict[str, Any] = {}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)  # a stranger closes nothing
            exec("\n".join(lines["python"]), left)
            gc.collect()
        if form == "parquet":
            assert left["rows"].read_all().num_rows == 2
            with duckdb.connect() as con:
                assert [len(con.execute(line).fetchall()) for line in lines["duckdb"]] == [2, 2]


@pytest.mark.parametrize("place", ["truth", "mirror"])
def test_the_table_is_opened_at_its_address_by_gdal_and_fetched_from_there_by_python(
    published: Published, tmp_path: Path, place: str, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = published.at_address(place, "http", "sqlite", "http")
    with contextlib.chdir(tmp_path), warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        exec(next(line for line in lines["gdal"] if line.startswith("from osgeo")), {})
        assert capsys.readouterr().out == "2\n"
        exec("\n".join(lines["python"]), {})
        gc.collect()
    assert "day%202.nc" in capsys.readouterr().out.replace("+", "%20")


def test_each_remap_row_is_a_container_and_readers_are_told_how_each_is_asked(
    s3: S3, tmp_path: Path, s3_environment: S3
) -> None:
    s3.bucket("rows", public=True)
    own, paths = [], []
    for n, name in enumerate(("web/1.nc", "bucket/2.nc"), 1):
        paths.append(tmp_path / name)
        own.append(oisst(paths[-1], date(2020, 1, n), arrays=["sst"])["sst"])
    s3.client.put_object(Bucket="rows", Key="x/2.nc", Body=paths[1].read_bytes())
    with serving.web(tmp_path) as site:
        rules = {f"{tmp_path}/web/": f"{site.url}/web/", f"{tmp_path}/bucket/": "s3://rows/x/"}
        results = Results(
            tmp_path / "results", remap={"public": rules}, targets={"public": {"endpoint": s3.endpoint}}
        )  # fmt: skip
        results.scan(paths)
        results.emit(("access", "icechunk"))
        with View.open(results.store) as view:
            icechunk.retarget(results.out("access", "icechunk"), view, "public", tmp_path / "copy")
        config = stored_config(tmp_path / "copy")
        assert sorted(own_containers(config).values()) == sorted(rules.values())
        assert len(own_containers(config)) == 2
        with contextlib.chdir(tmp_path / "copy"):
            lines = json.loads(Path("open.json").read_text())["open"]["xarray"]
            assert np.array_equal(dataset(lines), np.concatenate(own))


def test_every_form_says_what_its_readers_have_to_mind(
    published: Published, tmp_path: Path
) -> None:
    told = {}
    for form in ("kerchunk", "icechunk"):
        published.fetched("truth", "http", form, tmp_path / form)
        told[form] = json.loads((tmp_path / form / "open.json").read_text())["notes"]
        assert all(note in (tmp_path / form / "OPEN.md").read_text() for note in told[form])
    assert any("ends in .parq" in note for note in told["kerchunk"])
    assert any("GDAL 3.14" in note for note in told["icechunk"])
