# make reproduce   the paper's experiments, ours beside the paper's, and a page: report/index.html
# make test        the tests, reduced counts, two workers
PY ?= python3
VENV := .venv
BIN := $(VENV)/bin
SHARE ?= 4
STAMP := $(VENV)/.installed

.PHONY: setup test reproduce prove mutants bench docs lint clean

setup: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	$(PY) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt torch==2.13.0 numpy
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]"
	touch $(STAMP)

reproduce: setup
	$(BIN)/radnet reproduce

test: setup
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n 2 --dist loadgroup

# the full counts of every claim, the figures as JSON in results/prove.json and results/report/results.json
prove: setup
	mkdir -p results
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev,transformers]"
	OMP_NUM_THREADS=1 RADNET_COUNTS=full $(BIN)/python -m pytest -q -n 2 --dist loadgroup --evidence results/prove.json
	$(BIN)/python benchmarks/memory.py --json results/memory.json
	$(BIN)/radnet reproduce --force --out results/report

mutants: setup
	$(BIN)/python tools/mutants.py --share $(SHARE)

bench: setup
	mkdir -p results
	$(BIN)/python benchmarks/activation.py --json results/activation.json
	$(BIN)/python benchmarks/compression.py --json results/compression.json
	$(BIN)/python benchmarks/ensemble.py --json results/ensemble.json
	$(BIN)/python benchmarks/depth.py --json results/depth.json
	$(BIN)/python benchmarks/columns.py --json results/columns.json
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt torch-pruning
	$(BIN)/python benchmarks/pruning.py --json results/pruning.json
	$(BIN)/python benchmarks/memory.py --json results/memory.json

docs: setup
	$(BIN)/python -m sphinx -q -W --keep-going -b html docs docs/_build/html

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

clean:
	rm -rf $(VENV) docs/_build results report mutants .hypothesis
