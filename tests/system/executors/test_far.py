"""Another machine: lost links, killed agents, hosts that lie. The server is a real one, on this machine."""

import ast
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, NamedTuple, cast

import anyio
import anyio.to_thread
import pytest
from pytest import MonkeyPatch

from acp_agent.build.host_session import WALLS_SENT
from acp_agent.errors import ExecutorError
from acp_agent.executors.base import Command, Commands, ExitStatus, Files, GrepQuery
from acp_agent.executors.disk_files import DiskFiles
from acp_agent.executors.far import side
from acp_agent.executors.far.far_link import FarLink
from acp_agent.executors.far.far_peer import FRAME, HEADER
from acp_agent.executors.far.host_process import HostProcess
from acp_agent.executors.far.program import BOOT, LEAST_PYTHON, SENT, program
from acp_agent.executors.far.remote_commands import RemoteCommands
from acp_agent.executors.far.remote_disk import RemoteDisk
from acp_agent.executors.places.engine import is_left, owner
from acp_agent.executors.places.ssh import Ssh
from acp_agent.executors.posix import sh_side
from acp_agent.executors.posix.sh_side import ShSide
from tests import ssh_server
from tests.executors.kit import alive, run, until_dead, until_exists
from tests.waits import until

ROOT = Path(__file__).parents[3]


@pytest.fixture
def server() -> ssh_server.SshServer:
    if why := ssh_server.missing():
        pytest.skip(f"not installed: {why}")
    return ssh_server.running()


class Remote(NamedTuple):
    link: FarLink
    commands: Commands
    files: Files


@asynccontextmanager
async def over(way: Any, linger: float = 60.0, heartbeat: float = 5.0, hides: Any = None) -> AsyncIterator[Remote]:
    link = FarLink(way, owner(), is_left, linger, heartbeat)
    remote = Remote(link, RemoteCommands(link), DiskFiles(RemoteDisk(link), hides))
    with anyio.fail_after(60):
        try:
            yield remote
        finally:
            await remote.commands.close()


def ssh(server: ssh_server.SshServer, host: str = "far") -> Ssh:
    return Ssh(host, os.environ, arguments=("-F", str(server.config)))


def bare(server: ssh_server.SshServer) -> ssh_server.WithoutPython:
    return ssh_server.WithoutPython(ssh(server))


with_and_without_python = pytest.mark.parametrize("reached", [ssh, bare])
Reached = Callable[[ssh_server.SshServer], Any]


def clients(remote: Remote) -> list[int]:
    """The process numbers of our `ssh`."""
    if isinstance(side := remote.link._peer, ShSide):
        return [shell._started._popen.pid for shell in (side._shell, side._runs_shell) if shell._started is not None]
    link = remote.link._peer.link
    return [] if link is None else [link._close.__self__._popen.pid]  # type: ignore[attr-defined]


@contextmanager
def not_reached(server: ssh_server.SshServer, remote: Remote) -> Iterator[None]:
    """The links are lost, and new ones lead to nobody."""
    config = server.config.read_text()
    server.config.write_text(config.replace("HostName 127.0.0.1", "HostName 127.0.0.2"))
    try:
        for client in clients(remote):
            os.kill(client, signal.SIGKILL)
        yield
    finally:
        server.config.write_text(config)


class Stub:
    """A host where `python3` is something else."""

    words, mark, environ = "host stub", "m" * 32, dict(os.environ)

    def __init__(self, script: str) -> None:
        self._script = script

    def argv(self, *argv: str) -> tuple[str, ...]:
        return ("bash", "-c", self._script, "bash", *argv)


@with_and_without_python
async def test_a_lost_link_loses_no_output(server: ssh_server.SshServer, tmp_path: Path, reached: Reached) -> None:
    lines = "".join(f"line {number} {'x' * 80}\n" for number in range(40_000))
    async with over(reached(server)) as remote:
        script = "for ((i=0; i<40000; i++)); do echo line $i " + "x" * 80 + "; done; exit 7"
        process = await remote.commands.run(Command(script, tmp_path))
        heard, cuts = "", 0
        async for chunk in process.output():
            heard += chunk.text
            if len(heard) > (cuts + 1) * len(lines) // 5:
                cuts += 1
                for pid in clients(remote):
                    os.kill(pid, signal.SIGKILL)
        assert heard == lines
        assert cuts == 4
        assert await process.wait() == ExitStatus(7)
        assert "was lost" in process.remark and "no output is missing" in process.remark
        await process.close()


