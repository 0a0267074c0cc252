"""The connection to the editor: pygls' protocol object, read and written by our own loop.

What pygls 2 lacks and this module does: every request is answered, even a malformed one (pygls drops them); requests
before `initialize` and after `shutdown` are refused; abandoning a request of ours cancels it in the editor;
the writer never blocks the loop; `exit` ends the loop instead of raising SystemExit inside a callback. Our documents
are kept in `editor_documents`, since pygls' own positions follow `str.splitlines` and clamp wrongly.
"""

from __future__ import annotations

import logging
import os
import uuid
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any

import anyio
import anyio.to_thread
from lsprotocol import types
from pygls.exceptions import JsonRpcException, JsonRpcInternalError, JsonRpcInvalidParams, JsonRpcRequestCancelled
from pygls.protocol import LanguageServerProtocol, lsp_method

from acp_agent.errors import AgentError, ConnectionClosed, PeerError
from acp_agent.limits.decoding import read_loose_json
from acp_agent.protocol.transports import FdTransport

log = logging.getLogger(__name__)

READ_SIZE = 256 * 1024
LONGEST_MESSAGE = 256 * 1024 * 1024
MOST_UNREAD = 128 * 1024 * 1024
"""Bytes that an editor may leave unread before it counts as gone."""

NOT_INITIALIZED = -32002
INVALID_REQUEST = -32600
PARSE_ERROR = -32700


