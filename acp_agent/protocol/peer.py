"""JSON-RPC 2.0, both directions, without I/O: bytes in -> events, calls -> bytes.

What lives here: framing (one message a line, split at LF only), the envelope, id bookkeeping, the error answers that
JSON-RPC requires for input that is not a message. What does not: a clock, a stream, anything of ACP, an import beyond
the standard library's `json` (this module answers `initialize` before anything else is loaded).

Rules kept here (JSON-RPC 2.0; ACP v1 "transports"):

* No input ends the process: what is not JSON is `Malformed` with a -32700 answer, JSON that is no message with -32600.
* A line longer than `max_line` bytes is answered with an error once and skipped without being kept.
* A response to an unknown request is dropped. A notification is never answered.
* A request is answered exactly once; a second answer is a `LocalProtocolError`.
* Ids are echoed with value and type. Ours are integers, counted up, independent of theirs.
* Lone surrogates (`"\\ud83d"`) become U+FFFD on the way in and never break a line on the way out.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from json.encoder import JSONEncoder

from acp_agent.errors import LocalProtocolError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


MAX_LINE_BYTES = 64 * 1024 * 1024
"""The longest line accepted, without its line feed."""

PARSE_ERROR = -32700
INVALID_REQUEST = -32600

RequestId = int | str | None


class RequestReceived:
    """A request from the other side; it must be answered once, by `Peer.respond` or `Peer.fail`."""

    __match_args__ = ("id", "method", "params")
    __slots__ = ("id", "method", "params")

    def __init__(self, id: RequestId, method: str, params: Any) -> None:
        self.id = id
        self.method = method
        self.params = params


class NotificationReceived:
    """A notification from the other side, which is never answered."""

    __match_args__ = ("method", "params")
    __slots__ = ("method", "params")

    def __init__(self, method: str, params: Any) -> None:
        self.method = method
        self.params = params


class ResponseReceived:
    """The answer to our request `id`: `result`, or `error` as `(code, message, data)`."""

    __match_args__ = ("id", "result", "error")
    __slots__ = ("error", "id", "result")

    def __init__(self, id: int, result: Any, error: tuple[int, str, Any] | None) -> None:
        self.id = id
        self.result = result
        self.error = error


class Malformed:
    """Input that is not a message. `answer` are the bytes to send back."""

    __match_args__ = ("reason", "answer")
    __slots__ = ("answer", "reason")

    def __init__(self, reason: str, answer: bytes) -> None:
        self.reason = reason
        self.answer = answer


Event = RequestReceived | NotificationReceived | ResponseReceived | Malformed

_encoder = JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def encode_json(value: object) -> bytes:
    """`value` (plain JSON data) as UTF-8; lone surrogates become `?`."""
    return _encoder.encode(value).encode("utf-8", "replace")


class Peer:
    """One end of a JSON-RPC connection.

    `encode` turns an envelope into bytes; a later stage may assign one that knows more types than plain JSON data, and
    another `max_line` (bytes) once the configuration has been read.
    """

    def __init__(self, *, max_line: int = MAX_LINE_BYTES, encode: Callable[[object], bytes] = encode_json) -> None:
        self.encode = encode
        self.max_line = max_line
        self._partial = bytearray()
        self._skipping = False
        self._next_id = 0
        self._ours: set[int] = set()
        self._theirs: dict[tuple[type, RequestId], int] = {}

    # --- in ---------------------------------------------------------------------------------------------------

    def receive(self, data: bytes) -> list[Event]:
        """Returns the events completed by `data`, the next bytes of the stream. Never raises, whatever `data` holds."""
        events: list[Event] = []
        start = 0
        while (end := data.find(b"\n", start)) >= 0:
            self._keep(data[start:end], events)
            start = end + 1
            line, self._partial = self._partial, bytearray()
            skipped, self._skipping = self._skipping, False
            if line and not skipped and not line.isspace():
                self._line(line, events)
        if start < len(data):
            self._keep(data[start:] if start else data, events)
        return events

    def receive_eof(self) -> list[Event]:
        """Ends the stream: returns the events of a last line without a line feed."""
        return self.receive(b"\n") if self._partial else []

    def _keep(self, part: bytes, events: list[Event]) -> None:
        if self._skipping:
            return
        if len(self._partial) + len(part) <= self.max_line:
            self._partial += part
            return
        self._skipping = True
        self._partial = bytearray()
        reason = f"Invalid request: the line is longer than {self.max_line} bytes and was skipped"
        events.append(self._malformed(None, INVALID_REQUEST, reason))

    def _line(self, line: bytearray, events: list[Event]) -> None:
        try:
            message = _decode(line)
        except (ValueError, RecursionError) as error:
            reason = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
            events.append(self._malformed(None, PARSE_ERROR, f"Parse error: {reason}"))
            return
        event = self._classify(message)
        if event is not None:
            events.append(event)

    def _classify(self, message: Any) -> Event | None:
        if type(message) is not dict:
            what = "batches are not part of ACP v1" if type(message) is list else "a message is a JSON object"
            return self._malformed(None, INVALID_REQUEST, f"Invalid request: {what}")
        id_ = message.get("id")
        if type(id_) not in (int, str, type(None)):
            return self._malformed(None, INVALID_REQUEST, "Invalid request: `id` must be a string, an integer or null")
        if "method" not in message and ("result" in message or "error" in message):
            return self._response(id_, message)
        method = message.get("method")
        if message.get("jsonrpc") != "2.0":
            return self._malformed(id_, INVALID_REQUEST, 'Invalid request: `jsonrpc` must be "2.0"')
        if type(method) is not str:
            return self._malformed(id_, INVALID_REQUEST, "Invalid request: `method` must be a string")
        if "id" not in message:
            return NotificationReceived(method, message.get("params"))
        key = (type(id_), id_)
        self._theirs[key] = self._theirs.get(key, 0) + 1
        return RequestReceived(id_, method, message.get("params"))

    def _response(self, id_: RequestId, message: dict[str, Any]) -> Event | None:
        if type(id_) is not int or id_ not in self._ours:
            return None
        self._ours.discard(id_)
        if "error" not in message or (message["error"] is None and "result" in message):
            return ResponseReceived(id_, message["result"], None)
        error = message["error"]
        if type(error) is dict and type(error.get("code")) is int and type(error.get("message")) is str:
            return ResponseReceived(id_, None, (error["code"], error["message"], error.get("data")))
        return ResponseReceived(id_, None, (-32603, "the answer's error object is malformed", error))

    def _malformed(self, id_: RequestId, code: int, reason: str) -> Malformed:
        envelope = {"jsonrpc": "2.0", "id": id_, "error": {"code": code, "message": reason}}
        return Malformed(reason, encode_json(envelope) + b"\n")

    # --- out --------------------------------------------------------------------------------------------------

    def request(self, method: str, params: object) -> tuple[int, bytes]:
        """Returns the id and the bytes of a request of ours."""
        id_ = self._next_id
        data = self.encode({"jsonrpc": "2.0", "id": id_, "method": method, "params": params}) + b"\n"
        self._next_id += 1
        self._ours.add(id_)
        return id_, data

    def notify(self, method: str, params: object) -> bytes:
        """Returns the bytes of a notification."""
        return self.encode({"jsonrpc": "2.0", "method": method, "params": params}) + b"\n"

    def respond(self, id: RequestId, result: object) -> bytes:
        """Returns the bytes of the answer to their request `id`. Raises LocalProtocolError if already answered."""
        data = self.encode({"jsonrpc": "2.0", "id": id, "result": result}) + b"\n"
        self._answered(id)
        return data

    def fail(self, id: RequestId, code: int, message: str, data: object = None) -> bytes:
        """Returns the bytes of an error answer. Raises LocalProtocolError if `id` was answered already."""
        error: dict[str, object] = {"code": code, "message": message}
        if data is not None:
            error["data"] = data
        answer = self.encode({"jsonrpc": "2.0", "id": id, "error": error}) + b"\n"
        self._answered(id)
        return answer

    def abandon(self, id: int) -> None:
        """Stops waiting for the answer to our request `id`; one that arrives is dropped."""
        self._ours.discard(id)

    def _answered(self, id_: RequestId) -> None:
        key = (type(id_), id_)
        open_ = self._theirs.get(key, 0)
        if not open_:
            raise LocalProtocolError(f"request {id_!r} is not open: never sent, or already answered")
        if open_ == 1:
            del self._theirs[key]
        else:
            self._theirs[key] = open_ - 1


def _decode(line: bytearray) -> Any:
    text = line.decode("utf-8")
    message = json.loads(text, parse_constant=_refuse_constant)
    if "\\ud" in text or "\\uD" in text:
        message = _scrub(message)
    return message


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _scrub(value: Any) -> Any:
    """`value` with every lone surrogate replaced by U+FFFD."""
    if type(value) is str:
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if type(value) is list:
        return [_scrub(item) for item in value]
    if type(value) is dict:
        return {_scrub(key): _scrub(item) for key, item in value.items()}
    return value
