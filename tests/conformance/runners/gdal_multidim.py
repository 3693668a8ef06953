"""GDAL's multidimensional API on the VRT."""

from osgeo import gdal

import report

gdal.UseExceptions()


def read(dataset, array):
    opened = gdal.OpenEx(
        str(next(report.form(dataset, "vrt").glob("*.vrt"))), gdal.OF_MULTIDIM_RASTER
    )
    return opened.GetRootGroup().OpenMDArrayFromFullname(f"/{array}").ReadAsArray()


report.main(f"GDAL {gdal.__version__}", "vrt", read)
