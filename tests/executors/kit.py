"""Commands and files on a real folder, and an editor at the other end of a wire if one is needed."""

import os
import uuid
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import pytest

from acp_agent.child import User
from acp_agent.client.tasks import Background
from acp_agent.config.place_settings import PlaceConfig
from acp_agent.errors import MethodNotFound
from acp_agent.executors.base import Command, Commands, ExitStatus, Files, Offer, OutputChunk, Process
from acp_agent.executors.disk_files import DiskFiles, LocalDisk
from acp_agent.executors.editor.dyn_executor import DynExecutor
from acp_agent.executors.editor.editor_files import EditorFiles
from acp_agent.executors.editor.editor_terminals import EditorTerminals
from acp_agent.executors.far.far_link import FarLink
from acp_agent.executors.far.remote_commands import RemoteCommands
from acp_agent.executors.far.remote_disk import RemoteDisk
from acp_agent.executors.local import LocalCommands
from acp_agent.executors.places.container import Container, Walls
from acp_agent.executors.places.container_commands import ContainerCommands
from acp_agent.executors.places.engine import is_left, owner
from acp_agent.executors.places.ssh import Ssh
from acp_agent.executors.sandbox.base import SandboxPolicy
from acp_agent.protocol.client import Client
from acp_agent.protocol.codec import encode
from acp_agent.protocol.connection import Connection
from acp_agent.protocol.peer import Peer
from acp_agent.protocol.transports import memory_pair
from acp_agent.testing.fake_editor import FakeEditor
from tests import containers, ssh_server

BOUND = 60.0
"""Seconds after which a test that waits has failed."""

FILES_ELSEWHERE = ("ssh", "ssh without Python", "busybox")
COMMANDS_ELSEWHERE = (*FILES_ELSEWHERE, "container", "container with Landlock")
"""Those that run commands: in a container files are the same, at the same paths."""


class _NothingToAsk:
    async def handle_request(self, method: str, params: Any) -> Any:
        raise MethodNotFound(method)

    async def handle_notification(self, method: str, params: Any) -> None: ...

    def cancel_request(self, method: str, params: Any) -> bool:
        return False


@dataclass
class Stage:
    """What a test plays on."""

    commands: Commands
    files: Files
    folder: Path
    scripts: Path
    editor: FakeEditor | None = None
    connection: Connection | None = None
    local: LocalCommands | None = None
    client: Client | None = None
    """Both with an editor."""
    container: str = ""
    """The name of the one that commands run in."""

    async def until_dead(self, pid: int) -> None:
        """`pid`: as the command sees it."""
        while self._lives(pid):
            await anyio.sleep(0.01)

    def _lives(self, pid: int) -> bool:
        if not self.container:
            return alive(pid)
        words = containers.podman("exec", self.container, "sh", "-c", f"cat /proc/{pid}/stat", check=False)
        return words != "" and words.rpartition(")")[2].split()[0] != "Z"

    def asked(self, method: str) -> int:
        """How many requests of `method` the editor got."""
        assert self.editor is not None
        lines = [line.message for line in self.editor.transcript if line.direction == "from_agent"]
        return sum(line.get("method") == method for line in lines)


@asynccontextmanager
async def stage(
    backend: str, tmp_path: Path, *, offer: Offer | None = None, timeout: float = 5.0, hides: Any = None,
    folders: Sequence[Path] = (), bound: float = BOUND, **editor_options: Any,
) -> AsyncIterator[Stage]:  # fmt: skip
    """Commands and files of the kind `backend`; everything is bounded, closed and killed at the end."""
    folder, scripts = tmp_path / "work", tmp_path / "scripts"
    folder.mkdir(exist_ok=True)
    scripts.mkdir(exist_ok=True)
    commands: Commands = LocalCommands()
    files = local_files(hides)
    with anyio.fail_after(bound):
        try:
            if backend.startswith("container"):
                commands, name = in_container(tmp_path, landlock=backend != "container")
                yield Stage(commands, files, folder, scripts, container=name)
                return
            if backend == "local":
                yield Stage(commands, files, folder, scripts)
                return
            if backend in FILES_ELSEWHERE:
                link = in_busybox(tmp_path) if backend == "busybox" else over_ssh(python=backend == "ssh")
                container = containers.running(tmp_path.parent) if backend == "busybox" else ""
                commands, files = RemoteCommands(link), DiskFiles(RemoteDisk(link), hides)
                yield Stage(commands, files, folder, scripts, container=container)
                return
            ours, theirs = memory_pair()
            connection = Connection(ours, _NothingToAsk(), peer=Peer(encode=encode))
            async with Background() as background:
                background.start(connection.serve)
                try:
                    async with FakeEditor(theirs, check=False, **editor_options) as fake:
                        client = Client(connection, "s", fake.client.capabilities, timeout=timeout)
                        local, offered = LocalCommands(folders=folders), offer or Offer(True, True, True)
                        terminals = EditorTerminals(client, local, scripts, kill_timeout=0.5)
                        commands = DynExecutor(local, terminals, offered)
                        buffers = EditorFiles(files, client, offered, folders)
                        yield Stage(commands, buffers, folder, scripts, fake, connection, local=local, client=client)
                finally:
                    connection.close()
        finally:
            with anyio.CancelScope(shield=True):
                await commands.close()


