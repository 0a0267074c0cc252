"""Files that other programs load: file tools ask about them each time, commands in the sandbox cannot change those that
are there, and what commands create or change is told."""

import os
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from acp_agent.client.permissions import allow_once, reject_once
from acp_agent.config.trusted_files import EVERY_NAME, TRUSTED, names_of, who_loads
from acp_agent.safety.folders.paths import Roots
from acp_agent.safety.folders.protect import PathRules
from acp_agent.safety.folders.watch import YOUNG, Watch, told
from acp_agent.safety.lines.examine import examine
from acp_agent.testing.fake_model import Call
from acp_agent.undo.folder_watch import Watch as Changes
from tests.nightly import examples
from tests.repositories import committed, git, repository
from tests.tables import packed

from .kit import audit, bash, put, puts, results, rig, rounds, went

NOTHING = "[tools.sandbox]\nprotect = []\nprotect_existing = []\nreport = []\n"
TOLD = "Other programs load by themselves"


def example(name: str) -> str:
    return name.replace("*", "project")


SEVERAL = {
    "write": Call("write", {"path": "sub/.npmrc", "content": "x"}),
    "write in another spelling": Call("write", {"path": "sub/.NpmRC", "content": "x"}),
    "write through a link": Call("write", {"path": "link/config.toml", "content": "x"}),
    "write by a way round": Call("write", {"path": "sub/../.Zed/../.zed//settings.json", "content": "x"}),
    "edit": Call("edit", {"path": ".gitattributes", "old_string": "a", "new_string": "b"}),
    "move": Call("move_path", {"source": "plain", "destination": "sub/.pre-commit-config.yaml"}),
    "copy": Call("copy_path", {"source": "plain", "destination": ".github/workflows/ci.yml"}),
    "delete": Call("delete_path", {"path": ".gitattributes"}),
    "patch": Call("apply_patch", {"input": "*** Begin Patch\n*** Add File: a.code-workspace\n+{}\n*** End Patch"}),
}


def prepare(project: Path) -> None:
    (project / "sub").mkdir()
    (project / ".cargo").mkdir()
    (project / "link").symlink_to(".cargo")
    puts(project, {".gitattributes": "a\n", "plain": "x\n"})


@pytest.mark.parametrize("mode", ["code", "auto"])
@pytest.mark.parametrize("controlled", [False, True])
async def test_file_tools_ask_about_them_each_time_in_every_mode(tmp_path: Path, mode: str, controlled: bool) -> None:
    calls = [*SEVERAL.values(), Call("write", {"path": "sub/.npmrc", "content": "y"})]
    script = [answer for call in (Call("read", {"path": ".gitattributes"}), *calls) for answer in rounds(call)]
    async with rig(tmp_path, script, mode="auto", config=NOTHING if controlled else "", otherwise=reject_once) as r:
        if mode == "code":
            await r.editor.client.set_session_mode(r.editor.session_id, mode)
        prepare(r.project)
        for _ in range(len(calls) + 1):
            await r.editor.prompt("go")
        if controlled:
            assert len(r.editor.permission_requests) == (len(calls) if mode == "code" else 0)
            assert (r.project / "sub/.npmrc").exists() == (mode == "auto")
            return
        assert len(r.editor.permission_requests) == len(calls)
        assert not list((r.project / "sub").iterdir())


async def test_the_question_says_who_loads_the_file_and_when(tmp_path: Path) -> None:
    script = rounds(Call("write", {"path": "sub/.npmrc", "content": "x"}))
    async with went(tmp_path, script, mode="auto", otherwise=reject_once) as r:
        (asked,) = r.editor.permission_requests
        assert "is loaded by npm, pnpm, Yarn when started in the folder" in str(asked.tool_call.content)


