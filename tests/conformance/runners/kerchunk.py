"""zarr-python on the kerchunk form, by fsspec."""

import warnings

import fsspec
import imagecodecs.numcodecs
import zarr

import report


def read(dataset, array):
    options = {
        "fo": str(report.form(dataset, "kerchunk")),
        "remote_protocol": "file",
        "asynchronous": True,
    }
    files = fsspec.filesystem("reference", **options)
    store = zarr.storage.FsspecStore(files, read_only=True, path="")
    return zarr.open_group(store, mode="r", zarr_format=2)[array][...]


warnings.simplefilter("ignore")
imagecodecs.numcodecs.register_codecs(verbose=False)
report.main(f"fsspec {fsspec.__version__}", "kerchunk", read)
