"""A client of ACP v1 in front of an agent that speaks v2: so the tests of v1 are tests of v2, too.

It is written from the specification, not from `protocol/v2`. Every line of the agent is checked as the conformance kit
does (`WireV2`); what the kit cannot see (a question in the wrong state) is a violation, too.
"""

import base64
import json
from typing import Any

import pytest

from acp_agent.protocol.transports import Transport
from acp_conformance.v2.v2_wire import WireV2


class V2Wire:
    """A `Transport` of a v1 client."""

    def __init__(self, inner: Transport) -> None:
        self._inner = inner
        self.violations: list[str] = []
        self.lines: list[tuple[str, Any]] = []
        self._in, self._out = b"", b""
        self._asked: dict[Any, tuple[str, dict[str, Any]]] = {}
        self._requests: dict[Any, str] = {}
        self._prompts: dict[str, list[tuple[Any, str]]] = {}
        """By session: prompts that are in the conversation, and the ids of their messages."""
        self._states: dict[str, str] = {}
        self._early: dict[str, dict[str, Any]] = {}
        """Ends of turns whose prompts are not answered yet."""
        self._calls: dict[str, dict[str, Any]] = {}
        self._terminals: dict[str, str] = {}
        """The output so far."""
        self._shown_by: dict[str, str] = {}
        self._modes: dict[str, Any] = {}
        self._capabilities: Any = {}
        self._rules = WireV2()
        self._ready: list[dict[str, Any]] = []

    async def read(self) -> bytes:
        while True:
            data = await self._inner.read()
            if not data:
                return b""
            *lines, self._in = (self._in + data).split(b"\n")
            shown = [each for line in lines for each in self._from_agent(line)]
            if shown:
                return b"".join(json.dumps(each).encode() + b"\n" for each in shown)

    async def write(self, data: bytes) -> None:
        *lines, self._out = (self._out + data).split(b"\n")
        await self._inner.write(b"".join(self._to_agent(line) + b"\n" for line in lines))

    def close(self) -> None:
        self._inner.close()

    def _offers(self, *names: str) -> bool:
        """Whether the client of v1 does: in v2 all take it."""
        value: Any = self._capabilities
        for name in names:
            value = value.get(name) if isinstance(value, dict) else None
        return value is not None

    def _wrong(self, words: str) -> None:
        self.violations.append(words)

    # --- to the agent ---------------------------------------------------------------------------------------------

    def _to_agent(self, line: bytes) -> bytes:
        try:
            message = json.loads(line)
        except ValueError:
            return line
        if not isinstance(message, dict):
            return line
        method = message.get("method")
        if method is None:
            asked = self._requests.pop(message.get("id"), None)
            if asked == "elicitation/create" or asked == "session/request_permission":
                self.lines.append(("to_agent", message))
            return json.dumps(message).encode()
        params = message.get("params")
        if isinstance(method, str) and isinstance(params, dict):
            if "id" in message:
                self._asked[message["id"]] = (method, params)
            message = {**message, **self._request(method, params)}
        self.lines.append(("to_agent", message))
        self.violations += self._rules.check("to_agent", message)
        return json.dumps(message).encode()

    def _request(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        match method:
            case "initialize":
                offered = self._capabilities = params.get("clientCapabilities") or {}
                capabilities: dict[str, Any] = {
                    "auth": {"terminal": {}} if (offered.get("auth") or {}).get("terminal") else {},
                    "elicitation": offered.get("elicitation"),
                    "_meta": {key: of for key, of in (offered.get("_meta") or {}).items() if key != "terminal_output"},
                }
                info = params.get("clientInfo") or {"name": "a", "version": "1"}
                params = {"protocolVersion": 2, "info": info, "capabilities": capabilities}
            case "authenticate":
                return {"method": "auth/login", "params": params}
            case "logout":
                return {"method": "auth/logout", "params": params}
            case "session/new" | "session/load" | "session/resume":
                servers = params.get("mcpServers")
                if isinstance(servers, list):
                    servers = [{"type": "stdio", **each} if isinstance(each, dict) else each for each in servers]
                    params = {**params, "mcpServers": servers}
                if method == "session/load":
                    self._calls, method = {}, "session/resume"
                    params["replayFrom"] = {"type": "start"}
            case "session/set_mode":
                method = "session/set_config_option"
                params = {
                    "sessionId": params.get("sessionId"), "configId": "mode", "type": "id",
                    "value": params.get("modeId"),
                }  # fmt: skip
            case "session/set_config_option":
                params = {"type": "id", **params}
        return {"method": method, "params": params}

    # --- from the agent -------------------------------------------------------------------------------------------

    def _from_agent(self, line: bytes) -> list[dict[str, Any]]:
        message = json.loads(line)
        self.lines.append(("from_agent", message))
        self.violations += self._rules.check("from_agent", message)
        if "method" not in message:
            return self._answer(message)
        method, params = message["method"], message.get("params")
        if "id" in message:
            self._requests[message["id"]] = method
            if method == "session/request_permission":
                message["params"] = self._permission(params)
            return [message]
        if method != "session/update":
            return [message]
        rest = {key: of for key, of in params.items() if key != "update"}
        return [
            each if "jsonrpc" in each else {**message, "params": {**rest, "update": each}}
            for each in self._update(params["sessionId"], params["update"])
        ]

    def _answer(self, message: dict[str, Any]) -> list[dict[str, Any]]:
        method, params = self._asked.pop(message.get("id"), ("", {}))
        if method == "session/prompt" and message.get("error", {}).get("code") == -32800:
            return [{"jsonrpc": "2.0", "id": message["id"], "result": {"stopReason": "cancelled"}}]
        if "error" in message or not method:
            return [message]
        result = message["result"]
        match method:
            case "initialize":
                session = result["capabilities"]["session"]
                shown = {
                    "protocolVersion": 1, "agentInfo": result["info"],
                    "agentCapabilities": {
                        "loadSession": True, "promptCapabilities": dict.fromkeys(session.get("prompt", {}), True),
                        "mcpCapabilities": {"http": "http" in session.get("mcp", {})},
                        "sessionCapabilities": {"list": {}, "delete": {}, "resume": {}, "close": {}},
                        "_meta": result["capabilities"].get("_meta"),
                    },
                    "authMethods": [
                        {
                            **{key: of for key, of in each.items() if key not in ("methodId", "type")},
                            **({"type": "terminal"} if each["type"] == "terminal" else {}), "id": each["methodId"],
                            **({"env": {of["name"]: of["value"] for of in each["env"]}} if "env" in each else {}),
                        }
                        for each in result.get("authMethods", [])
                    ],
                    "_meta": result.get("_meta"),
                }  # fmt: skip
                return [{**message, "result": shown}]
            case "session/prompt":
                session_id = params["sessionId"]
                self._prompts.setdefault(session_id, []).append((message["id"], result["messageId"]))
                ended = self._early.pop(session_id, None)
                return [] if ended is None else self._state(session_id, ended)
            case "session/set_mode":
                self._modes[params["sessionId"]] = params["modeId"]
                return [{**message, "result": {}}]
        if "configOptions" in result:
            options = [self._option(each) for each in result["configOptions"]]
            shown = {**result, "configOptions": options}
            mode = next((each for each in options if each.get("category") == "mode"), None)
            if mode is not None:
                self._modes[str(result.get("sessionId", params.get("sessionId")))] = mode["currentValue"]
            if mode is not None and method != "session/set_config_option":
                shown["modes"] = {
                    "currentModeId": mode["currentValue"],
                    "availableModes": [
                        {"id": each["value"], "name": each["name"], "description": each.get("description")}
                        for each in mode["options"]
                    ],
                }
            return [{**message, "result": shown}]
        return [message]

    def _option(self, option: dict[str, Any]) -> dict[str, Any]:
        shown = {**option, "id": option["configId"]}
        del shown["configId"]
        if "options" in shown:
            shown["options"] = [
                {"group": each["groupId"], "name": each["name"], "options": each["options"]}
                if "groupId" in each
                else each
                for each in shown["options"]
            ]
        return shown

    def _permission(self, params: dict[str, Any]) -> dict[str, Any]:
        call = params["subject"]["toolCall"]
        state = self._states.get(params["sessionId"])
        if state not in ("requires_action", None, "idle"):
            self._wrong(f"a question while the state is {state}")
        shown = {"toolCallId": call["toolCallId"], "title": params["title"], **self._content(call)}
        return {"sessionId": params["sessionId"], "toolCall": shown, "options": params["options"]}

    def _content(self, call: dict[str, Any]) -> dict[str, Any]:
        shown = dict(call)
        if shown.get("status") == "cancelled":
            shown["status"] = "failed"
        if shown.get("content"):
            content = []
            for each in shown["content"]:
                if each["type"] == "diff":
                    old, new = applied(each)
                    each = {"type": "diff", "path": each["changes"][0]["path"], "oldText": old, "newText": new}
                elif each["type"] == "terminal":
                    self._shown_by[each["terminalId"]] = call["toolCallId"]
                    each = text(self._terminals.get(each["terminalId"], ""))
                content.append(each)
            shown["content"] = content
        return shown

    def _update(self, session_id: str, update: dict[str, Any]) -> list[dict[str, Any]]:
        kind = update["sessionUpdate"]
        match kind:
            case "state_update":
                return self._state(session_id, update)
            case "terminal_update":
                id_ = update["terminalId"]
                self._terminals.setdefault(id_, "")
                if "output" in update:
                    self._terminals[id_] = decoded(update["output"]["data"])
                return []
            case "terminal_output_chunk":
                id_ = update["terminalId"]
                self._terminals[id_] = self._terminals.get(id_, "") + decoded(update["data"])
                if (call := self._shown_by.get(id_)) is not None:
                    content = [text(self._terminals[id_])]
                    return [{"sessionUpdate": "tool_call_update", "toolCallId": call, "content": content}]
                return []
            case "tool_call_update":
                shown = self._content(update)
                if update["toolCallId"] in self._calls:
                    return [shown]
                self._calls[update["toolCallId"]] = update
                return [{"kind": "other", **shown, "sessionUpdate": "tool_call"}]
            case "tool_call_content_chunk":
                self._wrong("unused here")
            case "user_message_chunk":
                if self._states.get(session_id) == "running" and not update.get("messageId"):
                    self._wrong("a message without an id")
                own = any(update["messageId"] == id_ for _, id_ in self._prompts.get(session_id, ()))
                return [] if own or self._states.get(session_id) == "running" else [update]
            case "user_message":
                return []
            case "config_option_update":
                options = [self._option(each) for each in update["configOptions"]]
                mode = next((each["currentValue"] for each in options if each.get("category") == "mode"), None)
                switched = mode != self._modes.get(session_id)
                self._modes[session_id] = mode
                told = [{"sessionUpdate": "current_mode_update", "currentModeId": mode}] if switched else []
                return [*told, {**update, "configOptions": options}]
            case "available_commands_update":
                commands = [
                    {
                        "name": each["name"], "description": each["description"],
                        **({"input": {"hint": each["input"]["hint"]}} if "input" in each else {}),
                    }
                    for each in update["availableCommands"]
                ]  # fmt: skip
                return [{**update, "availableCommands": commands}]
            case "replay_complete":
                return []
            case "plan_update" | "plan_removed" if not self._offers("plan"):
                plan = update.get("plan") or update
                listed = plan.get("type", "items") == "items" and plan["planId"] != "proposal"
                return [{"sessionUpdate": "plan", "entries": plan.get("entries", [])}] if listed else []
            case "notice" if not self._offers("session", "notices"):
                words = f"{update['title']}\n\n"
                return [{"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": words}}]
            case "compaction_update" | "compaction_summary_chunk" if not self._offers("session", "compaction"):
                return []
        return [update]

    def _state(self, session_id: str, update: dict[str, Any]) -> list[dict[str, Any]]:
        self._states[session_id] = update["state"]
        if update["state"] == "running":
            self._early.pop(session_id, None)
        prompts = self._prompts.get(session_id, [])
        if update["state"] != "idle" or "stopReason" not in update:
            return []
        if not prompts:
            self._early[session_id] = update
            return []
        id_, _ = prompts.pop(0)
        if update["stopReason"] == "error":
            return [{"jsonrpc": "2.0", "id": id_, "error": update["error"]}]
        meta = update.get("_meta") or {}
        more = {"_meta": meta, **({"usage": meta["usage"]} if "usage" in meta else {})} if meta else {}
        return [{"jsonrpc": "2.0", "id": id_, "result": {"stopReason": update["stopReason"], **more}}]


