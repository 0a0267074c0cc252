"""Long outputs and goals, stored with their session."""

import uuid

import pytest

from acp_agent.errors import StoreError
from acp_agent.store.base import GoalTask, SessionRecord
from acp_agent.store.session_store import SessionStore
from tests.store.conftest import Open


@pytest.fixture
def store(opened: Open) -> SessionStore:
    made = opened()
    for name in ("s", "other"):
        made.create(SessionRecord(name, "/project"))
    return made


def test_an_output_is_read_back_in_parts_by_characters(store: SessionStore) -> None:
    text = "".join(f"line {n} ü🐍\n" for n in range(5000))
    entry = store.overflow.keep("s", "bash", text, 0)
    assert uuid.UUID(entry.id).version == 4
    assert (entry.chars, entry.complete, entry.tool) == (len(text), True, "bash")
    found, at = "", 0
    while (part := store.overflow.read("s", entry.id, at, 9999)) is not None and part.text:
        assert part.entry == entry
        found, at = found + part.text, at + len(part.text)
    assert found == text


def test_an_output_belongs_to_its_session_alone(store: SessionStore) -> None:
    entry = store.overflow.keep("s", "bash", "x" * 10, 0)
    assert store.overflow.read("other", entry.id, 0, 10) is None
    assert store.overflow.read("s", str(uuid.uuid4()), 0, 10) is None and store.delete("s")
    assert store.overflow.read("s", entry.id, 0, 10) is None, "it went with its session"
    with pytest.raises(StoreError, match="was deleted"):
        store.overflow.keep("s", "bash", "x", 0)


@pytest.mark.parametrize("char", ["a", "ü", "🐍"])
def test_an_entry_is_bounded_in_bytes_and_says_so(store: SessionStore, char: str) -> None:
    entry = store.overflow.keep("s", "bash", char * 3000, 1000)
    part = store.overflow.read("s", entry.id, 0, 100_000)
    assert part is not None
    assert not entry.complete
    assert not part.entry.complete and len(part.text.encode()) <= 1000 + 60
    assert part.text.startswith(char) and part.text.endswith(char) and "bytes omitted" in part.text
    assert len(part.text) == entry.chars


def test_old_outputs_expire_and_lone_surrogates_are_replaced(store: SessionStore) -> None:
    old, new = (store.overflow.keep("s", "bash", text, 0) for text in ("old", "new"))
    store._db.change("UPDATE tool_overflow SET created_at = '2020-01-01T00:00:00.000000Z' WHERE id = ?", old.id)
    assert store.overflow.expire(7) == 1 and store.overflow.read("s", old.id, 0, 10) is None
    assert store.overflow.read("s", new.id, 0, 10) is not None
    part = store.overflow.read("s", store.overflow.keep("s", "bash", "a\ud83db", 0).id, 0, 10)
    assert part is not None and part.text == "a?b"


def test_a_goal_and_its_tasks_survive_a_restart(store: SessionStore, opened: Open) -> None:
    assert store.goals.current("s") is None
    goal = store.goals.begin("s", "Build it")
    tasks = (GoalTask("a", "First", "high", "completed"), GoalTask("b", "Then ü", depends_on=("a",)))
    store.goals.set_tasks(goal.id, tasks)
    found = opened().goals.current("s")
    assert found is not None
    assert (found.id, found.text, found.status, found.tasks) == (goal.id, "Build it", "active", tasks)
    assert store.goals.current("other") is None


def test_a_new_goal_takes_the_place_of_the_one_before(store: SessionStore) -> None:
    first = store.goals.begin("s", "One")
    second = store.goals.begin("s", "Two")
    found = store.goals.current("s")
    assert found is not None and found.id == second.id != first.id
    store.goals.set_status(second.id, "paused")
    paused = store.goals.current("s")
    assert paused is not None and paused.status == "paused"
    store.goals.set_status(second.id, "completed")
    assert store.goals.current("s") is None, "the first stays abandoned"


def test_goals_go_with_their_session(store: SessionStore) -> None:
    store.goals.set_tasks(store.goals.begin("s", "One").id, [GoalTask("a", "A")])
    store.delete("s")
    assert store._db.rows("SELECT (SELECT count(*) FROM goals) + (SELECT count(*) FROM goal_tasks)")[0][0] == 0
