# Everything runs from .venv, made from pyproject.toml. `make demo` and `make test` need only Python >= 3.11, make, bash, git.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PYTEST = $(BIN)/python -m pytest $(PYTEST_OPTIONS)
STAMP := $(VENV)/.installed
NPM := bash scripts/with_node.sh npm --prefix editors/vscode
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Programs that the tests start hundreds of times would each compile what has changed.
export PYTHONDONTWRITEBYTECODE :=

comma := ,
.PHONY: page compare pictures demo test test-system nightly coverage affected hostile test-models test-editors test-agents test-conformance test-v2 test-release release try-release docs quick check bench bench-scale bench-long generate lock eval harbor venv tools clean

venv: $(STAMP)

$(STAMP): pyproject.toml kit/pyproject.toml scripts/make_venv.sh
	@bash scripts/make_venv.sh "$(PYTHON)" "$(VENV)"
	@touch $(STAMP)

# Programs that the tests use for real: of Debian, and of npm (in tests/.node).
tools:
	@bash scripts/install_tools.sh
	@bash scripts/install_node.sh
	@bash scripts/install_node_tools.sh
	@bash scripts/install_extension_tools.sh

# The page of `acp-coder serve`, into acp_agent/fronts/server/static: after a change of its sources, to be committed with them.
page:
	@bash scripts/build_page.sh

demo: $(STAMP)
	@$(BIN)/python -m acp_agent demo

# The pictures of docs/pictures: after a change of what the chat or the page shows, to be committed with it. Needs Chromium.
pictures: $(STAMP)
	@$(BIN)/python -m scripts.pictures

# What to run before each commit, after `make check`: all that is pure, in memory or on this machine, and each other backend
# once. Nothing is tried twice.
test: $(STAMP) tools page
	@bash scripts/test_all.sh "$(PYTEST)" $(NPM)

# The rest: other machines, containers, terminals and tmux, PostgreSQL, several processes, attacks with and without the sandbox,
# kills at any moment, the page in a browser, real language servers. What failed is tried once more; the summary counts these.
test-system: $(STAMP) tools page
	@$(PYTEST) --reruns 1 -rR tests/system

# Both, with ten times the examples, 20,000 races and 200 kills; and the conformance kit, each fault of its agent with all
# checks. An hour or more.
nightly: $(STAMP) tools page
	@ACP_TEST_NIGHTLY=1 $(PYTEST) --reruns 1 -rR -o faulthandler_timeout=3000 \
	  -o norecursedirs=".* node_modules tests/editors tests/models tests/agents tests/release" tests

# The tiers whose folders changed since `main`: CONTRIBUTING.md. BASE=COMMIT: since another commit.
affected: $(STAMP)
	@$(BIN)/python scripts/affected.py $(BASE)

# Lines and branches of acp_agent that `make test` and `make test-system` run, those in child processes counted.
coverage: $(STAMP) tools page
	@bash scripts/coverage.sh $(BIN)/python

# `make test` as those start it who are not us: in the background, on a busy machine, as another user: scripts/hostile_run.sh.
hostile: $(STAMP) tools page
	@bash scripts/hostile_run.sh

# The agent in real editors, two of them at a time: they wait more than they work. The first time it takes some minutes and
# 2 GB, in tests/.editors. An editor that stumbles under a test is opened once or twice more for it; the summary counts these.
test-editors: $(STAMP) tools
	@bash scripts/install_editors.sh
	@bash scripts/install_terminal_editors.sh
	@bash scripts/install_python_clients.sh
	@$(NPM) run package --silent >/dev/null
	@bash scripts/with_node.sh $(PYTEST) -n 2 --dist loadfile --reruns 2 -rR tests/editors

# The conformance kit: an agent and a client with each of their faults, and this agent; the server, too. A check has a time in
# which an answer must come, so one that fails is tried once more; the summary counts these.
test-conformance: $(STAMP)
	@$(PYTEST) -n 8 --dist load --maxschedchunk 1 --reruns 1 -rR tests/conformance

# The kit with agents of others, against the table of docs/conformance.md. Not in CI: about 40 minutes, and 1.8 GB the first
# time, in tests/.agents.
test-agents: $(STAMP)
	@bash scripts/install_agents.sh
	@$(PYTEST) -n 0 tests/agents

