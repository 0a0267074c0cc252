"""Repeated failures, cached results, and how full a context is."""

import json
import os
from pathlib import Path

import pytest
from msgspec.structs import replace

from acp_agent.errors import ToolError
from acp_agent.executors.fingerprint import file_clock, look, unchanged
from acp_agent.llm.base import AssistantMessage, TextPart, ToolMessage, ToolUse, UserMessage
from acp_agent.loop.calls.repeats import CallQuota, RepeatedFailures, call_key
from acp_agent.loop.calls.result_cache import MARK, Looks, ResultCache
from acp_agent.loop.model.doom_loop import DoomLoop
from acp_agent.safety.access import NoAccess, PathAccess
from acp_agent.tools.kit.tool_context import ToolResult
from tests.executors.kit import local_files

FAILED = ToolError("no such file")


def use(name: str, **arguments: object) -> ToolUse:
    return ToolUse("1", name, json.dumps(arguments))


def result(text: str) -> ToolMessage:
    return ToolMessage("1", "bash", (TextPart(text),))


# --- failures ----------------------------------------------------------------------------------------------------


def test_a_call_is_blocked_after_as_many_identical_failures_and_freed_by_a_change():
    failures = RepeatedFailures(2)
    for _ in range(2):
        assert failures.remedy("read", {"path": "a", "limit": 1}) is None
        failures.failed("read", {"path": "a", "limit": 1}, FAILED)
    remedy = failures.remedy("read", {"limit": 1, "path": "a"})
    assert remedy is not None and "no such file" in str(remedy)
    assert failures.remedy("read", {"path": "b"}) is None
    failures.changed()
    assert failures.remedy("read", {"path": "a", "limit": 1}) is None
    failures.failed("read", {}, FAILED)
    failures.failed("read", {}, ToolError("another"))
    assert failures.remedy("read", {}) is None, "different errors are not identical"
    assert call_key("a", {"x": 1}) != call_key("b", {"x": 1})


@pytest.mark.parametrize("category", ["rate_limited", "server_error", "network_error", "timeout", "cancelled"])
def test_failures_that_are_not_the_models_are_never_counted(category):
    failures = RepeatedFailures(1)
    failures.failed("fetch", {}, ToolError("x", category))
    assert failures.remedy("fetch", {}) is None


def test_a_doom_loop_is_the_same_calls_in_a_row_whatever_their_spelling_but_no_polling():
    loop = DoomLoop(3)
    same = [ToolUse("1", "bash", '{"command": "x", "timeout": 1}'), ToolUse("2", "bash", '{"timeout":1,"command":"x"}')]
    assert loop.asked([same[0]]) is None and loop.asked([same[1]]) is None
    assert "3 times in a row" in loop.asked([same[0]])
    loop = DoomLoop(2)
    assert loop.asked([use("bash", command="x")]) is None and loop.asked([use("bash", command="y")]) is None
    assert loop.asked([use("bash", command="x")]) is None
    for _ in range(5):
        assert loop.asked([use("bash_output", run_id="1")]) is None
    assert loop.asked([ToolUse("1", "bash", "not json")]) is None


def test_the_same_output_in_a_row_is_a_doom_loop_unless_something_was_changed():
    loop = DoomLoop(3)
    assert loop.answered([result("x")], progress=False) is None and loop.answered([result("x")], progress=False) is None
    assert loop.answered([result("x")], progress=True) is None and loop.answered([result("x")], progress=False) is None
    assert loop.answered([result("x")], progress=False) is None
    assert "same output 3 times" in loop.answered([result("x")], progress=False)


# --- the cache ---------------------------------------------------------------------------------------------------


def cache(*, enabled: bool = True, ttl: float = 300.0, buffers: bool = False, at=lambda: 0.0) -> ResultCache:
    return ResultCache(Looks(local_files(), buffers=buffers), enabled=enabled, ttl=ttl, clock=at)


def tick(file: Path) -> None:
    """Returns once what is changed now gets another time than `file` has."""
    for _ in range(10_000_000):
        if file_clock() > file.lstat().st_ctime_ns:
            return
    raise AssertionError("the clock of the file system stands still")


async def keep(made: ResultCache, accesses, text: str = "found") -> None:
    made.keep("key", ToolResult(text), await made.look(accesses))


