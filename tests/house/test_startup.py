"""Modules loaded before the first answers: `sys.modules`, compared with lists."""

import json
import subprocess
import sys
from pathlib import Path

INITIALIZE = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {"protocolVersion": 1}}

STAGE_ZERO = {
    "acp_agent", "acp_agent.cli", "acp_agent.commands", "acp_agent.commands.stdio", "acp_agent.config",
    "acp_agent.config.xdg", "acp_agent.config.sources", "acp_agent.errors", "acp_agent.handshake", "acp_agent.lazy",
    "acp_agent.protocol", "acp_agent.protocol.peer", "acp_agent.executors", "acp_agent.executors.default_signals",
}  # fmt: skip
"""Ours that are loaded when `initialize` is answered."""

STDLIB_AT_INITIALIZE = set(
    """
    abc builtins codecs collections contextlib copyreg encodings enum functools gc genericpath importlib io itertools
    json keyword marshal operator os posix posixpath re reprlib runpy signal site stat sys time types warnings zipimport
    string tomllib datetime linecache pkgutil threading select
    """.split()
)
"""Packages of the standard library that may be loaded then."""

AT_NEW_OURS = STAGE_ZERO | {
    f"acp_agent.{name}"
    for name in """
    auth commands.early commands.wakeup config.compaction_settings config.credentials config.language_settings
    config.load config.model
    config.mcp_settings config.other_names config.place_settings config.safety_settings config.trusted_files
    config.wire_apis
    disk limits limits.decoding llm llm.choose loop
    loop.modes loop.opened loop.options loop.prompts loop.prompts.project_rules loop.toolbox loop.toolbox.trust
    opening protocol.codec safety safety.folders safety.folders.paths safety.folders.protect
    safety.folders.repository safety.globs schema schema.acp schema.decode
    store store.audit_heads store.base store.database store.experience store.found_words
    store.goal_store store.memories store.operation_store store.overflow store.schedules store.session_store
    store.spending_store store.sqlite store.stores
    """.split()
}
"""Ours that are loaded when `session/new` is answered."""


PROBE = """
import sys, runpy, os
report = {report!r}
{before}
sys.argv = ["acp-coder"]
import acp_agent.cli
acp_agent.cli.main([])
"""

AT_INITIALIZE = """
import acp_agent.commands.stdio as stdio
def serve(*_):
    open(report, "w").write(chr(10).join(sys.modules)); os._exit(0)
stdio.load = lambda row: serve
"""

AT_NEW = """
import acp_agent.commands.stdio as stdio
real = stdio.load
def serve(peer, events, params, opening, opened, said):
    assert opened is not None
    open(report, "w").write(chr(10).join(sys.modules)); os._exit(0)
stdio.load = lambda row: serve if row == stdio.SERVE else real(row)
"""

AT_FIRST_WORDS = """
import acp_agent.build.warming as warming
async def warm(steps):
    "On a busy machine the process seems to be idle before the first words."
warming.warm = warm
import acp_agent.agent as agent
import acp_agent.loop.outbox as outbox
from acp_agent.schema.acp import PromptRequest, TextContent
start, emit = agent.Agent._start, outbox.Outbox.emit
def start_and_ask(self, session):
    start(self, session)
    self.sessions.spawn(self.prompt(PromptRequest(session_id=session.id, prompt=[TextContent(text="hello")])))
def report_words(self, update, **more):
    if type(update).__name__ == "AgentMessageChunk":
        open(report, "w").write(chr(10).join(sys.modules))
        os._exit(0)
    return emit(self, update, **more)
agent.Agent._start = start_and_ask
outbox.Outbox.emit = report_words
"""

NOT_AT_FIRST = {
    "pydantic", "pydantic_core", "selectolax", "tree_sitter", "mcp", "mcp_types", "openai", "genai_prices", "pygls",
    "lsprotocol", "playwright", "yaml", "prompt_toolkit", "rich", "cronsim", "pathspec", "acp_agent.loop.ask",
    "acp_agent.loop.calls.sub_agents", "acp_agent.mcp.mcp_servers", "acp_agent.output.compress",
    "acp_agent.output.filters", "acp_agent.safety.lines.examine", "acp_agent.safety.lines.git_folder",
    "acp_agent.tools.net.browser_session", "acp_agent.tools.net.web_body", "acp_agent.tools.net.web_client",
    "acp_agent.tools.net.web_page", "acp_agent.tools.net.web_proxy", "acp_agent.tools.net.web_text",
}  # fmt: skip
"""What an ordinary first prompt does not wait for. (`httpcore2._sync` is not among it: importing any part of httpcore2
loads both halves.)"""

