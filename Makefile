# Octavo's commands. `make` alone lists them.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
export OCTAVO_TEST_MODELS ?= $(HOME)/.cache/octavo/test-models
export OCTAVO_GOLDEN ?= $(CURDIR)/tests/golden/data

RUST_SOURCES := $(shell find rust -name '*.rs' -o -name Cargo.toml) Cargo.toml Cargo.lock

# Rust tests that need more than `make test-models` fetches.
LARGE := binary(golden) & test(/^(gemma3|qwen)_/)

ARM_LINUX := aarch64-unknown-linux-gnu
ARM_MACOS := aarch64-apple-darwin

NIGHTLY := cargo +nightly --version >/dev/null 2>&1 || { echo "octavo: no nightly Rust; install it (rustup toolchain install nightly)"; exit 1; }

# What Miri does not take too long for: it runs a thousandth as fast, and portable code only.
MIRI := simd:: rope:: quant::rows elementwise::tests::embedding linear::tests::rows linear::tests::the \
	quant::int8::tests::rows attention::tests::contra sampling::tests::greedy_shows pool::tests::every pool::tests::a_panic

.PHONY: help setup build serve chat test test-rust test-loom test-python test-models test-large test-arm test-asan test-miri lint-arm soak budgets lint format bench bench-peers clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

serve: build ## Serve the demo model on 127.0.0.1:8000 (installs and builds first where needed)
	@$(BIN)/octavo serve demo

chat: build ## Talk to a server started with `make serve`
	@$(BIN)/octavo chat

test: test-rust test-loom test-python ## Run every test (installs, builds and fetches the test models first)

setup: $(VENV)/.installed ## Make .venv with the pinned dependencies

build: $(VENV)/.built ## Build the extension in release mode into .venv

# A torch that the chosen Python has already (say, a CPU-only build) is used as it is.
$(BIN)/python:
	@command -v $(PYTHON) >/dev/null || { echo "octavo: $(PYTHON) not found; install Python 3.11 or newer, or say make PYTHON=..."; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "octavo: $(PYTHON) is too old; Python 3.11 or newer is needed (make PYTHON=...)"; exit 1; }
	@command -v cargo >/dev/null || { echo "octavo: cargo not found; install a Rust toolchain (1.90 or newer)"; exit 1; }
	@command -v cc >/dev/null || { echo "octavo: no C compiler (cc) found; install gcc or clang"; exit 1; }
	@echo "octavo: making $(VENV)"
	@site=$$($(PYTHON) -c 'import importlib.util as u; print("--system-site-packages" if u.find_spec("torch") else "")'); \
	$(PYTHON) -m venv $$site $(VENV)

$(VENV)/.installed: constraints.txt pyproject.toml | $(BIN)/python
	@echo "octavo: installing the dependencies (torch is large: some minutes the first time)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check uv==0.13.9
	@cp constraints.txt $(VENV)/constraints.txt; \
	if have=$$($(BIN)/python -c 'import importlib.metadata as m; print(m.version("torch"))' 2>/dev/null); then \
		echo "octavo: keeping torch $$have"; \
		grep -vE '^(torch|triton|cuda|nvidia)' constraints.txt > $(VENV)/constraints.txt; \
		echo "torch==$$have" >> $(VENV)/constraints.txt; \
	fi; \
	: "pip where packages of the Python beneath count: uv does not see those"; \
	if grep -q 'include-system-site-packages = true' $(VENV)/pyvenv.cfg; then \
		deps=$$($(BIN)/python -c 'import tomllib; p = tomllib.load(open("pyproject.toml", "rb"))["project"]; print(*p["dependencies"], *p["optional-dependencies"]["dev"], sep="\n")'); \
		$(BIN)/python -m pip install --disable-pip-version-check --constraint $(VENV)/constraints.txt --requirement <(echo "$$deps"); \
		: "commands of these must be in $(VENV) even where the packages are beneath"; \
		$(BIN)/python -m pip install --disable-pip-version-check --constraint $(VENV)/constraints.txt --ignore-installed --no-deps \
			import-linter maturin mypy pytest ruff; \
	else \
		$(BIN)/uv pip install --compile-bytecode --python $(BIN)/python --constraint $(VENV)/constraints.txt --requirement pyproject.toml --extra dev; \
	fi
	@touch $@

$(VENV)/.built: $(VENV)/.installed $(RUST_SOURCES)
	@echo "octavo: building the extension (some minutes the first time)"
	@VIRTUAL_ENV=$(CURDIR)/$(VENV) PIP_CONSTRAINT=$(CURDIR)/$(VENV)/constraints.txt PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_QUIET=1 \
		PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/maturin develop --locked --release
	@$(BIN)/python -m compileall -q python/octavo
	@touch $@

