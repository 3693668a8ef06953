"""The topic ``drb:byterefs`` for drb, which looks for ``cortex.ttl`` beside this module and imports nothing else."""
