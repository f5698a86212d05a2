# make help

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
DATA ?= .data
SEEDS ?= 10000
FOLLOWED_SEEDS ?= 2000
REPLAYED_SEEDS ?= 100
KILLS ?= 500
FIRST ?=
VERSUS ?=
COMPARE ?=
CARGO ?= cargo
RELEASE := target/release
DEBUG := target/debug
# Where everything is built once and thrown away, what makes the next build faster only makes this one slower, and what was built is
# never debugged.
ifeq ($(CI),true)
export CARGO_INCREMENTAL := 0
export CARGO_PROFILE_DEV_DEBUG := 0
endif

.PHONY: help build run demo test lint unit system sim-short fuzz-short clients compat console-pictures hostile crash sim fuzz mutants first-benchmark versus-kafka versus-rabbitmq peers compare report compare-quick hot-paths deb deb-test codegen clean

help: ## What there is
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 18

build: ## Build the release binaries: what is measured and packaged
	@tests/install.sh build
	$(CARGO) build --release --locked -p polylogue-server -p polylogue-sim

run: ## Build and start the broker, ready to use (data in DATA=.data)
	@tests/install.sh build
	$(CARGO) build --profile quick --locked -p polylogue-server
	exec target/quick/polylogue serve --listen all --data $(DATA)

demo: build ## Stream a real data set through the broker into two consumer groups
	demo/run.sh

# All that is built here with the dev profile is built of the same selection of packages, --workspace: with -p, Cargo enables other features of
# what they depend on, and builds that again. (Without the tests of testkit they are the same.)
test: ## Everything CI runs; says at the end what took how long
	@mkdir -p build && rm -f build/times
	@for part in lint unit build system sim-short fuzz-short; do \
	    start=$$SECONDS; $(MAKE) --no-print-directory $$part || exit 1; echo "$$part: $$((SECONDS - start)) s" >>build/times; \
	done
	@cat build/times
	@tests/install.sh report
	@echo "all of make test passed"

lint:
	@tests/install.sh all
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings
	$(CARGO) build -q --locked --workspace --bin xtask --example fuzz_seeds
	$(DEBUG)/xtask codegen kafka --check
	$(DEBUG)/xtask words
	for lock in $$(git ls-files '*/Cargo.lock'); do \
	    $(CARGO) metadata --locked --format-version 1 --manifest-path "$${lock%.lock}.toml" >/dev/null; \
	done

unit:
	tests/java-codec/run.sh
	tests/java-worker/run.sh
	$(CARGO) test --workspace --locked --exclude polylogue-testkit

system: build
	POLYLOGUE_BIN=$(CURDIR)/$(RELEASE)/polylogue $(CARGO) test --workspace --locked --test system -- --nocapture --test-threads=1

sim-short: build
	$(RELEASE)/polylogue-sim follow 1 50 & follow=$$!; \
	$(RELEASE)/polylogue-sim 1 200; $(RELEASE)/polylogue-sim replay 1 5; wait $$follow

fuzz-short:
	FUZZ_SECONDS=10 tests/fuzz.sh

clients: build ## Every client through every case
	@tests/install.sh all
	POLYLOGUE_CLIENTS=all POLYLOGUE_BIN=$(CURDIR)/$(RELEASE)/polylogue $(CARGO) test --workspace --locked --test system -- clients:: --nocapture --test-threads=1

compat: build ## The test suites that come with client libraries: compat/NAME, each with its list of tests that pass
	@tests/install.sh all
	failed=; for suite in aio-pika amqp091-go amqplib amqpstorm franz-go keda kombu lapin py-amqp rabbit-hole rabbitmqadmin rabbitmqadmin-classic rdkafka rskafka telegraf; do \
	    POLYLOGUE_BIN=$(CURDIR)/$(RELEASE)/polylogue compat/$$suite/run.sh || failed="$$failed $$suite"; \
	done; [ -z "$$failed" ] || { echo "failed:$$failed" >&2; exit 1; }

console-pictures: build ## The pictures in docs/console (needs Chromium)
	POLYLOGUE_PICTURES=$(CURDIR)/docs/console POLYLOGUE_BIN=$(CURDIR)/$(RELEASE)/polylogue $(CARGO) test --workspace --locked --test system -- console::

hostile: build ## Attackers beside well-behaved clients, measured
	POLYLOGUE_BIN=$(CURDIR)/$(RELEASE)/polylogue $(CARGO) test --workspace --locked --test hostile -- --nocapture --test-threads=1

crash: build ## kill -9 under load, KILLS=500 times, and power cuts
	POLYLOGUE_KILLS=$(KILLS) POLYLOGUE_QUEUE_KILLS=$(KILLS) POLYLOGUE_POWER_CUTS=50 POLYLOGUE_QUEUE_POWER_CUTS=50 POLYLOGUE_BIN=$(CURDIR)/$(RELEASE)/polylogue $(CARGO) test --workspace --locked --test system -- crash:: crash_queues:: crash_deletes:: crash_mapping:: --nocapture --test-threads=1

