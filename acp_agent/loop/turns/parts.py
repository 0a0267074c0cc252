"""The parts of a session: what its turns need besides the conversation itself. `build` creates them."""

from __future__ import annotations

from contextlib import AsyncExitStack

from msgspec import Struct

from acp_agent.loop.beside.beside import Beside
from acp_agent.loop.beside.languages import Languages
from acp_agent.loop.calls.runner import Calls
from acp_agent.loop.commands import Commands
from acp_agent.loop.journal import Journal
from acp_agent.loop.memory.memory import Memory
from acp_agent.loop.model.ready_model import SessionModels
from acp_agent.loop.shell.session_shell import Shell
from acp_agent.loop.toolbox.toolbox import Toolbox
from acp_agent.loop.turns.context_use import ContextUse
from acp_agent.loop.turns.session_prompts import Prompts
from acp_agent.loop.turns.session_turns import Turns


class Parts(Struct, frozen=True):
    toolbox: Toolbox
    calls: Calls
    shell: Shell
    memory: Memory
    languages: Languages
    """The five owners; the following parts use them."""
    models: SessionModels
    journal: Journal
    commands: Commands
    prompts: Prompts
    turns: Turns
    context: ContextUse
    beside: Beside

    async def close(self) -> None:
        """Ends what the session left running; all of it, also if one of them cannot be ended."""
        async with AsyncExitStack() as ends:  # The last first.
            ends.push_async_callback(self.calls.elsewhere.close)
            for part in (self.shell, self.languages, self.beside, self.calls.recorder, self.shell.runs):
                ends.push_async_callback(part.close)
