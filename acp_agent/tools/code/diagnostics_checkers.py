"""Finds the checkers a project uses, and the command line of each.

Reads files but runs nothing: the command lines are in the title, and the user is asked about them, so they are built
before anything runs. They prefer the project's own program (`.venv`, `node_modules`).

The folder may be untrusted, and the user has not been asked yet: its files are read only by `_text`, which is limited
and never blocks, and nothing that would take long to parse is parsed.
"""

from __future__ import annotations

import configparser
import os
import re
import shlex
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from acp_agent.limits.decoding import read_loose_json, read_toml
from acp_agent.safety.folders.paths import Roots, read_regular, real_path
from acp_agent.toml_table import toml_table
from acp_agent.tools.code import diagnostics_parsers as parsers

CheckerName = Literal["check", "clippy", "ruff", "mypy", "pyright", "tsc", "eslint", "go vet"]
Kind = Literal["auto", "check", "clippy", "ruff", "mypy", "pyright", "tsc", "eslint", "go vet"]

MOST_LOOKED = 2000
"""Entries searched for a Python file."""

MOST_BYTES = 262_144
"""Maximum size of a configuration; a larger one is not read."""

MOST_DOTS = 200
"""Maximum dots in a line of TOML: `tomllib` takes quadratic time for a key of many parts."""


class Checker(Struct, frozen=True, forbid_unknown_fields=True):
    program: str
    files: tuple[str, ...]
    """Files that show that the project uses it; `SAYS` adds further tests."""
    what: str
    """Where that was found, for the user."""
    suffixes: tuple[str, ...]
    """Patterns of the files it checks."""
    options: str
    everything: str | None = None
    """The argument for the whole project; `None`: it takes no path."""
    local: tuple[str, ...] = ()
    """Where a project keeps its own copy."""
    lints: bool = False
    """Whether exit code 1 means findings of any kind; else only errors explain it."""
    absent: tuple[str, ...] = ()
    """Output of a program with a missing component."""
    older: tuple[str, str] | None = None
    """An argument that older versions reject (exit code 2 with these words): it is then left out."""
    name: CheckerName = "check"

    @property
    def parse(self) -> parsers.Parser:
        return PARSERS[self.name]

    def found_in(self, folder: Path, roots: Roots) -> bool:
        """Whether the folder shows that the project uses it."""
        says = SAYS.get(self.name)
        named = any((folder / name).is_file() for name in self.files)
        return named or (says is not None and says(folder, roots))

    def arguments(self, target: str | None, cwd: Path, roots: Roots) -> str:
        """The arguments for the requested path (relative, quoted; `None`: all) and the folder it runs in."""
        if self.everything is None:
            return self.options
        if target is not None:
            return f"{self.options} {_go_package(target, cwd) if self.name == 'go vet' else target}"
        if self.name == "mypy" and _mypy_knows_files(cwd, roots):
            return self.options
        return f"{self.options} {self.everything}".rstrip()


@cache
def checkers() -> dict[str, Checker]:
    """By name, in order of execution."""
    found = toml_table(__file__, dict[CheckerName, Checker])
    return {name: replace(checker, name=name) for name, checker in found.items()}


class Check(Struct, frozen=True):
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
        """All command lines that may run."""
        return (self.line,) if self.older_line is None else (self.line, self.older_line)


def choose(kind: Kind, path: Path | None, roots: Roots) -> list[Check]:
    """Returns the checks to run. `path`: an existing file or folder inside the roots; `None`: the working directory.

    Empty if `auto` finds nothing.
    """
    start = roots.cwd if path is None else path if path.is_dir() else path.parent
    checks = []
    for checker in checkers().values():
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
    return ", ".join(checker.what for checker in checkers().values() if checker.name != "clippy")


def _automatic(checker: Checker, path: Path | None) -> bool:
    if checker.name == "clippy":  # `check` finds the errors, and is faster.
        return False
    known = {suffix for other in checkers().values() for suffix in other.suffixes}
    of_one = path is not None and path.is_file() and path.suffix in known
    return not of_one or (path is not None and path.suffix in checker.suffixes)


def _home(checker: Checker, start: Path, roots: Roots) -> Path | None:
    """The nearest folder at or above `start`, within the session's folders, that shows the checker is used."""
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


# --- evidence that a checker is used --------------------------------------------------------------------------


def _text(path: Path, roots: Roots) -> str:
    """Returns the contents of a regular file below the roots, following links; empty for anything else, and for long
    files."""
    try:
        real = real_path(path)
        if not roots.contains(real) or roots.rules.hides(real):
            return ""
        return (read_regular(real, MOST_BYTES) or b"").decode("utf-8")
    except (OSError, RuntimeError, ValueError):
        return ""


def _toml_tool(folder: Path, tool: str, roots: Roots) -> dict[str, Any] | None:
    text = _text(folder / "pyproject.toml", roots)
    if any(line.count(".") > MOST_DOTS for line in text.split("\n")):
        return None
    try:
        data = read_toml(text)
    except ValueError:
        return None
    tools = data.get("tool")
    found = tools.get(tool) if isinstance(tools, dict) else None
    return found if isinstance(found, dict) else None


def _says_mypy(folder: Path, roots: Roots) -> bool:
    return _toml_tool(folder, "mypy", roots) is not None or "mypy" in _ini(folder / "setup.cfg", roots)


def _says_pyright(folder: Path, roots: Roots) -> bool:
    return _toml_tool(folder, "pyright", roots) is not None


def _ini(path: Path, roots: Roots) -> configparser.ConfigParser:
    parser = configparser.ConfigParser(interpolation=None)
    try:
        # The parser's patterns take quadratic time for a long run of spaces.
        parser.read_string(SPACES.sub(" ", _text(path, roots)))
    except (ValueError, configparser.Error):
        return configparser.ConfigParser(interpolation=None)
    return parser


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


def _says_eslint(folder: Path, roots: Roots) -> bool:
    try:
        data = read_loose_json(_text(folder / "package.json", roots))
    except ValueError:
        return False
    return isinstance(data, dict) and "eslintConfig" in data


def _has_python(folder: Path) -> bool:
    """Whether the folder or one below it contains a Python file, ignoring hidden ones."""
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


def _go_package(target: str, cwd: Path) -> str:
    path = Path(shlex.split(target)[0])
    folder = path.parent if (cwd / path).is_file() else path / "..."
    return shlex.quote(f"./{folder}")


SPACES = re.compile(r"[^\S\n]+")

SAYS: dict[CheckerName, Callable[[Path, Roots], bool]] = {
    "mypy": _says_mypy,
    "pyright": _says_pyright,
    "eslint": _says_eslint,
}
"""Tests for checkers that a file's name alone does not prove."""

PARSERS: dict[CheckerName, parsers.Parser] = {
    "check": parsers.parse_cargo,
    "clippy": parsers.parse_cargo,
    "ruff": parsers.parse_ruff,
    "mypy": parsers.parse_mypy,
    "pyright": parsers.parse_pyright,
    "tsc": parsers.parse_tsc,
    "eslint": parsers.parse_eslint,
    "go vet": parsers.parse_go_vet,
}
