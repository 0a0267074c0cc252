"""Runs the command as a fork of a process that has already imported everything.

The imports are most of what a short run of the command costs, and `tests/house/test_startup.py`,
`tests/e2e/test_life.py` and the editors look at the command itself. `forked_command` is a program that can be started
in its place: the same arguments, environment, folder, standard streams, signals and exit status. What is killed with
SIGKILL takes its fork along a moment later.
"""

import array
import atexit
import functools
import json
import os
import re
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

COMMAND = str(Path(sys.executable).with_name("acp-coder"))

CLIENT = """\
{first}
import array, json, os, signal, socket, sys

sock = socket.socket(socket.AF_UNIX)
sock.connect({address!r})
start = json.dumps([[{command!r}, *sys.argv[1:]], dict(os.environ), os.getcwd()]).encode()
sock.sendmsg([len(start).to_bytes(4, "big")], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [0, 1, 2]))])
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
    signal.signal(number, lambda number, _: sock.send(bytes([number])))
sock.sendall(start)
for stream in (0, 1, 2):
    os.close(stream)
status = sock.recv(1)
while len(status) == 1:
    status += sock.recv(1)
status = int.from_bytes(status, "big", signed=True)
if status < 0:
    signal.signal(-status, signal.SIG_DFL) if -status != signal.SIGKILL else None
    os.kill(os.getpid(), -status)
os._exit(status)
"""

LONGEST_FIRST_LINE = 127
"""Bytes of it that Linux reads."""


def first_line(options: str = "-IS") -> str:
    """Of a program in Python. As pip writes it where the interpreter's path has a space: sh runs
    the line, and to Python it is a text."""
    line = f"#!{sys.executable} {options}".rstrip()
    if " " not in sys.executable and len(line) <= LONGEST_FIRST_LINE:
        return line
    return f"#!/bin/sh\n'''exec' '{sys.executable}' {options} \"$0\" \"$@\"\n' '''"


@functools.cache
def forked_command(script: str = "") -> str:
    """The path of the program, or of one that runs that script. The process behind it ends with this one. Without
    Linux's process handles it is the command itself, or the script."""
    if not hasattr(os, "pidfd_open"):
        return script or COMMAND
    folder = Path(tempfile.mkdtemp(prefix="forked"))
    address = str(folder / "socket")
    (program := folder / "acp-coder").write_text(CLIENT.format(first=first_line(), address=address, command=COMMAND))
    program.chmod(0o700)
    server = subprocess.Popen(
        [sys.executable, "-m", "tests.forked", address, *([script] if script else [])], stdin=subprocess.PIPE,
        stdout=subprocess.PIPE, cwd=Path(__file__).parents[1], start_new_session=True,
    )  # fmt: skip

    def end() -> None:
        server.communicate()
        for path in (program, folder / "socket"):
            path.unlink(missing_ok=True)
        folder.rmdir()

    atexit.register(end)
    assert server.stdout is not None and server.stdout.readline() == b"ready\n"
    return str(program)


def serve(address: str, script: str = "") -> None:
    """Forks for each program that connects, until standard input ends."""
    main = main_of(script) if script else main_of_the_command(address)
    waiting = selectors.DefaultSelector()
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(address)
    listening.listen()
    waiting.register(listening, selectors.EVENT_READ)
    waiting.register(0, selectors.EVENT_READ)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    while True:
        for key, _ in waiting.select():
            if key.fd == 0:
                return
            if isinstance(key.data, tuple):
                ended(key.fd, key.data[0], key.data[1], waiting)
            elif key.fileobj is listening:
                begin(listening.accept()[0], waiting, main)
            elif isinstance(key.fileobj, socket.socket) and key.fileobj.fileno() >= 0:
                numbers = key.fileobj.recv(16)
                for number in numbers or [signal.SIGKILL]:
                    os.kill(key.data, number)
                if not numbers:
                    waiting.unregister(key.fileobj)


def main_of_the_command(address: str) -> Callable[[], Any]:
    """With everything imported."""
    import importlib
    import pkgutil

    import acp_agent
    from acp_agent.cli import main

    for module in pkgutil.walk_packages(acp_agent.__path__, "acp_agent."):
        if not module.name.endswith(("__main__", "testing.plugin", ".pytest_kit", ".pytest_options")):
            importlib.import_module(module.name)
    for name in ("fronts.headless", "fronts.lsp_server.front", "fronts.terminal.chat_program", "commands.servers"):
        sys.modules[f"acp_agent.{name}"].AGENT_COMMAND = (str(Path(address).with_name("acp-coder")),)  # type: ignore[attr-defined]
    return main


def main_of(script: str) -> Callable[[], Any]:
    """With what it imports at its top imported, but for what lies beside it, which may look at the environment."""
    import importlib

    folder = Path(script).parent
    sys.path.insert(0, str(folder))
    text = Path(script).read_text(encoding="utf-8")
    for name in re.findall(r"^(?:import|from) ([\w.]+)", text, re.MULTILINE):
        if not (folder / f"{name}.py").exists():
            importlib.import_module(name)
    code = compile(text, script, "exec")
    return lambda: exec(code, {"__name__": "__main__", "__file__": script})


def begin(sock: socket.socket, waiting: selectors.BaseSelector, main: Callable[[], Any]) -> None:
    data, ancillary, _, _ = sock.recvmsg(4, socket.CMSG_SPACE(3 * 4))
    if not ancillary:  # It was killed before it said anything.
        sock.close()
        return
    streams = array.array("i", ancillary[0][2])
    start = b""
    while len(start) < int.from_bytes(data, "big") and (more := sock.recv(65_536)):
        start += more
    pid = os.fork()
    if pid == 0:
        run(main, streams, *json.loads(start))
    for stream in streams:
        os.close(stream)
    handle = os.pidfd_open(pid)
    waiting.register(sock, selectors.EVENT_READ, pid)
    waiting.register(handle, selectors.EVENT_READ, (pid, sock))


def ended(handle: int, pid: int, sock: socket.socket, waiting: selectors.BaseSelector) -> None:
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    waiting.unregister(handle)
    os.close(handle)
    if sock in waiting.get_map():
        waiting.unregister(sock)
        with suppress(OSError):  # Nobody waits for it any more.
            sock.sendall(status.to_bytes(2, "big", signed=True))
    sock.close()


def run(main: Callable[[], Any], streams: Any, argv: list[str], environ: dict[str, str], folder: str) -> None:
    """What the interpreter does before and after a program."""
    code: Any = 1
    try:
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
        os.closerange(3, 256)
        os.environ.clear()
        os.environ.update(environ)
        os.chdir(folder)
        time.tzset()
        sys.argv = argv
        sys.stdin = os.fdopen(0, encoding="utf-8", closefd=False)
        sys.stdout = os.fdopen(1, "w", encoding="utf-8", closefd=False)
        sys.stderr = os.fdopen(2, "w", encoding="utf-8", closefd=False, buffering=1)
        code = main()
    except SystemExit as ending:
        code = ending.code
    except BaseException:  # noqa: BLE001
        sys.excepthook(*sys.exc_info())
    finally:
        if isinstance(code, str):
            sys.stderr.write(f"{code}\n")
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
        sys.stdout.flush()
        os._exit(code if isinstance(code, int) else int(code is not None))


if __name__ == "__main__":
    serve(*sys.argv[1:])
