"""The slash commands, as the client offers them for completion."""

from __future__ import annotations

from collections.abc import Sequence

from acp_agent.loop.outbox import Outbox
from acp_agent.loop.prompts.command_names import BUILT_IN
from acp_agent.loop.prompts.library import Library
from acp_agent.loop.prompts.skills import Skills
from acp_agent.loop.turn_queue import TurnQueue
from acp_agent.schema.acp import AvailableCommand, AvailableCommandsUpdate, UnstructuredCommandInput


class Menu:
    """The commands of a session: the agent's own, written ones, skills, the prompts of MCP servers."""

    def __init__(self, outbox: Outbox, queue: TurnQueue, skills: Skills, library: Library) -> None:
        self._outbox = outbox
        self._queue = queue
        self._skills = skills
        self._library = library
        self._of_servers: Sequence[AvailableCommand] = ()

    def update(self) -> AvailableCommandsUpdate:
        hint = UnstructuredCommandInput(hint="what to apply it to")
        skills = [
            AvailableCommand(name=name, description=description or "A skill of this project", input=hint)
            for name, description in self._skills.commands().items()
        ]
        own = own_commands()
        written = [_command(*words) for words in self._library.offered()]
        more = {command.name: command for command in reversed((*own, *written, *skills, *self._of_servers))}
        return AvailableCommandsUpdate(available_commands=list(more.values())[::-1])

    def show(self) -> None:
        """Tells the client."""
        if not self._queue.closed:
            self._outbox.emit(self.update(), keep=False)

    def change(self, of_servers: Sequence[AvailableCommand]) -> None:
        """The MCP servers offer these prompts now."""
        self._of_servers = of_servers
        self.show()


def own_commands() -> list[AvailableCommand]:
    """Those that every session has."""
    return [_command(name, *words) for name, words in BUILT_IN.items()]


def _command(name: str, description: str, hint: str) -> AvailableCommand:
    return AvailableCommand(
        name=name, description=description, input=UnstructuredCommandInput(hint=hint) if hint else None
    )
