"""The stored log, read as updates to show again and as messages to remember. Pure.

Works on the stored JSON itself, so that fields a newer schema drops or renames are still shown.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from msgspec import UNSET, to_builtins

from acp_agent.legible import verbatim
from acp_agent.llm.base import AssistantMessage, Message
from acp_agent.loop.memory.history import History, decode_message, decode_messages
from acp_agent.loop.memory.rewinding import RewindError, TurnMark, asks_model, before, kept, prompts_of
from acp_agent.schema import acp
from acp_agent.store.base import LogEntry, read_stored

CHUNKS = ("user_message_chunk", "agent_message_chunk", "agent_thought_chunk")
PLANS = ("plan", "plan_update", "plan_removed")
INTERRUPTED = "Interrupted: the agent ended before this call did."


def rebuild_history(entries: Iterable[LogEntry]) -> tuple[History, list[Message]]:
    """Returns what the model knew, and what had to be added: text that was unfinished when the process died, answers to
    open calls. The caller stores these."""
    history = History()
    unsaved: dict[str, list[str]] = {}
    said = True
    """Whether the model is speaking."""
    for entry in kept(entries):
        if entry.kind == "message":
            history.add(decode_message(entry.payload))
            unsaved = {}
        elif entry.kind == "reset":
            history.replace(decode_messages(entry.payload))
            unsaved = {}
        elif entry.kind in ("turn", "rewind", "unrewind"):
            unsaved, said = {}, asks_model(entry)
        elif entry.kind == "update" and said:
            update = read_stored(entry.payload)
            if update.get("sessionUpdate") == "agent_message_chunk":
                unsaved.setdefault(str(update.get("messageId")), []).append(_text(update))
    repaired: list[Message] = [*history.close_calls()]
    if unsaved and len(history) and not isinstance(history.messages[-1], AssistantMessage):
        begun = AssistantMessage("".join(text for texts in unsaved.values() for text in texts))
        history.add(begun)
        repaired.append(begun)
    return history, repaired


def history_of(entries: Iterable[LogEntry]) -> History:
    """What the model knew; nothing is repaired."""
    history = History()
    for entry in kept(entries):
        if entry.kind == "message":
            history.add(decode_message(entry.payload))
        elif entry.kind == "reset":
            history.replace(decode_messages(entry.payload))
    return history


def proposal_stands(entries: Iterable[LogEntry]) -> bool:
    """Whether a plan for review is shown in the end."""
    stands = False
    for entry in kept(entries):
        if entry.kind == "update" and b'"plan_' in entry.payload:
            kind = read_stored(entry.payload).get("sessionUpdate")
            stands = kind == "plan_update" or (stands and kind != "plan_removed")
    return stands


def replayed_updates(
    entries: Iterable[LogEntry], *, running: bool = False, cursors: bool = False
) -> list[dict[str, Any]]:
    """The conversation as `session/update`s, in order: chunks of a message joined, each tool call once, in its final
    state, or as it is while a turn is `running`. Terminals are replaced by their text: their ids mean nothing to a
    later connection. Of each plan its last state alone, where it changed last; nothing of one that was removed.
    `cursors`: with these."""
    updates: list[dict[str, Any]] = []
    plans: dict[str, int] = {}
    """Their last updates, by number."""
    outdated: set[int] = set()
    calls: dict[str, dict[str, Any]] = {}
    texts: dict[int, list[str]] = {}
    """By the number of an update: what is joined at last, since a long message has many chunks."""
    standing = kept(entries)
    for entry in standing:
        if entry.kind != "update":
            continue
        update = read_stored(entry.payload)
        kind = update.get("sessionUpdate")
        if kind in CHUNKS and updates and _joins(updates[-1], update):
            at = len(updates) - 1
            texts.setdefault(at, [updates[at]["content"]["text"]]).append(update["content"]["text"])
        elif kind == "tool_call":
            calls[update["toolCallId"]] = update
            updates.append(update)
        elif kind == "tool_call_update":
            if (call := calls.get(update["toolCallId"])) is not None:
                meta = {**(call.get("_meta") or {}), **(update.get("_meta") or {})}
                call.update({key: value for key, value in update.items() if key != "sessionUpdate"})
                call["_meta"] = meta
        else:
            if kind in PLANS:
                plan = "" if kind == "plan" else str(update.get("planId") or update.get("plan", {}).get("planId"))
                outdated.add(plans.get(plan, -1))
                plans[plan] = len(updates)
                if not (update.get("plan") or update.get("entries")):
                    outdated.add(len(updates))
            updates.append(update)
    for at, parts in texts.items():
        updates[at]["content"]["text"] = "".join(parts)
    for call in calls.values():
        _settle(call, running)
    shown = [update for at, update in enumerate(updates) if at not in outdated] if plans else updates
    return [*with_cursors(shown, standing)] if cursors else shown


def _joins(last: dict[str, Any], update: dict[str, Any]) -> bool:
    return (
        last.get("sessionUpdate") == update["sessionUpdate"]
        and last.get("messageId") == update.get("messageId")
        and last["content"].get("type") == update["content"].get("type") == "text"
    )


def _text(update: dict[str, Any]) -> str:
    text = update.get("content", {}).get("text")
    return text if isinstance(text, str) else ""


def _settle(call: dict[str, Any], running: bool) -> None:
    """Returns a replayed call its final status and content without terminals."""
    content = call.get("content") or []
    shown = [item for item in content if item.get("type") != "terminal"]
    if len(shown) < len(content):
        output = call.get("rawOutput")
        text = "".join(output.get(key) or "" for key in ("stdout", "stderr")) if isinstance(output, dict) else ""
        shown = [*([_content(verbatim(text.rstrip()))] if text.strip() else []), *shown]
    if call.get("status") not in ("completed", "failed") and not running:
        call["status"] = "failed"
        shown = [*shown, _content(INTERRUPTED)]
    call["content"] = shown
    meta = call.get("_meta") or {}
    call["_meta"] = {key: value for key, value in meta.items() if not key.startswith("terminal_")}


def _content(text: str) -> dict[str, Any]:
    return {"type": "content", "content": {"type": "text", "text": text}}


# --- cursors -----------------------------------------------------------------------------------------------------

# Points of a conversation at which it can be forked (a draft of ACP). There is one before each prompt, and nothing of
# it is stored: its id has the message's.

BEFORE = "before-"
CAN_FORK = acp.CursorCapabilities(fork=acp.WithMeta())


def begun(message_id: str) -> acp.CursorUpdate:
    """The first update of the cursor before this message of the user's."""
    anchor = acp.CursorAnchor(type="user_message", position="before", message_id=message_id)
    return acp.CursorUpdate(cursor_id=BEFORE + message_id, anchor=anchor, capabilities=CAN_FORK)


