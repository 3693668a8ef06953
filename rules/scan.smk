"""Where every chunk of every array of a source lies: the parallel stage."""


rule scan:
    """One batch of sources -> one row per chunk, keyed inside its source."""
    input:
        receipt=ancient("results/{dataset}/discover/receipt.json"),
    output:
        scans=temp("results/{dataset}/scan/{batch}.sqlite"),
    log:
        "logs/{dataset}/scan/{batch}.log",
    conda:
        "../envs/byterefs.yaml"
    resources:
        mem_mb=mem_mb(1000),
        runtime=minutes(30),
    params:
        scan=section("scan"),
        concat=section("plan", "concat"),
        access=access,
        scan_version=SCAN_VERSION,
    script:
        "../scripts/scan.py"
