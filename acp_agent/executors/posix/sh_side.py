"""What stands for the program over there where a host has no Python: a POSIX `sh` there (`sh_program`), the rest here.

It has of a `Peer` what `FarLink` uses, and answers what `side` answers. Commands run there behind a small script that
outlives a link (`wrap`); their output is kept there in segments until it is read (`pump`), so a lost link loses
nothing, and who prints more than is read waits. What the session left there ends after `linger` seconds without a
question.
"""

from __future__ import annotations

import itertools
import logging
import os
import shlex
import threading
import time
import uuid
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from acp_agent.errors import ExecutorError
from acp_agent.executors.far.far_peer import STATE, Header, Link, Lost, Refused
from acp_agent.executors.far.far_values import packed, unpacked
from acp_agent.executors.places.far_process import begun
from acp_agent.executors.places.starter import exports
from acp_agent.executors.posix.sh_files import ShFiles
from acp_agent.executors.posix.sh_program import PREFIX, words
from acp_agent.executors.posix.sh_shell import CODES, Failed, ShShell, ShState
from acp_agent.executors.posix.sh_trees import ShTrees

log = logging.getLogger(__name__)

THREADS = 8
CREDIT = 4 * 1024 * 1024
"""Bytes of a command's output that may be here before somebody has read them."""
LOOKS = (0.005, 0.01, 0.02, 0.04, 0.1)
"""Seconds between two looks at a command that prints nothing; the last one from then on."""
KILL_LOOKS, MOST_KILL_LOOKS = 0.01, 1500
SIGNALLED = 128
ABOUT = ("system", "path", "bash", "git", "rg", "tmux")
NOT_OF_A_LOGIN = ("SSH_", "ACP_CODER_", "LC_ALL", "PWD", "OLDPWD", "SHLVL", "_")

Decides = tuple[Callable[..., None] | None, Callable[..., bool] | None]
"""What judges a call's entries, and what hides them."""