def decoded(data: str) -> str:
    return base64.b64decode(data).decode("utf-8", "replace").replace("\r\n", "\n")


def text(words: str) -> dict[str, Any]:
    return {"type": "content", "content": {"type": "text", "text": words}}


def applied(diff: dict[str, Any]) -> tuple[str | None, str]:
    """Old and new text, as far as the patch has them."""
    old: list[str] = []
    new: list[str] = []
    lines = diff.get("patch", {}).get("text", "").split("\n")
    body = False
    for line in lines:
        if line.startswith("@@"):
            body = True
        elif body and line[:1] in (" ", "-", "+"):
            for kind, to in (("-", old), ("+", new)):
                if line[0] in (" ", kind):
                    to.append(line[1:] + "\n")
    added = diff["changes"][0]["operation"] == "add"
    return None if added else "".join(old), "".join(new)


SEEN: set[str] = set()
"""The kinds of messages that tests of this process have seen, as `kind` names them."""


def kind(direction: str, message: dict[str, Any]) -> str:
    """What a line is: its direction, method, and what its update, or the state in it, is called. Answers have none."""
    method = message.get("method", "")
    params = message.get("params")
    if method != "session/update" or not isinstance(params, dict):
        return f"{direction} {method}" if method else ""
    update = params["update"]
    words = [update["sessionUpdate"], *(str(update[key]) for key in ("state", "stopReason", "status") if key in update)]
    words += sorted({each["type"] for each in update.get("content") or () if isinstance(each, dict) and "type" in each})
    return f"{direction} {' '.join(words)}"


def check(wire: V2Wire) -> None:
    SEEN.update(filter(None, (kind(*line) for line in wire.lines if isinstance(line[1], dict))))
    if wire.violations:
        pytest.fail("\n".join(dict.fromkeys(wire.violations)))
