"""Where each source's slab sits in the global arrays."""


rule plan:
    """Coordinates and metadata in the store -> placements, plan.vrt, consistency report (JSON, page)."""
    input:
        store_receipt,
    output:
        receipt="results/{dataset}/plan/receipt.json",
    log:
        "logs/{dataset}/plan/plan.log",
    conda:
        "../envs/byterefs.yaml"
    resources:
        mem_mb=mem_mb(1000),
        runtime=minutes(60),
    params:
        store="results/{dataset}/store/store.sqlite",
        config=of_dataset(
            "dataset", "title", "source", "select", "scan", "plan", "remap", "targets"
        ),
    script:
        "../scripts/plan.py"
