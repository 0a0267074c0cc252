"""Finding files and lines: the same answers from ripgrep and from our own walk."""

import os
import subprocess
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import anyio
from hypothesis import given, settings
from hypothesis import strategies as st

from acp_agent.executors import files
from tests.executors.test_search import PROGRAMS, open_place, searched
from tests.files import put

PARTS = st.lists(st.sampled_from("a ab a-b c.py d.log .e ü".split()), min_size=1, max_size=4).map("/".join)


GLOBS: dict[str, Callable[[str, str], bool]] = {
    "*": lambda name, kind: True, "*.py": lambda name, kind: name.endswith(".py"),
    "a/": lambda name, kind: Path(name).name == "a" and kind == "dir",
    "/a*": lambda name, kind: name[0] == "a" and "/" not in name,
    "[.a]*": lambda name, kind: Path(name).name[0] in ".a", "?": lambda name, kind: len(Path(name).name) == 1,
}  # fmt: skip


@settings(max_examples=20, deadline=None)
@given(
    st.dictionaries(PARTS, st.tuples(st.integers(0, 3), st.booleans()), max_size=12),
    st.dictionaries(PARTS, st.sampled_from(["*.log", "/a", "ab/", "!d.log", "c.py\n!a/c.py"]), max_size=2),
    st.integers(1, 8), st.sampled_from(sorted(GLOBS)), st.booleans(),
)  # fmt: skip
def test_what_is_found_and_what_is_left_out_is_what_is_there(
    tree: dict[str, tuple[int, bool]], rules: dict[str, str], most: int, glob: str, hiding: bool
) -> None:
    """In any tree, with ripgrep and without; git says which files there are."""
    with open_place() as root:
        subprocess.run(["git", "init", "-q", root], check=True)
        for name, (count, closed) in tree.items():
            with suppress(OSError):
                put(root / name, "x\nneedle\n" * count).chmod(0 if closed else 0o644)
        for name, rule in rules.items():
            if (root / name).is_dir():
                (root / name / ".gitignore").write_text(rule)
        told = subprocess.run(
            ["git", "ls-files", "-oz", "--exclude-standard"], cwd=root, check=True, stdout=subprocess.PIPE
        )
        listed = told.stdout.decode().split("\0")[:-1]
        hides = lambda path: hiding and "ab" in path.relative_to(root).parts  # noqa: E731
        kinds = dict.fromkeys(listed, "file")
        kinds |= {str(top): "dir" for name in listed for top in Path(name).parents if str(top) != "."}
        paths = [name for name, kind in kinds.items() if GLOBS[glob](name, kind) and not hides(root / name)]
        shown = [name for name in listed if not hides(root / name)]
        counts = {name: tree.get(name, (0, False))[0] for name in shown}
        unread = [name for name in shown if tree.get(name, (0, False))[1]]
        hits = sorted(Path(name) for name in shown if name not in unread for _ in range(counts[name]))
        for program in PROGRAMS:
            lines, found = anyio.run(searched, root, program, glob, most, hides)
            got = [match.path.relative_to(root) for match in found.matches]
            assert got == sorted(map(Path, paths))[:most] and found.truncated == (len(paths) > most)
            assert all(match.text == kinds[str(match.path.relative_to(root))] for match in found.matches)
            got = [match.path.relative_to(root) for match in lines.matches]
            assert lines.truncated == (len(hits) > most) and (got == hits or (len(got) == most and lines.truncated))
            assert set(got) <= set(hits) and (lines.truncated or lines.unread_count == len(unread))
        entries, more = files.entries(root, most)
        assert [name for name, _ in entries] == sorted(os.listdir(root))[:most]
        assert len(entries) + more == len(os.listdir(root))
