# make demo, make test: each sets up .venv itself, from a fresh clone, and only when pyproject.toml changed.
# make demo also fetches SmolLM2-135M once, into the user's cache.
# PYTHON chooses the interpreter (3.11 or later): make test PYTHON=python3.13

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
OLD_ENOUGH := import sys; sys.exit(sys.version_info < (3, 11))

# 3.11 first: PuLP for it bundles CBC. Each is run, since a name on the path may be a shim for nothing.
PYTHON ?= $(shell for p in python3.11 python3.12 python3.13 python3.14 python3 python; do \
	$$p -c '$(OLD_ENOUGH)' 2>/dev/null && echo $$p && break; done)

.PHONY: setup demo test lint kernels bench clean

setup: $(STAMP)

$(STAMP): pyproject.toml
	@$(if $(PYTHON),$(PYTHON) -c '$(OLD_ENOUGH)',false) 2>/dev/null || \
		{ echo "iegopt needs Python 3.11 or later: install one, or name it: make PYTHON=/path/to/python3.11" >&2; exit 1; }
	@echo "Setting up $(VENV) with $(PYTHON) (once; a few minutes on a slow line)"
	@$(PYTHON) -m venv $(VENV) || \
		{ echo "$(PYTHON) cannot make a virtual environment: install its venv package (python3-venv on Debian)" >&2; exit 1; }
	@$(BIN)/python -m pip install -qq --disable-pip-version-check --editable '.[dev]'
	@touch $@

demo: $(STAMP)
	@$(BIN)/iegopt plan instances/requests/agent.yaml --cluster instances/clusters/mixed-racks.yaml
	@$(BIN)/iegopt models fetch smollm2
	@$(BIN)/iegopt run instances/requests/capital.yaml --cluster instances/clusters/local-pair.yaml

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy --strict iegopt runtime/iegopt_runtime

# Types and kernels take a minute of one core each where nothing is cached: side by side.
test: $(STAMP)
	@$(MAKE) --no-print-directory -j 2 lint kernels
	$(BIN)/pytest

kernels: $(STAMP)
	$(BIN)/iegopt warmup

bench: $(STAMP)
	$(BIN)/python benchmarks/import_time.py
	$(BIN)/python benchmarks/tree.py
	$(BIN)/python benchmarks/batch.py
	$(BIN)/python benchmarks/planner.py
	$(BIN)/python benchmarks/everyday.py
	$(BIN)/python benchmarks/fit_profiles.py
	$(BIN)/python benchmarks/oracle.py --seeds 2000
	$(BIN)/python benchmarks/summary.py

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
