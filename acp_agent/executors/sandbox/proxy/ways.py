"""Where commands find the proxy: in a network of the session's own, or on this machine's loopback."""

from __future__ import annotations

import array
import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from threading import Lock
from typing import Any, Protocol

from acp_agent.child import readable
from acp_agent.errors import ExecutorError
from acp_agent.limits.descriptors import restoring

SCRIPT = Path(__file__).with_name("socket_maker.py")
SYSTEM_PYTHON = "/usr/bin/python3"
SECONDS = 5.0
"""For bubblewrap and the interpreter to start, and for each socket."""
INT = array.array("i").itemsize

LISTENS = "0A"
"""The state of a listening socket in /proc/net/tcp."""


class Way(Protocol):
    """Of one session."""

    own: bool
    """Whether its loopback is the session's own."""

    def listen(self, port: int = 0) -> socket.socket:
        """A socket that listens on the loopback of the commands, for the proxy at a port of its own. Raises
        ExecutorError."""
        ...

    def doors(self) -> tuple[str, ...]:
        """As in `SandboxPolicy`."""
        ...

    def is_ours(self, accepted: socket.socket) -> bool:
        """Whether a process of ours has connected."""
        ...

    def listening(self) -> dict[int, str]:
        """Ports of its own that servers listen on -> the loopback address that reaches them."""
        ...

    def reach(self, address: str) -> socket.socket:
        """A socket to connect to such an address with. Raises ExecutorError."""
        ...

    def works(self) -> bool:
        """Whether it can still be used: it may have been killed, for lack of memory, say."""
        ...

    def close(self) -> None: ...


class MachineLoopback:
    """This machine's loopback, where the backend holds commands to one port (Landlock, macOS)."""

    own = False

    def __init__(self, user: Mapping[str, Any] | None = None) -> None:
        """`user`: as for `OwnNetwork`."""
        self._uid = os.geteuid() if user is None else int(user["user"])

    def listen(self, port: int = 0) -> socket.socket:
        try:
            return socket.create_server(("127.0.0.1", port))
        except OSError as error:
            raise ExecutorError(f"the proxy could not listen on 127.0.0.1: {error}") from error

    def doors(self) -> tuple[str, ...]:
        return ()

    def is_ours(self, accepted: socket.socket) -> bool:
        """By the table of connections, where the kernel has one."""
        try:
            lines = Path("/proc/net/tcp").read_text(encoding="utf-8").splitlines()[1:]
            (_, theirs), (_, ours) = accepted.getpeername(), accepted.getsockname()
        except OSError:
            return sys.platform != "linux"
        ends = (f":{theirs:04X}", f":{ours:04X}")
        for line in lines:
            fields = line.split()
            if fields[1].endswith(ends[0]) and fields[2].endswith(ends[1]):
                return int(fields[7]) == self._uid
        return False

    def listening(self) -> dict[int, str]:
        return {}

    def works(self) -> bool:
        return True

    def reach(self, address: str) -> socket.socket:
        raise ExecutorError("its servers are this machine's")

    def close(self) -> None:
        pass


