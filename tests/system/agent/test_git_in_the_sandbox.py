"""Everyday git in the sandbox, and what a command cannot leave in a repository's configuration."""

import os
import subprocess
import threading
from pathlib import Path
from typing import Any

import anyio
import pytest

from acp_agent.executors.sandbox.holders import MODE
from acp_agent.loop.shell import folder_sandbox, git_copies
from acp_agent.loop.shell.git_copies import GitCopies
from tests.agent.kit import audit, bash, confined, put, results, rig, rounds, went
from tests.agent.test_git_in_the_sandbox import changed, config_of
from tests.repositories import git, repository
from tests.waits import until


def published(project: Path) -> None:
    """A repository with a remote that has an address."""
    repository(project)
    git(project, "remote", "add", "origin", "https://example.org/x")


async def test_a_folder_that_does_not_look_empty_is_explained(tmp_path: Path) -> None:
    async with confined(tmp_path, "git init -q --bare /tmp/b; git clone -q /tmp/b .") as r:
        (told,) = results(r, 2)
        assert "not an empty directory" in told and "empty folders take the place of missing ones" in told
        assert list(r.project.iterdir()) == []


async def test_the_real_configuration_names_no_program_even_for_a_moment(tmp_path: Path) -> None:
    """Read over and over while commands write it, in the foreground and in the background at once."""
    write = "for i in {1..30}; do git config core.fsmonitor 'touch x'; git config user.name n$i; done"
    new = "mkdir -p new && cd new && git init -q . && git config core.fsmonitor 'touch x'"
    script = rounds(bash(f"{write}; sleep 0.3", background=True), bash(write), bash("sleep 0.5"), bash(new))
    async with rig(tmp_path, script, mode="auto", sandbox=True, terminal=False, before=repository) as r:
        seen, over = set[str](), threading.Event()

        def watch() -> None:
            while not over.is_set():
                seen.add((r.project / ".git/config").read_text())

        watching = threading.Thread(target=watch)
        watching.start()
        try:
            await r.editor.prompt("go")
        finally:
            over.set()
            watching.join()
        assert not [text for text in seen if "fsmonitor" in text]
        assert "user.name=n30" in config_of(r.project)


async def test_a_command_in_the_background_has_its_changes_taken_over_when_it_ends(tmp_path: Path) -> None:
    calls = [bash("git config core.pager x; git config user.name late", background=True)]
    async with confined(tmp_path, *calls, before=repository) as r:
        await until(lambda: "user.name=late" in config_of(r.project))
        await until(lambda: "`core.pager`" in r.editor.text())
        assert "core.pager=x" not in config_of(r.project)


