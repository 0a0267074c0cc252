"""What commands can make the agent hold is bounded, and who is over a bound is told; nobody else notices."""

import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio
import pytest

from acp_agent.limits import shares
from acp_agent.limits.shares import Share
from tests.agent.kit import Call, Rig
from tests.agent.test_command_network import BOUND, ran, session
from tests.tables import table

HOLD = """
import os, socket, sys, time
server = socket.create_server(("127.0.0.1", 0), backlog=200)
proxy = ("127.0.0.1", int(os.environ["HTTPS_PROXY"].rpartition(":")[2]))
kept, said = [server], ""
for _ in range(int(sys.argv[1])):
    s = socket.create_connection(proxy)
    s.settimeout(20)
    s.sendall(b"CONNECT localhost:%d HTTP/1.1\\r\\n\\r\\n" % server.getsockname()[1])
    answer = s.recv(1000)
    if b" 200 " not in answer:
        said = (answer + s.recv(1000)).decode()
        break
    kept.append(s)
print(len(kept) - 1, "held", said, flush=True)
time.sleep(float(sys.argv[2]))
"""


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("acp_agent.proxying.PLACE_SECONDS", 0.2)


async def held(made: Rig, count: int, seconds: float = 0) -> str:
    (made.project / "hold.py").write_text(HOLD)
    return await ran(made)


BOUNDS = {"command": 5, "session": 7, "owner": 9, "process": 4}


@pytest.mark.parametrize(("of", "most"), BOUNDS.items())
async def test_a_command_over_a_bound_is_told_which_one(tmp_path: Path, of: str, most: int) -> None:
    config = f"[network]\nmax_connections_per_{of} = {most}\n[tools.sandbox]\npublish_ports = false\n"
    async with session(tmp_path, "python3 hold.py 12 0", "python3 hold.py 1 0", config=config) as made:
        text = await held(made, 12)
        assert f"{most} held HTTP/1.1 403" in text and f"network.max_connections_per_{of}" in text.split("held")[1]
        assert "Not connected to localhost" in text, "programs that hide the proxy's words"
        assert "1 held" in await ran(made), "all were given back"
    assert shares.CONNECTIONS.taken == 0


@contextmanager
def descriptors(most: int) -> Iterator[None]:
    """At most so many more than there are."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + most, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def test_commands_that_hold_what_they_can_take_no_descriptors_of_others(tmp_path: Path) -> None:
    background = [Call("bash", {"command": "python3 hold.py 120 60", "background": True})] * 3
    async with session(tmp_path, *background, "sleep 3; echo works") as made:
        (made.project / "hold.py").write_text(HOLD)
        with descriptors(420):
            for _ in background:
                await ran(made)
            assert "works" in await ran(made)
            taken = 0
            with anyio.fail_after(BOUND):
                while shares.CONNECTIONS.taken > taken:
                    taken = shares.CONNECTIONS.taken
                    await anyio.sleep(0.5)
                await made.editor.new_session(made.project)
            assert 0 < taken * 4 < 420


async def test_background_commands_of_an_owner_are_bounded_in_all_sessions(tmp_path: Path) -> None:
    background = Call("bash", {"command": "sleep 60", "background": True})
    config = "[tools.bash]\nmax_background_runs_per_owner = 1\n"
    async with session(tmp_path, background, background, sandbox=False, config=config) as made:
        assert "background" in await ran(made)
        await made.editor.new_session(made.project)
        text = await ran(made)
        assert "was not started: 1 background commands are the most that all of your sessions may have" in text
    assert shares.COMMANDS.taken == 0


def test_what_is_taken_is_taken_of_all_above_and_given_back() -> None:
    top = Share("this agent", "things", "a.b", 3)
    one, other = Share("one", "things", "c.d", 2, top), Share("other", "things", "e.f", 9, top)
    assert [bool(one.take()) for _ in range(3)] == [False, False, True] and top.taken == 2
    assert other.take() == "" and "3 things are the most that this agent may have (`a.b`)" in other.take()
    assert (one.taken, other.taken, top.taken) == (2, 1, 3)
    one.give()
    assert other.take() == "" and top.taken == 3


STARTED = {
    "a command": "anyio.run(run)", "a server": "anyio.run(child)",
    "git": "print(run_git(['x'], timeout=9, path=tools).stdout.decode())",
    "ripgrep and our own search": "anyio.run(searched)",
    "a package manager": "print(_run('npm', [], {'PATH': tools}, Path('/')))",
}  # fmt: skip
PROGRAM = """
import resource, subprocess, sys, anyio
from pathlib import Path
from acp_agent.child import Child
from acp_agent.executors.base import Command
from acp_agent.executors.local import LocalCommands
from acp_agent.executors.search import Here
from acp_agent.limits.descriptors import raise_limit
from acp_agent.own_programs import run_git
from acp_agent.plugins.plugin_sources import _run
tools = sys.argv[1]
async def run():
    local = LocalCommands()
    process = await local.run(Command("ulimit -Sn", Path("/")))
    async for chunk in process.output():
        print(chunk.text)
    await process.close()
    await local.close()
async def child():
    child = Child.start("x", ["sh", "-c", "ulimit -Sn"])
    print((await child.read()).decode())
    await child.end()
    child.close()
async def searched():
    process = await Here().start(["sh", "-c", "ulimit -Sn"], own=True)
    print((await process.stdout.receive()).decode())
    await process.wait()
raise_limit()
raise_limit()
print("own", resource.getrlimit(resource.RLIMIT_NOFILE)[0])
"""


@table("what", STARTED)
def test_the_limit_is_raised_and_what_we_start_gets_the_one_that_it_would_have_got(what: str, tmp_path: Path) -> None:
    for name in ("git", "npm"):
        (tmp_path / name).write_text("#!/bin/sh\nulimit -Sn\n")
        (tmp_path / name).chmod(0o755)
    line = ["bash", "-c", 'ulimit -Sn 300; ulimit -Hn 2000; exec "$@"', "-", sys.executable, "-c"]
    argv = [*line, PROGRAM + STARTED[what], f"{tmp_path}:/bin:/usr/bin"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    assert {"own 2000", "300"} <= set(done.stdout.split("\n")), done.stdout + done.stderr
