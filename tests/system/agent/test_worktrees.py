"""Sessions and sub-agents in a git worktree of their own, and that they reach nothing of the user's."""

import os
from pathlib import Path

import pytest

from acp_agent import own_programs
from acp_agent.disk import Folder
from acp_agent.errors import InvalidParams, PeerError
from acp_agent.executors.sandbox.landlock import abi
from acp_agent.loop.shell import worktrees
from acp_agent.loop.shell.worktrees import all_of, is_changed, make, sweep
from acp_agent.opening import Opening
from acp_agent.schema.acp import NewSessionRequest
from tests.agent.kit import agent_rig, bash, environ_for, put, rounds, went
from tests.agent.test_undo import said, write
from tests.agent.test_worktrees import ATTACKS, attack, attacked, opened, prepared, state
from tests.repositories import committed, git, repository
from tests.waits import until


@pytest.mark.parametrize("name", ATTACKS)
async def test_what_runs_in_a_worktree_reaches_the_users_without_a_sandbox(tmp_path: Path, name: str) -> None:
    async with agent_rig(tmp_path, attack(tmp_path, name), terminal=False) as r:
        prepared(r.project)
        assert await attacked(r, name)


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


async def test_a_pointer_to_another_repository_gives_a_worktree_of_that_without_the_check(tmp_path, monkeypatch):
    """The control of what `test_what_can_have_no_worktree_is_said` refuses."""
    other = repository(tmp_path / "other")
    put(tmp_path / "project/.git", f"gitdir: {other}/.git\n")
    monkeypatch.setattr(worktrees, "git_of", lambda top: other / ".git")
    hold = make(Folder(tmp_path / "project"), state(tmp_path))
    assert (Path(hold.worktree.path) / "file").read_text() == (other / "file").read_text()
    hold.end()


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