def test_every_name_is_protected_in_any_folder_and_spelling(tmp_path: Path) -> None:
    rules = PathRules()
    for name in map(example, EVERY_NAME):
        for text in (name, name.upper(), f"a/b/{name}", f"{name}/below", name[:2] + "\u200c" + name[2:]):
            assert rules.protects(tmp_path / text) is not None, text
        if not name.startswith((".git/", "project.")):
            assert not any(rules.protects(tmp_path / text) for text in (f"{name}_", f"_{name}")), name
    assert all(who_loads(example(name)) in TRUSTED for name in EVERY_NAME)
    assert len(set(EVERY_NAME)) == len(EVERY_NAME)


THROUGH_LINKS = ("echo evil > sub/real", "echo evil > flows/ci.yml", "echo evil > c/config.toml", "echo evil > sub/x")


async def test_what_a_link_of_such_a_name_leads_to_is_told(tmp_path: Path) -> None:
    script = [answer for line in THROUGH_LINKS for answer in rounds(bash(line))]
    async with rig(tmp_path, script, mode="auto", sandbox=True, terminal=False) as r:
        for name in ("sub", "flows", ".github", "c"):
            (r.project / name).mkdir()
        for link, target in (("sub/.npmrc", "real"), (".github/workflows", "../flows"), ("sub/.cargo", "../c")):
            (r.project / link).symlink_to(target)
        for name in ("sub/real", "flows/ci.yml"):
            (r.project / name).write_text("x\n")
        said = []
        for number in range(1, len(THROUGH_LINKS) + 1):
            await r.editor.prompt("go")
            said.append(results(r, 2 * number)[-1])
        names = ("`sub/.npmrc` (changed", "`.github/workflows` (changed", "`sub/.cargo/config.toml` (new")
        assert all(name in text for name, text in zip(names, said, strict=False)), said
        assert TOLD not in said[-1], "the control"


LINES = packed("""
echo x > .npmrc ¦ echo x >> sub/.zed/settings.json ¦ tee .pre-commit-config.yaml ¦ sed -i s/a/b/ .gitattributes
sed --in-place -e s/a/b/ sub/.gitattributes ¦ perl -pi -e s/a/b/ .cargo/config.toml
cp plain .github/workflows/ci.yml ¦ cp sub/.npmrc . ¦ cp -t . sub/.npmrc ¦ mv plain/.zed . ¦ ln -s plain .exrc
touch .dir-locals.el ¦ mkdir .cursor ¦ install plain .envrc
""")

HARMLESS = packed("""
sed -i s/.npmrc/x/ plain ¦ cp plain sub ¦ git add .npmrc ¦ cat .npmrc ¦ grep -r x .github ¦ npm install
""")


def test_lines_that_write_them_are_a_high_risk(tmp_path: Path) -> None:
    prepare(tmp_path)
    roots, control = Roots(tmp_path), Roots(tmp_path, rules=PathRules(protect=[]))
    for line in LINES:
        assert examine(line, roots, tmp_path).risk.level == "high", line
        assert examine(line, control, tmp_path).risk.level == "medium", line
    for line in HARMLESS:
        assert examine(line, roots, tmp_path).risk.level != "high", line


# --- commands in the sandbox -------------------------------------------------------------------------------------

EXISTING = [".helix/config.toml", ".cargo/config.toml", ".npmrc", "my.code-workspace", ".claude/settings.json"]


@pytest.mark.parametrize("controlled", [False, True])
async def test_a_command_cannot_change_those_that_are_there(tmp_path: Path, controlled: bool) -> None:
    script = rounds(bash("; ".join(f"echo evil >> {name}" for name in EXISTING) + "; mv .helix other; rm .npmrc; true"))
    config = NOTHING if controlled else ""
    async with rig(
        tmp_path, script, mode="auto", sandbox=True, terminal=False, config=config, otherwise=allow_once
    ) as r:
        for name in EXISTING:
            put(r.project / name, "mine\n")
        await r.editor.prompt("go")
        intact = all((r.project / n).exists() and (r.project / n).read_text() == "mine\n" for n in EXISTING)
        assert intact is not controlled


