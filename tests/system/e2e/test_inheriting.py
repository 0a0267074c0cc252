"""What starts the agent does not reach what the agent starts: ignored and blocked signals, descriptors."""

import json
import os
import resource
import shlex
import signal
import sys
from pathlib import Path

import anyio
import pytest

from acp_agent.schema.acp import McpServerStdio
from acp_agent.testing.fake_model import Answer, Call
from tests.agent.kit import asks, bash
from tests.agent.test_background import model
from tests.e2e.kit import COMMAND, spawned, until_gone
from tests.executors.kit import signal_masks
from tests.forked import first_line
from tests.lsp.kit import HERE as LSP
from tests.mcp.kit import HERE as MCP

SECONDS = 60
PARENT = """\
{first}
import os, resource, signal, sys
for number in signal.valid_signals() - {{signal.SIGKILL, signal.SIGSTOP}}:
    signal.signal(number, signal.SIG_IGN)
signal.pthread_sigmask(signal.SIG_SETMASK, signal.valid_signals())
os.dup2(os.open(os.devnull, os.O_RDONLY), 7, inheritable=True)
os.umask(0o027)
os.nice(3)
resource.setrlimit(resource.RLIMIT_NOFILE, (1000, {hard}))
os.execv({command!r}, [{command!r}, *sys.argv[1:]])
"""
"""Ignores and blocks all signals, and leaves a descriptor open."""


@pytest.fixture
def command(tmp_path: Path) -> str:
    """The agent, as such a parent starts it."""
    program = tmp_path / "parent"
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    program.write_text(PARENT.format(first=first_line(), command=COMMAND, hard=hard))
    program.chmod(0o700)
    return str(program)


async def test_nothing_of_the_agents_parent_reaches_what_it_starts(tmp_path: Path, command: str) -> None:
    """But its umask, niceness and limits do."""
    (reports := tmp_path / "reports").mkdir()

    def report(name: str) -> str:
        told = "grep -E 'SigBlk|SigIgn' /proc/self/status; ls /proc/self/fd; umask; nice; ulimit -Sn"
        return f"{{ {told}; }} >{reports}/{name}.new && mv {reports}/{name}.new {reports}/{name}"

    language_server = f"{report('lsp')}; exec {shlex.join([sys.executable, str(LSP / 'raw_server.py')])}"
    (tmp_path / "config.toml").write_text(
        "[mcp]\nprompt_wait = 60\n[lsp]\nunconfined = true\nedit_wait = 60\n"
        "[lsp.servers.raw]\nlanguages = { '.raw' = 'raw' }\n"
        f"command = {json.dumps(['sh', '-c', language_server])}\n"
        f"[[hooks.tool_before]]\ncommand = {json.dumps(report('observing'))}\n"
        f"[[hooks.on]]\nevent = 'PreToolUse'\ncommand = {json.dumps(report('deciding'))}\n"
    )
    server = (
        f"{report('mcp')}; exec {shlex.join([sys.executable, '-S', str(MCP / 'raw_server.py')])} good {tmp_path}/notes"
    )
    bash_calls = [("command", {}), ("background", {"background": True}), ("terminal", {"terminal": True})]
    calls = [Call("bash", {"command": report(name), **more}) for name, more in bash_calls]
    calls += [Call("mcp_raw_echo", {}), Call("write", {"path": "a.raw", "content": "ERROR none\n"})]
    script: list[Answer | str] = [*(asks(call) for call in calls), "done"]
    more = {"ACP_CODER_CONFIG": str(tmp_path / "config.toml"), "ACP_CODER_MODE": "auto"}
    async with spawned(tmp_path, script, command=command, terminal=False, environ=more) as (editor, _):
        raw = McpServerStdio(name="raw", command="sh", args=["-c", server], env=[])
        await editor.new_session(tmp_path / "project", mcp_servers=[raw])
        names = {"command", "background", "terminal", "observing", "deciding", "mcp", "lsp"}
        with anyio.fail_after(SECONDS):
            assert (await editor.prompt("go")).stop_reason == "end_turn"
            while not names <= set(os.listdir(reports)):
                await anyio.sleep(0.01)
    # The last descriptor is the folder that `ls` reads.
    expected = [[0, 0], "0", "1", "2", "3", "0027", str(min(19, os.nice(0) + 3)), "1000"]
    told = {name: (reports / name).read_text() for name in names}
    found = {name: [signal_masks(text), *text.split()[4:]] for name, text in told.items()}
    assert found == dict.fromkeys(names, expected)


async def test_an_interrupt_ends_a_program_in_a_terminal_whoever_started_the_agent(tmp_path: Path, command: str):
    stop = {"keys": ["C-c"], "risk": "low", "mutation": False, "privesc": False, "why": "To go on"}
    script = model(
        asks(bash("echo $$ >pid; exec sleep 600", terminal=True)),
        lambda runs: asks(Call("send_keys", {"target": runs[0], **stop})), "done",
    )  # fmt: skip
    more = {"ACP_CODER_MODE": "auto"}
    async with spawned(tmp_path, script, command=command, terminal=False, environ=more) as (editor, _):
        with anyio.fail_after(SECONDS):
            await editor.prompt("go")
        await until_gone(int((tmp_path / "project" / "pid").read_text()))


async def test_an_agent_that_shall_ignore_a_hang_up_goes_on(tmp_path: Path, command: str) -> None:
    """Its command takes long enough for it to end."""
    hang_up = "for each in HUP QUIT USR1 TSTP ALRM; do kill -s $each $PPID; done; sleep 1; echo still here"
    more = {"ACP_CODER_MODE": "auto"}
    async with spawned(tmp_path, [asks(bash(hang_up)), "done"], command=command, terminal=False, environ=more) as (
        editor, _,
    ):  # fmt: skip
        assert (await editor.prompt("go")).stop_reason == "end_turn"
        assert editor.tool_call().raw_output["stdout"] == "still here\n" and editor.process is not None
        os.kill(editor.process.pid, signal.SIGTERM)
        with anyio.fail_after(SECONDS):
            assert await editor.process.wait() == 0
