# One verb per thing a developer does; CI calls the same ones. `make` alone lists them.
#
# Needed beforehand: Python 3.11, 3.12 or 3.13 (with pip and venv) and make. Everything else is
# installed into .venv, from the exact versions and hashes in requirements.lock. constraints.txt has
# the same versions without hashes: with hashes in its constraints, pip installs no local folder.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.NOTPARALLEL:

PYTHON ?= python3
CORES ?= $(shell getconf _NPROCESSORS_ONLN)
# Files with servers side by side: they wait more than they compute.
# Each worker has a cluster of its own: 0.7 GB, and 3 % of a core while nobody asks it anything.
JOBS ?= $(shell echo $$(($(CORES) + 2)))
KUBECTL ?= kubectl
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.laxity-setup
UV_VERSION := 0.13.8

# Containers often forbid Python to keep what it has compiled; each process would compile all anew.
unexport PYTHONDONTWRITEBYTECODE

# Nothing is written to the home folder and nothing is reported to anybody.
export PREFECT_HOME ?= $(CURDIR)/.laxity/prefect
export PREFECT_SERVER_ANALYTICS_ENABLED := false
export DO_NOT_TRACK := 1
export MLFLOW_DISABLE_TELEMETRY := true
export MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT := true
export MLFLOW_SERVER_ENABLE_JOB_EXECUTION := false
export MPLCONFIGDIR ?= $(CURDIR)/.laxity/matplotlib
export NUMBA_CACHE_DIR ?= $(CURDIR)/.laxity/numba
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: help setup torch docs format check metrics oracle test verify unit smoke integration demo bench soak manifest lock clean

help: ## list the verbs
	@sed -nE 's/^([a-z]+):.*## (.*)/  make \1\t\2/p' $(firstword $(MAKEFILE_LIST)) | expand -t 22

setup: $(STAMP) ## create .venv with the laxity command and all tools

# uv installs the pinned set in seconds. It does not read pip's configuration, so where an index
# is known to pip alone, pip installs the same set.
$(STAMP): pyproject.toml requirements.lock
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@test -x $(BIN)/uv || $(BIN)/pip install --quiet uv==$(UV_VERSION) \
		|| echo "uv is not to be had; pip goes on alone"
	@$(BIN)/uv pip install --quiet --no-deps --python $(BIN)/python -r requirements.lock \
		|| $(BIN)/pip install --quiet --no-deps -r requirements.lock
	@$(BIN)/pip install --quiet --no-deps --no-build-isolation --editable .
	@touch $@
	@echo "set up: $(BIN)/laxity"

torch: setup ## add PyTorch, the libraries that train, Gymnasium, Optuna and MCP to .venv, for their tests and examples
	@KERAS_BACKEND=torch $(BIN)/python -c 'import torch, xgboost, sb3_contrib, accelerate, transformers, lightning, keras, lightgbm, optuna, mcp' 2>/dev/null \
		|| $(BIN)/pip install --quiet torch==2.13.0 xgboost==3.2.0 gymnasium==1.4.0 sb3-contrib==2.9.2 accelerate==1.15.0 \
			transformers==5.24.0 lightning==2.6.6 keras==3.15.1 lightgbm==4.7.0 optuna==5.0.0 mcp==2.3.0

format: setup ## format the code and mend what ruff can mend
	@$(BIN)/ruff check --fix --quiet . || true
	@$(BIN)/ruff format .

check: setup ## format, lint, types, import contracts and the form of GitHub's files
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check --output-format concise .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-logo
	@! command -v tsc > /dev/null || tsc --checkJs --allowJs --noEmit --target es2022 --module es2022 \
		--moduleResolution bundler --lib es2024,dom,dom.iterable scheduler/laxity_scheduler/http/page/main.js
	@$(BIN)/check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/*.yml
	@$(BIN)/check-jsonschema --builtin-schema vendor.github-actions action.yml
	@$(BIN)/check-jsonschema --builtin-schema vendor.dependabot .github/dependabot.yml
	@$(BIN)/check-jsonschema --builtin-schema vendor.github-issue-config .github/ISSUE_TEMPLATE/config.yml
	@$(BIN)/check-jsonschema --builtin-schema vendor.github-issue-forms .github/ISSUE_TEMPLATE/{bug,feature}.yml

# Quick tests side by side on all cores; afterwards, file by file, what starts servers, processes or a browser.
LIVE := (slow or cluster or browser) and not soak
RESULTS := .laxity/test
# The part of them that `make test` runs: real services, workers, groups and kills on this machine.
SMOKE := tests/act tests/command_line tests/declare/test_first_run.py tests/service/test_home.py \
	tests/service/test_starting.py tests/survive/test_crashes.py tests/train/test_group.py \
	tests/train/test_stopping.py
run_live := $(BIN)/python -m tests.support.run_twice $(RESULTS)/integration.xml \
	-n $(JOBS) --dist loadfile --no-loadscope-reorder -m "$(LIVE)"
name_skipped := $(BIN)/python -m tests.support.skipped_tests $(RESULTS)

test: unit smoke ## the quick tests and some of the others, eight minutes: before each change
	@$(name_skipped)

verify: unit integration ## all tests but the soak, half an hour: what CI runs
	@$(name_skipped)

unit: setup ## the quick tests
	@$(BIN)/pytest -n $(CORES) --dist worksteal -m "not (slow or cluster or browser or soak)" \
		--junitxml=$(RESULTS)/unit.xml $(ARGS)

smoke: setup ## some of those that start servers and processes here
	@$(run_live) $(SMOKE) $(ARGS)

integration: setup ## all that start servers, processes, a cluster or a browser
	@$(run_live) $(ARGS)

soak: setup ## what is too long for every change
	@HYPOTHESIS_PROFILE=soak $(BIN)/pytest -m soak --timeout 14400 \
		--junitxml=.laxity/soak/soak.xml $(ARGS)

manifest: ## write dist/laxity.yaml, all that a cluster needs: make manifest IMAGE=NAME@sha256:DIGEST
	@[[ "$(IMAGE)" == ?*@sha256:* ]] || { echo 'name the image by its digest: make manifest IMAGE=NAME@sha256:DIGEST' >&2; exit 2; }
	@mkdir -p dist
	@$(KUBECTL) kustomize --load-restrictor LoadRestrictionsNone k8s/manifests/whole \
		| sed 's|image: laxity:latest$$|image: $(IMAGE)|' > dist/laxity.yaml
	@echo "wrote dist/laxity.yaml"

metrics: setup ## sizes, names and imports of the code, beside their goals
	@$(BIN)/python -m tests.metrics $(ARGS)

oracle: setup ## whether a policy decides otherwise than tests/oracle/golden.json
	@$(BIN)/python -W ignore -m tests.oracle $(ARGS)

bench: setup ## decisions per second, on this machine
	@$(BIN)/python -m benchmarks

docs: setup ## build the documentation site into .laxity/site; a broken link ends it
	@$(BIN)/python -W ignore -m tests.site

demo: setup ## train real jobs under deadlines on this machine, two to three minutes
	@$(BIN)/laxity demo

RESOLVE := uv pip compile pyproject.toml --extra all --group dev --universal --python-version 3.11 \
	--no-annotate --quiet --custom-compile-command "make lock"

lock: setup ## resolve constraints.txt and requirements.lock anew from pyproject.toml
	@$(BIN)/$(RESOLVE) --upgrade --output-file constraints.txt
	@$(BIN)/$(RESOLVE) --upgrade --generate-hashes --constraints constraints.txt \
		--output-file requirements.lock

clean: ## remove .venv, local state and caches
	rm -rf $(VENV) .laxity .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache \
		.coverage dist mlruns mlflow.db .dmypy.json
	find benchmarks flows k8s notebooks profiler scheduler tests -name __pycache__ -type d -prune -exec rm -rf {} +
