"""`acp-coder uninstall`: what is on the machine is listed, and removed once that is wanted."""

import json
from pathlib import Path

import pytest

from acp_agent.testing.fake_model import FakeModel
from tests.files import put

from .test_cli import ran, run


def left(home: Path) -> list[str]:
    return sorted(str(path.relative_to(home)) for path in home.rglob("*") if path.is_file())


async def prepared(home: Path) -> None:
    async with FakeModel(["ok"]) as model:
        assert (await ran(model, home, "prompt", "go")).stdout == "ok\n"
    put(home / ".config/zed/settings.json", '{"theme": "One Dark"}\n')
    assert run(home, "setup", "zed", "--yes").returncode == 0
    assert run(home, "login", "anthropic", "--unchecked", stdin="sk-test-not-a-key\n").returncode == 0


async def test_it_lists_what_is_there_and_removes_it_with_the_entries_in_editors_and_nothing_else(tmp_path):
    await prepared(tmp_path)
    before = left(tmp_path)
    shown = run(tmp_path, "uninstall").stdout
    for words in (
        f"- {tmp_path}/.config/acp-coder: configuration", f"- {tmp_path}/.local/state/acp-coder: sessions, undo",
        f"- {tmp_path}/.config/zed/settings.json: the entry in the configuration of Zed", "- stored keys: anthropic",
        "`acp-coder uninstall --purge` removes this.", "pip uninstall acp-coder",
    ):  # fmt: skip
        assert words in shown
    refused = run(tmp_path, "uninstall", "--purge")  # Nobody is there to say yes.
    assert refused.returncode == 1 and "Nothing was removed." in refused.stdout and left(tmp_path) == before
    put(tmp_path / ".config/other/keep", "theirs")
    assert run(tmp_path, "uninstall", "--purge", "--yes").returncode == 0
    assert left(tmp_path) == [".config/other/keep", ".config/zed/settings.json"]
    assert json.loads((tmp_path / ".config/zed/settings.json").read_text()) == {"theme": "One Dark"}
    assert run(tmp_path, "uninstall").stdout.startswith("Nothing of acp-coder's is on this machine.\n")


@pytest.mark.parametrize("linked", [False, True])
async def test_work_in_worktrees_and_what_links_lead_to_stay(tmp_path, linked):
    await prepared(tmp_path)
    if linked:
        (tmp_path / ".config/acp-coder").rename(tmp_path / "dotfiles")
        (tmp_path / ".config/acp-coder").symlink_to(tmp_path / "dotfiles")
        assert run(tmp_path, "uninstall", "--purge", "--yes").returncode == 0
        assert (tmp_path / "dotfiles").is_dir() and not (tmp_path / ".config/acp-coder").is_symlink()
        return
    put(tmp_path / ".local/state/acp-coder-worktrees/1234abcd/work.py", "mine\n")
    before = left(tmp_path)
    refused = run(tmp_path, "uninstall", "--purge", "--yes")
    assert refused.returncode == 2 and "in which there may be work" in refused.stderr and left(tmp_path) == before
