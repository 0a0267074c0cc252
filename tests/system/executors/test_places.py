"""Commands in real containers: what starts, what ends, what nobody else notices."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from acp_agent.config.place_settings import PlaceConfig
from acp_agent.disk import Folder
from acp_agent.errors import ExecutorError
from acp_agent.executors.base import Command, ExitStatus
from acp_agent.executors.places.container import SESSION, Container, Walls
from acp_agent.executors.places.container_commands import ContainerCommands
from acp_agent.executors.places.dev_container import PROGRAM, DevContainer
from acp_agent.executors.places.engine import OWNER, Engine, owner
from acp_agent.executors.places.inside_container import Inside
from acp_agent.executors.sandbox import visible_paths
from tests import containers
from tests.executors.kit import collect, run, until_dead, until_exists
from tests.files import put

DEAD = 4_194_305
"""A process number that Linux never gives."""


def need_podman() -> None:
    if why := containers.missing():
        pytest.skip(why)


@asynccontextmanager
async def place(
    config: PlaceConfig, *folders: Path, environ: dict[str, str] | None = None, walls: Walls | None = None
) -> AsyncIterator[tuple[ContainerCommands, Container]]:
    if not config.engine:
        need_podman()
    shown = walls or Walls()
    made = Container("web", config, "session-1", folders, environ or dict(os.environ), lambda: shown)
    commands = ContainerCommands(made)
    with anyio.fail_after(60):
        try:
            yield commands, made
        finally:
            with anyio.CancelScope(shield=True):
                await commands.close()


@contextmanager
def started(*folder_image_and_options: Any, at: str = "") -> Iterator[str]:
    """The name of a container of its own."""
    need_podman()
    name = containers.start(*folder_image_and_options, at=at)
    try:
        yield name
    finally:
        containers.remove(name)


@asynccontextmanager
async def in_running(tmp_path: Path, **config: Any) -> AsyncIterator[tuple[ContainerCommands, str]]:
    """In one that all tests of this process share."""
    need_podman()
    name = containers.running(tmp_path.parent)
    async with place(PlaceConfig(container=name, **config), tmp_path) as (commands, _):
        yield commands, name


def dev_place(folder: Path, environ: dict[str, str], **config: Any) -> tuple[ContainerCommands, DevContainer]:
    made = DevContainer("work", PlaceConfig(kind="devcontainer", **config), "session-1", (folder,), environ)
    return ContainerCommands(made), made


def sleeping(name: str, seconds: int) -> bool:
    return any(f"sleep {seconds} " in line and "sh -c" not in line for line in containers.processes(name))


async def until_asleep(name: str, *seconds: int) -> None:
    while not all(sleeping(name, each) for each in seconds):
        await anyio.sleep(0.05)


async def until_gone(name: str) -> None:
    while name in containers.names():
        await anyio.sleep(0.05)


async def test_a_container_of_ours_has_the_folders_the_user_and_nothing_else(tmp_path: Path) -> None:
    work, other = tmp_path / "it's a\nfolder", tmp_path / "other"
    work.mkdir()
    other.mkdir()
    async with place(containers.from_image(), work) as (commands, _):
        script = "id -u; grep CapEff /proc/self/status; ls /sys/class/net; [ -e ../other ] || echo new >made; pwd"
        assert (await run(commands, script, work)).stdout == f"{os.getuid()}\nCapEff:\t0000000000000000\nlo\n{work}\n"
        assert (work / "made").read_text() == "new\n" and (work / "made").stat().st_uid == os.getuid()
        mine = [name for name in containers.names() if name.startswith("acp-coder-session-")]
        labels = [
            containers.podman("inspect", "--format", f'{{{{index .Config.Labels "{SESSION}"}}}}', name) for name in mine
        ]
        assert "session-1" in labels
    assert not set(mine) & set(containers.names())


async def test_what_is_hidden_is_empty_there_and_what_is_protected_cannot_be_written(tmp_path: Path) -> None:
    odd = tmp_path / 'odd: ,"name'
    for file in (tmp_path / ".env", odd):
        file.write_text("KEY=1")
    (tmp_path / ".git" / "hooks").mkdir(parents=True)
    put(tmp_path / "keys" / "one", "KEY=2")
    (empty := tmp_path / "empty").mkdir()
    walls = Walls(
        (tmp_path / ".env", odd, tmp_path / "keys"), (tmp_path / ".git" / "hooks", tmp_path / "missing"), empty
    )
    async with place(containers.from_image(), tmp_path, walls=walls) as (commands, made):
        script = "cat .env odd*; ls keys; echo x >.git/hooks/pre-commit || echo refused; echo y >file"
        assert (await run(commands, script, tmp_path)).stdout == "refused\n"
        assert list((tmp_path / ".git" / "hooks").iterdir()) == [] and (tmp_path / "file").read_text() == "y\n"
        assert any("3 and 2 paths" in line for line in await made.lines())


@pytest.mark.parametrize("name", ["", "pkg", "pkg/hooks", "keys"])
async def test_nothing_else_is_mounted_than_was_meant(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Somebody puts another folder there while the engine starts the container."""
    work, out, empty = (tmp_path / each for each in ("work", "out", "empty"))
    for each in (work / "pkg/hooks", work / "keys", out / "hooks", out / "pkg/hooks", empty):
        each.mkdir(parents=True)
    opened = Folder(work)
    assert opened.identity is not None
    walls = Walls((work / "keys",), (work / "pkg/hooks",), empty, opened={work: opened.identity})
    ask = Engine.ask

    def swap(engine: Engine, *arguments: str) -> str:
        if arguments[0] == "run":
            (work / name).rename(tmp_path / "before")
            if name == "keys":
                (work / name).symlink_to("pkg")
            else:
                out.rename(work / name)
        return ask(engine, *arguments)

    async with place(containers.from_image(), work, walls=walls) as (commands, _):
        monkeypatch.setattr(Engine, "ask", swap)
        with pytest.raises(
            ExecutorError, match="was replaced while the sandbox was made|error mounting|is not the folder any more"
        ):
            await run(commands, "echo x >made", work)
    monkeypatch.setattr(Engine, "ask", ask)
    async with place(containers.from_image(), work, walls=walls) as (commands, _):
        if name:  # The control: what stays where it is can be used.
            assert (await run(commands, "echo runs", work)).stdout == "runs\n"
        else:
            with pytest.raises(ExecutorError, match="not the folder any more in which the session was opened"):
                await run(commands, "echo x >made", work)
    assert not [*tmp_path.rglob("made"), *tmp_path.rglob(".acp-coder-*")]


