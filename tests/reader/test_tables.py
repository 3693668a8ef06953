"""Tables that must be refused, and a table of another writer that must not."""

from __future__ import annotations

import doctest
import json
import shutil
import sqlite3
from contextlib import closing

import numpy as np
import pytest

import byterefs
import synthetic
from byterefs import emitters
from byterefs.errors import RangeError, RemapError, StoreError
from byterefs.reader import sqlite, states, table
from reading import FORMS, Archive
from serving import no_ranges, page, web


@pytest.fixture(scope="module")
def archive(tmp_path_factory):
    made = Archive(tmp_path_factory.mktemp("tables"), days=2)
    made.publish(public="https://example.org/d")
    return made


@pytest.fixture
def copy(archive, tmp_path):
    """A copy of the forms that a test may damage."""
    for form in FORMS:
        shutil.copytree(archive.root / form, tmp_path / form)
    return tmp_path


def change(copy, statement, *values):
    with sqlite3.connect(copy / "sqlite/store.sqlite") as con:
        con.execute(statement, values)
    con.close()


def document(copy, edit):
    path = copy / "parquet/arrays.json"
    content = json.loads(path.read_text())
    edit(content)
    path.write_text(json.dumps(content))


@pytest.mark.parametrize("version", ["mdim-refs/0.3", "mdim-refs/0.1", "kerchunk/1", None])
def test_a_newer_or_foreign_format_is_refused_by_its_version(copy, version):
    change(copy, "UPDATE meta SET value = ? WHERE key = 'format_version'", version)
    document(copy, lambda d: d["meta"].update(format_version=version))
    for form in FORMS:
        with pytest.raises(
            StoreError, match=rf"format_version is {version!r}.*knows 'mdim-refs/0.2' only"
        ):
            byterefs.open(copy / form, target="public")


def test_an_array_with_chunk_edges_is_refused_and_the_others_are_read_without_it(copy, archive):
    change(copy, "ALTER TABLE arrays ADD COLUMN chunk_edges TEXT")
    change(copy, "UPDATE arrays SET chunk_edges = '[[0,1],[0,4],[0,5]]' WHERE array = 'sst'")
    document(copy, lambda d: d["arrays"]["sst"].update(chunk_edges=[[0, 1], [0, 4], [0, 5]]))
    for form in FORMS:
        with pytest.raises(StoreError, match=r"array 'sst': it has chunk_edges.*drop=\['sst'\]"):
            byterefs.open(copy / form, target="public")
        with byterefs.open(copy / form, target="public", drop=["sst"]) as store:
            assert store.arrays == sorted(
                set(archive.values) - {"sst"} | {"time", "x", "y", "j", "i"}
            )


@pytest.mark.parametrize(
    "name",
    ["../../etc/passwd", "a//b", "/a", "a/./b", "zarr.json", "a\\..\\b", "a\nb", "__proto__", ""],
)
def test_a_name_that_leads_out_of_the_hierarchy_is_refused(copy, name):
    change(copy, "UPDATE arrays SET array = ? WHERE array = 'sst'", name)
    document(copy, lambda d: d["arrays"].update({name: d["arrays"].pop("sst")}))
    for form in FORMS:
        with pytest.raises(StoreError, match="its name is no path of an array"):
            byterefs.open(copy / form, target="public")


def test_markup_and_quotes_in_a_name_are_only_a_name(copy):
    name = "<script>\"'; DROP TABLE sources; --"
    change(copy, "UPDATE arrays SET array = ? WHERE array = 'gappy'", name)
    with byterefs.open(copy / "sqlite", target="public") as store:
        assert name in store.arrays
        with pytest.raises(StoreError, match="no such table"):
            byterefs.read(store.array(name))
    with sqlite3.connect(copy / "sqlite/store.sqlite") as con:
        assert con.execute("SELECT count(*) FROM sources").fetchone() == (2,)
    con.close()


@pytest.mark.parametrize(
    ("column", "value"),
    [("chunks", "[1,4]"), ("chunks", "[1,0,5]"), ("shape", "[2"), ("dtype", "<q9"), ("codec", "7")],
)
def test_a_row_of_arrays_that_makes_no_sense_is_refused_by_name(copy, column, value):
    change(copy, f"UPDATE arrays SET {column} = ? WHERE array = 'sst'", value)
    with pytest.raises(StoreError, match="'sst'"):
        byterefs.open(copy / "sqlite", target="public")


def test_a_target_that_the_table_does_not_serve_is_refused_with_those_that_it_does(archive):
    with pytest.raises(RemapError, match="no remap target 'mirror'; there are access, public"):
        byterefs.open(archive.root / "sqlite", target="mirror")
    with pytest.raises(StoreError, match="serves target 'public', not 'access'"):
        byterefs.open(archive.root / "parquet")


