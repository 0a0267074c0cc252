"""A real PostgreSQL of Debian, in a temporary folder, on a Unix socket."""

import os
import pwd
import shutil
import subprocess
import tempfile
from pathlib import Path
from threading import Thread

BINARIES = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"))
MISSING = "" if BINARIES else "PostgreSQL is not installed (apt-get install postgresql)"
READY = b"database system is ready to accept connections"
FAST = ("-c", "fsync=off", "-c", "full_page_writes=off", "-c", "max_connections=50", "-c", "shared_buffers=32MB")


class PostgresServer:
    """It refuses to run as root, so it runs as another user then."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="acp-pg-", dir="/tmp"))
        self._process: subprocess.Popen[bytes] | None = None
        self._reader: Thread | None = None
        self._as: list[str] = []
        if os.geteuid() == 0:
            names = {each.pw_name for each in pwd.getpwall()}
            user = pwd.getpwnam("postgres" if "postgres" in names else "nobody")
            os.chown(self.folder, user.pw_uid, user.pw_gid)
            self._as = ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"]
        self._data = self.folder / "data"
        self._run("initdb", "-D", str(self._data), "-U", "acp", "-A", "trust", "-E", "UTF8", "--locale=C.UTF-8", "-N")
        self.start()

    def _run(self, program: str, *arguments: str) -> None:
        command = [*self._as, str(BINARIES[-1].with_name(program)), *arguments]
        subprocess.run(command, check=True, capture_output=True, timeout=120, cwd="/")

    def url(self, **more: str) -> str:
        options = "&".join(f"{name}={value}" for name, value in {"host": str(self.folder), **more}.items())
        return f"postgresql://acp@/postgres?{options}"

    def start(self) -> None:
        socket = ("-c", "listen_addresses=", "-c", f"unix_socket_directories={self.folder}")
        command = [*self._as, "setpriv", "--pdeathsig=INT", str(BINARIES[-1]), "-D", str(self._data), *socket, *FAST]
        self._process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, cwd="/")
        assert self._process.stderr is not None
        said = b""
        for line in self._process.stderr:
            said += line
            if READY in line:
                break
        else:
            raise AssertionError(f"PostgreSQL did not start: {said.decode()}")
        self._reader = Thread(target=self._process.stderr.read, daemon=True)
        self._reader.start()  # Of what it logs: where nobody reads, it would stand still once the pipe is full.

    def stop(self) -> None:
        """At once: what is connected loses its connection."""
        if self._process is not None:
            self._process.send_signal(2)  # A fast shutdown.
            self._process.wait(30)
            assert self._reader is not None and self._process.stderr is not None
            self._reader.join(30)
            self._process.stderr.close()
            self._process = None

    def remove(self) -> None:
        self.stop()
        shutil.rmtree(self.folder)
