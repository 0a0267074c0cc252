"""Requests of v2 as requests of v1. What both versions have alike is checked behind it, as it is for v1."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from acp_agent.errors import InvalidParams

DRAFTS = ("fork", "set_title", "status", "archive", "unarchive", "options")
METHODS = {
    "auth/login": "authenticate",
    "auth/logout": "logout",
    "session/new": "session/new",
    "session/resume": "session/resume",
    "session/list": "session/list",
    "session/close": "session/close",
    "session/delete": "session/delete",
    "session/prompt": "session/prompt",
    "session/set_config_option": "session/set_config_option",
    **{f"session/{name}": f"session/{name}" for name in DRAFTS},
}
"""Requests of v2 -> the one of v1."""
CLIENT: dict[str, Any] = {"session": {"configOptions": {"boolean": {}}, "notices": {}, "compaction": {}}, "plan": {}}
"""What each client of v2 can do without saying so."""
MARKS = {"terminal_output": True, "turns": True}
"""In `_meta` of its capabilities: terminals are drawn, its own messages come back, and so do the states of turns."""
VALUES = {"id": (str, "a string"), "boolean": (bool, "true or false")}
"""Types of the values of options."""
SERVERS = {"stdio": ("args", "env"), "http": ("headers",)}
"""Types of MCP servers -> lists that may be left out in v2."""


def table(value: object, at: str) -> dict[str, Any]:
    """Raises InvalidParams if it is no object."""
    if not isinstance(value, dict):
        raise InvalidParams(f"Invalid params: {at}: expected an object")
    return value


def version(params: object) -> int:
    """That is asked for. Raises InvalidParams."""
    asked = table(params, "$").get("protocolVersion")
    if type(asked) is not int or asked < 0:
        raise InvalidParams("Invalid params: $.protocolVersion: expected a whole number, 0 or more")
    return asked


def initialize(params: Mapping[str, Any], version: int) -> dict[str, Any]:
    """Of a client that asks for `version`; one above 2 may have params of a shape that is not known yet."""
    strict = params["protocolVersion"] == version
    info, offered = params.get("info"), params.get("capabilities")
    if strict and not (isinstance(info, dict) and all(isinstance(info.get(key), str) for key in ("name", "version"))):
        raise InvalidParams("Invalid params: $.info: expected an object with `name` and `version`")
    if strict and not isinstance(offered, dict | None):
        raise InvalidParams("Invalid params: $.capabilities: expected an object")
    capabilities = offered if isinstance(offered, dict) else {}
    auth, elicitation, meta = (
        value if isinstance(value := capabilities.get(key), dict) else {} for key in ("auth", "elicitation", "_meta")
    )
    session = capabilities.get("session")
    session = session if isinstance(session, dict) else {}
    drafts: dict[str, Any] = {key: {} for key in ("cursors", "promptSuggestions") if isinstance(session.get(key), dict)}
    known = {
        **CLIENT,
        "session": {**CLIENT["session"], **drafts},
        "auth": {"terminal": isinstance(auth.get("terminal"), dict)},
        "elicitation": {key: elicitation[key] for key in ("form", "url") if isinstance(elicitation.get(key), dict)},
        "_meta": {**meta, **MARKS},
    }
    if isinstance(capabilities.get("subagents"), dict):
        known["subagents"] = {}
    named = {"clientInfo": info} if isinstance(info, dict) and isinstance(info.get("name"), str) else {}
    return {"protocolVersion": 1, "clientCapabilities": known, **named}


def opening(params: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Of `session/new` and `session/resume`: the folders and servers, and what is to be replayed ("" or `start`)."""
    replay = params.get("replayFrom")
    if replay is not None and table(replay, "$.replayFrom").get("type") != "start":
        raise InvalidParams(f"Invalid params: $.replayFrom.type: {replay.get('type')!r} is not known, only 'start'")
    servers = params.get("mcpServers")
    if servers is not None and not isinstance(servers, list):
        raise InvalidParams("Invalid params: $.mcpServers: expected an array")
    kept = {key: value for key, value in params.items() if key != "replayFrom"}
    if kept.get("additionalDirectories", ()) is None:
        del kept["additionalDirectories"]
    kept["mcpServers"] = [_server(each, f"$.mcpServers[{index}]") for index, each in enumerate(servers or ())]
    return "" if replay is None else "start", kept


def _server(server: object, at: str) -> dict[str, Any]:
    given = table(server, at)
    lists = SERVERS.get(str(given.get("type")))
    if lists is None:
        raise InvalidParams(f"Invalid params: {at}.type: {given.get('type')!r} is not known, only 'stdio' and 'http'")
    return {**{key: [] for key in lists}, **{key: value for key, value in given.items() if value is not None}}


def prompt(params: dict[str, Any], mark: str) -> dict[str, Any]:
    """Of `session/prompt`, with what v1 says in `_meta`."""
    key, meta = params.get("idempotencyKey"), params.get("_meta")
    if not isinstance(key, str | None):
        raise InvalidParams("Invalid params: $.idempotencyKey: expected a string")
    told = {"prompt": mark, **({} if key is None else {"idempotencyKey": key})}
    kept = {name: value for name, value in params.items() if name != "idempotencyKey"}
    return {**kept, "_meta": {**(meta if isinstance(meta, dict) else {}), **told}}


def option(params: dict[str, Any]) -> dict[str, Any]:
    """Of `session/set_config_option`."""
    type_, value = params.get("type"), params.get("value")
    if type_ not in VALUES:
        raise InvalidParams(f"Invalid params: $.type: {type_!r} is not known, only 'id' and 'boolean'")
    expected, words = VALUES[type_]
    if not isinstance(value, expected):
        raise InvalidParams(f"Invalid params: $.value: expected {words}")
    return {key: given for key, given in params.items() if key != "type" or given == "boolean"}
