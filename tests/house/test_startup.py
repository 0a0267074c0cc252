"""What is loaded when the first answers are given: `sys.modules`, held against lists."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

INITIALIZE = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {"protocolVersion": 1}}

STAGE_ZERO = {
    "acp_agent",
    "acp_agent.cli",
    "acp_agent.commands",
    "acp_agent.commands.stdio",
    "acp_agent.config",
    "acp_agent.config.xdg",
    "acp_agent.config.sources",
    "acp_agent.errors",
    "acp_agent.handshake",
    "acp_agent.lazy",
    "acp_agent.protocol",
    "acp_agent.protocol.peer",
}
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
    for name in [
        "agent",
        "auth",
        "commands.logs",
        "commands.serve",
        "config.credentials",
        "config.language_settings",
        "config.load",
        "config.model",
        "config.safety_settings",
        "llm",
        "llm.choose",
        "loop",
        "loop.choices",
        "loop.modes",
        "loop.options",
        "loop.outbox",
        "loop.prompts",
        "loop.prompts.project_rules",
        "loop.published",
        "loop.session",
        "loop.toolbox",
        "loop.toolbox.trust",
        "loop.turn_queue",
        "protocol.client",
        "protocol.codec",
        "protocol.connection",
        "protocol.profiles",
        "protocol.transports",
        "safety",
        "safety.folders",
        "safety.folders.paths",
        "safety.folders.protect",
        "safety.globs",
        "schema",
        "schema.acp",
        "schema.decode",
        "store",
        "store.base",
        "store.database",
        "store.goal_store",
        "store.memories",
        "store.overflow",
        "store.experience",
        "store.schedules",
        "store.session_store",
    ]
}
"""Ours that are loaded when `session/new` is answered."""

THIRD_PARTY_AT_NEW = {"anyio", "msgspec", "sniffio", "typing_extensions", "exceptiongroup", "idna"}

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
    open(report, "w").write(chr(10).join(sys.modules)); return 0
stdio.load = lambda row: serve
"""

AT_NEW = """
import acp_agent.agent as agent
start = agent.Agent._start
def report_then_start(self, session):
    open(report, "w").write(chr(10).join(sys.modules)); start(self, session)
agent.Agent._start = report_then_start
"""


def loaded(tmp_path: Path, before: str, lines: list[dict[str, object]]) -> set[str]:
    report = tmp_path / "modules"
    code = PROBE.format(report=str(report), before=before)
    done = subprocess.run(
        [sys.executable, "-I", "-c", code],
        input="".join(json.dumps(line) + "\n" for line in lines).encode(),
        capture_output=True,
        env={"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"},
        timeout=60,
        check=False,
    )
    assert report.exists(), done.stderr.decode()
    return set(report.read_text().split("\n"))


def packages(modules: set[str]) -> set[str]:
    tops = {name.split(".")[0] for name in modules}
    return {name for name in tops if not name.startswith("_")} - {"acp_agent"}


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
    assert packages(modules) - set(sys.stdlib_module_names) <= THIRD_PARTY_AT_NEW


def test_what_the_first_model_call_waits_for_has_neither_pydantic_nor_pygls():
    code = "import sys, acp_agent.build; print(*({'pydantic', 'pygls', 'lsprotocol'} & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == []
