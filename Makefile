# Everything is made in .venv; `make clean` removes it.
PYTHON ?= python3
# One exact version, so that an installed or local build of it is taken as it is. On a machine with a GPU the package
# index's build of it uses the GPU; for another build: make TORCH="torch==2.13.0 --index-url ..."
TORCH ?= torch==2.13.0
OLDEST_TORCH ?= torch==2.9.1
# Some tests wait for processes and ports: one more worker than two cores.
WORKERS ?= 3
BIN := .venv/bin
OLDEST := .venv-oldest/bin
NEWEST := .venv-newest/bin
# What is imported is compiled then, once; most of what is installed never is.
INSTALL := -m pip install --quiet --no-compile
WITHOUT_EFLOMAL := "eflomal could not be built, so its test is skipped. It needs a C compiler and the headers of Python."
unexport PYTHONDONTWRITEBYTECODE

.PHONY: quickstart test test-oldest test-newest coverage fuzz lint docs clean

quickstart: .venv/.installed
	$(BIN)/python scripts/quickstart.py --output_dir outputs/quickstart

# A test that needs another one before it shows in another order: make test ORDER=random
ORDER ?= same
IN_ORDER := $(if $(filter random,$(ORDER)),--random-order)
test: .venv/.installed-dev lint
	HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal $(IN_ORDER)

# Which lines of the package no test runs. It takes longer than the tests alone.
coverage: .venv/.installed-dev
	HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal --cov --cov-report term-missing:skip-covered

# Damaged inputs of every kind for so many minutes, and a table of what came of them.
MINUTES ?= 30
fuzz: .venv/.installed-dev
	HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1 $(BIN)/python tests/faults/fuzz.py --minutes $(MINUTES)

lint: .venv/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

# The site, into build/site; a warning is an error. Looks at nothing outside, so it needs no network.
docs: .venv/.installed-dev
	HF_HUB_OFFLINE=1 NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

# The lowest supported versions of what models stand on, which pyproject.toml allows and tests/oldest.txt pins.
test-oldest: .venv-oldest/.installed
	HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1 $(OLDEST)/python -m pytest -n $(WORKERS) --dist worksteal

# The newest of everything that pyproject.toml allows and the package index has, looked up again each time.
test-newest:
	$(PYTHON) -m venv .venv-newest
	$(NEWEST)/python $(INSTALL) --upgrade --upgrade-strategy eager --editable ".[test,docs]"
	$(NEWEST)/python $(INSTALL) --upgrade --editable ".[align]" || echo $(WITHOUT_EFLOMAL)
	$(NEWEST)/python -m pip list
	HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1 $(NEWEST)/python -m pytest -n $(WORKERS) --dist worksteal

.venv/.torch:
	@$(PYTHON) -c "import ensurepip, sys; sys.exit(sys.version_info < (3, 11))" || \
		{ echo "This needs Python 3.11 or newer with venv. Name one: make PYTHON=python3.12"; exit 1; }
	$(PYTHON) -m venv .venv
	$(BIN)/python $(INSTALL) $(TORCH)
	touch $@

.venv/.installed: .venv/.torch pyproject.toml
	$(BIN)/python $(INSTALL) --editable .
	touch $@

# At once for tests and site, for every installation takes its time.
.venv/.installed-dev: .venv/.torch pyproject.toml
	$(BIN)/python $(INSTALL) --editable ".[test,docs]"
	$(BIN)/python $(INSTALL) --editable ".[align]" || echo $(WITHOUT_EFLOMAL)
	touch $@

.venv-oldest/.installed: pyproject.toml tests/oldest.txt
	$(PYTHON) -m venv .venv-oldest
	$(OLDEST)/python $(INSTALL) $(OLDEST_TORCH)
	$(OLDEST)/python $(INSTALL) --requirement tests/oldest.txt --editable ".[test,docs]"
	$(OLDEST)/python $(INSTALL) --requirement tests/oldest.txt --editable ".[align]" || echo $(WITHOUT_EFLOMAL)
	touch $@

clean:
	rm -rf .venv .venv-oldest .venv-newest .cache build *.egg-info
