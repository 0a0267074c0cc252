"""Bare `acp-coder`, between the stages: the first `session/new`, where it came at once, without asyncio."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from acp_agent.errors import AgentError
from acp_agent.loop.opened import Opened
from acp_agent.opening import Opening, answer
from acp_agent.protocol.codec import encode
from acp_agent.protocol.peer import Event, Peer, RequestReceived
from acp_agent.schema.decode import decode_params


def early_session(
    peer: Peer, events: Sequence[Event], receive: Callable[[], Sequence[Event]], write: Callable[[bytes], None]
) -> tuple[Opening, Opened | None, Sequence[Event]]:
    """Answers a `session/new` if it comes next and can be answered; gives the events that are left.

    `receive` gives those that are there by now. What fails is left to the event loop, which tells it. Raises OSError
    where nobody reads the answer.
    """
    opening = Opening()
    try:
        peer.max_line = opening.config().settings.limits.max_line_bytes
        events = events or receive()
        first = events[0] if events else None
        if not isinstance(first, RequestReceived) or first.method != "session/new":
            return opening, None, events
        with _ended_by_signals():
            opened = opening.new(decode_params(first.method, first.params, "agent"))
    except AgentError:
        return opening, None, events
    peer.encode = encode
    write(peer.respond(first.id, answer(opened)))
    return opening, opened, events[1:]


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """A signal ends the process also while SQLite waits for another agent: no handler of Python's runs then."""
    read, write = os.pipe()
    os.set_blocking(write, False)

    def watch() -> None:
        if os.read(read, 1):
            os._exit(0)
        os.close(read)

    threading.Thread(target=watch, daemon=True).start()
    signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    try:
        yield
    finally:
        signal.set_wakeup_fd(-1)
        os.close(write)