async def test_another_device_is_another_folder_on_this_kernel_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Two disks may number a folder alike."""
    found = visible_paths.identity_of
    monkeypatch.setattr(
        "acp_agent.executors.places.container.identity_of", lambda path: (found(path)[0] + 1, found(path)[1])
    )
    async with place(containers.from_image(), tmp_path) as (commands, _):
        with pytest.raises(ExecutorError, match="was replaced while the sandbox was made"):
            await run(commands, "echo runs", tmp_path)
        (tmp_path / "boot_id").write_text("another\n")
        monkeypatch.setattr("acp_agent.executors.places.container.BOOT_ID", tmp_path / "boot_id")
        assert (await run(commands, "echo runs", tmp_path)).stdout == "runs\n"


async def test_what_a_worktree_has_elsewhere_is_there(tmp_path: Path) -> None:
    work, common = tmp_path / "work: 1", tmp_path / "common"
    work.mkdir()
    for name in ("objects", "worktrees/work", "refs"):
        (common / name).mkdir(parents=True)
    (common / "config").write_text("[core]\n")
    folder = common / "worktrees" / "work"
    walls = Walls((), (folder / "gitdir",), tmp_path, (common / "objects", folder), (common,))
    (folder / "gitdir").write_text(f"{work}/.git\n")
    async with place(containers.from_image(), work, walls=walls) as (commands, _):
        script = (
            f"cat {common}/config; echo x >{common}/config || echo kept; echo x >{common}/objects/new; "
            f"echo x >{folder}/HEAD; echo x >{folder}/gitdir || echo kept"
        )
        assert (await run(commands, script, work)).stdout == "[core]\nkept\nkept\n"
        assert (common / "objects" / "new").exists()
        assert (folder / "HEAD").exists()


async def test_without_bash_commands_are_those_of_sh_and_keep_their_state(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    state = tmp_path / "state"
    async with place(containers.from_image(containers.PLAIN), tmp_path) as (commands, made):
        first = await run(commands, "cd sub; export A='it is \"one\"\ntwo'; exit 7", tmp_path, state_file=state)
        assert first.status == ExitStatus(7)
        second = await run(commands, 'echo "$A"; pwd', tmp_path / "sub", state_file=state)
        assert second.stdout == f'it is "one"\ntwo\n{tmp_path / "sub"}\n'
        assert "there is no bash" in (await made.lines())[0]


async def test_kill_leaves_nothing_in_the_container_even_without_our_reaper(tmp_path: Path) -> None:
    async with in_running(tmp_path) as (commands, name):
        script = "trap '' TERM; sleep 7001 & setsid sleep 7002 & env -i sleep 7003 & sleep 7004; sleep 7005"
        process = await commands.run(Command(script, tmp_path))
        await until_asleep(name, 7001, 7002, 7003, 7004)
        await process.kill()
        assert (await process.wait()).exit_code is None
        assert [each for each in (7001, 7002, 7003, 7004, 7005) if sleeping(name, each)] == []
        assert process.remark == ""
        await process.close()
        script = (
            "for f in /proc/[0-9]*; do tr '\\0' ' ' <$f/cmdline | grep -q 'mark [g]roup' && kill -9 ${f##*/}; done; "
        )
        process = await commands.run(Command(script + "echo x >ready; exec sleep 7020", tmp_path))
        await until_exists(tmp_path / "ready")
        await until_asleep(name, 7020)
        await process.kill()
        await process.close()
        assert not sleeping(name, 7020)


async def test_the_end_of_a_session_ends_its_commands_in_a_running_container_and_nothing_else(tmp_path: Path) -> None:
    need_podman()
    name = containers.running(tmp_path.parent)
    containers.podman("exec", "--detach", name, "sleep", "7010")
    async with place(PlaceConfig(container=name), tmp_path) as (commands, made):
        await run(commands, "sleep 7011 >/dev/null 2>&1 & setsid sleep 7012 & :", tmp_path)
        await until_asleep(name, 7010, 7011, 7012)
        scratch = (await made.ready()).scratch
    assert sleeping(name, 7010) and not sleeping(name, 7011) and not sleeping(name, 7012)
    assert name in containers.names()
    assert containers.podman("exec", name, "sh", "-c", f"ls -d {scratch}", check=False) == ""


AGENT = """
import os, sys
from pathlib import Path
import anyio
from acp_agent.config.place_settings import PlaceConfig
from acp_agent.executors.base import Command
from acp_agent.executors.places.container import Container
from acp_agent.executors.places.container_commands import ContainerCommands
from tests import containers

