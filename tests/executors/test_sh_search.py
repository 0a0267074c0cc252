"""Finding files and lines with a shell's programs: the same answers as from `search_worker.py`."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import tempfile
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from acp_agent.errors import ExecutorError
from acp_agent.executors import search
from acp_agent.executors.base import FindQuery, Found, GrepQuery
from acp_agent.executors.encodings import OR_SINGLE_BYTE
from acp_agent.executors.posix import sh_search
from acp_agent.executors.posix.ere import ere
from tests.executors.kit import until_dead, until_exists
from tests.executors.test_search import FOUND, names, tree
from tests.nightly import times

pytestmark = pytest.mark.anyio

__all__ = ["tree"]
BUSYBOX = shutil.which("busybox")
NEEDED = "sh find grep xargs head tr printf rm cat sleep"


class Host:
    """This machine, with only the programs of a folder."""

    ripgrep = None

    def __init__(self, programs: Path, put: Path) -> None:
        self.programs, self._put, self.started = programs, put, 0

    async def start(self, argv: list[str], *, own: bool = False) -> search.Process:
        self.started += 1
        program = str(self.programs / argv[0])
        process = await anyio.open_process(
            [program, *argv[1:]],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            env={"PATH": str(self.programs)},
            cwd="/",
        )

        def kill() -> None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)

        process.kill = kill  # type: ignore[method-assign]
        return process

    async def put(self, data: bytes) -> str:
        descriptor, name = tempfile.mkstemp(dir=self._put)
        with open(descriptor, "wb") as file:
            file.write(data)
        return name

    async def asked(self, work: Callable[..., Any], *arguments: Any) -> Any:
        return await anyio.to_thread.run_sync(partial(work, *arguments))


def programs(kind: str, folder: Path) -> Path:
    """A folder with what a host without Python has."""
    folder.mkdir()
    for name in NEEDED.split():
        source = BUSYBOX if kind == "busybox" else shutil.which(name)
        assert source is not None
        (folder / name).symlink_to(os.path.realpath(source))
    return folder


# Busybox's shell may use its own programs, whatever is in PATH: a stub stands for one of GNU's only.
KINDS = ["gnu", pytest.param("busybox", marks=pytest.mark.skipif(BUSYBOX is None, reason="busybox is not installed"))]


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def host(kind: str, tmp_path: Path) -> Host:
    put = tmp_path / "put"
    put.mkdir()
    return Host(programs(kind, tmp_path / "programs"), put)


async def both(query: FindQuery | GrepQuery, host: Host, hides: Any = None) -> Found:
    """What the shell's programs find, which is what the worker finds."""
    with anyio.fail_after(60):
        if isinstance(query, FindQuery):
            expected, found = await search.find(query, hides), await sh_search.find(query, hides, host)
        else:
            expected, found = await search.grep(query, hides), await sh_search.grep(query, hides, host)
    assert found == expected
    return found


def grep(pattern: str, root: Path, host: Host, **rest: Any) -> Any:
    hides = rest.pop("hides", None)
    query: dict[str, Any] = {"case_sensitive": True, "max_results": 100, "timeout": 20.0, **rest}
    return both(GrepQuery(pattern, root, **query), host, hides)


def find(pattern: str, root: Path, host: Host, **rest: Any) -> Any:
    hides = rest.pop("hides", None)
    return both(FindQuery(pattern, root, **{"max_results": 100, "timeout": 20.0, **rest}), host, hides)


PATTERNS = [
    "needle",
    "NEEDLE",
    r"^needle",
    r"needle$",
    r"\bneedle\b",
    r"(?<=import )os",
    r"n(e+)dl\1",
    r"^$",
    r"x*",
    r"[^a-z]{2,}",
    "(?i)NEEDLE",
    "é|ü|ÿ",
    r"\(\)",
    r"\s=\s\d$",
    "nothing here",
]


@pytest.mark.parametrize("case_sensitive", [True, False])
async def test_lines_are_the_workers(case_sensitive: bool, tree: Path, host: Host) -> None:
    for pattern in PATTERNS:
        await grep(pattern, tree, host, case_sensitive=case_sensitive)
    assert list(host._put.iterdir()) == []


