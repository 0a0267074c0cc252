"""Commands that need an interactive terminal: here they would hang or end silently.

A heuristic, not a safety decision. A wrong refusal costs more than a missed one (a command that hangs runs into its
timeout), so only clear cases are refused: `terminal_programs` lists the programs, this module handles their context.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from acp_agent.safety.lines.line import Command, read
from acp_agent.safety.lines.terminal_programs import EDITOR_VARIABLES, ENDLESS, SimpleCommand, WantsTerminal, wants
from acp_agent.safety.lines.wrappers import base, behind, inner_commands, seen_by

SHELLS = ("bash", "sh", "zsh", "dash", "ksh")
MAX_NESTING = 4
UNKNOWN = ("{}", "{}")
"""Placeholder for the arguments that `xargs` adds."""


def wants_terminal(command: str, *, background: bool = False, nesting: int = 0) -> WantsTerminal | None:
    """The first part of a line that needs a terminal, or never ends. `background`: endless commands are accepted."""
    git_editor = False
    for simple in map(_plain, filter(_runs, read(command).commands)):
        git_editor = git_editor or any(name in EDITOR_VARIABLES for name in _set_by(simple))
        inner = _unwrapped(simple)
        if inner is None or not inner.words:
            continue
        if git_editor:
            inner = replace(inner, variables=(*inner.variables, "GIT_EDITOR"))
        program, *arguments = inner.words
        program = base(program)
        lines = [one.line for one in inner_commands(inner.words) if one.line is not None] if program in SHELLS else []
        if lines and nesting < MAX_NESTING:
            found = wants_terminal(lines[0], background=background, nesting=nesting + 1)
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
        return ENDLESS[program](simple, program, arguments)
    return wants(simple, program, arguments)


# --- context of a command ----------------------------------------------------------------------------------------


def _runs(command: Command) -> bool:
    """Whether it runs, as far as the line shows: not inside a function, whose callers are unknown."""
    in_function = any(around.kind == "function_definition" for around in command.around)
    return command.kind in ("command", "declaration_command") and not in_function


def _plain(command: Command) -> SimpleCommand:
    simple = command.simple
    variables = tuple(name for name, value in simple.assigned if value is not None)
    return SimpleCommand(simple.words, variables, command.has_input, command.output_taken, command.detached)


def _set_by(simple: SimpleCommand) -> list[str]:
    """Variables that a command sets for later ones."""
    if simple.words[:1] == ("export",):
        return [word.partition("=")[0] for word in simple.words[1:]]
    return []


def _unwrapped(simple: SimpleCommand) -> SimpleCommand | None:
    """The command after `env`, `time`, `timeout 5` and the like; `None` if unknown."""
    words, variables, has_input = simple.words, simple.variables, simple.has_input
    while words and (wrapper := base(words[0])) in seen_by("hints"):
        if wrapper == "sudo" and wants(simple, "sudo", words[1:]) is not None:
            break
        found = behind((wrapper, *words[1:]))
        if found is None or (wrapper == "timeout" and found.words and found.words[0] in ENDLESS):
            return None  # It is unknown what runs, or it will end.
        words, variables = found.words, (*variables, *found.variables)
        if wrapper == "xargs":
            words, has_input = (*words, *UNKNOWN), False
    return replace(simple, words=words, variables=variables, has_input=has_input)
