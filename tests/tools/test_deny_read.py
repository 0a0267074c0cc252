"""`tools.files.deny_read`: hidden files are hidden from every tool that reads, by any path.

Twice: by the gate, which sees what a call declares, and by the executor, which sees what is opened. Here no gate stands
in the way of a call, so that the second line of defence is seen alone.
"""

import json
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from acp_agent.config.model import FilesConfig
from acp_agent.errors import ExecutorError, ToolError
from acp_agent.loop.prompts.instructions import Instructions
from acp_agent.loop.prompts.skills import read_skills
from acp_agent.safety.access import Deny, ExecuteAccess
from acp_agent.safety.deciding.decide import decide
from tests.files import puts
from tests.tables import table
from tests.tools.kit import REGISTRY, Bench, bench

SECRET = "the hidden words"


FILES = FilesConfig(deny_read=[".env*", "keys", "conf/private.txt", "*.pem"], allow_read=[".env.example"])

HIDDEN = (".env", "sub/.env.local", "keys/a", "keys/deep/b", "conf/private.txt", "x.pem", "sub/.ENV")


@pytest.fixture
async def on(tmp_path: Path) -> AsyncIterator[Bench]:
    async with bench(tmp_path, files=FILES) as made:
        puts(made.folder, dict.fromkeys(HIDDEN, f"{SECRET}\n"))
        puts(made.folder, {"conf/public.txt": "open words\n", ".env.example": "open words\n", "plain": "open words\n"})
        (made.folder / "alias").symlink_to(".env")
        (made.folder / "keys-alias").symlink_to("keys")
        yield made


CALLS: list[tuple[str, dict[str, Any]]] = [
    ("read", {"path": ".env"}), ("read", {"path": "./sub/../.env"}), ("read", {"path": "sub/.env.local", "offset": 1}),
    ("read", {"path": "sub/.ENV"}), ("read", {"path": "keys/deep/b"}), ("read", {"path": "conf/private.txt"}),
    ("read", {"path": "alias"}), ("read", {"path": "keys-alias/a"}),
    ("edit", {"path": ".env", "old_string": SECRET, "new_string": "x"}),
    ("edit", {"path": "alias", "old_string": SECRET, "new_string": "x"}), ("write", {"path": ".env", "content": "x"}),
    ("write", {"path": "keys/new", "content": "x"}), ("edit_notebook", {"path": ".env", "cell": 1, "new_source": "x"}),
    ("grep", {"pattern": "words", "path": ".env"}), ("grep", {"pattern": "words", "path": "keys"}),
    ("grep", {"pattern": "words", "path": "keys-alias"}), ("find_path", {"pattern": "*", "path": "keys"}),
    ("list_directory", {"path": "keys"}), ("list_directory", {"path": "keys-alias"}),
    ("definition", {"path": ".env", "symbol": "words"}), ("references", {"path": "alias", "symbol": "words"}),
    ("hover", {"path": "keys/a", "symbol": "words"}), ("symbols", {"path": ".env"}),
    ("rename", {"path": ".env", "symbol": "words", "new_name": "x"}),
    ("diagnostics", {"source": "lsp", "path": "keys/deep/b"}),
    ("copy_path", {"source": ".env", "destination": "shown"}),
    ("copy_path", {"source": "keys/a", "destination": "shown"}),
    ("copy_path", {"source": "conf", "destination": "shown"}), ("copy_path", {"source": "sub", "destination": "shown"}),
    ("move_path", {"source": ".env", "destination": "shown"}),
    ("move_path", {"source": "conf", "destination": "shown"}),
    ("move_path", {"source": "keys", "destination": "shown"}),
]  # fmt: skip
READS_NOTHING = {"create_directory", "delete_path", "skill"}  # That reads only files of plugins.
"""Tools that take a path."""
CALLS += [
    (entry.name, json.loads(entry.description.partition("Examples: ")[2].split(" ; ")[0]) | {"path": path})
    for entry in REGISTRY.entries()
    if "path" in entry.parameters["properties"] and entry.name not in {tool for tool, _ in CALLS} | READS_NOTHING
    for path in (".env", "alias", "keys/a")
]
"""Those that are not in the table are called as in their example."""


