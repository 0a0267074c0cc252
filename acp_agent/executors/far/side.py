"""The program over there: runs commands and does what is asked with files, for one session.

It is sent when a session first uses a host, with the modules it needs (`program.py`), and needs nothing but Python 3.9.
The first process only passes on what comes and goes; the keeper behind it has a socket in a private folder, to which
another such process leads after a link was lost. So commands go on meanwhile. It ends when it is told to, or has not
heard of the agent for `linger` seconds; with it everything that carries the session's mark.
"""

from __future__ import annotations

import contextlib
import hmac
import json
import os
import select
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from acp_agent.disk import LocalDisk
from acp_agent.errors import ExecutorError
from acp_agent.executors import files, tree
from acp_agent.executors.default_signals import default_signals
from acp_agent.executors.far.far_peer import SHOWN, STATE, Header, Link, Lost, Peer, Refused, write_all
from acp_agent.executors.far.far_values import packed, unpacked
from acp_agent.executors.marked import kill_round
from acp_agent.lazy import load
from acp_agent.own_programs import find_program

TYPE_CHECKING = False
if TYPE_CHECKING:
    from acp_agent.executors.sandbox.base import Confined

PREFIX = "acp-coder-far-"
SOCKET, OWNER = "socket", "owner"
LINE = 4096
THREADS = 8
PIPE = 65_536
CREDIT = 1024 * 1024
DRAINED = 64
"""Reads of what a pipe still holds when its command has ended."""
ROUNDS, PAUSE = 100, 0.005
UNCLEAR = 4
"""Rounds in which only processes without an environment may have been ours."""
LOGIN_SECONDS = 5.0
MOST_STATE = 4 * CREDIT
ACCEPTS = 1.0
PROGRAMS = ("bash", "git", "rg", "tmux")


def learn(modules: bytes) -> None:
    """Makes more modules importable; replaced by the program (`program.py`)."""
    raise RuntimeError(f"{len(modules)} bytes of modules, and nobody to take them")


_disk = LocalDisk()
CALLS: dict[str, Callable[..., Any]] = {
    f"{call.__module__.rpartition('.')[2]}.{call.__name__}": call
    for call in (
        *(files.read, files.part, files.write_text, files.need_plain, files.look_at, files.entries, files.lines_of),
        files.kinds,
        *(tree.make_directory, tree.remove, tree.move, tree.copy),
        *(_disk.real_path, _disk.kind, _disk.stands, _disk.is_link, _disk.matches),
        *(_disk.text, _disk.head, _disk.names, _disk.holds, _disk.below),
    )
}


