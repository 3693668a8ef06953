"""The verifier is proven: whatever is changed in a published artefact is caught, named, and not synced.

Each sabotage edits the emitted artefact itself, in the form's own words, and then makes the emission's
receipt agree with it, as if the emitter had written it so. What would catch it is the comparison alone.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import re
import shutil
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import icechunk as ic
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zarr
from zarr.core.buffer import cpu, default_buffer_prototype

from building import turned
from byterefs import database, sync
from byterefs.errors import SyncError, VerifyError
from byterefs.planning import vrt
from byterefs.view import View
from forms import Results
from granules import oisst

DAYS = 4
PUBLIC = "https://example.org/archive/"


@dataclass(frozen=True)
class Dataset:
    """Verified results, and a place where they can be published."""

    results: Results
    archive: Path

    def sabotaged(self, target: str, form: str, edit: Callable[[Path], None]) -> str:
        """Edit a form, verify it; the sentence of the refusal, after proving that nothing is synced."""
        out = self.results.out(target, form)
        kept = out.with_name("kept")
        shutil.copytree(out, kept)
        try:
            edit(out)
            self.results.covered(target, form)
            with pytest.raises(VerifyError) as caught:
                self.results.verify(target, form)
            self.refuses_to_sync(target)
        finally:
            shutil.rmtree(out)
            kept.rename(out)
            self.results.covered(target, form)
        return str(caught.value)

    def refuses_to_sync(self, target: str) -> None:
        place = self.results.folder / "published"
        options = {"name": "here", "target": target, "to": str(place)}
        receipt = self.results.folder / "sync" / "here.json"
        with pytest.raises(SyncError, match="nothing is published before all forms are proven"):
            sync.run(receipt, options=options, verified=self.results.proofs)
        assert not place.exists()
        assert not receipt.exists()


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    folder = tmp_path_factory.mktemp("sabotage")
    archive = folder / "archive"
    for i in range(DAYS):
        day = date(2026, 9, 1) + timedelta(i)
        oisst(archive / f"{day:%Y%m%d}.nc", day, arrays=["sst", "ice"], chunks=[1, 1, 9, 36])
    results = Results(folder / "results", remap={"public": {f"{archive}/": PUBLIC}})
    results.scan(sorted(archive.glob("*.nc")))
    results.emit()
    for target, form in results.pairs:
        assert results.verify(target, form)["verified"]
    return Dataset(results, archive)


# --- how to lie, in each form ----------------------------------------------------------------------

Edit = Callable[[Path], None]


def sql(*statements: str) -> Edit:
    """Statements on the published store."""

    def edit(out: Path) -> None:
        con = sqlite3.connect(out / "store.sqlite")
        with con:
            for statement in statements:
                assert con.execute(statement).rowcount > 0, statement
        con.close()

    return edit


SWAP = """
UPDATE byterefs_refs_sst AS r SET (source_id, "offset", size) = (
    SELECT source_id, "offset", size FROM byterefs_refs_sst AS o
    WHERE o.dim_0 = 3 - r.dim_0 AND o.dim_2 = r.dim_2)
