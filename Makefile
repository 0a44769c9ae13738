# make reproduce   the paper's experiments, ours beside the paper's, and a page: report/index.html
# make test        the tests, reduced counts, two workers
PY ?= python3
VENV := .venv
BIN := $(VENV)/bin
SHARE ?= 4
STAMP := $(VENV)/.installed

.PHONY: setup test reproduce prove prove-tests prove-attack prove-programs prove-exports-1 prove-exports-2 prove-memory prove-report \
	mutants bench docs lint oldest newest clean

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

# the tests on the oldest torch that pyproject.toml claims and on the newest one, each in an environment of its own; beside
# the pinned version a wheel may bring gigabytes, so these are not part of make test
OLDEST := $(shell sed -n 's/^dependencies.*"torch>=\([0-9.]*\)".*/\1/p' pyproject.toml)
NEWEST := 2.15.0
oldest: TORCH := $(OLDEST)
newest: TORCH := $(NEWEST)

oldest newest:
	$(PY) -m venv .venv-$@
	grep -vE '^(torch|sympy|filelock|fsspec|networkx)==' constraints.txt > .venv-$@/constraints.txt  # torch's own needs differ
	.venv-$@/bin/python -m pip install --quiet --disable-pip-version-check -c .venv-$@/constraints.txt torch==$(TORCH) -e ".[dev]"
	OMP_NUM_THREADS=1 .venv-$@/bin/python -m pytest -q -n 2 --dist loadgroup

# the full counts of every claim in parts, each under an hour; the figures as JSON in results/
#   make prove PART=programs   one part;   make prove   all of them
PART ?= tests attack programs exports-1 exports-2 memory report
ATTACK := tests/compression/test_compress_attack.py
HOSTILE := tests/cli/test_interrupts.py \
	$(addprefix tests/test_,hostile_files.py writing.py threads.py kills.py formulas.py rescaling_range.py)
PROVE = OMP_NUM_THREADS=1 RADNET_COUNTS=full $(BIN)/python -m pytest -q -n 2 --dist loadgroup --evidence results/$@.json

prove: setup
	mkdir -p results
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev,transformers]"
	$(MAKE) $(addprefix prove-,$(PART))

prove-tests:
	$(PROVE) $(addprefix --ignore ,$(ATTACK) $(HOSTILE))

# threads, files, processes, hostile input
prove-attack:
	$(PROVE) $(HOSTILE)

prove-programs:
	$(PROVE) $(ATTACK) -k "not fx_cannot_follow"

prove-exports-1:
	$(PROVE) $(ATTACK) -k "fx_cannot_follow and ([0] or [1] or [2] or [3] or [4])"

prove-exports-2:
	$(PROVE) $(ATTACK) -k "fx_cannot_follow and ([5] or [6] or [7] or [8] or [9])"

prove-memory:
	$(BIN)/python benchmarks/memory.py --json results/memory.json
	$(BIN)/python benchmarks/streaming.py --json results/streaming.json

prove-report:
	$(BIN)/radnet reproduce --force --out results/report

mutants: setup
	$(BIN)/python tools/mutants.py --share $(SHARE)

bench: setup
	mkdir -p results
	$(BIN)/radnet bench --out results/bench
	$(BIN)/python benchmarks/ensemble.py --json results/ensemble.json
	$(BIN)/python benchmarks/depth.py --json results/depth.json
	$(BIN)/python benchmarks/columns.py --json results/columns.json
	$(BIN)/python benchmarks/nothing_to_gain.py --json results/nothing_to_gain.json
	$(BIN)/python benchmarks/c_header.py --json results/c_header.json
	$(BIN)/python benchmarks/onnx_graphs.py --json results/onnx_graphs.json
	$(BIN)/python benchmarks/estimators.py --json results/estimators.json
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt torch-pruning
	$(BIN)/python benchmarks/pruning.py --json results/pruning.json
	$(BIN)/python benchmarks/memory.py --json results/memory.json

docs: setup
	$(BIN)/python -m sphinx -q -W --keep-going -b html docs docs/_build/html
	@command -v chromedriver >/dev/null || echo "no chromium: nobody looked at the pages (clipped, faint, scrolling)"
	@test -e $(VENV)/axe || echo "no axe-core: nobody checked the pages for accessibility (npm install --prefix $(VENV)/axe axe-core)"

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

clean:
	rm -rf $(VENV) .venv-oldest .venv-newest docs/_build results report mutants .hypothesis
