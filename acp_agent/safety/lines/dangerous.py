"""Options and operands that turn a program into something else: they run what an argument names, or write where such a
program usually does not.

A rule such as `git *` was not written with `git -c core.pager=…` in mind, so a rule must spell out what is in this
table to allow it. A table, not a parser: a letter that may be in a cluster is searched for in every cluster, and a
prefix of a long option counts as the option.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache

from msgspec import Struct

from acp_agent.safety.lines.programs import words
from acp_agent.safety.lines.wrappers import base
from acp_agent.toml_table import toml_table

SAFE_ASSIGNMENTS = words(
    "CI NO_COLOR FORCE_COLOR CLICOLOR CLICOLOR_FORCE COLORTERM TERM COLUMNS LINES LANG LANGUAGE TZ DEBUG VERBOSE "
    "RUST_BACKTRACE RUST_LOG LOG_LEVEL LOGLEVEL NODE_ENV APP_ENV RAILS_ENV PYTHONUNBUFFERED PYTHONDONTWRITEBYTECODE "
    "PYTHONHASHSEED GOOS GOARCH CGO_ENABLED DEBIAN_FRONTEND"
)
"""Variables that change neither which program runs nor where it reads its configuration. An allowlist: there are too
many others (`PATH`, `LD_PRELOAD`, `IFS`, `BASH_ENV`, `GIT_*`, `NODE_OPTIONS`, `PYTHONPATH`, `RUSTC_WRAPPER`, …)."""


def is_safe_assignment(name: str) -> bool:
    return name in SAFE_ASSIGNMENTS or re.fullmatch(r"LC_[A-Z]+", name) is not None


class _Row(Struct, frozen=True, forbid_unknown_fields=True):
    also: tuple[str, ...] = ()
    """Programs with the same row."""
    short: str = ""
    """Letters, alone or in a cluster."""
    long: tuple[str, ...] = ()
    """Long options, also with a single dash, as in Go, and abbreviated."""
    exact: frozenset[str] = frozenset()
    """Arguments matched verbatim."""
    subs: frozenset[str] = frozenset()
    """First operands."""
    before_sub: str = ""
    """Letters that matter only before the first operand (`git -c`, but not `git log -c`)."""
    starts: tuple[str, ...] = ()
    """Prefixes of arguments."""
    always: bool = False
    """The program itself can run or change anything: a rule must name it."""
    operand: str | None = None
    """Expression searched for in operands."""


@cache
def table() -> dict[str, _Row]:
    """Program -> row."""
    rows = toml_table(__file__, dict[str, _Row])
    return {name: row for first, row in rows.items() for name in (first, *row.also)}


def dangers_of(command: Sequence[str]) -> tuple[str, ...]:
    """The literal words of a command that a rule must spell out, in order."""
    if not command:
        return ()
    name, rows = base(command[0]), table()
    row = rows.get(name) or rows.get(re.sub(r"[\d.]+$", "", name))
    found: dict[str, None] = {}
    if row is not None:
        if row.always:
            found[command[0]] = None
        _collect(row, command[1:], found, anywhere=name in VALUES_UNKNOWN)
        if name == "git" and "clone" in command:
            _collect(CLONE, command[1:], found, anywhere=False)
        if row is rows["tar"] and TAR_BUNDLE.fullmatch("".join(command[1:2])):
            found[command[1]] = None
    if row is rows["sed"]:
        for script in _sed_scripts(command[1:]):
            if len(script) > MAX_SED or SED_SAFE.fullmatch(script) is None:
                found[script] = None
    return tuple(found)


def _collect(row: _Row, arguments: Sequence[str], found: dict[str, None], *, anywhere: bool) -> None:
    seen_operand = False
    for argument in arguments:
        if argument in row.exact or (row.starts and argument.startswith(row.starts)):
            found[argument.partition("=")[0] if argument not in row.exact else argument] = None
            continue
        if argument.startswith("-") and len(argument) > 1:
            head = _danger(row, argument, not seen_operand)
            if head:
                found[head] = None
            continue
        if argument in row.subs and (anywhere or not seen_operand):
            found[argument] = None
        if row.operand is not None and re.search(row.operand, argument):
            found[argument] = None
        seen_operand = True


def _danger(row: _Row, argument: str, first: bool) -> str:
    """The option in an argument, as far as a rule must spell it."""
    name = argument.partition("=")[0]
    if any(long.startswith(name) and len(name) > 2 for long in row.long) or name in row.long:
        return name
    if argument.startswith("--"):
        return ""
    letters = row.short + (row.before_sub if first else "")
    at = next((number for number, char in enumerate(argument[1:], 1) if char in letters), 0)
    return argument[: at + 1] if at else ""


SED_ADDRESS = r"(?:\d+|\$|/[^/\n\\]*/)"
SED_SAFE = re.compile(
    rf"\s*(?:(?:{SED_ADDRESS}(?:,{SED_ADDRESS})?!?\s*)?"
    r"(?:[pdqnGhHxD=]|y/[^/\n\\]*/[^/\n\\]*/|"
    r"s(?P<d>[/|#,:@])(?:(?!(?P=d))[^\n\\]|\\.)*(?P=d)(?:(?!(?P=d))[^\n\\]|\\.)*(?P=d)[gpiI\d]*)"
    r"\s*(?:[;\n]\s*|\Z))+"
)
"""Scripts that only edit the stream: no `e`, `w`, `r`, and no `i` with text."""
MAX_SED = 2_000
CLONE = _Row(short="uc")
"""`git push -u` means something else."""
TAR_BUNDLE = re.compile(r"[A-Za-z]*[IFP][A-Za-z]*")
"""Letters in tar's first argument, with or without a dash."""
VALUES_UNKNOWN = words("npm pnpm yarn docker podman kubectl")
"""Programs whose options with values are not known here: a sub-command counts at any position."""


def _sed_scripts(arguments: Sequence[str]) -> list[str]:
    """The arguments that sed treats as its script."""
    scripts, operands = [], []
    pending = iter(arguments)
    for argument in pending:
        name, equals, value = argument.partition("=")
        if argument.startswith("--"):
            if len(name) > 3 and "--expression".startswith(name):
                scripts.append(value if equals else next(pending, ""))
        elif argument.startswith("-") and "e" in argument:
            scripts.append(argument.partition("e")[2] or next(pending, ""))
        elif not argument.startswith("-"):
            operands.append(argument)
    return scripts or operands[:1]
