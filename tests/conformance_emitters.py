"""What every form must do: subclass EmitterTests beside a form's own tests."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import duckdb
import h5py
import numpy as np
import pytest

import building
import granules
from byterefs import emitters, grid
from byterefs.emitters import Reader, Rows
from byterefs.errors import RemapError
from byterefs.proving.spelling import spelled
from byterefs.view import View

PUBLIC = "s3://bucket/a b/"
NY, NX = 5, 7
CHUNKS = (1, 3, 4)
DATA = ("big", "compact", "g/deep", "packed", "sparse")
ABSENT = {(0, 1), (1, 0)}
"""chunks of ``sparse``, in y and x, that an odd day never writes"""


# --- granules of many kinds ------------------------------------------------------------------------


def field(day: int, array: str, dtype: str) -> np.ndarray:
    """Values of one array and day, different from those of every other."""
    start = day * 1000 + DATA.index(array) * 100
    return (start + np.arange(NY * NX).reshape(1, NY, NX)).astype(dtype)


def sparse(day: int, *, full: bool = False) -> np.ndarray:
    """NaN where the chunk is not written."""
    values = field(day, "sparse", "<f4")
    if day % 2 and not full:
        for y, x in ABSENT:
            values[:, y * 3 : y * 3 + 3, x * 4 : x * 4 + 4] = np.nan
    return values


def granule(path: Path, day: int, *, full: bool = False, salt: int = 0) -> dict[str, np.ndarray]:
    """A netCDF-4-like day: packed and chunked, sparse, big-endian contiguous, compact, in a group.

    Beside the data 1-D and 2-D coordinates, bounds, scalars and a grid mapping. ``full`` writes every
    chunk; ``salt`` gives ``packed`` other data on the same day. Returns what was written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    values = {
        "time": np.array([day], "<f8"),
        "y": np.linspace(-1, 1, NY).astype("<f4"),
        "x": np.arange(NX, dtype="<i4") * 10,
        "lat": np.linspace(-80, 80, NY * NX).reshape(NY, NX),
        "time_bnds": np.array([[day, day + 1]], "<f8"),
        "crs": np.array(-2147483647, "<i4"),
        "height": np.array(0.1, ">f4"),
        "packed": field(day, "packed", "<i2") + np.int16(salt),
        "sparse": sparse(day, full=full),
        "big": field(day, "big", ">i4"),
        "compact": field(day, "compact", "<u2"),
        "g/deep": field(day, "g/deep", "|u1"),
    }
    with h5py.File(path, "w", track_order=True) as f:
        write_axes(f, values)
        write_data(f, values, day, full)
        f.attrs["title"] = np.bytes_("many kinds, é".encode())
        f.attrs["version"] = np.float32(0.1)
        f.attrs["id"] = np.bytes_(path.name.encode())
    return values


def write_axes(f: h5py.File, values: Mapping[str, np.ndarray]) -> None:
    for name in ("time", "y", "x"):
        f[name] = values[name]
        f[name].make_scale(name)
    f["time"].attrs.update(
        text(units="days since 2000-01-01", calendar="standard", bounds="time_bnds")
    )
    f["lat"], f["time_bnds"] = values["lat"], values["time_bnds"]
    f["nv"] = np.zeros(2, "<i4")
    f["nv"].make_scale("This is a netCDF dimension but not a netCDF variable.         2")
    attach(f, "lat", "y", "x")
    attach(f, "time_bnds", "time", "nv")
    f["crs"], f["height"] = values["crs"], values["height"]
    f["crs"].attrs.update(text(grid_mapping_name="latitude_longitude", empty=""))
    f["crs"].attrs["semi_major_axis"] = 6378137.1
    f["crs"].attrs["count"] = np.int64(2**60 + 1)