@pytest.mark.parametrize("change", [
    lambda folder: (folder / "sub" / "b").write_text("changed now"),
    lambda folder: (folder / "sub" / "new").write_text(""), lambda folder: (folder / "a").unlink(),
    lambda folder: (folder / "a").rename(folder / "c"), lambda folder: os.utime(folder / "a", ns=(1, 1)),
    lambda folder: (folder / "sub").chmod(0o700),
])  # fmt: skip
async def test_a_result_over_a_folder_is_forgotten_when_anything_below_changes(tmp_path, change):
    (tmp_path / "sub").mkdir()
    (tmp_path / "a").write_text("a")
    (tmp_path / "sub" / "b").write_text("b")
    tick(tmp_path / "sub" / "b")
    made = cache()
    await keep(made, [PathAccess("read", tmp_path)])
    assert (await made.find("key")).text == f"{MARK}\nfound"
    change(tmp_path)
    assert await made.find("key") is None and await made.find("key") is None


async def test_results_end_with_their_time_and_zero_is_no_end(tmp_path):
    clock = [0.0]
    for ttl, known in ((300.0, False), (0.0, True)):
        clock[0] = 0.0
        made = cache(ttl=ttl, at=lambda: clock[0])
        await keep(made, [NoAccess()])
        clock[0] = 300.0
        assert await made.find("key") is not None
        clock[0] = 301.0
        assert (await made.find("key") is not None) == known


async def test_failures_images_and_what_is_too_much_to_look_at_are_not_kept_and_nothing_if_disabled(tmp_path):
    off, made = cache(enabled=False), cache()
    await keep(off, [NoAccess()])
    assert await off.find("key") is None
    made.keep("key", ToolResult("x", failed=True), ())
    assert await made.find("key") is None
    made.keep("key", ToolResult("x", parts=(TextPart("image"),)), ())
    assert await made.find("key") is None
    for number in range(30):
        (tmp_path / str(number)).touch()
    tick(tmp_path)
    seen = look(tmp_path)
    assert not unchanged(tmp_path, seen, limit=29)
    assert unchanged(tmp_path, seen, limit=30)
    assert await made.look([PathAccess("read", tmp_path / "missing")]) is None


@pytest.mark.parametrize("place", ["a", "."])
async def test_what_changes_while_a_call_runs_is_noticed_also_below_its_folder(tmp_path, place):
    (tmp_path / "a").write_text("a")
    tick(tmp_path / "a")
    made = cache()
    seen = await made.look([PathAccess("read", tmp_path / place)])
    (tmp_path / "a").write_text("meanwhile")
    made.keep("key", ToolResult("a"), seen)
    assert await made.find("key") is None


async def test_another_folder_in_its_place_and_a_clock_that_was_set_back_are_noticed(tmp_path):
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    there.mkdir()
    tick(there)
    seen = look(here)
    assert unchanged(here, seen)
    assert not unchanged(here, replace(seen, offset=seen.offset + 1_000_000_000))
    here.rename(tmp_path / "away")
    there.rename(here)
    assert not unchanged(here, seen)


async def test_nothing_below_a_folder_is_looked_at_before_the_call_runs(tmp_path, monkeypatch):
    (tmp_path / "sub").mkdir()
    scans: list[object] = []
    scandir = os.scandir
    monkeypatch.setattr(os, "scandir", lambda *path: scans.append(path) or scandir(*path))
    made = cache()
    assert await made.find("key") is None
    made.keep("key", ToolResult("found"), await made.look([PathAccess("read", tmp_path)]))
    assert scans == []


async def test_what_a_call_of_ours_may_have_changed_forgets_folders_only(tmp_path):
    (file := tmp_path / "a").write_text("a")
    tick(file)
    made = cache()
    made.keep("file", ToolResult("a"), await made.look([PathAccess("read", file)]))
    made.keep("folder", ToolResult("a"), await made.look([PathAccess("read", tmp_path)]))
    made.changed()
    assert await made.find("file") is not None and await made.find("folder") is None


# --- limits ------------------------------------------------------------------------------------------------------


def test_a_quota_counts_messages_and_can_begin_anew():
    quota = CallQuota(2)
    assert quota.take() is None and quota.take() is None
    blocked = quota.take()
    assert blocked is not None and "quota_blocked" in str(blocked)
    quota.reset()
    assert quota.take() is None
    assert all(CallQuota(0).take() is None for _ in range(5))
    calls = (use("bash"), use("bash"))
    history = [UserMessage((TextPart("x"),)), *(AssistantMessage("y", given) for given in (calls, (), calls))]
    quota = CallQuota(5)
    quota.count(history)
    assert quota.used == 2, "messages with calls"
