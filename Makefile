# `make demo` and `make test` do all set-up themselves: they need make and some Python.

STAMP := .venv/stamp
DOCS_STAMP := .venv/stamp-docs
PYTHON_VENV := .venv/bin/python
# Two processes share the tests; one that runs dry takes over half of what the other has left.
PYTEST := $(PYTHON_VENV) -m pytest -n 2 --dist worksteal

.DEFAULT_GOAL := help
.PHONY: help demo test test-slow test-generic test-all mutants lint format benchmark docs docs-fast notebooks dist versions clean

help:  ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-10s  %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(STAMP)  ## fit a Cox process to the coal-mining disasters
	$(PYTHON_VENV) examples/coal_mining.py

# One thread for each BLAS call: two test processes already fill the cores.
test test-slow test-generic test-all mutants benchmark: export OMP_NUM_THREADS = 1
test test-slow test-generic test-all mutants benchmark: export OPENBLAS_NUM_THREADS = 1

test: $(STAMP)  ## the fast tests and the doctests: some 3 minutes on two cores
	@echo "Some three minutes on two cores. One file: $(PYTHON_VENV) -m pytest tests/test_ep.py"
	$(PYTEST) -m "not slow and not mutant and not whole"

# pytest exits with 5 when it collected nothing: no slow test is no failure.
test-slow: $(STAMP)  ## the long runs
	$(PYTEST) -m "slow and not mutant and not whole" || [ $$? -eq 5 ]

# Compiled code rounds as the processor does. What is compiled here is compiled for the oldest one.
GENERIC := tests/test_likelihoods.py tests/test_ep.py tests/test_plateau.py tests/test_evidence.py \
	tests/test_numeric.py tests/test_workflow.py
test-generic: export NUMBA_CPU_NAME = generic
test-generic: export NUMBA_CPU_FEATURES =
test-generic: export OPENBLAS_CORETYPE = Haswell
test-generic: $(STAMP)  ## the numeric tests again, as another processor rounds: 2 minutes
	$(PYTEST) -m "not slow and not mutant and not whole" $(GENERIC)

test-all: $(STAMP)  ## everything, whole tutorials and all random models included: more than an hour
	$(PYTEST) -m "whole or not whole"

mutants: $(STAMP)  ## code that is wrong on purpose, and what notices it
	$(PYTEST) -q -m mutant --mutants

lint: $(STAMP)  ## ruff, mypy, and phrases that are read twice
	$(PYTHON_VENV) tools/plain.py
	$(PYTHON_VENV) -m ruff check .
	$(PYTHON_VENV) -m ruff format --check .
	$(PYTHON_VENV) -m mypy

format: $(STAMP)  ## let ruff format the code and mend what it can
	$(PYTHON_VENV) -m ruff check --fix .
	$(PYTHON_VENV) -m ruff format .

benchmark: $(STAMP)  ## every benchmark at its small size
	@set -e; for script in benchmarks/[a-z]*.py; do \
		echo "$$script --quick"; $(PYTHON_VENV) "$$script" --quick; \
	done

docs: $(DOCS_STAMP)  ## the documentation, into build/docs; warnings are errors
	$(PYTHON_VENV) tools/tables.py --check
	$(PYTHON_VENV) -m sphinx -W --keep-going -q -b html docs build/docs
	@echo "build/docs/index.html"

docs-fast: $(DOCS_STAMP)  ## the same without running the tutorials, into build/docs-fast: a minute
	$(PYTHON_VENV) tools/tables.py --check
	$(PYTHON_VENV) -m sphinx -D nb_execution_mode=off -W --keep-going -q -b html docs build/docs-fast
	@echo "build/docs-fast/index.html"

# A notebook is made again where its script or the package has changed; `make build/notebooks/redwood.ipynb` makes one.
NOTEBOOKS := $(patsubst examples/%.py,build/notebooks/%.ipynb,$(wildcard examples/*.py))
notebooks: $(NOTEBOOKS)  ## the tutorials as executed notebooks, into build/notebooks (some ten minutes)

build/notebooks/%.ipynb: examples/%.py tools/notebooks.py $(shell find pymc_lgm -name '*.py') | $(DOCS_STAMP)
	@$(PYTHON_VENV) tools/notebooks.py build/notebooks $<

dist:  ## sdist and wheel into dist/, README's example run from the wheel on each Python here
	sh tools/check_dist.sh

versions:  ## the fast tests on each Python from 3.12 to 3.14 that is here
	sh tools/versions.sh

clean:  ## remove everything that was made here, .venv included
	rm -rf .venv .uv build dist docs/generated docs/tutorials .pytest_cache .ruff_cache .mypy_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# The environment follows pyproject.toml and constraints.txt. One that works is brought up to date in place;
# one that is missing or broken is made anew. The stamp comes last, so a set-up that was cut short runs again.
$(STAMP): pyproject.toml constraints.txt
	@PYTHON=$(PYTHON_VENV) sh tools/find_python.sh >/dev/null 2>&1 || { \
		python=$$(sh tools/find_python.sh) && rm -rf .venv && \
		echo "Making .venv with $$python" && "$$python" -m venv .venv; \
	}
	@echo "Installing into .venv (a minute or two the first time) ..."
	@$(PYTHON_VENV) -m pip install -q -q --disable-pip-version-check -c constraints.txt -e ".[test]"
	@touch $@

# What builds the documentation comes with the first `make docs`; no other target waits for it.
$(DOCS_STAMP): $(STAMP)
	@echo "Installing Sphinx into .venv ..."
	@$(PYTHON_VENV) -m pip install -q -q --disable-pip-version-check -c constraints.txt -e ".[docs]"
	@touch $@
