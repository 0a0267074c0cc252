"""The scope of an "always" answer for a command, in words such as `cargo test`.

A scope is the program with its sub-command, if these determine what happens regardless of the other arguments. A
command whose arguments can be any program (`sh -c`, `docker run`, `git -c`, `make SHELL=…`) has none: then only the
exact line is remembered (`None`). Whether arguments are inside the session's folders has been checked before.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache

from msgspec import Struct

from acp_agent.safety.lines.programs import long_option, looked_at, short_options, words
from acp_agent.toml_table import toml_table

SUB = re.compile(r"[A-Za-z][\w:.-]*")
LONGEST = 60
MAX_NESTING = 4


class _Subs(Struct, frozen=True, forbid_unknown_fields=True):
    """A program with sub-commands."""

    only: frozenset[str] = frozenset()
    """Sub-commands with a scope: those that neither run what their arguments say nor set what will be run."""
    short: tuple[str, ...] = ()
    """Options (prefixes of an argument) after which anything may happen."""
    long: tuple[str, ...] = ()
    words: int = 1
    several: bool = False
    """Every operand is a separate task."""


class _Table(Struct, frozen=True, forbid_unknown_fields=True):
    subs: dict[str, _Subs]
    tools: dict[str, frozenset[str]]
    """Programs whose name alone is the scope, with the options that keep it so."""
    modules: dict[str, frozenset[str]]
    """Python modules with their own scope, besides `TOOL_MODULES`, with the options that keep it so."""


@cache
def table() -> _Table:
    return toml_table(__file__, _Table)


def scopes_of(command: Sequence[str], nesting: int = 0) -> tuple[str, ...] | None:
    """The scopes of one simple command; `None`: only the exact line."""
    program, *arguments = command
    if nesting > MAX_NESTING or any("://" in argument for argument in arguments):
        return None
    if program in ("python", "python3"):
        return _python(program, arguments, nesting)
    if (runner := next((each for each in INSTALLED if tuple(command[: len(each)]) == each), None)) is not None:
        rest = command[len(runner) :]
        options = table().tools.get(rest[0]) if rest else None
        return (" ".join([*runner, rest[0]]),) if options is not None and _only(rest[1:], options) else None
    if (row := table().subs.get(program)) is not None:
        return _with_sub(program, row, arguments, nesting)
    if (options := table().tools.get(program)) is not None:
        return (program,) if _only(arguments, options) else None
    return None


def _python(program: str, arguments: Sequence[str], nesting: int) -> tuple[str, ...] | None:
    if len(arguments) < 2 or arguments[0] != "-m":
        return None
    module, *rest = arguments[1:]
    prefix = f"{program} -m "
    if (options := table().modules.get(module)) is not None:
        return (prefix + module,) if _only(rest, options) else None
    return _prefixed(prefix, scopes_of([module, *rest], nesting + 1)) if module in TOOL_MODULES else None


def _with_sub(program: str, row: _Subs, arguments: Sequence[str], nesting: int) -> tuple[str, ...] | None:
    options = [argument for argument in arguments if argument != "--"]
    letters = "".join(option[1] for option in row.short if len(option) == 2)
    if short_options(options, letters) or long_option(options, row.long):
        return None
    if any(option.startswith(row.short) for option in options):
        return None
    if row.several:
        return _tasks(program, arguments)
    if not arguments or not _is_sub(arguments[0]):
        return None
    sub, *rest = arguments
    if sub not in row.only:
        return None
    if sub == "run" and program in RUNNERS:
        return _prefixed(f"{program} run ", _inner(rest, nesting)) if rest else None
    if sub == "pip":
        return _prefixed(f"{program} ", scopes_of([sub, *rest], nesting + 1))
    if sub in ("run", "run-script") and program in SCRIPTS:
        return (f"{program} {sub} {rest[0]}",) if rest and _is_sub(rest[0]) else None
    if program == "git" and any(re.match(r"[^-].*(?:::|@.*:)|[./]", argument) for argument in rest):
        return None if sub in GIT_REMOTES else (f"git {sub}",)
    if row.words == 2:
        return (f"{program} {sub} {rest[0]}",) if rest and _is_sub(rest[0]) else None
    return (f"{program} {sub}",)


def _inner(command: Sequence[str], nesting: int) -> tuple[str, ...] | None:
    if looked_at(command[0], command[1:]) is not None:
        return (command[0],) if command[0] != "git" else None
    return scopes_of(command, nesting + 1)


def _tasks(program: str, arguments: Sequence[str]) -> tuple[str, ...] | None:
    tasks = [argument for argument in arguments if not argument.startswith("-")]
    if not all(_is_sub(task) or task.isdigit() for task in tasks):
        return None
    names = [task for task in tasks if not task.isdigit()]
    return tuple(f"{program} {task}" for task in names) if names else (program,)


def _prefixed(prefix: str, scopes: tuple[str, ...] | None) -> tuple[str, ...] | None:
    return None if scopes is None else tuple(prefix + scope for scope in scopes)


def _is_sub(word: str) -> bool:
    return SUB.fullmatch(word) is not None and len(word) <= LONGEST


def _only(arguments: Sequence[str], known: frozenset[str]) -> bool:
    """Whether all options are known (ignoring their values)."""
    for argument in arguments:
        if argument == "--":
            return False
        if argument.startswith("-") and len(argument) > 1 and argument.partition("=")[0] not in known:
            return False
    return True


RUNNERS = frozenset(("uv", "poetry", "pdm", "hatch", "pipenv"))
"""`X run PROGRAM …`: the scope is that of the program."""

INSTALLED = (("npx", "--no-install"), ("npx", "--no"), ("npx",), ("bunx",), ("pnpm", "exec"), ("yarn", "exec"))
"""`X PROGRAM …`: runs the program that the project has installed; without options that would choose another one. The
first that fits counts."""

SCRIPTS = frozenset(("npm", "pnpm", "yarn", "bun"))
"""`X run SCRIPT`: scripts of the project's package.json."""

TOOL_MODULES = words("pytest mypy ruff black isort flake8 pip")
"""Modules equivalent to the program of the same name. Any other module may run what its arguments say."""

GIT_REMOTES = words("push pull fetch")
