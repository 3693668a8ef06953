"""Readers that know the spec and nothing of byterefs: the published table must stand alone."""

import json
import sqlite3
import zlib

import numpy as np
import pytest

from building import build
from byterefs import emitters
from test_plan import START, timedelta


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    """Five days, four of them planned, in forms sqlite and parquet; returns the folder and what was written."""
    from granules import oisst

    folder = tmp_path_factory.mktemp("outsider")
    written = {}
    for n in range(4):
        path = folder / f"sst.{n}.nc"
        values = oisst(
            path, START + timedelta(n), shape=(6, 8), arrays=("sst", "ice"), chunks=(1, 1, 4, 8)
        )
        written[str(path)] = values
    with build(
        folder,
        sorted(folder.glob("*.nc")),
        remap={"public": {str(folder): "https://example.org/d"}},
    ) as view:
        for form in ("sqlite", "parquet"):
            emitters.load(form).emit(view, folder / form, target="access", options={}, state={})
    return folder, written


@pytest.fixture
def table(published):
    con = sqlite3.connect(published[0] / "sqlite" / "store.sqlite")
    yield con
    con.close()


def test_every_chunk_decodes_with_sqlite3_zlib_numpy_and_the_spec(published, table):
    _, written = published
    assert dict(table.execute("SELECT key, value FROM meta"))["format_version"] == "mdim-refs/0.2"
    seen = 0
    for array in ("sst", "ice"):
        shape, chunks, dtype, codec = table.execute(
            "SELECT shape, chunks, dtype, codec FROM arrays WHERE array = ?", (array,)
        ).fetchone()
        shape, chunks, codec = json.loads(shape), json.loads(chunks), json.loads(codec)
        assert codec == {
            "compressor": {"id": "zlib", "level": 4},
            "filters": [{"elementsize": 2, "id": "shuffle"}],
        }
        out = np.zeros(shape, dtype)
        rows = table.execute(
            f"SELECT dim_0, dim_1, dim_2, dim_3, present, path, offset, size, info, data FROM refs_{array}"
        )
        for *key, present, path, offset, size, info, data in rows:
            assert (present, info, data) == (
                1,
                "COMPRESSION=DEFLATE; FILTER=SHUFFLE; ENDIANNESS=LITTLE",
                None,
            )
            with open(path, "rb") as f:
                f.seek(offset)
                raw = zlib.decompress(f.read(size))
            values = np.frombuffer(raw, "u1").reshape(2, -1).T.copy().view(dtype).reshape(chunks)
            window = tuple(
                slice(k * c, min((k + 1) * c, n))
                for k, c, n in zip(key, chunks, shape, strict=True)
            )
            out[window] = values[tuple(slice(0, w.stop - w.start) for w in window)]
            seen += 1
        assert out.tobytes() == np.concatenate([w[array] for w in written.values()]).tobytes()
    assert seen == 2 * 4 * 2


def test_the_view_is_the_join_of_chunks_and_placements_that_the_spec_gives(table):
    statement = """
        SELECT c.dim_0 - json_extract(p.src_offset, '$[0]') / 1 + json_extract(p.dest, '$[0]') / 1,
               c.dim_1, c.dim_2, c.dim_3, c.present, s.source, c.offset, c.size, c.info, c.data
        FROM sst AS c JOIN placements AS p ON p.source_id = c.source_id AND p.array = 'sst'
        JOIN sources AS s ON s.source_id = c.source_id ORDER BY 1, 2, 3, 4
    """
    view = table.execute(
        "SELECT dim_0, dim_1, dim_2, dim_3, present, path, offset, size, info, data FROM refs_sst ORDER BY 1, 2, 3, 4"
    ).fetchall()
    assert table.execute(statement).fetchall() == view
    assert len(view) == 8


