"""Sessions below the root of a git repository, in a submodule alone, and where `.git` leads elsewhere: what git in
commands does there, and what nobody gets by it. Each attack comes with a control, which succeeds."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from acp_agent.errors import PeerError
from acp_agent.executors.base import NO_GIT
from acp_agent.executors.sandbox import bubblewrap, visible_paths
from acp_agent.executors.sandbox.base import SandboxPolicy
from acp_agent.loop.shell.command_policy import CommandPolicy
from acp_agent.safety.folders import repository as judged
from tests.agent.kit import confined, put, puts, results
from tests.agent.test_enclosing_repositories import KINDS, SECRET, monorepo, only, session, system
from tests.repositories import committed, git, repository

__all__ = ["only"]

NOBODY = 61_234


as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")


@KINDS
@pytest.mark.usefixtures("only")
async def test_what_git_cannot_write_around_the_folder_is_told_once(tmp_path: Path, kind: str) -> None:
    root, sub = monorepo(tmp_path)
    git(root, "switch", "-qc", "new")
    for name in ("other/b", "other/n", "pkgs/sub/a"):
        put(root / name, "new\n")
    committed(root, "-A", message="new")
    git(root, "switch", "-q", "master")
    async with session(sub, "echo x > x; git add x", "git switch -q new", "echo y > x; git add x") as r:
        before, switched, after = results(r)
        words = f"Git has other versions of files in {root} than are there, since commands cannot write them"
        assert f"{words}: 'other/b', 'other/n'. " in switched
        assert words not in before + after
        assert "are not to be committed so" in system(r)
    git(root, "restore", ".")
    assert git(root, "status", "--porcelain") == "A  pkgs/sub/x\n"


def open_plan(*given: Any, **more: Any) -> visible_paths.View:
    view = visible_paths.plan(*given, **more)
    return replace(view, spots=tuple(replace(spot, closed=False) for spot in view.spots))


@KINDS
@pytest.mark.parametrize("hidden", ["closed", "plain", "control"])
@pytest.mark.usefixtures("only")
async def test_what_is_hidden_is_neither_read_nor_recorded_as_deleted(tmp_path, kind, hidden: str, monkeypatch) -> None:
    root, sub = monorepo(tmp_path, closed__x=SECRET, plain=SECRET)
    puts(root, {"other/.env": f"KEY={SECRET}\n", "note": "not added yet\n"})
    hidden, control = hidden.replace("control", "closed"), hidden == "control"
    if control:
        monkeypatch.setattr(bubblewrap, "plan", open_plan)
    commands = (
        f"cat ../../{hidden} ../../{hidden}/x ../../other/.env",
        "echo more >> a; git commit -qam all; git add -u; git commit -qm all; git add a; git commit -qm a; git add -A",
    )
    async with session(sub, *commands, config=f'[tools.files]\ndeny_read = ["{root}/{hidden}"]\n') as r:
        assert SECRET not in str(results(r))
    names = set(git(root, "ls-tree", "-r", "--name-only", "HEAD").split())
    lost = {"closed/x"} if control and kind != "landlock" else set()
    assert {"other/b", "pkgs/sub/a", "closed/x", "plain", "file"} - names == lost
    assert git(root, "show", "HEAD:pkgs/sub/a") == "a\nmore\n"
    assert "other/.env" not in git(root, "ls-files")


@KINDS
@pytest.mark.usefixtures("only")
async def test_a_pipe_around_the_folder_is_not_written(tmp_path: Path, kind: str) -> None:
    root, sub = monorepo(tmp_path)
    for name in ("other/pipe", ".env"):
        os.mkfifo(root / name)
    end = os.open(root / "other/pipe", os.O_RDWR | os.O_NONBLOCK)
    try:
        async with session(sub, "echo evil > ../../other/pipe; cat ../../other/b; git add -A; git commit -qam all"):
            with pytest.raises(BlockingIOError):
                os.read(end, 10)
    finally:
        os.close(end)


@as_root
async def test_of_the_files_around_those_of_others_and_with_keys_are_hidden(tmp_path: Path) -> None:
    root, sub = monorepo(tmp_path, fixtures__server__key="known\n", fixtures__id_rsa="known too\n")
    put(root / "fixtures/id_rsa", f"{SECRET}\n")
    for name in (".env", "theirs", "folder/theirs", ".password-store/x", "other/.env.local"):
        put(root / name, SECRET)
    for path in (root / "theirs", root / "folder"):
        os.chown(path, NOBODY, NOBODY)
    (root / "fixtures/server").rename(root / "fixtures/kept")
    put(root / "fixtures/server.pem", "known\n")
    git(root, "add", "-f", "fixtures/server.pem")
    command = (
        "cd ../..; cat .env theirs folder/theirs .password-store/x other/.env.local fixtures/*; git status --short"
    )
    async with session(sub, command) as r:
        (told,) = results(r)
        assert SECRET not in told
        assert "known\n" in told, "git has the same"


NO = {
    "off": "`tools.sandbox.enclosing_repository` is off", "home": "it is that of the home folder",
    "open": "everybody may write in", "link": "is a link that leads elsewhere",
    "pointer": "which does not say that this is its work tree", "commondir": "names another repository or work tree",
    "worktree": "names another repository or work tree", "one line": "names another repository or work tree",
    "large": "too many to see which to hide",
}  # fmt: skip


def planted(name: str, root: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Makes that of the repository above; configuration."""
    other = repository(root.parent / "other", SECRET)
    real = root / ".git"
    match name:
        case "off":
            return "[tools.sandbox]\nenclosing_repository = false\n"
        case "home":
            shutil.copytree(root / ".git", root.parent / "home/.git")
            shutil.rmtree(root / ".git")
        case "open":
            root.chmod(0o1777)
        case "link" | "pointer":
            real.rename(root / "was")
            if name == "link":
                real.symlink_to(other / ".git")
            else:
                put(real, f"gitdir: {other}/.git\n")
        case "commondir":
            put(real / "commondir", f"{other}/.git\n")
        case "worktree":
            git(root, "config", "core.worktree", str(other))
        case "one line":
            put(real / "config", f"[core]repositoryformatversion = 0\n[core] worktree = {other}\n")
        case "large":
            monkeypatch.setattr("acp_agent.safety.folders.survey.MAX_ABOVE", 3)
    return ""


