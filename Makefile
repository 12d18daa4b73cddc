# Two commands do everything on a fresh clone: `make demo` and `make test`. Both create .venv first.
# Another interpreter: make demo PYTHON=/path/to/python3.12

PYTHON ?= python3
CXX ?= g++
# How many files of tests run beside each other; 0: one after the other, in one process (for -s, --pdb).
JOBS ?= $(if $(filter-out 1,$(shell nproc 2>/dev/null || echo 1)),2,0)
VENV := .venv
BIN := $(VENV)/bin
SOURCES := pyproject.toml hatch_build.py

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help demo test test-slow lint docs test-gpu clean

help: ## Show these lines.
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(VENV)/.worker ## Publish, prove, pull, load and time resnet18, in a home of its own.
	$(BIN)/pt2hub demo

test: $(VENV)/.dev ## Run the tests (PYTEST="-k name" chooses some, JOBS=0 runs them one by one).
	$(BIN)/pytest -m "not gpu and not slow" -n $(JOBS) --dist loadfile --no-loadscope-reorder $(PYTEST)

test-slow: $(VENV)/.dev ## Publish and load real models: resnet18, BERT, timm's MobileNetV3; some minutes.
	$(BIN)/pytest -m slow -s $(PYTEST)

lint: $(VENV)/.dev ## Check style, types and import contracts.
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

docs: $(VENV)/.dev ## Write docs/reference from the code.
	PYTHONPATH=docs $(BIN)/python -m reference_generator

test-gpu: ## Run the tests that need a CUDA device, with the torch of $(PYTHON); nothing is installed.
	PYTHONPATH=registry:workers:tests:$$PYTHONPATH $(PYTHON) -m pytest -m gpu -s --confcutdir=tests/gpu tests/gpu $(PYTEST)

clean: ## Remove .venv and what tools left in the clone.
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# A stamp is written when its step succeeded, so that an interrupted one is done again.
$(VENV)/.created:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "pt2hub needs Python 3.11 or newer, and $(PYTHON) is not: run make PYTHON=/path/to/python3.11." >&2; \
		exit 1; }
	@command -v $(CXX) >/dev/null || { \
		echo "pt2hub compiles models with g++, which is missing: install it (Debian: apt install g++)." >&2; \
		exit 1; }
	@$(PYTHON) -m venv $(VENV) || { \
		echo "$(PYTHON) cannot make a virtual environment (Debian: apt install python3-venv)." >&2; \
		exit 1; }
	@touch $@

$(VENV)/.worker: $(VENV)/.created $(SOURCES)
	$(BIN)/python -m pip install --editable ".[worker]"
	@touch $@

$(VENV)/.dev: $(VENV)/.created $(SOURCES)
	$(BIN)/python -m pip install --editable ".[worker,dev]"
	@touch $(VENV)/.worker $@