WHERE dim_0 IN (1, 2) AND dim_2 = 0
"""


def frames(change: Callable[[list[dict[str, Any]]], object]) -> Edit:
    """A change of the rows in refs_sst.parquet; schema and key-value metadata stay."""

    def edit(out: Path) -> None:
        path = out / "refs_sst.parquet"
        words = pq.read_metadata(path).metadata
        schema, rows = pq.read_schema(path), pq.read_table(path).to_pylist()
        change(rows)
        table = pa.Table.from_pylist(rows, schema=schema)
        with pq.ParquetWriter(path, schema, store_schema=False) as writer:
            writer.add_key_value_metadata(words)
            writer.write_table(table)

    return edit


def swap_rows(rows: list[dict[str, Any]]) -> None:
    for key in ("path", "offset", "size"):
        rows[2][key], rows[4][key] = rows[4][key], rows[2][key]


def move_row(rows: list[dict[str, Any]]) -> None:
    rows[3]["offset"] += 1


def shift_values(content: Any) -> None:
    lat = np.frombuffer(base64.b64decode(content["arrays"]["lat"]["values"]), "<f4")
    moved = (lat + np.float32(1)).tobytes()
    content["arrays"]["lat"]["values"] = base64.b64encode(moved).decode()


def document(name: str, change: Callable[[Any], object]) -> Edit:
    """A change of a JSON file."""

    def edit(out: Path) -> None:
        content = json.loads((out / name).read_text())
        change(content)
        (out / name).write_text(json.dumps(content))

    return edit


def of_array(array: str, **values: Any) -> Edit:
    """Other values in a row of arrays.json; ``attrs`` are merged."""

    def change(content: Any) -> None:
        row = content["arrays"][array]
        row.update(values, attrs={**row["attrs"], **values.get("attrs", {})})

    return document("arrays.json", change)


def text(old: str, new: str, count: int = 1) -> Edit:
    """A regular expression of the VRT replaced once, inside the array sst where it says ``@``."""

    def edit(out: Path) -> None:
        (path,) = out.glob("*.vrt")
        before = path.read_text()
        after = re.sub(old, new, before, count=count, flags=re.DOTALL)
        assert after != before, old
        path.write_text(after)

    return edit


SST = r'(<Array name="sst">(?:(?!</Array>).)*?)'
SOURCE = r"<Source>(?:(?!</Source>).)*?</Source>\s*"


def metadata(key: str, **values: Any) -> Edit:
    """Other values under a key of ``.zmetadata``."""
    return document(".zmetadata", lambda content: content["metadata"][key].update(values))


def partition(array: str, change: Callable[[list[dict[str, Any]]], object]) -> Edit:
    """A change of the rows of kerchunk's first partition."""

    def edit(out: Path) -> None:
        path = out / array / "refs.0.parq"
        schema, rows = pq.read_schema(path), pq.read_table(path).to_pylist()
        change(rows)
        pq.write_table(pa.Table.from_pylist(rows, schema=schema), path, store_schema=False)

    return edit


def shift_raw(rows: list[dict[str, Any]]) -> None:
    rows[0]["raw"] = (np.frombuffer(rows[0]["raw"], "<f4") + np.float32(1)).tobytes()


def commit(change: Callable[[ic.IcechunkStore], object]) -> Edit:
    """A commit on the repository."""

    def edit(out: Path) -> None:
        repo = ic.Repository.open(ic.local_filesystem_storage(str(out)))
        session = repo.writable_session("main")
        change(session.store)
        session.commit("sabotage")
        shutil.rmtree(out / "overwritten", ignore_errors=True)

    return edit


def chunk(store: ic.IcechunkStore, key: str) -> tuple[str, int, int]:
    """Location, offset and size of a virtual chunk of sst."""

    async def find() -> tuple[str, int, int]:
        wanted = [int(k) for k in key.split("/")]
        batches = store.array_chunk_iterator("/sst")
        async for keys, _, paths, offsets, sizes, _ in batches:
            for i, found in enumerate(keys.tolist()):
                if found == wanted:
                    return named(store, paths[i]), int(offsets[i]), int(sizes[i])
        raise AssertionError(key)

    return asyncio.run(find())


def named(store: ic.IcechunkStore, url: str) -> str:
    """A location by its container's name."""
    for c in (store.session.config.virtual_chunk_containers or {}).values():
        if url.startswith(c.url_prefix):
            return f"vcc://{c.name}/{url[len(c.url_prefix) :]}"
    return url


def point(store: ic.IcechunkStore, key: str, at: tuple[str, int, int]) -> None:
    store.set_virtual_ref(f"sst/c/{key}", at[0], offset=at[1], length=at[2])


def move_chunk(store: ic.IcechunkStore) -> None:
    location, offset, size = chunk(store, "1/0/1/0")
    point(store, "1/0/1/0", (location, offset + 1, size))


