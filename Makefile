# Two commands do all the set-up on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed

.PHONY: demo study test test-long lint bench clean

demo: $(INSTALLED)  ## certify the embedded photographs: pictures, votes and a page in out/
	$(BIN)/pixelcert certify --resume --out out
	$(BIN)/pixelcert report out/*-final.safetensors --out out/report.html

study: $(INSTALLED)  ## every method on the embedded model and photographs: votes and tables in out/study/
	test -e out/study.toml || $(BIN)/pixelcert study init out/study.toml
	$(BIN)/pixelcert study run out/study.toml

test: $(INSTALLED)  ## run every test, on all cores
	$(BIN)/python -m pytest -n auto --dist worksteal

test-long: $(INSTALLED)  ## the same with many more kills, mutations and networks
	PIXELCERT_LONG=1 $(BIN)/python -m pytest -n auto --dist worksteal

lint: $(INSTALLED)  ## style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(INSTALLED)  ## time, memory and scaling of every method on this machine, as tables; also in out/bench.md
	mkdir -p out
	$(BIN)/python -m bench | tee out/bench.md

$(INSTALLED): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[demo,dev,adapters,ray]'
	touch $@

clean:
	rm -rf $(VENV) out .pytest_cache .mypy_cache .ruff_cache .hypothesis