async def test_one_file_and_a_part_of_the_tree_are_searched(tree: Path, host: Host) -> None:
    for place in ("a.py", "b.txt", "node_modules/h.py", "binary.bin", "link", "link.py", "src/deep", "gone", "ü b.md"):
        await grep("needle", tree / place, host)
        await find("*", tree / place, host)
    for glob in ("*.py", "src/**/*.py", "!*.py", "*.log", "/a.py", "src/"):
        await grep("needle", tree, host, glob=glob)
    assert len((await grep("needle", tree / "a.py", host, glob="*.rs")).matches) == 1


async def test_results_are_bounded_and_hidden_ones_do_not_count(tree: Path, host: Host) -> None:
    for most in (0, 1, 3, 8, 9, 10):
        await grep("needle", tree, host, max_results=most)
        await grep("needle", tree, host, max_results=most, hides=lambda path: path.suffix == ".py")
        await find("*", tree, host, max_results=most)
        await find("*", tree, host, max_results=most, hides=lambda path: path.suffix == ".py")
    assert list(host._put.iterdir()) == []


@pytest.mark.parametrize("pattern", [row[0] for row in FOUND] + ["**", "*", "!a", "[ab].*", "d?ep/**/f.py", ".git"])
async def test_paths_are_the_workers(pattern: str, tree: Path, host: Host) -> None:
    await find(pattern, tree, host)
    await find(pattern, tree / "src", host)


RULES = {
    "excluded by the repository": {".git/info/exclude": "a.py\nsrc/deep\n"},
    "a folder's own rules win": {".git/info/exclude": "*.log\n", "src/deep/.gitignore": "!*.log\n*.py\n"},
    "a name is let in again": {".gitignore": "build\nnode_modules\n!src/deep/build\n"},
    "let in again further down": {".gitignore": "build\n", "src/deep/.gitignore": "!build\n"},
    "let in again beside": {".gitignore": "build\nnode_modules\n", "src/.gitignore": "!build\n"},
    "no line feed at the end": {".gitignore": "node_modules/\nbuild"},
    "lines as on Windows": {".gitignore": "node_modules/\r\nbuild\r\n"},
    "many": {".gitignore": "".join(f"name{n}\n" for n in range(1000)) + "build\n"},
    "odd": {".gitignore": "node_modules \n #x\n\\!a.py\n[\n**/\n/\n.\n..\n\0\n*\xff\n", "src/.gitignore": "deep/"},
}


@pytest.mark.parametrize("name", RULES)
async def test_rules_are_the_workers(name: str, tree: Path, host: Host) -> None:
    (tree / ".git" / "info").mkdir()
    for file, text in RULES[name].items():
        (tree / file).write_bytes(text.encode("latin-1"))
    for place in (tree, tree / "src", tree / "src" / "deep"):
        await find("*", place, host)
        await grep("needle", place, host)


async def test_rules_that_are_no_files_are_none(tree: Path, host: Host) -> None:
    (tree / "src" / "build" / ".gitignore").mkdir()
    (tree / "src" / "deep" / ".gitignore").symlink_to(tree / ".gitignore")
    (tree / ".hidden" / ".gitignore").symlink_to(tree / "gone")
    await find("*", tree, host)
    (tree / ".git").rename(tree / "was")
    await find("*", tree / "src", host)


async def test_a_folder_with_a_plain_name_that_is_excluded_is_not_entered(tree: Path, host: Host) -> None:
    for name in ("node_modules", "src/node_modules", ".hidden/node_modules"):
        (tree / name / "deep").mkdir(parents=True)
    process = await host.start(["sh", "-c", sh_search.LIST, "sh", str(tree), sh_search.RULES, sh_search.PLAIN, ""])
    assert process.stdout is not None
    listed = b"".join([data async for data in process.stdout])
    await process.aclose()
    assert b"d./src/node_modules/deep\0" in listed, "src has rules of its own"
    assert b"d./node_modules" not in listed
    assert b"d./.hidden/node_modules" not in listed


