# What a newcomer runs. `make` alone tells what there is.
#
# Everything is relative to this folder, so a clone may live anywhere. The tools live in .venv,
# made from lock files with hashes; each command makes it first if it is not there.

SHELL := /bin/sh
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.NOTPARALLEL:
.PHONY: help setup demo test check format golden bench lock clean moved

VENV := .venv
BIN := $(VENV)/bin
LOCKS := requirements/build.lock requirements/dev.lock
# Three times the cores of a small machine: tests often wait for sockets and processes.
WORKERS ?= 6
ARGS ?=

# Settings that people have for other projects must not leak into this one's environment. Nor may
# Python compile everything again in each of the hundreds of processes that tests start.
unexport PYTHONHOME PYTHONPATH VIRTUAL_ENV PYTHONDONTWRITEBYTECODE
export PIP_USER := 0
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PIP_NO_INPUT := 1

help: ## this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-8s %s\n", $$1, $$2 }' Makefile

setup: $(VENV)/.ready ## an environment in .venv with everything below; done once
	@echo "setup: $(VENV) is ready"

demo: $(VENV)/.ready ## the main job in a minute or two, nothing to configure
	@$(BIN)/ordercast demo $(ARGS)

test: $(VENV)/.ready $(VENV)/.browser $(VENV)/.java ## all tests; ARGS="-k name" for some, WORKERS=0 for one process
	@$(BIN)/python -m pytest -n $(WORKERS) --maxschedchunk 1 $(ARGS)

check: $(VENV)/.ready ## the linter, the formatter and the types
	@$(BIN)/ruff check --quiet && $(BIN)/ruff format --check --quiet && $(BIN)/mypy

format: $(VENV)/.ready ## puts the layout of the code right
	@$(BIN)/ruff check --quiet --fix; $(BIN)/ruff format

golden: $(VENV)/.ready ## writes the interaction files again; then read the diff
	@ORDERCAST_GOLDEN=rewrite $(BIN)/python -m pytest tests/golden $(ARGS)

bench: $(VENV)/.ready ## the figures in bench/
	@$(BIN)/python -m bench $(ARGS)

clean: ## takes away .venv and whatever tools left behind
	@rm -rf $(VENV) build dist .pytest_cache .ruff_cache .mypy_cache .hypothesis
	@find src tests bench -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

# --- the environment ---------------------------------------------------------------------------
# Two stamps, each written last: .locked when all of the locks is installed, .ready when ordercast
# itself is. Changed locks start again from an empty folder, so what was dropped is gone; a
# changed pyproject.toml only installs ordercast again. A virtual environment knows its place by
# its absolute path, so one that was copied or moved with its clone is made again.

ifneq "$(shell cat $(VENV)/.locked 2>/dev/null)" "$(CURDIR)"
$(VENV)/.locked: moved
endif

# pip is silent unless it fails.
LOGGED = > $(VENV)/setup.log 2>&1 || { \
    grep -v '^WARNING' $(VENV)/setup.log | tail -n 12 >&2; \
    echo "setup: failed; all of it is in $(VENV)/setup.log" >&2; exit 1; }

# The first Python of 3.11 or later that can make virtual environments, or why there is none. The
# system's own comes first: distributions build theirs with more care for speed than what people
# compile themselves (tests take an eighth less).
PYTHONS := /usr/bin/python3.11 /usr/bin/python3 python3.11 python3 python3.12 python3.13 python

define find_python
found=; reason="no Python was found"; \
for python in $(if $(PYTHON),"$(PYTHON)",$(PYTHONS)); do \
    "$$python" -c '' 2>/dev/null || continue; \
    if ! "$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then \
        reason="$$python is $$("$$python" -V 2>&1)"; \
    elif ! "$$python" -c 'import ensurepip, venv' 2>/dev/null; then \
        reason="$$python has no venv module (Debian and Ubuntu: apt install python3-venv)"; \
    else found=$$python; break; fi; \
done; \
if [ -z "$$found" ]; then \
    echo "ordercast needs Python 3.11 or later with venv, but $$reason." >&2; \
    echo "Name another one with: make setup PYTHON=/path/to/python3" >&2; exit 1; \
fi
endef

