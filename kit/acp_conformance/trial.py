"""What a check works with: the agent, started as often as it likes, an editor and a model around it."""

from __future__ import annotations

import json
import os
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import msgspec
from msgspec import Struct

from acp_agent.client.permissions import cancelled
from acp_agent.errors import AgentError, PeerError
from acp_agent.protocol.connection import Connection
from acp_agent.testing.fake_answers import Answer, Call, Failure, FakeRequest, Script
from acp_agent.testing.fake_editor import FakeEditor, Line
from acp_agent.testing.fake_model import FakeModel
from acp_conformance.profiles import Profile, ToolKind, environment, write_files
from acp_conformance.requirements import Requirement, requirements

MODEL = "fake-model"
SECONDS = 10.0
"""For an answer; a profile may give more."""
LOOK = 0.01
"""Seconds between two looks at what has not come yet."""
QUIET = 0.3
"""Seconds in which nothing may come that must not come."""
REST = 2.0
"""Seconds between a turn and the end of the process: agents may write down behind the answer what was said."""
RESULT = re.compile('"role": "tool"|tool_result|function_call_output|functionResponse')
"""In a message to the model: the result of a call."""
INVALID_PARAMS, METHOD_NOT_FOUND, INVALID_REQUEST, PARSE_ERROR, NOT_FOUND = -32602, -32601, -32600, -32700, -32002
LOGIN = -32000
BEHIND_LOGIN = ("session/new", "session/load", "session/resume", "session/list")
"""Methods that an agent may answer with that error."""
UNKNOWN = "00000000-0000-4000-8000-000000000000"
"""The id of no session."""
DONE = Answer(text="done")
USED_UP = Failure(500, {"error": {"message": "kit: the model was asked more often than the check has answers"}})


class Wrong(Exception):
    """The agent does not keep the requirement; the text says what came instead of what. `code`: of an error that came
    instead of a result."""

    def __init__(self, why: str, code: int = 0) -> None:
        super().__init__(why)
        self.code = code


class NotHere(Exception):
    """The agent does not offer what the requirement is about, or cannot be driven to it."""


class Check(Struct, frozen=True):
    requirement: Requirement
    run: Callable[[Trial], Awaitable[None]]
    tck: tuple[str, ...] = ()
    """Ids of `acp-tck` that mean the same."""

    @property
    def id(self) -> str:
        return self.requirement.id


CHECKS: dict[str, Check] = {}
"""By id of the requirement."""


def check(id_: str, *tck: str) -> Callable[[Callable[[Trial], Awaitable[None]]], Callable[[Trial], Awaitable[None]]]:
    """Registers a check of that requirement."""

    def registered(run: Callable[[Trial], Awaitable[None]]) -> Callable[[Trial], Awaitable[None]]:
        assert id_ not in CHECKS, id_
        CHECKS[id_] = Check(requirements()[id_], run, tck)
        return run

    return registered


def cancelled_after(gone: anyio.Event) -> Callable[[Any], Awaitable[Any]]:
    """Answers a question with `cancelled` then, as clients must when they cancel a turn."""

    async def answers(request: Any) -> Any:
        await gone.wait()
        return await cancelled(request)

    return answers


def same_file(one: object, other: Path) -> bool:
    try:
        return os.path.samefile(str(one), other)
    except OSError:
        return False


