"""`acp-coder sessions export ID FILE`: a stored session as a recording.

The store has neither the system prompt nor the tools of a request, so these are not compared when it is played; nor has
it what sub-agents and summaries asked.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from acp_agent.build.own_credentials import own_credentials
from acp_agent.config.load import load_config
from acp_agent.credentials.redactor import Redactor
from acp_agent.errors import UsageError
from acp_agent.llm import base as llm
from acp_agent.llm.recordings.cleaning import Cleaner
from acp_agent.llm.recordings.form import event_forms, message_form
from acp_agent.llm.recordings.tape import Tape
from acp_agent.loop.memory.history import History, decode_message, decode_messages
from acp_agent.loop.memory.rewinding import kept
from acp_agent.store.base import SessionRecord, read_stored
from acp_agent.store.session_store import SessionStore


def write(file: Path, record: SessionRecord, store: SessionStore, environ: Mapping[str, str]) -> None:
    """Raises UsageError if the file exists or cannot be written."""
    if file.exists():
        raise UsageError(f"{file} exists already")
    settings = load_config(environ).settings
    values = own_credentials(settings, environ)
    cleaner = Cleaner(Redactor(values=values, extra_patterns=settings.secrets.extra_patterns), environ)
    cleaner.folder(record.cwd)
    tape = Tape(file, cleaner, {"exported": True})
    count = 0
    for line in _lines(record, store, cleaner):
        tape.write(line)
        count += "request" in line
    tape.close()
    if trouble := tape.taken_trouble():
        raise UsageError(trouble)
    sys.stdout.write(f"{file}: {count} requests\n")


def _lines(record: SessionRecord, store: SessionStore, cleaner: Cleaner) -> Iterator[dict[str, Any]]:
    yield {"session": 1, "cwd": cleaner.clean(record.cwd), "mode": record.mode, "resumed": False}
    provider, _, model = record.model.partition("/")
    history, number, said = History(), 0, dict[Any, list[Any]]()
    for entry in kept(store.entries(record.id)):
        if entry.kind == "update":
            update = read_stored(entry.payload)
            if update["sessionUpdate"] == "user_message_chunk":
                said.setdefault(update.get("messageId"), []).append(update["content"])
        if entry.kind not in ("message", "reset"):
            continue
        for blocks in said.values():
            yield {"session": 1, "prompt": cleaner.clean(blocks)}
        said.clear()
        if entry.kind == "reset":
            history = History(decode_messages(entry.payload))
            continue
        message = decode_message(entry.payload)
        if isinstance(message, llm.AssistantMessage):
            number += 1
            yield {
                "request": number,
                "provider": provider,
                "model": model,
                "settings": {},
                "system": None,
                "tools": None,
                "messages": cleaner.clean([message_form(each) for each in history.messages]),
            }
            events = [(0.0, event) for event in _events(message)]
            yield {"answer": number, "events": event_forms(events, cleaner)}
        history.add(message)


def _events(message: llm.AssistantMessage) -> Iterator[llm.ModelEvent]:
    if message.thought:
        yield llm.ThoughtDelta(message.thought)
    if message.text:
        yield llm.TextDelta(message.text)
    yield from message.tool_calls
    yield llm.Finished("tool_calls" if message.tool_calls else "stop", message.opaque)