ODD_NAMES = ["-n", "two\nlines", "a:1:b", "a", "a:1", "a:", ":", "\n", "./x", "%s", "*", "x\n1:needle", "'", " ", "\\0"]


async def test_files_with_odd_names_are_found(tree: Path, host: Host) -> None:
    for number, name in enumerate(ODD_NAMES):
        folder = tree / "odd" / (name if number % 2 else "")
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{name.replace('/', ':')}.txt").write_text("1:2:needle\n" * 3)
    Path(os.fsdecode(os.fsencode(tree) + b"/bad\xff:\n.txt")).write_text("needle\n")
    Path(os.fsdecode(os.fsencode(tree) + b"/bad\xff")).write_text("needle\n")
    found = await grep("needle", tree, host)
    assert len(found.matches) == 9 + 2 + 3 * len(ODD_NAMES)
    await grep("needle", tree / "odd" / "-n.txt", host)
    await grep("needle", tree / "odd" / "two\nlines", host)
    await find("*.txt", tree, host)
    await find("bad*", tree, host)


async def test_odd_roots_are_searched(tmp_path: Path, host: Host) -> None:
    for name in ("-r", "two\nlines", "a:1:b", "$HOME", "`x`", "'\"", os.fsdecode(b"\xff"), ".git", " "):
        root = tmp_path / "roots" / name
        root.mkdir(parents=True)
        (root / "f:1").write_text("needle\n")
        assert len((await grep("needle", root, host)).matches) == 1
        assert len((await grep("needle", root / "f:1", host)).matches) == 1
        assert len((await find("*", root, host)).matches) == 1
    (tmp_path / "link").symlink_to(tmp_path / "roots")
    await grep("needle", tmp_path / "link", host)


async def test_encodings_are_the_workers(tree: Path, host: Host) -> None:
    for codec in ("cp1252", "latin-1", "utf-16", "utf-16-le", "utf-16-be", "utf-8-sig", "utf-32", "utf-8"):
        (tree / f"{codec}.txt").write_bytes("café drink\r\nx\r\n drink ü\r\r\n".encode(codec))
    (tree / "be.txt").write_bytes(b"\xfe\xff" + "café drink\nx\ndrink".encode("utf-16-be"))
    (tree / "mark.txt").write_bytes(b"\xff\xfe")
    (tree / "second.txt").write_bytes(b"drink\n\xff\xfedrink\n")
    (tree / "both.txt").write_bytes(b"\xe2\x82\n\x81\x8d drink \xe2\n\xf0\x9f\x98\n\x80drink\n")
    for pattern in ("drink", "^caf. drink$", "^drink", "DRINK", "é d", "€", "[ü]$", "(?i)É", r"\r$", "^.drink", "x"):
        await grep(pattern, tree, host)
    for most in (1, 4, 7):
        await grep("DRINK", tree, host, max_results=most, case_sensitive=False)
    await grep("drink", tree / "utf-16.txt", host)
    await grep("drink", tree / "utf-16.txt", host, hides=lambda path: True)


