"""Sessions and sub-agents in a git worktree of their own, and that they reach nothing of the user's."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from acp_agent import own_programs
from acp_agent.disk import Folder
from acp_agent.errors import InvalidParams, PeerError
from acp_agent.executors.sandbox.landlock import abi
from acp_agent.loop.shell import worktrees
from acp_agent.loop.shell.worktrees import all_of, is_changed, make, sweep
from acp_agent.opening import Opening
from acp_agent.schema.acp import NewSessionRequest
from acp_agent.testing.fake_model import Answer, Call
from tests.repositories import committed, git, repository
from tests.waits import until

from .kit import Rig, agent_rig, asks, bash, environ_for, put, puts, results, rig, rounds, went
from .test_undo import said, write


def state(tmp_path: Path) -> Path:
    return tmp_path / "home/.local/state/acp-coder"


async def opened(r: Rig, **meta: Any) -> Path:
    """A session in a worktree of the project; the worktree."""
    r.project.mkdir(exist_ok=True)
    params = {"cwd": str(r.project), "mcpServers": [], "_meta": {"isolation": "worktree", **meta}}
    r.editor.session_id = (await r.editor.client.connection.request("session/new", params))["sessionId"]
    await r.editor.client.set_session_mode(r.editor.session_id, "auto")
    (made,) = all_of(state(r.project.parent))
    return Path(made.path)


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


@pytest.mark.parametrize("sandbox", [True, False])
@pytest.mark.parametrize("name", ATTACKS)
async def test_what_runs_in_a_worktree_does_not_reach_the_users(tmp_path: Path, name: str, sandbox: bool) -> None:
    """Without a sandbox, the control, it does."""
    command = ATTACKS[name].format(main=tmp_path / "project")
    async with agent_rig(tmp_path, rounds(bash(f"{command}\necho tried")), sandbox=sandbox, terminal=False) as r:
        prepared(r.project)
        tree = await opened(r)
        before = status(r.project), links(r.project)
        await r.editor.prompt("go")
        assert (tree / "file").exists()
        assert "tried" in results(r, 2)[0]
        assert ((status(r.project), links(r.project)) == before) == sandbox


@pytest.mark.parametrize("isolated", [True, False])
@pytest.mark.parametrize("way", ["{main}/new", "there/new", "../../../../../project/new"])
async def test_no_tool_writes_the_users_files_from_a_worktree(tmp_path: Path, way: str, isolated: bool) -> None:
    """The control is a session in the user's folder."""
    path = way.format(main=tmp_path / "project") if isolated else "new"
    async with agent_rig(tmp_path, [write(path, "evil"), "done"]) as r:
        prepared(r.project)
        if isolated:
            tree = await opened(r)
            (tree / "there").symlink_to(r.project)
        else:
            await r.editor.new_session(r.project)
        await r.editor.prompt("go")
        assert (r.project / "new").exists() != isolated


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


async def test_half_a_worktree_is_none(tmp_path: Path) -> None:
    project = tmp_path / "project"
    prepared(project)
    (project / ".gitignore").write_text(".env\n")
    (project / "file").unlink()
    put(project / "file/.env", "x\n")
    with pytest.raises(OSError, match="file"):  # Where the copy is to be, the last commit has a file.
        make(Folder(project), state(tmp_path), ["file/.env"])
    assert not all_of(state(tmp_path))
    assert "acp-coder" not in git(project, "branch", "--all")


async def test_a_forged_record_removes_no_other_repository(tmp_path: Path) -> None:
    project, victim = tmp_path / "project", tmp_path / "victim"
    prepared(project)
    prepared(victim)
    hold = make(Folder(project), state(tmp_path))
    hold.release()
    record = Path(f"{hold.worktree.path}.json")
    record.write_text(record.read_text().replace(hold.worktree.git, str(victim / ".git")))
    os.utime(record, (1, 1))
    sweep(state(tmp_path))
    assert (victim / ".git/HEAD").exists()
    assert not all_of(state(tmp_path))


