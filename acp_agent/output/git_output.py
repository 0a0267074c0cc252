"""Finds lines of `git status` and of a diff that may be removed, for the strategies with these names."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from acp_agent.linear import compiled
from acp_agent.output.cut import Cut, Omission

STATUS = compiled(
    r"(?m)^(?:# )?(?:On branch |HEAD detached |Not currently on any branch|interactive rebase in progress"
    r"|rebase in progress"
    r"|No commits yet|nothing to commit|## |[ MTADRCU?!]{2} \S)"
)
BEGINNING = compiled(
    r"^(?:# )?(?:On branch |HEAD detached |Not currently on any branch|interactive rebase in |rebase in )"
)
HINT = compiled(r"^\s+\((?:use|fix conflicts|run|commit or discard|see) .*\)$")
ENTRY = compiled(r"^\t(?:(?P<what>[a-z][a-z ]*:) +)?(?P<path>.*)$")
CLOSING = compiled(
    r"^(?P<said>no changes added to commit|nothing added to commit but untracked files present|.*nothing to commit) \("
)
HINTS = Omission("hint", "hints")
BLANK = Omission("blank line", "blank lines")

FILE = compiled(r"^diff (?:--git a/(?P<git>.+) b/.+|--(?:cc|combined) (?P<merged>.+))$")
HUNK = compiled(r"^@@+ -\d+(?:,(?P<old>\d+))? (?:-\d+(?:,\d+)? )*\+\d+(?:,(?P<new>\d+))? @@+")


def git_status_cut(lines: Sequence[str]) -> Cut:
    """Removes hints and blank lines, keeps each path, indented by one blank. Fallback if it is not a status. Does not
    touch another program's output before the status."""
    if STATUS.search("\n".join(lines)) is None:
        return Cut("Fallback")
    dropped: dict[int, Omission] = {}
    changed: dict[int, str] = {}
    begun = False
    for place, line in enumerate(lines):
        begun = begun or BEGINNING.search(line) is not None
        if not begun:
            continue
        if not line.strip():
            dropped[place] = BLANK
        elif HINT.search(line) is not None:
            dropped[place] = HINTS
        elif (entry := ENTRY.search(line)) is not None:
            what = entry.group("what")
            changed[place] = f" {what} {entry.group('path')}" if what else f" {entry.group('path')}"
        elif (closing := CLOSING.search(line)) is not None:
            changed[place] = closing.group("said")
    return Cut("Full", dropped, changed=changed)


class _File(Struct):
    name: str
    contents: list[int] = []
    """Indices of its lines within hunks."""


def git_diff_cut(lines: Sequence[str], max_lines: int) -> Cut:
    """Keeps headers of files and hunks; the rest of `max_lines` is divided among the files, small ones first.

    Full if everything fits, Partial if lines were cut, Fallback for a long text without a hunk.
    """
    if len(lines) <= max_lines:
        return Cut("Full")
    files = _files(lines)
    contents = sum(len(file.contents) for file in files)
    if contents == 0:
        return Cut("Fallback")
    room = max(0, max_lines - (len(lines) - contents))
    dropped: dict[int, Omission] = {}
    by_size = sorted(files, key=lambda file: len(file.contents))
    for number, file in enumerate(by_size):
        share = min(len(file.contents), room // (len(by_size) - number))
        room -= share
        omission = Omission(f"line of {file.name}", f"lines of {file.name}")
        dropped.update(dict.fromkeys(file.contents[share:], omission))
    return Cut("Partial" if dropped else "Full", dropped, quoted=frozenset(dropped))


def _files(lines: Sequence[str]) -> list[_File]:
    """The files of a diff. A hunk's header states its number of lines, so that a line that only looks like a header
    (or like contents) is not mistaken for one."""
    files = [_File("the diff")]
    old = new = 0
    combined = False
    for place, line in enumerate(lines):
        if old > 0 or new > 0 or combined:
            kind = line[:1]
            if kind in " \\" or (kind == "+" and (new > 0 or combined)) or (kind == "-" and (old > 0 or combined)):
                old -= kind in " -"
                new -= kind in " +"
                files[-1].contents.append(place)
                continue
            old = new = 0
            combined = False
        if (hunk := HUNK.search(line)) is not None:
            old, new = int(hunk.group("old") or 1), int(hunk.group("new") or 1)
            combined = line.startswith("@@@")
        elif line.startswith("diff ") and (header := FILE.search(line)) is not None:
            files.append(_File(header.group("git") or header.group("merged")))
    return files