async def main():
    folder = Path(sys.argv[1])
    config = PlaceConfig(container=sys.argv[2]) if sys.argv[2] else containers.from_image()
    made = Container("web", config, "killed-1", (folder,), os.environ)
    commands = ContainerCommands(made)
    await commands.run(Command("true", folder))
    print((await made.ready()) and made.argv()[-1], flush=True)
    process = await commands.run(Command("sleep 7030 & setsid sleep 7031 & echo x >ready; sleep 7032", folder))
    await process.wait()

anyio.run(main)
"""


@pytest.mark.parametrize("attached", [True, False])
async def test_of_an_agent_that_was_killed_nothing_goes_on_in_a_container(attached: bool, tmp_path: Path) -> None:
    need_podman()
    name = containers.running(tmp_path.parent) if attached else ""
    argv = [sys.executable, "-c", AGENT, str(tmp_path), name]
    agent = subprocess.Popen(argv, cwd=Path(__file__).parents[3], stdout=subprocess.PIPE, text=True)
    assert agent.stdout is not None
    try:
        with anyio.fail_after(60):
            await until_exists(tmp_path / "ready")
            name = name or agent.stdout.readline().strip()
            assert name in containers.names()
            await until_asleep(name, 7030, 7031, 7032)
            agent.send_signal(signal.SIGKILL)
            agent.wait()
            if not attached:
                await until_gone(name)
                return
            while any(sleeping(name, each) for each in (7030, 7031, 7032)):
                await anyio.sleep(0.05)
        assert name in containers.names()
    finally:
        agent.kill()
        agent.wait()
        agent.stdout.close()


async def test_what_a_killed_agent_left_is_removed_at_the_next_start_and_nothing_else(tmp_path: Path) -> None:
    machine, _, start = owner().split(" ")
    labels = {
        "left": f"{machine} {DEAD} {start}", "reused number": f"{machine} {os.getpid()} another-start",
        "alive": owner(), "of another machine": f"elsewhere {DEAD} 1", "no label of ours": "", "not readable": "x",
    }  # fmt: skip
    with ExitStack() as stack:
        names = {}
        for what, label in labels.items():
            given = ("--label", f"{OWNER}={label}") if label else ("--label", "other=1")
            names[what] = stack.enter_context(started(tmp_path, containers.PLAIN, *given))
        async with place(containers.from_image(), tmp_path) as (commands, _):
            await run(commands, "true", tmp_path)
            there = set(containers.names())
        assert {what for what, name in names.items() if name not in there} == {"left", "reused number"}


async def test_a_place_that_is_not_there_is_one_sentence_and_nothing_runs_here(tmp_path: Path) -> None:
    work, elsewhere = tmp_path / "work", tmp_path / "elsewhere"
    work.mkdir()
    elsewhere.mkdir()
    with (
        started(elsewhere) as name, started(tmp_path, containers.WITH_BASH, "--volume", f"{elsewhere}:{work}") as moved,
        started(tmp_path, at="/srv") as app,
    ):  # fmt: skip
        for config, words in (
            (PlaceConfig(container="no-such"), r"podman has no container 'no-such'"),
            (PlaceConfig(image="no-such:1"), r"podman has no image 'no-such:1'; fetch it: `podman pull no-such:1`"),
            (PlaceConfig(container="no-a", image="no-b"), r"no image 'no-b' and no container 'no-a'"),
            (PlaceConfig(engine="no-engine", image="x"), r"nothing to run containers with: the program 'no-engine'"),
            (PlaceConfig(engine="/bin/false", image="x"), r"false info: exit code 1"),
            (PlaceConfig(engine="/bin/echo", image="x"), r"echo inspect: its answer is not JSON"),
            (PlaceConfig(), r"has neither `container` nor `image`"),
            (
                PlaceConfig(container=name),
                rf"does not have .*/work at the same path; name its folder .*`.* {name}:DIR`",
            ),
            (PlaceConfig(container=moved), r"does not have .*/work at the same path; name its folder there"),
            (
                PlaceConfig(container=app),
                rf"same path; it is at /srv/work there: `--container {app}:/srv/work`, or `root`",
            ),
            (containers.from_image(network="no-such-net"), r"podman run: .*no-such-net"),
        ):
            async with place(config, work) as (commands, _):
                with pytest.raises(ExecutorError, match=words) as raised:
                    await commands.run(Command("echo x >ran", work))
                assert "\n" not in str(raised.value)
        assert list(work.iterdir()) == []


async def test_that_a_folder_is_read_only_in_a_running_container_is_said(tmp_path: Path) -> None:
    work, other = tmp_path / "work", tmp_path / "other"
    work.mkdir()
    other.mkdir()
    with started(other, containers.WITH_BASH, "--volume", f"{work}:{work}:ro") as name:
        async with place(PlaceConfig(container=name), work, other) as (commands, made):
            assert (await run(commands, "echo x >ran || echo refused", work)).stdout == "refused\n"
            said = [line for line in await made.lines() if "read-only" in line]
            assert said == [f"Commands there cannot write to {work}: it is mounted read-only."]


async def test_a_container_that_dies_in_the_middle_is_told_and_another_is_started(tmp_path: Path) -> None:
    async with place(containers.from_image(), tmp_path) as (commands, made):
        process = await commands.run(Command("echo before; echo x >ready; sleep 7040", tmp_path))
        await until_exists(tmp_path / "ready")
        containers.remove(made.argv()[-1])
        ended = await collect(process)
        assert (ended.status, ended.stdout) == (ExitStatus(), "before\n")
        assert process.remark == "the connection to container web ended before its end was told"
        again = await run(commands, "echo again", tmp_path)
        assert (again.status, again.stdout) == (ExitStatus(0), "again\n")


async def test_a_running_container_that_dies_is_not_replaced(tmp_path: Path) -> None:
    need_podman()
    name = containers.start(tmp_path)
    async with place(PlaceConfig(container=name), tmp_path) as (commands, _):
        await run(commands, "true", tmp_path)
        containers.remove(name)
        assert (await run(commands, "echo x >ran", tmp_path)).status == ExitStatus()
        with pytest.raises(ExecutorError, match="has no container"):
            await commands.run(Command("echo x >ran", tmp_path))
        assert not (tmp_path / "ran").exists()


async def test_exit_codes_are_the_commands_and_bytes_like_our_markers_output(tmp_path: Path) -> None:
    async with in_running(tmp_path) as (commands, _):
        codes = (0, 1, 125, 126, 127, 128, 137, 255)
        found = [(await run(commands, f"exit {code}", tmp_path)).status for code in codes]
        assert found == [ExitStatus(code) for code in codes]
        ended = await run(commands, "kill -9 $PPID; sleep 0.1; echo late", tmp_path)
        assert ended.status == ExitStatus()
        script = r"printf '\036'; printf '\036aE0\n\036' >&2; sleep 0.05; printf 'x\036\036'; printf '\036B7\n' >&2"
        ended = await run(commands, script, tmp_path)
        assert (ended.stdout, ended.stderr) == ("\x1ex\x1e\x1e", "\x1eaE0\n\x1e\x1eB7\n")
        assert ended.status == ExitStatus(0)


async def test_no_value_is_on_a_command_line_and_only_named_variables_get_there(tmp_path: Path) -> None:
    need_podman()
    name = containers.running(tmp_path.parent)
    environ = {**os.environ, "TOKEN_A": "value-of-a'\n\"$(x)", "TOKEN_B": "value-of-b"}
    config = PlaceConfig(container=name, env=["TOKEN_A", "MISSING"])
    state = tmp_path / "state"
    async with place(config, tmp_path, environ=environ) as (commands, _):
        first = await run(commands, 'printf %s "$TOKEN_A|$TOKEN_B"; export C=value-of-c$$', tmp_path, state_file=state)
        assert first.stdout == "value-of-a'\n\"$(x)|"
        script = "echo x >ready; until [ -e go ]; do sleep 0.02; done; echo ${C%%[0-9]*}"
        process = await commands.run(Command(script, tmp_path, env={"GIVEN": "value-of-d"}, state_file=state))
        await until_exists(tmp_path / "ready")
        seen = b""
        for each in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                seen += each.read_bytes()
            except OSError:
                continue
        (tmp_path / "go").touch()
        assert (await collect(process)).stdout == "value-of-c\n"
        assert b"echo x >ready" in seen and b"value-of-" not in seen


async def test_a_nul_is_refused_in_words(tmp_path: Path) -> None:
    async with place(containers.from_image(), tmp_path) as (commands, _):
        with pytest.raises(ExecutorError, match="null byte"):
            await commands.run(Command("a\0b", tmp_path))


STUB = """#!/bin/sh
printf '%s\\n' "$*" | head -n 1 >>"{log}"
case $1 in
  info) echo '["name=seccomp"{rootless}]' ;;
  inspect) echo '[{{"State": {{"Running": true}}, "Id": "abc", "Mounts": []}}]' ;;
  exec) shift; while [ "${{1#acp-coder-}}" = "$1" ]; do shift; done; shift; {does} ;;
