# Everything here needs Go only. Tests that need Java and Maven say that they are skipped (see README).
GO      ?= go
BIN     := bin
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
LDFLAGS := -s -w -X main.buildVersion=$(VERSION)
GOLANGCI := github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0

.PHONY: build demo play test lint bench fuzz docs image clean

build:
	@mkdir -p $(BIN)
	CGO_ENABLED=0 $(GO) build -ldflags '$(LDFLAGS)' -o $(BIN)/ ./cmd/rollcall ./cmd/demo

# The main job on embedded parts, with faults; checks itself and exits 0 only if every number is right.
demo: build
	@$(BIN)/demo -worker $(BIN)/rollcall

# The same parts, left running to look at: status page, metrics, SQL.
play: build
	@$(BIN)/demo -worker $(BIN)/rollcall -play

# Everything a laptop can run.
test:
	$(GO) vet -tags synctests ./...
	$(GO) test -race -tags synctests -timeout 20m $$($(GO) list ./... | grep -v '/test/')
	$(GO) test -timeout 20m ./test/...

lint:
	@test -z "$$(gofmt -l $$(git ls-files '*.go'))" || { gofmt -l $$(git ls-files '*.go'); exit 1; }
	$(GO) run $(GOLANGCI) run ./...

# Worker against a raw franz-go consumer on the same broker and topic, then the Go benchmarks.
bench: build
	$(GO) run ./cmd/bench -worker $(BIN)/rollcall
	$(GO) test -run '^$$' -bench . -benchmem ./pkg/aggregate ./pkg/bitmap ./pkg/sink/starrocks

FUZZTIME ?= 30s
fuzz:
	@GO=$(GO) .ci/fuzz $(FUZZTIME)

# Pages generated from code; tests check that they are up to date.
docs: build
	$(BIN)/rollcall config --markdown > docs/settings.md
	$(GO) test ./pkg/pipeline -run TestMetricsPage -update
	$(GO) run ./deploy/grafana/gen > deploy/grafana/dashboard.json

# The container image, reproducibly, with docker, podman or buildah (BUILDER=none: only its contents, in build/image).
image:
	@GO=$(GO) VERSION=$(VERSION) deploy/image/build $(IMAGE)

clean:
	rm -rf $(BIN)
