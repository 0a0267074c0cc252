"""A client of v2: starts the agent, answers its questions, keeps all lines. The checks of v2 ask through it."""

from __future__ import annotations

import json
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio

from acp_agent.client.spawn import AgentProcess, agent_process
from acp_agent.client.tasks import Background
from acp_agent.errors import MethodNotFound
from acp_agent.protocol.connection import Connection
from acp_agent.protocol.peer import Peer
from acp_agent.protocol.transports import Transport
from acp_agent.testing.checks import Direction
from acp_agent.testing.fake_answers import Answer, Script
from acp_agent.testing.fake_editor import Line, LineRecorder
from acp_agent.testing.fake_model import FakeModel
from acp_conformance.profiles import Profile
from acp_conformance.trial import DONE, SECONDS, NotHere, Started, Trial, Wrong
from acp_conformance.v2.v2_wire import WireV2, decoded

VERSION, CANCELLED = 2, -32800
INFO = {"name": "acp-conformance", "version": "1"}
WORK = ("agent_message_chunk", "agent_message", "agent_thought_chunk", "agent_thought", "tool_call_update",
        "tool_call_content_chunk", "terminal_update", "terminal_output_chunk", "plan_update")  # fmt: skip
"""Updates that belong to work."""

FORMS: dict[str, Any] = {"elicitation": {"form": {}}}
"""The capabilities of a client that shows them."""

Answers = Callable[[dict[str, Any]], Awaitable[Any]]
"""What a question is answered with; its params -> the result."""


def chosen(params: dict[str, Any], kind: str) -> dict[str, Any]:
    """The outcome that selects the option of that kind."""
    ids = [each["optionId"] for each in params["options"] if each["kind"] == kind]
    return {"outcome": {"outcome": "selected", "optionId": ids[0]} if ids else {"outcome": "cancelled"}}


async def allows(params: dict[str, Any]) -> Any:
    return chosen(params, "allow_once")


async def rejects(params: dict[str, Any]) -> Any:
    return chosen(params, "reject_once")


async def silent(params: dict[str, Any]) -> Any:
    await anyio.sleep_forever()


class Begun:
    """A request that runs meanwhile."""

    def __init__(self) -> None:
        self.over = anyio.Event()
        self.result: Any = None
        self.failure: Wrong | None = None

    @property
    def code(self) -> int:
        """Of the error that it was answered with."""
        return self.failure.code if self.failure is not None else 0

    async def run(self, asked: Awaitable[Any]) -> None:
        try:
            self.result = await asked
        except Wrong as error:
            self.failure = error
        self.over.set()


class _Questions:
    """What the agent asks; the `Handler` of the connection."""

    def __init__(self, answers: Answers, forms: Answers | None) -> None:
        self._answers = {"session/request_permission": answers, "elicitation/create": forms}

    async def handle_request(self, method: str, params: Any) -> Any:
        if (answers := self._answers.get(method)) is None:
            raise MethodNotFound(f"Method not found: {method}")
        return await answers(params)

    async def handle_notification(self, method: str, params: Any) -> None:
        """Nothing: all lines are kept."""

    def cancel_request(self, method: str, params: Any) -> bool:
        """A question that is withdrawn is answered all the same, or never."""
        return True


class ClientV2:
    """A client at one end of a transport: answers what it is asked, keeps all lines and what is wrong with them."""

    def __init__(self, transport: Transport, answers: Answers, forms: Answers | None = None) -> None:
        self.transcript: list[Line] = []
        self.violations: list[str] = []
        self._wire = WireV2()
        self._recorder = LineRecorder(transport, self._on_line)
        self.connection = Connection(self._recorder, _Questions(answers, forms), peer=Peer())

    def _on_line(self, direction: Direction, line: bytes) -> None:
        try:
            message: Any = json.loads(line)
        except (ValueError, RecursionError):
            message = line.decode("utf-8", "backslashreplace")
        self.transcript.append(Line(direction, message))
        self.violations += [f"{direction}: {each}" for each in self._wire.check(direction, message)]

    async def send(self, line: bytes) -> None:
        """Any bytes, as a line."""
        await self._recorder.write(line + b"\n")


