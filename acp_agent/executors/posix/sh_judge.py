"""Decides here what is found on a host without Python: a program of its own, because a hostile pattern, glob or
`.gitignore` may take for ever, and a program can be killed.

Started by `sh_search.py` with one JSON argument; it gets on stdin what the host's programs print, as it comes, and
writes one JSON value a line. To find: the listing, then the results, as those of `search_worker.py`, whose rules these
are. To search: the listing, then what to give to `grep` there, then its output, then the results; one with line 0 is a
file in UTF-16. To search a text: that of one file.

A listing is of fields that end with NUL; the first byte is the kind: `r` it has begun, `a` the root is a file, `d` and
`f` a folder and a file below it, `g` the rules of a folder, `u` of one above, `x` of the repository (text follows, as
the next field), `e` there is no more.
"""

from __future__ import annotations

import codecs
import io
import json
import os
import posixpath
import re
import sys
from collections.abc import Iterable, Iterator
from typing import Any, BinaryIO

from acp_agent.executors.posix.ere import EVERY, ere
from acp_agent.executors.search_worker import (
    BAD_PATTERN,
    MAX_FILE_BYTES,
    MAX_LINE_CHARS,
    BadGlob,
    Specs,
    by_glob,
    by_name,
    ignored,
    lines_of,
    rules,
)

MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
ODD = (b".//", b"././")
DIGITS = 20
"""Binary ones, of the number of a file whose name is odd."""
LONGEST = MAX_FILE_BYTES + 10_000
"""Bytes of a line of grep's."""
READ_SIZE = 65_536


class Listing:
    def __init__(self) -> None:
        self.begun = self.alone = False
        self.below: dict[str, list[tuple[str, bool]]] = {}
        """By folder: names, and whether they are folders."""
        self.rules: dict[str, bytes] = {}
        self.above: list[tuple[str, bytes]] = []
        """The innermost first."""
        self.repository: tuple[str, bytes] | None = None


def main() -> int:
    query = json.loads(sys.argv[1])
    try:
        for result in WHAT[query["what"]](query, sys.stdin.buffer):
            sys.stdout.write(json.dumps(result) + "\n")
            sys.stdout.flush()
    except re.error as error:
        sys.stderr.write(f"not a valid regular expression: {error}")
        return BAD_PATTERN
    except BadGlob as error:
        sys.stderr.write(f"not a valid glob: {error}")
        return BAD_PATTERN
    return 0


def _find(query: dict[str, Any], stdin: BinaryIO) -> Iterator[object]:
    pattern, root = query["pattern"], query["root"]
    wanted = by_name(pattern)
    for path, is_dir in _walk(_listing(stdin), root):
        if (is_dir or not pattern.endswith("/")) and wanted(path):
            yield [os.path.join(root, path), is_dir]


def _grep(query: dict[str, Any], stdin: BinaryIO) -> Iterator[object]:
    pattern, root = _pattern(query), query["root"]
    listing = _listing(stdin)
    folder, names = os.path.split(root) if listing.alone else (root, None)
    only = by_glob(query["glob"]) if query.get("glob") and not listing.alone else None
    found = [names] if names is not None else [path for path, is_dir in _walk(listing, root) if not is_dir]
    paths = Spelling()
    spelled = [paths.spell(_bytes(path)) for path in found if only is None or only(path)]
    weaker = ere(query["pattern"], pattern.flags)
    weaker = weaker if weaker == EVERY else b"|".join([weaker, *(b"^" + mark for mark in MARKS)])
    put = weaker + b"\n" + b"".join(path + b"\0" for path in spelled) if spelled else b""
    yield {"folder": folder, "put": put.decode("latin-1")}
    if spelled:
        yield from _matches(pattern, folder, paths.records(stdin))


def _text(query: dict[str, Any], stdin: BinaryIO) -> Iterator[object]:
    pattern = _pattern(query)
    for number, line in lines_of(stdin.read()):
        if pattern.search(line):
            yield [query["root"], number, line[:MAX_LINE_CHARS]]


WHAT = {"find": _find, "grep": _grep, "text": _text}


def _pattern(query: dict[str, Any]) -> re.Pattern[str]:
    return re.compile(query["pattern"], 0 if query["case_sensitive"] else re.IGNORECASE)