@pytest.mark.parametrize("name", NO)
async def test_what_is_not_the_users_own_repository_is_not_given_and_that_is_said(tmp_path, name, monkeypatch) -> None:
    root, sub = monorepo(tmp_path, AGENTS__md="x")
    config = planted(name, root, monkeypatch)
    if name == "home":
        shutil.move(root, tmp_path / "home/project")
        root, sub = tmp_path / "home/project", tmp_path / "home/project/pkgs/sub"
    command = "git log --format=%s; cat ../../other/b ../../../other/file; git status"
    async with confined(tmp_path, command, config=config, folder=sub) as r:
        (told,) = results(r)
        assert SECRET not in told and "two" not in told.splitlines()[0] and "b" not in told.splitlines()
        assert NO_GIT in told and NO[name] in told
        assert name == "large" or NO[name] in system(r)


@pytest.mark.parametrize("control", [False, True])
async def test_what_takes_its_place_between_look_and_use_is_not_mounted(tmp_path, control: bool, monkeypatch) -> None:
    root, sub = monorepo(tmp_path)
    other = repository(tmp_path / "outside")
    judge = CommandPolicy.policy

    def policy(self: CommandPolicy) -> SandboxPolicy:
        made = judge(self)
        if not (root / "was").exists():
            (root / ".git").rename(root / "was")
            put(other / ".git/secret", SECRET)
            (other / ".git").rename(root / ".git")
        return replace(made, opened={}) if control else made

    monkeypatch.setattr(CommandPolicy, "policy", policy)
    async with session(sub, "cat ../../.git/secret") as r:
        (told,) = results(r)
        assert (SECRET in told) == control, told


def as_worktree(tmp_path: Path) -> Path:
    main = repository(tmp_path / "main")
    git(main, "worktree", "add", "-q", "-b", "own", str(tmp_path / "project"))
    put(tmp_path / "project/inner/a", "a\n")
    return tmp_path / "project/inner"


def as_submodule(tmp_path: Path) -> Path:
    git(repository(tmp_path / "project"), "submodule", "--quiet", "add", str(repository(tmp_path / "lib")), "deps/lib")
    return tmp_path / "project/deps/lib"


def in_submodule(tmp_path: Path) -> Path:
    put(as_submodule(tmp_path) / "inner/a", "a\n")
    return tmp_path / "project/deps/lib/inner"


def as_separate(tmp_path: Path) -> Path:
    repository(tmp_path / "project")
    git(tmp_path / "project", "init", "-q", "--separate-git-dir", str(tmp_path / "kept.git"))
    return tmp_path / "project"


def as_new_separate(tmp_path: Path) -> Path:
    (tmp_path / "project").mkdir()
    git(tmp_path / "project", "init", "-q", "--separate-git-dir", str(tmp_path / "kept.git"))
    return tmp_path / "project"


