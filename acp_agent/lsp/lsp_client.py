"""JSON-RPC with a language server's process: pygls tracks the requests, lsprotocol defines the messages we send.

We read a server's messages ourselves and keep them as plain JSON: pygls would read without limits, and lsprotocol
rejects a whole message for one wrong field. `acp_agent.lsp.answers` extracts the readable parts.
"""

from __future__ import annotations

import functools
import itertools
import logging
import re
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

import anyio
import msgspec
from anyio.abc import TaskStatus
from cattrs import Converter
from lsprotocol import types
from msgspec import Struct
from pygls.client import JsonRPCClient
from pygls.exceptions import JsonRpcException, JsonRpcInternalError, PyglsError
from pygls.protocol import (
    JsonRPCNotification,
    JsonRPCProtocol,
    JsonRPCRequestMessage,
    JsonRPCResponseMessage,
    default_converter,
)
from pygls.protocol.json_rpc import RPCMessage

from acp_agent.child import Child, one_line
from acp_agent.limits.decoding import read_json, read_loose_json
from acp_agent.lsp.base import Launch, LspError
from acp_agent.lsp.signals import Signal

log = logging.getLogger(__name__)
# It logs every message, with the text of the files, and each late answer as a warning.
logging.getLogger("pygls.feature_manager").setLevel(logging.WARNING)
logging.getLogger("pygls.protocol.json_rpc").setLevel(logging.CRITICAL)
logging.getLogger("pygls.client").setLevel(logging.CRITICAL)

LONGEST_MESSAGE = 64 * 1024 * 1024
LONGEST_HEADER = 16 * 1024
"""Bytes of a header, and of a server's output between messages."""
UNREAD = 64 * 1024 * 1024
"""Bytes queued for a server that does not read."""
FLOOD = 20_000
"""Notifications and requests allowed from a server in FLOOD_SECONDS."""
FLOOD_SECONDS = 10.0

JUNK = 1024 * 1024
"""Total bytes that a server may print between messages."""

LENGTH = re.compile(rb"content-length:[ \t]*(\d{1,12})[ \t]*$", re.IGNORECASE)
HEADER = re.compile(rb"[A-Za-z-]{1,40}:[^\r\n]*$")

SERVER_CANCELLED, CONTENT_MODIFIED = -32802, -32801

Handlers = Mapping[str, Callable[[Any], Any]]
"""Method -> function that answers the request or takes the notification; both use plain JSON."""


class ServerGone(LspError):
    """The server ended before it answered."""


class Refused(LspError):
    """The server answered with an error."""

    def __init__(self, message: str, code: int, again: bool) -> None:
        super().__init__(message)
        self.code = code
        self.again = again
        """Whether a retry of the same request may succeed."""


class _Error(Struct):
    """An error answer."""

    id: str | int
    error: types.ResponseError
    jsonrpc: str = JsonRPCProtocol.VERSION


class _Protocol(JsonRPCProtocol):
    """Sends LSP messages; receives plain JSON."""

    def get_message_type(self, method: str) -> type[Any] | None:
        found: type[Any] | None = types.METHOD_TO_TYPES[method][0] if method in types.METHOD_TO_TYPES else None
        return found

    def structure_message(self, data: dict[str, Any]) -> RPCMessage:
        """Raises ValueError if it is not a message."""
        method, id_ = data.get("method"), data.get("id")
        if isinstance(method, str):
            if id_ is None:
                return JsonRPCNotification(method, self.VERSION, data.get("params"))
            if not isinstance(id_, str | int):
                raise ValueError("the id of a request is neither text nor a number")
            return JsonRPCRequestMessage(id_, method, self.VERSION, data.get("params"))
        if not isinstance(id_, str | int):
            raise ValueError("neither a method nor an id")
        self._result_types.pop(id_, None)
        error = data.get("error")
        if error is None:
            return JsonRPCResponseMessage(id_, self.VERSION, data.get("result"))
        if not isinstance(error, dict):
            error = {"message": str(error)}
        code, words = error.get("code"), str(error.get("message", ""))
        code = code if isinstance(code, int) else JsonRpcInternalError.CODE
        return _Error(id_, types.ResponseError(code, words))

    def awaits(self, id_: str) -> bool:
        return id_ in self._request_futures

    def forget(self, id_: str) -> None:
        """Stops waiting for the answer."""
        self._request_futures.pop(id_, None)
        self._result_types.pop(id_, None)

    def fail(self, error: LspError) -> None:
        """Fails all pending requests."""
        waiting = list(self._request_futures.values())
        self._request_futures.clear()
        self._result_types.clear()
        for future in waiting:
            if not future.done():
                future.set_exception(error)


