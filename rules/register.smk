"""What is told of a publication, once it is there: to people, to registries, to catalogues."""


rule register:
    """Publications of a dataset -> sds rows, STAC collection, landing page, kept here and placed there."""
    input:
        synced=published,
    output:
        receipt="results/{dataset}/register/receipt.json",
    log:
        "logs/{dataset}/register/register.log",
    conda:
        "../envs/byterefs.yaml"
    resources:
        mem_mb=mem_mb(1000),
        runtime=minutes(30),
    params:
        store="results/{dataset}/store/store.sqlite",
        config=of_dataset("dataset", "title", "emit", "sync", "register"),
        pages=PAGES,
    script:
        "../scripts/register.py"


rule catalogue:
    """Announced datasets -> root STAC catalogue, sds rows of all, kept here and placed where the config says."""
    input:
        announced=ANNOUNCED,
    output:
        receipt="results/register/receipt.json",
    log:
        "logs/register/catalogue.log",
    conda:
        "../envs/byterefs.yaml"
    resources:
        mem_mb=mem_mb(500),
        runtime=minutes(10),
    params:
        place=SETTINGS.get("catalogue", {}),
    script:
        "../scripts/register.py"
