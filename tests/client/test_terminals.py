"""`terminal/*` over the wire, with real processes."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from acp_agent.client import AcpClient, Terminals
from acp_agent.errors import PeerError
from tests.client.kit import ScriptedAgent, real, scripted_agent
from tests.e2e.kit import alive, until_gone


@pytest.fixture
def terminals() -> Terminals:
    return Terminals()


@pytest.fixture
async def agent(terminals: Terminals) -> AsyncIterator[ScriptedAgent]:
    async with scripted_agent() as (agent, transport), AcpClient(transport, terminals=terminals):
        yield agent


async def create(agent: ScriptedAgent, command: str, *args: str, **params: Any) -> str:
    return str((await agent.ask("terminal/create", command=command, args=list(args), **params))["terminalId"])


async def wait(agent: ScriptedAgent, terminal: str) -> Any:
    return await agent.ask("terminal/wait_for_exit", terminalId=terminal)


async def output(agent: ScriptedAgent, terminal: str) -> Any:
    return await agent.ask("terminal/output", terminalId=terminal)


async def run(agent: ScriptedAgent, command: str, *args: str, **params: Any) -> Any:
    """The output and status of a command that ends by itself, its terminal released."""
    terminal = await create(agent, command, *args, **params)
    await wait(agent, terminal)
    result = await output(agent, terminal)
    assert await agent.ask("terminal/release", terminalId=terminal) == {}
    return result


async def line_of(agent: ScriptedAgent, terminal: str) -> str:
    """The first whole line of a terminal, as soon as it is there."""
    text = ""
    while "\n" not in text:
        text = (await output(agent, terminal))["output"]
    return str(text).partition("\n")[0]


async def test_arguments_folder_and_environment_are_the_requests_and_output_is_in_order(
    agent: ScriptedAgent, tmp_path: Path
):
    """[TERM-3] [TERM-2] [TC-12]"""
    result = await run(agent, "printf", "%s|", "a b", "$HOME", "'")
    assert result == {"output": "a b|$HOME|'|", "truncated": False, "exitStatus": {"exitCode": 0}}
    result = await run(agent, "sh", "-c", "echo 1; echo 2 >&2; echo 3; exit 7")
    assert result == {"output": "1\n2\n3\n", "truncated": False, "exitStatus": {"exitCode": 7}}
    env = [{"name": "ADDED", "value": "é x"}]
    result = await run(agent, "sh", "-c", 'pwd; echo "$ADDED"; test -n "$PATH"', cwd=str(tmp_path), env=env)
    assert result["output"] == f"{real(tmp_path)}\né x\n" and result["exitStatus"] == {"exitCode": 0}
    assert (await run(agent, "cat"))["exitStatus"] == {"exitCode": 0}


async def test_create_returns_while_the_command_runs(agent: ScriptedAgent) -> None:
    terminal = await create(agent, "sh", "-c", "echo ready; sleep 1000")
    assert await line_of(agent, terminal) == "ready"
    assert "exitStatus" not in await output(agent, terminal)


@pytest.mark.parametrize("limit", [0, 1, 2, 5, 6, 100])
async def test_output_keeps_its_last_bytes_from_the_start_of_a_character(agent: ScriptedAgent, limit: int) -> None:
    """[TERM-7]"""
    text = "aé\U0001f600b\n"  # 1 + 2 + 4 + 1 + 1 bytes
    result = await run(agent, "printf", "%s", text, outputByteLimit=limit)
    kept = result["output"]
    assert text.endswith(kept)
    assert len(kept.encode()) <= limit
    assert result["truncated"] is (kept != text)
    longer = text[-len(kept) - 1 :] if len(kept) < len(text) else ""
    assert not longer or len(longer.encode()) > limit, "more would have fitted"


async def test_output_is_whole_bounded_and_text_when_the_exit_is_told(agent: ScriptedAgent) -> None:
    result = await run(agent, "sh", "-c", "seq 1 200000; printf end", outputByteLimit=10_000)
    assert result["truncated"] is True and result["output"].endswith("200000\nend") and len(result["output"]) == 10_000
    for _ in range(10):
        result = await run(agent, "sh", "-c", "head -c 300000 /dev/zero | tr '\\0' x")
        assert len(result["output"]) == 300_000
    result = await run(agent, "printf", "a\\377b\\303")
    assert result["output"] == "a\ufffdb\ufffd"


async def test_background_child_does_not_hold_the_exit_up(agent: ScriptedAgent) -> None:
    """[TC-12]"""
    terminal = await create(agent, "sh", "-c", "sleep 1000 & echo $!")
    assert await wait(agent, terminal) == {"exitCode": 0}
    child = int((await output(agent, terminal))["output"])
    assert alive(child)
    await agent.ask("terminal/release", terminalId=terminal)
    await until_gone(child)


async def test_kill_takes_the_whole_tree_and_keeps_the_output(agent: ScriptedAgent) -> None:
    """[TERM-8]"""
    terminal = await create(agent, "sh", "-c", "sh -c 'sleep 1000 & wait' & echo $!; wait")
    child = int(await line_of(agent, terminal))
    assert await agent.ask("terminal/kill", terminalId=terminal) == {}
    assert await wait(agent, terminal) == {"signal": "SIGKILL"}
    result = await output(agent, terminal)
    assert result == {"output": f"{child}\n", "truncated": False, "exitStatus": {"signal": "SIGKILL"}}
    await until_gone(child)
    assert await agent.ask("terminal/kill", terminalId=terminal) == {}, "a second kill is no failure"


async def test_wait_that_is_open_during_the_kill_is_answered(agent: ScriptedAgent) -> None:
    terminal = await create(agent, "sleep", "1000")
    statuses: list[Any] = []

    async def waiting() -> None:
        statuses.append(await wait(agent, terminal))

    async with anyio.create_task_group() as group:
        group.start_soon(waiting)
        group.start_soon(waiting)
        await anyio.wait_all_tasks_blocked()
        await agent.ask("terminal/kill", terminalId=terminal)
    assert statuses == [{"signal": "SIGKILL"}] * 2


async def test_released_terminal_is_unknown_and_its_process_gone(agent: ScriptedAgent, terminals: Terminals) -> None:
    """[TERM-5]"""
    terminal = await create(agent, "sh", "-c", "echo $$; sleep 1000")
    pid = int(await line_of(agent, terminal))
    await agent.ask("terminal/release", terminalId=terminal)
    assert terminals.open == 0
    await until_gone(pid)
    for method in ("output", "wait_for_exit", "kill", "release"):
        with pytest.raises(PeerError) as caught:
            await agent.ask(f"terminal/{method}", terminalId=terminal)
        assert caught.value.code == -32002


async def test_terminal_of_another_session_is_unknown(agent: ScriptedAgent) -> None:
    terminal = await create(agent, "true")
    with pytest.raises(PeerError) as caught:
        await agent.ask("terminal/output", terminalId=terminal, sessionId="other")
    assert caught.value.code == -32002


@pytest.mark.parametrize(("command", "params"), [
    ("/no/such/program", {}), ("true", {"cwd": "/no/such/folder"}), ("/etc/passwd", {}), ("a\0b", {}),
])  # fmt: skip
async def test_what_cannot_start_fails(
    agent: ScriptedAgent, terminals: Terminals, command: str, params: dict[str, Any]
) -> None:
    """[TERM-9]"""
    with pytest.raises(PeerError) as caught:
        await create(agent, command, **params)
    assert caught.value.code == -32603
    assert terminals.open == 0


async def test_joined_for_a_shell_the_quoting_is_lost(tmp_path: Path) -> None:
    """[TERM-10] As some editors do it; a program and one script file works in both."""
    (script := tmp_path / "script").write_text('echo "a  b"; pwd\n', encoding="utf-8")
    for join in (False, True):
        async with (
            scripted_agent() as (agent, transport), AcpClient(transport, terminals=Terminals(join_for_shell=join)),
        ):  # fmt: skip
            assert (await run(agent, "sh", "-c", "echo X; echo Y"))["output"] == ("\nY\n" if join else "X\nY\n")
            line = "echo one line"
            if join:
                assert (await run(agent, line))["output"] == "one line\n"
            else:
                with pytest.raises(PeerError):
                    await create(agent, line)
            assert (await run(agent, "sh", str(script), cwd=str(tmp_path)))["output"].startswith("a  b\n")


async def test_closing_or_cancelling_the_client_kills_what_runs(terminals: Terminals) -> None:
    """[END-2]"""
    async with scripted_agent() as (agent, transport):
        async with AcpClient(transport, terminals=terminals):
            terminal = await create(agent, "sh", "-c", "echo $$; sleep 1000")
            pid = int(await line_of(agent, terminal))
        await until_gone(pid)
    assert terminals.open == 0
    pid = 0
    with anyio.CancelScope() as scope:
        async with scripted_agent() as (agent, transport), AcpClient(transport, terminals=terminals):
            terminal = await create(agent, "sh", "-c", "echo $$; sleep 1000")
            pid = int(await line_of(agent, terminal))
            scope.cancel()
            await anyio.sleep_forever()
    await until_gone(pid)