@functools.cache
def _converter() -> Converter:
    converter: Converter = default_converter()  # type: ignore[no-untyped-call]
    return converter


class _ServerProcess(Child):
    leave = 0.2


def start_process(name: str, launch: Launch) -> Child:
    """Raises LspError if it cannot be started. `Launch.started` is called in any case."""
    try:
        return _ServerProcess.start(name, launch.argv, cwd=launch.cwd, env=launch.env, pass_fds=launch.pass_fds)
    except (OSError, ValueError) as error:
        raise LspError(f"the language server {name} could not be started: {error}") from error
    finally:
        launch.started()


class Client(JsonRPCClient):
    """One process, from start to end. `read` and `write` run concurrently with requests."""

    protocol: _Protocol

    def __init__(self, name: str, process: Child, handlers: Handlers, ended: Callable[[], None]) -> None:
        super().__init__(_Protocol, _converter)
        self._name = name
        self._process = process
        self._ended = ended
        self._outgoing: deque[bytes] = deque()
        self._unread = 0
        self._more = Signal()
        self._sending = anyio.CancelScope()
        self._hushed = anyio.Event()
        self._numbers = itertools.count(1)
        self._buffer = bytearray()
        self._junk = 0
        self.words = ""
        """How it ended; empty while it is running."""
        for method, handler in handlers.items():
            self.feature(method)(_plain(handler))
        self.protocol.set_writer(self)

    def report_server_error(self, error: Exception, source: type[PyglsError] | type[JsonRpcException]) -> None:
        log.debug("%s: %s", self._name, error)

    # --- requests ---------------------------------------------------------------------------------------------

    def tell(self, method: str, params: Any = None) -> None:
        """Sends a notification, or discards it if the server is gone."""
        if not self.words:
            self.protocol.notify(method, params)

    async def ask(self, method: str, params: Any, timeout: float) -> Any:
        """Returns the result as plain JSON. Raises ServerGone, Refused, or LspError after `timeout` seconds."""
        if self.words:
            raise ServerGone(f"the language server {self._name} ended: {self.words}")
        # Distinct ids: pygls keeps ours and those of the server's requests in one table.
        id_ = f"acp-coder-{next(self._numbers)}"
        answered = anyio.Event()
        future = self.protocol.send_request(method, params, msg_id=id_)
        future.add_done_callback(lambda _: answered.set())
        try:
            with anyio.fail_after(timeout):
                await answered.wait()
            return future.result()
        except TimeoutError:
            raise LspError(
                f"the language server {self._name} did not answer {method} within {timeout:g} s{self._process.said()}"
            ) from None
        except JsonRpcException as error:
            raise self._refused(method, error) from error
        finally:
            if self.protocol.awaits(id_):
                self.protocol.forget(id_)
                self.tell(types.CANCEL_REQUEST, types.CancelParams(id=id_))

    def _refused(self, method: str, error: JsonRpcException) -> Refused:
        again = error.code in (CONTENT_MODIFIED, SERVER_CANCELLED)
        words = one_line(error.message, 300) or f"error {error.code}"
        return Refused(f"the language server {self._name} refused {method}: {words}", error.code, again)

    # --- transport --------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Required of a writer by pygls."""

    def write(self, data: bytes) -> None:
        self._unread += len(data)
        self._outgoing.append(data)
        if self._unread > UNREAD:
            self._end(f"it does not read its input ({UNREAD} bytes wait)")
        self._more.notify()

    async def send(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Sends queued messages until the server is gone or `hush` is called."""
        task_status.started()
        try:
            with self._sending:
                while not self.words:
                    while self._outgoing:
                        data = self._outgoing.popleft()
                        await self._process.send(data)
                        self._unread -= len(data)
                    self._more.notify()
                    await self._more.until(lambda: bool(self._outgoing or self.words))
        except OSError as error:
            log.debug("%s: %s", self._name, error)  # Its output ends as well, and that end provides the description.
        finally:
            self._hushed.set()

    async def hush(self) -> None:
        """Stops sending; once this returns, nothing waits on the server's stdin."""
        self._sending.cancel()
        await self._hushed.wait()

    async def sent(self) -> None:
        """Waits until everything queued is written."""
        await self._more.until(lambda: not self._unread or bool(self.words))

    async def receive(self) -> None:
        """Reads messages until the server ends, or sends unreadable data; then sets `words`."""
        messages, since = 0, anyio.current_time()
        try:
            while not self.words and (chunk := await self._process.read()):
                self._buffer += chunk
                while not self.words and (body := self._cut()) is not None:
                    messages += self._receive(body)
                if anyio.current_time() - since > FLOOD_SECONDS:
                    messages, since = 0, anyio.current_time()
                elif messages > FLOOD:
                    self._end(f"it sent more than {FLOOD} messages within {FLOOD_SECONDS:g} s")
            if not self.words:
                await self._process.left()
        finally:
            self._end(self._process.end_words())

    def _cut(self) -> bytes | None:
        """Returns the next message's body if it has fully arrived. Output between messages is skipped and recorded."""
        start, length = 0, -1
        while (end := self._buffer.find(b"\n", start, start + LONGEST_HEADER)) >= 0:
            line = bytes(self._buffer[start:end]).rstrip(b"\r")
            start = end + 1
            if found := LENGTH.fullmatch(line):
                length = int(found[1])
                if length > LONGEST_MESSAGE:
                    self._end(f"it sent a message of {length} bytes, more than {LONGEST_MESSAGE}")
                    return None
            elif not line and length >= 0:
                if len(self._buffer) < start + length:
                    return None
                body = bytes(self._buffer[start : start + length])
                del self._buffer[: start + length]
                return body
            elif length < 0 and line and not HEADER.fullmatch(line):
                self._process.heard(line)
                self._junk += start
                del self._buffer[:start]
                start = 0
        if len(self._buffer) - start >= LONGEST_HEADER or self._junk > JUNK:
            self._process.heard(bytes(self._buffer[start : start + 1000]))
            self._end("it printed something that is not an LSP message" + self._process.said())
        return None

    def _receive(self, body: bytes) -> int:
        """Returns how much the message counts as flood: 1, unless it is an answer."""
        try:
            data = _decode(body)
            if not isinstance(data, dict):
                raise ValueError("no object")
            message = self.protocol.structure_message(data)
        except ValueError as error:
            log.debug("%s sent something that is not a message: %s", self._name, error)
            self._process.heard(body[:1000])
            return 1
        if data.get("method") != types.CANCEL_REQUEST:  # All of its requests are answered immediately.
            self.protocol.handle_message(message)
        return int("method" in data)

    def _end(self, words: str) -> None:
        if not self.words:
            self.words = words
            self.protocol.fail(ServerGone(f"the language server {self._name} ended: {words}"))
            self._more.notify()
            self._ended()


def _plain(handler: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Wraps the handler: pygls sets attributes on it, which methods do not allow."""
    return lambda params: handler(params)


def _decode(body: bytes) -> Any:
    try:
        return read_json(body)
    except msgspec.DecodeError:
        # Half surrogates and invalid bytes are no reason to lose a message.
        return read_loose_json(body.decode("utf-8", "replace"))