def swap_chunks(store: ic.IcechunkStore) -> None:
    one, two = chunk(store, "1/0/0/0"), chunk(store, "2/0/0/0")
    point(store, "1/0/0/0", two)
    point(store, "2/0/0/0", one)


def drop_chunk(store: ic.IcechunkStore) -> None:
    asyncio.run(store.delete("sst/c/2/0/1/0"))


def zarr_json(array: str, change: Callable[[Any], object]) -> Edit:
    """A commit of another ``zarr.json``."""

    def edit(store: ic.IcechunkStore) -> None:
        async def rewrite() -> None:
            key = f"{array}/zarr.json"
            buffer = await store.get(key, default_buffer_prototype())
            content = json.loads(buffer.to_bytes())
            change(content)
            await store.set(key, cpu.Buffer.from_bytes(json.dumps(content).encode()))

        asyncio.run(rewrite())

    return commit(edit)


def reverse_codecs(content: Any) -> None:
    first, *rest = content["codecs"]
    assert first["name"] == "bytes"
    content["codecs"] = [first, *reversed(rest)]


def shift_lat(store: ic.IcechunkStore) -> None:
    lat = zarr.open_group(store, mode="r+", zarr_format=3)["lat"]
    lat[:] = lat[:] + np.float32(1)


ZLIB, SHUFFLE = {"id": "zlib", "level": 4}, {"id": "shuffle", "elementsize": 2}
REVERSED = {"compressor": SHUFFLE, "filters": [ZLIB]}

