"""create_directory, delete_path, move_path, copy_path: on real files."""

import os
from pathlib import Path
from typing import Any

import pytest

from acp_agent.config.model import FilesConfig
from acp_agent.errors import ExecutorError, ToolError
from acp_agent.safety.access import Ask, PathAccess
from acp_agent.safety.deciding.decide import DELETE_SCOPE, EDIT_SCOPE, decide
from acp_agent.safety.folders.paths import Roots
from acp_agent.tools.kit.tool_context import Description, Location
from tests.tools.kit import REGISTRY, Bench, bench
from tests.tools.test_files import OpenBuffers


def scopes(on: Bench, name: str, **arguments: Any) -> set[str]:
    """What the user would be asked about."""
    verdict = decide(on.access(name, **arguments), on.ctx.roots, mode="code", may_change=True)
    assert isinstance(verdict, Ask)
    return set(verdict.scopes)


def plant(folder: Path) -> None:
    (folder / "src" / "in").mkdir(parents=True)
    (folder / "src" / "a.py").write_text("a\n")
    (folder / "src" / "in" / "b.py").write_text("bb\n")


def ways(source: str) -> list[tuple[str, dict[str, str]]]:
    """To take it away or to another place."""
    more = {"source": source, "destination": "x"}
    return [("delete_path", {"path": source}), ("move_path", more), ("copy_path", more)]


def describe(on: Bench, name: str, **arguments: Any) -> Description:
    tool = REGISTRY.tool(name)
    return tool.describe(tool.parse(arguments), on.ctx.roots)


# --- what they do ---------------------------------------------------------------------------------------------


async def test_a_folder_is_made_once(on: Bench) -> None:
    assert (await on.call("create_directory", path="a/b/c")).text == "Created the folder a/b/c, and 2 above it."
    assert (on.folder / "a" / "b" / "c").is_dir()
    assert (await on.call("create_directory", path="a/b/d")).text == "Created the folder a/b/d."
    assert (await on.call("create_directory", path="a")).text == "a already exists."
    (on.folder / "f").touch()
    await on.fails("is not a folder", "create_directory", path="f")
    with pytest.raises(ExecutorError, match="is not a folder"):
        await on.call("create_directory", path="f/g")


async def test_delete_says_what_is_gone(on: Bench) -> None:
    plant(on.folder)
    result = await on.call("delete_path", path="src/a.py")
    assert result.text == "src/a.py was deleted (1 file, 2 bytes)."
    result = await on.call("delete_path", path="src")
    assert result.text == "src was deleted (1 file, 2 folders, 3 bytes)."
    assert result.raw_output == {"files": 1, "folders": 2, "links": 0, "bytes": 3}
    assert os.listdir(on.folder) == []
    await on.fails("src does not exist", "delete_path", path="src")


async def test_move_and_copy_say_what_they_did(on: Bench) -> None:
    plant(on.folder)
    result = await on.call("copy_path", source="src", destination="x/copy")
    assert result.text == "src was copied to x/copy (2 files, 2 folders, 5 bytes)."
    result = await on.call("move_path", source="src/a.py", destination="b.py")
    assert result.text == "src/a.py was moved to b.py (1 file, 2 bytes)."
    assert (on.folder / "b.py").read_text() == (on.folder / "x" / "copy" / "a.py").read_text() == "a\n"
    assert not (on.folder / "src" / "a.py").exists()


async def test_the_titles_and_places(on: Bench) -> None:
    at = on.folder
    assert describe(on, "create_directory", path="a") == Description("Create the folder a", (Location(at / "a"),))
    assert describe(on, "delete_path", path="src/old.py") == Description(
        "Delete src/old.py", (Location(at / "src/old.py"),)
    )
    for name, verb in (("move_path", "Move"), ("copy_path", "Copy")):
        assert describe(on, name, source="a.py", destination="b.py") == Description(
            f"{verb} a.py to b.py", (Location(at / "a.py"), Location(at / "b.py"))
        )


@pytest.mark.parametrize("name", ["move_path", "copy_path"])
async def test_what_cannot_be_is_told_before_anybody_is_asked(on: Bench, name: str) -> None:
    plant(on.folder)
    (on.folder / "f").write_text("f")
    for source, destination, overwrite, words in (
        ("missing", "x", False, "missing does not exist"), ("f", "f", True, "are the same path"),
        ("src", "src/in/src", True, "is inside src"), ("src/in", "src", True, "src contains src/in"),
        ("f", "src", True, "Give the full new path: src/f"),
        ("src", "f", True, "is a file, which is not replaced with a folder"),
        ("f", "src/a.py", False, "already exists"),
    ):  # fmt: skip
        await on.fails(words, name, source=source, destination=destination, overwrite=overwrite)
    await on.call(name, source="f", destination="src/a.py", overwrite=True)
    assert (on.folder / "src" / "a.py").read_text() == "f"


