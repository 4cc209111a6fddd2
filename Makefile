# Trainyard: everything a person or CI runs. `make demo` and `make test` need Python 3.11 to 3.13, make and a package index.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
VENV := .venv
BIN := $(VENV)/bin
DOCS := $(VENV)/docs
KUBEFLOW_SDKS := $(VENV)/kubeflow-training/ready $(VENV)/kubeflow/ready
unexport PYTHONDONTWRITEBYTECODE  # the tests start hundreds of programs: each would be compiled anew

# The first interpreter that TensorFlow 2.21 serves: 3.11 to 3.13. Name another with PYTHON=... A distribution builds its
# own with profile-guided optimisation; one of pyenv, built without, takes a sixth more CPU for the same tests.
PYTHON ?= $(shell for p in /usr/bin/python3 python3 python3.13 python3.12 python3.11; do \
	"$$p" -c 'import sys, venv, ensurepip; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null && { command -v "$$p"; break; }; done)

# Every lock file is installed with --no-deps: a lock names all it needs, and pip would otherwise resolve a requirement with
# extras (coverage[toml]) anew, and refuse the version that has been published since the lock was written.
COMPILE := -q --universal --generate-hashes --no-header --no-annotate --python-version 3.11

# torch names them, and its environments for tests are built without: docs/decisions/0023-torch-without-cuda.md
WITHOUT_CUDA := $(addprefix --no-emit-package ,cuda-bindings cuda-pathfinder cuda-toolkit nvidia-cublas nvidia-cuda-cccl \
	nvidia-cuda-cupti nvidia-cuda-nvrtc nvidia-cudnn-cu13 nvidia-cufft nvidia-cufile nvidia-cusolver nvidia-cusparse \
	nvidia-cusparselt-cu13 nvidia-nccl-cu13 nvidia-nvjitlink nvidia-nvshmem-cu13 nvidia-nvtx triton)

# No target of this list is a file.
.PHONY: $(shell sed -nE 's/^([a-z-]+):.*## .*/\1/p' $(MAKEFILE_LIST))

help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 14

$(VENV)/python:
	@[ -n "$(PYTHON)" ] || { echo "make: no usable Python found. Trainyard needs Python 3.11 to 3.13 (the versions TensorFlow 2.21 serves) with the venv module;" \
	  "on Debian: apt-get install python3 python3-venv; or name one: make PYTHON=/path/to/python3.12 ..." >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) && touch $@

$(VENV)/runtime: $(VENV)/python requirements/runtime.lock requirements/build.lock pyproject.toml
	@echo "make: installing Trainyard into $(VENV)" >&2
	@$(BIN)/python -m pip install -q --disable-pip-version-check --no-deps --require-hashes -r requirements/build.lock -r requirements/runtime.lock
	@$(BIN)/python -m pip install -q --disable-pip-version-check --no-deps --no-build-isolation -e .
	@$(BIN)/python -m compileall -q src/trainyard  # where PYTHONDONTWRITEBYTECODE is set each command would compile it
	@mkdir -p bin && ln -sf ../$(BIN)/trainyard bin/trainyard
	@touch $@

$(VENV)/dev: $(VENV)/runtime requirements/dev.lock
	@echo "make: installing the development tools into $(VENV)" >&2
	@$(BIN)/python -m pip install -q --disable-pip-version-check --no-deps --require-hashes -r requirements/dev.lock
	@$(BIN)/python -m pip check --disable-pip-version-check >/dev/null || { $(BIN)/python -m pip check >&2; exit 1; }
	@touch $@

# An environment of its own inside $(VENV): the versions of the site's tools do not depend on ours.
$(DOCS)/ready: $(VENV)/python requirements/docs.lock
	@echo "make: installing the documentation tools into $(DOCS)" >&2
	@$(BIN)/python -m venv $(DOCS)
	@$(DOCS)/bin/python -m pip install -q --disable-pip-version-check --no-deps --require-hashes -r requirements/docs.lock
	@touch $@

# What users of the Training Operator, and of Kubeflow Trainer, have: its SDK, with nothing of ours.
$(KUBEFLOW_SDKS): $(VENV)/%/ready: $(VENV)/python requirements/%.lock
	@echo "make: installing the SDK $* into $(@D)" >&2
	@$(BIN)/python -m venv $(@D)
	@$(@D)/bin/python -m pip install -q --disable-pip-version-check --no-deps --require-hashes -r requirements/$*.lock
	@touch $@

demo: $(VENV)/runtime ## train a distributed TensorFlow job on this machine, from nothing
	@$(BIN)/trainyard run examples/tf_job_dist_train.yaml
	@echo
	@echo "Next, in this shell:"
	@echo "  export PATH=\"$(CURDIR)/bin:\$$PATH\"    # it finds trainyard, and nothing else of ours"
	@echo "  trainyard run --workers 2 YOUR_SCRIPT.py"
	@echo "  trainyard history                        # what ran, with its logs"
	@echo "  trainyard doctor                         # what this machine can run"
	@echo "  make frameworks                          # what torch, ChainerMN and MXNet need of Debian"

# What the frameworks need of the operating system: torch and its rendezvous, MPI, also over ssh, and the libraries of
# MXNet's wheel.
SYSTEM := python3-torch python3-etcd etcd-server openmpi-bin openssh-client openssh-server libgomp1 libquadmath0

# No service is started, and ssh is not enabled: nobody gets into this machine because it trains.
frameworks: ## install what torch, MPI and MXNet need of Debian (the rest is installed by the first run of an image)
	@lacking=""; for p in $(SYSTEM); do [ "$$(dpkg-query -W -f='$${db:Status-Status}' $$p 2>/dev/null)" = installed ] || lacking="$$lacking $$p"; done; \
	[ -n "$$lacking" ] || exit 0; \
	if ! command -v apt-get >/dev/null; then \
	  echo "make: no apt-get here. Install what brings torch and etcd's client for /usr/bin/python3, an etcd server up to 3.5, Open MPI, libgomp and libquadmath" >&2; exit 1; \
	elif [ "$$(id -u)" != 0 ]; then \
	  echo "make: missing:$$lacking. Run: sudo apt-get update && sudo apt-get install -y --no-install-recommends$$lacking" >&2; exit 1; \
	fi; \
	echo "make: installing$$lacking (all together about 165 MB to download, 690 MB on disk)" >&2; \
	log=$$(mktemp); policy=/usr/sbin/policy-rc.d; [ -e $$policy ] && policy= || { printf '#!/bin/sh\nexit 101\n' >$$policy; chmod +x $$policy; }; \
	trap 'rm -f "$$log" $$policy' EXIT; export DEBIAN_FRONTEND=noninteractive; \
	{ apt-get update && apt-get install -y --no-install-recommends $$lacking; } >"$$log" 2>&1 || { tail -20 "$$log" >&2; exit 1; }; \
	case "$$lacking" in *openssh-server*) ! command -v systemctl >/dev/null || systemctl disable -q ssh.service >>"$$log" 2>&1 || { tail -5 "$$log" >&2; exit 1; };; esac

