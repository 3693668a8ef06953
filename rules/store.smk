"""The working store: one writer, one transaction. It is a database and no output of a rule."""


checkpoint store:
    """Scans of all pending batches -> store.sqlite."""
    input:
        discovered="results/{dataset}/discover/receipt.json",
        batches=pending_batches,
    output:
        receipt="results/{dataset}/store/receipt.json",
    log:
        "logs/{dataset}/store/store.log",
    conda:
        "../envs/byterefs.yaml"
    resources:
        mem_mb=mem_mb(1000),
        runtime=minutes(60),
    params:
        store="results/{dataset}/store/store.sqlite",
    script:
        "../scripts/store.py"
