# Verbs of the project. Each sets up what it needs in `.venv`; `make` alone lists them.

PYTHON ?= python3
TASK ?= pitch
VARIANT ?= s3n_act

# What `.venv` is filled for: `cuda` where an NVIDIA driver answers, else `cpu`.
ifndef ACCELERATOR
ACCELERATOR := $(shell nvidia-smi -L >/dev/null 2>&1 && echo cuda || echo cpu)
endif
ifeq ($(filter cpu cuda,$(ACCELERATOR)),)
$(error ACCELERATOR is "$(ACCELERATOR)"; it can be cpu or cuda)
endif

ifeq ($(CHECKPOINT),)
ifneq ($(filter eval export,$(MAKECMDGOALS)),)
$(error name a checkpoint: make $(filter eval export,$(MAKECMDGOALS)) CHECKPOINT=folder)
endif
endif

VENV := .venv
PY := $(VENV)/bin/python
RUNTIME := $(VENV)/.stamp-runtime
DEV := $(VENV)/.stamp-dev
UV_VERSION := 0.13.9

# Nothing of the user's own Python reaches the environment.
unexport PYTHONPATH PYTHONHOME VIRTUAL_ENV
export PYTHONNOUSERSITE := 1
export PIP_USER := 0
export PIP_DISABLE_PIP_VERSION_CHECK := 1

# True for an environment whose Python still runs, whose last install came to its end, and which
# was made for this folder and accelerator. Any other is made anew.
MADE_FOR := $(ACCELERATOR) $(CURDIR)
VENV_IS_GOOD = $(PY) -c '' 2>/dev/null && [ ! -e $(VENV)/.incomplete ] && \
	[ "$$(cat $(VENV)/.made-for 2>/dev/null)" = '$(MADE_FOR)' ]
ifneq ($(shell { $(VENV_IS_GOOD); } && echo yes),yes)
STALE := stale-venv
endif

CHECK_PYTHON = $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	echo "Python 3.11 or newer is needed, and '$(PYTHON)' is not one: name it with PYTHON=path" >&2; \
	exit 1; }; \
	$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
	echo "'$(PYTHON)' cannot make environments (Debian: apt install python3-venv)" >&2; \
	exit 1; }

# $(1): the locks to install. The locks are complete, so pip has nothing to resolve (--no-deps),
# and bytecode of the few modules that get imported is made on import (--no-compile).
define fill
@{ $(VENV_IS_GOOD); } || { $(CHECK_PYTHON); \
	rm -rf $(VENV) && $(PYTHON) -m venv $(VENV) && \
	printf '%s\n' '$(MADE_FOR)' >$(VENV)/.made-for; }
@echo "Installing $(1) into $(VENV) (a minute or more)"
@touch $(VENV)/.incomplete
@$(PY) -m pip install --quiet --no-deps --no-compile --require-hashes $(addprefix -r ,$(1)) </dev/null
@$(PY) -m pip install --quiet --no-deps --no-build-isolation --editable . </dev/null
@rm $(VENV)/.incomplete
endef

# Hash checking wants each package named once, and one lock already holds the other's packages.
RUNTIME_LOCK := $(if $(filter cuda,$(ACCELERATOR)),requirements-cuda.lock,requirements.lock)

.PHONY: help setup setup-dev train eval export compare validate identify test test-slow test-e2e lint bench bench-gpu lock assets wheel clean
.PHONY: stale-venv
.NOTPARALLEL:
.DEFAULT_GOAL := help

help: ## list the verbs
	@sed -n 's/^\([a-z0-9-]*\):.*## \(.*\)/\1\t\2/p' Makefile | \
		while IFS="$$(printf '\t')" read -r verb text; do printf '  %-10s %s\n' "$$verb" "$$text"; done

$(RUNTIME): pyproject.toml $(RUNTIME_LOCK) $(STALE)
	$(call fill,$(RUNTIME_LOCK))
	@touch $@

$(DEV): pyproject.toml requirements-dev.lock $(RUNTIME_LOCK) $(STALE)
	$(call fill,requirements-dev.lock)
ifeq ($(ACCELERATOR),cuda)
	$(call fill,requirements-cuda.lock)
endif
	@touch $(RUNTIME) $@

setup: $(RUNTIME) ## install what training and evaluation need into .venv