@table(("tool", "arguments"), CALLS)
async def test_no_tool_reads_what_is_hidden(tool: str, arguments: dict[str, Any], on: Bench) -> None:
    before = sorted(str(path.relative_to(on.folder)) for path in on.folder.rglob("*"))
    with pytest.raises((ToolError, ExecutorError), match="must not be read") as error:
        await on.call(tool, **arguments)
    assert SECRET not in str(error.value)
    assert sorted(str(path.relative_to(on.folder)) for path in on.folder.rglob("*")) == before
    assert all(SECRET in (on.folder / name).read_text() for name in HIDDEN)


@table(("tool", "arguments"), [call for call in CALLS if call[1].get("source") not in ("conf", "sub")])
async def test_the_gate_denies_it_too(tool: str, arguments: dict[str, Any], on: Bench) -> None:
    verdict = decide(on.access(tool, **arguments), on.ctx.roots, mode="code", may_change=True)
    assert isinstance(verdict, Deny)
    assert "deny_read" in verdict.reason


async def test_every_tool_that_takes_a_path_stands_in_this_table_or_reads_nothing() -> None:
    takes = {
        entry.name
        for entry in REGISTRY.entries()
        if {"path", "source", "file", "folder"} & REGISTRY.tool(entry.name).Params.model_fields.keys()
    }
    assert takes == {tool for tool, _ in CALLS} | READS_NOTHING