# Only wheels: building a source distribution would fetch build tools that no lock names. PySpark has
# no wheel, so it is built here, with the setuptools of the first lock.
$(VENV)/.locked: $(LOCKS)
	@$(find_python); \
	echo "setup: the locked tools go into $(VENV) (a minute or two; Spark is large)" >&2; \
	rm -f $(VENV)/.locked $(VENV)/.ready; \
	"$$found" -m venv --clear $(VENV)
	@$(BIN)/python -m pip install --require-hashes --only-binary :all: -r requirements/build.lock $(LOGGED)
	@$(BIN)/python -m pip install --require-hashes --only-binary :all: --no-binary pyspark \
	    --no-build-isolation -r requirements/dev.lock $(LOGGED)
	@printf '%s' "$(CURDIR)" > $@

# --no-index: whatever happens here, nothing is fetched.
$(VENV)/.ready: $(VENV)/.locked pyproject.toml
	@rm -f $@
	@$(BIN)/python -m pip install --no-index --no-deps --no-build-isolation -e . $(LOGGED)
	@touch $@

# Pages are tested in a real browser. Where Debian's can be had it is installed, once; where not, the
# tests that need it are left out, and say so.
$(VENV)/.browser: $(VENV)/.ready
	@if command -v chromium >/dev/null && command -v chromedriver >/dev/null; then :; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	    echo "test: a browser for the tests of pages, from apt (half a minute)" >&2; \
	    { apt-get -qq update && DEBIAN_FRONTEND=noninteractive apt-get -qq install -y \
	        --no-install-recommends chromium chromium-driver; } > $(VENV)/browser.log 2>&1 || \
	        echo "test: no browser could be installed; see $(VENV)/browser.log" >&2; \
	else echo "test: no chromium here, so the tests of pages in a browser are left out" >&2; fi
	@touch $@

# Tests start Java some forty times. Its start-up cache costs as much as ten of these starts.
$(VENV)/.java: $(VENV)/.ready
	@$(BIN)/python -m ordercast.spark.session > $(VENV)/java.log 2>&1 || \
	    echo "test: Java starts without its cache; see $(VENV)/java.log" >&2
	@touch $@

# --- the locks ---------------------------------------------------------------------------------
# From pyproject.toml alone. Pins stay unless UPGRADE=1. Extra places that this machine's pip
# looks at are left out: a lock holds what everyone can fetch.

COMPILE = PIP_CONFIG_FILE=/dev/null PIP_FIND_LINKS= PIP_EXTRA_INDEX_URL= \
    CUSTOM_COMPILE_COMMAND="make lock" $(BIN)/pip-compile --quiet --no-config --generate-hashes \
    --allow-unsafe --strip-extras --no-emit-index-url --no-emit-find-links \
    --no-emit-trusted-host --no-emit-options $(if $(UPGRADE),--upgrade)

LIST = $(BIN)/python -c 'import tomllib; p = tomllib.load(open("pyproject.toml", "rb")); \
    print(*($1), sep="\n")'
BUILD_NEEDS := p["build-system"]["requires"] + ["setuptools", "wheel"]
DEV_NEEDS := p["project"]["dependencies"] + p["dependency-groups"]["dev"] \
    + sum(p["project"]["optional-dependencies"].values(), [])

lock: $(VENV)/.ready ## the lock files, from pyproject.toml; UPGRADE=1 for newer versions
	@echo "lock: asking the package index (up to two minutes)" >&2
	@$(call LIST,$(BUILD_NEEDS)) | $(COMPILE) -o requirements/build.lock -
	@$(call LIST,$(DEV_NEEDS)) | $(COMPILE) -c requirements/build.lock -o requirements/dev.lock -
