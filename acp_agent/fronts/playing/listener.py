"""Hears the messages of client and agent, and records them, or only what the user did in them."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

from acp_agent.limits.decoding import read_loose_json
from acp_agent.llm.recordings.cleaning import HIDDEN
from acp_agent.llm.recordings.tape import Tape
from acp_agent.protocol.tap import Direction

log = logging.getLogger(__name__)

CHUNKS = ("agent_message_chunk", "agent_thought_chunk")
OPENS = ("session/new", "session/load", "session/resume")


class Listener:
    """`user`: records what the user did; `wire`: records every message."""

    def __init__(self, user: Tape | None, wire: Tape | None) -> None:
        self._user = user
        self._wire = wire
        self._partial: dict[Direction, bytes] = {"in": b"", "out": b""}
        self._sessions: dict[str, int] = {}
        self._opening: dict[Any, dict[str, Any]] = {}
        self._asked: dict[Any, dict[str, Any]] = {}
        self._streams: dict[tuple[str, str], tuple[Any, dict[str, Any]]] = {}
        """Text that arrives in pieces: its redaction, and the last message with a piece of it."""

    def hear(self, direction: Direction, data: bytes) -> None:
        *lines, self._partial[direction] = (self._partial[direction] + data).split(b"\n")
        for line in filter(None, lines):
            try:
                message = read_loose_json(line)
            except ValueError:
                message = line.decode("utf-8", "replace")
            try:
                self._take(direction, message)
            except (ValueError, TypeError, AttributeError) as error:  # Whatever a client may send.
                log.info("a message was not recorded: %s", type(error).__name__)

    def _take(self, direction: Direction, message: Any) -> None:
        if isinstance(message, dict):
            self._note(direction, message)
        if self._wire is not None:
            for each in self._pieced(direction, message, self._wire):
                self._wire.write({"wire": direction, "t": self._wire.seconds(), "message": each})

    # --- the wire ---------------------------------------------------------------------------------------------

    def _pieced(self, direction: Direction, message: Any, wire: Tape) -> Iterator[Any]:
        """The clean message. Of text in pieces what may begin a credential is held back until a response ends it."""
        if direction == "out" and isinstance(message, dict):
            if "method" not in message:
                for (_, field), (stream, last) in self._streams.items():
                    if rest := stream.finish():
                        _place(last, field)[field] = rest
                        yield wire.cleaner.clean(last)
                self._streams.clear()
            elif (found := _piece(message)) is not None:
                key, field = found
                stream = self._streams[key, field][0] if (key, field) in self._streams else None
                stream = stream or wire.cleaner.redactor.stream()
                self._streams[key, field] = stream, message
                _place(message, field)[field] = stream.feed(_place(message, field)[field])
        yield wire.cleaner.clean(_without_variables(message))

    # --- the user ---------------------------------------------------------------------------------------------

    def _note(self, direction: Direction, message: dict[str, Any]) -> None:
        method, id_ = message.get("method"), _id(message)
        params = message["params"] if isinstance(message.get("params"), dict) else {}
        if direction == "in" and method in OPENS:
            for tape in filter(None, (self._user, self._wire)):
                tape.cleaner.folder(str(params.get("cwd")))
            self._opening[id_] = params | {"resumed": method != "session/new"}
        elif direction == "in" and method == "session/prompt":
            self._done({"prompt": params.get("prompt")}, params)
        elif direction == "in" and method == "session/set_mode":
            self._done({"set_mode": params.get("modeId")}, params)
        elif direction == "in" and method == "session/set_config_option":
            self._done({"set_option": params.get("value"), "id": params.get("configId")}, params)
        elif direction == "out" and method == "session/request_permission":
            self._asked[id_] = params
        elif direction == "out" and method is None and id_ in self._opening:
            self._opened(self._opening.pop(id_), message.get("result"))
        elif direction == "in" and method is None and id_ in self._asked:
            asked = self._asked.pop(id_)
            self._done({"permission": _kind(asked, message), "title": _title(asked)}, asked)

    def _opened(self, params: dict[str, Any], result: Any) -> None:
        if not isinstance(result, dict):
            return
        id_, modes = str(result.get("sessionId") or params.get("sessionId")), result.get("modes")
        self._sessions[id_] = len(self._sessions) + 1
        mode = modes.get("currentModeId") if isinstance(modes, dict) else None
        self._done({"cwd": params.get("cwd"), "mode": mode, "resumed": params["resumed"]}, {"sessionId": id_})

    def _done(self, line: dict[str, Any], params: dict[str, Any]) -> None:
        if self._user is not None:
            number = self._sessions.get(str(params.get("sessionId")), 0)
            self._user.write({"session": number, **self._user.cleaner.clean(line)})


def _id(message: dict[str, Any]) -> Any:
    id_ = message.get("id")
    return id_ if isinstance(id_, int | str) else None


def _title(asked: dict[str, Any]) -> str:
    call = asked.get("toolCall")
    return str(call.get("title")) if isinstance(call, dict) else ""


def _kind(asked: dict[str, Any], answer: dict[str, Any]) -> str:
    """Kind of the chosen option; `cancelled` if none was."""
    result = answer.get("result")
    outcome = result.get("outcome") if isinstance(result, dict) else None
    chosen = outcome.get("optionId") if isinstance(outcome, dict) else None
    kinds = {each.get("optionId"): str(each.get("kind")) for each in asked.get("options", ())}
    return kinds.get(chosen, "cancelled")


def _piece(message: dict[str, Any]) -> tuple[str, str] | None:
    """What the message has a piece of, and the field in which it is."""
    params = message.get("params")
    update = params.get("update") if isinstance(params, dict) else None
    if message.get("method") != "session/update" or not isinstance(update, dict) or not isinstance(params, dict):
        return None
    kind, session = update.get("sessionUpdate"), params.get("sessionId")
    for field in ("text", "data"):
        place = _place(message, field)
        if isinstance(place.get(field), str) and (field == "data" or kind in CHUNKS):
            return f"{session} {kind} {place.get('terminal_id')}", field
    return None


def _place(message: dict[str, Any], field: str) -> dict[str, Any]:
    update = message["params"]["update"]
    found = update.get("content") if field == "text" else (update.get("_meta") or {}).get("terminal_output")
    return found if isinstance(found, dict) else {}


def _without_variables(message: Any) -> Any:
    """Without the values of variables and headers of MCP servers and gateways, most of which are credentials."""
    params = message.get("params") if isinstance(message, dict) else None
    servers = params.get("mcpServers") if isinstance(params, dict) else None
    for server in servers if isinstance(servers, list) else ():
        for field in ("env", "headers"):
            for pair in server.get(field) or () if isinstance(server, dict) else ():
                if isinstance(pair, dict):
                    pair["value"] = HIDDEN
    meta = params.get("_meta") if isinstance(params, dict) else None
    for given in (params, meta.get("gateway") if isinstance(meta, dict) else None):
        if isinstance(given, dict) and isinstance(given.get("headers"), dict):
            given["headers"] = dict.fromkeys(given["headers"], HIDDEN)
    return message


def chunk_of(message: dict[str, Any]) -> str:
    """The piece of the model's text that the message brings, if any."""
    found = _piece(message)
    return str(_place(message, "text")["text"]) if found is not None and found[1] == "text" else ""
