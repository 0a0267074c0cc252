"""Holds each line of an agent that speaks v2 against the schema, and against rules that the schema cannot express.

A sentence about what is wrong begins with the id of the requirement that it breaks. Open enums are closed here: an
agent sends values that the schema names, or its own, which begin with `_`.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any

from acp_agent.testing.checks import Direction, Schema
from acp_conformance.requirements import schema_file

FINAL = ("completed", "failed", "cancelled")
STEPS = {"status": ("pending", "in_progress", "completed", "cancelled"), "priority": ("high", "medium", "low")}
"""The named words for a step of a plan."""
OF_V1 = {"tool_call": "V2-TC-1", "current_mode_update": "V2-CFG-4", "plan": "V2-PLAN-1"}
"""Updates that are gone -> the requirement that says so."""
CUSTOM = "Custom or future"
"""With which the description of an open tag begins."""
BREAKS: tuple[tuple[str, str], ...] = (
    (r"Error", "RPC-1"),
    (r"ToolCallUpdate\.status", "V2-TC-4"),
    (r'[^ ]+ "\w*" is not valid under any', "V2-ENUM-1"),
    (r"InitializeResponse\.authMethods", "V2-AUTH-1"),
    (r"InitializeResponse\.capabilities", "V2-INIT-8"),
    (r"InitializeResponse", "V2-INIT-4"),
    (r"\w+\.configOptions|ConfigOptionUpdate|SetSessionConfigOptionResponse", "V2-CFG-1"),
    (r"\w+\.availableCommands|AvailableCommandsUpdate", "V2-CMD-1"),
    (r"NewSessionResponse", "V2-SESS-2"),
    (r"ResumeSessionResponse", "V2-SESS-12"),
    (r"ListSessionsResponse", "V2-SESS-13"),
    (r"PromptResponse", "V2-PR-2"),
    (r"StateUpdate", "V2-ST-3"),
    (r"ContentChunk|UserMessage|AgentMessage|AgentThought", "V2-MSG-1"),
    (r"ToolCallUpdate\.locations", "V2-TC-7"),
    (r"ToolCall\w+\.content.*\"diff\"", "V2-DIFF-1"),
    (r"ToolCall\w+\.content", "V2-TC-6"),
    (r"ToolCall", "V2-TC-3"),
    (r"TerminalUpdate\.exitStatus", "V2-TERM-5"),
    (r"TerminalOutputChunk", "V2-TERM-3"),
    (r"TerminalUpdate", "V2-TERM-2"),
    (r"RequestPermissionRequest\.subject", "V2-PERM-2"),
    (r"RequestPermissionRequest", "V2-PERM-1"),
    (r"CreateElicitationRequest", "V2-ELIC-1"),
    (r"PlanUpdate.*\"markdown\"|PlanRemoved", "V2-PLAN-3"),
    (r"PlanUpdate", "V2-PLAN-1"),
    (r"ReplayComplete", "V2-REP-1"),
    (r"UsageUpdate", "V2-USE-1"),
    (r"SessionInfoUpdate", "V2-INFO-1"),
    (r"Notice", "V2-NOTE-1"),
    (r"Compaction", "V2-COMP-1"),
    (r"CancelRequestNotification", "V2-CAN-8"),
    (r"", "V2-ENUM-1"),
)
"""Where a line differs from the schema -> the requirement that it breaks."""


def closed(node: Any) -> None:
    """Of the schema: no open tag or enum takes a value that is neither named nor begins with `_`."""
    if isinstance(node, dict):
        if node.get("title") == "other":
            properties = node.get("properties", {}).values()
            tags = [each for each in properties if each.get("description", "").startswith(CUSTOM)]
            for each in tags or [node]:
                each["pattern"] = "^_"
        for each in node.values():
            closed(each)
    elif isinstance(node, list):
        for each in node:
            closed(each)


def _read(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(schema_file(name).read_text(encoding="utf-8"))
    return found


def _add_preview(known: dict[str, Any]) -> None:
    """What the Preview has beyond the pinned schema, in part as v1 has it."""
    added, v1 = _read("acp-v2-preview.overlay.json"), _read("acp-v1-1.34.overlay.json")
    shared = added["from_v1"]
    known |= added["$defs"] | {name: v1["$defs"][name] for name in shared["$defs"]}
    for of, properties in added["properties"].items():
        known[of]["properties"] |= properties
    for of, names in shared["properties"].items():
        known[of]["properties"] |= {name: v1["properties"][of][name] for name in names}
    for of, variants in added["variants"].items():
        known[of]["anyOf"] += variants
    drafts, unstable = _read("acp-v1-drafts.schema.json"), added["from_drafts"]
    known |= {name: drafts["$defs"][name] for name in unstable["$defs"]}
    for of, tags in unstable["variants"].items():
        known[of]["anyOf"] += [each for each in drafts["variants"][of] if _tag(each) in tags]
    for of, tags in shared["variants"].items():
        variants = v1["variants"].get(of) or v1["$defs"][of]["oneOf"]
        known[of]["anyOf"] += [each for each in variants if _tag(each) in tags]


def _tag(variant: dict[str, Any]) -> str:
    return str(next(each["const"] for each in variant["properties"].values() if "const" in each))


@cache
def schema() -> tuple[Schema, dict[str, str]]:
    """With the definition of each kind of update."""
    document = _read("acp-v2.schema.json")
    _add_preview(document["$defs"])
    closed(document)
    kinds = {
        each["properties"]["sessionUpdate"]["const"]: each["allOf"][0]["$ref"].rpartition("/")[2]
        for each in document["$defs"]["SessionUpdate"]["anyOf"]
        if each.get("title") != "other"
    }
    return Schema(document), kinds


class WireV2:
    """State of one connection."""

    def __init__(self) -> None:
        self._asked: dict[Direction, dict[tuple[type, Any], tuple[str, Any]]] = {"to_agent": {}, "from_agent": {}}
        self._own: set[tuple[type, Any]] = set()
        """Ids of all requests of the agent."""
        self._closed: set[str] = set()
        self._calls: dict[tuple[str, str], str] = {}
        """Statuses, by session and id."""
        self._terminals: set[tuple[str, str]] = set()
        self._modes: tuple[str, ...] = ()
        """In which the client can be asked by `elicitation/create`."""

    def check(self, direction: Direction, message: Any) -> Iterator[str]:
        """Sentences. What the client sends is noted only."""
        if direction == "to_agent":
            self._note(message)
            return
        if not isinstance(message, dict):
            yield f"TR-1: not an object: {str(message)[:300]}"
            return
        if message.get("jsonrpc") != "2.0":
            yield f"RPC-1: `jsonrpc` is {message.get('jsonrpc')!r}"
        yield from self._call(message) if "method" in message else self._answer(message)

    def _note(self, message: Any) -> None:
        if isinstance(message, dict) and "method" in message and "id" in message:
            key = (type(message["id"]), message["id"])
            self._asked["to_agent"][key] = (message["method"], message.get("params"))
            if message["method"] == "initialize":
                self._modes = _modes(message.get("params"))
            if message["method"] == "session/resume" and isinstance(message.get("params"), dict):
                self._closed.discard(str(message["params"].get("sessionId")))

    def _answer(self, message: dict[str, Any]) -> Iterator[str]:
        if ("result" in message) == ("error" in message) or "id" not in message:
            yield f"RPC-1: an answer has an id and exactly one of `result` and `error`: {sorted(message)}"
            return
        method, params = self._asked["to_agent"].pop((type(message["id"]), message["id"]), ("", None))
        if "error" in message:
            yield from self._wrong("Error", message["error"])
        if not method:
            if message["id"] is not None or "result" in message:
                yield f"V2-RPC-2: an answer to id {message['id']!r}, which is not open"
        elif "result" in message:
            definition = schema()[0].results.get(("to_agent", method))
            if definition and not _of_v1(method, message["result"]):
                yield from self._wrong(definition, message["result"])
            if method == "session/close":
                self._closed.add(str(params.get("sessionId")))

    def _call(self, message: dict[str, Any]) -> Iterator[str]:
        method: Any = message["method"]
        params: Any = message.get("params")
        key = (type(message.get("id")), message.get("id"))
        if "id" in message:
            if key in self._own:
                yield f"RPC-6: id {message['id']!r} was used before"
            self._own.add(key)
        definition = schema()[0].params.get(("from_agent", method))
        if definition is None:
            if not str(method).startswith("_"):
                id_ = {"terminal": "V2-TERM-1", "fs": "V2-INIT-11"}.get(str(method).partition("/")[0], "EXT-3")
                yield f"{id_}: no such method of a client in v2: {method}"
        elif method == "session/update":
            yield from self._update(params)
        else:
            wrong = list(self._wrong(definition, params))
            yield from wrong
            if not wrong and method == "$/cancel_request":
                id_ = params["requestId"]
                if (type(id_), id_) not in self._own:
                    yield f"V2-CAN-8: `$/cancel_request` names {id_!r}, which is no request of the agent's"
            elif not wrong and method == "session/request_permission":
                yield from self._question(params)
            elif not wrong and method == "elicitation/create":
                yield from self._form(params)

    def _wrong(self, definition: str, value: Any) -> Iterator[str]:
        for problem in schema()[0].problems(definition, value):
            id_ = next(id_ for pattern, id_ in BREAKS if re.match(pattern, problem))
            yield f"{id_}: {problem}"

    def _question(self, params: dict[str, Any]) -> Iterator[str]:
        ids = [each["optionId"] for each in params["options"]]
        if len(set(ids)) != len(ids) or not ids:
            yield f"V2-PERM-1: the ids of the options are {ids}"
        subject = params.get("subject") or {}
        if subject.get("type") == "tool_call":
            yield from self._tool_call(params["sessionId"], subject["toolCall"])

    def _form(self, params: dict[str, Any]) -> Iterator[str]:
        if params["mode"] not in self._modes:
            yield f"V2-ELIC-1: the client does not offer the mode {params['mode']!r}"
        id_ = params.get("requestId")
        if id_ is not None and (type(id_), id_) not in self._asked["to_agent"]:
            yield f"V2-ELIC-1: it names request {id_!r}, which is not open"

    # --- updates ----------------------------------------------------------------------------------------------

    def _update(self, params: Any) -> Iterator[str]:
        update = params.get("update") if isinstance(params, dict) else None
        kind = update.get("sessionUpdate") if isinstance(update, dict) else None
        if update is None or not isinstance(kind, str) or not isinstance(params.get("sessionId"), str):
            yield f"V2-ENUM-1: no update of a session: {str(params)[:300]}"
            return
        session = params["sessionId"]
        if session in self._closed:
            yield f"V2-SESS-14: `{kind}` of session {session}, which was closed"
        if kind not in schema()[1]:
            if kind == "tool_call":
                self._calls[session, str(update.get("toolCallId"))] = "pending"
            if not kind.startswith("_"):
                id_ = OF_V1.get(kind, "V2-ENUM-1")
                yield f"{id_}: there is no update `{kind}` in v2"
            return
        wrong = list(self._wrong(schema()[1][kind], update))
        if wrong and kind == "plan_update" and (odd := _odd_steps(update)):
            wrong = [f"V2-PLAN-2: a step of a plan is {each}" for each in odd]
        yield from wrong
        if not wrong:
            yield from self._content(session, kind, update)
        elif kind == "tool_call_update":  # What follows is about a call that was told.
            self._calls.setdefault((session, str(update.get("toolCallId"))), "pending")

    def _content(self, session: str, kind: str, update: dict[str, Any]) -> Iterator[str]:
        match kind:
            case "tool_call_update":
                yield from self._tool_call(session, update)
            case "terminal_update":
                self._terminals.add((session, update["terminalId"]))
                cwd = update.get("cwd")
                if cwd is not None and not Path(cwd).is_absolute():
                    yield f"V2-TERM-2: `cwd` of a terminal is {cwd!r}"
            case "terminal_output_chunk":
                if (session, update["terminalId"]) not in self._terminals:
                    yield f"V2-TERM-2: output of terminal {update['terminalId']}, of which no update came before"
                if decoded(update["data"]) is None:
                    yield f"V2-TERM-3: not base64 by itself: {update['data'][:80]!r}"
            case "session_info_update":
                if (at := update.get("updatedAt")) is not None and not _is_time(at):
                    yield f"V2-INFO-1: `updatedAt` is {at!r}"
            case "config_option_update":
                for option in update["configOptions"]:
                    yield from (f"V2-CFG-1: {each}" for each in wrong_option(option))

    def _tool_call(self, session: str, call: dict[str, Any]) -> Iterator[str]:
        key = (session, call["toolCallId"])
        before = self._calls.get(key)
        status = call["status"] or "pending" if "status" in call else before or "pending"
        self._calls[key] = status
        if before is None and not call.get("title"):
            yield f"V2-TC-2: the first report of call {key[1]} has no title"
        elif before in FINAL and status != before:
            yield f"V2-TC-4: call {key[1]} was {before} and became {status}"
        elif before not in (None, "pending") and status == "pending":
            yield f"V2-TC-4: call {key[1]} went back from {before} to pending"
        for each in call.get("locations") or ():
            if not Path(each["path"]).is_absolute() or each.get("line") == 0:
                yield f"V2-TC-7: a location is {each}"
        for each in call.get("content") or ():
            if each["type"] == "diff":
                paths = [change[name] for change in each["changes"] for name in ("path", "oldPath") if name in change]
                if relative := [path for path in paths if not Path(path).is_absolute()]:
                    yield f"V2-DIFF-2: a change names the relative path {relative[0]!r}"


def _of_v1(method: str, result: Any) -> bool:
    """An answer to `initialize` that agrees upon an older version, whose shape it has."""
    return method == "initialize" and isinstance(result, dict) and result.get("protocolVersion") in (0, 1)


def _modes(params: Any) -> tuple[str, ...]:
    offered = params.get("capabilities") if isinstance(params, dict) else None
    modes = offered.get("elicitation") if isinstance(offered, dict) else None
    return tuple(modes) if isinstance(modes, dict) else ()


def _odd_steps(update: dict[str, Any]) -> list[Any]:
    """Steps of a plan whose status or priority is neither named nor begins with `_`."""
    plan = update.get("plan")
    entries = plan.get("entries") if isinstance(plan, dict) else None
    found = []
    for each in entries if isinstance(entries, list) else ():
        told = [(each.get(name), known) for name, known in STEPS.items()] if isinstance(each, dict) else []
        if any(isinstance(word, str) and word not in known and not word.startswith("_") for word, known in told):
            found.append(each)
    return found


def _is_time(text: str) -> bool:
    """Whether it is one of RFC 3339."""
    try:
        return datetime.fromisoformat(text).tzinfo is not None
    except ValueError:
        return False


def decoded(data: str) -> bytes | None:
    try:
        return base64.b64decode(data, validate=True)
    except ValueError:
        return None


def values(option: dict[str, Any]) -> list[Any]:
    """Of a select option, of all groups."""
    given = option.get("options") or []
    return [each["value"] for entry in given for each in (entry["options"] if "groupId" in entry else [entry])]


def wrong_option(option: dict[str, Any]) -> Iterator[str]:
    if option.get("type") == "select":
        known = values(option)
        if not known or len(set(known)) != len(known):
            yield f"the values of option `{option['configId']}` are {known}"
        elif option["currentValue"] not in known:
            yield f"option `{option['configId']}` is {option['currentValue']!r}, which is none of its values"
