.DEFAULT_GOAL := help
GO ?= go
export GOFLAGS := -buildvcs=false

help: ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 16

build: ## fabrun (static) and its NVML helper, into bin/
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags '-s -w' -o bin/fabrun ./cmd/fabrun
	CGO_ENABLED=1 CGO_CFLAGS=-Wno-deprecated-declarations $(GO) build -trimpath -o bin/fabrun-nvml ./cmd/fabrun-nvml

test: ## all tests, race detector on
	$(GO) test -race ./...

realdata: ## how many truths of the real data are met, per kind
	$(GO) test -count=1 -v -run Realdata ./... 2>&1 | grep -E 'realdata:|^--- (FAIL|SKIP)' | sed 's/^ *[a-z_]*\.go:[0-9]*: //'

.PHONY: help build test realdata
