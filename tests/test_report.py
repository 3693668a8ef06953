"""The parts of `snakemake --report`: what they count is what is there, the picture is what was written."""

from __future__ import annotations

from datetime import date
from html import unescape
from pathlib import Path

import matplotlib.image
import numpy as np
import pytest

import granules
from announcing import Announced
from byterefs import report
from byterefs.errors import VerifyError
from byterefs.model import Array
from byterefs.view import View

PARTS = ("coverage", "sizes", "consistency", "verification")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Announced, Path]:
    """Three days and a late one, reported on in a folder."""
    folder = tmp_path_factory.mktemp("report")
    announced = Announced(folder, "http://127.0.0.1:9", title="A <b>title")
    announced.emit = {"parquet": {}, "vrt": {}}
    announced.days(1, 3, arrays=["sst"], shape=(18, 36))
    announced.days(6, 6, arrays=["sst"], shape=(18, 36))
    write(announced, folder / "parts")
    return announced, folder / "parts"


def write(announced: Announced, parts: Path) -> None:
    plan = announced.results.folder / "plan" / "consistency.html"
    plan.parent.mkdir(exist_ok=True)
    plan.write_text((announced.results.store.parent / "plan" / "consistency.html").read_text())
    parts.mkdir()
    proofs = [p for p in announced.results.proofs if p.stem in announced.emit]
    paths = {name: parts / f"{name}.html" for name in PARTS}
    report.run(announced.results.store, verified=proofs, newest=parts / "newest.png", **paths)


def said(path: Path) -> str:
    return unescape(path.read_text())


def test_every_part_is_a_page_of_its_own_and_escapes(made: tuple[Announced, Path]) -> None:
    for name in ("coverage", "sizes", "verification"):
        text = (made[1] / f"{name}.html").read_text()
        assert text.startswith("<!doctype html>")
        assert "<h1>A &lt;b&gt;title</h1>" in text
        assert "src=" not in text


def test_coverage_counts_the_steps_and_names_the_gap(made: tuple[Announced, Path]) -> None:
    text = said(made[1] / "coverage.html")
    assert "4 steps by day. The axis skips 2026-09-03 to 2026-09-06." in text
    assert text.count('class="n4"') == 4
    assert 'title="2026 Sep 6: 1"' in text
    assert 'title="2026 Sep 5: 0"' in text


def test_sizes_are_those_of_the_files(made: tuple[Announced, Path]) -> None:
    announced, parts = made
    text = said(parts / "sizes.html")
    archive = sum(p.stat().st_size for p in announced.archive.iterdir())
    assert f'<td data-label="Bytes">{archive / 1000:.3g} kB</td>' in text
    for target in ("access", "public"):
        form = announced.results.out(target, "parquet")
        size = sum(p.stat().st_size for p in form.rglob("*") if p.is_file())
        assert f'<td data-label="Bytes">{size / 1000:.3g} kB</td>' in text


def test_verification_shows_every_form_and_target(made: tuple[Announced, Path]) -> None:
    text = said(made[1] / "verification.html")
    assert text.count("equal, bytes read from the archive") == 4
    assert "reference table, Parquet" in text


def test_the_quick_look_is_the_newest_plane_as_its_writer_wrote_it(
    made: tuple[Announced, Path],
) -> None:
    stored = granules.packed(date(2026, 9, 6), "sst", (1, 1, 18, 36))[0, 0]
    with View.open(made[0].results.store) as view:
        values = report.plane(view, view.arrays["sst"])
        assert report.caption(view, view.arrays["sst"]) == "sst, 2026-09-06"
        assert report.extent(view, view.arrays["sst"], values.shape) == (0, 360, 90, -90)
    wanted = np.where(stored == -999, np.nan, stored * np.float32(0.01).astype("f8"))
    np.testing.assert_allclose(values, wanted, rtol=1e-7)
    picture = matplotlib.image.imread(made[1] / "newest.png")
    assert len(np.unique(picture.reshape(-1, 4), axis=0)) > 100


def test_a_source_that_cannot_be_read_gives_words_in_place_of_a_picture(
    made: tuple[Announced, Path], tmp_path: Path
) -> None:
    file = made[0].archive / "20260906.nc"
    kept = file.read_bytes()
    file.unlink()
    with View.open(made[0].results.store) as view:
        with pytest.raises(VerifyError, match=r"20260906\.nc"):
            report.plane(view, view.arrays["sst"])
        report.draw(view, tmp_path / "newest.png")
    assert (tmp_path / "newest.png").stat().st_size > 1000
    file.write_bytes(kept)


def test_a_valid_range_holds_for_stored_numbers_of_its_own_type_and_for_values_of_another() -> None:
    stored = np.arange(6, dtype="u1")
    for dtype, bounds in (("|u1", [2, 3]), ("<f4", [1.0, 1.5])):
        attrs = {"scale_factor": 0.5, "valid_range": bounds, "_FillValue": 3}
        array = Array(
            "a", "data", "referenced", ("x",), (6,), (6,), "|u1", None, {}, attrs=attrs,
            attr_dtypes={"valid_range": dtype},
        )  # fmt: skip
        np.testing.assert_array_equal(
            report.physical(stored, array), [np.nan, np.nan, 1, np.nan, np.nan, np.nan]
        )