@with_and_without_python
async def test_a_command_goes_on_while_the_link_is_lost(server: ssh_server.SshServer, tmp_path: Path, reached: Reached):
    async with over(reached(server)) as remote:
        script = "echo begun > begun; until [ -e go ]; do sleep 0.01; done; echo done; sleep 0.1; pwd > ended"
        process = await remote.commands.run(Command(script, tmp_path))
        await until_exists(tmp_path / "begun")
        with not_reached(server, remote):
            await until(lambda: remote.link.lost_at is not None)
            (tmp_path / "go").touch()
            assert await until_exists(tmp_path / "ended") == f"{tmp_path}\n"
            assert remote.link.lost_at is not None
        (tmp_path / "file").write_text("text")
        assert (await remote.files.read(tmp_path / "file")).text == "text"
        assert await process.wait() == ExitStatus(0) and process.stdout == "done\n"
        await process.close()


async def test_a_link_that_is_silent_has_ended(server: ssh_server.SshServer, tmp_path: Path) -> None:
    async with over(ssh(server), heartbeat=0.5) as remote:
        assert (await run(remote.commands, "echo one", tmp_path)).stdout == "one\n"
        (stalled,) = clients(remote)
        os.kill(stalled, signal.SIGSTOP)
        assert (await run(remote.commands, "echo two", tmp_path)).stdout == "two\n" and clients(remote) != [stalled]
        assert remote.link.losses >= 1


@with_and_without_python
async def test_what_runs_ends_when_the_agent_is_silent(server: ssh_server.SshServer, tmp_path: Path, reached: Reached):
    async with over(reached(server), linger=2.0, heartbeat=0.5) as remote:
        process = await remote.commands.run(Command(f"echo $$ > pid; setsid sleep {OURS} & sleep 7041", tmp_path))
        pid = int(await until_exists(tmp_path / "pid"))
        with not_reached(server, remote):
            await until_dead(pid)
            assert await process.wait() == ExitStatus() and "was lost" in process.remark
            with pytest.raises(ExecutorError, match="host far: the connection was lost"):
                await remote.files.read(tmp_path / "pid")
        assert not sleeping(OURS)
        await process.close()


OURS = f"7040.{os.getpid()}"
"""Seconds that nobody else sleeps, in no other process of the tests and in no container."""


def sleeping(seconds: str) -> list[str]:
    said = subprocess.run(["pgrep", "-f", f"sleep {seconds}"], capture_output=True, text=True, check=False).stdout
    return said.split()


KILLED = """
import sys
from pathlib import Path
import anyio
from acp_agent.executors.base import Command
from acp_agent.executors.far.remote_commands import RemoteCommands
from tests.executors.kit import over_ssh
from tests import ssh_server
ssh_server.running = lambda: ssh_server.SshServer(Path(sys.argv[2]))
async def main():
    link = over_ssh(linger=float(sys.argv[3]), python=sys.argv[4] == "True")
    script = "setsid sleep 7050 & sleep 7051 & echo $$ >ready; sleep 7052"
    await RemoteCommands(link).run(Command(script, Path(sys.argv[1])))
    print(link._socket, flush=True)
    await anyio.sleep(60)
anyio.run(main)
"""