def write_data(f: h5py.File, values: Mapping[str, np.ndarray], day: int, full: bool) -> None:
    packed = granules.pipeline(
        f, "packed", values["packed"], CHUNKS, "shuffle", "deflate", fill=-999
    )
    packed.attrs["_FillValue"] = np.int16(-999)
    packed.attrs["scale_factor"], packed.attrs["add_offset"] = np.float32(0.01), np.float64(0.1)
    packed.attrs["valid_range"] = np.array([-300, 4500], "<i2")
    packed.attrs.update(
        text(long_name="packed", units="°C", coordinates="lat height", grid_mapping="crs")
    )
    shape = values["sparse"].shape
    thin = granules.pipeline(
        f, "sparse", None, CHUNKS, "deflate", shape=shape, dtype="<f4", fill=np.nan
    )
    thin.attrs["_FillValue"] = np.float32(np.nan)
    for y in range(2):
        for x in range(2):
            if full or not day % 2 or (y, x) not in ABSENT:
                window = (slice(None), slice(y * 3, y * 3 + 3), slice(x * 4, x * 4 + 4))
                thin[window] = values["sparse"][window]
    f["big"] = values["big"]
    granules.compact(f, "compact", values["compact"])
    f.create_group("g")
    granules.pipeline(f, "g/deep", values["g/deep"], CHUNKS, "deflate", "fletcher32")
    for name in DATA:
        attach(f, name, "time", "y", "x")


def text(**attrs: str) -> dict[str, np.bytes_]:
    return {k: np.bytes_(v.encode()) for k, v in attrs.items()}


def attach(f: h5py.File, name: str, *dims: str) -> None:
    for i, dim in enumerate(dims):
        f[name].dims[i].attach_scale(f[dim])


# --- an archive and a form of it -------------------------------------------------------------------


@dataclass
class Archive:
    """Granules with known values in a folder, and the store that the tests build of them."""

    folder: Path
    axis: str = "packed"
    arrays: Sequence[str] = ()

    def __post_init__(self) -> None:
        self.days: dict[int, dict[str, np.ndarray]] = {}
        self.conf = building.config(
            remap={"public": {f"{self.source('')}": PUBLIC}},
            plan={"concat": "time", "axis": self.axis, "missing": "refuse"},
            scan={"arrays": list(self.arrays)},
        )

    def source(self, name: str) -> str:
        return f"{self.folder / 'src' / 'a bé'}/{name}"

    def path(self, day: int) -> Path:
        return Path(self.source(f"day {day:02d} %20#?é.nc"))

    def write(self, *days: int, **options: Any) -> list[Path]:
        for day in days:
            self.days[day] = granule(self.path(day), day, **options)
        return [self.path(day) for day in days]

    @contextmanager
    def view(self, *days: int, removed: Iterable[int] = (), **options: Any) -> Iterator[View]:
        """The view after these days were written and scanned, or removed."""
        gone = [self.days.pop(day) and str(self.path(day)) for day in removed]
        building.scan_into(self.folder, self.write(*days, **options), self.conf, gone)
        with building.replan(self.folder, self.conf) as view:
            yield view

    def expected(self, name: str) -> np.ndarray:
        """What the writer wrote, day after day; an array without time as the first day has it."""
        pieces = [self.days[day][name] for day in sorted(self.days)]
        return np.concatenate(pieces) if pieces[0].ndim and name in TIMED else pieces[0]


TIMED = (*DATA, "time", "time_bnds")


def whole(shape: Sequence[int]) -> tuple[slice, ...]:
    return tuple(slice(0, n) for n in shape)


def access(view: View, form: str, target: str) -> Callable[[str], str]:
    """From a path or prefix as the form publishes it to the same one as it can be read here."""
    prefixes = [p for p in view.prefixes() if emitters.covers_prefix(view, p, target)]
    names = [*prefixes, *(s.source for s in view.sources)]
    known = {spelled(form, view.published(name, target)): name for name in names}
    if form == "sqlite":
        known |= {name: name for name in names}  # it carries the sources and the rules
    return known.__getitem__


def bits(a: np.ndarray) -> tuple[Any, ...]:
    """Shape, kind and bytes in native order: equal for arrays that are the same bit for bit."""
    native = np.ascontiguousarray(a, a.dtype.newbyteorder("="))
    return a.shape, a.dtype.kind, a.dtype.itemsize, native.tobytes()


