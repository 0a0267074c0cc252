"""Executors that confine what they run: here and in the editor's terminal."""

import os
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest

from acp_agent.config.safety_settings import SandboxConfig
from acp_agent.errors import ExecutorError
from acp_agent.executors.base import Command
from acp_agent.executors.editor.dyn_executor import DynExecutor
from acp_agent.executors.sandbox import bubblewrap, landlock_alone
from acp_agent.executors.sandbox.base import Confined, Invocation, SandboxPolicy
from acp_agent.executors.start import start_confined
from acp_agent.testing.fake_editor import AnswersError
from tests.executors.kit import Stage, open_descriptors, run, signal_masks, stage, until_exists
from tests.executors.sandbox.kit import needs_sandbox
from tests.executors.sandbox.test_facts import command

BACKENDS = ("local", "editor")


@asynccontextmanager
async def confined_stage(
    backend: str, tmp_path: Path, *, change: Callable[[SandboxPolicy], SandboxPolicy] = lambda policy: policy,
    **rest: Any,
) -> AsyncIterator[Stage]:  # fmt: skip
    needs_sandbox()
    tmp_path = tmp_path.resolve()
    state, files = tmp_path / "state", tmp_path / "files"
    for folder in (state, files):
        folder.mkdir(mode=0o700)
    sandbox = bubblewrap.find(SandboxConfig())

    def confine(invocation: Invocation, command: Command) -> Confined:
        root = tmp_path / "work"
        policy = SandboxPolicy(writable=(root, state), protected=(root / ".git/hooks", root / ".mcp.json"))
        return sandbox.confine(invocation, change(policy), files)

    async with stage(backend, tmp_path, **rest) as on:
        local: Any = on.commands if on.local is None else on.local
        local._confine = confine
        if isinstance(on.commands, DynExecutor):
            on.commands._terminals._confine = confine
        yield on
    assert [path.suffix for path in files.iterdir()] in ([], [".bpf"]), "only the filter stays"


@pytest.mark.parametrize("backend", BACKENDS)
async def test_a_command_is_confined(backend: str, tmp_path: Path) -> None:
    (tmp_path / "outside").write_text("secret")
    script = f"cat {tmp_path}/outside; echo x >{tmp_path}/made; echo y >inside; cat inside; exit 7"
    async with confined_stage(backend, tmp_path) as on:
        ended = await run(on.commands, script, on.folder)
        assert ended.status.exit_code == 7 and ended.stdout.splitlines()[-1] == "y"
        assert "secret" not in ended.combined and "No such file" in ended.combined
        assert not (tmp_path / "made").exists()
        assert (on.folder / "inside").read_text() == "y\n" and [path.name for path in on.folder.iterdir()] == ["inside"]


@pytest.mark.parametrize("backend", BACKENDS)
async def test_signals_descriptors_and_what_is_allowed_outside_are_left_alone(backend: str, tmp_path: Path) -> None:
    async with confined_stage(backend, tmp_path) as on:
        ended = await run(on.commands, "grep -E 'SigBlk|SigIgn' /proc/self/status; ls /proc/self/fd", on.folder)
        assert signal_masks(ended.stdout) == [0, 0] and ended.stdout.split()[4:] == ["0", "1", "2", "3"]
        assert (await run(on.commands, f"echo x >{tmp_path}/made", on.folder, confined=False)).status.exit_code == 0
        assert (tmp_path / "made").exists()


@pytest.mark.parametrize("backend", BACKENDS)
async def test_place_holders_are_gone_when_the_command_has_ended_however_long_it_is_shown(backend: str, tmp_path: Path):
    async with confined_stage(backend, tmp_path) as on:
        process = await on.commands.run(Command("ls -A", on.folder))
        assert (await process.wait()).exit_code == 0
        assert list(on.folder.iterdir()) == []
        await process.close()


@pytest.mark.parametrize("backend", BACKENDS)
async def test_the_shells_state_is_carried_on(backend: str, tmp_path: Path) -> None:
    async with confined_stage(backend, tmp_path) as on:
        (on.folder / "sub").mkdir()
        state = tmp_path.resolve() / "state" / "s"
        await run(on.commands, "cd sub; export GREETING='a b'", on.folder, state_file=state)
        ended = await run(on.commands, 'echo "${PWD##*/} $GREETING"', on.folder, state_file=state)
        assert ended.stdout == "sub a b\n"


@pytest.mark.parametrize("backend", BACKENDS)
async def test_quotes_and_lines_arrive_as_they_are(backend: str, tmp_path: Path) -> None:
    script = """cat <<'X'\na'b"c $HOME `x` \\\nX\necho "$ODD"; echo 'ä'"""
    async with confined_stage(backend, tmp_path) as on:
        ended = await run(on.commands, script, on.folder, env={"ODD": 'it\'s "$x" `y`'})
        assert ended.stdout == 'a\'b"c $HOME `x` \\\nit\'s "$x" `y`\nä\n'


async def test_the_editors_environment_and_descriptors_stay_outside(tmp_path: Path) -> None:
    async with confined_stage("editor", tmp_path) as on:
        assert on.local is not None
        os.environ["SECRET_OF_THE_EDITOR"] = "1"
        try:
            ended = await run(on.commands, "env; ls /proc/self/fd | tr '\\n' ' '; echo 'TERM' is $TERM", on.folder)
        finally:
            del os.environ["SECRET_OF_THE_EDITOR"]
        assert "SECRET_OF_THE_EDITOR" not in on.local.environment(Command("x", on.folder))
        assert "SECRET_OF_THE_EDITOR" not in ended.stdout and "GIT_TERMINAL_PROMPT=0" in ended.stdout
        assert "\n0 1 2 3 " in ended.stdout


