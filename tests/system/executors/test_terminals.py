"""Commands in a terminal of their own: what they are given, what their screen shows, and that they end."""

import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import anyio
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from acp_agent.errors import ExecutorError
from acp_agent.executors.base import Command, Terminal, TerminalSize
from acp_agent.executors.local import LocalCommands
from acp_agent.executors.terminals.process import TerminalProcess
from acp_agent.executors.terminals.screen import MOST_FED, Screen
from tests.executors.kit import Stage, local_files, open_descriptors, run, stage, until_exists
from tests.nightly import examples

ELSEWHERE = ("container", "ssh", "ssh without Python", "busybox")
SIZE = TerminalSize(80, 24, 100)


class On:
    """A command in a terminal, whose output somebody reads."""

    def __init__(self, process: TerminalProcess) -> None:
        self.process = process
        self.over = anyio.Event()

    @property
    def terminal(self) -> Terminal:
        assert self.process.terminal is not None
        return self.process.terminal

    async def until(self, shown: str | Callable[[], bool]) -> str:
        """What is shown once `shown` is part of it, or true. The stage bounds the wait."""
        while not (shown in self.terminal.text() if isinstance(shown, str) else shown()):
            await anyio.sleep(0.01)
        return self.terminal.text()

    async def type(self, text: str) -> None:
        await self.terminal.type(text.encode())


@asynccontextmanager
async def on(at: Stage, script: str, size: TerminalSize = SIZE, **about: Any) -> AsyncIterator[On]:
    process = cast("TerminalProcess", await at.commands.run(Command(script, at.folder, terminal=size, **about)))
    it = On(process)

    async def follow() -> None:
        async for _ in process.output():
            pass
        it.over.set()

    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(follow)
            yield it
            tasks.cancel_scope.cancel()
    finally:
        await process.close()


@pytest.mark.parametrize("backend", ["local", "editor", *ELSEWHERE])
async def test_a_program_that_asks_is_answered(tmp_path: Path, backend: str) -> None:
    """Never in the editor's terminal: nothing can be typed into that."""
    async with stage(backend, tmp_path) as at, on(at, "read -p 'Name? ' name; echo hello $name; stty size") as it:
        await it.until("Name?")
        await it.type("Bob\r")
        assert await it.until("24 80") == "Name? Bob\nhello Bob\n24 80\n"
        await it.over.wait()
        assert (await it.process.wait()).exit_code == 0
        assert backend in ("local", *ELSEWHERE) or at.asked("terminal/create") == 0
        with pytest.raises(ExecutorError, match="has ended"):
            await it.type("more\r")


async def test_it_is_the_sessions_terminal(tmp_path: Path) -> None:
    """/dev/tty is there, and ^C is a signal to what is in the foreground alone."""
    async with stage("local", tmp_path) as at, on(at, "echo seen >/dev/tty; exec bash --norc --noprofile") as it:
        await it.until("seen")
        await it.until(lambda: it.terminal.foreground().prompts)
        shell = it.terminal.foreground()
        assert (shell.program, shell.folder) == ("bash", at.folder)
        await it.type("sleep 1000\r")
        await it.until(lambda: it.terminal.foreground().program == "sleep")
        assert not it.terminal.foreground().prompts
        await it.type("\x03")
        await it.until(lambda: it.terminal.foreground() == shell)
        await it.type("echo $TERM$PAGER$GIT_EDITOR\r")
        await it.until("\nxterm-256color\n")


@pytest.mark.parametrize("arguments", ["-c 'read x; :'", "script.sh"])
async def test_a_shell_that_runs_a_script_takes_no_command_lines(tmp_path: Path, arguments: str) -> None:
    async with stage("local", tmp_path) as at:
        (at.folder / "script.sh").write_text("read -p 'Sure? ' x; :")
        async with on(at, f"bash {arguments}; :") as it:
            await it.until(lambda: it.terminal.foreground().program == "bash")
            assert not it.terminal.foreground().prompts


