"""Running commands: one contract, every backend."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio
import pytest

from acp_agent.errors import ExecutorError
from acp_agent.executors.base import Command, ExitStatus
from acp_agent.executors.default_signals import default_signals
from acp_agent.executors.shell_state import last_cwd
from tests.executors.kit import Stage, collect, open_descriptors, run, signal_masks, stage, until_exists

IGNORED = ("SIGHUP", "SIGINT", "SIGQUIT", "SIGTERM", "SIGTSTP", "SIGTTOU", "SIGUSR1", "SIGCHLD", "SIGRTMAX")


@contextmanager
def inherited() -> Iterator[None]:
    """What a parent may leave to us, as each process of ours treats it at its start."""
    before = {number: signal.signal(number, signal.SIG_IGN) for number in map(signal.Signals.__getitem__, IGNORED)}
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1, signal.SIGUSR2, signal.SIGQUIT})
    try:
        default_signals()
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        for number, disposition in before.items():
            signal.signal(number, disposition)


async def test_output_exit_code_folder_and_variables_are_as_told(on: Stage) -> None:
    ended = await run(on.commands, "echo one; echo two; exit 3", on.folder)
    assert (ended.combined, ended.status, ended.truncated) == ("one\ntwo\n", ExitStatus(3), False)
    assert "".join(chunk.text for chunk in ended.chunks) == "one\ntwo\n"
    (on.folder / "a b").mkdir()
    ended = await run(on.commands, 'pwd; echo "$X"', on.folder / "a b", env={"X": "va lue"})
    assert ended.stdout == f"{on.folder / 'a b'}\nva lue\n"
    for login in (True, False):
        ended = await run(on.commands, "shopt -q login_shell && echo login; :", on.folder, login=login)
        assert ended.stdout.endswith("login\n") == login


PRINTED = {
    "a silent command": ("true", ""), "a silent exit": ("exit 0", ""), "nothing but a colon": (":", ""),
    "nothing but a comment": ("# nothing", ""),
    "bash, not in posix mode": ("[[ abc == a* ]] && echo {1..3} <(true) | cut -c1-5", "1 2 3\n"),
    "stdin at its end": ("cat; read x; echo $?", "1\n"),
    "several lines": ("cat <<'EOF'\n$x `y`\nEOF\nfor i in 1 2; do\n  echo $i\ndone", "$x `y`\n1\n2\n"),
    "invalid UTF-8": (r"printf 'a\xffb\n'", "a\ufffdb\n"),
    "a character cut between two reads": (r"printf '\xc3'; sleep 0.1; printf '\xbc\n'", "ü\n"),
    "a child in the background, which does not hold the call": ("sleep 600 & echo started", "started\n"),
    "no prompts, no pagers": ("echo $PAGER $GIT_PAGER $GIT_TERMINAL_PROMPT [$CDPATH]", "cat cat 0 []\n"),
}  # fmt: skip


async def test_what_commands_print_and_that_they_succeed(backend: str, tmp_path: Path) -> None:
    async with stage(backend, tmp_path) as on:
        ended = {what: await run(on.commands, script, on.folder) for what, (script, _) in PRINTED.items()}
    told = {what: (one.combined, one.status) for what, one in ended.items()}
    assert told == {what: (output, ExitStatus(0)) for what, (_, output) in PRINTED.items()}


async def test_what_bash_cannot_read_or_find_fails_with_its_message(on: Stage, tmp_path: Path) -> None:
    unclosed = await run(on.commands, "echo 'unclosed", on.folder)
    assert unclosed.status.exit_code == 2 and "matching" in unclosed.combined
    unknown = await run(on.commands, "true\ntrue\nno-such-program-here", on.folder, state_file=tmp_path / "state")
    assert unknown.status == ExitStatus(127) and "line 3:" in unknown.combined
    assert (await run(on.commands, "cat <<EOF\nx\nEOF", on.folder, state_file=tmp_path / "state")).combined == "x\n"


async def test_nothing_of_our_parent_reaches_a_command(backend: str, tmp_path: Path) -> None:
    """Neither ignored nor blocked signals; its only descriptors are its streams, and a folder that is listed."""
    with inherited():
        async with stage(backend, tmp_path) as on:
            report = "grep -E 'SigBlk|SigIgn' /proc/self/status; ls /proc/self/fd; trap"
            told = await run(on.commands, report, on.folder)
            assert signal_masks(told.stdout) == [0, 0] and told.stdout.split()[4:] == ["0", "1", "2", "3"]
            ended = await run(on.commands, "kill -s INT 0; echo survived", on.folder)
            assert ended.status in (ExitStatus(None, "SIGINT"), ExitStatus(130)) and not ended.stdout


async def test_big_output_is_bounded_and_marked(on: Stage) -> None:
    ended = await run(on.commands, "seq 1 100000", on.folder, output_limit=10_000)
    assert ended.truncated and len(ended.stdout) < 11_000 and ended.stdout.endswith("\n100000\n")
    assert ended.status == ExitStatus(0)


async def test_state_is_carried_over_with_odd_variables_and_without_functions(on: Stage, tmp_path: Path) -> None:
    (on.folder / "sub dir").mkdir()
    state = tmp_path / "state"
    first = "cd 'sub dir'; export A='it is \"one\"\ntwo'; B=local; f() { echo f; }; export -n PATH_X; (export C=1)"
    assert (await run(on.commands, first, on.folder, state_file=state)).status == ExitStatus(0)
    cwd = last_cwd(state, on.folder)
    assert cwd == on.folder / "sub dir"
    ended = await run(on.commands, 'echo "$A|$B|$C"; pwd; type f >/dev/null 2>&1 || echo no f', cwd, state_file=state)
    assert ended.stdout == f'it is "one"\ntwo||\n{on.folder / "sub dir"}\nno f\n'
    state = tmp_path / "state"
    await run(on.commands, "readonly R=1; export R; declare -ix N=3; export EMPTY=", on.folder, state_file=state)
    ended = await run(on.commands, 'echo "$R $N [$EMPTY]"', on.folder, state_file=state)
    assert ended.combined == "1 3 []\n"


async def test_state_keeps_the_exit_code_and_falls_back_from_a_removed_folder(on: Stage, tmp_path: Path) -> None:
    for script, code in (("exit 7", 7), ("false", 1), ("cd .; (exit 4)", 4), ("true", 0)):
        ended = await run(on.commands, script, on.folder, state_file=tmp_path / "state")
        assert ended.status == ExitStatus(code), script
    state = tmp_path / "state"
    await run(on.commands, "mkdir gone; cd gone; rmdir ../gone", on.folder, state_file=state)
    assert last_cwd(state, on.folder) == on.folder


async def test_kill_ends_the_command_keeps_its_output_and_changes_nothing_after_the_end(on: Stage) -> None:
    process = await on.commands.run(Command("echo before; echo $$ > pid; sleep 600; echo after", on.folder))
    pid = int(await until_exists(on.folder / "pid"))
    await process.kill()
    status = await process.wait()
    assert status.exit_code != 0
    assert process.combined == "before\n"
    await on.until_dead(pid)
    await process.close()
    await process.close()
    assert process.combined == "before\n"
    process = await on.commands.run(Command("echo x", on.folder))
    status = await process.wait()
    await process.kill()
    assert await process.wait() == status == ExitStatus(0) and process.combined == "x\n"
    await process.close()


async def test_close_without_waiting_kills_and_a_cancelled_wait_can_be_killed_with_its_output(on: Stage) -> None:
    process = await on.commands.run(Command("echo $$ > pid; sleep 600", on.folder))
    pid = int(await until_exists(on.folder / "pid"))
    await process.close()
    await on.until_dead(pid)
    process = await on.commands.run(Command("echo some; echo 1 > ready; sleep 600", on.folder))
    await until_exists(on.folder / "ready")
    with anyio.move_on_after(0.05):
        async for _ in process.output():
            pass
    await process.kill()
    assert process.combined == "some\n"
    await process.close()


async def test_a_signal_of_its_own_is_told(on: Stage, backend: str) -> None:
    ended = await run(on.commands, "kill -KILL $$", on.folder)
    assert ended.status.exit_code is None or ended.status.exit_code > 128
    assert ended.status.signal is not None or backend != "local"


async def test_a_missing_folder_or_a_nul_character_is_told_in_words(on: Stage, backend: str) -> None:
    with pytest.raises(ExecutorError, match=r"working directory|No such file|cannot start"):
        await on.commands.run(Command("ls", on.folder / "missing"))
    try:
        ended = await run(on.commands, "echo a\0b", on.folder)
    except ExecutorError as error:
        assert "null" in str(error) or "NUL" in str(error)
    else:
        assert backend == "editor" or "a" in ended.combined


async def test_many_commands_run_side_by_side(on: Stage) -> None:
    found: list[str] = []

    async def one(number: int) -> None:
        found.append((await run(on.commands, f"echo {number}", on.folder)).stdout)

    async with anyio.create_task_group() as tasks:
        for number in range(10):
            tasks.start_soon(one, number)
    assert sorted(found) == sorted(f"{number}\n" for number in range(10))


async def test_nothing_stays_open(on: Stage) -> None:
    await run(on.commands, "true", on.folder)
    before = open_descriptors()
    for script in ("true", "echo x", "exit 3", "kill -9 $$"):
        await run(on.commands, script, on.folder)
    await (await on.commands.run(Command("sleep 600", on.folder))).close()
    assert open_descriptors() == before
    assert list(on.scripts.iterdir()) == []


async def test_output_comes_while_the_command_runs(on: Stage) -> None:
    process = await on.commands.run(Command("echo first; until [ -e go ]; do sleep 0.02; done; echo last", on.folder))
    if process.view is not None:
        (on.folder / "go").touch()  # the editor shows it by itself
    texts = []
    async for chunk in process.output():
        texts.append(chunk.text)
        (on.folder / "go").touch()
    assert "".join(texts) == "first\nlast\n"
    assert await collect(process)


async def test_who_stops_listening_may_listen_again_and_hears_the_rest(on: Stage, tmp_path: Path) -> None:
    ready, go = tmp_path / "ready", tmp_path / "go"
    script = f"echo one; echo x > {ready}; until [ -e {go} ]; do sleep 0.01; done; echo two"
    process = await on.commands.run(Command(script, on.folder))
    heard = []

    async def listen() -> None:
        async for chunk in process.output():
            heard.append(chunk.text)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(listen)
        await until_exists(ready)
        tasks.cancel_scope.cancel()
    await process.look()
    while not process.combined:  # Elsewhere it comes after what the command does.
        await anyio.sleep(0.01)
        await process.look()
    assert process.combined == "one\n"
    go.touch()
    await listen()
    assert "".join(heard) == "one\ntwo\n"
    assert await process.wait() == ExitStatus(0)
    await process.look()
    await process.close()
    await process.look()
    assert process.combined == "one\ntwo\n"


async def test_a_command_that_keeps_no_state_reads_it_and_leaves_it(on: Stage, tmp_path: Path) -> None:
    state = tmp_path / "state"
    await run(on.commands, "export X=kept", on.folder, state_file=state)
    ended = await run(on.commands, "echo $X; export X=lost; cd /", on.folder, state_file=state, keeps_state=False)
    assert ended.stdout == "kept\n"
    assert last_cwd(state, tmp_path) == on.folder
    assert (await run(on.commands, "echo $X", on.folder, state_file=state)).stdout == "kept\n"
