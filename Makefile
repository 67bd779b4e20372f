# What can be done here: make without a target lists it.

CARGO ?= cargo
# Where a test stands says when it runs: in a module `here` with make test, in `labs` with make test-all, else with make check.
# What tests start would take over signals that are ignored here, as under nohup or in the background of a script.
TEST = env --default-signal=HUP,INT $(CARGO) test --profile tests --locked --no-fail-fast --tests --
# What was skipped, and why.
export BUSBW_SKIPPED := $(CURDIR)/target/skipped
SKIPPED = [ ! -s $(BUSBW_SKIPPED) ] || { echo && sort -u $(BUSBW_SKIPPED); }
RECORDED := tests/data/runs/h20-2x8-roce-cross-switch/run.log

.PHONY: help doctor example build setup check test test-all lint lint-near lint-apart facts accuracy predict-accuracy predict-calibrated predict-fit fuzz bench bench-simulate bench-monitor bench-tune bench-tuning bench-alltoallv bench-net bench-topk bench-replay bench-peers gpu-check book docs install packages test-packages faults soak bench-all bench-table bench-diff bench-fleet bench-binary hangbench clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-17s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

doctor: ## Build busbw, measure this machine and explain the result (busbw-report.json)
	@[ -x target/release/busbw ] || echo "Building busbw first: 4 minutes on 2 cores, less on more. Then a minute to measure."
	@$(MAKE) --no-print-directory build
	@target/release/busbw doctor; status=$$?; \
	echo "Next time: target/release/busbw doctor, or busbw doctor after make install; several hosts: busbw doctor --hosts a,b,c"; \
	[ $$status -le 1 ] || [ $$status -eq 3 ]

example: build ## Answer the first field report from its recorded log: why is busbw falling?
	@target/release/busbw explain $(RECORDED); status=$$?; [ $$status -le 1 ]

build: ## Build the command, target/release/busbw, and NCCL's network plugin, libnccl-net-busbw.so beside it
	$(CARGO) build --release --locked -p busbw -p busbw-plugin
	@cp -f target/release/libnccl_net_busbw.so target/release/libnccl-net-busbw.so

setup: ## List what the tests and packages need beyond Rust, ask (YES=1 answers), and install it
	@scripts/setup all

check: ## Lints and pure tests: a minute or two
	@mkdir -p target && rm -f $(BUSBW_SKIPPED)
	$(CARGO) clippy --profile tests --locked --all-targets -- -D warnings
	$(TEST) --skip here:: --skip labs::

test: check ## And processes of this host, Python, Open MPI and MPICH, which it asks to install: ten minutes
	@scripts/setup test
	$(CARGO) build --profile tests --locked --examples
	$(TEST) here::
	$(CARGO) test --profile tests --locked --doc --quiet
	@scripts/test-python
	@$(SKIPPED)

test-all: test ## And labs (as root), tutorials, PyTorch, pages in a browser, packages: all that CI runs
	@scripts/setup all
	@scripts/test-labs $(TEST)
	$(CARGO) test --profile tests --locked -p busbw-pages
	@scripts/test-packages
	@$(SKIPPED)

lint: lint-near lint-apart ## Check formatting, lints, docs, dependencies, the arrows between wings, the glossary's words, and schemas

lint-near:
	$(CARGO) fmt --all --check
	$(CARGO) clippy --profile tests --locked --all-targets -- -D warnings
	$(CARGO) clippy --profile tests --locked -p busbw-pages --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --profile tests --locked --no-deps --document-private-items --quiet
	$(CARGO) test --profile tests --locked --quiet -p busbw -p busbw-report --test all -- house:: wings:: schemas::
	@scripts/lint-python
	@scripts/lint-licences

# The fuzz targets, and unsafe code under Miri: what compiles all that it needs itself.
lint-apart:
	@scripts/lint-fuzz
	@scripts/miri

facts: ## Show, per file and fact, what busbw finds in 33 real logs
	@BUSBW_FACTS=all $(CARGO) test --profile tests --locked --quiet -p busbw --test all facts:: -- --nocapture

accuracy: ## Diagnose the cases, tables and logs whose answer is known, and say which answers were right
	@BUSBW_ACCURACY=all $(CARGO) test --profile tests --locked --quiet -p busbw --test all accuracy:: -- --nocapture --test-threads 1

predict-accuracy: ## Hold predictions against published measurements, and draw them
	@$(CARGO) run --profile tests --locked --quiet -p busbw-benches --bin predict-accuracy -- --plot docs/prediction-accuracy.svg
	@$(CARGO) run --profile tests --locked --quiet -p busbw-benches --bin predict-accuracy -- --left-out --plot-bands docs/prediction-bands.svg

predict-calibrated: ## Calibrate with one table of a machine, predict its others, and record how far they are
	@$(CARGO) run --profile tests --locked --quiet -p busbw-benches --bin predict-accuracy -- --calibrated tests/data/figures/machines.toml

