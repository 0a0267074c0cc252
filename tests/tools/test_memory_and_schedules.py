"""Memory and schedule tools on a real database."""

import time

import pytest

from acp_agent.config.model import ToolsConfig
from acp_agent.errors import ToolError
from acp_agent.safety.access import ToolAccess


async def test_a_memory_is_stored_recalled_replaced_and_forgotten(on):
    stored = await on.call("memory_store", key="tests", content="Run pytest -n 4.")
    assert stored.text == "Stored memory `tests` for this project."
    found = await on.call("memory_recall", query="how to run tests")
    assert found.text.startswith("- tests (core, 20") and found.text.endswith("): Run pytest -n 4.")
    again = await on.call("memory_store", key="tests", content="Run tox.", category="daily")
    assert again.text == "Replaced memory `tests` for this project."
    assert "Run tox." in (await on.call("memory_recall", query="tox", category="daily")).text
    assert (await on.call("memory_forget", key="tests")).text == "Forgot `tests`."
    assert "No memory shares a word" in (await on.call("memory_recall", query="tests")).text


async def test_memories_of_another_folder_are_not_found_but_those_for_everywhere_are(on):
    on.memory.notes.store("/another", "theirs", "word", "core")
    await on.call("memory_store", key="mine", content="word")
    await on.call("memory_store", key="all", content="word", everywhere=True)
    text = (await on.call("memory_recall", query="word")).text
    assert "theirs" not in text and "- all (core, all projects, " in text
    await on.fails("no memory `all`", "memory_forget", key="all")
    await on.call("memory_forget", key="all", everywhere=True)


async def test_five_memories_are_given_unless_more_are_asked_for(on):
    for number in range(9):
        await on.call("memory_store", key=f"k{number}", content="word")
    assert len((await on.call("memory_recall", query="word")).text.splitlines()) == 5
    assert len((await on.call("memory_recall", query="word", limit=9)).text.splitlines()) == 9


async def test_a_memory_that_is_too_long_is_refused_and_nothing_is_lost(on):
    await on.call("memory_store", key="k", content="short")
    await on.fails("the maximum is 10000", "memory_store", key="k", content="x" * 10_001)
    assert "short" in (await on.call("memory_recall", query="short")).text


async def test_a_schedule_is_added_after_asking_listed_and_removed(on):
    (asked,) = on.access("schedule_add", timing="2h", prompt="Look.")
    assert isinstance(asked, ToolAccess)
    assert "Look." in (await on.preview("schedule_add", timing="2h", prompt="Look.")).content[0].content.text
    before = time.time()
    made = await on.call("schedule_add", timing="2h", prompt="Look.")
    (schedule,) = on.schedules.list(str(on.folder))
    assert before + 7200 <= schedule.next_run <= time.time() + 7200
    assert schedule.id in made.text
    listed = (await on.call("schedule_list")).text
    assert schedule.id in listed and "never run" in listed
    assert schedule.id in (await on.call("schedule_remove", id=schedule.id)).text
    assert (await on.call("schedule_list")).text == "This project has no schedules."


async def test_wrong_times_and_ids_and_too_many_are_told(on):
    with pytest.raises(ToolError, match="not a valid time"):
        await on.preview("schedule_add", timing="tomorrow", prompt="x")
    with pytest.raises(ToolError, match="too often"):
        await on.preview("schedule_add", timing="5s", prompt="x")
    await on.fails("no schedule nope; it has none", "schedule_remove", id="nope")
    for _ in range(ToolsConfig().schedule.max_schedules):
        on.schedules.add(str(on.folder), "1h", "x", 1.0, "code")
    with pytest.raises(ToolError, match="which is the maximum"):
        await on.preview("schedule_add", timing="1h", prompt="x")
