"""The provider `listing`: three formats that say the same, and odd files refused with the line."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import csv, parquet

from byterefs.discover import listing
from byterefs.errors import DiscoverError
from byterefs.model import Source

ROWS = [
    {"source": "s3://b/1.nc", "size": 10, "mtime": 1_600_000_000.5, "etag": "abc"},
    {"source": "/data/2,2.nc", "size": None, "mtime": None, "etag": None},
]
WANTED = [
    Source("s3://b/1.nc", 10, 1_600_000_000_500_000_000, "abc"),
    Source("/data/2,2.nc", None, None, None),
]


def read(path: Path, pattern: str = r"\.nc$", **more: str) -> list[Source]:
    return list(listing.list({"path": str(path), "pattern": pattern, **more}))


def text(tmp_path: Path, content: str, name: str = "l.csv") -> Path:
    path = tmp_path / name
    path.write_text(content, encoding="utf-8")
    return path


def test_csv_json_lines_and_parquet_say_the_same(tmp_path: Path) -> None:
    csv = 'source,size,mtime,etag\ns3://b/1.nc,10,1600000000.5,abc\n"/data/2,2.nc",,,\n'
    assert read(text(tmp_path, csv)) == WANTED
    lines = "".join(json.dumps(row) + "\n" for row in ROWS)
    assert read(text(tmp_path, lines, "l.jsonl")) == WANTED
    parquet.write_table(pa.Table.from_pylist(ROWS), tmp_path / "l.parquet")
    assert read(tmp_path / "l.parquet") == WANTED


@pytest.mark.parametrize("name", ["url", "path"])
def test_the_source_may_stand_in_a_column_of_another_name(tmp_path: Path, name: str) -> None:
    assert read(text(tmp_path, f"x,{name}\n1,/a.nc\n")) == [Source("/a.nc")]


@pytest.mark.parametrize(
    ("mtime", "ns"),
    [
        ("1600000000", 1_600_000_000_000_000_000),
        ("1600000000.123456789", 1_600_000_000_123_456_789),
        ("2020-09-13T12:26:40Z", 1_600_000_000_000_000_000),
        ("2020-09-13T12:26:40.000001", 1_600_000_000_000_001_000),
        ("2020-09-13T22:26:40+10:00", 1_600_000_000_000_000_000),
    ],
)
def test_an_mtime_is_seconds_or_iso_8601_utc_unless_it_says_otherwise(
    tmp_path: Path, mtime: str, ns: int
) -> None:
    assert read(text(tmp_path, f"source,mtime\n/a.nc,{mtime}\n"))[0].mtime_ns == ns


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("source,size\n/a.nc,1\n/b.nc\n", "line 3 has 1 fields, not 2"),
        ("source,size\n/a.nc,1\n/b.nc,2", "line 3 does not end the line"),
        ("source,size\n/a.nc,big\n", "line 2 has a size or mtime that is none"),
        ("source,mtime\n/a.nc,soon\n", "line 2 has a size or mtime that is none"),
        ("source,size\n,1\n", "line 2 names no source"),
        ("source\n/a.nc\n/a.nc\n", "line 3 has the source of line 2 again: /a.nc"),
        ("source\na.nc\n", "line 2 has the relative path 'a.nc'"),
        ("file,size\n/a.nc,1\n", "line 1 has none of the columns source, url, path"),
        ('source\n"/a.nc\n', "is no CSV"),
        ("", "line 1 has none of the columns"),
    ],
)
def test_an_odd_csv_is_refused_with_its_line(tmp_path: Path, content: str, says: str) -> None:
    path = text(tmp_path, content)
    with pytest.raises(DiscoverError) as error:
        read(path)
    assert str(error.value).startswith(f"{path}: ")
    assert says in str(error.value)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ('{"source": "/a.nc"}\n{"source": "/b', "line 2 does not end the line"),
        ('{"source": "/a.nc"}\n{"source": \n', "line 2 is no JSON"),
        ('["/a.nc"]\n', "line 1 is no JSON object"),
    ],
)
def test_odd_json_lines_are_refused_with_the_line(tmp_path: Path, content: str, says: str) -> None:
    with pytest.raises(DiscoverError, match=says):
        read(text(tmp_path, content, "l.jsonl"))


def test_a_truncated_parquet_file_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "l.parquet"
    parquet.write_table(pa.Table.from_pylist(ROWS), path)
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(DiscoverError, match=rf"^{path}: this is no whole Parquet file"):
        read(path)


def test_a_listing_of_another_kind_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DiscoverError, match="a listing ends in"):
        read(text(tmp_path, "/a.nc\n", "l.txt"))


def test_a_listing_that_is_missing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DiscoverError, match="is no file"):
        read(tmp_path / "l.csv")


def test_a_pattern_that_matches_nothing_shows_names_that_are_there(tmp_path: Path) -> None:
    with pytest.raises(DiscoverError, match=r"for example: /a\.txt"):
        read(text(tmp_path, "source\n/a.txt\n"))


# --- listings of aad-filelist ----------------------------------------------------------------------


AAD = pa.schema(
    {
        "id": pa.string(), "path": pa.string(), "url": pa.string(), "size": pa.float64(), "was_downloaded": pa.bool_(),
        "ok": pa.bool_(), "sync_time": pa.timestamp("us", "UTC"), "dry_run": pa.bool_(),
    }
)  # fmt: skip


def aad(mirror: Path, day: int, **changed: object) -> dict[str, object]:
    """A row as bowerbird's dry run of a collection gives it."""
    name = f"h.example/v2/{day:08d}.nc"
    row = {"id": "oisst", "path": str(mirror / name), "url": f"https://{name}", "size": 100_000.0, "was_downloaded": False, "ok": True}  # fmt: skip
    return {**row, "sync_time": datetime(2026, 7, 6, tzinfo=UTC), "dry_run": True, **changed}


