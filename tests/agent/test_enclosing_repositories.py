"""Sessions below the root of a git repository, in a submodule alone, and where `.git` leads elsewhere: what git in
commands does there, and what nobody gets by it. Each attack comes with a control, which succeeds."""

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from acp_agent.client.permissions import reject_once
from acp_agent.executors.sandbox import probe
from tests.repositories import committed, git, repository

from .kit import Rig, confined, put, results

SECRET = "tangerine"
KINDS = pytest.mark.parametrize("kind", ["bubblewrap", "old bubblewrap", "landlock"])


@pytest.fixture
def only(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    monkeypatch.setattr(probe, "_found", {})
    monkeypatch.setattr(probe, "_candidates", lambda config: [(kind.split()[-1], True)])
    if kind == "old bubblewrap":
        monkeypatch.setattr(probe, "_working", lambda made, *_: replace(made, copies=False, landlock=0))


@asynccontextmanager
async def session(folder: Path, *commands: str, **editor: Any) -> AsyncIterator[Rig]:
    """One in that folder of `tmp_path/project`, after the commands."""
    tmp_path = next(each.parent for each in (folder, *folder.parents) if each.name == "project")
    async with confined(tmp_path, *commands, folder=folder, **editor) as r:
        yield r


def monorepo(tmp_path: Path, **files: str) -> tuple[Path, Path]:
    """A repository with files, all committed; its root, and a folder in it. The names' `__` is a slash."""
    root = repository(tmp_path / "project")
    for name, text in {"pkgs__sub__a": "a\n", "other__b": "b\n", **files}.items():
        put(root / name.replace("__", "/"), text)
    committed(root, "-A", message="two")
    git(root, "config", "user.name", "a")
    git(root, "config", "user.email", "a@b")
    return root, root / "pkgs/sub"


def system(r: Rig) -> str:
    return r.context()


@KINDS
@pytest.mark.usefixtures("only")
async def test_git_works_below_the_root_and_leaves_the_other_files_as_they_are(tmp_path: Path, kind: str) -> None:
    root, sub = monorepo(tmp_path)
    commands = (
        "git status --short --branch; git log --oneline",
        "echo more >> a; git diff; git add a; git commit -qm first; echo x >> a; git commit -qam second; git status",
        "echo x > ../../other/b; git switch -q -c new; echo n > n; git add .; git commit -qm third; git log --oneline",
    )
    async with session(sub, *commands) as r:
        looked, changed, written = results(r)
        assert looked.splitlines()[0] == "## master" and " two\n" in looked
        assert "deleted" not in changed and "+more" in changed
        assert "third" in written
        assert not r.editor.permission_requests
        assert f"The git repository's root is {root}." in system(r) and "Git branch at the start: master" in system(r)
    assert git(root, "log", "--name-status", "--format=", "-3").split() == ["A", "pkgs/sub/n", *["M", "pkgs/sub/a"] * 2]
    assert git(root, "status", "--porcelain", "-uall") == ""
    assert (root / "other/b").read_text() == "b\n"
    assert git(root, "fsck") == ""


async def test_a_forbidden_path_around_the_session_is_hidden_from_its_commands(tmp_path: Path) -> None:
    root, sub = monorepo(tmp_path, secrets__key="hidden words\n")
    for forbidden in (True, False):
        config = f'[tools.risk]\nforbidden_paths = ["{root}/secrets"]\n' if forbidden else ""
        async with session(sub, "grep -r words ../..; true", config=config) as r:
            assert ("hidden words" in results(r)[0]) is not forbidden


@pytest.mark.parametrize("kind", ["bubblewrap", "old bubblewrap"])
@pytest.mark.usefixtures("only")
async def test_nothing_that_names_a_program_is_written_above(tmp_path: Path, kind: str) -> None:
    root, sub = monorepo(tmp_path)
    git(root, "worktree", "add", "-q", "../tree")
    before = {path: path.read_bytes() for path in root.rglob(".git/config*") if path.is_file()}
    attacks = "\n".join(
        f"({each}) 2>&1"
        for each in (
            "echo evil > ../../.git/hooks/post-commit", "git config core.fsmonitor evil; git config core.pager evil",
            "echo /tmp > ../../.git/commondir; printf '[core]\\npager=evil' > ../../.git/config.worktree",
            "mv ../../.git/hooks ../../.git/old; mv ../../.git ../../git; rm -rf ../../.git/config",
            "echo /tmp > ../../.git/worktrees/tree/commondir; echo evil > ../../.vscode; echo evil > ../../other/b",
        )
    )  # fmt: skip
    async with session(sub, attacks):
        pass
    assert {path: path.read_bytes() for path in before} == before
    assert not [each for each in (root / ".git/hooks").iterdir() if each.suffix != ".sample"]
    assert not (root / ".git/commondir").exists() and not (root / ".vscode").exists()
    assert (root / ".git/worktrees/tree/commondir").read_text().strip() == "../.."


async def test_instructions_are_read_from_the_root_down_and_the_nearest_has_room_first(tmp_path: Path) -> None:
    put(tmp_path / "AGENTS.md", "of nobody")
    root, sub = monorepo(tmp_path, AGENTS__md="", pkgs__CLAUDE__md="")
    for path, text in (
        (root, "of the root"), (root / "pkgs", "of packages"), (sub, "of the folder"), (root / "other", "-"),
    ):  # fmt: skip
        put(path / "AGENTS.md", f"{text} {'x' * 600}\n")
    put(tmp_path / "outside.md", SECRET)
    async with session(sub) as r:
        told = system(r)
        places = [told.index(f"({path}):\nof ") for path in (root / "AGENTS.md", root / "pkgs/AGENTS.md", "AGENTS.md")]
        assert places == sorted(places)
        assert "of nobody" not in told
    (root / "AGENTS.md").unlink()
    (root / "AGENTS.md").symlink_to(tmp_path / "outside.md")
    async with session(sub, config="[agent]\nmax_instruction_bytes = 1024\n") as r:
        told = system(r)
        assert SECRET not in told
        assert "of the folder" in told and "the rest is left out" in told.partition("of packages")[2][:500]


async def test_a_repository_within_one_is_asked_about(tmp_path: Path) -> None:
    root, sub = monorepo(tmp_path)
    async with session(sub, "git init -q", "git init -q deep/er", permissions=[reject_once] * 2) as r:
        assert len(r.editor.permission_requests) == 2
        told = str(r.editor.permission_requests[0].tool_call.content)
        assert f"`git init` makes a repository within that of {root}, which then loses these files" in told
        assert not (sub / ".git").exists() and not (sub / "deep").exists()
    shutil.rmtree(tmp_path / "home")
    shutil.rmtree(root / ".git")
    async with session(sub, "git init -q; git init -q deep", "git status --short") as r:
        assert not r.editor.permission_requests
        assert "?? a" in results(r)[1]