@pytest.mark.parametrize("hides", ["git update-index --skip-worktree file", "git update-index --assume-unchanged file"])
async def test_a_change_that_the_index_hides_is_kept(tmp_path: Path, hides: str) -> None:
    async with agent_rig(tmp_path, rounds(bash(f"{hides}; echo mine > file"))) as r:
        prepared(r.project)
        tree = await opened(r)
        await r.editor.prompt("go")
        await r.editor.request("session/close", {"sessionId": r.editor.session_id})
        assert (tree / "file").read_text() == "mine\n"


async def test_git_runs_nothing_that_the_repository_names(tmp_path: Path) -> None:
    evil = f"touch {tmp_path}/ran"
    for protected in (True, False):
        project = repository(tmp_path / f"project{protected}")
        for name in ("post-checkout", "reference-transaction", "post-index-change"):
            put(project / ".git/hooks" / name, f"#!/bin/sh\n{evil}\n")
            (project / ".git/hooks" / name).chmod(0o755)
        (project / ".gitattributes").write_text("* filter=evil\n")
        git(project, "-c", "core.hooksPath=/dev/null", "add", ".gitattributes")
        git(project, "-c", "core.hooksPath=/dev/null", "commit", "-qm", "attributes")
        for key in ("filter.evil.smudge", "filter.evil.clean", "core.fsmonitor"):
            git(project, "config", key, evil)
        git(project, "config", "filter.evil.required", "true")
        if protected:
            assert make(Folder(project), state(tmp_path)).end() == ""
        else:
            git(project, "worktree", "add", str(tmp_path / "plain"))
        assert (tmp_path / "ran").exists() != protected


@pytest.mark.parametrize("names", [("evil",), ("a=b",), ("Evil", "evil"), ("evil", "Evil")], ids=" ".join)
async def test_no_filter_runs_whatever_its_name(tmp_path: Path, names: tuple[str, ...]) -> None:
    for protected in (True, False):
        project = repository(tmp_path / f"project{protected}")
        (project / ".gitattributes").write_text(f"* filter={names[0]}\n")
        committed(project, ".gitattributes", message="attributes")
        keys = [
            f'[filter "{name}"]\n\tsmudge = touch {tmp_path}/ran\n\tclean = touch {tmp_path}/ran\n' for name in names
        ]
        with (project / ".git/config").open("a") as file:
            file.writelines(keys)
        if protected:
            hold = make(Folder(project), state(tmp_path))
            Path(hold.worktree.path, "file").write_text("changed\n")
            assert is_changed(hold.worktree)
        else:
            git(project, "worktree", "add", str(tmp_path / "plain"))
        assert (tmp_path / "ran").exists() != protected


async def test_what_a_worktrees_own_configuration_names_is_not_run(tmp_path: Path) -> None:
    project = repository(tmp_path / "project")
    (project / ".gitattributes").write_text("* filter=evil\n")
    committed(project, ".gitattributes", message="attributes")
    git(project, "config", "extensions.worktreeConfig", "true")
    made = make(Folder(project), state(tmp_path)).worktree
    Path(made.git, "config.worktree").write_text(f'[filter "evil"]\n\tclean = touch {tmp_path}/ran; cat\n')
    Path(made.path, "file").write_text("changed\n")
    assert is_changed(made) and not (tmp_path / "ran").exists()
    git(Path(made.path), "status")
    assert (tmp_path / "ran").exists()


