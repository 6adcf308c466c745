# Everything goes through here. Needs only Python 3.11 or newer; each target sets up what it needs in .venv.
PYTHON ?= $(firstword $(foreach p,python3.13 python3.12 python3.11 python3,$(if $(shell $(p) -c 'import sys, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo ok),$(p))))
BIN := .venv/bin
PYTEST := $(BIN)/python -m pytest -n auto --dist loadfile --no-loadscope-reorder
# Compiled tests are kept, whatever the environment says: compiling them in each process takes half a minute.
export PYTHONDONTWRITEBYTECODE :=
PIP := $(BIN)/python -m pip --disable-pip-version-check --no-input --quiet

.PHONY: help run test test-all test-slow check docs bench clean
help: ## what there is
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 10

.venv/python:
	@test -n "$(PYTHON)" || { echo "Rondel needs Python 3.11 or newer with the venv module; none was found."; exit 1; }
	@echo "setting up .venv with $$($(PYTHON) --version) ..."
	@$(PYTHON) -m venv .venv
	@$(PIP) install --upgrade "pip>=25.1"
	@touch $@

PAGE := $(shell find web/src web/*.json web/build.mjs hatch_build.py -type f 2>/dev/null)

.venv/run: .venv/python pyproject.toml $(PAGE)
	@echo "installing Rondel and what runs embedded models: a minute or two ..."
	@$(PIP) install -e '.[local,knowledge]'
	@touch $@

.venv/dev: .venv/run pyproject.toml
	@echo "installing what the tests and the checks need ..."
	@$(PIP) install --group dev
	@touch $@

.venv/bench: .venv/dev pyproject.toml
	@echo "installing what Rondel is measured against ..."
	@$(PIP) install --group bench
	@touch $@

run: .venv/run ## set up, then talk to the default agent
	@$(BIN)/rondel

test: .venv/dev ## set up, then the tests, on all cores
	@$(PYTEST)

test-all: test test-slow ## then the slow ones, and more examples of hypothesis

test-slow: .venv/dev
	@$(PYTEST) -m "slow or hypothesis" --hypothesis-profile all

docs: .venv/dev ## the documentation as a site, in build/site
	@$(BIN)/python docs/reference.py
	@$(BIN)/python docs/site.py
	@echo "open build/site/index.html"

check: .venv/dev ## lint, types, layers, the documentation's site, the packages in dist/
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright
	$(BIN)/lint-imports
	$(BIN)/python hatch_build.py check
	$(BIN)/python docs/site.py
	rm -rf dist
	$(BIN)/python -m build --no-isolation
	$(BIN)/twine check --strict dist/*

bench: .venv/bench ## ratios against a hand-written loop, measured in one run
	@$(BIN)/python -m bench

clean: ## remove what the other targets made
	rm -rf .venv dist build .hypothesis .ruff_cache
