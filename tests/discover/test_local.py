"""The provider `local`: files as they lie there, or a refusal that says what the folder holds."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from byterefs.discover import local
from byterefs.errors import DiscoverError


def listed(root: Path, pattern: str = r"\.nc$") -> list[str]:
    return [s.source for s in local.list({"path": str(root), "pattern": pattern})]


def put(path: Path, content: bytes = b"x") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def test_sources_are_absolute_paths_with_size_and_mtime(tmp_path: Path) -> None:
    path = put(tmp_path / "a/b.nc", b"12345")
    os.utime(path, ns=(1, 1_600_000_000_123_456_789))
    (found,) = local.list({"path": str(tmp_path), "pattern": r"\.nc$"})
    assert found == (str(path), 5, 1_600_000_000_123_456_789, None)
    assert found.mtime == 1_600_000_000


def test_the_pattern_sees_the_path_below_the_folder(tmp_path: Path) -> None:
    put(tmp_path / "2020/a.nc")
    put(tmp_path / "2021/a.nc")
    assert listed(tmp_path, r"^2021/") == [str(tmp_path / "2021/a.nc")]


def test_links_are_listed_by_their_own_name_with_what_they_lead_to(tmp_path: Path) -> None:
    put(tmp_path / "real/a.nc", b"123")
    root = tmp_path / "archive"
    root.mkdir()
    (root / "year").symlink_to(tmp_path / "real")
    (found,) = local.list({"path": str(root), "pattern": r"\.nc$"})
    assert (found.source, found.size) == (str(root / "year/a.nc"), 3)


def test_a_link_to_a_folder_above_is_not_followed_for_ever(tmp_path: Path) -> None:
    put(tmp_path / "a.nc")
    (tmp_path / "loop").symlink_to(tmp_path)
    assert listed(tmp_path) == [str(tmp_path / "a.nc")]


@pytest.mark.parametrize("make", ["nothing", "empty", "file"])
def test_a_folder_that_is_missing_empty_or_none_is_refused(tmp_path: Path, make: str) -> None:
    root = tmp_path / "archive"
    if make == "empty":
        (root / "sub").mkdir(parents=True)
    if make == "file":
        put(root)
    with pytest.raises(DiscoverError, match=f"^{root}: .*is the archive mounted"):
        listed(root)


def test_a_pattern_that_matches_nothing_names_itself_the_folder_and_what_is_there(
    tmp_path: Path,
) -> None:
    for i in range(9):
        put(tmp_path / f"{i}.txt")
    with pytest.raises(DiscoverError) as error:
        listed(tmp_path, r"\.nc$")
    assert str(tmp_path) in str(error.value)
    assert r"'\\.nc$'" in str(error.value)
    assert str(error.value).endswith("0.txt, 1.txt, 2.txt, 3.txt, 4.txt")


def test_a_link_that_leads_nowhere_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "a.nc").symlink_to(tmp_path / "gone.nc")
    with pytest.raises(DiscoverError, match=r"a\.nc: the pattern matches it but it cannot be read"):
        listed(tmp_path)


def test_a_name_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff.nc")).write_bytes(b"x")
    with pytest.raises(DiscoverError, match="not UTF-8"):
        listed(tmp_path)
