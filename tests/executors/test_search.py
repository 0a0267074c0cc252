"""Finding files and lines: the same answers from ripgrep and from our own walk."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import anyio
import pytest

from acp_agent.errors import ExecutorError
from acp_agent.executors import search
from acp_agent.executors.base import FindQuery, Found, GrepQuery
from acp_agent.executors.searching import listed_names
from acp_agent.executors.users import find_user
from acp_agent.own_programs import find_program
from tests.executors.kit import until_dead, until_exists
from tests.files import put, puts
from tests.tables import table

RIPGREP = shutil.which("rg")
Stub = Callable[[str], None]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    root = tmp_path / "tree"
    files = {
        "a.py": "import os\nneedle = 1\n", "b.txt": "no such thing\r\nNeedle here\r\n", "src/c.py": "needle()\n",
        "src/deep/d.py": "x\n", "src/deep/keep.log": "needle\n", "src/deep/drop.log": "needle\n",
        "src/.gitignore": "*.log\n!keep.log\n/build/\n", "src/build/e.py": "needle\n",
        "src/deep/build/f.py": "needle\n", ".gitignore": "node_modules/\n/top-only.txt\n", ".hidden/g.py": "needle\n",
        ".env": "needle\n", "node_modules/h.py": "needle\n", "top-only.txt": "needle\n",
        "src/top-only.txt": "needle\n", ".git/config": "needle\n", "ü b.md": "needle\n",
    }  # fmt: skip
    puts(root, files)
    (root / "binary.bin").write_bytes(b"needle\0needle\n")
    (root / "latin.txt").write_bytes(b"needle \xff\n")
    put((outside := tmp_path / "outside") / "secret.py", "needle\n")
    (root / "link").symlink_to(outside)
    (root / "link.py").symlink_to(outside / "secret.py")
    return root


LARGE_LINES = 1_000_001
LARGE = LARGE_LINES * 50


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file beyond the limit for folders, with `needle` at its end."""
    put((folder := tmp_path_factory.mktemp("large")) / "huge.log", f"{'x' * 49}\n" * LARGE_LINES + "needle\n")
    return folder / "huge.log"


