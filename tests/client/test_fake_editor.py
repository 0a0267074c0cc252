"""The test kit itself: what `FakeEditor` records and asserts, its misbehaviours and quirks, and its process."""

import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from acp_agent.client import permissions as ready
from acp_agent.errors import ConnectionClosed, PeerError
from acp_agent.protocol.transports import memory_pair
from acp_agent.schema import acp
from acp_agent.testing.fake_editor import (
    AnswersError,
    AnswersGarbage,
    AnswersLate,
    FakeEditor,
    NeverAnswers,
    ToolCallState,
    live_editors,
)
from acp_agent.testing.plugin import wire
from tests.client.kit import ScriptedAgent, gives, real, scripted_agent
from tests.protocol.kit import forever

AGENT = str(Path(__file__).with_name("small_agent.py"))


@asynccontextmanager
async def opened(cwd: Path = Path("/"), **editor: Any) -> AsyncIterator[tuple[FakeEditor, ScriptedAgent]]:
    """A scripted agent and a fake editor with one session."""
    async with scripted_agent() as (agent, transport), FakeEditor(transport, **editor) as fake:
        await fake.start()
        await fake.new_session(cwd)
        yield fake, agent


def turn(agent: ScriptedAgent, *updates: dict[str, Any]) -> None:
    """The agent's next turns send these updates and end."""

    async def prompt(params: Any) -> Any:
        for update in updates:
            agent.tell(update)
        return {"stopReason": "end_turn"}

    agent.answers["session/prompt"] = prompt


def call(report: str, status: str | None = None, **rest: Any) -> dict[str, Any]:
    more = ({"title": "a call"} if report == "tool_call" else {}) | ({} if status is None else {"status": status})
    return {"sessionUpdate": report, "toolCallId": "t", **more, **rest}


