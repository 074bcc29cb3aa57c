# Every target works as the first command on a machine with Python 3.11 or newer, pip and make:
# it sets up .venv from requirements.lock once and then does its work.
#
# Neither uv, nor ensurepip (Debian's python3-venv), nor git, nor a writable home directory is needed: the
# environment is made without pip, and the pip of $(PYTHON) installs into it.

PYTHON ?= python3
BIN := .venv/bin

# A setting that would send the packages elsewhere than into .venv.
unexport PIP_USER PIP_TARGET PIP_PREFIX PIP_ROOT PYTHONHOME PYTHONPATH

# The stamps say which steps were completed. They hold the folder's path, because the scripts in .venv do too:
# an environment that was moved, or whose Python is gone, is recreated.
DEPENDENCIES := .venv/.dependencies-installed
PROJECT := .venv/.project-installed
ifneq ($(shell $(BIN)/python -c '' 2>/dev/null && cat $(DEPENDENCIES) 2>/dev/null),$(CURDIR))
$(shell rm -f $(DEPENDENCIES) $(PROJECT))
endif

# How many processes run the tests; tests/conftest.py says how many by default, and sees to the order. Each one
# that meets a live test starts a control plane (about 1 GB).
WORKERS ?=
# After a crash of a worker, loadfile and loadgroup would hang.
SHARED := --dist worksteal
# The rooms whose tests start programs, or run whole commands: the fast suite leaves them out.
BESIDE_THE_ENGINE := agents attacks cli conformance control_plane controllers deploy discovery docs kube measurements

PIP_INSTALL := $(PYTHON) -m pip --python $(BIN)/python --disable-pip-version-check install --quiet
# The oldest supported Kubernetes beside that of the tests, and the live tests in which a version may matter: those of
# what is installed, and of what the scheduler and the controllers write.
VERSIONS := 1.34
ON_EACH_VERSION := tests/deploy tests/agents/test_live_agent.py \
    $(addprefix tests/attacks/,test_stolen_tokens.py test_stolen_tokens_of_gates.py) \
    $(addprefix tests/controllers/,test_pod_grouper_live.py test_live_app_groups.py test_live_statuses.py) \
    $(addprefix tests/kube/,test_control_plane.py test_discovery.py test_reflector.py test_writer.py test_events.py \
    test_live_scheduler.py test_live_gangs.py test_live_gates.py test_live_preemption.py test_live_volume_binding.py)
# What tests say about the sources themselves.
LAYOUT := tests/test_names.py tests/objects/test_one_place.py tests/docs/test_architecture.py tests/docs/test_budgets.py

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help install demo test fast golden mutants worlds soak kueue versions schemas fields pictures bench benchlive benchkueue conformance cluster lint format lock clean

help:  ## Say what there is to make
	@sed -n 's/^\([a-z]*\):.*  ## /  make \1\t/p' $(firstword $(MAKEFILE_LIST)) | expand -t 20

install: $(PROJECT)  ## Make .venv, so that .venv/bin/closeby runs
	@echo 'Ready: .venv/bin/closeby'

demo: $(PROJECT)  ## Place gangs on a synthetic GPU cluster and explain why
	@$(BIN)/closeby demo
	@echo 'Here closeby is $(BIN)/closeby, and docs/examples/tour is a folder of manifests to try it on.'

test: $(PROJECT)  ## Run all tests but the soaks, three workers for two cores
	@$(BIN)/pytest -n $(or $(WORKERS),auto) $(SHARED) -m 'not soak'

fast: $(PROJECT)  ## Run the tests of the engine, reading and reports: nothing live, nothing slow
	@$(BIN)/pytest -n $(or $(WORKERS),logical) $(SHARED) -m 'not (live or slow or soak)' $(addprefix --ignore=tests/,$(BESIDE_THE_ENGINE))

golden: $(PROJECT)  ## Rewrite the golden files (tests/golden) with what the views show now
	@$(BIN)/pytest -q --update-golden

schemas: $(PROJECT)  ## Rewrite the JSON schemas of what commands print (src/closeby/report/schemas)
	@$(BIN)/python -m tests.schemas

# Clones of the projects are made once; a table that did not come out whole replaces none.
CLONES ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/closeby/clones
fields: $(PROJECT)  ## Rewrite the table of fields that API servers know (src/closeby/reading/known_fields.json)
	@mkdir -p $(CLONES) && new=$$(mktemp) && $(BIN)/python -m tests.known_fields $(CLONES) >"$$new" && \
	cat "$$new" >src/closeby/reading/known_fields.json && rm "$$new"