class OwnNetwork:
    """A network namespace with nothing but loopback in it.

    All commands of a session share it, so a server that one starts is there for the next. bubblewrap makes it, which on
    some systems is alone allowed to; a command enters it right before its own bubblewrap is started (`Inside.join`).
    Takes a while to make: do it in a thread. Raises ExecutorError where it cannot be made.
    """

    own = True

    def __init__(self, bwrap: Path, user: Mapping[str, Any] | None = None) -> None:
        """`user`: of `subprocess.Popen`, if commands run as another user."""
        self._asking = Lock()
        self._other = user is not None
        # Ours may be out of reach for another user.
        pythons = [sys.executable, *([SYSTEM_PYTHON] if self._other else [])]
        for python in pythons:
            try:
                self._start(bwrap, python, dict(user or {}))
                return
            except ExecutorError:
                if python == pythons[-1]:
                    raise

    def _start(self, bwrap: Path, python: str, more: dict[str, Any]) -> None:
        """Raises ExecutorError."""
        with ExitStack() as stack:
            self._agent, theirs = socket.socketpair()
            stack.callback(self._agent.close)
            self._agent.settimeout(SECONDS)
            with theirs:
                argv = [str(bwrap), "--unshare-user", "--unshare-net", "--bind", "/", "/", "--"]
                try:
                    self._bwrap = subprocess.Popen(
                        [*argv, python, "-I", "-S", "-c", SCRIPT.read_text(encoding="utf-8")],
                        stdin=theirs.fileno(),
                        stdout=subprocess.DEVNULL,
                        stderr=subprocess.PIPE,
                        cwd="/",
                        env={},
                        start_new_session=True,
                        **more,
                        **restoring(),
                    )
                except OSError as error:
                    raise ExecutorError(f"{bwrap} could not be started: {error}") from error
            stack.callback(self._end)
            self.make().close()
            self._pid = self._child()
            self._doors = self._open_doors()
            stack.pop_all()

    def make(self, family: int = socket.AF_INET) -> socket.socket:
        """A new TCP socket in this network. Raises ExecutorError."""
        with self._asking:
            try:
                self._agent.sendall(b"4" if family == socket.AF_INET else b"6")
                _, data, _, _ = self._agent.recvmsg(1, socket.CMSG_SPACE(INT))
            except OSError as error:
                raise ExecutorError(self._why(error)) from error
            if not data:
                raise ExecutorError(self._why(None))
        return socket.socket(fileno=array.array("i", data[0][2][:INT])[0])

    def reach(self, address: str) -> socket.socket:
        return self.make(socket.AF_INET6 if ":" in address else socket.AF_INET)

    def listen(self, port: int = 0) -> socket.socket:
        made = self.make()
        try:
            made.bind(("127.0.0.1", port))
            made.listen()
        except OSError as error:
            made.close()
            raise ExecutorError(f"nothing can listen at port {port} of the commands' network: {error}") from error
        return made

    def is_ours(self, accepted: socket.socket) -> bool:
        return True

    def works(self) -> bool:
        return self._bwrap.poll() is None

    def _why(self, error: OSError | None) -> str:
        """Its last words, or else the error."""
        said = ""
        if self._bwrap.stderr is not None and readable(self._bwrap.stderr, 0):
            said = os.read(self._bwrap.stderr.fileno(), 2000).decode("utf-8", "replace").strip()
        return f"the commands' own network has ended: {said or error or 'for no known reason'}"

    def _child(self) -> int:
        """The process in the namespace: bubblewrap waits for it outside."""
        parent = self._bwrap.pid
        try:
            found = Path(f"/proc/{parent}/task/{parent}/children").read_text(encoding="utf-8").split()
        except OSError:
            found = []
        return int(found[0]) if found else parent

    def _open_doors(self) -> dict[str, int]:
        """Descriptors of the namespaces. Raises ExecutorError if one is this process's own."""
        doors: dict[str, int] = {}
        for name in ("user", "net"):
            place = f"/proc/{self._pid}/ns/{name}"
            try:
                if os.stat(place).st_ino == os.stat(f"/proc/self/ns/{name}").st_ino:
                    raise ExecutorError(f"{place} is the machine's own")
                doors[name] = os.open(place, os.O_RDONLY | os.O_CLOEXEC)
            except OSError as error:
                raise ExecutorError(f"{place} cannot be opened: {error.strerror}") from error
        return doors

    def doors(self) -> tuple[str, ...]:
        """The files to enter it by, in this order. For root, to whom every network is open, the network's alone and by
        our own descriptor, so that it is surely this one; others can enter no user namespace but one of their own."""
        if os.geteuid() == 0 and not self._other:
            return (f"/proc/{os.getpid()}/fd/{self._doors['net']}",)
        return tuple(f"/proc/{self._pid}/ns/{name}" for name in ("user", "net"))

    def listening(self) -> dict[int, str]:
        found: dict[int, str] = {}
        for name, address in (("tcp6", "::1"), ("tcp", "127.0.0.1")):
            try:
                lines = Path(f"/proc/{self._pid}/net/{name}").read_text(encoding="utf-8").splitlines()[1:]
            except OSError:
                continue
            for line in lines:
                _, local, _, state = line.split()[:4]
                if state == LISTENS:
                    found[int(local.rpartition(":")[2], 16)] = address
        return found

    def close(self) -> None:
        self._agent.close()
        for descriptor in self._doors.values():
            os.close(descriptor)
        self._doors = {}
        self._end()

    def _end(self) -> None:
        self._bwrap.kill()
        self._bwrap.wait()
        if self._bwrap.stderr is not None:
            self._bwrap.stderr.close()
