"""An agent as a child process: its wire, its stderr, its exit."""

import os
import sys
from pathlib import Path

import anyio
import pytest

from acp_agent.child import STDERR_BYTES
from acp_agent.client import agent_process, spawn_agent
from acp_agent.errors import AgentError, ConnectionClosed
from tests.client.kit import real

AGENT = str(Path(__file__).with_name("small_agent.py"))


def argv(behaviour: str) -> list[str]:
    return [sys.executable, AGENT, behaviour]


async def test_agent_answers_over_its_pipes_and_ends_with_its_stdin(tmp_path: Path) -> None:
    """[END-1]"""
    async with spawn_agent(argv("good"), cwd=tmp_path, env={**os.environ, "NAME": "é"}) as agent:
        assert (await agent.client.initialize()).meta == {"cwd": real(tmp_path), "name": "é"}
        assert agent.process.returncode is None
    assert agent.process.returncode == 0


async def test_last_answer_and_last_words_of_an_agent_that_dies_are_read() -> None:
    async with spawn_agent(argv("dies")) as agent:
        with pytest.raises(ConnectionClosed):
            await agent.client.initialize()
        assert await agent.process.wait() == 3 and agent.process.stderr == "no key: set one\n"
    assert agent.process.stderr == "no key: set one\n"
    for _ in range(5):
        async with spawn_agent(argv("answers and dies")) as agent:
            assert (await agent.client.initialize()).protocol_version == 1


async def test_stderr_never_stalls_the_agent_and_its_end_is_kept() -> None:
    """[TR-10]"""
    async with spawn_agent(argv("chatty")) as agent:
        await agent.client.initialize()
    assert agent.process.stderr.endswith("xxx" + "the end") and len(agent.process.stderr) == STDERR_BYTES


async def test_agent_that_stays_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("acp_agent.client.spawn.EXIT_SECONDS", 0.05)
    async with spawn_agent(argv("stays")) as agent:
        await agent.client.initialize()
    assert agent.process.returncode == -9


async def test_program_that_does_not_exist_is_an_error() -> None:
    with pytest.raises(AgentError, match="/no/such/program"):
        async with agent_process(["/no/such/program"]):
            raise AssertionError("it started")


async def test_an_error_inside_the_block_comes_out_and_a_cancel_ends_the_agent() -> None:
    with pytest.raises(ZeroDivisionError):
        async with spawn_agent(argv("good")):
            raise ZeroDivisionError
    with anyio.CancelScope() as scope:
        async with spawn_agent(argv("good")) as agent:
            await agent.client.initialize()
            scope.cancel()
            await anyio.sleep_forever()
    assert agent.process.returncode == 0


async def test_no_descriptor_is_left_open() -> None:
    def open_descriptors() -> int:
        return len(os.listdir("/dev/fd"))

    async with spawn_agent(argv("good")) as agent:
        await agent.client.initialize()
    before = open_descriptors()
    for _ in range(3):
        async with spawn_agent(argv("good")) as agent:
            await agent.client.initialize()
    assert open_descriptors() == before
