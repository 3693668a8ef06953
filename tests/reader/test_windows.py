"""Windows and tiles: what was written, each native chunk fetched and decoded once."""

from __future__ import annotations

import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import byterefs
from byterefs.errors import ByteRefsError
from byterefs.reader import windows
from byterefs.reader.windows import Tiles
from reading import CHUNKS, FORMS, Archive
from serving import web


@pytest.fixture(scope="module")
def archive(tmp_path_factory):
    made = Archive(tmp_path_factory.mktemp("windows"))
    made.publish()
    return made


@pytest.fixture(scope="module", params=FORMS)
def store(archive, request):
    with byterefs.open(archive.root / FORMS[request.param]) as opened:
        yield opened


@pytest.fixture
def server(tmp_path):
    with web(tmp_path) as found:
        yield found


def slices(n: int) -> st.SearchStrategy:
    ends = st.integers(-n - 2, n + 2) | st.none()
    return st.builds(slice, ends, ends) | st.integers(-n, n - 1)


@given(data=st.data())
def test_any_window_is_what_numpy_cuts_out_of_what_was_written(store, archive, data):
    name = data.draw(st.sampled_from(sorted(archive.values)))
    whole = archive.values[name]
    window = data.draw(st.tuples(*map(slices, whole.shape[: data.draw(st.integers(0, 3))])))
    np.testing.assert_array_equal(byterefs.read(store.array(name), window), whole[window])


@given(data=st.data())
def test_a_logical_grid_finer_or_coarser_than_the_native_one_gives_the_same_values(
    store, archive, data
):
    whole = archive.values["sst"]
    tiles = Tiles(
        store.array("sst"), data.draw(st.tuples(*(st.integers(1, n + 3) for n in whole.shape)))
    )
    key = data.draw(st.tuples(*(st.integers(0, n - 1) for n in tiles.grid)))
    cut = tuple(slice(k * c, (k + 1) * c) for k, c in zip(key, tiles.chunks, strict=True))
    np.testing.assert_array_equal(tiles.read(key), whole[cut])


def test_without_a_logical_grid_the_native_one_is_taken(store):
    assert Tiles(store.array("sst")).chunks == CHUNKS
    with pytest.raises(ByteRefsError, match=r"tile \[4, 0, 0\], and the grid is \[4, 3, 3\]"):
        Tiles(store.array("sst")).read((4, 0, 0))
    with pytest.raises(ByteRefsError, match="one length per axis"):
        Tiles(store.array("sst"), (1, 2))


def test_a_window_that_is_none_is_refused_with_the_way_out(store):
    sst = store.array("sst")
    for window, why in {
        (slice(0, 4, 2),): "step 2",
        (4,): "element 4 of an axis of 4",
        (0, 0, 0, 0): "a window of 4 axes",
    }.items():
        with pytest.raises(ByteRefsError, match=why):
            byterefs.read(sst, window)


@pytest.mark.parametrize("form", FORMS)
def test_a_window_of_n_chunks_makes_at_most_n_requests_and_a_neighbour_none(tmp_path, server, form):
    archive = Archive(tmp_path)
    archive.publish(public=server.url)
    with byterefs.open(f"{server.url}/{FORMS[form]}", target="public") as store:
        sst = store.array("sst")
        byterefs.read(sst, (0, slice(0, 1), slice(0, 1)))  # whatever the table itself costs
        server.forget()
        values = byterefs.read(sst, (slice(1, 3), slice(0, 4), slice(0, 13)))
        np.testing.assert_array_equal(values, archive.values["sst"][1:3, :4])
        # 6 chunks in 2 files, 3 that touch in each
        assert Counter(path for _, path, _ in server.requests) == {"/day1.nc": 1, "/day2.nc": 1}
        server.forget()
        np.testing.assert_array_equal(
            byterefs.read(sst, (2, slice(1, 3), slice(4, 9))), archive.values["sst"][2, 1:3, 4:9]
        )
        assert server.requests == []


def test_chunks_far_apart_are_a_request_each_and_absent_ones_none(tmp_path, server):
    archive = Archive(tmp_path, shape=(400, 500))
    archive.publish(public=server.url)
    with byterefs.open(tmp_path / "sqlite", target="public") as store:
        server.forget()
        sst = store.array("sst")
        np.testing.assert_array_equal(
            byterefs.read(sst, (0, slice(0, 400), 0)), archive.values["sst"][0, :, 0]
        )
        assert 0 < len(server.requests) <= sst.grid[1]
        server.forget()
        assert (byterefs.read(store.array("gappy"), (0, slice(8, 400))) == -7).all()
        assert server.requests == []


def test_threads_that_want_one_chunk_at_once_fetch_it_once(tmp_path, server):
    archive = Archive(tmp_path, days=1)
    archive.publish(public=server.url)
    with byterefs.open(tmp_path / "sqlite", target="public") as store:
        server.forget()
        ready = threading.Barrier(8)

        def read(n: int) -> np.ndarray:
            ready.wait()
            return byterefs.read(store.array("sst"), (0, slice(0, 4), slice(n % 5, 5)))

        with ThreadPoolExecutor(8) as pool:
            for n, values in enumerate(pool.map(read, range(8))):
                np.testing.assert_array_equal(values, archive.values["sst"][0, :4, n % 5 : 5])
        assert len(server.requests) == 1


def test_an_error_reaches_every_thread_that_waits_and_the_next_read_tries_again(archive, tmp_path):
    own = Archive(tmp_path, days=1)
    own.publish()
    away = own.files[0].rename(tmp_path / "away")
    with byterefs.open(tmp_path / "sqlite") as store:
        for _ in range(2):
            with pytest.raises(byterefs.errors.RangeError, match=r"day0\.nc"):
                byterefs.read(store.array("sst"))
        away.rename(own.files[0])
        np.testing.assert_array_equal(byterefs.read(store.array("sst")), own.values["sst"])


def test_memory_is_bounded_and_a_large_window_is_read_in_steps(archive, monkeypatch):
    monkeypatch.setattr(windows, "AT_ONCE", 100)
    with byterefs.open(archive.root / "sqlite", memory=100) as store:
        np.testing.assert_array_equal(byterefs.read(store.array("sst")), archive.values["sst"])
        assert store._decoded.held <= 100
