"""Which checkers a project uses, and the command line of each.

Looks at the disk and runs nothing: the command lines stand in the title and are what the person is asked about, so they
are made before anything runs. They use a program of the project itself where there is one (`.venv`, `node_modules`).
"""

from __future__ import annotations

import configparser
import json
import os
import shlex
import tomllib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from acp_agent.safety.paths import Roots
from acp_agent.tools import diagnostics_parsers as parsers

__all__ = ["CHECKERS", "Check", "CheckerName", "Kind", "choose", "looked_for"]

CheckerName = Literal["check", "clippy", "ruff", "mypy", "pyright", "tsc", "eslint", "go vet"]
Kind = Literal["auto", "check", "clippy", "ruff", "mypy", "pyright", "tsc", "eslint", "go vet"]

MOST_LOOKED = 2000
"""Entries that are looked through for a Python file."""


@dataclass(frozen=True)
class Checker:
    name: CheckerName
    program: str
    parse: parsers.Parser
    found_in: Callable[[Path], bool]
    """Whether a folder says that the project uses it."""
    what: str
    """What says so, for people."""
    suffixes: tuple[str, ...]
    """The files it checks."""
    arguments: Callable[[str | None, Path], str]
    """From the path that is asked for (relative, quoted; `None`: all) and the folder it runs in."""
    local: tuple[str, ...] = ()
    """Where a project keeps its own."""
    lints: bool = False
    """Exit code 1 means findings of any kind; else only errors explain it."""
    absent: tuple[str, ...] = ()
    """What is printed where the program is there and a part of it is not."""
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


def choose(kind: Kind, path: Path | None, roots: Roots) -> list[Check]:
    """What is to run. `path`: an existing file or folder inside of the roots; `None`: the working directory.

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
        if arguments := checker.arguments(_relative(path, cwd), cwd):
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
        if checker.found_in(folder):
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


def _has(*names: str) -> Callable[[Path], bool]:
    return lambda folder: any((folder / name).is_file() for name in names)


def _toml_tool(folder: Path, tool: str) -> dict[str, Any] | None:
    try:
        data = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    tools = data.get("tool")
    found = tools.get(tool) if isinstance(tools, dict) else None
    return found if isinstance(found, dict) else None


def _uses_mypy(folder: Path) -> bool:
    return (
        _has("mypy.ini", ".mypy.ini")(folder)
        or _toml_tool(folder, "mypy") is not None
        or "mypy" in _ini(folder / "setup.cfg")
    )


def _ini(path: Path) -> configparser.ConfigParser:
    parser = configparser.ConfigParser(interpolation=None)
    try:
        parser.read_string(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, configparser.Error):
        return configparser.ConfigParser(interpolation=None)
    return parser


def _mypy_arguments(target: str | None, cwd: Path) -> str:
    options = "--output=json --no-error-summary --show-column-numbers"
    return f"{options} {target}" if target else options if _mypy_knows_files(cwd) else f"{options} ."


def _mypy_knows_files(cwd: Path) -> bool:
    """Whether the configuration says what is checked."""
    names = ("files", "packages", "modules")
    for file in ("mypy.ini", ".mypy.ini"):
        if (cwd / file).is_file():
            return any(_ini(cwd / file).has_option("mypy", name) for name in names)
    if (tool := _toml_tool(cwd, "mypy")) is not None:
        return any(name in tool for name in names)
    return any(_ini(cwd / "setup.cfg").has_option("mypy", name) for name in names)


def _uses_eslint(folder: Path) -> bool:
    endings = ("js", "mjs", "cjs", "ts", "mts", "cts")
    old = ("", ".js", ".cjs", ".json", ".yml", ".yaml")
    if _has(*(f"eslint.config.{end}" for end in endings), *(f".eslintrc{end}" for end in old))(folder):
        return True
    try:
        data = json.loads((folder / "package.json").read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
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


def _with_target(options: str, everything: str) -> Callable[[str | None, Path], str]:
    return lambda target, cwd: f"{options} {target or everything}"


def _alone(options: str) -> Callable[[str | None, Path], str]:
    return lambda target, cwd: options


def _go_arguments(target: str | None, cwd: Path) -> str:
    if target is None:
        return "-json ./..."
    path = Path(shlex.split(target)[0])
    folder = path.parent if (cwd / path).is_file() else path / "..."
    return f"-json {shlex.quote(f'./{folder}')}"


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
            lambda folder: _has("pyrightconfig.json")(folder) or _toml_tool(folder, "pyright") is not None,
            "pyrightconfig.json or [tool.pyright]",
            PYTHON,
            lambda target, cwd: f"--outputjson {target}" if target else "--outputjson",
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
