"""Everyday git in the sandbox, and what a command cannot leave in a repository's configuration."""

import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from acp_agent.loop.shell.git_copies import GitCopies
from tests.nightly import examples
from tests.repositories import git, repository

from .kit import audit, bash, confined, put, results, rounds, went

QUIET = "export GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=protocol.file.allow GIT_CONFIG_VALUE_0=always; set -e\n"

EVERYDAY = {
    "config": ("git config user.name me; git config core.autocrlf input", "user.name=me"),
    "remote add": ("git remote add other ../up.git", "remote.other.url=../up.git"),
    "remote rename": ("git remote rename origin up", "remote.up.url=../up.git"),
    "fetch and switch": ("git fetch -q; git switch -q dev", "branch.dev.remote=origin"),
    "checkout with tracking": ("git checkout -q -b mine --track origin/dev", "branch.mine.merge=refs/heads/dev"),
    "push -u": ("git switch -q -c new; git push -q -u origin new", "branch.new.remote=origin"),
    "rename the branch": ("git branch -m renamed; git rev-parse HEAD", ""),
    "commit": ("echo b > b; git add b; git commit -qm two; git log --oneline | grep two", ""),
    "stash": ("echo c >> file; git stash -q; git stash pop -q; grep c file", ""),
    "rebase": ("git switch -q -c r; git commit -q --allow-empty -m r; git rebase -q origin/dev", ""),
    "worktree": ("git worktree add -q -b w tree origin/dev; git -C tree config user.email w@w", "user.email=w@w"),
    "submodule": (
        "git submodule --quiet add ../up.git sub; git submodule --quiet update --init", "submodule.sub.active=true",
    ),
    "clone": ("git clone -q ../up.git copied; git -C copied config user.name c; git -C copied log | grep x", ""),
    "init inside": ("git init -q inner; git -C inner remote add o ../x; git -C inner config user.name a", ""),
}  # fmt: skip


def prepared(project: Path) -> None:
    """A repository with a remote beside it."""
    repository(project)
    git(project, "config", "user.name", "a")
    git(project, "config", "user.email", "a@b")
    git(project, "init", "-q", "-b", "main", "--bare", "../up.git")
    git(project, "remote", "add", "origin", "../up.git")
    git(project, "push", "-q", "origin", "HEAD:main", "HEAD:dev")
    git(project, "fetch", "-q")


def config_of(project: Path) -> list[str]:
    return git(project, "config", "--local", "--list").splitlines()


@pytest.mark.parametrize("name", EVERYDAY)
async def test_everyday_git_works(tmp_path: Path, name: str) -> None:
    command, kept = EVERYDAY[name]
    config = f'[tools.sandbox]\nallow_write = ["{tmp_path}/up.git"]\n'
    command = f"{QUIET}{command}\necho all went well"
    async with confined(tmp_path, command, config=config, before=prepared) as r:
        (told,) = results(r, 2)
        assert "all went well" in told and "Not taken over" not in told
        assert kept in ["", *config_of(r.project)]
        assert git(r.project, "status", "--porcelain", "--branch").startswith("## ")
        assert not (r.project / ".git/commondir").exists() and not (r.project / ".git/config").is_symlink()
    assert not [line for line in audit(tmp_path) if "made the git repository" in line.get("reason", "")]


@pytest.mark.parametrize("terminal", [False, True])
async def test_a_new_repository_is_there_after_the_command_and_names_no_program(tmp_path: Path, terminal: bool) -> None:
    make = (
        "git init -q && git config user.name n && git config user.email n@n && git config core.fsmonitor false\n"
        "git config core.pager evil; echo evil > .git/hooks/pre-commit; chmod 755 .git/hooks/pre-commit\n"
        "touch f && git add f && git commit -q --no-verify -m first; git log --oneline | cat"
    )
    script = rounds(bash(make), bash("git log --oneline; git switch -q -c b; git config branch.b.rebase true"))
    async with went(tmp_path, script, mode="auto", sandbox=True, terminal=terminal) as r:
        first, second = results(r, 3)
        assert "first" in first and "`core.pager`" in first and "`hooks/pre-commit`" in first
        assert "first" in second and "Not taken over" not in second
        found = config_of(r.project)
        assert {"user.name=n", "branch.b.rebase=true"} <= set(found)
        assert not [line for line in found if "fsmonitor" in line or "pager" in line]
        assert all(hook.suffix == ".sample" for hook in (r.project / ".git/hooks").iterdir())
        assert "first" in git(r.project, "log", "--oneline")


