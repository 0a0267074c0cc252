"""Finds files and lines on a host that has a shell with coreutils, find and grep, or busybox, and no Python.

Programs over there list the tree and grep through it; what they say is weighed here by `sh_judge.py`, beside the agent:
`.gitignore` and globs by the rules of `search_worker.py`, lines by Python's own regular expressions, which the host's
`grep` is given in weaker words (`ere.py`). So the results are the worker's, except these: of a line with a NUL, in a
file whose first 8192 bytes have none, only what lies before it may be searched; rules over a megabyte in one
`.gitignore` are not read; a tree whose listing is over 100 MB is searched in part, and called truncated; there is no
empty line behind the last line feed, which counts to the worker's results before it is dropped.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar

import anyio
from anyio.abc import ByteSendStream
from anyio.abc import Process as Child
from anyio.streams.buffered import BufferedByteReceiveStream

from acp_agent.errors import ExecutorError
from acp_agent.executors import search
from acp_agent.executors.base import FindQuery, Found, GrepQuery, Match
from acp_agent.executors.tree_walk import Hides

JUDGE = """import sys
sys.path.append(sys.argv.pop(1))
sys.tracebacklimit = 0
from acp_agent.executors.posix.sh_judge import main
sys.exit(main())"""
"""What it says of an error is short: nobody reads that before it has ended."""
PACKAGES = str(Path(__file__).parents[3])
LISTING_SHARE = 0.7
"""Of the time, after which what has been listed has to do."""
MOST_LISTED = 100_000_000
"""Bytes."""
MOST_HEADER = 8 * MOST_LISTED
LEAST_LOOKED_AT = 20
"""Lines whose files are looked at at once, whether they are binary."""
LISTED = b"\0\0e\0"
"""Ends a listing, wherever it was broken off."""
NO_PROGRAM = (126, 127)
"""Exit statuses of a shell or of xargs."""

RULES = r"""printf '%s\0' "$1$2"; [ -f "$3" ] && head -c 1000000 "$3" | tr '\0' '\1'; printf '\0'"""
"""Of kind `$1`, in folder `$2`: what file `$3` says."""
PLAIN = r"""d=${1%/*}; while [ "$d" != . ]; do [ -e "$d/.gitignore" ] && exit 1; d=${d%/*}; done; exit 0"""
"""Whether there are no rules between the root and the folder `$1`."""
LIST = r"""
exec 2>/dev/null
LC_ALL=C; export LC_ALL
printf 'r\0'
[ -f "$1" ] && { find -H "$1" $4 -exec printf 'a\0' \;; exit 0; }
R=$2 P=$3 S=$4 d=$1
while [ ! -e "$d/.git" ]; do
  [ "$d" = / ] && { d=; break; }
  d=${d%/*}; d=${d:-/}
  sh -c "$R" sh u "$d" "$d/.gitignore"
done
[ -n "$d" ] && sh -c "$R" sh x "$d" "$d/.git/info/exclude"
cd "$1" || exit 0
set -- -name .git
[ -f .gitignore ] && while IFS= read -r n || [ -n "$n" ]; do
  n=${n%/}
  case $n in
    *!*) set -- -name .git; break;;
    ''|.|..|*[!A-Za-z0-9_.-]*) ;;
    *) [ $# -lt 300 ] && set -- "$@" -o -name "$n";;
  esac
done <.gitignore
find . -name .git -prune -o -type d \( "$@" \) -exec sh -c "$P" sh {} \; -prune \
  -o -type d -exec printf 'd%s\0' {} + \
  -o -name .gitignore ! -type d -exec sh -c "$R; exit 1" sh g {} {} \; \
  -o -type f $S -exec printf 'f%s\0' {} +
exit 0
"""
"""`$1`: the root, `$2` and `$3`: those two, `$4`: which files. A folder is not entered whose plain name the
root's own rules exclude, if none of them begins with `!`, and there are none in a folder between. (Busybox's find
forgets an `-exec … +` that is in parentheses.)"""
GREP = r"""
exec 2>/dev/null
LC_ALL=C; export LC_ALL
exec <"$2"
rm -f "$2"
cd "$1" || exit 0
IFS= read -r p
grep -aE -e "$p" </dev/null
[ $? -gt 1 ] && p=^
exec xargs -0 grep -naHE -e "$p"
"""
"""`$1`: the folder, `$2`: the pattern in a line, then paths."""
ZEROS = r"""
exec 2>/dev/null <"$1"
LC_ALL=C; export LC_ALL
rm -f "$1"
exec xargs -0 sh -c 'for f; do head -c 8192 "$f" | tr -cds "\0" "\0"; echo; done' sh
"""
"""A line for each path that `$1` has: a NUL if the beginning of the file has one."""
WHOLE = f'exec 2>/dev/null; exec head -c {search.MAX_FILE_BYTES} "$1"'

T = TypeVar("T")


class Host(Protocol):
    """Where it is searched."""

    async def start(self, argv: list[str], *, own: bool = False) -> search.Process:
        """Starts a program there; to kill it kills what it started."""
        ...

    async def put(self, data: bytes) -> str:
        """Makes a private file there and returns its path."""
        ...

    async def asked(self, work: Callable[..., T], *arguments: Any) -> T:
        """What one of the functions of `files` returns there."""
        ...


async def find(query: FindQuery, hides: Hides | None, host: Host) -> Found:
    """As `search.find`."""
    arguments = {"what": "find", "pattern": query.pattern, "root": str(query.root)}
    return await _Find(query, search._shown(search._found_path, hides), host, arguments).found()


async def grep(query: GrepQuery, hides: Hides | None, host: Host) -> Found:
    """As `search.grep`."""
    arguments = {
        "what": "grep",
        "pattern": query.pattern,
        "root": str(query.root),
        "case_sensitive": query.case_sensitive,
        "glob": query.glob,
    }
    return await _Grep(query, search._shown(search._found_line, hides), host, arguments).found()


class _Find:
    def __init__(
        self, query: FindQuery | GrepQuery, parse: search.Parse, host: Host, arguments: Mapping[str, object]
    ) -> None:
        self._query, self._parse, self._host, self._arguments = query, parse, host, arguments
        self._run = search._Run([])

    async def found(self) -> Found:
        run = self._run
        with anyio.move_on_after(self._query.timeout) as scope:
            async with _judge(self._arguments) as judge:
                await self._list(judge)
                if await self._weigh(judge):
                    await _finish(judge, run)
        run.timed_out = run.timed_out or scope.cancelled_caught
        return await search._judged(run, self._host)

    async def _list(self, judge: Child) -> None:
        assert judge.stdin is not None
        size = f"! -size +{search.MAX_FILE_BYTES}c" if self._arguments["what"] == "grep" else ""
        argv = ["sh", "-c", LIST, "sh", str(self._query.root), RULES, PLAIN, size]
        with anyio.move_on_after(self._query.timeout * LISTING_SHARE) as scope:
            async with _started(self._host, argv) as lister:
                self._run.truncated = not await _pass_on(lister, judge.stdin, MOST_LISTED)
        self._run.timed_out = scope.cancelled_caught
        await _tell(judge.stdin, LISTED)

    async def _weigh(self, judge: Child) -> bool:
        """Whether all that the judge has to say was heard."""
        async for batch in _batches(judge):
            if not all(self._takes(match) for match in map(self._parse, batch) if match is not None):
                return False
        return True

    def _takes(self, match: Match) -> bool:
        """`False`: there is no room for it."""
        if len(self._run.results) >= self._query.max_results:
            self._run.truncated = True
            return False
        self._run.results.append(match)
        return True


class _Grep(_Find):
    def __init__(
        self, query: FindQuery | GrepQuery, parse: search.Parse, host: Host, arguments: Mapping[str, object]
    ) -> None:
        super().__init__(query, parse, host, arguments)
        self._binary: dict[Path, bool] = {}

    async def _weigh(self, judge: Child) -> bool:
        assert judge.stdout is not None and judge.stdin is not None
        try:
            header = json.loads(await BufferedByteReceiveStream(judge.stdout).receive_until(b"\n", MOST_HEADER))
        except anyio.IncompleteRead:
            return True
        if not header["put"]:
            return True
        path = await self._host.put(header["put"].encode("latin-1"))
        async with _started(self._host, ["sh", "-c", GREP, "sh", header["folder"], path]) as grep:
            async with _beside(partial(_pass_on_all, grep, judge.stdin)):
                heard = await self._lines(judge)
            if heard and await grep.wait() in NO_PROGRAM:
                raise ExecutorError("The search failed: there is no xargs or no grep there")
        return heard

    async def _lines(self, judge: Child) -> bool:
        async for batch in _batches(judge):
            matches = [match for match in map(self._parse, batch) if match is not None]
            while matches:
                size = max(LEAST_LOOKED_AT, self._query.max_results - len(self._run.results) + 1)
                some, matches = matches[:size], matches[size:]
                await self._look({match.path for match in some if match.line} - self._binary.keys())
                for match in some:
                    if not (self._binary.get(match.path) or await self._take(match)):
                        return False
        return True

    async def _take(self, match: Match) -> bool:
        return self._takes(match) if match.line else await self._wide(match.path)

    async def _wide(self, path: Path) -> bool:
        """Takes the lines of a file in UTF-16."""
        async with _judge({**self._arguments, "what": "text", "root": str(path)}) as judge:
            assert judge.stdin is not None
            argv = ["sh", "-c", WHOLE, "sh", str(path)]
            async with _started(self._host, argv) as reader, _beside(partial(_pass_on_all, reader, judge.stdin)):
                return await super()._weigh(judge)

    async def _look(self, paths: set[Path]) -> None:
        """Finds out which are binary."""
        if not paths:
            return
        self._binary.update(dict.fromkeys(paths, False))
        listed = await self._host.put(b"".join(os.fsencode(path) + b"\0" for path in paths))
        async with _started(self._host, ["sh", "-c", ZEROS, "sh", listed]) as looker:
            assert looker.stdout is not None
            said = b"".join([data async for data in looker.stdout])
        self._binary.update((path, zero == b"\0") for path, zero in zip(paths, said.split(b"\n"), strict=False))


@asynccontextmanager
async def _judge(arguments: Mapping[str, object]) -> AsyncIterator[Child]:
    argv = [sys.executable, "-I", "-c", JUDGE, PACKAGES, json.dumps(arguments)]
    with anyio.CancelScope(shield=True):  # A process that is only half started could not be waited for.
        process = await anyio.open_process(
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
        )
    async with _ending(process):
        yield process


@asynccontextmanager
async def _started(host: Host, argv: list[str]) -> AsyncIterator[search.Process]:
    with anyio.CancelScope(shield=True):
        process = await host.start(argv)
    async with _ending(process):
        yield process


@asynccontextmanager
async def _ending(process: search.Process) -> AsyncIterator[None]:
    try:
        yield
    finally:
        with anyio.CancelScope(shield=True):
            if process.returncode is None:
                process.kill()
            await process.aclose()


@asynccontextmanager
async def _beside(work: Callable[[], Coroutine[Any, Any, None]]) -> AsyncIterator[None]:
    """Works meanwhile, and no longer."""
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(work)
            yield
            tasks.cancel_scope.cancel()
    except ExceptionGroup as group:
        raise group.exceptions[0] from None


async def _pass_on_all(process: search.Process, to: ByteSendStream) -> None:
    await _pass_on(process, to, sys.maxsize)
    await to.aclose()


async def _pass_on(process: search.Process, to: ByteSendStream, most: int) -> bool:
    """Whether it was at most so many bytes."""
    assert process.stdout is not None
    async for data in process.stdout:
        most -= len(data)
        if most < 0 or not await _tell(to, data):
            break
    return most >= 0


async def _tell(to: ByteSendStream, data: bytes) -> bool:
    """`False`: nobody hears it."""
    try:
        await to.send(data)
    except (OSError, anyio.BrokenResourceError, anyio.ClosedResourceError):
        return False
    return True


async def _batches(judge: Child) -> AsyncIterator[list[bytes]]:
    """Its lines, as many at once as there are."""
    assert judge.stdout is not None
    rest = b""
    async for data in judge.stdout:
        *lines, rest = (rest + data).split(b"\n")
        yield lines


async def _finish(judge: Child, run: search._Run) -> None:
    assert judge.stderr is not None
    said = b"".join([data async for data in judge.stderr])
    status = await judge.wait()
    if status == search.BAD_PATTERN or not run.timed_out:
        run.status, run.stderr = status, said.decode("utf-8", "replace")
