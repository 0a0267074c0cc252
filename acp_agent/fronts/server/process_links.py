"""Links to the other processes that serve the same store, by its notices: no process needs an address.

A process has a channel; what is sent on a link is cut into notices, which are numbered. Where one is missing, or the
other end says nothing for too long, the link ends: whoever uses it begins anew. Nobody sends more than `WINDOW` bytes
that have not been read.
"""

from __future__ import annotations

import asyncio
import logging
import re
import uuid
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from functools import partial

import anyio

from acp_agent.errors import ConnectionClosed, StoreError
from acp_agent.store.session_store import SessionStore

log = logging.getLogger(__name__)

ALL = "processes"
"""The channel on which every process listens."""
PROCESS = re.compile("[0-9a-f]{12}")
"""The name of one."""
PIECE = 7_800
"""Bytes of text in a notice, at most; PostgreSQL takes 7,999 with what stands before it."""
AT_ONCE = 64
"""Notices of one transaction."""
WINDOW = 512 * 1024
"""Bytes on their way on a link."""
ANSWER_SECONDS = 5.0
"""For another process to take up a link."""
GOODBYE_SECONDS = 2.0
OPEN, TAKEN, DATA, READ, END, ALIVE = "o", "t", "d", "r", "e", "a"


class Link:
    """The `Transport` of a `Connection` to another process (`protocol/transports.py`); what is written is text in
    UTF-8."""

    def __init__(self, link_id: str, process: str, send: Callable[[str], None]) -> None:
        self.id = link_id
        self.process = process
        """The other one."""
        self.heard = asyncio.get_running_loop().time()
        """When something last came."""
        self.taken = asyncio.Event()
        self.ended = self.left = False
        """Whether nothing more comes; whether because the other end has closed it and misses nothing."""
        self._send_notice = send
        self._sent_notices = self._heard_notices = 0
        self._came: deque[bytes] = deque()
        self._changed = asyncio.Event()
        self._on_the_way = self._not_told = 0

    # --- the transport ----------------------------------------------------------------------------------------

    async def read(self) -> bytes:
        while not self._came and not self.ended:
            self._changed.clear()
            await self._changed.wait()
        if not self._came:
            return b""
        data = self._came.popleft()
        self._not_told += len(data)
        if self._not_told >= WINDOW // 4:
            self._send(READ, str(self._not_told))
            self._not_told = 0
        return data

    async def write(self, data: bytes) -> None:
        at = 0
        while at < len(data):
            while self._on_the_way >= WINDOW and not self.ended:
                self._changed.clear()
                await self._changed.wait()
            if self.ended:
                raise ConnectionClosed("the link to the other process has ended")
            piece = data[at : at + PIECE]
            text = piece.decode("utf-8", "ignore") or piece.decode("utf-8", "replace")
            sent = len(text.encode())
            self._on_the_way += sent
            self._send(DATA, text)
            at += sent

    def close(self, *, lost: bool = False) -> None:
        """`lost`: something that was sent may not have come."""
        if not self.ended:
            self._send(END, "lost" if lost else "")
            self.break_off()

    # --- what the other end sends -----------------------------------------------------------------------------

    def break_off(self) -> None:
        """Nothing comes any more; what has come can be read."""
        self.ended = True
        self.taken.set()
        self._changed.set()

    def send_alive(self) -> None:
        self._send(ALIVE)

    def take(self) -> None:
        self.taken.set()
        self._send(TAKEN)

    def _send(self, kind: str, text: str = "") -> None:
        self._sent_notices += 1
        self._send_notice(f"{self.id} {kind} {self._sent_notices} {text}")

    def hear(self, kind: str, number: int, text: str) -> None:
        self.heard = asyncio.get_running_loop().time()
        self._heard_notices += 1
        if number != self._heard_notices:
            log.warning("notices of %s are missing", self.process)
            self.close(lost=True)
        elif kind == TAKEN:
            self.taken.set()
        elif kind == DATA:
            self._came.append(text.encode())
            self._changed.set()
        elif kind == READ:
            self._on_the_way -= int(text)
            self._changed.set()
        elif kind == END:
            self.left = not text
            self.break_off()


