"""The words of what sessions have shown, so that they are found again: what was said, titles and outputs of tool calls.

A message is in the log in pieces, so it is the end of a turn that puts its words into the index, and what a killed
agent left is put there before the next search: `unsearched` marks its session from the beginning of the turn on, and
`searched_to` moves in the same transaction as the words.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from acp_agent.store.database import Part, clean, stamp

WORD = re.compile(r"[^\W_]+")
MAX_WORDS = 32
"""Words of a query that are searched for."""
MAX_TEXT = 200_000
"""Characters of a message or an output whose words are found."""
AT_ONCE = 2_000
"""Updates of one transaction."""
SNIPPET = 160
"""Characters."""
RUNNING = timedelta(hours=1)
"""A turn that began that long ago is not expected to go on: what it left is all."""
MESSAGES = ("user_message_chunk", "agent_message_chunk")


class Hit(msgspec.Struct, frozen=True):
    session_id: str
    seq: int
    """Of the first update of what was found, in the log."""
    snippet: str


class _Content(msgspec.Struct):
    type: str = ""
    text: str = ""
    content: _Content | None = None
    path: str = ""


class _Update(msgspec.Struct, rename="camel"):
    session_update: str = ""
    message_id: str | None = None
    tool_call_id: str = ""
    title: str | None = None
    content: Any = None
    raw_output: Any = None


class _Found(msgspec.Struct):
    """A message or a call."""

    seq: int
    title: str = ""
    said: list[str] = []
    printed: str = ""

    @property
    def text(self) -> str:
        return "\n".join(part for part in (self.title, "".join(self.said), self.printed) if part)[:MAX_TEXT]


class History(Part):
    """All methods raise StoreError."""

    def index(self, session_id: str, *, ended: bool = True) -> None:
        """Puts the words of what the session has shown since the last time into the index. `ended`: nothing more
        comes for now."""
        while self._index(session_id, ended):
            pass

    def _index(self, session_id: str, ended: bool) -> bool:
        """Whether there may be more."""
        rows = self._db.rows("SELECT searched_to FROM sessions WHERE id = ?", session_id)
        if not rows:
            return False
        before: int = rows[0][0]
        new = self.page(session_id, before, AT_ONCE)
        more = len(new) == AT_ONCE
        if not new and not ended:
            return False
        found = [(each.seq, session_id, clean(text)) for each in _found(new) if (text := each.text)]
        with self._db.write() as db:
            moved = db.change(
                "UPDATE sessions SET searched_to = ?, unsearched = ? WHERE id = ? AND searched_to = ?",
                *(new[-1][0] if new else before, int(more or not ended), session_id, before),
            )
            if moved and found:  # Else another process has done it.
                db.many("INSERT INTO shown (seq, session_id, text) VALUES (?,?,?)", found)
        return more

    def page(self, session_id: str, after: int, limit: int) -> list[tuple[int, bytes]]:
        """What the client was shown, oldest first: the place of each in the log, behind `after`, and its JSON."""
        query = "SELECT seq, payload FROM log WHERE session_id = ? AND seq > ? AND kind = 'update' ORDER BY seq LIMIT ?"
        return [(row[0], row[1]) for row in self._db.rows(query, session_id, after, limit)]

    def catch_up(self) -> None:
        """Indexes what agents that were killed, or are at work, have left."""
        old = stamp(datetime.now(UTC) - RUNNING)
        for session_id, updated_at in self._db.rows("SELECT id, updated_at FROM sessions WHERE unsearched = 1"):
            self.index(session_id, ended=updated_at < old)

    def search(
        self, words: str, *, session_id: str | None = None, limit: int = 50, before: int | None = None
    ) -> list[Hit]:
        """What has all of these words, each perhaps as the beginning of one; the newest first. `before`: the `seq` of
        the last hit already seen."""
        wanted = list(dict.fromkeys(word.lower() for word in WORD.findall(clean(words))))[:MAX_WORDS]
        if not wanted:
            return []
        self.catch_up()
        query = f"SELECT s.session_id, s.seq, s.text {self._db.words.shown}"
        values: list[object] = [self._db.words.all_wanted(wanted)]
        if session_id is not None:
            query += " AND s.session_id = ?"
            values.append(session_id)
        if before is not None:
            query += " AND s.seq < ?"
            values.append(before)
        rows = self._db.rows(f"{query} ORDER BY s.seq DESC LIMIT ?", *values, limit)
        return [Hit(row[0], row[1], _snippet(row[2], wanted)) for row in rows]


def _found(rows: Sequence[tuple[int, bytes]]) -> list[_Found]:
    """What these updates have shown."""
    found: dict[tuple[str, str], _Found] = {}
    for seq, payload in rows:
        try:
            update = msgspec.json.decode(payload, type=_Update)
        except msgspec.DecodeError:
            continue
        if update.session_update in MESSAGES:
            key = (update.session_update, update.message_id or str(seq))
            text = _text(update.content)
            if text:
                found.setdefault(key, _Found(seq)).said.append(text)
        elif update.session_update in ("tool_call", "tool_call_update"):
            call = found.setdefault(("call", update.tool_call_id), _Found(seq))
            call.title = update.title or call.title
            if isinstance(update.content, list) and (said := [_text(each) for each in update.content]):
                call.said = ["\n".join(filter(None, said))]
            if isinstance(update.raw_output, dict):
                printed = (update.raw_output.get(name) for name in ("stdout", "stderr"))
                call.printed = "\n".join(text for text in printed if isinstance(text, str) and text)
            if call.said == [call.printed]:
                call.printed = ""
    return list(found.values())


def _text(content: Any) -> str:
    try:
        known = msgspec.convert(content, _Content)
    except msgspec.ValidationError:
        return ""
    inner = known.content if known.content is not None else known
    return inner.text or known.path


def _snippet(text: str, words: Sequence[str]) -> str:
    """The text around the first of the words, in one line."""
    places = [match.start() for match in WORD.finditer(text) if match[0].lower().startswith(tuple(words))]
    at = max(0, (places[0] if places else 0) - SNIPPET // 4)
    part = " ".join(text[at : at + SNIPPET].split())
    return f"{'…' if at else ''}{part}{'…' if at + SNIPPET < len(text) else ''}"
