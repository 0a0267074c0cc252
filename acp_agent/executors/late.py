"""An executor made by the first call that needs it: loading one takes longer than a first answer should wait."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from acp_agent.executors.editor import EditorExecutor
    from acp_agent.executors.local import LocalExecutor

Made = TypeVar("Made", bound="EditorExecutor | LocalExecutor")


class Late(Generic[Made]):
    def __init__(self, make: Callable[[], Made]) -> None:
        self._make = make

    @cached_property
    def executor(self) -> Made:
        return self._make()

    async def close(self) -> None:
        if "executor" in vars(self):
            await self.executor.close()
