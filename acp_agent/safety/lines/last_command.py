"""Finds the command whose output a shell line finally shows, in the form that filter rules expect.

Only for choosing a filter: nothing here decides what may run. In doubt the result is empty, and no filter is
applied.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from itertools import groupby

from msgspec import Struct

from acp_agent.safety.lines.line import TOO_DEEP, Around, Command, read
from acp_agent.safety.lines.programs import words
from acp_agent.safety.lines.wrappers import base, behind, seen_by, wrappers
from acp_agent.toml_table import toml_table

QUIET = words(
    "variable_assignment variable_assignments declaration_command unset_command test_command function_definition"
)
"""Kinds of commands that print nothing."""
CUTTERS = words("tail head cat tee less more")
"""Programs whose output has the format of their input, which is the pipe unless they name a file."""
CUTTER_OPTIONS = {
    "head": ("-n", "-c", "--lines", "--bytes"),
    "tail": ("-n", "-c", "-s", "--lines", "--bytes", "--pid", "--sleep-interval", "--max-unchanged-stats"),
}
"""Options of cutters that take a value."""
FEEDERS = words("yes echo printf")
"""Before a pipe they only answer prompts; the visible output is the next program's."""
SILENT = words(
    "cd pushd popd export set unset source . true : exit return mkdir rm touch cp mv chmod umask ulimit sleep trap "
    "wait shopt alias exec declare local readonly typeset test [ eval"
)
SPEAKING = words("echo printf")
"""Print a remark after another command's output (`make; echo $?`)."""

PYTHON_OPTIONS = words("-W -X")
PYTHONS = words("python python3 pypy pypy3")
KNOWN = CUTTERS | FEEDERS | SILENT | SPEAKING | PYTHONS
"""Names whose redefinition makes a line unreadable, including wrappers and runners: a line that redefines one yields no
command."""


class _Global(Struct, frozen=True, forbid_unknown_fields=True):
    """Options allowed before a program's sub-command."""

    with_word: frozenset[str]
    without: frozenset[str]


@cache
def global_options() -> dict[str, _Global]:
    """By program."""
    return toml_table(__file__, dict[str, _Global])


@cache
def _runners() -> dict[str, str]:
    """Programs with a sub-command that runs a program."""
    return {"pnpm": "exec"} | {name: sub for name in seen_by("filters") if (sub := wrappers()[name].sub)}


class LastCommand(Struct, frozen=True):
    text: str
    """Program (without its folder) and arguments as written, separated by single blanks. Without wrappers, variables,
    redirections, and options between a program and its sub-command. Empty if there is none."""
    alone: bool
    """Whether nothing else in the line can have printed anything."""


NONE = LastCommand("", False)


def last_command(script: str) -> LastCommand:
    """The last command of `script` whose output is shown unchanged. Total: what is not understood yields an empty text.

    `cd x && cargo test 2>&1 | tail -80` yields `cargo test`. A pipe into a program that changes the format (`grep`,
    `sort`, `wc`) yields none; nor do loops, conditions and here documents in pipes, and names that the line itself
    redefines.
    """
    commands = read(script).commands
    segments, renamed = _segments(commands, 0), _renamed(commands)
    known = KNOWN | seen_by("filters") | _runners().keys()
    if segments is None or renamed & known or any(command.kind == TOO_DEEP for command in commands):
        return NONE
    for number in range(len(segments) - 1, -1, -1):
        if not segments[number].prints and not segments[number].speaks:
            continue
        if segments[number].speaks and any(segment.prints for segment in segments[:number]):
            continue
        others = segments[:number] + segments[number + 1 :]
        if not segments[number].text or _program(segments[number : number + 1]) in renamed:
            return NONE
        return LastCommand(segments[number].text, not any(other.prints or other.speaks for other in others))
    return LastCommand(segments[-1].text, True) if segments else NONE


class _Segment(Struct, frozen=True):
    text: str
    prints: bool
    speaks: bool = False


def _segments(commands: Iterable[Command], depth: int) -> list[_Segment] | None:
    """Commands run one after the other; None if a part is not understood. `depth`: number of enclosing constructs
    already handled."""
    found: list[_Segment] = []
    for around, within in groupby(commands, lambda command: _around(command, depth)):
        match around.kind if around is not None else "":
            case "":
                below: list[_Segment] | None = list(map(_segment, within))
            case "list" | "subshell" | "compound_statement" | "negated_command":
                below = _segments(within, depth + 1)
            case "pipeline":
                below = _pipeline(within, depth + 1)
            case "redirected_statement":
                below = _redirected(list(within), depth + 1)
            case _:
                continue  # In words, a loop or a function: their output is known from themselves.
        if below is None:
            return None
        found += below
    return found


def _around(command: Command, depth: int) -> Around | None:
    return command.around[depth] if depth < len(command.around) else None