setup-dev: $(DEV) ## install what the tests, checks and benchmarks need too

TRAIN_FLAGS = --task '$(TASK)' --variant '$(VARIANT)' \
	$(if $(INJECTION),--injection '$(INJECTION)') $(if $(PRESET),--preset '$(PRESET)') \
	$(if $(ROBOT),--robot '$(ROBOT)') $(if $(SEED),--seed '$(SEED)') $(ARGS)

train: $(RUNTIME) ## train: TASK=pitch VARIANT=s3n_act INJECTION=qfrc_applied PRESET= ROBOT= SEED= ARGS=
	$(PY) -m s3n_mjx.train $(strip $(TRAIN_FLAGS))

eval: $(RUNTIME) ## evaluate a trained policy: CHECKPOINT=folder ARGS=
	$(PY) -m s3n_mjx.eval --checkpoint '$(CHECKPOINT)' $(ARGS)

export: $(RUNTIME) ## write a trained policy as ONNX, with a controller: CHECKPOINT=folder ARGS=
	$(PY) -m s3n_mjx.export --checkpoint '$(CHECKPOINT)' $(ARGS)

validate: $(RUNTIME) ## compare the legs' dynamics with the closed chain: ROBOT= ARGS=
	$(PY) -m s3n_mjx.validate $(if $(ROBOT),--robot '$(ROBOT)') $(ARGS)

compare: $(RUNTIME) ## train all methods and compare their gaps: TASK=pitch PRESET= ROBOT= ARGS=
	$(PY) -m s3n_mjx.compare --task '$(TASK)' $(if $(PRESET),--preset '$(PRESET)') \
		$(if $(ROBOT),--robot '$(ROBOT)') $(ARGS)

identify: $(RUNTIME) ## identify motors and a leg of the stand-in, and validate the result: ROBOT= ARGS=
	$(PY) -m s3n_mjx.identify loop $(if $(ROBOT),--robot '$(ROBOT)') $(ARGS)

test: $(DEV) ## run the tests
	$(PY) -m pytest $(ARGS)

test-slow: $(DEV) ## run the checks that take minutes
	$(PY) -m pytest -m slow $(ARGS)

test-e2e: $(DEV) ## run the checks that train for real
	$(PY) -m pytest -m e2e $(ARGS)

lint: $(DEV) ## check style, format and types
	$(PY) -m ruff check
	$(PY) -m ruff format --check
	$(PY) -m pyright

bench: $(DEV) ## measure speed: ARGS=
	$(PY) -m benchmarks.run $(ARGS)

bench-gpu: $(DEV) ## measure speed, memory and training on an accelerator: ARGS=
	$(PY) -m benchmarks.gpu $(ARGS)

assets: $(RUNTIME) ## generate the bundled robot anew
	$(PY) -m s3n_mjx.robot.generate $(ARGS)

wheel: $(RUNTIME) ## build the wheel into dist/
	$(PY) -m hatchling build --target wheel --directory dist

# The first lock gives the other two their versions, so that all three agree.
COMPILE = UV_CUSTOM_COMPILE_COMMAND='make lock' "$$tools/bin/uv" pip compile --quiet \
	pyproject.toml --group build --universal --python-version 3.11 --fork-strategy fewest \
	--generate-hashes --strip-extras --no-annotate --no-emit-index-url --no-emit-find-links

lock: ## make the locks anew from pyproject.toml: ARGS=--upgrade for newer versions
	@{ $(CHECK_PYTHON); }; tools=$$(mktemp -d) && trap 'rm -rf "$$tools"' EXIT && set -e; \
	$(PYTHON) -m venv "$$tools"; \
	"$$tools/bin/python" -m pip install --quiet uv==$(UV_VERSION); \
	$(COMPILE) $(ARGS) -o requirements.lock; \
	$(COMPILE) $(ARGS) -c requirements.lock --extra dev --extra bench -o requirements-dev.lock; \
	$(COMPILE) $(ARGS) -c requirements.lock --extra cuda -o requirements-cuda.lock

clean: ## remove .venv, dist/ and caches; keeps runs/
	rm -rf $(VENV) dist .pytest_cache .ruff_cache .hypothesis
	find . -name .git -prune -o -type d -name __pycache__ -prune -exec rm -rf {} +
