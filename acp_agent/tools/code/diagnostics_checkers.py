"""Which checkers a project uses, and the command line of each.

Reads the disk and runs nothing: the command lines are in the title, and the user is asked about them, so they are built
before anything runs. They use the project's own program if there is one (`.venv`, `node_modules`).

The folder may be untrusted, and the user has not been asked yet: its files are read only by `_text`, which is bounded
and never blocks, and nothing that would take a parser long is parsed.
"""

from __future__ import annotations

import configparser
import json
import os
import re
import shlex
import tomllib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from acp_agent.safety.folders.paths import Roots, read_regular, real_path
from acp_agent.tools.code import diagnostics_parsers as parsers

CheckerName = Literal["check", "clippy", "ruff", "mypy", "pyright", "tsc", "eslint", "go vet"]
Kind = Literal["auto", "check", "clippy", "ruff", "mypy", "pyright", "tsc", "eslint", "go vet"]

MOST_LOOKED = 2000
"""Entries that are looked through for a Python file."""

MOST_BYTES = 262_144
"""Of a configuration; a larger one is not read."""

MOST_DOTS = 200
"""In a line of TOML: a key of many parts takes `tomllib` time by the square of their number."""


@dataclass(frozen=True)
class Checker:
    name: CheckerName
    program: str
    parse: parsers.Parser
    found_in: Callable[[Path, Roots], bool]
    """Whether a folder says that the project uses it."""
    what: str
    """The source of that fact, for the user."""
    suffixes: tuple[str, ...]
    """The files it checks."""
    arguments: Callable[[str | None, Path, Roots], str]
    """From the path that is asked for (relative, quoted; `None`: all) and the folder it runs in."""
    local: tuple[str, ...] = ()
    """Where a project keeps its own."""
    lints: bool = False
    """Exit code 1 means findings of any kind; else only errors explain it."""
    absent: tuple[str, ...] = ()
    """Output of a program of which a part is missing."""
    older: tuple[str, str] | None = None
    """An argument that an older one refuses (exit code 2, with these words): then it is run without it."""


@dataclass(frozen=True)
class Check:
    """One run of a checker."""

    checker: Checker
    line: str
    cwd: Path

    @property
    def older_line(self) -> str | None:
        older = self.checker.older
        return self.line.replace(f" {older[0]}", "", 1) if older else None

    @property
    def lines(self) -> tuple[str, ...]:
        """All that may run."""
        return (self.line,) if self.older_line is None else (self.line, self.older_line)


def choose(kind: Kind, path: Path | None, roots: Roots) -> list[Check]:
    """Returns the checks to run. `path`: an existing file or folder inside of the roots; `None`: the working directory.

    Empty where `auto` finds nothing.
    """
    start = roots.cwd if path is None else path if path.is_dir() else path.parent
    checks = []
    for checker in CHECKERS.values():
        if kind not in ("auto", checker.name) or (kind == "auto" and not _automatic(checker, path)):
            continue
        home = _home(checker, start, roots)
        if home is None and checker.name == "ruff" and _has_python(start):
            home = start
        if home is None and kind == "auto":
            continue
        cwd = home or start
        line = _program(checker, cwd, roots)
        if arguments := checker.arguments(_relative(path, cwd), cwd, roots):
            line += f" {arguments}"
        checks.append(Check(checker, line, cwd))
    return checks


def looked_for() -> str:
    return ", ".join(checker.what for checker in CHECKERS.values() if checker.name != "clippy")


def _automatic(checker: Checker, path: Path | None) -> bool:
    if checker.name == "clippy":  # `check` finds the errors, and is quicker
        return False
    known = {suffix for other in CHECKERS.values() for suffix in other.suffixes}
    of_one = path is not None and path.is_file() and path.suffix in known
    return not of_one or (path is not None and path.suffix in checker.suffixes)


def _home(checker: Checker, start: Path, roots: Roots) -> Path | None:
    """The nearest folder at or above `start` that says the checker is used, inside of the session's folders."""
    for folder in (start, *start.parents):
        if not roots.contains(folder):
            return None
        if checker.found_in(folder, roots):
            return folder
    return None


