"""The contract of every session store."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest

from acp_agent.errors import StoreError
from acp_agent.store.base import ClientPrompt, LogEntry, SessionRecord
from acp_agent.store.session_store import SessionStore
from tests.store.conftest import Open


def record(name: str, **rest: object) -> SessionRecord:
    return SessionRecord(name, "/project", **rest)  # type: ignore[arg-type]


def used(store: SessionStore, *names: str, cwd: str = "/project") -> None:
    """Sessions with a turn each, the last one the newest."""
    for name in names:
        store.create(SessionRecord(name, cwd))
        store.change(name, new_turn=True)


def ids(store: SessionStore, **rest: object) -> list[str]:
    query: dict[str, object] = {"cwd": None, "before": None, "limit": 100, **rest}
    return [found.id for found in store.sessions(**query)]  # type: ignore[arg-type]


def test_what_was_created_is_there_in_full(store: SessionStore, opened: Open) -> None:
    made = SessionRecord(
        "s", "/p", ("/a", "/b ü"), "Title", "2024-01-01T00:00:00Z", "2024-01-02T00:00:00Z", "code", "m", 3,
        thought_level="low", place="there", client_prompt=ClientPrompt("append", "Be kind."),
    )  # fmt: skip
    store.create(made)
    assert store.get("s") == made
    assert opened().get("s") == made, "also for another connection"


def test_a_session_has_its_times_and_cannot_be_created_twice(store: SessionStore) -> None:
    store.create(record("s"))
    found = store.get("s")
    assert found is not None and found.created_at == found.updated_at and found.created_at.endswith("Z")
    with pytest.raises(StoreError):
        store.create(record("s", title="other"))
    found = store.get("s")
    assert found is not None and found.title is None


def test_an_unknown_session_is_none_and_a_change_makes_none(store: SessionStore) -> None:
    assert store.get("unknown") is None and store.entries("unknown") == [] and store.delete("unknown") is False
    store.change("gone", title="x")
    assert store.get("gone") is None


def test_a_change_changes_what_is_given_and_the_time(store: SessionStore) -> None:
    store.create(record("s", title="old", mode="code", updated_at="2020-01-01T00:00:00Z"))
    at = store.change("s", title="new", model="m", additional_directories=("/x",), cwd="/other", thought_level="high")
    found = store.get("s")
    assert found is not None
    assert (found.title, found.mode, found.model, found.thought_level) == ("new", "code", "m", "high")
    assert (found.cwd, found.additional_directories, found.turns) == ("/other", ("/x",), 0)
    assert found.updated_at == at > "2020-01-01T00:00:00Z"
    store.change("s", new_turn=True, title="")
    store.change("s", new_turn=True)
    found = store.get("s")
    assert found is not None and (found.turns, found.title) == (2, "")


def test_lists_are_of_sessions_with_a_turn_newest_first_and_of_one_folder(store: SessionStore) -> None:
    used(store, "a", "b", "c")
    assert ids(store) == ["c", "b", "a"]
    store.change("a", title="x")
    assert ids(store) == ["a", "c", "b"]
    store.create(record("empty"))
    store.create(record("other"))
    assert ids(store) == ["a", "c", "b"] and ids(store, include={"empty", "unknown"}) == ["empty", "a", "c", "b"]
    used(store, "elsewhere", cwd="/one")
    assert ids(store, cwd="/one") == ["elsewhere"] and ids(store, cwd="/on") == []


def test_pages_together_are_the_whole_list(store: SessionStore) -> None:
    names = [f"s{number:02}" for number in range(7)]
    for name in names:
        store.create(
            record(name, turns=1, updated_at=f"2024-01-0{1 + int(name[1:]) // 3}T00:00:00Z")
        )  # equal times, too
    before, seen = None, []
    while page := store.sessions(cwd=None, before=before, limit=2):
        seen += [found.id for found in page]
        before = (page[-1].updated_at, page[-1].id)
    assert seen == names[::-1]


def test_entries_come_back_in_order_byte_for_byte_and_go_with_their_session(store: SessionStore, opened: Open) -> None:
    used(store, "a", "b")
    kept = [LogEntry("update", "ü".encode()), LogEntry("message", b"\x00\xff"), LogEntry("reset", b"[]")]
    store.append("a", kept[:2])
    store.append("b", [LogEntry("update", b"other")])
    store.append("a", kept[2:])
    store.append("a", [])
    assert store.entries("a") == kept
    assert opened().entries("a") == kept
    assert store.delete("a") is True and (store.get("a"), store.entries("a"), ids(store)) == (None, [], ["b"])
    assert len(store.entries("b")) == 1
    store.create(record("a"))
    assert store.entries("a") == [], "a new session of the same id begins empty"


async def test_what_sessions_store_at_once_is_each_ones_own_and_a_deleted_one_fails(store: SessionStore, opened: Open):
    told: dict[str, Any] = {}

    def tell(name: str, places: Sequence[int] | None, error: BaseException | None) -> None:
        told[name] = error or places

    for deleted in (False, True):
        names = [f"{number}{deleted}" for number in range(5)]
        used(store, *names)
        await store.do(store.delete, names[2] if deleted else "")
        for name in names:
            entries = [LogEntry("update", f"{name} {number}".encode()) for number in range(200)]
            store.append_soon(name, entries, partial(tell, name))
        await store.do(store.count)
        for name in names:
            if deleted and name == names[2]:
                assert "was deleted" in str(told[name])
                continue
            rows = opened().page(name, 0, 1000)
            assert [(place, payload.decode()) for place, payload in rows] == [
                (place, f"{name} {number}") for number, place in enumerate(told[name])
            ]


def test_large_entries_are_kept(store: SessionStore) -> None:
    used(store, "a")
    payload = b"x" * 5_000_000
    store.append("a", [LogEntry("update", payload)])
    assert store.entries("a") == [LogEntry("update", payload)]


def test_a_deleted_session_takes_no_more_entries_and_keeps_none(store: SessionStore) -> None:
    used(store, "a")
    store.delete("a")
    with pytest.raises(StoreError, match="session a was deleted"):
        store.append("a", [LogEntry("update", b"1"), LogEntry("update", b"2")])
    assert store.entries("a") == []
    used(store, "b")
    store.append("b", [LogEntry("update", b"1")])
    assert len(store.entries("b")) == 1, "a refused append leaves the store usable"


def test_answers_are_remembered_for_their_project(store: SessionStore, opened: Open) -> None:
    store.remember("/p", "bash", "bash cargo test", "allow")
    store.remember("/p", "edit", "edit *", "reject")
    store.remember("/q", "bash", "bash cargo test", "reject")
    found = [(answer.tool, answer.scope, answer.decision) for answer in opened().permissions("/p")]
    assert found == [("bash", "bash cargo test", "allow"), ("edit", "edit *", "reject")]
    assert store.permissions("/") == []


def test_answers_are_replaced_revoked_and_kept_when_sessions_are_deleted(store: SessionStore) -> None:
    store.remember("/p", "bash", "x", "allow")
    first = store.permissions("/p")
    store.remember("/p", "bash", "x", "reject")
    second = store.permissions("/p")
    assert [answer.decision for answer in second] == ["reject"]
    assert [answer.id for answer in second] == [answer.id for answer in first]
    store.remember("/p", "bash", "x", "allow")
    (answer,) = store.permissions("/p")
    assert store.revoke("/other", answer.id) is False and store.revoke("/p", answer.id + 1) is False
    assert store.revoke("/p", answer.id) is True and store.permissions("/p") == []
    used(store, "a")
    store.remember("/project", "bash", "x", "allow")
    store.delete("a")
    assert len(store.permissions("/project")) == 1


def test_two_connections_see_each_other_and_may_be_closed_twice(opened: Open) -> None:
    one, two = opened(), opened()
    used(one, "a")
    two.append("a", [LogEntry("update", b"1")])
    one.append("a", [LogEntry("update", b"2")])
    assert [entry.payload for entry in two.entries("a")] == [b"1", b"2"]
    two.delete("a")
    assert one.get("a") is None
    store = opened()
    store.close()
    store.close()


def test_a_title_with_lone_surrogates_is_kept_without_them(store: SessionStore) -> None:
    store.create(SessionRecord("s", "/x", title="a\ud800b"))
    store.change("s", title="c\udfffd")
    found = store.get("s")
    assert found is not None and found.title == "c?d"
