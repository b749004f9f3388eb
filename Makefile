# Every target sets up .venv by itself; nothing happens when pyproject.toml and constraints.txt are unchanged.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed
TEST_STAMP := .venv/.installed-for-tests
# Not in constraints.txt: torch for CUDA brings the Triton it was built with.
TRITON := triton==3.9.0

.PHONY: demo test test-all check bench format docs samples clean

# A terminal shows the canvas while it is edited; elsewhere every action is a line.
demo: $(STAMP)
	@mkdir -p build
	$(BIN)/reviser generate "The old lighthouse" --seed 144 --keep-moves --live \
		--out build/demo.jsonl --html build/demo.html
	@test -t 1 || $(BIN)/reviser trajectory show build/demo.jsonl
	@echo "build/demo.html replays it; more: $(BIN)/reviser infill 'The old lighthouse ___ until morning.' --live"

test: $(TEST_STAMP)
	$(BIN)/python -m pytest

# Pages are tested in Chromium, from Debian's packages where this user may install them.
test-all: $(TEST_STAMP)
	command -v chromium || command -v chromium-browser || command -v google-chrome || { \
		test "$$(id -u)" = 0 && command -v apt-get && apt-get update --quiet && \
		DEBIAN_FRONTEND=noninteractive apt-get install --yes --quiet chromium; } || \
		echo "no Chromium, so pages are not tested; install it from your system's packages"
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
	$(BIN)/python tools/make_cli_reference.py > docs/cli.md

samples: $(STAMP)
	$(BIN)/python tools/make_samples.py > docs/samples.md

clean:
	rm -rf .venv

$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[train,dev]"
	touch $(STAMP)

# Evaluation's packages; and the GPU's kernels are tested in Triton's interpreter, which is made for Linux.
$(TEST_STAMP): $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[train,eval,dev]"
	test "$$(uname)" != Linux || $(BIN)/python -c "import triton" 2> /dev/null || \
		$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt "$(TRITON)"
	touch $(TEST_STAMP)
