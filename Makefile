# make reproduce   from a fresh clone to every table and figure of the default study
# make test        lint, formatting, types and the tests
# make test-all    the same with the longest tests, about 10 minutes more
# make weights     train the miniworld's small models anew (an hour or more on 2 cores)
# make lock        pin the newest versions of envs/requirements.in

SHELL := /bin/bash
PYTHON ?= python3
VENV ?= .venv
CORES ?= all
BIN := $(abspath $(VENV))/bin
export PATH := $(BIN):$(PATH)

.PHONY: reproduce test test-all lint weights lock clean
.DEFAULT_GOAL := reproduce

$(VENV)/.installed: envs/requirements.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info[:2] < (3, 11) and "Python 3.11 or newer is needed: make PYTHON=python3.11")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --requirement envs/requirements.txt
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --editable .
	touch $@

reproduce: $(VENV)/.installed
	$(BIN)/snakemake --cores $(CORES)
	@echo "Open results/latest/index.html"

lint: $(VENV)/.installed
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/snakefmt --check Snakefile workflow/rules
	$(BIN)/mypy
	$(BIN)/snakemake --lint

test: $(VENV)/.installed lint
	$(BIN)/pytest --numprocesses auto --dist loadfile --no-loadscope-reorder

test-all: $(VENV)/.installed lint
	$(BIN)/pytest --numprocesses auto --dist loadfile --no-loadscope-reorder -m ""

weights: $(VENV)/.installed
	$(BIN)/python -m subjectbench.miniworld.train --recipe clip --out workflow/weights/mini_clip
	$(BIN)/python -m subjectbench.miniworld.train --recipe hps --init workflow/weights/mini_clip --out workflow/weights/mini_hps
	$(BIN)/python -m subjectbench.miniworld.train --recipe dino --out workflow/weights/mini_dino
	$(BIN)/python -m subjectbench.miniworld.train_diffusion --out workflow/weights/mini_diffusion

lock:
	rm -rf .lock-venv && $(PYTHON) -m venv .lock-venv
	.lock-venv/bin/pip install --quiet --requirement envs/requirements.in
	{ echo "# Made by 'make lock' from requirements.in. The same pins serve CPU and GPU machines: on a"; \
	  echo "# GPU machine pip adds the CUDA libraries that torch itself pins."; \
	  .lock-venv/bin/pip freeze | sed -e 's/+cpu$$//' -e '/^nvidia-/d' -e '/^triton==/d' -e '/^cuda-/d'; } > envs/requirements.txt
	{ echo "# Made by 'make lock'. For conda users, and for snakemake --sdm conda: the pins of requirements.txt."; \
	  printf 'name: subjectbench\nchannels: [conda-forge]\ndependencies:\n  - python=3.11\n  - pip\n  - pip:\n'; \
	  sed -e '/^#/d' -e 's/^/      - /' envs/requirements.txt; } > envs/environment.yaml
	rm -rf .lock-venv

clean:
	rm -rf $(VENV) results logs .snakemake
