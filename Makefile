# Every target makes its own environment in .venv first; `make test` on a fresh machine is enough.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed
# One worker more than cores, because some tests wait for processes or a browser.
WORKERS ?= 3
# One thread a process: the work is many small batches, and two pools on the same cores slow each other down.
export OMP_NUM_THREADS ?= 1

comma := ,
EXTRAS := mjx,sysid,io,video,viser,lab,rl,onnx,scale,docs,dev
PYTEST := $(BIN)/python -m pytest -q -n $(WORKERS) --dist loadfile --no-loadscope-reorder

.PHONY: setup demo test test-all test-cpus test-lowest test-load fuzz format check docs bench

setup: $(STAMP)

# One pass of the resolver: constraints.txt pins one torch, so that no other package asks for another build.
$(STAMP): pyproject.toml constraints.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@echo "setting up .venv: about 3 GB of packages, some minutes; what pip says is in .venv/install.log"
	@$(BIN)/python tools/install.py .venv/install.log -c constraints.txt -e ".[$(EXTRAS)]"
	@touch $(STAMP)

demo: $(STAMP)
	$(BIN)/clashsim demo -o runs/demo --overwrite

# The tests of a file stay on one worker of pytest, because they share what takes seconds to make.
test: $(STAMP)
	$(PYTEST) -m "not slow"

test-all: $(STAMP)
	$(PYTEST)

# The tests as other CPUs would run them: XLA, torch, MKL, oneDNN, OpenBLAS and numpy are told to use older instructions.
AVX2 := XLA_FLAGS=--xla_cpu_max_isa=AVX2 ATEN_CPU_CAPABILITY=avx2 ONEDNN_MAX_CPU_ISA=AVX2 MKL_ENABLE_INSTRUCTIONS=AVX2 OPENBLAS_CORETYPE=Haswell NPY_DISABLE_CPU_FEATURES=X86_V4,AVX512_ICL,AVX512_SPR
SSE42 := XLA_FLAGS=--xla_cpu_max_isa=SSE4_2 ATEN_CPU_CAPABILITY=default ONEDNN_MAX_CPU_ISA=SSE41 MKL_ENABLE_INSTRUCTIONS=SSE4_2 OPENBLAS_CORETYPE=Nehalem NPY_DISABLE_CPU_FEATURES=X86_V3,X86_V4,AVX512_ICL,AVX512_SPR
test-cpus: $(STAMP)
	env $(AVX2) $(PYTEST) -m "not slow"
	env $(SSE42) $(PYTEST) -m "not slow"

# Five runs beside two busy loops: no test may depend on the speed of the machine.
test-load: $(STAMP)
	for run in 1 2 3 4 5; do $(BIN)/python tools/under_load.py --busy 2 -- $(PYTEST) -m "not slow" || exit 1; done

# The lowest versions that pyproject.toml claims, in an environment of their own.
LOWEST := .venv-lowest
LOWEST_STAMP := $(LOWEST)/.installed
$(LOWEST_STAMP): pyproject.toml tools/lowest_versions.py $(STAMP)
	@test -x $(LOWEST)/bin/python || $(PYTHON) -m venv $(LOWEST)
	@$(BIN)/python tools/lowest_versions.py > $(LOWEST)/constraints.txt
	@echo "setting up $(LOWEST) with the lowest versions of all dependencies"
	@$(LOWEST)/bin/python tools/install.py $(LOWEST)/install.log --prefer-binary -c $(LOWEST)/constraints.txt -e ".[$(subst docs$(comma),,$(EXTRAS))]"
	@touch $(LOWEST_STAMP)

# The tests that reach each dependency: storage, fits, every log format, training, the viewer, MJX, commands.
LOWEST_TESTS := $(addprefix tests/test_,store.py fit.py contact_solver.py logs.py logs_bad.py push.py device.py view_access.py page.py path.py scene.py cli.py impact_files.py mjx_striker.py graph.py trial_files.py)
test-lowest: $(LOWEST_STAMP)
	$(LOWEST)/bin/python -m pytest -q -n $(WORKERS) --dist loadfile -m "not slow" $(LOWEST_TESTS)

# Mutated files of every kind that clashsim reads: each must be read, or refused in one sentence. Another seed makes other cases.
FUZZ_CASES ?= 20000
FUZZ_SECONDS ?= 900
FUZZ_SEED ?= 0
fuzz: $(STAMP)
	PYTHONPATH=tests $(BIN)/python -m fuzz --cases $(FUZZ_CASES) --seconds $(FUZZ_SECONDS) --seed $(FUZZ_SEED) --workers $(WORKERS)

# Into build/site, to be opened without a server; a warning is an error. Material speaks of its successor at every build, unless told not to.
docs: $(STAMP)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

CODE := src tests tools examples
format: $(STAMP)
	$(BIN)/ruff check --fix-only --quiet $(CODE)
	$(BIN)/ruff format $(CODE)

check: $(STAMP)
	$(BIN)/ruff format --check $(CODE)
	$(BIN)/ruff check $(CODE)
	$(BIN)/mypy

bench: $(STAMP)
	mkdir -p runs
	$(BIN)/clashsim bench real-impacts --json runs/real-impacts.json
	$(BIN)/clashsim bench sampling --json runs/sampling.json
	$(BIN)/clashsim bench base --json runs/base.json
