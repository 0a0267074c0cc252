"""Finds files by name and lines by pattern on this machine, with ripgrep if installed, else our own walk.

Both run as child processes, bounded in time and in results, and are killed when the call is cancelled. They open files
by name, so a folder swapped for a link in the meantime may lead them elsewhere: results are checked again through
folder handles (see `files`) and returned only if found there, too.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path

import anyio
import anyio.to_thread
from anyio.abc import Process
from anyio.streams.buffered import BufferedByteReceiveStream
from msgspec import Struct

from acp_agent.child import User
from acp_agent.errors import ExecutorError
from acp_agent.executors import files
from acp_agent.executors.base import FindQuery, Found, GrepQuery, Match
from acp_agent.executors.encodings import OR_SINGLE_BYTE
from acp_agent.executors.tree_walk import Hides
from acp_agent.executors.users import acting_as

WORKER = Path(__file__).with_name("search_worker.py")
MAX_LINE_BYTES = 1_000_000
MAX_COLUMNS = 500
LEFT_OUT = re.compile(r" \[\.\.\. (?:omitted end of long line|\d+ more match(?:es)?)\]\Z")
"""The text ripgrep puts behind the first `MAX_COLUMNS` bytes of a line."""
MAX_FILE_BYTES = 50_000_000
"""Longer files are not searched, here and in the worker."""
BYTE_ORDER = "\ufeff"
NAME_GLOB = re.compile(r"[^/!:\\][^/:\\]*")
"""A glob on names alone, which ripgrep can take for a type of files."""

Parse = Callable[[bytes], Match | None]
"""A line of the child's output -> a result, if it is one."""

BAD_PATTERN = 2
"""Exit status of both programs for a pattern they cannot read."""


class _Run(Struct):
    results: list[Match]
    truncated: bool = False
    timed_out: bool = False
    status: int | None = None
    stderr: str = ""


async def find(query: FindQuery, hides: Hides | None = None, user: User | None = None) -> Found:
    """The files and folders whose path below `query.root` matches the glob. Raises ExecutorError. `hides`: what is
    left out. `user`: whose search it is, if not ours."""
    arguments = {"what": "find", "pattern": query.pattern, "root": str(query.root)}
    return await _run_worker(arguments, _shown(_found_path, hides), query, user)


async def grep(
    query: GrepQuery, hides: Hides | None = None, ripgrep: str | None = None, user: User | None = None
) -> Found:
    """The matching lines below `query.root` (or in it, when it is a file). Raises ExecutorError for a bad pattern.
    `ripgrep`: the program, if it is installed."""
    if ripgrep is not None and (query.glob is None or NAME_GLOB.fullmatch(query.glob)):
        run = await _run(_ripgrep(ripgrep, query), _shown(_RipgrepLines(), hides), query, user)
        if run.status != BAD_PATTERN or run.results:
            return await _confirmed(run, user)
        # Its syntax lacks some of Python's (look-around, for one): the other dialect may accept the pattern.
    arguments = {
        "what": "grep",
        "pattern": query.pattern,
        "root": str(query.root),
        "case_sensitive": query.case_sensitive,
        "glob": query.glob,
    }
    return await _run_worker(arguments, _shown(_found_line, hides), query, user)


def _shown(parse: Parse, hides: Hides | None) -> Parse:
    """`parse` without the results that are hidden; they do not count."""
    if hides is None:
        return parse
    known: dict[Path, bool] = {}

    def visible(line: bytes) -> Match | None:
        match = parse(line)
        if match is None:
            return None
        if match.path not in known:
            known[match.path] = hides(match.path)
        return None if known[match.path] else match

    return visible


