"""Servers that commands start, at this machine's loopback, for the user's browser and the tools of the agent; and
services of this machine, as far as the configuration says, at the loopback of the commands."""

from __future__ import annotations

import errno
import logging
import os
import socket
from collections.abc import Callable, Collection
from functools import partial

import anyio
import anyio.to_thread
from anyio.abc import SocketListener, SocketStream, TaskGroup

from acp_agent.errors import ExecutorError
from acp_agent.executors.sandbox.proxy.ways import Way
from acp_agent.limits.shares import Share
from acp_agent.proxying import ENDED, Traffic, relay, serve

log = logging.getLogger(__name__)

LOOK_SECONDS = 0.3
"""Between two looks."""
LEAST_PORT = 1024
"""Ports below this one are not published."""
CONNECT_SECONDS = 5.0


class Published:
    """Of one session. `taken` is told the port of a server that is not reachable, since the port is taken here."""

    def __init__(self, way: Way, taken: Callable[[int], None], share: Share, most: int) -> None:
        """`most`: ports at a time. `share`: of the session's connections; a port that is published takes one, too."""
        self._way = way
        self._share = share
        self._most = most
        self._taken = taken
        self._ports: dict[int, anyio.CancelScope] = {}
        self._busy: set[int] = set()
        self._told: set[int] = set()
        self._keeps = False

    async def keep(self, needed: Callable[[], Collection[int] | None]) -> None:
        """Publishes what listens, until `needed` returns None. It returns ports that are the agent's own."""
        if self._keeps:
            return
        self._keeps = True
        try:
            async with anyio.create_task_group() as tasks:
                await anyio.sleep(LOOK_SECONDS)  # Most commands have ended by then.
                while (own := needed()) is not None:
                    self._look(tasks, own)
                    await anyio.sleep(LOOK_SECONDS)
                tasks.cancel_scope.cancel()
        finally:
            self._ports.clear()
            self._keeps = False

    def _look(self, tasks: TaskGroup, own: Collection[int]) -> None:
        listening = {port: at for port, at in self._way.listening().items() if port >= LEAST_PORT and port not in own}
        self._busy &= listening.keys()
        for port in self._ports.keys() - listening.keys():
            self._ports.pop(port).cancel()
        new = sorted(listening.keys() - self._ports.keys() - self._busy)
        for port in new[: max(self._most - len(self._ports), 0)]:
            self._ports[port] = anyio.CancelScope()
            tasks.start_soon(self._serve, port, listening[port], self._ports[port])

    async def _serve(self, port: int, address: str, scope: anyio.CancelScope) -> None:
        if self._share.take():
            self._ports.pop(port, None)  # At the next look it is tried again.
            return
        try:
            with scope:
                await self._listen(port, address)
        finally:
            self._share.give()

    async def _listen(self, port: int, address: str) -> None:
        try:
            made = socket.create_server(("127.0.0.1", port))
        except OSError:
            self._ports.pop(port, None)
            self._busy.add(port)
            if port not in self._told:
                self._told.add(port)
                self._taken(port)
            return
        async with await SocketListener.from_socket(made) as listener:
            await serve(listener, partial(self._pass_on, address, port), self._share)

    async def _pass_on(self, address: str, port: int, client: SocketStream) -> None:
        async with client:
            try:
                async with await connect_inside(self._way, address, port) as server:
                    await relay(client, server, Traffic())
            except (*ENDED, ExecutorError) as error:
                log.debug("a connection to port %d of a command ended: %s", port, error)


async def lend(listener: socket.socket, port: int, share: Share) -> None:
    """Passes connections that commands make to `listener` on to this machine's own service at the port."""

    async def pass_on(client: SocketStream) -> None:
        async with client:
            try:
                async with await anyio.connect_tcp("127.0.0.1", port) as server:
                    await relay(client, server, Traffic())
            except ENDED as error:
                log.debug("a connection of a command to port %d ended: %s", port, error)

    with listener:
        listener.setblocking(False)
        async with await SocketListener.from_socket(listener) as accepting:
            await serve(accepting, pass_on, share)


async def connect_inside(way: Way, address: str, port: int) -> SocketStream:
    """Connects to a server on the commands' own loopback. Raises OSError or ExecutorError."""
    made = await anyio.to_thread.run_sync(way.reach, address)
    try:
        made.setblocking(False)
        with anyio.fail_after(CONNECT_SECONDS):
            code = made.connect_ex((address, port))
            if code == errno.EINPROGRESS:
                await anyio.wait_writable(made)
                code = made.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            raise OSError(code, os.strerror(code))
        return await SocketStream.from_socket(made)
    except BaseException:
        made.close()
        raise