@pytest.mark.skipif(abi() == 0, reason="the kernel has no Landlock")
async def test_git_runs_nothing_that_is_named_after_the_look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A command that runs beside (Landlock alone protects no configuration) adds a filter once it was looked for, and
    `git status` may be told to run a monitor by what is read later."""
    for protected in (False, True):
        project = repository(tmp_path / f"project{protected}")
        (project / ".gitattributes").write_text("* filter=evil\n")
        committed(project, ".gitattributes", message="attributes")
        late = {"GIT_CONFIG_COUNT": "2"}
        for number, key in enumerate(("filter.evil.smudge", "filter.evil.clean")):
            late |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": f"touch {tmp_path}/ran; cat"}
        monkeypatch.setattr(worktrees, "_safely", lambda *_, late=late: late)
        if not protected:
            monkeypatch.setattr(own_programs, "ALONE", "tests.agent.test_worktrees:not_alone")
        hold = make(Folder(project), state(tmp_path))
        Path(hold.worktree.path, "file").write_text("changed\n")
        assert is_changed(hold.worktree) and (tmp_path / "ran").exists() != protected
        (tmp_path / "ran").unlink(missing_ok=True)
        monkeypatch.undo()


def not_alone(program: str, run: Callable[[], object]) -> object:
    return run()


async def test_what_killed_agents_left_is_removed_only_if_nothing_was_changed(tmp_path: Path) -> None:
    project = tmp_path / "project"
    prepared(project)
    holds = [make(Folder(project), state(tmp_path)) for _ in range(3)]
    same, changed, used = (Path(hold.worktree.path) for hold in holds)
    (changed / "new").write_text("x\n")
    for hold in holds[:2]:
        hold.release()  # As the end of its process does.
        os.utime(f"{hold.worktree.path}.json", (1, 1))
    async with went(tmp_path, ["hello"], prompt="hi") as r:
        await until(lambda: not same.exists())
        assert changed.exists() and used.exists()
        assert "merge acp-coder/" in r.editor.text()
        told = await said(r, "/worktree")
        assert f"`{changed.name}`: changed" in told and f"`{used.name}`: in use, unchanged" in told
        assert "in use" in await said(r, f"/worktree remove {used.name}")
        assert "has changes" in await said(r, f"/worktree remove {changed.name}") and changed.exists()
        assert "Removed" in await said(r, f"/worktree remove {changed.name} yes") and not changed.exists()
    holds[2].end()


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


async def test_a_pointer_to_another_repository_gives_a_worktree_of_that_without_the_check(tmp_path, monkeypatch):
    """The control of what `test_what_can_have_no_worktree_is_said` refuses."""
    other = repository(tmp_path / "other")
    put(tmp_path / "project/.git", f"gitdir: {other}/.git\n")
    monkeypatch.setattr(worktrees, "git_of", lambda top: other / ".git")
    hold = make(Folder(tmp_path / "project"), state(tmp_path))
    assert (Path(hold.worktree.path) / "file").read_text() == (other / "file").read_text()
    hold.end()


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


def test_a_worktree_of_a_folder_that_may_be_opened_may_be_opened(tmp_path: Path) -> None:
    project, other = tmp_path / "project", tmp_path / "other"
    for each in (project, other):
        each.mkdir()
        repository(each)
    environ = environ_for(tmp_path / "home", "http://127.0.0.1:9/v1")
    hold, theirs = (make(Folder(each), state(tmp_path)) for each in (project, other))
    opening = Opening(environ, {}, [str(project)])
    assert opening.may_open(hold.worktree.path) and not opening.may_open(theirs.worktree.path)
    request = NewSessionRequest(cwd=hold.worktree.path, mcp_servers=[])
    assert opening.opened(opening.new(request).record, opening.config(), ()).roots.real == (Path(hold.worktree.path),)


async def test_of_a_session_that_cannot_be_opened_no_worktree_stays(tmp_path: Path, monkeypatch) -> None:
    def refuses(*_: object) -> None:
        raise InvalidParams("no such session")

    async with went(tmp_path, ["hi"]) as r:
        repository(r.project)
        monkeypatch.setattr(Opening, "opened", refuses)
        with pytest.raises(PeerError, match="no such session"):
            await opened(r)
        assert not all_of(state(tmp_path))
        assert "acp-coder/" not in git(r.project, "branch", "--list")