# Without node the tests of the page's modules alone are skipped: nothing else waits for it.
browser: ## install chromium with its driver, and node, for the tests of the page (another Chrome with its chromedriver will do)
	@lacking=""; code=0; \
	{ command -v chromium || command -v google-chrome; } >/dev/null && command -v chromedriver >/dev/null || { lacking=" chromium chromium-driver"; code=1; }; \
	command -v node >/dev/null || lacking="$$lacking nodejs"; \
	[ -n "$$lacking" ] || exit 0; \
	if ! command -v apt-get >/dev/null; then \
	  echo "make: missing:$$lacking, and no apt-get here. Install chromium or google-chrome, the chromedriver of the same version, and node 18 or later" >&2; exit $$code; \
	elif [ "$$(id -u)" != 0 ]; then \
	  echo "make: missing:$$lacking. Run: sudo apt-get update && sudo apt-get install -y --no-install-recommends$$lacking" >&2; exit $$code; \
	fi; \
	echo "make: installing$$lacking (all together about 93 MB to download, 345 MB on disk)" >&2; \
	log=$$(mktemp); trap 'rm -f "$$log"' EXIT; export DEBIAN_FRONTEND=noninteractive; \
	{ apt-get update && apt-get install -y --no-install-recommends$$lacking; } >"$$log" 2>&1 || { tail -20 "$$log" >&2; exit 1; }

# A worker of pytest needs eight seconds of CPU to collect everything: the later runs collect only the files that have
# their marker. tests/docs/test_steps.py fails when a test with the marker is in another file.
with_marker = $(shell grep -rlF --include='test_*.py' 'mark.$(1)' tests)
FRAMEWORK_FILES = $(call with_marker,frameworks)
CLUSTER_FILES = $(sort $(call with_marker,cluster) $(wildcard tests/stories/test_*.py))
PYTEST = $(BIN)/python -m pytest -q --junitxml=build/junit/$@.xml

