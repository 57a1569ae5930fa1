# `make demo` and `make test` are all that a newcomer needs; CONTRIBUTING.md has the rest.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
WORKERS ?= auto
STRICT := gpuqueue/core gpuqueue/wire gpuqueue/engine gpuqueue/shim gpuqueue/hook gpuqueue/checkpoints gpuqueue/estimate gpuqueue/diagnose

.PHONY: help demo test again fast lint check format crash fuzz test-ml bench lock clean

help:
	@echo "make demo    five stories on a simulated 32 GB card, under 90 seconds"
	@echo "make test    all tests that need nothing but this machine"
	@echo "make check   lint, format, strict types, the house's import rule, the fast tests"
	@echo "make crash   kill daemon and shims at random moments, and count what was lost"
	@echo "make fuzz    10,000 generated requests over the real socket"
	@echo "make test-ml tests with PyTorch and the training frameworks (downloads them)"
	@echo "make bench   ratios: how fast gq starts, how near the estimates are"

$(READY): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "gpuqueue needs Python 3.11 or newer: make PYTHON=python3.12 ..." >&2; exit 2; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	$(BIN)/python -m compileall -q gpuqueue cli  # as pip does for what is not editable: the first gq is as quick as the next
	@touch $@

demo: $(READY)
	$(BIN)/gq demo

test: $(READY)
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -m "not ml and not crash and not fuzz"

again: $(READY)
	$(BIN)/python -m pytest --last-failed --last-failed-no-failures none -m "not ml and not crash and not fuzz"

fast: $(READY)
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -m "not ml and not crash and not fuzz and not e2e and not root"

check: lint fast

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy $(STRICT)
	$(BIN)/lint-imports

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

ROUNDS ?= 200
crash: $(READY)
	$(BIN)/python -m tests.crash --rounds $(ROUNDS)

fuzz: $(READY)
	$(BIN)/python -m pytest -m fuzz

test-ml: $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r tests/requirements-ml.txt
	$(BIN)/python -m pytest -m ml

bench: $(READY)
	$(BIN)/python tests/benchmarks/startup.py

lock: $(READY)
	$(BIN)/python -m pip install --quiet pip-tools
	$(BIN)/pip-compile --quiet --extra dev --generate-hashes --no-emit-index-url --no-emit-options --no-emit-trusted-host \
	  --no-emit-find-links --no-header --annotation-style line --allow-unsafe --strip-extras -o requirements.lock pyproject.toml

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis dist build
