"""A connection that outlives its links: each message arrives once and in order, over however many of them.

Both ends are this class, here and over there (so: the standard library alone, and Python 3.9). A frame is a kind, a
number, a length and a body. Messages are numbered and kept until the other end has acknowledged them; over a new link
what it has not got is sent again. More than `WINDOW` bytes that are not acknowledged make the sender wait, so what is
printed over there waits too, and nothing is lost.

A message is a header, JSON, and bytes. A request has an `id` and a name (`do`), its answer the same `id`. What arrives
is handled in the thread that reads, which must not wait.
"""

from __future__ import annotations

import json
import os
import select
import struct
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

FRAME = struct.Struct("!cQI")
HEADER = struct.Struct("!I")
MESSAGE, ACKNOWLEDGED = b"M", b"A"
MAX_BODY = 256 * 1024 * 1024
WINDOW = 4 * 1024 * 1024
HEARTBEAT = 5.0
READ_SIZE = 256 * 1024

SHOWN = "show"
"""Said of entries that are not hidden."""
STATE = "\1STATE\1"
"""Stands in what is sent for the file that keeps a shell's state over there."""

Header = dict[str, Any]
Handle = Callable[[Header, bytes], None]


class Lost(Exception):
    """The connection is over; its words say why."""


class Malformed(Exception):
    """What came is none of our frames."""


