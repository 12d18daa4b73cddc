# Two commands do everything on a fresh clone: `make demo` and `make test`. Both create .venv first.
# Another interpreter: make demo PYTHON=/path/to/python3.12

PYTHON ?= python3
CXX ?= g++
# How many files of tests run beside each other: one per core; 0: one after the other, in one process (for -s, --pdb).
JOBS ?= $(patsubst 1,0,$(shell nproc 2>/dev/null || echo 1))
VENV := .venv
BIN := $(VENV)/bin
PARALLEL := $(BIN)/pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder
SOURCES := pyproject.toml constraints.txt hatch_build.py
ASSETS := web/static/assets.json
WEB := web/build.py $(wildcard web/package*.json) $(shell find web/islands web/styles web/templates 2>/dev/null)
# A browser of the system's, as tests/support/browser.py seeks it.
BROWSER := $(shell command -v chromium || command -v chromium-browser || command -v google-chrome)

# An emulator of older CPUs, as tests/support/emulator.py seeks it.
EMULATOR := $(shell command -v qemu-x86_64 || command -v qemu-x86_64-static)

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help install demo seed-demo check test test-slow lint web browser emulator screenshots docs figures test-gpu gpu-results clean

help: ## Show these lines.
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

install: $(VENV)/.worker $(ASSETS) ## Put pt2hub with its worker and its web pages into .venv: .venv/bin/pt2hub up.

demo: $(VENV)/.worker $(ASSETS) ## Publish, prove, pull, load and time resnet18, in a home of its own.
	$(BIN)/pt2hub demo

check: lint $(ASSETS) ## Check style, types and contracts, and run the fast tests; some minutes less than test.
	$(PARALLEL) -m fast $(PYTEST)

seed-demo: $(VENV)/.worker ## Fill the server of PT2HUB_HOME with a made-up year, to look at its pages.
	PYTHONPATH=tests $(BIN)/python -m support.story

test: $(VENV)/.dev $(ASSETS) browser emulator ## Run the tests (PYTEST="-k name" chooses some, JOBS=0 runs them one by one).
	$(PARALLEL) -m "not gpu and not slow" $(PYTEST)

test-slow: $(VENV)/.dev ## Publish real models, fuzz readers (PYTEST="-k fuzzed --fuzz-seconds 600" for longer); some minutes.
	$(BIN)/pytest -m slow -s $(PYTEST)

lint: $(VENV)/.dev $(VENV)/.node ## Check style, types and import contracts.
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python web/build.py check

web: $(ASSETS) ## Bundle the styles and scripts of the web pages.

browser: $(VENV)/.dev ## Install the browser that tests look at pages with, where there is none.
ifeq ($(BROWSER),)
	@{ if [ "$$(id -u)" = 0 ] && apt-get --version >/dev/null 2>&1; then \
		{ apt-get update && apt-get install --yes --no-install-recommends chromium fonts-dejavu-core; } >/dev/null \
		|| $(BIN)/playwright install --with-deps chromium; \
	else $(BIN)/playwright install chromium; fi; } || { \
		echo "No browser could be installed: install Chromium, so that chromium, chromium-browser or google-chrome" >&2; \
		echo "is on the PATH, or let this machine reach Playwright's downloads." >&2; \
		exit 1; }
endif

emulator: ## Install the emulator that tests run libraries on older CPUs with, where there is none.
ifeq ($(EMULATOR),)
	@{ [ "$$(id -u)" = 0 ] && apt-get --version >/dev/null 2>&1 && \
		{ apt-get update && apt-get install --yes --no-install-recommends qemu-user; } >/dev/null; } || { \
		echo "No emulator could be installed: install QEMU's user mode (Debian: apt install qemu-user), so that" >&2; \
		echo "qemu-x86_64 is on the PATH." >&2; \
		exit 1; }
endif

screenshots: $(VENV)/.dev $(ASSETS) browser ## Take pictures of every page at three widths in both themes, into build/screenshots.
	PT2HUB_SCREENSHOTS=1 $(BIN)/pytest -q tests/browser/test_every_page.py -k "is_right or are_right" $(PYTEST)
	@echo "Pictures are in build/screenshots."

docs: $(VENV)/.dev ## Write docs/reference from the code, and measured figures into the pages that quote them.
	PYTHONPATH=docs $(BIN)/python -m reference_generator
	PYTHONPATH=docs $(BIN)/python -m figure_spans
	PYTHONPATH=docs $(BIN)/python -m gpu_results_page

figures: $(VENV)/.worker $(ASSETS) ## Measure what the pages quote (10 minutes, on an idle machine) and write it there.
	PYTHONPATH=docs $(BIN)/python benchmarks/figures.py
	PYTHONPATH=docs $(BIN)/python -m figure_spans

test-gpu: ## Run the tests that need a CUDA device, with the torch of $(PYTHON); nothing is installed.
	PYTHONPATH=registry:workers:tests:$$PYTHONPATH $(PYTHON) -m pytest -m gpu -s --confcutdir=tests/gpu tests/gpu $(PYTEST)

gpu-results: ## Measure what docs/gpu-results.md shows, on a GPU, with the torch of $(PYTHON) (ROWS="vit" measures some).
	PYTHONPATH=$(CURDIR)/registry:$(CURDIR)/workers:$(CURDIR)/benchmarks:$(CURDIR)/docs:$$PYTHONPATH \
		$(PYTHON) benchmarks/gpu_results.py $(ROWS)

clean: ## Remove .venv and what tools left in the clone.
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis build dist web/static web/node_modules
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
	$(BIN)/python -m pip install --constraint constraints.txt --editable ".[worker]"
	@touch $@

$(VENV)/.dev: $(VENV)/.created $(SOURCES)
	$(BIN)/python -m pip install --constraint constraints.txt --editable ".[worker,dev]"
	@touch $(VENV)/.worker $@

# A wheel with Node where the machine has none.
$(VENV)/.node: $(VENV)/.created web/build.py
	@needed=$$($(BIN)/python web/build.py needs); [ -z "$$needed" ] || $(BIN)/python -m pip install "$$needed"
	@touch $@

$(ASSETS): $(WEB) | $(VENV)/.node
	$(BIN)/python web/build.py
