"""Finds files by name and lines by pattern on this machine, with ripgrep if installed, else our own walk.

Both run as child processes, bounded in time and in results, and are killed when the call is cancelled. Both leave out
`.git`, what `.gitignore` names, links, and what is hidden, and tell what may not be read. They open files
by name, so a folder swapped for a link in the meantime may lead them elsewhere: results are checked again through
folder handles (see `files`) and returned only if found there, too.
"""

from __future__ import annotations

import errno
import json
import os
import re
import resource
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar

import anyio
from anyio.abc import ByteReceiveStream
from anyio.streams.buffered import BufferedByteReceiveStream
from msgspec import Struct

from acp_agent.child import User
from acp_agent.errors import ExecutorError
from acp_agent.executors import files
from acp_agent.executors.base import FindQuery, Found, GrepQuery, Match
from acp_agent.executors.encodings import OR_SINGLE_BYTE
from acp_agent.executors.tree_walk import Hides
from acp_agent.executors.users import in_thread_as
from acp_agent.lazy import load
from acp_agent.limits.descriptors import behind

NAMES = "acp_agent.executors.searching.listed_names:Names"
WORKER = Path(__file__).with_name("searching") / "search_worker.py"
MAX_LINE_BYTES = 1_000_000
MAX_COLUMNS = 500
LEFT_OUT = re.compile(r" \[\.\.\. (?:omitted end of long line|\d+ more match(?:es)?)\]\Z")
"""The text ripgrep puts behind the first `MAX_COLUMNS` bytes of a line."""
MAX_FILE_BYTES = 50_000_000
"""Of files in a folder, larger ones are not searched without ripgrep, and named. As in the worker."""
MAX_HEAP = 1 << 30
"""Bytes of memory for ripgrep, which keeps whole lines; mapped files do not count."""
MOST_LEFT_OUT = 100
"""Files that are named at most, of those that are too large and of those that cannot be read."""
RIPGREP = "--no-config --color=never --hidden --glob=!.git --no-require-git --no-ignore-dot --no-ignore-global".split()
"""Its rules are those of our own walk: `.gitignore` alone, and what git itself excludes."""
UNREAD = re.compile(r"(?:rg: )?(?P<path>.+): [^:]+ \(os error (?P<error>\d+)\)", re.DOTALL)
"""What ripgrep says of a file or folder."""
BYTE_ORDER = "\ufeff"
NAME_GLOB = re.compile(r"[^/!:\\][^/:\\]*")
"""A glob on names alone, which ripgrep can take for a type of files."""

T = TypeVar("T")
Query = TypeVar("Query", contravariant=True)


class LeftOut(Struct, frozen=True):
    """What is not searched: because it is too large, or cannot be read."""

    path: Path
    large: bool = False


Parse = Callable[[bytes], Match | LeftOut | None]
"""A line of the child's output -> a result, if it is one."""

BAD_PATTERN = 2
"""Exit status of both programs for a pattern they cannot read."""
DONE = (0, 1)
"""Of ripgrep that has found something, or nothing."""


class _Run(Struct):
    results: list[Match]
    left_out: list[Path] = []
    unread: list[Path] = []
    unread_count: int = 0
    truncated: bool = False
    timed_out: bool = False
    status: int | None = None
    stderr: str = ""
    """Without what it says of files."""

    def omit(self, left: LeftOut) -> None:
        self.unread_count += not left.large
        named = self.left_out if left.large else self.unread
        if len(named) < MOST_LEFT_OUT:
            named.append(left.path)


class Process(Protocol):
    """A started program, as anyio's."""

    @property
    def stdout(self) -> ByteReceiveStream | None: ...

    @property
    def stderr(self) -> ByteReceiveStream | None: ...

    @property
    def returncode(self) -> int | None: ...

    def kill(self) -> None: ...

    async def wait(self) -> int: ...

    async def aclose(self) -> None: ...


class Host(Protocol):
    """Where it is searched."""

    ripgrep: str | None
    """Its ripgrep, if it has one."""

    async def worker(self, arguments: Mapping[str, object]) -> list[str]:
        """The command line of `search_worker.py`."""
        ...

    async def start(self, argv: list[str], *, own: bool) -> Process:
        """Starts a program; `own`: the worker. To kill it kills what it started."""
        ...

    async def asked(self, work: Callable[..., T], *arguments: Any) -> T:
        """What one of the functions of `files` returns there."""
        ...


class Search(Protocol[Query]):
    """`find` or `grep`."""

    __name__: str

    async def __call__(self, query: Query, hides: Hides | None, host: Host) -> Found: ...


