"""Read-only programs: which options keep them read-only, and which arguments may be paths.

`looked_at` returns the arguments that must be inside the session's folders, or `None` if the command may do more than
read. Options that write, run another program, never end, read the environment or follow links out of the project are
named here; GNU programs and git accept any unambiguous prefix of a long option, so a name also forbids its prefixes.
An option may take the next argument as its value, even one that begins with a dash or is `--`: so a forbidden option
is forbidden everywhere, and a dash alone is an operand.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cache

from msgspec import Struct

from acp_agent.toml_table import toml_table

Arguments = Sequence[str]
Paths = Sequence[str] | None


def words(text: str) -> frozenset[str]:
    """The words of a table."""
    return frozenset(text.split())


class _Options(Struct, frozen=True, forbid_unknown_fields=True):
    """Options that read-only programs must not have."""

    programs: tuple[str, ...]
    short: str = ""
    long: tuple[str, ...] = ()
    paths: bool = True
    """Whether their arguments name files."""


class _Known(Struct, frozen=True, forbid_unknown_fields=True):
    """The columns of the table, documented there."""

    version_only: frozenset[str]
    grep_long: frozenset[str]
    rg_long: frozenset[str]
    long_values: frozenset[str]
    find_tests: frozenset[str]
    git_looks: frozenset[str]
    git_forbidden: tuple[str, ...]
    branch_lists: frozenset[str]
    tag_lists: frozenset[str]
    simple: tuple[_Options, ...]


@cache
def known() -> _Known:
    return toml_table(__file__, _Known)


@cache
def _simple() -> dict[str, _Options]:
    return {program: options for options in known().simple for program in options.programs}


def looked_at(program: str, arguments: Arguments) -> Paths:
    """The arguments that may name files, or `None` if the command may do more than read."""
    if program in known().version_only and list(arguments) in (["--version"], ["-V"], ["-version"]):
        return ()
    if (options := _simple().get(program)) is not None:
        if short_options(arguments, options.short) or long_option(arguments, options.long):
            return None
        return arguments if options.paths else ()
    if (rule := RULES.get(program)) is not None:
        return rule(arguments)
    return None


def short_options(arguments: Arguments, letters: str) -> bool:
    """Whether one of `letters` may be given as an option, alone or in a cluster."""
    return any(
        argument.startswith("-") and not argument.startswith("--") and any(x in argument[1:] for x in letters)
        for argument in arguments
    )


def long_option(arguments: Arguments, names: Sequence[str]) -> bool:
    """Whether one of `names` may be given, in full or as a prefix, with or without a value."""
    for argument in arguments:
        if argument.startswith("--") and argument != "--":
            given = argument.partition("=")[0]
            if any(name.startswith(given) for name in names):
                return True
    return False


def _printf(arguments: Arguments) -> Paths:
    return None if arguments and arguments[0].startswith("-") else ()


def _command(arguments: Arguments) -> Paths:
    return () if arguments and arguments[0] in ("-v", "-V") else None


DATE_FLAGS = words("--utc --universal --rfc-email --iso-8601 --rfc-3339 --debug --resolution --help --version")
DATE_SHORT = re.compile(r"-(?:[uR]+|I\w*|[uR]*(?P<letter>[dr])(?P<value>.*))", re.DOTALL)


def _date(arguments: Arguments) -> Paths:
    """An operand without a plus is a time to set, unless it is the value of the preceding option."""
    paths = []
    pending = list(arguments)
    while pending:
        argument = pending.pop(0)
        name, equals, value = argument.partition("=")
        if argument.startswith("+") or name in DATE_FLAGS:
            continue
        if name in ("--date", "--reference"):
            letter = name[2]
        elif (short := DATE_SHORT.fullmatch(argument)) is not None:
            letter, value = short["letter"], short["value"]
            equals = value
        else:
            return None
        if letter is not None and not equals:
            value = pending.pop(0) if pending else ""
        if letter == "r":
            paths.append(value)
    return paths


def _hostname(arguments: Arguments) -> Paths:
    return None if arguments else ()


def _ps(arguments: Arguments) -> Paths:
    """A bare `e` shows environments, which contain secrets: only the well-known forms."""
    return () if " ".join(arguments) in ("", "aux", "ax", "axu", "auxf", "-e", "-A", "-f", "-ef", "-eF") else None


def _uniq(arguments: Arguments) -> Paths:
    """Its second operand is an output file."""
    operands = [argument for argument in arguments if argument == "-" or not argument.startswith("-")]
    if len(operands) > 1 or any(char in argument for argument in operands for char in "*?["):
        return None
    return None if "--" in arguments else arguments


DIFF_FLAGS = words("--no-dereference --recursive --brief --unified --new-file --text --ignore-case --side-by-side")
"""Options without a value: what follows them is not a value either."""


def _diff(arguments: Arguments) -> Paths:
    if short_options(arguments, "l") or long_option(arguments, ("--paginate",)):
        return None
    if not short_options(arguments, "r") and not long_option(arguments, ("--recursive",)):
        return arguments
    options = [argument for argument in arguments if argument.startswith("-")]
    known = all(option in DIFF_FLAGS or re.fullmatch(r"-[rNuqsbwBaiy]+", option) for option in options)
    return arguments if known and "--no-dereference" in options else None


def _cut(arguments: Arguments) -> Paths:
    return [argument for argument in arguments if not re.fullmatch(r"-d.", argument)]


TEST_UNARY = words("-f -d -e -r -w -x -s -z -n -L -h !")
TEST_BINARY = words("= == != -eq -ne -lt -le -gt -ge -nt -ot -ef")
TEST_NUMERIC = words("-eq -ne -lt -le -gt -ge")


def _test(arguments: Arguments) -> Paths:
    """`-v` and numbers in `[[` are evaluated: only plain tests."""
    operands = list(arguments)
    while operands and operands[0] == "!":
        operands.pop(0)
    match operands:
        case [] | [_]:
            return operands
        case [operator, operand] if operator in TEST_UNARY:
            return [operand] if operator not in ("-z", "-n") else ()
        case [left, operator, right] if operator in TEST_BINARY:
            if operator in TEST_NUMERIC:
                return () if re.fullmatch(r"-?\d+ -?\d+", f"{left} {right}") else None
            return (left, right) if operator in ("-nt", "-ot", "-ef") else ()
    return None


def _bracket(arguments: Arguments) -> Paths:
    return _test(arguments[:-1] if arguments and arguments[-1] == "]" else arguments)


GREP_FLAGS = "abcEFGhHiIlLnoPqrsTvVwxyzZ"


def _grep(arguments: Arguments) -> Paths:
    if short_options(arguments, "R") or long_option(arguments, ("--dereference-recursive",)):
        return None
    return _without_pattern(arguments, GREP_FLAGS, "ABCm", known().grep_long)


RG_FLAGS = "abcFhHiIlnNopPqsSuUvwx."


def _rg(arguments: Arguments) -> Paths:
    forbidden = ("--pre", "--hostname-bin", "--search-zip", "--follow", "--hyperlink-format")
    if short_options(arguments, "zL") or long_option(arguments, forbidden):
        return None
    if any(argument.startswith("--pre") and not argument.startswith("--pretty") for argument in arguments):
        return None
    return _without_pattern(arguments, RG_FLAGS, "ABCgtTmMdj", known().rg_long)


def _without_pattern(arguments: Arguments, flags: str, values: str, longs: frozenset[str]) -> Arguments:
    """The arguments without the pattern, if it can be identified; else all of them."""
    takes_value = False
    for index, argument in enumerate(arguments):
        if takes_value:
            takes_value = False
        elif argument == "--":
            return [*arguments[:index], *arguments[index + 2 :]]
        elif argument.startswith("--"):
            name, equals, _ = argument.partition("=")
            if name not in longs or (not equals and name in known().long_values):
                return arguments
        elif argument.startswith("-") and len(argument) > 1:
            letters = argument[1:].lstrip(flags)
            if letters and letters[0] not in values and not argument[1:].isdigit():
                return arguments
            takes_value = len(letters) == 1 and letters in values
        else:
            later = arguments[index + 1 :]
            if not all(_gives_no_pattern(option, flags, values, longs) for option in later):
                return arguments  # In that case this one is a file.
            return [*arguments[:index], *later]
    return arguments


def _gives_no_pattern(argument: str, flags: str, values: str, longs: frozenset[str]) -> bool:
    """Whether an argument after the first operand is certainly not `-e PATTERN`, `-f FILE` or the like."""
    if not argument.startswith("-") or argument in ("-", "--"):
        return True
    if argument.startswith("--"):
        return argument.partition("=")[0] in longs
    letters = argument[1:].lstrip(flags)
    return not letters or argument[1:].isdigit() or (letters[0] in values and not re.search("[ef]", letters[1:]))


def _find(arguments: Arguments) -> Paths:
    for argument in arguments:
        if (
            argument.startswith("-")
            and argument not in known().find_tests
            and not re.fullmatch(r"-\d+[a-zA-Z]?", argument)
        ):
            return None
    return arguments


def _jq(arguments: Arguments) -> Paths:
    """A filter can read the environment and load modules."""
    forbidden = ("--from-file", "--library-path", "--run-tests")
    if short_options(arguments, "fL") or long_option(arguments, forbidden):
        return None
    if any(re.search(r"env|import|include|modulemeta", argument, re.IGNORECASE) for argument in arguments):
        return None
    for index, argument in enumerate(arguments):
        if not argument.startswith("-"):
            return [*arguments[:index], *arguments[index + 1 :]] if _is_plain_jq(arguments[:index]) else arguments
    return arguments


def _is_plain_jq(options: Arguments) -> bool:
    return all(re.fullmatch(r"-[rcesnSjaMC]+|--tab|--raw-output|--compact-output", option) for option in options)


SED_PRINT = re.compile(r"(?:\d+|\$)(?:,\+?(?:\d+|\$))?p(?:;(?:\d+|\$)(?:,\+?(?:\d+|\$))?p)*")


def _sed(arguments: Arguments) -> Paths:
    """Only `sed -n '10,20p' file …`: its language writes files and runs programs."""
    match arguments:
        case ["-n", script, *files] if SED_PRINT.fullmatch(script) and not any(x.startswith("-") for x in files):
            return files
    return None


# --- git ------------------------------------------------------------------------------------------------------

GIT_SIGNATURES = re.compile(r"%G|%\(\*?signature")
BRANCH_MORE = words("-v -vv -av -rv -avv -va --verbose --no-color -i")


def _git(arguments: Arguments) -> Paths:
    given = list(arguments)
    while given and given[0] == "--no-pager":
        given.pop(0)
    if given == ["--version"] or not given:
        return ()
    sub, rest = given[0], given[1:]
    if long_option(rest, known().git_forbidden) or GIT_SIGNATURES.search(" ".join(rest)):
        return None
    match sub, rest:
        case _ if sub in known().git_looks:
            return None if short_options(rest, "o") and sub != "ls-files" else rest
        case "grep", _:
            return None if short_options(rest, "O") else rest
        case "branch", _:
            return rest if _lists(rest, known().branch_lists, BRANCH_MORE) else None
        case "tag", _:
            return rest if _lists(rest, known().tag_lists, frozenset(("-n",))) else None
        case "remote", [] | ["-v"] | ["--verbose"] | ["get-url", _]:
            return ()
        case "stash", ["list", *more]:
            return more
        case "stash", ["show", *more]:
            return more
        case "reflog", []:
            return ()
        case "reflog", ["show", *more]:
            return more
        case "worktree", ["list"]:
            return ()
    return None


def _lists(arguments: Arguments, lists: frozenset[str], more: frozenset[str]) -> bool:
    """Whether the command lists: without a listing option, an operand would name something to create."""
    if "--sort" in arguments or "--format" in arguments:
        return False  # The next argument is a value, whatever it looks like.
    given = [argument.partition("=")[0] for argument in arguments if argument.startswith("-")]
    if not all(
        name in lists or name in more or name in ("--sort", "--format", "--column", "--color") for name in given
    ):
        return False
    operands = [argument for argument in arguments if not argument.startswith("-")]
    return not operands or any(name in lists for name in given if name not in ("-a", "-r", "--all", "--remotes"))


RULES: dict[str, Callable[[Arguments], Paths]] = {
    "printf": _printf,
    "command": _command,
    "date": _date,
    "hostname": _hostname,
    "ps": _ps,
    "uniq": _uniq,
    "diff": _diff,
    "cut": _cut,
    "test": _test,
    "[": _bracket,
    "[[": _test,
    "grep": _grep,
    "egrep": _grep,
    "fgrep": _grep,
    "rg": _rg,
    "find": _find,
    "jq": _jq,
    "sed": _sed,
    "git": _git,
}
