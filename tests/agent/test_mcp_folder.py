"""MCP servers of a trusted folder, the user's lists of their tools, and `/mcp`."""

import json
import shlex
import sys

import anyio

from acp_agent.plugins.mcp_json import folder_servers
from acp_agent.schema.acp import McpServerStdio
from tests.mcp.kit import HERE

from .kit import Call, Rig, agent_rig, asks, rig, trust, went


def entry(mode: str = "good", **env: str) -> dict:
    return {"command": sys.executable, "args": ["-S", str(HERE / "raw_server.py"), mode, ""], "env": env}


def put(r: Rig, **servers: dict) -> None:
    (r.project / ".mcp.json").write_text(json.dumps({"mcpServers": servers}))


def config(name: str, more: str) -> str:
    args = [str(part) for part in ("-S", HERE / "raw_server.py", "good")]
    return f'[mcp.servers.{name}]\ncommand = "{sys.executable}"\nargs = {args!r}\n{more}\n'


async def test_the_servers_of_a_folder_are_used_once_it_is_trusted_and_until_it_no_longer_is(tmp_path):
    call = asks(Call("mcp_own_env", {}))
    async with agent_rig(tmp_path, ["ok", call, "ok", "ok"], environ={"OPENAI_API_KEY": "sk-secret"}) as r:
        put(r, own=entry(GIVEN="${LANG:-none}"))
        await r.editor.new_session(r.project)
        await r.editor.prompt("go")
        assert not r.editor.permission_requests
        assert "mcp_own_env" not in r.tool_names(1)
        await trust(r)
        assert "- .mcp.json" in r.editor.text()
        await r.editor.prompt("go")
        assert "mcp_own_env" in r.tool_names(2)
        assert "none" in r.messages(3)[-1]["content"]
        await r.says("/trust no", "go")
        assert "mcp_own_env" not in r.tool_names(4)


async def test_trust_that_is_taken_back_ends_in_other_sessions_too(tmp_path):
    async with agent_rig(tmp_path, ["ok"] * 3) as r:
        put(r, own=entry())
        await r.editor.new_session(r.project)
        other = r.editor.session_id
        await trust(r)
        await r.editor.prompt("go")
        assert "mcp_own_env" in r.tool_names(1)
        await r.editor.new_session(r.project)
        await r.editor.prompt("/trust no")
        r.editor.session_id = other
        await r.editor.prompt("go")
        assert "mcp_own_env" not in r.tool_names(2) and "no longer trusted" in r.editor.text()
        await trust(r)
        await r.editor.prompt("go")
        assert "mcp_own_env" in r.tool_names(3)


async def test_a_trusted_folder_needs_no_question_in_the_next_session_and_replaces_no_server_of_the_user(tmp_path):
    async with agent_rig(tmp_path, ["ok"], config=config("raw", 'deny = ["*"]')) as r:
        put(r, raw=entry(), own=entry(), given=entry())
        await r.editor.new_session(r.project)
        await trust(r)
        client = McpServerStdio(name="given", command="/nowhere/program", args=[], env=[])
        await r.editor.new_session(r.project, mcp_servers=[client])
        await r.editor.prompt("go")
        assert "mcp_own_echo" in r.tool_names(1)
        assert not any(name.startswith(("mcp_raw_", "mcp_given_")) for name in r.tool_names(1))


def test_only_variables_that_commands_inherit_are_put_into_a_folders_servers():
    data = {
        "good": {"command": "${HOME}/x", "args": ["${NONE:-a}"], "env": {"A": "${EMPTY:-b}"}},
        "secret": {"url": "https://example.com/${OPENAI_API_KEY}"}, "wrong": {"args": ["x"]}, "no": 1,
    }  # fmt: skip
    found, trouble = folder_servers(json.dumps({"mcpServers": data}).encode(), {"HOME": "/h", "EMPTY": ""})
    assert list(found) == ["good"]
    assert (found["good"].command, found["good"].args, found["good"].env) == ("/h/x", ["a"], {"A": "b"})
    assert [words.split("'")[1] for words in trouble] == ["secret", "wrong", "no"]
    assert "OPENAI_API_KEY" in trouble[0]
    for wrong in (b"", b"[]", b"{}", b'{"mcpServers": 1}'):
        assert folder_servers(wrong, {}) == ({}, [".mcp.json: it is not JSON with an object `mcpServers`."])