def _program(checker: Checker, cwd: Path, roots: Roots) -> str:
    first, _, rest = checker.program.partition(" ")
    for folder in (cwd, *cwd.parents):
        if not roots.contains(folder):
            break
        for place in checker.local:
            own = folder / place / first
            if own.is_file() and os.access(own, os.X_OK):
                return " ".join((_quoted(os.path.relpath(folder, cwd), place, first), *filter(None, (rest,))))
    return checker.program


def _quoted(*parts: str) -> str:
    return shlex.quote(os.path.normpath(os.path.join(*parts)))


def _relative(path: Path | None, cwd: Path) -> str | None:
    if path is None or path == cwd:
        return None
    relative = os.path.relpath(path, cwd)
    return shlex.quote(f"./{relative}" if relative.startswith("-") else relative)


# --- what says that a checker is used -------------------------------------------------------------------------


def _text(path: Path, roots: Roots) -> str:
    """Returns the content of a regular file below the roots, links followed; empty for anything else, and for long
    files."""
    try:
        real = real_path(path)
        if not roots.contains(real) or roots.rules.hides(real):
            return ""
        return (read_regular(real, MOST_BYTES) or b"").decode("utf-8")
    except (OSError, RuntimeError, ValueError):
        return ""


def _has(*names: str) -> Callable[[Path, Roots], bool]:
    return lambda folder, roots: any((folder / name).is_file() for name in names)


def _toml_tool(folder: Path, tool: str, roots: Roots) -> dict[str, Any] | None:
    text = _text(folder / "pyproject.toml", roots)
    if any(line.count(".") > MOST_DOTS for line in text.split("\n")):
        return None
    try:
        data = tomllib.loads(text)
    except (ValueError, RecursionError):
        return None
    tools = data.get("tool")
    found = tools.get(tool) if isinstance(tools, dict) else None
    return found if isinstance(found, dict) else None


def _uses_mypy(folder: Path, roots: Roots) -> bool:
    return (
        _has("mypy.ini", ".mypy.ini")(folder, roots)
        or _toml_tool(folder, "mypy", roots) is not None
        or "mypy" in _ini(folder / "setup.cfg", roots)
    )


def _uses_pyright(folder: Path, roots: Roots) -> bool:
    return _has("pyrightconfig.json")(folder, roots) or _toml_tool(folder, "pyright", roots) is not None


def _ini(path: Path, roots: Roots) -> configparser.ConfigParser:
    parser = configparser.ConfigParser(interpolation=None)
    try:
        # The parser's patterns take time by the square of the length of a row of spaces.
        parser.read_string(SPACES.sub(" ", _text(path, roots)))
    except (ValueError, configparser.Error):
        return configparser.ConfigParser(interpolation=None)
    return parser


def _mypy_arguments(target: str | None, cwd: Path, roots: Roots) -> str:
    options = "--output=json --no-error-summary --show-column-numbers"
    return f"{options} {target}" if target else options if _mypy_knows_files(cwd, roots) else f"{options} ."


def _mypy_knows_files(cwd: Path, roots: Roots) -> bool:
    """Whether the configuration says what is checked."""
    names = ("files", "packages", "modules")
    for file in ("mypy.ini", ".mypy.ini"):
        if (cwd / file).is_file():
            return _has_option(_ini(cwd / file, roots), names)
    if (tool := _toml_tool(cwd, "mypy", roots)) is not None:
        return any(name in tool for name in names)
    return _has_option(_ini(cwd / "setup.cfg", roots), names)


def _has_option(settings: configparser.ConfigParser, names: Iterable[str]) -> bool:
    return any(settings.has_option("mypy", name) for name in names)


def _uses_eslint(folder: Path, roots: Roots) -> bool:
    endings = ("js", "mjs", "cjs", "ts", "mts", "cts")
    old = ("", ".js", ".cjs", ".json", ".yml", ".yaml")
    if _has(*(f"eslint.config.{end}" for end in endings), *(f".eslintrc{end}" for end in old))(folder, roots):
        return True
    try:
        data = json.loads(_text(folder / "package.json", roots))
    except (ValueError, RecursionError):
        return False
    return isinstance(data, dict) and "eslintConfig" in data


