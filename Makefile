# Every target does all its own set-up in $(VENV) from a bare Python >= 3.11. `make help` lists them.
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt
ARGS ?=
MINUTES ?= 10

# Modules are compiled once, not in each worker of pytest and each node and command that a test starts.
unexport PYTHONDONTWRITEBYTECODE
PYTEST := $(BIN)/python -m pytest
PARALLEL := -n logical --dist worksteal
# Tests that share a cluster or a Spark session are a group (xdist_group): one worker plays it.
GROUPED := -n logical --dist loadgroup --no-loadscope-reorder
# Tests that "1" selects, on workers as "2" says. With RETRY=1 those that failed run once more, by themselves; both
# outputs stay to be read. CI does so: a machine that others use is no reason to refuse a change, and a test that fails
# twice is one. Only 1 says that tests failed; when pytest ends otherwise it did not run them, and 5 is no test at all.
define tests
$(PYTEST) -m "$(1)" $(2) $(ARGS); code=$$?; \
	if [ $$code -eq 1 ] && [ -n "$(RETRY)" ]; then \
	  echo "those that failed once more:"; \
	  $(PYTEST) -m "$(1)" --last-failed --last-failed-no-failures none $(ARGS); exit; fi; \
	[ $$code -eq 5 ] || exit $$code
endef
.DEFAULT_GOAL := help
.PHONY: help demo demo-compose test test-long test-all check lint bench fuzz sim mutants fmt docs clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(VENV)/.have-spark ## cluster up, produce under kill -9, Spark's verdict (ARGS="--records 50000")
	$(BIN)/holdfast demo $(ARGS)

demo-compose: $(VENV)/.have-spark ## the demo against containers, killed with `docker kill`
	$(BIN)/holdfast demo --driver compose $(ARGS)

test: $(VENV)/.have-dev $(VENV)/.have-spark ## a guard for every rule, processes and Spark included
	$(call tests,not e2e and not spark and not long,$(PARALLEL))
	$(call tests,(e2e or spark) and not long,$(GROUPED))

test-long: $(VENV)/.have-dev $(VENV)/.have-spark ## the further rows of long tables
	$(call tests,long and not e2e and not spark,$(PARALLEL))
	$(call tests,long and (e2e or spark),$(GROUPED))

test-all: test test-long ## everything, and with another Python when there is one
	@for python in python3.14 python3.13 python3.12; do \
	  if $$python -c 'import venv, ensurepip' 2>/dev/null && \
	    [ "$$($$python --version)" != "$$($(BIN)/python --version)" ]; \
	  then exec $(MAKE) check PYTHON=$$python VENV=$(VENV)-$$python; fi; done; \
	echo "no other Python is here: nothing was run with one" >&2

check: lint ## format, lint, types, layers, fast tests
	$(call tests,not e2e and not spark and not slow and not long,$(PARALLEL))

lint: $(VENV)/.have-dev ## all of check but the tests
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy holdfast tests
	$(BIN)/lint-imports

bench: $(VENV)/.have-dev ## figures beside the machine's own limits (ARGS="--report bench.html --quick": two minutes)
	$(BIN)/python -m holdfast.bench $(ARGS)

fuzz: $(VENV)/.have-dev ## the property tests with many more examples
	HYPOTHESIS_PROFILE=fuzz $(PYTEST) -m "not e2e and not spark and not long" --timeout 3600 $(ARGS)

sim: $(VENV)/.have-base ## simulated clusters out of seeds never played before, for MINUTES=10; rows in a folder of sim-out
	first=$$(date +%s)000000; \
	$(BIN)/holdfast sim swarm --seeds $$first..$$((first + 999999)) --minutes $(MINUTES) --dir sim-out/$$first $(ARGS)

mutants: $(VENV)/.have-mutants ## delete or flip each rule of the controller in turn: does a test fail?
	$(BIN)/python -m tests.mutation

fmt: $(VENV)/.have-dev ## format and fix what ruff can fix
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(VENV)/.have-dev ## write the generated pages: docs/protocol.md, docs/mutants.md, tables of docs/kafka.md
	$(BIN)/python -m holdfast.tools.protocol_docs
	$(BIN)/python -m holdfast.tools.mutant_docs
	$(BIN)/python -m holdfast.tools.kafka_docs

clean: ## forget the virtual environment and all caches
	rm -rf $(VENV) $(VENV)-* .jdk mutants .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist *.egg-info

# --- set-up, done once and again when the requirements change ---------------------------------------------

$(VENV)/.have-python:
	@python=; for candidate in "$(PYTHON)" python3 python3.13 python3.12 python3.11 python3.14 python; do \
	  if [ -n "$$candidate" ] && "$$candidate" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; \
	  then python=$$candidate; break; fi; done; \
	if [ -z "$$python" ]; then \
	  echo "Holdfast needs Python 3.11 or newer with its venv module (Debian: apt-get install python3 python3-venv)." >&2; \
	  echo "None of python3, python3.11 ... python3.14 is one; name yours with: make PYTHON=/path/to/python3 ..." >&2; exit 1; fi; \
	[ -x $(BIN)/python ] || { echo "setting up $(VENV) with $$($$python --version)"; "$$python" -m venv $(VENV); }
	@touch $@

$(VENV)/.have-base: pyproject.toml constraints.txt | $(VENV)/.have-python
	$(PIP) --editable .
	@touch $@

$(VENV)/.have-dev: $(VENV)/.have-base
	$(PIP) --editable '.[dev]'
	@touch $@

$(VENV)/.have-mutants: $(VENV)/.have-dev
	$(PIP) --editable '.[mutants]'
	@touch $@

$(VENV)/.have-spark: $(VENV)/.have-base
	@echo "installing Spark (some 450 MB the first time)"
	$(PIP) --editable '.[spark,report]'
	@touch $@