# Agents of others beside this one, with the same scripted model: docs/figures.md. PEERS=codex-acp,pi-acp: these only. All of
# them take 1.8 GB the first time, in tests/.agents, and half an hour.
compare: $(STAMP)
	@bash scripts/install_agents.sh $(subst $(comma), ,$(PEERS))
	@$(BIN)/python scripts/compare.py --write docs/figures.md $(subst $(comma), ,$(PEERS))

# The tests of the agent whose traffic v2 of ACP changes (marked `traffic`), in v2.
test-v2: $(STAMP) tools
	@ACP_TEST_WIRE=v2 $(PYTEST) --reruns 1 -rR tests/agent

# The agent with a real model server (llama.cpp) and real, small weights.
test-models: $(STAMP) tools
	@bash scripts/install_model_server.sh
	@$(PYTEST) -n 0 -o faulthandler_timeout=900 tests/models

# What to run while working: under a minute.
quick: $(STAMP)
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(PYTEST) tests/house tests/loop tests/protocol tests/schema tests/config \
	  tests/agent/test_golden.py tests/agent/test_prompt.py tests/agent/test_tool_calls.py

check: $(STAMP)
	@bash scripts/install_extension_tools.sh
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(NPM) run check --silent
	@$(PYTEST) -rP tests/house

bench: $(STAMP)
	@$(BIN)/python scripts/bench.py

# What search costs in repositories of 1,000, 30,000 and 300,000 files, beside `rg` itself: scripts/bench_scale.py.
bench-scale: $(STAMP)
	@$(BIN)/python scripts/bench_scale.py

# Long conversations and wide offers, each at three sizes: whether it costs more than it is longer. scripts/bench_long.py.
bench-long: $(STAMP)
	@$(BIN)/python scripts/bench_long.py

generate: $(STAMP)
	@$(BIN)/python scripts/generate.py

# All files of a release, into dist/: `make release REPOSITORY=https://github.com/OWNER/acp-coder`; docs/releasing.md.
release: $(STAMP)
	@bash scripts/install_extension_tools.sh
	@PYTHON=$(BIN)/python bash scripts/release.sh "$(REPOSITORY)"

# The steps of .github/workflows/release.yml, as far as they go here, in a fresh clone of the last commit: into dist/.
try-release:
	@$(BIN)/python scripts/try_release.py

# A release is made, and its wheel run with uvx on each Python there is from 3.11 to 3.14. Four minutes.
test-release: $(STAMP) tools
	@bash scripts/find_python.sh forky $(CURDIR)/tests/.python >/dev/null
	@$(BIN)/python -m pip install --quiet uv
	@$(PYTEST) -n 0 tests/release

# The site of the documentation, into dist/site; a link or an anchor that leads nowhere fails it. Seconds.
docs: $(STAMP)
	@$(BIN)/python -m pip install --quiet uv
	@UVX=$(BIN)/uvx bash scripts/make_site.sh

# Pins all dependencies with their hashes: uv.lock, and the same for other installers. Of the public index, whatever this
# machine installs from.
lock: $(STAMP)
	@$(BIN)/python -m pip install --quiet uv
	@$(BIN)/uv lock --quiet --no-config --default-index https://pypi.org/simple
	@$(BIN)/uv export --quiet --no-config --frozen --all-groups --all-extras --no-emit-project --no-annotate --no-header \
	  --format requirements-txt --output-file requirements.lock >/dev/null

# The tasks of evals/tasks with a model: `make eval MODEL=provider/model`, and TASKS=easy,crlf JOBS=4 COMPARE=FILE.
eval: $(STAMP)
	@$(BIN)/python -m evals.run --model "$(MODEL)" --tasks "$(TASKS)" --jobs "$(or $(JOBS),2)" \
	  $(if $(COMPARE),--compare "$(COMPARE)")

# A benchmark with Harbor and Docker: `make harbor JOB=terminal-bench MODEL=provider/model`; evals/README.md has them.
harbor: $(STAMP)
	@$(BIN)/python -m evals.harbor.start "$(JOB)" --model "$(MODEL)"

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis
