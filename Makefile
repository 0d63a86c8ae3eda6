# To learn: make learner && make lab. To see that all works: `make course` runs every notebook and builds the
# book, `make test` tests everything.
# Needs Python 3.11 or newer (on Debian and Ubuntu with python3-venv), git and make; all else comes into .venv.

PYTHON ?= python3
TIER ?= lesson
VENV := .venv
BIN := $(VENV)/bin
# Tests run two at a time, one thread each. COVERAGE=1 also measures which lines the unit tests run.
PYTEST := $(BIN)/python -m pytest -n 2
COVERAGE ?=
# Where this is set, every process would compile PyTorch and the rest anew, for eight seconds.
unexport PYTHONDONTWRITEBYTECODE
# In any locale, files are read and written as they were here.
export PYTHONUTF8 := 1
# What `make grade` grades, where the tables go, and options of `course grade`, such as OPTIONS='--jobs 4'.
HANDED ?= hand-ins
GRADES ?= grades
OPTIONS ?=
CONTAINER ?= $(shell command -v podman || command -v docker)
# Which mutants to try, such as MUTANTS='vsecore.similarity.*'; trying all takes more than an hour.
MUTANTS ?=
# Where the spelling is checked.
SPELLED := README.md CONTRIBUTING.md book notebooks/text notebooks/course vsecore tests
INSTALLED := $(VENV)/.installed
# Which PyTorch: "cuda", as the package registry has it, or "cpu", without NVIDIA's libraries. The stamp remembers.
HAS := $(or $(shell cat $(INSTALLED) 2>/dev/null),cuda)
TORCH ?= $(HAS)
# The two builds have the same version, so that one would be taken for the other.
EXCHANGE := $(if $(filter $(TORCH),$(HAS)),,--reinstall-package torch --reinstall-package torchvision)

.PHONY: help course test lint units notebooks book browser pages pdf lab learner grade evidence format lock mutants processors clean other-torch

help:  ## Show these commands.
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' Makefile

ifneq ($(TORCH),$(HAS))
$(INSTALLED): other-torch
other-torch: ;
endif

$(INSTALLED): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Python 3.11 or newer is needed; name one with: make PYTHON=/path/to/python3.11"; exit 1; }
	@case $(TORCH) in cuda|cpu) ;; *) echo "TORCH is $(TORCH): it must be cuda or cpu"; exit 1;; esac
	@echo "== Setting up $(VENV): about $(if $(filter cpu,$(TORCH)),2 GB,6 GB, most of it PyTorch with its CUDA libraries)"
	@rm -f $@
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check uv
ifeq ($(TORCH),cpu)
	$(BIN)/python .ci/without_cuda.py requirements.lock > $(VENV)/requirements-cpu.txt
	$(BIN)/uv pip sync --python $(BIN)/python $(EXCHANGE) --torch-backend cpu $(VENV)/requirements-cpu.txt
else
	$(BIN)/uv pip sync --python $(BIN)/python $(EXCHANGE) requirements.lock
endif
	$(BIN)/uv pip install --python $(BIN)/python --no-deps --no-build-isolation --editable .
	@echo $(TORCH) > $@

course: $(INSTALLED)  ## Run every notebook, then build the book (TIER=smoke for a quick look).
	$(BIN)/python -m course course --tier $(TIER)

test: $(INSTALLED)  ## Linters, unit tests, the stored notebooks, the book page by page in a browser.
	@$(MAKE) --no-print-directory --jobs 2 lint book  # each has work for one core
	@cache=$$(mktemp -d) && trap 'rm -rf "$$cache"' EXIT && \
	  VSECORE_TEST_CACHE=$$cache $(MAKE) --no-print-directory units notebooks pages
	@echo "== All tests passed."

lint: $(INSTALLED)  ## Style, spelling, types and the floors of the package.
	@echo "== Linters: style, spelling, types, floors of the house"
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/codespell $(SPELLED)
	$(BIN)/mypy
	$(BIN)/lint-imports

units: $(INSTALLED)  ## The unit tests (COVERAGE=1 also measures coverage).
	@echo "== Unit tests"
	$(PYTEST) tests -m "not browser" --durations=25 $(if $(COVERAGE),--cov --cov-fail-under=90)

notebooks: $(INSTALLED)
	@echo "== Stored notebooks: every cell run again, every output compared"
	$(PYTEST) --dist loadfile --no-loadscope-reorder --nbval notebooks -p no:cacheprovider

book: $(INSTALLED)  ## Build the book from the stored notebooks.
	@echo "== The book, warnings as errors"
	$(BIN)/python -m course book

browser: book
	@$(MAKE) --no-print-directory pages

pages: $(INSTALLED)
	@echo "== Every page of the book in a browser with the network cut, where a Chromium is installed"
	$(PYTEST) tests/test_browser.py

pdf: $(INSTALLED)  ## Build the book and print it as one PDF; needs Chromium.
	$(BIN)/python -m course book --pdf

lab: $(INSTALLED)  ## Open your copies of the notebooks in JupyterLab.
	$(BIN)/python -m course lab

learner: $(INSTALLED)  ## Write notebooks to complete into build/learner.
	$(BIN)/python -m course learner

grade:  ## Grade HANDED=hand-ins in a container; the tables go to GRADES=grades.
	@test -n "$(CONTAINER)" || { echo "Podman or Docker is needed: learners' code is run"; exit 1; }
	@test -d "$(HANDED)" || { echo "There is no folder $(HANDED): make grade HANDED=the-folder"; exit 1; }
	$(CONTAINER) build --tag vse-grade --file Containerfile .
	@mkdir -p "$(GRADES)"
	$(CONTAINER) run --rm --network none --read-only --cap-drop ALL \
	  --security-opt no-new-privileges --security-opt label=disable \
	  --user "$$(id -u):$$(id -g)" $(if $(findstring podman,$(CONTAINER)),--userns keep-id) \
	  --memory 8g --pids-limit 512 --tmpfs /tmp:size=4g,mode=1777 --shm-size 256m \
	  --env HOME=/tmp --mount type=volume,source=vse-grade-cache,target=/cache \
	  --mount type=bind,source="$(CURDIR)",target=/course,readonly \
	  --mount type=tmpfs,target=/course/tests \
	  --mount type=bind,source="$$(realpath "$(HANDED)")",target=/handed,readonly \
	  --mount type=bind,source="$$(realpath "$(GRADES)")",target=/grades \
	  vse-grade $(OPTIONS)

evidence: $(INSTALLED)  ## Train what the claims still lack, the cheapest first, until you stop it.
	$(BIN)/vse experiment --missing

format: $(INSTALLED)  ## Put code in the house style.
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

lock: $(INSTALLED)  ## Write requirements.lock anew from pyproject.toml.
	$(BIN)/uv pip compile --universal --generate-hashes --upgrade --all-extras \
	  --custom-compile-command "make lock" pyproject.toml -o requirements.lock

mutants: $(INSTALLED)  ## Break the code in one place at a time, and list what no test notices.
	@$(BIN)/python -c 'import mutmut' || { echo "Install it first: $(BIN)/python -m pip install mutmut"; exit 1; }
	OMP_NUM_THREADS=1 $(BIN)/python -m mutmut run --max-children 2 $(MUTANTS)

processors: $(INSTALLED)  ## Run the stored notebooks as other processors would (two hours).
	$(BIN)/python tests/processors.py

clean:  ## Remove what was built (not the environment, the cache, nor what learners work in).
	rm -rf book/_build mutants
	test ! -d build || find build -mindepth 1 -maxdepth 1 ! -name 'learner*' -exec rm -rf {} +
