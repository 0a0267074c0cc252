"""`acp-coder` without arguments, stage zero: answers `initialize` with a blocking read, before asyncio and msgspec are
loaded.

A `session/new` that follows at once is answered before asyncio is loaded, too (`commands/early.py`). The same sans-IO
`Peer` then goes on under the event loop (`commands/serve.py`), with whatever else had already been received.
"""

from __future__ import annotations

import gc
import os
import select
import signal
import sys
from contextlib import suppress
from types import FrameType

from acp_agent.config.sources import merge, user_layers
from acp_agent.errors import ConfigError, InternalError, RpcError
from acp_agent.handshake import answer_initialize, asks_v2, has_v2
from acp_agent.lazy import load
from acp_agent.protocol.peer import Event, Peer, RequestReceived

EARLY = "acp_agent.commands.early:early_session"
SERVE = "acp_agent.commands.serve:serve"
READ_SIZE = 65_536

WRITE_WAIT = 0.2
"""Seconds between two looks at whether anybody is still there to read an answer."""

GARBAGE_THRESHOLD = 400_000
"""Garbage collection threshold during start-up, which creates that many objects and drops none: Python's default of 700
costs a tenth of the time to the first answers. `serve` changes it again."""


def run(arguments: list[str]) -> int:
    """Serves until the stream ends; does not return in the ordinary case (see `serve`)."""
    gc.set_threshold(GARBAGE_THRESHOLD, 10, 10)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _leave)
    peer = Peer()
    said: list[tuple[str, bytes]] = []
    events: list[Event] = []
    while not events:
        data, events = _receive(peer, said)
        if not data and not events:
            return 0
    params: object = None
    opening = opened = None
    first = events[0]
    if isinstance(first, RequestReceived) and first.method == "initialize":
        try:
            config = merge(user_layers(os.environ))
            if asks_v2(first.params) and has_v2(config):  # Answered under the event loop.
                return int(load(SERVE)(peer, events, None, None, None, said))
            answer = peer.respond(first.id, answer_initialize(first.params, config))
            params = first.params
        except ConfigError as error:
            answer = peer.fail(first.id, InternalError.code, str(error))
        except RpcError as error:
            answer = peer.fail(first.id, error.code, error.message)
        try:
            _write(answer, said)
        except OSError:
            return 1
        events = events[1:]
        if params is not None:
            try:
                opening, opened, events = load(EARLY)(
                    peer, events, lambda: _waiting(peer, said), lambda data: _write(data, said)
                )
            except OSError:
                return 1
    return int(load(SERVE)(peer, events, params, opening, opened, said))


def _leave(number: int, frame: FrameType | None) -> None:
    sys.stderr.flush()
    os._exit(0)


def _receive(peer: Peer, said: list[tuple[str, bytes]]) -> tuple[bytes, list[Event]]:
    data = _read()
    said.append(("in", data))
    return data, peer.receive(data) if data else peer.receive_eof()


def _waiting(peer: Peer, said: list[tuple[str, bytes]]) -> list[Event]:
    return _receive(peer, said)[1] if select.select([0], [], [], 0)[0] else []


def _read() -> bytes:
    while True:
        try:
            return os.read(0, READ_SIZE)
        except BlockingIOError:  # O_NONBLOCK is shared with the parent process.
            select.select([0], [], [])


def _write(data: bytes, said: list[tuple[str, bytes]]) -> None:
    """Raises OSError if nobody reads it, or if stdin ends while it waits for a reader."""
    said.append(("out", data))
    stdin = select.poll()
    stdin.register(0, 0)  # Its end is always reported.
    while data:
        if select.select([], [1], [], WRITE_WAIT)[1]:
            with suppress(BlockingIOError):
                data = data[os.write(1, data[: select.PIPE_BUF]) :]  # So much is taken without waiting.
        elif stdin.poll(0):
            raise BrokenPipeError
