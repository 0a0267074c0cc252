"""Memories: full-text search, best first, by project; a query has no syntax."""

import sqlite3

import pytest

from acp_agent.store.database import FORMAT, migrations
from acp_agent.store.sqlite import MIGRATIONS
from acp_agent.store.stores import sqlite_store


def keys(found) -> list[str]:
    return [memory.key for memory in found]


def test_the_best_match_comes_first_and_words_of_the_key_count_more(store):
    store.memories.store("/p", "colours", "The database is blue.", "core")
    store.memories.store("/p", "database", "Use PostgreSQL 16.", "core")
    store.memories.store("/p", "lunch", "Soup on Mondays.", "daily")
    assert keys(store.memories.recall(("/p",), "which database?", 5)) == ["database", "colours"]
    assert keys(store.memories.recall(("/p",), "databases", 5)) == []
    assert keys(store.memories.recall(("/p",), "data", 5)) == ["database", "colours"]


def test_projects_do_not_see_each_other_but_all_see_what_belongs_to_none(store):
    store.memories.store("/p", "a", "word", "core")
    store.memories.store("/q", "b", "word", "core")
    store.memories.store("", "c", "word", "core")
    assert set(keys(store.memories.recall(("/p", ""), "word", 5))) == {"a", "c"}
    assert store.memories.keys("/p", 5) == ["a"]


def test_the_same_key_is_replaced_and_what_was_forgotten_is_not_found(store):
    assert store.memories.store("/p", "k", "apple", "core") is False
    assert store.memories.store("/p", "k", "pear", "daily") is True and store.memories.recall(("/p",), "apple", 5) == []
    (found,) = store.memories.recall(("/p",), "pear", 5)
    assert (found.key, found.content, found.category) == ("k", "pear", "daily")
    store.memories.store("/p", "k", "apple", "core")
    assert store.memories.forget("/q", "k") is False and store.memories.forget("/p", "k") is True
    assert store.memories.forget("/p", "k") is False and store.memories.recall(("/p",), "apple", 5) == []


def test_limit_and_category_narrow(store):
    for number in range(9):
        store.memories.store("/p", f"k{number}", "apple", "daily" if number % 2 else "core")
    assert len(store.memories.recall(("/p",), "apple", 5)) == 5
    assert all(found.category == "daily" for found in store.memories.recall(("/p",), "apple", 9, "daily"))


@pytest.mark.parametrize(
    "query", ['"', "a AND", "NEAR(", "key:apple", "*", "-", "", "'; DROP TABLE memories", "\ud800", "a" * 5000, "^"]
)
def test_no_query_for_memories_is_syntax(store, query):
    store.memories.store("/p", "k", "apple", "core")
    store.memories.recall(("/p",), query, 5)
    assert keys(store.memories.recall(("/p",), "apple", 5)) == ["k"]


def test_strange_text_is_kept(store):
    store.memories.store("/p", "schlüssel \ud800", "Größe \x00 日本語", "core")
    (found,) = store.memories.recall(("/p",), "größe", 5)
    assert found.content in ("Größe \x00 日本語", "Größe \u2400 日本語"), "PostgreSQL has no NUL in texts"


def test_a_file_of_the_first_format_is_brought_up_to_date_and_keeps_what_it_holds(tmp_path):
    path = tmp_path / "old.db"
    plain = sqlite3.connect(path, isolation_level=None)
    for statement in migrations(MIGRATIONS)[1]:
        plain.execute(statement)
    plain.execute(
        "INSERT INTO permissions (project, tool, scope, decision, created_at) "
        "VALUES ('/p', 'edit', 'edit *', 'allow', '')"
    )
    plain.execute("PRAGMA user_version=1")
    plain.close()
    store = sqlite_store(path)
    assert [item.scope for item in store.permissions("/p")] == ["edit *"]
    store.memories.store("/p", "k", "apple", "core")
    store.close()
    plain = sqlite3.connect(path)
    assert plain.execute("PRAGMA user_version").fetchone()[0] == FORMAT
    plain.close()
    sqlite_store(path).close()


def test_a_scheduled_run_is_given_to_exactly_one(opened):
    one, other = opened(), opened()
    made = one.schedules.add("/p", "1h", "look", 100.0)
    assert other.schedules.list("/p") == [made] and other.schedules.list("/q") == []
    assert [one.schedules.claim(made, 200.0, at=100.0), other.schedules.claim(made, 200.0, at=100.0)] == [True, False]
    (now,) = one.schedules.list("/p")
    assert (now.next_run, now.last_run, now.runs) == (200.0, 100.0, 1)
    assert one.schedules.claim(now, 300.0, at=None)
    (later,) = one.schedules.list("/p")
    assert (later.last_run, later.runs) == (100.0, 1)
    assert one.schedules.remove("/q", made.id) is False and one.schedules.remove("/p", made.id) is True
    assert other.schedules.list("/p") == []