def _matches(
    pattern: re.Pattern[str], folder: str, records: Iterable[tuple[bytes, int, bytes]]
) -> Iterator[list[object]]:
    wide = b""
    for name, number, data in records:
        if number == 1 and data.startswith(MARKS):
            wide = name
            yield [os.path.join(folder, _str(name)), 0, ""]
        elif name != wide:
            line = data.decode("utf-8", "single-byte").removesuffix("\r")
            if pattern.search(line):
                yield [os.path.join(folder, _str(name)), number, line[:MAX_LINE_CHARS]]


class Spelling:
    """Paths so written that it is certain where they end in `path:number:text`. One with a colon or a line feed has its
    number before it, of `/` and `./`, which mean nothing in a path."""

    def __init__(self) -> None:
        self._odd: list[bytes] = []

    def spell(self, path: bytes) -> bytes:
        if b":" not in path and b"\n" not in path:
            return b"./" + path
        self._odd.append(path)
        return b"./" + b"".join((b"/", b"./")[digit == "1"] for digit in f"{len(self._odd) - 1:0{DIGITS}b}") + path

    def records(self, stream: BinaryIO) -> Iterator[tuple[bytes, int, bytes]]:
        """The path, the line's number, the line."""
        while line := stream.readline(LONGEST):
            path, end = self._odd_path(line) if line.startswith(ODD) else (line[2 : line.find(b":")], line.find(b":"))
            while len(line) <= end and (more := stream.readline(LONGEST)):
                line += more
            number, _, text = line[end + 1 :].partition(b":")
            if number.isdigit():
                yield path, int(number), text.removesuffix(b"\n")

    def _odd_path(self, line: bytes) -> tuple[bytes, int]:
        end, number = 2, 0
        for _ in range(DIGITS):
            one = line[end : end + 1] == b"."
            end, number = end + 1 + one, number * 2 + one
        path = self._odd[number]
        return path, end + len(path)


def _listing(stdin: BinaryIO) -> Listing:
    listing = Listing()
    fields = _fields(stdin)
    for field in fields:
        kind, path = field[:1], _str(field[1:])
        if kind == b"e":
            break
        if kind in (b"d", b"f") and path != ".":
            folder, name = posixpath.split(path[2:])
            listing.below.setdefault(folder, []).append((name, kind == b"d"))
        elif kind == b"g":
            listing.rules[posixpath.dirname(path[2:])] = next(fields, b"")
        elif kind == b"u":
            listing.above.append((path, next(fields, b"")))
        elif kind == b"x":
            listing.repository = path, next(fields, b"")
        listing.begun = listing.begun or kind == b"r"
        listing.alone = listing.alone or kind == b"a"
    if not listing.begun:
        raise SystemExit("no shell answered there")
    return listing


def _fields(stream: BinaryIO) -> Iterator[bytes]:
    rest = b""
    while data := os.read(stream.fileno(), READ_SIZE):
        *whole, rest = (rest + data).split(b"\0")
        yield from whole


def _walk(listing: Listing, root: str) -> Iterator[tuple[str, bool]]:
    """As that of `search_worker`, of paths below the root."""
    pending = [("", _specs_above(listing))]
    while pending:
        folder, specs = pending.pop()
        if folder:
            yield folder, True
        if folder in listing.rules:
            specs = _with_rules(os.path.join(root, folder), listing.rules[folder], specs)
        folders = []
        for name, is_dir in sorted(listing.below.get(folder, ())):
            path = posixpath.join(folder, name)
            if name == ".git" or ignored(os.path.join(root, path), is_dir, specs):
                continue
            if is_dir:
                folders.append((path, specs))
            else:
                yield path, False
        pending.extend(reversed(folders))


def _specs_above(listing: Listing) -> Specs:
    specs: Specs = ()
    if listing.repository is not None:
        for folder, text in (listing.repository, *reversed(listing.above)):
            specs = _with_rules(folder, text, specs)
    return specs


def _with_rules(folder: str, text: bytes, specs: Specs) -> Specs:
    try:
        return (*specs, (folder, rules(io.TextIOWrapper(io.BytesIO(text), "utf-8", "replace"))))
    except ValueError:
        return specs


def _str(path: bytes) -> str:
    return path.decode("utf-8", "surrogateescape")


def _bytes(path: str) -> bytes:
    return path.encode("utf-8", "surrogateescape")