@pytest.mark.parametrize("backend", BACKENDS)
async def test_killing_leaves_no_process(backend: str, tmp_path: Path) -> None:
    names = [f"/bin/sleep\0{os.getpid()}.{number}\0" for number in range(4)]
    first, second, third, fourth = (name.replace("\0", " ") for name in names)
    script = (
        f"setsid env -i {first} & (env -i setsid -f {second}); env -i {third} & "
        f"trap '' TERM; echo x >ready; while :; do {fourth}; done"
    )

    def running() -> list[str]:
        found = [command(int(name)) for name in os.listdir("/proc") if name.isdigit()]
        return [name for name in names if name in found]

    async with confined_stage(backend, tmp_path) as on:
        process = await on.commands.run(Command(script, on.folder))
        await until_exists(on.folder / "ready")
        while len(running()) < 4:
            await anyio.sleep(0.01)
        await process.kill()
        await process.close()
        limit = time.monotonic() + 10
        while running():
            assert time.monotonic() < limit, running()
            await anyio.sleep(0.01)
        assert not (on.folder / ".mcp.json").exists()


@pytest.mark.parametrize("backend", BACKENDS)
async def test_what_cannot_be_confined_is_not_run(backend: str, tmp_path: Path) -> None:
    async with confined_stage(backend, tmp_path) as on:
        (on.folder / ".git").symlink_to(tmp_path)
        with pytest.raises(ExecutorError, match="is a link"):
            await on.commands.run(Command("echo x >made", on.folder))
        assert not (on.folder / "made").exists()


async def test_a_terminal_that_was_refused_leaves_nothing_behind(tmp_path: Path) -> None:
    async with confined_stage("editor", tmp_path, misbehave={"terminal/create": AnswersError(-32603, "no")}) as on:
        assert (await run(on.commands, "echo x", on.folder)).stdout == "x\n"  # here instead, confined as well
        assert list(on.folder.iterdir()) == [] and list(on.scripts.iterdir()) == []


async def test_no_descriptor_is_left_open_and_a_background_process_with_the_pipe_holds_no_call(tmp_path: Path) -> None:
    async with confined_stage("local", tmp_path) as on:
        await run(on.commands, "true", on.folder)
        before = open_descriptors()
        for _ in range(3):
            await run(on.commands, "true", on.folder)
        assert open_descriptors() == before
        assert (await run(on.commands, "/bin/sleep 60 & echo done", on.folder)).stdout == "done\n"


async def test_commands_at_once_share_the_place_holders(tmp_path: Path) -> None:
    async with confined_stage("local", tmp_path) as on:
        long = await on.commands.run(Command("while [ ! -e go ]; do /bin/sleep 0.01; done; ls -A", on.folder))
        await run(on.commands, "true", on.folder)
        assert (on.folder / ".mcp.json").is_dir()
        (on.folder / "go").touch()
        await long.wait()
        assert ".mcp.json" in long.stdout
        await long.close()
        assert [path.name for path in on.folder.iterdir()] == ["go"]


async def test_what_runs_on_ends_before_anything_that_protects_is_taken_away(tmp_path: Path) -> None:
    """The command's own end is not that of what it started, which could use the place that a place holder leaves."""
    needs_sandbox()
    tmp_path = tmp_path.resolve()
    files, root = tmp_path / "files", tmp_path / "work"
    for folder in (files, root):
        folder.mkdir()
    policy = SandboxPolicy(writable=(root,), protected=(root / ".mcp.json",))
    name = f"/bin/sleep\0{os.getpid()}.77\0"

    def running() -> bool:
        return any(command(int(pid)) == name for pid in os.listdir("/proc") if pid.isdigit())

    def started() -> Confined:
        # In a thread of its own: there bubblewrap itself does not end what it started.
        script = name.replace("\0", " ") + "& echo"
        invocation = Invocation(("/bin/bash", "-c", script), root, {"PATH": os.environ["PATH"]})
        confined = bubblewrap.find(SandboxConfig()).confine(invocation, policy, files)
        process = start_confined(confined, Command("", root))
        assert process.stdout is not None and process.stderr is not None
        process.stdout.readline()
        process.wait()
        process.stdout.close()
        process.stderr.close()
        return confined

    confined = await anyio.to_thread.run_sync(started)
    with anyio.fail_after(60):
        while not running():
            await anyio.sleep(0.005)
    assert (root / ".mcp.json").is_dir()
    confined.close()
    assert not running()
    assert list(root.iterdir()) == []


async def test_landlock_alone_ends_a_group_as_a_whole(tmp_path: Path) -> None:
    needs_sandbox()
    sandbox = landlock_alone.find(SandboxConfig())
    if sandbox.groups is None:
        pytest.skip("no control group can be made here")
    tmp_path = tmp_path.resolve()
    name = f"/bin/sleep\0{os.getpid()}.78\0"
    script = "env -i setsid -f " + name.replace("\0", " ") + " >/dev/null 2>&1; echo"
    invocation = Invocation(("/bin/bash", "-c", script), tmp_path, {"PATH": os.environ["PATH"]})
    confined = sandbox.confine(invocation, SandboxPolicy(writable=(tmp_path,)), tmp_path)
    with start_confined(confined, Command("", tmp_path)) as process:
        assert process.stdout is not None
        process.stdout.readline()

    def running() -> bool:
        return any(command(int(pid)) == name for pid in os.listdir("/proc") if pid.isdigit())

    with anyio.fail_after(60):
        while not running():
            await anyio.sleep(0.005)
    confined.close()
    assert not running()