class Side:
    """What serves one session. Its methods are called in the thread that reads, and do not wait."""

    def __init__(self, mark: str, folder: Path, heartbeat: float) -> None:
        self._mark = mark
        self._folder = folder
        self.peer = Peer(self._handle, heartbeat=heartbeat)
        self.ended, self.over = threading.Event(), threading.Event()
        """Nothing begins any more; and its end was told."""
        self._pool = ThreadPoolExecutor(THREADS)
        self._cancelled: dict[int, threading.Event] = {}
        self._runs: dict[int, subprocess.Popen[bytes]] = {}
        self._credit: dict[int, _Credit] = {}
        self._listed: dict[int, dict[str, int]] = {}
        self._walls: Any = None
        """The session's `SideWalls`."""
        self._held: dict[str | int, Confined] = {}
        """What confines what runs, by its number; programs in terminals by their mark."""
        self._alone = threading.Lock()
        """Held by what begins or ends something: what confines counts, and a program that is just written cannot be
        started while it is open in another one that begins."""

    def _handle(self, header: Header, data: bytes) -> None:
        what, number = header["do"], header.get("id", 0)
        if what == "call":
            self._cancelled[number] = threading.Event()
            self._pool.submit(self._answer, number, lambda: self._call(header))
        elif what == "list":
            about = header["ticket"], header["path"], header["most"]
            self._pool.submit(self._answer, number, lambda: self._list(*about))
        elif what == "cancel":
            if (event := self._cancelled.get(header["call"])) is not None:
                event.set()
        elif what == "walls":
            self._pool.submit(self._answer, number, lambda: self._find_walls(header["row"], header["given"], data))
        elif what == "told":
            self._pool.submit(self._answer, number, lambda: self._walls.lines())
        elif what == "confine":
            self._pool.submit(self._answer, number, lambda: self._confine_terminal(header))
        elif what == "run":
            self._pool.submit(self._answer, number, lambda: self._start(header))
        elif what == "kill":
            work = lambda: self._kill(header["run"], header["mark"], header["grace"])  # noqa: E731
            threading.Thread(target=self._answer, args=(number, work), daemon=True).start()
        elif what == "heard":
            if (credit := self._credit.get(header["run"])) is not None:
                credit.add(header["bytes"])
        elif what == "put":
            self._pool.submit(self._answer, number, lambda: self._put(header["name"], data))
        elif what == "end":
            threading.Thread(target=self._end, args=(number,), daemon=True).start()

    def _answer(self, number: int, work: Callable[[], Any]) -> None:
        answer: Header = {"id": number}
        try:
            answer["value"] = packed(work())
        except FileNotFoundError as error:
            answer |= {"error": "missing", "words": error.filename and str(error.filename)}
        except OSError as error:
            answer |= {"error": "os", "words": [error.errno, error.strerror or str(error)]}
        except (ExecutorError, Refused) as error:
            answer |= {"error": "executor", "words": str(error.args[-1])}
        except Lost:
            return
        except ValueError as error:
            answer |= {"error": "value", "words": str(error)}
        except Exception as error:  # noqa: BLE001 - Whoever asked would wait for ever.
            answer |= {"error": "executor", "words": f"{type(error).__name__}: {error}"}
        finally:
            self._cancelled.pop(number, None)
        with contextlib.suppress(Lost):
            self.peer.send(answer)

    # --- files ------------------------------------------------------------------------------------------------

    def _call(self, header: Header) -> Any:
        number = header["id"]
        call = CALLS[header["name"]]
        options: dict[str, Any] = {}
        approved = self._approved(**header["approved"]) if header.get("approved") else set()
        if header.get("judged"):

            def judged(doing: str, path: Path, mode: int) -> None:
                if (doing, str(path), stat.S_IFMT(mode)) not in approved:
                    self._ask(number, "judge", [doing, str(path), mode])

            options["judged"] = judged
        if header.get("hides"):
            shown = {path for doing, path, _ in approved if doing == SHOWN}
            options["hides"] = lambda path: str(path) not in shown and self._ask(number, "hides", [str(path)])
        if header.get("check"):
            options["check"] = lambda: self._check(number)
        return call(*unpacked(header["arguments"]), **options)

    def _list(self, ticket: int, path: str, most: int) -> list[tuple[str, int]] | None:
        """What is in a tree, to be judged by who asks; kept for the call that then touches it."""
        found = _disk.below(Path(path), most)
        if found is not None:
            self._listed[ticket] = {name: stat.S_IFMT(mode) for name, mode in found}
            while len(self._listed) > THREADS:  # Nobody came for it.
                self._listed.pop(next(iter(self._listed)), None)
        return found

    def _approved(
        self, ticket: int, places: list[tuple[str, str]], refused: list[tuple[int, str]]
    ) -> set[tuple[str, str, int]]:
        """What may be done with those that were listed: `places` are what is done, and below which path. `refused`: the
        number of the place, and the name."""
        listed, not_so = self._listed.pop(ticket, {}), {(index, name) for index, name in refused}
        return {
            (doing, str(Path(place, name)), kind)
            for index, (doing, place) in enumerate(places)
            for name, kind in listed.items()
            if (index, name) not in not_so
        }

    def _ask(self, number: int, what: str, about: list[Any]) -> Any:
        self._check(number)
        return self.peer.ask({"do": what, "call": number, "about": about}).result()[0]

    def _check(self, number: int) -> None:
        if (event := self._cancelled.get(number)) is not None and event.is_set():
            raise ExecutorError("it was cancelled")

    def _put(self, name: str, data: bytes) -> str:
        """A file to be run outside of all that confines."""
        path = (self._folder if self._walls is None else self._walls.scripts) / os.path.basename(name)
        with self._alone:
            path.write_bytes(data)
        return str(path)

    # --- commands ---------------------------------------------------------------------------------------------

    def _start(self, header: Header) -> int:
        number, state = header["run"], header.get("state")
        cwd = header["cwd"]
        if not os.path.isdir(cwd):
            raise ExecutorError(f"the working directory {cwd} does not exist")
        kept, confined = None, header["confined"]
        if state is not None:
            kept = _kept(self._walls.states if confined else self._folder, state)
        argv = [part.replace(STATE, str(kept)) for part in header["argv"]]
        with _removed_unless_done(kept):
            if confined:
                self._walls.look()
            with self._alone:
                self._need_going()
                popen = self._begun(number, argv, cwd, header["env"], confined=confined)
                self._runs[number] = popen
                self._credit[number] = _Credit()
        threading.Thread(target=self._pump, args=(number, popen, kept), daemon=True).start()
        return popen.pid

    def _begun(
        self, number: int, argv: list[str], cwd: str, env: dict[str, str], *, confined: bool
    ) -> subprocess.Popen[bytes]:
        numbers: dict[int, int] = {}
        try:
            if confined:
                made = self._held[number] = self._walls.confine(argv, cwd, env)
                numbers = made.open_files()
                argv, cwd, env = list(made.argv_with(numbers)), str(made.cwd), dict(made.env)
            return subprocess.Popen(
                argv,
                cwd=cwd,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
                pass_fds=tuple(numbers.values()),
            )
        except BaseException as error:
            if (held := self._held.pop(number, None)) is not None:
                held.close()
            if isinstance(error, (OSError, ValueError)):
                raise ExecutorError(f"the command could not be started: {error}") from error
            raise
        finally:
            for descriptor in numbers.values():
                os.close(descriptor)

    def _need_going(self) -> None:
        if self.ended.is_set():
            raise ExecutorError("the session has ended")

    def _release(self, run: str | int) -> None:
        """Ends what is confined, and removes what was made for it."""
        with self._alone:
            if (confined := self._held.pop(run, None)) is not None:
                with contextlib.suppress(OSError):
                    confined.close()

    def _find_walls(self, row: str, given: dict[str, Any], modules: bytes) -> dict[str, Any]:
        """What confines commands from now on, in words. That nothing does is no error."""
        try:
            learn(modules)
            with self._alone:
                self._need_going()
                self._walls = load(row)(given)
                about: dict[str, Any] = self._walls.about
        except Exception as error:  # noqa: BLE001 - It was made for other systems than this one.
            return {"kind": "none", "trouble": [f"{type(error).__name__}: {error}"]}
        return about

    def _confine_terminal(self, header: Header) -> dict[str, Any]:
        """How a program begins, confined, in a terminal that is at the end of another connection."""
        kept = _kept(self._walls.states, header["state"])
        argv = [part.replace(STATE, str(kept)) for part in header["argv"]]
        with _removed_unless_done(kept):
            self._walls.look()
            with self._alone:
                self._need_going()
                confined = self._walls.confine(argv, header["cwd"], header["env"], in_terminal=True)
                self._held[header["mark"]] = confined
        files = [(number, str(path), number in confined.written) for number, path in confined.files.items()]
        return {"argv": list(confined.argv), "cwd": str(confined.cwd), "env": dict(confined.env), "files": files}

    def _pump(self, number: int, popen: subprocess.Popen[bytes], kept: Path | None) -> None:
        assert popen.stdout is not None and popen.stderr is not None
        names = {popen.stdout.fileno(): "stdout", popen.stderr.fileno(): "stderr"}
        ended, tells = os.pipe()
        threading.Thread(target=_wait, args=(popen, tells), daemon=True).start()
        watch = select.poll()
        for descriptor in (*names, ended):
            watch.register(descriptor, select.POLLIN | select.POLLHUP)
        with contextlib.suppress(Lost):
            over = False
            while not over:
                for descriptor, _ in watch.poll():
                    if descriptor == ended:
                        over = True
                    elif not self._pass_on(number, names[descriptor], descriptor):
                        watch.unregister(descriptor)
                        del names[descriptor]
            for descriptor, name in names.items():
                os.set_blocking(descriptor, False)
                with contextlib.suppress(BlockingIOError):
                    for _ in range(DRAINED):
                        if not self._pass_on(number, name, descriptor):
                            break
            self._release(number)
            code, state, cwd = popen.returncode, b"", b""
            if kept is not None:
                state, cwd = _taken(kept), _taken(kept.with_name(f"{kept.name}.cwd"))
            told = {"do": "ended", "run": number, "code": code, "cwd": cwd.decode("utf-8", "surrogateescape")}
            self.peer.send(told, state)
        self._release(number)
        self._runs.pop(number, None)
        self._credit.pop(number, None)
        os.close(ended)
        popen.stdout.close()
        popen.stderr.close()

    def _pass_on(self, number: int, stream: str, descriptor: int) -> bool:
        data = os.read(descriptor, PIPE)
        if data:
            self._credit[number].take(len(data))
            self.peer.send({"do": "printed", "run": number, "stream": stream}, data, waits=True)
        return bool(data)

    def _kill(self, number: int, mark: str, grace: float) -> bool:
        """Whether nothing of it is left."""
        popen = self._runs.get(number)
        if (credit := self._credit.get(number)) is not None:
            credit.no_limit()
        if popen is not None:
            _signal(popen.pid, signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                popen.wait(grace)
            _signal(popen.pid, signal.SIGKILL)
        gone = _gone(mark)
        self._release(mark)
        return gone

    def _end(self, number: int) -> None:
        gone = self.close()
        self._answer(number, lambda: gone)
        self.peer.flush(1.0)
        self.over.set()

    def close(self) -> bool:
        """Ends everything of the session, and says whether nothing is left."""
        with self._alone:  # Nothing begins any more.
            self.ended.set()
        for popen in list(self._runs.values()):
            _signal(popen.pid, signal.SIGKILL)
        gone = _gone(self._mark)
        for run in list(self._held):
            self._release(run)
        with self._alone:
            if self._walls is not None:
                self._walls.close()
        shutil.rmtree(self._folder, ignore_errors=True)
        return gone


class _Credit:
    """How much of a command's output may be sent before somebody has read it: as in a pipe, it then waits."""

    def __init__(self) -> None:
        self._left: float = CREDIT
        self._state = threading.Condition()

    def add(self, size: float) -> None:
        with self._state:
            self._left += size
            self._state.notify_all()

    def no_limit(self) -> None:
        self.add(float("inf"))

    def take(self, size: int) -> None:
        with self._state:
            while self._left <= 0:
                self._state.wait()
            self._left -= size


def _wait(popen: subprocess.Popen[bytes], tells: int) -> None:
    popen.wait()
    os.close(tells)


def _signal(group: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def _gone(mark: str) -> bool:
    clear = 0
    for _ in range(ROUNDS):
        killed, unclear = kill_round(mark)
        clear = 0 if killed else clear + 1
        if clear and (not unclear or clear > UNCLEAR):
            return True
        time.sleep(PAUSE)
    return False


@contextlib.contextmanager
def _removed_unless_done(file: Path | None) -> Iterator[None]:
    try:
        yield
    except BaseException:
        if file is not None:
            file.unlink(missing_ok=True)
        raise


def _kept(folder: Path, state: str) -> Path:
    """A new file in a folder that commands may write."""
    path = folder / f"state-{os.urandom(8).hex()}"
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600), "wb") as file:
        file.write(state.encode("utf-8", "surrogateescape"))
    return path


