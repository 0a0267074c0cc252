"""Special paths in a folder: protected, hidden, trusted, a worktree's; and the environment of commands."""

import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from acp_agent.config.safety_settings import SAFE_VARIABLES
from acp_agent.credentials.redactor import Redactor
from acp_agent.disk import Folder
from acp_agent.executors.sandbox import common_dirs
from acp_agent.opening import Opening
from acp_agent.safety.environment import safe_environment
from acp_agent.safety.folders.folder_trust import CONFIG, own_files, scope_of, tools_of
from acp_agent.safety.folders.paths import Roots
from acp_agent.safety.folders.protect import PathRules
from acp_agent.safety.folders.repository import Repository, repository_of
from acp_agent.safety.lines.git_folder import repository_around
from acp_agent.schema.acp import NewSessionRequest
from tests.agent.kit import environ_for, put, puts
from tests.repositories import git
from tests.tables import packed

ROOT = Path("/srv/app")


@pytest.mark.parametrize(("path", "name"), [
    ("/srv/app/.git/hooks/pre-commit", ".git"), ("/srv/app/sub/.git/config", ".git"),
    ("/srv/app/.mcp.json", ".mcp.json"), ("/srv/app/a/.vscode/tasks.json", ".vscode"), ("/srv/app/.bashrc", ".bashrc"),
    ("/srv/app/.config/fish/config.fish", ".config/fish"), ("/srv/app/.config/other", None),
    ("/srv/app/.GIT/Hooks/pre-commit", ".git"), ("/srv/app/.BashRC", ".bashrc"), ("/srv/app/.gitignore", None),
    ("/srv/app/x.vscode/a", None),
])  # fmt: skip
def test_what_other_programs_trust_is_protected_at_any_depth(path: str, name: str | None) -> None:
    assert PathRules().protects(Path(path)) == name


def test_deny_then_allow_and_an_empty_list_still_protects_repositories() -> None:
    rules = PathRules(deny_read=[".env*", "~/keys"], allow_read=[".env.example"], bases=[ROOT], home=Path("/home/u"))
    assert rules.hides(ROOT / ".env") and rules.hides(ROOT / "a/.env.local") and rules.hides(Path("/home/u/keys/a"))
    assert not rules.hides(ROOT / ".env.example") and not rules.hides(ROOT / "env")
    assert not PathRules().hides(ROOT / ".env")
    rules = PathRules(protect=[])
    assert rules.protects(ROOT / ".git/hooks/x") == ".git" and rules.protects(ROOT / ".vscode/x") is None


# --- worktrees ---------------------------------------------------------------------------------------------------


def worktree(tmp_path: Path) -> tuple[Path, Path]:
    main, tree = tmp_path / "main", tmp_path / "tree"
    main.mkdir()
    git(main, "init", "-q")
    git(main, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "--allow-empty", "-m", "x")
    git(main, "worktree", "add", "-q", str(tree))
    return main, tree


def found(folder: Path) -> Repository | None:
    return repository_of(folder, Roots(folder))


def test_a_worktrees_repository_may_be_written_but_for_its_hooks_and_configuration(tmp_path: Path) -> None:
    main, tree = worktree(tmp_path)
    places = found(tree)
    assert places is not None and places.writable == (main / ".git",)
    assert set(places.protected) >= {main / ".git/hooks", main / ".git/config"}


def test_a_git_file_that_nothing_points_back_to_gives_nothing(tmp_path: Path) -> None:
    main, tree = worktree(tmp_path)
    other, keys = tmp_path / "other", tmp_path / "keys"
    other.mkdir()
    keys.mkdir()
    git(tmp_path, "init", "-q", "new")
    leads = (f"gitdir: {keys}\n", "gitdir: ../main/.git\n", "gitdir: ../new/.git\n", "nonsense")
    for named in ((tree / ".git").read_text(), *leads):
        (other / ".git").write_text(named)
        places = found(other)
        assert places is not None and places.why
        assert places.writable == places.readable == ()
    places = found(main)
    assert places is not None
    assert places.writable == places.readable == ()
    (tmp_path / "none").mkdir()
    assert found(tmp_path / "none") is None


