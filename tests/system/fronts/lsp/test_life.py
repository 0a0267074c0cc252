"""The server's lifetime: how it starts, what it survives, and that nothing is left when the editor exits."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from anyio.abc import Process
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from lsprotocol import types
from pygls.exceptions import JsonRpcException

from acp_agent.testing.fake_model import Answer, Call
from tests.e2e.kit import alive, environ
from tests.editors import raw_agent as raw
from tests.forked import forked_command
from tests.fronts.lsp.kit import lsp, raw_lsp
from tests.fronts.lsp.test_life import SECONDS
from tests.nightly import examples


async def gone(pid: int) -> None:
    with anyio.fail_after(SECONDS):
        while alive(pid):
            await anyio.sleep(0.01)


def children(pid: int) -> list[int]:
    return [int(child) for file in Path(f"/proc/{pid}/task").glob("*/children") for child in file.read_text().split()]


@pytest.mark.parametrize("how", ["exit", "end of stdin", "SIGTERM", "SIGKILL"])
async def test_nothing_is_left_when_the_editor_goes(tmp_path: Path, how: str):
    pids = tmp_path / "pids"
    script = [Answer(tool_calls=(Call("bash", {"command": f"echo $$ >> {pids}; exec sleep 1000"}),))]
    async with lsp(tmp_path, script, ACP_CODER_MODE="auto", process=True) as (editor, _):
        server = editor._server
        assert server is not None and children(server.pid) == []
        await editor.execute("acpCoder.prompt", "sleep")
        with anyio.fail_after(SECONDS):
            while not pids.exists() or not pids.read_text().strip():
                await anyio.sleep(0.02)
        sleeper = int(pids.read_text())
        started = children(server.pid)
        assert started and alive(sleeper)
        if how == "exit":
            await editor.shutdown_async(None)
            assert not any(alive(pid) for pid in [*started, sleeper])  # Emacs kills the server after the answer.
            editor.exit(None)
        elif how == "end of stdin":
            assert server.stdin is not None
            server.stdin.close()
        else:
            server.send_signal(getattr(signal, how))
        with anyio.fail_after(SECONDS):
            status = await server.wait()
        if how == "SIGKILL":  # What it ran for the agent may be nobody's then, as with every program that is killed.
            with suppress(ProcessLookupError):
                os.kill(sleeper, signal.SIGKILL)
        else:
            assert status == (0 if how == "exit" else 1)
            assert not alive(sleeper)
        for pid in started:
            await gone(pid)


async def test_the_server_ends_when_its_editor_died_and_left_the_pipes_open(tmp_path: Path):
    editor = subprocess.Popen(["sleep", "1000"])

    def from_it(params: dict[str, Any]) -> None:
        params["processId"] = editor.pid

    try:
        async with lsp(tmp_path, command=["false"], change=from_it, process=True) as (client, _):
            assert client._server is not None
            editor.kill()
            editor.wait()
            with anyio.fail_after(SECONDS):
                assert await client._server.wait() == 1
    finally:
        editor.kill()


async def test_the_agent_works_in_the_first_folder_and_others_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setitem(raw.INITIALIZED, "agentCapabilities", {"sessionCapabilities": {"additionalDirectories": {}}})
    two, three = tmp_path / "two", tmp_path / "three"
    two.mkdir()
    three.mkdir()

    def folders(params: dict[str, Any]) -> None:
        params["rootUri"] = None
        params["workspaceFolders"] = [
            {"uri": "untitled:x", "name": "x"}, {"uri": two.as_uri(), "name": "2"},
            {"uri": (tmp_path / "project").as_uri(), "name": "1"},
        ]  # fmt: skip

    async with raw_lsp(tmp_path, change=folders) as (editor, agent):
        await editor.execute("acpCoder.prompt", "x")
        await (await agent.prompted()).end()
        event = types.WorkspaceFoldersChangeEvent(
            added=[types.WorkspaceFolder(uri=three.as_uri(), name="3")],
            removed=[types.WorkspaceFolder(uri=two.as_uri(), name="2")],
        )
        editor.workspace_did_change_workspace_folders(types.DidChangeWorkspaceFoldersParams(event=event))
        await editor.execute("acpCoder.prompt", "y")
        await (await agent.prompted()).end()
        assert agent.count("session/new") == 1
        await editor.execute("acpCoder.newSession")
        await editor.execute("acpCoder.prompt", "z")
        await agent.prompted()
        first, second = [message["params"] for message in agent.received if message["method"] == "session/new"]
        assert (first["cwd"], first["additionalDirectories"]) == (str(two), [str(tmp_path / "project")])
        assert (second["cwd"], second["additionalDirectories"]) == (str(tmp_path / "project"), [str(three)])


LOADER = """
import json, sys

def say(**message):
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)

def update(**update):
    say(method="session/update", params={"sessionId": "old", "update": update})