test: ## every test, all frameworks trained for real included
	@$(MAKE) --no-print-directory test-local
	@$(MAKE) --no-print-directory test-frameworks

test-local: $(VENV)/dev $(KUBEFLOW_SDKS) frameworks browser ## every test that needs neither a framework nor a real control plane
	@$(PYTEST) -n 4 --dist worksteal -m "not frameworks and not cluster and not node"

# With stand-ins for the CUDA libraries, which are four times as large: docs/decisions/0023-torch-without-cuda.md
torch-environment: $(VENV)/dev ## build or find an environment with the torch of PyPI, for tests on CPUs: needs gcc, 550 MB
	@$(BIN)/python -m tests.support.torch_environments

# By file: tests of one file have jobs of one name, and kill processes that they find by it.
test-frameworks: $(VENV)/dev $(KUBEFLOW_SDKS) frameworks torch-environment ## the tests that train with real frameworks, as processes
	@$(PYTEST) -n 3 --dist loadfile --no-loadscope-reorder -m "frameworks and not cluster and not nightly" $(FRAMEWORK_FILES)

# One after the other: a process of these libraries needs ten seconds of CPU before it trains.
test-long-trainings: $(VENV)/dev torch-environment ## the trainings that .ci/run leaves out: libraries on torch, another Python
	@$(PYTEST) -m "nightly and not node" $(call with_marker,nightly)

# What the last runs have written into build/junit, and the table of what ran before: docs/testing-ci.md
matrix: $(VENV)/dev ## write the table of tested frameworks, kinds and networks in docs/images.md
	@$(BIN)/python -m pytest -q --update -k test_matrix $(FRAMEWORK_FILES) tests/docs/test_matrix.py

test-fast: $(VENV)/dev ## what takes two minutes in all
	@$(BIN)/python -m pytest -q -n 3 --dist worksteal -m "not frameworks and not slow and not network and not cluster"