async def test_what_names_a_program_is_taken_back_and_told_and_the_rest_kept(tmp_path: Path) -> None:
    change = "git config core.hooksPath x; git config user.name new; git config alias.st '!evil'; git config user.name"
    async with confined(tmp_path, change, "git config --list --local", before=repository) as r:
        first, second = results(r, 3)
        assert first.startswith("new\n")
        assert "`core.hookspath`, `alias.st`" in first
        assert "hookspath" not in second
        assert "user.name=new" in config_of(r.project)
        assert not {"core.hookspath=x", "alias.st=!evil"} & set(config_of(r.project))


def changed(folder: Path, before: str, changes: list[tuple[str, str]]) -> tuple[GitCopies, Path]:
    """A repository with that configuration, whose copy was changed."""
    config = put(Path(os.path.realpath(folder)) / ".git/config", before)
    copies = GitCopies(config.parents[1], [config.parent], [])
    assert copies.copies is not None
    for key, value in changes:
        subprocess.run(["git", "config", "--file", copies.copies.folder / "0/config", key, value], check=True, cwd="/")
    return copies, config


PROGRAMS = (
    "core.hooksPath core.fsmonitor core.sshCommand core.editor core.pager core.askPass core.gitProxy core.worktree "
    "core.alternateRefsCommand core.attributesFile core.excludesFile alias.x filter.x.clean filter.x.process "
    "diff.external diff.x.command diff.x.textconv merge.x.driver credential.helper credential.x.helper include.path "
    "includeIf.x.path gpg.program gpg.ssh.program remote.x.uploadpack remote.x.receivepack remote.x.vcs "
    "remote.x.proxy submodule.x.update url.x.insteadOf url.x.pushInsteadOf protocol.ext.allow protocol.allow "
    "sequence.editor interactive.diffFilter difftool.x.cmd mergetool.x.cmd browser.x.cmd man.x.cmd pager.log "
    "uploadpack.packObjectsHook receive.procReceiveRefs trailer.x.command trailer.x.cmd sendemail.smtpserver "
    "extensions.worktreeConfig extensions.partialClone http.proxy http.sslVerify http.cookieFile init.templateDir "
    "commit.template blame.ignoreRevsFile gc.recentObjectsHook safe.directory uploadarchive.allowUnreachable "
    "tar.x.command web.browser instaweb.httpd guitool.x.cmd fetch.recurseSubmodules push.gpgSign notes.displayRef "
    "remote.x.mirror remote.x.push rebase.instructionFormat pull.twohead"
).split()
VALUES = ["-e", "--global", "!touch x", "touch x; false", "ext::sh -c x", "/tmp/evil", "-x", "true", "../evil", "x"]
PLAIN = ["user.name", "user.email", "branch.x.merge", "core.autocrlf", "pull.rebase"]
ADDRESSES = ["remote.x.url", "remote.x.pushurl", "submodule.x.url", "branch.x.remote", "remote.pushDefault"]


@settings(max_examples=examples(15), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.sampled_from([*PROGRAMS, *PLAIN, *ADDRESSES]), st.sampled_from(VALUES)), max_size=4))
def test_never_does_a_key_that_names_a_program_get_into_the_configuration(tmp_path: Path, changes) -> None:
    folder = tmp_path / f"r{len(list(tmp_path.iterdir()))}"
    copies, config = changed(folder, "[user]\n\tname = old\n", changes)
    told = copies.take_over()
    listed = subprocess.run(["git", "config", "--file", config, "--list"], capture_output=True, text=True)
    found = dict(line.split("=", 1) for line in listed.stdout.splitlines())
    programs = {key.lower() for key in PROGRAMS}
    assert not programs & {key.lower() for key in found}
    addresses = {key: value for key, value in found.items() if key in map(str.lower, ADDRESSES)}
    assert not [value for value in addresses.values() if value.startswith("-") or "::" in value]
    assert not addresses.keys() - {"submodule.x.url"}  # Each of the values is a folder, or a program.
    for key, value in dict(changes).items():
        if key in PLAIN:
            assert found[key.lower()] == value
        if key in PROGRAMS:
            assert f"`{key.partition('.')[0].lower()}" in told.lower()
