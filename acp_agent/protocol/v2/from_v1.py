"""What the agent says in v1, as v2: the answer to `initialize`, updates, questions, results."""

from __future__ import annotations

import base64
import uuid
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from acp_agent.protocol.client import as_document
from acp_agent.protocol.v2.patches import patch
from acp_agent.schema import acp

CHUNKS = (acp.UserMessageChunk, acp.AgentMessageChunk, acp.AgentThoughtChunk)
SESSION = ("delete", "additionalDirectories", "systemPrompt", "title", "status", "archive", "options", "fork")
"""Capabilities that are as in v1."""
NOT_DONE = ("failed", "cancelled")
CAN_CANCEL: dict[str, Any] = {"cancel": {}}
FAILED = {"code": -32603, "message": "The turn failed."}


def plain(value: Any) -> Any:
    """A Struct, or what was one, as JSON data."""
    return msgspec.to_builtins(value, str_keys=True)


def filled(value: dict[str, Any]) -> dict[str, Any]:
    """In v1, null says nothing; in a patch of v2 it clears the field."""
    return {key: each for key, each in value.items() if each is not None}


# --- answers -----------------------------------------------------------------------------------------------------


def welcome(answer: dict[str, Any], version: int) -> dict[str, Any]:
    offered = answer["agentCapabilities"]
    session, prompt = offered["sessionCapabilities"], offered["promptCapabilities"]
    methods = [_auth_method(each) for each in logins(answer)]
    capabilities = {
        "session": {
            "prompt": {key: {} for key in ("image", "audio", "embeddedContext") if prompt.get(key)},
            "mcp": {"stdio": {}, "http": {}},
            **{key: session[key] for key in SESSION if key in session},
        },
        "_meta": offered.get("_meta"),
    }
    return filled(
        {
            "protocolVersion": version,
            "info": answer["agentInfo"],
            "capabilities": filled(capabilities),
            "authMethods": methods or None,
            "_meta": answer.get("_meta"),
        }
    )


def logins(answer: dict[str, Any]) -> list[dict[str, Any]]:
    """The ways to log in. Without a login v1 names one that does nothing; in v2 each one promises `auth/logout`."""
    offered = answer["agentCapabilities"].get("auth") or {}
    return list(answer.get("authMethods") or ()) if "logout" in offered else []


def _auth_method(method: dict[str, Any]) -> dict[str, Any]:
    shown = {"type": "agent", **{key: each for key, each in method.items() if key != "id"}, "methodId": method["id"]}
    if "env" in shown:
        shown["env"] = [{"name": name, "value": value} for name, value in shown["env"].items()]
    return shown


def result(answer: Any) -> dict[str, Any]:
    """Of any request but `initialize` and `session/prompt`. Modes are an option."""
    given = plain(answer) or {}
    shown = {key: each for key, each in given.items() if key != "modes" and each is not None}
    if "configOptions" in shown:
        shown["configOptions"] = [_option(each) for each in shown["configOptions"]]
    if "sessions" in shown:
        shown["sessions"] = [filled(each) for each in shown["sessions"]]
    return shown


def _option(option: dict[str, Any]) -> dict[str, Any]:
    shown = {"configId": option["id"], **{key: each for key, each in option.items() if key != "id"}}
    if "options" in shown:
        shown["options"] = [
            {"groupId": each["group"], **{key: of for key, of in each.items() if key != "group"}}
            if "group" in each
            else each
            for each in shown["options"]
        ]
    return filled(shown)


# --- questions -----------------------------------------------------------------------------------------------------


def permission(params: Any) -> dict[str, Any]:
    """The params of `session/request_permission`."""
    given = plain(params)
    call = filled(given.pop("toolCall"))
    title = call.get("title") or call.get("name") or "Allow this call?"
    if below := (call.get("_meta") or {}).get("subAgent"):  # It stands in a session of its own.
        return filled({**given, "title": title, "_meta": {"subAgent": below}})
    return filled({**given, "title": title, "subject": {"type": "tool_call", "toolCall": _call_fields(call)}})


# --- updates -------------------------------------------------------------------------------------------------------