class Wire(LanguageServerProtocol):
    """`on_exit` is called when the editor sends `exit`; `shut_down` is true if it sent `shutdown` before."""

    on_exit: Callable[[], None] | None = None
    initialized = False

    @property
    def shut_down(self) -> bool:
        return bool(self._shutdown)

    # --- incoming ---------------------------------------------------------------------------------------------

    def receive(self, body: bytes) -> None:
        """Handles one message. Never raises: an unreadable one is answered, or logged if it has no answer."""
        try:
            message = read_loose_json(body)
            if b"\\ud" in body or b"\\uD" in body:
                message = _whole(message)
        except ValueError as error:
            self._refuse(None, PARSE_ERROR, f"this is not JSON: {error}")
            return
        if not isinstance(message, dict) or message.get("jsonrpc") != "2.0":
            self._refuse(_id_of(message), INVALID_REQUEST, "expected a JSON-RPC 2.0 message")
            return
        if "method" in message:
            self._called(message)
        else:
            self._answered(message)

    def _called(self, message: dict[str, Any]) -> None:
        method, asks = message["method"], "id" in message
        if not isinstance(method, str) or (asks and not isinstance(message["id"], str | int)):
            self._refuse(_id_of(message), INVALID_REQUEST, "`method` must be a string, `id` a string or a number")
            return
        message.setdefault("params", None)
        refusal = self._untimely(method)
        if refusal is not None:
            if asks:
                self._refuse(message["id"], *refusal)
            return
        try:
            call = self.structure_message(message)
        except JsonRpcException as error:
            cause = error.__cause__
            log.warning("%s: malformed parameters: %r", method, cause)
            if asks:
                self._refuse(message["id"], JsonRpcInvalidParams.CODE, f"{method}: malformed parameters")
            return
        self.handle_message(call)

    def _untimely(self, method: str) -> tuple[int, str] | None:
        if method == types.EXIT:
            return None
        if self.shut_down:
            return INVALID_REQUEST, "the server is shutting down"
        if method == types.INITIALIZE:
            return (INVALID_REQUEST, "`initialize` was already sent") if self.initialized else None
        return None if self.initialized else (NOT_INITIALIZED, "`initialize` must come first")

    def _answered(self, message: dict[str, Any]) -> None:
        msg_id = _id_of(message)
        future = None if msg_id is None else self._request_futures.get(msg_id)
        if msg_id is None or future is None or self.shut_down:
            return  # It was abandoned.
        if message.get("error") is None:
            message.pop("error", None)
            message.setdefault("result", None)
        try:
            self.handle_message(self.structure_message(message))
        except JsonRpcException as error:
            self._request_futures.pop(msg_id, None)
            self._result_types.pop(msg_id, None)
            future.set_exception(error)

    def _refuse(self, msg_id: str | int | None, code: int, words: str) -> None:
        # As plain data: an unidentifiable request is answered with the id `null`, which pygls would omit.
        self._send_data({"jsonrpc": "2.0", "id": msg_id, "error": {"code": code, "message": words}})

    def _send_handler_result(self, future: Future[Any], *, msg_id: str | int) -> None:
        """As in pygls, but without a traceback for invalid requests."""
        self._request_futures.pop(msg_id, None)
        if future.cancelled():
            self._send_response(msg_id, error=JsonRpcRequestCancelled("cancelled").to_response_error())
            return
        error = future.exception()
        if error is None:
            self._send_response(msg_id, result=future.result())
        elif isinstance(error, JsonRpcException):
            self._send_response(msg_id, error=error.to_response_error())
        else:
            log.error("a request failed", exc_info=error)
            self._send_response(msg_id, error=JsonRpcInternalError(str(error)).to_response_error())

    # --- outgoing ---------------------------------------------------------------------------------------------

    async def ask(self, method: str, params: Any) -> Any:
        """Returns the editor's answer. Raises PeerError for an error answer or an invalid one."""
        answered = anyio.Event()
        msg_id = str(uuid.uuid4())
        future = self.send_request(method, params, msg_id=msg_id)
        future.add_done_callback(lambda _: answered.set())
        try:
            await answered.wait()
        finally:
            if self._request_futures.pop(msg_id, None) is not None:
                self._result_types.pop(msg_id, None)
                self.notify(types.CANCEL_REQUEST, types.CancelParams(id=msg_id))
        if future.cancelled():
            raise PeerError(JsonRpcRequestCancelled.CODE, f"{method} was given up")
        try:
            return future.result()
        except JsonRpcException as error:
            raise PeerError(error.code, error.message) from error

    # --- built in ---------------------------------------------------------------------------------------------

    @lsp_method(types.EXIT)
    def lsp_exit(self, *_: Any) -> None:  # type: ignore[override]
        if self.on_exit is not None:
            self.on_exit()

    @lsp_method(types.SHUTDOWN)
    async def lsp_shutdown(self, *_: Any) -> None:  # type: ignore[override]
        """Answers once nothing of ours is left: some editors kill the server as soon as they have the answer."""
        self._shutdown = True
        await self.fm.features[types.SHUTDOWN]()
        for msg_id, future in list(self._request_futures.items()):
            if msg_id != self.msg_id:
                future.cancel()

    @lsp_method(types.TEXT_DOCUMENT_DID_OPEN)
    def lsp_text_document__did_open(self, params: types.DidOpenTextDocumentParams) -> None:
        self.fm.features[types.TEXT_DOCUMENT_DID_OPEN](params)

    @lsp_method(types.TEXT_DOCUMENT_DID_CHANGE)
    def lsp_text_document__did_change(self, params: types.DidChangeTextDocumentParams) -> None:
        self.fm.features[types.TEXT_DOCUMENT_DID_CHANGE](params)

    @lsp_method(types.TEXT_DOCUMENT_DID_CLOSE)
    def lsp_text_document__did_close(self, params: types.DidCloseTextDocumentParams) -> None:
        self.fm.features[types.TEXT_DOCUMENT_DID_CLOSE](params)

    @lsp_method(types.WORKSPACE_EXECUTE_COMMAND)
    async def lsp_workspace__execute_command(  # type: ignore[override]
        self, params: types.ExecuteCommandParams
    ) -> Any:
        """Runs in a separate task, so that `$/cancelRequest` ends it."""
        handler = self.fm.commands.get(params.command)
        if handler is None:
            known = ", ".join(sorted(self.fm.commands))
            raise JsonRpcInvalidParams(f"unknown command {params.command!r}; known are: {known}")
        return await handler(params.arguments)

    @lsp_method(types.WINDOW_WORK_DONE_PROGRESS_CANCEL)
    def lsp_work_done_progress_cancel(self, params: types.WorkDoneProgressCancelParams) -> None:
        self.fm.features[types.WINDOW_WORK_DONE_PROGRESS_CANCEL](params)


