"""`acp-coder` without arguments, stage one: the event loop takes over the connection.

Ends within a second in any phase: at the end of stdin, on SIGTERM and SIGINT (exit status 0), and when stdout is closed
(1). Prompts interrupted by a signal are answered `cancelled` first.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from types import FrameType
from typing import Any

from acp_agent import tracing
from acp_agent.agent import Agent
from acp_agent.commands.logs import set_up_logs
from acp_agent.commands.wakeup import watch_signals
from acp_agent.config.load import load_config
from acp_agent.config.model import LogConfig, Settings
from acp_agent.errors import ConfigError
from acp_agent.lazy import load
from acp_agent.limits.descriptors import raise_limit
from acp_agent.loop.opened import Opened
from acp_agent.opening import Opening
from acp_agent.protocol.codec import coalesce_updates, encode
from acp_agent.protocol.connection import Connection
from acp_agent.protocol.peer import Event, Peer
from acp_agent.protocol.transports import FdTransport, stdio

log = logging.getLogger(__name__)

TAPPED = "acp_agent.commands.record:tapped"

GARBAGE_THRESHOLD = 50_000
"""Garbage collection threshold once everything is loaded."""

GOODBYE_SECONDS = 0.3
"""Seconds a signal waits for running prompts to be answered."""

CLOSE_SECONDS = 0.35
"""Seconds the agent may take to release its resources; its commands are killed well before."""

TRACES_SECONDS = 0.2
"""Seconds for the last traces to be sent."""

HARD_EXIT_SECONDS = 0.95
"""Seconds after which the process exits even if something blocks it, such as a database kept busy by another agent."""


def serve(
    peer: Peer,
    events: Sequence[Event],
    initialize_params: object,
    opening: Opening | None,
    opened: Opened | None,
    said: Sequence[tuple[str, bytes]],
) -> int:
    """Runs the agent on stdin and stdout and leaves the process: a thread that still imports must not hold it.

    `opened`: the session that was answered already. `said`: all that was read (`in`) and written (`out`) so far.
    """
    raise_limit()
    try:
        settings = load_config(os.environ).settings
    except ConfigError:  # Reported where it is used: to whoever asks for a session.
        settings = Settings(log=LogConfig(file="-"))
    set_up_logs(settings.log, os.environ, settings.secrets)
    peer.encode = encode
    peer.max_line = settings.limits.max_line_bytes
    agent = Agent(opening, initialize_params=initialize_params)
    recorded = settings.agent.record or settings.agent.record_wire
    tap = partial(load(TAPPED), settings=settings, environ=os.environ, said=said) if recorded else None
    try:
        tracing.begin(os.environ)
    except ConfigError as error:
        log.error("%s", error)
    status = asyncio.run(_serve(agent, peer, events, opened, tap))
    tracing.end(TRACES_SECONDS)
    logging.shutdown()
    sys.stderr.flush()
    os._exit(status)


async def _serve(
    agent: Agent, peer: Peer, events: Sequence[Event], opened: Opened | None, tap: Callable[[FdTransport], Any] | None
) -> int:
    agent.sessions.loaded = _settle
    transport = stdio()
    used = transport if tap is None else tap(transport)
    connection = Connection(used, agent, peer=peer, coalesce=coalesce_updates, write_now=used.write_now)
    agent.attach(connection)
    connection.on_input_end = agent.cancel_turns
    goodbyes: set[asyncio.Task[None]] = set()

    def on_signal() -> None:
        goodbyes.add(asyncio.ensure_future(_say_goodbye(agent, connection)))

    _watch_signals(on_signal)
    if opened is not None:
        agent.adopt(opened)
    await connection.serve(events)
    threading.Thread(target=_end_certainly, daemon=True).start()
    try:
        async with asyncio.timeout(CLOSE_SECONDS):
            await agent.close()
    except TimeoutError:
        log.error("not everything could be closed within %g s", CLOSE_SECONDS)
    unread = connection.write_failed or transport.hung_up
    return 1 if unread and not _stdin_has_ended() else 0


def _settle() -> None:
    """Everything is loaded: freezes existing objects and collects garbage more often."""
    gc.freeze()
    gc.set_threshold(GARBAGE_THRESHOLD, 10, 10)


def _watch_signals(on_signal: Callable[[], None]) -> None:
    """Calls `on_signal` in the loop, and ends the process even if the loop is blocked."""
    loop = asyncio.get_running_loop()

    def heard() -> None:
        with suppress(RuntimeError):  # The loop is closed: the process is ending anyway.
            loop.call_soon_threadsafe(on_signal)
        _end_certainly()

    watch_signals(heard)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _only_woken)


def _only_woken(number: int, frame: FrameType | None) -> None:
    """A handler must exist for the signal to be written to the pipe."""


def _end_certainly() -> None:
    time.sleep(HARD_EXIT_SECONDS)
    os._exit(0)


def _stdin_has_ended() -> bool:
    """Whether both ends closed together, as when the client exits: the ordinary end."""
    readable, _, _ = select.select([0], [], [], 0)
    try:
        return bool(readable) and os.read(0, 1) == b""
    except OSError:
        return True


async def _say_goodbye(agent: Agent, connection: Connection) -> None:
    try:
        async with asyncio.timeout(GOODBYE_SECONDS):
            await agent.cancel_all()
            await connection.flush()
    except TimeoutError:
        pass  # The client does not read, so it gets no answer.
    connection.close()