class Here:
    """This machine. `user`: whose search it is, if not ours."""

    def __init__(self, ripgrep: str | None = None, user: User | None = None) -> None:
        self.ripgrep, self._user = ripgrep, user

    async def worker(self, arguments: Mapping[str, object]) -> list[str]:
        # It changes its user itself: that user may not be able to read our interpreter.
        user = self._user
        who = None if user is None else [user.uid, user.gid, user.groups]
        return [sys.executable, "-I", str(WORKER), json.dumps({**arguments, "user": who})]

    async def start(self, argv: list[str], *, own: bool) -> Process:
        process = await anyio.open_process(
            behind(argv),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            **(self._user.popen if self._user is not None and not own else {}),
        )
        if not own and sys.platform == "linux":
            with suppress(OSError):
                resource.prlimit(process.pid, resource.RLIMIT_DATA, (MAX_HEAP, MAX_HEAP))
        return process

    async def asked(self, work: Callable[..., T], *arguments: Any) -> T:
        return await in_thread_as(self._user, partial(work, *arguments))


async def find(query: FindQuery, hides: Hides | None = None, host: Host | None = None) -> Found:
    """The files whose path below `query.root` matches the glob, and the folders with files in them; the first ones in
    the order of paths. Raises ExecutorError. `hides`: what is left out. `host`: this machine if there is none."""
    host = host or Here()
    if host.ripgrep is not None:
        names = load(NAMES)(query, hides)
        argv = [host.ripgrep, *await _rules(query.root, host), "--files", "--null", "--", str(query.root)]
        run = await _run(argv, names, hides, query, host, lines=False)
        found = names.found()
        run.results, run.truncated = found[: query.max_results], len(found) > query.max_results
        if _is_answer(run):
            return await _confirmed(run, host)
    arguments = {"what": "find", "pattern": query.pattern, "root": str(query.root)}
    return await _run_worker(arguments, _found_path, hides, query, host)


async def grep(query: GrepQuery, hides: Hides | None = None, host: Host | None = None) -> Found:
    """The matching lines below `query.root` (or in it, when it is a file). Raises ExecutorError for a bad pattern."""
    host = host or Here()
    if host.ripgrep is not None and (query.glob is None or NAME_GLOB.fullmatch(query.glob)):
        argv = [host.ripgrep, *await _rules(query.root, host), *_lines_wanted(query), "--", str(query.root)]
        run = await _run(argv, _RipgrepLines(), hides, query, host)
        run.results.sort(key=lambda match: (match.path, match.line or 0))
        if _is_answer(run):
            return await _confirmed(run, host)
        # Its syntax lacks some of Python's (look-around, for one): the other dialect may accept the pattern. Or a line
        # was too long for it.
    arguments = {
        "what": "grep",
        "pattern": query.pattern,
        "root": str(query.root),
        "case_sensitive": query.case_sensitive,
        "glob": query.glob,
    }
    return await _run_worker(arguments, _found_line, hides, query, host)


def _is_answer(run: _Run) -> bool:
    """Whether ripgrep has searched. It ends with the same status for a pattern and for a file that it cannot read."""
    return run.status in (None, *DONE) or (run.status == BAD_PATTERN and (bool(run.results) or not run.stderr))


async def _rules(root: Path, host: Host) -> list[str]:
    """As git, it looks for `.gitignore` above the root only in a repository."""
    above = [folder / ".git" for folder in (root, *root.parents)]
    return [*RIPGREP, *([] if await host.asked(files.kinds, above) else ["--no-ignore-parent"]), "--no-ignore-messages"]


def _shown(parse: Parse, hides: Hides | None) -> Parse:
    """`parse` without what is hidden; it does not count."""
    if hides is None:
        return parse
    known: dict[Path, bool] = {}

    def visible(line: bytes) -> Match | LeftOut | None:
        found = parse(line)
        if found is None:
            return None
        if found.path not in known:
            known.clear()  # The lines of a file come together.
            known[found.path] = hides(found.path)
        return None if known[found.path] else found

    return visible


async def _run_worker(
    arguments: Mapping[str, object], parse: Parse, hides: Hides | None, query: FindQuery | GrepQuery, host: Host
) -> Found:
    return await _judged(await _run(await host.worker(arguments), parse, hides, query, host, own=True), host)


async def _judged(run: _Run, host: Host) -> Found:
    if run.status == BAD_PATTERN:
        raise ExecutorError(f"The pattern is {run.stderr}.")
    if run.status not in (0, None):
        raise ExecutorError(f"The search failed: {run.stderr.strip().rpartition(chr(10))[2]}")
    return await _confirmed(run, host)


async def _confirmed(run: _Run, host: Host) -> Found:
    """Without what is not, or not with these words, where it was found."""
    wanted: dict[Path, set[int]] = {}
    for match in run.results:
        if match.line is not None:
            wanted.setdefault(match.path, set()).add(match.line)
    found = [match.path for match in run.results if match.line is None]
    lines = await host.asked(files.lines_of, wanted) if wanted else {}
    kinds = await host.asked(files.kinds, found) if found else {}
    for path in (path for path in found if kinds.get(path) == files.UNREAD):
        run.omit(LeftOut(path))
    stand = tuple(match for match in run.results if _stands(match, lines, kinds))
    left_out, unread = tuple(run.left_out), tuple(run.unread)
    return Found(stand, run.truncated, run.timed_out, "", left_out, unread, run.unread_count)


