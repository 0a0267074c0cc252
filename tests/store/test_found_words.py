"""Search over the history: what was shown is found by its words, the newest first, on both databases."""

import json
import sqlite3
from pathlib import Path

from acp_agent.store.base import LogEntry, SessionRecord
from acp_agent.store.database import migrations
from acp_agent.store.found_words import AT_ONCE
from acp_agent.store.session_store import SessionStore
from acp_agent.store.sqlite import MIGRATIONS
from acp_agent.store.stores import sqlite_store
from tests.store.conftest import Open


def said(text: str, message: str = "m1", kind: str = "agent_message_chunk") -> LogEntry:
    update = {"sessionUpdate": kind, "messageId": message, "content": {"type": "text", "text": text}}
    return LogEntry("update", json.dumps(update).encode())


def call(title: str | None, output: str = "", call_id: str = "c1", **more: object) -> LogEntry:
    kind = "tool_call" if title is not None else "tool_call_update"
    content = [{"type": "content", "content": {"type": "text", "text": output}}] if output else None
    update = {"sessionUpdate": kind, "toolCallId": call_id, "title": title, "content": content, **more}
    return LogEntry("update", json.dumps(update).encode())


def talk(store: SessionStore, name: str, *entries: LogEntry, ended: bool = True) -> None:
    if store.get(name) is None:
        store.create(SessionRecord(name, "/project"))
    store.change(name, new_turn=True)
    store.append(name, entries)
    if ended:
        store.history.index(name)


def found(store: SessionStore, words: str, **more: object) -> list[str]:
    return [hit.session_id for hit in store.history.search(words, **more)]  # type: ignore[arg-type]


def test_what_was_said_and_what_tools_printed_is_found(store: SessionStore) -> None:
    talk(store, "a", said("Where are the pears?", kind="user_message_chunk"), said("In the cellar."))
    talk(store, "b", call("Run `ls`"), call(None, "apples.txt\n"), said("Only apples.", "m2"))
    talk(store, "c", call("Run make", call_id="c9"), call(None, "", "c9", rawOutput={"stdout": "built cherries"}))
    assert found(store, "pears") == ["a"]
    assert found(store, "apples") == ["b", "b"], "the output and the message"
    assert found(store, "make cherries") == ["c"], "all words, in one place"
    assert found(store, "pears apples") == []
    assert found(store, "CELL") == ["a"], "the beginning of a word is enough, in any case"


def test_what_was_said_and_printed_is_found_in_whole_with_its_surroundings(store: SessionStore) -> None:
    talk(store, "a", *(said(piece) for piece in ("The cat", "hed", "ral is in Co", "logne.")))
    (hit,) = store.history.search("cathedral cologne")
    assert "cathedral is in Cologne" in hit.snippet
    assert store.page("a", 0, 1)[0][0] == hit.seq
    talk(store, "a", said("x " * 500 + "the needle is here " + "y " * 500))
    (hit,) = store.history.search("needle")
    assert "the needle is here" in hit.snippet and len(hit.snippet) < 200
    assert hit.snippet.startswith("…") and hit.snippet.endswith("…")


def test_hits_come_page_by_page_the_newest_first(store: SessionStore) -> None:
    for number in range(5):
        talk(store, f"s{number}", said(f"plum {number}"))
    seen: list[str] = []
    before = None
    while hits := store.history.search("plum", limit=2, before=before):
        seen += [hit.session_id for hit in hits]
        before = hits[-1].seq
    assert seen == ["s4", "s3", "s2", "s1", "s0"]
    assert found(store, "plum", session_id="s2") == ["s2"]


def test_what_a_killed_agent_left_is_found(store: SessionStore, opened: Open) -> None:
    talk(store, "a", said("the last words"), ended=False)
    assert found(opened(), "last words") == ["a"]
    store.append("a", [said("and then some", "m2")])
    assert found(opened(), "then some") == ["a"], "it may go on"
    assert store._db.rows("SELECT unsearched FROM sessions")[0][0] == 1
    store._db.change("UPDATE sessions SET updated_at = '2020-01-01T00:00:00.000000Z'")
    store.history.catch_up()
    assert store._db.rows("SELECT unsearched FROM sessions")[0][0] == 0, "or it does not"


def test_what_was_indexed_is_not_indexed_again(store: SessionStore, opened: Open) -> None:
    talk(store, "a", *(said(f"berry {number}", f"m{number}") for number in range(AT_ONCE + 10)))
    opened().history.index("a")
    opened().history.catch_up()
    assert len(store.history.search("berry", limit=10_000)) == AT_ONCE + 10


def test_a_deleted_session_is_not_found(store: SessionStore) -> None:
    talk(store, "a", said("secret plans"))
    talk(store, "b", said("other plans"))
    store.delete("a")
    assert found(store, "plans") == ["b"]
    store.history.index("a")
    assert found(store, "secret") == []


def test_words_of_all_kinds_are_found_and_no_query_is_syntax(store: SessionStore) -> None:
    talk(store, "a", said("some text a b x y"))
    for words in ('"', "'", "* OR (", "a:b", "NEAR(x y)", "& | ! <->", "\\", "%", "\ud800", "\0", "", "-"):
        store.history.search(words)
    talk(store, "a", said("Größe GRÖSSE 日本語 snake_case see https://example.com/x and v1.2"))
    for words in ("größe", "GRÖSSE", "日本語", "snake_case", "example.com", "v1.2"):
        assert found(store, words) == ["a"], words
    entries = [LogEntry("update", payload) for payload in (b"null", b"{}", b"\xff", b'{"sessionUpdate": 7}', b"[1]")]
    strange = json.dumps({"sessionUpdate": "tool_call", "toolCallId": "x", "content": [1, {"a": 2}], "title": "odd"})
    talk(store, "a", *entries, LogEntry("update", strange.encode()), said("quince"))
    assert found(store, "quince") == ["a"] and found(store, "odd") == ["a"]


def test_sessions_from_before_there_was_an_index_are_found(tmp_path: Path) -> None:
    path = tmp_path / "old.db"
    plain = sqlite3.connect(path, isolation_level=None)
    for number, statements in migrations(MIGRATIONS).items():
        for statement in statements if number < 9 else ():
            plain.execute(statement)
    plain.execute("PRAGMA user_version=8")
    row = "('s', '/p', '[]', NULL, '', '2020-01-01', 'code', 'm', '', 1, '')"
    plain.execute(f"INSERT INTO sessions VALUES {row}")
    plain.execute("INSERT INTO log (session_id, kind, payload) VALUES ('s', 'update', ?)", (said("medlar").payload,))
    plain.close()
    store = sqlite_store(path)
    assert found(store, "medlar") == ["s"]
    store.close()
