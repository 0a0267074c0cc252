"""Servers on stdio, run by a session: what they offer, how they fail, how they end."""

import json
from pathlib import Path

import anyio
import msgspec
import pytest

from acp_agent.mcp.base import KeeperSettings, McpError, ServerSpec
from acp_agent.mcp.mcp_servers import RESTARTS, McpServers
from tests.e2e.kit import alive
from tests.mcp.kit import HERE, environment, kept, noted, raw


async def test_tools_of_all_pages_are_listed_and_called_and_read_again_once_changed(server):
    assert server.names[0] == "echo" and len(server.names) == 14 and server.changes == 1
    assert json.loads(await server.text("echo", a=[1, "ü"])) == {"a": [1, "ü"]}
    assert json.loads(await server.text("echo", a=float("nan"), b="\ud800")) == {"a": None, "b": "?"}
    assert await server.text("odd", how="half") == "a?b \U0001f600 \\ud800"
    result = await server.call("raw", "mixed", {})
    assert [part.mime_type for part in result.parts] == ["image/png"]
    assert result.text.split("\n") == [
        "red", "[audio, audio/wav: cannot be shown]", "[resource file:///a.txt]", "inside",
        "[resource file:///a.bin, x/y, 48 bytes: cannot be shown]", "[resource] b: file:///b.txt",
    ]  # fmt: skip
    assert (await server.call("raw", "structured", {})).text == '{"answer": 42}'
    assert (await server.call("raw", "fails", {})).is_error
    await server.text("grow")
    await server.until(lambda: "grown" in server.names)
    assert server.changes == 2


async def test_a_large_result_is_bounded_and_a_message_beyond_all_bounds_ends_the_server():
    async with kept(raw(), max_result_bytes=5000) as k:
        text = await k.text("huge", size=1_000_000)
        assert len(text) < 5100 and "[995000 more bytes of the result are not shown]" in text
        assert await k.text("echo") == "{}"
        with pytest.raises(McpError, match="a message of more than") as error:
            await k.text("flood")
        assert error.value.code == "policy_blocked"
        await k.until(lambda: k.troubles)
        assert "message of more than" in k.troubles[0][1]


@pytest.mark.parametrize("how", ["wrong", "bare"])
async def test_an_answer_that_is_no_valid_one_fails_its_request_at_once(how):
    async with kept(raw(), call_timeout=600.0) as k:
        with pytest.raises(McpError, match="not valid MCP") as error:
            await k.text("odd", how=how)
        assert error.value.code == "server_error"
        assert await k.text("echo") == "{}"


async def test_prompts_are_listed_and_got_and_what_is_unknown_is_told(server):
    (prompt,) = server.servers.prompts()
    assert (prompt.server, prompt.name, prompt.arguments[0].name) == ("raw", "explain", "topic")
    assert await server.servers.prompt("raw", "explain", {"topic": "x"}) == [("user", "Explain x")]
    with pytest.raises(McpError, match="Unknown tool: nonsense") as error:
        await server.text("nonsense")
    assert error.value.code == "invalid_input"
    with pytest.raises(McpError) as missing:
        await server.text("echo", server="nobody")
    assert missing.value.code == "not_found"


@pytest.mark.parametrize(("code", "word"), [
    (-32602, "invalid_input"), (-32600, "invalid_input"), (-32601, "not_found"), (-32002, "not_found"),
    (-32603, "server_error"), (-32000, "server_error"), (-32001, "transient"), (-32042, "auth_failure"),
    (-32021, "policy_blocked"),
])  # fmt: skip
async def test_the_codes_of_a_server_are_classified(code, word, server):
    with pytest.raises(McpError, match="as you wished") as error:
        await server.text("error", code=code)
    assert error.value.code == word


async def test_roots_are_told_and_sampling_is_refused(tmp_path):
    async with kept(raw(), folders=(HERE, tmp_path)) as k:
        roots = json.loads(await k.text("roots"))["roots"]
        assert [root["uri"] for root in roots] == [HERE.as_uri(), tmp_path.as_uri()]
        assert "not supported" in await k.text("ask")