# One run in which nodes are kept free for a job at 7 h, and a comparison.
pictures: $(PROJECT)  ## Redraw the pictures of the documentation (docs/pictures)
	@folder=$$(mktemp -d) && trap 'rm -r "$$folder"' EXIT && \
	$(BIN)/closeby simulate --workload seren --jobs 3000 --plot-at 7h --plot "$$folder" >/dev/null && \
	cp "$$folder/rack-map.svg" "$$folder/fabric.svg" docs/pictures && \
	$(BIN)/closeby compare --config closeby --config slurm-tree --config most-allocated --workload seren \
	    --seeds 3 --plot "$$folder" >/dev/null && \
	cp "$$folder/span.svg" docs/pictures/compare-span.svg && \
	$(BIN)/closeby simulate -f docs/examples/layers --plot "$$folder" >/dev/null && \
	cp "$$folder/rack-map.svg" docs/pictures/segments.svg

soak: $(PROJECT)  ## Run the soaks, one after the other: load, faults and attacks on a real API server
	@$(BIN)/pytest -m soak --ignore=tests/kueue

kueue: $(PROJECT)  ## Run the tests beside a real Kueue, which Go builds once
	@$(BIN)/pytest -m soak tests/kueue

versions: $(PROJECT)  ## Run the live tests that matter on the oldest Kubernetes, which Go builds once
	@for version in $(VERSIONS); do CLOSEBY_TEST_KUBERNETES=$$version \
	    $(BIN)/pytest -n $(or $(WORKERS),auto) $(SHARED) -m 'live and not soak' $(ON_EACH_VERSION) || exit 1; done

mutants: $(PROJECT)  ## Change MODULE in small ways and show what TESTS do not notice
	@$(BIN)/python -m tests.mutants $(MODULE) $(TESTS)

# A tenth of it is a part of the tests.
WORLDS ?= 10000
worlds: $(PROJECT)  ## Judge WORLDS random worlds with all features of gangs crossed
	@$(BIN)/python -m tests.random_worlds check --worlds $(WORLDS)

bench: $(PROJECT)  ## Measure the speed of decisions; prints a table, then JSON
	@$(BIN)/closeby bench --json -

benchlive: $(PROJECT)  ## Measure bindings and preemption on a real API server, beside kube-scheduler
	@$(BIN)/python -m tests.benchmarks.live_cluster
	@$(BIN)/python -m tests.benchmarks.live_preemption

benchkueue: $(PROJECT)  ## Measure Kueue's own search beside closeby's placement; Go builds it once
	@$(BIN)/python -m tests.benchmarks.beside_kueue

conformance: $(PROJECT)  ## Judge random pods by the real kube-scheduler and by closeby, and compare
	@$(BIN)/python -m tests.conformance

cluster: $(PROJECT)  ## Start a real control plane with fake nodes to try things on, until Ctrl-C
	@$(BIN)/python -m tests.control_plane

# The tests of the code's layout read the sources alone; here they say at once what "make test" would say late.
lint: $(PROJECT)  ## Check the format, the code, the types, the layers, the names and the prose
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy
	$(BIN)/lint-imports
	@$(BIN)/python -m tests.prose
	@$(BIN)/pytest -q $(LAYOUT)

format: $(PROJECT)  ## Format the code and fix what the linter can fix
	$(BIN)/ruff format
	$(BIN)/ruff check --fix

# One version of each package for all supported Pythons, with the hashes of its files for all platforms.
# `make lock UPGRADE=--upgrade` takes the newest versions that pyproject.toml allows.
lock: $(PROJECT)  ## Rewrite requirements.lock from pyproject.toml
	$(BIN)/uv pip compile pyproject.toml --group dev --all-extras --universal --python-version 3.11 \
	    --fork-strategy fewest --generate-hashes --custom-compile-command 'make lock' \
	    --quiet $(UPGRADE) --output-file requirements.lock

clean:  ## Remove .venv, the caches and the built packages
	rm -rf .venv build dist .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +

# Written last, so that an interrupted installation starts again.
$(DEPENDENCIES): requirements.lock
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	    echo "closeby needs Python 3.11 or newer, but '$(PYTHON)' is: $$($(PYTHON) --version 2>&1)."; \
	    echo "Name another one: make $(MAKECMDGOALS) PYTHON=python3.12"; exit 1; } >&2
	@$(PYTHON) -c 'import sys, pip; sys.exit(tuple(map(int, pip.__version__.split(".")[:2])) < (22, 3))' 2>/dev/null || { \
	    echo "closeby needs pip 22.3 or newer: $$($(PYTHON) -m pip --version 2>&1)."; \
	    echo "Install it for '$(PYTHON)' (on Debian: apt install python3-pip)."; exit 1; } >&2
	@echo 'Setting up .venv from requirements.lock; this is done once and takes about half a minute.'
	@rm -rf .venv
	@$(PYTHON) -m venv --without-pip .venv
	@$(PIP_INSTALL) --require-hashes --requirement requirements.lock
	@printf '%s' '$(CURDIR)' > $@

$(PROJECT): $(DEPENDENCIES) pyproject.toml
	@$(PIP_INSTALL) --no-deps --no-build-isolation --editable .
# Also where Python is set to write no bytecode, commands then compile nothing when they start.
	@$(BIN)/python -m compileall -q src/closeby
	@touch $@
