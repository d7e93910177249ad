# `make demo` and `make test` do their whole set-up on a fresh machine with Python 3.11 and make.
PYTHON ?= python3.11
PYTHON := $(shell command -v $(PYTHON) 2>/dev/null || command -v python3)
BIN := .venv/bin
export OMP_NUM_THREADS ?= 1

.PHONY: demo demo-flower docs test test-slow check bench bench-engine bench-push bench-tip bench-flower clean setup

setup: .venv/ready

.venv/ready: pyproject.toml constraints.txt
	$(PYTHON) -c "import sys; sys.exit('vitrail needs Python 3.11 or newer') if sys.version_info < (3, 11) else None"
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt torch
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[pretrained,dicom,onnx,privacy,flower,live,frames,loggers,docs,dev]"
	touch .venv/ready

demo: .venv/ready
	@$(BIN)/python examples/demo.py

demo-flower: .venv/ready
	@$(BIN)/python examples/flower_demo.py

docs: .venv/ready
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --site-dir build/docs/$(shell sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)

test: .venv/ready
	$(BIN)/python -m pytest -n 3 --dist worksteal -m "not very_slow"

test-slow: .venv/ready
	$(BIN)/python -m pytest -n 2 --dist worksteal -m very_slow

check: .venv/ready
	$(BIN)/ruff format --check src tests examples benchmarks experiments
	$(BIN)/ruff check src tests examples benchmarks experiments
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: .venv/ready benchmarks/.peers
	$(BIN)/python benchmarks/page.py

bench-engine: .venv/ready benchmarks/.peers
	$(BIN)/python benchmarks/engine.py
	$(BIN)/python benchmarks/features.py
	$(BIN)/python benchmarks/memory.py

bench-push: .venv/ready
	$(BIN)/python benchmarks/push.py

bench-tip: .venv/ready
	$(BIN)/python benchmarks/tip.py

bench-flower: .venv/ready
	$(BIN)/python benchmarks/flower_overhead.py

benchmarks/.peers:
	PYTHON=$(PYTHON) sh benchmarks/peers/setup.sh

clean:
	rm -rf .venv benchmarks/.peers .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
