# Every target does all the set-up it needs: on a fresh machine, one of them is enough.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: attack test long containers test-containers wheel lint types bench calibrate soak gpu clean

attack: $(READY) ## attack the reference trainer: 4 workers in 2 zones, 3 schedules, and the twin
	$(BIN)/chaosspot attack spot-notice sudden-kill zone-loss --nodes 4

test: $(READY) ## all tests but those that have a target of their own: long, wheel, gpu
	$(BIN)/python -m pytest -n 4 --dist worksteal -m 'not long and not wheel and not soak and not containers'

long: $(READY) ## whole attacks on all trainers, real clients, and all of it from the wheel
	$(BIN)/python -m pytest -n 6 --dist loadgroup -m '(long or conformance or parity or wheel) and not soak and not containers' tests suites

containers: $(READY) ## nodes as containers; installs and starts a Docker daemon if none answers
	.ci/with-docker $(BIN)/python -m pytest -m 'containers and not soak' tests

test-containers: $(READY) ## the same and all that takes long: the whole catalogue, in containers
	.ci/with-docker $(BIN)/python -m pytest -m containers tests
	.ci/with-docker $(BIN)/python -m pytest suites/test_catalogue.py --trainer reference --cluster containers

wheel: $(READY) ## the wheel, built and used in an empty environment
	$(BIN)/python -m pytest -m wheel

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

types: $(READY)
	$(BIN)/mypy

bench: $(READY) ## what harness and snapshots cost, by turns with the machine's own limits
	$(BIN)/python suites/bench/overhead.py
	$(BIN)/python suites/bench/snapshot.py
	$(BIN)/python suites/bench/stall.py
	$(BIN)/python suites/bench/deadline.py
	$(BIN)/python suites/bench/restore.py

calibrate: $(READY) ## sensitivity and false alarms of the oracles: 10 attacks on each sick trainer
	$(BIN)/python suites/bench/calibrate.py
	$(BIN)/python suites/bench/explore.py

gpu: $(READY) ## the tests that need a CUDA device, with their figures; skipped without one
	$(BIN)/python -m pytest -m gpu tests/trainer/test_trainer_gpu.py --durations 5

soak: $(READY) ## what CI has no time for: more kills of the harness, sudden-kill 20 times, and more
	$(BIN)/python -m pytest -n 4 -m 'soak and not containers' tests
	.ci/with-docker $(BIN)/python -m pytest -m 'soak and containers' tests
	$(BIN)/chaosspot attack sudden-kill --repeat 20 --seed 1
	$(BIN)/chaosspot attack spot-notice --repeat 10 --seed 1

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	@touch $@

clean:
	rm -rf $(VENV) runs .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