@pytest.mark.parametrize("backend", ["local", *ELSEWHERE])
async def test_nothing_is_left_when_it_is_killed(tmp_path: Path, backend: str) -> None:
    """Not the jobs of an interactive shell either, which have groups of their own and ignore what they like."""
    script = (
        "trap '' TERM HUP; bash --norc -i -c 'set -m; trap \"\" TERM HUP; sleep 1000 & echo $! >job; wait'; sleep 9"
    )
    before = open_descriptors()
    async with stage(backend, tmp_path) as at:
        async with on(at, script) as it:
            job = int(await until_exists(at.folder / "job"))
        if backend == "container":
            assert (await run(at.commands, f"kill -0 {job} 2>/dev/null || echo gone", at.folder)).stdout == "gone\n"
        else:
            await at.until_dead(job)
        assert it.process.stdout is not None and it.process.remark == ""
    assert backend != "local" or open_descriptors() == before


@pytest.mark.parametrize("backend", ELSEWHERE)
async def test_in_a_place_it_has_the_folder_and_the_variables(tmp_path: Path, backend: str) -> None:
    """No value is on a command line, and what said them is gone."""
    state = tmp_path / "state"
    script = "echo $FRUIT $SECRET-$TERM $PAGER. $(tty | cut -c 1-5) $PWD; read x; echo got $x; exit 5"
    async with stage(backend, tmp_path) as at:
        await run(at.commands, "export FRUIT=mango", at.folder, state_file=state)
        about: dict[str, Any] = {"state_file": state, "keeps_state": False, "env": {"SECRET": "tange rine"}}
        async with on(at, script, **about) as it:
            await it.until(at.folder.name)
            assert "mango tange rine-xterm-256color . /dev/" in it.terminal.text()
            assert b"tange rine" not in (await anyio.run_process(["ps", "-eo", "args"])).stdout
            assert not it.terminal.foreground().prompts
            await it.type("yes\r")
            await it.until("got yes")
            await it.over.wait()
            assert (await it.process.wait()).exit_code == 5


async def test_a_flood_ends_and_does_not_hold_anything_up(tmp_path: Path) -> None:
    script = "head -c 5000000 /dev/zero | tr '\\0' x | fold -w 70; echo the end"
    async with stage("local", tmp_path) as at, on(at, script) as it:
        await it.over.wait()
        text = it.terminal.text()
        assert text.endswith("xxxxthe end\n")
        assert (await it.process.wait()).exit_code == 0
        assert len(text) <= MOST_FED + 100
        assert "came too fast" in it.process.lost


async def test_a_full_screen_program_leaves_what_was_there(tmp_path: Path) -> None:
    there, back = r"\033[?1049h\033[2J\033[3;5Hmenu\033[?1h", r"\033[?1l\033[?1049l"
    script = f"echo before; printf '{there}'; read x; printf '{back}'; echo done; read"
    async with stage("local", tmp_path) as at, on(at, script) as it:
        await it.until("menu")
        assert it.terminal.alternate and it.terminal.application_keys
        assert it.terminal.rows() == (["before", "", "    menu"], 0) or "before" not in it.terminal.text()
        await it.type("\r")
        text = await it.until("done")
        assert text.startswith("before\n") and "menu" not in text
        assert not it.terminal.alternate and not it.terminal.application_keys


async def test_a_program_may_ask_where_the_cursor_is(tmp_path: Path) -> None:
    script = r"stty -echo raw; printf 'ab\033[6n'; dd bs=1 count=6 2>/dev/null | od -c; stty sane; read x"
    async with stage("local", tmp_path) as at, on(at, script) as it:
        await it.until("ab")  # It is drawn, and answered, when somebody looks.
        assert "033   [   1   ;   3   R" in await it.until("R\n")


