"""Sessions and sub-agents in a git worktree of their own, and that they reach nothing of the user's."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from acp_agent.errors import PeerError
from acp_agent.loop.shell.worktrees import all_of
from acp_agent.testing.fake_model import Answer, Call
from tests.repositories import committed, git, repository

from .kit import Rig, agent_rig, asks, bash, put, puts, results, rig, rounds, went
from .test_undo import said, write


def state(tmp_path: Path) -> Path:
    return tmp_path / "home/.local/state/acp-coder"


async def opened(r: Rig, **meta: Any) -> Path:
    """A session in a worktree of the project; the worktree."""
    r.project.mkdir(exist_ok=True)
    known = {each.path for each in all_of(state(r.project.parent))}
    params = {"cwd": str(r.project), "mcpServers": [], "_meta": {"isolation": "worktree", **meta}}
    r.editor.session_id = (await r.editor.client.connection.request("session/new", params))["sessionId"]
    await r.editor.client.set_session_mode(r.editor.session_id, "auto")
    (made,) = {each.path for each in all_of(state(r.project.parent))} - known
    return Path(made)


def status(project: Path) -> tuple[str, ...]:
    """All of a repository that only its owner changes: files, index, branches, configuration, hooks."""
    common = project / ".git"
    hooks = sorted((each.name, each.read_bytes()) for each in (common / "hooks").iterdir())
    kept = [(common / name).read_bytes() for name in ("HEAD", "config", "index")]
    branches = git(project, "for-each-ref", "refs/heads", "refs/tags", "refs/stash", "refs/remotes")
    own = "\n".join(line for line in branches.splitlines() if "refs/heads/acp-coder/" not in line)
    return git(project, "status", "--porcelain", "-uall"), own, str(hooks), str(kept), (project / "file").read_text()


def links(project: Path) -> list[bytes]:
    """Where git finds the repository of each worktree, and the worktree."""
    return [file.read_bytes() for file in sorted((project / ".git").glob("worktrees/*/*dir"))]


ATTACKS = {
    "git -C": "git -C {main} checkout -q -b evil", "an absolute path": "echo evil > {main}/file",
    "a link": "ln -s {main}/file link; echo evil > link",
    "a folder that is a link": "ln -s {main} there; cd there; echo evil > new",
    "GIT_DIR": "GIT_DIR={main}/.git git update-ref refs/heads/evil HEAD",
    "the main index": "git --git-dir={main}/.git --work-tree={main} rm -q --cached file",
    "the configuration": "GIT_DIR={main}/.git git config core.pager evil",
    "the configuration from here": "git config core.pager evil", "a hook": "echo evil > {main}/.git/hooks/pre-commit",
    "a branch": "git branch evil", "a tag": "git tag evil",
    "the main branch": "git symbolic-ref HEAD refs/heads/main; git commit -q --allow-empty -m evil",
    "a stash": "echo y > file; git stash -q",
    "another repository for this one": "d=$(git rev-parse --git-dir); echo /tmp > $d/commondir",
}  # fmt: skip


async def attacked(r: Rig, *names: str) -> bool:
    """Whether these attacks have changed the user's repository, all in one session."""
    tree = await opened(r)
    before = status(r.project), links(r.project)
    await r.editor.prompt("go")
    assert (tree / "file").exists() and sum("tried" in text for text in results(r)) == len(names)
    return (status(r.project), links(r.project)) != before


def attack(tmp_path: Path, *names: str) -> list[Answer | str]:
    return rounds(*(bash(f"({ATTACKS[name].format(main=tmp_path / 'project')})\necho tried") for name in names))


async def test_what_runs_in_a_worktree_does_not_reach_the_users(tmp_path: Path) -> None:
    """The controls, each by itself without a sandbox, are in `tests/system/agent`."""
    async with agent_rig(tmp_path, attack(tmp_path, *ATTACKS), sandbox=True, terminal=False) as r:
        prepared(r.project)
        assert not await attacked(r, *ATTACKS)


def prepared(project: Path) -> None:
    repository(project)
    git(project, "branch", "-m", "main")
    git(project, "config", "user.name", "a")
    git(project, "config", "user.email", "a@b")
    (project / ".git/hooks").mkdir(exist_ok=True)


async def test_a_commit_in_a_worktree_is_merged_by_the_command_that_is_told(tmp_path: Path) -> None:
    make_it = bash("echo y > made; git add made; git commit -qm made; git log --oneline | cat; git status --short")
    config = "[worktree]\ninclude = ['.env', 'cache']\n"
    script = rounds(make_it, bash("echo z > more; cat .env cache/deep/file"))
    async with agent_rig(tmp_path, script, sandbox=True, terminal=False, config=config) as r:
        prepared(r.project)
        (r.project / ".gitignore").write_text(".env\ncache\n.other\n")
        committed(r.project, ".gitignore", message="ignore")
        puts(r.project, {".env": "of the user\n", ".other": "o\n", "cache/deep/file": "deep\n"})
        before = status(r.project)
        tree = await opened(r)
        git(r.project, "pack-refs", "--all", "--prune")
        assert not (r.project / ".git/refs/heads/acp-coder").exists()
        assert not (tree / ".other").exists()
        await r.editor.prompt("go")
        assert " made" in results(r, 3)[0] and "of the user\ndeep" in results(r, 3)[1]
        assert status(r.project) == before
        closed = await r.editor.client.connection.request("session/close", {"sessionId": r.editor.session_id})
        told = closed["_meta"]["worktree"]
        assert str(tree) in told
        subprocess.run(["bash", "-ec", told.splitlines()[-1]], check=True, capture_output=True, timeout=30)
        assert (r.project / "made").read_text() == "y\n" and (r.project / "more").read_text() == "z\n"