def test_what_is_no_table_is_refused(tmp_path):
    (tmp_path / "text").write_text("not a table")
    (tmp_path / "empty").mkdir()
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad/arrays.json").write_text("{")
    for name, why in {
        "nosuch": "neither an SQLite file nor a folder",
        "empty": "neither an SQLite file nor a folder",
        "text": "cannot be read as a table",
        "bad": "is no JSON",
    }.items():
        with pytest.raises(StoreError, match=why):
            byterefs.open(tmp_path / name)


def test_a_truncated_parquet_file_is_refused_by_name(copy):
    path = copy / "parquet/refs_sst.parquet"
    path.write_bytes(path.read_bytes()[:-20])
    with (
        byterefs.open(copy / "parquet", target="public") as store,
        pytest.raises(StoreError, match=r"refs_sst.parquet: it is no whole Parquet file"),
    ):
        byterefs.read(store.array("sst"))


def test_a_truncated_sqlite_file_is_refused_by_name(copy):
    path = copy / "sqlite/store.sqlite"
    path.write_bytes(path.read_bytes()[: 5 * 4096 + 100])
    with (
        pytest.raises(StoreError, match=r"store.sqlite: it cannot be read as a table"),
        byterefs.open(path, target="public") as store,
    ):
        byterefs.read(store.array("sst"))


@pytest.mark.parametrize("form", FORMS)
def test_a_server_without_ranges_and_one_that_wants_a_login_are_refused(archive, form):
    with web(archive.root) as server:
        for fault, why in {
            no_ranges: "sends whole files and no byte ranges",
            page: "web page",
        }.items():
            server.faults["*"] = fault
            with pytest.raises(RangeError, match=why):
                byterefs.open(f"{server.url}/{FORMS[form]}", target="public")


def test_a_server_that_fails_in_the_middle_of_a_query_is_named_and_not_taken_for_a_gap(tmp_path):
    archive = Archive(tmp_path, days=40, shape=(40, 50))
    with web(tmp_path) as server:
        archive.publish(public=server.url)
        with byterefs.open(f"{server.url}/sqlite/store.sqlite", target="public") as store:
            server.faults["*"] = page
            with pytest.raises(RangeError, match=r"store.sqlite.*web page"):
                byterefs.read(store.array("sst"), (39,))


def test_references_in_parts_are_found_and_opening_reads_little_of_them(tmp_path):
    """360,000 references: one Parquet file per day, and one SQLite file of more than ten megabytes."""
    scans = [synthetic.scan(day, (300, 400)) for day in range(3)]
    with synthetic.table(tmp_path, scans) as view:
        for form, options in (("sqlite", {}), ("parquet", {"partition": 100_000})):
            emitters.load(form).emit(
                view, tmp_path / form, target="access", options=options, state={}
            )
    assert len(list(tmp_path.glob("parquet/refs_v/part-*.parquet"))) == 3
    assert (tmp_path / "sqlite/store.sqlite").stat().st_size > 10_000_000
    with web(tmp_path) as server:
        for form in FORMS:
            server.forget()
            with byterefs.open(f"{server.url}/{FORMS[form]}") as store:
                assert server.sent < 200_000
                found = store.table.find("v", [range(3), range(5, 6), range(7, 9)])
                assert [(ref.key, ref.offset) for ref in found] == [
                    ((day, 5, x), synthetic.BASE + 1000 * day + 2 * (5 * 400 + x))
                    for day in range(3)
                    for x in (7, 8)
                ]
                assert {ref.source.source for ref in found} == {
                    f"/data/day000{day}.nc" for day in range(3)
                }
                keys = [(2, 299, 399), (0, 0, 0), (1, 7, 7), (1, 7, 8)]
                assert set(store.table.at("v", keys)) == set(keys)


@pytest.mark.parametrize("form", FORMS)
def test_opening_costs_the_same_bytes_for_a_hundred_times_the_references(tmp_path, form):
    sent = {}
    for side in (40, 400):
        folder = tmp_path / str(side)
        with synthetic.table(folder, [synthetic.scan(0, (side, side))]) as view:
            options = {} if form == "sqlite" else {"partition": 20_000}
            emitters.load(form).emit(
                view, folder / form, target="access", options=options, state={}
            )
        with web(folder) as server, byterefs.open(f"{server.url}/{FORMS[form]}") as store:
            assert store.table.grid("v") == (1, side, side)
            sent[side] = server.sent
    size = sum(f.stat().st_size for f in (tmp_path / "400" / form).rglob("*") if f.is_file())
    assert size > 200_000
    assert sent[400] - sent[40] < 20_000
    assert sent[400] < size / 2


def test_a_large_coordinate_is_not_read_when_a_table_is_opened(tmp_path):
    archive = Archive(tmp_path / "a", days=1)
    archive.publish()
    store = tmp_path / "a/sqlite/store.sqlite"
    values = np.zeros((2000, 500), "<f8")
    with closing(sqlite3.connect(store)) as con:
        con.execute(
            "INSERT INTO arrays (array, kind, storage, dims, shape, chunks, dtype, fill, codec, attrs, affine, "
            "attr_dtypes, grid_mapping, \"values\") SELECT 'lat', kind, 'inline', '[\"j\",\"i\"]', '[2000,500]', '[2000,500]', '<f8', fill, "
            "codec, '{\"valid_max\": 90}', NULL, '{\"valid_max\": \"<f4\"}', 'crs', ? FROM arrays WHERE array = 'y'",
            (values.tobytes(),),
        )
        con.commit()
    with web(tmp_path) as server, byterefs.open(f"{server.url}/a/sqlite/store.sqlite") as opened:
        assert server.sent < 400_000
        assert opened.array("lat").shape == (2000, 500)
        described = opened.table.array("lat")
        assert described.attr_dtypes == {"valid_max": "<f4"}
        assert described.grid_mapping == "crs"
        np.testing.assert_array_equal(byterefs.read(opened.array("lat")), values)
        assert server.sent > 8_000_000


@pytest.mark.parametrize("module", [table, sqlite, states])
def test_the_examples_in_the_docstrings_hold(module):
    assert doctest.testmod(module).failed == 0
    assert doctest.testmod(module).attempted


def test_a_store_of_another_writer_with_a_view_that_computes_its_keys_is_read(tmp_path, archive):
    """The tables as the spec has them and as zaro's test builds them: no column or index of ours."""
    con = sqlite3.connect(tmp_path / "other.sqlite")
    con.executescript("""
        CREATE TABLE meta(key TEXT PRIMARY KEY, value TEXT);
        INSERT INTO meta VALUES ('format_version', 'mdim-refs/0.2');
        CREATE TABLE sources(source_id INTEGER PRIMARY KEY, source TEXT, size BIGINT, mtime BIGINT, etag TEXT);
        CREATE TABLE remap(target, prefix, replacement);
        CREATE TABLE arrays(array TEXT PRIMARY KEY, kind, storage, dims, shape, chunks, dtype, fill, codec, attrs,
            affine, "values" BLOB);
        CREATE TABLE v(source_id, dim_0, dim_1, present, "offset" BIGINT, size BIGINT, info, data BLOB);
        CREATE TABLE placements("array", dest, source_id, source_array, src_offset, count);
        CREATE VIEW refs_v AS SELECT v.dim_0 + (p.dest ->> 0) AS dim_0, v.dim_1 AS dim_1, present,
            CASE WHEN "offset" IS NULL THEN NULL ELSE source END AS path, "offset", v.size AS size, info, data
            FROM v JOIN placements AS p USING (source_id) JOIN sources USING (source_id);
    """)
    plain = '{"compressor":null,"filters":null}'
    con.execute(
        "INSERT INTO arrays VALUES ('v', 'data', 'referenced', '[\"y\",\"x\"]', '[3,4]', '[1,2]', '<i2', '-1', ?, "
        '\'{"units":"m"}\', NULL, NULL)',
        (plain,),
    )
    con.execute(
        "INSERT INTO arrays VALUES ('y', 'coord', 'affine', '[\"y\"]', '[3]', '[3]', '<f8', NULL, ?, '{}', "
        '\'{"start":10,"step":0.5}\', NULL)',
        (plain,),
    )
    wanted = np.full((3, 4), -1, "<i2")
    for n in range(2):
        values = np.arange(4, dtype="<i2").reshape(1, 4) + 10 * n
        (tmp_path / f"{n}.bin").write_bytes(b"head" + values.tobytes())
        con.execute(
            "INSERT INTO sources VALUES (?, ?, NULL, NULL, NULL)", (n + 1, f"/elsewhere/{n}.bin")
        )
        con.execute(
            "INSERT INTO placements VALUES ('v', ?, ?, 'v', '[0,0]', '[1,4]')", (f"[{n},0]", n + 1)
        )
        con.execute("INSERT INTO v VALUES (?, 0, 0, 1, 4, 4, NULL, NULL)", (n + 1,))
        con.execute(
            "INSERT INTO v VALUES (?, 0, 1, ?, NULL, NULL, NULL, ?)",
            (n + 1, n, values[:, 2:].tobytes()),
        )
        wanted[n] = values
        wanted[n, 2:] = values[:, 2:] if n else -1
    con.execute("INSERT INTO remap VALUES ('here', '/elsewhere', ?)", (str(tmp_path),))
    con.commit()
    con.close()
    with byterefs.open(tmp_path / "other.sqlite", target="here") as store:
        np.testing.assert_array_equal(byterefs.read(store.array("v")), wanted)
        np.testing.assert_array_equal(
            byterefs.read(store.array("v"), (1, slice(1, 3))), wanted[1, 1:3]
        )
        np.testing.assert_array_equal(byterefs.read(store.array("y")), [10, 10.5, 11])
