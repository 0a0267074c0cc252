"""The server's lifetime: how it starts, what it survives, and that nothing is left when the editor exits."""

import json
import os
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from lsprotocol import types

from acp_agent.errors import ConnectionClosed
from acp_agent.fronts.lsp_server.wire import Outgoing
from acp_agent.protocol.transports import FdTransport
from tests.editors import raw_agent as raw
from tests.fronts.lsp.kit import begun, captured, lsp, raw_lsp

SECONDS = 60.0


async def test_initialize_is_answered_without_an_agent(tmp_path: Path, name: str):
    async with raw_lsp(tmp_path, name=name, process=True) as (editor, agent):
        assert editor.result is not None
        assert editor.encoding == captured(name)["capabilities"]["general"]["positionEncodings"][0]
        capabilities = editor.result.capabilities
        assert capabilities.inlay_hint_provider and capabilities.code_lens_provider
        assert capabilities.execute_command_provider is not None
        assert len(capabilities.execute_command_provider.commands) == 19
        sync = capabilities.text_document_sync
        assert isinstance(sync, types.TextDocumentSyncOptions)
        assert sync.open_close and sync.save and sync.change == types.TextDocumentSyncKind.Incremental
        assert not agent.received
        await editor.execute("acpCoder.prompt", "x")
        await agent.prompted()
        (new,) = [message["params"] for message in agent.received if message["method"] == "session/new"]
        assert new["cwd"] == str(tmp_path / "project")


async def test_wrong_options_are_told_and_do_no_harm(tmp_path: Path):
    async with lsp(tmp_path, command=["false"], options={"save": "now"}) as (editor, _):
        await editor.until(editor.said)
        assert editor.said() == ["acp-coder: `save` must be one of never, client, disk, not 'now'"]


async def test_mode_model_and_sessions_are_picked_by_questions(tmp_path: Path):
    async with lsp(tmp_path, ["One.", "Two.", "Three."]) as (editor, model):
        await editor.execute("acpCoder.mode")
        question = await editor.question()
        (now,) = [action for action in question.actions if action.endswith(" (now)")]
        question.answer(next(action for action in question.actions if action != now))
        await editor.until(lambda: any(words.startswith("Agent: mode ") for words in editor.said()))
        assert (await editor.execute("acpCoder.mode", {"id": "code", "wait": True}))["id"] == "code"
        with pytest.raises(Exception, match="there is no mode 'none'; there are: "):
            await editor.execute("acpCoder.mode", {"id": "none", "wait": True})
        await editor.execute("acpCoder.model")
        question = await editor.question(2)
        assert any("fake-model" in action for action in question.actions)
        question.answer(None)
        for text in ("first prompt", "second prompt"):
            await editor.execute("acpCoder.prompt", {"text": text, "wait": True})
            await editor.execute("acpCoder.newSession")
        await editor.execute("acpCoder.sessions")
        question = await editor.question(3)
        question.answer(next(action for action in question.actions if "first prompt" in action))
        await editor.until(lambda: editor.shown_documents)
        text = editor.transcript()
        assert "## You\n\nfirst prompt\n\n## Agent\n\nOne.\n\n## You\n" in text and "second" not in text
        await editor.execute("acpCoder.prompt", {"text": "again", "wait": True})
        said = json.dumps(model.requests[-1].body["messages"])
        assert "first prompt" in said and "One." in said and "again" in said and "second" not in said


async def test_an_editor_that_reads_nothing_counts_as_gone(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("acp_agent.fronts.lsp_server.wire.MOST_UNREAD", 1_000_000)
    reading, writing = os.pipe()
    try:
        outgoing = Outgoing(FdTransport(reading, writing, ends_on_hangup=False))
        async with anyio.create_task_group() as tasks:

            async def flood() -> None:
                for _ in range(200):
                    outgoing.write(b"x" * 10_000)
                    await anyio.lowlevel.checkpoint()

            tasks.start_soon(flood)
            with anyio.fail_after(SECONDS), pytest.raises(ConnectionClosed):
                await outgoing.run()
    finally:
        os.close(reading)
        os.close(writing)


async def test_an_editor_that_answers_nonsense_is_taken_for_a_refusal(tmp_path: Path):
    async with raw_lsp(tmp_path) as (editor, agent):
        (file := tmp_path / "project" / "a.py").write_text("x\n")
        editor.open(file)
        protocol: Any = editor.protocol

        def answer(params: types.ApplyWorkspaceEditParams) -> None:
            """What LSP allows, but for the first time."""
            if len(editor.edits) == 0:
                body = json.dumps({"jsonrpc": "2.0", "id": protocol.msg_id, "result": [1]}).encode()
                protocol.writer.write(b"Content-Length: %d\r\n\r\n" % len(body) + body)
            editor.edits.append(params)

        protocol.fm.features[types.WORKSPACE_APPLY_EDIT] = answer
        turn = await begun(editor, agent, "x")
        for _ in range(2):
            request = await turn.request("fs/write_text_file", path=str(file), content="y\n")
            with pytest.raises(raw.Failed, match="nothing was written"):
                await request.result()  # At once: an answer that is none is not waited for.
            assert file.read_text() == "x\n"
