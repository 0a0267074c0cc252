"""Commands that want a person at a terminal: here nobody is, and they would hang or end at once without a word.

A heuristic, and no decision about safety. A wrong refusal costs more than a missed one (a command that hangs meets its
timeout), so only plain cases are refused: the programs are in `terminal_programs`, what stands around them is here.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from acp_agent.safety.lines.simple import SimpleCommand, simple_commands
from acp_agent.safety.lines.terminal_programs import (
    EDITOR_VARIABLES,
    ENDLESS,
    RULES,
    SHELLS,
    SUDO_VALUES,
    WantsTerminal,
)

__all__ = ["WantsTerminal", "wants_terminal"]

MAX_NESTING = 4


def wants_terminal(command: str, *, background: bool = False, nesting: int = 0) -> WantsTerminal | None:
    """The first part of a line that wants a terminal, or never ends. `background`: what never ends may run there."""
    git_editor = False
    for simple in simple_commands(command):
        git_editor = git_editor or any(name in EDITOR_VARIABLES for name in _set_by(simple))
        inner = _unwrapped(simple)
        if inner is None or not inner.words:
            continue
        if git_editor:
            inner = replace(inner, variables=(*inner.variables, "GIT_EDITOR"))
        program, *arguments = inner.words
        program = program.rpartition("/")[2]
        if program in SHELLS and nesting < MAX_NESTING and (line := _line_of(arguments)) is not None:
            found = wants_terminal(line, background=background, nesting=nesting + 1)
        else:
            found = _judge(program, arguments, inner, background)
        if found is not None:
            return found
    return None


def _judge(program: str, arguments: Sequence[str], simple: SimpleCommand, background: bool) -> WantsTerminal | None:
    if any(argument in ("--version", "--help") for argument in arguments) or list(arguments) in (["-V"], ["-h"]):
        return None
    if program in ENDLESS:
        if background or simple.detached or simple.output_taken:
            return None
        return ENDLESS[program](simple, arguments)
    rule = RULES.get(program)
    return None if rule is None else rule(simple, arguments)


# --- around a command --------------------------------------------------------------------------------------------


def _set_by(simple: SimpleCommand) -> list[str]:
    """Variables that a command sets for those after it."""
    if simple.words[:1] == ("export",):
        return [word.partition("=")[0] for word in simple.words[1:]]
    return []


def _unwrapped(simple: SimpleCommand) -> SimpleCommand | None:
    """The command behind `env`, `time`, `timeout 5` and the like; `None` where it cannot be told."""
    words, variables, has_input = list(simple.words), list(simple.variables), simple.has_input
    while words and (wrapper := words[0].rpartition("/")[2]) in WRAPPERS:
        if wrapper == "command" and words[1:2] and words[1] in ("-v", "-V"):
            return None
        if wrapper == "sudo" and RULES["sudo"](simple, words[1:]) is not None:
            break
        words = _past_options(words[1:], WRAPPERS[wrapper], variables)
        if wrapper == "timeout":
            words = words[1:]
            if words and words[0] in ENDLESS:
                return None  # It has an end.
        elif wrapper in RUNNERS:
            if words[:1] != ["run"]:
                return None
            words = _past_options(words[1:], WRAPPERS[wrapper], variables)
        elif wrapper == "xargs":
            words, has_input = [*words, *UNKNOWN], False
    return replace(simple, words=tuple(words), variables=tuple(variables), has_input=has_input)


def _past_options(words: list[str], with_value: frozenset[str], variables: list[str]) -> list[str]:
    """What follows the options and the assignments; the names of these are added to `variables`."""
    at = 0
    while at < len(words) and (words[at].startswith("-") or re.match(r"\w+=", words[at])):
        if not words[at].startswith("-"):
            variables.append(words[at].partition("=")[0])
        at += 2 if words[at] in with_value else 1
    return words[at:]


RUNNERS = frozenset(("poetry", "uv"))
"""What runs another by its command `run`."""

UNKNOWN = ("{}", "{}")
"""Stands for the arguments that `xargs` adds."""

UV_VALUES = (
    "-p -i -f -m --python --module --with --with-editable --with-requirements --extra --group --only-group --no-group "
    "--no-extra --package --project --directory --env-file --index --index-url --default-index --extra-index-url "
    "--find-links --cache-dir --config-file --color"
)

WRAPPERS: dict[str, frozenset[str]] = {
    "command": frozenset(),
    "builtin": frozenset(),
    "exec": frozenset(("-a",)),
    "env": frozenset(("-u", "-C", "-S")),
    "time": frozenset(("-f", "-o")),
    "nohup": frozenset(),
    "nice": frozenset(("-n",)),
    "ionice": frozenset(("-c", "-n")),
    "stdbuf": frozenset(("-i", "-o", "-e")),
    "timeout": frozenset(("-s", "-k", "--signal", "--kill-after")),
    "setsid": frozenset(),
    "sudo": SUDO_VALUES,
    "xargs": frozenset("-a -d -E -I -L -n -P -s --arg-file --delimiter --max-args --max-lines --max-procs".split()),
    "poetry": frozenset(("-C", "--directory", "-P", "--project")),
    "uv": frozenset(UV_VALUES.split()),
}
"""Programs that run another, with their options that take the next word."""


def _line_of(arguments: Sequence[str]) -> str | None:
    """The command line in `bash -c '…'`."""
    for number, argument in enumerate(arguments[:-1]):
        if re.fullmatch(r"-[a-z]*c", argument):
            return arguments[number + 1]
        if not argument.startswith("-"):
            return None
    return None
