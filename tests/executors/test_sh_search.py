"""Finding files and lines on a host without Python, with its own `find` and `grep -E`: GNU's and busybox's."""

import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest

from acp_agent.errors import ExecutorError
from acp_agent.executors import search
from acp_agent.executors.base import FindQuery, Found, GrepQuery
from acp_agent.executors.posix import sh_search
from acp_agent.executors.searching.search_worker import CUT
from tests.executors.kit import until_dead, until_exists
from tests.executors.test_search import OTHER, names, open_place, tree
from tests.files import put
from tests.tables import table

__all__ = ["tree"]
BUSYBOX = shutil.which("busybox")
IGNORED = ["node_modules/h.py", "src/build/e.py", "src/deep/drop.log", "top-only.txt"]
"""By the rules of the tree, which are not applied here."""
NEEDLES = sorted(
    [".env", ".hidden/g.py", "a.py", "latin.txt", "src/c.py", "src/deep/build/f.py", "src/deep/keep.log"]
    + ["src/top-only.txt", "ü b.md", *IGNORED]
)


class Host:
    """This machine, with only the programs of a folder."""

    ripgrep: str | None = None

    def __init__(self, programs: Path) -> None:
        self.programs = programs
        self.user: int | None = None

    async def worker(self, arguments: Mapping[str, object]) -> list[str]:
        raise AssertionError("there is no Python")

    async def start(self, argv: list[str], *, own: bool = False) -> search.Process:
        process = await anyio.open_process(
            [str(self.programs / argv[0]), *argv[1:]], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, start_new_session=True, env={"PATH": str(self.programs)}, cwd="/", user=self.user,
        )  # fmt: skip

        def kill() -> None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)

        process.kill = kill  # type: ignore[method-assign]
        return process

    async def asked(self, work: Callable[..., Any], *arguments: Any) -> Any:
        return await anyio.to_thread.run_sync(partial(work, *arguments))

    def replace(self, name: str, script: str) -> None:
        """A shell script for a program; `real`: what it was."""
        (self.programs / "real").mkdir()
        (self.programs / name).rename(self.programs / "real" / name)
        (self.programs / name).write_text(f"#!{self.programs}/sh\nreal={self.programs}/real/{name}\n{script}\n")
        (self.programs / name).chmod(0o755)


# Busybox's shell may use its own programs, whatever is in PATH: a stub stands for one of GNU's only.
ONLY_GNU = pytest.mark.parametrize("kind", ["gnu"])


@pytest.fixture(params=["gnu", pytest.param("busybox", marks=pytest.mark.skipif(BUSYBOX is None, reason="no busybox"))])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def host(kind: str, tmp_path: Path) -> Host:
    return host_in(tmp_path, kind)


def host_in(place: Path, kind: str) -> Host:
    (folder := place / "programs").mkdir()
    for name in "sh find grep printf env tr wc cut sleep".split():
        source = BUSYBOX if kind == "busybox" else shutil.which(name)
        assert source is not None
        (folder / name).symlink_to(os.path.realpath(source))
    return Host(folder)


async def grep(pattern: str, root: Path, host: Host, hides: Any = None, **rest: Any) -> Found:
    query: dict[str, Any] = {"case_sensitive": True, "max_results": 100, "timeout": 20.0, **rest}
    return await sh_search.grep(GrepQuery(pattern, root, **query), hides, host)


async def find(pattern: str, root: Path, host: Host, hides: Any = None, **rest: Any) -> Found:
    return await sh_search.find(FindQuery(pattern, root, **{"max_results": 100, "timeout": 20.0, **rest}), hides, host)


def lines(found: Found) -> list[tuple[str, int | None, str]]:
    return [(match.path.name, match.line, match.text) for match in found.matches]


async def test_lines_are_found_in_all_files_but_gits_own_binary_ones_and_links(tree: Path, host: Host) -> None:
    found = await grep("needle", tree, host)
    assert sorted(names(found, tree)) == NEEDLES and not (found.truncated or found.timed_out)
    assert ("latin.txt", 1, "needle ÿ") in lines(found)
    assert lines(await grep("^(import|from) +[a-z]+$", tree, host)) == [("a.py", 1, "import os")]
    assert lines(await grep("NEEDLE HERE", tree, host, case_sensitive=False)) == [("b.txt", 2, "Needle here")]
    assert lines(await grep("--x", tree, host)) == lines(await grep("nothing here", tree, host)) == []


