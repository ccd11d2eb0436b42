# Every target makes its own environment in .venv first; `make test` on a fresh machine is enough.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed
WORKERS ?= 2
# One thread a process: the work is many small batches, and two pools on the same cores slow each other down.
export OMP_NUM_THREADS ?= 1

.PHONY: setup demo test test-all check docs bench

setup: $(STAMP)

# One pass of the resolver: constraints.txt pins the torch that has a CPU build, so that no other package pulls CUDA.
$(STAMP): pyproject.toml constraints.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@echo "setting up .venv: about 3 GB of packages, some minutes; what pip says is in .venv/install.log"
	@$(BIN)/python tools/install.py .venv/install.log -c constraints.txt -e ".[mjx,sysid,io,viz,viser,lab,rl,graph,scale,docs,dev]"
	@touch $(STAMP)

demo: $(STAMP)
	$(BIN)/clashsim demo -o runs/demo --overwrite

# Tests of one group stay on one worker of pytest: those on Ray share a cluster.
test: $(STAMP)
	$(BIN)/python -m pytest -q -n $(WORKERS) --dist loadgroup -m "not slow"

test-all: $(STAMP)
	$(BIN)/python -m pytest -q -n $(WORKERS) --dist loadgroup

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
