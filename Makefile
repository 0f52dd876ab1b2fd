# Two commands: `make demo` runs the main job on the embedded model and task, `make test` passes the tests.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Nothing below the install needs a network, and nothing is sent anywhere. Two threads on a busy two-core machine are
# slower than one for a model this small.
export HF_HUB_OFFLINE := 1
export HF_HUB_DISABLE_TELEMETRY := 1
export TOKENIZERS_PARALLELISM := false

.PHONY: help install demo test test-all docs lint types imports format clean

help:
	@echo "make demo      install into .venv, then train the embedded model with gradient-aligned rewards (CPU, minutes)"
	@echo "make test      install into .venv, then lint, types, import contract, tests"
	@echo "make test-all  the same plus the slow tests"
	@echo "make docs      build the documentation into site/, its links checked; open site/index.html"
	@echo "make format    let ruff rewrite the code"

install: $(VENV)/.installed

$(VENV)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else f"gar needs Python 3.11 or newer, found {sys.version.split()[0]}")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install -q --disable-pip-version-check -c constraints.txt torch
	$(BIN)/pip install -q --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@

demo: install
	OMP_NUM_THREADS=1 $(BIN)/gar train --preset demo

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: install
	$(BIN)/pyright

imports: install
	PYTHONPATH=src $(BIN)/lint-imports

test: lint types imports
	OMP_NUM_THREADS=1 $(BIN)/pytest -n 2 --dist loadfile -m "not slow and not gpu and not browser"

test-all: lint types imports
	OMP_NUM_THREADS=1 $(BIN)/pytest -n 2 --dist loadfile

# The theme announces its successor at every build unless told not to.
docs: install
	$(BIN)/pip install -q --disable-pip-version-check -c constraints.txt -e '.[docs]'
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --clean

format: install
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) build dist site src/*.egg-info .pytest_cache .ruff_cache
