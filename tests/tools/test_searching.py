"""list_directory, find_path, grep and plan: on real folders."""

import os
from pathlib import Path

import msgspec
import pytest

from acp_agent.config.model import FilesConfig
from acp_agent.errors import ExecutorError, ToolError
from acp_agent.executors.base import Files, FindQuery, Found, GrepQuery
from acp_agent.executors.forwarding_files import ForwardingFiles
from acp_agent.safety.access import NoAccess, PathAccess
from acp_agent.store.base import GoalTask
from acp_agent.tools.files.find_path import NOT_SEARCHED as NOT_FOUND
from acp_agent.tools.files.grep import KEYS_NOT_SEARCHED, NOT_SEARCHED
from acp_agent.tools.kit.tool_context import Location
from tests.executors.kit import local_files
from tests.files import put, puts
from tests.tools.kit import Bench, bench


def fill(on: Bench) -> None:
    puts(on.folder, {"src/a.py": "import os\nNEEDLE\n", "src/b.py": "needle\n", "ignored.py": "needle\n"})
    (on.folder / ".gitignore").write_text("ignored.py\n")


async def test_list_directory_tells_kinds_by_what_the_entries_are(on: Bench) -> None:
    (on.folder / "d").mkdir()
    (on.folder / "f").touch()
    (on.folder / "link-to-d").symlink_to("d")
    (on.folder / "dangling").symlink_to("nowhere")
    os.mkfifo(on.folder / "pipe")
    result = await on.call("list_directory", path=".")
    assert result.text.splitlines() == [
        "[dir] d", "[symlink] dangling", "[file] f", "[symlink] link-to-d", "[other] pipe",
    ]  # fmt: skip
    assert (await on.call("list_directory")).text == result.text
    assert (await on.call("list_directory", path="link-to-d")).text == "link-to-d is empty."


async def test_list_directory_of_what_is_no_folder(on: Bench) -> None:
    (on.folder / "f").touch()
    await on.fails("Use `read` for a file", "list_directory", path="f")
    await on.fails("does not exist", "list_directory", path="missing")


async def test_list_directory_is_bounded(tmp_path: Path) -> None:
    async with bench(tmp_path, files=FilesConfig(max_results=2)) as on:
        for name in "abcde":
            (on.folder / name).touch()
        assert (await on.call("list_directory")).text == "[file] a\n[file] b\n[3 more entries are not shown]"


async def test_find_path_gives_paths_relative_to_the_working_directory(on: Bench) -> None:
    fill(on)
    assert (await on.call("find_path", pattern="*.py")).text == "src/a.py\nsrc/b.py"
    assert (await on.call("find_path", pattern="a.*", path="src")).text == "src/a.py"
    assert (await on.call("find_path", pattern="src/")).text == "src/"
    assert (await on.call("find_path", pattern="*.rs")).text == f"Nothing below . matches `*.rs`. {NOT_FOUND}"
    for word, told in (("none", "These are names of files: `grep` looks into them."), ("*NEEDLE*", "it in src/a.py:2")):
        assert told in (await on.call("find_path", pattern=word)).text


async def test_find_path_in_what_is_no_folder_and_bounded(tmp_path: Path) -> None:
    async with bench(tmp_path, files=FilesConfig(max_results=1)) as on:
        fill(on)
        await on.fails("is not a folder", "find_path", pattern="*", path="src/a.py")
        with pytest.raises(ExecutorError, match="not a valid glob"):
            await on.call("find_path", pattern="a\\")
        assert (await on.call("find_path", pattern="*.py")).text.splitlines() == [
            "src/a.py", "[more than 1 matches; the rest is not shown, use a narrower pattern]",
        ]  # fmt: skip


async def test_grep_gives_places_for_the_model_and_the_editor(on: Bench) -> None:
    fill(on)
    result = await on.call("grep", pattern="needle")
    assert result.text == "src/b.py:1:needle" and result.locations == (Location(on.folder / "src" / "b.py", 1),)
    both = await on.call("grep", pattern="needle", case_sensitive=False)
    assert both.text == "src/a.py:2:NEEDLE\nsrc/b.py:1:needle"
    assert (await on.call("grep", pattern="needle", path="src/b.py")).text == "src/b.py:1:needle"
    absent = (await on.call("grep", pattern="absent")).text
    assert absent == f"No line below . matches `absent`. {NOT_SEARCHED}"
    absent = (await on.call("grep", pattern="absent", glob="*.py")).text
    assert absent.startswith("No line below . in files `*.py` matches `absent`.")
    assert "No line" in (await on.call("grep", pattern="needle", glob="*.md")).text