esac
"""


def stub(folder: Path, name: str, does: str = 'exec "$@"', rootless: str = "") -> Path:
    """An engine's program that runs everything here and writes down what it was asked."""
    (program := folder / name).write_text(STUB.format(log=folder / "log", does=does, rootless=rootless))
    program.chmod(0o755)
    return program


@pytest.mark.parametrize("rootless", ["", ', "name=rootless"'])
@pytest.mark.parametrize("name", ["docker", "nerdctl"])
async def test_docker_and_nerdctl_are_asked_in_their_words(name: str, rootless: str, tmp_path: Path) -> None:
    programs, work = tmp_path / "programs", tmp_path / "work"
    programs.mkdir()
    work.mkdir()
    stub(programs, name, rootless=rootless)
    environ = {"PATH": f"{programs}:/usr/bin:/bin"}
    async with place(PlaceConfig(engine=name, image="img", network="net-1"), work, environ=environ) as (commands, made):
        ended = await run(commands, "echo hi; exit 3", work)
        assert (ended.stdout, ended.status) == ("hi\n", ExitStatus(3))
    asked = (programs / "log").read_text().splitlines()
    ours = next(line for line in asked if line.startswith("run ")).split(" --name ")[1].split()[0]
    user = "0:0" if rootless else f"{os.getuid()}:{os.getgid()}"  # There, root is the user here.
    assert asked.pop(0) == "info --format {{json .SecurityOptions}}"
    assert asked[:2] == ["ps --all --quiet --filter label=acp-coder.owner", "inspect --type image -- img"]
    assert asked[2].replace(made.mark, "MARK").replace(owner(), "OWNER").replace(ours, "NAME") == (
        "run --detach --rm --init --pull never --name NAME --label acp-coder.session=session-1 "
        f"--label acp-coder.owner=OWNER --user {user} --security-opt no-new-privileges --cap-drop all "
        f"--network net-1 --mount type=bind,source={work},target={work} --entrypoint sh -- img -c "
        'ACP_CODER_RUN="$0" exec sleep 2147483647 MARK'
    )
    assert f'exec --interactive --user {user} {ours} sh -c eval "$(cat)"' in asked
    assert f"rm --force --volumes -- {ours}" in asked