class Trial:
    """`command`: the agent's. `folder`: empty; the agent's home and project are made in it."""

    def __init__(self, command: Sequence[str], profile: Profile, folder: Path) -> None:
        self.profile = profile
        self.home = folder / "home"
        self.project = folder / "project"
        self.lines: list[str] = []
        """What went over the wire, of all agents that were started."""
        self.violations: list[str] = []
        """What was wrong with a line."""
        self.raw = False
        """Whether lines were sent that are no messages, whose answers are to no request."""
        self.versions = False
        """Whether another version may be agreed upon, of whose messages the schema knows nothing."""
        self.command = [*command, *profile.arguments]
        for each in (self.home, self.project):
            each.mkdir()

    @asynccontextmanager
    async def model(self, script: Script | None) -> AsyncIterator[tuple[FakeModel, dict[str, str]]]:
        """A model server that says this, if it is needed, and the environment that tells the agent of it."""
        if script is not None and not self.profile.api:
            raise NotHere("it is not known how to tell this agent of a model server; give a --profile")
        async with FakeModel(_for_turns(script or (), self.profile), models=(MODEL,)) as model:
            for wire in model.wires.values():
                wire.strict = False
            values = {
                "base_url": model.base_url,
                "root_url": model.base_url.removesuffix("/v1"),
                "model": MODEL,
                "home": str(self.home),
            }
            write_files(self.profile, values)
            yield model, environment(self.profile, values)

    @asynccontextmanager
    async def agent(
        self, script: Script | None = None, *, initialize: bool = True, **editor: Any
    ) -> AsyncIterator[Agent]:
        """Starts it. `script`: as `model` takes it. `editor`: as `FakeEditor` takes it."""
        async with self.model(script) as (model, environ):
            made: FakeEditor | None = None
            try:
                async with FakeEditor.spawn(self.command, cwd=self.project, env=environ, **editor) as made:
                    agent = Agent(self, made, model)
                    if initialize:
                        await agent.initialize()
                    yield agent
            except AssertionError:  # Lines that were wrong: they count for themselves.
                if made is None or not made.violations:
                    raise
            finally:
                if made is not None:
                    self.lines += map(str, made.transcript)
                    self.violations += [each for each in made.violations if each.startswith("from_agent")]

    def tool(self, kind: ToolKind, **values: str) -> Call:
        """A call of the agent's tool of that kind by the model. Raises NotHere."""
        tool = self.profile.tools.get(kind)
        if tool is None:
            raise NotHere(f"the profile names no tool for `{kind}`")
        name, arguments = tool.call(**values)
        return Call(name, arguments)

    def runs(self, command: str, *, asks: bool = False) -> Answer:
        """The model wants that command to be run. `asks`: so that the agent asks first, if the profile says how."""
        kind: ToolKind = "asks" if asks and "asks" in self.profile.tools else "shell"
        return Answer(tool_calls=(self.tool(kind, command=command),))

    def keeps_asking(self, command: str) -> Script:
        """The model wants that command to be run, so that the agent asks first, and says "done" to each result."""
        wants = self.runs(command, asks=True)

        def said(body: dict[str, Any]) -> Answer:
            last = (body.get("messages") or body.get("input") or body.get("contents") or [None])[-1]
            return DONE if RESULT.search(json.dumps(last)) else wants

        return said


class Asker:
    """Asks the other side for something, and says what it did instead."""

    connection: Connection
    offers: Mapping[str, Any] = {}
    """The capabilities of the other side."""

    def patience(self, seconds: float = SECONDS) -> float:
        """The seconds that an answer may take."""
        return seconds

    async def ask(self, method: str, params: Any = None, *, seconds: float = SECONDS) -> Any:
        """The result. Raises Wrong for an error, too."""
        try:
            return await self._asked(method, params, seconds)
        except PeerError as error:
            words = f"`{method}` was answered with the error {error.code} ({error.message})"
            raise Wrong(words, error.code) from error

    async def refused(self, method: str, params: Any = None, *codes: int, why: str = "") -> PeerError:
        """The error that it is answered with. Raises Wrong for a result, or for another code than one of these."""
        try:
            result = await self._asked(method, params, SECONDS)
        except PeerError as error:
            if codes and error.code not in codes:
                wanted = " or ".join(map(str, codes))
                raise Wrong(
                    f"`{method}` {why} was answered with {error.code} ({error.message}), not {wanted}"
                ) from error
            return error
        raise Wrong(f"`{method}` {why} was answered with a result, not an error: {json.dumps(result)[:300]}")

    async def answered(self, asking: Awaitable[Any], *codes: int) -> Any:
        """A request that may fail, with one of these codes if there are any."""
        try:
            return await asking
        except Wrong as error:
            if not error.code or (codes and error.code not in codes):
                raise
            return None

    async def _asked(self, method: str, params: Any, seconds: float) -> Any:
        seconds = self.patience(seconds)
        try:
            with anyio.fail_after(seconds):
                return await self.connection.request(method, params)
        except TimeoutError as error:
            raise Wrong(f"`{method}` was not answered within {seconds:g} s") from error
        except PeerError:
            raise
        except AgentError as error:
            raise Wrong(f"`{method}` was not answered: {error}") from error

    def has(self, *path: str) -> bool:
        """Whether that capability is offered: a marker `{}` or true."""
        value: Any = self.offers
        for name in path:
            value = value.get(name) if isinstance(value, dict) else None
        return value is not None and value is not False

    def needs(self, *path: str) -> None:
        """Raises NotHere if that capability is not offered."""
        if not self.has(*path):
            raise NotHere(f"`{'.'.join(path)}` is not offered")

    def expect(self, holds: object, why: str) -> None:
        """Raises Wrong."""
        if not holds:
            raise Wrong(why)