# form -> lie -> (edit, what the sentence says beside form and array)
LIES: dict[str, dict[str, tuple[Edit, str]]] = {
    "sqlite": {
        "offset moved by one": (
            sql('UPDATE byterefs_refs_sst SET "offset" = "offset" + 1 WHERE dim_0 = 1 AND dim_2 = 1'),
            r"'sst'.*chunk table",
        ),
        "offset moved by one in both tables": (
            sql(
                'UPDATE byterefs_refs_sst SET "offset" = "offset" + 1 WHERE dim_0 = 1 AND dim_2 = 1',
                'UPDATE sst SET "offset" = "offset" + 1 WHERE source_id = 2 AND dim_2 = 1',
            ),
            r"'sst'.*offset of chunk \[1, 0, 1, 0\].*20260902.nc",
        ),
        "offset moved by one in the chunk table": (
            sql('UPDATE sst SET "offset" = "offset" + 1 WHERE source_id = 2 AND dim_2 = 1'),
            r"'sst'.*chunk table",
        ),
        "two rows swapped": (sql(SWAP), r"'sst'.*chunk table"),
        "a row dropped": (
            sql("DELETE FROM byterefs_refs_sst WHERE dim_0 = 2 AND dim_2 = 1"),
            r"'sst'.*chunk table",
        ),
        "a row dropped in both tables": (
            sql(
                "DELETE FROM byterefs_refs_sst WHERE dim_0 = 2 AND dim_2 = 1",
                "DELETE FROM sst WHERE source_id = 3 AND dim_2 = 1",
            ),
            r"'sst'.*offset of chunk \[2, 0, 1, 0\].* is -1 ",
        ),
        "another fill": (
            sql("UPDATE arrays SET fill = '-998' WHERE array = 'sst'"),
            r"'sst'.*fill is '-998' .* '-999'",
        ),
        "another scale": (
            sql("UPDATE arrays SET attrs = json_set(attrs, '$.scale_factor', 0.02) WHERE array = 'sst'"),
            r"'sst'.*scale_factor' is 0.02 .* 0.00999",
        ),
        "another dtype": (
            sql("UPDATE arrays SET dtype = '<u2' WHERE array = 'sst'"),
            r"'sst'.*dtype is '<u2' .* '<i2'",
        ),
        "another codec order": (
            sql(f"UPDATE arrays SET codec = '{json.dumps(REVERSED)}' WHERE array = 'sst'"),
            r"'sst'.*codec is .*shuffle",
        ),
        "a coordinate shifted": (
            sql("UPDATE arrays SET affine = json_set(affine, '$.start', affine ->> '$.start' + 1) WHERE array = 'time'"),
            r"'time'.*the value at \[0\] is 17776.0 .* 17775.0",
        ),
        "a placement moved": (
            sql("UPDATE placements SET dest = '[9,0,0,0]' WHERE array = 'sst' AND source_id = 4"),
            r"'placements'.*\[9,0,0,0\]",
        ),
        "a remap rule changed": (
            sql("UPDATE remap SET replacement = 'https://example.org/elsewhere/'"),
            r"'remap'.*elsewhere",
        ),
        "a root attribute changed": (
            sql("UPDATE meta SET value = json_set(value, '$.title', 'other') WHERE key = 'attrs'"),
            r"root attribute 'title' is 'other'",
        ),
    },
    "parquet": {
        "offset moved by one": (frames(move_row), r"'sst'.*offset of chunk \[1, 0, 1, 0\].*20260902.nc"),
        "two rows swapped": (frames(swap_rows), r"'sst'.*of chunk \[1, 0, 0, 0\]"),
        "a row dropped": (frames(lambda rows: rows.pop(5)), r"'sst'.*number of rows is 7 .* 8"),
        "a row dropped and another twice": (
            frames(lambda rows: rows.__setitem__(5, rows[4])),
            r"'sst'.*chunk \[2, 0, 1, 0\]",
        ),
        "another fill": (of_array("sst", fill="-998"), r"'sst'.*fill is '-998' .* '-999'"),
        "another scale": (
            of_array("sst", attrs={"scale_factor": 0.02}),
            r"'sst'.*scale_factor' is 0.02 .* 0.00999",
        ),
        "another dtype": (of_array("sst", dtype="<u2"), r"'sst'.*dtype is '<u2' .* '<i2'"),
        "another codec order": (of_array("sst", codec=REVERSED), r"'sst'.*codec is .*shuffle"),
        "a coordinate shifted": (
            document("arrays.json", shift_values),
            r"'lat'.*value at \[0\] is -84.0 .* -85.0",
        ),
        "a source of another size": (
            lambda out: pq.write_table(
                (t := pq.read_table(out / "sources.parquet")).set_column(
                    2, "size", pa.array([1, *t["size"].to_pylist()[1:]], pa.int64())
                ),
                out / "sources.parquet",
            ),
            r"'sources'.*'size': 1",
        ),
    },
    "vrt": {
        "a slab moved by one": (
            text(SST + r'<DestSlab offset="1,0,0,0"', r'\1<DestSlab offset="2,0,0,0"'),
            r"'sst'.*20260902.nc.*\(2, 0, 0, 0\).*\(1, 0, 0, 0\)",
        ),
        "a slab read from one element on": (
            text(SST + r'<SourceSlab offset="0,0,0,0" count="1,1,18,36"', r'\1<SourceSlab offset="0,0,1,0" count="1,1,17,36"'),
            r"'sst'.*\(0, 0, 1, 0\)",
        ),
        "two rows swapped": (
            text(SST + r"20260901\.nc(.*?)20260902\.nc", r"\g<1>20260902.nc\g<2>20260901.nc"),
            r"'sst'.*20260902.nc.*20260901.nc",
        ),
        "a row dropped": (text(SST + SOURCE, r"\1"), r"'sst'.*number of sources is 3 .* 4"),
        "another fill": (
            text(SST + r"<NoDataValue>-999", r"\1<NoDataValue>-998"),
            r"'sst'.*_FillValue' is -998.* -999",
        ),
        "another scale": (text(SST + r"<Scale>[^<]*", r"\1<Scale>0.02"), r"'sst'.*scale_factor' is 0.02 .* 0.00999"),
        "another dtype": (
            text(SST + r"<DataType>Int16", r"\1<DataType>UInt16"),
            r"'sst'.*dtype is '<u2' .* '<i2'",
        ),
        "another block size": (
            text(SST + r"<BlockSize>1,1,9,36", r"\1<BlockSize>1,1,6,36"),
            r"'sst'.*chunk shape is \(1, 1, 6, 36\)",
        ),
        "a coordinate shifted": (
            text(r'(<Array name="time">.*?<InlineValues[^>]*>)17775.0', r"\g<1>17774.0"),
            r"'time'.*value at \[0\] is 17774.0 .* 17775.0",
        ),
    },
    "kerchunk": {
        "offset moved by one": (partition("sst", move_row), r"'sst'.*offset of chunk \[1, 0, 1, 0\].*20260902.nc"),
        "two rows swapped": (partition("sst", swap_rows), r"'sst'.*of chunk \[1, 0, 0, 0\]"),
        "a row dropped": (
            partition("sst", lambda rows: rows[5].update(path=None, offset=0, size=0)),
            r"'sst'.*offset of chunk \[2, 0, 1, 0\].* is -1 ",
        ),
        "a partition dropped": (
            lambda out: (out / "sst" / "refs.0.parq").unlink(),
            r"'sst'.*offset of chunk \[0, 0, 0, 0\].* is -1 ",
        ),
        "another fill": (metadata("sst/.zarray", fill_value=-998), r"'sst'.*fill_value is -998 .* -999"),
        "another scale": (metadata("sst/.zattrs", scale_factor=0.02), r"'sst'.*scale_factor' is 0.02 .* 0.00999"),
        "another dtype": (metadata("sst/.zarray", dtype="<i4"), r"'sst'.*dtype is '<i4' .* '<i2'"),
        "another codec order": (metadata("sst/.zarray", **REVERSED), r"'sst'.*codec is .*shuffle"),
        "a coordinate shifted": (partition("time", shift_raw), r"'time'.*value at \[0\] is 17776.0 .* 17775.0"),
        "offset moved by one in the one JSON file": (
            document("demo.json", lambda c: c["refs"]["sst/1.0.1.0"].__setitem__(1, 7)),
            r"demo.json.*sst/1\.0\.1\.0 is .* 7, ",
        ),
        "a row dropped from the one JSON file": (
            document("demo.json", lambda c: c["refs"].pop("sst/1.0.1.0")),
            r"demo.json.*sst/1\.0\.1\.0 is None",
        ),
    },
    "icechunk": {
        "offset moved by one": (commit(move_chunk), r"'sst'.*offset of chunk \[1, 0, 1, 0\].*20260902.nc"),
        "two rows swapped": (commit(swap_chunks), r"'sst'.*of chunk \[1, 0, 0, 0\]"),
        "a row dropped": (commit(drop_chunk), r"'sst'.*offset of chunk \[2, 0, 1, 0\].* is -1 "),
        "another fill": (
            zarr_json("sst", lambda c: c.update(fill_value=-998)),
            r"'sst'.*fill_value is -998 .* -999",
        ),
        "another scale": (
            zarr_json("sst", lambda c: c["attributes"].update(scale_factor=0.02)),
            r"'sst'.*scale_factor' is 0.02 .* 0.00999",
        ),
        "another dtype": (
            zarr_json("sst", lambda c: c.update(data_type="int32")),
            r"'sst'.*dtype is '<i4' .* '<i2'",
        ),
        "another codec order": (zarr_json("sst", reverse_codecs), r"'sst'.*codec is .*shuffle"),
        "a coordinate shifted": (commit(shift_lat), r"'lat'.*value at \[0\] is -84.0 .* -85.0"),
    },
}  # fmt: skip
CASES = [
    pytest.param(target, form, lie, id=f"{form}, {target}: {lie}")
    for form, lies in LIES.items()
    for lie in lies
    for target in (["access"] if form in ("sqlite", "icechunk") else ["access", "public"])
]


