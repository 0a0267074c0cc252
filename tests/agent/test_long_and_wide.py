"""What a long session and a far disk cost: counted, since how long it takes is for `make bench-scale`."""

import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from acp_agent.config.compaction_settings import CompactionConfig
from acp_agent.llm.base import AssistantMessage, Message, TextPart, UserMessage
from acp_agent.loop.memory import compaction, rewinding, token_counts
from acp_agent.loop.memory.room import Room
from acp_agent.store.base import LogEntry, read_stored
from tests.agent.kit import Call, bash, put, rig, rounds

READ, EDIT = Call("read", {"path": "a/b/one"}), Call("edit", {"path": "a/b/one", "old_text": "x", "new_text": "y"})
FIND = Call("find_path", {"pattern": "*"})
MOST = {"read": (READ, 65), "edit": (EDIT, 65), "bash": (bash("true"), 130), "find": (FIND, 62)}
"""Calls of the file system below the home and the session's folder, in a turn with one such call, after the first."""


def test_each_message_of_a_history_is_measured_once_however_often_it_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    room, seen, measure = Room(CompactionConfig(), 0.8), Counter[int](), token_counts.characters
    monkeypatch.setattr(compaction, "characters", lambda message: (seen.update([id(message)]), measure(message))[1])
    history: list[Message] = [UserMessage((TextPart("x" * 100),))]
    for number in range(200):
        history.append(AssistantMessage(f"{number}"))
        assert room.size(history) == room.size(list(history)) == sum(map(measure, history))
    assert set(seen.values()) == {1} and len(seen) == 201
    assert room.size(history[:3]) == sum(map(measure, history[:3]))
    assert room.size([*history[:1], *history[5:]]) == sum(map(measure, [*history[:1], *history[5:]]))


def test_each_entry_of_a_log_is_read_once_however_often_something_was_taken_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    entries, read, ask = list[LogEntry](), Counter[bytes](), read_stored
    for number in range(1, 101):
        entries += [LogEntry("turn", b'{"number": %d}' % number), LogEntry("message", b"{}")]
        if number % 2 == 0:
            entries.append(LogEntry("rewind", b'{"to": %d}' % number))
    monkeypatch.setattr(rewinding, "read_stored", lambda text, **as_: (read.update([text]), ask(text, **as_))[1])
    left = rewinding.kept(entries)
    assert read.total() == 150 and [entry.kind for entry in left].count("turn") == 50


@pytest.mark.parametrize("name", MOST)
async def test_a_call_asks_a_far_disk_no_more_than_it_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    call, most = MOST[name]
    asked: list[str] = []

    def counted(of: str, work: Callable[..., Any]) -> Callable[..., Any]:
        def ask(*args: Any, **more: Any) -> Any:
            path = args[0] if args else "."
            if isinstance(path, str | bytes | os.PathLike):
                path = os.fsdecode(path)
                if more.get("dir_fd") is not None or not path.startswith("/") or path.startswith(str(tmp_path)):
                    asked.append(f"{of} {path}")
            return work(*args, **more)

        return ask

    counts: list[int] = []
    async with rig(tmp_path, [*rounds(call) * 4], mode="auto", terminal=False) as made:
        for _ in range(4):  # In some of them looks go on beside.
            put(made.project / "a/b/one", "x\n")
            with monkeypatch.context() as patched:
                for of in ("stat", "lstat", "open", "readlink", "scandir", "listdir", "access"):
                    patched.setattr(os, of, counted(of, getattr(os, of)))
                asked.clear()
                await made.editor.prompt("go")
            counts.append(len(asked))
        assert 0 < min(counts[1:]) <= most, (counts, Counter(asked).most_common(20))
