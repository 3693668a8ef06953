"""The VRT form: the target's paths, and what stock GDAL sees through them."""

from typing import Any

import numpy as np
import pytest
from osgeo import gdal

from conformance_emitters import DATA, NX, NY, Archive, EmitterTests


class TestVrt(EmitterTests):
    FORM = "vrt"
    ROWS = False

    def root(self, archive: Archive) -> Any:
        gdal.UseExceptions()
        return gdal.OpenEx(
            str(archive.folder / "out" / "demo.vrt"), gdal.OF_MULTIDIM_RASTER
        ).GetRootGroup()

    @pytest.mark.parametrize("name", ["packed", "g/deep"])
    def test_block_info_through_the_vrt_gives_the_views_rows(
        self, archive: Archive, name: str
    ) -> None:
        with archive.view(1, 2) as view:
            self.emit(view, archive.folder / "out")
            refs = view.refs(name)
            array = self.root(archive).OpenMDArrayFromFullname(f"/{name}")
            for row in range(len(refs.offset)):
                key = [int(k) for k in np.unravel_index(row, view.grid(name))]
                block = array.GetRawBlockInfo(key)
                found = block.GetFilename(), block.GetOffset(), block.GetSize()
                source = view.sources[refs.source[row]].source
                assert found == (source, refs.offset[row], refs.size[row])

    def test_paths_are_the_targets_as_gdal_opens_them(self, archive: Archive) -> None:
        with archive.view(1) as view:
            self.emit(view, archive.folder / "out", target="public")
        text = (archive.folder / "out" / "demo.vrt").read_text()
        assert "<SourceFilename>/vsis3/bucket/a b/day 01 %20#?é.nc<" in text
        assert str(archive.folder) not in text

    def test_gdal_unpacks_as_cf_says(self, archive: Archive) -> None:
        with archive.view(1) as view:
            self.emit(view, archive.folder / "out")
        array = self.root(archive).OpenMDArray("packed")
        assert array.GetScale() == float(np.float32(0.01))
        assert array.GetOffset() == 0.1
        assert array.GetNoDataValue() == -999
        assert array.GetUnit() == "°C"
        unscaled = array.GetUnscaled().ReadAsArray()
        stored = archive.expected("packed")
        np.testing.assert_allclose(unscaled, stored * float(np.float32(0.01)) + 0.1)

    def test_every_data_array_has_its_shape_in_its_group(self, archive: Archive) -> None:
        with archive.view(1, 2) as view:
            self.emit(view, archive.folder / "out")
        root = self.root(archive)
        for name in DATA:
            array = root.OpenMDArrayFromFullname(f"/{name}")
            assert [d.GetSize() for d in array.GetDimensions()] == [2, NY, NX]