@pytest.mark.parametrize("user", ["", "app"])
def test_the_inside_of_a_container_is_reached_in_the_words_of_docker(user: str, tmp_path: Path) -> None:
    program = stub(tmp_path, "docker")
    way = Inside("web", PlaceConfig(container="web-1", root="/app", user=user, engine=str(program)), os.environ, ())
    assert (way.words, way.where) == ("container web", "in container web")
    assert way.identity == ("container web (web-1) as app:/app" if user else "container web (web-1):/app")
    named = ("--user", user) if user else ()
    assert way.argv("sh", "-c", "x y") == (str(program), "exec", "--interactive", *named, "abc", "sh", "-c", "x y")
    assert way.argv("sh", terminal=True) == (str(program), "exec", "--interactive", "--tty", *named, "abc", "sh")
    way.argv("sh")  # The container may be another one than before.
    assert (tmp_path / "log").read_text().splitlines() == [
        "info --format {{json .SecurityOptions}}", *["inspect --type container -- web-1"] * 2,
    ]  # fmt: skip


async def test_commands_run_as_the_user_that_the_place_names(tmp_path: Path) -> None:
    (work := tmp_path / "work").mkdir()
    work.chmod(0o755)
    with started(work) as name:
        async with place(PlaceConfig(container=name, user="1234:5678"), work) as (commands, made):
            assert (await run(commands, "id -u; id -g", work)).stdout == "1234\n5678\n"
            assert made.identity.endswith(" as 1234:5678")