predict-fit: ## Fit the measured constants of the time model anew, and print them
	@$(CARGO) run --profile tests --locked --quiet -p busbw-benches --bin predict-accuracy -- --fit

fuzz: ## Fuzz every reader of foreign bytes in turn, MINUTES=1 each (needs a nightly toolchain and cargo-fuzz)
	@scripts/setup-fuzz
	scripts/fuzz $(or $(MINUTES),1)

faults: ## Run every test that breaks something, and show what was broken and what was seen
	scripts/faults

soak: build ## Run bench, monitor and tune for MINUTES=20 at once, and see whether memory or descriptors grow
	python3 benches/soak.py --minutes $(or $(MINUTES),20)

bench-all: bench bench-fleet bench-binary bench-simulate bench-monitor bench-tune bench-tuning bench-alltoallv bench-net bench-topk bench-replay bench-peers bench-table ## Measure everything that this machine can (an hour), and rewrite docs/benchmarks.md

bench-table: ## Rewrite docs/benchmarks.md from benches/results
	@python3 benches/table.py

bench-diff: ## Name the figures in benches/results that are worse than the same machine's before, by more than the spread
	@python3 benches/diff.py

bench-fleet: build ## Measure explaining the results of 1,000 nodes
	python3 benches/fleet.py

bench-binary: build ## Measure the start of busbw --help and the size of the binary
	python3 benches/binary.py

bench: build ## Measure ingest beside wc and ripgrep (needs ripgrep), on 1 GiB, on a training's output and on 16,384 ranks
	$(CARGO) build --release --locked -p busbw-benches
	target/release/bench-ingest --size 1G
	target/release/bench-ingest --repeat tests/data/logs-2/n28-oracle-512h100.log --size 300M
	target/release/bench-ingest --scale

bench-simulate: ## Measure the simulation of fabrics from 512 to 65,536 GPUs (5 minutes)
	$(CARGO) build --release --locked -p busbw-benches
	target/release/bench-simulate

bench-monitor: build ## Measure the processor time of watching 16 ports (3 minutes)
	$(CARGO) build --release --locked -p busbw-benches
	target/release/bench-monitor

bench-tune: ## Race the settings of the third field report over 1,000 seeds (seconds)
	$(CARGO) run --profile tests --locked --quiet -p busbw-benches --bin bench-tune

bench-alltoallv: build ## Measure uneven exchanges beside their prediction, in two labs (as root, with Open MPI; 4 minutes)
	python3 benches/alltoallv.py

bench-tuning: build ## Measure what a tuning table gains on sizes that were not measured, in three labs (as root, with Open MPI; 25 minutes)
	python3 benches/tuning.py

bench-net: build ## Measure the net plugin between two hosts beside iperf3 and bare sockets (as root, needs iperf3; 6 minutes)
	$(CARGO) build --release --locked -p busbw-benches
	target/release/bench-net $(foreach plugin,$(PLUGINS),--other $(plugin))

bench-topk: ## Measure selecting from CPU tensors beside torch.topk (after make setup, which installs PyTorch; 3 minutes)
	target/python/bin/python benches/topk.py

bench-replay: ## Replay the training of the fifth field report on a slow network (as root, after make test-all; 10 minutes)
	target/python/bin/python benches/replay.py

bench-peers: build ## Measure collectives beside Open MPI, MPICH and Gloo, installed first (as root; 20 minutes)
	@scripts/setup-peers
	$(CARGO) build --release --locked -p busbw-benches
	target/release/bench-peers

hangbench: build ## Make SEEDS=1-5 × faults × shapes of stuck and slow jobs, RUNS at most, and score explain and fr_trace (as root, after make test-all; 40 minutes)
	target/python/bin/python benches/hangbench --seeds $(or $(SEEDS),1-5) --runs $(or $(RUNS),0) --out target/hangs
	target/python/bin/python benches/hangbench/scoring.py target/hangs

gpu-check: build ## Run what only a GPU can show, on a machine that has one (8 minutes)
	scripts/gpu-check

book: ## Build the book of docs/, target/book/index.html
	@BUSBW_BOOK=target/book $(CARGO) test --profile tests --locked --quiet -p busbw-pages -- the_book
	@echo target/book/index.html

docs: ## Build the API documentation
	$(CARGO) doc --locked --workspace --no-deps --open

install: build ## Install the command, NCCL's plugin, completions and man pages under PREFIX (default ~/.local)
	@scripts/install "$${PREFIX:-$$HOME/.local}"

packages: ## Make the wheel, the .deb and the static command, target/packages (PROFILE=quick: in a fraction of the time)
	@scripts/packages

test-packages: ## Make the packages quickly, and install each where nothing of busbw is (as root)
	@scripts/test-packages

clean: ## Delete what was built
	$(CARGO) clean
