"""Which sources are new, changed or gone, compared with the store."""


checkpoint discover:
    """Archive listing -> pending sources in batches, and removed ones."""
    input:
        listing="results/{dataset}/discover/listing.json",
    output:
        receipt="results/{dataset}/discover/receipt.json",
    log:
        "logs/{dataset}/discover/discover.log",
    conda:
        "../envs/byterefs.yaml"
    resources:
        mem_mb=mem_mb(500),
        runtime=minutes(10),
        # no param: how the work is cut changes nothing that is made; profiles/slurm cuts larger
        batch=scan_batch,
    params:
        store="results/{dataset}/store/store.sqlite",
        config=of_dataset("source", "select", "scan"),
    script:
        "../scripts/discover.py"