class ShSide:
    """`handle`: takes what is told of commands, as that of `Peer`. `deciding`: who decides about a call, by its
    number."""

    link: Link | None = None
    received = 0

    def __init__(
        self,
        state: ShState,
        heartbeat: float,
        handle: Callable[[Header, bytes], None],
        deciding: Callable[[int], Decides],
    ) -> None:
        self._state = state
        self._heartbeat = heartbeat
        self._handle, self._deciding = handle, deciding
        self._shell, self._runs_shell = ShShell(state), ShShell(state)
        files = self._files = ShFiles(self._shell)
        trees = ShTrees(files)
        self._calls: dict[str, Callable[..., Any]] = {
            **{f"files.{each.__name__}": each for each in (files.read, files.part, files.write_text)},
            "files.need_plain": files.need_plain,
            **{f"files.{each.__name__}": each for each in (files.look_at, files.entries, files.lines_of, files.kinds)},
            **{f"tree.{each.__name__}": each for each in (trees.make_directory, trees.remove, trees.move, trees.copy)},
            **{f"disk.{each.__name__}": each for each in (files.real_path, files.kind, files.stands, files.is_link)},
            **{f"disk.{each.__name__}": each for each in (files.matches, files.text, files.head, files.names)},
            **{f"disk.{each.__name__}": each for each in (files.holds, files.below)},
        }
        self._pool = ThreadPoolExecutor(THREADS)
        self._numbers = itertools.count(1)
        self._cancelled: dict[int, threading.Event] = {}
        self._runs: dict[int, _Run] = {}

    def begin(self) -> Header:
        """What is there, as `side.about`. Raises ExecutorError."""
        nonce = uuid.uuid4().hex
        try:
            told = self._shell.ask(f"about {nonce}")
        except (Failed, Lost) as error:
            raise ExecutorError(str(error.args[-1])) from error
        text, _, listed = told.decode("utf-8", "surrogateescape").partition(f"{nonce}\n")
        lines = text.splitlines()
        if len(lines) < len(ABOUT):
            raise ExecutorError("its shell did not answer as a shell does")
        found = dict(zip(ABOUT, lines, strict=False))
        environ = dict(pair.split("=", 1) for pair in listed.split("\0") if "=" in pair)
        environ = {name: value for name, value in environ.items() if not name.startswith(NOT_OF_A_LOGIN)}
        environ["PATH"] = found["path"] if found["path"].startswith("/") else environ.get("PATH", os.defpath)
        threading.Thread(target=self._beat, daemon=True).start()
        return {
            "environ": environ,
            "programs": {name: found[name] for name in ABOUT[2:]},
            "python": ["", ""],
            "system": found["system"],
            "others": [line.split(" ", 1) for line in lines[len(ABOUT) :] if " " in line],
            "token": "",
            "socket": self._state.folder,
        }

    # --- as `Peer` ------------------------------------------------------------------------------------------------

    @property
    def over(self) -> str:
        return self._state.over

    def next_number(self) -> int:
        return next(self._numbers)

    def ask(self, header: Header, data: bytes = b"", number: int = 0) -> Future[tuple[Any, bytes]]:
        if self._state.over:
            raise Lost(self._state.over)
        future: Future[tuple[Any, bytes]] = Future()
        number = number or self.next_number()
        work = partial(self._do, header, data, number)
        if header["do"] == "call":
            self._cancelled[number] = threading.Event()
        if header["do"] in ("kill", "end"):
            threading.Thread(target=self._answer, args=(future, number, work), daemon=True).start()
        else:
            self._pool.submit(self._answer, future, number, work)
        return future

    def send(self, header: Header, data: bytes = b"", *, waits: bool = False) -> None:
        if header.get("do") == "cancel" and (event := self._cancelled.get(header["call"])) is not None:
            event.set()
        elif header.get("do") == "heard" and (run := self._runs.get(header["run"])) is not None:
            run.heard(header["bytes"])

    def end(self, why: str) -> None:
        self._state.over = self._state.over or why
        self._state.closed.set()
        for run in list(self._runs.values()):
            run.heard(float("inf"))
        for shell in (self._shell, self._runs_shell):
            shell.end()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def end_other(self, folder: str) -> None:
        """Ends what a killed agent left in that folder."""
        if Path(folder).name.startswith(PREFIX):
            with suppress(Failed, Lost, ExecutorError):
                self._shell.ask(f"quit {words(folder)}")

    # --- answers; in threads --------------------------------------------------------------------------------------

    def _answer(self, future: Future[tuple[Any, bytes]], number: int, work: Callable[[], Any]) -> None:
        if not future.set_running_or_notify_cancel():
            return
        failure: Exception = Refused("executor", "it broke; see the log")  # Whoever asked would wait for ever.
        try:
            future.set_result((packed(work()), b""))
            return
        except FileNotFoundError as error:
            failure = Refused("missing", error.filename and str(error.filename))
        except OSError as error:
            failure = Refused("os", [error.errno, error.strerror or str(error)])
        except ExecutorError as error:
            failure = Refused("executor", str(error))
        except Failed as error:
            failure = Refused("executor", str(error.about(Path("/"))))
        except Lost as error:
            failure = error
        except ValueError as error:
            failure = Refused("value", str(error))
        except (LookupError, TypeError) as error:  # What came is not as it should be.
            failure = Refused("executor", f"its shell did not answer as a shell does: {error}")
        finally:
            self._cancelled.pop(number, None)
            with suppress(InvalidStateError):  # It has its result.
                future.set_exception(failure)

    def _do(self, header: Header, data: bytes, number: int) -> Any:
        what = header["do"]
        if what == "call":
            return self._call(header, number)
        if what == "run":
            return self._start(header)
        if what == "kill":
            return self._kill(header["run"], header["mark"], header["grace"])
        if what == "put":
            name = os.path.basename(header["name"])
            said = f'mv "$D/i.$$" "$D"/{words(name)} && chmod 700 "$D"/{words(name)}'
            self._shell.once(said, data)
            return f"{self._state.folder}/{name}"
        if what == "walls":
            return {"kind": "none", "trouble": ["there is no Python, which the sandbox needs"]}
        if what == "end":
            return self._runs_shell.ask(f"quit {words(self._state.folder)}") == b"gone\n"
        return None  # `list`: each entry is judged when it is looked at.

    def _call(self, header: Header, number: int) -> Any:
        judged, hides = self._deciding(number)
        cancelled = self._cancelled[number]

        def check() -> None:
            if cancelled.is_set():
                raise ExecutorError("it was cancelled")

        options: dict[str, Any] = {"judged": judged} if header.get("judged") else {}
        options |= {"hides": hides} if header.get("hides") else {}
        options |= {"check": check} if header.get("check") else {}
        return self._calls[header["name"]](*unpacked(header["arguments"]), **options)

    def _beat(self) -> None:
        while not self._state.closed.wait(self._heartbeat):
            with suppress(Failed, Lost, ExecutorError, ValueError):
                (self._runs_shell if self._runs_shell.begun else self._shell).ask(': >"$D/heard"')

    # --- commands -------------------------------------------------------------------------------------------------

    def _start(self, header: Header) -> int:
        number = header["run"]
        folder, nonce = f"{self._state.folder}/r{number}", uuid.uuid4().hex
        argv = [part.replace(STATE, f"{folder}/state") for part in header["argv"]]
        state = (header["state"] or "").encode("utf-8", "surrogateescape")
        script = (
            f"rm -f {words(folder)}/script; echo $$ >{words(folder)}/pid\n"
            f"[ ! -e {words(folder)}/stop ] || exit 143\n{exports(header['env'])}"
            f"cd -- {shlex.quote(header['cwd'])} || exit 126\numask $1\nexec {shlex.join(argv)}\nexit 126\n"
        ).encode("utf-8", "surrogateescape")
        body = f"run {words(number, header['cwd'], self._state.way.mark, nonce, len(state))}"
        run = self._runs[number] = _Run(self._runs_shell, number, nonce)
        try:
            self._runs_shell.ask(body, script + state)
        except BaseException:
            self._runs.pop(number, None)
            raise
        threading.Thread(target=self._follow, args=(run,), daemon=True).start()
        return 0

    def _follow(self, run: _Run) -> None:
        code, cwd, state = None, b"", b""
        try:
            for stream, data in run.follow():
                self._handle({"do": "printed", "run": run.number, "stream": stream}, data)
            code, (cwd, state) = run.code, run.left()
        except (Lost, Failed, ExecutorError, ValueError, LookupError, TypeError) as error:
            log.warning("%s: a command cannot be followed: %s", self._state.way.words, error)
            self._state.over = self._state.over or "its shell did not answer as a shell does"
        finally:
            self._runs.pop(run.number, None)
            told = {"do": "ended", "run": run.number, "code": code, "cwd": cwd.decode("utf-8", "surrogateescape")}
            self._handle(told, state)

    def _kill(self, number: int, mark: str, grace: float) -> bool:
        """Whether nothing of it is left."""
        name = uuid.uuid4().hex
        if (run := self._runs.get(number)) is not None:
            run.killed = True
            run.heard(float("inf"))
        pauses = round(grace / 0.02)
        self._runs_shell.ask(f"kills {words(mark, number, pauses, name)}")
        for _ in range(MOST_KILL_LOOKS):
            if told := self._runs_shell.ask(f'if [ -e "$D/k.{name}" ]; then cat "$D/k.{name}"; rm "$D/k.{name}"; fi'):
                return told == b"gone\n"
            time.sleep(KILL_LOOKS)
        return False


