"""Tasks bound to a block, for objects that are themselves context managers."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Self

import anyio


class Background:
    """A task group that does not wrap an error of the block in a group.

    Leaving the block waits for the tasks: whoever starts one ends it, or calls `cancel()`.
    """

    def __init__(self) -> None:
        self._group = anyio.create_task_group()

    def start(self, work: Callable[..., Coroutine[Any, Any, object]], *args: Any) -> None:
        self._group.start_soon(work, *args)

    def cancel(self) -> None:
        self._group.cancel_scope.cancel()

    async def __aenter__(self) -> Self:
        await self._group.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if isinstance(error, anyio.get_cancelled_exc_class()):
            return bool(await self._group.__aexit__(kind, error, trace))
        await self._group.__aexit__(None, None, None)
        return False
