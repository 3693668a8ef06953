"""Sources that GDAL opens with one driver or another by their names: what it reads right, and what is refused by name."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pytest

from byterefs import emitters
from byterefs.codecs import PLAIN
from byterefs.model import Array, Placement
from byterefs.planning import vrt
from byterefs.view import View
from forms import Results

NUMBERS = np.arange(12, dtype="<i4").reshape(4, 3)


def scanned(folder: Path, *files: Path) -> Results:
    results = Results(
        folder / "out",
        source={"provider": "local", "path": str(folder), "pattern": "."},
        plan={"concat": None},
    )
    results.scan(files)
    return results


def refusals(results: Results) -> dict[str, str]:
    with View.open(results.store) as view:
        return emitters.refusals(view, "vrt")


def verified(results: Results) -> bool:
    """Whether the VRT is verified as a whole."""
    results.emit(("access", "vrt"))
    return bool(results.verify("access", "vrt")["verified"])


def through_gdal(results: Results, name: str) -> np.ndarray:
    reader = emitters.load("vrt").open(results.out("access", "vrt"), access=str)
    try:
        return reader.read(name, tuple(slice(0, n) for n in reader.arrays()[name].shape))
    finally:
        reader.close()


@pytest.mark.parametrize("ending", ["nc", "h5"])
def test_axes_without_scale_beside_others_with_one_are_read_through_the_vrt(
    tmp_path: Path, ending: str
) -> None:
    with h5py.File(tmp_path / f"a.{ending}", "w") as f:
        f["lat"] = np.arange(4.0)
        f["lat"].make_scale("lat")
        f["whole"] = NUMBERS[:, 0]
        f["part"] = NUMBERS
        f["none"] = NUMBERS[:2]
        f.create_dataset("chunked", data=NUMBERS * 2, chunks=(3, 2), compression="gzip")
        f["g/inner"] = NUMBERS[::-1]
        for name in ("whole", "part", "chunked"):
            f[name].dims[0].attach_scale(f["lat"])
        written = {n: f[n][...] for n in ("whole", "part", "none", "chunked", "g/inner")}
    results = scanned(tmp_path, tmp_path / f"a.{ending}")
    assert refusals(results) == {}
    assert verified(results)
    for name, values in written.items():
        assert through_gdal(results, name).tolist() == values.tolist(), name


@pytest.mark.parametrize(("ending", "shape"), [("nc", (4, 3)), ("h5", (4, 3)), ("dat", (2, 1, 2))])
def test_single_characters_that_gdal_has_as_text_are_refused_in_the_vrt_by_name(
    tmp_path: Path, ending: str, shape: tuple[int, ...]
) -> None:
    with h5py.File(tmp_path / f"a.{ending}", "w") as f:
        f["flag"] = np.full(shape, b"q", "S1")
        f["v"] = NUMBERS
    said = refusals(scanned(tmp_path, tmp_path / f"a.{ending}"))
    assert set(said) == {"flag"}
    assert "flag: its elements are single characters" in said["flag"]
    assert "sqlite and parquet can hold it" in said["flag"]


@pytest.mark.parametrize(
    ("ending", "refused"),
    [("nc", False), ("NC4", False), ("gmac", False), ("h5", True), ("", True)],
)
def test_a_row_of_characters_is_refused_where_the_name_asks_for_the_hdf5_driver(
    ending: str, refused: bool
) -> None:
    place = Placement(f"/d/a.{ending}", "v", (0,), (4,), (0,))
    row = Array(
        "v", "data", "referenced", ("x",), (4,), (4,), "|S1", None, PLAIN, placements=[place]
    )
    assert (vrt.cannot(row) is not None) is refused


def test_a_row_of_characters_of_a_netcdf_file_is_read_through_the_vrt(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.nc", "w") as f:
        f["flag"] = np.array([b"q", b"", b"\xff"], "S1")
    results = scanned(tmp_path, tmp_path / "a.nc")
    assert verified(results)
    assert through_gdal(results, "flag").tobytes() == b"q\0\xff"


@pytest.mark.parametrize("ending", ["nc", "gmac", "h5"])
@pytest.mark.parametrize("dtype", ["i1", "<i2", ">i2"])
def test_signed_numbers_marked_unsigned_keep_their_bits_by_either_driver(
    tmp_path: Path, ending: str, dtype: str
) -> None:
    values = np.array([[-1, -128, 127, 0]], dtype)
    with h5py.File(tmp_path / f"a.{ending}", "w") as f:
        f.create_dataset("v", data=values, chunks=(1, 4), compression="gzip")
        f["v"].attrs["_Unsigned"] = "true"
        for n in range(2):
            f[f"d{n}"] = np.arange(values.shape[n], dtype="f8")
            f[f"d{n}"].make_scale(f"d{n}")
            f["v"].dims[n].attach_scale(f[f"d{n}"])
    results = scanned(tmp_path, tmp_path / f"a.{ending}")
    assert verified(results)
    assert through_gdal(results, "v").tolist() == values.tolist()


def test_numbers_marked_unsigned_whose_driver_the_name_does_not_tell_are_refused_in_the_vrt(
    tmp_path: Path,
) -> None:
    with h5py.File(tmp_path / "a.dat", "w") as f:
        f["v"] = np.array([[-1, -128, 127, 3]], "i1")
        for n, length in enumerate(f["v"].shape):
            f[f"d{n}"] = np.arange(length, dtype="f8")
            f[f"d{n}"].make_scale(f"d{n}")
            f["v"].dims[n].attach_scale(f[f"d{n}"])
        f["v"].attrs["_Unsigned"] = "true"
    said = refusals(scanned(tmp_path, tmp_path / "a.dat"))
    assert set(said) == {"v"}
    assert "let all end in .nc" in said["v"]