def _pipeline(commands: Iterable[Command], depth: int) -> list[_Segment] | None:
    stages: list[list[_Segment]] = []
    for around, within in groupby(commands, lambda command: command.around[depth]):
        stage = _segments(within, depth + 1)
        if not stage or (stages and any(one.gives_input for one in around.redirects)):
            return None
        stages.append(stage)
    while len(stages) > 1 and _program(stages[0]) in FEEDERS:
        stages.pop(0)
    if all(_cuts(stage) for stage in stages[1:]):
        return stages[0]
    return [_Segment("", True)]


def _program(stage: Sequence[_Segment]) -> str:
    return stage[0].text.partition(" ")[0] if len(stage) == 1 else ""


def _cuts(stage: Sequence[_Segment]) -> bool:
    """Whether it passes on its piped input, without any file."""
    program = _program(stage)
    if program not in CUTTERS:
        return False
    if program == "tee":
        return True
    words = iter(stage[0].text.split()[1:])
    for word in words:
        if word in CUTTER_OPTIONS.get(program, ()) or _ends_in_option(program, word):
            next(words, None)
        elif not word.startswith(("-", "+")) or word == "--":
            return False
    return True


def _ends_in_option(program: str, word: str) -> bool:
    """Whether the last of several clustered options takes the next word: `-fn 20`."""
    return program in CUTTER_OPTIONS and word[:1] == "-" != word[1:2] and word[-1:] in "nc"


def _renamed(commands: Sequence[Command]) -> frozenset[str]:
    """Functions and aliases defined in the line."""
    names: set[str] = set()
    for command in commands:
        if command.kind == "function_definition":
            names.update(command.simple.words)
        elif command.simple.written[:1] == ("alias",):
            names.update(word.strip("'\"").partition("=")[0] for word in command.simple.written[1:])
    return frozenset(names)


def _redirected(commands: Sequence[Command], depth: int) -> list[_Segment] | None:
    body = commands[0].around[depth]
    if any(command.around[depth] is not body for command in commands):
        return None  # A here document with more after it, which the grammar hides in the redirection.
    found = _segments(commands, depth + 1)
    # The redirected commands, if there are several.
    whole = {_around(command, depth + 1) for command in commands}
    kind = around.kind if len(whole) == 1 and (around := whole.pop()) is not None else ""
    if not found:
        return found
    if kind == "pipeline" and any(redirect.gives_input for redirect in body.redirects):
        return None
    if any(redirect.takes_output for redirect in body.redirects):
        # `{ a; b; } > file` shows nothing; the grammar also makes `a && b > file` one node.
        kept = [] if kind in ("subshell", "compound_statement") else found[:-1]
        return kept + [_Segment(segment.text, False) for segment in found[len(kept) :]]
    return found


def _segment(command: Command) -> _Segment:
    if command.kind in QUIET:
        return _Segment("", False)
    words = _without_wrappers(command.simple.written) if command.kind == "command" else []
    if not words:
        return _Segment("", True)
    text = " ".join(_without_options(words))
    return _Segment(text, words[0] not in SILENT and words[0] not in SPEAKING, words[0] in SPEAKING)


def _without_wrappers(written: Sequence[str]) -> list[str]:
    """Program and arguments; empty if a wrapper hides them."""
    words, runners = list(written), _runners()
    for _ in range(10):
        if not words:
            return []
        program = words[0] = base(words[0].strip("'\""))
        if program in runners:
            if words[1:2] != [runners[program]] or len(words) < 3 or words[2].startswith("-"):
                return words
            words = words[2:]
        elif program in seen_by("filters"):
            found = behind(words)
            if found is None or not found.words:
                return words
            words = list(found.words)
        elif program.rstrip("0123456789.") in ("python", "pypy") and (module := _module(words[1:])):
            words = module
        else:
            return words
    return []


def _module(words: list[str]) -> list[str]:
    """For `python -u -m pytest tests` the words `pytest tests`; empty unless a module is run."""
    at = 0
    while at < len(words) and words[at].startswith("-") and words[at] != "-m":
        if words[at] in ("-c", "-"):
            return []
        at += 2 if words[at] in PYTHON_OPTIONS else 1
    return words[at + 1 :] if at < len(words) and words[at] == "-m" else []


def _without_options(words: list[str]) -> list[str]:
    """The words without the options before a sub-command, if all of them are known."""
    program = words[0].rstrip("0123456789.") if words[0].startswith("pip") else words[0]
    if (known := global_options().get(program)) is None:
        return words
    at = 1
    while at < len(words):
        word = words[at]
        if word in known.with_word:
            at += 2
        elif word in known.without or word.partition("=")[0] in known.with_word or word.startswith(("-chdir=", "+")):
            at += 1
        else:
            break
    if at >= len(words) or words[at].startswith("-"):
        return words
    return [program, *words[at:]]