async def test_capital_letters_may_change(on: Bench) -> None:
    (on.folder / "readme.md").touch()
    await on.call("move_path", source="readme.md", destination="README.md")
    assert os.listdir(on.folder) == ["README.md"]


async def test_more_entries_than_configured_are_refused(tmp_path: Path) -> None:
    async with bench(tmp_path, files=FilesConfig(max_tree_entries=2)) as on:
        plant(on.folder)
        (on.folder / "src" / "c").touch()
        for name, arguments in ways("src"):
            await on.fails("more than 2 entries", name, **arguments)
        assert os.listdir(on.folder) == ["src"]


# --- links ----------------------------------------------------------------------------------------------------


async def test_a_link_is_meant_itself_wherever_it_leads(on: Bench, tmp_path: Path) -> None:
    (outside := tmp_path / "outside").mkdir()
    (outside / "precious").write_text("x")
    for name in ("a", "b", "c"):
        (on.folder / name).symlink_to(outside)
    assert on.access("delete_path", path="a") == [PathAccess("delete", on.folder / "a")]
    assert (await on.call("delete_path", path="a")).text == "a was deleted (1 link)."
    await on.call("move_path", source="b", destination="d/b")
    await on.call("copy_path", source="c", destination="d/c")
    assert {os.readlink(on.folder / "d" / name) for name in ("b", "c")} == {str(outside)}
    assert os.listdir(outside) == ["precious"]
    for name, arguments in (
        ("delete_path", {"path": "c/precious"}), ("create_directory", {"path": "c/new"}),
        ("copy_path", {"source": "c/precious", "destination": "stolen"}),
        ("move_path", {"source": "d/b", "destination": "c/x"}), ("delete_path", {"path": "d/b/../outside"}),
    ):  # fmt: skip
        with pytest.raises(ToolError, match="outside this session's folders"):
            on.access(name, **arguments)


async def test_a_copied_link_that_leads_outside_from_its_new_place_stays_a_link_that_no_tool_follows(on, tmp_path):
    (tmp_path / "secret").write_text("secret")
    (on.folder / "a").mkdir()
    (on.folder / "a" / "link").symlink_to("../secret")
    await on.call("copy_path", source="a/link", destination="link")
    assert os.readlink(on.folder / "link") == "../secret"
    await on.fails("outside", "read", path="link")


# --- what may not be touched ----------------------------------------------------------------------------------


async def test_the_folders_of_the_session_and_what_is_above_stay(on: Bench, tmp_path: Path) -> None:
    plant(on.folder)
    for path in (".", str(on.folder), "src/..", "src/in/../..", "./"):
        for name, arguments in (
            ("delete_path", {"path": path}), ("move_path", {"source": path, "destination": "x"}),
            ("move_path", {"source": "src", "destination": path, "overwrite": True}),
            ("copy_path", {"source": "src", "destination": path, "overwrite": True}),
        ):  # fmt: skip
            with pytest.raises(ToolError, match="is a session folder"):
                on.access(name, **arguments)
    for path in ("..", "/", str(tmp_path)):
        with pytest.raises(ToolError, match="outside"):
            on.access("delete_path", path=path)


def test_a_second_folder_of_the_session_and_its_other_name_stay(tmp_path: Path) -> None:
    (inner := tmp_path / "work" / "inner" / "deep").mkdir(parents=True)
    (tmp_path / "work" / "name").symlink_to(inner)
    roots = Roots(tmp_path / "work", [tmp_path / "work" / "name"])
    for path in ("inner", "inner/deep", "name", "."):
        assert roots.holds_root(roots.entry(path)), path
    assert not roots.holds_root(roots.entry("inner/deep/x"))


async def test_what_programs_trust_is_found_in_any_spelling(on: Bench) -> None:
    (on.folder / "sub" / ".GIT").mkdir(parents=True)
    assert scopes(on, "delete_path", path="sub") == {DELETE_SCOPE, f"delete = {on.folder / 'sub/.GIT'}"}


