"""The commit that `acp-coder --version` says."""

import subprocess
from pathlib import Path

import pytest

import acp_agent
from acp_agent.commands.extensions import this_version
from acp_agent.commands.extensions.this_version import commit_of, version_line
from tests.e2e.kit import COMMAND, environ
from tests.house.imports import ROOT
from tests.repositories import git


def test_a_checkout_says_what_git_says_in_each_state_of_its_files(tmp_path: Path):
    checkout, worktree = tmp_path / "checkout", tmp_path / "worktree"
    checkout.mkdir()
    assert commit_of(checkout) == ""
    git(checkout, "init", "--quiet", "--initial-branch=main")
    assert commit_of(checkout) == "", "no commit yet"

    def same(folder: Path) -> bool:
        return commit_of(folder) == git(folder, "rev-parse", "HEAD").strip()

    git(checkout, "commit", "--quiet", "--allow-empty", "--message=one")
    assert same(checkout)
    git(checkout, "worktree", "add", "--quiet", "-b", "some/branch", str(worktree))
    git(worktree, "commit", "--quiet", "--allow-empty", "--message=two")
    assert same(worktree) and commit_of(worktree) != commit_of(checkout)
    git(checkout, "pack-refs", "--all")
    assert not (checkout / ".git" / "refs" / "heads" / "main").exists() and same(checkout) and same(worktree)
    git(checkout, "checkout", "--quiet", "--detach")
    assert same(checkout)


@pytest.mark.parametrize("said", ["nothing at all", "ref: refs/heads/.invalid", "0" * 39])
def test_what_is_no_commit_is_not_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str):
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "HEAD").write_text(said)
    monkeypatch.setattr(this_version, "PACKAGE", tmp_path / "acp_agent")
    assert version_line() == acp_agent.__version__


def test_the_command_and_a_built_package_say_version_and_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    commit = commit_of(ROOT)
    about = f" ({commit[:8]})" if commit else ""
    done = subprocess.run([COMMAND, "--version"], capture_output=True, text=True, env=environ(tmp_path), check=True)
    assert done.stdout == f"acp-coder {acp_agent.__version__}{about}\n"
    (tmp_path / "COMMIT").write_text("1a2b3c4d" + "0" * 32 + "\n")
    monkeypatch.setattr(this_version, "PACKAGE", tmp_path)
    assert version_line() == f"{acp_agent.__version__} (1a2b3c4d)"