@pytest.mark.parametrize(("target", "form", "lie"), CASES)
def test_a_lie_in_a_form_is_caught_named_and_not_synced(
    dataset: Dataset, target: str, form: str, lie: str
) -> None:
    edit, says = LIES[form][lie]
    sentence = dataset.sabotaged(target, form, edit)
    assert f"form {form}" in sentence
    assert re.search(says, sentence), sentence


@pytest.mark.parametrize("form", ["vrt", "parquet", "kerchunk"])
def test_a_path_of_the_wrong_target_is_caught(dataset: Dataset, form: str) -> None:
    def serve_access(out: Path) -> None:
        shutil.rmtree(out)
        shutil.copytree(dataset.results.out("access", form), out)

    sentence = dataset.sabotaged("public", form, serve_access)
    assert f"form {form}" in sentence
    assert str(dataset.archive) in sentence


def test_an_icechunk_container_that_points_elsewhere_is_caught(dataset: Dataset) -> None:
    def elsewhere(content: Any) -> None:
        content["public"] = dict.fromkeys(content["public"], "https://example.org/other/")

    sentence = dataset.sabotaged("access", "icechunk", document("containers.json", elsewhere))
    assert "form icechunk" in sentence
    assert "https://example.org/other/" in sentence


def test_a_file_edited_after_it_was_emitted_is_named(dataset: Dataset) -> None:
    file = dataset.results.out("access", "vrt") / "open.json"
    before = file.read_bytes()
    file.write_bytes(before + b" ")
    try:
        with pytest.raises(VerifyError, match=r"vrt/open\.json: its sha256 is .* and was "):
            dataset.results.verify("access", "vrt")
    finally:
        file.write_bytes(before)
    assert dataset.results.verify("access", "vrt")["verified"]