class Outgoing:
    """The transport pygls writes to. `write` returns immediately; `run` writes what the editor has not accepted
    yet."""

    def __init__(self, transport: FdTransport) -> None:
        self._transport = transport
        self._queue: deque[bytes] = deque()
        self._more = anyio.Event()
        self._waiting = 0
        self._given_up = False

    def write(self, data: bytes) -> None:
        if not self._queue:
            data = data[self._transport.write_now(data) :]
        if data and not self._given_up:
            self._queue.append(data)
            self._waiting += len(data)
            self._more.set()
            if self._waiting > MOST_UNREAD:
                log.error("the editor left more than %d bytes unread", MOST_UNREAD)
                self._given_up = True
                self._transport.close()

    def close(self) -> None:
        """Does nothing: the descriptors belong to the process."""

    async def run(self) -> None:
        """Raises ConnectionClosed when nobody reads."""
        while True:
            await self._more.wait()
            self._more = anyio.Event()
            await self.flush()

    async def flush(self) -> None:
        while self._queue:
            await self._transport.write(self._queue[0])
            self._waiting -= len(self._queue.popleft())


async def serve_wire(wire: Wire, fd: int) -> None:
    """Reads `fd` until it ends or `exit` is received."""
    left = anyio.Event()
    wire.on_exit = left.set
    received = bytearray()
    while not left.is_set():
        data = await _read(fd)
        if not data:
            return
        received += data
        try:
            for body in _bodies(received):
                wire.receive(body)
                if left.is_set():
                    return
        except FramingError as error:
            log.error("%s", error)
            return


async def _read(fd: int) -> bytes:
    """Returns `b""` at the end. The descriptor may be a pipe, a socket or a file, blocking or not."""
    while True:
        try:
            await anyio.wait_readable(fd)
        except PermissionError:  # A regular file: the kernel reports no readiness there.
            return await anyio.to_thread.run_sync(os.read, fd, READ_SIZE, abandon_on_cancel=True)
        try:
            return os.read(fd, READ_SIZE)
        except (BlockingIOError, InterruptedError):
            continue
        except OSError:
            return b""


class FramingError(AgentError):
    """The start of the next message cannot be found any more."""


def _bodies(received: bytearray) -> Iterator[bytes]:
    """Removes complete messages from `received`."""
    while True:
        blank = received.find(b"\r\n\r\n")
        if blank < 0:
            if len(received) > LONGEST_MESSAGE:
                raise FramingError("the header of a message has no end")
            return
        length = _content_length(bytes(received[:blank]))
        start = blank + 4
        if len(received) < start + length:
            return
        body = bytes(received[start : start + length])
        del received[: start + length]
        yield body


def _content_length(header: bytes) -> int:
    for line in header.split(b"\n"):
        name, _, value = line.partition(b":")
        if name.strip().lower() == b"content-length" and value.strip().isdigit() and len(value) < 20:
            length = int(value)
            if length <= LONGEST_MESSAGE:
                return length
            raise FramingError(f"a message of {length} bytes is too long")
    raise FramingError("a message without Content-Length")


def _whole(value: Any) -> Any:
    """The data with lone surrogates replaced in all texts, since they cannot be written anywhere."""
    match value:
        case str():
            return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
        case list():
            return [_whole(item) for item in value]
        case dict():
            return {_whole(name): _whole(item) for name, item in value.items()}
    return value


def _id_of(message: object) -> str | int | None:
    found = message.get("id") if isinstance(message, dict) else None
    return found if isinstance(found, str | int) else None


async def flush_bounded(outgoing: Outgoing, seconds: float) -> None:
    """Gives the editor that long to read what is left."""
    try:
        with anyio.move_on_after(seconds):
            await outgoing.flush()
    except ConnectionClosed:
        pass  # Nobody is left to read.