async def test_an_engine_on_another_machine_is_noticed(tmp_path: Path) -> None:
    programs, work = tmp_path / "programs", tmp_path / "work"
    programs.mkdir()
    work.mkdir()
    stub(programs, "docker", 'exec "$@" /elsewhere/token')  # What is looked for there is missing.
    environ = {"PATH": f"{programs}:/usr/bin:/bin"}
    async with place(PlaceConfig(engine="docker", image="img"), work, environ=environ) as (commands, _):
        with pytest.raises(ExecutorError, match="its /elsewhere is not this machine's .docker seems to run on another"):
            await commands.run(Command("touch made", work))
        assert list(work.iterdir()) == []


async def test_a_stop_ends_what_makes_a_dev_container_with_all_it_started(tmp_path: Path) -> None:
    work, programs = tmp_path / "work", tmp_path / "programs"
    work.mkdir()
    environ = devcontainer(programs, "{}")
    stub(programs, "docker")
    (programs / "devcontainer").write_text(f"#!/bin/sh\nsleep 7080 & echo $! >{tmp_path}/pid; wait\n")
    commands, _ = dev_place(work, environ, engine="docker")
    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(commands.run, Command("true", work))
            pid = int(await until_exists(tmp_path / "pid"))
            tasks.cancel_scope.cancel()
        await until_dead(pid)
        await commands.close()