# --- what is consistent with itself and wrong against the source -----------------------------------


@pytest.fixture
def fresh(tmp_path: Path) -> Dataset:
    """A dataset of its own, not yet emitted."""
    archive = tmp_path / "archive"
    for i in range(3):
        day = date(2026, 9, 1) + timedelta(i)
        oisst(archive / f"{day:%Y%m%d}.nc", day, arrays=["sst"], zlib=False, shuffle=False)
    results = Results(tmp_path / "results", remap={"public": {f"{archive}/": PUBLIC}})
    results.scan(sorted(archive.glob("*.nc")))
    return Dataset(results, archive)


def test_a_granule_rewritten_in_place_since_its_scan_is_named(fresh: Dataset) -> None:
    fresh.results.emit(("access", "sqlite"))
    path = fresh.archive / "20260902.nc"
    was = path.stat()
    oisst(path, date(2026, 9, 2), arrays=["sst"], zlib=False, shuffle=False, seed=5)
    os.utime(path, ns=(was.st_atime_ns, was.st_mtime_ns + 1))
    assert path.stat().st_size == was.st_size
    with pytest.raises(
        VerifyError,
        match=rf"20260902\.nc: mtime_ns was {was.st_mtime_ns} .* {was.st_mtime_ns + 1} now",
    ):
        fresh.results.verify("access", "sqlite")


def test_a_granule_that_is_gone_is_named(fresh: Dataset) -> None:
    fresh.results.emit(("access", "sqlite"))
    (fresh.archive / "20260902.nc").unlink()
    with pytest.raises(VerifyError, match=r"20260902\.nc: the source was scanned and is gone"):
        fresh.results.verify("access", "sqlite")


def shifted(results: Results, array: str = "sst") -> None:
    """Turn the placements of an array around in the working store: a plan that is wrong, and whole."""
    with database.writing(results.store) as con:
        turned(con, array, lambda sources: np.roll(sources, -1))
    with View.open(results.store) as view:
        text = vrt.write(view.across_eras().arrays, view.root, view.root_dtypes)
    with database.writing(results.store) as con:
        con.execute("UPDATE meta SET value = ? WHERE key = 'plan'", (text,))