async def _run_worker(
    arguments: Mapping[str, object], parse: Parse, query: FindQuery | GrepQuery, user: User | None
) -> Found:
    # It changes its user itself: that user may not be able to read our interpreter.
    who = None if user is None else [user.uid, user.gid, user.groups]
    argv = [sys.executable, "-I", str(WORKER), json.dumps({**arguments, "user": who})]
    run = await _run(argv, parse, query, None)
    if run.status == BAD_PATTERN:
        raise ExecutorError(f"The pattern is {run.stderr}.")
    if run.status not in (0, None):
        raise ExecutorError(f"The search failed: {run.stderr.strip().rpartition(chr(10))[2]}")
    return await _confirmed(run, user)


async def _confirmed(run: _Run, user: User | None) -> Found:
    """Without what is not, or not with these words, where it was found."""

    def look() -> tuple[Match, ...]:
        wanted: dict[Path, set[int]] = {}
        for match in run.results:
            if match.line is not None:
                wanted.setdefault(match.path, set()).add(match.line)
        with acting_as(user):
            lines = {path: _lines_of(path, numbers) for path, numbers in wanted.items()}
            return tuple(match for match in run.results if _stands(match, lines))

    return Found(await anyio.to_thread.run_sync(look), run.truncated, run.timed_out)


def _stands(match: Match, lines: Mapping[Path, Mapping[int, str]]) -> bool:
    if match.line is not None:
        line, told = lines[match.path].get(match.line), match.text.removeprefix(BYTE_ORDER)
        return line is not None and line.startswith((told, LEFT_OUT.sub("", told) or told))
    try:
        found = files.look_at(match.path)
    except (OSError, ExecutorError):
        return False
    return found is not None and (found.kind == "dir") == (match.text == "dir")


def _lines_of(path: Path, numbers: set[int]) -> dict[int, str]:
    try:
        return files.lines(path, numbers, MAX_FILE_BYTES)
    except (OSError, ExecutorError):
        return {}


def _ripgrep(program: str, query: GrepQuery) -> list[str]:
    argv = [program, "--no-config", "--no-heading", "--with-filename", "--line-number", "--null", "--color=never"]
    argv += ["--hidden", "--glob=!.git", "--no-messages", "--sort=path", "--max-columns", str(MAX_COLUMNS)]
    argv += ["--max-columns-preview", "--no-require-git", "--crlf"]
    argv += ["--max-filesize", str(MAX_FILE_BYTES)]
    if not query.case_sensitive:
        argv.append("--ignore-case")
    if query.glob:
        # Not `--glob`, which would also find what .gitignore names.
        argv += ["--type-add", f"wanted:{query.glob}", "--type", "wanted"]
    return [*argv, "--regexp", query.pattern, "--", str(query.root)]


def _found_path(line: bytes) -> Match:
    path, is_dir = json.loads(line)
    return Match(Path(path), None, "dir" if is_dir else "file")


def _found_line(line: bytes) -> Match:
    path, number, text = json.loads(line)
    return Match(Path(path), number, text)


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


async def _run(argv: list[str], parse: Parse, query: FindQuery | GrepQuery, user: User | None) -> _Run:
    run = _Run([])
    with anyio.CancelScope(shield=True):  # A process that is only half started could not be waited for.
        process = await anyio.open_process(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            **(user.popen if user is not None else {}),
        )
    try:
        with anyio.move_on_after(query.timeout) as scope:
            async for line in _lines(process):
                match = parse(line)
                if match is not None and len(run.results) >= query.max_results:
                    run.truncated = True
                    break
                if match is not None:
                    run.results.append(match)
            else:
                assert process.stderr is not None
                async for data in process.stderr:
                    run.stderr += data.decode("utf-8", "replace")
                run.status = await process.wait()
        run.timed_out = scope.cancelled_caught
    finally:
        with anyio.CancelScope(shield=True):
            if process.returncode is None:
                process.kill()
            await process.aclose()
    return run


async def _lines(process: Process) -> AsyncIterator[bytes]:
    assert process.stdout is not None
    stream = BufferedByteReceiveStream(process.stdout)
    while True:
        try:
            yield await stream.receive_until(b"\n", MAX_LINE_BYTES)
        except anyio.IncompleteRead:
            return
