"""The global chunk index, and what of it changed."""


rule view:
    """Physical layer and placements -> digests of the fragments of refs_<array>."""
    input:
        store_receipt,
        "results/{dataset}/plan/receipt.json",
    output:
        receipt="results/{dataset}/view/receipt.json",
    log:
        "logs/{dataset}/view/view.log",
    conda:
        "../envs/byterefs.yaml"
    resources:
        mem_mb=mem_mb(1000),
        runtime=minutes(60),
    params:
        store="results/{dataset}/store/store.sqlite",
    script:
        "../scripts/view.py"
