"""Publication, never half of it."""


rule sync:
    """Verified forms -> one place where they are published."""
    input:
        verified=verified,
        mirrored=mirrored,
    output:
        receipt="results/{dataset}/sync/{publication}.json",
    log:
        "logs/{dataset}/sync/{publication}.log",
    conda:
        "../envs/byterefs.yaml"
    resources:
        mem_mb=mem_mb(1000),
        runtime=minutes(240),
    params:
        options=publication,
    script:
        "../scripts/sync.py"