DEV = """#!/bin/sh
echo "$*" >>"{log}"
echo 'a line of its log' >&2
case $1 in
  up) echo 'not an object'; echo '{answer}' ;;
  exec) printf 'PATH=/opt/tool:/bin\\0HOME=/root\\0STAGE=dev elopment\\0PWD=/nowhere\\0' ;;
esac
"""


def devcontainer(folder: Path, answer: str) -> dict[str, str]:
    """An environment in which that program is a stub."""
    program = put(folder / "devcontainer", DEV.format(log=folder / "log", answer=answer))
    program.chmod(0o755)
    return {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"}


async def test_a_dev_container_is_the_one_that_its_program_names(tmp_path: Path) -> None:
    work, programs = tmp_path / "my work", tmp_path / "programs"
    work.mkdir()
    with started(tmp_path) as name:
        answer = json.dumps({"outcome": "success", "containerId": name, "remoteUser": "root"})
        commands, made = dev_place(work, devcontainer(programs, answer))
        with anyio.fail_after(60):
            ended = await run(commands, 'echo "$PATH $HOME $STAGE"; pwd; echo x >made', work)
            assert ended.stdout == f"/opt/tool:/bin /root dev elopment\n{work}\n"
            assert (work / "made").read_text() == "x\n"
            assert "dev container work (podman" in (await made.lines())[0]
            await commands.close()
        where = f"--workspace-folder {work} --docker-path {shutil.which('podman')}"
        assert (programs / "log").read_text().splitlines() == [
            f"up {where} --mount type=bind,source={work},target={work}", f"exec {where} cat /proc/self/environ",
        ]  # fmt: skip
        assert name in containers.names()


NODE_TOOLS = Path(__file__).parents[2] / ".node" / "node_modules" / ".bin"


async def test_the_real_program_makes_a_dev_container_and_finds_it_again(tmp_path: Path) -> None:
    """`@devcontainers/cli` with podman; an image is not fetched or built."""
    need_podman()
    if not (NODE_TOOLS / PROGRAM).exists():
        pytest.skip(f"not installed: {PROGRAM} (scripts/install_node_tools.sh)")
    work = tmp_path / "work"
    (work / ".devcontainer").mkdir(parents=True)
    about = {"image": containers.WITH_BASH, "updateRemoteUserUID": False, "remoteEnv": {"STAGE": "dev elopment"}}
    about["runArgs"] = [*containers.ARGUMENTS, "--network", "none"]
    about["postCreateCommand"] = "echo made >/root/made"
    (work / ".devcontainer" / "devcontainer.json").write_text(json.dumps(about))
    environ = {**os.environ, "PATH": f"{NODE_TOOLS}:{os.environ['PATH']}"}
    label = f"label=devcontainer.local_folder={work}"
    try:
        with anyio.fail_after(120):
            for text in ("first", "second"):
                commands, _ = dev_place(work, environ)
                ended = await run(commands, f'echo "$STAGE"; cat /root/made; pwd; echo {text} >>made', work)
                assert ended.stdout == f"dev elopment\nmade\n{work}\n"
                await commands.close()
        assert (work / "made").read_text() == "first\nsecond\n"
        assert len(containers.podman("ps", "--quiet", "--filter", label).split()) == 1
    finally:
        for name in containers.podman("ps", "--all", "--quiet", "--filter", label).split():
            containers.remove(name)


async def test_a_dev_container_that_cannot_be_had_is_one_sentence(tmp_path: Path) -> None:
    work, programs, other = tmp_path / "work", tmp_path / "programs", tmp_path / "other"
    work.mkdir()
    bad = json.dumps({"outcome": "error", "message": "no file", "description": "No devcontainer.json was found."})
    gone = json.dumps({"outcome": "success", "containerId": "no-such-container"})
    with started(work) as name:
        good = json.dumps({"outcome": "success", "containerId": name, "remoteUser": "root"})
        for folder, answer, words in (
            (work, None, "the program `devcontainer` was not found"),
            (work, bad, "was not made: No devcontainer.json was found"),
            (work, "{}", "it did not say which container it is"), (work, gone, "no container 'no-such-container'"),
            (other, good, "--remove-existing-container"), (tmp_path / "a,b", good, "there is a comma in its name"),
        ):  # fmt: skip
            folder.mkdir(exist_ok=True)
            commands, _ = dev_place(folder, dict(os.environ) if answer is None else devcontainer(programs, answer))
            with anyio.fail_after(60), pytest.raises(ExecutorError, match=words):
                await commands.run(Command("touch made", folder))
            assert not (folder / "made").exists()
            await commands.close()


LIES = {
    "no frame at all": ("echo junk; exit 0", "junk"), "an end that is not told": ("cat >/dev/null; exit 9", ""),
    "endless output": ("head -c 30000000 /dev/zero; head -c 30000000 /dev/zero >&2", None),
    "a wrong trailer": (
        "n=$(cat | grep -o 'E%s.036[0-9a-f]*' | tail -c 33); "
        "printf '\\036%sE0\\036%s/\\036%sx\\036%s' $n $n $n $n; printf '\\036%sB1\\n\\036%sEx9\\036%s' $n $n $n >&2; "
        "head -c 20000000 /dev/zero >&2", "",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", LIES)
async def test_a_container_that_lies(what: str, tmp_path: Path) -> None:
    does, text = LIES[what]
    program = stub(tmp_path, "docker", f'if [ "$3" = \'eval "$(cat)"\' ]; then {does}; else exec "$@"; fi')
    async with place(PlaceConfig(engine=str(program), image="img"), tmp_path) as (commands, _):
        ended = await run(commands, "true", tmp_path, output_limit=10_000, state_file=tmp_path / "state")
        assert ended.status == ExitStatus()
        assert text is None or ended.stdout.strip() == text
        assert len(ended.stdout) < 20_000
        assert not (tmp_path / "state").exists()