def changed(message_id: str, *, stands: bool) -> acp.CursorUpdate:
    """What can be done at it once the prompt was taken back, or restored."""
    return acp.CursorUpdate(cursor_id=BEFORE + message_id, capabilities=CAN_FORK if stands else None, anchor=UNSET)


def missed(entries: Iterable[LogEntry], marks: Iterable[bytes]) -> list[acp.CursorUpdate]:
    """For a client that has seen all but the prompts of these marks: the cursors of those that stand, and what can be
    done at the others now."""
    new = {read_stored(mark, type=TurnMark).message_id for mark in marks}
    return [
        begun(each.message_id) if each.message_id in new else changed(each.message_id, stands=not each.cut)
        for each in prompts_of(entries)
        if each.message_id and not (each.cut and each.message_id in new)
    ]


def with_cursors(updates: list[dict[str, Any]], entries: Iterable[LogEntry]) -> Iterator[dict[str, Any]]:
    """The updates of a replay, with the cursor of each prompt behind its message."""
    prompts = {mark.message_id for mark in _marks(entries)}
    for update, following in zip(updates, [*updates[1:], {}], strict=False):
        yield update
        message_id = update.get("messageId")
        if message_id in prompts and message_id != following.get("messageId"):
            yield to_builtins(begun(str(message_id)))


def at_cursor(entries: list[LogEntry], cursor_id: str) -> list[LogEntry]:
    """What is left of the log before a cursor. Raises RewindError."""
    number = next((mark.number for mark in _marks(entries) if BEFORE + mark.message_id == cursor_id), 0)
    if not number:
        raise RewindError(f"it has no cursor {cursor_id[:80]!r}, or what followed that was taken back")
    return before(entries, number)


def _marks(entries: Iterable[LogEntry]) -> Iterator[TurnMark]:
    return (read_stored(entry.payload, type=TurnMark) for entry in entries if entry.kind == "turn")