async def test_a_server_inherits_the_safe_environment_and_what_its_configuration_names(tmp_path):
    spec = msgspec.structs.replace(raw(env={"OTHER": "y"}), inherit=("WANTED", "MISSING"))
    more = {"WANTED": "token", "UNWANTED": "secret"}
    async with kept(spec, folders=(tmp_path,), environ=environment(KEPT="1", OTHER="x"), more=more) as k:
        env, cwd = json.loads(await k.text("env"))
        found = tuple(env.get(name) for name in ("KEPT", "OTHER", "WANTED", "UNWANTED", "MISSING"))
        assert found == ("1", "y", "token", None, None)
        assert Path(cwd) == tmp_path.resolve()


async def test_a_cancelled_call_is_told_to_the_server(tmp_path):
    notes = tmp_path / "notes"
    async with kept(raw(notes=notes)) as k:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(k.text, "slow")
            (number,) = await noted(notes, "started")
            tasks.cancel_scope.cancel()
        assert await noted(notes, "cancelled") == [number]
        assert await k.text("echo") == "{}"


async def test_a_call_that_takes_too_long_is_cancelled(tmp_path):
    notes = tmp_path / "notes"
    async with kept(raw(notes=notes), call_timeout=0.2) as k:
        with pytest.raises(McpError, match=r"did not answer within 0\.2 seconds") as error:
            await k.text("slow")
        assert error.value.code == "transient"
        assert await noted(notes, "cancelled") == await noted(notes, "started")


@pytest.mark.parametrize(("spec", "words"), [
    (raw("dies", name="bad"), "its process exited with code 3; its last output: a library is missing / cannot start"),
    (raw("killed", name="bad"), "its process was killed by SIGKILL"),
    (raw(name="bad", command="no-such-program"), "the program `no-such-program` was not found"),
    (raw(name="bad", command=str(HERE / "kit.py")), "kit.py` is not executable"),
    (raw(name="bad", command="a\0b"), "could not be started: embedded null byte"),
    (raw("strange", name="bad"), "its response is not valid MCP"),
    (raw("old", name="bad"), "Unsupported protocol version from the server: 1999-01-01"),
    (ServerSpec("bad", "http", url="http://127.0.0.1:9/mcp"), "http://127.0.0.1:9 refused the connection"),
    (ServerSpec("bad", "sse", url="http://127.0.0.1:9/sse"), "http://127.0.0.1:9 refused the connection"),
    (ServerSpec("bad", "http", url="no url"), "its address is not a usable URL"),
], ids=lambda value: value if isinstance(value, str) else "")  # fmt: skip
async def test_a_server_that_fails_is_named_in_words_while_others_work(spec, words):
    async with kept(spec, raw("good"), wait=False) as k:
        await k.until(lambda: k.troubles and "echo" in k.names)
        ((name, sentence),) = k.troubles
        assert name == "bad"
        assert sentence.startswith("The MCP server bad could not be connected: ") and words in sentence
        assert await k.text("echo") == "{}" and [state.state for state in k.servers.states()] == ["failed", "ready"]
        with pytest.raises(McpError, match="is not connected"):
            await k.text("echo", server="bad")


async def test_a_server_that_does_not_answer_is_given_up(tmp_path):
    notes = tmp_path / "notes"
    async with kept(raw("silent", notes), wait=False, connect_timeout=2.0) as k:
        await k.until(lambda: k.troubles)
        assert "it was not ready after 2 seconds; its last output: still thinking" in k.troubles[0][1]
        (pid,) = await noted(notes, "pid")
        assert not alive(int(pid))


async def test_a_working_folder_that_is_not_there_is_named(tmp_path):
    async with kept(raw(), wait=False, folders=(tmp_path / "gone",)) as k:
        await k.until(lambda: k.troubles)
        assert "gone does not exist" in k.troubles[0][1]


async def test_junk_on_stdout_a_list_without_end_no_handshake_and_no_prompts_do_no_harm():
    for habit in ("junk", "endless", "modern", "promptless"):
        async with kept(raw(habit)) as k:
            assert len(k.names) == 14, habit
            assert k.servers.prompts() == () or habit != "promptless"
            if habit != "modern":  # Its results of calls are of a version that is not read.
                assert await k.text("echo") == "{}", habit


async def test_a_server_that_dies_is_started_again_by_the_next_call(server):
    with pytest.raises(McpError, match="exited with code 3; its last output: the last words") as error:
        await server.text("die")
    assert error.value.code == "transient"
    await server.until(lambda: server.troubles)
    assert "It is restarted when one of its tools is called." in server.troubles[0][1] and "echo" in server.names
    assert await server.text("echo") == "{}"


