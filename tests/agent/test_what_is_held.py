"""What clients, servers and models can make the agent hold has bounds; who is over one is told, nobody else notices."""

import os
import resource
import socket
import sys
import threading
from pathlib import Path
from typing import Any

import anyio
import pytest

from acp_agent.errors import InternalError
from acp_agent.limits import shares
from acp_agent.limits.descriptors import few_left, fits
from acp_agent.limits.shares import Share
from acp_agent.loop.calls.runner import Calls
from acp_agent.mcp.base import McpError
from acp_agent.mcp.mcp_servers import MOST_ASKS
from acp_agent.proxying import MOST_LOOKUPS, Lookups
from tests.agent.kit import Answer, Call, asks, bash, refused, results, rig, rounds, went
from tests.mcp.kit import HERE, kept, raw
from tests.waits import until

SERVER = f"[mcp.servers.one]\ncommand = {sys.executable!r}\nargs = ['-S', '{HERE}/raw_server.py', 'good', '']\n"


@pytest.mark.parametrize("of", ["session", "owner", "process"])
async def test_commands_and_servers_of_a_session_are_counted_together(tmp_path: Path, of: str) -> None:
    config = f"[limits]\nmax_programs_per_{of} = 1\n{SERVER}"
    async with rig(tmp_path, rounds(bash("echo works")), mode="auto", config=config) as made:
        await until(lambda: shares.PROGRAMS.taken == 1)
        await made.editor.prompt("go")
        (text,) = results(made)
        assert f"1 commands and servers at a time are the most that {'this' if of != 'owner' else 'all'}" in text
        assert f"limits.max_programs_per_{of}" in text and "works" not in text
    assert shares.PROGRAMS.taken == 0


async def test_what_a_command_has_taken_is_given_back_however_it_ends(tmp_path: Path) -> None:
    calls = (bash("exit 3"), bash("sleep 60", timeout=0.2), bash("sleep 60", background=True), bash("echo works"))
    async with went(tmp_path, rounds(*calls), mode="auto", config="[limits]\nmax_programs_per_session = 1\n") as made:
        assert "works" in results(made)[-1]
    assert (shares.PROGRAMS.taken, shares.COMMANDS.taken) == (0, 0)


async def test_a_server_for_which_there_is_no_room_is_told_and_begins_once_there_is() -> None:
    one = Share("this session", "servers", "a.b", 1)
    async with kept(raw(name="a"), programs=one) as made:
        made.servers.add([raw(name="b")])
        await made.servers.settled()
        assert [one.taken, *(each.state for each in made.servers.states())] == [1, "ready", "failed"]
        assert "1 servers are the most that this session may have (`a.b`)" in made.servers.states()[1].words
        made.servers.remove(["a"])
        await until(lambda: not one.taken)
        await made.servers.restart("b")
        await made.connected()
    assert one.taken == 0


async def test_a_server_that_asks_and_asks_waits_for_answers() -> None:
    async with kept(raw(name="a")) as made:
        server, answered = made.servers._server("a"), anyio.Event()

        async def answer(name: str, params: dict[str, Any]) -> dict[str, Any]:
            await answered.wait()
            return {}

        async with anyio.create_task_group() as tasks:
            for _ in range(MOST_ASKS):
                tasks.start_soon(server._asking, answer, "a", {})
            await until(lambda: server.asks == MOST_ASKS)
            with pytest.raises(McpError, match="8 requests of this server wait for an answer already"):
                await server._asking(answer, "a", {})
            answered.set()
        assert await server._asking(answer, "a", {}) == {}


async def test_prompts_that_wait_and_sessions_are_bounded(tmp_path: Path) -> None:
    script: list[Answer | str] = [asks(bash("while [ ! -e go ]; do sleep 0.05; done")), "one", "two", "three"]
    async with rig(tmp_path, script, mode="auto", config="[limits]\nmax_prompts = 2\nmax_sessions = 1\n") as made:
        turns = [made.editor.begin("one"), made.editor.begin("two")]
        await made.editor.wait_until(made.editor.tool_calls)
        with refused(InternalError.code, "2 prompts run or wait in this session (`limits.max_prompts`)"):
            await made.editor.prompt("three")
        with refused(
            InternalError.code, "1 open sessions are the most that this agent may have (`limits.max_sessions`)"
        ):
            await made.editor.new_session(made.project)
        (made.project / "go").touch()
        assert [(await turn.response()).stop_reason for turn in turns] == ["end_turn", "end_turn"]
        assert (await made.editor.prompt("three")).stop_reason == "end_turn"
        await made.editor.load_session(made.editor.session_id, made.project)
        await made.editor.request("session/close", {"sessionId": made.editor.session_id})
        await made.editor.new_session(made.project)
    assert shares.SESSIONS.taken == 0


async def test_calls_that_only_read_run_together_but_not_all_at_once(tmp_path: Path, monkeypatch) -> None:
    at_a_time, run = [0, 0], Calls.run

    async def counted(calls: Calls, call: Any) -> None:
        at_a_time[0] += 1
        at_a_time[1] = max(at_a_time)
        try:
            await anyio.lowlevel.checkpoint()
            await run(calls, call)
        finally:
            at_a_time[0] -= 1

    monkeypatch.setattr(Calls, "run", counted)
    script: list[Answer | str] = [
        asks(*(Call("grep", {"pattern": f"x{number}"}) for number in range(9))), Answer(text="done"),
    ]  # fmt: skip
    async with went(tmp_path, script, files={"a": "x1"}, config="[tools]\nmax_parallel_calls = 3\n") as made:
        assert len(results(made)) == 9
    assert at_a_time == [0, 3]


async def test_names_that_are_looked_up_slowly_hold_only_so_many_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    goes_on, looked = threading.Event(), list[str]()

    def slow(host: str, *_: Any, **__: Any) -> list[Any]:
        looked.append(host)
        if host.startswith("slow"):
            goes_on.wait(30)
        return [(socket.AF_INET, socket.SOCK_STREAM, 0, "", ("127.0.0.1", 1))]

    monkeypatch.setattr(socket, "getaddrinfo", slow)
    mine, others = Lookups(), Lookups()
    try:
        for _ in range(3):
            with anyio.move_on_after(0.1):
                async with anyio.create_task_group() as tasks:
                    for number in range(20):
                        tasks.start_soon(mine.resolve, f"slow{number}", 1)
        assert len(looked) == MOST_LOOKUPS, "also of those who have gone"
        assert list(await others.resolve("quick", 1)) == ["127.0.0.1"]
    finally:
        goes_on.set()
    with anyio.fail_after(60):
        assert list(await mine.resolve("quick", 1)) == ["127.0.0.1"]


def test_some_descriptors_are_never_held_for_others() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    share, held = Share("this agent", "things", "a.b", 9), list[int]()
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + 320, hard))
    try:
        assert share.take() == ""
        with pytest.raises(OSError, match="Too many open files"):
            while True:
                held.append(os.open("/", os.O_RDONLY))
                if few_left():
                    assert "few file descriptors left" in share.take()
                    break
            reserve = [os.open("/", os.O_RDONLY) for _ in range(fits(1) - 8)]
            assert reserve and few_left()
            held += reserve
            while True:
                held.append(os.open("/", os.O_RDONLY))
        assert few_left() and share.taken == 1
    finally:
        for each in held:
            os.close(each)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert not few_left()
