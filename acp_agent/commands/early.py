"""`acp-coder` without arguments, between the stages: a `session/new` right after `initialize`, without asyncio.

One of the places with `except Exception`: what cannot be answered here is answered by the event loop.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from acp_agent.commands.wakeup import watch_signals
from acp_agent.errors import InternalError, StoreError
from acp_agent.loop.opened import Opened
from acp_agent.opening import Opening, answer
from acp_agent.protocol.codec import encode
from acp_agent.protocol.peer import Event, Peer, RequestReceived
from acp_agent.schema.decode import decode_params


def early_session(
    peer: Peer, events: Sequence[Event], receive: Callable[[], Sequence[Event]], write: Callable[[bytes], None]
) -> tuple[Opening, Opened | None, Sequence[Event]]:
    """Answers a `session/new` if it is the next message; returns the remaining events.

    `receive` returns the events that have arrived by now. Other failures than of the store are left to the event loop,
    which answers them. Raises OSError if the answer cannot be written.
    """
    opening, opened = Opening(), None
    try:
        peer.max_line = opening.config().settings.limits.max_line_bytes
        events = events or receive()
        first = events[0] if events else None
        if not isinstance(first, RequestReceived) or first.method != "session/new":
            return opening, None, events
        try:
            with _ended_by_signals():
                unstable = opening.config().settings.protocol.unstable
                if unstable or (isinstance(first.params, dict) and "configOptions" in first.params):
                    return opening, None, events  # The client's capabilities count.
                request = decode_params(first.method, first.params, "agent")
                if opening.isolates(request.meta, opening.config(request.cwd)):
                    return opening, None, events  # Making a worktree takes time.
                opened = opening.new(request)
        except StoreError as error:  # Once is enough: it may have waited for a busy database.
            data = peer.fail(first.id, InternalError.code, str(error))
        else:
            peer.encode = encode
            data = peer.respond(first.id, answer(opened))
    except Exception:  # noqa: BLE001
        return opening, None, events
    write(data)
    return opening, opened, events[1:]


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """Lets a signal end the process even while SQLite waits for another agent, when no Python handler runs."""
    write = watch_signals(lambda: os._exit(0))
    try:
        yield
    finally:
        signal.set_wakeup_fd(-1)
        os.close(write)
