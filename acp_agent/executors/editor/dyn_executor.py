"""Where each command runs: in the editor's terminal, or by the session's own means."""

from __future__ import annotations

from acp_agent.executors.base import Command, Commands, Offer, Process
from acp_agent.executors.editor.editor_terminals import EditorTerminals, NotStarted


class DynExecutor:
    """Implements `Commands`: chooses for each command between the editor's terminal, as far as `offer` says, and `own`
    ones. What needs a terminal that can be typed into has its own, and what failed in the editor's before it began runs
    by `own`."""

    def __init__(self, own: Commands, terminals: EditorTerminals, offer: Offer) -> None:
        self._own = own
        self._terminals = terminals
        self._offer = offer

    async def run(self, command: Command) -> Process:
        if self._offer.terminal and command.terminal is None:
            try:
                return await self._terminals.run(command)
            except NotStarted:
                pass
        return await self._own.run(command)

    async def close(self) -> None:
        await self._own.close()