def tree(folder: Path) -> dict[str, str]:
    files = sorted(p for p in folder.rglob("*") if p.is_file())
    return {
        p.relative_to(folder).as_posix(): hashlib.sha256(p.read_bytes()).hexdigest() for p in files
    }


def times(folder: Path) -> dict[str, int]:
    """mtime of the files that an emitter writes itself."""
    files = (p for p in folder.rglob("*") if p.is_file() and p.name not in ("open.json", "OPEN.md"))
    return {p.relative_to(folder).as_posix(): p.stat().st_mtime_ns for p in files}


def rows_of(rows: Rows) -> tuple[Any, ...]:
    return list(rows.path), list(rows.offset), list(rows.size), dict(rows.data)


class EmitterTests:
    """Subclass with the form's name; the oracle is what the granules' writer wrote."""

    FORM: ClassVar[str]
    OPTIONS: ClassVar[Mapping[str, Any]] = {}
    ROWS: ClassVar[bool] = True
    """whether the form has a row for every chunk (a VRT has slabs)"""
    EXACT: ClassVar[bool] = True
    """whether equal content gives equal bytes (Icechunk draws ids)"""

    @pytest.fixture
    def archive(self, tmp_path: Path) -> Archive:
        return Archive(tmp_path)

    @pytest.fixture(autouse=True)
    def readers(self) -> Iterator[None]:
        """Close what the test opened."""
        self.opened: list[Any] = []
        yield
        for reader in self.opened:
            getattr(reader, "close", lambda: None)()
        self.opened.clear()

    def emit(
        self, view: View, out: Path, state: Mapping[str, Any] | None = None, target: str = "access"
    ) -> dict[str, Any]:
        """One emit; state goes through JSON, as between two runs."""
        form = emitters.load(self.FORM)
        found = form.emit(view, out, target=target, options=self.OPTIONS, state=state or {})
        back: dict[str, Any] = json.loads(json.dumps(found))
        assert back == found
        return back

    def open(self, view: View, out: Path, target: str = "access") -> Reader:
        here = access(view, self.FORM, target)
        self.opened.append(emitters.load(self.FORM).open(out, access=here, target=target))
        return self.opened[-1]

    def published(self, view: View, target: str) -> list[str]:
        """Paths by source as the form spells them; SQLite carries the sources and the rules."""
        paths = view.paths("access" if self.FORM == "sqlite" else target)
        return [spelled(self.FORM, path) for path in paths]

    def content(self, view: View, out: Path) -> Any:
        """What two equal forms have equal: bytes, or else all that a reader sees."""
        if self.EXACT:
            return tree(out)
        reader = self.open(view, out)
        described = reader.arrays()
        values = {n: bits(reader.read(n, whole(d.shape))) for n, d in described.items()}
        return described, values, {n: rows_of(reader.refs(n)) for n in view.referenced()}

    def check_values(self, archive: Archive, view: View, out: Path, target: str = "access") -> None:
        reader = self.open(view, out, target)
        described = reader.arrays()
        for name in (*DATA, "time", "y", "x", "lat", "time_bnds", "crs", "height"):
            expected = archive.expected(name)
            assert tuple(described[name].shape) == expected.shape
            assert bits(reader.read(name, whole(expected.shape))) == bits(expected), name

    def check_rows(self, view: View, out: Path, target: str = "access") -> None:
        if not self.ROWS:
            return
        reader, paths = self.open(view, out, target), self.published(view, target)
        assert view.referenced()
        for name in view.referenced():
            refs, rows = view.refs(name), reader.refs(name)
            here = refs.offset >= 0
            path = [paths[s] if h else None for s, h in zip(refs.source, here, strict=True)]
            assert list(rows.path) == path
            assert list(rows.offset) == list(np.where(here, refs.offset, -1))
            assert list(rows.size) == list(np.where(here, refs.size, -1))
            assert dict(rows.data) == dict(refs.data)

    # --- what arrives ---

    def test_values_equal_the_granules_whatever_their_layout(self, archive: Archive) -> None:
        with archive.view(1, 2, 3) as view:
            assert set(DATA) <= set(view.referenced())
            self.emit(view, archive.folder / "out")
            self.check_values(archive, view, archive.folder / "out")

    def test_a_window_across_chunks_and_days_equals_the_granules(self, archive: Archive) -> None:
        with archive.view(1, 2, 3) as view:
            self.emit(view, archive.folder / "out")
            reader = self.open(view, archive.folder / "out")
            window = (slice(1, 3), slice(2, 5), slice(3, 6))
            for name in DATA:
                assert bits(reader.read(name, window)) == bits(archive.expected(name)[window]), name

    def test_a_chunk_that_was_never_written_reads_as_fill(self, archive: Archive) -> None:
        with archive.view(1) as view:
            assert (view.refs("sparse").offset < 0).sum() == len(ABSENT)
            self.emit(view, archive.folder / "out")
            got = self.open(view, archive.folder / "out").read("sparse", whole((1, NY, NX)))
            assert np.isnan(got[0, :3, 4:]).all()
            assert np.isnan(got[0, 3:, :4]).all()
            assert np.isfinite(got[0, :3, :4]).all()

    def test_a_day_that_no_source_covers_reads_as_fill(self, tmp_path: Path) -> None:
        # a gap in an array without a declared missing value is refused by the plan
        archive = Archive(tmp_path, axis="dense", arrays=("packed", "sparse"))
        with archive.view(0, 2, 4, 5, full=True) as view:
            assert (view.refs("packed").source == -1).sum() == 2 * 4
            self.emit(view, tmp_path / "out")
            self.check_rows(view, tmp_path / "out")
            reader = self.open(view, tmp_path / "out")
            for name, fill in (("packed", -999), ("sparse", np.nan)):
                got = reader.read(name, whole((6, NY, NX)))
                for day in range(6):
                    expected = archive.days[day][name][0] if day in archive.days else fill
                    np.testing.assert_array_equal(got[day], np.broadcast_to(expected, (NY, NX)))

    def test_an_inline_chunk_arrives_with_its_bytes(self, archive: Archive) -> None:
        with archive.view(1, 2) as view:
            assert len(view.refs("compact").data) == 2
            self.emit(view, archive.folder / "out")
            reader = self.open(view, archive.folder / "out")
            assert bits(reader.read("compact", whole((2, NY, NX)))) == bits(
                archive.expected("compact")
            )
            if self.ROWS:
                assert dict(reader.refs("compact").data) == dict(view.refs("compact").data)

    def test_every_row_is_the_views(self, archive: Archive) -> None:
        with archive.view(1, 2, 3) as view:
            self.emit(view, archive.folder / "out")
            self.check_rows(view, archive.folder / "out")

    def test_the_form_says_of_an_array_what_the_plan_says(self, archive: Archive) -> None:
        with archive.view(1, 2) as view:
            self.emit(view, archive.folder / "out")
            found = self.open(view, archive.folder / "out").arrays()
            assert sorted(found) == sorted(view.arrays)
            for name, array in view.arrays.items():
                assert tuple(found[name].dims) == array.dims
                assert tuple(found[name].shape) == array.shape
                if self.ROWS:
                    assert np.dtype(found[name].dtype) == np.dtype(array.dtype)
                if self.ROWS and name in view.referenced():
                    assert found[name].chunks == array.chunks
                    assert found[name].codec == array.codec

    def test_attributes_arrive_as_the_scalars_lists_and_text_they_were(
        self, archive: Archive
    ) -> None:
        with archive.view(1, 2) as view:
            self.emit(view, archive.folder / "out")
            found = self.open(view, archive.folder / "out").arrays()
            packed, crs = found["packed"].attrs, found["crs"].attrs
            assert packed["scale_factor"] == float(np.float32(0.01))
            assert packed["add_offset"] == 0.1
            assert list(packed["valid_range"]) == [-300, 4500]
            assert packed["units"] == "°C"
            assert packed["grid_mapping"] == "crs"
            assert crs["semi_major_axis"] == 6378137.1
            assert crs["count"] == 2**60 + 1
            assert crs["empty"] == ""
            assert found["time"].attrs["units"] == "days since 2000-01-01"
            assert found["time"].attrs["bounds"] == "time_bnds"

    # --- paths ---

    def test_paths_are_the_targets_and_the_store_is_untouched(self, archive: Archive) -> None:
        with archive.view(1, 2) as view:
            before = tree(archive.folder / "src"), (archive.folder / "store.sqlite").read_bytes()
            own = "public" if emitters.load(self.FORM).PER_TARGET else "access"
            self.emit(view, archive.folder / "out", target=own)
            self.check_rows(view, archive.folder / "out", "public")
            self.check_values(archive, view, archive.folder / "out", "public")
            if self.ROWS and self.FORM != "sqlite":
                reader = self.open(view, archive.folder / "out", "public")
                path = reader.refs("packed").path[0]
                assert path == spelled(self.FORM, PUBLIC + "day 01 %20#?é.nc")
            after = tree(archive.folder / "src"), (archive.folder / "store.sqlite").read_bytes()
            assert before == after

    def test_a_target_that_does_not_cover_a_source_is_refused_by_name(
        self, archive: Archive
    ) -> None:
        archive.conf["remap"]["public"] = {"/somewhere/else/": PUBLIC}
        with (
            pytest.raises(RemapError, match=r"day 01 %20#\?é\.nc.*public"),
            archive.view(1) as view,
        ):
            self.emit(view, archive.folder / "out", target="public")

    # --- again, and further ---

    def test_emitting_twice_writes_nothing_new(self, archive: Archive) -> None:
        with archive.view(1, 2) as view:
            state = self.emit(view, archive.folder / "out")
            before = tree(archive.folder / "out"), times(archive.folder / "out")
            assert before[0]
            assert self.emit(view, archive.folder / "out", state) == state
            assert (tree(archive.folder / "out"), times(archive.folder / "out")) == before

    def test_equal_content_gives_equal_forms(self, archive: Archive) -> None:
        with archive.view(1, 2) as view:
            self.emit(view, archive.folder / "out")
            self.emit(view, archive.folder / "again")
            one, two = (self.content(view, archive.folder / n) for n in ("out", "again"))
            assert one == two

    def check_same_as_rebuilt(self, archive: Archive, view: View, out: Path) -> None:
        """What was brought up to date step by step is what one go makes."""
        self.check_values(archive, view, out)
        self.check_rows(view, out)
        self.emit(view, out.with_name("rebuilt"))
        assert self.content(view, out) == self.content(view, out.with_name("rebuilt"))

    def test_an_append_equals_a_rebuild(self, archive: Archive) -> None:
        out, state = archive.folder / "out", {}
        for days in ((1, 2), (3,), (4,)):
            with archive.view(*days) as view:
                state = self.emit(view, out, state)
        with archive.view() as view:
            self.check_same_as_rebuilt(archive, view, out)

    def test_a_late_day_in_the_middle_equals_a_rebuild(self, archive: Archive) -> None:
        out, state = archive.folder / "out", {}
        for days in ((1, 4), (2,)):
            with archive.view(*days) as view:
                state = self.emit(view, out, state)
                self.check_values(archive, view, out)
        with archive.view() as view:
            self.check_same_as_rebuilt(archive, view, out)

    def test_a_rewritten_source_replaces_its_rows_and_vanished_chunks_are_gone(
        self, archive: Archive
    ) -> None:
        out = archive.folder / "out"
        with archive.view(1, 3, 5, full=True) as view:
            state = self.emit(view, out)
        with archive.view(3, salt=9) as view:
            assert (view.refs("sparse").offset < 0).sum() == len(ABSENT)
            self.emit(view, out, state)
            self.check_same_as_rebuilt(archive, view, out)

    def test_a_removed_source_is_gone(self, archive: Archive) -> None:
        out = archive.folder / "out"
        with archive.view(1, 2, 3) as view:
            state = self.emit(view, out)
        with archive.view(removed=[3]) as view:
            state = self.emit(view, out, state)
            self.check_values(archive, view, out)
        with archive.view(4) as view:
            self.emit(view, out, state)
            self.check_same_as_rebuilt(archive, view, out)

    def test_without_state_it_starts_from_scratch_whatever_lies_there(
        self, archive: Archive
    ) -> None:
        out = archive.folder / "out"
        with archive.view(1, 2) as view:
            self.emit(view, out)
            clean = sorted(tree(out))
            for file in sorted(p for p in out.rglob("*") if p.is_file()):
                file.write_bytes(b"rubbish")
            self.emit(view, out)
            self.check_same_as_rebuilt(archive, view, out)
            if self.EXACT:
                assert sorted(tree(out)) == clean

    def test_fragments_change_nothing_but_what_is_written_again(
        self, archive: Archive, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """With fragments of two days the form is the same, after an append too."""
        monkeypatch.setattr(grid, "FRAGMENT_ROWS", 8)
        out = archive.folder / "out"
        with archive.view(1, 2, 3) as view:
            assert len(view.fragments("packed")) == 2
            state = self.emit(view, out)
        with archive.view(4, 5) as view:
            self.emit(view, out, state)
            self.check_same_as_rebuilt(archive, view, out)

    # --- how to open it ---

    @pytest.mark.filterwarnings(
        "ignore:The 'fastparquet' engine is deprecated",  # fsspec 2026.9 asks pandas for it by name
        "ignore:The 'future.infer_string' option is deprecated",
    )
    def test_the_lines_of_open_json_run_where_the_form_lies(
        self, archive: Archive, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with archive.view(1, 2) as view:
            self.emit(view, archive.folder / "out")
        content = json.loads((archive.folder / "out" / "open.json").read_text())
        assert content["form"] == self.FORM
        assert set(content["coverage"]) == set(DATA) | set(archive.days[1])
        monkeypatch.chdir(archive.folder / "out")
        ran = self.run_lines(content["open"])
        assert ran
        assert os.path.exists("OPEN.md")

    def run_lines(self, lines: Mapping[str, Sequence[str]]) -> list[str]:
        """Run what can be run here; the readers whose lines ran."""
        ran = []
        if "xarray" in lines:
            names: dict[str, Any] = {}
            exec("\n".join(lines["xarray"]), names)
            assert names["ds"]["packed"].dims == ("time", "y", "x")
            assert names["ds"]["time"].dt.day.values.tolist() == [2, 3]
            self.check_decoded(names["ds"])
            names["ds"].close()
            if hasattr(names.get("store"), "close"):
                names["store"].close()
            ran.append("xarray")
        for statement in lines.get("duckdb", ()):
            if "INSTALL" in statement or "sqlite_scan" in statement:
                continue  # an extension from the network
            with duckdb.connect() as con:
                assert con.execute(statement).fetchall()
            ran.append("duckdb")
        scripts = {"python": "\n".join(lines.get("python", ()))}
        scripts["gdal"] = "\n".join(x for x in lines.get("gdal", ()) if x.startswith("from osgeo"))
        for reader, script in scripts.items():
            if script:
                subprocess.run([sys.executable, "-c", script], check=True)
                ran.append(reader)
        return ran

    def check_decoded(self, ds: Any) -> None:
        """What xarray makes of the packed values: unpacked, fill masked."""
        stored = granules_packed(ds.sizes["time"])
        decoded = stored * float(np.float32(0.01)) + 0.1
        np.testing.assert_allclose(ds["packed"].values, decoded, rtol=1e-6)
        assert np.isnan(ds["sparse"].values[0]).any()


def granules_packed(days: int) -> np.ndarray:
    """``packed`` of day 1 onwards."""
    return np.concatenate([field(day, "packed", "<i2") for day in range(1, days + 1)])