def _has_python(folder: Path) -> bool:
    """Whether there is a Python file in the folder or one below it, hidden ones aside."""
    left = MOST_LOOKED
    below: list[Path] = []
    for depth, folders in enumerate(([folder], below)):
        for here in folders:
            try:
                with os.scandir(here) as entries:
                    for entry in entries:
                        left -= 1
                        if left < 0:
                            return False
                        if entry.name.endswith((".py", ".pyi")):
                            return True
                        if depth == 0 and not entry.name.startswith(".") and entry.is_dir(follow_symlinks=False):
                            below.append(Path(entry.path))
            except OSError:
                continue
    return False


def _with_target(options: str, everything: str) -> Callable[[str | None, Path, Roots], str]:
    return lambda target, cwd, roots: f"{options} {target or everything}"


def _alone(options: str) -> Callable[[str | None, Path, Roots], str]:
    return lambda target, cwd, roots: options


def _go_arguments(target: str | None, cwd: Path, roots: Roots) -> str:
    if target is None:
        return "-json ./..."
    path = Path(shlex.split(target)[0])
    folder = path.parent if (cwd / path).is_file() else path / "..."
    return f"-json {shlex.quote(f'./{folder}')}"


SPACES = re.compile(r"[^\S\n]+")
PYTHON = (".py", ".pyi")
SCRIPT = (".ts", ".tsx", ".mts", ".cts", ".js", ".jsx", ".mjs", ".cjs")
VENV = (".venv/bin", "venv/bin")
NODE = ("node_modules/.bin",)
NO_CLIPPY = ("no such command: `clippy`", "'cargo-clippy' is not installed")


def _table(checkers: Iterable[Checker]) -> dict[str, Checker]:
    return {checker.name: checker for checker in checkers}


CHECKERS = _table(
    (
        Checker(
            "check",
            "cargo check",
            parsers.parse_cargo,
            _has("Cargo.toml"),
            "Cargo.toml",
            (".rs",),
            _alone("--message-format=json --quiet"),
        ),
        Checker(
            "clippy",
            "cargo clippy",
            parsers.parse_cargo,
            _has("Cargo.toml"),
            "Cargo.toml",
            (".rs",),
            _alone("--message-format=json --quiet"),
            absent=NO_CLIPPY,
        ),
        Checker(
            "ruff",
            "ruff check",
            parsers.parse_ruff,
            _has("pyproject.toml", "ruff.toml", ".ruff.toml"),
            "pyproject.toml, ruff.toml or *.py",
            PYTHON,
            _with_target("--output-format=json", "."),
            VENV,
            lints=True,
        ),
        Checker(
            "mypy",
            "mypy",
            parsers.parse_mypy,
            _uses_mypy,
            "mypy.ini or [tool.mypy]",
            PYTHON,
            _mypy_arguments,
            VENV,
            older=("--output=json", "--output"),
        ),
        Checker(
            "pyright",
            "pyright",
            parsers.parse_pyright,
            _uses_pyright,
            "pyrightconfig.json or [tool.pyright]",
            PYTHON,
            lambda target, cwd, roots: f"--outputjson {target}" if target else "--outputjson",
            (*VENV, *NODE),
            lints=True,
        ),
        Checker(
            "tsc",
            "tsc",
            parsers.parse_tsc,
            _has("tsconfig.json"),
            "tsconfig.json",
            SCRIPT,
            _alone("--noEmit --pretty false"),
            NODE,
        ),
        Checker(
            "eslint",
            "eslint",
            parsers.parse_eslint,
            _uses_eslint,
            "an ESLint configuration",
            SCRIPT,
            _with_target("-f json", "."),
            NODE,
            lints=True,
        ),
        Checker(
            "go vet",
            "go vet",
            parsers.parse_go_vet,
            _has("go.mod"),
            "go.mod",
            (".go",),
            _go_arguments,
            lints=True,
        ),
    )
)
"""By name, in the order they run."""

assert set(CHECKERS) == set(get_args(CheckerName))
