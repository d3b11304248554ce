# Each target sets up what it needs in $(VENV); `make help` lists the targets.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
BACKENDS := backends/simulated backends/chardev backends/fpga
PROJECTS := pyproject.toml constraints.txt $(BACKENDS:=/pyproject.toml)
MAKEFLAGS += --no-print-directory
unexport PYTHONDONTWRITEBYTECODE  # without bytecode each start of the gateway compiles all of its modules: 0.3 s

.DEFAULT_GOAL := help

.PHONY: help
help:  ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 16

$(VENV)/.run: $(PROJECTS)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and f"Python 3.11 or later is needed, {sys.executable} is {sys.version.split()[0]}; say make PYTHON=/path/to/python3.11")'
	@echo "setting up $(VENV)"
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt -U pip setuptools
	@$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt -e '.[simulator,dra]' $(BACKENDS:%=-e %)
	@touch $@

$(VENV)/.dev: $(VENV)/.run
	@$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt --group dev
	@touch $@

.PHONY: demo
demo: $(VENV)/.run  ## the main job, on an embedded simulated kubelet (about five seconds)
	@$(BIN)/dpgateway demo

.PHONY: test
test: $(VENV)/.dev  ## the tests of the gateway, the simulator and the backends (needs root)
	@$(BIN)/python -m pytest -q -n 8 --dist loadgroup

# What a later Python may do differently: all that runs within one process, and of whole processes how they begin, log,
# read files, hang and end. What lives of nodes prove, under whichever kubelets and fronts, no version of Python changes.
LIVES := $(filter-out %/test_process.py %/test_ending.py %/test_callers.py %/test_last_good.py,$(wildcard tests/end_to_end/test_*.py))
.PHONY: test-python
test-python: $(VENV)/.dev  ## those tests that a version of Python may change: PYTHON=python3.13 VENV=.venv-3.13 (needs root)
	@$(BIN)/python -m pytest -q -n 8 --dist loadgroup $(LIVES:%=--ignore=%) --ignore=tests/scenarios --ignore=tests/docs

.PHONY: lint
lint: $(VENV)/.dev  ## linters, the type checker, the direction of imports, generated code
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy src/dpgateway src/dpgateway_start src/dpgateway_simulator benchmarks tools tests $(BACKENDS:=/src) $(BACKENDS:=/tests)
	@$(BIN)/lint-imports
	@$(BIN)/python tools/regenerate.py --check
	@$(BIN)/python tools/diagram.py --check

.PHONY: test-kubelets
test-kubelets: $(VENV)/.dev  ## the gateway under the kubelets of nine releases (needs root and Go)
	@$(BIN)/python -m tests.real_kubelet.build
	@DPGATEWAY_REAL_KUBELETS=1 $(BIN)/python -m pytest -q -n 4 --dist loadgroup tests/scenarios tests/real_kubelet

.PHONY: restarts
restarts: $(VENV)/.dev  ## what restarts of real kubelets take and leave behind, measured alone (needs root and Go)
	@$(BIN)/python -m tests.real_kubelet.build
	@DPGATEWAY_REAL_KUBELETS=1 $(BIN)/python -m pytest -q tests/scenarios/test_soak.py

WALK ?= --minutes 10
.PHONY: walk
walk: $(VENV)/.dev  ## a random walk over two gateways, in which no device may be in two containers: WALK="--seed 7 --kubelet 1.37" (ten minutes; needs root)
	@$(BIN)/python -m tools.walk $(WALK)

.PHONY: test-monitoring
test-monitoring: $(VENV)/.dev  ## what Prometheus' own tool says of metrics, alerts and dashboard (needs root and Go)
	@$(BIN)/python -m tests.monitoring.build
	@$(BIN)/python -m pytest -q tests/monitoring

.PHONY: test-systemd
test-systemd: $(VENV)/.dev  ## the service under a real systemd, in namespaces of its own (needs root and systemd)
	@$(BIN)/python -m pytest -q tests/systemd

.PHONY: test-page
test-page: $(VENV)/.dev  ## the page for people in a real browser (needs root and chromium-headless-shell)
	@$(BIN)/python -m pytest -q tests/browser

DRIVERS ?= chardev fpga simulated
.PHONY: image
image: $(VENV)/.dev  ## the container image as an OCI archive, dist/dpgateway-image.tar: DRIVERS="chardev ../mine" PLATFORMS="linux/amd64 linux/arm64" (needs Debian 12)
	@$(BIN)/python -m tools.image $(DRIVERS:%=--driver=%) $(PLATFORMS:%=--platform=%) dist/dpgateway-image.tar

.PHONY: test-image
test-image: $(VENV)/.dev  ## the image of both architectures, arm64 in an emulation (needs root, Debian 12, qemu-user-static and Linux 6.7)
	@$(BIN)/python -m pytest -q tests/image

.PHONY: dist
dist: $(VENV)/.dev  ## all that a release is made of, in dist/release: packages, image, SBOMs, chart, notes, checksums (needs Debian 12)
	@rm -rf dist/release
	@$(BIN)/python -m tools.dist dist/release

.PHONY: version
version: $(VENV)/.dev  ## the version, once all places agree on it; VERSION=0.2.0 writes it into them
	@$(BIN)/python -m tools.version $(VERSION)

.PHONY: test-cluster
test-cluster: $(VENV)/.dev  ## the image and the chart on a real cluster of mixed versions (needs root, Go and Debian 12)
	@$(BIN)/python -m tests.cluster.build
	@$(BIN)/python -m pytest -q -n 3 --dist loadgroup tests/cluster

.PHONY: manifests
manifests: $(VENV)/.dev  ## deploy/kubernetes, rendered from the chart (needs Go)
	@$(BIN)/python -m tests.cluster.build kube
	@$(BIN)/python -m tests.cluster.manifests

.PHONY: pictures
pictures: $(VENV)/.dev  ## the pictures of the page for people, in docs/reference (needs root and chromium-headless-shell)
	@$(BIN)/python -m tests.browser.picture

.PHONY: mutants
mutants: $(VENV)/.dev  ## how many small changes of the code the tests see: a sample, MUTANTS="--seed 7" (an hour; needs root)
	@$(BIN)/python -m tools.mutants $(MUTANTS)

$(VENV)/.bench: $(VENV)/.run
	@$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt --group bench
	@touch $@

.PHONY: bench
bench: $(VENV)/.bench  ## what the gateway costs, beside bare gRPC handlers; writes docs/benchmarks.md (some 6 min)
	@$(BIN)/python -m benchmarks $(BENCH)

.PHONY: regenerate
regenerate: $(VENV)/.dev  ## generate Python from protos/, and the diagram from the lifecycle table
	@$(BIN)/python tools/regenerate.py
	@$(BIN)/python tools/diagram.py

.PHONY: clean
clean:  ## remove what the other targets make
	@rm -rf $(VENV) .venv-* .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache build dist
