"""What the rules share: the checked configs, the listing of each archive, input and param functions."""

import os
import sys
from pathlib import Path

from snakemake.exceptions import WorkflowError

sys.path.insert(0, str(Path(workflow.basedir) / "scripts"))

from byterefs import config as configs
from byterefs import discover as discovery
from byterefs import provenance, receipts
from byterefs.errors import ByteRefsError
from byterefs.files import covers, digest
from byterefs.scanners import SCAN_VERSION

# Sources are only read, and a file system without locks would refuse even that.
os.environ.setdefault("HDF5_USE_FILE_LOCKING", "FALSE")

try:
    SETTINGS = configs.load_settings(config)
    DATASETS = configs.load_datasets(SETTINGS)
    # Parse time, for `-n` too, and in the main process only: a cluster job parses this file again,
    # and an input function is too late for Snakemake's inventory of files on the first run.
    if workflow.is_main_process:
        for _name, _dataset in DATASETS.items():
            _results = Path("results", _name)
            discovery.refresh(
                _dataset, _results, allow_removal=SETTINGS["allow_removal"]
            )
            receipts.void_damaged(_results)
except (ByteRefsError, OSError) as error:
    raise WorkflowError(str(error)) from None

# Another template writes the pages again, though nothing was published since.
PAGES = digest(covers(Path(workflow.basedir) / "scripts/byterefs/assets"))

RECEIPTS = [path for dataset in DATASETS.values() for path in receipts.wanted(dataset)]
ANNOUNCED = [
    path for dataset in DATASETS.values() for path in receipts.announced(dataset)
]
if ANNOUNCED:
    RECEIPTS.append("results/register/receipt.json")


wildcard_constraints:
    dataset=r"[a-z0-9_-]+",
    batch=r"[0-9a-f]{16}",
    target=r"[a-z0-9][a-z0-9_-]*",
    form=r"[a-z]+",
    publication=r"[a-z0-9][a-z0-9_-]*",


def of_dataset(*sections):
    """A param: the dataset's config, cut down to the sections that a stage depends on."""
    return lambda wildcards: {key: DATASETS[wildcards.dataset][key] for key in sections}


def section(*keys):
    """A param: what the dataset's config holds below the keys; a key may be a wildcard's `{name}`."""

    def value(wildcards):
        found = DATASETS[wildcards.dataset]
        for key in keys:
            found = found[key.format(**wildcards)]
        return found

    return value


def access(wildcards):
    """A param: who asks buckets for the dataset's sources; empty where none is a bucket's."""
    source = DATASETS[wildcards.dataset]["source"]
    return {k: source[k] for k in ("endpoint", "profile", "anonymous") if source.get(k)}


def publication(wildcards):
    """A param: the entry of `sync` that has the wildcard's name."""
    entries = DATASETS[wildcards.dataset]["sync"]
    return next(entry for entry in entries if entry["name"] == wildcards.publication)


def scan_batch(wildcards):
    """Sources in one scan job, at most."""
    return DATASETS[wildcards.dataset]["scan"]["batch"]


def pending_batches(wildcards):
    """The scans of what the listing holds and the store does not, known once `discover` is done."""
    receipt = Path(checkpoints.discover.get(dataset=wildcards.dataset).output.receipt)
    return [
        f"results/{wildcards.dataset}/scan/{batch}.sqlite"
        for batch in receipts.read(receipt)["batches"]
    ]


def store_receipt(wildcards):
    """The receipt of `store`; a checkpoint, so an unchanged one ends the run there."""
    return checkpoints.store.get(dataset=wildcards.dataset).output.receipt


def verified(wildcards):
    """Every verification of the dataset: one form that differs stops all publications."""
    return receipts.verified(DATASETS[wildcards.dataset])


def published(wildcards):
    """The receipt of every publication of the dataset, mirrors too."""
    return receipts.published(DATASETS[wildcards.dataset])


def mirrored(wildcards):
    """The receipt of the publication that this one copies, if it is a mirror."""
    truth = publication(wildcards).get("mirror_of")
    return [f"results/{wildcards.dataset}/sync/{truth}.json"] if truth else []


def mem_mb(base):
    """Memory that doubles with each attempt."""
    return lambda wildcards, attempt: base * 2 ** (attempt - 1)


def minutes(base):
    """Time that grows with each attempt."""
    return lambda wildcards, attempt: base * attempt
