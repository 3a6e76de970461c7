# `make` alone lists the targets.
SHELL := /bin/bash
VENV ?= .venv
BIN := $(VENV)/bin
export VENV
# a process that finds our modules and the libraries compiled starts in a third of the time, and the tests start many
unexport PYTHONDONTWRITEBYTECODE
SEEDS ?= 2000
FROM ?= 0
MINUTES ?= 10
VIEWS ?=
MODULE ?=
SAMPLE ?= 400
SEED ?= 1
CHAPTERS ?=
# one more than the two cores that we plan for: a third of the time tests wait, for timers and processes
WORKERS ?= 3

.DEFAULT_GOAL := help
.PHONY: help setup demo test quick lint types unit faults torture torture-stack bench soak mutants docs wheel newcomer pythons pins clean

help: ## list the targets
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 16

setup: ## prepare .venv with everything, Java included; PYTHON=python3.12 VENV=.venv-3.12 for another interpreter
	@scripts/setup.sh

demo: setup ## run a group under 10% loss, check its trace on Spark, say where the report lies
	@rm -rf out/demo
	@$(BIN)/antiphon simulate --members 5 --ordering causal --messages 200 --loss 0.1 --seed 7 --out out/demo/trace --force
	@$(BIN)/antiphon report out/demo/trace --out out/demo/report.html
	@echo "the trace lies in out/demo/trace; open out/demo/report.html to see what happened"

test: setup lint types unit wheel ## everything that must pass before a change lands

quick: setup ## the unit tests that need neither Spark nor patience
	@$(BIN)/pytest -n $(WORKERS) --dist worksteal -m "not faults and not slow and not spark" tests/unit

pythons: setup ## all tests with every other Python from 3.11 on that this machine has
	@WITH=dev scripts/pythons.sh demo unit

pins: setup ## ask the index whether every pinned version admits every Python that we do
	@$(BIN)/python scripts/check_pins.py --index

lint: setup ## style
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

types: setup ## strict types
	@$(BIN)/mypy

unit: setup ## all tests but those that want the machine to themselves
	@scripts/browser.sh
	@$(BIN)/pytest -n $(WORKERS) --dist worksteal -m "not faults and not alone"
	@$(BIN)/pytest -m "alone and not faults" --reruns 2 --only-rerun TooLate tests/live tests/browser

faults: setup ## kill, stop and cut off live processes
	@$(BIN)/pytest -m faults --reruns 2 --only-rerun TooLate tests/live

torture-stack: setup ## random schedules of applications on whole simulated groups: SEEDS=n FROM=first MINUTES=m
	@$(BIN)/python -m antiphon.testing.torture --seeds $(SEEDS) --from $(FROM) --minutes $(MINUTES)

torture: setup ## random schedules of every protocol: SEEDS=n FROM=first MINUTES=m VIEWS=1 LINKS=1; shrinks what fails
	@$(BIN)/python -m antiphon.sim.torture --seeds $(SEEDS) --from $(FROM) --minutes $(MINUTES) $(if $(VIEWS),--views) $(if $(LINKS),--links)

mutants: setup ## change protocol/ in small ways and see which changes no test notices: MODULE=file SAMPLE=n SEED=n MINUTES=m
	@$(BIN)/python -m bench.mutants --sample $(SAMPLE) --seed $(SEED) --minutes $(MINUTES) $(if $(MODULE),--module $(MODULE))

soak: setup ## a watch through 10,000 restarts, held against a check of the whole trace
	@$(BIN)/python -m bench.pipeline.soak out/soak

bench: setup ## the figures that we publish, measured here
	@$(BIN)/python -m bench

docs: setup ## build the documentation site into out/docs
	@$(BIN)/python -m sphinx -W --keep-going -q -b html -c docs -d out/doctrees . out/docs
	@echo "the site's front page is out/docs/index.html"

wheel: setup ## build the wheel and try it outside the checkout
	@scripts/try-wheel.sh

newcomer: setup ## install the wheel elsewhere, and play chapters 1 to 6 there as they are written, timed: CHAPTERS="1 5"
	@scripts/newcomer.sh $(CHAPTERS)

clean: ## remove what the other targets made
	@rm -rf .venv .venv-* .java out build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
