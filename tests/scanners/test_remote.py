"""A scan over HTTP or S3 says what a scan on this machine says, and reads metadata only."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from datetime import date
from pathlib import Path

import h5py
import netCDF4
import numpy as np
import pytest
import tifffile
from h5py import h5d, h5p, h5s, h5t

import granules
import serving
from byterefs import scanners
from byterefs.errors import ScanError
from byterefs.model import Source, SourceScan
from conformance import comparable
from serving import S3, Web

GIB = 1 << 30


def hdf5(path: Path) -> None:
    granules.oisst(path, date(2020, 1, 1))


def netcdf3(path: Path) -> None:
    with netCDF4.Dataset(path, "w", format="NETCDF3_64BIT_OFFSET") as nc:
        nc.createDimension("time")
        nc.createDimension("x", 5)
        nc.createVariable("time", "f8", ("time",))[:] = np.arange(3.0)
        nc.createVariable("v", "f4", ("time", "x"))[:] = np.arange(15).reshape(3, 5)
        nc.createVariable("w", "i2", ("x",))[:] = np.arange(5)


def tiff(path: Path) -> None:
    tifffile.imwrite(
        path, np.arange(64 * 64, dtype="u2").reshape(64, 64), tile=(16, 16), compression="zlib",
        extratags=[
            (33550, 12, 3, (0.5, 0.5, 0.0), True),
            (33922, 12, 6, (0.0, 0.0, 0.0, 100.0, 50.0, 0.0), True),
            (34735, 3, 16, (1, 1, 0, 3, 1024, 0, 1, 2, 1025, 0, 1, 1, 2048, 0, 1, 4326), True),
        ],
    )  # fmt: skip


WRITERS = {"hdf5": hdf5, "netcdf3": netcdf3, "tiff": tiff}


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Web]:
    with serving.web(tmp_path) as found:
        yield found


def same(one: SourceScan, other: SourceScan) -> bool:
    """Whether two scans differ in nothing but what the source is called and when it was changed."""
    other = replace(other, source=one.source)
    return comparable(one) == comparable(other)


@pytest.mark.parametrize("format", WRITERS)
@pytest.mark.parametrize("place", ["http", "vsicurl", "s3", "vsis3"])
def test_a_remote_source_is_scanned_as_the_file_is(
    format: str, place: str, tmp_path: Path, site: Web, s3_environment: S3
) -> None:
    path = tmp_path / "a b.dat"
    WRITERS[format](path)
    if "remote" not in [b["Name"] for b in s3_environment.client.list_buckets()["Buckets"]]:
        s3_environment.bucket("remote")
    s3_environment.client.put_object(Bucket="remote", Key=f"x/{format}", Body=path.read_bytes())
    name = {
        "http": f"{site.url}/a%20b.dat",
        "vsicurl": f"/vsicurl/{site.url}/a%20b.dat",
        "s3": f"s3://remote/x/{format}",
        "vsis3": f"/vsis3/remote/x/{format}",
    }[place]
    local = scanners.scan(Source(str(path)), concat="time")
    found = scanners.scan(Source(name), concat="time")
    assert same(found, local)
    assert found.source.source == name
    assert found.source.size == path.stat().st_size
    assert found.source.etag
    assert found.source.mtime_ns


def test_a_sidecar_beside_a_remote_file_is_its_scan(tmp_path: Path, site: Web, shared) -> None:
    name = shared("dmrpp_pairs/dmrpp/chunked_twoD.h5.dmrpp")
    for path in (name, name.with_suffix("")):
        shutil.copy(path, tmp_path)
    file = tmp_path / name.with_suffix("").name
    local = scanners.scan(Source(str(file)), format="dmrpp")
    assert same(scanners.scan(Source(f"{site.url}/{file.name}"), format="dmrpp"), local)
    (tmp_path / name.name).unlink()
    with pytest.raises(ScanError, match=f"it has no DMR.. sidecar {name.name} beside it"):
        scanners.scan(Source(f"{site.url}/{file.name}"), format="dmrpp")


def test_a_granule_of_five_gigabytes_costs_kilobytes(tmp_path: Path, site: Web) -> None:
    path = tmp_path / "large.nc"
    with netCDF4.Dataset(path, "w", format="NETCDF3_64BIT_DATA") as nc:
        nc.set_fill_off()
        nc.createDimension("time")
        nc.createDimension("y", 5 * GIB // 4 // 20)
        nc.createVariable("v", "f4", ("time", "y"))
        nc.createVariable("time", "f8", ("time",))[:] = np.arange(20.0)
    with path.open("r+b") as f:
        f.truncate(5 * GIB + 4096)
    found = scanners.scan(Source(f"{site.url}/large.nc"), concat="time")
    assert found.source.size > 5 * GIB
    assert len(found.arrays["v"].offset.ravel()) == 20
    assert site.sent < 500_000


def test_an_hdf5_granule_of_five_gigabytes_costs_kilobytes(tmp_path: Path, site: Web) -> None:
    path = tmp_path / "large.h5"
    plist = h5p.create(h5p.DATASET_CREATE)
    plist.set_chunk((1, 1, 1 << 20))
    plist.set_alloc_time(h5d.ALLOC_TIME_EARLY)
    plist.set_fill_time(h5d.FILL_TIME_NEVER)
    with h5py.File(path, "w") as f:
        space = h5s.create_simple((1, 1300, 1 << 20))
        h5d.create(f.id, b"v", h5t.IEEE_F32LE, space, plist)
        f["time"] = np.arange(1.0)
        f["time"].make_scale("time")
        f["v"].dims[0].attach_scale(f["time"])
    assert path.stat().st_blocks * 512 < 10_000_000  # the file is sparse
    found = scanners.scan(Source(f"{site.url}/large.h5"), concat="time")
    assert found.source.size > 5 * GIB
    assert (found.arrays["v"].size == 4 << 20).sum() == 1300
    assert site.sent < 500_000