class Updates:
    """Of one connection: v1's `session/update`s, rendered one by one."""

    def __init__(self) -> None:
        self._unnamed: dict[str, tuple[str, str]] = {}
        """By session: the kind and the id of a message that came without one."""
        self._terminals: dict[str, dict[str, bool]] = {}
        """By session, those that have not ended, and whether their call has."""
        self._calls: dict[str, dict[str, bool]] = {}
        """By session, the calls that have not ended, and whether they run and can be cancelled."""
        self._commands: dict[str, str] = {}
        """By call that has not ended, if it runs one."""
        self._background: dict[str, int] = {}
        """By session, how much of it was told."""

    def render(self, session_id: str, update: Any) -> Iterator[Any]:
        """The updates that say the same, in order; a message's text is passed on as it is."""
        if isinstance(update, CHUNKS) and update.message_id is not None:
            yield update
            return
        given = filled(plain(update))
        kind = given["sessionUpdate"]
        match kind:
            case "tool_call" | "tool_call_update":
                yield from self._call(session_id, given)
            case "user_message_chunk" | "agent_message_chunk" | "agent_thought_chunk":
                yield {**given, "messageId": given.get("messageId") or self._id(session_id, kind)}
                return
            case "current_mode_update":
                pass  # The options say it.
            case "config_option_update":
                yield {**given, "configOptions": [_option(each) for each in given["configOptions"]]}
            case "available_commands_update":
                yield {**given, "availableCommands": [command(each) for each in given["availableCommands"]]}
            case "plan":
                yield as_document(given)
            case "subagent_update" | "cursor_update":
                yield {"capabilities": None, **given}
            case "session_info_update":
                yield from _info(given)
            case _:
                yield given
        self._unnamed.pop(session_id, None)

    def runs_on(self, session_id: str, id_: str) -> bool:
        """Whether that terminal runs although its call has ended."""
        return self._terminals.get(session_id, {}).get(id_, False)

    def runs_in_background(self, session_id: str, commands: Iterable[Mapping[str, str]]) -> Iterator[dict[str, Any]]:
        """A session is opened again, in which no commands run but these; yields what is new."""
        running = {each["toolCallId"]: each for each in commands}
        terminals = self._terminals.setdefault(session_id, {})
        for id_ in terminals.keys() - running.keys():
            del terminals[id_]
            yield {"sessionUpdate": "terminal_update", "terminalId": id_, "exitStatus": {}, "capabilities": None}
        for id_ in running.keys() - terminals.keys():
            terminals[id_] = True
            call = {"toolCallId": id_, "title": running[id_]["title"], "status": "completed"}
            yield {"sessionUpdate": "tool_call_update", **call}
            yield _running(id_, running[id_]["command"])

    def background(self, session_id: str) -> list[dict[str, str]]:
        """What runs although no turn does, as states have it."""
        terminals = self._terminals.get(session_id, {})
        found = [{"type": "terminal", "terminalId": id_} for id_, on in terminals.items() if on]
        self._background[session_id] = len(found)
        return found

    def background_changed(self, session_id: str) -> bool:
        """Since it was told last; it grows or shrinks by one."""
        running = sum(self._terminals.get(session_id, {}).values())
        return running != self._background.get(session_id, 0)

    def _id(self, session_id: str, kind: str) -> str:
        if self._unnamed.get(session_id, ("", ""))[0] != kind:
            self._unnamed[session_id] = (kind, str(uuid.uuid4()))
        return self._unnamed[session_id][1]

    def _call(self, session_id: str, given: dict[str, Any]) -> Iterator[dict[str, Any]]:
        terminals, calls = self._terminals.setdefault(session_id, {}), self._calls.setdefault(session_id, {})
        meta = dict(given.pop("_meta", None) or {})
        info, output, ended = (meta.pop(f"terminal_{name}", None) for name in ("info", "output", "exit"))
        asked = given.get("rawInput")
        command = asked.get("command") if isinstance(asked, dict) else None
        if info is not None:
            id_ = info["terminal_id"]
            terminals[id_] = False
            shown = {"terminalId": id_, "command": command or given.get("title"), "cwd": info.get("cwd")}
            yield {"sessionUpdate": "terminal_update", **filled(shown)}
        if output is not None:
            data = base64.b64encode(output["data"].encode("utf-8", "replace")).decode("ascii")
            yield {"sessionUpdate": "terminal_output_chunk", "terminalId": output["terminal_id"], "data": data}
        call = _call_fields({**given, **({"_meta": meta} if meta else {})})
        ran = meta.get("background")
        if ended is None and terminals.get(call["toolCallId"]) and isinstance(ran, dict) and "exit_code" in ran:
            ended = {"terminal_id": call["toolCallId"], "exit_code": ran["exit_code"]}
        id_ = ended["terminal_id"] if ended is not None else call["toolCallId"]
        if ended is not None or (call.get("status") in NOT_DONE and id_ in terminals):
            could = {"capabilities": None} if terminals.pop(id_, False) else {}
            status = filled({"exitCode": (ended or {}).get("exit_code"), "signal": (ended or {}).get("signal")})
            yield {"sessionUpdate": "terminal_update", "terminalId": id_, "exitStatus": status, **could}
        if given["sessionUpdate"] == "tool_call" and "tool_name" in meta:
            calls[id_] = False
            if isinstance(command, str):
                self._commands[id_] = command
        if call.get("status") == "in_progress" and id_ in calls:
            calls[id_] = True
            call["capabilities"] = CAN_CANCEL
        elif call.get("status") in (*NOT_DONE, "completed") and id_ in calls:
            if calls.pop(id_):
                call["capabilities"] = None
            command, result = self._commands.pop(id_, None), call.get("rawOutput")
            runs_on = isinstance(result, dict) and result.get("background") is True
            if id_ not in terminals and runs_on and given["sessionUpdate"] == "tool_call_update":  # Not a replay.
                terminals[id_] = True
                yield _running(id_, command)
            elif id_ in terminals:
                terminals[id_] = True
                yield {"sessionUpdate": "terminal_update", "terminalId": id_, "capabilities": CAN_CANCEL}
        if call.keys() - {"sessionUpdate", "toolCallId"}:
            yield {**call, "sessionUpdate": "tool_call_update"}