class Started(Asker):
    """One process of it, whichever version it speaks. Methods raise Wrong if it does not answer."""

    def __init__(self, trial: Trial, connection: Connection, transcript: list[Line], model: FakeModel) -> None:
        self.trial = trial
        self.connection = connection
        self.transcript = transcript
        self.model = model
        self.welcome: dict[str, Any] = {}
        """The result of `initialize`."""
        self.session = ""
        """The one that was made last."""

    def patience(self, seconds: float = SECONDS) -> float:
        return max(seconds, self.trial.profile.seconds)

    async def _asked(self, method: str, params: Any, seconds: float) -> Any:
        """Raises NotHere if a login is needed, which a profile may do without."""
        try:
            return await super()._asked(method, params, seconds)
        except PeerError as error:
            announced = method == "session/new" or self.welcome.get("authMethods")
            if error.code == LOGIN and method in BEHIND_LOGIN and announced:
                raise NotHere("it needs a login; give a --profile") from error
            raise

    async def new_session(self, **more: Any) -> dict[str, Any]:
        params = {"cwd": str(self.trial.project), "mcpServers": [], **more}
        made: dict[str, Any] = await self.ask("session/new", params)
        self.session = made.get("sessionId", "")
        return made

    # --- what came --------------------------------------------------------------------------------------------

    def updates(self, kind: str = "", *, session: str = "", after: int = 0) -> list[dict[str, Any]]:
        """Of a session, in order; `after`: behind so many lines of the wire."""
        notes = [line.message for line in self.transcript[after:] if line.direction == "from_agent"]
        found = []
        for note in notes:
            params = note.get("params") if isinstance(note, dict) and note.get("method") == "session/update" else None
            if isinstance(params, dict) and params.get("sessionId") == (session or self.session):
                update = params.get("update")
                if isinstance(update, dict) and kind in ("", update.get("sessionUpdate")):
                    found.append(update)
        return found

    def text(self, kind: str = "agent_message_chunk", *, session: str = "", after: int = 0) -> str:
        blocks = [update.get("content") for update in self.updates(kind, session=session, after=after)]
        return "".join(str(block.get("text", "")) for block in blocks if isinstance(block, dict))

    def only_call(self) -> dict[str, Any]:
        """The one tool call of the session."""
        calls = self.calls()
        self.expect(len(calls) == 1, f"{len(calls)} tool calls were told, not one")
        return next(iter(calls.values()))

    def calls(self, *, session: str = "", after: int = 0) -> dict[str, dict[str, Any]]:
        """The tool calls, by id, with each update merged in; `statuses`: all that were told."""
        calls: dict[str, dict[str, Any]] = {}
        for update in self.updates(session=session, after=after):
            if update.get("sessionUpdate") in ("tool_call", "tool_call_update"):
                call = calls.setdefault(str(update.get("toolCallId")), {"statuses": []})
                call |= {name: value for name, value in update.items() if value is not None}
                if update.get("status"):
                    call["statuses"].append(update["status"])
        return calls

    def requests(self, method: str) -> list[dict[str, Any]]:
        """What it asked of the client."""
        lines = [line.message for line in self.transcript if line.direction == "from_agent"]
        return [line["params"] for line in lines if isinstance(line, dict) and line.get("method") == method]

    @property
    def seen(self) -> int:
        """Lines of the wire so far."""
        return len(self.transcript)

    async def until(self, found: Callable[[], Any], what: str, *, seconds: float = SECONDS) -> Any:
        """Waits until that is true. Raises Wrong."""
        seconds = self.patience(seconds)
        with anyio.move_on_after(seconds):
            while not (value := found()):  # noqa: ASYNC110 - What is looked at tells nobody.
                await anyio.sleep(LOOK)
            return value
        raise Wrong(f"{what} did not come within {seconds:g} s")

    async def quiet(self, seconds: float = QUIET) -> None:
        """A moment in which something may come that must not."""
        await anyio.sleep(seconds)

    @property
    def asked(self) -> list[FakeRequest]:
        """What the model was asked for turns: agents ask it for titles, too."""
        return [each for each in self.model.requests if _is_turn(each.body, self.trial.profile)]

    def say(self, script: Script) -> None:
        """What the model says from now on."""
        self.model._script = _for_turns(script, self.trial.profile)

    def asked_of_model(self, number: int = -1) -> str:
        """What the model was sent, as text."""
        if not self.asked:
            raise Wrong("the model was not asked")
        return json.dumps(self.asked[number].body, ensure_ascii=False)


