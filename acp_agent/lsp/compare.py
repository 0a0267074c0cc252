"""Finds the errors an edit has caused: those after it that did not exist before. Pure.

Errors are matched by source, code and message, ignoring line numbers in the message. Each old error explains at most
one new one: one on the same line according to a diff of the two texts; else one on a line with the same text; else, if
the edit changed its line, any.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from difflib import SequenceMatcher

from acp_agent.schema.lsp_types import Diagnostic

ERROR = 1
"""LSP's severity of an error."""

MOST_LINES = 1000
"""Lines of a changed part, in either text: longer parts are not compared line by line."""

LINE_ENDS = re.compile(r"\r\n|\r|\n")
"""LSP's."""

NUMBERS = re.compile(r"(\blines?|\bcolumns?|\bcol\.?)\s+\d+|:\d+(:\d+)?\b", re.IGNORECASE)

_Key = tuple[str, str, str]


def new_errors(
    before: Sequence[Diagnostic], after: Sequence[Diagnostic], old_text: str, new_text: str
) -> list[Diagnostic]:
    """Returns the errors in `after` caused by the change from `old_text` to `new_text`, in order."""
    found = [item for item in after if item.severity == ERROR]
    known: dict[_Key, list[int]] = {}
    for item in before:
        if item.severity == ERROR:
            known.setdefault(_key(item), []).append(item.range.start.line)
    if not found or not known:
        return found
    old, new = LINE_ENDS.split(old_text), LINE_ENDS.split(new_text)
    moved = _moved(old, new)
    rules: tuple[Callable[[int, int], bool], ...] = (
        lambda was, now: moved.get(was, was + len(new) - len(old) if was > len(old) else None) == now,
        lambda was, now: _line(old, was) == _line(new, now),
        lambda was, _: was not in moved,
    )
    left = list(found)
    for rule in rules:
        left = [item for item in left if not _explained(item, known.get(_key(item), []), rule)]
    return left


def _explained(item: Diagnostic, lines: list[int], rule: Callable[[int, int], bool]) -> bool:
    """Whether the line of an old error explains this one; removes that line if so."""
    now = item.range.start.line
    fitting = [was for was in lines if rule(was, now)]
    if fitting:
        lines.remove(min(fitting, key=lambda was: abs(was - now)))
    return bool(fitting)


def _key(item: Diagnostic) -> _Key:
    return item.source, str(item.code), NUMBERS.sub("#", item.message)


def _line(lines: Sequence[str], number: int) -> str:
    return lines[number].strip() if 0 <= number < len(lines) else ""


def _moved(old: Sequence[str], new: Sequence[str]) -> dict[int, int]:
    """Maps lines of the old text to lines of the new one, for the lines that the edit kept and the end."""
    least = min(len(old), len(new))
    head = next((n for n in range(least) if old[n] != new[n]), least)
    tail = next((n for n in range(least - head) if old[-1 - n] != new[-1 - n]), least - head)
    shift = len(new) - len(old)
    lines = {n: n for n in range(head)}
    lines.update({n: n + shift for n in range(len(old) - tail, len(old) + 1)})
    middle_old, middle_new = old[head : len(old) - tail], new[head : len(new) - tail]
    if max(len(middle_old), len(middle_new)) <= MOST_LINES:
        for a, b, size in SequenceMatcher(None, middle_old, middle_new, autojunk=False).get_matching_blocks():
            lines.update({head + a + n: head + b + n for n in range(size)})
    return lines
