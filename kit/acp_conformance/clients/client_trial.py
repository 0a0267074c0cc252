"""What a question to a client works with: the connection, a session, a folder in it, and what came over the wire."""

from __future__ import annotations

import json
import os
import shlex
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import anyio
from msgspec import Struct

from acp_agent.errors import PeerError
from acp_agent.protocol.connection import Connection
from acp_agent.testing.fake_editor import LineRecorder
from acp_conformance.requirements import Requirement, requirements
from acp_conformance.trial import LOOK, SECONDS, Asker, Wrong

PEOPLE = 12
"""How many times longer a person may take to answer."""
NO_TERMINAL = "kit-no-such-terminal"


class Question(Struct, frozen=True):
    requirement: Requirement
    offered: tuple[str, ...]
    """Capabilities without which it is not asked."""
    run: Callable[[ClientTrial], Awaitable[str | None]]
    """Gives what is worth telling besides; raises Wrong or NotHere."""


QUESTIONS: dict[str, Question] = {}
"""By id of the requirement."""

Run = Callable[["ClientTrial"], Awaitable[str | None]]


def question(id_: str, *offered: str) -> Callable[[Run], Run]:
    """Registers the question for that requirement."""

    def registered(run: Run) -> Run:
        assert id_ not in QUESTIONS, id_
        QUESTIONS[id_] = Question(requirements()[id_], offered, run)
        return run

    return registered