BELOW_NOT_AT_FIRST = (
    "acp_agent.fronts.", "acp_agent.lsp.own_servers", "acp_agent.tools.files.", "acp_agent.tools.web.",
)  # fmt: skip


def loaded(tmp_path: Path, before: str, lines: list[dict[str, object]]) -> set[str]:
    report = tmp_path / "modules"
    code = PROBE.format(report=str(report), before=before)
    with subprocess.Popen(
        [sys.executable, "-I", "-c", code], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        env={"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"},
    ) as agent:  # fmt: skip
        assert agent.stdin is not None and agent.stderr is not None
        agent.stdin.write("".join(json.dumps(line) + "\n" for line in lines).encode())
        agent.stdin.flush()  # It stays open: at its end turns would.
        agent.wait(60)
        assert report.exists(), agent.stderr.read().decode()
    return set(report.read_text().split("\n"))


def packages(modules: set[str]) -> set[str]:
    tops = {name.split(".")[0] for name in modules}
    return {name for name in tops if not name.startswith("_")} - {"acp_agent", "sitecustomize"}  # The machine's own.


def test_what_is_loaded_when_initialize_is_answered(tmp_path):
    modules = loaded(tmp_path, AT_INITIALIZE, [INITIALIZE])
    assert {name for name in modules if name.startswith("acp_agent")} == STAGE_ZERO
    assert packages(modules) <= STDLIB_AT_INITIALIZE


def test_what_is_loaded_when_a_session_is_answered(tmp_path):
    # A local server needs no key, so that the session is made.
    (tmp_path / ".config" / "acp-coder").mkdir(parents=True)
    (tmp_path / ".config" / "acp-coder" / "config.toml").write_text(
        '[providers.default]\nbase_url = "http://localhost:9"\n'
    )
    new = {"jsonrpc": "2.0", "id": 1, "method": "session/new", "params": {"cwd": str(tmp_path), "mcpServers": []}}
    modules = loaded(tmp_path, AT_NEW, [INITIALIZE, new])
    assert {name for name in modules if name.startswith("acp_agent")} == AT_NEW_OURS
    assert packages(modules) - set(sys.stdlib_module_names) <= {"msgspec", "typing_extensions"}
    assert not packages(modules) & {"asyncio", "logging", "ssl"}


def test_what_the_first_ordinary_prompt_does_not_load(tmp_path):
    (script := tmp_path / "script.json").write_text('[{"text": "Hello."}]')
    model = [sys.executable, "-I", "-m", "acp_agent.testing.fake_model", str(script)]
    with subprocess.Popen(model, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            url = server.stdout.readline().strip()
            (tmp_path / ".config" / "acp-coder").mkdir(parents=True)
            (tmp_path / ".config" / "acp-coder" / "config.toml").write_text(
                f'[providers.default]\nbase_url = "{url}"\nmodels = ["fake-model"]\n'
            )
            modules = loaded_at_first_words(tmp_path)
        finally:
            server.kill()
    assert "acp_agent.llm.chat" in modules
    assert {name for name in modules if name in NOT_AT_FIRST or name.startswith(BELOW_NOT_AT_FIRST)} == set()


def loaded_at_first_words(tmp_path: Path) -> set[str]:
    """The session's id is not known before its answer, so the probe itself asks."""
    new = {"jsonrpc": "2.0", "id": 1, "method": "session/new", "params": {"cwd": str(tmp_path), "mcpServers": []}}
    return loaded(tmp_path, AT_FIRST_WORDS, [INITIALIZE, new])


def test_what_the_first_model_call_waits_for_has_neither_pydantic_nor_pygls():
    code = "import sys, acp_agent.build; print(*({'pydantic', 'pygls', 'lsprotocol'} & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == []
