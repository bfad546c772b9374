# Commands for people and for CI. `make help` lists them.
PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/ready
PREFECT_PORT ?= 4200
MLFLOW_PORT ?= 5000

export PREFECT_SERVER_ANALYTICS_ENABLED := false
export MLFLOW_DISABLE_TELEMETRY := true
export DO_NOT_TRACK := true
export DVC_NO_ANALYTICS := 1

.PHONY: help venv run serve test test-system screenshots bench check hooks format clean

help:  ## list the commands
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

venv: $(READY)  ## make .venv from the lock file

$(READY): requirements.lock
	@test ! -L $(VENV) || { echo "$(VENV) is a link: it is not made anew" >&2; exit 1; }
	$(PYTHON) -m venv --clear $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check torch==2.13.0 -r requirements.lock
	touch $@

run: venv  ## run the main job on the shipped data set, everything embedded
	@$(BIN)/python -m flows.retraining

serve: venv  ## start Prefect's server, a worker and MLflow's UI on loopback; PREFECT_PORT and MLFLOW_PORT choose ports
	@$(BIN)/python -m flows.serve --prefect-port $(PREFECT_PORT) --mlflow-port $(MLFLOW_PORT)

test: venv  ## run the tests that need Python, git and make only
	$(BIN)/python -m pytest -n 2

bench: venv  ## measure the claims against their peers: all, or ONLY=operations
	@$(BIN)/python -m benchmarks.run $(ONLY)

test-system: venv  ## install the system programs that are missing and run the tests that need them
	sh tests/system/install.sh
	$(BIN)/python -m pytest -m system tests/system

screenshots: venv  ## take the pictures in docs/ again
	sh tests/system/install.sh
	SCREENSHOTS=docs $(BIN)/python -m pytest -m system tests/system -k picture --basetemp=/tmp/retraining-pictures

check: venv  ## format, lint, types and import direction
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

hooks: venv  ## check the same before each commit
	$(BIN)/pre-commit install

format: venv  ## format and fix what can be fixed
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:  ## remove what runs have left behind, except MLflow's store
	rm -rf runs state .storage
