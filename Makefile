# proxyfleet: every command that a contributor needs. Scripts in e2e/ do the work.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

RUN   ?= .
COUNT ?= 20
PKG   ?= ./...
FUZZTIME ?= 10s

# Backends whose libraries are two thirds of a program.
no_clouds := no_gcp,no_kubernetes

.PHONY: help
help: ## Show this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: build
build: bin/coordinator ## Build bin/coordinator, bin/agent and, without cloud backends, bin/agent-host
	CGO_ENABLED=0 go build -o bin/agent ./cmd/agent
	CGO_ENABLED=0 go build -tags $(no_clouds) -o bin/agent-host ./cmd/agent

.PHONY: bin/coordinator # go build knows what is new
bin/coordinator:
	CGO_ENABLED=0 go build -tags $(no_clouds) -o $@ ./cmd/coordinator

.PHONY: test-fast
test-fast: ## Vet and test what needs nothing but Go and a C compiler (-race)
	go vet ./...
	go test -race -short $(PKG)

.PHONY: test
test: ## Everything, on real libvirtd, QEMU and Squid; installs what is missing (root, Debian or Ubuntu)
	e2e/test.sh

.PHONY: deflake
deflake: ## Repeat tests until one fails: PKG=./internal/bus RUN=TestLease COUNT=20
	go test -race -failfast -count $(COUNT) -run '$(RUN)' $(PKG)

.PHONY: fuzz
fuzz: ## Run each fuzz target for a short time: FUZZTIME=10s
	e2e/fuzz.sh $(FUZZTIME)

.PHONY: lint
lint: ## golangci-lint and, where it is installed, shellcheck
	"$$(e2e/tools.sh golangci-lint)" run
	! command -v shellcheck >/dev/null || shellcheck .ci/run e2e/*.sh e2e/guest/*.sh internal/backends/gcp/*.sh

.PHONY: generate
generate: ## Write schemas/ from the Go types
	go test ./schemas -update

.PHONY: demo
demo: bin/coordinator ## One proxy from intent to deletion, on this machine, with the nats CLI
	e2e/demo.sh local

.PHONY: demo-kvm
demo-kvm: bin/coordinator ## The same as a virtual machine on real libvirt (root; emulated without KVM)
	e2e/demo.sh libvirt

.PHONY: bench
bench: ## Measure the way from intent to state, and show it with benchstat
	e2e/bench.sh

.PHONY: tools
tools: ## Build the pinned tools (nats, golangci-lint, kube-apiserver, …) into the cache
	e2e/tools.sh nats
	e2e/tools.sh nats-server
	e2e/tools.sh benchstat
	e2e/tools.sh golangci-lint
	e2e/tools.sh kube-apiserver
	e2e/tools.sh etcd
	e2e/tools.sh kwok

.PHONY: guest-image
guest-image: ## Build the Debian guest for tests and demo-kvm into the cache (root; about 4 minutes)
	e2e/guest/build.sh

.PHONY: up-libvirt
up-libvirt: ## Install and start libvirtd, its default network and a pool for tests (root)
	e2e/libvirt.sh up

.PHONY: clean
clean: ## Remove bin/; the caches below ~/.cache/proxyfleet stay
	rm -rf bin