class Links:
    """Those of this process, `name`. `serve` is given each that another one opens, and ends it. `told`: called with
    what a process has told all. `silence`: seconds after which one that says nothing has gone."""

    def __init__(
        self,
        store: SessionStore,
        serve: Callable[[Link], Awaitable[None]],
        told: Callable[[str], None],
        *,
        silence: float,
    ) -> None:
        self.name = uuid.uuid4().hex[:12]
        """As `PROCESS`."""
        self.listens = anyio.Event()
        self.refuses = False
        """Whether no more are taken up."""
        self._store = store
        self._serve = serve
        self._told = told
        self._silence = silence
        self._links: dict[str, Link] = {}
        self._waiting: deque[tuple[str, str]] = deque()
        self._more = asyncio.Event()
        self._serving: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Until it is cancelled."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._send)
            tasks.start_soon(self._look_after)
            async with aclosing(self._store.listen(ALL, self.name)) as heard:
                async for notice in heard:
                    if notice:
                        try:
                            self._hear(notice)
                        except ValueError:
                            log.warning("a notice of something else was heard: %.80r", notice)
                        continue
                    for link in tuple(self._links.values()):  # Something may have been missed.
                        link.close(lost=True)
                    self.listens.set()

    async def open(self, process: str) -> Link:
        """Raises ConnectionClosed if that process does not take it up."""
        if not PROCESS.fullmatch(process):
            raise ConnectionClosed(f"there is no process {process!r}")
        link = self._made(uuid.uuid4().hex, process)
        self._put(process, f"{link.id} {OPEN} 0 {self.name}")
        try:
            with anyio.move_on_after(min(ANSWER_SECONDS, self._silence)):
                await link.taken.wait()
        except BaseException:
            link.close()
            raise
        if link.ended or not link.taken.is_set():
            link.close()
            raise ConnectionClosed(f"process {process} does not answer")
        return link

    def tell_all(self, text: str) -> None:
        """Every process, this one too."""
        self._put(ALL, f"- - 0 {text}")

    async def end(self) -> None:
        """Waits a moment for those at the other ends to go, then ends every link."""
        if self._serving:
            await asyncio.wait(tuple(self._serving), timeout=GOODBYE_SECONDS)
        for link in tuple(self._links.values()):
            link.close()
        with anyio.move_on_after(GOODBYE_SECONDS):
            while self._waiting:
                await self._send_some()

    def _made(self, link_id: str, process: str) -> Link:
        link = self._links[link_id] = Link(link_id, process, partial(self._put, process))
        return link

    def _hear(self, notice: str) -> None:
        link_id, kind, number, text = notice.split(" ", 3)
        if link_id == "-":
            self._told(text)
        elif kind == OPEN:
            link = self._made(link_id, text)
            if self.refuses:
                link.close()
                return
            link.take()
            task = asyncio.create_task(self._served(link))
            self._serving.add(task)
            task.add_done_callback(self._serving.discard)
        elif (known := self._links.get(link_id)) is not None:
            known.hear(kind, int(number), text)
            if known.ended:
                del self._links[link_id]

    async def _served(self, link: Link) -> None:
        try:
            await self._serve(link)
        finally:
            link.close()

    # --- sending ----------------------------------------------------------------------------------------------

    def _put(self, channel: str, notice: str) -> None:
        self._waiting.append((channel, notice))
        self._more.set()

    async def _send(self) -> None:
        while True:
            await self._more.wait()
            self._more.clear()
            while self._waiting:
                await self._send_some()

    async def _send_some(self) -> None:
        some = [self._waiting.popleft() for _ in range(min(AT_ONCE, len(self._waiting)))]
        try:
            await self._store.do(self._store.notify, some)
        except StoreError as error:
            log.error("%s", error)
            for link in tuple(self._links.values()):
                link.break_off()

    async def _look_after(self) -> None:
        while True:
            await anyio.sleep(self._silence / 4)
            now = asyncio.get_running_loop().time()
            for link in tuple(self._links.values()):
                if not link.ended and now - link.heard > self._silence:
                    log.warning("process %s says nothing any more", link.process)
                    link.close(lost=True)
                elif not link.ended:
                    link.send_alive()
                if link.ended:
                    self._links.pop(link.id, None)
