"""Programs that run the program their arguments name: where the inner command begins, and whether the wrapper itself
matters.

A neutral wrapper (`timeout 5 make`) does nothing but what the inner command does. For any other, its own words must be
allowed, too.

One table (`wrappers.toml`) for all analyses: those that decide need every command that may be in there
(`inner_commands`), hints and filter rules the one that is clearly meant (`behind`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from typing import Literal

from msgspec import Struct

from acp_agent.safety.lines.programs import words
from acp_agent.toml_table import toml_table

ASSIGNMENT = re.compile(r"\w+=")
SHELLS = words("bash sh zsh dash ksh ash mksh rbash fish csh tcsh")
ESCALATING = words("sudo doas su pkexec runuser sudoedit run0")
EXEC_OPTIONS = words("-exec -execdir -ok -okdir")
PLAIN_SHELL = words("-c -ec -ce -xc -exc -euc -uc -lc")
SHELL_VALUES = words("-o +o -O +O --rcfile --init-file")


class Inner(Struct, frozen=True):
    """A command within the words of another."""

    words: tuple[str, ...] = ()
    line: str | None = None
    """Instead of words: text interpreted by a shell."""
    neutral: bool = False
    open: bool = False
    """More arguments are added at run time."""
    sure: bool = True
    """Whether its start is known; else it is a guess for deny rules."""


class _Wrapper(Struct, frozen=True, forbid_unknown_fields=True):
    values: tuple[str, ...] = ()
    """Options that take the next word as their value."""
    operands: int = 0
    """Words before the inner program."""
    assignments: bool = False
    neutral: tuple[str, ...] | None = None
    """Options that keep it neutral; `None`: it never is."""
    open: bool = False
    line: bool = False
    """The words are joined and interpreted by a shell."""
    line_options: tuple[str, ...] = ()
    """Options whose value a shell interprets."""
    readers: tuple[Literal["hints", "filters"], ...] = ()
    """The other analyses that look inside it."""
    stops: tuple[str, ...] = ()
    """For these: options with which it runs nothing, or nothing visible."""
    sub: str = ""
    """For these: the sub-command that runs a program."""
    skips: tuple[str, ...] = ()
    """For these: more options with a value; for decisions it is safer to see a word too many."""


@cache
def wrappers() -> dict[str, _Wrapper]:
    """Program -> row."""
    return toml_table(__file__, dict[str, _Wrapper])


class Behind(Struct, frozen=True):
    """The command that is clearly meant inside a wrapper."""

    words: tuple[str, ...]
    variables: tuple[str, ...] = ()
    """Names of the variables that it sets."""


@cache
def seen_by(reader: Literal["hints", "filters"]) -> frozenset[str]:
    """The wrappers that `hints` or `filters` look inside."""
    return frozenset(name for name, row in wrappers().items() if reader in row.readers)


def behind(command: Sequence[str]) -> Behind | None:
    """The words after a wrapper's options, for hints and filters; `None` if it runs nothing visible. `command` begins
    with the name of a wrapper."""
    row = wrappers()[command[0]]
    rest, variables = list(command[1:]), list[str]()
    values = (*row.values, *row.skips)
    for sub in (row.sub, "") if row.sub else ("",):
        at = 0
        while at < len(rest) and rest[at] != "--":
            if row.stops and rest[at].startswith(row.stops):
                return None
            if not rest[at].startswith("-"):
                if ASSIGNMENT.match(rest[at]) is None:
                    break
                variables.append(rest[at].partition("=")[0])
            at += 2 if rest[at] in values else 1
        at += rest[at : at + 1] == ["--"]
        if sub and rest[at : at + 1] != [sub]:
            return None
        rest = rest[at + bool(sub) :]
    return Behind(tuple(rest if row.sub else rest[row.operands :]), tuple(variables))


def is_wrapper(program: str) -> bool:
    """Whether it runs a program named in its arguments."""
    return program in wrappers() or program in SHELLS


def is_shell_from_input(command: Sequence[str]) -> bool:
    """Whether a shell is called so that it reads commands from its input."""
    if not command or base(command[0]) not in SHELLS:
        return False
    return all(word.startswith(("-", "+")) and "c" not in word.partition("=")[0][1:] for word in command[1:]) or (
        "-s" in command[1:]
    )


def base(program: str) -> str:
    return program.rpartition("/")[2]


def inner_commands(command: Sequence[str]) -> list[Inner]:
    """The commands within the words of a command, literal or not."""
    if len(command) < 2:
        return []
    program = base(command[0])
    if program in SHELLS:
        return _shell(command)
    if program == "find":
        return _find(command)
    if program in ("fd", "fdfind"):
        return _fd(command)
    if program == "trap":
        return [Inner(line=command[1])]
    if program == "command" and command[1].startswith("-") and command[1] != "-p" and command[1] != "--":
        return []
    row = wrappers().get(program)
    return [] if row is None else _wrapped(row, command)


def _wrapped(row: _Wrapper, command: Sequence[str]) -> list[Inner]:
    values, lines, neutral = row.values, row.line_options, row.neutral
    found: list[Inner] = []
    at, operands, sure, is_neutral = 1, row.operands, True, neutral is not None
    while at < len(command):
        word = command[at]
        if word == "--":
            at += 1
            if row.assignments:
                at = _behind_assignments(command, at)
            at += operands
            break
        if word.startswith("-") and len(word) > 1:
            name, equals, value = word.partition("=")
            if not word.startswith("--") and len(word) > 2:
                name, value = word[:2], word[2:]
            is_neutral = is_neutral and neutral is not None and (name in neutral or word[1:].isdigit())
            taken = name in values and not (value or equals)
            if name in lines or (not name.startswith("--") and any(f"-{x}" in lines for x in word[1:])):
                text = value if (equals or value) and name in lines else " ".join(command[at + 1 : at + 2])
                behind = " ".join(command[at + 2 :])
                found.append(Inner(line=f"{text} {behind}" if "-S" in lines else text))
                taken = True
            elif not taken and not word.startswith("--") and len(word) > 2 and f"-{word[-1]}" in values:
                taken = True  # A cluster such as `-Eu root`.
                sure = False
            at += 2 if taken else 1
        elif row.assignments and "=" in word and not word.startswith("="):
            at += 1
        elif operands:
            operands -= 1
            at += 1
        else:
            break
    rest = tuple(command[at:])
    if rest and not (row.line_options and found):
        if row.line:
            found.append(Inner(line=" ".join(rest)))
        else:
            found.append(Inner(rest, neutral=is_neutral, open=row.open, sure=sure))
    if not sure or not found:
        found.extend(Inner(tuple(command[start:]), sure=False) for start in range(1, min(len(command), 12)))
    return found


def _behind_assignments(command: Sequence[str], at: int) -> int:
    while at < len(command) and "=" in command[at]:
        at += 1
    return at


def _shell(command: Sequence[str]) -> list[Inner]:
    at = 1
    plain, takes_line = True, False
    while at < len(command):
        word = command[at]
        if word == "--":
            at += 1
            break
        if not word.startswith(("-", "+")) or len(word) < 2:
            break
        if word in SHELL_VALUES or (not word.startswith("--") and word.endswith("o")):
            plain = plain and command[at + 1 : at + 2] == ["pipefail"]
            at += 1
        elif word not in PLAIN_SHELL and word not in ("-e", "-u", "-x", "-l"):
            plain = False
        takes_line = takes_line or (not word.startswith("--") and "c" in word)
        at += 1
    if not takes_line or at >= len(command):
        return []
    return [Inner(line=command[at], neutral=plain and "/" not in command[0])]


def _find(command: Sequence[str]) -> list[Inner]:
    found, at = [], 1
    while at < len(command):
        if command[at] in EXEC_OPTIONS:
            end = at + 1
            while end < len(command) and command[end] not in (";", "+"):
                end += 1
            if end > at + 1:
                found.append(Inner(tuple(command[at + 1 : end]), open=True))
            at = end
        at += 1
    return found


def _fd(command: Sequence[str]) -> list[Inner]:
    for at, word in enumerate(command):
        if word in ("-x", "-X", "--exec", "--exec-batch") and at + 1 < len(command):
            return [Inner(tuple(command[at + 1 :]), open=True)]
    return []
