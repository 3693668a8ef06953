"""What strangers are given: copies that are the scanned files, addresses that may be served, no secrets."""

from __future__ import annotations

import json
import logging
import os
import shutil
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

import pytest

import serving
from byterefs import config as configs
from byterefs import discover
from byterefs.access import web
from byterefs.errors import ConfigError, DiscoverError, RemapError, VerifyError
from forms import Results
from granules import oisst
from publishing import publish
from serving import S3, Web


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Web]:
    monkeypatch.setattr(web, "PAUSE", 0.001)
    (tmp_path / "site").mkdir()
    with serving.web(tmp_path / "site") as found:
        yield found


def archive(folder: Path, days: int = 3) -> list[Path]:
    paths = [folder / "archive" / f"2020010{n}.nc" for n in range(1, days + 1)]
    for n, path in enumerate(paths, 1):
        oisst(path, date(2020, 1, n), arrays=["sst"])
    return paths


def mirrored(folder: Path, url: str, **parts: Any) -> Results:
    """Results of an archive whose public copies are below ``url``, emitted for both targets."""
    results = Results(folder / "results", remap={"public": {f"{folder}/archive/": url}}, **parts)
    results.scan(archive(folder))
    results.emit(("public", "parquet"), ("public", "vrt"))
    return results


# --- access and public -----------------------------------------------------------------------------


def test_public_copies_of_the_same_bytes_are_accepted_and_counted(
    tmp_path: Path, site: Web
) -> None:
    results = mirrored(tmp_path, f"{site.url}/archive/")
    shutil.copytree(tmp_path / "archive", site.root / "archive")
    report = results.verify("public", "parquet", public=True)
    assert report["verified_via"] == "public"
    assert report["public"]["sources"] == 3
    assert report["public"]["ranges"] >= 9
    assert results.verify("public", "vrt")["verified_via"] == "access"


@pytest.mark.parametrize("place", ["head", "tail"])
def test_a_public_copy_of_other_bytes_refuses_the_target(
    tmp_path: Path, site: Web, place: str
) -> None:
    results = mirrored(tmp_path, f"{site.url}/archive/")
    shutil.copytree(tmp_path / "archive", site.root / "archive")
    with (site.root / "archive/20200102.nc").open("r+b") as f:
        f.seek(*((0, 0) if place == "head" else (-1, 2)))
        byte = f.read(1)
        f.seek(-1, 1)
        f.write(bytes([byte[0] ^ 1]))
    with pytest.raises(
        VerifyError, match=r"target 'public' is refused: .*0102\.nc: bytes .* are not those of"
    ):
        results.verify("public", "parquet", public=True)
    assert not results.proof("public", "parquet").exists()


@pytest.mark.parametrize("fault", [serving.status(404), serving.page, serving.no_ranges])
def test_a_public_copy_that_strangers_cannot_read_refuses_the_target(
    tmp_path: Path, site: Web, fault: serving.Fault
) -> None:
    results = mirrored(tmp_path, f"{site.url}/archive/")
    shutil.copytree(tmp_path / "archive", site.root / "archive")
    site.faults["/archive/20200103.nc"] = fault
    with pytest.raises(
        VerifyError, match=r"target 'public' is refused: .*0103\.nc: .*verify\.public"
    ):
        results.verify("public", "parquet", public=True)


def test_a_public_copy_of_another_size_refuses_the_target(tmp_path: Path, site: Web) -> None:
    results = mirrored(tmp_path, f"{site.url}/archive/")
    shutil.copytree(tmp_path / "archive", site.root / "archive")
    with (site.root / "archive/20200101.nc").open("ab") as f:
        f.write(b"x")
    with pytest.raises(
        VerifyError, match=r"0101\.nc: it has \d+ bytes, and .*0101\.nc had \d+ when"
    ):
        results.verify("public", "parquet", public=True)


def test_a_public_bucket_is_asked_without_keys(tmp_path: Path, s3_environment: S3) -> None:
    closed, opened = (
        s3_environment.bucket(f"public-{n}", public=n == "open") for n in ("closed", "open")
    )
    results = mirrored(
        tmp_path, f"s3://{opened}/", targets={"public": {"endpoint": s3_environment.endpoint}}
    )
    s3_environment.put_tree(opened, tmp_path / "archive")
    assert results.verify("public", "parquet", public=True)["public"]["sources"] == 3
    other = tmp_path / "other"
    results = mirrored(
        other, f"s3://{closed}/", targets={"public": {"endpoint": s3_environment.endpoint}}
    )
    s3_environment.put_tree(closed, other / "archive")
    with pytest.raises(VerifyError, match=r"target 'public' is refused: .*anonymous"):
        results.verify("public", "parquet", public=True)


