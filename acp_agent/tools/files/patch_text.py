"""The text of a patch as GPT-5 and Codex models write it, and what it makes of a file's text. Pure.

*** Begin Patch
*** Update File: PATH          then, if it moves, *** Move to: PATH
@@ a line before the change, such as `def name():`
 a line that stays
-a line that goes
+a line that comes
*** Add File: PATH             each of its lines with a +
*** Delete File: PATH
*** End Patch
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Sequence

from msgspec import Struct

from acp_agent.tools.kit.line_ends import plain, with_ends

BEGIN, END = "*** Begin Patch", "*** End Patch"
ADD, UPDATE, DELETE = "*** Add File: ", "*** Update File: ", "*** Delete File: "
MOVE, LAST = "*** Move to: ", "*** End of File"
FORM = (
    "A patch begins with `*** Begin Patch`, then has `*** Update File: PATH`, `*** Add File: PATH` or `*** Delete "
    "File: PATH` with lines that begin with a space, `-` or `+`, and ends with `*** End Patch`."
)
MOST_LINES = 10
"""Line numbers named in a message."""

_LOOKALIKES = str.maketrans(
    {**dict.fromkeys("‐‑‒–—―−", "-"), **dict.fromkeys("‘’‚‛", "'"), **dict.fromkeys("“”„‟", '"')}
)


class Hunk(Struct, frozen=True):
    """One change: the lines with their marks, and where to look for them."""

    lines: tuple[tuple[str, str], ...]
    """Mark (` `, `-`, `+`) and text."""
    headers: tuple[str, ...] = ()
    """Lines that stand before it, outermost first."""
    at_end: bool = False

    @property
    def old(self) -> list[str]:
        return [text for mark, text in self.lines if mark != "+"]


class FilePatch(Struct, frozen=True):
    kind: str
    """`add`, `update` or `delete`."""
    path: str
    hunks: tuple[Hunk, ...] = ()
    move_to: str = ""
    content: str = ""
    """Of a file that is added."""


def parse_patch(text: str) -> tuple[FilePatch, ...]:
    """Raises ValueError that names the line."""
    lines = text.replace("\r\n", "\n").strip("\n").split("\n")
    begin = next((at for at, line in enumerate(lines) if line.strip() == BEGIN), None)
    if begin is None:
        raise ValueError(f"there is no line `{BEGIN}`. {FORM}")
    end = next((at for at in range(len(lines) - 1, begin, -1) if lines[at].strip() == END), None)
    if end is None:
        raise ValueError(f"there is no line `{END}`: the patch may be cut off. {FORM}")
    at, files = begin + 1, []
    while at < end:
        if not lines[at].strip():
            at += 1
            continue
        file, at = _file(lines, at, end)
        files.append(file)
    if not files:
        raise ValueError(f"the patch changes no file. {FORM}")
    return tuple(files)


def _file(lines: Sequence[str], at: int, end: int) -> tuple[FilePatch, int]:
    line = lines[at].strip()
    kind = next((mark for mark in (ADD, UPDATE, DELETE) if line.startswith(mark.rstrip())), None)
    path = line.removeprefix((kind or "").rstrip()).strip()
    if kind is None or not path:
        raise ValueError(f"line {at + 1} of the patch, `{line[:100]}`, names no file. {FORM}")
    last = next((row for row in range(at + 1, end) if lines[row].startswith((ADD, UPDATE, DELETE))), end)
    body = list(lines[at + 1 : last])
    if kind == DELETE:
        if any(row.strip() for row in body):
            raise ValueError(f"{path} is deleted, so no lines may follow")
        return FilePatch("delete", path), last
    if kind == ADD:
        wrong = next((row for row in body if not row.startswith("+") and row.strip()), None)
        if wrong is not None:
            raise ValueError(f"{path} is added, so each of its lines begins with `+`; `{wrong[:100]}` does not")
        return FilePatch("add", path, content="".join(f"{row[1:]}\n" for row in body if row.startswith("+"))), last
    move_to = ""
    if body and body[0].startswith(MOVE):
        move_to = body.pop(0).removeprefix(MOVE).strip()
    hunks = _hunks(path, body)
    if not hunks and not move_to:
        raise ValueError(f"{path} is updated, but no changed lines follow")
    return FilePatch("update", path, hunks, move_to), last


def _hunks(path: str, body: Sequence[str]) -> tuple[Hunk, ...]:
    hunks: list[Hunk] = []
    lines: list[tuple[str, str]] = []
    headers: list[str] = []

    def close(*, at_end: bool = False) -> None:
        if lines:
            hunks.append(Hunk(tuple(lines), tuple(headers), at_end))
        elif headers:
            raise ValueError(f"a part of {path} has no lines after `@@ {headers[-1]}`")
        lines.clear()
        headers.clear()

    rows = list(body)
    while rows and not rows[-1].strip():
        rows.pop()
    for row in rows:
        if row == "@@" or row.startswith("@@ "):
            if lines:
                close()
            if header := row[2:].strip().removesuffix("@@").strip():
                headers.append(header)
        elif row.strip() == LAST:
            close(at_end=True)
        elif row[:1] in (" ", "-", "+"):
            lines.append((row[0], row[1:]))
        elif not row:
            lines.append((" ", ""))
        else:
            raise ValueError(f"a line of {path}, `{row[:100]}`, begins with neither a space nor `-` nor `+`")
    close()
    return tuple(hunks)


# --- what it makes of a text -------------------------------------------------------------------------------------


def patched(text: str, hunks: Sequence[Hunk]) -> str:
    """The text after the changes, which come in the order of the file. Lines that stay are kept as they are in the
    file. Raises ValueError that names the part that does not fit."""
    ends = text.endswith("\n") or not text
    lines = plain(text).removesuffix("\n").split("\n") if text else []
    out: list[str] = []
    done = 0
    """Lines of the file that are in `out`."""
    for number, hunk in enumerate(hunks, 1):
        which = f"Part {number} of {len(hunks)}" if len(hunks) > 1 else "The patch"
        start = _after_headers(lines, done, hunk.headers, which)
        at = _place(lines, start, hunk, which)
        out += lines[done:at]
        for mark, content in hunk.lines:
            if mark == "+":
                out.append(content)
            else:
                out += [lines[at]] if mark == " " else []
                at += 1
        done = at
    out += lines[done:]
    return with_ends("\n".join(out) + "\n" * (ends and bool(out)), text)


def _after_headers(lines: Sequence[str], start: int, headers: Sequence[str], which: str) -> int:
    for header in headers:
        for same in _WAYS:
            found = next((at for at in range(start, len(lines)) if same(lines[at]) == same(header)), None)
            if found is not None:
                break
        if found is None:
            raise ValueError(f"{which} does not fit: no line after line {start} is `{header}`")
        start = found + 1
    return start


def _place(lines: Sequence[str], start: int, hunk: Hunk, which: str) -> int:
    """The line (from 0) at which the old lines of the hunk begin."""
    old = hunk.old
    if not old:
        return start if hunk.headers else len(lines)
    last = len(lines) - len(old)
    if last < 0:
        raise ValueError(f"{which} does not fit: it has more old lines than the file. Read the file again")
    for same in _WAYS:
        wanted = [same(line) for line in old]
        if hunk.at_end and last >= start and [same(line) for line in lines[last:]] == wanted:
            return last
        seen = [same(line) for line in lines]
        found = [at for at in range(start, last + 1) if seen[at] == wanted[0] and seen[at : at + len(old)] == wanted]
        if len(found) > 1 and not hunk.headers:
            numbers = ", ".join(str(at + 1) for at in found[:MOST_LINES])
            raise ValueError(
                f"{which} fits in {len(found)} places (lines {numbers}). Give more of the lines around the one you "
                "mean, or a line before it after `@@`"
            )
        if found:
            return found[0]
    raise ValueError(f"{which} does not fit: these lines are not in the file{_nearest(lines, old)}")


def _nearest(lines: Sequence[str], old: Sequence[str]) -> str:
    wanted = next((line for line in old if line.strip()), "")
    for number, line in enumerate(lines, 1):
        if wanted.strip() and line.strip() == wanted.strip():
            return f". The first of them is line {number}, but those after it differ. Read the file again"
    return f", nor is `{wanted.strip()[:100]}`. Read the file again"


def _plain(line: str) -> str:
    return unicodedata.normalize("NFKC", line.translate(_LOOKALIKES)).strip()


def _whole(line: str) -> str:
    return line.removesuffix("\r")


_WAYS: tuple[Callable[[str], str], ...] = (_whole, str.rstrip, str.strip, _plain)
"""How lines are compared, from exact to what models get wrong: white space, then quotes and dashes."""
