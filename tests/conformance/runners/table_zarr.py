"""zarr-python on the table itself, by byterefs.open; the form (sqlite or parquet) is the second argument."""

import sys
import warnings

import zarr

import byterefs
import report

FORM = sys.argv[2]


def read(dataset, array):
    with byterefs.open(report.form(dataset, FORM)) as store:
        return zarr.open_group(store, mode="r")[array][...]


warnings.simplefilter("ignore")
report.main(f"zarr-python {zarr.__version__}", FORM, read)