def _running(id_: str, command: str | None) -> dict[str, Any]:
    told = filled({"terminalId": id_, "command": command})
    return {"sessionUpdate": "terminal_update", **told, "capabilities": CAN_CANCEL}


def _call_fields(given: dict[str, Any]) -> dict[str, Any]:
    """Of a tool call, without those that say nothing."""
    call = filled(given)
    if call.get("status") == "failed" and _category(call.get("_meta")) == "cancelled":
        call["status"] = "cancelled"
    if "content" in call:
        call["content"] = [_diff(each) if each.get("type") == "diff" else filled(each) for each in call["content"]]
    if "locations" in call:
        call["locations"] = [_location(each) for each in call["locations"]]
    return call


def _category(meta: Any) -> object:
    error = meta.get("toolError") if isinstance(meta, dict) else None
    return error.get("category") if isinstance(error, dict) else None


def _location(location: dict[str, Any]) -> dict[str, Any]:
    return {key: each for key, each in location.items() if each is not None and (key != "line" or each > 0)}


def _diff(diff: dict[str, Any]) -> dict[str, Any]:
    path, old, new, meta = diff["path"], diff.get("oldText"), diff["newText"], diff.get("_meta")
    gone = isinstance(meta, dict) and meta.get("kind") == "deleted"
    change = {"operation": "delete" if gone else "add" if old is None else "modify", "path": path, "fileType": "text"}
    text = patch(path, old, None if gone else new)
    shown = {"format": "git_patch", "text": text} if text else None
    return filled({"type": "diff", "changes": [change], "patch": shown, "_meta": meta})


def command(given: dict[str, Any]) -> dict[str, Any]:
    shown = {"type": "command", **filled(given)}
    if "input" in shown:
        shown["input"] = {"type": "text", **shown["input"]}
    return shown


def _info(given: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The state of a turn is said in `_meta` in v1."""
    meta = dict(given.pop("_meta", None) or {})
    turn = meta.pop("turn", None)
    if isinstance(turn, dict):
        yield state(turn)
    if meta or len(given) > 1:
        yield {**given, **({"_meta": meta} if meta else {})}


def state(turn: dict[str, Any]) -> dict[str, Any]:
    """`turn`: as it stands in `_meta` in v1."""
    meta = {key: turn[key] for key in ("usage", "limit", "files", "moreFiles", "failedCalls") if key in turn}
    rest = {key: each for key, each in turn.items() if key not in meta}
    shown = filled({"sessionUpdate": "state_update", **rest, "_meta": meta or None})
    if shown.get("stopReason") == "failed":
        shown |= {"stopReason": "error", "error": turn.get("error") or FAILED}
    return shown
