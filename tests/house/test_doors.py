"""Where the wings that decide and mount may follow a name: between the look at a name and its use, a command puts
something else there. So names are followed in few places; behind them there are identities and handles."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from .imports import ROOT, modules, parsed

WINGS = ("safety", "executors/sandbox", "loop/shell")
RESOLVES = frozenset(("resolve", "realpath", "real_path"))
OPENS = frozenset(
    "open read_text read_bytes write_text write_bytes mkdir makedirs touch unlink remove rename rmdir chmod chown "
    "symlink_to hardlink_to symlink link truncate copyfile copy2 copytree move rmtree".split()
)

NOT_THE_SESSIONS = (
    *("bare_program", "ending", "pids", "probe", "proxy", "seatbelt", "seccomp", "system", "toolchains"),
    *("private_folder", "audit", "audit_chain", "audit_file"),
)
"""Modules whose paths are the kernel's, the machine's or the agent's own: no command can replace anything there."""

DOORS = {
    # What a name in a call leads to, for a judgement: who uses it afterwards comes to a handle or an identity again.
    "resolves": """
        safety/folders/paths: __init__ _real_path entry real real_path
        safety/folders/protect: __init__
        safety/folders/repository: _above _at _led _names_another _worktree
        safety/folders/survey: _named survey
        safety/folders/watch: _content
        safety/folders/folder_trust: _add_named look
        safety/globs: _literal
        safety/deciding/conditions: _folder
        safety/deciding/subjects: _resolved
        safety/lines/arguments: _both
        safety/lines/git_folder: _names_programs repository_around runs_programs
        safety/lines/looks: _cd
        safety/lines/reach: is_inside key_files lands protected_names
        safety/lines/risk: _real
        executors/sandbox/bubblewrap: _program
        executors/sandbox/visible_paths: plan
        loop/shell/command_paths: _led_away _made named
        loop/shell/command_policy: _protected
        loop/shell/folder_sandbox: _look_through
        loop/shell/side_walls: __init__
        loop/shell/worktrees: _looked_at folder_of
    """,
    # The agent's own folders, and what no link is followed for.
    "opens": """
        safety/folders/folder_trust: look
        safety/folders/protect: also_mounted
        executors/sandbox/base: open_files
        executors/sandbox/bubblewrap: _inside _private confine
        executors/sandbox/common_dirs: _make
        executors/sandbox/landlock_alone: _remove_tree confine
        loop/shell/folder_sandbox: user walls
        loop/shell/git_copies: __init__ _beside _disarm _git _give _inner _make _names _published _remove take_over
        loop/shell/held_files: _hold
        loop/shell/worktrees: _copy_in _is_dirty _lock _made of_folder remove
    """,
}


def follows(call: ast.Call) -> str:
    """What it does with a name, if anything; what is relative to a handle follows none."""
    function = call.func
    name = getattr(function, "attr", getattr(function, "id", ""))
    if name in RESOLVES:
        return "resolves"
    if isinstance(function, ast.Name) and name != "open":
        return ""
    inner = call.args[0] if call.args else None
    of_handle = name == "open" and ast.unparse(getattr(inner, "func", inner) or function) in ("os.open", "descriptor")
    by_handle = of_handle or any(keyword.arg in frozenset(("dir_fd", "src_dir_fd")) for keyword in call.keywords)
    return "opens" if name in OPENS and not by_handle and (call.args or name != "open") else ""


def followed(place: str, tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Of each function that follows names: what it does, and where."""
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            for what in {follows(call) for call in ast.walk(function) if isinstance(call, ast.Call)} - {""}:
                yield what, f"{place}: {function.name}"


@pytest.mark.parametrize("what", DOORS)
def test_names_are_followed_at_the_doors_only(what: str) -> None:
    found = set()
    for file, _ in modules():
        place = Path(*file.relative_to(ROOT).with_suffix("").parts[1:])
        inside = place.as_posix().startswith(tuple(f"{wing}/" for wing in WINGS))
        if inside and not set(place.parts) & set(NOT_THE_SESSIONS):
            found |= {where for does, where in followed(place.as_posix(), parsed(file)) if does == what}
    rows = [row.split(":") for row in DOORS[what].strip().splitlines()]
    doors = {f"{place.strip()}: {name}" for place, names in rows for name in names.split()}
    assert sorted(found - doors) == [], "use Folder, identity_of or the handles of executors/beneath.py"
    assert sorted(doors - found) == [], "these doors are gone"


def test_a_new_door_is_noticed() -> None:
    text = """
def a(path): return os.path.realpath(path)
def b(path): return (path / "x").read_text()
def c(path, above): return os.open(path.name, 0, dir_fd=above), open(descriptor), open(os.open("x", 0, dir_fd=above))
def d(path): return os.open(path, 0)
def e(path): os.mkdir(path)
"""
    found = sorted(followed("m", ast.parse(text)))
    assert found == [("opens", "m: b"), ("opens", "m: d"), ("opens", "m: e"), ("resolves", "m: a")]