async def test_lists_of_tools_also_apply_to_a_server_of_the_client(tmp_path):
    lists = '[mcp.servers.raw]\nallow = ["e*", "die"]\ndeny = ["en*", "err*"]\n'
    made = entry()
    client = McpServerStdio(name="raw", command=made["command"], args=made["args"], env=[])
    async with went(tmp_path, ["ok"], config=lists, mcp_servers=[client]) as r:
        assert {name for name in r.tool_names(1) if name.startswith("mcp_")} == {"mcp_raw_echo", "mcp_raw_die"}
        await r.editor.prompt("/mcp tools raw")
        assert "- `echo`\n" in r.editor.text() and "- `env` (not offered)" in r.editor.text()


def offered(r, number: int) -> set[str]:
    return {name for name in r.tool_names(number) if name.startswith("mcp_")}


async def test_the_user_chooses_tools_for_a_session_whatever_the_lists_say_also_after_a_restart(tmp_path):
    lists = '[mcp.servers.raw]\nallow = ["echo"]\n'
    made = entry()
    client = McpServerStdio(name="raw", command=made["command"], args=made["args"], env=[])
    async with went(tmp_path, ["ok"] * 3, config=lists, mcp_servers=[client]) as r:
        assert offered(r, 1) == {"mcp_raw_echo"}
        for words, told in (
            ("/mcp enable raw e*", "Offered in this session: `echo`, `error`, `env`."),
            ("/mcp disable raw error", "No longer offered in this session: `error`."),
            ("/mcp enable raw nothing", "no tool of `raw` is called so"),
            ("/mcp enable raw", "`/mcp enable NAME TOOL`"), ("/mcp log raw echo", "`/mcp enable NAME TOOL`"),
            ("/mcp enable other *", "there is no MCP server other"), ("/mcp resources raw", "`raw` lists no resources"),
        ):  # fmt: skip
            before = len(r.editor.text())
            assert told in (await r.says(words))[before:]
        await r.editor.prompt("go")
        assert offered(r, 2) == {"mcp_raw_echo", "mcp_raw_env"}
        await r.says("/mcp restart raw", "go")
        assert offered(r, 3) == {"mcp_raw_echo", "mcp_raw_env"}


async def test_mcp_shows_states_and_logs_and_connects_a_failed_server_anew(tmp_path):
    late = tmp_path / "late"
    async with rig(tmp_path, ["ok"], config=f'[mcp.servers.late]\ncommand = "{late}"\n') as r:
        with anyio.fail_after(60):
            while "`late`: failed" not in r.editor.text():
                await r.editor.prompt("/mcp")
        made = shlex.join([entry()["command"], *entry()["args"][:3]])
        late.write_text(f"#!/bin/sh\necho 'a word' >&2\nexec {made}\n")
        late.chmod(0o755)
        assert "- `late`: ready (" in await r.says("/mcp restart late")
        assert "    a word" in await r.says("/mcp log late")
        await r.editor.prompt("go")
        assert "mcp_late_echo" in r.tool_names(1)
        for words, told in (("/mcp log", "/mcp restart NAME"), ("/mcp log other", "there is no MCP server other")):
            assert told in await r.says(words)


async def test_without_servers_mcp_says_how_to_add_one(tmp_path):
    async with went(tmp_path, [], prompt="/mcp") as r:
        assert "acp-coder mcp add" in r.editor.text()
