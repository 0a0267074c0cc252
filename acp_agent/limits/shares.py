"""How much commands may make the agent hold: bounds of a command, a session, an owner, the process, one in another."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from acp_agent.limits.descriptors import PARTS, few_left, fits


class Share:
    """At most so many of something. Each that is taken is also taken of what is `above`."""

    def __init__(self, whose: str, what: str, key: str, most: int, above: Share | None = None) -> None:
        """`whose`, `what`, and the `key` of the configuration: in words."""
        self.taken = 0
        self.most = most
        self.above = above
        self.parts, self.each = PARTS, 1
        """How much of the descriptors may be taken, and what one of these needs."""
        self.what = what
        self._words = (whose, what, key)

    def full(self) -> str:
        """Which bound is reached, and what to do; empty: none."""
        for share in self._chain():
            most = min(share.most, fits(share.parts, share.each))
            if share.taken >= most:
                whose, what, key = share._words
                return f"{most} {what} are the most that {whose} may have (`{key}`): end some, or try again later."
        return few_left()

    def take(self) -> str:
        """Takes one; or none, and says why as `full`."""
        if not (why := self.full()):
            for share in self._chain():
                share.taken += 1
        return why

    def give(self) -> None:
        """Gives one back."""
        for share in self._chain():
            share.taken -= 1

    def _chain(self) -> Iterator[Share]:
        share: Share | None = self
        while share is not None:
            yield share
            share = share.above


class Shares(Struct, frozen=True):
    """Of an owner of a server, or of all that an agent on stdio does."""

    connections: Share
    commands: Share
    programs: Share
    """Commands that somebody waits for, MCP servers and language servers."""


CONNECTIONS = Share("this agent", "connections of commands", "network.max_connections_per_process", 2048)
CONNECTIONS.parts, CONNECTIONS.each = 6, 4
COMMANDS = Share("this agent", "background commands", "tools.bash.max_background_runs_per_process", 256)
COMMANDS.parts, COMMANDS.each = 2, 8
PROGRAMS = Share("this agent", "commands and servers at a time", "limits.max_programs_per_process", 1024)
PROGRAMS.parts, PROGRAMS.each = 3, 8
SESSIONS = Share("this agent", "open sessions", "limits.max_sessions", 1000)
"""Of the process."""
