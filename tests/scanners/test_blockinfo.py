"""The scanner over GDAL's block info: what it tells is what h5py tells, or it is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest

import granules
from byterefs import codecs, emitters, scanners
from byterefs.errors import ScanError
from byterefs.model import Source, SourceScan
from conformance import assembled, by_value
from conformance import scanned as scanned_as
from forms import Results

Shared = Callable[[str], Path]
DATA = (np.arange(120, dtype="<i4") * 7 - 300).reshape(12, 10)


def scanned(path: Path, **options: object) -> SourceScan:
    return scanned_as(path, format="blockinfo", **options)


@pytest.mark.parametrize(
    "filters",
    [(), ("deflate",), ("shuffle",), ("shuffle", "deflate"), ("deflate", "shuffle"),
     ("shuffle", "deflate", "fletcher32"), ("fletcher32", "shuffle", "deflate")],
)  # fmt: skip
@pytest.mark.parametrize("dtype", ["<i4", ">f8", "<i2"])
def test_ranges_and_order_of_filters_are_those_of_h5py(
    tmp_path: Path, filters: tuple[str, ...], dtype: str
) -> None:
    path = tmp_path / "one.h5"
    with h5py.File(path, "w", libver=("earliest", "v110")) as f:
        granules.pipeline(f, "v", DATA.astype(dtype), (5, 4), *filters)
    item = scanned(path).arrays["v"]
    np.testing.assert_array_equal(assembled(path, item), DATA.astype(dtype))
    assert item.meta.dtype == dtype
    theirs = scanned_as(path, format="hdf5").arrays["v"]
    assert item.offset.tolist() == theirs.offset.tolist()
    assert item.size.tolist() == theirs.size.tolist()
    assert codecs.same(item.meta.codec, theirs.meta.codec)


def test_a_real_granule_is_the_one_that_the_scanner_of_its_format_gives(shared: Shared) -> None:
    path = shared("oisst/oisst-avhrr-v02r01.20220913.nc")
    ours, theirs = scanned(path).arrays, scanned_as(path, format="hdf5").arrays
    for name in ("sst", "ice", "err", "anom"):
        assert ours[name].offset.tolist() == theirs[name].offset.tolist()
        assert ours[name].meta.codec == {
            **theirs[name].meta.codec,
            "compressor": {"id": "zlib", "level": 6},
        }
        assert ours[name].meta.fill == theirs[name].meta.fill
        scale = ours[name].meta.attrs["scale_factor"]
        assert np.float32(scale) == np.float32(theirs[name].meta.attrs["scale_factor"])
    for name in ("time", "lat", "lon", "zlev"):
        np.testing.assert_array_equal(by_value(ours[name]), by_value(theirs[name]))


def test_it_is_built_and_verified_in_every_form(shared: Shared, tmp_path: Path) -> None:
    path = shared("oisst/oisst-avhrr-v02r01.20220913.nc")
    results = Results(tmp_path / "demo", scan={"format": "blockinfo", "arrays": ["sst"]})
    results.scan([path])
    results.emit()
    for form in emitters.NAMES:
        assert results.verify("access", form)["verified"]


def test_what_gdal_does_not_tell_is_refused_with_its_reason(tmp_path: Path, shared: Shared) -> None:
    hdf4 = shared("hdf4/SDS_chunk_extra_area.hdf")
    with pytest.raises(ScanError, match="does not say where its bytes lie"):
        scanned(hdf4)
    with pytest.raises(ScanError, match="opens no arrays"):
        scanned(shared("geotiff/shade.tif"))
    path = tmp_path / "holes.h5"
    with h5py.File(path, "w", libver=("earliest", "v110")) as f:
        made = granules.pipeline(f, "v", None, (5, 4), "deflate", shape=(12, 10), dtype="<i4")
        made[:5, :4] = 1
        f.create_dataset("z", data=np.zeros((64, 64)), chunks=(64, 64), compression="lzf")
    with pytest.raises(ScanError, match=r"v: GDAL does not say where chunk \[0, 1\] lies"):
        scanned(path, arrays=("v",))
    with pytest.raises(ScanError, match="z: its filter"):
        scanned(path, arrays=("z",))


def test_no_file_is_taken_for_it(tmp_path: Path, shared: Shared) -> None:
    assert scanners.detect(Source(str(shared("hidefix_pair/jan.nc4")))) == "hdf5"