async def test_grep_refuses_bad_patterns_and_missing_places(on: Bench) -> None:
    fill(on)
    with pytest.raises(ExecutorError, match="not a valid regular expression"):
        await on.call("grep", pattern="(")
    await on.fails("does not exist", "grep", pattern="x", path="missing")


async def test_grep_says_that_a_pipe_or_a_device_is_no_file(on: Bench) -> None:
    os.mkfifo(on.folder / "pipe")
    (on.folder / "f").write_text("needle\n")
    await on.fails("a pipe, a socket or a device", "grep", pattern="needle", path="pipe")
    assert (await on.call("grep", pattern="needle")).text == "f:1:needle"


async def test_grep_is_bounded_in_results_and_time(tmp_path: Path) -> None:
    async with bench(tmp_path, files=FilesConfig(max_results=1, search_timeout=0.5)) as on:
        (on.folder / "f").write_text("x\nx\n" + "a" * 60 + "b\n")
        assert (await on.call("grep", pattern="x")).text.splitlines()[1].startswith("[more than 1 matches")
        assert "ran out of time" in (await on.call("grep", pattern="(a|a)+$(?<!x)")).text


NOTE = "Searched otherwise: .gitignore is not applied."


class Otherwise(ForwardingFiles[Files]):
    """Files that have something to say of how they are searched."""

    def __init__(self) -> None:
        super().__init__(local_files())

    async def find(self, query: FindQuery) -> Found:
        return msgspec.structs.replace(await super().find(query), note=NOTE)

    async def grep(self, query: GrepQuery) -> Found:
        return msgspec.structs.replace(await super().grep(query), note=NOTE)


async def test_how_it_was_searched_is_told_where_it_differs(tmp_path: Path) -> None:
    async with bench(tmp_path, through=Otherwise()) as on:
        fill(on)
        assert (await on.call("find_path", pattern="a.*")).text == f"src/a.py\n[{NOTE}]"
        assert (await on.call("find_path", pattern="*.rs")).text == f"Nothing below . matches `*.rs`. {NOTE}"
        assert (await on.call("grep", pattern="needle")).text == f"src/b.py:1:needle\n[{NOTE}]"
        assert (await on.call("grep", pattern="absent")).text == (
            f"No line below . matches `absent`. {KEYS_NOT_SEARCHED} {NOTE}"
        )


async def test_what_lies_behind_links_is_not_found(on: Bench, tmp_path: Path) -> None:
    put((outside := tmp_path / "outside") / "secret.py", "needle\n")
    (on.folder / "link").symlink_to(outside)
    (on.folder / "file-link.py").symlink_to(outside / "secret.py")
    assert "No line" in (await on.call("grep", pattern="needle")).text
    assert "Nothing" in (await on.call("find_path", pattern="secret.py")).text
    with pytest.raises(ToolError, match="outside"):
        on.access("grep", pattern="x", path="link")


async def test_searching_touches_what_is_searched(on: Bench) -> None:
    assert on.access("grep", pattern="x") == [PathAccess("read", on.folder)]
    assert on.access("find_path", pattern="x", path="src") == [PathAccess("read", on.folder / "src")]
    assert on.access("list_directory") == [PathAccess("read", on.folder)]


async def test_plan_shows_the_steps_and_says_what_is_open(on: Bench) -> None:
    entries = [{"content": "one", "status": "completed"}, {"content": "two", "priority": "high"}]
    result = await on.call("plan", entries=entries)
    assert on.plans == [(GoalTask("1", "one", status="completed"), GoalTask("2", "two", "high"))]
    assert result.text == "The plan is shown. Open: 1."
    assert on.access("plan", entries=entries) == [NoAccess()]
    assert "every step is done" in (await on.call("plan", entries=[])).text
