"""Searches a file tree as a separate program, so that a hostile pattern or an endless tree can be killed.

Started by `search.py` with one JSON argument; writes one JSON list per result to stdout. Needs only the standard
library and `pathspec`. Respects `.gitignore` (nested ones, those of the folders above up to the repository's root, and
`.git/info/exclude`), follows no link, skips `.git`. What cannot be read is a result, too, of which this is said.
"""

from __future__ import annotations

import codecs
import io
import json
import os
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from pathspec import GitIgnoreSpec

SNIFF_BYTES = 8192
MAX_FILE_BYTES = 50_000_000
MAX_LINE_CHARS = 500
CUT = " [... omitted end of long line]"
"""Stands behind so many of a longer line, as ripgrep has it."""
BAD_PATTERN = 2
"""Exit status, as ripgrep's."""

BELOW = "ps_d"
"""pathspec's name for the slash after which a path only lies below what matches."""

BACKEND = "simple"
"""pathspec's engine of its own: the others take no names that are no UTF-8."""

Compiled = Callable[[str], Any]
"""`re.compile`, or what stands for it."""
Specs = tuple[tuple[str, GitIgnoreSpec], ...]
"""Folders with the rules that are in them; the innermost last."""


class BadGlob(Exception):
    """An invalid glob; says why."""


def main() -> int:
    query = json.loads(sys.argv[1])
    if query.get("user") is not None:
        uid, gid, groups = query["user"]
        os.setgroups(groups)
        os.setgid(gid)
        os.setuid(uid)
    out = sys.stdout
    try:
        for result in _grep(query) if query["what"] == "grep" else _find(query):
            out.write(json.dumps(result) + "\n")
        out.flush()
    except re.error as error:
        sys.stderr.write(f"not a valid regular expression: {error}")
        return BAD_PATTERN
    except BadGlob as error:
        sys.stderr.write(f"not a valid glob: {error}")
        return BAD_PATTERN
    return 0


def _find(query: dict[str, Any]) -> Iterator[list[Any]]:
    pattern, root = query["pattern"], query["root"]
    wanted = by_name(pattern)
    for path, is_dir in _walk(root, _specs_above(root)):
        if is_dir is None:
            yield [path, None]
        elif (is_dir or not pattern.endswith("/")) and wanted(os.path.relpath(path, root)):
            yield [path, is_dir]


def by_name(pattern: str, compiled: Compiled = re.compile) -> Callable[[str], bool]:
    """Whether a path itself matches; what only lies in a folder that matches does not."""
    regexes = _regexes(pattern.rstrip("/") or pattern, compiled)

    def matches(path: str) -> bool:
        found = [regex.match(path) for regex in regexes]
        return any(one is not None and one.groupdict().get(BELOW) is None for one in found)

    return matches


def by_glob(pattern: str, compiled: Compiled = re.compile) -> Callable[[str], bool]:
    """Whether a file is searched; `!` before the pattern turns it around."""
    regexes = _regexes(pattern.removeprefix("!"), compiled)
    return lambda path: any(regex.match(path) for regex in regexes) != pattern.startswith("!")


def _regexes(pattern: str, compiled: Compiled) -> list[Any]:
    found = [getattr(one, "regex", None) for one in _spec(pattern).patterns]
    return [compiled(regex.pattern) for regex in found if regex is not None]


def _spec(pattern: str) -> GitIgnoreSpec:
    try:
        return GitIgnoreSpec.from_lines([pattern], backend=BACKEND)
    except ValueError as error:
        raise BadGlob(pattern) from error


def _grep(query: dict[str, Any]) -> Iterator[list[Any]]:
    pattern = re.compile(query["pattern"], 0 if query["case_sensitive"] else re.IGNORECASE)
    root = query["root"]
    alone = os.path.isfile(root)
    only = by_glob(query["glob"]) if query.get("glob") and not alone else None
    for path, is_dir in [(root, False)] if alone else _walk(root, _specs_above(root)):
        if is_dir is None:
            yield [path, 0, "unread"]
        if is_dir is not False or (only is not None and not only(os.path.relpath(path, root))):
            continue
        try:
            for number, line in _lines(path, sys.maxsize if alone else MAX_FILE_BYTES):
                if not number or pattern.search(line):
                    yield [path, number, cut(line)]
        except FileNotFoundError:
            continue
        except OSError:
            yield [path, 0, "unread"]


