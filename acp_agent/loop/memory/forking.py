"""A new session that begins with the conversation of another one.

The log is copied, and the head of the conversation is kept for it: the fork's first request begins with the same
bytes as the next one of its source would, so the provider's cache serves both.
"""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from acp_agent.errors import InvalidParams, StoreError, WorktreeError
from acp_agent.llm.base import AssistantMessage, UserMessage
from acp_agent.loop.memory.history import decode_message
from acp_agent.loop.memory.replay import at_cursor
from acp_agent.loop.memory.rewinding import RewindError, TurnMark, before, finished_before, is_number, kept
from acp_agent.safety.folders.paths import real_path
from acp_agent.store.base import LogEntry, SessionRecord, read_stored
from acp_agent.store.session_store import SessionStore

if TYPE_CHECKING:
    from acp_agent.loop.session_state import SessionState
    from acp_agent.schema import acp


USAGE = (
    "`/fork` makes a session with this conversation, `/fork 3` with what was before prompt 3; with `worktree` after "
    "that it gets a git worktree of its own."
)


class ForkMark(msgspec.Struct, frozen=True):
    """The first entry of a fork's log."""

    sources: tuple[str, ...]
    """The session that was forked, then the one that this was forked from, and so on."""
    mark: str = ""
    facts: str = ""
    instructions: str = ""
    """As in `Instructions`; empty if the source was not open."""


def fork_mark(entries: Sequence[LogEntry]) -> ForkMark | None:
    first = entries[0] if entries else None
    return read_stored(first.payload, type=ForkMark) if first is not None and first.kind == "fork" else None


def fork(
    store: SessionStore,
    source: SessionRecord,
    entries: Sequence[LogEntry],
    session: SessionState | None = None,
    cwd: str | None = None,
) -> SessionRecord:
    """A new session like `source` that begins with `entries`, a part of its log. `session`: the source, if it is open.
    `cwd`: another folder. Raises StoreError."""
    own = fork_mark(entries)
    mark = ForkMark((source.id, *(own.sources if own is not None else ())))
    if session is not None and (system := session.instructions()) is not None:
        text = session.outbox.clean(system.text)
        mark = replace(mark, mark=system.mark, facts=session.outbox.clean(system.facts), instructions=text)
    marks = [entry for entry in entries if entry.kind == "turn"]
    record = replace(
        source,
        id=str(uuid.uuid4()),
        cwd=cwd or source.cwd,
        real=str(real_path(Path(cwd))) if cwd else source.real,
        additional_directories=() if cwd else source.additional_directories,
        title=f"{source.title} (fork)" if marks and source.title else None,
        created_at="",
        updated_at="",
        turns=read_stored(marks[-1].payload, type=TurnMark).number if marks else 0,
    )
    first = LogEntry("fork", msgspec.json.encode(mark))
    store.create(record)
    try:
        store.append(record.id, [first, *entries[1 if own is not None else 0 :]])
    except StoreError:
        store.delete(record.id)
        raise
    return record


async def fork_wished(
    store: SessionStore, source: SessionRecord, request: acp.ForkSessionRequest, session: SessionState | None
) -> SessionRecord:
    """Serves `session/fork`. Raises InvalidParams, StoreError."""
    if session is not None:
        await session.outbox.flushed()
    entries = kept(await store.do(store.entries, source.id))
    part = wished(entries, request, running=0 if session is None else session.queue.prompt)
    return await store.do(fork, store, source, part, session)


async def fork_command(
    session: SessionState, rest: str, worktree: Callable[[int], Awaitable[tuple[str, Sequence[str]]]]
) -> str:
    """`/fork [N] [worktree]`: makes the session, and says how to open it. `worktree` makes one with the files as they
    were before a prompt (0: as they are) and returns its path, and what is not as it was."""
    words = rest.split()
    isolated = words[-1:] == ["worktree"]
    word = " ".join(words[:-1] if isolated else words).lstrip("#")
    if word and not is_number(word):
        return USAGE
    try:
        entries = await finished(session)
        entries = before(entries, int(word)) if word else entries
        cwd, lost = await worktree(int(word or 0)) if isolated else (None, ())
        made = await session.fork(entries, cwd=cwd)
    except RewindError as error:
        return f"Not forked: {error}. `/checkpoints` lists the prompts."
    except WorktreeError as error:
        return f"Not forked: {error}."
    part = f"before prompt {word}" if word else "so far"
    files = "The files stay as they are"
    if cwd:
        then = "as they were then" if word else "as they are"
        files = f"The worktree {cwd} has the files that the agent changed {then}, the others as last committed"
    told = (
        f"The session `{made.id}` begins with the conversation {part}. Open it from your editor's list of sessions, or "
        f"with `acp-coder prompt --session {made.id} TEXT`. {files}; what was done here is taken "
        "back here, not there."
    )
    return "\n- ".join([told, *lost])


async def finished(session: SessionState) -> list[LogEntry]:
    """The log of an open session up to the end of its last finished turn."""
    await session.outbox.flushed()
    return finished_before(await session.stored(), session.queue.prompt)


def wished(entries: list[LogEntry], request: acp.ForkSessionRequest, *, running: int) -> list[LogEntry]:
    """The part of the log that a `session/fork` names: what is before a cursor or a prompt, what is up to a message, or
    all. Of the prompt that is `running` there is nothing in it. Raises InvalidParams."""
    own, air = (request.meta or {}).get("fork"), (request.meta or {}).get("jetbrains")
    finished = finished_before(entries, running)
    try:
        if request.cursor_id is not None:
            return at_cursor(entries, request.cursor_id)
        if own is not None:
            if not isinstance(own, dict) or type(own.get("to", 0)) is not int:
                raise InvalidParams("Invalid params: $._meta.fork.to: a prompt's number is expected")
            return before(entries, own["to"]) if "to" in own else finished
        for key in ("air", "fork"):
            air = air.get(key) if isinstance(air, dict) else None
        if isinstance(air, dict) and air.get("version") == 1 and isinstance(air.get("messageId"), str):
            return up_to(finished, air["messageId"])
    except RewindError as error:
        raise InvalidParams(f"The session cannot be forked there: {error}") from error
    return finished


def up_to(entries: list[LogEntry], message_id: str) -> list[LogEntry]:
    """The log up to a message and including it, as the user and as the model see it. Raises RewindError."""
    updates = [read_stored(entry.payload) if entry.kind == "update" else {} for entry in entries]
    last = max((at for at, update in enumerate(updates) if update.get("messageId") == message_id), default=None)
    if last is None:
        raise RewindError("it has no message with that id")
    is_user = updates[last]["sessionUpdate"] == "user_message_chunk"
    end = last + 1
    while end < len(entries) and _belongs(entries[end], updates[end], is_user=is_user):
        end += 1
    return entries[:end]


def _belongs(entry: LogEntry, update: dict[str, Any], *, is_user: bool) -> bool:
    """Whether an entry after the message's last update is still part of it. Calls of tools are not."""
    if entry.kind != "message":
        return is_user and entry.kind in ("note", "update") and not update.get("sessionUpdate", "").startswith("agent_")
    message = decode_message(entry.payload)
    if is_user:
        return isinstance(message, UserMessage)
    return isinstance(message, AssistantMessage) and not message.tool_calls
