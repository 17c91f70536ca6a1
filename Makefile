# Every target does its own set-up; the first one takes a minute, later ones nothing.
SHELL := /bin/bash
BIN := .venv/bin
PYTEST := $(BIN)/python -m pytest
# Two workers a core: each collects all tests by itself; in a fresh clone on two cores they took 302 s, 319 s with three.
WORKERS := $(shell echo $$(( 2 * $$(getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2) )))

# Hundreds of interpreters start in the tests; without bytecode each compiles this package, and each worker all tests.
test test-levels test-slow test-adk-matrix: export PYTHONDONTWRITEBYTECODE :=

# In a fresh clone each worker would compile all tests; two processes do it once, half of them each.
COMPILE_TESTS = [ -d tests/adk/__pycache__ ] || { \
  for part in 'tests/[a-e]*/' 'tests/[f-z]*/'; do $(PYTEST) --collect-only -qq -m "not slow" $$part >/dev/null 2>&1 & done; wait; }

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-levels test-slow test-adk-matrix check requirements bench capacity docs release clean

help:  ## Show this list
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  make %-16s %s\n", $$1, $$2}' Makefile

setup:  ## Make .venv with the locked dependencies
	@tools/setup

demo: setup  ## Show the whole job: discover, activate, read, run a script, get the file, then contain a hostile skill (rehearsed model, no key)
	@$(BIN)/adk-skills demo

test: setup  ## Run the tests
	@$(COMPILE_TESTS)
	@$(PYTEST) -n $(WORKERS) --dist worksteal -m "not slow"

test-levels: setup  ## Run every attack row on every isolation level of this machine, with both makers of sandboxes
	@$(PYTEST) -n $(WORKERS) --dist worksteal -m every_level tests/sandbox/conformance

test-slow: setup  ## Run the slow tests, those of test-levels among them: thousands of runs, killed and starved agents, other users, fuzzing, the wheel in an empty directory
	@tools/setup --group slow --extra eval
	@$(PYTEST) -n auto --dist worksteal -m slow
	@$(PYTEST) -n auto --dist worksteal -m "hypothesis and not slow" --hypothesis-profile searching
	@$(BIN)/python tests/format/fuzz_parser_atheris.py 60

test-adk-matrix: setup  ## Run the google-adk tests on its lowest supported and its newest version
	@tools/test-adk-matrix

check: setup  ## Lint, format, types, import contracts, a proof for every requirement
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(BIN)/python tools/requirements.py --check

requirements: setup  ## Write docs/reference/requirements.md: every requirement with the tests that prove it
	@$(BIN)/python tools/requirements.py

bench: setup  ## Measure against google-adk and others, sides in turns, as ratios (below 10 minutes)
	@$(BIN)/python benchmarks/run.py

capacity: setup  ## Measure runs a second of each sandbox here, simulate 10^6 and 10^9 a day, write docs/explanation/capacity.md (about 5 minutes)
	@tools/setup --extra cluster --extra container --extra packages
	@$(BIN)/python benchmarks/capacity.py

docs: setup  ## Build the documentation into site/
	@tools/setup --extra docs
	@$(BIN)/zensical build --strict

release: setup  ## Build a release into dist/ and check it: contents, twine, installs on 3.11 to 3.13, SBOM, notes; uploads nothing
	@$(BIN)/python tools/release.py $(RELEASE)

clean:  ## Remove everything that was made
	rm -rf .venv .venv-adk-* .venv-bench-* dist site .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache demo-output
