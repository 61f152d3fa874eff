# Two commands do everything on a machine with Python >= 3.11, make and git: `make repro` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/installed-from.lock
export PATH := $(CURDIR)/$(BIN):$(PATH)
export DVC_NO_ANALYTICS := 1

.DEFAULT_GOAL := help
.PHONY: help venv repro test test-slow check format bench lock clean

help: ## show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 14

venv: $(INSTALLED) ## make .venv from requirements.lock; costs nothing when the lock has not changed

# The copy of the lock is the stamp: it is compared by content, since git does not keep file times.
$(INSTALLED): requirements.lock
	@cmp -s requirements.lock $@ || $(MAKE) --no-print-directory install
	@touch $@

.PHONY: install
install:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Permafrost needs Python 3.11 or newer; name one: make PYTHON=python3.12 ...")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	test -x $(BIN)/uv || $(BIN)/python -m pip install --quiet --disable-pip-version-check "$$(grep -o '^uv==[0-9.]*' requirements.lock)"
	$(BIN)/uv pip sync --quiet --compile-bytecode --python $(BIN)/python --require-hashes requirements.lock
	cp requirements.lock $(INSTALLED)

.PHONY: dvc-ready
dvc-ready: venv
	@git rev-parse --git-dir >/dev/null 2>&1 || dvc config --quiet --local core.no_scm true

repro: dvc-ready ## run the whole pipeline: tokens, features, probes, fine-tunes, report
	@python -m stages.check
	dvc repro
	@echo "open report/index.html"

test: venv ## the default tests
	pytest -n auto --dist worksteal

test-slow: venv ## the tests that take minutes
	pytest -m slow -n auto --dist loadfile

check: venv ## lint, formatting and types
	ruff check .
	ruff format --check .
	basedpyright --level error

format: venv ## put the code into the project's form
	ruff check --fix .
	ruff format .

bench: venv ## the benchmarks, each a table with what must hold
	@failed=0; for module in tests/benchmarks/[a-z]*.py; do \
		python -m tests.benchmarks.$$(basename $$module .py) || failed=1; done; exit $$failed

lock: venv ## resolve requirements.lock anew from pyproject.toml
	uv pip compile --quiet --universal --generate-hashes --no-header --python-version 3.11 pyproject.toml --group dev -o requirements.lock

clean: ## remove what can be made again: environment, caches, outputs, unfinished work
	rm -rf $(VENV) .permafrost .pytest_cache .ruff_cache .hypothesis dvc_plots data report