def write_all(descriptor: int, data: bytes) -> None:
    """Waits until all is taken. Raises OSError."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


class Link:
    """One way to the other end: two descriptors."""

    def __init__(self, reads: int, writes: int, close: Callable[[], None], release: Callable[[], None]) -> None:
        """`close`: ends what waits for it; `release`: then closes the descriptors, which nobody uses any more."""
        self.reads, self.writes = reads, writes
        self._close, self._release = close, release
        self._lock = threading.Lock()
        self._users = 2
        self.closed = False
        self.heard = time.monotonic()

    def close(self) -> None:
        """Ends whatever waits for it; idempotent."""
        with self._lock:
            if self.closed:
                return
            self.closed = True
        self._close()

    def leave(self) -> None:
        """One of the two threads that use it has ended."""
        with self._lock:
            self._users -= 1
            last = not self._users
        if last:
            self._release()


class Peer:
    """`handle`: takes what is no answer. `lost`: called when a link has ended, not when the connection is over.
    `heartbeat`: seconds after which an end that has nothing to say shows that it is there; a link that is silent for
    three times as long has ended."""

    def __init__(
        self, handle: Handle, lost: Callable[[Link], None] = lambda link: None, heartbeat: float = HEARTBEAT
    ) -> None:
        self._heartbeat = heartbeat
        self._handle = handle
        self._lost = lost
        self._state = threading.Condition()
        self._kept: OrderedDict[int, bytes] = OrderedDict()
        """Frames that are not acknowledged."""
        self._size = 0
        self._sent = 0
        self._next = 1
        """The number of the message that this link sends next."""
        self.received = 0
        self._told = 0
        self._link: Link | None = None
        self._answers: dict[int, Future[tuple[Any, bytes]]] = {}
        self._asked = 0
        self.over = ""
        """Why it is; empty while it is not."""

    # --- sending ----------------------------------------------------------------------------------------------

    def send(self, header: Header, data: bytes = b"", *, waits: bool = False) -> None:
        """Returns before it is there; `waits`: until there is room for it. Raises Lost."""
        words = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")
        body = b"".join((HEADER.pack(len(words)), words, data))
        with self._state:
            while waits and self._size > WINDOW and not self.over:
                self._state.wait()
            if self.over:
                raise Lost(self.over)
            self._sent += 1
            self._kept[self._sent] = FRAME.pack(MESSAGE, self._sent, len(body)) + body
            self._size += len(body)
            self._state.notify_all()

    def next_number(self) -> int:
        """For a request."""
        with self._state:
            self._asked += 1
            return self._asked

    def ask(self, header: Header, data: bytes = b"", number: int = 0) -> Future[tuple[Any, bytes]]:
        """The future answer. Its exception is Lost or Refused. Raises Lost."""
        number = number or self.next_number()
        future: Future[tuple[Any, bytes]] = Future()
        with self._state:
            if self.over:
                raise Lost(self.over)
            self._answers[number] = future
        self.send({**header, "id": number}, data)
        return future

    def end(self, why: str) -> None:
        """Everything that waits for an answer gets Lost."""
        with self._state:
            if self.over:
                return
            self.over = why
            answers, self._answers = self._answers, {}
            link, self._link = self._link, None
            self._kept.clear()
            self._state.notify_all()
        if link is not None:
            link.close()
        for future in answers.values():
            if future.set_running_or_notify_cancel():
                future.set_exception(Lost(why))

    def flush(self, seconds: float) -> None:
        """Waits until all is acknowledged, at most so long."""
        end = time.monotonic() + seconds
        with self._state:
            while self._kept and not self.over and (left := end - time.monotonic()) > 0:
                self._state.wait(left)

    # --- links ------------------------------------------------------------------------------------------------

    def use(self, link: Link, received: int) -> None:
        """Goes on over `link`, the other end having `received` so many messages. Raises Malformed."""
        with self._state:
            if received > self._sent or (self._kept and received + 1 < next(iter(self._kept))):
                raise Malformed("the other end is not where it was")
            old, self._link = self._link, link
            self._acknowledge(received)
            self._next = received + 1
            self._told = -1
            self._state.notify_all()
        if old is not None:
            old.close()
        for work in (self._writes, self._reads):
            threading.Thread(target=self._uses, args=(link, work), daemon=True).start()

    def _uses(self, link: Link, work: Callable[[Link], None]) -> None:
        try:
            work(link)
        finally:
            link.leave()

    @property
    def link(self) -> Link | None:
        return self._link

    def _left(self, link: Link) -> None:
        link.close()
        with self._state:
            mine = self._link is link
            if mine:
                self._link = None
            self._state.notify_all()
        if mine and not self.over:
            self._lost(link)

    def _writes(self, link: Link) -> None:
        try:
            while True:
                with self._state:
                    if self._link is link and self._next not in self._kept and self._told == self.received:
                        self._state.wait(self._heartbeat)
                    if self._link is not link or self.over:
                        return
                    frame = self._kept.get(self._next, b"")
                    self._next += bool(frame)
                    self._told = self.received
                    data = frame + FRAME.pack(ACKNOWLEDGED, self._told, 0)
                write_all(link.writes, data)
        except OSError:
            self._left(link)

    def _reads(self, link: Link) -> None:
        held = bytearray()
        try:
            poll = select.poll()
            poll.register(link.reads, select.POLLIN)
            while poll.poll(3000 * self._heartbeat):
                data = os.read(link.reads, READ_SIZE)
                if not data:
                    break
                link.heard = time.monotonic()
                held += data
                at = 0
                while len(held) - at >= FRAME.size:
                    kind, number, length = FRAME.unpack_from(held, at)
                    if length > MAX_BODY or kind not in (MESSAGE, ACKNOWLEDGED):
                        raise Malformed("what came is none of our messages")
                    if len(held) - at < FRAME.size + length:
                        break
                    self._take(link, kind, number, bytes(held[at + FRAME.size : at + FRAME.size + length]))
                    at += FRAME.size + length
                del held[:at]
        except OSError:
            pass
        except Malformed as error:
            self.end(str(error))
        self._left(link)

    def _take(self, link: Link, kind: bytes, number: int, body: bytes) -> None:
        with self._state:
            if self._link is not link:
                return
            if kind == ACKNOWLEDGED:
                if number > self._sent:
                    raise Malformed("the other end has got what was never sent")
                self._acknowledge(number)
                return
            if number <= self.received:
                return
            if number != self.received + 1:
                raise Malformed("a message is missing")
            self.received = number
            self._state.notify_all()
        header, data = _parsed(body)
        if "do" in header:
            try:
                self._handle(header, data)
            except (KeyError, TypeError, ValueError, AttributeError) as error:
                raise Malformed("a message is not as it should be") from error
            return
        with self._state:
            future = self._answers.pop(header.get("id", 0), None)
        if future is not None and future.set_running_or_notify_cancel():
            if "error" in header:
                future.set_exception(Refused(str(header["error"]), header.get("words")))
            else:
                future.set_result((header.get("value"), data))

    def _acknowledge(self, number: int) -> None:
        while self._kept and next(iter(self._kept)) <= number:
            _, frame = self._kept.popitem(last=False)
            self._size -= len(frame) - FRAME.size
        self._state.notify_all()


class Refused(Exception):
    """An answer that is an error: of which kind, and what it says."""

    def __init__(self, kind: str, words: Any) -> None:
        super().__init__(kind, words)
        self.kind, self.words = kind, words


def _parsed(body: bytes) -> tuple[Header, bytes]:
    try:
        (length,) = HEADER.unpack_from(body)
        if length > len(body) - HEADER.size:
            raise ValueError(length)
        header = json.loads(body[HEADER.size : HEADER.size + length].decode("utf-8", "surrogatepass"))
    except (struct.error, ValueError, RecursionError) as error:
        raise Malformed("a message cannot be read") from error
    if not isinstance(header, dict):
        raise Malformed("a message cannot be read")
    return header, body[HEADER.size + length :]
