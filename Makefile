# Two commands matter: `make run` starts a broker, `make test` runs the tests. Both need only python3 (3.11 or newer) and make.
SHELL := /bin/bash
.DEFAULT_GOAL := help
.PHONY: help run dist test test-long test-all check fmt sim chaos fuzz bench clean

VENV := .venv
BIN := $(VENV)/bin
KERNELS := $(shell find src -name '_*.pyx' -o -name '*.pxi' 2>/dev/null)
BUILD_INPUTS := pyproject.toml setup.py tools/setup_venv.sh $(KERNELS)

SEED ?=
SEEDS ?=
MINUTES ?=
TRIALS ?=
FAULTS ?=
FRAMES ?=
ARGS ?=
WORKERS ?=
ROWS ?=
KINDS ?=
WORLD ?=
QUICK ?=
SHOW ?=

help: ## what can be asked for
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  make \1\t/' | expand -t 18

# A stamp is newer than everything its installation was made from, so a second call installs nothing.
# The development stamp covers the running one: an editable install with the extra `dev` holds all the broker needs.
$(VENV)/.stamp-dev: $(BUILD_INPUTS)
	@tools/setup_venv.sh $(VENV) dev
	@touch $(VENV)/.stamp-run $@

$(VENV)/.stamp-run: $(BUILD_INPUTS)
	@tools/setup_venv.sh $(VENV)
	@touch $@

run: $(VENV)/.stamp-run ## a broker on 127.0.0.1:9092; ARGS="--listen 127.0.0.1:9192 ..." for more
	@exec $(BIN)/cairn serve $(ARGS)

dist: $(VENV)/.stamp-dev ## source distribution and wheel, in dist/
	@$(BIN)/python -m build --outdir dist .

# A process for each core, at most four; what is long, and what shares a process, is in tests/suites.py. The tests of
# every day wait for timers and disks much of their time, so they have one process more.
# Compiled modules are kept whatever the environment says: tests start a thousand processes that would make them again.
PYTEST = env -u PYTHONDONTWRITEBYTECODE $(BIN)/python -m pytest --maxprocesses 4 -n
ONE_MORE = $(shell expr $$(nproc) + 1)

test: $(VENV)/.stamp-dev ## the tests of every day, 10 minutes on 2 cores; ARGS="tests/unit -k name" for some
	@tools/setup_system.sh
	@$(PYTEST) $(or $(WORKERS),$(ONE_MORE)) -m "not long" $(ARGS)

test-long: $(VENV)/.stamp-dev ## the other tests: clients that are built, Spark, Apache Kafka, chaos, fuzz, load
	@tools/setup_system.sh
	@tools/setup_clients.sh
	@$(PYTEST) $(or $(WORKERS),logical) -m long $(ARGS)

test-all: $(VENV)/.stamp-dev ## every test; both of the above at once
	@tools/setup_system.sh
	@tools/setup_clients.sh
	@$(PYTEST) $(or $(WORKERS),logical) $(ARGS)

check: $(VENV)/.stamp-dev ## formatting, lint, types, import layers, house rules
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(BIN)/python -m pytest -q tests/tidy

fmt: $(VENV)/.stamp-dev ## formats the code
	@$(BIN)/ruff check --fix --exit-zero --quiet .
	@$(BIN)/ruff format .

sim: $(VENV)/.stamp-dev ## every simulated world: 1,000 seeds of each or SEEDS=, at least MINUTES=; SEED= alone replays one; WORLD=
	@$(BIN)/python -m cairnmq.testing.campaign --processes $$(nproc) $(if $(SEEDS),--seeds $(SEEDS)) $(if $(MINUTES),--minutes $(MINUTES)) $(if $(SEED),--seed $(SEED)) $(if $(WORLD),--world $(WORLD)) $(ARGS)

chaos: $(VENV)/.stamp-dev ## kills, power cuts, failing disks, transactions, damage; SEED=, MINUTES=, TRIALS=, FAULTS=, KINDS=kills,bank,...
	@tools/setup_system.sh
	@tools/setup_clients.sh
	@PYTHONPATH=tests $(BIN)/python -m chaos $(if $(MINUTES),--minutes $(MINUTES)) $(if $(TRIALS),--trials $(TRIALS)) $(if $(FAULTS),--faults $(FAULTS)) $(if $(SEED),--seed $(SEED)) $(if $(KINDS),--kinds $(KINDS)) $(ARGS)

fuzz: $(VENV)/.stamp-dev ## mutated requests, hostile clients, overload; SEED= and FRAMES= (100,000)
	@FUZZ_FRAMES=$(or $(FRAMES),100000) FUZZ_SEED=$(SEED) $(BIN)/python -m pytest -s tests/fuzz

bench: $(VENV)/.stamp-dev ## speed beside Apache Kafka, into docs/benchmarks.md; ROWS=sweep,latency,... QUICK=1 SHOW=1
	@tools/setup_clients.sh
	@PYTHONPATH=tests $(BIN)/python -m bench $(if $(ROWS),--rows $(ROWS)) $(if $(QUICK),--quick) $(if $(SHOW),--show)

clean: ## removes what was built, not the data
	@rm -rf $(VENV) .tools build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache src/*.egg-info
	@find src tests tools bench -name __pycache__ -type d -prune -exec rm -rf {} +
	@find src -name '_*.so' -delete
