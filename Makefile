# Everything goes through `.venv`, which `make setup` makes from this folder alone. Only Python 3.11 or newer is needed.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed

.DEFAULT_GOAL := help
.PHONY: help setup test lint types imports unit demo bench-broker bench-engines storm torture-broker clean

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
	@$(BIN)/pytest -n 2

demo: setup ## the main job: embedded broker, 100,000 keyed records through two foreign clients, verdict
	@$(BIN)/python examples/demo_broker.py

torture-broker: setup ## kill -9, full disk, damage, power cut, hostile clients, many partitions (in full)
	@$(BIN)/python -m pytest tests/torture -p no:randomly -p no:cacheprovider --torture=full -q -s

bench-broker: setup ## the broker's table of figures
	@$(BIN)/python benchmarks/broker.py

storm: setup ## four members of one group, killed and stopped at random for a minute; the oracle judges
	@$(BIN)/python tests/storm/storm.py

bench-engines: setup ## ordered lanes beside the ideal and a plain consumer loop
	@$(BIN)/python benchmarks/engines.py

clean: ## remove what the other targets made
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
