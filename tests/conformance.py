"""What every scanner must do: subclass ScannerTests beside a format's own tests."""

from __future__ import annotations

import shutil
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from byterefs import codecs, grid, literals, scanners
from byterefs.errors import ScanError
from byterefs.model import ABSENT, Source, SourceArray, SourceScan
from granules import Granule


def scanned(path: Path, **options: Any) -> SourceScan:
    return scanners.scan(Source(str(path)), **options)


def recognised(path: Path, format: str) -> bool:
    """Whether a format's scanner takes a file for its own."""
    with path.open("rb") as file:
        return scanners.load(format).recognises(file)


def stored_bytes(path: Path, item: SourceArray, key: tuple[int, ...]) -> bytes | None:
    """The encoded bytes of one chunk as the records say, None if absent."""
    if key in item.data:
        return item.data[key]
    assert item.offset is not None
    assert item.size is not None
    if item.offset[key] == ABSENT:
        return None
    with path.open("rb") as f:
        f.seek(item.offset[key])
        return f.read(item.size[key])


def assembled(path: Path, item: SourceArray) -> np.ndarray:
    """The whole array decoded from its references, fill where a chunk is absent."""
    meta = item.meta
    fill = literals.fill_value(meta.fill, meta.dtype)
    out = np.full(meta.shape, 0 if fill is None else fill, meta.dtype)
    for key in np.ndindex(grid.chunk_grid(meta.shape, meta.chunks)):
        raw = stored_bytes(path, item, key)
        if raw is not None:
            window = grid.chunk_window(key, meta.shape, meta.chunks)
            chunk = codecs.decode(meta.codec, raw, meta.dtype, meta.chunks)
            out[window] = chunk[tuple(slice(w.stop - w.start) for w in window)]
    return out


def by_value(item: SourceArray) -> np.ndarray:
    assert item.values is not None
    return np.frombuffer(item.values, item.meta.dtype).reshape(item.meta.shape)


def comparable(scan: SourceScan) -> dict[str, Any]:
    """The records with lists for arrays, so that == means equal."""
    return {
        name: replace(
            item,
            offset=None if item.offset is None else item.offset.tolist(),
            size=None if item.size is None else item.size.tolist(),
        )
        for name, item in scan.arrays.items()
    } | {"": (scan.source, scan.root, scan.root_dtypes)}


