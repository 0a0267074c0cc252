"""The kit as an agent: on a prompt it asks the client all its questions, and the report is its answer."""

from __future__ import annotations

import json
import shutil
import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from acp_agent import __version__
from acp_agent.errors import InvalidParams, MethodNotFound, UsageError
from acp_agent.protocol.codec import encode
from acp_agent.protocol.connection import Connection
from acp_agent.protocol.peer import Peer
from acp_agent.protocol.transports import Transport
from acp_agent.testing.checks import Direction, WireChecks
from acp_agent.testing.fake_editor import LineRecorder
from acp_conformance.clients import file_questions, terminal_questions, user_questions, wire_questions
from acp_conformance.clients.client_trial import QUESTIONS, ClientTrial, Question
from acp_conformance.clients.findings import Finding, Findings, profile_line
from acp_conformance.kit_reports import line, summary
from acp_conformance.kit_run import LONGEST_LINE, MOST_LINES, Outcome, Result, judged, writable
from acp_conformance.requirements import requirements, schema_file
from acp_conformance.trial import NotHere

MODULES = (wire_questions, file_questions, terminal_questions, user_questions)
"""Their import registers the questions."""
LAST = ("CTERM-13", "CRPC-5", "CINIT-6", "CINIT-5", "CPERM-2")
"""What ends some clients, what may hang, what looks back, and what ends the turn."""
WELCOME = "This asks your client for everything that an agent may. Answer what you are asked as you like.\n\n"
OURS = 2**32
"""Ids of the connection's own requests are below it, and not negative."""


def asked(only: Sequence[str] = ()) -> list[Question]:
    """These questions, or all, in their order. Raises UsageError."""
    if unknown := [id_ for id_ in only if id_ not in QUESTIONS]:
        raise UsageError(f"there is no question {unknown[0]!r}; they are {', '.join(QUESTIONS)}")
    order = [*(id_ for id_ in requirements() if id_ in QUESTIONS and id_ not in LAST), *LAST]
    return [QUESTIONS[id_] for id_ in order if not only or id_ in only]


class AskingAgent:
    """`serve()` runs until the client ends. `seconds`: that an answer may take."""

    def __init__(
        self, transport: Transport, findings: Findings, *, only: Sequence[str] = (), seconds: float = 10.0
    ) -> None:
        self._questions = asked(only)
        self._findings = findings
        self._name = ""
        self._lines: list[str] = []
        """Of the question that is being asked."""
        recorder = LineRecorder(transport, self._on_line, agent=True)
        self._connection = Connection(recorder, self, peer=Peer(encode=encode))
        self._trial = ClientTrial(self._connection, recorder, seconds)
        self._asking = False
        self._gone = ""
        """Why nothing can be asked any more."""
        try:
            self._checks: WireChecks | None = WireChecks(schema_file("acp-v1.schema.json"))
        except RuntimeError:
            self._checks = self._trial.violations = None

    async def serve(self) -> None:
        await self._connection.serve()

    # --- what the client asks (Handler) ---------------------------------------------------------------------------

    async def handle_request(self, method: str, params: Any) -> Any:
        given = params if isinstance(params, dict) else {}
        if method == "initialize":
            return self._initialized(given)
        if method == "session/new":
            session = str(uuid.uuid4())
            self._trial.sessions[session] = Path(str(given.get("cwd")))
            return {"sessionId": session}
        if method == "session/prompt":
            if self._asking:
                raise InvalidParams("the questions are being asked")
            return {"stopReason": await self._turn(str(given.get("sessionId")))}
        raise MethodNotFound(f"Method not found: {method}")

    async def handle_notification(self, method: str, params: Any) -> None:
        if method == "session/cancel":
            self._trial.cancelled.set()

    def cancel_request(self, method: str, params: Any) -> bool:
        return False

    def _initialized(self, params: dict[str, Any]) -> dict[str, Any]:
        offers, info = (params.get(key) for key in ("clientCapabilities", "clientInfo"))
        about = info if isinstance(info, dict) else {}
        self._trial.offers = offers if isinstance(offers, dict) else {}
        self._name = str(about.get("name") or "")
        self._findings.write(Finding(client=(self._name, str(about.get("version") or ""))))
        return {
            "protocolVersion": 1,
            "agentInfo": {"name": "acp-conformance", "title": "ACP conformance", "version": __version__},
            "agentCapabilities": {},
            "authMethods": [],
        }

    # --- asking ---------------------------------------------------------------------------------------------------

    async def _turn(self, session: str) -> str:
        """Gives the stop reason."""
        self._asking = True
        self._trial.begin(session)
        self._findings.write(Finding(prompted=True))
        try:
            self._say(WELCOME)
            results = []
            for each in self._questions:
                result = await self._asked(each)
                self._findings.write(Finding(result=result))
                self._say(f"- {line(result)}\n")
                results.append(result)
            self._say(f"\n{summary(results)}\n\n```python\n{profile_line(self._name, results)}\n```\n")
        finally:
            shutil.rmtree(self._trial.folder, ignore_errors=True)
            self._asking = False
        return "cancelled" if self._trial.cancelled.is_set() else "end_turn"

    async def _asked(self, each: Question) -> Result:
        self._lines.clear()
        begun = time.monotonic()
        outcome: Outcome = "passed"
        try:
            if self._gone or self._trial.cancelled.is_set():
                raise NotHere(self._gone or "the turn was cancelled")
            for name in each.offered:
                self._trial.needs(*name.split("."))
            why = await each.run(self._trial) or ""
        except BaseException as error:  # noqa: BLE001 - What is no judgement is raised again.
            outcome, why = judged(error)
            if outcome == "failed" and not await self._trial.lives():
                self._gone = "the client answers no request any more"
        lines = tuple(writable(text[:LONGEST_LINE]) for text in self._lines[-MOST_LINES:])
        return Result(each.requirement, outcome, writable(why), (), time.monotonic() - begun, lines)

    def _say(self, text: str) -> None:
        self._trial.update("agent_message_chunk", content={"type": "text", "text": text}, messageId="kit-report")

    # --- the wire -------------------------------------------------------------------------------------------------

    def _on_line(self, direction: Direction, data: bytes) -> None:
        if not data.strip():
            return
        arrow = "<-" if direction == "to_agent" else "->"
        self._lines.append(f"{arrow} {data[:LONGEST_LINE].decode('utf-8', 'backslashreplace')}")
        try:
            message = json.loads(data)
        except (ValueError, RecursionError):
            problems = [f"not JSON: {data[:300]!r}"]
        else:
            problems = self._checks.check(direction, message) if self._checks is not None else []
            if direction == "to_agent" and isinstance(message, dict):
                self._came(message)
        if direction == "to_agent" and self._trial.violations is not None:
            self._trial.violations += problems

    def _came(self, message: dict[str, Any]) -> None:
        id_ = message.get("id")
        if "method" in message:
            self._trial.came.append((str(message["method"]), message.get("params")))
        elif not isinstance(id_, int) or not 0 <= id_ < OURS:
            self._trial.answers[id_ if isinstance(id_, int | str) else None] = message