class Agent(Started):
    """One that speaks v1."""

    def __init__(self, trial: Trial, editor: FakeEditor, model: FakeModel) -> None:
        super().__init__(trial, editor.client.connection, editor.transcript, model)
        self.editor = editor

    async def initialize(self, **more: Any) -> dict[str, Any]:
        capabilities = msgspec.to_builtins(self.editor.client.capabilities)
        params = {"protocolVersion": 1, "clientCapabilities": capabilities, **more}
        self.welcome = await self.ask("initialize", params)
        self.offers = self.welcome.get("agentCapabilities") or {}
        return self.welcome

    async def new_session(self, **more: Any) -> dict[str, Any]:
        made = await super().new_session(**more)
        self.editor.session_id = self.session
        return made

    async def asks_first(self) -> None:
        """Sets a mode in which it asks before it runs a command, if the profile names one."""
        if mode := self.trial.profile.asks.get("mode"):
            await self.ask("session/set_mode", {"sessionId": self.session, "modeId": mode})

    async def prompt(self, text: str = "go", *, session: str = "", seconds: float = 2 * SECONDS) -> dict[str, Any]:
        blocks = [{"type": "text", "text": text}]
        params = {"sessionId": session or self.session, "prompt": blocks}
        answered: dict[str, Any] = await self.ask("session/prompt", params, seconds=seconds)
        return answered

    async def stops(self, reason: str, text: str = "go", **more: Any) -> None:
        """A turn that ends so."""
        answered = await self.prompt(text, **more)
        self.expect(answered.get("stopReason") == reason, f"the turn ended with {answered}, not `{reason}`")

    @asynccontextmanager
    async def turn(self, text: str = "go", *, session: str = "", may_fail: bool = False) -> AsyncIterator[Turn]:
        """A prompt that runs meanwhile; it must be answered at the end. `may_fail`: an error is an answer, too."""
        turn = Turn()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(turn.run, self, text, session)
            yield turn
            with anyio.move_on_after(2 * self.patience()) as scope:
                await turn.over.wait()
            if scope.cancelled_caught:
                tasks.cancel_scope.cancel()
        if turn.failure is not None and not (may_fail and turn.failure.code):
            raise turn.failure
        if not turn.over.is_set():
            raise Wrong("`session/prompt` was not answered")

    async def send(self, line: bytes) -> None:
        """Any bytes, as a line."""
        self.trial.raw = True
        await self.editor.send_line(line)


class Turn:
    def __init__(self) -> None:
        self.over = anyio.Event()
        self.answer: dict[str, Any] = {}
        self.failure: Wrong | None = None

    async def run(self, agent: Agent, text: str, session: str) -> None:
        try:
            self.answer = await agent.prompt(text, session=session, seconds=3 * SECONDS)
        except Wrong as error:
            self.failure = error
        self.over.set()

    @property
    def reason(self) -> Any:
        return self.answer.get("stopReason")


def _is_turn(body: dict[str, Any], profile: Profile) -> bool:
    """Whether the model may call what it calls in turns."""
    tools = body.get("tools")
    shell = profile.tools.get("shell")
    return not profile.asides or bool(tools and (shell is None or f'"{shell.name}"' in json.dumps(tools)))


def _for_turns(script: Script, profile: Profile) -> Script:
    """The same for turns, one reply for each request from now on; whatever else the agent asks of the model gets a few
    words. An agent may look once more at the end of a turn: then it gets the last words again."""
    replies = [] if callable(script) else list(script)
    again = [reply for reply in replies[-1:] if isinstance(reply, Answer) and reply.text and not reply.tool_calls]
    left = iter([*replies, *again])

    def said(body: dict[str, Any]) -> Any:
        if not _is_turn(body, profile):
            return Answer(text="A title")
        return script(body) if callable(script) else next(left, USED_UP)

    return said