async def test_one_file_a_folder_and_a_link_to_one_are_searched(tree: Path, host: Host) -> None:
    assert lines(await grep("needle", tree / "a.py", host, glob="*.rs")) == [("a.py", 2, "needle = 1")]
    assert sorted(names(await grep("needle", tree / "src" / "build", host), tree)) == ["src/build/e.py"]
    assert lines(await grep("needle", tree / "gone", host)) == []
    assert [match.path for match in (await find("*", tree / "src" / "build", host)).matches] == [
        tree / "src" / "build" / "e.py"
    ]
    (tree / "src" / "also").symlink_to("build")
    assert (await find("*", tree / "src" / "also", host)).matches == (), "found again by path, a link leads nowhere"


async def test_globs_are_those_of_gitignore(tree: Path, host: Host) -> None:
    python = [name for name in NEEDLES if name.endswith(".py")]
    rows = {"*.py": python, "src/**/*.py": [name for name in python if name.startswith("src/")], "/a.py": ["a.py"]}
    rows |= {"!*.py": sorted(set(NEEDLES) - set(python)), "build/": ["src/build/e.py", "src/deep/build/f.py"]}
    for glob, expected in rows.items():
        assert sorted(names(await grep("needle", tree, host, glob=glob), tree)) == expected, glob
    paths = {
        "deep/": ["src/deep"], "c.py/": [],
        "src/deep/*": [f"src/deep/{n}" for n in "build d.py drop.log keep.log".split()],
    }  # fmt: skip
    paths |= {"ü*": ["ü b.md"], "*.rs": [], ".git": [], "config": [], "link*": []}
    for glob, expected in paths.items():
        assert sorted(names(await find(glob, tree, host), tree)) == expected, glob
    assert {match.path.name: match.text for match in (await find("d*", tree, host)).matches} == {
        "deep": "dir", "d.py": "file", "drop.log": "file",
    }  # fmt: skip
    await find("*a" * 200 + "b", tree / "src", host)
    for search_for in (partial(find, "a\\"), partial(grep, "x", glob="x/a\\")):
        with pytest.raises(ExecutorError, match="not a valid glob"):
            await search_for(root=tree, host=host)


async def test_results_are_bounded_and_only_what_counts_is_counted(tree: Path, host: Host) -> None:
    hides = lambda path: path.suffix == ".py"  # noqa: E731
    plain = [name for name in NEEDLES if not name.endswith(".py")]
    for most, truncated in ((len(plain) - 1, True), (len(plain), False)):
        found = await grep("needle", tree, host, hides, max_results=most)
        assert (len(found.matches), found.truncated) == (most, truncated) and set(names(found, tree)) <= set(plain)
        assert (await grep("needle", tree, host, glob="!*.py", max_results=most)).truncated == truncated
    found = await find("*.py", tree, host, lambda path: path.name == "a.py", max_results=3)
    assert (len(found.matches), found.truncated) == (3, True) and "a.py" not in names(found, tree)


async def test_names_that_are_odd_confuse_nothing(tree: Path, host: Host) -> None:
    (odd := tree / "odd").mkdir()
    told = ["-n", "a:1:b", "a", "a:1", ":", "%s", "*", "'", " ", "\\n", os.fsdecode(b"bad\xff")]
    for name in [*told, "two\na", "a\n0d\n"]:
        (odd / name).write_text("1:2:needle\n")
    found = await grep("needle", odd, host)
    assert sorted(lines(found)) == sorted((name, 1, "1:2:needle") for name in told), "all but those with a line feed"
    assert sorted(names(await find("*", odd, host), odd)) == sorted([*told, "two\na", "a\n0d\n"])
    assert len((await grep("needle", odd / "a:1:b", host)).matches) == 1
    root = odd.rename(tree / "-r\n$HOME")
    assert len((await grep("needle", root, host)).matches) == len(told)
    assert len((await find("*", root, host)).matches) == len(told) + 2


async def test_long_files_are_left_out_unless_they_are_named_and_long_lines_are_cut(
    tree: Path, host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sh_search, "GREP", sh_search.GREP.replace(str(search.MAX_FILE_BYTES), "5000000"))
    put((big := tree / "big") / "zeros", "needle\n")
    os.truncate(big / "zeros", 20_000)
    (big / "long").write_text("x" * 5_000_000 + "\nneedle")
    assert (await grep("needle", big, host)).left_out == (big / "long",)
    assert lines(await grep("needle", big / "long", host)) == [("long", 2, "needle")]
    (big / "line").write_text("needle" + "ü" * 2_000_000 + "\nneedle")
    assert lines(await grep("needle", big, host)) == [("line", 1, "needle" + "ü" * 494 + CUT), ("line", 2, "needle")]