@pytest.mark.parametrize("ripgrep", [True, False])
async def test_a_search_leaves_out_what_is_hidden(ripgrep: bool, on: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    if not ripgrep:
        monkeypatch.setenv("PATH", "/nowhere")
    for arguments in ({"pattern": "words"}, {"pattern": "words", "glob": ".env*"}, {"pattern": SECRET}):
        result = await on.call("grep", **arguments)
        assert SECRET not in result.text.removesuffix("searched.").replace(f"`{SECRET}`", "")
    text = (await on.call("grep", pattern="words")).text
    assert sorted(line.partition(":")[0] for line in text.splitlines()) == [".env.example", "conf/public.txt", "plain"]


async def test_hidden_lines_do_not_count_as_results(on: Bench) -> None:
    on.config = on.config.__class__(files=FilesConfig(max_results=3))
    (on.folder / "a.pem").write_text(f"{SECRET}\n" * 50)
    text = (await on.call("grep", pattern="words")).text
    assert len(text.splitlines()) == 3
    assert "more than" not in text


async def test_names_of_hidden_files_are_neither_found_nor_listed(on: Bench) -> None:
    found = (await on.call("find_path", pattern="*")).text.splitlines()
    assert sorted(found) == [".env.example", "[5 matches]", "conf/", "conf/public.txt", "plain", "sub/"]
    assert "Nothing below" in (await on.call("find_path", pattern="*.pem")).text
    listed = (await on.call("list_directory", path=".")).text
    assert ".env.example" in listed and "keys-alias" in listed
    for name in ("[file] .env\n", "x.pem", "[dir] keys\n"):
        assert name not in f"{listed}\n"
    assert "is empty" in (await on.call("list_directory", path="sub")).text


async def test_a_missing_file_s_neighbours_are_named_without_hidden_ones(on: Bench) -> None:
    with pytest.raises(ToolError) as error:
        await on.call("read", path="env.txt")
    assert ".env.example" in str(error.value) and ".env," not in str(error.value)


async def test_an_exception_is_open_to_every_tool(on: Bench) -> None:
    assert "open words" in (await on.call("read", path=".env.example")).text
    await on.call("edit", path=".env.example", old_string="open", new_string="public")
    await on.call("copy_path", source=".env.example", destination="copy")
    assert (on.folder / "copy").read_text() == "public words\n"


@pytest.mark.parametrize("tool", ["copy_path", "move_path"])
async def test_a_tree_with_a_hidden_file_is_refused_before_anybody_is_asked(tool: str, on: Bench) -> None:
    with pytest.raises(ToolError, match=r"conf/private\.txt must not be read") as error:
        await on.preview(tool, source="conf", destination="shown")
    assert error.value.category == "policy_blocked"


async def test_a_hidden_configuration_chooses_no_checker(on: Bench) -> None:
    def lines() -> str:
        return str([access for access in on.access("diagnostics") if isinstance(access, ExecuteAccess)])

    text = "[tool.mypy]\nstrict = true\n"
    (on.folder / "pyproject.toml").write_text(text)
    assert "mypy" in lines()
    (on.folder / "pyproject.toml").unlink()
    (on.folder / "keys" / "pyproject.toml").write_text(text)
    (on.folder / "pyproject.toml").symlink_to("keys/pyproject.toml")
    assert "mypy" not in lines()


async def test_hidden_words_for_agents_and_skills_are_not_told(on: Bench) -> None:
    (on.folder / "keys" / "AGENTS.md").write_text(SECRET)
    (on.folder / "AGENTS.md").symlink_to("keys/AGENTS.md")
    (on.folder / "sub" / "AGENTS.md").symlink_to("../.env")
    (skill := on.folder / ".agents" / "skills" / "s").mkdir(parents=True)
    (skill / "SKILL.md").symlink_to("../../../.env")
    (skill / "a.pem").write_text(SECRET)
    roots = on.ctx.roots
    told = Instructions(roots, enabled=True, max_bytes=10_000)
    assert told.text == "" and told.for_paths([on.folder / "sub" / "x"], set()) == ""
    assert read_skills(roots) == {}
    (skill / "SKILL.md").unlink()
    (skill / "SKILL.md").write_text("How it is done.")
    assert read_skills(roots)["s"].files == ()


async def test_a_link_to_a_hidden_file_can_be_copied_and_shows_nothing(on: Bench) -> None:
    await on.call("copy_path", source="alias", destination="other")
    assert (on.folder / "other").is_symlink()
    with pytest.raises(ExecutorError, match="must not be read"):
        await on.call("read", path="other")


async def test_an_image_that_is_hidden_is_not_shown(on: Bench) -> None:
    (on.folder / ".env.png").write_bytes(b"\x89PNG\r\n\x1a\n" + SECRET.encode())
    with pytest.raises(ExecutorError, match="must not be read"):
        await on.call("read", path=".env.png")


async def test_what_a_checker_says_of_hidden_files_is_left_out(on: Bench) -> None:
    ruff = on.folder / ".venv" / "bin" / "mypy"
    ruff.parent.mkdir(parents=True)
    lines = (
        f"conf/private.txt:1: error: {SECRET}  [x]", f"alias:1: error: {SECRET}  [x]",
        f"{on.folder}/keys/a:1: error: {SECRET}  [x]", "plain:1: error: open  [x]",
    )  # fmt: skip
    ruff.write_text("#!/bin/bash\n" + "".join(f"echo '{line}'\n" for line in lines) + "exit 1\n")
    ruff.chmod(0o755)
    result = await on.call("diagnostics", kind="mypy")
    assert [item["file"] for item in result.raw_output["diagnostics"]] == ["plain"]
    assert SECRET not in result.text
    assert SECRET not in str(result.raw_output)


async def test_a_hard_link_is_another_name_and_is_not_known(on: Bench) -> None:
    """What `deny_read` does not promise: it goes by names. The sandbox keeps commands from making such a link."""
    os.link(on.folder / "x.pem", on.folder / "name")
    assert SECRET in (await on.call("read", path="name")).text
