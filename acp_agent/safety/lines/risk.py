"""How much harm a command can do: low, medium or high, whether it changes anything, whether it elevates privileges.

Low: read-only commands, and the project's builds and tests: these run the project's code, but so does everything an
agent does, and a grade given to every test run is meaningless. Medium: commands that change something, and unknown
ones. High: commands that cannot be undone, reach beyond the project, or hide what they do. The grade is for users and
for the modes that ask; the sandbox is what confines a command.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Literal

from msgspec import Struct

from acp_agent.safety.folders.paths import Roots
from acp_agent.safety.lines.programs import long_option, short_options, words
from acp_agent.safety.lines.wrappers import ESCALATING, SHELLS, base
from acp_agent.toml_table import toml_table

Level = Literal["low", "medium", "high"]
ORDER: dict[str, int] = {"low": 0, "medium": 1, "high": 2}


class Risk(Struct, frozen=True):
    level: Level
    mutation: bool
    """Whether it changes something."""
    privesc: bool = False
    """Whether it uses more privileges than the user's own."""
    reasons: tuple[str, ...] = ()


LOOKS = Risk("low", False, reasons=("it only looks",))
UNKNOWN = Risk("medium", True, reasons=("what it does is unknown",))


def combined(risks: Iterable[Risk]) -> Risk:
    """The worst of each. Without any, everything is unknown."""
    found = list(risks)
    if not found:
        return UNKNOWN
    level = max((risk.level for risk in found), key=ORDER.__getitem__)
    reasons = dict.fromkeys(reason for risk in found if risk.level == level for reason in risk.reasons)
    return Risk(level, any(risk.mutation for risk in found), any(risk.privesc for risk in found), tuple(reasons))


def understated(claimed: str, mutation: bool, privesc: bool, own: Risk) -> str | None:
    """A message for the user if the model claims less risk than detected; an unknown claim counts as the lowest."""
    less = []
    if ORDER.get(claimed, 0) < ORDER[own.level]:
        less.append(f"it calls the risk {claimed}, but it looks {own.level} ({'; '.join(own.reasons) or 'unknown'})")
    if own.mutation and not mutation:
        less.append("it claims to change nothing, but it may")
    if own.privesc and not privesc:
        less.append("it claims to use no other privileges, but it does")
    return f"The model understates this command: {'; '.join(less)}." if less else None


# --- one simple command ---------------------------------------------------------------------------------------------


DELETES_ROWS = re.compile(
    r"\b(?:drop|truncate)\s+\w|\bdelete\s+from\s+[\w.\"`\[\]]+\s*(?:;|\Z)|\balter\s+table\b[^;]*\bdrop\b", re.IGNORECASE
)
DELETES_DATA: dict[str, re.Pattern[str]] = {
    **dict.fromkeys("psql mysql mariadb sqlite sqlite3 duckdb clickhouse-client sqlcmd cqlsh".split(), DELETES_ROWS),
    **dict.fromkeys(
        ("mongosh", "mongo"),
        re.compile(r"\b(?:drop\w*|deleteMany|remove|bulkWrite)\s*\(|\bdropDatabase\b", re.IGNORECASE),
    ),
    **dict.fromkeys(("redis-cli", "valkey-cli"), re.compile(r"\b(?:flushall|flushdb|shutdown)\b", re.IGNORECASE)),
    "mysqladmin": re.compile(r"\Adrop\Z"),
}
"""Clients of databases, and what in an argument deletes data for good."""


def risk_of(command: Sequence[str], roots: Roots, folders: Iterable[Path], *, looks: bool = False) -> Risk:
    """The risk of one simple command's words; `looks`: it is known to be read-only."""
    if not command:
        return UNKNOWN
    if looks:
        return LOOKS
    program, arguments = re.sub(r"[\d.]+$", "", base(command[0])) or command[0], list(command[1:])
    if base(command[0]) in _high():
        program = base(command[0])
    operands = [argument for argument in arguments if not argument.startswith("-")]
    places = list(folders)
    if program in ESCALATING:
        return Risk("high", True, True, ("it uses another user's privileges",))
    if (high := _high().get(program)) is not None and not _asks_for_help(arguments):
        return Risk("high", True, high.privesc, (high.reason,))
    for row in tables().high_with:
        if program in row.programs and row.holds(arguments, operands):
            return Risk("high", True, row.privesc, (row.reason,))
    deletes = DELETES_DATA.get(program)
    if program == "dropdb" or (deletes is not None and any(deletes.search(argument) for argument in arguments)):
        return Risk("high", True, reasons=("it deletes data of a database",))
    if program in DELETES and (reason := _deletes_much(arguments, operands, roots, places)):
        return Risk("high", True, reasons=(reason,))
    if reason := _writes_beyond(_targets(program, arguments, operands, places, roots), roots, places):
        return Risk("high", True, reasons=(reason,))
    if _is_build(program, arguments, operands):
        return Risk("low", False, reasons=("it builds or tests the project",))
    if (reason := _change(program, operands)) is not None:
        return Risk("medium", True, reasons=(reason,))
    return UNKNOWN