@table(("pattern", "told"), [
    ("^import +(os|re)$", "`$` before CR LF"), (r"f\(x\)|a\.b[[:space:]]{1,3}[^]a-z$]x?", ""),
    (r"\d+\.\w", r"`\d`, `\w`"), (r"[\w.]x", r"`\` in `[]`"), (r"(a)\1(?<=b)c", r"`\1`, `(?`"),
    (r"a*?b+?c{2}+", "`*?`, `+?`, `}+`"), (r"\Aa\Z", r"`\A`, `\Z`"), (r"\\d a\+?", ""), ("a\nb", "a line feed"),
    ("[", ""),
])  # fmt: skip
def test_what_grep_reads_otherwise_than_python_is_named(pattern: str, told: str) -> None:
    assert sh_search.dialect(pattern) == told


async def test_what_differs_is_noted_and_a_bad_pattern_told_in_greps_words(tree: Path, host: Host) -> None:
    assert (await find("*", tree, host)).note == "Searched with this host's `find`: .gitignore is not applied."
    plain = "Searched with this host's `grep -E`: .gitignore is not applied."
    assert (await grep("needle", tree, host)).note == plain
    assert (await grep(r"\d", tree, host)).note.startswith(rf"{plain} It may read `\d` otherwise than Python")
    with pytest.raises(
        ExecutorError, match=r"^The search failed: this host's grep -E cannot .*: (Unmatched \(|bad regex)"
    ):
        await grep("(unclosed", tree, host)


@ONLY_GNU
@pytest.mark.parametrize("missing", ["find", "grep"])
async def test_a_host_without_these_programs_says_so(missing: str, tree: Path, host: Host) -> None:
    (host.programs / missing).unlink()
    with pytest.raises(ExecutorError, match=f"^The search failed: there is no {missing} on this host"):
        await grep("needle", tree, host)


@ONLY_GNU
@pytest.mark.parametrize(("slow", "option", "timeout", "most"), [("find", "-H", 3.0, 100), ("grep", "-naE", 0.5, 0)])
async def test_a_program_ends_with_its_time(
    slow: str, option: str, timeout: float, most: int, tree: Path, host: Host, tmp_path: Path
) -> None:
    host.replace(slow, f'"$real" "$@"\ncase $* in *{option}*) echo $$ >{tmp_path}/pid; exec sleep 600;; esac')
    found = await grep("needle", tree, host, timeout=timeout)
    assert (found.timed_out, bool(found.note)) == (True, True) and sorted(names(found, tree)) == NEEDLES[:most]
    await until_dead(int(await until_exists(tmp_path / "pid")))


async def test_what_may_not_be_read_is_counted_and_named(kind: str) -> None:
    with open_place() as place:
        other, tree = host_in(place, kind), place / "tree"
        other.user = OTHER.uid if OTHER else None
        for name in ("a.py", "c.py", "deep/d.py", ".hidden/h.py"):
            put(tree / name, "needle\n")
        for name in ("c.py", "deep", ".hidden"):
            (tree / name).chmod(0)
        hides = lambda path: path.name == ".hidden"  # noqa: E731
        lines, paths = await grep("needle", tree, other, hides), await find("*.py", tree, other, hides)
        for name in ("deep", ".hidden"):
            (tree / name).chmod(0o755)
    assert (sorted(lines.unread), lines.unread_count) == ([tree / "c.py", tree / "deep"], 2)
    assert (paths.unread, paths.unread_count) == ((tree / "deep",), 1)
    assert (names(lines, tree), names(paths, tree)) == (["a.py"], ["a.py", "c.py"])


@ONLY_GNU
async def test_a_cancelled_search_leaves_no_process(tree: Path, host: Host, tmp_path: Path) -> None:
    host.replace("find", f"echo $$ >{tmp_path}/pid; exec sleep 600")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(find, "*", tree, host)
        pid = int(await until_exists(tmp_path / "pid"))
        tasks.cancel_scope.cancel()
    await until_dead(pid)


async def test_what_is_not_where_it_was_found_is_not_given(tree: Path, host: Host, monkeypatch: pytest.MonkeyPatch):
    async def asked(work: Callable[..., Any], *arguments: Any) -> Any:
        (tree / "a.py").write_text("other\n")
        return work(*arguments)

    monkeypatch.setattr(host, "asked", asked)
    assert sorted(names(await grep("needle", tree, host), tree)) == [name for name in NEEDLES if name != "a.py"]