def written(rows: list[dict[str, object]], path: Path) -> Path:
    """The rows in the format of the path's ending, as Arrow or R write them."""
    table = pa.Table.from_pylist(rows, AAD)
    if path.suffix == ".parquet":
        parquet.write_table(table, path)
    elif path.suffix == ".csv":
        csv.write_csv(table, path)
        words = {"false": "FALSE", "true": "TRUE", "100000": "1e+05"}  # as R's write.csv has them
        text = path.read_text()
        for word, said in words.items():
            text = text.replace(f",{word},", f",{said},").replace(f",{word}\n", f",{said}\n")
        path.write_text(text.replace(",,", ",NA,"))
    else:
        told = [{k: str(v) if k == "sync_time" else v for k, v in row.items()} for row in rows]
        path.write_text("".join(json.dumps(row) + "\n" for row in told))
    return path


@pytest.mark.parametrize("name", ["l.parquet", "l.csv", "l.jsonl"])
def test_a_listing_of_aad_filelist_gives_its_addresses_and_sizes_and_no_dates(
    tmp_path: Path, name: str
) -> None:
    unknown = {"size": None, "ok": None, "was_downloaded": None}
    path = written([aad(tmp_path, 1), aad(tmp_path, 2, **unknown)], tmp_path / name)
    assert read(path) == [
        Source("https://h.example/v2/00000001.nc", 100_000),
        Source("https://h.example/v2/00000002.nc"),
    ]


def test_the_same_collection_listed_a_week_later_is_the_same(tmp_path: Path) -> None:
    before = read(written([aad(tmp_path, 1)], tmp_path / "l.parquet"))
    later = aad(tmp_path, 1, sync_time=datetime(2026, 7, 13, tzinfo=UTC), was_downloaded=True)
    assert read(written([later], tmp_path / "l.parquet")) == before


@pytest.mark.parametrize("name", ["l.parquet", "l.csv", "l.jsonl"])
def test_a_row_whose_sync_failed_is_refused_or_left_out_with_a_warning(
    tmp_path: Path, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = written([aad(tmp_path, 1), aad(tmp_path, 2, ok=False)], tmp_path / name)
    with pytest.raises(DiscoverError, match=r"the sync of https://h.example/v2/00000002.nc failed .* source.failed: skip"):  # fmt: skip
        read(path)
    assert [s.source for s in read(path, failed="skip")] == ["https://h.example/v2/00000001.nc"]
    assert "1 rows are left out, their sync failed: https://h.example/v2/00000002.nc" in caplog.text


def test_of_a_mirror_what_a_dry_run_lists_waits_until_it_is_there(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = written([aad(tmp_path, 1), aad(tmp_path, 2)], tmp_path / "l.parquet")
    first, second = (tmp_path / f"h.example/v2/0000000{n}.nc" for n in (1, 2))
    first.parent.mkdir(parents=True)
    first.write_bytes(b"x")
    assert [s.source for s in read(path, column="path")] == [str(first)]
    assert f"1 rows are left out, a dry run lists them and they are not here yet: {second}" in caplog.text  # fmt: skip
    second.write_bytes(b"x")
    assert [s.source for s in read(path, column="path")] == [str(first), str(second)]
    # what a run that downloads says is there is not waited for: the scan names it if it is not
    path = written([aad(tmp_path, 3, dry_run=False)], tmp_path / "l.parquet")
    assert len(read(path, column="path")) == 1


def test_without_addresses_the_paths_are_the_sources(tmp_path: Path) -> None:
    path = written([aad(tmp_path, 1, url=None, dry_run=False)], tmp_path / "l.csv")
    assert [s.source for s in read(path)] == [str(tmp_path / "h.example/v2/00000001.nc")]


@pytest.mark.parametrize(
    ("content", "more", "says"),
    [
        ("url,ok\nhttps://h/a.nc,maybe\n", {}, "has ok 'maybe', which is neither true nor false"),
        ("url,size\nhttps://h/a.nc,1.5\n", {}, "line 2 has a size or mtime that is none"),
        ("url,size\nhttps://h/a.nc,-1\n", {}, "line 2 has a size or mtime that is none"),
        ("url\nhttps://h/a.nc\n", {"column": "path"}, "line 1 has none of the columns path"),
    ],
)
def test_an_odd_listing_of_a_collection_is_refused_with_its_line(
    tmp_path: Path, content: str, more: dict[str, str], says: str
) -> None:
    with pytest.raises(DiscoverError, match=says):
        read(text(tmp_path, content), **more)