async def test_own_files_are_one_question_and_what_programs_trust_another(on: Bench) -> None:
    plant(on.folder)
    at = on.folder
    (at / ".git" / "hooks").mkdir(parents=True)
    (at / "sub" / "repo" / ".git").mkdir(parents=True)
    (at / "kit" / ".vscode").mkdir(parents=True)
    assert scopes(on, "delete_path", path="src") == {DELETE_SCOPE}
    assert scopes(on, "delete_path", path=".git") == {f"delete = {at / '.git'}"}
    assert scopes(on, "delete_path", path="sub") == {DELETE_SCOPE, f"delete = {at / 'sub/repo/.git'}"}
    assert scopes(on, "move_path", source="src", destination="x") == {DELETE_SCOPE, EDIT_SCOPE}
    assert scopes(on, "move_path", source=".git", destination="x") == {f"delete = {at / '.git'}", EDIT_SCOPE}
    assert scopes(on, "copy_path", source="src", destination="x") == {EDIT_SCOPE}
    assert scopes(on, "copy_path", source="src/a.py", destination=".git/hooks/pre-commit") == {
        f"edit = {at / '.git/hooks/pre-commit'}"
    }
    assert scopes(on, "copy_path", source="kit", destination="x") == {EDIT_SCOPE, f"edit = {at / 'x/.vscode'}"}
    assert scopes(on, "copy_path", source="src", destination="sub", overwrite=True) == {
        EDIT_SCOPE, DELETE_SCOPE, f"delete = {at / 'sub/repo/.git'}",
    }  # fmt: skip
    assert on.access("create_directory", path="a/b") == [PathAccess("write", at / "a" / "b")]


# --- what the editor and the model know -----------------------------------------------------------------------


async def test_unsaved_changes_are_neither_moved_copied_deleted_nor_replaced(tmp_path: Path) -> None:
    folder = tmp_path / "project"
    async with bench(tmp_path, through=OpenBuffers({folder / "src" / "in" / "b.py": "typed, not saved"})) as on:
        plant(on.folder)
        over: dict[str, Any] = {"source": "src/a.py", "destination": "src/in/b.py", "overwrite": True}
        for name, arguments in [*ways("src/in/b.py"), ("copy_path", over)]:
            with pytest.raises(ToolError, match=r"src/in/b\.py has unsaved changes in the editor"):
                await on.preview(name, **arguments)
        await on.call("read", path="src/in/b.py")
        for name, arguments in ways("src"):
            with pytest.raises(ToolError, match=r"src/in/b\.py has unsaved changes in the editor"):
                await on.preview(name, **arguments)


async def test_a_buffer_without_changes_is_no_hindrance(tmp_path: Path) -> None:
    async with bench(tmp_path, through=OpenBuffers({tmp_path / "project" / "f": "a\nb\n"})) as on:
        (on.folder / "f").write_bytes(b"\xef\xbb\xbfa\r\nb\r\n")
        (on.folder / "binary").write_bytes(b"\xff\xfe")
        await on.call("move_path", source="f", destination="g")
        await on.call("delete_path", path="binary")
        assert os.listdir(on.folder) == ["g"]


async def test_what_is_gone_or_replaced_is_not_known_any_more(on: Bench) -> None:
    plant(on.folder)
    (on.folder / "f").write_text("f")
    known = [on.folder / "src" / "a.py", on.folder / "src" / "in" / "b.py", on.folder / "f"]
    for path in known:
        await on.call("read", path=str(path))
    await on.call("copy_path", source="src/a.py", destination="f", overwrite=True)
    assert on.memory.ledger.last_seen(known[2]) is None and on.memory.ledger.last_seen(known[0]) is not None
    await on.call("move_path", source="src/in", destination="in")
    assert on.memory.ledger.last_seen(known[1]) is None
    await on.call("delete_path", path="src")
    assert on.memory.ledger.last_seen(known[0]) is None


async def test_a_file_that_is_typed_in_while_the_person_decides_is_not_deleted(tmp_path: Path) -> None:
    files = OpenBuffers()
    async with bench(tmp_path, through=files) as on:
        plant(on.folder)
        tool = REGISTRY.tool("delete_path")
        params = tool.parse({"path": "src/a.py"})
        preview = await tool.preview(params, on.ctx)
        files.buffers[on.folder / "src" / "a.py"] = "typed"
        with pytest.raises(ToolError, match="unsaved"):
            await tool.run(params, on.ctx, preview)
        assert (on.folder / "src" / "a.py").exists()
