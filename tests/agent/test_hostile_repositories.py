"""The repository is the attacker's: a command has written `.git`. Each attack comes with a control, which succeeds."""

import hashlib
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from acp_agent.disk import HERE
from acp_agent.loop.prompts import facts
from acp_agent.safety.folders.repository import Repository
from acp_agent.undo import git_blobs, git_index, kept_copies
from tests.repositories import git

from .kit import bash, put, puts, rounds, went

TRUE, EVIL = "what is in the file\n", "what never was it!!\n"
SECRET = "a key of the user\n\n\n"


def commit(folder: Path, name: str, text: str) -> None:
    put(folder / name, text)
    os.utime(folder / name, (1_700_000_000, 1_700_000_000))
    for command in (("init", "-q", "-b", "hidden-branch"), ("add", "-A"), ("commit", "-qm", "all")):
        git(folder, *command)


def poison(project: Path, content: str) -> None:
    """The index names another blob for the file, with the size and times that the file has."""
    index = project / ".git/index"
    data = index.read_bytes()[:-20].replace(git_index.name_of(TRUE.encode()), git_index.name_of(content.encode()))
    index.write_bytes(data + hashlib.sha1(data).digest())
    os.utime(index)


def other(project: Path) -> Path:
    """Another repository of the user."""
    folder = project.parent / "other"
    commit(folder, "secret", SECRET)
    return folder


def by_hash(project: Path) -> None:
    put(project / "evil", EVIL)
    git(project, "hash-object", "-w", "evil")
    (project / "evil").unlink()
    poison(project, EVIL)


def by_alternates(project: Path) -> None:
    put(project / ".git/objects/info/alternates", f"{other(project)}/.git/objects\n")
    poison(project, SECRET)


def by_link(project: Path) -> None:
    there = other(project) / ".git/objects"
    for folder in there.iterdir():
        if len(folder.name) == 2 and not (project / ".git/objects" / folder.name).exists():
            (project / ".git/objects" / folder.name).symlink_to(folder)
    poison(project, SECRET)


def by_pointer(project: Path) -> None:
    """`.git` is a file that leads to a folder which a command has made, inside the project."""
    by_link(project)
    (project / ".git").rename(project / "made")
    put(project / ".git", "gitdir: made\n")


@pytest.mark.parametrize("attack", [by_hash, by_alternates, by_link, by_pointer])
async def test_undo_writes_nothing_that_was_not_in_the_file(tmp_path, attack: Callable[[Path], None], monkeypatch):
    assert len(TRUE) == len(EVIL) == len(SECRET)
    for name in ("held", "control"):
        (home := tmp_path / name).mkdir()
        if name == "control":  # The index is believed, and the blob that it names.
            evil = git_index.name_of((EVIL if attack is by_hash else SECRET).encode())
            monkeypatch.setattr(kept_copies, "name_of", lambda content, evil=evil: evil)
            monkeypatch.setattr(git_blobs, "ALTERNATES", "none")

        def prepare(project: Path) -> None:
            commit(project, "a", TRUE)
            attack(project)

        patient = "[undo]\nlook_seconds = 60\ncopy_seconds = 60\n"  # Also on a busy machine.
        async with went(home, rounds(bash("rm a")), mode="auto", before=prepare, config=patient) as r:
            assert not (r.project / "a").exists()
            await r.editor.prompt("/undo yes")
            restored = (r.project / "a").read_text()
            assert (restored == TRUE) == (name == "held"), restored


def believed(folder: Path, disk: object = HERE) -> Path | None:
    """As git finds it."""
    git = folder / ".git"
    return folder / git.read_text().removeprefix("gitdir: ").strip() if git.is_file() else git if git.exists() else None


@pytest.mark.parametrize("how", ["pointer", "link", "head"])
async def test_nothing_of_another_repository_is_told_to_the_model(tmp_path, how, monkeypatch):
    for name in ("held", "control"):
        (home := tmp_path / name).mkdir()
        if name == "control":
            monkeypatch.setattr(facts, "repository_of", lambda at, _: Repository(at, believed(at) or at))
            monkeypatch.setattr(HERE, "is_link", lambda path: False)

        def prepare(project: Path) -> None:
            there = other(project) / ".git"
            if how == "pointer":
                put(project / ".git", f"gitdir: {there}\n")
            elif how == "link":
                (project / ".git").symlink_to(there)
            else:
                git(project, "init", "-q", "-b", "own")
                (project / ".git/HEAD").unlink()
                (project / ".git/HEAD").symlink_to(there / "HEAD")

        async with went(home, ["ok"], before=prepare) as r:
            assert ("hidden-branch" in r.context()) == (name == "control")


def test_worktrees_and_submodules_are_found_where_their_repository_names_them(tmp_path):
    main = tmp_path / "main"
    commit(main, "a", TRUE)
    git(main, "worktree", "add", "-q", str(tmp_path / "tree"))
    put(main / ".git/modules/sub/config", "[core]\n\tworktree = ../../../sub\n")
    put(main / "sub/.git", "gitdir: ../.git/modules/sub\n")
    assert git_index.git_of(tmp_path / "tree") == main / ".git/worktrees/tree"
    assert git_index.git_of(main / "sub") == main / ".git/modules/sub"
    puts(tmp_path, {"thief/.git": f"gitdir: {main}/.git/worktrees/tree\n", "thief2/.git": f"gitdir: {main}/.git\n"})
    assert git_index.git_of(tmp_path / "thief") is git_index.git_of(tmp_path / "thief2") is None


def test_an_index_counts_no_files_of_other_folders(tmp_path):
    """Whether one exists, and has a certain content, would be told by the number of changed files."""
    project = tmp_path / "project"
    commit(project, "xx/secret", TRUE)
    put(tmp_path / "secret", TRUE)
    assert git_index.changed_files(project / ".git", project) == 0
    (project / "xx").rename(project / "yy")
    (project / "xx").symlink_to(tmp_path)
    assert git_index.changed_files(project / ".git", project) is None
    index = project / ".git/index"
    data = index.read_bytes()[:-20].replace(b"xx/secret", b"../secret")
    index.write_bytes(data + hashlib.sha1(data).digest())
    (project / "xx").unlink()
    assert git_index.changed_files(project / ".git", project) is None