@pytest.fixture(params=["ripgrep", "own"])
def program(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """With ripgrep in PATH, and without."""
    name = str(request.param)
    if name == "ripgrep" and RIPGREP is None:
        pytest.skip("ripgrep is not installed")
    if name == "own":
        (empty := tmp_path / "bin").mkdir()
        monkeypatch.setenv("PATH", str(empty))
    return name


async def grep(pattern: str, root: Path, **rest: object) -> Found:
    query: dict[str, object] = {"case_sensitive": True, "max_results": 100, "timeout": 10.0, **rest}
    return await search.grep(GrepQuery(pattern, root, **query), None, search.Here(find_program("rg")))  # type: ignore[arg-type]


async def find(pattern: str, root: Path, **rest: object) -> Found:
    query: dict[str, object] = {"max_results": 100, "timeout": 10.0, **rest}
    return await search.find(FindQuery(pattern, root, **query), None, search.Here(find_program("rg")))  # type: ignore[arg-type]


def names(found: Found, root: Path) -> list[str]:
    return sorted(str(match.path.relative_to(root)) for match in found.matches)


async def test_a_large_file_is_searched_or_named(program: str, large: Path) -> None:
    """By ripgrep always, else if it is named."""
    found = await grep("needle", large.parent)
    named = await grep("needle", large)
    assert [(match.line, match.text) for match in named.matches] == [(LARGE_LINES + 1, "needle")]
    assert (found.matches, found.left_out) == ((named.matches, ()) if program == "ripgrep" else ((), (large,)))
    assert not (await grep("needle", large.parent, glob="*.py")).left_out


async def test_a_line_beyond_all_bounds_does_not_fill_the_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ripgrep keeps a whole line: where that has no place, our own walk names the file."""
    if RIPGREP is None:
        pytest.skip("ripgrep is not installed")
    (long := tmp_path / "long").write_text("x" * (LARGE * 2))
    (tmp_path / "b").write_text("needle")
    monkeypatch.setattr(search, "MAX_HEAP", 60_000_000)
    found = await grep("needle", tmp_path)
    assert (names(found, tmp_path), found.left_out) == (["b"], (long,))


async def test_lines_are_found_where_gitignore_does_not_forbid(program: str, tree: Path) -> None:
    found = await grep("needle", tree)
    expected = ".env|.hidden/g.py|a.py|latin.txt|src/c.py|src/deep/build/f.py|src/deep/keep.log|src/top-only.txt|ü b.md"
    assert names(found, tree) == expected.split("|") and (found.truncated, found.timed_out) == (False, False)
    match = next(match for match in found.matches if match.path.name == "a.py")
    assert (match.path, match.line, match.text) == (tree / "a.py", 2, "needle = 1")


@table(("pattern", "where", "ignores_case", "lines"), [
    ("NEEDLE here$", "b.txt", True, [(2, "Needle here")]), ("NEEDLE", "b.txt", False, []),
    ("needle", "node_modules/h.py", False, [(1, "needle")]), ("(?<=import )os", "", False, [(1, "import os")]),
    ("--flag", "", False, [(1, "--flag")]), ("-", "flag.txt", False, [(1, "--flag")]),
])  # fmt: skip
async def test_patterns(
    pattern: str, where: str, ignores_case: bool, lines: list[tuple[int, str]], program: str, tree: Path
) -> None:
    (tree / "flag.txt").write_text("--flag\n")
    found = await grep(pattern, tree / where, case_sensitive=not ignores_case)
    assert [(match.line, match.text) for match in found.matches] == lines


async def test_only_files_that_match_the_glob_are_searched(program: str, tree: Path) -> None:
    assert names(await grep("needle", tree, glob="*.py"), tree) == [
        ".hidden/g.py", "a.py", "src/c.py", "src/deep/build/f.py",
    ]  # fmt: skip
    assert names(await grep("needle", tree, glob="src/**/*.py"), tree) == ["src/c.py", "src/deep/build/f.py"]
    assert names(await grep("needle", tree, glob="*.rs"), tree) == []
    assert names(await grep("needle", tree, glob="*.log"), tree) == ["src/deep/keep.log"]
    others = names(await grep("needle", tree, glob="!*.py"), tree)
    assert "latin.txt" in others and "a.py" not in others
    assert names(await grep("needle", tree / "a.py", glob="*.py"), tree) == ["a.py"]


async def test_rules_above_the_searched_folder_count(program: str, tree: Path) -> None:
    assert names(await grep("needle", tree / "src" / "deep"), tree) == ["src/deep/build/f.py", "src/deep/keep.log"]
    (tree / ".ignore").write_text("*\n")
    assert names(await find("*.log", tree / "src" / "deep"), tree) == ["src/deep/keep.log"], "`.ignore` is none of them"
    (tree / ".git").rename(tree / "git")
    logs = ["src/deep/drop.log", "src/deep/keep.log"]
    assert names(await find("*.log", tree / "src" / "deep"), tree) == logs, "nor is what is above, without a repository"
    assert names(await grep("needle", tree / "src" / "deep", glob="*.log"), tree) == logs


async def test_a_bad_pattern_or_glob_is_told_in_words(program: str, tree: Path) -> None:
    with pytest.raises(ExecutorError, match="not a valid regular expression"):
        await grep("(unclosed", tree)
    with pytest.raises(ExecutorError, match="not a valid glob"):
        await find("a\\", tree)
    with pytest.raises(ExecutorError, match="not a valid glob"):
        await grep("x", tree, glob="a\\")


async def test_a_very_deep_tree_is_searched_to_the_end(program: str, tree: Path) -> None:
    put(tree / "src" / "/".join("d" * 300) / "bottom.py", "needle at the bottom\n")
    assert [match.text for match in (await grep("at the bottom", tree)).matches] == ["needle at the bottom"]
    assert len((await find("bottom.py", tree)).matches) == 1


async def test_lines_of_files_that_are_not_utf8_are_shown_in_their_encoding(program: str, tree: Path) -> None:
    for codec in ("cp1252", "utf-16", "utf-8-sig"):
        (tree / f"{codec}.txt").write_bytes("café drink\r\nx\r\ndrink ü".encode(codec))
    found = await grep("drink", tree)
    assert [(match.path.stem, match.line, match.text.lstrip("\ufeff")) for match in found.matches] == [
        (codec, *told) for codec in ("cp1252", "utf-16", "utf-8-sig") for told in ((1, "café drink"), (3, "drink ü"))
    ]


async def test_long_lines_are_cut_and_found_again(program: str, tree: Path) -> None:
    (tree / "long.txt").write_text("needle" + "x" * 2_000_000 + "\nneedle\n")
    found = await grep("needle", tree / "long.txt")
    assert [(match.line, len(match.text) < 1000, "omitted end of long line" in match.text) for match in found.matches] \
        == [(1, True, True), (2, True, False)]  # fmt: skip
    (tree / "long.txt").write_text("ü" * 900 + "needle" + "y" * 900 + "\nneedle\n")
    assert [match.line for match in (await grep("needle", tree / "long.txt")).matches] == [1, 2]


async def test_a_catastrophic_pattern_ends_with_its_time(program: str, tree: Path) -> None:
    (tree / "a.py").write_text("a" * 60 + "b\n")
    # Ripgrep's own syntax has no such patterns; a look-ahead makes it a pattern for the walk.
    assert (await grep("(?=a)(a+)+$", tree / "a.py", timeout=0.5)).timed_out


async def test_names_with_a_line_feed_or_no_utf8_are_found(program: str, tree: Path) -> None:
    Path(os.fsdecode(os.fsencode(tree) + b"/bad\xff.txt")).write_text("needle\n")
    assert len((await grep("needle", tree)).matches) == 10
    assert len((await find("*.txt", tree)).matches) == 4
    (tree / "two\nlines.txt").write_text("needle\n")
    assert names(await find("two*", tree), tree) == ["two\nlines.txt"]
    assert "two\nlines.txt" in names(await grep("needle", tree, glob="*.txt"), tree)


FOUND = [
    ("*.py", [".hidden/g.py", "a.py", "src/c.py", "src/deep/build/f.py", "src/deep/d.py"]),
    ("src/**/*.py", ["src/c.py", "src/deep/build/f.py", "src/deep/d.py"]), ("/a.py", ["a.py"]),
    ("deep/", ["src/deep"]), ("deep", ["src/deep"]), ("c.py/", []),
    ("src/deep/**", ["src/deep/build", "src/deep/build/f.py", "src/deep/d.py", "src/deep/keep.log"]),
    ("src/*", ["src/.gitignore", "src/c.py", "src/deep", "src/top-only.txt"]), ("top-only.txt", ["src/top-only.txt"]),
    ("*.rs", []), ("ü*", ["ü b.md"]),
]  # fmt: skip


@table(("pattern", "expected"), FOUND)
async def test_paths_are_found_by_glob(program: str, pattern: str, expected: list[str], tree: Path) -> None:
    assert names(await find(pattern, tree), tree) == expected


async def test_kinds_are_told_links_not_followed_and_excludes_of_git_count(program: str, tree: Path) -> None:
    kinds = {match.path.name: match.text for match in (await find("*", tree)).matches}
    assert kinds["deep"] == "dir" and kinds["a.py"] == "file" and "secret.py" not in kinds and ".git" not in kinds
    put(tree / ".git" / "info" / "exclude", "a.py\n")
    assert "a.py" not in names(await find("*.py", tree), tree)


async def test_a_cancelled_search_leaves_no_process(tree: Path, stub: Stub, tmp_path: Path) -> None:
    stub(f'echo $$ > "{tmp_path}/pid"; exec sleep 600')
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(grep, "needle", tree)
        pid = int(await until_exists(tmp_path / "pid"))
        tasks.cancel_scope.cancel()
    await until_dead(pid)


async def test_a_pipe_in_place_of_rules_is_not_waited_for_by_our_own_walk(tree: Path, program: str) -> None:
    if program == "own":
        (tree / ".gitignore").unlink(missing_ok=True)
        os.mkfifo(tree / ".gitignore")
    os.mkfifo(tree / "pipe")
    assert not (await grep("secret", tree)).timed_out


# --- nothing is left out in silence ------------------------------------------------------------------------------

OTHER = find_user("nobody") if os.geteuid() == 0 else None
"""Root may read everything."""
PROGRAMS = [None, *([RIPGREP] if RIPGREP else [])]


@contextmanager
def open_place() -> Iterator[Path]:
    """A folder that every user reaches."""
    with TemporaryDirectory(prefix="acp-search-") as name:
        os.chmod(name, 0o755)
        yield Path(name).resolve()


async def searched(root: Path, program: str | None, glob: str, most: int, hides: Any = None) -> tuple[Found, Found]:
    host = search.Here(program, OTHER)
    lines = await search.grep(GrepQuery("needle", root, True, most, 20.0), hides, host)
    return lines, await search.find(FindQuery(glob, root, most, 20.0), hides, host)


@pytest.mark.parametrize("program_of", PROGRAMS)
async def test_what_may_not_be_read_is_counted_and_named(program_of: str | None) -> None:
    with open_place() as root:
        for folder in ("closed", "entered", "hidden", "open"):
            put(root / folder / "f", "needle\n")
        for name, mode in (("closed", 0), ("hidden", 0), ("entered", 0o744 if OTHER else 0o444), ("open/f", 0)):
            (root / name).chmod(mode)
        lines, paths = await searched(root, program_of, "f", 10, lambda path: path.name == "hidden")
        for name in ("closed", "hidden", "entered"):
            (root / name).chmod(0o755)
    assert (names(lines, root), names(paths, root)) == ([], ["open/f"])
    for found, expected in ((lines, ["closed", "entered/f", "open/f"]), (paths, ["closed", "entered/f"])):
        assert sorted(str(path.relative_to(root)) for path in found.unread) == expected
        assert found.unread_count == len(expected)


def test_a_list_is_judged_in_pieces_of_any_size_and_little_of_it_by_the_glob(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    matcher = lambda kind, glob: lambda name: [*map(asked.append, [name])] == [None] and glob[1:] in name  # noqa: E731
    monkeypatch.setattr(listed_names, "matcher", matcher)
    paths = [f"f{n}/g/{n}.py" for n in range(10_000)]
    listed = b"".join(f"/r/needle/{paths[7_919 * n % 10_000]}\0".encode() for n in range(10_000))
    folders = sorted(
        [*map(Path, paths), *(Path(path).parent for path in paths), *(Path(path).parents[1] for path in paths)]
    )
    for size in (17, 1_000, len(listed)):
        for glob, most, judged in (("*.py", 3, 100), ("*f99", 1_000, 333), ("*needle", 9, 0), ("*absent", 9, 0)):
            names = listed_names.Names(FindQuery(glob, Path("/r/needle"), most, 1.0), None)
            asked.clear()
            for start in range(0, len(listed), size):
                names(listed[start : start + size])
            found = [str(match.path.relative_to("/r/needle")) for match in names.found()]
            assert (
                found == [str(path) for path in folders if glob[1:] in str(path)][: most + 1] and len(asked) <= judged
            )


# --- what ripgrep says, spoken by a stub -------------------------------------------------------------------------


@pytest.fixture
def stub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stub:
    """Makes an `rg` of a bash script."""

    def make(script: str) -> None:
        put((place := tmp_path / "stub") / "rg", f"#!/bin/bash\n{script}\n")
        (place / "rg").chmod(0o755)
        monkeypatch.setenv("PATH", f"{place}{os.pathsep}{os.environ['PATH']}")

    return make


async def test_ripgreps_answer_is_understood(tree: Path, stub: Stub) -> None:
    puts(tree, {"a b:1:c.py": "\n" * 11 + 'x: "y"\n', "d": "\n\nend\\r"})
    stub(rf"""printf '%s\0%s\n' "{tree}/a b:1:c.py" '12:x: "y"' "{tree}/d" '3:end\r'""")
    found = await grep("needle", tree)
    assert [(match.path, match.line, match.text) for match in found.matches] == [
        (tree / "a b:1:c.py", 12, 'x: "y"'), (tree / "d", 3, r"end\r"),
    ]  # fmt: skip


async def test_what_is_not_where_it_was_found_is_not_given(tree: Path, stub: Stub) -> None:
    """As after a race: a folder was a link to another place while ripgrep went through it, and is a folder again."""
    told = {
        f"{tree}/a.py": "2:needle = 1", f"{tree}/b.txt": "1:a needle of another place",
        f"{tree}/src/c.py": "7:needle()", f"{tree}/gone.py": "1:needle", f"{tree}/link/secret.py": "1:needle",
        f"{tree}/link.py": "1:needle", f"{tree}/src": "1:needle", "/proc/self/environ": "1:PATH",
    }  # fmt: skip
    words = " ".join(f"'{path}' '{line}'" for path, line in told.items())
    stub(f"printf '%s\\0%s\\n' {words}")
    found = await grep("needle", tree)
    assert [(match.path, match.text) for match in found.matches] == [(tree / "a.py", "needle = 1")]


async def test_names_that_moved_since_are_not_given(tree: Path, stub: Stub, tmp_path: Path, monkeypatch: Any) -> None:
    worker = tmp_path / "worker.py"
    told = [[f"{tree}/a.py", False], [f"{tree}/link/secret.py", False], [f"{tree}/gone", False], [f"{tree}/src", True]]
    worker.write_text(f"import json\nfor row in {told!r}: print(json.dumps(row))\n")
    monkeypatch.setattr(search, "WORKER", worker)
    names_told = " ".join(
        f"'{path}'" for path in [f"{tree}/a.py", f"{tree}/link/secret.py", f"{tree}/gone", f"{tree}/src/x"]
    )
    stub(f"printf '%s\\0' {names_told}")
    for program in (None, find_program("rg")):
        found = await search.find(FindQuery("*", tree, 100, 10.0), None, search.Here(program))
        assert [match.path for match in found.matches] == [tree / "a.py", tree / "src"]


async def test_ripgrep_is_asked_without_options_of_the_persons_own(tree: Path, stub: Stub, tmp_path: Path) -> None:
    stub(f"""printf '%s\\n' "$@" > '{tmp_path}/arguments'; exit 1""")
    assert (await grep("--pre=evil", tree, glob="*.py", case_sensitive=False)).matches == ()
    arguments = (tmp_path / "arguments").read_text().splitlines()
    assert arguments[-4:] == ["--regexp", "--pre=evil", "--", str(tree)] and "--no-config" in arguments
    assert "--ignore-case" in arguments and arguments[arguments.index("--type-add") + 1] == "wanted:*.py"


async def test_a_pattern_only_python_knows_is_given_to_our_own_walk(tree: Path, stub: Stub) -> None:
    stub("echo 'regex parse error' >&2; exit 2")
    assert [match.text for match in (await grep("(?<=import )os", tree)).matches] == ["import os"]
    with pytest.raises(ExecutorError, match="not a valid regular expression"):
        await grep("(unclosed", tree)


async def test_a_ripgrep_that_hangs_ends_with_its_time(tree: Path, stub: Stub) -> None:
    stub(f"printf '%s\\0%s\\n' '{tree}/a.py' '1:import os'; exec sleep 600")
    found = await grep("needle", tree, timeout=0.5)
    assert [match.line for match in found.matches] == [1] and found.timed_out


async def test_the_worker_runs_without_the_package(tree: Path) -> None:
    """It is a program of its own: the folder it runs in, its modules and its variables mean nothing to it."""
    (tree / "json.py").write_text("raise SystemExit('hijacked')\n")
    done = await anyio.run_process(
        [sys.executable, "-I", str(search.WORKER), '{"what": "find", "pattern": "a.py", "root": "."}'], cwd=tree,
        env={"PYTHONPATH": str(tree)}, stderr=subprocess.PIPE, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert b"a.py" in done.stdout
