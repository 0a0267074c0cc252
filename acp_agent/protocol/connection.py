"""A `Peer` on an event loop: futures for our pending requests, a task for each of theirs, ONE ordered output queue.

The queue guarantees order: what is queued first is written first, so a response queued after the updates of its turn is
read after them. Incoming notifications and requests start in the order they arrived.

`push()` is a shortcut: it immediately writes what the transport accepts without waiting, so that it reaches the other
side before this one continues. The rest stays first in the queue.

Back-pressure: the writer awaits the transport. While it waits, notifications that `coalesce` can merge into the last
queued one are merged (never dropped), and `drain()` slows down anyone producing faster than the other side reads.

One of the few places with `except Exception` (the request task): an unknown failure becomes a -32603 answer.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Iterable
from contextlib import AbstractContextManager
from typing import Any, Protocol

from acp_agent.errors import ConnectionClosed, InternalError, PeerError, RequestCancelled, RpcError
from acp_agent.protocol.peer import Event, Malformed, NotificationReceived, Peer, RequestReceived, ResponseReceived
from acp_agent.protocol.transports import Transport

log = logging.getLogger(__name__)

WRITE_BATCH_BYTES = 256 * 1024
"""Encoded bytes passed to the transport at once."""

HIGH_WATER = 64
"""Queued messages above which `drain()` waits."""

MOST_REQUESTS = 1_000
"""Requests at a time; further ones are answered with an error at once."""

LAST_ANSWERS_SECONDS = 0.2
"""How long requests still running when the stream ends may take to answer."""
LAST_PIPED_SECONDS = 2.0
"""The same on stdio, where requests may be piped in, on a busy machine: of all but turns."""
TURN = "session/prompt"

CLOSING_SECONDS = 0.4
"""How long tasks may take to clean up after the connection ends: all must be gone within a second."""

UNENCODABLE = (TypeError, ValueError, OverflowError, RecursionError)
"""An encoder's errors for a value that JSON cannot hold: our bug, which must not break the stream."""

Coalesce = Callable[[str, Any, Any], Any]


class Reply:
    """A handler's answer with a callback to run right after it has been queued."""

    __slots__ = ("result", "then")

    def __init__(self, result: object, then: Callable[[], None]) -> None:
        self.result = result
        self.then = then


class Handler(Protocol):
    """The application's side, which answers requests."""

    async def handle_request(self, method: str, params: Any) -> Any:
        """Returns the result, or a `Reply`. Raises RpcError for an error answer."""
        ...

    async def handle_notification(self, method: str, params: Any) -> None:
        """Must not raise, whatever the notification contains."""
        ...

    def cancel_request(self, method: str, params: Any) -> bool:
        """`$/cancel_request` for a running request: True if the handler itself ends it with a valid answer."""
        ...


class Dialect(Handler, Protocol):
    """A version of the protocol that is not the handler's: it stands between the handler and the connection."""

    def rendered(self, method: str, params: Any) -> Iterable[tuple[str, Any]]:
        """A notification of the handler's as it is sent."""
        ...

    def asking(self, method: str, params: Any) -> AbstractContextManager[Any]:
        """Around a request of the handler's: gives its params as they are sent."""
        ...

    def answer(self, method: str, answered: Any) -> Any:
        """The result as the handler knows it."""
        ...


class _Outgoing:
    __slots__ = ("data", "method", "params")

    def __init__(self, data: bytes | None, method: str = "", params: Any = None) -> None:
        self.data = data
        self.method = method
        self.params = params