def risk_of_writing(target: str | None, roots: Roots, folders: Iterable[Path], shown: str = "") -> Risk:
    """The risk of an output redirection."""
    if target is None and shown.startswith(("~", "$HOME", "${HOME}")):
        return Risk("high", True, reasons=(f"it writes to {shown}, outside the project",))
    if target is None:
        return Risk("medium", True, reasons=("it writes to a file that is known only when it runs",))
    if re.match(r"/dev/(?:tcp|udp)/", target):
        return Risk("high", True, reasons=(DEV_TCP,))
    if reason := _writes_beyond([target], roots, list(folders)):
        return Risk("high", True, reasons=(reason,))
    return Risk("medium", True, reasons=("it writes to a file",))


def risk_of_text(line: str) -> Risk | None:
    """The risk visible in the text of a whole line, regardless of its structure."""
    reasons = [reason for pattern, reason in TEXTS if pattern.search(line)]
    return Risk("high", True, reasons=tuple(reasons)) if reasons else None


def _asks_for_help(arguments: Sequence[str]) -> bool:
    return list(arguments) in (["--help"], ["--version"])


def _is_build(program: str, arguments: Sequence[str], operands: Sequence[str]) -> bool:
    if program in ("python", "pypy") and len(arguments) > 1 and arguments[0] == "-m":
        program, arguments = arguments[1], arguments[2:]
        operands = [argument for argument in arguments if not argument.startswith("-")]
    subs = _subs("builds").get(program)
    if subs is None:
        return False
    if any(argument.partition("=")[0] in REWRITES for argument in arguments):
        return False
    return not subs or (bool(operands) and all(word in subs for word in operands[: SUB_WORDS.get(program, 1)]))


def _change(program: str, operands: Sequence[str]) -> str | None:
    subs = _subs("changes").get(program)
    if subs is None:
        return None
    if not subs:
        return f"`{program}` changes something"
    return f"`{program} {operands[0]}` changes something" if operands and operands[0] in subs else None


def _targets(
    program: str, arguments: Sequence[str], operands: Sequence[str], folders: Sequence[Path], roots: Roots
) -> Sequence[str]:
    """The operands that are written: of a copy the last, or what comes to be in it; all of a move."""
    if program in IN_PLACE and any(re.match(r"-\w*i|--in-place", argument) for argument in arguments):
        code = {
            text for option, text in pairwise(arguments) if re.fullmatch(r"-\w*[eEf]|--(?:expression|file)", option)
        }
        files = [operand for operand in operands if operand not in code]
        return files if code else files[1:]
    if program not in WRITERS:
        return ()
    if program not in COPIES or not operands:
        return operands
    given = [argument.partition("=")[2] for argument in arguments if argument.startswith("--target-directory=")]
    given += [name for option, name in pairwise(arguments) if option in ("-t", "--target-directory")]
    target = given[0] if given else operands[-1]
    into = [f"{target}/{base(source.rstrip('/'))}" for source in operands if source != target]
    is_folder = bool(given) or any(roots.disk.kind(folder / target) == "dir" for folder in folders)
    return [*([] if program != "mv" else operands), target, *(into if is_folder else ())]


def _deletes_much(
    arguments: Sequence[str], operands: Sequence[str], roots: Roots, folders: Sequence[Path]
) -> str | None:
    if program_forces := long_option(arguments, ("--no-preserve-root",)):
        return "it deletes the whole system" if program_forces else None
    deep = short_options(arguments, "rR") or long_option(arguments, ("--recursive",))
    for operand in operands:
        if operand.strip("./*") == "" or operand.startswith(("~", "$")) or operand in ("*", ".*"):
            return f"it deletes everything in {operand}"
        if deep and re.search(r"[*?\[]", operand):
            return "it deletes everything that matches a pattern"
        for folder in folders or (roots.cwd,):
            path = _real(roots, folder / operand)
            if path is None or not roots.contains(path):
                return f"it deletes {operand}, outside the project"
            if roots.holds_root(path):
                return f"it deletes {operand}, a session folder"
            if roots.rules.protects(path) is not None:
                return f"it deletes {operand}, which other programs trust"
    return None