for line in sys.stdin:
    message = json.loads(line)
    result = {}
    if message["method"] == "initialize":
        capabilities = {"loadSession": True, "sessionCapabilities": {"list": {}}}
        result = {"protocolVersion": 1, "agentCapabilities": capabilities}
    elif message["method"] == "session/list":
        result = {"sessions": [{"sessionId": "old", "cwd": message["params"]["cwd"], "title": "An old one"}]}
    elif message["method"] == "session/load":
        update(sessionUpdate="user_message_chunk", content={"type": "text", "text": "Do it"})
        update(sessionUpdate="tool_call", toolCallId="t", title="Look", locations=[{"path": sys.argv[1]}])
        update(sessionUpdate="tool_call_update", toolCallId="t", status="completed", rawOutput="all is well")
        update(sessionUpdate="agent_message_chunk", content={"type": "text", "text": "Done."})
    say(id=message["id"], result=result)
"""


async def test_a_session_that_is_loaded_is_told_in_the_transcript_and_drawn_nowhere(tmp_path: Path):
    async with lsp(tmp_path, command=[sys.executable, "-c", LOADER, str(tmp_path / "a.py")]) as (editor, _):
        await editor.execute("acpCoder.sessions")
        question = await editor.question()
        assert question.actions == ["An old one"]
        question.answer("An old one")
        await editor.until(lambda: editor.shown_documents)
        assert editor.transcript().endswith(
            "## You\n\nDo it\n\n## Agent\n\n### ✓ Look\n\n```\nall is well\n```\n\nDone.\n\n## You\n\n"
        )
        assert not editor.published
        with pytest.raises(JsonRpcException, match="there is no session 'other'"):
            await editor.execute("acpCoder.sessions", {"id": "other", "wait": True})
        with pytest.raises(JsonRpcException, match="does not let you choose its mode"):
            await editor.execute("acpCoder.mode", {"id": "x", "wait": True})
        with pytest.raises(JsonRpcException, match="there is no model to choose"):
            await editor.execute("acpCoder.model", {"wait": True})


@pytest.mark.parametrize("pid", [2**31 - 1, 2**40, -5])
async def test_an_editor_whose_process_cannot_be_seen_is_served(tmp_path: Path, pid: int):
    def from_elsewhere(params: dict[str, Any]) -> None:
        params["processId"] = pid

    async with lsp(tmp_path, command=["false"], change=from_elsewhere) as (editor, _):
        with pytest.raises(JsonRpcException, match="the agent (exited|was killed)"):
            await editor.execute("acpCoder.prompt", {"text": "x", "wait": True})


async def test_a_session_goes_on_after_its_agent_was_killed(tmp_path: Path):
    async with lsp(tmp_path, ["One.", Answer(text="Two.", hang_after=0), "Three."], process=True) as (editor, model):
        await editor.execute("acpCoder.prompt", {"text": "first", "wait": True})
        assert editor._server is not None
        (pid,) = children(editor._server.pid)
        await editor.execute("acpCoder.prompt", "second")
        await model.wait_for_request(2)
        subprocess.run(["kill", "-9", str(pid)], check=True)
        await editor.turns_over(2)
        assert any("was killed by signal 9" in words for words in editor.said())
        await editor.execute("acpCoder.prompt", {"text": "third", "wait": True})
        said = json.dumps(model.requests[-1].body["messages"])
        assert "first" in said and "One." in said and "third" in said
        assert "Three." in editor.transcript() and "first" in editor.transcript()


class RawEditor:
    """Bytes in, messages out."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self._received = b""

    async def send(self, *messages: dict[str, Any] | bytes) -> None:
        assert self.process.stdin is not None
        for message in messages:
            body = message if isinstance(message, bytes) else json.dumps({"jsonrpc": "2.0", **message}).encode()
            await self.process.stdin.send(b"content-length: %d\r\nX-Other: 1\r\n\r\n" % len(body) + body)

    async def next(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        with anyio.fail_after(SECONDS):
            while True:
                header, found, rest = self._received.partition(b"\r\n\r\n")
                length = int(header.partition(b"\r\n")[0].split(b":")[1]) if found else 0
                if found and len(rest) >= length:
                    self._received = rest[length:]
                    message: dict[str, Any] = json.loads(rest[:length])
                    return message
                self._received += await self.process.stdout.receive()

    async def answer(self, name: Any) -> dict[str, Any]:
        while (message := await self.next()).get("id") != name or "method" in message:
            pass
        return message


@asynccontextmanager
async def raw_editor(folder: Path) -> AsyncIterator[RawEditor]:
    argv = [forked_command(), "lsp", "--", "false"]
    async with await anyio.open_process(argv, env=environ(folder), cwd=folder) as process:
        try:
            yield RawEditor(process)
        finally:
            if process.returncode is None:
                process.kill()


INITIALIZE = {"id": 1, "method": "initialize", "params": {"processId": None, "rootUri": None, "capabilities": {}}}


async def test_every_malformed_request_is_answered_and_none_ends_the_server(tmp_path: Path):
    async with raw_editor(tmp_path) as editor:
        await editor.send({"id": "early", "method": "textDocument/codeAction", "params": {}}, {"method": "x/y"})
        assert (await editor.next())["error"]["code"] == -32002
        await editor.send({"id": 0, "method": "initialize", "params": {"capabilities": 7}})
        assert (await editor.next())["error"]["code"] == -32602
        await editor.send(INITIALIZE)
        assert (await editor.next())["result"]["capabilities"]["positionEncoding"] == "utf-16"
        await editor.send(INITIALIZE)
        assert (await editor.next())["error"]["code"] == -32600
        cases: list[tuple[dict[str, Any] | bytes, Any, int]] = [
            (b"{", None, -32700), (b"[1]", None, -32600), (b"7", None, -32600),
            (b'{"id": 9, "method": "x"}', 9, -32600), ({"id": 2, "method": 7}, 2, -32600),
            ({"id": [1], "method": "x"}, None, -32600), ({"id": 3, "method": "no/such"}, 3, -32601),
            ({"id": 4, "method": "textDocument/codeAction", "params": {"range": 1}}, 4, -32602),
            ({"id": 5, "method": "textDocument/inlayHint", "params": None}, 5, -32602),
            ({"id": 6, "method": "workspace/executeCommand", "params": {"arguments": []}}, 6, -32602),
            ({"id": 7, "method": "workspace/executeCommand", "params": {"command": "rm"}}, 7, -32602),
            ({"id": "a", "method": "x", "params": {"class": 1, "a b": {"_c": 2}}, "extra": 1}, "a", -32602),
        ]  # fmt: skip
        for message, name, code in cases:
            await editor.send(message)
            answer = await editor.next()
            assert (answer["id"], answer["error"]["code"]) == (name, code), message
            assert answer["error"]["message"]
        await editor.send(
            {"method": "textDocument/didOpen", "params": {}},
            {"method": "textDocument/didChange", "params": {
                "textDocument": {"uri": "file:///x", "version": 1}, "contentChanges": [],
            }},
            {"method": "textDocument/didClose", "params": {"textDocument": {"uri": "file:///x"}}},
            {"method": "$/cancelRequest", "params": {"id": 77}},
            {"method": "window/workDoneProgress/cancel", "params": {"token": 7}}, {"id": 99, "result": None},
            {"id": None, "error": {"code": 1, "message": "x"}},
            {"id": 8, "method": "textDocument/codeLens", "params": {"textDocument": {"uri": "file:///x"}}},
        )  # fmt: skip
        assert (await editor.answer(8))["result"] == []
        await editor.send({"id": 10, "method": "shutdown"})
        assert (await editor.answer(10))["result"] is None
        await editor.send({"id": 11, "method": "textDocument/codeLens", "params": {}})
        assert (await editor.answer(11))["error"]["code"] == -32600
        await editor.send({"method": "exit"})
        with anyio.fail_after(SECONDS):
            assert await editor.process.wait() == 0


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 2**70) | st.floats(allow_nan=False) | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["id", "uri", "range", "textDocument", "params", "command", "a b"]), inner)
    ),
    max_leaves=8,
)