class AgentV2(ClientV2, Started):
    def __init__(
        self, trial: Trial, process: AgentProcess, model: FakeModel, answers: Answers, forms: Answers | None
    ) -> None:
        ClientV2.__init__(self, process.transport, answers, forms)
        Started.__init__(self, trial, self.connection, self.transcript, model)
        self.process = process
        self.violations = trial.violations
        self._capabilities = {} if forms is None else FORMS
        self.background = Background()

    async def serve(self) -> None:
        with anyio.CancelScope(shield=True):
            await self.connection.serve()

    # --- asking -----------------------------------------------------------------------------------------------

    async def initialize(self, version: int = VERSION, **more: Any) -> dict[str, Any]:
        params = {"protocolVersion": version, "info": INFO, "capabilities": self._capabilities, **more}
        self.welcome = await self.ask("initialize", params)
        self.offers = (self.welcome.get("capabilities") or {}).get("session") or {}
        return self.welcome

    async def prompt(self, text: str = "go", *blocks: dict[str, Any], session: str = "") -> str:
        """The id of the message."""
        said = [{"type": "text", "text": text}, *blocks]
        answered = await self.ask("session/prompt", {"sessionId": session or self.session, "prompt": said})
        return str(answered.get("messageId"))

    async def ended(self, times: int = 1, *, session: str = "") -> dict[str, Any]:
        """The state that ends the session's work for the time of that number."""
        left: list[dict[str, Any]] = await self.until(
            lambda: self.ends(session)[times - 1 :], "`idle` behind `running`", seconds=2 * SECONDS
        )
        return left[0]

    async def stops(self, reason: str, text: str = "go", *blocks: dict[str, Any], times: int = 1) -> dict[str, Any]:
        """Work that ends so, the one of that number in the session. Its end should have a reason."""
        await self.prompt(text, *blocks)
        end = await self.ended(times)
        self.expect(end.get("stopReason") in (reason, None), f"the work ended with {end}, not `{reason}`")
        return end

    def begin(self, method: str, params: dict[str, Any]) -> Begun:
        begun = Begun()
        self.background.start(begun.run, self.ask(method, params, seconds=3 * SECONDS))
        return begun

    async def withdrawn(self, begun: Begun, what: str) -> None:
        """It must be answered as cancelled."""
        await self.until(begun.over.is_set, f"an answer to {what}")
        given = begun.failure or begun.result
        self.expect(begun.code == CANCELLED, f"{what} was answered with {given}, not {CANCELLED}")

    async def held(self, text: str = "held", **more: Any) -> Begun:
        """A prompt that waits while work runs. Raises NotHere if it does not."""
        blocks = [{"type": "text", "text": text}]
        begun = self.begin("session/prompt", {"sessionId": self.session, "prompt": blocks, **more})
        await self.quiet()
        if begun.over.is_set():
            raise NotHere("a prompt that comes while work runs does not wait")
        return begun

    def cancel(self, session: str = "") -> None:
        self.connection.notify("session/cancel", {"sessionId": session or self.session})

    async def question(self) -> dict[str, Any]:
        """The first question for permission. Raises NotHere if the work ends without one."""

        def asked() -> Any:
            return self.requests("session/request_permission") or self.ends()

        await self.until(asked, "a question")
        if not (questions := self.requests("session/request_permission")):
            raise NotHere("it runs commands without asking")
        return questions[0]

    # --- what came --------------------------------------------------------------------------------------------

    def ends(self, session: str = "") -> list[dict[str, Any]]:
        """The states that ended work. One that is said again ends nothing, and a new session is idle."""
        states = self.updates("state_update", session=session)
        before = ["idle", *(each.get("state") for each in states)]
        return [each for last, each in zip(before, states, strict=False) if each.get("state") == "idle" != last]

    def said(self) -> list[dict[str, Any]]:
        """The messages of the user."""
        return [*self.updates("user_message_chunk"), *self.updates("user_message")]

    def states(self, *, after: int = 0) -> list[str]:
        return [str(each.get("state")) for each in self.updates("state_update", after=after)]

    def at(
        self, found: Callable[[dict[str, Any]], Any], *, direction: Direction = "from_agent", last: bool = False
    ) -> int:
        """The place of a line of which that is true, or -1."""
        places = [
            place
            for place, line in enumerate(self.transcript)
            if line.direction == direction and isinstance(line.message, dict) and found(line.message)
        ]
        return places[-1 if last else 0] if places else -1

    def answer_at(self, method: str) -> int:
        """The place of the answer to the last request of that method."""
        asked = self.transcript[self.at(lambda each: each.get("method") == method, direction="to_agent", last=True)]
        return self.at(lambda each: "method" not in each and each.get("id") == asked.message["id"])

    def answers(self, *, after: int = 0) -> list[dict[str, Any]]:
        """Of the agent, to any request."""
        lines = [line.message for line in self.transcript[after:] if line.direction == "from_agent"]
        return [each for each in lines if isinstance(each, dict) and "method" not in each]

    def end_at(self) -> int:
        """The place of the last state that is idle."""
        return self.at(lambda each: update_of(each).get("state") == "idle", last=True)

    def work(self, *, after: int = 0) -> list[dict[str, Any]]:
        """Updates that belong to work."""
        return [each for each in self.updates(after=after) if each.get("sessionUpdate") in WORK]

    def output(self) -> dict[str, bytes]:
        """The bytes of each terminal."""
        found: dict[str, bytes] = {}
        for each in self.updates():
            match each.get("sessionUpdate"):
                case "terminal_update":
                    known = found.setdefault(str(each.get("terminalId")), b"")
                    found[str(each.get("terminalId"))] = _bytes(each["output"]) if each.get("output") else known
                case "terminal_output_chunk":
                    found[each["terminalId"]] = found.get(each["terminalId"], b"") + _bytes(each)
        return found

    async def send(self, line: bytes) -> None:
        self.trial.raw = True
        await super().send(line)