def cut(line: str) -> str:
    return line if len(line) <= MAX_LINE_CHARS else line[:MAX_LINE_CHARS] + CUT


def _lines(path: str, most_bytes: int) -> Iterator[tuple[int, str]]:
    """None of a binary file's. Number 0: it is larger than that. Raises OSError."""
    with open(path, "rb") as file:
        head = file.read(SNIFF_BYTES)
        wide = head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
        if b"\0" in head and not wide:
            return
        if os.fstat(file.fileno()).st_size > most_bytes:
            yield 0, "large"
            return
        file.seek(0)
        encoding, errors = ("utf-16", "replace") if wide else ("utf-8", "single-byte")
        for number, line in enumerate(io.TextIOWrapper(file, encoding, errors, newline="\n"), 1):
            yield number, line.removesuffix("\n").removesuffix("\r")


def _as_single_byte(error: UnicodeError) -> tuple[str, int]:
    """What is no UTF-8 is windows-1252, or latin-1 where that has no character: as in `encodings`."""
    assert isinstance(error, UnicodeDecodeError)
    wrong = error.object[error.start : error.end]
    try:
        return wrong.decode("cp1252"), error.end
    except UnicodeDecodeError:
        return wrong.decode("latin-1"), error.end


codecs.register_error("single-byte", _as_single_byte)


def _walk(root: str, above: Specs) -> Iterator[tuple[str, bool | None]]:
    """In the order of paths, every file below `root` that is not ignored and every folder with such a file, and whether
    it is a folder; `None`: one that cannot be read. No recursion: a tree may be deep."""
    pending, without = [(root, True, above)], list[str]()
    while pending:
        path, is_dir, specs = pending.pop()
        while without and not path.startswith(os.path.join(without[-1], "")):
            without.pop()
        if not is_dir:
            yield from ((folder, True) for folder in without)
            without.clear()
            yield path, False
            continue
        if path != root:
            without.append(path)
        try:
            with os.scandir(path) as scan:
                entries = sorted(scan, key=lambda entry: entry.name, reverse=True)
        except FileNotFoundError:
            continue
        except OSError:
            yield path, None
            continue
        if path != root and any(entry.name == ".git" for entry in entries):
            specs = _excluded(path)
        specs = _with_rules(path, specs)
        for entry in entries:
            is_dir = entry.is_dir(follow_symlinks=False)
            if entry.name != ".git" and (is_dir or entry.is_file(follow_symlinks=False)):
                pending += [] if _ignored(entry.path, is_dir, specs) else [(entry.path, is_dir, specs)]


def _rules(path: str) -> GitIgnoreSpec | None:
    """`None` if it is no file that can be read: a pipe would be waited for."""
    try:
        if os.path.isfile(path):
            with open(path, encoding="utf-8", errors="replace") as file:
                return GitIgnoreSpec.from_lines(file, backend=BACKEND)
    except (OSError, ValueError):
        pass
    return None


def _with_rules(folder: str, specs: Specs) -> Specs:
    rules = _rules(os.path.join(folder, ".gitignore"))
    return specs if rules is None else (*specs, (folder, rules))


def _specs_above(root: str) -> Specs:
    """The rules of the folders between the repository's root and `root`."""
    above = [Path(root), *Path(root).parents]
    repository = next((folder for folder in above if (folder / ".git").exists()), None)
    if repository is None:
        return ()
    specs = _excluded(str(repository))
    for folder in reversed(above[1 : above.index(repository) + 1]):
        specs = _with_rules(str(folder), specs)
    return specs


def _excluded(repository: str) -> Specs:
    rules = _rules(os.path.join(repository, ".git", "info", "exclude"))
    return () if rules is None else ((repository, rules),)


def _ignored(path: str, is_dir: bool, specs: Specs) -> bool:
    for folder, spec in reversed(specs):
        relative = os.path.relpath(path, folder) + ("/" if is_dir else "")
        verdict = spec.check_file(relative).include
        if verdict is not None:
            return verdict
    return False


if __name__ == "__main__":
    sys.exit(main())