class ScannerTests:
    """Subclass with the format's name and its writers; each writer returns what it wrote."""

    FORMAT: ClassVar[str]
    COORDINATES: ClassVar[frozenset[str]]
    """the arrays of ``granule`` that must come by value"""
    OPTIONS: ClassVar[dict[str, Any]] = {}
    """of every scan; a format that the content of a source does not tell is named here"""
    NOWHERE: ClassVar[tuple[str, ...]] = ("no such array",)
    """wanted names that no file has; a format that names nothing gives one wanted name to its array"""

    def scanned(self, path: Path, **options: Any) -> SourceScan:
        return scanned(path, **{**self.OPTIONS, **options})

    def granule(self, folder: Path) -> Granule:
        """One plain file of data and coordinates; at least one array has several chunks."""
        raise NotImplementedError

    def edges(self, folder: Path) -> Granule:
        """A file with an array whose shape is no multiple of its chunks."""
        raise NotImplementedError

    def sparse(self, folder: Path) -> Granule:
        """A file with chunks that were never written; their elements read as the declared fill."""
        raise NotImplementedError

    def mixed(self, folder: Path) -> tuple[Path, str, str]:
        """A file with a chunk of another codec than its array: path, the array, a word the refusal says."""
        raise NotImplementedError

    def test_the_referenced_bytes_decode_to_the_values_written(self, tmp_path: Path) -> None:
        made = self.granule(tmp_path)
        found = self.scanned(made.path).arrays
        assert set(found) == set(made.values)
        referenced = {n: i for n, i in found.items() if i.offset is not None}
        assert max(i.offset.size for i in referenced.values() if i.offset is not None) > 1
        for name, item in referenced.items():
            assert item.meta.dtype == made.values[name].dtype.str
            np.testing.assert_array_equal(assembled(made.path, item), made.values[name])

    def test_coordinates_come_by_value(self, tmp_path: Path) -> None:
        made = self.granule(tmp_path)
        found = self.scanned(made.path).arrays
        assert self.COORDINATES
        for name in self.COORDINATES:
            np.testing.assert_array_equal(by_value(found[name]), made.values[name])
            assert found[name].digest is not None

    def test_every_range_lies_inside_the_file(self, tmp_path: Path) -> None:
        made = self.granule(tmp_path)
        end = made.path.stat().st_size
        for item in self.scanned(made.path).arrays.values():
            if item.offset is not None and item.size is not None:
                present = item.offset != ABSENT
                assert (item.offset[present] >= 0).all()
                assert (item.size[present] > 0).all()
                assert ((item.offset + item.size)[present] <= end).all()

    def test_edge_chunks_keep_their_full_stored_shape(self, tmp_path: Path) -> None:
        made = self.edges(tmp_path)
        for name, values in made.values.items():
            item = self.scanned(made.path).arrays[name]
            assert any(n % c for n, c in zip(item.meta.shape, item.meta.chunks, strict=True))
            last = tuple(g - 1 for g in grid.chunk_grid(item.meta.shape, item.meta.chunks))
            raw = stored_bytes(made.path, item, last)
            assert raw is not None
            full = codecs.decode(item.meta.codec, raw, item.meta.dtype, item.meta.chunks)
            assert full.shape == item.meta.chunks
            np.testing.assert_array_equal(assembled(made.path, item), values)

    def test_a_chunk_never_written_is_a_row_without_offset_that_reads_as_fill(
        self, tmp_path: Path
    ) -> None:
        made = self.sparse(tmp_path)
        assert made.absent
        found = self.scanned(made.path).arrays
        for name, keys in made.absent.items():
            item = found[name]
            assert item.offset is not None
            assert item.size is not None
            assert item.offset.shape == grid.chunk_grid(item.meta.shape, item.meta.chunks)
            assert set(zip(*np.nonzero(item.offset == ABSENT), strict=True)) == keys
            assert (item.size[item.offset == ABSENT] == ABSENT).all()
            np.testing.assert_array_equal(assembled(made.path, item), made.values[name])

    def test_a_chunk_with_another_codec_is_refused_by_name(self, tmp_path: Path) -> None:
        path, array, word = self.mixed(tmp_path)
        with pytest.raises(ScanError) as refusal:
            self.scanned(path)
        assert all(part in str(refusal.value) for part in (str(path), array, word))

    def test_scanning_twice_gives_equal_records_and_leaves_the_file_alone(
        self, tmp_path: Path
    ) -> None:
        made = self.granule(tmp_path)
        before = made.path.read_bytes(), made.path.stat().st_mtime_ns
        assert comparable(self.scanned(made.path)) == comparable(self.scanned(made.path))
        assert (made.path.read_bytes(), made.path.stat().st_mtime_ns) == before

    def test_the_source_comes_back_with_the_size_and_mtime_of_the_open_file(
        self, tmp_path: Path
    ) -> None:
        made = self.granule(tmp_path)
        listed = Source(str(made.path), size=1, mtime_ns=2, etag='"e"')
        seen = scanners.scan(listed, **self.OPTIONS).source
        stat = made.path.stat()
        assert seen == Source(str(made.path), stat.st_size, stat.st_mtime_ns, '"e"')

    def test_the_format_is_found_by_content_whatever_the_name(self, tmp_path: Path) -> None:
        made = self.granule(tmp_path)
        other = tmp_path / "a b%20é#1.txt"
        shutil.copy(made.path, other)
        assert scanners.detect(Source(str(other))) == self.FORMAT
        found = comparable(self.scanned(other))
        expected = comparable(self.scanned(made.path, format=self.FORMAT))
        assert {k: v for k, v in found.items() if k} == {k: v for k, v in expected.items() if k}

    def test_wanted_arrays_come_with_their_coordinates_and_nothing_else(
        self, tmp_path: Path
    ) -> None:
        made = self.granule(tmp_path)
        data = sorted(set(made.values) - self.COORDINATES)
        found = self.scanned(made.path, arrays=(data[0], "no such array"))
        assert set(found.arrays) == {data[0]} | self.COORDINATES

    def test_a_source_with_none_of_the_wanted_arrays_is_refused_by_name(
        self, tmp_path: Path
    ) -> None:
        made = self.granule(tmp_path)
        with pytest.raises(ScanError, match="no such array") as refusal:
            self.scanned(made.path, arrays=self.NOWHERE)
        assert str(made.path) in str(refusal.value)

    @pytest.mark.parametrize(("kept", "format"), list(product((0, 7, 0.6), ("auto", None))))
    def test_a_truncated_file_is_refused_by_name(
        self, tmp_path: Path, kept: float, format: str | None
    ) -> None:
        made = self.granule(tmp_path)
        whole = made.path.read_bytes()
        short = tmp_path / "short"
        short.write_bytes(whole[: int(kept * len(whole)) if kept < 1 else int(kept)])
        with pytest.raises(ScanError, match=str(short)):
            self.scanned(short, format=format or self.FORMAT)

    def test_a_file_that_is_not_there_is_refused_by_name(self, tmp_path: Path) -> None:
        with pytest.raises(ScanError, match="gone"):
            self.scanned(tmp_path / "gone", format=self.FORMAT)
