# Everything goes through `.venv`, which `make setup` makes from this folder alone. Only Python 3.11 or newer is needed.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed

.DEFAULT_GOAL := help
.PHONY: help setup test lint types imports unit demo test-kafka storm torture-broker torture-spark bench-broker \
  bench-engines bench-spark clean

help: ## show what there is to do
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):[^#]*## /\1\t/' | expand -t 18

setup: $(STAMP) ## make .venv with the project and all extras (quick when nothing changed)

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "anabranch needs Python 3.11 or newer: run make PYTHON=/path/to/python3.11"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv || \
	  { echo "no venv module: install it (Debian: apt-get install python3-venv), then run make again"; exit 1; }
	@test -x $(BIN)/uv || $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt uv
	@echo "setting up .venv (about a minute the first time)"
	@$(BIN)/uv pip install --quiet --python $(BIN)/python -c constraints.txt -e '.[spark,java,web,cluster,dev]'
	@touch $@

test: setup lint types imports unit ## what a reviewer would run, and CI does: lint, types, imports, tests

lint: setup
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

types: setup
	@$(BIN)/mypy

imports: setup
	@$(BIN)/lint-imports

unit: setup
	@$(BIN)/pytest -n 2 --dist loadgroup

demo: setup ## the main job: embedded broker, 50,000 chat messages on Spark, verdict of the oracle
	@$(BIN)/python examples/demo.py

test-kafka: setup ## the contract suite and the holes of compaction and transactions, on Apache Kafka (Java, Maven)
	@$(BIN)/python tests/kafka/run.py

storm: setup ## four members of one group, killed and stopped at random for a minute; the oracle judges
	@$(BIN)/python tests/storm/storm.py

torture-broker: setup ## kill -9, full disk, damage, power cut, hostile clients, many partitions (in full)
	@$(BIN)/python -m pytest tests/torture -p no:randomly -p no:cacheprovider --torture=full -q -s

torture-spark: setup ## process trees and executors killed, orphans, a frozen executor, two runs of one group, bad neighbours
	@$(BIN)/python -m pytest tests/spark_torture -p no:randomly -p no:cacheprovider --torture=full -q -s

bench-broker: setup ## the broker's table of figures
	@$(BIN)/python benchmarks/broker.py

bench-engines: setup ## ordered lanes beside the ideal and a plain consumer loop; memory under failures (10 minutes)
	@$(BIN)/python benchmarks/engines.py

bench-spark: setup ## members on Spark beside engine="async" and a naive foreachBatch
	@$(BIN)/python benchmarks/spark.py

clean: ## remove what the other targets made
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
