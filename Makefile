# Every target sets up .venv by itself; nothing happens when pyproject.toml and constraints.txt are unchanged.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed

.PHONY: demo test test-all check bench format docs clean

demo: $(STAMP)
	$(BIN)/reviser trajectory make "It was a quiet morning in the harbour. The boats lay still, and the gulls were asleep on the roofs." --order runs --seed 4 | $(BIN)/reviser trajectory show -

test: $(STAMP)
	$(BIN)/python -m pytest

test-all: $(STAMP)
	$(BIN)/python -m pytest -m ""

check: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(STAMP)
	$(BIN)/reviser bench trajectories

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(STAMP)
	$(BIN)/python -m reviser.cli.reference > docs/cli.md

clean:
	rm -rf .venv

$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[train,eval,dev]"
	touch $(STAMP)
