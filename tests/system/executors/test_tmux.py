"""A real tmux as the other end of a terminal."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from acp_agent.errors import ExecutorError
from acp_agent.executors.base import Command, Process, TerminalSize
from acp_agent.executors.local import LocalCommands
from acp_agent.executors.tmux.shared_shell import SharedShell
from acp_agent.executors.tmux.tmux_server import Tmux
from tests.waits import until

pytestmark = pytest.mark.skipif(shutil.which("tmux") is None, reason="not installed: tmux")

SIZE = TerminalSize(100, 30, 2000)


@asynccontextmanager
async def server(tmp_path: Path) -> AsyncIterator[Tmux]:
    made = Tmux(tmp_path, "main", os.environ, (), SIZE.history)
    try:
        yield made
    finally:
        await made.end()


async def started(tmux: Tmux, script: str, folder: Path) -> Process:
    return await LocalCommands().run(Command(script, folder, terminal=SIZE, opened=await tmux.open(SIZE, "one")))


async def ended(process: Process) -> int | None:
    with anyio.fail_after(60):
        async for _ in process.output():
            pass
        return (await process.wait()).exit_code


@asynccontextmanager
async def shared(tmp_path: Path, **env: str) -> AsyncIterator[SharedShell]:
    """A shell that commands share; it is ready."""
    async with server(tmp_path) as tmux:
        opened = await tmux.open(SIZE, "one")
        command = Command(SharedShell.script("abc"), tmp_path, terminal=SIZE, opened=opened, env=env)
        shell = SharedShell(await LocalCommands().run(command), command, "abc")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(shell.live)
            await shell.ready()
            yield shell
            await shell.close()


async def until_gone(socket: Path) -> None:
    await until(lambda: subprocess.run(["tmux", "-S", socket, "ls"], capture_output=True, check=False).returncode)


async def test_all_that_is_printed_comes_up_to_the_end(tmp_path: Path) -> None:
    async with server(tmp_path) as tmux:
        for number in range(5):
            process = await started(tmux, f"seq 30000; printf last; exit {number}", tmp_path)
            assert await ended(process) == number and process.combined.endswith("30000\nlast\n")
            await process.close()
    await until_gone(tmux.socket)


async def test_what_is_typed_arrives_byte_by_byte_also_while_the_user_looks_back(tmp_path: Path) -> None:
    data = bytes(range(1, 256)) + b"\0" + b"x" * 50_000
    async with server(tmp_path) as tmux:
        process = await started(tmux, f"stty raw -echo; echo ready; head -c {len(data)} >typed", tmp_path)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ended, process)
            assert process.terminal is not None
            await until(lambda: "ready" in process.combined)
            tmux.ask("copy-mode", "-t", "=acp-coder-main:one")
            await process.terminal.type(data)
        assert (tmp_path / "typed").read_bytes() == data
        await process.close()


async def test_a_window_that_the_user_closes_ends_what_runs_in_it(tmp_path: Path) -> None:
    async with server(tmp_path) as tmux:
        process = await started(tmux, "trap 'echo told >told; exit 1' HUP; echo ready; read", tmp_path)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ended, process)
            await until(lambda: "ready" in process.combined)
            tmux.ask("kill-window", "-t", "=acp-coder-main:one")
        assert (tmp_path / "told").exists()
        await process.close()
        assert await ended(await started(tmux, "exit 3", tmp_path)) == 3


async def test_a_server_that_ended_is_started_again(tmp_path: Path) -> None:
    async with server(tmp_path) as tmux:
        await tmux.ready(SIZE)
        tmux.ask("kill-server")
        process = await started(tmux, "echo again", tmp_path)
        assert await ended(process) == 0 and process.combined == "again\n"
        await process.close()


async def test_a_folder_whose_path_is_too_long_is_one_sentence(tmp_path: Path) -> None:
    (folder := tmp_path / ("x" * 100)).mkdir()
    with pytest.raises(ExecutorError, match="the path is too long"):
        await Tmux(folder, "main", os.environ, (), 100).open(SIZE, "one")
    assert list(folder.iterdir()) == []


KILLED = """
import os, sys, anyio
from pathlib import Path
from tests.system.executors.test_tmux import SIZE, Tmux, started

async def main():
    folder = Path(sys.argv[1])
    tmux = Tmux(folder, "main", os.environ, (), 100)
    process = await started(tmux, "echo $$ >pid; exec sleep 1000", folder)
    while not (folder / "pid").exists() or not (folder / "pid").read_text():
        await anyio.sleep(0.01)
    print("ready", flush=True)
    await anyio.sleep_forever()

