# rdmatrace. `make help` lists what there is.
GO      ?= go
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
RUNNER  := $(GO) tool gotestsum --format pkgname-and-test-fails --hide-summary=skipped --raw-command
export GOFLAGS := -buildvcs=false $(GOFLAGS)

# Debian packages: what the software device and its programs need, what kernels in a VM need beside, and what the tests need.
DEMO_PACKAGES := gcc libc6-dev make libibverbs-dev ibverbs-providers ibverbs-utils perftest util-linux procps
VM_PACKAGES   := qemu-system-x86 busybox-static cpio kmod xz-utils rdma-core iproute2
TEST_PACKAGES := $(DEMO_PACKAGES) $(VM_PACKAGES) git clang llvm lld python3 g++ binutils

.PHONY: build
build: ## build bin/rdmatrace; needs Go only
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags "-s -w -X main.version=$(VERSION)" -o bin/rdmatrace ./cmd/rdmatrace

.PHONY: generate
generate: ## compile the BPF programs anew; needs clang
	$(GO) generate ./bpf

.PHONY: deps
deps: ## install the Debian packages that the tests need
	.ci/packages $(TEST_PACKAGES)

.PHONY: testbed
testbed: ## build the software RDMA device
	$(MAKE) -C testbed/softmlx5

.PHONY: demo
demo: ## trace perftest on a software device; installs what that needs
	.ci/packages $(DEMO_PACKAGES)
	$(MAKE) build testbed
	testbed/demo

.PHONY: test
test: ## everything: packages, builds, linters and all tests, whose times go to build/tests.json; as root
	$(MAKE) deps
	$(MAKE) build testbed
	$(MAKE) lint check-generated
	mkdir -p build
	GO=$(GO) $(RUNNER) --jsonfile-timing-events build/tests.json -- .ci/test

.PHONY: e2e
e2e: deps build testbed ## of the tests, real programs on the software device against its truth log; as root
	$(GO) test -count=1 -timeout 20m ./testbed/e2e

.PHONY: oracle
oracle: deps build testbed ## all cases of injected faults against what is reported, of which make test runs some; writes docs/oracle.md; as root
	RDMATRACE_ORACLE=1 $(GO) test -count=1 -timeout 20m -run Oracle ./testbed/e2e -update

.PHONY: vm-test
vm-test: ## kernel RDMA in a VM, on each kernel of CI or KERNEL=NAME; installs what that needs; as root
	.ci/packages $(DEMO_PACKAGES) $(VM_PACKAGES)
	testbed/vm/test $(KERNEL)

SOAK ?= 100
SOAK_TESTS := TestFullRate|TestManyAttaches|TestKilledAtRandom|TestKilledWhileHolding|TestCycles|TestMemoryIsBounded|TestMemoryOfAnalysis
.PHONY: soak
soak: deps build testbed ## beside the tests, half an hour: endurance on the software device, or SOAK percent of it; as root
	RDMATRACE_SOAK=$(SOAK) $(GO) test -count=1 -timeout 2h -v -run '$(SOAK_TESTS)' ./attribution ./testbed/e2e ./tracer

.PHONY: vm-boot
vm-boot: ## of the tests, those that boot both kernels of CI; installs what that needs; as root
	.ci/packages $(DEMO_PACKAGES) $(VM_PACKAGES)
	$(GO) test -count=1 -timeout 20m -v ./testbed/vm/matrix

JOB_PACKAGES := python3-torch python3-mpi4py openmpi-bin
.PHONY: e2e-jobs
e2e-jobs: deps build testbed ## the same on a PyTorch job over MPI and UCX; installs half a gigabyte; as root
	.ci/packages $(JOB_PACKAGES)
	RDMATRACE_JOBS=1 $(GO) test -count=1 -timeout 20m -v -run 'TestTrainingJob|TestBypassIsSaid' ./testbed/e2e

.PHONY: unit
unit: ## the tests that are quick and need no root
	$(GO) test ./event/... ./capture/... ./attribution/... ./export/... ./internal/...

.PHONY: lint
lint:
	$(GO) vet ./...
	$(GO) tool staticcheck ./...

# The committed objects are those of the committed sources. Compilers of other
# versions make other objects, so they are compared where this one made them.
CLANG_MAJOR := 14
.PHONY: check-generated
check-generated:
	rm -rf build/_generated && mkdir -p build/_generated && cp -r bpf/. build/_generated
	cd build/_generated && $(GO) generate .
	@if clang --version | grep -q 'version $(CLANG_MAJOR)\.'; then \
		for f in bpf/*_bpfel.go bpf/*_bpfel.o; do \
			cmp $$f build/_generated/$${f#bpf/} || { echo "$$f is not what its sources give: make generate" >&2; exit 1; }; \
		done; \
	else \
		echo "not compared: the committed objects are those of clang $(CLANG_MAJOR)"; \
	fi

.PHONY: fmt
fmt: ## format Go and C
	gofmt -w $$(git ls-files '*.go' | grep -v _bpfel)
	clang-format -i $$(git ls-files 'bpf/*.c' 'bpf/*.h' 'testbed/*.c' 'testbed/*.h' | grep -v bpf/headers)

# go build takes the profile of cmd/rdmatrace for what is hot there; tests have to be told.
PROFILE := cmd/rdmatrace/default.pgo
.PHONY: bench
bench: ## benchmarks of the pure parts
	$(GO) test -run '^$$' -pgo=$(CURDIR)/$(PROFILE) -bench . ./capture/... ./attribution/... ./export/...

.PHONY: profile
profile: ## for the compiler, of the engine at work: after changes to what is hot
	mkdir -p build
	$(GO) test -run '^$$' -bench '^BenchmarkReplay$$' -cpu 1 -benchtime 4s -o build/export.test -cpuprofile build/export.pgo ./export
	cp build/export.pgo $(PROFILE)

.PHONY: bench-overhead
bench-overhead: ## what observing costs, beside a bpftrace script, on the software device; as root
	.ci/packages $(DEMO_PACKAGES) bpftrace
	$(MAKE) build testbed
	$(MAKE) -C testbed/programs
	$(GO) run ./testbed/bench -o docs/overhead-figures.md

.PHONY: clean
clean: ## remove what was built
	rm -rf bin build
	$(MAKE) -C testbed/softmlx5 clean

.PHONY: help
help:
	@sed -n 's/^\([a-z0-9-]*\):.*## /\1\t/p' Makefile | expand -t 17
