# Needs Python >= 3.11, make and a package index; everything else goes into .venv.

VENV   := .venv
PYTHON := $(VENV)/bin/python
PYTEST := $(PYTHON) -m pytest
READY  := $(VENV)/.ready

# The lowest versions of all dependencies, in an environment of their own, and the tests that it runs.
LOWEST       := .venv-lowest
LOWEST_TESTS := tests/sql/test_functions.py tests/sql/test_sums.py tests/sql/test_windows.py tests/spark/test_versions.py

# Two processes, each with one SparkSession; a file's tests share fixtures, so they run in one process.
PARALLEL := -n 2 --dist loadfile --no-loadscope-reorder

# Kernels that check the bounds of arrays and memtables, compiled apart from the others.
CHECKED := IKEBANA_CHECK_BOUNDS=1 NUMBA_BOUNDSCHECK=1 IKEBANA_KERNEL_CACHE=$(CURDIR)/build/checked-kernels

# Where it is set, every process compiles every module again, and pytest rewrites the assertions of every test again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo test test-lowest check lint types doctests format soak chaos chaos-spark bench docs clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(READY) ## A shop on Spark: many live answers over the same tables; takes about half a minute
	@$(PYTHON) examples/orders.py

test: $(READY) ## Run every test, on two processes
	@$(PYTEST) $(PARALLEL)

test-lowest: $(LOWEST)/.ready ## Run a selection of tests with the lowest versions that are supported
	@$(LOWEST)/bin/python -m pytest -q $(LOWEST_TESTS)

check: $(READY) ## Check format, lint, types, layers and doctests
	@$(MAKE) --no-print-directory --jobs=2 --output-sync=target lint types doctests

lint: $(READY)
	@$(PYTHON) -m ruff format --check .
	@$(PYTHON) -m ruff check .

types: $(READY)
	@$(PYTHON) -m mypy

doctests: $(READY)
	@$(PYTEST) -q tests/test_layers.py src benchmarks

format: $(READY) ## Format the code and fix what the linter can fix
	@$(PYTHON) -m ruff check --fix .
	@$(PYTHON) -m ruff format .

soak: $(READY) ## Run the property tests over and over until one fails or Ctrl-C
	@while IKEBANA_PROFILE=soak $(CHECKED) $(PYTEST) $(PARALLEL) -x -m "hypothesis or soak"; do :; done

KILLS := 1000

chaos: $(READY) ## Kill KILLS engines with durable tables, and check that nothing is lost
	@$(PYTHON) -m tests.durability.chaos --kills $(KILLS)

SPARK_KILLS := 9

chaos-spark: $(READY) ## Kill SPARK_KILLS workers, supervisors and executors of a session on Spark; takes minutes
	@$(PYTHON) -m tests.durability.spark_chaos --kills $(SPARK_KILLS)

bench: $(READY) ## Run every benchmark at its default scale; JSON and figures go to build/bench
	@mkdir -p build/bench
	@set -e; for name in $$($(PYTHON) -c 'from ikebana_bench import SCENARIOS; print(*(s.name for s in SCENARIOS))'); do \
		$(VENV)/bin/ikebana bench $$name --json build/bench/$$name.json --figure build/bench/$$name; \
	done

docs: $(READY) ## Build the documentation as a site, in build/site
	@$(PYTHON) -c 'import mkdocs, material, mkdocstrings' 2>/dev/null || \
		$(PYTHON) -m pip install --quiet --disable-pip-version-check -c constraints.txt --no-build-isolation -e '.[docs]'
	@NO_MKDOCS_2_WARNING=1 $(PYTHON) -m mkdocs build --strict --quiet
	@echo "built: build/site/index.html"

clean: ## Remove the virtual environment, caches and build output
	rm -rf $(VENV) $(LOWEST) build .hypothesis .mypy_cache .pytest_cache .ruff_cache src/*.egg-info benchmarks/*.egg-info benchmarks/build
	find src tests benchmarks examples -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

# The build backend is installed first, pinned like the rest, and used without isolation: an
# isolated build would fetch whichever version is newest.
$(READY): pyproject.toml benchmarks/pyproject.toml constraints.txt
	@for candidate in python3.11 python3 python3.14 python3.13 python3.12; do \
		if $$candidate -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then found=$$candidate; break; fi; \
	done; \
	if [ -z "$$found" ]; then echo "error: no Python >= 3.11 found (tried python3.11, python3, python3.12 to 3.14)" >&2; exit 1; fi; \
	echo "installing into $(VENV) with $$($$found --version) ..."; \
	$$found -m venv $(VENV)
	@$(PYTHON) -m pip install --quiet --disable-pip-version-check -c constraints.txt setuptools
	@$(PYTHON) -m pip install --quiet --disable-pip-version-check -c constraints.txt --no-build-isolation -e '.[dev]' -e benchmarks
	@echo "compiling kernels and archiving Spark's classes: once for each version, about a minute ..."
	@$(VENV)/bin/ikebana warm
	@touch $@

$(LOWEST)/.ready: pyproject.toml constraints-lowest.txt | $(READY)
	@echo "installing the lowest versions into $(LOWEST) ..."
	@$(PYTHON) -m venv $(LOWEST)
	@$(LOWEST)/bin/python -m pip install --quiet --disable-pip-version-check -c constraints-lowest.txt setuptools wheel
	@$(LOWEST)/bin/python -m pip install --quiet --disable-pip-version-check -c constraints-lowest.txt --no-build-isolation \
		-e . pytest hypothesis networkx
	@touch $@