def test_the_schema_is_that_of_the_spec(table):
    columns = {
        name: [row[1] for row in table.execute(f"PRAGMA table_info({name})")]
        for name in ("meta", "sources", "arrays", "placements", "remap", "sst", "refs_sst")
    }
    assert columns["meta"] == ["key", "value"]
    assert columns["sources"] == ["source_id", "source", "size", "mtime", "etag"]
    spec = [
        "array",
        "kind",
        "storage",
        "dims",
        "shape",
        "chunks",
        "dtype",
        "fill",
        "codec",
        "attrs",
        "affine",
        "values",
    ]
    assert columns["arrays"] == [*spec, "attr_dtypes", "grid_mapping"]
    assert columns["placements"] == [
        "array",
        "dest",
        "source_id",
        "source_array",
        "src_offset",
        "count",
    ]
    assert columns["remap"] == ["target", "prefix", "replacement"]
    dims = ["dim_0", "dim_1", "dim_2", "dim_3"]
    assert columns["sst"] == ["source_id", *dims, "present", "offset", "size", "info", "data"]
    assert columns["refs_sst"] == [*dims, "present", "path", "offset", "size", "info", "data"]
    assert table.execute("PRAGMA journal_mode").fetchone() == ("delete",)
    sql = table.execute("SELECT sql FROM sqlite_master WHERE name = 'sst'").fetchone()[0]
    assert "WITHOUT ROWID" in sql
    assert '"offset" BIGINT' in sql


def test_one_chunk_is_one_seek(table):
    plan = table.execute(
        "EXPLAIN QUERY PLAN SELECT * FROM refs_sst WHERE dim_0 = 2 AND dim_1 = 0 AND dim_2 = 1 AND dim_3 = 0"
    ).fetchall()
    assert [row[3].split(" ")[0] for row in plan] == ["SEARCH"] * len(plan)


def test_coordinates_are_in_the_table_bit_for_bit(published, table):
    _, written = published
    first = next(iter(written.values()))
    for name in ("lat", "lon", "time"):
        dtype, values, affine, shape = table.execute(
            'SELECT dtype, "values", affine, shape FROM arrays WHERE array = ?', (name,)
        ).fetchone()
        if affine:
            spacing = json.loads(affine)
            values = (
                (spacing["start"] + spacing["step"] * np.arange(json.loads(shape)[0]))
                .astype(dtype)
                .tobytes()
            )
        expected = (
            np.concatenate([w["time"] for w in written.values()]) if name == "time" else first[name]
        )
        assert values == expected.astype(dtype).tobytes()


def test_ogr_shows_a_layer_per_array_with_64_bit_offsets(published):
    from osgeo import gdal, ogr

    gdal.UseExceptions()
    dataset = ogr.Open(str(published[0] / "sqlite" / "store.sqlite"))
    layer = dataset.GetLayerByName("refs_sst")
    definition = layer.GetLayerDefn()
    types = {
        definition.GetFieldDefn(i).GetName(): definition.GetFieldDefn(i).GetType()
        for i in range(definition.GetFieldCount())
    }
    assert types["offset"] == types["size"] == ogr.OFTInteger64
    assert types["path"] == types["info"] == ogr.OFTString
    assert layer.GetFeatureCount() == 8
    assert layer.GetNextFeature().GetField("path").endswith("sst.0.nc")


def test_duckdb_says_which_sources_touch_these_days_and_this_box(published):
    import duckdb

    file = published[0] / "parquet" / "refs_sst.parquet"
    rows = duckdb.sql(
        f"SELECT DISTINCT path FROM '{file}' WHERE dim_0 BETWEEN 1 AND 2 AND dim_2 = 1 AND present = 1 ORDER BY 1"
    ).fetchall()
    assert [r[0].rsplit("/", 1)[1] for r in rows] == ["sst.1.nc", "sst.2.nc"]
    ((total,),) = duckdb.sql(f"SELECT sum(size) FROM '{file}' WHERE dim_0 = 0").fetchall()
    assert 0 < total < 2 * 6 * 8 * 2