def _writes_beyond(targets: Iterable[str], roots: Roots, folders: Sequence[Path]) -> str | None:
    for target in targets:
        if target in HARMLESS:
            continue
        for folder in folders or (roots.cwd,):
            path = Path(target) if target.startswith("~") else _real(roots, folder / target)
            if path is None:
                return f"it writes to {target}, which cannot be resolved"
            if not roots.contains(path) and not _is_temporary(path):
                return f"it writes to {target}, outside the project"
            if roots.contains(path) and roots.rules.protects(path) is not None:
                return f"it writes to {target}, which other programs trust"
    return None


def _is_temporary(path: Path) -> bool:
    return any(place in path.parents for place in TEMPORARY)


def _real(roots: Roots, path: Path) -> Path | None:
    try:
        return roots.disk.real_path(path)
    except (OSError, ValueError, RuntimeError):
        return None


# --- tables ---------------------------------------------------------------------------------------------------------

HARMLESS = words("/dev/null /dev/stdout /dev/stderr /dev/tty -")
TEMPORARY = (Path("/tmp"), Path("/var/tmp"), Path(os.path.realpath("/tmp")))
DELETES = words("rm unlink shred rmdir srm")
WRITERS = words("cp mv tee ln install touch mkdir truncate rsync rm chmod chown chgrp patch")
COPIES = words("cp ln install rsync mv")
IN_PLACE = words("sed gsed perl ruby")
INTERPRETERS = SHELLS | words("python python3 perl ruby node php lua deno bun osascript pwsh fish source . eval")
DEV_TCP = "it opens a connection through the shell"


class _Programs(Struct, frozen=True, forbid_unknown_fields=True):
    programs: frozenset[str]
    subs: frozenset[str] = frozenset()


class _With(Struct, frozen=True, forbid_unknown_fields=True):
    """Programs that are a high risk with certain arguments."""

    programs: frozenset[str]
    reason: str
    subs: frozenset[str] = frozenset()
    """Values for the first operand; any if empty."""
    options: frozenset[str] = frozenset()
    """Arguments of which one must be present; none if empty."""
    letters: str = ""
    """The same, in a cluster."""
    operand: str = ""
    """An expression that must match one whole operand."""
    privesc: bool = False

    def holds(self, arguments: Sequence[str], operands: Sequence[str]) -> bool:
        if self.subs and not (operands and operands[0] in self.subs):
            return False
        if self.operand and not any(re.fullmatch(self.operand, word, re.DOTALL) for word in operands):
            return False
        if not self.options and not self.letters:
            return True
        return any(map(self._is_option, arguments)) or short_options(arguments, self.letters)

    def _is_option(self, argument: str) -> bool:
        """Also as an unambiguous prefix, as git and GNU programs accept it (`--har`)."""
        name = argument.partition("=")[0]
        return name in self.options or (
            name.startswith("--") and len(name) > 3 and any(option.startswith(name) for option in self.options)
        )


class _Tables(Struct, frozen=True, forbid_unknown_fields=True):
    high: tuple[_With, ...]
    """High risk regardless of the arguments."""
    high_with: tuple[_With, ...]
    """High risk with these arguments. The first match counts."""
    builds: tuple[_Programs, ...]
    """Programs that build and test, with the sub-commands that do; the whole program if none is named."""
    changes: tuple[_Programs, ...]
    """Programs whose changes can be undone, with their sub-commands; the whole program if none is named."""


@cache
def tables() -> _Tables:
    return toml_table(__file__, _Tables)


@cache
def _high() -> dict[str, _With]:
    return {program: row for row in tables().high for program in row.programs}


@cache
def _subs(kind: Literal["builds", "changes"]) -> dict[str, frozenset[str]]:
    rows: tuple[_Programs, ...] = getattr(tables(), kind)
    return {program: row.subs for row in rows for program in row.programs}


TEXTS: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"(?<![\w.:])([\w:.]{1,40})\s*\(\)\s*\{[^{}]{0,200}\1\s*\|\s*\1\s*&"),
     "it floods the machine with processes"),
    (re.compile(r"/dev/(?:tcp|udp)/"), DEV_TCP),
    (re.compile(r"HISTFILE=|HISTSIZE=0|unset\s+HIST|\.bash_history|\.zsh_history"), "it hides what was done"),
    (re.compile(r">\s*/dev/(?:sd|hd|nvme|vd|mmcblk|disk|mem|kmem)"), "it writes over disks or files"),
)  # fmt: skip

REWRITES = words("--fix --unsafe-fixes --write -w -u --update --updateSnapshot --snapshot-update --inplace -i")

SUB_WORDS = {"make": 99, "gmake": 99, "just": 99, "task": 99}