MESSAGES = st.fixed_dictionaries({"jsonrpc": st.sampled_from(["2.0", "2.0", "2.0", "1.0"])}, optional={
    "id": VALUES, "method": st.sampled_from(sorted(types.METHOD_TO_TYPES.keys() - {"exit", "shutdown"})) | VALUES,
    "params": VALUES, "result": VALUES, "error": VALUES,
})  # fmt: skip


async def test_no_message_whatever_ends_the_server(tmp_path: Path):
    """Some hundreds, always the same."""
    messages: list[Any] = []

    @settings(max_examples=examples(400), database=None, derandomize=True, suppress_health_check=list(HealthCheck))
    @given(MESSAGES)
    def collect(message: dict[str, Any]) -> None:
        messages.append(message)

    collect()
    async with lsp(tmp_path, command=["false"]) as (editor, _):
        editor.report_server_error = lambda error, source: None  # type: ignore[method-assign]
        writer: Any = editor.protocol.writer
        for message in messages:
            body = json.dumps(message).encode()
            writer.write(b"Content-Length: %d\r\n\r\n" % len(body) + body)
        with pytest.raises(JsonRpcException, match="unknown command"):
            await editor.execute("none")


@pytest.mark.parametrize("data", [
    b"Content-Length: 99999999999999\r\n\r\n", b"Content-Length: %s\r\n\r\n" % (b"9" * 5000), b"no header\r\n\r\n",
    b"Content-Length: x\r\n\r\n",
])  # fmt: skip
async def test_a_stream_that_is_no_lsp_ends_the_server_in_order(tmp_path: Path, data: bytes):
    async with raw_editor(tmp_path) as editor:
        assert editor.process.stdin is not None
        await editor.process.stdin.send(data)
        with anyio.fail_after(SECONDS):
            assert await editor.process.wait() == 1
