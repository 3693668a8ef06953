"""The provider `listing`: three formats that say the same, and odd files refused with the line."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

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


def read(path: Path, pattern: str = r"\.nc$") -> list[Source]:
    return list(listing.list({"path": str(path), "pattern": pattern}))


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
