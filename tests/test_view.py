"""The view's rows: GDAL's block info through the plan is the oracle, and fragments say what changed."""

import numpy as np
import pytest

from building import build, config, replan, scan_into
from byterefs import grid
from byterefs.database import writing
from byterefs.errors import StoreError
from byterefs.model import ABSENT
from byterefs.planned import top_folder
from byterefs.store import add_scan
from byterefs.view import View, receipt
from test_plan import day, monthly


def gdal_rows(text, array):
    """(path, offset, size) of each global block as GDAL gives it through the plan's VRT."""
    from osgeo import gdal

    gdal.UseExceptions()
    dataset = gdal.OpenEx(text, gdal.OF_MULTIDIM_RASTER)
    a = dataset.GetRootGroup().OpenMDArray(array)
    shape = [d.GetSize() for d in a.GetDimensions()]
    rows = []
    for key in np.ndindex(*grid.chunk_grid(shape, a.GetBlockSize())):
        block = a.GetRawBlockInfo(list(map(int, key)))
        rows.append(
            (block.GetFilename(), block.GetOffset(), block.GetSize(), "; ".join(block.GetInfo()))
        )
    return rows


@pytest.mark.parametrize("chunks", [(1, 1, 6, 8), (1, 1, 4, 3)])
def test_rows_are_those_of_gdals_block_info_through_the_plan(tmp_path, chunks):
    files = [day(tmp_path, n, chunks=chunks) for n in (2, 0, 1)]
    with build(tmp_path, files) as view:
        refs, paths = view.refs("sst"), view.paths("access")
        info = view.arrays["sst"].info
        ours = [
            (paths[s], o, n, info)
            for s, o, n in zip(refs.source, refs.offset, refs.size, strict=True)
        ]
        assert ours == gdal_rows(view.vrt, "sst")
        assert view.grid("sst") == grid.chunk_grid(view.arrays["sst"].shape, chunks)


def test_rows_of_several_steps_a_file_are_those_of_gdal(tmp_path):
    with build(tmp_path, monthly(tmp_path, [3, 2, 4], 1)) as view:
        refs, paths = view.refs("v"), view.paths("access")
        ours = [
            (paths[s], o, n) for s, o, n in zip(refs.source, refs.offset, refs.size, strict=True)
        ]
        assert ours == [row[:3] for row in gdal_rows(view.vrt, "v")]


def test_a_part_of_the_rows_is_the_part_of_all_rows(tmp_path):
    with build(tmp_path, monthly(tmp_path, [3, 2, 4], 1)) as view:
        whole = view.refs("v")
        for start, stop in ((0, 9), (2, 4), (4, 9), (8, 9)):
            part = view.refs("v", start, stop)
            assert part.offset.tolist() == whole.offset[start:stop].tolist()
            assert part.source.tolist() == whole.source[start:stop].tolist()


def test_an_append_changes_the_last_fragment_and_no_other(tmp_path, monkeypatch):
    monkeypatch.setattr(grid, "FRAGMENT_ROWS", 2)
    files = [day(tmp_path, n) for n in range(5)]
    with build(tmp_path, files[:4]) as view:
        before = view.fragments("sst")
    scan_into(tmp_path, files[4:], config())
    with replan(tmp_path, config()) as view:
        after = view.fragments("sst")
    assert [(f.start, f.stop) for f in after] == [(0, 2), (2, 4), (4, 5)]
    assert after[:2] == before


def test_a_rewritten_granule_changes_its_fragment(tmp_path, monkeypatch):
    monkeypatch.setattr(grid, "FRAGMENT_ROWS", 1)
    files = [day(tmp_path, n) for n in range(3)]
    with build(tmp_path, files) as view:
        before = [f.digest for f in view.fragments("sst")]
    day(tmp_path, 1, seed=7)
    scan_into(tmp_path, files[1:2], config())
    with replan(tmp_path, config()) as view:
        after = [f.digest for f in view.fragments("sst")]
    assert [a == b for a, b in zip(after, before, strict=True)] == [True, False, True]


def test_the_same_archive_gives_the_same_receipt_in_any_order_of_arrival(tmp_path):
    files = [day(tmp_path, n) for n in range(4)]
    with build(tmp_path / "one", files) as view:
        one = receipt(view)
    scan_into(tmp_path / "many", [files[3]], config())
    scan_into(tmp_path / "many", [files[0], files[2]], config())
    replan(tmp_path / "many", config()).close()
    scan_into(tmp_path / "many", [files[1]], config())
    with replan(tmp_path / "many", config()) as view:
        assert receipt(view) == one


def test_absent_chunks_of_a_source_are_rows_and_a_place_without_source_is_none(tmp_path):
    from test_store import scan

    with writing(tmp_path / "store.sqlite") as con:
        add_scan(con, scan("/d/a.nc", 3), "1")
    with replan(tmp_path, config(plan={"concat": None})) as view:
        refs = view.refs("sst")
        assert refs.source.tolist() == [0, 0, 0]
        assert refs.offset.tolist() == [2**33, 2**33 + 8, ABSENT]
        assert refs.data == {2: b"inline0"}


def test_a_store_without_a_plan_is_refused(tmp_path):
    scan_into(tmp_path, [day(tmp_path, 0)], config())
    with pytest.raises(StoreError, match="no plan yet"):
        View.open(tmp_path / "store.sqlite")


def test_prefixes_do_not_change_when_sources_arrive(tmp_path):
    files = [day(tmp_path, n) for n in range(2)]
    parts = {
        "remap": {"public": {str(tmp_path): "https://example.org/d"}},
        "source": {"path": str(tmp_path)},
    }
    with build(tmp_path / "one", files[:1], **parts) as view:
        one = view.prefixes()
        assert view.paths("public") == ["https://example.org/d/sst.20260101.nc"]
    with build(tmp_path / "two", files, **parts) as view:
        assert view.prefixes() == one == [f"{tmp_path}/"]


@pytest.mark.parametrize(
    ("source", "folder"),
    [
        ("/data/a/b.nc", "/data/"),
        ("/vsis3/bucket/a/b.nc", "/vsis3/bucket/"),
        ("/vsicurl/https://h:1/a/b.nc", "/vsicurl/https://h:1/"),
        ("s3://bucket/a.nc", "s3://bucket/"),
        ("https://h/a.nc", "https://h/"),
    ],
)
def test_a_source_outside_every_prefix_brings_its_server_or_top_folder(source, folder):
    assert top_folder(source) == folder
