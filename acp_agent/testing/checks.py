"""Checks every line on the wire against the protocol's schema and against rules that the schema cannot express.

`WireChecks` receives each line with its direction and returns sentences about what is wrong with it. It remembers
which request an id belongs to, so that a result is checked against the method it answers. Beyond the schema it checks
the agent's lines: it requests nothing that the client did not offer (FS-1, TERM-1, ELIC-1, NOTE-1, COMP-1,
PLAN-1); no update precedes the answer that names its session (NEW-10); a tool call is announced once and its status
never goes back (TC-3, TC-4); an embedded terminal exists (wire rule 9) and is released once (TERM-5); plans come in
one form (PLAN-9).

Needs `jsonschema_rs`, a development dependency.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from acp_agent.lazy import load

Direction = Literal["to_agent", "from_agent"]

BASE_URI = "acp:schema"
EXCERPT = 300
"""Characters of a wrong message that are quoted."""

FINAL = ("completed", "failed")
RANK = {"pending": 0, "in_progress": 1, "completed": 2, "failed": 2}
OPENERS = ("session/load", "session/resume")
"""Requests that name the session themselves."""

BESIDE = ("acp-v1-drafts.schema.json", "acp-v1-1.34.overlay.json")
"""Additions to the pinned schema."""

CAPABILITY: dict[str, tuple[str, ...]] = {
    "fs/read_text_file": ("fs", "readTextFile"),
    "fs/write_text_file": ("fs", "writeTextFile"),
    "terminal/create": ("terminal",),
    "terminal/output": ("terminal",),
    "terminal/wait_for_exit": ("terminal",),
    "terminal/kill": ("terminal",),
    "terminal/release": ("terminal",),
    "notice": ("session", "notices"),
    "compaction_update": ("session", "compaction"),
    "compaction_summary_chunk": ("session", "compaction"),
    "plan_update": ("plan",),
    "plan_removed": ("plan",),
    "cursor_update": ("session", "cursors"),
    "prompt_suggestions_update": ("session", "promptSuggestions"),
    "subagent_update": ("subagents",),
    "session_message": ("subagents",),
}
"""The `clientCapabilities` entry required before an agent may send this method or update."""


def with_drafts(file: Path) -> dict[str, Any]:
    """The pinned schema with what is in files beside it: the drafts that are served, and what became stable since."""
    document: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    definitions = document["$defs"]
    for name in BESIDE:
        added = json.loads(file.with_name(name).read_text(encoding="utf-8"))
        definitions.update(added["$defs"])
        for definition, properties in added["properties"].items():
            definitions[definition]["properties"].update(properties)
        for definition, variants in added["variants"].items():
            definitions[definition]["oneOf"] += variants
    return document


def missing() -> str:
    """Why lines cannot be checked here, as a sentence; empty if they can."""
    return "" if find_spec("jsonschema_rs") else "checking the wire needs a package: `pip install jsonschema-rs`"


class Schema:
    """A pinned schema: a compiled validator for the params and for the result of each method."""

    def __init__(self, document: dict[str, Any]) -> None:
        try:
            self._validator_for = load("jsonschema_rs:validator_for")
            registry = load("jsonschema_rs:Registry")
        except ImportError as error:
            raise RuntimeError(missing()) from error
        self._registry = registry([(BASE_URI, document)])
        self._validators: dict[str, Any] = {}
        self.params: dict[tuple[Direction, str], str] = {}
        self.results: dict[tuple[Direction, str], str] = {}
        for name, definition in document["$defs"].items():
            method = definition.get("x-method")
            for direction in _to(definition.get("x-side")) if method else ():
                if name.endswith("Response"):
                    self.results[direction, method] = name
                else:
                    self.params[direction, method] = name

    def problems(self, definition: str, value: Any) -> Iterator[str]:
        validator = self._validators.get(definition)
        if validator is None:
            validator = self._validator_for({"$ref": f"{BASE_URI}#/$defs/{definition}"}, registry=self._registry)
            self._validators[definition] = validator
        if validator.is_valid(value):
            return
        for error in validator.iter_errors(value):
            place = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in error.instance_path)
            yield f"{definition}{place}: {str(error.message)[:EXCERPT]}"


def _to(side: str | None) -> tuple[Direction, ...]:
    """The direction of requests that `side` serves."""
    if side == "protocol":
        return ("to_agent", "from_agent")
    return ("to_agent",) if side == "agent" else ("from_agent",)


@cache
def _schema(file: Path) -> Schema:
    return Schema(with_drafts(file))


class WireChecks:
    """State of one connection. `schema_file`: the pinned `acp-v1.schema.json`."""

    def __init__(self, schema_file: Path) -> None:
        self._schema = _schema(schema_file)
        self._asked: dict[Direction, dict[tuple[type, object], str]] = {"to_agent": {}, "from_agent": {}}
        self._capabilities: dict[str, Any] = {}
        self._sessions: set[str] = set()
        self._statuses: dict[tuple[str, str], str] = {}
        self._plans: dict[str, bool] = {}
        """By session: whether plans come as `plan`."""
        self._terminals: set[str] = set()
        self._released: set[str] = set()
        self.unchecked_answers: set[str] = set()
        """Methods whose results to the agent are wrong on purpose."""
        self._unchecked: list[object] = []

    def allow(self, params: object) -> None:
        """Marks the next request or notification to the agent with these params as wrong on purpose."""
        self._unchecked.append(params)

    def check(self, direction: Direction, message: Any) -> list[str]:
        """Lists what is wrong with the message; empty for a valid one."""
        if not isinstance(message, dict):
            return [f"not an object: {str(message)[:EXCERPT]}"]
        problems = [] if message.get("jsonrpc") == "2.0" else ["`jsonrpc` is not '2.0'"]
        if "method" in message:
            problems += self._call(direction, message)
        else:
            problems += self._answer(direction, message)
        return problems

    def _to_agent(self, method: str, params: Any) -> None:
        if method == "initialize":
            self._capabilities = params.get("clientCapabilities") or {}
        elif method in OPENERS:
            session = params["sessionId"]
            self._sessions.add(session)
            # The replay announces its tool calls again.
            self._statuses = {key: status for key, status in self._statuses.items() if key[0] != session}

    # --- envelopes --------------------------------------------------------------------------------------------

    def _call(self, direction: Direction, message: dict[str, Any]) -> Iterator[str]:
        method, params = message["method"], message.get("params")
        if not isinstance(method, str):
            yield "`method` is not a string"
            return
        if "id" in message:
            key = (type(message["id"]), message["id"])
            if key in self._asked[direction]:
                yield f"id {message['id']!r} of {method} is already in use"
            self._asked[direction][key] = method
        if direction == "to_agent" and params in self._unchecked:
            self._unchecked.remove(params)
            return
        if message.keys() - {"jsonrpc", "id", "method", "params"}:
            yield f"{method}: unknown members of the envelope: {sorted(message)}"
        definition = self._schema.params.get((direction, method))
        if definition is None:
            if direction == "from_agent" and not method.startswith("_"):
                yield f"no such method of a client: {method}"
            elif direction == "from_agent" and method.startswith("_lsp/"):
                yield from self._offered_lsp(method)
            return
        wrong = list(self._schema.problems(definition, {} if params is None else params))
        yield from wrong
        if wrong:
            return
        if direction == "from_agent":
            yield from self._from_agent(method, params)
        else:
            self._to_agent(method, params)

    def _answer(self, direction: Direction, message: dict[str, Any]) -> Iterator[str]:
        if "id" not in message:
            yield "neither `method` nor `id`"
            return
        if ("result" in message) == ("error" in message):
            yield f"an answer has exactly one of `result` and `error`: {sorted(message)}"
            return
        towards: Direction = "to_agent" if direction == "from_agent" else "from_agent"
        id_ = message["id"]
        method = self._asked[towards].pop((type(id_), id_), None)
        if "error" in message:
            yield from self._schema.problems("Error", message["error"])
            if method is None and id_ is not None:
                yield f"an answer to id {id_!r}, which is not open"
            return
        if method is None:
            yield f"an answer to id {id_!r}, which is not open"
            return
        if direction == "to_agent" and method in self.unchecked_answers:
            return
        definition = self._schema.results.get((towards, method))
        if definition is None:
            return
        result = message["result"]
        if direction == "to_agent" and result is None:
            return  # Clients may answer null to mean "done".
        wrong = list(self._schema.problems(definition, result))
        yield from (f"result of {method}: {problem}" for problem in wrong)
        if not wrong:
            self._learn(method, result)

    def _learn(self, method: str, result: Any) -> None:
        if method in ("session/new", "session/fork"):
            self._sessions.add(result["sessionId"])
        elif method == "terminal/create":
            self._terminals.add(result["terminalId"])

    # --- what the schema cannot express -----------------------------------------------------------------------

    def _from_agent(self, method: str, params: Any) -> Iterator[str]:
        yield from self._offered(method)
        if method == "elicitation/create":
            offered = self._capabilities.get("elicitation") or {}
            if offered.get(params["mode"]) is None:
                yield f"elicitation in mode {params['mode']} was not offered by the client"
        if method in ("terminal/output", "terminal/wait_for_exit", "terminal/kill", "terminal/release"):
            terminal = params["terminalId"]
            if terminal in self._released:
                yield f"{method}: terminal {terminal} was released before"
            elif terminal not in self._terminals:
                yield f"{method}: terminal {terminal} was never created"
            if method == "terminal/release":
                self._released.add(terminal)
        session = params.get("sessionId") if isinstance(params, dict) else None
        if session is not None and session not in self._sessions:
            yield f"{method} for session {session} before the answer that names it"
        if method == "session/update":
            yield from self._update(session, params["update"])
        elif method == "session/request_permission":
            below = ((params["toolCall"].get("_meta") or {}).get("subAgent") or {}).get("sessionId", session)
            if (below, params["toolCall"]["toolCallId"]) not in self._statuses:
                yield f"permission asked for a tool call that was not announced: {params['toolCall']['toolCallId']}"
            options = [option["optionId"] for option in params["options"]]
            if len(set(options)) != len(options):
                yield f"permission options are not unique: {options}"

    def _offered(self, what: str) -> Iterator[str]:
        value: Any = self._capabilities
        for key in CAPABILITY.get(what, ()):
            value = value.get(key) if isinstance(value, dict) else None
        if value is None or value is False:
            yield f"{what} was not offered by the client"

    def _offered_lsp(self, method: str) -> Iterator[str]:
        lsp = (self._capabilities.get("_meta") or {}).get("lsp")
        if lsp is not True and method not in (lsp or {}).get("methods", ()):
            yield f"{method} was not offered by the client"

    def _update(self, session: Any, update: dict[str, Any]) -> Iterator[str]:
        kind = update["sessionUpdate"]
        yield from self._offered(kind)
        if kind == "subagent_update":
            self._sessions.add(update["sessionId"])
        if kind.startswith("plan"):
            yield from self._plan(session, update)
        if kind not in ("tool_call", "tool_call_update"):
            return
        key = (session, update["toolCallId"])
        known = self._statuses.get(key)
        status = update.get("status") or known or "pending"
        if kind == "tool_call":
            if known is not None:
                yield f"tool call {key[1]} was announced before"
        elif known is None:
            yield f"update of tool call {key[1]}, which was not announced"
        elif known in FINAL and "status" in update and update["status"] is not None:
            yield f"tool call {key[1]} was final ({known}) and became {status}"
        elif RANK.get(status, 0) < RANK.get(known, 0):
            yield f"tool call {key[1]} went back from {known} to {status}"
        self._statuses[key] = status
        yield from self._content(update)
        for path in _paths(update):
            if not Path(path).is_absolute():
                yield f"tool call {key[1]} names a relative path: {path}"

    def _plan(self, session: Any, update: dict[str, Any]) -> Iterator[str]:
        form = self._plans.setdefault(session, update["sessionUpdate"] == "plan")
        if form is not (update["sessionUpdate"] == "plan"):
            yield "plans are shown by `plan` and by `plan_update`"
        if (path := (update.get("plan") or {}).get("path")) and not Path(path).is_absolute():
            yield f"a plan names a relative path: {path}"

    def _content(self, update: dict[str, Any]) -> Iterator[str]:
        shown = ((update.get("_meta") or {}).get("terminal_info") or {}).get("terminal_id")
        if shown is not None:
            self._terminals.add(shown)  # the agent's own display terminal (DF-1)
        for item in update.get("content") or ():
            if item["type"] != "terminal":
                continue
            terminal = item["terminalId"]
            if terminal in self._released:
                yield f"tool call {update['toolCallId']} embeds terminal {terminal}, which was released"
            elif terminal not in self._terminals:
                yield f"tool call {update['toolCallId']} embeds terminal {terminal}, which does not exist"


def _paths(update: dict[str, Any]) -> Iterator[str]:
    """The paths in a tool call or in an update of one."""
    yield from (location["path"] for location in update.get("locations") or ())
    yield from (item["path"] for item in update.get("content") or () if item["type"] == "diff")
