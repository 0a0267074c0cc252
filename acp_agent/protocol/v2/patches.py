"""A changed file as a `git_patch` of ACP v2: absolute paths, without `a/` and `b/`."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import unified_diff

MOST_CHARS = 200_000
"""Of both texts of a file together, above which no patch is made: comparing them takes too long."""
ESCAPES = {7: "a", 8: "b", 9: "t", 10: "n", 11: "v", 12: "f", 13: "r", 34: '"', 92: "\\"}


def patch(path: str, old: str | None, new: str | None) -> str:
    """`old`: None for a new file; `new`: None for a deleted one. Empty if no line changed, or if it would take too
    long."""
    if len(old or "") + len(new or "") > MOST_CHARS or (old == new):
        return ""
    name = quoted(path)
    lines = [f"diff --git {name} {name}\n"]
    if old is None:
        lines.append("new file mode 100644\n")
    elif new is None:
        lines.append("deleted file mode 100644\n")
    hunks = list(_hunks(old or "", new or ""))
    end = "\t\n" if " " in path and not name.startswith('"') else "\n"
    lines.append("--- /dev/null\n" if old is None else f"--- {name}{end}")
    lines.append("+++ /dev/null\n" if new is None else f"+++ {name}{end}")
    return "".join([*lines, *hunks]) if hunks else ""


def _hunks(old: str, new: str) -> Iterator[str]:
    for line in list(unified_diff(_lines(old), _lines(new), n=3))[2:]:
        yield line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"


def _lines(text: str) -> list[str]:
    """Only a line feed ends a line, as for git."""
    lines = text.split("\n")
    return [*(f"{line}\n" for line in lines[:-1]), *([lines[-1]] if lines[-1] else [])]


def quoted(path: str) -> str:
    """As git writes a path (`core.quotePath`): in quotes if it has control characters, quotes, backslashes, or bytes
    that are not ASCII."""
    data = path.encode("utf-8", "surrogateescape")
    if all(32 <= byte < 127 and byte not in (34, 92) for byte in data):
        return path
    return '"' + "".join(_escaped(byte) for byte in data) + '"'


def _escaped(byte: int) -> str:
    if byte in ESCAPES:
        return f"\\{ESCAPES[byte]}"
    return chr(byte) if 32 <= byte < 127 else f"\\{byte:03o}"
