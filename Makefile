.DEFAULT_GOAL := help
GO ?= go
# A checkout that belongs to somebody else cannot be stamped with its revision.
export GOFLAGS := -buildvcs=false
# go-nvml's header warns thirty times of functions that nobody here calls.
export CGO_CFLAGS := -O2 -g -Wno-deprecated-declarations
TOOL := $(GO) tool -modfile=testdata/tools/tools.mod
FUZZTIME ?= 20s

help: ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 16

# Empty where git does not tell; then 'fabrun version' says unknown.
COMMIT = $(shell git describe --always --abbrev=40 --exclude='*' --dirty=-changed 2>/dev/null)
build: ## fabrun (static) and its NVML helper, into bin/
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags '-s -w -X main.commit=$(COMMIT)' -o bin/fabrun ./cmd/fabrun
	@if command -v gcc >/dev/null; then \
	  CGO_ENABLED=1 $(GO) build -trimpath -ldflags '-s -w' -o bin/fabrun-nvml ./cmd/fabrun-nvml; \
	else echo 'bin/fabrun-nvml without NVML: that needs gcc (apt-get install gcc libc6-dev)'; \
	  CGO_ENABLED=0 $(GO) build -trimpath -o bin/fabrun-nvml ./cmd/fabrun-nvml; fi

test: needs-gcc ## all tests, race detector on; what needs the real thing skips with its reason
	$(GO) test -race ./... ./testdata/hosts
	$(GO) -C testdata/dist test .

test-built: needs-gcc ## compile what 'make test' runs, and run nothing
	$(GO) test -race -run '^$$' ./... ./testdata/hosts

check: fmt vet staticcheck deadcode tidy docs-check tracked static ## everything but the tests: what must pass before a commit

fmt:
	@out=$$($(TOOL) gofumpt -l .); test -z "$$out" || { echo "not formatted (run '$(TOOL) gofumpt -w .'):"; echo "$$out"; exit 1; }

vet:
	$(GO) vet ./...
	$(GO) -C testdata/dist vet .

staticcheck:
	$(TOOL) staticcheck ./...

deadcode: # no function that neither a program nor a test reaches
	@out=$$($(TOOL) deadcode -test ./...) || exit 1; test -z "$$out" || { echo "unreachable:"; echo "$$out"; exit 1; }

tidy:
	$(GO) mod tidy -diff
	$(GO) -C testdata/dist mod tidy -diff

static:
	CGO_ENABLED=0 $(GO) build -o /dev/null ./cmd/fabrun

docs: ## write docs/cli, docs/json, metrics.md, rules.md, exit-status.md and architecture.md from the code itself
	$(GO) test -count=1 ./launcher/report ./cmd/fabrun -run 'Docs$$' -update

docs-check:
	$(GO) test -count=1 ./launcher/report ./cmd/fabrun -run 'Docs$$'

tracked: # no built program and no file above 1 MB in the repository
	$(GO) test -count=1 ./cmd/fabrun -run 'TrackedFiles'

golden: ## rewrite golden files and scripts; then look at the diff
	$(GO) test ./... -update

fuzz: ## every fuzz target for FUZZTIME each
	@for pkg in $$($(GO) list ./...); do \
	  for target in $$($(GO) test -list '^Fuzz' $$pkg | grep ^Fuzz); do \
	    echo "$$pkg $$target"; $(GO) test -run '^$$' -fuzz "^$$target$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 200x $$pkg || exit 1; \
	  done; \
	done

demo: build ## the main job on this machine, then the plan of an 8-GPU, 8-rail host (LAB=1: on two nodes with RDMA)
	@$(if $(LAB),testdata/lab/demo.sh,testdata/demo/demo.sh)

soak: build ## jobs in a loop for MINUTES (10), some killed: memory, descriptors, files and processes stay flat
	testdata/soak/soak.sh bin/fabrun $${MINUTES:-10}

PEERS := hwloc clustershell pdsh openmpi-bin openssh-server openssh-client
bench: build ## fabrun beside its peers, in one run (N=20 runs each; PAGE=docs/performance.md writes the page)
	@dpkg -s $(PEERS) >/dev/null 2>&1 || testdata/tools/need $(PEERS)
	$(GO) build -o bin/bench ./testdata/bench
	bin/bench -fabrun bin/fabrun -n $${N:-20} $(if $(PAGE),-all -page $(PAGE))

realdata: ## how many truths of the real data are met, per kind
	@$(GO) test -count=1 -v -run Realdata ./... 2>&1 | grep -E 'realdata:|^--- (FAIL|SKIP)' | sed 's/^ *[a-z_]*\.go:[0-9]*: //'

REAL := openmpi-bin libopenmpi-dev mpich libmpich-dev slurm-wlm munge openfoam openfoam-examples podman runc musl-tools busybox-static openssh-server openssh-client iproute2 util-linux perftest python3-torch bash
test-real: ## the tests that start real launchers and schedulers (installs them with apt-get)
	@dpkg -s $(REAL) >/dev/null 2>&1 || testdata/tools/need $(REAL)
	FABRUN_REAL=1 $(GO) test -count=1 -timeout 20m -run 'Real|AsSlurm|Script/run-real' ./cmd/fabrun ./launcher/...
	$(GO) test -modfile=testdata/k8s/k8s.mod -tags manifests ./testdata/k8s # the manifests of docs/examples/k8s, against their controllers' own types

needs-gcc:
	@command -v gcc >/dev/null && echo '#include <stdlib.h>' | gcc -E - >/dev/null 2>&1 || testdata/tools/need gcc libc6-dev

.PHONY: help build demo test test-built test-real check fmt vet staticcheck deadcode tidy static docs docs-check tracked golden fuzz bench realdata needs-gcc

lab: ## two QEMU nodes with two rails of Soft-RoCE (NODES=n; FABRUN_LAB_DIR for a second one)
	CGO_ENABLED=0 $(GO) build -trimpath -o bin/fabrun ./cmd/fabrun
	$(GO) run ./testdata/lab up $${NODES:-2} bin/fabrun

lab-shell: ## a shell on a node of the lab (NODE=1)
	@$(GO) run ./testdata/lab shell $${NODE:-1}

lab-down: ## end the lab and remove everything but its image
	@$(GO) run ./testdata/lab down

lab-test: ## what only packets on a wire can prove, on a lab of its own
	$(GO) test -count=1 -v -timeout 35m ./testdata/lab

dist: bin/dist ## tarball, .deb, .rpm, SBOM and checksums for amd64 and arm64, into dist/
	bin/dist -out dist

PREFIX ?= /usr/local
install: bin/dist ## fabrun below PREFIX (/usr/local) for this machine; DESTDIR as packagers know it
	bin/dist -tree bin/tree
	DESTDIR='$(DESTDIR)' bin/tree/install.sh --prefix '$(PREFIX)'

DIST := gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user-static rpm man-db lmod
dist-test: bin/dist ## the packages, built twice, tried in a root of their own (as root; installs what it needs)
	@dpkg -s $(DIST) >/dev/null 2>&1 || testdata/tools/need $(DIST)
	$(GO) build -o bin/lab ./testdata/lab
	testdata/dist/twice.sh dist
	VERSION=0.0.9 bin/dist -arch amd64 -out bin/old
	testdata/dist/try.sh dist bin/old "$$(bin/lab image)"
	testdata/dist/modules.sh

bin/dist: $(wildcard testdata/dist/*.go)
	$(GO) build -C testdata/dist -o ../../bin/dist .

.PHONY: dist install dist-test soak

.PHONY: lab lab-shell lab-down lab-test