@pytest.mark.parametrize("python", [True, False])
@pytest.mark.parametrize("linger", [0.5, 600.0])
async def test_what_a_killed_agent_left_ends(server: ssh_server.SshServer, tmp_path: Path, linger: float, python: bool):
    argv = [sys.executable, "-c", KILLED, str(tmp_path), str(server.config), str(linger), str(python)]
    agent = subprocess.Popen(argv, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert agent.stdout is not None
    socket = Path((await anyio.to_thread.run_sync(agent.stdout.readline)).strip())
    pid = int(await until_exists(tmp_path / "ready"))
    agent.kill()
    agent.wait()
    agent.stdout.close()
    folder = socket.parent if python else socket
    async with over(ssh(server) if python else bare(server)) as remote:
        if linger > 60:
            assert alive(pid) and socket.exists()
            await remote.link.reached()
        await until_dead(pid)
        await until(lambda: not (folder.exists() or sleeping("705[012]")))


@with_and_without_python
async def test_nothing_is_left_when_it_is_closed(server: ssh_server.SshServer, tmp_path: Path, reached: Reached):
    async with over(reached(server)) as remote:
        await remote.commands.run(Command(f"setsid sleep {OURS} & echo $$ >ready; sleep {OURS}", tmp_path))
        pid = int(await until_exists(tmp_path / "ready"))
        (tmp_path / "found").write_text("wanted")
        assert (await remote.files.grep(GrepQuery("wanted", tmp_path, True, 10, 10.0))).matches
        folder = Path(remote.link._socket)
        folder = folder if folder.is_dir() else folder.parent
        assert folder.exists()
    assert not alive(pid)
    assert not sleeping(OURS)
    assert not folder.exists()
    assert not subprocess.run(["pgrep", "-f", folder.name], capture_output=True, check=False).stdout


async def test_entries_are_judged_at_once_and_late_ones_alone(
    server: ssh_server.SshServer, tmp_path: Path, monkeypatch: MonkeyPatch
) -> None:
    asked: list[str] = []
    late = ""
    judge, approved = FarLink._judge, RemoteDisk._approved

    def counted(link: FarLink, decides: Any, what: str, header: Any) -> None:
        asked.append(Path(header["about"][1 if what == "judge" else 0]).name)
        judge(link, decides, what, header)

    async def and_then(self: RemoteDisk, *about: Any) -> Any:
        found = await approved(self, *about)
        if late:
            (tree / late).touch()
        return found

    def judged(doing: str, path: Path, mode: int) -> None:
        if path.name in ("secret", "late"):
            raise ExecutorError(f"{path.name} must not be touched")

    monkeypatch.setattr(FarLink, "_judge", counted)
    monkeypatch.setattr(RemoteDisk, "_approved", and_then)
    tree, other, moved = tmp_path / "tree", tmp_path / "other", tmp_path / "moved"
    for number in range(300):
        (tree / f"d{number % 7}").mkdir(parents=True, exist_ok=True)
        (tree / f"d{number % 7}" / str(number)).touch()
    about: dict[str, Any] = {"max_entries": 1000, "judged": judged}
    async with over(ssh(server), hides=lambda path: path.name == "hidden") as remote:
        await remote.files.copy(tree, other, overwrite=False, **about)
        await remote.files.move(other, moved, overwrite=False, **about)
        assert len(list(moved.rglob("*"))) == 307
        await remote.files.remove(moved, **about)
        assert not moved.exists()
        assert asked == []
        (tree / "d3" / "secret").touch()
        with pytest.raises(ExecutorError, match="secret must not be touched"):
            await remote.files.remove(tree, **about)
        assert asked == ["secret"]
        (tree / "d3" / "secret").rename(tree / "d3" / "hidden")
        with pytest.raises(ExecutorError):
            await remote.files.copy(tree, other, overwrite=False, **about)
        assert set(asked) == {"secret", "hidden"}
        (tree / "d3" / "hidden").unlink()
        late = "late"
        with pytest.raises(ExecutorError, match="late must not be touched"):
            await remote.files.remove(tree, **about)
        assert asked[-1] == "late"
        assert len(list(tree.rglob("*"))) == 308


async def test_one_that_is_closed_while_it_is_reached_leaves_nothing(server: ssh_server.SshServer) -> None:
    class Closing(Ssh):
        def argv(self, *argv: str, terminal: bool = False) -> tuple[str, ...]:
            link.close()  # By whoever did not wait for it.
            return super().argv(*argv, terminal=terminal)

    link = FarLink(Closing("far", os.environ, arguments=("-F", str(server.config))), owner(), is_left, 60.0)
    with anyio.fail_after(60), pytest.raises(ExecutorError, match="the session was closed"):
        await anyio.to_thread.run_sync(link.ready)
    assert link._socket and not Path(link._socket).parent.exists()


async def test_who_is_out_of_reach_is_one_sentence_and_nothing_runs_here(server: ssh_server.SshServer, tmp_path: Path):
    for way, words in (
        (ssh(server, "no-such-host.invalid"), "no-such-host.invalid"),
        (Ssh("far", {"PATH": str(tmp_path)}), "there is no `ssh` on this machine"),
        (Stub("exit 127"), "did not answer"),
        (Stub("echo 'python3: command not found' >&2; exit 127"), "python3: command not found"),
    ):
        async with over(way) as remote:
            with pytest.raises(ExecutorError, match=words):
                await remote.commands.run(Command("touch made", tmp_path))
            with pytest.raises(ExecutorError, match=words):
                await remote.files.write(tmp_path / "made", "x")
            assert not (tmp_path / "made").exists()
    for name in ("", "-oProxyCommand=x", "a b", "a\nb"):
        with pytest.raises(ExecutorError, match="is no host"):
            Ssh(name, os.environ)


async def test_a_host_with_another_key_is_not_used(server: ssh_server.SshServer, tmp_path: Path) -> None:
    known = server.config.parent / "known_hosts"
    text = known.read_text()
    key = (server.config.parent / "user.pub").read_text()
    try:
        known.write_text(text.split(" ")[0] + " " + key)
        async with over(ssh(server)) as remote:
            with pytest.raises(ExecutorError, match="[Hh]ost key"):
                await remote.commands.run(Command("touch made", tmp_path))
    finally:
        known.write_text(text)
    assert not (tmp_path / "made").exists()


LIAR = r"""
import json, os, sys
def read(size):
    data = b""
    while len(data) < size:
        data += os.read(0, size - len(data))
    return data
nonce = read(int(read(8))).rpartition(b"'")[0].rpartition(b"'")[2].decode()
hello = {"token": "t", "socket": "/s", "environ": {}, "programs": {}, "python": ["p", "3"], "system": "s", "others": []}
os.write(1, f"\n{nonce}{json.dumps(hello)}\n".encode())
while os.read(0, 1) != b"\n":
    pass
os.write(1, b"resumed 0\n")
lie = %s
asked = b""
while b'"do"' not in asked:
    asked += os.read(0, 1 << 20) or sys.exit()
while True:
    os.write(1, lie)
    if len(lie) < 100:
        os.read(0, 1 << 20) or sys.exit()
"""


def frame(kind: bytes, number: int, body: bytes, length: int | None = None) -> bytes:
    return FRAME.pack(kind, number, len(body) if length is None else length) + body


def message(header: bytes) -> bytes:
    return HEADER.pack(len(header)) + header


@pytest.mark.parametrize("lie", [
    bytes(100_000), bytes(range(256)) * 400, frame(b"M", 1, b"", 2**32 - 1), frame(b"M", 2, b"\0\0\0\0"),
    frame(b"A", 9, b""), frame(b"M", 1, message(b"null")), frame(b"M", 1, message(b"{")),
    frame(b"M", 1, b"\0\0\0\xff{}"), frame(b"M", 1, message(b'{"do":"judge"}')),
    frame(b"M", 1, message(b'{"do":"printed","run":[]}')), frame(b"M", 1, message(b'{"id":1,"value":{"x":1}}')),
    frame(b"M", 1, message(b'{"id":1,"value":{"path":null}}')),
    frame(b"M", 1, message(b'{"id":1,"error":"os","words":7}')),
])  # fmt: skip
async def test_a_host_that_lies_is_told_in_a_sentence(lie: bytes, tmp_path: Path) -> None:
    (program := tmp_path / "liar.py").write_text(LIAR % repr(lie))
    async with over(Stub("exec " + shlex.join([sys.executable, str(program)]))) as remote:
        with pytest.raises(ExecutorError):
            await remote.files.read(tmp_path / "x")


async def test_a_host_that_never_stops_talking_is_not_listened_to(tmp_path: Path) -> None:
    async with over(Stub("cat /dev/zero")) as remote:
        with pytest.raises(ExecutorError, match="did not answer as expected"):
            await remote.commands.run(Command("true", tmp_path))


def test_what_is_sent_runs_with_the_oldest_python_that_is_promised_and_nothing_else(tmp_path: Path) -> None:
    for module in (*SENT, *WALLS_SENT, "acp_agent.executors.searching.search_worker"):
        ast.parse((ROOT / f"{module.replace('.', '/')}.py").read_text(encoding="utf-8"), feature_version=LEAST_PYTHON)
    argv = [sys.executable, "-I", "-S", "-c", BOOT]
    done = subprocess.run(argv, input=program("about"), capture_output=True, cwd=tmp_path, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


@with_and_without_python
async def test_no_value_is_on_a_command_line(server: ssh_server.SshServer, tmp_path: Path, reached: Reached) -> None:
    async with over(reached(server)) as remote:
        command = Command(
            "cat /proc/*/cmdline | tr '\\0' ' ' > seen; echo $TOKEN", tmp_path, env={"TOKEN": "tan-ge-rine"}
        )
        process = await remote.commands.run(command)
        assert await process.wait() == ExitStatus(0) and process.stdout == "tan-ge-rine\n"
        assert "tan-ge-rine" not in (tmp_path / "seen").read_text(errors="replace")
        await process.close()


@with_and_without_python
async def test_unread_output_makes_the_command_wait(server: ssh_server.SshServer, tmp_path: Path, reached: Reached):
    async with over(reached(server)) as remote:
        command = Command("head -c 50000000 /dev/zero; echo x >ended", tmp_path, output_limit=100)
        process = await remote.commands.run(command)
        deadline = time.monotonic() + 0.5
        while time.monotonic() < deadline:
            assert not (tmp_path / "ended").exists()
            await anyio.sleep(0.05)
        news = cast("HostProcess", process)._news._items
        most = side.CREDIT + side.PIPE if reached is ssh else 2 * sh_side.CREDIT
        assert sum(len(data) for _, data in cast("list[tuple[str, bytes]]", news)) <= most
        assert await process.wait() == ExitStatus(0)
        assert (tmp_path / "ended").exists()
        await process.close()
