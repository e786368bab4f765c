# Everything a developer or CI runs. `make help` lists it.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
# Parts in dependency order; each is an installable distribution of its own.
PARTS  := -e proto/python -e shared -e services/router -e 'services/worker[torch]' \
          -e 'sdks/python[otel,tokenizer]' -e services/local

.DEFAULT_GOAL := help

help: ## list the targets
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  make %-18s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

install: $(VENV)/.installed ## make .venv with all parts and the development tools

# torch first and alone: any later request for it is then already satisfied and pulls no other build.
$(VENV)/.installed: constraints.txt requirements-dev.txt $(wildcard */pyproject.toml */*/pyproject.toml)
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt torch
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt $(PARTS) -r requirements-dev.txt
	touch $@

proto: install ## generate the Python stubs from proto/
	$(BIN)/python scripts/generate_stubs.py proto/python/src

.PHONY: help install proto