# The names are made by the command, so that its line does not tell.
MAKE = "d=npm; n=.${d}rc; echo x > $n; mkdir -p sub/.vsc''ode; echo {} > sub/.vsc''ode/tasks.json"


@pytest.mark.parametrize("controlled", [False, True])
async def test_what_a_command_creates_of_them_is_told_at_its_end(tmp_path: Path, controlled: bool) -> None:
    script = rounds(bash(MAKE), bash("true"))
    config = NOTHING if controlled else ""
    async with went(
        tmp_path, script, mode="auto", sandbox=True, terminal=False, config=config, otherwise=allow_once
    ) as r:
        first, second = results(r, 3)
        assert (r.project / ".npmrc").exists() and (r.project / "sub/.vscode/tasks.json").exists()
        assert (TOLD in first) is not controlled
        assert TOLD not in second, "once is enough"
        if controlled:
            return
        assert "`.npmrc` (new, loaded by npm, pnpm, Yarn when started in the folder)" in first
        assert "`sub/.vscode` (new, loaded by VS Code and editors made from it when the folder is opened)" in first
    assert [line for line in audit(tmp_path) if TOLD in line.get("reason", "")]


async def test_everyday_commands_work_and_say_one_line_at_most(tmp_path: Path) -> None:
    """Also git, where another branch has other workflows: these are told, not refused."""
    script = rounds(
        bash("git switch -q other && cat .github/workflows/ci.yml"),
        bash("git switch -q main && git init -q && echo x > package.json"),
        bash("d=.vs; mkdir -p node_modules/a/${d}code && touch .gitignore"),
    )
    async with rig(tmp_path, script, mode="auto", sandbox=True, terminal=False, before=repository) as r:
        git(r.project, "branch", "-M", "main")
        (r.project / ".github/workflows").mkdir(parents=True)
        for branch in ("main", "other"):
            git(r.project, "switch", "-q", *(["-c"] if branch == "other" else []), branch)
            (r.project / ".github/workflows/ci.yml").write_text(f"of {branch}\n")
            committed(r.project, ".", message=branch)
        git(r.project, "switch", "-q", "main")
        await r.editor.prompt("go")
        first, second, third = results(r, 4)
        assert "of other" in first
        assert first.count(TOLD) == second.count(TOLD) == 1
        assert "`.github/workflows` (changed" in first
        assert TOLD not in third
        assert not git(r.project, "status", "--porcelain", ".github")
        assert not r.editor.permission_requests


async def test_what_a_file_tool_wrote_with_permission_is_not_told_of_the_next_command(tmp_path: Path) -> None:
    script = rounds(bash("true"), Call("write", {"path": ".npmrc", "content": "x"}), bash("true"))
    async with went(tmp_path, script, mode="auto", sandbox=True, terminal=False, otherwise=allow_once) as r:
        assert (r.project / ".npmrc").exists()
        assert TOLD not in "".join(results(r, 4))


# --- the watch ---------------------------------------------------------------------------------------------------


def watch_of(root: Path, home: Path | None = None, how: str = "asked") -> Watch:
    """`how`: the system tells what changes, or each folder is asked; or the first walk has not begun."""
    watch = Watch([root], EVERY_NAME, home, lambda found: False, Changes if how == "told" else None)
    if how != "late":
        watch.look()
    return watch


PLACES = st.sampled_from(["", "a", "a/b", "a/b/c", "d"])
NAMES = st.sampled_from([example(name) for row in TRUSTED if not row.home for name in row.names.split()])
HOW = st.sampled_from(["file", "folder", "moved in", "link", "renamed", "in another folder"])


