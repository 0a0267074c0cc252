"""The scope of an "always" answer for a command, in words such as `cargo test`.

A scope is the program with its sub-command, if these determine what happens regardless of the other arguments. A
command whose arguments can be any program (`sh -c`, `docker run`, `git -c`, `make SHELL=…`) has none: then only this
exact line is remembered (`None`). Whether arguments are inside the session's folders is checked elsewhere, before.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from acp_agent.safety.lines.programs import long_option, looked_at, short_options, words

SUB = re.compile(r"[A-Za-z][\w:.-]*")
LONGEST = 60
MAX_NESTING = 4


@dataclass(frozen=True)
class _Subs:
    """A program with sub-commands."""

    only: frozenset[str] = frozenset()
    """Sub-commands with a scope: those that do not run what their arguments say, nor set what will be run."""
    short: tuple[str, ...] = ()
    """Options (beginnings of an argument) after which anything may happen."""
    long: tuple[str, ...] = ()
    words: int = 1
    several: bool = False
    """Every operand is a separate task."""


def scopes_of(command: Sequence[str], nesting: int = 0) -> tuple[str, ...] | None:
    """The scopes of one simple command; `None`: only the exact line."""
    program, *arguments = command
    if nesting > MAX_NESTING or any("://" in argument for argument in arguments):
        return None
    if program in ("python", "python3"):
        return _python(program, arguments, nesting)
    if (row := SUBS.get(program)) is not None:
        return _with_sub(program, row, arguments, nesting)
    if (options := TOOLS.get(program)) is not None:
        return (program,) if _only(arguments, options) else None
    return None


def _python(program: str, arguments: Sequence[str], nesting: int) -> tuple[str, ...] | None:
    if len(arguments) < 2 or arguments[0] != "-m":
        return None
    module, *rest = arguments[1:]
    prefix = f"{program} -m "
    if module in MODULES:
        return (prefix + module,) if _only(rest, MODULES[module]) else None
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


def _only(arguments: Sequence[str], options: str) -> bool:
    """Whether every option is one of `options` (their values aside)."""
    known = options.split()
    for argument in arguments:
        if argument == "--":
            return False
        if argument.startswith("-") and len(argument) > 1 and argument.partition("=")[0] not in known:
            return False
    return True


RUNNERS = frozenset(("uv", "poetry", "pdm", "hatch", "pipenv"))
"""`X run PROGRAM …`: the scope is that of the program."""

SCRIPTS = frozenset(("npm", "pnpm", "yarn", "bun"))
"""`X run SCRIPT`: the scripts of the project's package.json."""

TOOL_MODULES = words("pytest mypy ruff black isort flake8 pip")
"""Modules that are the program of the same name. Any other module may run what its arguments say."""

MODULES: dict[str, str] = {
    "unittest": "-v -q -f -b -k -s -t --verbose --quiet --failfast --buffer --start-directory --top-level-directory",
    "build": "-w -s -n -o -x --wheel --sdist --no-isolation --outdir --skip-dependency-check",
    "pylint": "-E -j -f -r --disable --enable --errors-only --jobs --output-format --reports --score --recursive",
}
"""More modules with a scope of their own, with the options that keep it so."""

GIT_REMOTES = words("push pull fetch")

PACKAGES = words("install i add remove test t build lint start dev outdated list why audit run format check typecheck")
APT = words("install update upgrade remove list show search")

