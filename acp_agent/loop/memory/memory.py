"""The model's knowledge: the conversation, its size limits, the goal, the files it has seen, the project's
instructions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from msgspec.structs import replace

from acp_agent.lazy import load
from acp_agent.llm.base import AssistantMessage, ImagePart, Message, TextPart
from acp_agent.loop.memory.forking import fork_mark
from acp_agent.loop.memory.history import History
from acp_agent.loop.memory.replay import history_of, rebuild_history
from acp_agent.loop.memory.rewinding import RewindMark, check_rewind, check_unrewind, pending_notes
from acp_agent.loop.memory.room import Room
from acp_agent.loop.memory.session_goals import Goals
from acp_agent.loop.memory.token_counts import characters
from acp_agent.loop.outbox import Outbox
from acp_agent.loop.prompts.instructions import Instructions
from acp_agent.loop.prompts.library import Library
from acp_agent.loop.prompts.skills import Skills
from acp_agent.protocol.codec import encode
from acp_agent.store.base import LogEntry, OverflowPart
from acp_agent.store.session_store import SessionStore
from acp_agent.tools.kit.tool_context import Ledger

USABLE = "acp_agent.llm.images:usable"
"""Looked at only when there is an image."""


class Memory:
    """Of one conversation. `sources`: the sessions whose stored outputs it reads besides its own."""

    def __init__(
        self,
        outbox: Outbox,
        store: SessionStore,
        room: Room,
        goals: Goals,
        instructions: Instructions,
        skills: Skills,
        library: Library,
        sources: tuple[str, ...] = (),
    ) -> None:
        self._outbox = outbox
        self._store = store
        self._notes: list[str] = []
        self._added: list[Message] = []
        """By `restore`."""
        self._sources = sources
        self._told: set[Path] = set()
        """Files of instructions that the model has seen in results."""
        self.history = History()
        self.room = room
        self.goals = goals
        self.instructions = instructions
        self.skills = skills
        self.library = library
        self.ledger = Ledger()
        self.notes = store.memories

    def below(self, outbox: Outbox, instructions: Instructions, skills: Skills) -> Memory:
        """The memory of a sub-agent, which knows nothing yet. `outbox`: its own; the others are of its project."""
        project = instructions, skills, self.library
        return Memory(outbox, self._store, self.room.below(), self.goals, *project, self.sources)

    def instructions_for(self, paths: Iterable[Path]) -> str:
        """Those of sub-folders on the way to these files that the model has not seen yet."""
        return self.instructions.for_paths(paths, self._told)

    @property
    def sources(self) -> tuple[str, ...]:
        """The session, and those that it was forked from or is part of."""
        return (self._outbox.session_id, *self._sources)

    @property
    def length(self) -> int:
        """Characters of the conversation."""
        return sum(map(characters, self.history.messages))

    def messages(self) -> Sequence[Message]:
        return self.history.messages

    def add(self, message: Message, *, clean: bool = False) -> None:
        """Appends to the history, also on disk. `clean`: it contains no credentials."""
        if not clean:
            message = self._clean(message)
        message = self._seen(message)
        self.history.add(message)
        self._outbox.put("message", encode(message))

    def replace(self, messages: Sequence[Message]) -> None:
        """Replaces the history with `messages`; what the user sees stays."""
        messages = [self._clean(message) for message in messages]
        self.history.replace(messages)
        self._outbox.put("reset", encode(messages))

    def _seen(self, message: Message) -> Message:
        """With images that a model can take, and words instead of others, which the user is told, too."""
        if isinstance(message, AssistantMessage) or not any(isinstance(part, ImagePart) for part in message.content):
            return message
        content = tuple(map(load(USABLE), message.content))
        for before, after in zip(message.content, content, strict=True):
            if isinstance(before, ImagePart) and isinstance(after, TextPart):
                self._outbox.tell(after.text.strip("[]").capitalize() + ".")
        return replace(message, content=content)

    def _clean(self, message: Message) -> Message:
        redaction = self._outbox.redaction
        return message if redaction is None else redaction.message(message)

    def restore(self, entries: Iterable[LogEntry]) -> str:
        """Restores the stored history, and repairs it. Returns the id of the session from which this one was forked in
        the end, if it was."""
        entries = list(entries)
        self._notes = pending_notes(entries)
        self.history, self._added = rebuild_history(entries)
        self.goals.restore(entries)
        if (mark := fork_mark(entries)) is None:
            return ""
        self._sources = mark.sources
        self.instructions.recall(mark.mark, mark.facts, mark.instructions)
        return mark.sources[-1]

    def mend(self) -> None:
        """Stores what `restore` had to add. Not before a turn: the one that left it unfinished may run in another
        process."""
        for message in self._added:
            self._outbox.put("message", encode(message))
        self._added = []

    async def turn_back(self, to: int, *, forth: bool) -> None:
        """Takes the conversation back to before prompt `to`, or (`forth`) restores what the last step, which was to
        there, cut. Raises RewindError, StoreError: then nothing is changed."""
        entries = await self._outbox.stored()
        if forth:
            check_unrewind(entries, to)
            entry = LogEntry("unrewind", b"{}")
        else:
            check_rewind(entries, to)
            entry = LogEntry("rewind", encode(RewindMark(to)))
        await self._outbox.store_now(entry)
        self._notes = pending_notes([*entries, entry])
        self.history = history_of([*entries, entry])
        self._told.clear()
        self.ledger.clear()

    def tell(self, note: str) -> None:
        """The model is told this before the next prompt, also if the agent is started anew until then."""
        self._notes.append(note)
        self._outbox.put("note", note)

    def taken_notes(self) -> list[str]:
        notes, self._notes = self._notes, []
        return notes

    def forget(self) -> None:
        """Makes the model forget the conversation and everything it was shown in it."""
        self.replace([])
        self._told.clear()
        self.ledger.clear()

    async def read_overflow(self, overflow_id: str, offset: int, limit: int) -> OverflowPart | None:
        """Returns part of a stored output of this session; offset and limit in characters. `None` if it does not exist.
        Raises StoreError."""
        kept = self._store.overflow
        for session_id in self.sources:
            part = await kept.do(kept.read, session_id, overflow_id, offset, limit)
            if part is not None:
                return part
        return None