anyio.run(main)
"""


async def test_nothing_is_left_of_an_agent_that_was_killed(tmp_path: Path) -> None:
    agent = subprocess.Popen([sys.executable, "-c", KILLED, str(tmp_path)], stdout=subprocess.PIPE)
    assert agent.stdout is not None and agent.stdout.readline() == b"ready\n"
    program = int((tmp_path / "pid").read_text())
    agent.send_signal(signal.SIGKILL)
    agent.wait()
    agent.stdout.close()
    await until_gone(tmp_path / "tmux")
    await until(lambda: not Path(f"/proc/{program}").exists())


async def test_marks_of_others_and_halves_of_marks_are_output(tmp_path: Path) -> None:
    async with shared(tmp_path) as shell:
        run = await shell.run(
            Command(r"printf '\033]133;D;other;0;1;/\007x\033]133;C;'; sleep 0.1; printf 'y\n'", tmp_path)
        )
        assert await ended(run) == 0 and run.stdout == "\x1b]133;D;other;0;1;/\x07x\x1b]133;C;y\n"
        with pytest.raises(ExecutorError, match="takes for keys"):
            await shell.run(Command("echo \x1b[201~", tmp_path))
        large = await shell.run(Command("seq 200000", tmp_path, output_limit=10_000))
        assert await ended(large) == 0 and large.truncated and large.stdout.endswith("200000\n")
        await shell.close()
        with pytest.raises(ExecutorError, match="its shell has ended"):
            await shell.run(Command("echo", tmp_path))


@pytest.mark.parametrize("locale", ["C", "C.UTF-8"])
async def test_a_command_is_run_as_it_stands_whatever_ran_before(tmp_path: Path, locale: str) -> None:
    (tmp_path / "a;b").mkdir()
    cases = [
        ("echo üñ€😀 'x\ty'", "üñ€😀 x\ty\n", 0), ("printf '%s\\n' \"!!\" '!x' ^a^b", "!!\n!x\n^a^b\n", 0),
        ("false\n\n# comment", "", 1), ('echo "unclosed', "unexpected EOF", 2),
        ("x=$(cat <<'E'\nhi\nE\n); echo $x", "hi\n", 0), (f"echo {'y' * 20_000} | wc -c", "20001\n", 0),
        ("cd 'a;b'", "", 0), ("set -o vi", "", 0), ("echo in vi", "in vi\n", 0), ("stty -echo; set -u", "", 0),
        ("echo quiet", "quiet\n", 0), ("return 3", "return", 2),
        ("trap 'echo told' INT; sleep 0.1 & echo begun; wait", "begun\n", 0),
        ("bind 'set enable-bracketed-paste off'", "", 0), ("echo 'a\nb'", "a\nb\n", 0), ("PS1=x", "readonly", 1),
        ("unset PROMPT_COMMAND; echo still", "still\n", 0),
    ]  # fmt: skip
    async with shared(tmp_path, LC_ALL=locale) as shell:
        for script, printed, code in cases:
            run = await shell.run(Command(script, tmp_path))
            assert await ended(run) == code, script
            assert printed in run.stdout, script
            assert printed or not run.stdout, script
        assert shell.folder == tmp_path / "a;b"


async def test_a_program_that_knows_the_marks_is_typed_to_by_nobody(tmp_path: Path) -> None:
    """Nor is its folder believed where the system knows the shell's."""
    (tmp_path / "forge.sh").write_text(r"printf '\033]133;D;%s;0;1;/home\007\033]133;B;%s\007' $1 $1; exec cat >got")
    async with shared(tmp_path) as shell:
        assert await ended(await shell.run(Command("sh forge.sh abc", tmp_path))) == 0
        await until((tmp_path / "got").exists)  # It is made just before sh becomes cat.
        with pytest.raises(ExecutorError, match="(cat|sh) runs in it"):
            await shell.run(Command("echo secret", tmp_path))
        await shell.terminal.type(b"\x03")
        await until(lambda: not shell.busy)
        assert await ended(await shell.run(Command("PWD=/home", tmp_path))) == 0 and shell.folder == tmp_path
        assert (tmp_path / "got").read_text() == ""
        await ended(await shell.run(Command("readonly __run=1", tmp_path)))
        assert await ended(await shell.run(Command("echo", tmp_path))) is None