@asynccontextmanager
async def speaking(
    trial: Trial,
    script: Script | None = None,
    *,
    initialize: bool = True,
    answers: Answers = allows,
    forms: Answers | None = None,
) -> AsyncIterator[AgentV2]:
    """Starts it. `script`: as `Trial.model` takes it. `forms`: what they are answered with, if the client shows any.
    Raises NotHere if it does not speak v2."""
    async with (
        trial.model(script) as (model, environ),
        agent_process(trial.command, cwd=trial.project, env=environ) as process,
    ):
        agent = AgentV2(trial, process, model, answers, forms)
        try:
            async with agent.background:
                agent.background.start(agent.serve)
                try:
                    if initialize and (await agent.initialize()).get("protocolVersion") != VERSION:
                        raise NotHere(f"it answers version {agent.welcome.get('protocolVersion')}")
                    yield agent
                finally:
                    agent.connection.close()
        finally:
            trial.lines += map(str, agent.transcript)


@asynccontextmanager
async def in_session(
    trial: Trial, script: Script | None = None, *, answers: Answers = allows, forms: Answers | None = None
) -> AsyncIterator[AgentV2]:
    """With a new session, in a mode in which it asks before it runs commands."""
    async with speaking(trial, script, answers=answers, forms=forms) as agent:
        options = (await agent.new_session()).get("configOptions") or []
        mode = trial.profile.asks.get("mode")
        for each in options if mode else ():
            if each.get("category") == "mode":
                params = {"sessionId": agent.session, "configId": each["configId"], "type": "id", "value": mode}
                await agent.ask("session/set_config_option", params)
        yield agent


@asynccontextmanager
async def at_work(trial: Trial) -> AsyncIterator[AgentV2]:
    """With a session whose model says one word and no more, until it is released."""
    async with in_session(trial, [Answer(text=("One ", "two "), hang_after=1), DONE, DONE]) as agent:
        await agent.prompt("count")
        await agent.until(lambda: "One" in agent.text(), "the model's first word")
        yield agent


async def spoken(command: Sequence[str], profile: Profile) -> str:
    """What the agent says to v2 instead of speaking it, as a sentence; else empty."""
    with tempfile.TemporaryDirectory(prefix="acp-kit-", ignore_cleanup_errors=True) as folder:
        async with speaking(Trial(command, profile, Path(folder)), initialize=False) as agent:
            try:
                version = (await agent.initialize()).get("protocolVersion")
            except Wrong as error:
                return f"The agent does not speak version 2 of the protocol: {error}."
    return "" if version == VERSION else f"The agent speaks version {version} of the protocol, not 2."


def update_of(message: dict[str, Any]) -> dict[str, Any]:
    """The update in a line, or an empty one."""
    params = message.get("params") if message.get("method") == "session/update" else None
    update = params.get("update") if isinstance(params, dict) else None
    return update if isinstance(update, dict) else {}


def _bytes(value: dict[str, Any]) -> bytes:
    return decoded(str(value.get("data"))) or b""