def test_rows_are_those_of_a_terminal_and_no_character_hides_others() -> None:
    screen = Screen(10, 3, 2, lambda data: None)
    screen.add(b"".join(b"%d\r\n" % number for number in range(5)) + b"0123456789abc\r\x1b[1mbold\x1b[0m  \r\n")
    assert screen.rows() == (["3", "4", "0123456789", "bold"], 2)
    assert screen.rows(join=True) == (["3", "4", "0123456789bold"], 2)
    assert screen.rows(keep_spaces=True)[0][3] == "bold      " and screen.lost_lines == 3
    screen = Screen(40, 5, 3, lambda data: None)
    screen.add("\u26a0\ufe0f warning: a\u200bb\r\n".encode())
    assert screen.text() == "\u26a0 warning: ab\n"


@settings(max_examples=examples(150))
@given(st.lists(st.sampled_from([b"\x1b[", b"\x1b]", b"?", b"1049", b";", b"h", b"l", b">4m", b"\n", b"\r", b"text",
    b"99999999999", b"H", b"J", b"@", b"L", b"P", b"\x1b", b"#8", b"(0", b"\xff", b"\xe4\xb8", b"\xcc\x81", b"r", b"X",
    b"t", b"c", b"6n", b"\x07", b"\x9b", b"\x00"]) | st.binary(max_size=8), max_size=200))  # fmt: skip
@example([b"\x1b[1049J\x1b[9K"])
def test_no_output_breaks_the_screen(parts: list[bytes]) -> None:
    screen = Screen(20, 5, 3, lambda data: None)
    for part in parts:
        screen.add(part)
    rows, above = screen.rows(join=True)
    assert 0 <= above <= len(rows) <= 8
    screen.add(b"\x1bc\x1b[?1049lstill here")
    assert isinstance(screen.alternate, bool)


async def test_the_terminal_of_another_user_is_theirs(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root gives commands another user")
    from acp_agent.executors.users import find_user

    other = find_user("nobody")
    os.chmod(tmp_path, 0o777)
    commands = LocalCommands(user=lambda: other)
    at = Stage(commands, local_files(), tmp_path, tmp_path)
    with anyio.fail_after(60):
        async with on(at, "id -un; echo mine >/dev/tty; read x") as it:
            assert "nobody\nmine\n" in await it.until("mine")
    await commands.close()


@pytest.mark.parametrize("joined", ["e\u0301", "e\u0301\x1b[m", "\x1b[He\u0301\u0301\u0301"])
def test_marks_without_end_do_not_grow(joined: str) -> None:
    """Each one more made the emulator slower: a file of them stopped the agent for minutes."""
    screen = Screen(20, 5, 3, lambda data: None)
    for _ in range(3):
        screen.add((joined + "\u0301\x1b[m" * 100 + "\u0301" * 1000).encode())
        assert len(screen.text()) < 200


@pytest.mark.parametrize("sequence", [b"\x1b#8", b"\x1b[?5h", b"\x1b[?5l", b"\x1b[?3h", b"\x1b[2J"])
def test_no_sequence_costs_every_cell(sequence: bytes) -> None:
    """There can be tens of thousands of them between two looks."""
    screen = Screen(80, 24, 3, lambda data: None)

    def work(output: bytes) -> int:
        calls = 0

        def count(*event: object) -> None:
            nonlocal calls
            calls += 1

        screen.add(output)
        sys.setprofile(count)
        try:
            screen.text()
        finally:
            sys.setprofile(None)
        return calls

    work(b"x" * 80 * 24)
    least = work(b"\x1b[6n")
    assert work(sequence) < least + 500


async def test_the_shell_that_opens_the_terminal_reads_no_file_of_the_users(tmp_path: Path) -> None:
    """It is outside the sandbox, in which such a file can be changed."""
    (tmp_path / "startup").write_text(f"echo once >>{tmp_path}/read")
    commands = LocalCommands(environ={**os.environ, "BASH_ENV": str(tmp_path / "startup")})
    with anyio.fail_after(60):
        async with on(Stage(commands, local_files(), tmp_path, tmp_path), "echo begun; read x") as it:
            await it.until("begun")
            assert (tmp_path / "read").read_text() == "once\n"
    await commands.close()