def test_a_worktree_gives_nothing_of_a_folder_that_is_more_than_a_repository_nor_of_one_that_is_not_to_be_opened(
    tmp_path: Path,
) -> None:
    main, tree = worktree(tmp_path)
    git(main, "worktree", "add", "-q", str(main / ".git/inner"))
    project, archive = tmp_path / "unpacked/project", tmp_path / "unpacked"
    for name, text in {
        "project/.git": "gitdir: ../worktrees/w\n", "worktrees/w/gitdir": "../../project/.git\n",
        "worktrees/w/commondir": "../..\n", "worktrees/w/HEAD": "ref: refs/heads/x\n", "objects/x": "",
    }.items():  # fmt: skip
        put(archive / name, text)
    cases = (
        (project, Roots(project), "has more in it than a repository"),
        (main / ".git/inner", Roots(main / ".git/inner"), "has more in it than a repository"),
        (tree, Roots(tree, rules=PathRules(home=main / ".git/home")), "has more in it than a repository"),
        (tree, Roots(tree, within=[tree]), "outside of the folders that may be opened"),
        (tree, Roots(tree, rules=PathRules(deny_read=[str(main / ".git")])), "is hidden"),
    )
    for folder, roots, words in cases:
        places = repository_of(folder, roots)
        assert places is not None and words in places.why, (folder, words)
        assert places.writable == places.readable == ()
    assert (places := repository_of(tree, Roots(tree, within=[tmp_path]))) is not None and places.writable


