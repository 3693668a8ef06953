"""A publication is whole or not there: what is written, in what order, what is refused, what resumes."""

from __future__ import annotations

import json
import multiprocessing
import os
import shutil
import signal
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import duckdb
import icechunk as ic
import pytest
import xarray as xr
from icechunk.credentials import LocalFileSystemAccess
from osgeo import gdal

from byterefs import sync
from byterefs.errors import SyncError
from byterefs.files import covers, file_digest
from byterefs.publishing import publication
from byterefs.publishing.shelf import LOCK, Directory
from forms import Results
from publishing import PUBLIC, at, grow, publish


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Results of three days, everything verified."""
    folder = tmp_path_factory.mktemp("sync")
    grow(at(folder), folder / "archive", 1, 3, ["access", "public"])
    return folder


@pytest.fixture
def results(template: Path) -> Any:
    """The same, put back after the test: sources are named by where they lie."""
    kept = template / "kept"
    shutil.copytree(template / "results", kept)
    archive = covers(template / "archive")
    yield at(template)
    shutil.rmtree(template / "results")
    kept.rename(template / "results")
    for name in covers(template / "archive"):
        if name not in archive:
            (template / "archive" / name).unlink()


def latest(place: Path) -> dict[str, Any]:
    return dict(json.loads((place / "latest.json").read_text()))


def published(place: Path) -> dict[str, str]:
    """Every key and its sha256, the lock left out."""
    return {key: sha for key, sha in covers(place).items() if key != LOCK}


def test_a_publication_has_the_layout_of_the_design(results: Results, tmp_path: Path) -> None:
    place = tmp_path / "place"
    receipt = publish(results, place)
    pointer = latest(place)
    version = pointer["version"]
    top = sorted(p.name for p in place.iterdir() if p.name != LOCK)
    assert top == [
        "current.json", "current.parq", "current.parquet", "current.sqlite", "current.vrt",
        "icechunk", "latest.json", "v",
    ]  # fmt: skip
    assert sorted(p.name for p in (place / "v" / version).iterdir()) == [
        "kerchunk", "parquet", "sqlite", "vrt",
    ]  # fmt: skip
    assert set(pointer["forms"]) == {"kerchunk", "parquet", "sqlite", "vrt"}
    for form in pointer["forms"].values():
        assert (place / form["path"]).exists()
        assert (place / form["open"]).is_file()
    for form in ("vrt", "sqlite"):
        file = place / pointer["forms"][form]["path"]
        assert file_digest(file) == pointer["forms"][form]["sha256"]
        assert file_digest(place / f"current.{form}") == file_digest(file)
    assert not (place / "icechunk" / "overwritten").exists()
    assert not (place / "icechunk" / "containers.json").exists()
    assert {k: h["sha256"] for k, h in receipt["keys"].items()} == published(place)
    assert all(h["size"] == (place / k).stat().st_size for k, h in receipt["keys"].items())


def test_what_is_published_is_read_by_gdal_xarray_and_duckdb(
    results: Results, tmp_path: Path
) -> None:
    place = tmp_path / "place"
    publish(results, place)
    source = gdal.OpenEx(
        str(results.folder.parent / "archive" / "20260902.nc"), gdal.OF_MULTIDIM_RASTER
    ).GetRootGroup()
    expected = source.OpenMDArray("sst").ReadAsArray()
    vrt = gdal.OpenEx(str(place / "current.vrt"), gdal.OF_MULTIDIM_RASTER).GetRootGroup()
    assert (vrt.OpenMDArray("sst").ReadAsArray()[1:2] == expected).all()
    url = f"file://{results.folder.parent / 'archive'}/"
    repo = ic.Repository.open(
        ic.local_filesystem_storage(str(place / "icechunk")),
        authorize_virtual_chunk_access=ic.containers_credentials({url: LocalFileSystemAccess}),
    )
    assert repo.lookup_branch("main") == latest(place)["icechunk"]["snapshot"]
    store = repo.readonly_session("main").store
    ds = xr.open_zarr(store, consolidated=False, mask_and_scale=False)
    assert (ds["sst"][1:2].values == expected).all()
    table = str(place / "current.parquet" / "refs_sst.parquet")
    with duckdb.connect() as con:
        assert con.execute("SELECT count(*) FROM read_parquet(?)", [table]).fetchall() == [(3,)]


def test_a_target_publishes_its_own_paths_and_icechunk_its_containers(
    results: Results, tmp_path: Path
) -> None:
    place = tmp_path / "place"
    publish(results, place, target="public")
    archive = str(results.folder.parent / "archive")
    for key in ("current.vrt", "current.json", "current.parquet/sources.parquet"):
        data = (place / key).read_bytes()
        assert archive.encode() not in data, key
        assert PUBLIC.encode() in data, key
    config = ic.Repository.fetch_config(ic.local_filesystem_storage(str(place / "icechunk")))
    assert config is not None
    assert [c.url_prefix for c in (config.virtual_chunk_containers or {}).values()] == [PUBLIC]


def test_the_same_again_writes_nothing(results: Results, tmp_path: Path) -> None:
    place = tmp_path / "place"
    publish(results, place)
    before = {p: p.stat().st_mtime_ns for p in place.rglob("*") if p.is_file()}
    again = publish(results, place)
    assert {p: p.stat().st_mtime_ns for p in place.rglob("*") if p.is_file()} == before
    assert set(again["counts"]) - {"deleted"} == {"unchanged"}


def test_an_append_links_what_did_not_change_and_keeps_the_old_version(
    results: Results, tmp_path: Path
) -> None:
    place = tmp_path / "place"
    publish(results, place)
    first = latest(place)["version"]
    before = covers(place / "v" / first)
    grow(results, results.folder.parent / "archive", 4, 4)
    receipt = publish(results, place)
    second = latest(place)["version"]
    assert second != first
    assert covers(place / "v" / first) == before
    assert receipt["counts"]["linked"] >= 1
    same = [n for n, sha in covers(place / "v" / second).items() if before.get(n) == sha]
    assert same
    for name in same:
        assert (place / "v" / first / name).samefile(place / "v" / second / name)
    assert not (place / "v" / second / "sqlite/store.sqlite").samefile(place / "current.sqlite")


def test_nothing_is_published_if_a_form_was_emitted_after_its_verification(
    results: Results, tmp_path: Path
) -> None:
    content = json.loads(results.emitted("access", "vrt").read_text())
    results.emitted("access", "vrt").write_text(json.dumps({**content, "digest": "other"}))
    with pytest.raises(
        SyncError, match=r"vrt\.json: it proves form vrt .* and other was emitted since"
    ):
        publish(results, tmp_path / "place")
    assert not (tmp_path / "place").exists()


def test_nothing_is_published_if_a_form_was_edited_after_its_verification(
    results: Results, tmp_path: Path
) -> None:
    with (results.out("access", "sqlite") / "store.sqlite").open("ab") as f:
        f.write(b"x")
    with pytest.raises(
        SyncError, match=r"store\.sqlite: its sha256 is .* when form sqlite was verified"
    ):
        publish(results, tmp_path / "place")
    assert not (tmp_path / "place").exists()


def test_a_refused_form_is_left_out_and_listed(results: Results, tmp_path: Path) -> None:
    emitted = results.emitted("access", "kerchunk")
    content = json.loads(emitted.read_text())
    emitted.write_text(json.dumps({**content, "refused": "sst: codec szip …", "covers": {}}))
    results.verify("access", "kerchunk")
    receipt = publish(results, tmp_path / "place")
    assert receipt["refused"] == {"kerchunk": "sst: codec szip …"}
    assert "kerchunk" not in latest(tmp_path / "place")["forms"]
    assert not (tmp_path / "place" / "current.parq").exists()


@pytest.mark.parametrize("key", ["v/{version}/sqlite/store.sqlite", "v/{version}/kerchunk/sst/refs.0.parq", "icechunk/repo"])  # fmt: skip
def test_a_published_tree_that_somebody_edited_is_refused_by_name(
    results: Results, tmp_path: Path, key: str
) -> None:
    place = tmp_path / "place"
    publish(results, place)
    file = place / key.format(version=latest(place)["version"])
    was = file.read_bytes()
    file.write_bytes(was[:-1] + bytes([was[-1] ^ 1]))
    pointer = (place / "latest.json").read_bytes()
    grow(results, results.folder.parent / "archive", 4, 4)
    with pytest.raises(
        SyncError, match=rf"{file}: its sha256 is .* somebody edited it: bring it back"
    ):
        publish(results, place)
    assert (place / "latest.json").read_bytes() == pointer
    file.write_bytes(was)
    publish(results, place)
    assert (place / "latest.json").read_bytes() != pointer


def test_a_file_missing_from_the_published_version_is_put_again(
    results: Results, tmp_path: Path
) -> None:
    place = tmp_path / "place"
    publish(results, place)
    before = published(place)
    (place / "v" / latest(place)["version"] / "vrt" / "demo.vrt").unlink()
    assert publish(results, place)["counts"]["repaired"] == 1
    assert published(place) == before


def test_a_place_of_another_dataset_is_refused(results: Results, tmp_path: Path) -> None:
    place = tmp_path / "place"
    place.mkdir()
    (place / "latest.json").write_text(json.dumps({"dataset": "oisst", "version": "1"}))
    with pytest.raises(SyncError, match="dataset 'oisst' is published there, not 'demo'"):
        publish(results, place)


def test_a_place_that_cannot_be_written_is_one_sentence(results: Results, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SyncError, match=r"cannot publish there: .*make it writable") as caught:
        publish(results, tmp_path / "file" / "place")
    assert "\n" not in str(caught.value)


def test_a_dry_run_says_what_it_would_do_and_writes_nothing(
    results: Results, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("INFO", logger="byterefs"):
        receipt = publish(results, tmp_path / "place", dry_run=True)
    assert not (tmp_path / "place").exists()
    assert receipt["dry_run"] is True
    assert receipt["counts"]["put"] > 10
    assert "would put current.sqlite" in caplog.text
    assert f"point to version {receipt['version']}" in caplog.text


# --- versions that go ------------------------------------------------------------------------------


def old_version(place: Path, name: str, days: float) -> None:
    """A version that was published some days ago."""
    file = place / "v" / name / "vrt" / "a.vrt"
    file.parent.mkdir(parents=True)
    file.write_text(name)
    then = time.time() - days * 86_400
    os.utime(place / "v" / name, (then, then))


def test_versions_stay_for_thirty_days_and_at_least_seven(results: Results, tmp_path: Path) -> None:
    place = tmp_path / "place"
    for i in range(8):
        old_version(place, f"old{i}", 40 + i)
    old_version(place, "young", 29)
    publish(results, place)
    kept = {p.name for p in (place / "v").iterdir()}
    # seven: the new one, the young one and the five youngest of the old
    assert kept == {latest(place)["version"], "young", *(f"old{i}" for i in range(5))}


def test_icechunk_files_that_the_repository_lost_stay_for_readers_in_flight(
    results: Results, tmp_path: Path
) -> None:
    place = tmp_path / "place"
    publish(results, place)
    lost = place / "icechunk" / "manifests" / "LOST"
    lost.write_text("of an older repository")
    long_ago = time.time() - 100 * 86_400
    os.utime(lost, (long_ago, long_ago))
    publish(results, place)
    assert lost.exists()
    publish(results, place)
    assert lost.exists()
    os.utime(lost, (long_ago, long_ago))
    publish(results, place)
    assert not lost.exists()


# --- killed, or not alone --------------------------------------------------------------------------


class Dying(Directory):
    """A directory whose publisher is killed before its n-th put, and before it swaps ``last`` at the latest."""

    def __init__(self, where: Path, puts: int, last: str) -> None:
        super().__init__(where)
        self.left, self.last = puts, last

    def put(self, key: str, file: Path) -> None:
        self.left -= 1
        if self.left < 0:
            os.kill(os.getpid(), signal.SIGKILL)
        super().put(key, file)

    def swap(self, key: str, new: bytes, expected: bytes | None) -> bool:
        if key == self.last:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().swap(key, new, expected)


def dying(results: Results, place: Path, puts: int, last: str) -> None:
    """What runs in the process that is killed."""
    shelf = Dying(place, puts, last)
    sync.publish(results.folder / "sync" / "here.json", shelf, "access", results.proofs)


def killed(*arguments: object) -> None:
    process = multiprocessing.get_context("spawn").Process(target=dying, args=arguments)
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL


@pytest.mark.parametrize("puts", [0, 3, 1000])
def test_a_killed_sync_shows_nothing_new_and_resumes(
    results: Results, tmp_path: Path, puts: int
) -> None:
    place = tmp_path / "place"
    publish(results, place)
    pointer = latest(place)
    whole = {k: s for k, s in published(place).items() if k.startswith(f"v/{pointer['version']}")}
    grow(results, results.folder.parent / "archive", 4, 4)
    killed(results, place, puts, "icechunk/repo")
    assert latest(place) == pointer
    assert whole.items() <= published(place).items()
    receipt = publish(results, place)
    assert latest(place)["version"] == receipt["version"] != pointer["version"]
    other = tmp_path / "other"
    publish(results, other, name="other")
    fresh = {k: s for k, s in published(other).items() if not k.startswith("icechunk/repo")}
    assert fresh.items() <= published(place).items()
    assert not list(place.rglob("*.part"))


@pytest.mark.parametrize("repeated", [1, 2])
def test_a_sync_killed_between_its_two_pointers_resumes_with_what_arrived_since(
    results: Results, tmp_path: Path, repeated: int
) -> None:
    place, archive = tmp_path / "place", results.folder.parent / "archive"
    publish(results, place)
    for day in range(4, 4 + repeated):
        grow(results, archive, day, day)
        killed(results, place, 1000, "latest.json")
    grow(results, archive, 4 + repeated, 4 + repeated)
    receipt = publish(results, place)
    assert latest(place)["version"] == receipt["version"]
    assert receipt["counts"].get("repaired", 0) == 0


def test_a_second_publisher_is_refused_while_one_is_at_work(
    results: Results, tmp_path: Path
) -> None:
    place = tmp_path / "place"
    with (
        Directory(place).lock(),
        pytest.raises(SyncError, match="another publisher is at work there"),
    ):
        publish(results, place)
    assert publish(results, place)["version"] == latest(place)["version"]


class Raced(Directory):
    """A directory on which another publisher, on a machine that this lock does not reach, is faster."""

    def swap(self, key: str, new: bytes, expected: bytes | None) -> bool:
        if key == "latest.json":
            (self.root / key).write_text(json.dumps({"dataset": "demo", "version": "rival"}))
        return super().swap(key, new, expected)


def test_of_two_publishers_the_faster_wins_and_the_other_is_told(
    results: Results, tmp_path: Path
) -> None:
    place = tmp_path / "place"
    with pytest.raises(SyncError, match=r"latest\.json: another publisher replaced it"):
        sync.publish(results.folder / "sync" / "here.json", Raced(place), "access", results.proofs)
    assert latest(place)["version"] == "rival"


# --- mirrors ---------------------------------------------------------------------------------------


def test_a_mirror_is_the_truth_byte_for_byte(results: Results, tmp_path: Path) -> None:
    truth, place = tmp_path / "truth", tmp_path / "mirror"
    publish(results, truth, name="truth")
    receipt = publish(results, place, name="mirror", mirror_of="truth")
    assert published(place) == published(truth)
    assert receipt["mirror_of"] == "truth"
    grow(results, results.folder.parent / "archive", 4, 4)
    publish(results, truth, name="truth")
    again = publish(results, place, name="mirror", mirror_of="truth")
    assert published(place) == published(truth)
    assert again["counts"]["unchanged"] > 0


def test_a_mirror_of_a_truth_that_somebody_edited_is_refused(
    results: Results, tmp_path: Path
) -> None:
    truth, place = tmp_path / "truth", tmp_path / "mirror"
    publish(results, truth, name="truth")
    with (truth / "current.vrt").open("a") as f:
        f.write("<!-- -->")
    with pytest.raises(SyncError, match=r"truth/current\.vrt: its sha256 is .* publish again"):
        publish(results, place, name="mirror", mirror_of="truth")
    assert not (place / "latest.json").exists()


def test_a_mirror_loses_what_the_truth_lost(results: Results, tmp_path: Path) -> None:
    truth, place = tmp_path / "truth", tmp_path / "mirror"
    publish(results, truth, name="truth")
    publish(results, place, name="mirror", mirror_of="truth")
    (place / "stray").write_text("x")
    receipt = publish(results, place, name="mirror", mirror_of="truth")
    assert not (place / "stray").exists()
    assert receipt["counts"]["deleted"] == 1


# --- the shelf -------------------------------------------------------------------------------------


def test_a_swap_happens_only_if_the_key_is_what_it_was(tmp_path: Path) -> None:
    place = Directory(tmp_path)
    assert place.swap("a/b", b"1", None)
    assert not place.swap("a/b", b"2", None)
    assert not place.swap("a/b", b"2", b"0")
    assert place.swap("a/b", b"2", b"1")
    assert place.get("a/b") == b"2"


def test_deleting_the_last_key_of_a_folder_removes_the_folder(tmp_path: Path) -> None:
    place = Directory(tmp_path)
    place.swap("a/b/c", b"1", None)
    place.swap("a/d", b"1", None)
    place.delete("a/b/c")
    assert place.list() == {"a/d": 1}
    assert not (tmp_path / "a" / "b").exists()


def test_the_version_is_the_content(results: Results, tmp_path: Path) -> None:
    one = publication.tree(results.folder, results.proofs, "access", tmp_path / "one")
    two = publication.tree(results.folder, results.proofs, "access", tmp_path / "two")
    assert one.version == two.version
    assert one.latest == two.latest
    assert list(one.icechunk)[-1] == publication.REPO
    other: Mapping[str, Any] = json.loads(
        publication.tree(results.folder, results.proofs, "public", tmp_path / "three").latest
    )
    assert other["version"] != one.version


def test_what_a_killed_publisher_had_begun_is_removed_by_the_next_and_nothing_else(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "current.parquet"
    folder.mkdir()
    ended = multiprocessing.Process(target=int)
    ended.start()
    ended.join()
    begun, at_work = (folder / f".refs_sst.parquet.{pid}.part" for pid in (ended.pid, os.getpid()))
    for path in (begun, at_work, folder / ".mine.part", folder / "refs_sst.parquet"):
        path.write_bytes(b"x")
    with Directory(tmp_path).lock():
        assert not begun.exists()
    assert sorted(p.name for p in folder.iterdir()) == sorted(
        [at_work.name, ".mine.part", "refs_sst.parquet"]
    )
