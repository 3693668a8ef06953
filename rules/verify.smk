"""Proof, byte for byte, that a form says what the sources hold."""


rule verify:
    """One form of one target, through its own reader, against GDAL on the sources."""
    input:
        emitted="results/{dataset}/emit/{target}/{form}.receipt.json",
    output:
        receipt="results/{dataset}/verify/{target}/{form}.json",
    log:
        "logs/{dataset}/verify/{target}/{form}.log",
    conda:
        "../envs/byterefs.yaml"
    resources:
        mem_mb=mem_mb(2000),
        runtime=minutes(120),
    params:
        store="results/{dataset}/store/store.sqlite",
        options=section("verify"),
        access=access,
    script:
        "../scripts/verify.py"
