"""Checks the chain of hashes in the audit log (`audit_file`): is every line there, unchanged and in its place?"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from acp_agent.safety.deciding.audit_file import START, Head, hash_of, link_of


class Where(Struct, frozen=True):
    file: Path
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


class Checked(Struct):
    """The outcome of a check."""

    trouble: str = ""
    """The first thing that is wrong; empty: nothing is."""
    lines: int = 0
    """Lines in the chain."""
    first: int = 0
    """Number of the first of them."""
    before: int = 0
    """Lines before the chain, which nothing protects."""
    unrecorded: tuple[str, ...] = ()
    """Lines which say that others before them had not been recorded."""
    end: Head | None = None
    """The last line that is there."""


def files_of(path: Path) -> list[Path]:
    """The log and its rotated files that are there, the oldest first."""
    numbers = [file.name.removeprefix(f"{path.name}.") for file in path.parent.glob(f"{path.name}.*")]
    rotated = sorted((int(number) for number in numbers if number.isdecimal()), reverse=True)
    return [*(path.with_name(f"{path.name}.{number}") for number in rotated), *([path] if path.exists() else [])]


def check(path: Path, head: Head | None) -> Checked:
    """Checks all files against each other and the record; call it while they are locked. Raises OSError."""
    done, walk = Checked(), _Walk(head.begin if head is not None else 1)
    for where, line in _lines(files_of(path)):
        if (trouble := walk.take(where, line)) and not done.trouble:
            done.trouble = trouble
        if head is not None and walk.seq == head.count and walk.hash == head.hash:
            walk.met_head = True
        if done.trouble:
            break
    done.lines, done.first, done.before = walk.count, walk.first, walk.before
    done.unrecorded = tuple(walk.unrecorded)
    done.trouble = done.trouble or _end(walk, head, path)
    return done


def end_of(path: Path) -> Head:
    """The last line there is, whatever is wrong with it, and the highest number. Raises OSError."""
    last, highest = START, 0
    for _, line in _lines(files_of(path)):
        last, highest = hash_of(line), max(highest, link_of(line).seq or 0)
    return Head(highest, last, highest + 1)


def continues(path: Path, head: Head) -> bool:
    """Whether the recorded line is there, and all after it follows it without a gap."""
    walk: _Walk | None = None
    for where, line in _lines(files_of(path)):
        if walk is not None:
            if walk.take(where, line):
                return False
        elif link_of(line).seq == head.count and hash_of(line) == head.hash:
            walk = _Walk(head.count + 1)
            walk.seq, walk.hash, walk.count = head.count, head.hash, 1
    return walk is not None


class _Walk:
    """Takes line after line."""

    def __init__(self, begin: int) -> None:
        self._begin = begin
        self.count, self.first, self.before = 0, 0, 0
        self.seq, self.hash = 0, START
        self._where: Where | None = None
        self.unrecorded: list[str] = []
        self.met_head = False

    def take(self, where: Where, line: bytes) -> str:
        """Returns what is wrong; empty: nothing."""
        link, prev = link_of(line), self.hash
        trouble = ""
        if not self.count:
            if link.seq is None or link.seq < self._begin:
                self.before += 1
                self.hash = hash_of(line)
                return ""
            trouble = self._begins(where, link.seq, link.prev)
        elif link.seq is None:
            trouble = f"{where} was inserted or changed: it is not a line of the chain"
        elif link.prev != prev:
            trouble = self._broken(where, link.seq)
        elif link.seq != self.seq + 1:
            trouble = f"{where} was changed: its number is {link.seq}, not {self.seq + 1}"
        self.first = self.first or link.seq or 0
        self.count += 1
        self.seq, self.hash, self._where = link.seq or 0, hash_of(line), where
        if link.unrecorded:
            self.unrecorded.append(f"{where} says that {link.unrecorded} lines before it had not been recorded")
        return trouble

    def _begins(self, where: Where, seq: int, prev: str | None) -> str:
        if seq > self._begin:
            return f"{where}: {_span(self._begin, seq - 1)} before this one removed"
        if self.before and prev != self.hash:
            return f"{where}: the line before this one was changed or removed, or this one was"
        return ""

    def _broken(self, where: Where, seq: int) -> str:
        if seq > self.seq + 1:
            return f"{where}: {_span(self.seq + 1, seq - 1)} before this one removed"
        if seq == self.seq + 1:
            return f"{self._where} was changed"
        return f"{where} was inserted, or moved here: its number is {seq} and the line before it has number {self.seq}"


def _end(walk: _Walk, head: Head | None, path: Path) -> str:
    if head is None:
        return (
            "" if not walk.count else f"{path}: the store has no record of this log, so its end may have been cut off"
        )
    if head.count < head.begin and not walk.count:
        return ""
    if walk.seq < head.count:
        where = f"after line number {walk.seq}" if walk.count else "from the beginning"
        return f"{path}: the end was cut off {where}: the store has recorded {head.count} lines"
    if not walk.met_head:
        return f"{walk._where or path}: the end was changed: it is not the line that the store has recorded"
    if walk.seq > head.count:
        return (
            f"{path}: the last {walk.seq - head.count} lines are not recorded in the store: an agent was killed while "
            "it wrote them, the store was busy, or something else added them"
        )
    return ""


def _span(first: int, last: int) -> str:
    return f"line number {first} was" if first == last else f"the lines number {first} to {last} were"


def _lines(files: list[Path]) -> Iterator[tuple[Where, bytes]]:
    for file in files:
        with file.open("rb") as opened:
            for number, line in enumerate(opened, 1):
                yield Where(file, number), line.removesuffix(b"\n")
