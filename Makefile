# Every target makes its own environment in .venv first; `make test` on a fresh machine is enough.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed
WORKERS ?= 2
# One thread a process: the work is many small batches, and two pools on the same cores slow each other down.
export OMP_NUM_THREADS ?= 1

.PHONY: setup demo test test-all fuzz check docs bench

setup: $(STAMP)

# torch comes first and pinned, so that no other package pulls a CUDA build.
$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt "torch>=2.11,<=2.13.0"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[mjx,sysid,io,viz,viser,lab,rl,graph,scale,docs,dev]"
	touch $(STAMP)

demo: $(STAMP)
	$(BIN)/clashsim demo -o runs/demo --overwrite

# Tests of one group stay on one worker of pytest: those on Ray share a cluster.
test: $(STAMP)
	$(BIN)/python -m pytest -q -n $(WORKERS) --dist loadgroup -m "not slow"

test-all: $(STAMP)
	$(BIN)/python -m pytest -q -n $(WORKERS) --dist loadgroup

# Mutated files of every kind that clashsim reads: each must be read, or refused in one sentence. Another seed makes other cases.
FUZZ_CASES ?= 20000
FUZZ_SECONDS ?= 900
FUZZ_SEED ?= 0
fuzz: $(STAMP)
	PYTHONPATH=tests $(BIN)/python -m fuzz --cases $(FUZZ_CASES) --seconds $(FUZZ_SECONDS) --seed $(FUZZ_SEED) --workers $(WORKERS)

# Into build/site, to be opened without a server; a warning is an error. Material speaks of its successor at every build, unless told not to.
docs: $(STAMP)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

check: $(STAMP)
	$(BIN)/ruff check src tests
	$(BIN)/mypy

bench: $(STAMP)
	mkdir -p runs
	$(BIN)/clashsim bench real-impacts --json runs/real-impacts.json
	$(BIN)/clashsim bench sampling --json runs/sampling.json
	$(BIN)/clashsim bench base --json runs/base.json
