# Every target makes or mends .venv first (envs/setup.sh): nothing to do before, nothing done twice.
PY := .venv/bin/python
export PATH := $(CURDIR)/.venv/bin:$(PATH)
export HDF5_USE_FILE_LOCKING := FALSE
# compiled once: a start of Snakemake costs three times as much without
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup demo serve run daily consistency test slurm-test conformance soak census lint format page-bundle lock clean bench bench-oisst bench-reader ceph-test s3-demo release-check

help: ## the targets
	@sed -n 's/^\([a-z0-9-]*\):.*## /  make \1|/p' $(MAKEFILE_LIST) | awk -F'|' '{printf "%-14s %s\n", $$1, $$2}'

setup: ## .venv with the pinned packages; a second call installs nothing
	@sh envs/setup.sh

demo: setup ## a small archive, built, appended to, verified, drawn
	@$(PY) scripts/demo.py $(ARGS)

serve: setup ## this folder over HTTP on loopback, with byte ranges: the demo's page and its live map
	@$(PY) scripts/serve.py $(ARGS)

run: setup ## the datasets of config/config.yaml, built or brought up to date; ARGS for snakemake
	@$(PY) scripts/daily.py $(ARGS)

daily: setup ## run for cron: silent where nothing is new, one line if something failed; ARGS for snakemake
	@$(PY) scripts/daily.py --cron $(ARGS)

test: setup ## every test but the soak; ARGS="-k grid" for some
	@$(PY) -m pytest -n 2 --dist loadfile $(ARGS)

consistency: setup ## where the sources of DATASET=<name> stop being the same, as a table
	@$(PY) scripts/consistency.py --report results/$(DATASET)/plan/consistency.json

slurm-test: setup ## the demo dataset on a Slurm cluster of this machine (root; installs slurm-wlm), part of test
	@$(PY) -m pytest tests/workflow/test_slurm.py $(ARGS)

conformance: setup ## one small fixture read by Python, GDAL, DuckDB, R, Node and Chromium (root installs what is missing)
	@$(PY) -W ignore tests/conformance/run.py --install $(ARGS)

soak: setup ## the long tests: 40 daily appends against one build
	@$(PY) -m pytest -m soak $(ARGS)

bench: setup ## every reach measured, against peers: table, bench/results.json, docs/bench.png (bench/README.md)
	@$(PY) bench/bench.py $(ARGS)

ceph-test: setup ## publication and ranges on Ceph's radosgw (root on Debian; installs it), not part of test
	@$(PY) -m pytest -m ceph tests/test_ceph.py $(ARGS)

s3-demo: setup ## the demo on object storage: built from a bucket, published, mirrored, read, one day appended
	@$(PY) scripts/s3_demo.py $(ARGS)

release-check: setup ## read again what is published: drift, broken links, sources that are gone or stale
	@$(PY) scripts/release_check.py $(ARGS)

bench-oisst: setup ## OISST at full length: first build, no-op, one new day (bench/README.md)
	@$(PY) bench/oisst.py $(ARGS)

census: setup ## every data file below DATA through every form, against an oracle; a line each in OUT
	@$(PY) scripts/census.py --data $(DATA) --out $(OUT) $(ARGS)

bench-reader: setup ## the table reader against GDAL on the VRT, over HTTP with latency (bench/README.md)
	@$(PY) -W ignore bench/reader.py $(ARGS)

lint: setup ## ruff, snakefmt, mypy, snakemake --lint
	@$(PY) -m ruff check .
	@$(PY) -m ruff format --check .
	@$(PY) -m snakefmt --check Snakefile rules
	@$(PY) -m mypy
	@$(PY) -m mypy scripts/demo.py scripts/serve.py scripts/demonstration scripts/daily.py scripts/unattended scripts/census.py scripts/tally
	@$(PY) -m snakemake --lint

format: setup ## the layout that lint asks for
	@$(PY) -m ruff check --fix .
	@$(PY) -m ruff format .
	@$(PY) -m snakefmt Snakefile rules

page-bundle: ## the live map's JavaScript from page/, with npm, which nothing else needs
	@cd page && npm ci --silent && npm run --silent build

lock: setup ## envs/requirements.txt from envs/requirements.in; ARGS=--upgrade for the newest
	@sh envs/lock.sh $(ARGS)

clean: ## what was made here but for your results: .venv, the demo, caches
	rm -rf .venv build dist archive/demo results/demo logs/demo .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
