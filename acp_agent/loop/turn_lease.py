"""One process at a time works in a session: who runs a turn has the session's lease meanwhile.

Servers on one database hold those of their open sessions (`fronts/server/house.py`). Any other agent holds nothing
between its turns; that another process went on with the session meanwhile is noticed at the next one.
"""

from __future__ import annotations

import logging
import os
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import anyio

from acp_agent.errors import InternalError, StoreError
from acp_agent.store.leases import TURN
from acp_agent.store.session_store import SessionStore

log = logging.getLogger(__name__)

RENEWALS = 3
"""Within the time of a lease."""
HELD = "Another acp-coder works in it now{}: try again when it is done there."
OPEN = "To go on, open it again here (load or resume it)."
SERVED = "`acp-coder serve` has it open: close it there, or try again later."
CONTINUED = f"It was continued by another acp-coder since it was opened here. {OPEN}"
LOST = f"Another acp-coder has taken it over, since its lease was not renewed in time; the turn was stopped. {OPEN}"


class TurnLease:
    """Of one open session. `seconds`: how long it has the lease unless it renews it."""

    def __init__(self, store: SessionStore, session_id: str, seconds: float) -> None:
        self._store = store
        self._id = session_id
        self._seconds = seconds
        self._holder = f"{_here() or TURN}{os.getpid()}:{uuid.uuid4().hex}"
        self.seen = 0
        """The place in the log up to which this process knows it."""
        self.lost = False
        """Whether another process has taken it over in the last turn."""
        self._working = False
        self._ours = False
        """Whether it was not let go, in the store's thread."""
        self._cancel: Callable[[], None] = lambda: None

    @asynccontextmanager
    async def held(
        self, *, knows: bool, stop: Callable[[], None], stored: Callable[[], Awaitable[bool]]
    ) -> AsyncIterator[None]:
        """Nobody else works in the session meanwhile; if somebody does all the same, `stop` is called. `knows`: the
        log was read up to `seen`. `stored`: whether all that was said is in the log; until it is, nobody else gets the
        session. Raises InternalError, StoreError."""
        self.lost, self._working = False, True
        try:
            if words := await self._store.do(self._take, knows):
                raise self.refusal(words)
            self._renew_later(stop)
            yield
        finally:
            self._working = False
            self._cancel()
            with anyio.CancelScope(shield=True):
                try:
                    if await stored():
                        await self._store.do(self._let_go)
                except StoreError as error:
                    log.warning("session %s is held for %g s more: %s", self._id, self._seconds, error)

    def refusal(self, words: str = LOST) -> InternalError:
        data = {"kind": "elsewhere", "continued": words == CONTINUED}
        return InternalError(f"Nothing more was done in session {self._id!r}. {words}", data)

    def left_behind(self) -> bool:
        """Whether another process has gone on with it, and is done. In the store's thread."""
        return self._store.continued(self._id, self.seen) and not self._store.leases.holder(self._id)

    def _renew_later(self, stop: Callable[[], None]) -> None:
        renewed = partial(self._renewed, stop)
        self._cancel = self._store.call_in(self._seconds / RENEWALS, self._renew, renewed)

    def _renewed(self, stop: Callable[[], None], held: bool | None, error: BaseException | None) -> None:
        if isinstance(error, StoreError):
            log.warning("session %s cannot be held: %s", self._id, error)
        elif error is not None:
            raise error
        if held is False:
            self.lost = True
            stop()
        elif self._working:
            self._renew_later(stop)

    # --- in the store's thread --------------------------------------------------------------------------------

    def _take(self, knows: bool) -> str:
        """Why it is not ours, in words."""
        leases = self._store.leases
        if self._ours and leases.renew([self._id], self._holder, self._seconds):
            return ""  # Nobody has had it since.
        self._ours = False
        while not leases.claim(self._id, self._holder, self._seconds):
            if holder := leases.holder(self._id):
                if not holder.startswith(TURN):
                    return SERVED
                if not _has_gone(holder):
                    return HELD.format(f" (process {number})" if (number := _process(holder)) else "")
                leases.let_go(self._id, holder)
            elif self._store.get(self._id) is None:
                return ""  # Whatever is done in it will say so.
        if knows and self._store.continued(self._id, self.seen):
            leases.let_go(self._id, self._holder)
            return CONTINUED
        self._ours = True
        return ""

    def _renew(self) -> bool:
        """Whether nobody else has it."""
        if not self._ours or self._store.leases.renew([self._id], self._holder, self._seconds):
            return True
        self._ours = False
        return self._store.get(self._id) is None

    def _let_go(self) -> None:
        if self._ours:
            self.seen = self._store.last(self._id)
            self._store.leases.let_go(self._id, self._holder)
            self._ours = False


def _here() -> str:
    """The beginning of the names of holders whose processes can be looked for; empty: there is none."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{TURN}{boot} {os.readlink('/proc/self/ns/pid')}:"
    except OSError:
        return ""


def _process(holder: str) -> int:
    """The holder's, if it can be looked for; else 0."""
    here = _here()
    return int(holder.removeprefix(here).partition(":")[0]) if here and holder.startswith(here) else 0


def _has_gone(holder: str) -> bool:
    """Whether that process has ended: its lease need not be waited for."""
    if process := _process(holder):
        try:
            os.kill(process, 0)
        except ProcessLookupError:
            return True
        except PermissionError:
            pass
    return False
