"""One line for a tool call, what stands below it, and what is folded."""

from __future__ import annotations

import difflib
import os
import re
import time
from collections.abc import Iterable, Iterator

from msgspec import Struct

from acp_agent.fronts.terminal.screens import BOLD, CYAN, DIM, GREEN, RED, TerminalStyle
from acp_agent.fronts.view import REFUSED, ShownCall, command_of
from acp_agent.legible import legible
from acp_agent.schema import acp

DIFF_SHOWN = 24
"""Lines of a diff below a call; the rest is folded."""
FAILED_SHOWN = 8
"""Last lines of what failed."""
DONE = {"Edit": "Edited", "Write": "Wrote", "Patch": "Patched", "Delete": "Deleted", "Move": "Moved", "Copy": "Copied",
        "List": "Listed", "Search": "Searched"}  # fmt: skip
"""First word of a title -> that of a call that is done."""


class CallLines(Struct, frozen=True):
    style: TerminalStyle

    def running(self, call: ShownCall, width: int, frame: int) -> str:
        seconds = time.monotonic() - call.started
        line = f"{self.style.frame(frame)} {self._first(call.title)}"
        return self._cut(line, width - 7) + (self.style.paint(DIM, f" {seconds:.0f} s") if seconds >= 1 else "")

    def ended(self, call: ShownCall, width: int, *, shown: Iterable[acp.Diff] = ()) -> tuple[str, str]:
        """The lines, and what is folded: empty if all is there. `shown`: diffs that a question has shown."""
        ok, style = call.status == "completed", self.style
        mark = style.paint(GREEN, style.mark("call")) if ok else style.paint(RED, style.mark("bad"))
        indent = "  " if call.parent else ""
        said, facts = self._said(call, ok)
        lines = [f"{indent}{mark} {self._cut(said, max(10, width - 4 - len(facts)))}{style.paint(DIM, facts)}"]
        folded = ""
        seen = list(shown)
        several = len(call.diffs) > 1  # Else the first line names the file.
        diffs = [
            line
            for diff in call.diffs
            if diff not in seen
            for line in [*([heading(diff, style)] if several else []), *diff_lines(diff, style)]
        ]
        if diffs:
            lines += [f"{indent}  {line}" for line in diffs[:DIFF_SHOWN]]
            if len(diffs) > DIFF_SHOWN:
                folded = "\n".join(diffs)
                lines.append(style.paint(DIM, f"{indent}  {len(diffs) - DIFF_SHOWN} more lines: {style.opens}"))
        elif (text := call.text) and call.category != REFUSED:
            whole = text.split("\n")
            last = whole[-FAILED_SHOWN:] if not ok else []
            lines += [style.paint(DIM, f"{indent}  {style.mark('bar')} {line}") for line in last]
            folded = text if len(whole) > len(last) else ""
        command = command_of(call.raw_input)
        if folded and command and "\n" in command.strip():
            folded = f"$ {legible(command)}\n{folded}"
        return "\n".join(lines), folded

    def _said(self, call: ShownCall, ok: bool) -> tuple[str, str]:
        """The words of an ended call, and facts behind them."""
        first, _, rest = self._first(call.title).partition(" ")
        title = f"{DONE.get(first, first) if ok else first} {rest}".rstrip()
        if call.category == REFUSED:
            return f"{'$ ' if call.kind == 'execute' else ''}{title}", f" {self.style.mark('dot')} not allowed"
        seconds = time.monotonic() - call.started
        took = f" {self.style.mark('dot')} {seconds:.1f} s" if seconds >= 1 else ""
        if call.kind == "execute":
            raw = call.raw_output if isinstance(call.raw_output, dict) else {}
            code = raw.get("exit_code")
            ended = f" {self.style.mark('dot')} exit code {code}" if isinstance(code, int) and code else ""
            lines = len(call.text.splitlines()) - (0 if ok else FAILED_SHOWN)
            more = f" {self.style.mark('dot')} {lines} line{'s' * (lines > 1)}: {self.style.opens}" if lines > 0 else ""
            return f"$ {title}", f"{ended}{took}{more}"
        if ok and first == "Read" and call.text:
            return f"Read {call.text.count(chr(10)) + 1} lines of {rest}", took
        if call.diffs:
            added, removed = counts(call.diffs)
            return title, f" +{added} -{removed}"
        return title, took

    def _first(self, title: str) -> str:
        line, _, more = title.partition("\n")
        return f"{line} {self.style.mark('more')}" if more else line

    def _cut(self, text: str, width: int) -> str:
        return text if len(text) <= width else text[: max(1, width - 3)] + self.style.mark("more")


def counts(diffs: Iterable[acp.Diff]) -> tuple[int, int]:
    """Lines added and removed."""
    lines = [line for diff in diffs for line in _unified(diff, 0)]
    return sum(line[0] == "+" for line in lines), sum(line[0] == "-" for line in lines)


def _unified(diff: acp.Diff, around: int) -> list[str]:
    old, new = legible(diff.old_text or "").splitlines(), legible(diff.new_text).splitlines()
    return list(difflib.unified_diff(old, new, lineterm="", n=around))[2:]


def diff_lines(diff: acp.Diff, style: TerminalStyle, around: int = 2) -> Iterator[str]:
    """With the numbers of the lines: of the new text, and of the old one where a line was removed."""
    old = new = 0
    for line in _unified(diff, around):
        if found := re.match(r"@@ -(\d+)(?:,\d+)? \+(\d+)", line):
            if new:
                yield style.paint(DIM, style.mark("more"))
            old, new = int(found[1]), int(found[2])
            continue
        number = old if line[0] == "-" else new
        old, new = old + (line[0] != "+"), new + (line[0] != "-")
        text = f"{number:>4} {line[0]} {line[1:]}"
        colour = {"+": GREEN, "-": RED}.get(line[0])
        yield style.paint(colour, text) if colour else text


def heading(diff: acp.Diff, style: TerminalStyle) -> str:
    added, removed = counts([diff])
    return f"{style.paint(BOLD, shown_path(diff.path))} {style.paint(CYAN, f'+{added} -{removed}')}"


def shown_path(path: str) -> str:
    """Relative, if it is below the current folder."""
    relative = os.path.relpath(path)
    return legible(path if relative.startswith("..") else relative)