class Connection:
    """Owns the stream, the pending futures and the tasks. `serve()` runs until either side ends."""

    def __init__(
        self,
        transport: Transport,
        handler: Handler,
        *,
        peer: Peer | None = None,
        coalesce: Coalesce | None = None,
        write_now: Callable[[bytes], int] | None = None,
    ) -> None:
        """`write_now`: the transport's own, if any: writes without waiting and returns the number of bytes taken."""
        self._transport = transport
        self._handler = handler
        self.dialect: Dialect | None = None
        self.choose_dialect: Callable[[Any], Dialect | None] | None = None
        """Called with the params of `initialize`, while none is chosen."""
        self._peer = peer or Peer()
        self._coalesce = coalesce
        self._write_now = write_now
        self._writing = False
        """Whether the transport holds bytes it has not accepted yet: nothing may overtake them."""
        self._pending: dict[int, asyncio.Future[Any]] = {}
        self._tasks: dict[asyncio.Task[Any], RequestReceived | None] = {}
        self._queue: deque[_Outgoing] = deque()
        self._queued = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()
        self._idle = asyncio.Event()
        self._idle.set()
        self._closing = asyncio.Event()
        self._written_out = False
        """Whether the writer has ended: anything queued later is discarded."""
        self.on_input_end: Callable[[], None] | None = None
        """Called at the end of the input, before running requests get their time to answer."""
        self.write_failed = False
        """Whether the connection ended because nobody read our output."""

    @property
    def closed(self) -> bool:
        return self._closing.is_set()

    @property
    def crowded(self) -> bool:
        """Whether the other side reads more slowly than we write."""
        return not self._room.is_set()

    # --- lifetime ---------------------------------------------------------------------------------------------

    async def serve(self, pending: Iterable[Event] = ()) -> None:
        """Runs until the stream ends or `close()`. `pending`: events received before the loop existed.

        At the end every request task is cancelled and awaited (with a limit), every request of ours fails with
        ConnectionClosed, and the queue is written if the other side still reads.
        """
        writer = asyncio.create_task(self._write())
        reader = asyncio.create_task(self._read(pending))
        closing = asyncio.create_task(self._closing.wait())
        try:
            await asyncio.wait((reader, writer, closing), return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._closing.set()
            await self._shut(reader, writer, closing)
            for task in (reader, writer):
                if task.done() and not task.cancelled() and task.exception() is not None:
                    log.error("the connection ended with an error", exc_info=task.exception())

    async def _shut(self, reader: asyncio.Task[None], writer: asyncio.Task[None], closing: asyncio.Task[Any]) -> None:
        reader.cancel()
        closing.cancel()
        for future in self._pending.values():
            if not future.done():
                future.set_exception(ConnectionClosed("the connection has ended"))
                future.exception()  # Nobody may be waiting any more; that is not an error to report.
        self._pending.clear()
        for task in self._tasks:
            task.cancel()
        try:
            if self._tasks:
                await asyncio.wait(tuple(self._tasks), timeout=CLOSING_SECONDS)
            if not writer.done() and not self.write_failed:
                async with asyncio.timeout(CLOSING_SECONDS / 4):
                    await self._idle.wait()
        except TimeoutError:
            pass
        finally:  # Also when `serve()` itself is cancelled here.
            writer.cancel()
            self._transport.close()
        await asyncio.wait((reader, writer))

    def close(self) -> None:
        """Ends `serve()`; idempotent, callable from anywhere on the loop."""
        self._closing.set()

    # --- in ---------------------------------------------------------------------------------------------------

    async def _read(self, pending: Iterable[Event]) -> None:
        for event in pending:
            self._on_event(event)
        while data := await self._transport.read():
            for event in self._peer.receive(data):
                self._on_event(event)
        for event in self._peer.receive_eof():
            self._on_event(event)
        if self.on_input_end is not None:
            self.on_input_end()
            asked = [task for task, request in self._tasks.items() if request is not None and request.method != TURN]
            if asked and not self.write_failed:
                await asyncio.wait(asked, timeout=LAST_PIPED_SECONDS)
        # What can be answered shortly still is.
        if self._tasks:
            await asyncio.wait(tuple(self._tasks), timeout=LAST_ANSWERS_SECONDS)

    def _on_event(self, event: Event) -> None:
        match event:
            case ResponseReceived(id, result, error):
                future = self._pending.pop(id, None)
                if future is not None and not future.done():
                    if error is None:
                        future.set_result(result)
                    else:
                        future.set_exception(PeerError(*error))
            case RequestReceived() if len(self._tasks) >= MOST_REQUESTS:
                words = f"{MOST_REQUESTS} requests of this connection are not answered yet; wait for some of them"
                self._put(_Outgoing(self._fail(event, InternalError(words))))
                self.push()
            case RequestReceived():
                self._start(self._answer(event), event)
            case NotificationReceived("$/cancel_request", params):
                self._cancel(params)
            case NotificationReceived(method, params):
                self._start((self.dialect or self._handler).handle_notification(method, params), None)
            case Malformed(reason, answer):
                log.warning("malformed input: %s", reason)
                self._put(_Outgoing(answer))

    def spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Work that ends with the connection."""
        task = asyncio.create_task(work)
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)
        return task

    def _start(self, work: Coroutine[Any, Any, None], request: RequestReceived | None) -> None:
        task = asyncio.create_task(work)
        self._tasks[task] = request
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        del self._tasks[task]
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("a notification failed", exc_info=error)

    async def _answer(self, request: RequestReceived) -> None:
        then: Callable[[], None] | None = None
        try:
            if request.method == "initialize" and self.dialect is None and self.choose_dialect is not None:
                self.dialect = self.choose_dialect(request.params)
            result = await (self.dialect or self._handler).handle_request(request.method, request.params)
            if isinstance(result, Reply):
                answer = self._peer.respond(request.id, result.result)
                then = result.then
            else:
                answer = self._peer.respond(request.id, result)
        except RpcError as error:
            answer = self._fail(request, error)
        except asyncio.CancelledError:
            self._put(_Outgoing(self._fail(request, RequestCancelled("the request was cancelled"))))
            raise
        except Exception as error:
            log.exception("request %s failed", request.method)
            words = str(error) or type(error).__name__
            answer = self._fail(request, InternalError(f"internal error in {request.method}: {words}"))
        self._put(_Outgoing(answer))
        if then is not None:
            then()
        self.push()

    def _fail(self, request: RequestReceived, error: RpcError) -> bytes:
        try:
            return self._peer.fail(request.id, error.code, error.message, error.data)
        except UNENCODABLE:
            log.exception("the data of an error response could not be encoded")
            return self._peer.fail(request.id, error.code, error.message)

    def _cancel(self, params: Any) -> None:
        if not isinstance(params, dict) or "requestId" not in params:
            return
        id_ = params["requestId"]
        for task, request in tuple(self._tasks.items()):
            if request is not None and type(request.id) is type(id_) and request.id == id_:
                if not (self.dialect or self._handler).cancel_request(request.method, request.params):
                    # A task cancelled before its first step would end without an answer: let that step run first.
                    asyncio.get_running_loop().call_soon(task.cancel)
                return

    # --- out --------------------------------------------------------------------------------------------------

    async def request(self, method: str, params: object, *, late: Callable[[Any], None] | None = None) -> Any:
        """Sends a request and returns its result as plain JSON data.

        Raises PeerError for an error answer, ConnectionClosed when the connection ends. Cancelling the call sends
        `$/cancel_request` and forgets the request; with `late` it does neither, and `late` receives the result if it
        arrives. Limit the wait with a cancel scope: a client may never answer.
        """
        if self.dialect is None:
            return await self._request(method, params, late)
        with self.dialect.asking(method, params) as shown:
            return self.dialect.answer(method, await self._request(method, shown, late))

    async def _request(self, method: str, params: object, late: Callable[[Any], None] | None) -> Any:
        if self.closed:
            raise ConnectionClosed("the connection has ended")
        id_, data = self._peer.request(method, params)
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._pending[id_] = future
        self._put(_Outgoing(data))
        self.push()
        try:
            return await (future if late is None else asyncio.shield(future))
        except asyncio.CancelledError:
            if late is not None and not self.closed:
                # Not cancelled on the other side: it may have done the work already, and then its answer is needed,
                # also one that arrived in the same moment.
                future.add_done_callback(lambda done: late(done.result()) if _has_result(done) else None)
            elif self._pending.pop(id_, None) is not None and not self.closed:
                self._peer.abandon(id_)
                self.notify("$/cancel_request", {"requestId": id_})
            raise

    def tell(self, method: str, params: object) -> None:
        """Sends a request and ignores its answer."""
        if not self.closed:
            id_, data = self._peer.request(method, params)
            self._peer.abandon(id_)
            self._put(_Outgoing(data))
            self.push()

    def notify(self, method: str, params: Any) -> None:
        """Queues a notification, or discards it after the end of the connection. Never waits: see `drain()`."""
        if self.dialect is None:
            self.notify_as_is(method, params)
        else:
            for each in self.dialect.rendered(method, params):
                self.notify_as_is(*each)

    def notify_as_is(self, method: str, params: Any) -> None:
        """In the words of the client's version."""
        if self._queue and self._coalesce is not None:
            last = self._queue[-1]
            if last.data is None and last.method == method:
                merged = self._coalesce(method, last.params, params)
                if merged is not None:
                    last.params = merged
                    return
        self._put(_Outgoing(None, method, params))

    def _put(self, item: _Outgoing) -> None:
        if self._written_out:
            return
        self._queue.append(item)
        self._idle.clear()
        self._queued.set()
        if len(self._queue) > HIGH_WATER:
            self._room.clear()

    def push(self) -> None:
        """Writes as much of the queue as the transport accepts without waiting."""
        if self._write_now is None or self._writing or self._written_out:
            return
        while self._queue:
            data = self._take_batch()
            taken = self._write_now(data)
            if taken < len(data):
                self._queue.appendleft(_Outgoing(data[taken:]))
                return

    async def drain(self) -> None:
        """Returns when the queue is short enough to produce more (usually immediately)."""
        if not self._room.is_set():
            await self._room.wait()

    async def flush(self) -> None:
        """Returns when everything queued so far has been accepted by the transport."""
        await self._idle.wait()

    async def _write(self) -> None:
        try:
            while True:
                await self._queued.wait()
                while self._queue:
                    self._writing = True
                    await self._transport.write(self._take_batch())
                    self._writing = False
                    if len(self._queue) <= HIGH_WATER // 2:
                        self._room.set()
                self._room.set()
                self._queued.clear()
                self._idle.set()
        except ConnectionClosed as error:
            log.info("%s", error)
            self.write_failed = True
        finally:
            self._written_out = True
            self._queue.clear()
            self._room.set()
            self._idle.set()

    def _take_batch(self) -> bytes:
        parts: list[bytes] = []
        size = 0
        while self._queue and size < WRITE_BATCH_BYTES:
            item = self._queue.popleft()
            data = item.data if item.data is not None else self._encode(item)
            parts.append(data)
            size += len(data)
        return b"".join(parts)

    def _encode(self, item: _Outgoing) -> bytes:
        try:
            return self._peer.notify(item.method, item.params)
        except UNENCODABLE:
            log.exception("a %s notification could not be encoded", item.method)
            return b""


def _has_result(future: asyncio.Future[Any]) -> bool:
    return not future.cancelled() and future.exception() is None
