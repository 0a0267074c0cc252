"""The turns of a session: one runs, the others wait."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import anyio

if TYPE_CHECKING:
    from contextvars import Context

    from acp_agent.llm.base import Message
    from acp_agent.schema.acp import ContentBlock


@dataclass
class Joining:
    """What the user wrote while a turn runs, until it joins that turn's conversation or is given back."""

    blocks: Sequence[ContentBlock]
    message: Message
    """The same, as the model gets it."""
    whose: Context
    """From where it came."""
    may_return: bool = False
    """Whether who wrote it waits for `settled`, and takes it back if the turn is cancelled first."""
    joined: bool = False
    settled: anyio.Event = field(default_factory=anyio.Event)

    def settle(self, *, joined: bool) -> None:
        self.joined = joined
        self.settled.set()


class TurnQueue:
    def __init__(self, *, leased: bool = False) -> None:
        self.leased = leased
        """Whether each turn has the session's lease for itself; else this process has it anyway."""
        self._scopes: list[anyio.CancelScope] = []
        self._beside: list[anyio.CancelScope] = []
        self._calls: dict[str, anyio.CancelScope] = {}
        """Of the tool calls that run, by their ids."""
        self.closed = False
        """Whether the session is closed: nothing more is sent."""
        self.prompt = 0
        """The number of the running prompt, once it is in the log; 0: none."""
        self.steering: list[Joining] | None = None
        """What the user wrote since the last step of the running turn; `None` while no turn takes it."""

    @cached_property
    def _lock(self) -> anyio.Lock:
        # Created late: it loads anyio's event loop backend, for which the session's response must not wait.
        return anyio.Lock()

    def __len__(self) -> int:
        """How many prompts are running or waiting."""
        return len(self._scopes)

    @property
    def busy(self) -> bool:
        return bool(self._scopes)

    @property
    def cancelled(self) -> bool:
        """Whether the running turn is to end; also for what shields itself from that."""
        return any(scope.cancel_called for scope in self._scopes)

    @contextmanager
    def cancellable(self) -> Iterator[anyio.CancelScope]:
        """The scope of one prompt, which `cancel` ends."""
        scope = anyio.CancelScope()
        self._scopes.append(scope)
        try:
            with scope:
                yield scope
        finally:
            self._scopes.remove(scope)

    @contextmanager
    def beside(self, scope: anyio.CancelScope) -> Iterator[None]:
        """`scope` is not one of a prompt, and ended by `cancel` all the same."""
        self._beside.append(scope)
        try:
            yield
        finally:
            self._beside.remove(scope)

    @contextmanager
    def call(self, call_id: str) -> Iterator[None]:
        """Around a tool call, which `cancel_call` ends."""
        with anyio.CancelScope() as scope:
            self._calls[call_id] = scope
            try:
                yield
            finally:
                del self._calls[call_id]

    def cancel_call(self, call_id: str) -> bool:
        """False if none of that id runs."""
        scope = self._calls.get(call_id)
        if scope is not None:
            scope.cancel()
        return scope is not None

    def give_back(self) -> None:
        """What the running turn has not taken, to those who wait for that."""
        for each in self.steering or ():
            if each.may_return:
                each.settle(joined=False)
        self.steering = [each for each in self.steering or () if not each.may_return]

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Waits until no other turn is running, and blocks others."""
        async with self._lock:
            yield

    def cancel(self) -> None:
        """Ends the running turn and the waiting ones; their prompts are answered `cancelled`. And what is `beside`."""
        for scope in (*self._scopes, *self._beside):
            scope.cancel()