def test_what_keeps_a_repository_as_it_is_stays_while_another_agents_command_needs_it(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    place = tmp_path / ".git"
    other = "from pathlib import Path; from acp_agent.executors.sandbox.common_dirs import hold, release"
    held = common_dirs.hold([place])
    assert held == [place / "commondir", place / "config.worktree"]
    for _ in range(2):
        code = f"{other}; held = hold([Path({str(place)!r})]); assert len(held) == 2; release(held)"
        subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
        assert all(path.exists() for path in held)
    common_dirs.release(held)
    assert not any(path.exists() for path in held)


def enclosed(tmp_path: Path) -> tuple[Path, Path]:
    root, sub = tmp_path / "root", tmp_path / "root/one/sub"
    sub.mkdir(parents=True)
    git(root, "init", "-q")
    git(root, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "--allow-empty", "-m", "x")
    return root, sub


def test_a_repository_above_is_written_and_its_files_are_read(tmp_path: Path) -> None:
    root, sub = enclosed(tmp_path)
    around = found(sub)
    assert around is not None
    assert (around.top, around.git, around.why) == (root, root / ".git", "")
    assert (around.writable, around.readable) == ((root / ".git",), (root,))
    assert around.opened == {path: Folder(path).identity for path in (root, root / ".git")}
    (root / ".git").rename(root / "was")
    assert not around.is_there
    (root / "was").rename(root / ".git")
    (root / "one/.git").mkdir()  # A place holder, or what somebody has begun: git goes on.
    around = found(sub)
    assert around is not None and around.top == root


def test_a_repository_above_stays_so_while_commands_begin_and_end(tmp_path: Path) -> None:
    """Each puts a file there that says that it is its own repository, and removes it."""
    top, folder = enclosed(tmp_path)
    over = threading.Event()

    def commands() -> None:
        while not over.is_set():
            common_dirs.release(common_dirs.hold([top / ".git"]))

    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(commands)
        try:
            looks = [repository_of(folder, Roots(folder)) for _ in range(300)]
        finally:
            over.set()
        running.result(60)
    assert {look.why for look in looks if look is not None} == {""} and None not in looks


def test_a_repository_above_that_is_not_the_users_own_gives_nothing(tmp_path: Path) -> None:
    root, sub = enclosed(tmp_path)
    (other := tmp_path / "other").mkdir()
    cases: dict[str, Roots] = {
        "it is that of the home folder": Roots(sub, rules=PathRules(home=root)),
        "or of one above it": Roots(sub, rules=PathRules(home=root / "one")),
        "outside of the folders that may be opened": Roots(sub, within=[root / "one"]),
        "only the folder": Roots(other, [sub]),
        "is hidden": Roots(sub, rules=PathRules(deny_read=[str(root / ".git")])),
    }
    for words, roots in cases.items():
        around = repository_of(sub, roots)
        assert around is not None
        assert words in around.why
        assert around.writable == around.readable == ()
    opened = Opening(environ_for(tmp_path, "http://127.0.0.1:9/v1"), {}, [str(sub)]).new(
        NewSessionRequest(cwd=str(sub), mcp_servers=[])
    )
    around = repository_of(sub, opened.roots)
    assert around is not None and "outside of the folders" in around.why, "as a token of a server may open"
    (bare := tmp_path / "bare.git").mkdir()
    git(bare, "init", "-q", "--bare")
    assert found(bare / "hooks") is None and found(root / ".git/hooks") is None


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_a_repository_above_of_another_user_gives_nothing(tmp_path: Path) -> None:
    root, sub = enclosed(tmp_path)
    for path in (root, root / ".git"):
        os.chown(path, 61_234, 61_234)
        around = found(sub)
        assert around is not None and "belongs to another user" in around.why
        os.chown(path, 0, 0)
    assert (around := found(sub)) is not None and not around.why
    (tmp_path / "of").mkdir()
    main, tree = worktree(tmp_path / "of")
    os.chown(main / ".git", 61_234, 61_234)
    assert (around := found(tree)) is not None and "belongs to another user" in around.why and not around.writable


INIT = """
git init ¦ git init . ¦ /usr/bin/git init -q ¦ git -c a.b=c init ¦ git -C deep init ¦ git init -b main deep
git init --bare x.git ¦ git init-db ¦ git init --separate-git-dir /x/y ¦ git init ../other
"""
NO_INIT = """
git status ¦ git -C / init ¦ git init /tmp/x ¦ git init {root} ¦ git -C ../.. init ¦ git clone x ¦ git log init
git init -q ../../..
"""


def test_git_init_within_a_repository_is_known_by_its_words(tmp_path: Path) -> None:
    root, sub = enclosed(tmp_path)
    for line in packed(INIT):
        assert repository_around(line.split(), [sub], None) == str(root), line
        assert repository_around(line.split(), [sub], root) == "", "that of the home folder"
    for line in packed(NO_INIT.format(root=root)):
        assert repository_around(line.split(), [sub], None) == "", line


# --- a folder's own files ----------------------------------------------------------------------------------------


def test_trust_belongs_to_the_bytes_of_configuration_and_tools(tmp_path: Path) -> None:
    assert own_files(tmp_path) == {}
    (tmp_path / ".acp-coder/tools").mkdir(parents=True)
    (tmp_path / CONFIG).write_bytes(b"a = 1\n")
    (tmp_path / ".acp-coder/tools/words.py").write_bytes(b"x")
    (tmp_path / ".acp-coder/tools/_not.py").write_bytes(b"x")
    files = own_files(tmp_path)
    assert set(files) == {CONFIG, ".acp-coder/tools/words.py"}
    assert tools_of(files) == {"words.py": b"x"}
    before = scope_of(files)
    (tmp_path / CONFIG).write_bytes(b"a = 2\n")
    assert scope_of(own_files(tmp_path)) != before
    before = scope_of(own_files(tmp_path))
    (tmp_path / ".acp-coder/hooks").mkdir()
    (tmp_path / ".acp-coder/hooks/check").write_bytes(b"#!/bin/sh\n")
    assert scope_of(own_files(tmp_path)) != before
    assert tools_of(own_files(tmp_path)) == {"words.py": b"x"}
    before = scope_of(own_files(tmp_path))
    (tmp_path / ".acp-coder/hooks/lib").mkdir()
    (tmp_path / ".acp-coder/hooks/lib/more").write_bytes(b"x")
    assert scope_of(own_files(tmp_path)) != before


def test_what_is_no_regular_file_in_its_place_is_not_read(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    (elsewhere / "tools").mkdir(parents=True)
    puts(elsewhere, {"config.toml": "a = 1\n", "tools/a.py": "x"})
    (project := tmp_path / "project").mkdir()
    (project / ".acp-coder").symlink_to(elsewhere)
    assert own_files(project) == {}
    (project / ".acp-coder").unlink()
    (project / ".acp-coder").mkdir()
    (project / CONFIG).symlink_to(elsewhere / "config.toml")
    (project / ".acp-coder/tools").symlink_to(elsewhere / "tools")
    assert own_files(project) == {}


# --- environment -------------------------------------------------------------------------------------------------


def test_commands_inherit_what_is_listed_and_never_a_credential() -> None:
    token = "ghp_" + "a1B2" * 9
    environ = {
        "PATH": "/bin", "LC_ALL": "C", "GOPATH": "/go", "VIRTUAL_ENV": "/v", "OPENAI_API_KEY": "k",
        "GITHUB_TOKEN": token, "NPM_CONFIG__AUTHTOKEN": "x", "CARGO_REGISTRY_TOKEN": "x",
        "PIP_INDEX_URL": f"https://user:{token}@example.com/simple", "DATABASE_URL": "postgres://x",
        "SSH_AUTH_SOCK": "/run/x", "MINE": "1", "MY_SECRET": "wanted", "OWN": "hidden",
    }  # fmt: skip
    redact = Redactor().redact
    passed = safe_environment(
        environ, SAFE_VARIABLES, ["MINE", "MY_SECRET", "OWN"], {"OWN"}, lambda value: redact(value) != value
    )
    assert passed == {name: environ[name] for name in ("PATH", "LC_ALL", "GOPATH", "VIRTUAL_ENV", "MINE", "MY_SECRET")}
