GO ?= go
export GOFLAGS ?= -buildvcs=false

.DEFAULT_GOAL := build

build: ## build the programs into bin/
	$(GO) build -o bin/ ./cmd/...

.PHONY: build
