"""What only local commands provide: two streams, exact order, no leaks of our own secrets."""

import os
from itertools import count
from pathlib import Path

import anyio
import pytest

from acp_agent.errors import ExecutorError
from acp_agent.executors.base import Command, ExitStatus
from acp_agent.executors.local import STILL_STARTS, LocalCommands, shell_environment
from tests.executors.kit import Stage, run


@pytest.fixture
def backend() -> str:
    return "local"


async def test_stdout_and_stderr_are_apart_and_in_order(on: Stage) -> None:
    ended = await run(on.commands, "echo out; echo err >&2", on.folder)
    assert (ended.stdout, ended.stderr) == ("out\n", "err\n")
    assert sorted((chunk.stream, chunk.text) for chunk in ended.chunks) == [("stderr", "err\n"), ("stdout", "out\n")]
    ended = await run(on.commands, "for i in 1 2 3; do echo o$i; sleep 0.05; echo e$i >&2; sleep 0.05; done", on.folder)
    assert ended.combined == "o1\ne1\no2\ne2\no3\ne3\n"


async def test_a_timeout_keeps_what_was_printed(on: Stage) -> None:
    process = await on.commands.run(Command("echo partial; echo oops >&2; sleep 600", on.folder))
    with anyio.move_on_after(0.3) as scope:
        async for _ in process.output():
            pass
    assert scope.cancelled_caught
    await process.kill()
    assert (process.stdout, process.stderr) == ("partial\n", "oops\n")
    assert (await process.wait()).signal == "SIGTERM"
    await process.close()


async def test_what_starts_programs_faster_than_they_are_ended_is_said(
    on: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = await on.commands.run(Command("sleep 600", on.folder))
    numbers = count()
    with monkeypatch.context() as always:
        always.setattr("acp_agent.executors.local.kill_round", lambda mark: ({next(numbers)}, False))
        await process.kill()
        assert process.remark == STILL_STARTS
        process.remark = ""
        always.setattr("acp_agent.executors.local.kill_round", lambda mark: ({7}, False))
        await process.kill()
        assert not process.remark, "one that is not gone yet is no new one"
    await process.kill()
    assert not process.remark
    await process.close()


async def test_a_command_may_clean_up_when_it_is_killed(tmp_path: Path) -> None:
    commands = LocalCommands(terminate_grace=60)
    process = await commands.run(
        Command("trap 'echo bye; exit 3' TERM; echo 1; while :; do sleep 0.01; done", tmp_path)
    )
    async for _ in process.output():
        break
    await process.kill()
    assert process.stdout == "1\nbye\n"
    assert await process.wait() == ExitStatus(3)
    await process.close()
    await commands.close()


@pytest.mark.parametrize(("name", "number"), [("SIGKILL", 9), ("SIGSEGV", 11), ("SIGRTMIN+3", 37)])
async def test_a_signal_has_a_name(on: Stage, name: str, number: int) -> None:
    ended = await run(on.commands, f"kill -{number} $$", on.folder)
    assert ended.status.exit_code is None and ended.status.signal == (name if name != "SIGRTMIN+3" else "signal 37")


async def test_the_middle_of_big_output_is_left_out(on: Stage) -> None:
    ended = await run(on.commands, "seq 1 100000; seq 1 100000 >&2", on.folder, output_limit=2_000)
    for text in (ended.stdout, ended.stderr, ended.combined):
        assert text.startswith("1\n2\n") and text.endswith("\n100000\n") and "characters omitted" in text
        assert len(text) < 2_200
    assert ended.truncated


async def test_the_agents_own_keys_are_hidden_from_commands(tmp_path: Path) -> None:
    commands = LocalCommands(
        environ={"PATH": "/usr/bin:/bin", "SECRET": "x", "OTHER": "y"}, hidden=frozenset({"SECRET"})
    )
    assert (await run(commands, 'echo "[$SECRET][$OTHER]"', tmp_path)).stdout == "[][y]\n"
    await commands.close()


def test_the_environment_of_commands_turns_pagers_off() -> None:
    environment = shell_environment({"PAGER": "less", "X": "1"})
    assert environment["PAGER"] == "cat" and environment["X"] == "1"


async def test_closing_one_process_leaves_the_others_running(on: Stage) -> None:
    first = await on.commands.run(Command("sleep 600", on.folder))
    second = await on.commands.run(Command("until [ -e go ]; do sleep 0.01; done; echo done", on.folder))
    await first.kill()
    await first.close()
    (on.folder / "go").touch()
    assert await second.wait() == ExitStatus(0) and second.stdout == "done\n"
    await second.close()


async def test_killing_one_command_leaves_the_background_child_of_an_earlier_one(on: Stage) -> None:
    await run(on.commands, "setsid bash -c 'until [ -e go ]; do sleep 0.01; done; echo 1 > alive' & true", on.folder)
    second = await on.commands.run(Command("sleep 600", on.folder))
    await second.kill()
    await second.close()
    (on.folder / "go").touch()
    while not (on.folder / "alive").exists():
        await anyio.sleep(0.01)


async def test_a_read_only_file_is_left_as_it_is(on: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """An editor decides by itself, a host by who the user is there."""
    (path := on.folder / "f").write_text("old")
    path.chmod(0o444)
    if os.geteuid() == 0:  # Who may write everything is told here that this may not be written.
        monkeypatch.setattr(os, "access", lambda *_, **__: False)
    with pytest.raises(ExecutorError, match="read-only"):
        await on.files.write(path, "new")
    assert path.read_text() == "old"
