"""A real OpenSSH server on loopback with keys of its own, and the configuration of a client that knows it as `far`."""

import atexit
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

from msgspec import Struct

PATIENCE = 20.0


class SshServer(Struct, frozen=True):
    config: Path
    """For `ssh -F`."""
    host: str = "far"

    def argv(self, *command: str) -> list[str]:
        return ["ssh", "-F", str(self.config), self.host, *command]


class WithoutPython:
    """The same way to a host that has no Python."""

    def __init__(self, way: Any) -> None:
        self._way = way
        self.words, self.where, self.identity = way.words, way.where, way.identity
        self.mark, self.environ = way.mark, way.environ

    def argv(self, *argv: str, terminal: bool = False) -> tuple[str, ...]:
        argv = ("sh", "-c", "exit 127") if argv[0] == "python3" else argv
        found: tuple[str, ...] = self._way.argv(*argv, terminal=terminal)
        return found


def missing() -> str:
    """What is not installed."""
    return ", ".join(name for name, found in (("ssh", shutil.which("ssh")), ("sshd", _sshd())) if not found)


def _sshd() -> str | None:
    return shutil.which("sshd") or shutil.which("/usr/sbin/sshd")


@contextmanager
def ssh_server(folder: Path) -> Iterator[SshServer]:
    """`folder`: for its files; made."""
    folder.mkdir(mode=0o700)
    sshd = _sshd()
    assert sshd is not None
    for name in ("host", "user"):
        argv = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)]
        subprocess.run(argv, check=True, stdin=subprocess.DEVNULL)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    user = subprocess.run(["id", "-un"], check=True, capture_output=True, text=True).stdout.strip()
    server = folder / "sshd_config"
    server.write_text(
        f"Port {port}\nListenAddress 127.0.0.1\nHostKey {folder}/host\nAuthorizedKeysFile {folder}/user.pub\n"
        f"StrictModes no\nUsePAM no\nPermitRootLogin yes\nPidFile none\nMaxSessions 50\nPasswordAuthentication no\n"
    )
    (folder / "known_hosts").write_text(f"[127.0.0.1]:{port} {(folder / 'host.pub').read_text()}")
    client = folder / "ssh_config"
    client.write_text(
        f"Host far\n  HostName 127.0.0.1\n  Port {port}\n  User {user}\n  IdentityFile {folder}/user\n"
        f"  IdentitiesOnly yes\n  IdentityAgent none\n  UserKnownHostsFile {folder}/known_hosts\n  BatchMode yes\n"
    )
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen([sshd, "-D", "-e", "-f", str(server)], stdin=subprocess.DEVNULL, stderr=log)
    try:
        _until_it_listens(port, process, folder / "log")
        yield SshServer(client)
    finally:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(5)


@cache
def running() -> SshServer:
    """One that ends with this process."""
    stack, folder = ExitStack(), tempfile.mkdtemp(prefix="acp-coder-sshd-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    atexit.register(stack.close)
    return stack.enter_context(ssh_server(Path(folder) / "server"))


def _until_it_listens(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end and process.poll() is None:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.02)
    raise AssertionError(f"sshd does not listen: {log.read_text()}")