@settings(max_examples=examples(60), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(PLACES, NAMES, HOW), max_size=4), st.sampled_from(["asked", "told", "late"]))
def test_nothing_of_these_names_comes_into_being_unnoticed(tmp_path_factory, made, tells: str) -> None:
    root = tmp_path_factory.mktemp("root")
    (root / "a/b").mkdir(parents=True)
    (root / "x").write_text("x")
    watch = watch_of(root, how=tells)
    watch.began()
    expected: set[Path] = set()
    for place, name, how in made:
        path = root / place / name
        if name.startswith(".git/") or any(up.exists() and not up.is_dir() for up in path.parents) or path.exists():
            continue
        if any(PathRules().protects(up) is not None for up in path.parents):
            continue
        if how == "in another folder" and place and path.parent.exists():
            (root / "old").mkdir(exist_ok=True)
            path.parent.rename(root / "old" / str(len(expected)))
            expected = {root / "old" / str(len(expected)) / p.relative_to(path.parent)
                        if path.parent in p.parents else p for p in expected}  # fmt: skip
        path.parent.mkdir(parents=True, exist_ok=True)
        match how:
            case "file" | "in another folder":
                path.write_text("x")
            case "folder":
                path.mkdir()
            case "moved in":
                (root.parent / "out").mkdir(exist_ok=True)
                (root.parent / "out").rename(path)
            case "link":
                path.symlink_to(root / "x")
            case "renamed":
                (root / "y").write_text("x")
                (root / "y").rename(path)
        expected.add(path)
    assert set(watch.ended()) == expected
    watch.began()
    assert not watch.ended()
    watch.close()


def test_what_takes_long_to_list_is_told_later_and_nothing_that_was_there_before(tmp_path: Path) -> None:
    """One folder at a time: the first command begins and ends before the others are listed."""
    for number in range(5):
        old = put(tmp_path / str(number) / "inner" / ".npmrc", "x")
    while time.time_ns() < old.stat().st_ctime_ns + 2 * YOUNG:
        os.stat(old)
    watch = watch_of(tmp_path, how="late")
    watch.began()
    made = {tmp_path / str(number) / "inner" / ".envrc" for number in range(5)}
    for path in made:
        path.write_text("x")
    told = watch.ended(0.0)
    while not watch.walked:
        watch.walk_on(0.0)
    watch.began()
    assert not told and watch.ended() == dict.fromkeys(made, "new")


def test_what_is_made_while_two_commands_run_is_told_once_also_if_a_third_begins(tmp_path: Path) -> None:
    watch = watch_of(tmp_path)
    watch.began()
    (tmp_path / ".npmrc").write_text("x")
    watch.look()
    watch.began()
    assert watch.ended() == {tmp_path / ".npmrc": "new"} and watch.ended() == {}


def test_some_count_in_the_home_folder_only(tmp_path: Path) -> None:
    watch = watch_of(tmp_path, tmp_path / "home")
    watch.began()
    for folder in (tmp_path / "home", tmp_path / "dotfiles"):
        (folder / ".config/systemd").mkdir(parents=True)
        (folder / ".tmux.conf").write_text("x")
    assert set(watch.ended()) == {tmp_path / "home/.config/systemd", tmp_path / "home/.tmux.conf"}


def test_a_change_is_noticed_whatever_the_time_of_the_file_says(tmp_path: Path) -> None:
    inner = tmp_path / ".github/workflows/ci.yml"
    put(inner, "a")
    before = inner.stat()
    watch = watch_of(tmp_path)
    watch.began()
    inner.write_text("b")
    os.utime(inner, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert watch.ended() == {inner.parent: "changed"}
    watch.began()
    inner.write_text("b")
    assert not watch.ended(), "the same content is no change"


def test_a_sentence_names_a_few_and_counts_the_others(tmp_path: Path) -> None:
    words = told({tmp_path / str(n) / ".npmrc": "new" for n in range(9)}, str, PathRules().protects)
    assert words.count(".npmrc") == 5
    assert "and 4 more" in words


def test_the_levels_are_the_defaults_of_the_three_keys() -> None:
    assert sum(len(names_of(level)) for level in ("protect", "protect_existing", "report")) == len(EVERY_NAME)