async def test_whole_turn_is_recorded_and_clean() -> None:
    async with opened() as (editor, agent):
        turn(
            agent, {"sessionUpdate": "agent_thought_chunk", "content": {"type": "text", "text": "hm"}},
            {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": "Hel"}},
            call("tool_call", "pending", kind="read", rawInput={"path": "/x"}, locations=[{"path": "/x"}]),
            call("tool_call_update", "in_progress"),
            call(
                "tool_call_update", "completed",
                content=[{"type": "content", "content": {"type": "text", "text": "text of x"}}],
            ),
            {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": "lo"}},
        )  # fmt: skip
        assert (await editor.prompt("hi")).stop_reason == "end_turn"
        assert (editor.text(), editor.thoughts()) == ("Hello", "hm")
        state = editor.tool_call()
        assert (state.title, state.kind, state.raw_input) == ("a call", "read", {"path": "/x"})
        assert state.statuses == ["pending", "in_progress", "completed"] and state.text() == "text of x"
        assert state.locations[0].path == "/x"
        editor.assert_tool_calls_finished()
        assert len(editor.updates["s"]) == 6
        assert [line.direction for line in editor.transcript[:2]] == ["to_agent", "from_agent"]
        assert editor.lines("to_agent", "session/prompt")[0]["params"]["prompt"] == [{"type": "text", "text": "hi"}]
        assert len(editor.lines("from_agent", "session/update")) == 6 and editor.violations == []


@pytest.mark.parametrize(("statuses", "legal"), [
    (["pending", "in_progress", "completed"], True), (["pending", "in_progress", "failed"], True),
    (["pending", "failed"], True), (["in_progress", "completed"], True), (["completed"], True), ([], False),
    (["pending"], False), (["pending", "in_progress"], False), (["in_progress", "pending", "completed"], False),
    (["pending", "pending", "completed"], False), (["pending", "completed", "completed"], False),
    (["pending", "completed", "failed"], False), (["pending", "completed", "in_progress"], False),
])  # fmt: skip
async def test_life_of_a_tool_call_is_judged(statuses: list[str], legal: bool) -> None:
    """[TC-4]"""
    state = ToolCallState("t", statuses or ["pending"])
    if legal:
        state.assert_finished()
    else:
        with pytest.raises(AssertionError):
            state.assert_finished()


async def test_turn_runs_while_the_test_waits_for_its_updates() -> None:
    release = anyio.Event()
    async with opened() as (editor, agent):

        async def prompt(params: Any) -> Any:
            agent.tell(call("tool_call", "pending"))
            await release.wait()
            agent.tell(call("tool_call_update", "completed"))
            return {"stopReason": "cancelled"}

        agent.answers["session/prompt"] = prompt
        running = editor.begin("go")
        update = await editor.wait_for(lambda update: isinstance(update, acp.ToolCall))
        assert update.tool_call_id == "t"
        assert not running.done
        editor.cancel()
        release.set()
        assert (await running.response()).stop_reason == "cancelled"
        assert agent.received[-1] == ("session/cancel", {"sessionId": "s"})


async def test_turn_of_an_agent_that_fails_and_waiting_for_nothing_fail() -> None:
    async with opened() as (editor, _):
        running = editor.begin("go")  # the scripted agent knows no prompt
        with pytest.raises(PeerError):
            await running.response()
        with pytest.raises(TimeoutError):
            await editor.wait_for(lambda update: True, seconds=0.01)


async def test_turn_that_still_runs_at_the_end_holds_nothing_up() -> None:
    async with opened() as (editor, agent):
        agent.answers["session/prompt"] = forever
        running = editor.begin("go")
        await anyio.wait_all_tasks_blocked()
    with pytest.raises(ConnectionClosed):
        await running.response()


async def test_permissions_and_elicitations_are_answered_by_the_script_and_kept() -> None:
    options = [
        {"optionId": "y", "name": "yes", "kind": "allow_once"}, {"optionId": "n", "name": "no", "kind": "reject_once"},
    ]  # fmt: skip
    async with opened(permissions=[ready.reject_once, ready.cancelled]) as (editor, agent):
        agent.tell(call("tool_call", "pending"))
        outcomes = [
            (await agent.ask("session/request_permission", toolCall={"toolCallId": "t"}, options=options))["outcome"]
            for _ in range(3)
        ]
    assert [outcome.get("optionId", outcome["outcome"]) for outcome in outcomes] == ["n", "cancelled", "y"]
    assert [type(request) for request in editor.permission_requests] == [acp.RequestPermissionRequest] * 3

    async def decline(request: acp.CreateElicitationRequest) -> acp.CreateElicitationResponse:
        return acp.CreateElicitationResponse(action="decline")

    async with opened(elicitation=decline) as (editor, agent):
        schema = {"type": "object", "properties": {}}
        answer = await agent.ask("elicitation/create", mode="form", message="?", requestedSchema=schema)
        assert answer == {"action": "decline"}
        assert len(editor.elicitations) == 1


TERMINAL = [{"type": "terminal", "terminalId": "nope"}]
COMPACTION = {"sessionUpdate": "compaction_update", "compactionId": "1", "status": "x"}
WRONG: dict[str, tuple[list[dict[str, Any]], str]] = {
    "unknown update": ([{"sessionUpdate": "no_such"}], "SessionNotification"),
    "missing title": ([{"sessionUpdate": "tool_call", "toolCallId": "t"}], "SessionNotification"),
    "unannounced call": ([call("tool_call_update", "completed")], "was not announced"),
    "notice not offered": ([{"sessionUpdate": "notice", "severity": "info", "title": "x"}], "not offered"),
    "compaction not offered": ([COMPACTION], "not offered"),
    "unknown terminal": ([call("tool_call", content=TERMINAL)], "which does not exist"),
    "relative path": ([call("tool_call", locations=[{"path": "x.py"}])], "relative path"),
    "relative diff": ([call("tool_call", content=[{"type": "diff", "path": "x", "newText": ""}])], "relative path"),
    "announced twice": ([call("tool_call"), call("tool_call")], "announced before"),
    "a step back": ([call("tool_call", "in_progress"), call("tool_call_update", "pending")], "went back"),
    "final, then failed": ([call("tool_call", "completed"), call("tool_call_update", "failed")], "was final"),
    "final twice": ([call("tool_call", "completed"), call("tool_call_update", "completed")], "was final"),
}


@pytest.mark.parametrize(("updates", "problem"), WRONG.values(), ids=WRONG)
async def test_wrong_updates_fail_the_test_at_the_end(updates: list[dict[str, Any]], problem: str) -> None:
    """[TC-3] [TC-4]"""
    with pytest.raises(AssertionError, match=problem):
        async with opened() as (editor, agent):
            turn(agent, *updates)
            await editor.prompt("hi")


async def test_result_that_breaks_the_schema_and_line_that_is_no_json_fail_the_test() -> None:
    """[TR-1]"""
    with pytest.raises(AssertionError, match="stopReason"):
        async with opened() as (editor, agent):
            agent.answers["session/prompt"] = gives({"stopReason": "bored"})
            with pytest.raises(Exception, match="stopReason"):
                await editor.prompt("hi")
    with pytest.raises(AssertionError, match="Welcome"):
        async with FakeEditor.spawn([sys.executable, AGENT, "prints"]) as editor:
            await editor.start()
            await editor.wait_until(lambda: "Welcome!" in [line.message for line in editor.transcript])


async def test_update_before_the_answer_that_names_its_session_fails_the_test() -> None:
    """[NEW-10]"""
    with pytest.raises(AssertionError, match="before the answer that names it"):
        async with scripted_agent() as (agent, transport), FakeEditor(transport) as editor:

            async def new(params: Any) -> Any:
                agent.say("too early")
                return {"sessionId": "s"}

            agent.answers["session/new"] = new
            await editor.start()
            await editor.new_session(Path("/"))


async def test_what_the_client_did_not_offer_must_not_be_asked() -> None:
    """[FS-1] [TERM-1]"""
    with pytest.raises(AssertionError) as caught:
        async with opened(fs_read=False, fs_write=False, terminal=False) as (_, agent):
            for method, params in [
                ("fs/read_text_file", {"path": "/x"}), ("fs/write_text_file", {"path": "/x", "content": ""}),
                ("terminal/create", {"command": "true"}),
            ]:  # fmt: skip
                with pytest.raises(PeerError):
                    await agent.ask(method, **params)
    assert str(caught.value).count("was not offered") == 3


async def test_terminal_must_be_released_once_and_not_used_afterwards() -> None:
    """[TERM-5]"""
    with pytest.raises(AssertionError) as caught:
        async with opened() as (_, agent):
            terminal = (await agent.ask("terminal/create", command="true"))["terminalId"]
            agent.tell(call("tool_call", content=[{"type": "terminal", "terminalId": terminal}]))
            await agent.ask("terminal/release", terminalId=terminal)
            for method in ("terminal/release", "terminal/output"):
                with pytest.raises(PeerError):
                    await agent.ask(method, terminalId=terminal)
    assert str(caught.value).count("was released before") == 2


async def test_display_terminal_of_the_agent_may_be_embedded() -> None:
    """[DF-1]"""
    async with opened(terminal_output_meta=True) as (editor, agent):
        assert editor.lines("to_agent")[0]["params"]["clientCapabilities"]["_meta"] == {"terminal_output": True}
        meta = {"terminal_info": {"terminal_id": "x", "cwd": "/"}}
        turn(agent, call("tool_call", content=[{"type": "terminal", "terminalId": "x"}], _meta=meta))
        await editor.prompt("hi")


async def test_wrong_on_purpose_is_not_held_against_the_test() -> None:
    async with opened() as (editor, agent):
        with pytest.raises(PeerError):
            await editor.request("session/prompt", {"prompt": 5})
        editor.notify("session/cancel", {"nonsense": True})
        await editor.send_line(b"not json")
        await editor.send_line(b'{"jsonrpc":"2.0","id":"mine","method":"initialize"}')
        await editor.wait_until(lambda: [line for line in editor.lines("from_agent") if line.get("id") == "mine"])
        assert -32700 in [line["error"]["code"] for line in editor.lines("from_agent") if "error" in line]
        assert ("session/cancel", {"nonsense": True}) in agent.received


async def test_errors_of_the_test_are_shown_first_and_without_checks_none_of_the_agents() -> None:
    with pytest.raises(ZeroDivisionError):
        async with opened() as (editor, agent):
            turn(agent, {"sessionUpdate": "no_such"})
            await editor.prompt("hi")
            raise ZeroDivisionError
    async with opened(check=False) as (editor, agent):
        turn(agent, {"sessionUpdate": "no_such"})
        await editor.prompt("hi")


async def test_method_may_never_answer_or_with_an_error() -> None:
    async with opened(misbehave={"fs/read_text_file": NeverAnswers()}) as (_, agent):
        with anyio.move_on_after(0.01) as scope:
            await agent.ask("fs/read_text_file", path="/x")
        assert scope.cancelled_caught
    async with opened(misbehave={"terminal/create": AnswersError(-32000, "log in")}) as (_, agent):
        with pytest.raises(PeerError, match="log in") as caught:
            await agent.ask("terminal/create", command="true")
        assert caught.value.code == -32000


@pytest.mark.parametrize("garbage", ["garbage", [], 5, {"output": 1}, None])
async def test_method_may_answer_garbage(garbage: Any) -> None:
    async with opened(misbehave={"fs/read_text_file": AnswersGarbage(garbage)}) as (_, agent):
        assert await agent.ask("fs/read_text_file", path="/x") == garbage


async def test_method_may_answer_late(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("x", encoding="utf-8")
    late = AnswersLate()
    async with opened(misbehave={"fs/read_text_file": late}) as (editor, agent):
        got: list[Any] = []

        async def read() -> None:
            got.append(await agent.ask("fs/read_text_file", path=str(tmp_path / "f")))

        async with anyio.create_task_group() as group:
            group.start_soon(read)
            await editor.wait_until(lambda: editor.lines("from_agent", "fs/read_text_file"))
            assert got == []
            late.release.set()
        assert got == [{"content": "x"}]


async def test_quirks_of_files(tmp_path: Path) -> None:
    file = tmp_path / "f"
    async with opened(missing_file_reads_empty=True, write_does_nothing=True) as (_, agent):
        assert await agent.ask("fs/read_text_file", path=str(file)) == {"content": ""}
        assert await agent.ask("fs/write_text_file", path=str(file), content="x") == {}
        assert not file.exists()
    async with opened(write_answers_null=True) as (_, agent):
        assert await agent.ask("fs/write_text_file", path=str(file), content="x") is None
        assert file.read_text(encoding="utf-8") == "x"
    (tmp_path / "f").write_text("a\nb\n", encoding="utf-8")
    async with opened(reads_below=tmp_path / "below") as (_, agent):
        assert await refused(agent, "fs/read_text_file", path=str(tmp_path / "f")) == -32602
    async with opened(missing_file_is_internal_error=True, write_needs_parent=True) as (_, agent):
        assert await refused(agent, "fs/read_text_file", path=str(tmp_path / "none")) == -32603
        assert await refused(agent, "fs/write_text_file", path=str(tmp_path / "no" / "f"), content="x") == -32603
        assert not (tmp_path / "no").exists()
    (tmp_path / "f").write_bytes(b"caf\xe9\r\nb\r\n")
    async with opened(reads_lossy=True) as (_, agent):
        assert await agent.ask("fs/read_text_file", path=str(tmp_path / "f")) == {"content": "caf\nb\n"}
    (tmp_path / "f").write_bytes(b"a\nb\n")
    async with opened(ignores_line_and_limit=True) as (_, agent):
        assert await agent.ask("fs/read_text_file", path=str(tmp_path / "f"), line=2, limit=1) == {"content": "a\nb\n"}


async def refused(agent: Any, method: str, **params: Any) -> int:
    """The code of the error that the editor answers with."""
    with pytest.raises(PeerError) as error:
        await agent.ask(method, **params)
    return error.value.code


async def test_buffers_of_the_editor(tmp_path: Path) -> None:
    file = tmp_path / "f"
    async with opened(buffers={file: "typed"}, save=False) as (editor, agent):
        assert await agent.ask("fs/read_text_file", path=str(file)) == {"content": "typed"}
        await agent.ask("fs/write_text_file", path=str(file), content="more")
        assert editor.files.buffers[file] == "more"
        assert not file.exists()


async def test_quirks_of_terminals(tmp_path: Path) -> None:
    async with opened(crlf_output=True, join_for_shell=True, wait_never_answers_after_kill=True) as (_, agent):
        terminal = (await agent.ask("terminal/create", command="echo", args=["a;", "echo", "b"]))["terminalId"]
        await agent.ask("terminal/wait_for_exit", terminalId=terminal)
        assert (await agent.ask("terminal/output", terminalId=terminal))["output"] == "a\r\nb\r\n"
        await agent.ask("terminal/release", terminalId=terminal)
        terminal = (await agent.ask("terminal/create", command="sleep", args=["1000"]))["terminalId"]
        await agent.ask("terminal/kill", terminalId=terminal)
        with anyio.move_on_after(0.01) as scope:
            await agent.ask("terminal/wait_for_exit", terminalId=terminal)
        assert scope.cancelled_caught
        await agent.ask("terminal/release", terminalId=terminal)
    async with opened(nothing_is_killed=True) as (editor, agent):
        terminal = (await agent.ask("terminal/create", command="sleep", args=["1000"]))["terminalId"]
        assert await refused(agent, "terminal/kill", terminalId=terminal) == -32602
        await agent.ask("terminal/release", terminalId=terminal)
        assert editor.terminals.open == 1
    async with opened(terminal=False, unknown_never_answer=True, check=False) as (_, agent):
        with anyio.move_on_after(0.05) as scope:
            await agent.ask("terminal/create", command="true")
        assert scope.cancelled_caught


@pytest.mark.parametrize(
    "name", sorted(path.name for path in (Path(__file__).parents[1] / "captured").glob("acp-*.json"))
)
async def test_recorded_initialize_can_be_sent_as_it_was(name: str) -> None:
    params = json.loads((Path(__file__).parents[1] / "captured" / name).read_text(encoding="utf-8"))
    async with scripted_agent() as (agent, transport), FakeEditor(transport) as editor:
        await editor.start(params)
        assert agent.received == [("initialize", params)]


async def test_agent_may_be_a_process(tmp_path: Path) -> None:
    async with FakeEditor.spawn([sys.executable, AGENT, "good"], cwd=tmp_path, fs_read=False) as editor:
        answer = await editor.start()
        assert answer.meta is not None and answer.meta["cwd"] == real(tmp_path)
        assert editor.process is not None
    assert editor.process.returncode == 0


async def test_report_of_a_failing_test_shows_the_wire() -> None:
    async with opened() as (editor, agent):
        agent.say("a\ud83db" + "x" * 10_000)
        await editor.wait_until(editor.text)
        shown = wire(editor).splitlines()
    assert shown[0].startswith('-> {"jsonrpc": "2.0", "id": 0, "method": "initialize"')
    assert shown[-1].startswith('<- {"jsonrpc": "2.0", "method": "session/update"')
    assert shown[-1].endswith(" characters)")
    editor.violations.append("something")
    assert wire(editor).splitlines()[-1] == "something"
    assert editor in live_editors


async def test_plain_memory_pair_is_enough() -> None:
    ours, theirs = memory_pair()
    async with FakeEditor(theirs, check=False) as editor:
        ours.close()
        with pytest.raises(ConnectionClosed):
            await editor.start()
    assert acp.AgentMessageChunk not in map(type, editor.updates.get("s", []))