@KINDS
@pytest.mark.parametrize("made", [as_worktree, as_submodule, in_submodule, as_separate, as_new_separate])
@pytest.mark.usefixtures("only")
async def test_git_works_where_git_keeps_it_elsewhere(tmp_path: Path, made: Callable[[Path], Path], kind: str) -> None:
    folder = made(tmp_path)
    own = "-c user.name=a -c user.email=a@b"
    commands = (
        f"git status -s; echo new > new; git add new; git {own} commit -qm made; git log --format=%s; git status -s",
        "d=$(git rev-parse --git-common-dir); (git config core.pager evil; echo evil > $d/hooks/post-commit; "
        "echo /tmp > $d/commondir) 2>&1; cat ../main/file ../lib/file; git remote add o https://example.org/x",
    )
    async with session(folder, *commands) as r:
        first, second = results(r)
        assert "made\n" in first and " D " not in first and "fatal" not in first, second
        assert "Git branch at the start: " in system(r)
    assert "new" in git(folder, "show", "--stat", "--format=", "HEAD")
    if kind != "landlock":
        assert "evil" not in git(folder, "config", "--list", "--local")
        common = Path(folder, git(folder, "rev-parse", "--git-common-dir").strip())
        assert not (common / "hooks/post-commit").exists() and not (common / "commondir").exists()
        assert "remote.o.url" in git(folder, "config", "--list", "--local") or kind == "old bubblewrap"


@pytest.mark.parametrize("made", [as_worktree, as_submodule, as_separate])
async def test_hooks_that_a_repository_elsewhere_names_in_its_work_tree_are_protected(tmp_path: Path, made) -> None:
    made(tmp_path)
    top = tmp_path / ("project/deps/lib" if made is as_submodule else "project")
    put(top / "hooks/pre-commit", "true\n")
    git(top, "config", "core.hooksPath", "hooks")
    async with session(top, "echo evil > hooks/post-commit; echo evil > hooks/pre-commit; mv hooks old; echo x > made"):
        pass
    assert [path.name for path in top.glob("hooks/*")] == ["pre-commit"]
    assert (top / "hooks/pre-commit").read_text() == "true\n" and (top / "made").exists()


@pytest.mark.parametrize("name", [".", "inner"])
async def test_hooks_in_the_work_trees_of_submodules_and_worktrees_are_protected(tmp_path: Path, name: str) -> None:
    root = repository(tmp_path / "project")
    repository(tmp_path / "lib")
    git(root, "submodule", "--quiet", "add", str(tmp_path / "lib"), "inner/lib")
    git(root, "worktree", "add", "-q", "inner/tree")
    for top in (root / "inner/lib", root / "inner/tree"):
        put(top / "hooks/pre-commit", "true\n")
        git(top, "config", "core.hooksPath", "hooks")
    attack = "; ".join(
        f"echo evil > {root}/inner/{top}/hooks/post-commit; mv {root}/inner/{top}/hooks {root}/inner/old"
        for top in ("lib", "tree")
    )
    async with session(root / name, attack):
        pass
    for top in (root / "inner/lib", root / "inner/tree"):
        assert [path.name for path in top.glob("hooks/*")] == ["pre-commit"]


@pytest.mark.parametrize("name", ["hooks", "config", "objects"])
async def test_a_link_in_the_repository_above_leads_nowhere(tmp_path: Path, name: str) -> None:
    root, sub = monorepo(tmp_path)
    other = repository(tmp_path / "outside", SECRET)
    shutil.rmtree(root / ".git" / name) if name != "config" else (root / ".git/config").unlink()
    (root / ".git" / name).symlink_to(other / ".git" / name)
    async with session(
        sub, "git log --all --format=%s; git cat-file --batch-all-objects --batch; echo x > made; git log"
    ) as r:
        assert SECRET not in str(results(r))
        assert name == "objects" or "is a link, which commands could replace" in results(r)[0]
    assert not list((other / ".git/hooks").glob("*-commit"))
    assert (sub / "made").exists(), "other commands run"


async def test_a_git_file_that_leads_to_another_repository_gives_nothing_of_it(tmp_path: Path) -> None:
    """As one from an archive does; `has_seen` is what a repository made with `--separate-git-dir` is known by."""
    as_separate(tmp_path)
    (tmp_path / "project").rename(tmp_path / "theirs")
    project = tmp_path / "project"
    for control in (False, True):
        shutil.rmtree(project, ignore_errors=True)
        puts(project, {"file": "x\n", ".git": f"gitdir: {tmp_path}/kept.git\n"})
        with pytest.MonkeyPatch.context() as patch:
            if control:
                patch.setattr(judged, "_has_seen", lambda *_: True)
            async with session(project, "git log --format=%s", "git log --format=%s") as r:
                assert ("x\n" in results(r)[0]) == control
                assert (NO_GIT in results(r)[0]) != control
                assert ("which does not say that this is its work tree" in system(r)) != control
        shutil.rmtree(tmp_path / "home")


async def test_undo_and_worktrees_there(tmp_path: Path) -> None:
    root, sub = monorepo(tmp_path)
    async with session(sub, "rm a; echo x > b; git commit -qam gone") as r:
        await r.editor.prompt("/undo yes")
        assert (sub / "a").read_text() == "a\n" and not (sub / "b").exists()
        assert (root / "other/b").read_text() == "b\n"
        params = {"cwd": str(sub), "mcpServers": [], "_meta": {"isolation": "worktree"}}
        with pytest.raises(PeerError, match=f"is not the top of its repository; open the session in {root}"):
            await r.editor.client.connection.request("session/new", params)
