"""A process that runs command lines in a sandbox (or without) as one user: `-m runner UID`, a line of JSON each way.

What the attacks need around them (a process and sockets of the same user outside) is started here.
"""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from acp_agent.config.safety_settings import SandboxConfig
from acp_agent.errors import ExecutorError
from acp_agent.executors.sandbox import bubblewrap, landlock_alone
from acp_agent.executors.sandbox.base import Confined, Copies, Invocation, Proxied, Sandbox, SandboxPolicy
from acp_agent.executors.sandbox.proxy.ways import Way

SECONDS = 60.0
SECRET = "s3cret-outside"
PYTHON = "/usr/bin/python3"
COPIES = " with copies"


def sandboxes() -> dict[str, Sandbox]:
    config = SandboxConfig()
    both: dict[str, Sandbox] = {
        "bubblewrap": bubblewrap.find(config), "bubblewrap alone": bubblewrap.find(SandboxConfig(landlock=False)),
    }  # fmt: skip
    copies = {f"{name}{COPIES}": sandbox for name, sandbox in both.items()}
    both["bubblewrap alone"] = replace(bubblewrap.find(SandboxConfig(landlock=False)), copies=False)  # Old kernels.
    return {**both, **copies, "landlock": landlock_alone.find(config)}


class Place:
    """Folders, made again for every command: `root` may be written, `out` is nobody's business."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="acp-sandbox-", ignore_cleanup_errors=True)
        base = Path(os.path.realpath(self._folder.name))
        self.root, self.out, self.files, self.scratch = (base / n for n in ("root", "out", "files", "scratch"))
        for path in (self.root, self.out, self.files, self.scratch):
            path.mkdir(mode=0o700)
        (self.out / "secret").write_text(SECRET)
        (self.out / "file").write_text("old")
        (self.root / ".env").write_text(SECRET)
        (self.root / ".git/hooks").mkdir(parents=True)
        (self.root / ".git/config").write_text("[core]\n")
        (self.root / ".vscode").mkdir()
        (self.root / "src").mkdir()
        env = {"PATH": "/usr/bin:/bin", "AGENT_KEY": SECRET}
        self._secret = (self.out / "secret").open()
        self._holder = subprocess.Popen(["/bin/sleep", "60"], env=env, pass_fds=(self._secret.fileno(),))
        self._sockets = [socket.socket(socket.AF_UNIX) for _ in range(3)]
        self.abstract = f"acp-sandbox-{os.getpid()}-{id(self)}"
        for sock, name in zip(
            self._sockets, (str(self.out / "s"), str(self.root / "s"), "\0" + self.abstract), strict=True
        ):
            sock.bind(name)
            sock.listen()
        self._tcp = socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True)
        port = self._tcp.getsockname()[1]
        self._udp = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
        self._udp.bind(("::", port))
        self.env = {
            "PATH": "/usr/bin:/bin:/usr/sbin:/sbin", "HOME": "/home/acp-nobody", "ROOT": str(self.root),
            "OUT": str(self.out), "HOLDER": str(self._holder.pid), "HELD": str(self._secret.fileno()),
            "ABSTRACT": self.abstract, "PORT": str(port), "ADDR": own_address(), "PY": PYTHON,
        }  # fmt: skip

    def copies(self) -> Copies:
        """A copy of git's configuration."""
        (place := self.files / "copies/0").mkdir(parents=True)
        (place / "config").write_text("[core]\n")
        (place / "link").symlink_to(Copies.THERE / "0/config")
        return Copies(place.parent, {self.root / ".git/config": "0"})

    def policy(self, **rest: Any) -> SandboxPolicy:
        names = (".git/hooks", ".git/config", ".vscode", ".mcp.json", ".config/fish")
        return SandboxPolicy(
            writable=(self.root,), hidden=(self.root / ".env",), protected=tuple(self.root / name for name in names),
            scratch=self.scratch, home=Path("/home/acp-nobody"), **rest,
        )  # fmt: skip

    def reached(self) -> list[str]:
        """Which of the sockets outside somebody has reached."""
        for sock in (*self._sockets, self._tcp, self._udp):
            sock.setblocking(False)
        found = []
        for name, sock in (("unix", self._sockets[0]), ("abstract", self._sockets[2]), ("tcp", self._tcp)):
            with contextlib.suppress(BlockingIOError):
                sock.accept()[0].close()
                found.append(name)
        with contextlib.suppress(BlockingIOError):
            self._udp.recv(1)
            found.append("udp")
        return found

    def close(self) -> None:
        self._holder.kill()
        self._holder.wait()
        self._secret.close()
        for sock in (*self._sockets, self._tcp, self._udp):
            sock.close()
        self._folder.cleanup()


