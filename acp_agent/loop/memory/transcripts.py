"""A stored session as text: Markdown to read, JSON lines to keep."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from acp_agent.loop.memory.replay import replayed_updates
from acp_agent.store.base import ListedSession, LogEntry


def as_markdown(record: ListedSession, entries: Iterable[LogEntry]) -> Iterator[str]:
    """Its lines, without line feeds; what was taken back is left out."""
    yield f"# {record.title or 'Untitled'}\n\n{record.id} in {record.cwd}, {record.turns} prompts"
    for update in replayed_updates(entries):
        match update["sessionUpdate"]:
            case "user_message_chunk":
                yield f"\n> {_block(update['content'])}"
            case "agent_message_chunk":
                yield f"\n{_block(update['content'])}"
            case "agent_thought_chunk":
                yield f"\n({_block(update['content'])})"
            case "tool_call":
                mark = "ok" if update.get("status") == "completed" else "failed"
                yield f"\n[{mark}] {update['title']}"
            case "plan":
                for entry in update["entries"]:
                    yield f"- [{'x' if entry['status'] == 'completed' else ' '}] {entry['content']}"


def as_json_lines(record: ListedSession, entries: Iterable[LogEntry]) -> Iterator[str]:
    """The session without its client's system prompt, then all of its log; without line feeds."""
    about = {name: value for name, value in msgspec.structs.asdict(record).items() if name != "client_prompt"}
    yield msgspec.json.encode({"kind": "session", "payload": about}).decode()
    for entry in entries:
        yield f'{{"kind":"{entry.kind}","payload":{entry.payload.decode()}}}'


def _block(content: dict[str, Any]) -> str:
    return str(content.get("text") or content.get("uri") or f"<{content.get('type')}>")
