"""Archives of granules as virtual arrays: where every chunk lies, recorded once, rendered in many forms."""

from snakemake.utils import min_version

min_version("9.20")


configfile: "config/config.yaml"


report: "report/workflow.rst"


include: "rules/common.smk"
include: "rules/discover.smk"  # archive -> pending sources, in batches
include: "rules/scan.smk"  # batch -> one row per chunk, keyed inside the source
include: "rules/store.smk"  # rows -> store.sqlite, the physical layer
include: "rules/plan.smk"  # store -> placements, plan.vrt
include: "rules/view.smk"  # store, placements -> refs_<array>, in fragments with digests
include: "rules/emit.smk"  # view -> sqlite, vrt, parquet, kerchunk, icechunk
include: "rules/verify.smk"  # form against GDAL -> equal, or nothing is published
include: "rules/sync.smk"  # verified forms -> where they are published
include: "rules/register.smk"  # publications -> sds rows, STAC, landing page
include: "rules/report.smk"  # verified forms -> the parts of `snakemake --report`


# `discover` is short, and `sync` and `register` run where the network is: a cluster's nodes often have none.
localrules:
    all,
    discover,
    sync,
    register,
    catalogue,


# Every durable receipt, not only the last: Snakemake keeps metadata of failed jobs too, and a failed
# job in the middle is otherwise not run again (snakemake#3808).
rule all:
    """Everything that the configs ask for."""
    default_target: True
    input:
        RECEIPTS,


onsuccess:
    for name, dataset in DATASETS.items():
        provenance.write(Path("results", name), dataset)
