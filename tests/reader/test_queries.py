"""Queries: what a box and a span touch equals what reading them fetches, and no source is opened for it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import xarray
from hypothesis import given
from hypothesis import strategies as st

import byterefs
from byterefs.errors import ByteRefsError
from byterefs.reader.queries import parsed_where, query
from reading import FORMS, Archive
from serving import web

SCRIPT = Path(__file__).parents[2] / "scripts/query.py"


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    root = tmp_path_factory.mktemp("queries")
    with web(root) as server:
        archive = Archive(root, days=6, shape=(40, 60))
        archive.publish(public=server.url)
        yield archive, server


@pytest.fixture(params=FORMS)
def store(site, request):
    archive, _ = site
    with byterefs.open(archive.root / FORMS[request.param], target="public") as opened:
        yield opened


def test_a_box_and_a_span_give_the_chunks_that_reading_them_fetches(site, store):
    _, server = site
    server.forget()
    touched = query(store, "sst", {"time": "2020-01-02/2020-01-03", "y": "3/9", "x": "50/58.5"})
    assert touched.window == (slice(1, 3), slice(3, 10), slice(50, 59))
    assert (touched.chunks, touched.absent, touched.inline) == (2 * 3 * 2, 0, 0)
    assert server.requests == []
    byterefs.read(store.array("sst"), touched.window)
    ranges = {
        (path, *map(int, re.findall(r"\d+", asked)))
        for _, path, asked in server.requests
        if path.endswith(".nc")
    }
    assert ranges == {
        (r.path.removeprefix(server.url), r.offset, r.offset + r.size - 1) for r in touched.requests
    }
    assert set(touched.sources) == {f"{server.url}/day{n}.nc" for n in (1, 2)}
    assert touched.bytes == sum(ref.size for ref in touched.refs) <= touched.fetched


@given(data=st.data())
def test_a_span_of_a_coordinate_is_what_xarray_selects(site, data):
    archive, _ = site
    with byterefs.open(archive.root / "sqlite") as opened:
        x = data.draw(st.tuples(*[st.floats(-3, 63, width=32)] * 2).map(sorted))
        days = data.draw(st.tuples(*[st.integers(1, 8)] * 2).map(sorted))
        ds = xarray.open_zarr(opened, consolidated=False, chunks=None)
        span = slice(*(f"2020-01-{d:02}" for d in days))
        wanted = ds["sst"].sel(x=slice(*x), time=span)
        where = {"x": f"{x[0]}/{x[1]}", "time": f"{span.start}/{span.stop}"}
        if not wanted.size:
            with pytest.raises(ByteRefsError, match="nothing lies where"):
                query(opened, "sst", where)
            return
        window = query(opened, "sst", where).window
        chosen = ds["sst"][window]
        np.testing.assert_array_equal(chosen.x, wanted.x)
        np.testing.assert_array_equal(chosen.time, wanted.time)


def test_dates_are_as_long_as_they_are_written(store):
    for text, days in {
        "2020": (0, 6), "2020-01": (0, 6), "2020-01-03": (2, 3), "2020-01-03T00": (2, 3),
        "2020-01-03T00:00:00": (2, 3), "2019/2020-01-02": (0, 2), "2020-01-05/2021": (4, 6),
    }.items():  # fmt: skip
        assert query(store, "sst", {"time": text}).window[0] == slice(*days)


def test_elements_absent_chunks_and_inline_arrays_are_counted(store):
    touched = query(store, "gappy", {"time": "@0/2", "dim_1": "@0/8"})
    assert (touched.chunks, len(touched.refs), touched.absent) == (2 * 2 * 12, 2, 2 * 2 * 12 - 2)
    small = query(store, "small")
    assert (small.inline, small.bytes, small.requests) == (6, 0, ())
    assert query(store, "time", {"time": "@3"}).window == (slice(3, 4),)


@pytest.mark.parametrize(
    ("where", "why"),
    [
        ({"lat": "1/2"}, "no coordinate 'lat'; there are .*time, x, y"),
        ({"lat": "@1/2"}, "no axis 'lat'; there are time, y, x"),
        ({"y": "@3/99"}, "no elements of an axis of 40"),
        ({"y": "@a"}, "no elements"),
        ({"y": "north"}, "no range of numbers"),
        ({"time": "yesterday"}, "it is no date"),
        ({"time": "2020-02-30"}, "no such date"),
        ({"y": "100/200"}, "nothing lies where y=100/200"),
    ],
)
def test_a_query_that_means_nothing_is_refused_with_what_there_is(store, where, why):
    with pytest.raises(ByteRefsError, match=why):
        query(store, "sst", where)


def test_a_text_that_is_no_condition_is_refused():
    for items in (["y"], ["=1"], ["y="], ["y=1", "y=2"]):
        with pytest.raises(ByteRefsError, match="write NAME=LOW/HIGH"):
            parsed_where(items)


def test_a_box_of_two_dimensional_coordinates_is_their_smallest_window(tmp_path):
    import h5py

    import granules
    from building import build
    from byterefs import emitters

    lat, lon = np.meshgrid(np.arange(6.0), np.arange(8.0), indexing="ij")
    lat, lon = lat + lon / 10, lon - lat / 10
    with h5py.File(tmp_path / "a.nc", "w") as f:
        granules.pipeline(f, "v", np.ones((1, 6, 8), "<i2"), (1, 2, 2), "deflate", fill=0)
        for name, data in {"time": np.zeros(1), "j": np.arange(6.0), "i": np.arange(8.0)}.items():
            f[name] = data
            f[name].make_scale(name)
        f["time"].attrs["units"] = "days since 2000-01-01"
        for name, data in {"lat": lat, "lon": lon}.items():
            f[name] = data
        f["v"].attrs["coordinates"] = "lat lon"
        for name, dims in {"v": ("time", "j", "i"), "lat": ("j", "i"), "lon": ("j", "i")}.items():
            for axis, dim in enumerate(dims):
                f[name].dims[axis].attach_scale(f[dim])
    with build(tmp_path, [tmp_path / "a.nc"]) as view:
        emitters.load("sqlite").emit(view, tmp_path / "out", target="access", options={}, state={})
    with byterefs.open(tmp_path / "out") as opened:
        window = query(opened, "v", {"lat": "2.1/3.3", "lon": "2.5/4.9"}).window
        inside = (lat >= 2.1) & (lat <= 3.3) & (lon >= 2.5) & (lon <= 4.9)
        j, i = np.nonzero(inside)
        assert window == (slice(0, 1), slice(j.min(), j.max() + 1), slice(i.min(), i.max() + 1))


def test_the_command_prints_sources_or_requests_and_writes_values(site, tmp_path):
    archive, server = site
    where = ["--where", "time=2020-01-02/2020-01-03", "y=0/3"]
    ask = [
        sys.executable,
        SCRIPT,
        "--table",
        archive.root / "sqlite",
        "--target",
        "public",
        "--array",
        "sst",
        *where,
    ]
    server.forget()
    done = subprocess.run(ask, capture_output=True, text=True, check=True)
    lines = [line.split() for line in done.stdout.splitlines()]
    assert [(p.rpartition("/")[2], n) for p, n, _ in lines] == [
        ("day1.nc", "12"),
        ("day2.nc", "12"),
    ]
    assert "sources: 2" in done.stderr
    assert server.requests == []
    done = subprocess.run([*ask, "--dry-run"], capture_output=True, text=True, check=True)
    planned = [line.split() for line in done.stdout.splitlines()]
    assert server.requests == []
    out = tmp_path / "v.npy"
    subprocess.run([*ask, "--out", out], capture_output=True, check=True)
    np.testing.assert_array_equal(np.load(out), archive.values["sst"][1:3, :4])
    asked = [f"{server.url}{path} {r}" for _, path, r in server.requests]
    assert sorted(asked) == sorted(f"{p} bytes={o}-{int(o) + int(s) - 1}" for p, o, s in planned)