def own_address() -> str:
    """An address of this machine that is not loopback; where it has none, another one of loopback."""
    with contextlib.closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as sock:
        try:
            sock.connect(("198.51.100.1", 9))
        except OSError:
            return "127.0.0.2"
        return str(sock.getsockname()[0])


_ways: dict[str, Way] = {}


def proxied(name: str, sandbox: Sandbox) -> tuple[Proxied, socket.socket]:
    """The network of a command with a proxy that accepts nobody, as the session makes it."""
    if name not in _ways:
        way = sandbox.way(None)
        assert way is not None
        _ways[name] = way
    listener = _ways[name].listen()
    doors = _ways[name].doors()
    return Proxied(doors, 0 if doors else listener.getsockname()[1]), listener


def start(confined: Confined, leak: bool) -> subprocess.Popen[str]:
    numbers = confined.open_files()
    try:
        return subprocess.Popen(
            confined.argv_with(numbers), cwd=confined.cwd, env=dict(confined.env), stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace", start_new_session=True,
            close_fds=not leak, pass_fds=() if leak else tuple(numbers.values()),
        )  # fmt: skip
    finally:
        for fd in numbers.values():
            os.close(fd)


def serve(request: dict[str, Any], found: dict[str, Sandbox]) -> dict[str, Any]:
    place, stack = Place(), contextlib.ExitStack()
    try:
        invocation = Invocation(("/bin/bash", "-c", request["script"]), place.root, place.env)
        os.set_inheritable(place._secret.fileno(), True)
        if request["sandbox"] is None:
            confined = Confined(invocation.argv, invocation.cwd, invocation.env)
        else:
            copies = place.copies() if request["sandbox"].endswith(COPIES) else None
            rest = request["policy"]
            if rest.get("network") == "proxy":
                rest["network"], listener = proxied(request["sandbox"], found[request["sandbox"]])
                stack.enter_context(listener)
            confined = found[request["sandbox"]].confine(invocation, place.policy(copies=copies, **rest), place.files)
        try:
            process = start(confined, leak=request["sandbox"] is None)
            timer = threading.Timer(SECONDS, process.kill)
            timer.start()
            out, err = process.communicate()
            timer.cancel()
        finally:
            confined.close()
        left = sorted(path.name for path in place.root.iterdir())
        config = (place.root / ".git/config").read_text() if (place.root / ".git/config").is_file() else ""
        reached = place.reached()
        return {"code": process.returncode, "out": out, "err": err, "left": left, "config": config, "reached": reached}
    except ExecutorError as error:
        return {"code": -1, "out": "", "err": str(error), "left": [], "config": "", "reached": []}
    finally:
        stack.close()
        place.close()


def main() -> None:
    uid = int(sys.argv[1])
    if uid != os.geteuid():
        os.setgroups([])
        os.setgid(uid)
        os.setuid(uid)
    os.umask(0o022)
    sys.executable = PYTHON  # Ours may be in the home of another user.
    found = sandboxes()
    print(json.dumps("ready"), flush=True)  # noqa: T201 - this is how it answers
    for line in sys.stdin:
        request = json.loads(line)
        if "hang" in request:  # until it is killed
            place = Place()
            confined = found[request["sandbox"]].confine(
                Invocation(("/bin/bash", "-c", request["hang"]), place.root, place.env), place.policy(), place.files
            )
            started = start(confined, leak=False)
            assert started.stdout is not None
            answer = {"out": started.stdout.readline(), "folder": str(place.root.parent), "holder": place._holder.pid}
            print(json.dumps(answer), flush=True)  # noqa: T201
            signal.pause()
        print(json.dumps(serve(request, found)), flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
