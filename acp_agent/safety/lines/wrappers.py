"""Programs that run the program their arguments name: where the inner command begins, and whether the wrapper itself
matters.

A neutral wrapper (`timeout 5 make`) does only what the inner command does. The words of any other must be allowed, too.
One table for all callers: decisions need every command that may be inside (`inner_commands`), hints and filter rules
the one that is clearly meant (`behind`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from acp_agent.safety.lines.programs import words

ASSIGNMENT = re.compile(r"\w+=")
SHELLS = words("bash sh zsh dash ksh ash mksh rbash fish csh tcsh")
ESCALATING = words("sudo doas su pkexec runuser sudoedit run0")
EXEC_OPTIONS = words("-exec -execdir -ok -okdir")
PLAIN_SHELL = words("-c -ec -ce -xc -exc -euc -uc -lc")
SHELL_VALUES = words("-o +o -O +O --rcfile --init-file")


@dataclass(frozen=True)
class Inner:
    """A command within the words of another."""

    words: tuple[str, ...] = ()
    line: str | None = None
    """Instead of words: text that a shell reads."""
    neutral: bool = False
    open: bool = False
    """More arguments are added when it runs."""
    sure: bool = True
    """Where it begins is known; else it is a guess for deny rules."""


@dataclass(frozen=True)
class _Wrapper:
    values: str = ""
    """Options that take the next word as their value."""
    operands: int = 0
    """Words before the inner program."""
    assignments: bool = False
    neutral: str | None = None
    """Options that leave it neutral; `None`: it never is."""
    open: bool = False
    line: bool = False
    """The words are joined and read by a shell."""
    line_options: str = ""
    """Options whose value a shell reads."""
    readers: str = ""
    """Who else looks behind it: `hints`, `filters`."""
    stops: str = ""
    """Options with which it runs nothing, or nothing that is seen, for these."""
    sub: str = ""
    """The sub-command that runs a program, for these."""
    skips: str = ""
    """More options with a value, for these: what decides would rather see a word too many."""


NEUTRAL_TIMEOUT = "-k -s -v --signal --kill-after --preserve-status --foreground --verbose"

BOTH = "hints filters"

WRAPPERS: dict[str, _Wrapper] = {
    "env": _Wrapper("-u --unset -C --chdir", assignments=True, neutral="-i", line_options="-S --split-string",
        readers=BOTH, stops="-S --split-string"),
    "nohup": _Wrapper(neutral="", readers=BOTH),
    "timeout": _Wrapper("-k -s --signal --kill-after", operands=1, neutral=NEUTRAL_TIMEOUT, readers=BOTH),
    "gtimeout": _Wrapper("-k -s --signal --kill-after", operands=1, neutral=NEUTRAL_TIMEOUT),
    "nice": _Wrapper("-n --adjustment", neutral="-n --adjustment", readers=BOTH),
    "ionice": _Wrapper("-c -n -p -P -u --class --classdata --pid", neutral="-c -n -t --class --classdata",
        readers=BOTH),
    "stdbuf": _Wrapper("-i -o -e --input --output --error", neutral="-i -o -e --input --output --error",
        readers=BOTH),
    "time": _Wrapper("-o -f --output --format", neutral="-p", readers=BOTH),
    "command": _Wrapper(neutral="", readers=BOTH, stops="-v -V"),
    "builtin": _Wrapper(neutral="", readers="hints"),
    "exec": _Wrapper("-a", neutral="", readers=BOTH),
    "!": _Wrapper(),
    "coproc": _Wrapper(),
    "setsid": _Wrapper(readers=BOTH),
    "setpriv": _Wrapper("--reuid --regid --groups --inh-caps --ambient-caps --bounding-set --securebits"),
    "prlimit": _Wrapper(),
    "numactl": _Wrapper("-N -m -C -i -p"),
    "gosu": _Wrapper(operands=1),
    "su-exec": _Wrapper(operands=1),
    "firejail": _Wrapper(),
    "valgrind": _Wrapper(),
    "uv": _Wrapper("--with --python -p --project --directory", operands=1, readers=BOTH, sub="run",
        skips="-i -f -m --module --with-editable --with-requirements --extra --group --only-group --no-group "
        "--no-extra --package --env-file --index --index-url --default-index --extra-index-url --find-links "
        "--cache-dir --config-file --color"),
    "poetry": _Wrapper(operands=1, readers=BOTH, sub="run", skips="-C --directory -P --project"),
    "pipenv": _Wrapper(operands=1, readers="filters", sub="run"),
    "pdm": _Wrapper(operands=1),
    "hatch": _Wrapper(operands=1),
    "rye": _Wrapper(operands=1),
    "bundle": _Wrapper(operands=1, readers="filters", sub="exec"),
    "mise": _Wrapper(operands=1),
    "npx": _Wrapper("-p --package", line_options="-c --call", readers="filters", stops="-c --call"),
    "pnpx": _Wrapper("-p --package", line_options="-c --call"),
    "bunx": _Wrapper(readers="filters"),
    "perf": _Wrapper("-e -o -F -p -t -C", operands=1),
    "tmux": _Wrapper("-L -S -f -t -s -n -c -e -x -y", operands=1),
    "screen": _Wrapper("-S -t -T -s -c"),
    "chrt": _Wrapper("-T -P -D", operands=1),
    "taskset": _Wrapper(operands=1),
    "setarch": _Wrapper(operands=1),
    "linux32": _Wrapper(),
    "linux64": _Wrapper(),
    "unbuffer": _Wrapper(readers="filters"),
    "caffeinate": _Wrapper("-t -w"),
    "fakeroot": _Wrapper("-l -f -i -s -b"),
    "catchsegv": _Wrapper(),
    "strace": _Wrapper("-e -o -p -s -u -E -a -P -O -S"),
    "ltrace": _Wrapper("-e -o -p -s -u -a -l -n"),
    "busybox": _Wrapper(),
    "toybox": _Wrapper(),
    "chroot": _Wrapper("--userspec --groups", operands=1),
    "unshare": _Wrapper("-S -G -R -w --setuid --setgid --root --wd"),
    "nsenter": _Wrapper("-t -S -G --target --setuid --setgid"),
    "systemd-run": _Wrapper("-p -u -M -H -t --property --unit --slice --uid --gid -E --setenv"),
    "dbus-run-session": _Wrapper("--config-file"),
    "xvfb-run": _Wrapper("-e -f -n -p -s -w"),
    "flock": _Wrapper("-w -E --timeout", operands=1, line_options="-c --command"),
    "script": _Wrapper("-t -T -I -O -B -E", line_options="-c --command"),
    "sudo": _Wrapper(
        "-u -g -h -p -C -r -t -T -U -D -R --user --group --host --prompt --chdir --chroot --close-from --role --type",
        assignments=True, readers=BOTH, stops="-l -v -e -i -s",
    ),
    "doas": _Wrapper("-u -C -a", readers="filters"),
    "pkexec": _Wrapper("--user"),
    "run0": _Wrapper("-u -g -D --user --group --chdir --setenv"),
    "runuser": _Wrapper("-u -g -G -s --user --group --shell", line_options="-c --command"),
    "su": _Wrapper("-g -G -s -w --group --shell", operands=1, line_options="-c --command"),
    "xargs": _Wrapper("-I -n -P -L -s -d -E -a -R -S --replace --max-args --max-procs --max-lines --delimiter "
        "--arg-file --max-chars", open=True, readers="hints"),
    "parallel": _Wrapper("-j -I -n -N -L -S -a -d --jobs --colsep --joblog --results", open=True),
    "watch": _Wrapper("-n --interval", line=True),
    "ssh": _Wrapper("-b -c -D -E -e -F -I -i -J -L -l -m -O -o -p -Q -R -S -W -w", operands=1, line=True),
    "eval": _Wrapper(line=True),
    "trap": _Wrapper(),
    "direnv": _Wrapper(operands=2),
    "entr": _Wrapper(),
    "hyperfine": _Wrapper("-w -m -M -r -p -c --warmup --runs", line=True),
}  # fmt: skip


@dataclass(frozen=True)
class Behind:
    """The command that is plainly meant behind a wrapper."""

    words: tuple[str, ...]
    variables: tuple[str, ...] = ()
    """Names of the variables that it sets."""


def seen_by(reader: str) -> frozenset[str]:
    """The wrappers that `hints` or `filters` look behind."""
    return frozenset(name for name, row in WRAPPERS.items() if reader in row.readers.split())


def behind(command: Sequence[str]) -> Behind | None:
    """The words behind a wrapper's options, for hints and filters; `None` where it runs nothing that is seen here.
    `command` begins with the name of one."""
    row = WRAPPERS[command[0]]
    rest, variables = list(command[1:]), list[str]()
    values = (*row.values.split(), *row.skips.split())
    for sub in (row.sub, "") if row.sub else ("",):
        at = 0
        while at < len(rest) and rest[at] != "--":
            if row.stops and rest[at].startswith(tuple(row.stops.split())):
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
    """Whether what it runs is in its arguments."""
    return program in WRAPPERS or program in SHELLS


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
    """The commands within the words of a command; literal words or not."""
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
    row = WRAPPERS.get(program)
    return [] if row is None else _wrapped(row, command)


def _wrapped(row: _Wrapper, command: Sequence[str]) -> list[Inner]:
    values, lines = row.values.split(), row.line_options.split()
    neutral = None if row.neutral is None else row.neutral.split()
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
                taken = True  # a cluster such as `-Eu root`
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