async def test_binary_and_long_files_are_left_out(tree: Path, host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(60):
        (tree / f"early{number}.bin").write_bytes(b"needle\n" * 1000 + b"\0\n" + b"needle\n" * 1000)
    (tree / "edge.bin").write_bytes(b"needle\n" + b"x" * 8184 + b"\0")
    (tree / "late.bin").write_bytes(b"needle\n" + b"x" * 8185 + b"\n\0")
    (tree / "long.txt").write_bytes(b"needle\n")
    os.truncate(tree / "long.txt", search.MAX_FILE_BYTES + 1)
    (tree / "most.txt").write_bytes(b"needle\n" + b"x\n" * 5000)
    os.truncate(tree / "most.txt", search.MAX_FILE_BYTES)
    found = names(await grep("needle", tree, host), tree)
    assert {"late.bin", "most.txt"} < set(found)
    await grep("needle", tree / "long.txt", host)
    await grep("needle", tree, host, max_results=5)


async def test_long_lines_are_cut(tree: Path, host: Host) -> None:
    (tree / "long.txt").write_text("x" * 3_000_000 + "needle" + "ü" * 2_000_000 + "\nneedle\n")
    assert [match.line for match in (await grep("needle", tree / "long.txt", host)).matches] == [1, 2]
    assert [match.line for match in (await grep("ü$", tree / "long.txt", host)).matches] == [1]


async def test_a_very_deep_tree_is_searched_to_the_end(tree: Path, host: Host) -> None:
    deep = tree / "src" / "/".join("d" * 300)
    deep.mkdir(parents=True)
    (deep / "bottom.py").write_text("needle at the bottom\n")
    assert len((await grep("at the bottom", tree, host)).matches) == 1
    assert len((await find("bottom.py", tree, host)).matches) == 1


async def test_what_is_not_allowed_is_passed_over(tree: Path, host: Host) -> None:
    os.mkfifo(tree / "pipe")
    (tree / "src").chmod(0)
    try:
        await grep("needle", tree, host)
        await find("*", tree, host)
    finally:
        (tree / "src").chmod(0o755)


async def test_bad_patterns_are_told_in_the_same_words(tree: Path, host: Host) -> None:
    rows = [("(unclosed", None), ("[", None), ("*", None), ("x", "a\\"), ("(", "a\\")]
    rows += [("a{99999999999999999999}", None), ("(?P<n>x)(?P<n>y)", None)]
    for pattern, glob in rows:
        query = GrepQuery(pattern, tree, True, 10, 20.0, glob)
        with pytest.raises(ExecutorError) as expected:
            await search.grep(query)
        with pytest.raises(ExecutorError) as told:
            await sh_search.grep(query, None, host)
        assert str(told.value) == str(expected.value)
    for root in (tree, tree / "a.py"):
        with pytest.raises(ExecutorError, match=r"^The pattern is not a valid glob: a\\\.$"):
            await sh_search.find(FindQuery("a\\", root, 10, 20.0), None, host)
    await grep("x", tree / "a.py", host, glob="a\\")
    with pytest.raises(ExecutorError, match=r"^The search failed: RecursionError"):
        await sh_search.grep(GrepQuery("(" * 5000 + ")" * 5000, tree, True, 10, 20.0), None, host)


@pytest.mark.parametrize("kind", ["gnu"])
async def test_a_host_without_these_programs_says_so(tree: Path, host: Host) -> None:
    (host.programs / "xargs").unlink()
    with pytest.raises(ExecutorError, match="no xargs"):
        await sh_search.grep(GrepQuery("needle", tree, True, 10, 20.0), None, host)
    (host.programs / "sh").unlink()
    (host.programs / "sh").symlink_to(shutil.which("true") or "true")
    with pytest.raises(ExecutorError, match="no shell"):
        await sh_search.find(FindQuery("*", tree, 10, 20.0), None, host)


async def test_a_catastrophic_pattern_ends_with_its_time(tree: Path, host: Host) -> None:
    (tree / "a.py").write_text("aa\n" + "a" * 60 + "b\n")
    with anyio.fail_after(20):
        found = await sh_search.grep(GrepQuery("(a+)+(?!.)", tree, True, 10, 5.0), None, host)
    assert found.timed_out
    assert [(match.line, match.text) for match in found.matches] == [(1, "aa")]


@pytest.mark.parametrize("kind", ["gnu"])
@pytest.mark.parametrize("slow", ["find", "grep"])
async def test_programs_that_hang_end_with_their_time(slow: str, tree: Path, host: Host, tmp_path: Path) -> None:
    real = os.readlink(host.programs / slow)
    (host.programs / f"real-{slow}").mkdir()
    (host.programs / f"real-{slow}" / slow).symlink_to(real)
    (host.programs / slow).unlink()
    (host.programs / slow).write_text(
        f'#!{host.programs}/sh\n{host.programs}/real-{slow}/{slow} "$@"\n'
        f"case $* in *-naHE*|'.'*) echo $$ >{tmp_path}/pid; sleep 600;; esac\n"
    )
    (host.programs / slow).chmod(0o755)
    with anyio.fail_after(30):
        found = await sh_search.grep(GrepQuery("needle", tree, True, 100, 6.0), None, host)
        await until_dead(int(await until_exists(tmp_path / "pid")))
    assert found.timed_out
    assert len(found.matches) == 9


@pytest.mark.parametrize("kind", ["gnu"])
async def test_a_cancelled_search_leaves_no_process(tree: Path, host: Host, tmp_path: Path) -> None:
    (host.programs / "find").unlink()
    (host.programs / "find").write_text(f"#!{host.programs}/sh\necho $$ >{tmp_path}/pid; sleep 600\n")
    (host.programs / "find").chmod(0o755)
    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(sh_search.find, FindQuery("*", tree, 10, 20.0), None, host)
            pid = int(await until_exists(tmp_path / "pid"))
            tasks.cancel_scope.cancel()
        await until_dead(pid)


async def test_a_host_that_fails_says_what_it_said(tree: Path, host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(data: bytes) -> str:
        raise ExecutorError("the disk is full")

    monkeypatch.setattr(host, "put", fail)
    with pytest.raises(ExecutorError, match="the disk is full"):
        await sh_search.grep(GrepQuery("needle", tree, True, 10, 20.0), None, host)


async def test_what_is_not_where_it_was_found_is_not_given(
    tree: Path, host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def asked(work: Callable[..., Any], *arguments: Any) -> Any:
        (tree / "a.py").write_text("other\n")
        return work(*arguments)

    monkeypatch.setattr(host, "asked", asked)
    found = await sh_search.grep(GrepQuery("needle", tree, True, 100, 20.0), None, host)
    assert "a.py" not in names(found, tree)
    assert len(found.matches) == 8


# --- any tree, any pattern -----------------------------------------------------------------------------------------

CHARS = "ab1 _-.\\é€ſKıß日\u0130\t\x1c\x85\xa0sikSKI^$[](){}|*+?"
ATOMS = st.sampled_from(
    [*map(re.escape, CHARS), ".", r"\w", r"\W", r"\d", r"\D", r"\s", r"\S", r"\b", r"\B", "^", "$", r"\A", r"\Z"]
    + [
        "[a-k]",
        "[^a-k]",
        "[^é]",
        "[é-ü]",
        "[]a]",
        "[^]^-]",
        "[-^]",
        "[^\\W1]",
        "[\\s\\d]",
        "[\\[:a]",
        "[^ſ]",
        "[Kx]",
        "[^\\s]",
        "[^\\S]",
        "[^\\Wé]",
    ]
    + ["(?=a)", "(?!a)", "(?<=a)", "(?<!b)", "(a)?(?(1)b|k)", "(?i:aé)", "(?-i:S)", "(?s:.)", r"\n", "(?>ab|a)"]
)


def grown(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    counts = st.sampled_from(
        ["*", "+", "?", "*?", "+?", "??", "{2}", "{0}", "{1,3}", "{2,}?", "{,2}", "*+", "?+", "{12}"]
    )
    return st.one_of(
        st.builds("{}{}".format, inner, inner),
        st.builds("(?:{}|{})".format, inner, inner),
        st.builds("({}|)".format, inner),
        st.builds("(?:{}){}".format, inner, counts),
        st.builds("({})".format, inner),
    )


REGEXES = st.builds(
    "{}{}".format,
    st.sampled_from(["", "", "(?i)", "(?m)", "(?s)", "(?a)", "(?ia)"]),
    st.recursive(ATOMS, grown, max_leaves=6),
).filter(lambda pattern: is_valid(pattern))
LINES = st.lists(st.text(st.sampled_from(CHARS + "\r"), max_size=8), min_size=1, max_size=12)
CODECS = st.sampled_from(["utf-8", "cp1252", "latin-1"])
GREPS = [["grep"], *([[BUSYBOX, "grep"]] if BUSYBOX else [])]


def is_valid(pattern: str) -> bool:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            re.compile(pattern)
        except re.error:
            return False
    return True


@pytest.mark.parametrize("program", GREPS, ids=["gnu", "busybox"][: len(GREPS)])
@settings(max_examples=times(400), suppress_health_check=list(HealthCheck))
@given(pattern=REGEXES, lines=LINES, codec=CODECS, fold=st.booleans())
def test_a_weaker_pattern_finds_every_line(
    program: list[str], pattern: str, lines: list[str], codec: str, fold: bool
) -> None:
    flags = re.IGNORECASE if fold else 0
    data = b"".join(line.encode(codec, "replace") + b"\n" for line in lines)
    told = [line.decode("utf-8", OR_SINGLE_BYTE).removesuffix("\r") for line in data.split(b"\n")[:-1]]
    wanted = {number for number, line in enumerate(told, 1) if re.search(pattern, line, flags)}
    words = ere(pattern, flags)
    done = subprocess.run(
        [*program, "-naE", "-e", words], input=data, capture_output=True, env={"LC_ALL": "C"}, check=False
    )
    assert done.returncode in (0, 1), (words, done.stderr)
    found = {int(line.partition(b":")[0]) for line in done.stdout.split(b"\n") if line}
    assert wanted <= found, words


@pytest.mark.parametrize("letter", [chr(code) for code in range(1, 128) if chr(code).isalnum()])
def test_letters_that_are_the_same_without_case_are_known(letter: str) -> None:
    """Of the characters beyond ASCII."""
    same = {
        chr(code)
        for code in [*range(128, 0x2200), *range(0xFB00, 0xFB10), *range(0x10400, 0x10450)]
        if re.fullmatch(letter, chr(code), re.IGNORECASE)
    }
    assert all(each.encode() in ere(letter, re.IGNORECASE) for each in same)


def test_patterns_that_are_long_over_there_find_every_line() -> None:
    assert ere("x" * 5000, 0) == b"^"
    assert ere("((((a{9}){9}){9}){9}){9}", 0) != b"^"
    assert len(ere("((((a{9}){9}){9}){9}){9}", 0)) < 100
    assert ere("(?=x)", 0) == b"^"


NAMES = st.sampled_from(["a", "b", "a:1", "build", "x.py", "y.log", "é", "n\nl", "-e"])
TREES = st.recursive(
    st.sampled_from(
        [b"needle\n", b"", b"a\nneedle a\r\n\n", b"n\0needle\n", b"\xff\xfen\0e\0", "é needle €".encode(), b"\xe9 x"]
    ),
    lambda inner: st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=12,
).filter(lambda made: isinstance(made, dict))
IGNORED = st.lists(
    st.sampled_from(
        ["a", "build/", "*.py", "!a", "!build", "/x.py", "a/**", "**/b", "y.log", "é", "a/build", "!*.py", "-e"]
    ),
    max_size=3,
)


def grow(folder: Path, made: dict[str, Any]) -> None:
    folder.mkdir(exist_ok=True)
    for name, inner in made.items():
        if isinstance(inner, dict):
            grow(folder / name, inner)
        else:
            (folder / name).write_bytes(inner)


@settings(max_examples=times(25), suppress_health_check=list(HealthCheck))
@given(
    made=TREES,
    rules=st.dictionaries(st.sampled_from(["", "a", "build", "a/build"]), IGNORED, max_size=3),
    pattern=st.sampled_from(["needle", "e", "^n", "é", r"\w+", "a|x"]),
    glob=st.sampled_from([None, "*.py", "!a", "build/**", "a"]),
    most=st.sampled_from([1, 3, 50]),
    repository=st.booleans(),
)
async def test_any_tree_is_searched_as_the_worker_does(
    kind: str,
    made: dict[str, Any],
    rules: dict[str, list[str]],
    pattern: str,
    glob: str | None,
    most: int,
    repository: bool,
) -> None:
    with tempfile.TemporaryDirectory() as name:
        base = Path(name)
        (base / "put").mkdir()
        host = Host(programs(kind, base / "programs"), base / "put")
        root = base / "tree" / "root"
        root.mkdir(parents=True)
        grow(root, made)
        if repository:
            (base / "tree" / ".git").mkdir()
            (base / "tree" / ".gitignore").write_text("y.log\n")
        for place, lines in rules.items():
            if (root / place).is_dir():
                (root / place / ".gitignore").write_text("\n".join(lines))
        await find("*" if glob is None else glob, root, host, max_results=most)
        await grep(pattern, root, host, max_results=most, glob=glob)