class _Run:
    """A command over there, and how far its output was read."""

    def __init__(self, shell: ShShell, number: int, nonce: str) -> None:
        self.number = number
        self.killed = False
        self._shell = shell
        self._marker = b"\x1e" + nonce.encode()
        self._told = b""
        self._segments = {"stdout": (0, 0), "stderr": (0, 0)}
        """The segment that is read, and how far."""
        self._held = {"stdout": b"", "stderr": b""}
        self._left: float = CREDIT
        self._state = threading.Condition()

    def heard(self, size: float) -> None:
        with self._state:
            self._left += size
            self._state.notify_all()

    @property
    def code(self) -> int | None:
        """Negative: the signal; `None` if it is not known."""
        told = self._told.strip().decode("latin-1")
        if told not in CODES:
            return None
        code = int(told)
        return SIGNALLED - code if self.killed and code > SIGNALLED else code

    def follow(self) -> Any:
        """What it prints, until it has ended: stream and bytes. Raises Lost, Failed, ExecutorError."""
        looks, ends = iter(LOOKS), {"stdout": False, "stderr": False}
        while not (all(ends.values()) and self._told):
            with self._state:
                while self._left <= 0:
                    self._state.wait()
            nonce = uuid.uuid4().hex
            spots = [number for pair in self._segments.values() for number in pair]
            told = self._shell.ask(f"poll {words(self.number, *spots, nonce)}")
            out, err, self._told = told.split(nonce.encode())
            flags = {"stdout": err[:1], "stderr": self._told[:1]}
            pieces, self._told = {"stdout": out, "stderr": err[1:]}, self._told[1:]
            news = False
            for stream, data in pieces.items():
                segment, at = self._segments[stream]
                closed = flags[stream] in (b"1", b"2")
                self._segments[stream] = (
                    (segment + 1, 0) if closed and flags[stream] == b"1" else (segment, at + len(data))
                )
                news = news or bool(data) or flags[stream] == b"1"
                text = b"" if ends[stream] else self._cut(stream, data)
                ends[stream] = ends[stream] or self._held[stream] == self._marker or flags[stream] == b"2"
                if text:
                    with self._state:
                        self._left -= len(text)
                    yield stream, text
            if all(ends.values()) and not self._told and flags == {"stdout": b"2", "stderr": b"2"}:
                return  # Whoever was to tell how it ended is gone.
            if news:
                looks = iter(LOOKS)
            else:
                time.sleep(next(looks, LOOKS[-1]))

    def _cut(self, stream: str, data: bytes) -> bytes:
        """Up to the marker of the end, at which `_held` is the marker itself."""
        held = self._held[stream] + data
        text, found, _ = held.partition(self._marker)
        kept = 0 if found else begun(held, self._marker)
        self._held[stream] = found or held[len(held) - kept :]
        return text if found else held[: len(held) - kept]

    def left(self) -> tuple[bytes, bytes]:
        """The folder in which its shell ended, and its state; empty if that cannot be read."""
        nonce = uuid.uuid4().hex
        try:
            told = self._shell.once(f"over {words(self.number, nonce)}")
        except Failed:
            return b"", b""
        cwd, _, state = told.partition(nonce.encode())
        return cwd, state
