"""The stored log with what was taken back left out, and the prompts in it. Pure.

Before the entries of a prompt stands a `turn`. A `rewind` cuts from a prompt on, an `unrewind` restores what the last
`rewind` cut, unless the model was asked something after it.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from acp_agent.errors import AgentError
from acp_agent.store.base import LogEntry, read_stored

LONGEST_TITLE = 60


class RewindError(AgentError):
    """The conversation cannot be taken back to there."""


class TurnMark(msgspec.Struct, frozen=True):
    number: int
    message_id: str = ""
    time: str = ""
    """ISO 8601, UTC."""
    command: bool = False
    """Whether it is a slash command, of which the model knows nothing."""


class RewindMark(msgspec.Struct, frozen=True):
    to: int


class Prompt(msgspec.Struct, frozen=True):
    number: int
    message_id: str
    time: str
    """ISO 8601, UTC."""
    title: str
    """Its first words."""
    cut: bool
    """Whether it was taken back."""

    @property
    def is_command(self) -> bool:
        return self.title.startswith("/")


def kept(entries: Iterable[LogEntry]) -> list[LogEntry]:
    """What is left of the log, with the marks that say where something was cut or restored."""
    return _Reader(entries).left


def check_rewind(entries: Iterable[LogEntry], to: int) -> None:
    """Raises RewindError if there is no such prompt to go back to."""
    if to not in _Reader(entries).starts:
        raise RewindError(f"there is no prompt {to} in it")


def check_unrewind(entries: Iterable[LogEntry], to: int) -> None:
    """Raises RewindError if what can be restored is not what was cut from prompt `to` on."""
    cuts = _Reader(entries).cuts
    if to not in [cut[0] for cut in cuts]:
        raise RewindError("nothing of it was taken back since the model was last asked")
    if cuts[-1][0] != to:
        raise RewindError("more of it was taken back since")


def before(entries: Iterable[LogEntry], prompt: int) -> list[LogEntry]:
    """What is left of the log before that prompt. Raises RewindError."""
    reader = _Reader(entries)
    if (at := reader.starts.get(prompt)) is None:
        raise RewindError(f"there is no prompt {prompt} in it")
    return reader.left[:at]


def finished_before(entries: Iterable[LogEntry], running: int) -> list[LogEntry]:
    """What is left of the log without the prompt that runs (0: none does). An undo may have cut off its own mark."""
    reader = _Reader(entries)
    return reader.left[: reader.starts.get(running)]


def asks_model(entry: LogEntry) -> bool:
    """Whether what follows this mark may be said by the model: not after a command, nor after a cut."""
    return entry.kind == "turn" and not read_stored(entry.payload, type=TurnMark).command


def prompts_of(entries: Iterable[LogEntry]) -> list[Prompt]:
    """All prompts, also those that were taken back, in order."""
    entries = list(entries)
    standing = _Reader(entries).starts
    found: list[Prompt] = []
    for entry in entries:
        if entry.kind == "turn":
            mark = read_stored(entry.payload, type=TurnMark)
            found.append(Prompt(mark.number, mark.message_id, mark.time, "", mark.number not in standing))
        elif entry.kind == "update" and found and not found[-1].title and b'"user_message_chunk"' in entry.payload:
            title = _first_words(entry.payload)
            found[-1] = msgspec.structs.replace(found[-1], title=title)
    return found


def is_number(word: str) -> bool:
    """Whether it can be a prompt's."""
    return word.isascii() and word.isdigit() and len(word) < 10


def pending_notes(entries: Iterable[LogEntry]) -> list[str]:
    """What the model is to be told before the next prompt."""
    notes: list[str] = []
    for entry in kept(entries):
        if entry.kind == "note":
            notes.append(read_stored(entry.payload, type=str))
        elif entry.kind == "message":
            notes.clear()
    return notes


class _Reader:
    def __init__(self, entries: Iterable[LogEntry]) -> None:
        self.left: list[LogEntry] = []
        self.starts: dict[int, int] = {}
        """Where each prompt begins in what is left; the last one last."""
        self.cuts: list[tuple[int, int, list[LogEntry]]] = []
        """What can be restored: from which prompt, where, what; the last of it last."""
        for entry in entries:
            if entry.kind == "rewind":
                to = read_stored(entry.payload, type=RewindMark).to
                if (at := self.starts.get(to)) is not None:  # Else this log is what `kept` left of another.
                    self.cuts.append((to, at, self._cut(at)))
            elif entry.kind == "unrewind":
                _, at, cut = self.cuts.pop()
                for each in [*cut, *self._cut(at)]:
                    self._keep(each)
            elif entry.kind in ("message", "reset"):
                self.cuts.clear()
            self._keep(entry)

    def _keep(self, entry: LogEntry) -> None:
        if entry.kind == "turn":
            self.starts[read_stored(entry.payload, type=TurnMark).number] = len(self.left)
        self.left.append(entry)

    def _cut(self, at: int) -> list[LogEntry]:
        """Removes what stands from there on, and returns it."""
        found, self.left[at:] = self.left[at:], []
        while self.starts and next(reversed(self.starts.values())) >= at:
            self.starts.popitem()
        return found


def _first_words(payload: bytes) -> str:
    update = read_stored(payload)
    text = update.get("content", {}).get("text")
    words = " ".join(text.split()) if isinstance(text, str) else "(no text)"
    return words if len(words) <= LONGEST_TITLE else f"{words[: LONGEST_TITLE - 1]}…"