# pytest runs them, too (tests/page/test_javascript.py), in test and test-fast.
test-js: ## the modules of the page alone, by node 18 or later (no browser, no Python)
	@command -v node >/dev/null || { echo "make: no node here: make browser installs it" >&2; exit 1; }
	@node --test tests/page/javascript/*.test.mjs

# Measuring takes time: a test of a time limit may fail here that passes in test-fast. The table is printed all the same.
coverage: $(VENV)/dev ## the line coverage of test-fast, by package; programs that tests start as processes are not counted
	@code=0; $(BIN)/python -m pytest -q -n 3 --dist worksteal -m "not frameworks and not slow and not network and not cluster" \
	  --cov=trainyard --cov-report= || code=$$?; \
	$(BIN)/python -m coverage json -q -o build/coverage.json; $(BIN)/python -m tools.coverage_table build/coverage.json; exit $$code

control-plane: $(VENV)/runtime ## build or find etcd, the API server and the rest: needs Go, six to ten minutes, once
	@$(BIN)/python -m tests.support.control_plane_build

test-cluster: ## every test that needs a real control plane
	@$(MAKE) --no-print-directory test-control-plane
	@$(MAKE) --no-print-directory test-pods

test-control-plane: $(VENV)/dev control-plane frameworks ## the tests that need a real control plane and no framework
	@$(PYTEST) -n 3 --dist worksteal -m "cluster and not frameworks and not drop_in and not peers" $(CLUSTER_FILES)

test-pods: $(VENV)/dev control-plane frameworks ## the tests that train in pods of a real control plane
	@$(PYTEST) -n 2 --dist loadfile --no-loadscope-reorder -m "cluster and frameworks" $(CLUSTER_FILES)

# As root, in namespaces of its own. A machine that cannot is told what it lacks: docs/real-node.md
real-node: $(VENV)/dev control-plane ## a real Kubernetes node (kubelet, containerd) that runs until Ctrl-C: needs root and Go
	@$(BIN)/python -m tests.support.real_node

test-node: $(VENV)/dev control-plane ## the tests in containers of a real node: ten minutes
	@$(PYTEST) -m node $(call with_marker,node)

# From nothing it takes up to 16 minutes on two cores: .ci/run has ten of them, and what is compiled by then stays. It goes on
# without the stories where that is not enough, or a package archive is not reachable.
real-node-build: $(VENV)/dev control-plane ## build or find kubelet, containerd and the images of a real node, for ten minutes at most
	@timeout 600 $(BIN)/python -m tests.support.real_node_build || \
	  echo "make: the real node is not built: make real-node-build again, or make real-node, which takes its time" >&2

NODE_STORIES := tests/real_node/test_kinds.py tests/real_node/test_policies.py tests/real_node/test_node_faults.py

test-node-short: $(VENV)/dev control-plane ## the stories of every kind on a real node, if it is built: two to four minutes
	@$(BIN)/python -m tests.support.real_node_build --built || exit 0; $(PYTEST) -m "node and not nightly" $(NODE_STORIES)

# As root, without a container engine or a registry, each once: docs/container-images.md
container-images: $(VENV)/dev ## the images of all Dockerfiles by buildah, into a cache; IMAGES="trainyard/mpi-train:1" takes some
	@$(BIN)/python -m tests.support.container_images $(IMAGES)

container-images-page: $(VENV)/dev control-plane ## start every image on a real node, and write what it costs into docs/container-images.md (or some: IMAGES=)
	@$(BIN)/python -m tests.real_node.image_pods $(IMAGES)

KEPT_FILES := tests/control_plane/test_check_server_real.py tests/control_plane/test_definitions_on_a_real_server.py

kept-answers: $(VENV)/dev control-plane ## write testdata/kept anew: what the real API server answers
	@TRAINYARD_KEPT=write $(PYTEST) $(KEPT_FILES)

kept-pods: $(VENV)/dev control-plane ## write testdata/pod_table anew: what a real kubelet shows of small pods (five minutes); ROWS="exec env" takes some
	@$(BIN)/python -m tests.pod_table --real-node --runs 3 --write testdata/pod_table/kubelet-1.37.1.json $(ROWS)

# Both back ends, a real node, the operators that ours replaces, the attacks, and every answer that testdata/kept has,
# asked for again.
test-nightly: $(VENV)/dev control-plane frameworks ## every test, and the real API server is asked everything that testdata/kept has
	@TRAINYARD_KEPT=compare $(MAKE) --no-print-directory -k test test-long-trainings test-cluster test-drop-in test-gangs test-kueue test-node attack

ci-times: $(VENV)/dev ## write what the last .ci/run took into docs/testing-ci.md
	@$(BIN)/python -m tools.ci_steps --page

# GPU_PYTHON: a Python with the frameworks; GPU_WHEELS: a folder of wheels, of which an environment is made.
test-gpu: $(VENV)/dev ## trainings on the GPUs of this machine, if it has some; no part of .ci/run
	@$(BIN)/python -m pytest -q -rsP tests/gpu/trainings.py || [ $$? = 5 ]  # pytest's code where nothing is collected

# The operators that ours replaces are built once, beside the control plane: eight to ten minutes.
test-drop-in: $(VENV)/dev control-plane ## our operator beside Kubeflow's: their answers are as recorded, and ours as theirs
	@$(BIN)/python -m tests.drop_in check
	@$(BIN)/python -m pytest -q -n 2 --dist worksteal tests/drop_in

# scheduler-plugins is built once: eight to fifteen minutes on two cores.
test-gangs: $(VENV)/dev control-plane ## our gangs beside real scheduler-plugins, and Volcano: TRAINYARD_VOLCANO names a folder with its programs
	@$(PYTEST) -m peers tests/gangs

test-kueue: $(VENV)/dev control-plane ## our jobs in the queues of a real Kueue: needs root, as Kueue reads certificates below /etc
	@$(PYTEST) -m peers tests/kueue

record-drop-in: $(VENV)/dev control-plane ## write testdata/drop_in anew: the answers of Kubeflow's operators to every scenario
	@$(BIN)/python -m tests.drop_in record

leftovers: $(VENV)/dev ## kill the runner, the watcher or the supervisor 50 times in each network, and look for what is left
	@$(BIN)/python -m tests.node.leftovers 50

prove: $(VENV)/dev ## a thousand random histories under faults, and every planted fault of the operator caught
	@$(BIN)/python -m tests.faults.prove 1000

# With TRAINYARD_ATTACK="--seed N" the bytes of an earlier run are sent again. .ci/run has one seed of it.
attack: $(VENV)/dev ## attack a cluster by each door with random bytes for ten minutes: ports, pages, jobs, records, kubeconfigs
	@$(BIN)/python -m tests.attacks.doors $(TRAINYARD_ATTACK)

prove-soak: $(VENV)/dev ## run 5,000 short jobs in one cluster, in each network, and count what is not given back (an hour)
	@$(BIN)/python -m tests.attacks.soak 5000

worlds: $(VENV)/dev ## visit every small world of a job, and print how many there are
	@$(BIN)/python -m tests.model.explored_jobs

worlds-big: $(VENV)/dev ## the same with larger bounds: about twelve minutes
	@$(BIN)/python -m tests.model.explored_jobs --big

pictures: $(VENV)/dev browser ## take the pictures of the documents anew: the page in chromium, and the first commands in a terminal
	@$(BIN)/python -m tools.pictures

bench: bench-local ## the benchmarks that need neither a control plane nor a peer

# Each writes what it has measured into build/bench, too.
bench-local: $(VENV)/runtime ## `trainyard run`, `up` and the commands beside the same processes by hand
	@$(BIN)/python -m bench.local --training --json build/bench/local.json

bench-sdk: $(VENV)/runtime $(VENV)/kubeflow/ready ## the Kubeflow SDK's train() of two nodes to their first line, beside `submit` of the same job
	@$(BIN)/python -m bench.sdk --json build/bench/sdk.json

bench-servers: $(VENV)/runtime control-plane ## the embedded API server beside kube-apiserver and etcd, in one run
	@$(BIN)/python -m bench.servers --json build/bench/servers.json

# JobSet is built once, beside the control plane: two to three minutes. These two write the tables and the pictures of
# docs/performance.md. With some of the ROWS only, the table stays, and so do the pictures of the others.
bench-peers: $(VENV)/dev control-plane ## our operator beside training-operator and JobSet; ROWS="idle big beside many tfjob growth" takes some
	@$(BIN)/python -m bench.peers $(ROWS) --json build/bench/peers.json
	@$(BIN)/python -m bench.pictures build/bench/peers.json docs/pictures --page docs/performance.md

bench-failover: $(VENV)/dev control-plane ## how long a job waits when the leader is killed or stopped: ours, training-operator, JobSet
	@$(BIN)/python -m bench.failover --json build/bench/failover.json --page docs/performance.md

bench-restart: $(VENV)/dev control-plane ## a gang of up to 1,000 Pods from a failure to all new Pods: ours, JobSet, and by hand
	@$(BIN)/python -m bench.restart --json build/bench/restart.json --page docs/performance.md

bench-collectives: $(VENV)/dev torch-environment ## all-reduces between pods in the network namespace, beside loopback
	@$(BIN)/python -m bench.collectives --json build/bench/collectives.json

bench-gangs: $(VENV)/dev control-plane ## how long the second of two gangs waits with scheduler-plugins, beside a PodGroup of 1.9.4: seven minutes
	@$(BIN)/python -m bench.gangs --json build/bench/gangs.json

bench-node-times: $(VENV)/dev control-plane ## a pod on our node beside a real kubelet, a job behind a DNS that caches: needs root, docs/real-node.md
	@$(BIN)/python -m bench.node_times --json build/bench/node_times.json --page docs/performance.md

bench-other-jobs: $(VENV)/runtime ## how long a small job waits beside a job of 2,000 that starts
	@$(BIN)/python -m bench.other_jobs --json build/bench/other_jobs.json

# The heap is measured after TRAINYARD_BENCH_LOG_SECONDS of log lines, 600 by default.
bench-page: $(VENV)/dev browser ## the page in a browser: paint, frames, jumps, its heap, at three times their budget
	@TRAINYARD_BENCH=1 $(BIN)/python -m pytest -q -s tests/page/browser/test_page.py

bench-page-server: $(VENV)/dev ## what open pages cost the process that serves them, and how late a change is shown
	@$(BIN)/python -m bench.page

bench-log-tabs: $(VENV)/dev ## what tabs on the log of a program that prints as fast as it can cost the API (needs kubectl)
	@$(BIN)/python -m bench.log_tabs

bench-large-log: $(VENV)/dev ## how long the page of a job with a log of 1 GB takes, and its memory
	@$(BIN)/python -m bench.large_log

bench-strangers: $(VENV)/dev ## what another user of the machine, without a right, costs the process of a local cluster
	@$(BIN)/python -m bench.strangers

bench-memory: $(VENV)/dev ## memory, and seconds until ready, of an operator of 10,000 jobs with 100,000 pods
	@$(BIN)/python -m bench.memory --json build/bench/memory.json

fuzz-server: $(VENV)/dev control-plane ## thousands of random requests to both API servers, the answers compared
	@$(BIN)/python -m tests.differential --sequences 5000

server-types: $(VENV)/dev control-plane ## write api_types/types.txt anew from the OpenAPI of the pinned Kubernetes version
	@$(BIN)/python -m tools.generate_server_types

pod-types: $(VENV)/dev control-plane ## write kinds/pods/pod_types.py anew from the OpenAPI of the pinned Kubernetes version
	@$(BIN)/python -m tools.generate_pod_types

image: $(VENV)/dev ## the operator's image for amd64 and arm64 as OCI archives in dist/, without a container daemon
	@$(BIN)/python -m tools.oci

dist: $(VENV)/runtime ## the wheel and the sdist of Trainyard, into dist/
	@rm -f dist/trainyard_jobs-*
	@$(BIN)/python -m hatchling build -d dist

manifests: $(VENV)/dev ## write the generated parts of deploy/, config/, charts/trainyard and docs/rbac.md anew
	@$(BIN)/python -m tools.generate_manifests

# Without -q: mkdocs would not count the warnings that strict mode fails for.
docs: $(DOCS)/ready ## the site of docs/, into site/; a dead link fails
	@$(BIN)/python -m tools.architecture --check
	@NO_MKDOCS_2_WARNING=1 $(DOCS)/bin/mkdocs build
	@echo "site/index.html"

# pip-audit has one exit code for "vulnerable" and for "not asked". Its last line says which.
audit: $(VENV)/runtime ## known vulnerabilities of what requirements/runtime.lock pins
	@said=$$(mktemp); trap 'rm -f "$$said"' EXIT; \
	if $(BIN)/uv tool run -q --python $(BIN)/python --from pip-audit==2.10.1 pip-audit $(AUDIT) -r requirements/runtime.lock \
	  --disable-pip --require-hashes --strict --progress-spinner off >"$$said" 2>&1; then cat "$$said"; exit; fi; \
	if grep -q "^Found .* known vulnerabilit" "$$said"; then cat "$$said" >&2; exit 1; fi; \
	tail -1 "$$said" >&2; \
	echo "make: the audit is incomplete: the vulnerability service is not reachable, or does not know a package (see above)" >&2; exit 1

sbom: $(VENV)/runtime ## a bill of materials (CycloneDX) of what requirements/runtime.lock pins, into dist/
	@$(BIN)/python -m tools.sbom dist/trainyard.cdx.json

lint: $(VENV)/dev ## style, types, sizes, vague names, reads of what jobs wrote, and who may import whom
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(BIN)/python -m tools.sizes
	@$(BIN)/python -m tools.vague_names
	@$(BIN)/python -m tools.job_file_reads

lint-workflows: ## the workflows of GitHub, by actionlint (needs Go)
	@go run github.com/rhysd/actionlint/cmd/actionlint@v1.7.7 .github/workflows/*.yml

format: $(VENV)/dev ## put the code into its usual shape
	@$(BIN)/ruff check --fix -q . ; $(BIN)/ruff format -q .

lock: $(VENV)/dev ## write the lock files anew from pyproject.toml
	@$(BIN)/uv pip compile $(COMPILE) pyproject.toml --extra fast -o requirements/runtime.lock
	@$(BIN)/uv pip compile $(COMPILE) pyproject.toml --extra fast --group dev -o requirements/dev.lock
	@$(BIN)/uv pip compile $(COMPILE) --group build -o requirements/build.lock
	@$(BIN)/uv pip compile $(COMPILE) --group docs -o requirements/docs.lock
	@$(BIN)/uv pip compile $(COMPILE) --group kubeflow-training -o requirements/kubeflow-training.lock
	@$(BIN)/uv pip compile $(COMPILE) --group kubeflow -o requirements/kubeflow.lock
	@$(BIN)/uv pip compile $(COMPILE) $(WITHOUT_CUDA) --group torch -o requirements/torch.lock
	@$(BIN)/uv pip compile $(COMPILE) $(WITHOUT_CUDA) --group torch-libraries -o requirements/torch-libraries.lock

clean: ## remove what make made here
	@rm -rf $(VENV) bin .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist site