def local_files(hides: Any = None, user: Callable[[], User | None] = lambda: None) -> DiskFiles:
    return DiskFiles(LocalDisk(os.environ, user=user), hides)


class Exec:
    """Into a running container that has busybox and no Python."""

    def __init__(self, name: str) -> None:
        self.words, self.where, self.identity = f"container {name}", f"in container {name}", name
        self.mark = uuid.uuid4().hex
        self.environ: Mapping[str, str] = os.environ
        self._name = name

    def argv(self, *argv: str, terminal: bool = False) -> tuple[str, ...]:
        return ("podman", "exec", "--interactive", *(("--tty",) if terminal else ()), self._name, *argv)


def in_busybox(tmp_path: Path) -> FarLink:
    """In a container that has the folders of all tests."""
    if why := containers.missing():
        pytest.skip(why)
    return FarLink(Exec(containers.running(tmp_path.parent)), owner(), is_left, 60.0)


def over_ssh(linger: float = 60.0, *, python: bool = True) -> FarLink:
    """On a real server, which is this machine."""
    if why := ssh_server.missing():
        pytest.skip(f"not installed: {why}")
    server = ssh_server.running()
    way = Ssh(server.host, os.environ, arguments=("-F", str(server.config)))
    return FarLink(way if python else ssh_server.WithoutPython(way), owner(), is_left, linger)


def in_container(tmp_path: Path, *, landlock: bool = False) -> tuple[ContainerCommands, str]:
    """Commands run in a container that runs already and has the folders of all tests. `landlock`: each confined."""
    if why := containers.missing():
        pytest.skip(why)
    name = containers.running(tmp_path.parent)
    config, user = PlaceConfig(container=name, landlock=landlock), lambda: None
    policy = SandboxPolicy(writable=(tmp_path,), hidden=(tmp_path / "hidden",))
    place = Container("web", config, "test", (tmp_path,), os.environ, Walls, user, lambda: policy)
    return ContainerCommands(place), name


@dataclass
class Ended:
    status: ExitStatus
    chunks: list[OutputChunk]
    stdout: str
    stderr: str
    combined: str
    truncated: bool


async def collect(process: Process) -> Ended:
    """Runs to the end, closes, and tells all of it."""
    try:
        chunks = [chunk async for chunk in process.output()]
        return Ended(await process.wait(), chunks, process.stdout, process.stderr, process.combined, process.truncated)
    finally:
        await process.close()


async def run(commands: Commands, script: str, cwd: Path, **rest: Any) -> Ended:
    return await collect(await commands.run(Command(script, cwd, **rest)))


async def until_exists(path: Path) -> str:
    """Waits for a file with text in it; the caller's scope bounds the wait."""
    while not (text := _text(path)):
        await anyio.sleep(0.01)
    return text


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except FileNotFoundError:
        return ""


def open_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def alive(pid: int) -> bool:
    """Whether the process runs (a zombie does not)."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


async def until_dead(pid: int) -> None:
    while alive(pid):
        await anyio.sleep(0.01)


def signal_masks(status: str) -> list[int]:
    """The signals of each line of `grep Sig /proc/PID/status`, without 32 and 33: the C library keeps these for itself
    and lets nobody set them; some parents leave them ignored."""
    return [int(line.split()[1], 16) & ~(0b11 << 31) for line in status.splitlines() if line.startswith("Sig")]
