"""zarr-python on the Icechunk form."""

import warnings

import icechunk
import imagecodecs.zarr
import zarr

import report


def read(dataset, array):
    storage = icechunk.local_filesystem_storage(str(report.form(dataset, "icechunk")))
    config = icechunk.Repository.fetch_config(storage)
    names = {c.name: c.url_prefix for c in (config.virtual_chunk_containers or {}).values()}
    allowed = icechunk.containers_credentials(dict.fromkeys(names.values()))
    repo = icechunk.Repository.open(storage, authorize_virtual_chunk_access=allowed)
    return zarr.open_group(repo.readonly_session("main").store, mode="r")[array][...]


warnings.simplefilter("ignore")
imagecodecs.zarr.register_codecs(verbose=False)
report.main(f"icechunk {icechunk.__version__}", "icechunk", read)
