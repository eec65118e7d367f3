GO ?= go
# Another user may own the work tree. Then git refuses to answer, and go build would fail.
ifeq (,$(findstring -buildvcs,$(GOFLAGS)))
override GOFLAGS := $(strip $(GOFLAGS) -buildvcs=false)
endif
export GOFLAGS

# Go's caches are in .tools/ if there is no writable home folder.
cache = $(shell d="$$($(GO) env $(1) 2>/dev/null)"; case "$$d" in (/*) mkdir -p "$$d" 2>/dev/null && [ -w "$$d" ] || \
	[ -d "$$d/cache/download" ] ;; (*) false ;; esac || echo elsewhere)
ifneq (,$(call cache,GOCACHE))
export GOCACHE := $(CURDIR)/.tools/cache/build
endif
ifneq (,$(call cache,GOMODCACHE))
export GOMODCACHE := $(CURDIR)/.tools/cache/modules
endif

# One suite of internal/e2e alone: make e2e SUITE=traffic
SUITE ?=
# Flags of the benchmark: make bench ARGS="-proxies 200", make bench ARGS="-write docs/performance.md"; and of
# make run: ARGS="--network 127.0.9" moves the workloads, --xds-address and --metrics-address move ashored.
ARGS ?=
# How long each fuzz target runs: make fuzz FUZZTIME=1m
FUZZTIME ?= 10s
# Output folder, version and architectures of make package.
DIST ?= dist
VERSION ?= $(shell systemd/packaging/version.sh)
ARCHES ?= amd64 arm64
# Release of the package of Envoy: increase it if the package changes and Envoy does not.
ENVOY_RELEASE ?= 1
envoy-version = $(shell sed -n 's/^version=//p' tools/envoy.sh)

.DEFAULT_GOAL := build

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-9s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

build: ## build the programs into bin/
	$(GO) build -o bin/ ./cmd/...

tools: demo-tools kubernetes-tools istio-tool ## fetch Envoy and Prometheus and build Consul, Kubernetes and Istio's agent, which tests and demonstrations need, into .tools/ (once)
	@[ -n "$$PROMETHEUS$$PROMTOOL" ] || tools/prometheus.sh .tools/prometheus

# ENVOY names another program to use instead.
demo-tools: consul-tool
	@[ -n "$$ENVOY" ] || { folder=.tools/envoy-$(envoy-version)-$$($(GO) env GOARCH); \
		tools/envoy.sh $$folder $$($(GO) env GOARCH) && ln -f $$folder/envoy .tools/envoy; }

# Consul is for tests only: it is in a module of its own (tools/consul), and never in a package.
# CONSUL names another program to use instead.
consul-version = $(shell awk '$$1 == "github.com/hashicorp/consul" { print $$2 }' tools/consul/go.mod)

consul-tool:
	@if [ -n "$$CONSUL" ]; then \
		"$$CONSUL" version | grep -q '^Consul $(consul-version)' || { echo "CONSUL=$$CONSUL is not Consul $(consul-version): unset CONSUL to have that one built" >&2; exit 1; }; \
	elif ! .tools/consul version 2>/dev/null | grep -q '^Consul $(consul-version)'; then \
		echo 'building Consul $(consul-version) (once; with an empty cache some 3 minutes on 2 cores)'; mkdir -p .tools; \
		$(GO) build -C tools/consul -trimpath -ldflags '-s -w' -o '$(CURDIR)/.tools/consul.new' github.com/hashicorp/consul && mv .tools/consul.new .tools/consul; \
	fi

# Kubernetes and etcd are for tests only, in the module tools/kubernetes. KUBERNETES names a folder with
# the three programs to use instead.
kubernetes-version = $(shell awk '$$1 == "k8s.io/kubernetes" { print $$2 }' tools/kubernetes/go.mod)

kubernetes-tools:
	@if [ -z "$$KUBERNETES" ] && ! .tools/kubernetes/kube-apiserver --version 2>/dev/null | grep -q '^Kubernetes $(kubernetes-version)$$'; then \
		echo 'building Kubernetes $(kubernetes-version) (once; with an empty cache some 8 minutes on 2 cores)'; mkdir -p .tools/kubernetes; \
		for package in go.etcd.io/etcd/server/v3 k8s.io/kubernetes/cmd/kube-controller-manager k8s.io/kubernetes/cmd/kube-apiserver; do \
			name="$${package##*/}"; [ "$$name" != v3 ] || name=etcd; \
			CGO_ENABLED=0 $(GO) build -C tools/kubernetes -trimpath -ldflags '-s -w -X k8s.io/component-base/version.gitVersion=$(kubernetes-version)' \
				-o "$(CURDIR)/.tools/kubernetes/$$name" "$$package" || exit 1; \
		done; \
	fi

# Istio's agent is for tests only, in the module tools/istio. PILOT_AGENT names another program to use
# instead. The tests of dashboards read the sources of that module, too.
istio-version = $(shell awk '$$1 == "istio.io/istio" { print $$2 }' tools/istio/go.mod)

istio-tool:
	@$(GO) mod download -C tools/istio istio.io/istio
	@if [ -z "$$PILOT_AGENT" ] && ! .tools/pilot-agent version --short 2>/dev/null | grep -q ' $(istio-version)$$'; then \
		echo "building Istio's agent $(istio-version) (once; with an empty cache some 2 minutes on 2 cores)"; mkdir -p .tools; \
		CGO_ENABLED=0 $(GO) build -C tools/istio -trimpath -ldflags '-s -w -X istio.io/istio/pkg/version.buildVersion=$(istio-version)' \
			-o '$(CURDIR)/.tools/pilot-agent.new' istio.io/istio/pilot/cmd/pilot-agent && mv .tools/pilot-agent.new .tools/pilot-agent; \
	fi

run: build demo-tools ## a working mesh on this machine, without root
	@$(GO) build -o .tools/quickstart ./examples/quickstart
	@$(GO) build -o .tools/echo ./examples/echo
	@exec .tools/quickstart $(ARGS)

net-tools: # programs and a Debian tree that only root's tests need, and only root can install
	@[ "$$(id -u)" != 0 ] || tools/machine.sh .tools/machine

# -count=1, because Go's test cache does not track the programs that tests build and start.
test: build tools net-tools package ## all tests, real Envoy and Consul included
	$(GO) test -count=1 -p 4 ./...

e2e: build tools net-tools package ## only tests with real Envoys; SUITE=traffic is internal/e2e/traffic
	$(GO) test -v -count=1 ./internal/e2e/$(if $(SUITE),$(SUITE)/)...

check: build tools net-tools package ## formatting, vet, lint and all tests with the race detector
	@large="$$(git ls-files -z | xargs -0 sh -c 'find "$$@" -maxdepth 0 -size +1024k' -)"; test -z "$$large" || { echo "larger than 1 MiB: $$large"; exit 1; }
	@bad="$$(find . -path './.*' -prune -o -name '*.go' -exec "$$($(GO) env GOROOT)/bin/gofmt" -d {} +)"; test -z "$$bad" || { echo "$$bad"; exit 1; }
	$(GO) vet ./...
	$(GO) tool -modfile=tools/lint/go.mod staticcheck -checks inherit,-SA1019 ./... # deprecated fields are what operators write
	$(GO) test -count=1 -race ./...

bench: build ## benchmark: many simulated Envoys against ashored and against the floor; ARGS="-all" for more
	$(GO) run ./bench $(ARGS)

parity: ## our validation beside Istio's, on every example and test in its modules; with an empty cache some 6 minutes
	@TARGET_OUT=/ LOCAL_OUT=/ $(GO) run -C tools/parity . $(ARGS) # Istio's code warns of build folders that do not exist

fuzz: ## every fuzz target for FUZZTIME
	@for pkg in $$($(GO) list ./...); do \
		for target in $$($(GO) test -list '^Fuzz' $$pkg | grep '^Fuzz'); do \
			echo "$$pkg $$target"; \
			$(GO) test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) $$pkg || exit 1; \
		done; \
	done