class ClientTrial(Asker):
    """`seconds`: that an answer may take."""

    def __init__(self, connection: Connection, recorder: LineRecorder, seconds: float = SECONDS) -> None:
        self.connection = connection
        self.seconds = seconds
        self.sessions: dict[str, Path] = {}
        """Their folders, by id."""
        self.session = ""
        """The one of the prompt."""
        self.folder = Path()
        """Of our own, in the session's."""
        self.came: list[tuple[str, Any]] = []
        """Methods that the client called, with their parameters."""
        self.answers: dict[Any, dict[str, Any]] = {}
        """By id, to requests of `send`; by None those to no request."""
        self.violations: list[str] | None = []
        """What was wrong with lines of the client; None: they are not checked."""
        self.cancelled = anyio.Event()
        self._recorder = recorder
        self._numbers = count(1)
        self._living: tuple[str, dict[str, Any]] | None = None
        self._open: set[str] = set()
        self._go = Path()

    def patience(self, seconds: float = SECONDS) -> float:
        return self.seconds * seconds / SECONDS

    @property
    def cwd(self) -> Path:
        """Of the prompt's session, or of the last one if there is no such session."""
        return self.sessions.get(self.session) or next(reversed(self.sessions.values()), Path())

    def begin(self, session: str) -> None:
        """A prompt in that session: makes the folder."""
        self.session, self.cancelled, self._living = session, anyio.Event(), None
        try:
            self.folder = Path(tempfile.mkdtemp(prefix="acp-kit-", dir=self.cwd))
        except OSError:  # It cannot be written to.
            self.folder = Path(tempfile.mkdtemp(prefix="acp-kit-"))
        (self.folder / "pear.txt").write_text("green\n", encoding="utf-8")

    # --- asking ---------------------------------------------------------------------------------------------------

    async def call(self, method: str, *, seconds: float = SECONDS, **params: Any) -> Any:
        """A request of this session; the result."""
        return await self.ask(method, {"sessionId": self.session, **params}, seconds=seconds)

    async def told(
        self, method: str, member: str = "", kind: type = object, *, seconds: float = SECONDS, **params: Any
    ) -> dict[str, Any]:
        """The result of a request of this session. Raises Wrong if it is no object with such a member."""
        answer = await self.call(method, seconds=seconds, **params)
        if not isinstance(answer, dict) or not isinstance(answer.get(member), kind):
            raise Wrong(f"`{method}` was answered with {json.dumps(answer)[:300]}")
        return answer

    async def denied(self, method: str, *codes: int, why: str = "", **params: Any) -> PeerError:
        return await self.refused(method, {"sessionId": self.session, **params}, *codes, why=why)

    async def permission(self, title: str) -> dict[str, Any]:
        """The outcome of a permission request for a tool call that is announced with this title."""
        id_ = f"kit-{next(self._numbers)}"
        call = {"toolCallId": id_, "title": title, "kind": "other", "status": "pending"}
        self.update("tool_call", **call)
        kinds = ("allow_once", "allow_always", "reject_once", "reject_always")
        options = [{"optionId": f"kit-{kind}", "name": kind.replace("_", " "), "kind": kind} for kind in kinds]
        try:
            given = {"toolCall": call, "options": options}
            asking = self.told("session/request_permission", "outcome", dict, seconds=PEOPLE * SECONDS, **given)
            outcome: dict[str, Any] = (await asking)["outcome"]
        finally:
            self.update("tool_call_update", toolCallId=id_, status="completed")
        legal = [("cancelled", None), *(("selected", option["optionId"]) for option in options)]
        if (outcome.get("outcome"), outcome.get("optionId")) not in legal:
            raise Wrong(f"the outcome is {json.dumps(outcome)[:300]}; options are {json.dumps(options)}")
        return outcome

    def update(self, kind: str, /, **update: Any) -> None:
        self.notify("session/update", sessionId=self.session, update={"sessionUpdate": kind, **update})

    def notify(self, method: str, **params: Any) -> None:
        self.connection.notify(method, params)

    async def send(self, line: bytes | dict[str, Any]) -> None:
        """Any bytes, or message, as a line."""
        await self.connection.flush()
        await self._recorder.write((line if isinstance(line, bytes) else json.dumps(line).encode()) + b"\n")

    async def until(self, found: Callable[[], Any], what: str, *, seconds: float = SECONDS) -> Any:
        """Waits until that is true. Raises Wrong."""
        with anyio.move_on_after(self.patience(seconds)):
            while not (value := found()):  # noqa: ASYNC110 - What is looked at tells nobody.
                await anyio.sleep(LOOK)
            return value
        raise Wrong(f"{what} within {self.patience(seconds):g} s")

    async def living(self) -> tuple[str, dict[str, Any]]:
        """A request that the client answers, be it with an error. Raises Wrong if it answers none."""
        reading = ("fs/read_text_file", {"sessionId": self.session, "path": str(self.folder / "pear.txt")})
        looking = ("terminal/output", {"sessionId": self.session, "terminalId": NO_TERMINAL})
        asked = [reading] if self.has("fs", "readTextFile") else []
        asked += [looking] if self.has("terminal") else []
        asked += [("_kit/unknown", {"sessionId": self.session})]
        for method, params in [self._living] if self._living else asked:
            with suppress(Wrong):
                await self.answered(self.ask(method, params))
                self._living = (method, params)
                return self._living
        raise Wrong("the client answers no request any more" if self._living else "the client answers no request")

    async def lives(self) -> bool:
        try:
            await self.living()
        except Wrong:
            return False
        return True

    # --- terminals ------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def terminal(self, script: str, /, *args: str, **more: Any) -> AsyncIterator[str]:
        """The id of one that runs this shell script, released at the end. The script is a file, which no client's
        quoting breaks."""
        file = self.folder / f"{next(self._numbers)}.sh"
        file.write_text(f"{script}\n", encoding="utf-8")
        about = {"command": "sh", "args": [str(file), *args], "cwd": str(self.folder), "env": [], **more}
        id_ = await self.created(about)
        try:
            yield id_
        finally:
            if id_ in self._open and not self.connection.closed:
                with anyio.CancelScope(shield=True), suppress(Wrong):
                    await self.released(id_)

    async def created(self, about: dict[str, Any]) -> str:
        id_: str = (await self.told("terminal/create", "terminalId", str, **about))["terminalId"]
        self._open.add(id_)
        return id_

    async def released(self, id_: str) -> None:
        self._open.discard(id_)
        await self.call("terminal/release", terminalId=id_)

    async def output(self, id_: str) -> dict[str, Any]:
        return await self.told("terminal/output", "output", str, terminalId=id_)

    async def prints(self, id_: str, *words: str) -> dict[str, Any]:
        """The first output with all these words. Raises Wrong if they do not come."""
        told: dict[str, Any] = {}
        with anyio.move_on_after(self.patience()):
            while not all(word in told.get("output", "") for word in words):
                told = await self.output(id_)
                await anyio.sleep(LOOK)
            return told
        raise Wrong(f"`terminal/output` has {told.get('output', '')[:300]!r}, without {', '.join(words)}")

    async def exit(self, id_: str) -> dict[str, Any]:
        return await self.told("terminal/wait_for_exit", terminalId=id_)

    def waits(self) -> str:
        """A shell command that ends after `go`, or when the folder is gone."""
        self._go = self.folder / f"go-{next(self._numbers)}"
        folder, file = shlex.quote(str(self.folder)), shlex.quote(str(self._go))
        return f"while [ -d {folder} ] && [ ! -e {file} ]; do sleep 0.05; done"

    def go(self) -> None:
        self._go.touch()

    async def waiting(self, id_: str) -> tuple[str, Callable[[], Any]]:
        """Asks for the exit of that terminal: the id of the request, and what gives its answer once it is there."""
        number = f"kit-{next(self._numbers)}"
        params = {"sessionId": self.session, "terminalId": id_}
        await self.send({"jsonrpc": "2.0", "id": number, "method": "terminal/wait_for_exit", "params": params})
        return number, partial(self.answers.get, number)

    async def gone(self, pid: int, after: str) -> None:
        """Raises Wrong if that process does not end."""
        await self.until(partial(_ended, pid), f"a process of the command did not end after {after}")


def on_disk(path: Path) -> str:
    return path.read_bytes().decode("utf-8", "replace") if path.exists() else ""


def _ended(pid: int) -> bool:
    """Whether it has ended, be it that nobody has asked for its status yet."""
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(") ")[2].startswith("Z")
    except ProcessLookupError:
        return True
    except OSError:  # There is no `/proc`.
        return False