async def test_a_worktree_in_which_nothing_was_changed_is_gone_with_its_session(tmp_path: Path) -> None:
    async with agent_rig(tmp_path, rounds(bash("cat file; echo x > .ignored"))) as r:
        prepared(r.project)
        put(r.project / ".git/info/exclude", ".ignored\n")
        before = status(r.project)
        tree = await opened(r)
        await r.editor.prompt("go")
        assert await r.editor.client.connection.request("session/close", {"sessionId": r.editor.session_id}) == {}
        assert not tree.exists()
        assert status(r.project) == before
        assert "acp-coder" not in git(r.project, "branch", "--all") + git(r.project, "worktree", "list")


def not_alone(program: str, run: Callable[[], object]) -> object:
    return run()


async def test_a_fork_gets_a_worktree_and_is_opened_there(tmp_path: Path) -> None:
    async with went(tmp_path, ["One.", "Two.", "Three."], mode="auto", before=prepared, prompt="First.") as r:
        told = await said(r, "/fork worktree")
        (made,) = all_of(state(tmp_path))
        assert made.path in told
        id_ = told.split("`")[1]
        await r.editor.load_session(id_, Path(made.path))
        await r.editor.request("session/close", {"sessionId": id_})
        assert not Path(made.path).exists()
        with pytest.raises(PeerError, match="was removed"):
            await r.editor.load_session(id_, Path(made.path))
        params = {"sessionId": r.editor.session_id, "cwd": str(r.project), "_meta": {"isolation": "worktree"}}
        forked = await r.editor.client.connection.request("session/fork", params)
        assert len(all_of(state(tmp_path))) == 1
        r.editor.session_id = forked["sessionId"]
        await r.editor.prompt("Second.")
        assert [m["content"] for m in r.messages(2)[1:]] == ["First.", "One.", "Second."]


async def test_a_sub_agent_works_in_a_worktree(tmp_path: Path) -> None:
    def task(prompt: str) -> Answer:
        return asks(Call("delegate", {"prompt": prompt, "isolation": "worktree"}))

    script: list[Answer | str] = [
        task("Write."), write("made", "x\n"), asks(bash("pwd; cat file made")), "Written.",
        task("Look."), "Looked.", "Done.",
    ]  # fmt: skip
    async with rig(tmp_path, script, mode="auto", sandbox=True, terminal=False, before=prepared) as r:
        before = status(r.project)
        await r.editor.prompt("go")
        (left,) = all_of(state(tmp_path))
        assert (Path(left.path) / "made").read_text() == "x\n"
        assert f"{left.path}\nx\nx\n" in results(r, 4)[1]
        first, second = results(r, 7)
        assert "Written." in first and f"merge {left.branch}" in first
        assert "Looked." in second and "Nothing was changed" in second
        assert status(r.project) == before


OTHERS = "git init -q ../other; git -C ../other commit -q --allow-empty -m x"


@pytest.mark.parametrize(("prepare", "why"), [
    ("true", "no git repository"), ("git init -q", "no commit yet"), ("git init -q --bare", "bare repository"),
    ("cd ..; git init -q; git commit -q --allow-empty -m x", "not the top"),
    ("git init -q; touch .gitmodules; git add .; git commit -qm x", "submodules"),
    (f"{OTHERS}; echo gitdir: $PWD/../other/.git > .git", "does not name this folder"),
    (f"{OTHERS}; git init -q; echo $PWD/../other/.git > .git/commondir", "does not name this folder"),
    (f"{OTHERS}; git clone -q --shared ../other . 2>/dev/null", "takes objects from another one"),
    ("git init -q; git commit -q --allow-empty -m x; git config include.path /dev/null", "includes other"),
], ids=["none", "empty", "bare", "below", "submodules", "pointer", "common", "alternates", "includes"])  # fmt: skip
async def test_what_can_have_no_worktree_is_said(tmp_path: Path, prepare: str, why: str) -> None:
    async with agent_rig(tmp_path) as r:
        named = {f"GIT_{who}_{what}": "a@b" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
        environ = {**os.environ, **named, "GIT_CONFIG_GLOBAL": "/dev/null"}
        subprocess.run(["bash", "-ec", prepare], cwd=r.project, env=environ, check=True, timeout=30)
        with pytest.raises(PeerError, match=why):
            await opened(r)
        assert not all_of(state(tmp_path))


async def test_every_session_is_in_a_worktree_by_configuration(tmp_path: Path) -> None:
    async with agent_rig(tmp_path, ["hi"], config="[agent]\nisolation = 'worktree'\n") as r:
        prepared(r.project)
        await r.editor.new_session(r.project)
        assert len(all_of(state(tmp_path))) == 1
        with pytest.raises(PeerError, match="is expected"):
            await opened(r, isolation="jail")