def _taken(path: Path) -> bytes:
    """What a command left there, if it is a file: no link is followed to what the command may not see."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with open(descriptor, "rb") as file:
            found = file.read(MOST_STATE) if stat.S_ISREG(os.fstat(descriptor).st_mode) else b""
        path.unlink()
    except OSError:
        return b""
    return found


# --- the keeper and who passes on -----------------------------------------------------------------------------------


def begin(mark: str, owner: str, linger: float, heartbeat: float, nonce: str) -> None:
    """Over there, in the process that was started: makes a keeper, passes on until the link ends."""
    default_signals()
    folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=_short_folder()))
    (folder / OWNER).write_text(owner)
    listens = socket.socket(socket.AF_UNIX)
    listens.bind(str(folder / SOCKET))
    listens.listen(4)
    token = os.urandom(16).hex()
    if os.fork() == 0:
        os.setsid()
        if os.fork():
            os._exit(0)
        _silent()
        with contextlib.suppress(BaseException):
            _keep(listens, token, Side(mark, folder, heartbeat), linger)
        os._exit(0)
    listens.close()
    os.wait()
    hello = {"token": token, "socket": str(folder / SOCKET), **about()}
    os.write(1, f"\n{nonce}{json.dumps(hello)}\n".encode())
    pass_on(str(folder / SOCKET))


def about() -> dict[str, Any]:
    """What is there."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("SSH_", "ACP_CODER_"))}
    paths = [*_login_path().split(":"), *environ.get("PATH", os.defpath).split(":")]
    environ["PATH"] = ":".join(dict.fromkeys(filter(None, paths)))  # A container's image may name more.
    programs = {name: find_program(name, environ) or "" for name in PROGRAMS}
    return {
        "environ": environ,
        "programs": programs,
        "python": [sys.executable, sys.version.split()[0]],
        "system": " ".join(os.uname()[i] for i in (0, 2, 4)),
        "others": others(),
    }


