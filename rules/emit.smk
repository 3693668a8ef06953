"""The forms. They are brought up to date in place and are no outputs of a rule; their receipts are."""


rule emit:
    """View -> one form for one target."""
    input:
        "results/{dataset}/view/receipt.json",
    output:
        receipt="results/{dataset}/emit/{target}/{form}.receipt.json",
    log:
        "logs/{dataset}/emit/{target}/{form}.log",
    conda:
        "../envs/byterefs.yaml"
    resources:
        mem_mb=mem_mb(2000),
        runtime=minutes(120),
    params:
        store="results/{dataset}/store/store.sqlite",
        options=section("emit", "{form}"),
    script:
        "../scripts/emit.py"
