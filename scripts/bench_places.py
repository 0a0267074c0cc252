"""What a place costs over the same command run bare by the program that leads there."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import anyio

from acp_agent.config.place_settings import PlaceConfig
from acp_agent.executors.base import Command, Commands, Files, GrepQuery, TerminalSize
from acp_agent.executors.disk_files import DiskFiles
from acp_agent.executors.far.far_link import FarLink
from acp_agent.executors.far.remote_commands import RemoteCommands
from acp_agent.executors.far.remote_disk import RemoteDisk
from acp_agent.executors.far.started import Way
from acp_agent.executors.local import LocalCommands
from acp_agent.executors.places.container import Container
from acp_agent.executors.places.container_commands import ContainerCommands
from acp_agent.executors.places.engine import is_left, owner
from acp_agent.executors.places.ssh import Ssh
from acp_agent.executors.tmux.shared_shell import SharedShell
from acp_agent.executors.tmux.tmux_server import Tmux

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from tests import containers, ssh_server

Figure = tuple[str, str, list[float], str]
ROUNDS = 20
SIZE = 100_000_000
FILES, FOLDERS = 50_000, 250
FLOOD = f"head -c {SIZE} /dev/zero | tr '\\0' '\\n'"
PATIENCE = 30.0


def measure(home: Path) -> tuple[list[Figure], list[str]]:
    """The figures, and which places could not be measured here, and why."""
    figures: list[Figure] = []
    missing = []
    folder = home / "place"
    folder.mkdir()
    (folder / "file").write_text("a line of text of this length\n" * 333)
    if why := containers.missing():
        missing.append(f"container: {why}")
    else:
        name = containers.start(folder)
        try:
            figures += anyio.run(_container, folder, name)
        finally:
            containers.remove(name)
    if why := ssh_server.missing():
        missing.append(f"ssh: not installed: {why}")
    else:
        figures += _host(folder, ssh_server.running())
    if shutil.which("tmux") is None:
        missing.append("tmux: not installed")
    else:
        figures += anyio.run(_tmux, folder)
    return figures, missing


async def _tmux(folder: Path) -> list[Figure]:
    """A command in a shared shell, over one typed into a bare tmux."""
    size, socket = TerminalSize(120, 40, 2000), ["tmux", "-S", str(folder / "bare"), "-f", "/dev/null"]
    await anyio.run_process([*socket, "new-session", "-d", "-s", "bare", "bash --norc --noprofile"])
    typed = f"true; {shlex.join(socket)} wait-for -S done"
    bare = [*socket, "send-keys", "-t", "bare", typed, "Enter", ";", "wait-for", "done"]
    tmux = Tmux(folder, "bench", os.environ, (), 2000)
    command = Command(SharedShell.script("bench"), folder, terminal=size, opened=await tmux.open(size, "shared"))
    shell = SharedShell(await LocalCommands().run(command), command, "bench")

    class InPane:
        async def run(self, command: Command) -> Any:
            return await shell.run(command)

    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(shell.live)
            await shell.ready()
            figures = await _commands("tmux", cast(Commands, InPane()), folder, bare)
            await shell.close()
        return figures
    finally:
        await tmux.end()
        await anyio.run_process([*socket, "kill-server"], check=False)


async def _container(folder: Path, name: str) -> list[Figure]:
    place = Container("bench", PlaceConfig(container=name), "bench", (folder,), os.environ)
    async with _closed(ContainerCommands(place)) as commands:
        bare = ["podman", "exec", "--interactive", name, "sh", "-c", "true"]
        return await _commands("container", commands, folder, bare)


def _host(folder: Path, server: ssh_server.SshServer) -> list[Figure]:
    master = ["ssh", "-F", str(server.config), "-S", str(folder.parent / "master")]
    nothing: Any = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)  # It would keep our pipes.
    subprocess.run([*master, "-fNM", server.host], **nothing, timeout=PATIENCE, check=True)
    try:
        bare, way = [*master, server.host], Ssh(server.host, os.environ, arguments=("-F", str(server.config)))
        figures = anyio.run(_over_ssh, "ssh", way, folder, bare)
        return figures + anyio.run(_over_ssh, "ssh, no Python", ssh_server.WithoutPython(way), folder, bare)
    finally:
        subprocess.run([*master, "-O", "exit", server.host], **nothing, timeout=PATIENCE, check=False)


async def _over_ssh(what: str, way: Way, folder: Path, bare: list[str]) -> list[Figure]:
    link = FarLink(way, owner(), is_left, 60.0)
    async with _closed(RemoteCommands(link)) as commands:
        files = DiskFiles(RemoteDisk(link))
        figures = await _commands(what, commands, folder, [*bare, "true"])
        read = await _over(lambda: files.read(folder / "file"), [*bare, f"cat {folder}/file"])
        figures.append((f"{what}: read of 10 kB over a bare `cat`, net", "10", read, "ms"))
        return [*figures, await _grep(what, files, folder, bare)]


@asynccontextmanager
async def _closed(commands: Any) -> AsyncIterator[Any]:
    try:
        yield commands
    finally:
        await commands.close()


async def _commands(what: str, commands: Commands, folder: Path, bare: list[str]) -> list[Figure]:
    async def run(script: str) -> None:
        process = await commands.run(Command(script, folder))
        await process.wait()
        await process.close()

    async def killed() -> float:
        process = await commands.run(Command("setsid sleep 600 & sleep 600 & echo ready; wait", folder))
        async for _ in process.output():
            break
        begun = time.perf_counter()
        await process.kill()
        taken = (time.perf_counter() - begun) * 1000
        await process.close()
        return taken

    await run("true")
    rounds = await _over(lambda: run("true"), bare)
    floods = [SIZE / 1000 / await _ms(lambda: run(FLOOD)) for _ in range(3)]
    return [
        (f"{what}: bash round over the same command bare, net", "15", rounds, "ms"),
        (f"{what}: 100 MB of output", "50", floods, "MB/s"),
        (f"{what}: kill to gone", "300", [await killed() for _ in range(5)], "ms"),
    ]


async def _grep(what: str, files: Files, folder: Path, ssh: list[str]) -> Figure:
    tree = folder / "tree"
    for number in range(FOLDERS):
        (tree / str(number)).mkdir(parents=True, exist_ok=True)
    for number in range(FILES):
        wanted = "wanted" if number % 1000 == 0 else "other"
        (tree / str(number % FOLDERS) / f"{number}.txt").write_text(f"some text\n{wanted} {number}\n")
    query = GrepQuery("wanted", tree, True, 1000, PATIENCE)
    ratios = []
    for _ in range(3):
        ours = await _ms(lambda: files.grep(query))
        ratios.append(ours / _bare([*ssh, f"grep -r wanted {tree} | sort"]))
    return (f"{what}: `grep` of 50,000 files over a bare `grep -r`", "1.2", ratios, "")


async def _over(ours: Callable[[], Awaitable[object]], bare: list[str]) -> list[float]:
    """What ours takes more, round by round."""
    return [await _ms(ours) - _bare(bare) for _ in range(ROUNDS)]


async def _ms(work: Callable[[], Awaitable[object]]) -> float:
    begun = time.perf_counter()
    await work()
    return (time.perf_counter() - begun) * 1000


def _bare(argv: list[str]) -> float:
    begun = time.perf_counter()
    subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=PATIENCE, check=True)
    return (time.perf_counter() - begun) * 1000