def test_a_plan_with_shifted_time_is_caught_by_gdal_alone(fresh: Dataset) -> None:
    shifted(fresh.results, "time")
    fresh.results.emit(("access", "sqlite"))
    with pytest.raises(
        VerifyError, match=r"'time' is 17777\.0 at \[2\] .* 17775\.0 .*20260901\.nc"
    ):
        fresh.results.verify("access", "sqlite")


@pytest.mark.parametrize("form", ["sqlite", "vrt"])
def test_a_plan_with_shifted_data_is_caught_by_gdal_alone(fresh: Dataset, form: str) -> None:
    shifted(fresh.results)
    fresh.results.emit(("access", form))
    with pytest.raises(
        VerifyError, match=r"'time' is 17777\.0 at \[2\] .* 17775\.0 .*20260901\.nc"
    ):
        fresh.results.verify("access", form)


def corrupt(results: Results, column: str, add: int) -> None:
    """Move every byte range of sst in the working store: rows of all forms follow it."""
    with database.writing(results.store) as con:
        rows = con.execute(
            f'SELECT source_id, "{column}" FROM byterefs_arrays WHERE array = ?', ("sst",)
        ).fetchall()
        for source_id, packed in rows:
            moved = (np.frombuffer(packed, "<i8") + add).astype("<i8").tobytes()
            con.execute(
                f'UPDATE byterefs_arrays SET "{column}" = ? WHERE source_id = ? AND array = ?',
                (moved, source_id, "sst"),
            )


@pytest.mark.parametrize("form", ["sqlite", "parquet", "kerchunk", "icechunk"])
def test_byte_ranges_that_the_table_itself_has_wrong_are_caught_by_gdal_alone(
    fresh: Dataset, form: str
) -> None:
    corrupt(fresh.results, "offset", 2)
    fresh.results.emit(("access", form))
    with pytest.raises(
        VerifyError,
        match=rf"form {form}, array 'sst', chunk \[0, 0, 0, 0\], .*20260901\.nc: it reads .* and netCDF reads",
    ):
        fresh.results.verify("access", form)


def test_values_that_happen_to_be_equal_do_not_hide_a_wrong_byte_range(tmp_path: Path) -> None:
    archive = tmp_path / "archive"
    day = date(2026, 9, 1)
    oisst(archive / "a.nc", day, arrays=["sst"], zlib=False, shuffle=False, chunks=[1, 1, 9, 36])
    results = Results(tmp_path / "results")
    results.scan([archive / "a.nc"])
    with View.open(results.store) as view:
        refs = view.refs("sst")
    import netCDF4

    with netCDF4.Dataset(archive / "a.nc", "a") as nc:
        nc["sst"].set_auto_maskandscale(False)
        nc["sst"][:] = 7
    results.scan([archive / "a.nc"])
    corrupt(results, "offset", int(refs.offset[1] - refs.offset[0]))
    with database.writing(results.store) as con:
        moved = np.array([refs.offset[1], refs.offset[0]], "<i8").tobytes()
        con.execute('UPDATE byterefs_arrays SET "offset" = ? WHERE array = ?', (moved, "sst"))
    results.emit(("access", "sqlite"))
    with pytest.raises(
        VerifyError, match=r"the byte range of chunk \[0, 0, 0, 0\] by GDAL's block info"
    ):
        results.verify("access", "sqlite")


def test_a_plan_that_was_turned_after_the_emission_is_caught(fresh: Dataset) -> None:
    fresh.results.emit(("access", "vrt"))
    shifted(fresh.results)
    with View.open(fresh.results.store) as view:
        turned = [p.source for p in view.arrays["sst"].placements]
    assert [Path(s).name for s in turned] == ["20260902.nc", "20260903.nc", "20260901.nc"]
    with pytest.raises(VerifyError, match=r"form vrt, array 'sst'.*20260901\.nc.*20260902\.nc"):
        fresh.results.verify("access", "vrt")


def test_the_forms_are_proven_again_once_the_lies_are_taken_back(dataset: Dataset) -> None:
    for target, form in dataset.results.pairs:
        assert dataset.results.verify(target, form)["verified"]