HOSTILE = {
    "a link to a secret": "rm config; ln -s {secret} config", "a pipe": "rm config; mkfifo config",
    "a folder": "rm config; mkdir config", "nothing": "rm config", "too large": "yes '# x' | head -c 300000 >> config",
    "no configuration": "printf '[core\\n' > config",
    "an odd character": "printf '[core]\\n\\tpa\\0ger = x\\n' > config",
    "an include": "printf '[include]\\n\\tpath = evil\\n' >> config",
    "a program with an unusual name": "printf '[CORE]PAGER=x\\n[core]\\n\\tfsm\\\\\\nonitor = x' >> config",
    "too many keys": "for i in {{1..5000}}; do printf '[user]\\n\\tkey%s = x\\n' $i; done >> config",
    "the folder leads to another repository": "cd ..; mv 0 1; ln -s {secret}.d 0",
    "the folder moved": "cd /run/acp-coder-copies; mv 0 1; mkdir 0; printf '[core]\\n pager=x\\n' > 0/config",
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
async def test_whatever_takes_the_place_of_the_copy_the_configuration_stays_as_it_was(tmp_path, name: str) -> None:
    spoil = "cd $(dirname $(readlink .git/config))\n" + HOSTILE[name].format(secret=tmp_path / "secret")
    async with rig(tmp_path, rounds(bash(spoil)), mode="auto", sandbox=True, terminal=False) as r:
        for secret in ("secret", "secret.d/config"):
            put(tmp_path / secret, "[user]\n\tname = secret\n")
        repository(r.project)
        before = (r.project / ".git/config").read_text()
        with anyio.fail_after(60):
            await r.editor.prompt("go")
        after = (r.project / ".git/config").read_text()
        assert after == before or (name == "the folder moved" and "pager" not in after)
        assert "ot taken over" in results(r, 2)[0]


async def test_a_key_without_a_value_stays_true(tmp_path: Path) -> None:
    calls = ["printf '[commit]\\n\\tgpgSign\\n[core]\\n\\tbare\\n' >> $(readlink .git/config)"]
    async with confined(tmp_path, *calls, before=repository) as r:
        assert "`core.bare`" in results(r, 2)[0]
        assert git(r.project, "config", "--type=bool", "commit.gpgsign").strip() == "true"


LEADING = {
    "a folder": "git config remote.origin.url ./evil.git",
    "a folder as a URL": "git config remote.origin.pushurl file://$PWD/evil.git",
    "a folder that a branch names": "git config branch.main.remote evil.git",
    "a folder that all branches name": "git config remote.pushDefault evil.git",
    "a folder with the name of a remote": "git config branch.main.remote origin; git init -q --bare origin; "
    "git config --unset remote.origin.url",
    "a program for an unknown protocol": "git config remote.origin.url codecommit://x",
    "steps of a rebase": "git config rebase.instructionFormat '%s%nexec touch x'",
    "another branch": "git config push.default upstream",
}


@pytest.mark.parametrize("name", LEADING)
async def test_no_push_and_no_rebase_runs_what_a_command_made(tmp_path: Path, name: str) -> None:
    published(tmp_path / "project")
    before = set(config_of(tmp_path / "project"))
    async with confined(tmp_path, LEADING[name]) as r:
        assert "Not taken over" in results(r, 2)[0]
        assert set(config_of(r.project)) - {"branch.main.remote=origin"} == before


async def test_two_commands_together_name_no_remote_without_an_address(tmp_path: Path) -> None:
    take = "while [ ! -e on ]; do sleep 0.01; done; git config --unset remote.origin.url"
    name = "git config branch.main.remote origin; touch ready"
    async with confined(tmp_path, bash(take, background=True), name, before=published) as r:
        assert "branch.main.remote=origin" in config_of(r.project)
        (r.project / "on").touch()
        await until(lambda: "`remote.origin.url`" in r.editor.text())
        assert "remote.origin.url=https://example.org/x" in config_of(r.project)


PUBLISHED = {
    "hooks that are a link": "rm -r .git/hooks; mkdir evil; echo x > evil/pre-commit; ln -s ../evil .git/hooks",
    "another repository's configuration": "git init -q e; git -C e config core.pager x; echo ../e/.git >.git/commondir",
    "a configuration of the worktree": "git config extensions.worktreeConfig true; git config --worktree core.pager x",
    "a submodule": "git init -q .git/modules/s; mv .git/modules/s/.git/* .git/modules/s; "
    "git -C .git/modules/s config core.pager x; echo x > .git/modules/s/hooks/pre-commit",
    "a submodule below something": "mkdir -p .git/modules; cp .git/HEAD .git/modules/; git init -q .git/modules/s; "
    "mv .git/modules/s/.git/* .git/modules/s; git -C .git/modules/s config core.pager x",
    "files that are elsewhere": "git config core.worktree ../../elsewhere; git config alias.pager x",
    "a submodule whose files are hooks": "git init -q .git/modules/s; mv .git/modules/s/.git/* .git/modules/s; "
    "git config -f .git/modules/s/config core.worktree ../../hooks; git config alias.pager x",
    "a configuration that is a link": "printf '[core]\\n pager=x\\n' > c; rm .git/config; ln -s ../c .git/config",
}


@pytest.mark.parametrize("name", PUBLISHED)
async def test_a_new_repository_leads_to_no_program(tmp_path: Path, name: str) -> None:
    async with confined(tmp_path, f"git init -q .; {PUBLISHED[name]}; ls -A .git") as r:
        found = r.project / ".git"
        assert (found / "HEAD").is_file() and not (found / "hooks").is_symlink() and not (found / "config").is_symlink()
        for configuration in found.rglob("config*"):
            assert "pager" not in configuration.read_text() and "worktree" not in configuration.read_text()
        assert not list(found.rglob("pre-commit"))
        assert git(r.project, "config", "core.pager", check=False) == ""


async def test_what_the_person_sets_in_a_new_repository_is_no_alarm(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(folder_sandbox, "LOOK_AFTER", -5.0)
    evil = "mkdir evil; git -C evil init -q; git -C evil config core.pager x"
    script = [*rounds(bash("git init -q .")), *rounds(bash(evil))]
    async with went(tmp_path, script, mode="auto", sandbox=True, terminal=False) as r:
        git(r.project, "config", "core.pager", "less")
        await r.editor.prompt("go on")
        told = await until(lambda: [line for line in audit(tmp_path) if "made the git" in line.get("reason", "")])
        assert [str(r.project / "evil") in line["reason"] for line in told] == [True]


async def test_a_repository_made_by_somebody_else_meanwhile_stays_theirs(tmp_path: Path) -> None:
    script = rounds(
        bash("git init -q .; git config user.name mine; touch ready; while [ ! -e on ]; do sleep 0.01; done")
    )
    async with rig(tmp_path, script, mode="auto", sandbox=True, terminal=False) as r:
        turn = r.editor.begin("go")
        await until((r.project / "ready").exists)
        (r.project / ".git").chmod(0o755)
        git(r.project, "init", "-q")
        git(r.project, "config", "user.name", "theirs")
        (r.project / "on").touch()
        await turn.response()
        assert "user.name=theirs" in config_of(r.project)
        assert "was not taken over" in results(r, 2)[0]


@pytest.mark.parametrize("held", [False, True])
@pytest.mark.parametrize("moment", ["before it is entered", "while it is filled"])
def test_what_somebody_else_puts_into_a_new_repository_is_not_deleted(tmp_path, monkeypatch, held, moment: str) -> None:
    (project := Path(os.path.realpath(tmp_path)) / "project").mkdir()
    git_folder = project / ".git"
    copies = GitCopies(tmp_path, [], [git_folder])
    subprocess.run(["git", "init", "-q", "--bare", copies.stand_ins[git_folder]], check=True, cwd="/")
    if held:
        git_folder.mkdir()
        git_folder.chmod(MODE)

    def meanwhile(*arguments: Any) -> Any:
        if git_folder.exists():
            git_folder.chmod(0o755)  # Ours lets nobody in, an ordinary user neither.
        put(git_folder / "HEAD", "theirs")
        return original(*arguments)

    where, name = (git_copies, "enter") if moment.startswith("before") else (GitCopies, "_disarm")
    original = getattr(where, name)
    monkeypatch.setattr(where, name, meanwhile)
    assert "was not taken over: somebody else" in copies.take_over()
    assert (git_folder / "HEAD").read_text() == "theirs"
    assert os.listdir(git_folder) == ["HEAD"]


def led_elsewhere(project: Path) -> None:
    """The repository `sub`, whose folder of git is a link."""
    repository(project / "sub")
    (project / "sub/.git").rename(project / "elsewhere")
    (project / "sub/.git").symlink_to(project / "elsewhere")


async def test_a_protected_repository_whose_git_folder_is_a_link_is_protected(tmp_path: Path) -> None:
    change = "git -C sub config core.pager x; echo x > sub/.git/hooks/pre-commit; ls sub/.git/hooks; true"
    async with confined(tmp_path, change, before=led_elsewhere) as r:
        assert "pager" not in (r.project / "elsewhere/config").read_text()
        assert not (r.project / "elsewhere/hooks/pre-commit").exists()


@pytest.mark.parametrize("where", [".", "sub/bare.git"])
async def test_a_bare_repository_is_protected_like_others(tmp_path: Path, where: str) -> None:
    change = f"cd {where}; git config core.pager x; git config user.name n; echo x > hooks/pre-receive; git branch -a"
    async with confined(tmp_path, change, before=lambda project: git(project, "init", "-q", "--bare", where)) as r:
        assert "`core.pager`" in results(r, 2)[0]
        config = (r.project / where / "config").read_text()
        assert "name = n" in config and "pager" not in config
        assert not (r.project / where / "hooks/pre-receive").exists()


@pytest.mark.parametrize("linked", [False, True])
@pytest.mark.parametrize("read", [False, True])
async def test_the_configuration_of_a_worktree_that_is_not_there_is_not_made(tmp_path, linked, read: bool) -> None:
    """Also where git does not read it (yet): `git sparse-checkout` makes it do so."""
    place = ".git/worktrees/tree" if linked else ".git"
    script = rounds(bash(f"ls {place}; echo '[core]' >> {place}/config.worktree; git status"))
    async with rig(tmp_path, script, mode="auto", sandbox=True, terminal=False, before=repository) as r:
        git(r.project, "config", "extensions.worktreeConfig", str(read))
        git(r.project, "worktree", "add", "-q", "-b", "tree", "tree")
        await r.editor.prompt("go")
        (told,) = results(r, 2)
        assert f"{place}/config.worktree: Permission denied" in told and "On branch" in told
        assert not list((r.project / ".git").rglob("config.worktree"))


async def test_the_person_hears_of_a_link_that_leads_to_another_repository(tmp_path: Path) -> None:
    """A link cannot be protected itself."""
    make = "git init -q evil; git -C evil config core.pager x; rm sub/.git; ln -s ../evil/.git sub/.git"
    async with confined(tmp_path, make, before=led_elsewhere) as r:
        await until(lambda: any(str(r.project / "evil") in line.get("reason", "") for line in audit(tmp_path)))


async def test_the_time_of_taking_over_is_bounded_for_all_repositories_together(tmp_path, monkeypatch: Any) -> None:
    monkeypatch.setattr(git_copies, "SECONDS", 0.0)
    repository(tmp_path / "project/sub")
    async with confined(tmp_path, "git config user.name new; git -C sub config user.name new", before=repository) as r:
        assert results(r, 2)[0].count("were not taken over: it takes too long") == 2
        assert "user.name=new" not in [*config_of(r.project), *config_of(r.project / "sub")]


def test_on_a_full_disk_the_configuration_stays_as_it_was(tmp_path: Path, monkeypatch: Any) -> None:
    before = "[core]\n\tfilemode = true\n[user]\n\tname = old\n# mine\n"
    copies, config = changed(tmp_path, before, [("user.name", "new"), ("user.email", "a@b")])
    pwrite = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: pwrite(fd, data[: len(before)], at))
    assert "not taken over: the disk is full" in copies.take_over()
    assert config.read_text() == before