def others() -> list[list[str]]:
    """The sockets and owners of the user's other keepers."""
    found = []
    for folder in Path(_short_folder()).glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):
            if folder.lstat().st_uid == os.getuid():
                found.append([str(folder / SOCKET), (folder / OWNER).read_text()])
    return found


def _short_folder() -> str:
    """Where a socket's name is short enough."""
    return "/tmp" if os.access("/tmp", os.W_OK) else tempfile.gettempdir()


def _login_path() -> str:
    shell = os.environ.get("SHELL", "/bin/sh")
    try:
        done = subprocess.run(
            [shell, "-l", "-c", 'printf "\\n%s" "$PATH"'],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=LOGIN_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    path = done.stdout.rpartition(b"\n")[2].decode("utf-8", "surrogateescape")
    return path if done.returncode == 0 and path.startswith("/") else ""


def _silent() -> None:
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nothing, descriptor)
    os.close(nothing)
    for number in (signal.SIGHUP, signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    default_signals()  # What runs there can be interrupted and ended.


def _keep(listens: socket.socket, token: str, side: Side, linger: float) -> None:
    heard = time.monotonic()
    listens.settimeout(ACCEPTS)
    while not side.over.is_set():
        link = side.peer.link
        heard = max(heard, link.heard if link is not None else 0.0)
        if time.monotonic() - heard > linger or side.peer.over:
            side.close()
            return
        try:
            made, _ = listens.accept()
        except OSError:
            continue
        made.settimeout(LOGIN_SECONDS)
        try:
            what, given, received = _line(made).split(" ")
            if not hmac.compare_digest(given, token) and what != "end":
                raise ValueError
            if what == "end":  # By the folder's permissions, from this user alone.
                side.close()
                return
            made.sendall(f"resumed {side.peer.received}\n".encode())
            made.settimeout(None)
            side.peer.use(_link(made), int(received))
            heard = time.monotonic()
        except (OSError, ValueError):
            made.close()


def _link(made: socket.socket) -> Link:
    def close() -> None:
        with contextlib.suppress(OSError):
            made.shutdown(socket.SHUT_RDWR)

    return Link(made.fileno(), made.fileno(), close, made.close)


def _line(made: socket.socket) -> str:
    """A line and no more."""
    said = b""
    while not said.endswith(b"\n") and len(said) < LINE:
        data = made.recv(1)
        if not data:
            break
        said += data
    return said.decode().strip()


def pass_on(name: str) -> None:
    """Between the link's streams and the keeper's socket, until one of them ends."""
    made = socket.socket(socket.AF_UNIX)
    made.connect(name)
    there = made.fileno()

    def carry(reads: int, writes: int) -> None:
        with contextlib.suppress(OSError):
            while data := os.read(reads, PIPE):
                write_all(writes, data)
        os._exit(0)

    threading.Thread(target=carry, args=(0, there), daemon=True).start()
    carry(there, 1)


def end_other(name: str) -> None:
    """Ends what a killed agent left: its keeper, or, where that is gone, its folder."""
    made = socket.socket(socket.AF_UNIX)
    try:
        made.connect(name)
        made.sendall(b"end - 0\n")
        made.recv(1)
    except OSError:
        shutil.rmtree(os.path.dirname(name), ignore_errors=True)