golden: ## rewrite the expected results of golden tests
	$(GO) test ./config -run 'TestProblemTexts|TestMeshDoc|TestFieldsDoc' -update
	$(GO) test ./xds/gen ./examples -run TestGolden -update
	$(GO) test ./agent/intercept -run TestRender -update
	$(GO) test ./cmd/ashorectl -run TestFieldComments -update
	$(GO) test ./registry/kube/crd -run TestCRDs -update

package-build = CGO_ENABLED=0 $(GO) build -trimpath -ldflags '-s -w -X github.com/ashore-mesh/ashore/internal/build.version=$(VERSION)' $$(git rev-parse HEAD >/dev/null 2>&1 && echo -buildvcs=true)

package: package-texts ## deb and rpm packages and images (OCI) for amd64 and arm64, and an archive for this architecture, in dist/
	@rm -rf '$(DIST)'/*.deb '$(DIST)'/*.rpm '$(DIST)'/*.oci.tar '$(DIST)/build/doc' '$(DIST)/build/completion'
	@mkdir -p '$(DIST)/build/completion'
	@cp -r '$(DIST)/ashore' '$(DIST)/build/doc'
	$(package-build) -o '$(DIST)/build/host/' ./cmd/...
	@for program in ashored ashorectl ashore-agent; do for shell in bash zsh; do \
		'$(DIST)/build/host/'$$program completion $$shell >"$(DIST)/build/completion/$$program.$$shell" || exit 1; \
	done; done
	@for arch in $(ARCHES); do \
		GOOS=linux GOARCH=$$arch $(package-build) -o "$(DIST)/build/$$arch/" ./cmd/... && \
		tools/envoy.sh .tools/envoy-$(envoy-version)-$$arch $$arch || exit 1; \
		for name in ashore ashore-agent ashore-envoy; do for format in deb rpm; do \
			DIST='$(DIST)' ARCH=$$arch VERSION='$(VERSION)' ENVOY_VERSION=$(envoy-version) ENVOY_RELEASE=$(ENVOY_RELEASE) \
				$(GO) tool -modfile=tools/nfpm/go.mod nfpm package --config systemd/packaging/$$name.yaml --packager $$format --target '$(DIST)' || exit 1; \
		done; done; \
		tools/images.sh '$(DIST)' '$(VERSION)' $$arch .tools/envoy-$(envoy-version)-$$arch || exit 1; \
	done
	@cp -r '$(DIST)/build/host' '$(DIST)/ashore/bin' && cp systemd/packaging/archive-readme '$(DIST)/ashore/README.md' && cp -r systemd systemd/packaging/ashored.yaml '$(DIST)/ashore' && rm -r '$(DIST)/ashore/systemd/packaging'
	tar -C '$(DIST)' -czf "$(DIST)/ashore-$$($(GO) env GOOS)-$$($(GO) env GOARCH).tar.gz" ashore

package-texts: # what people read, with everything that it links to
	@rm -rf '$(DIST)/ashore'
	@mkdir -p '$(DIST)/ashore'
	@tar -cf - LICENSE README.md CONTRIBUTING.md docs dashboards $(wildcard $(foreach kind,README.md *.yaml *.sh *.json *.jwt config rules change,examples/*/$(kind))) | tar -C '$(DIST)/ashore' -xf -

clean: ## remove build results and .run; downloaded tools stay
	rm -rf bin .run dist coverage.out .tools/quickstart .tools/echo

.PHONY: help build tools demo-tools consul-tool kubernetes-tools istio-tool net-tools run test e2e check bench parity fuzz golden package package-texts clean
