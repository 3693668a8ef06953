"""byterefs.read on the table; the form (sqlite or parquet) is the second argument."""

import sys

import byterefs
import report

FORM = sys.argv[2]


def read(dataset, array):
    with byterefs.open(report.form(dataset, FORM)) as store:
        return byterefs.read(store.array(array))


report.main("byterefs.read", FORM, read)
