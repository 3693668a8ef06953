"""A release check reads again what is public, and names each kind of fault."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterator
from datetime import date
from pathlib import Path

import pytest

import serving
from byterefs.access import web
from byterefs.errors import ByteRefsError
from byterefs.publishing import release
from forms import Results
from granules import oisst
from publishing import publish
from serving import S3


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two days served by a web server of which only the folder is kept, everything verified."""
    folder = tmp_path_factory.mktemp("release")
    for n in (1, 2):
        oisst(folder / f"archive/2020010{n}.nc", date(2020, 1, n), arrays=["sst"])
    return folder


@pytest.fixture
def published(
    template: Path, tmp_path: Path, s3_environment: S3, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[Results, str, S3]]:
    monkeypatch.setattr(web, "PAUSE", 0.001)
    shutil.copytree(template / "archive", tmp_path / "site/archive", copy_function=shutil.copy2)
    with serving.web(tmp_path / "site") as site:
        rules = {"public": {f"{template}/archive/": f"{site.url}/archive/"}}
        results = Results(tmp_path / "results", remap=rules)
        results.scan(sorted((template / "archive").glob("*.nc")))
        pairs = [("access", "icechunk"), ("public", "vrt"), ("public", "parquet")]
        results.emit(*pairs)
        for pair in pairs:
            results.verify(*pair)
        place = f"s3://{s3_environment.bucket(f'release-{abs(hash(tmp_path)) % 10**9}')}/demo"
        monkeypatch.setattr(Results, "proofs", [results.proof(*pair) for pair in pairs])
        publish(results, place, target="public")
        yield results, place, s3_environment


def checked(results: Results) -> dict[str, int]:
    return release.check(
        results.store, [results.folder / "sync/here.json"], results.folder / "release.json"
    )


def test_what_is_as_it_was_published_is_counted(published: tuple[Results, str, S3]) -> None:
    results, _, _ = published
    receipt = json.loads((results.folder / "sync/here.json").read_text())
    told = checked(results)
    assert told["keys"] == len(receipt["keys"])
    assert told["bytes"] == sum(h["size"] for h in receipt["keys"].values())
    assert (told["publications"], told["sources"]) == (1, 2)
    assert not any(told[kind] for kind in ("drift", "broken", "missing", "stale"))


def edit(place: str, s3: S3, _: Path) -> None:
    bucket, prefix = place.removeprefix("s3://").split("/")
    data = s3.keys(bucket)[f"{prefix}/current.vrt"]
    head = s3.client.head_object(Bucket=bucket, Key=f"{prefix}/current.vrt")
    s3.client.put_object(Bucket=bucket, Key=f"{prefix}/current.vrt", Body=data[:-1] + b" ", Metadata=head["Metadata"])  # fmt: skip


def remove(place: str, s3: S3, _: Path) -> None:
    bucket = place.removeprefix("s3://").split("/")[0]
    for key in [k for k in s3.keys(bucket) if "/parquet/" in k]:
        s3.client.delete_object(Bucket=bucket, Key=key)


def add(place: str, s3: S3, _: Path) -> None:
    bucket, prefix = place.removeprefix("s3://").split("/")
    s3.client.put_object(Bucket=bucket, Key=f"{prefix}/stray", Body=b"x")


def lose(_: str, __: S3, site: Path) -> None:
    (site / "archive/20200102.nc").unlink()


def grow(_: str, __: S3, site: Path) -> None:
    with (site / "archive/20200101.nc").open("ab") as f:
        f.write(b"x")


@pytest.mark.parametrize(
    ("fault", "kind", "said"),
    [
        (edit, "drift", r"current\.vrt: its sha256 is .* and was .* when it was published"),
        (remove, "broken", r"latest\.json: it names v/\w+/parquet, and nothing is there"),
        (add, "drift", r"demo/stray: nobody published it; remove it"),
        (lose, "missing", r"0102\.nc: it answers 404"),
        (grow, "stale", r"0101\.nc: its size is \d+ and was \d+ when it was scanned"),
    ],
)
def test_each_fault_is_named(
    published: tuple[Results, str, S3],
    tmp_path: Path,
    fault: Callable[[str, S3, Path], None],
    kind: str,
    said: str,
) -> None:
    results, place, s3 = published
    fault(place, s3, tmp_path / "site")
    with pytest.raises(ByteRefsError, match=rf"\d+ faults: .*{kind}"):
        checked(results)
    found = json.loads((results.folder / "release.json").read_text())["faults"][kind]
    assert any(re.search(said, sentence) for sentence in found), found


def test_an_etag_that_changed_where_a_source_was_scanned_is_stale() -> None:
    scanned = release.Source("s3://b/x", 3, 5, "e")
    assert release.other(scanned, scanned._replace(etag="f"), same=True) == (
        "its etag is f and was e when it was scanned"
    )
    assert release.other(scanned, scanned._replace(etag="f", mtime_ns=9), same=False) is None
