# Two commands: `make demo` shows the loop at work, `make test` proves it. Both make what they need, once.

PYTHON ?= python3
VENV ?= .venv
# The torch wheel to start from. Elsewhere: make setup TORCH_INDEX="--index-url https://…"
TORCH ?= torch==2.13.0
TORCH_INDEX ?=
# Arguments of a command, such as: make test ARGS="-k journal", make demo ARGS="--iterations 3"
ARGS ?=
# The folder of tests that `make slow` runs, such as: make slow AREA=tests/models
AREA ?= tests
LAKE ?= lake
# What `make gpu-check-on-cpu` makes.
GPU := $(CURDIR)/build/gpu-on-cpu
# Processes that share the tests.
JOBS ?= 2

# The limits of a hang for tests that take minutes.
PATIENT := --timeout 3600 -o faulthandler_timeout=3700

BIN := $(VENV)/bin
STAMP := $(VENV)/.made-from-the-lock
PIP := $(BIN)/python -m pip --disable-pip-version-check

# The tests, the demo and their child processes must not phone home.
export HF_HUB_OFFLINE ?= 1
export HF_HUB_DISABLE_TELEMETRY ?= 1
export VLLM_NO_USAGE_STATS ?= 1
export DO_NOT_TRACK ?= 1
export TOKENIZERS_PARALLELISM ?= false
# Threads that spin at barriers slow each other severalfold when several processes share the cores.
export OMP_WAIT_POLICY ?= PASSIVE
# The tests start hundreds of interpreters: without its compiled modules each compiles this package anew.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup test quick slow stress demo lint types gpu-check-on-cpu lock clean

help:  ## list these commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(STAMP)  ## create .venv with the locked CPU environment

# torch is installed first and alone, so that TORCH_INDEX decides its build (CPU, CUDA). The rest comes from
# the lock, without dependencies: the lock is complete, and leaves out what breaks on a CPU.
$(STAMP): locks/cpu.txt pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "lpfloop needs Python 3.11 or newer: make PYTHON=python3.11 …")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) install --quiet --quiet --upgrade "pip>=25"
	$(PIP) install --quiet --quiet $(TORCH_INDEX) $(TORCH)
	$(PIP) install --quiet --quiet --no-deps -r locks/cpu.txt
	$(PIP) install --quiet --quiet --no-deps --no-build-isolation --editable .
	touch $@
	@echo 'made: in this shell, ". $(BIN)/activate" makes lpfloop a command'

test: lint types  ## check style, types and import directions, and run the tests
	$(BIN)/python -m pytest --numprocesses $(JOBS) $(ARGS)

quick: setup  ## run the unit tests: no child processes, no models
	$(BIN)/python -m pytest --numprocesses $(JOBS) tests/unit $(ARGS)

slow: setup  ## run the slow tests: real models, whole files, matrices
	$(BIN)/python -m pytest --numprocesses $(JOBS) -m slow $(PATIENT) $(AREA) $(ARGS)

stress: setup  ## run the stress tests: random kills, races
	HYPOTHESIS_PROFILE=thorough $(BIN)/python -m pytest --numprocesses $(JOBS) -m stress $(PATIENT) $(ARGS)

lint: setup  ## check style, formatting and import directions
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

types: setup  ## check types, strictly
	$(BIN)/pyright --threads 2 --pythonpath $(BIN)/python

demo: setup  ## run two iterations of the tiny world and show where to look
	$(BIN)/lpfloop demo --lake $(LAKE) $(ARGS)

gpu-check-on-cpu: setup  ## run what benchmarks/gpu_check.sh checks on a GPU, with tiny shapes on the CPU
	test -x $(GPU)/machine/bin/python || $(PYTHON) -m venv $(GPU)/machine
	$(GPU)/machine/bin/python -m pip install --quiet --quiet --upgrade "pip>=25"
	$(GPU)/machine/bin/python -m pip install --quiet --quiet $(TORCH_INDEX) $(TORCH)
	$(GPU)/machine/bin/python -m pip install --quiet --quiet -r benchmarks/gpu_machine.txt
	benchmarks/gpu_bundle.sh $(GPU)/bundle $$($(BIN)/python -c 'import platform; print(platform.python_version())')
	rm -rf $(GPU)/state
	PY=$(GPU)/machine/bin/python BUNDLE=$(GPU)/bundle STATE=$(GPU)/state benchmarks/gpu_check.sh $(GPU) --tiny $(ARGS)

lock: setup  ## resolve the dependencies again and write locks/cpu.txt
	$(BIN)/python locks/make_lock.py locks/cpu.txt $(TORCH) $(TORCH_INDEX)

clean:  ## remove the environment, builds and caches; lakes stay
	rm -rf $(VENV) build dist lpfloop.egg-info .pytest_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