sim: build ## The simulator, SEEDS=10000 seeds, with a follower that takes over FOLLOWED_SEEDS=2000, replayed REPLAYED_SEEDS=100
	$(RELEASE)/polylogue-sim 1 $(SEEDS)
	$(RELEASE)/polylogue-sim follow 1 $(FOLLOWED_SEEDS)
	$(RELEASE)/polylogue-sim replay 1 $(REPLAYED_SEEDS)

fuzz: ## Every fuzz target for FUZZ_SECONDS=300 (needs cargo-fuzz and a nightly toolchain)
	FUZZ_SECONDS=$${FUZZ_SECONDS:-300} tests/fuzz.sh

mutants: ## Build the tree with each seeded bug and see that it is found
	$(CARGO) run -q --locked -p xtask -- mutants

first-benchmark: build ## What is run first: the vendors' own tools beside Apache Kafka and RabbitMQ (FIRST="--rounds 7", "--quick", "--only kafka", "--help")
	@tests/install.sh all
	$(CARGO) build --release --locked -p polylogue-bench
	$(RELEASE)/polylogue-bench peers install kafka rabbitmq perf-test
	$(RELEASE)/polylogue-bench first $(FIRST)

versus-kafka: build ## Measure beside Apache Kafka, same client, in turns (VERSUS="--quick": a smoke run; "--resume": go on; "--help": what else)
	@tests/install.sh all
	$(CARGO) build --release --locked -p polylogue-bench -p polylogue-bench-flushes
	$(RELEASE)/polylogue-bench peers install
	$(RELEASE)/polylogue-bench peers workers
	$(RELEASE)/polylogue-bench versus $(VERSUS)

versus-rabbitmq: build ## Measure queues beside RabbitMQ, likewise (VERSUS as above)
	$(CARGO) build --release --locked -p polylogue-bench -p polylogue-bench-flushes
	$(RELEASE)/polylogue-bench peers install rabbitmq
	$(RELEASE)/polylogue-bench versus rabbitmq $(VERSUS)

peers: build ## Fetch every peer and every client, and see that each target carries messages (needs Maven, a JDK, a C compiler, Debian's apt-get)
	@tests/install.sh all
	$(CARGO) build --release --locked -p polylogue-bench
	$(RELEASE)/polylogue-bench peers install kafka rabbitmq pulsar rocketmq tubemq
	$(RELEASE)/polylogue-bench peers workers
	$(RELEASE)/polylogue-bench peers list
	for target in polylogue-sync polylogue-async kafka kafka-fsync kafka-tuned rabbitmq rabbitmq-tuned pulsar pulsar-nosync pulsar-tuned \
	    rocketmq rocketmq-sync rocketmq-tuned tubemq tubemq-tuned; do \
	    $(RELEASE)/polylogue-bench --json run --target $$target --client java --rate 1000 --in-flight 500 --warmup 2s --window 5s || exit 1; \
	done
	$(RELEASE)/polylogue-bench --json run --target rabbitmq --client java --system rabbitmq-stream --rate 1000 --in-flight 500 --warmup 2s --window 5s
	tests/secured-kafka/run.sh $(RELEASE)/polylogue-bench build

compare: ## Run the published comparisons beside Kafka, RabbitMQ, Pulsar, RocketMQ and TubeMQ (COMPARE="--part 1": an hour of it; "--plan": what it would run; "--resume": go on)
	@tests/install.sh all
	$(CARGO) build --release --locked -p polylogue-server -p polylogue-bench -p polylogue-bench-flushes
	$(RELEASE)/polylogue-bench peers install kafka rabbitmq pulsar rocketmq tubemq
	$(RELEASE)/polylogue-bench peers workers
	$(RELEASE)/polylogue-bench compare $(COMPARE)

report: ## Write report/ and README.md's table of figures from the committed result lines (REPORT=--check: compare only)
	$(CARGO) run -q --locked -p polylogue-bench -- report --out report --readme README.md $(REPORT) benches/results/compare-*.jsonl

compare-quick: ## Show that every cell of every scenario starts; its figures mean nothing
	$(MAKE) compare COMPARE="--quick $(COMPARE)"

hot-paths: ## Count the instructions and allocations of the hot paths (needs valgrind)
	$(CARGO) build --release --locked -p polylogue-bench --example hot_paths --example hot_paths_heap
	$(RELEASE)/examples/hot_paths

deb: build ## A Debian package of the release binary, in target/debian
	packaging/debian/build.sh $(RELEASE)/polylogue

deb-test: deb ## Install, upgrade, remove and purge that package in a fresh root (as root, with debootstrap)
	packaging/debian/test.sh $(RELEASE)/polylogue

codegen: ## Regenerate the Kafka codec and docs/config.md
	$(CARGO) run -q --locked -p xtask -- codegen kafka
	$(CARGO) run -q --locked -p polylogue-server -- config --markdown > docs/config.md

clean: ## Remove what was built
	$(CARGO) clean
	rm -rf build