def _stands(match: Match, lines: Mapping[Path, Mapping[int, str]], kinds: Mapping[Path, str]) -> bool:
    if match.line is not None:
        line, told = lines[match.path].get(match.line), match.text.removeprefix(BYTE_ORDER)
        return line is not None and line.startswith((told, LEFT_OUT.sub("", told) or told))
    kind = kinds.get(match.path, files.UNREAD)
    return kind != files.UNREAD and (kind == "dir") == (match.text == "dir")


def _lines_wanted(query: GrepQuery) -> list[str]:
    argv = ["--no-heading", "--with-filename", "--line-number", "--null", "--crlf"]
    argv += ["--max-columns", str(MAX_COLUMNS), "--max-columns-preview"]
    if not query.case_sensitive:
        argv.append("--ignore-case")
    if query.glob:
        # Not `--glob`, which would also find what .gitignore names.
        argv += ["--type-add", f"wanted:{query.glob}", "--type", "wanted"]
    return [*argv, "--regexp", query.pattern]


def _found_path(line: bytes) -> Match | LeftOut:
    path, is_dir = json.loads(line)
    return LeftOut(Path(path)) if is_dir is None else Match(Path(path), None, "dir" if is_dir else "file")


def _found_line(line: bytes) -> Match | LeftOut:
    path, number, text = json.loads(line)
    return Match(Path(path), number, text) if number else LeftOut(Path(path), large=text == "large")


class _RipgrepLines:
    """`path NUL number:text`, a line each. Only a path can hold a line feed: what has no NUL begins one."""

    def __init__(self) -> None:
        self._begun = b""

    def __call__(self, line: bytes) -> Match | None:
        path, mark, rest = (self._begun + line).partition(b"\0")
        if not mark:
            self._begun = path + b"\n"
            return None
        self._begun = b""
        number, colon, text = rest.partition(b":")
        if not colon or not number.isdigit():
            return None
        name = path.decode("utf-8", "surrogateescape")
        return Match(Path(name), int(number), text.decode("utf-8", OR_SINGLE_BYTE).rstrip("\r"))


async def _run(
    argv: list[str],
    parse: Parse,
    hides: Hides | None,
    query: FindQuery | GrepQuery,
    host: Host,
    *,
    own: bool = False,
    end: bytes = b"\n",
    lines: bool = True,
) -> _Run:
    """`end`: the byte behind each result. Without `lines`, `parse` is given the output in pieces, and keeps what it
    finds itself."""
    run, shown = _Run([]), _shown(parse, hides)
    with anyio.CancelScope(shield=True):  # A process that is only half started could not be waited for.
        process = await host.start(argv, own=own)
    try:
        with anyio.move_on_after(query.timeout) as scope:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_hear, process, run, hides)
                async for piece in _lines(process, end) if lines else _pieces(process):
                    if _take(run, shown(piece) if lines else parse(piece), query.max_results):
                        tasks.cancel_scope.cancel()
                        break
            if not run.truncated:
                run.status = await process.wait()
        run.timed_out = scope.cancelled_caught
    except ExceptionGroup as group:
        raise group.exceptions[0] from group
    finally:
        with anyio.CancelScope(shield=True):
            if process.returncode is None:
                process.kill()
            await process.aclose()
    return run


def _take(run: _Run, found: Match | LeftOut | None, most: int) -> bool:
    """Whether there are more results than that."""
    if isinstance(found, LeftOut):
        run.omit(found)
    elif found is not None:
        run.truncated = len(run.results) >= most
        run.results += [] if run.truncated else [found]
    return run.truncated


async def _hear(process: Process, run: _Run, hides: Hides | None) -> None:
    """What the program says on stderr: of files, that they cannot be read; else its own words, the last ones."""
    async for data in _lines(process, b"\n", errors=True):
        line = os.fsdecode(data)
        if (said := UNREAD.fullmatch(line)) is None:
            run.stderr = f"{run.stderr}{line}\n"[-MAX_LINE_BYTES:]
        elif int(said["error"]) != errno.ENOENT and not (hides is not None and hides(Path(said["path"]))):
            run.omit(LeftOut(Path(said["path"])))


async def _lines(process: Process, end: bytes, *, errors: bool = False) -> AsyncIterator[bytes]:
    """Of stdout or stderr; the last need not end with `end` there."""
    stream = BufferedByteReceiveStream(_open(process.stderr if errors else process.stdout))
    while True:
        try:
            yield await stream.receive_until(end, MAX_LINE_BYTES)
        except anyio.IncompleteRead:
            if errors and stream.buffer:
                yield stream.buffer
            return


async def _pieces(process: Process) -> AsyncIterator[bytes]:
    async for piece in _open(process.stdout):
        yield piece


def _open(stream: ByteReceiveStream | None) -> ByteReceiveStream:
    assert stream is not None
    return stream