async def test_a_server_is_started_again_only_so_often(server):
    for _ in range(RESTARTS + 1):
        with pytest.raises(McpError, match="exited with code 3"):
            await server.text("die")
    await server.until(lambda: len(server.troubles) == RESTARTS + 1)
    assert "will not be restarted again" in server.troubles[-1][1] and server.names == []
    with pytest.raises(McpError, match="is not connected"):
        await server.text("echo")


@pytest.mark.parametrize("removed", [False, True])
async def test_two_restarts_at_once_leave_one_server_and_none_if_it_is_removed_meanwhile(tmp_path, removed):
    notes = tmp_path / "notes"
    async with kept(raw("stubborn", notes)) as k:
        (first, _) = await noted(notes, "pid")
        async with anyio.create_task_group() as tasks:
            for _ in range(2):
                tasks.start_soon(k.servers.restart, "raw")
            await anyio.wait_all_tasks_blocked()
            if removed:
                k.servers.remove(["raw"])
        assert not alive(int(first))
        if not removed:
            await k.connected()
        assert len(k.servers.states()) == (0 if removed else 1)
        # A server and its child for each start.
        assert len(await noted(notes, "pid")) == (2 if removed else 4)


async def test_close_kills_a_stubborn_server_and_its_child(tmp_path):
    notes = tmp_path / "notes"
    async with kept(raw("stubborn", notes)) as k:
        pids = [int(pid) for pid in await noted(notes, "pid")]
        assert len(pids) == 2 and all(alive(pid) for pid in pids)
        await k.servers.close()
        with anyio.fail_after(60):
            while any(map(alive, pids)):  # A killed one is there until whoever inherited it has noticed.
                await anyio.sleep(0.02)
        await k.servers.close()
        assert k.names == [] and k.troubles == []
        with pytest.raises(McpError, match="is not connected"):
            await k.text("echo")


async def test_close_ends_a_call_that_runs(tmp_path):
    notes = tmp_path / "notes"
    async with kept(raw(notes=notes)) as k, anyio.create_task_group() as tasks:

        async def call() -> None:
            with pytest.raises(McpError, match="lost during the call: it was closed"):
                await k.text("slow")

        tasks.start_soon(call)
        await noted(notes, "started")
        await k.servers.close()


async def test_close_while_connecting_kills_the_process(tmp_path):
    notes = tmp_path / "notes"
    async with kept(raw("silent", notes), wait=False) as k:
        (pid,) = await noted(notes, "pid")
        await k.servers.close()
        assert not alive(int(pid))
        assert k.troubles == []


QUIET = KeeperSettings(
    as_trusted=lambda spec: spec,
    folders=(HERE,), connect_timeout=15, call_timeout=15, max_result_bytes=10_000, on_change=lambda: None,
    on_trouble=lambda name, words: None,
)  # fmt: skip


async def test_cancelling_the_keeper_kills_the_processes_and_closing_what_never_ran_is_nothing(tmp_path):
    notes = tmp_path / "notes"
    servers = McpServers([raw("silent", notes)], QUIET)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(servers.run)
        (pid,) = await noted(notes, "pid")
        tasks.cancel_scope.cancel()
    assert not alive(int(pid))
    servers = McpServers([raw()], QUIET)
    await servers.close()
    await servers.run()
    assert [state.state for state in servers.states()] == ["closed"]


async def test_lists_are_read_again_once_they_are_older_than_their_server_said(tmp_path):
    """`ttlMs` of 2026-07-28; 0 says nothing of how long they hold."""
    async with kept(
        raw("ttl", old := tmp_path / "old", "old"), raw("modern", fresh := tmp_path / "fresh", "fresh")
    ) as k:
        before, known = old.read_text().count("listed"), fresh.read_text().count("listed")
        while old.read_text().count("listed") == before:
            k.servers.refresh()
            await anyio.sleep(0.01)
        assert fresh.read_text().count("listed") == known


async def test_a_list_that_could_not_be_read_again_is_asked_for_in_the_next_turn(tmp_path, monkeypatch):
    monkeypatch.setattr("acp_agent.mcp.mcp_servers.RELIST_PAUSE", 0.0)
    async with kept(raw("ttl", notes := tmp_path / "notes")) as k:
        with notes.open("a") as file:
            file.write("fail\n")
        while notes.read_text().partition("fail")[2].count("listed") < 2:
            k.servers.refresh()
            await anyio.sleep(0.01)
