"""Never: whatever is planted in a tree, every special path that is touched with it is among the accesses."""

import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from acp_agent.errors import ExecutorError
from acp_agent.safety.folders.protect import PathRules, links_to
from acp_agent.safety.folders.trees import Judged, Mode, TooMany, special_in
from tests.nightly import examples

NAMES = (
    "a", "b", ".git", ".GIT", ".vscode", ".config", ".Config", "fish", "acp-coder", "ACP-CODER", "keys", "x.pem",
    ".env",
)  # fmt: skip

paths = st.lists(st.sampled_from(NAMES), min_size=1, max_size=4).map("/".join)
entries = st.lists(st.tuples(paths, st.sampled_from(("file", "folder", "link", "dangling"))), max_size=12)


def plant(top: Path, wanted: list[tuple[str, str]]) -> None:
    for name, kind in wanted:
        path = top / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            if kind == "file":
                path.touch()
            elif kind == "folder":
                path.mkdir(exist_ok=True)
            else:
                path.symlink_to("." if kind == "link" else "nowhere")
        except OSError:
            continue


def all_of(top: Path) -> Iterator[tuple[Path, os.stat_result]]:
    below = [] if top.is_symlink() else sorted(top.rglob("*"))
    for path in (top, *below):
        if os.path.lexists(path):
            yield path.relative_to(top), path.lstat()


@settings(max_examples=examples(300))
@given(planted=entries, source=paths, destination=paths, moves=st.booleans())
def test_every_special_path_that_a_tree_touches_is_judged(planted, source, destination, moves):
    with tempfile.TemporaryDirectory() as made:
        home = Path(os.path.realpath(made))
        plant(home, planted)
        own = home / ".config/acp-coder"
        rules = PathRules(deny_read=["keys", "*.pem"], bases=[home], own=[own])
        tree, at = home / source, home / destination
        if os.path.realpath(tree.parent) != str(tree.parent) or not os.path.lexists(tree):
            return
        leaves: Mode = "delete" if moves else "read"
        found = special_in(tree, [(leaves, tree), ("write", at)], rules, 1000)
        judged = {(access.mode, access.path) for access in found}

        def covers(mode: Mode, path: Path) -> bool:
            return any((mode, place) in judged for place in (path, *path.parents))

        for relative, status in all_of(tree):
            for mode, place in ((leaves, tree), ("write", at)):
                path = place / relative
                key = mode != "write" and rules.key_file(path) is not None
                if rules.hides(path) or key or (mode != "read" and rules.protects(path) is not None):
                    assert covers(mode, path), (mode, path)
                folded, end = str(own).casefold(), f"{path}/".casefold()
                if mode == "write" and not stat.S_ISDIR(status.st_mode) and folded.startswith(end):
                    assert covers(mode, own) or covers(mode, rules.own[0]), path  # `.config` may be a link.
        if moves and str(own).casefold().startswith(f"{tree}/".casefold()):
            assert covers("delete", own) or covers("delete", rules.own[0])


def test_links_on_the_way_to_an_own_file_stand_for_it(tmp_path):
    home = Path(os.path.realpath(tmp_path))
    (home / "dots" / "conf").mkdir(parents=True)
    (home / "second").symlink_to("dots/../dots/conf")
    (home / ".config").symlink_to(home / "second")
    named = home / ".config" / "acp-coder" / "config.toml"
    real = home / "dots/conf/acp-coder/config.toml"
    rules = PathRules(own=[named])
    assert rules.own == (real,)
    assert list(links_to(named)) == [home / ".config", home / "second"]
    for path in (".config", "second", "dots", "DOTS/Conf", "dots/conf/acp-coder"):
        assert rules.own_below(home / path) == [real], path
    assert rules.own_below(home / "dots/other") == []


def test_a_loop_of_links_on_the_way_ends(tmp_path):
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    PathRules(own=[tmp_path / "a" / "config.toml"])


def test_a_tree_that_is_too_large_is_not_judged_in_part(tmp_path):
    for number in range(5):
        (tmp_path / str(number)).touch()
    with pytest.raises(TooMany):
        special_in(tmp_path, [("delete", tmp_path)], PathRules(), 4)
    assert special_in(tmp_path, [("delete", tmp_path)], PathRules(), 5) == []


def test_only_what_was_judged_may_be_touched(tmp_path):
    rules = PathRules(deny_read=["keys"], bases=[tmp_path], own=[tmp_path / "own/file"])
    (tmp_path / "d" / ".git").mkdir(parents=True)
    judged = Judged(special_in(tmp_path / "d", [("delete", tmp_path / "d")], rules, 10), rules)
    judged("delete", tmp_path / "d/.git/hooks/x", stat.S_IFREG)
    judged("delete", tmp_path / "d/new", stat.S_IFREG)
    for mode, path, kind in (
        ("write", "d/.git/hooks/x", stat.S_IFREG), ("delete", "d/.vscode", stat.S_IFDIR),
        ("delete", "d/.git/keys", stat.S_IFDIR), ("write", "own", stat.S_IFLNK), ("write", "own/file", stat.S_IFREG),
        ("write", "x/.config", stat.S_IFLNK),
    ):  # fmt: skip
        with pytest.raises(ExecutorError, match="must not be touched"):
            judged(mode, tmp_path / path, kind)
    shutil.rmtree(tmp_path / "d")
