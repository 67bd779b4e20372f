# What can be done here: make without a target lists it.

CARGO ?= cargo
RECORDED := tests/data/runs/h20-2x8-roce-cross-switch/run.log

.PHONY: help doctor build test lint facts fuzz bench docs install clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

doctor: build ## Build busbw and answer the first field report: why is busbw falling?
	@target/release/busbw explain $(RECORDED); status=$$?; [ $$status -le 1 ]

build: ## Build the command: target/release/busbw
	$(CARGO) build --release --locked -p busbw

test: ## Install what the tests need, and run them all
	@scripts/setup-tests
	$(CARGO) test --release --locked --workspace

lint: ## Check formatting, lints and docs
	$(CARGO) fmt --all --check
	$(CARGO) clippy --locked --workspace --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --locked --workspace --no-deps --document-private-items --quiet

facts: ## Show, per file and fact, what busbw finds in 33 real logs
	@BUSBW_FACTS=all $(CARGO) test --release --locked --quiet -p busbw --test facts

fuzz: ## Fuzz explain's input for 60 seconds (needs a nightly toolchain and cargo-fuzz)
	@scripts/setup-fuzz
	fuzz/seed.sh
	$(CARGO) +nightly fuzz run explain -- -dict=fuzz/explain.dict -max_len=65536 -timeout=10 -max_total_time=60

bench: build ## Measure ingest beside wc and ripgrep (needs ripgrep), on 1 GiB and on 16,384 ranks
	$(CARGO) build --release --locked -p busbw-benches
	target/release/bench-ingest --size 1G
	target/release/bench-ingest --scale

docs: ## Build the API documentation
	$(CARGO) doc --locked --workspace --no-deps --open

install: build ## Install the command, completions and man pages under PREFIX (default ~/.local)
	@scripts/install "$${PREFIX:-$$HOME/.local}"

clean: ## Delete what was built
	$(CARGO) clean