# --- what a target may serve -----------------------------------------------------------------------


def test_a_target_that_would_serve_a_path_outside_what_it_allows_is_refused(tmp_path: Path) -> None:
    rules = {"public": {f"{tmp_path}/archive/": "s3://private/x/"}}
    allow = {"public": {"allow": ["s3://open/", "https://data.example.org"]}}
    results = Results(tmp_path / "results", remap=rules, targets=allow)
    with pytest.raises(
        RemapError,
        match=r"would serve it as s3://private/x/20200101\.nc, and it allows only s3://open/",
    ):
        results.scan(archive(tmp_path))
    allow["public"]["allow"].append("/vsis3/private/")
    Results(tmp_path / "results", remap=rules, targets=allow).scan([])


def test_access_itself_can_be_held_to_what_it_may_serve(tmp_path: Path) -> None:
    results = Results(tmp_path / "results", targets={"access": {"allow": ["s3://open/"]}})
    with pytest.raises(RemapError, match="target 'access' would serve it as /"):
        results.scan(archive(tmp_path))


def test_the_first_publication_says_that_sqlite_carries_the_sources_own_paths(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rules = {"public": {f"{tmp_path}/archive/": "https://example.org/"}}
    results = Results(tmp_path / "results", remap=rules)
    results.scan(archive(tmp_path))
    results.emit()
    for pair in results.pairs:
        results.verify(*pair)
    said = rf"publishes the sources' own paths, {tmp_path}/archive/20200101.nc for one"
    publish(results, tmp_path / "place", target="public")
    assert said in caplog.text
    assert "emit.sqlite.sources: public" in caplog.text
    caplog.clear()
    publish(results, tmp_path / "place", target="public")
    publish(results, tmp_path / "second", name="second")
    assert said not in caplog.text


# --- secrets ---------------------------------------------------------------------------------------

SECRETS = [
    "https://user:geheim@example.org/data/",
    "https://example.org/data/x.nc?X-Amz-Signature=geheim&X-Amz-Date=1",
    "https://example.org/data/?token=geheim",
]


@pytest.mark.parametrize("url", SECRETS)
def test_a_config_with_a_secret_in_an_address_is_refused_and_does_not_show_it(
    tmp_path: Path, url: str
) -> None:
    path = tmp_path / "demo.yaml"
    source = {"provider": "http", "url": url, "pattern": r"\.nc$"}
    path.write_text(json.dumps({"dataset": "demo", "source": source}))
    with pytest.raises(
        ConfigError, match=r"source\.url: an address with a password or a signature"
    ) as caught:
        configs.load(path)
    assert "geheim" not in str(caught.value)


@pytest.mark.parametrize("url", SECRETS)
def test_a_listing_with_a_secret_in_an_address_is_refused_and_does_not_show_it(
    tmp_path: Path, url: str
) -> None:
    listing = tmp_path / "list.csv"
    listing.write_text(f"source\n{url}\n")
    source = {"provider": "listing", "path": str(listing), "pattern": "example"}
    config = {"source": source, "scan": {}, "plan": {"concat": None}}
    said = discover.listed(config)["refused"]
    assert "holds a password or a signature" in said
    assert "geheim" not in said
    with pytest.raises(DiscoverError):
        raise DiscoverError(said)


def test_keys_of_a_bucket_stand_in_no_log_receipt_or_published_file(
    tmp_path: Path, s3_environment: S3, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, logger="byterefs")
    bucket = s3_environment.bucket("secrets")
    results = Results(tmp_path / "results")
    results.scan(archive(tmp_path))
    results.emit()
    for pair in results.pairs:
        results.verify(*pair)
    publish(results, f"s3://{bucket}/demo", endpoint=s3_environment.endpoint)
    secrets = [serving.KEY.encode(), serving.SECRET.encode()]
    files = [p for p in results.folder.rglob("*") if p.is_file()]
    held = [p.read_bytes() for p in files] + [*s3_environment.keys(bucket).values()]
    held.append(caplog.text.encode())
    assert len(held) > 60
    assert not any(secret in data for data in held for secret in secrets)
    assert os.environ["AWS_SECRET_ACCESS_KEY"] == serving.SECRET
