"""Programs that need an interactive terminal, and the options and input that make them work without one.

A table of hints (`interactive`): a program that is not listed passes, and so does anything unclear.

Commands run with pagers off and with an editor for git that leaves the text unchanged (`QUIET` of `executors/local`,
also used in the editor's terminals): what works because of that (`man ls`, `git commit --amend`) is not refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cache

from msgspec import Struct

from acp_agent.safety.lines.wrappers import wrappers
from acp_agent.toml_table import toml_table


class WantsTerminal(Struct, frozen=True):
    why: str
    """The beginning of a sentence for the model: `` `vim` is an editor and needs a terminal``."""
    instead: str
    """Advice, one sentence."""


class SimpleCommand(Struct, frozen=True):
    """A command without its wrappers."""

    words: tuple[str, ...]
    """Program and arguments, without quotes. Anything known only at run time is kept as written (`$x`)."""
    variables: tuple[str, ...]
    """Names of the variables set for it alone."""
    has_input: bool
    output_taken: bool
    detached: bool

    @property
    def has_editor(self) -> bool:
        """Whether the line sets the editor that the command opens."""
        return any(name in EDITOR_VARIABLES for name in self.variables)


Rule = Callable[[SimpleCommand, str, Sequence[str]], WantsTerminal | None]


# --- words -------------------------------------------------------------------------------------------------------


def _operands(arguments: Sequence[str], taking: Sequence[str] = ()) -> list[str]:
    """The arguments that are not options. `taking`: options that take the next word."""
    found, skip = [], False
    for argument in arguments:
        if skip:
            skip = False
        elif argument.startswith("-") and argument != "-":
            skip = argument in taking
        else:
            found.append(argument)
    return found


def _has(arguments: Sequence[str], letters: str = "", *long: str) -> bool:
    """Whether one of the short options is given, alone or in a cluster, or one of the long ones."""
    for argument in arguments:
        if argument.startswith("--"):
            if argument.partition("=")[0] in long:
                return True
        elif argument.startswith("-") and any(letter in argument[1:] for letter in letters):
            return True
    return False


LEAVE = "Leave this to the user."

# --- rules -------------------------------------------------------------------------------------------------------


class _Row(Struct, frozen=True, forbid_unknown_fields=True):
    """A program fully described by its options and input."""

    why: str
    """`{}` stands for its name."""
    instead: str
    also: tuple[str, ...] = ()
    """Programs with the same row."""
    unless: str = ""
    """Arguments (an expression) with which it needs no user."""
    only: str = ""
    """Arguments of which one must be present."""
    fed: bool = False
    """Whether it works if it has input."""
    alone: tuple[str, ...] | None = None
    """Whether it works with operands; these options take the next word."""
    own_editor: bool = False
    """Whether it works with an editor set in the line."""


@cache
def rows() -> dict[str, _Row]:
    """Program -> row."""
    found = toml_table(__file__, dict[str, _Row])
    return {name: row for first, row in found.items() for name in (first, *row.also)}


def _by_row(simple: SimpleCommand, program: str, arguments: Sequence[str]) -> WantsTerminal | None:
    row = rows().get(program)
    if row is None or (row.fed and simple.has_input) or (row.own_editor and simple.has_editor):
        return None
    if (row.unless and _any(row.unless, arguments)) or (row.only and not _any(row.only, arguments)):
        return None
    if row.alone is not None and _operands(arguments, row.alone):
        return None
    return WantsTerminal(row.why.format(program), row.instead)


def _any(pattern: str, arguments: Sequence[str]) -> bool:
    return any(re.fullmatch(pattern, argument, re.DOTALL) for argument in arguments)


def _pager(simple: SimpleCommand, program: str, arguments: Sequence[str]) -> WantsTerminal | None:
    if simple.output_taken:
        return None
    if simple.has_input and not _operands(arguments):
        return WantsTerminal(
            "it ends in a pager, which needs a terminal", "Leave out the pager, or end the pipe with `head -n 100`."
        )
    return WantsTerminal("it opens a pager, which needs a terminal", "Use `read`, or `cat` and `head`.")


PYTHON_VALUES = ("-W", "-X")


def _python(simple: SimpleCommand, program: str, arguments: Sequence[str]) -> WantsTerminal | None:
    if simple.has_input:
        return None
    words = list(arguments)
    while words and words[0].startswith("-") and words[0] != "-":
        option = words.pop(0)
        if re.fullmatch(r"-[a-zA-Z]*i[a-zA-Z]*", option) and not re.match(r"-[a-zA-Z]*[cmWX]", option):
            return WantsTerminal(f"`{program} -i` waits for input afterwards", "Leave out `-i`.")
        if option == "-m" and words[:1] in (["pdb"], ["ipdb"], ["code"]) and "-c" not in words:
            return WantsTerminal(f"`{words[0]}` waits for input", "Run the program itself and print.")
        if re.fullmatch(rows()[program].unless, option):
            return None
        if option in PYTHON_VALUES:
            words = words[1:]
    return _by_row(simple, program, arguments)


def _mysql(simple: SimpleCommand, program: str, arguments: Sequence[str]) -> WantsTerminal | None:
    if any(argument in ("-p", "--password") for argument in arguments):
        return WantsTerminal("`mysql -p` asks for a password", "Let it read the password from an option file.")
    return _by_row(simple, program, arguments)


def _sqlite(simple: SimpleCommand, program: str, arguments: Sequence[str]) -> WantsTerminal | None:
    if simple.has_input or len(_operands(arguments, "-cmd -init -separator -newline -nullvalue".split())) > 1:
        return None
    if any(argument.lstrip("-") in ("version", "help") for argument in arguments):
        return None
    return WantsTerminal("`sqlite3` without SQL waits for input", "Give it: `sqlite3 FILE 'SELECT …'`.")


SSH_VALUES = "-B -b -c -D -E -e -F -I -i -J -L -l -m -O -o -p -Q -R -S -W -w"


def _ssh(simple: SimpleCommand, program: str, arguments: Sequence[str]) -> WantsTerminal | None:
    if simple.has_input or _has(arguments, "VNfGQTO") or any(argument.startswith("-W") for argument in arguments):
        return None
    if len(_operands(arguments, SSH_VALUES.split())) != 1:
        return None
    return WantsTerminal(
        "`ssh` without a command opens a remote shell", "Give the command: `ssh -o BatchMode=yes HOST 'ls'`."
    )


EDITOR_VARIABLES = frozenset(("GIT_EDITOR", "GIT_SEQUENCE_EDITOR", "EDITOR", "VISUAL"))
GIT_VALUES = ("-C", "-c", "--git-dir", "--work-tree", "--namespace", "--exec-path")


def _git(simple: SimpleCommand, program: str, arguments: Sequence[str]) -> WantsTerminal | None:
    rest = list(arguments)
    own_editor = simple.has_editor
    while rest and rest[0].startswith("-"):
        option = rest.pop(0)
        if option in GIT_VALUES and rest:
            own_editor = rest.pop(0).startswith(("core.editor=", "sequence.editor=")) or own_editor
    if not rest:
        return None
    sub, *rest = rest
    if "--" in rest:
        rest = rest[: rest.index("--")]
    if sub == "rebase" and _has(rest, "i", "--interactive") and not own_editor:
        return WantsTerminal(
            "`git rebase -i` opens an editor", "Name one in the line: `GIT_SEQUENCE_EDITOR='sed -i …' git rebase -i`."
        )
    asks = {"add": "pie", "checkout": "p", "reset": "p", "restore": "p", "stash": "p", "clean": "i", "commit": "p"}
    long = ("--patch", "--interactive", "--edit") if sub == "add" else ("--patch", "--interactive")
    takes = () if sub != "commit" else COMMIT_VALUES
    if sub in asks and not simple.has_input and _has(_without_values(rest, takes), asks[sub], *long):
        return WantsTerminal(
            f"this `git {sub}` asks about each hunk", "Name the files, or make a patch and use `git apply`."
        )
    if sub == "commit" and not own_editor and not _has_message(rest):
        return WantsTerminal(
            "`git commit` without a message opens an editor",
            "Give the message: `git commit -m '…'`, or `--no-edit` for a merge.",
        )
    return None


COMMIT_VALUES = ("m", "F", "C", "c", "t")


def _without_values(arguments: Sequence[str], takes: Sequence[str]) -> list[str]:
    """The arguments without the values of short options, attached or following."""
    kept, skip = [], False
    for argument in arguments:
        if skip:
            skip = False
            continue
        if argument.startswith("-") and not argument.startswith("--"):
            places = [argument.index(letter) for letter in takes if letter in argument[1:]]
            if places:
                at = min(places)
                skip = at == len(argument) - 1
                argument = argument[: at + 1]
        kept.append(argument)
    return kept


def _has_message(arguments: Sequence[str]) -> bool:
    options = _without_values(arguments, COMMIT_VALUES)
    long = ("--message", "--file", "--reuse-message", "--reedit-message", "--fixup", "--squash", "--amend", "--no-edit")
    return _has(options, "mFCc", *long, "--dry-run", "--porcelain", "--short")


def _npm(simple: SimpleCommand, program: str, arguments: Sequence[str]) -> WantsTerminal | None:
    operands = _operands(arguments, "--registry --scope --auth-type".split())
    if operands[:1] in (["login"], ["adduser"], ["add-user"]) and not simple.has_input:
        return WantsTerminal(f"`{operands[0]}` asks for a name and a password", LEAVE)
    if arguments[:1] != ["init"] or simple.has_input or _has(arguments, "y", "--yes") or len(operands) > 1:
        return None
    return WantsTerminal("`init` asks for each field", "Add `-y`.")


def _container(simple: SimpleCommand, program: str, arguments: Sequence[str]) -> WantsTerminal | None:
    words = list(arguments)
    if words[:1] == ["compose"]:
        return None
    if words[:1] == ["login"]:
        given = _has(words, "p", "--password-stdin", "--password", "--get-login")
        return None if given or simple.has_input else WantsTerminal("this `login` asks for a password", LEAVE)
    while words and words[0] not in ("run", "exec", "attach"):
        if not words[0].startswith("-") and words[0] not in ("container",):
            return None
        words.pop(0)
    if not words:
        return None
    sub, *rest = words
    options = []
    for word in rest:
        if not word.startswith("-"):
            break
        options.append(word)
    # An option may take the next word, and more options follow it: search for `-it` up to the image's own words.
    options += [word for word in rest[len(options) : len(options) + 6] if re.fullmatch(r"-(it|ti|itd|dit)", word)]
    if sub == "attach" or (_has(options, "t", "--tty") and not _has(options, "d", "--detach")):
        return WantsTerminal(f"this `{sub}` asks for a terminal", "Leave out `-t` and `-i`, and name what to run.")
    return None


def _kubectl(simple: SimpleCommand, program: str, arguments: Sequence[str]) -> WantsTerminal | None:
    before = list(arguments[: arguments.index("--")]) if "--" in arguments else list(arguments)
    operands = _operands(before, "-n --namespace --context --kubeconfig -c --container".split())
    if operands[:1] == ["edit"]:
        return WantsTerminal("`kubectl edit` opens an editor", "Use `kubectl patch` or `kubectl apply -f`.")
    tty = any(re.fullmatch(r"-(it|ti|t)|--tty(=true)?", argument) for argument in before)
    if operands[:1] and operands[0] in ("exec", "run", "attach", "debug") and tty:
        return WantsTerminal(
            f"this `kubectl {operands[0]}` asks for a terminal", "Leave out `-t` and `-i`: `kubectl exec POD -- ls`."
        )
    return None


def _sudo(simple: SimpleCommand, program: str, arguments: Sequence[str]) -> WantsTerminal | None:
    options = []
    skip = False
    for argument in arguments:
        if skip:
            skip = False
        elif argument.startswith("-"):
            options.append(argument)
            skip = argument in wrappers()["sudo"].values
        else:
            break
    if _has(options, "nSAVkK", "--non-interactive", "--stdin", "--askpass", "--version", "--help"):
        return None
    return WantsTerminal(
        "`sudo` may ask for a password, which cannot be entered", "Use `sudo -n`, which fails instead of asking."
    )


KEYGEN_VALUES = tuple("abCEfImNnOPtVwZ")
KEYGEN_OTHERS = "ABcDeFgGHiIKklLMpQRrsTuUWyYz"
"""Options with which `ssh-keygen` does something other than create a key."""


def _keygen(simple: SimpleCommand, program: str, arguments: Sequence[str]) -> WantsTerminal | None:
    options = _without_values(arguments, KEYGEN_VALUES)
    if simple.has_input or _has(options, KEYGEN_OTHERS) or (_has(options, "f") and _has(options, "N")):
        return None
    return WantsTerminal("`ssh-keygen` asks for a file and a passphrase", "Give both: `ssh-keygen -f FILE -N ''`.")


def _gpg(simple: SimpleCommand, program: str, arguments: Sequence[str]) -> WantsTerminal | None:
    makes = _has(arguments, "", "--gen-key", "--generate-key", "--full-gen-key", "--full-generate-key")
    if not makes or simple.has_input or _has(arguments, "", "--batch", "--command-fd", "--command-file"):
        return None
    return WantsTerminal("`gpg` asks who the key is for", "Use `gpg --batch --passphrase '' --quick-gen-key NAME`.")


def _read(simple: SimpleCommand, program: str, arguments: Sequence[str]) -> WantsTerminal | None:
    if simple.has_input or _has(arguments, "ut"):
        return None
    return WantsTerminal("`read` waits for input", "Give it its input: `read x <<< '…'`.")


def _tmux(simple: SimpleCommand, program: str, arguments: Sequence[str]) -> WantsTerminal | None:
    operands = _operands(arguments, "-L -S -f -c".split())
    attaches = not operands or operands[0] in ("attach", "attach-session", "a", "at")
    opens = operands[:1] and operands[0] in ("new", "new-session") and not _has(arguments, "d")
    if not attaches and not opens:
        return None
    return WantsTerminal("this `tmux` opens in a terminal", "Use `bash` with `background` instead of tmux.")


def _gnu_screen(simple: SimpleCommand, program: str, arguments: Sequence[str]) -> WantsTerminal | None:
    if any(argument in ("-ls", "-list", "-X", "-v") or argument.startswith("-dm") for argument in arguments):
        return None
    return WantsTerminal("`screen` opens in a terminal", "Use `bash` with `background` instead of screen.")


def _gh(simple: SimpleCommand, program: str, arguments: Sequence[str]) -> WantsTerminal | None:
    if arguments[:2] != ["auth", "login"] or _has(arguments, "", "--with-token"):
        return None
    return WantsTerminal("`gh auth login` asks questions", LEAVE)


BACKGROUND = "Start it with `background`: true and look with `bash_output`, or leave the option out."


def _tail(simple: SimpleCommand, program: str, arguments: Sequence[str]) -> WantsTerminal | None:
    if simple.has_input or _has(arguments, "", "--pid"):
        return None
    if not _any(r"-[0-9qvz]*[fF]\d*|--follow(=.*)?", arguments):
        return None
    return WantsTerminal("`tail -f` never ends", BACKGROUND)


def _journalctl(simple: SimpleCommand, program: str, arguments: Sequence[str]) -> WantsTerminal | None:
    follows = _any(r"-[eaxrqkm]*f\w*|--follow", arguments)
    return WantsTerminal("`journalctl -f` never ends", BACKGROUND) if follows else None


ENDLESS: dict[str, Rule] = {"tail": _tail, "journalctl": _journalctl}
"""Programs that run until stopped: they belong in the background."""

RULES: dict[str, Rule] = {
    **dict.fromkeys(("less", "more", "most"), _pager),
    **dict.fromkeys(("python", "python2", "python3", "pypy3"), _python),
    **dict.fromkeys(("mysql", "mariadb"), _mysql),
    "sqlite3": _sqlite,
    "ssh": _ssh,
    "git": _git,
    **dict.fromkeys(("npm", "yarn", "pnpm"), _npm),
    **dict.fromkeys(("docker", "podman"), _container),
    "kubectl": _kubectl,
    "sudo": _sudo,
    "ssh-keygen": _keygen,
    **dict.fromkeys(("gpg", "gpg2"), _gpg),
    "read": _read,
    "tmux": _tmux,
    "screen": _gnu_screen,
    "gh": _gh,
}
"""Programs that a row cannot fully describe."""


def wants(simple: SimpleCommand, program: str, arguments: Sequence[str]) -> WantsTerminal | None:
    """Whether a program needs a user at a terminal."""
    return RULES.get(program, _by_row)(simple, program, arguments)