SUBS: dict[str, _Subs] = {
    "git": _Subs(
        only=words(
            "add commit push pull fetch checkout switch restore merge rebase stash tag branch cherry-pick revert "
            "reset rm mv init apply am clean"
        ),
        short=("-c", "-x", "-C"),
        long=("--exec", "--upload-pack", "--receive-pack", "--config", "--template", "--output", "--ext-diff",
            "--repo"),
    ),
    "cargo": _Subs(
        only=words(
            "build check test clippy fmt doc clean update add remove fetch metadata tree bench nextest run new init "
            "fix vendor package"
        ),
        short=("-C", "-Z"),
        long=("--config", "--git", "--registry", "--index"),
    ),
    "rustup": _Subs(only=words("update show component target")),
    "npm": _Subs(
        only=words(
            "install i ci test t run run-script ls list outdated update uninstall audit view start stop pack prune"
        ),
        short=("-C",),
        long=("--script-shell", "--prefix", "--node-options", "--registry", "--shell", "--git", "--userconfig"),
    ),
    "pnpm": _Subs(
        only=PACKAGES, short=("-C",), long=("--script-shell", "--dir", "--registry"),
    ),
    "yarn": _Subs(
        only=PACKAGES, long=("--cwd", "--script-shell", "--use-yarnrc", "--registry")
    ),
    "bun": _Subs(only=PACKAGES, short=("-e", "-p", "-r"), long=("--cwd", "--eval", "--preload")),
    "go": _Subs(
        only=words("build test vet fmt mod list get version doc clean work"),
        short=(
            "-exec", "--exec", "-toolexec", "--toolexec", "-C", "--C", "-modfile", "--modfile", "-overlay", "--overlay",
            "-vettool", "--vettool", "-ldflags", "--ldflags", "-gcflags", "--gcflags", "-asmflags", "--asmflags",
            "-gccgoflags", "--gccgoflags",
        ),
    ),
    "pip": _Subs(
        only=words("install uninstall list show freeze check download wheel"),
        short=("-i", "-f", "-t"),
        long=(
            "--index-url", "--extra-index-url", "--find-links", "--target", "--prefix", "--root", "--trusted-host",
            "--proxy", "--python", "--global-option", "--config-settings", "--cert",
        ),
    ),
    "docker": _Subs(
        only=words("build pull push ps images logs stop start restart rm rmi inspect tag"),
        short=("-H", "-c"),
        long=("--host", "--context", "--config"),
    ),
    "kubectl": _Subs(
        only=words("get describe logs apply delete rollout scale explain top version"),
        short=("-s",),
        long=("--kubeconfig", "--server", "--context", "--as", "--token", "--user"),
    ),
    "uv": _Subs(
        only=words("sync lock add remove pip run venv tree build export init version"),
        long=("--directory", "--project", "--config-file", "--python", "--index", "--default-index", "--index-url"),
    ),
    "poetry": _Subs(
        only=words("install add remove update lock show build check run version"),
        short=("-C", "-P"), long=("--directory", "--project")),
    "pdm": _Subs(only=words("install add remove update lock list build run sync")),
    "hatch": _Subs(only=words("build clean run test fmt version")),
    "pipenv": _Subs(only=words("install uninstall lock sync graph run")),
    "apt": _Subs(only=APT, short=("-o", "-c"), long=("--option", "--config-file")),
    "apt-get": _Subs(only=APT, short=("-o", "-c"), long=("--option", "--config-file")),
    "brew": _Subs(only=words("install uninstall upgrade update list info search")),
    "systemctl": _Subs(
        only=words("status start stop restart reload enable disable list-units is-active daemon-reload"),
        short=("-H", "-M"), long=("--host", "--machine")),
    "terraform": _Subs(
        only=words("init plan apply validate fmt destroy output show refresh"), short=("-chdir", "-plugin-dir")
    ),
    "dotnet": _Subs(only=words("build test restore clean publish pack add remove list format run"), short=("-p:", "/")),
    "gh": _Subs(only=words("pr issue repo run workflow release gist label search"), words=2),
    "make": _Subs(
        short=("-f", "-C", "-I", "-E"),
        long=("--file", "--makefile", "--directory", "--include-dir", "--eval"),
        several=True,
    ),
    "just": _Subs(
        short=("-f", "-d", "-c"),
        long=("--justfile", "--working-directory", "--command", "--shell", "--set", "--shell-arg"),
        several=True,
    ),
    "task": _Subs(short=("-t", "-d"), long=("--taskfile", "--dir"), several=True),
    "rake": _Subs(
        short=("-f", "-e", "-E", "-r", "-I", "-p"),
        long=("--rakefile", "--execute", "--execute-print", "--execute-continue", "--require", "--libdir"),
        several=True,
    ),
    "mvn": _Subs(
        short=("-D", "-f", "-s", "-P", "-t"),
        long=("--file", "--settings", "--define", "--toolchains", "--global-settings"),
        several=True,
    ),
    "gradle": _Subs(
        short=("-D", "-P", "-I", "-b", "-c", "-p", "-g"),
        long=("--init-script", "--build-file", "--settings-file", "--project-dir", "--system-prop", "--project-prop"),
        several=True,
    ),
}  # fmt: skip

TOOLS: dict[str, str] = {
    "pytest": (
        "-v -vv -vvv -q -qq -x -s -l -k -m -n -rA -ra -rf -rs -rx --lf --last-failed --ff --failed-first --sw "
        "--stepwise --tb --maxfail --durations --no-header --no-summary --co --collect-only --cov --cov-report --color "
        "--verbose --quiet --exitfirst --timeout -xvs -xv -vs -sv -vx"
    ),
    "ruff": (
        "--fix --no-fix --diff --check --select --ignore --extend-select --quiet -q --verbose -v --no-cache --preview "
        "--unsafe-fixes --show-fixes --output-format --exclude --line-length --statistics --exit-zero --force-exclude"
    ),
    "mypy": (
        "--strict --pretty --no-incremental --show-error-codes --ignore-missing-imports --no-error-summary --verbose "
        "-v -p -m --python-version --platform --no-color-output --explicit-package-bases --namespace-packages"
    ),
    "pyright": "--stats --verbose --warnings --outputjson --pythonversion --level",
    "black": "--check --diff --quiet -q --verbose -v --line-length -l --fast --safe --preview",
    "isort": "--check --check-only -c --diff --profile --quiet -q --verbose -v",
    "flake8": "--max-line-length --select --ignore --extend-ignore --count --statistics --show-source -v -q",
    "tox": "-e -p -q -v -vv -r --parallel --recreate --skip-missing-interpreters",
    "tsc": "--noEmit --build -b --pretty --strict --incremental --skipLibCheck -p --project --listFiles",
    "eslint": "--fix --ext --quiet --max-warnings --cache --no-cache --color --no-color --fix-dry-run",
    "prettier": "--check -c --write -w --list-different -l --log-level --cache",
    "jest": (
        "-t --testNamePattern --testPathPattern --testPathPatterns --runInBand -i --coverage --bail -b -u "
        "--updateSnapshot --silent --verbose --ci --no-cache --onlyFailures -f --passWithNoTests"
    ),
    "vitest": "-t --testNamePattern --run --coverage --bail -u --update --silent --reporter --passWithNoTests",
    "rustfmt": "--check --edition --emit -l --files-with-diff -v -q",
    "gofmt": "-l -w -d -s -e",
    "shellcheck": "-s --shell -e --exclude -f --format -S --severity",
    "mkdir": "-p -v --parents --verbose",
    "touch": "-a -m -c --no-create",
}
"""Programs whose whole scope is their name, with the options that keep it so; any other option makes the line exact."""
