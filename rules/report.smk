"""The parts of `snakemake --report`. They are written with every build that changes a form."""


rule report:
    """Verified forms of a dataset -> coverage, sizes, consistency, verification, a quick look."""
    input:
        verified=verified,
    output:
        coverage=report(
            "results/{dataset}/report/coverage.html",
            caption="../report/coverage.rst",
            category="{dataset}",
            labels={"part": "coverage"},
        ),
        sizes=report(
            "results/{dataset}/report/sizes.html",
            caption="../report/sizes.rst",
            category="{dataset}",
            labels={"part": "sizes"},
        ),
        consistency=report(
            "results/{dataset}/report/consistency.html",
            caption="../report/consistency.rst",
            category="{dataset}",
            labels={"part": "consistency"},
        ),
        verification=report(
            "results/{dataset}/report/verification.html",
            caption="../report/verification.rst",
            category="{dataset}",
            labels={"part": "verification"},
        ),
        newest=report(
            "results/{dataset}/report/newest.png",
            caption="../report/newest.rst",
            category="{dataset}",
            labels={"part": "newest step"},
        ),
    log:
        "logs/{dataset}/report/report.log",
    conda:
        "../envs/byterefs.yaml"
    resources:
        mem_mb=mem_mb(2000),
        runtime=minutes(30),
    params:
        store="results/{dataset}/store/store.sqlite",
        pages=PAGES,
    script:
        "../scripts/report.py"