test-models: $(VENV)/.installed ## Fetch the models that the tests use
	@$(BIN)/python tests/fetch_models.py "$(OCTAVO_TEST_MODELS)" smollm2 vocab minilm

test-rust: test-models ## Run the Rust tests
	@command -v cargo-nextest >/dev/null || cargo install --locked cargo-nextest@0.9.143
	cargo nextest run --locked --workspace --features octavo-text/golden --status-level fail -E 'not ($(LARGE))'

# Loom replaces what threads share, so this is a build of its own.
test-loom: ## Explore the orders of events in the pool of threads
	RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR=target/loom cargo test --locked --package octavo-cpu --release --lib pool::model

# Of the kernels only: the rest has nothing of a processor's own.
test-arm: ## Run the kernels' tests on an emulated Arm processor (needs qemu-user and a cross compiler)
	@[ -d "$$(rustc --print target-libdir --target $(ARM_LINUX))" ] || { echo "octavo: no Rust for Arm; install it (rustup target add $(ARM_LINUX))"; exit 1; }
	@command -v qemu-aarch64 >/dev/null || { echo "octavo: qemu-aarch64 not found; install it (apt-get install qemu-user)"; exit 1; }
	@command -v aarch64-linux-gnu-gcc >/dev/null || { echo "octavo: aarch64-linux-gnu-gcc not found; install it (apt-get install gcc-aarch64-linux-gnu libc6-dev-arm64-cross)"; exit 1; }
	CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc \
	CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER='qemu-aarch64 -L /usr/aarch64-linux-gnu' \
		cargo test --locked --package octavo-cpu --release --target $(ARM_LINUX)

lint-arm: ## Check the kernels as Arm processors compile them, on Linux and macOS (needs both Rust targets)
	for target in $(ARM_LINUX) $(ARM_MACOS); do \
		[ -d "$$(rustc --print target-libdir --target $$target)" ] || { echo "octavo: no Rust for Arm; install it (rustup target add $$target)"; exit 1; }; \
		cargo clippy --locked --package octavo-cpu --all-targets --target $$target -- -D warnings; \
	done

test-asan: ## Run the kernels' tests under AddressSanitizer (needs a nightly Rust)
	@$(NIGHTLY)
	RUSTFLAGS=-Zsanitizer=address CARGO_TARGET_DIR=target/asan cargo +nightly test --locked --package octavo-cpu --release \
		--target $$(rustc --print host-tuple) --lib --tests

test-miri: ## Run tests of the kernels' buffers, matrices and threads under Miri (needs a nightly Rust with miri)
	@$(NIGHTLY)
	@cargo +nightly miri --version >/dev/null 2>&1 || { echo "octavo: no Miri; install it (rustup component add --toolchain nightly miri rust-src)"; exit 1; }
	MIRIFLAGS="-Zmiri-disable-isolation -Zmiri-symbolic-alignment-check" CARGO_TARGET_DIR=target/miri cargo +nightly miri test --locked --package octavo-cpu --lib -- $(MIRI)

test-python: build test-models ## Run the Python and end-to-end tests
	$(BIN)/python -m pytest

test-large: build ## Run the tests of larger models too (fetches some 700 MB)
	@$(BIN)/python tests/fetch_models.py "$(OCTAVO_TEST_MODELS)" gemma3 qwen25coder
	cargo nextest run --locked --package octavo-text --features octavo-text/golden -E '$(LARGE)'
	$(BIN)/python -m pytest -m models

soak: ## Simulate a million requests under pressure with each scheduling policy
	$(PYTHON) benches/soak.py $(ARGS)

budgets: ## Count the instructions of the hot paths and compare them with their budgets (needs valgrind)
	@command -v valgrind >/dev/null || { echo "octavo: valgrind not found; install it (apt-get install valgrind)"; exit 1; }
	$(PYTHON) benches/budgets.py $(ARGS)

lint: build ## Check formatting, lints, types, layers and licences
	cargo fmt --all --check
	cargo clippy --locked --workspace --all-targets --all-features -- -D warnings
	@command -v cargo-deny >/dev/null || cargo install --locked cargo-deny@0.20.2
	: "of every platform: cargo-deny reads crates that a build here does not"
	cargo fetch --locked
	cargo deny --offline --all-features check bans licenses sources
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(VENV)/.installed ## Format all sources
	cargo fmt --all
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: build ## Measure start-up and how much of a step is not the model's forward
	$(BIN)/python benches/stack.py

bench-peers: build ## Measure Octavo beside vLLM and llama.cpp (installs both; ARGS=--quick, ARGS=--help)
	@$(BIN)/python -m benches.peers $(ARGS)

clean: ## Remove what was built and installed
	rm -rf target $(VENV) python/octavo/*.so
