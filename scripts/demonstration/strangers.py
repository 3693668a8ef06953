"""Readers that were given nothing but an address: GDAL, xarray by kerchunk and by Icechunk, DuckDB."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from netCDF4 import Dataset
from numpy.typing import NDArray
from rich.console import Console

from byterefs.emitters import Place, load
from byterefs.view import View
from demonstration.report import table_of
from demonstration.seaweed import S3

ARRAY = "sst"
Values = NDArray[np.int16]


def read_all(work: Path, name: str, server: S3, days: int) -> dict[str, Any]:
    """Read every form at the truth and at the mirror; who read how many values, equal to the granules' own."""
    own = granules(work / "granules")
    assert_days(own, days)
    found: dict[str, Any] = {}
    with View.open(work / "store" / "store.sqlite") as view:
        for place in ("truth", "mirror"):
            latest = json.loads(
                server.client.get_object(Bucket=place, Key="demo/latest.json")["Body"].read()
            )
            for reader, read in READERS.items():
                values = read(view, place, latest, server, work)
                if not np.array_equal(values, own):
                    raise ValueError(
                        f"{reader} at s3://{place}/demo reads other values than the granules hold"
                    )
                found[f"{place}: {reader}"] = {"values": int(values.size), "equal": True}
    return found


def granules(folder: Path) -> Values:
    """The stored values of every day, by netCDF4."""
    days = []
    for path in sorted(folder.rglob("*.nc")):
        with Dataset(path) as nc:
            nc.set_auto_maskandscale(False)
            days.append(nc[ARRAY][:])
    return np.concatenate(days)


def assert_days(values: Values, days: int) -> None:
    """Raise ValueError unless there is one step for each day."""
    if values.shape[0] != days:
        raise ValueError(f"{values.shape[0]} days were written, not {days}")


def lines(view: View, form: str, base: str, reader: str, endpoint: str = "") -> str:
    """The lines by which a form says it is opened at an address."""
    told = load(form).opening(
        view, target="public", options={"json": True}, place=Place(base, endpoint)
    )
    return "\n".join(told[reader])


def by_gdal(view: View, place: str, latest: Mapping[str, Any], server: S3, work: Path) -> Values:
    """The VRT through /vsis3/, anonymously, in a process of its own."""
    path = f"/vsis3/{place}/demo/{latest['forms']['vrt']['path']}"
    return run(
        f"""
from osgeo import gdal
gdal.UseExceptions()
a = gdal.OpenEx({path!r}, gdal.OF_MULTIDIM_RASTER).GetRootGroup().OpenMDArray({ARRAY!r})
values = a.ReadAsArray()
""",
        work,
        AWS_S3_ENDPOINT=f"127.0.0.1:{server.port}", AWS_HTTPS="NO", AWS_VIRTUAL_HOSTING="FALSE",
        AWS_NO_SIGN_REQUEST="YES",
    )  # fmt: skip


def by_kerchunk(
    view: View, place: str, latest: Mapping[str, Any], server: S3, work: Path
) -> Values:
    """The kerchunk form over HTTP by the lines that it gives for its address."""
    base = f"{server.endpoint}/{place}/demo/{latest['forms']['kerchunk']['path']}"
    return run(packed(lines(view, "kerchunk", base, "xarray")), work)


def by_icechunk(
    view: View, place: str, latest: Mapping[str, Any], server: S3, work: Path
) -> Values:
    """The Icechunk repository in the bucket by the lines that it gives for its address."""
    base = f"s3://{place}/demo/{latest['icechunk']['path']}"
    return run(packed(lines(view, "icechunk", base, "xarray", server.endpoint)), work)


def by_duckdb(view: View, place: str, latest: Mapping[str, Any], server: S3, work: Path) -> Values:
    """A local copy of the Parquet table by DuckDB, each chunk's bytes over HTTP, decoded with zlib and numpy."""
    key = f"demo/{latest['forms']['parquet']['path']}/refs_{ARRAY}.parquet"
    file = work / f"{place}.parquet"
    file.write_bytes(server.client.get_object(Bucket=place, Key=key)["Body"].read())
    shape, dtype = view.arrays[ARRAY].shape, view.arrays[ARRAY].dtype
    return run(
        f"""
import duckdb, urllib.request, zlib, numpy as np
rows = duckdb.sql("SELECT dim_0, path, \\"offset\\", size FROM read_parquet('{file}') ORDER BY dim_0").fetchall()
def chunk(path, offset, size):
    ask = urllib.request.Request(path, headers={{"Range": f"bytes={{offset}}-{{offset + size - 1}}"}})
    raw = zlib.decompress(urllib.request.urlopen(ask).read())
    return np.frombuffer(np.frombuffer(raw, "u1").reshape(2, -1).T.tobytes(), {dtype!r})
values = np.stack([chunk(*row[1:]) for row in rows]).reshape({tuple(shape)!r})
""",
        work,
    )


READERS: Mapping[str, Callable[..., Values]] = {
    "GDAL, vrt by /vsis3/": by_gdal,
    "xarray, kerchunk by http": by_kerchunk,
    "xarray, Icechunk by s3": by_icechunk,
    "DuckDB, parquet": by_duckdb,
}


def packed(opening: str) -> str:
    """Lines that open a dataset, made to give stored values, and the values taken."""
    plain = opening.replace("consolidated=False", "consolidated=False, mask_and_scale=False")
    return f"{plain}\nvalues = ds[{ARRAY!r}].values\n"


def run(text: str, work: Path, **environment: str) -> Values:
    """``values`` that a text of Python leaves, run by an interpreter that knows no key of the server."""
    out = work / f"{hashlib.sha256(text.encode()).hexdigest()[:12]}.npy"
    code = f"{text}\nimport numpy\nnumpy.save({str(out)!r}, values)\n"
    clean = {
        "PATH": "/usr/bin:/bin",
        "HOME": str(work),
        "AWS_EC2_METADATA_DISABLED": "true",
        **environment,
    }
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code], env=clean, capture_output=True, text=True, timeout=300
    )  # fmt: skip
    if done.returncode:
        raise ValueError(f"the lines that open it fail: {done.stderr.strip().splitlines()[-1]}")
    values: Values = np.load(out)
    out.unlink()
    return values


def show(console: Console, figures: Mapping[str, Any]) -> None:
    """Print what was published, what travelled, and who read it."""
    proven = figures["verified"]
    console.print(
        f"\nBefore anything was published, {proven['forms']} forms were compared with GDAL on the granules, in the last run\n"
        f"{proven['values']:,} values, and {proven['public_ranges']} byte ranges of {proven['public_sources']} public copies with those scanned."
    )
    table = table_of("What travelled: where the objects of each bucket came from, run by run")
    table.add_column("", no_wrap=True)
    for words in ("objects", "sent", "copied by server", "left as were", "new MB"):
        table.add_column(words, justify="right", no_wrap=True)
    for run_, told in figures["runs"].items():
        for place in ("truth", "mirror"):
            t = told[place]
            cells = (t["objects"], t["sent"], t["copied"], t["unchanged"])
            table.add_row(f"{place}, {run_}", *map(str, cells), f"{t['new_bytes'] / 1e6:.2f}")
    console.print(table)
    readers = table_of("Read without keys, equal to the granules bit for bit")
    readers.add_column("reader")
    readers.add_column("values", justify="right")
    for name, told in figures["readers"].items():
        readers.add_row(name, f"{told['values']:,}")
    console.print(readers)
    console.print(f"Truth and mirror: {figures['alike']} objects, the same names and bytes.")
