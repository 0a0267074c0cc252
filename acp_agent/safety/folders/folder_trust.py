"""The files of a folder that take effect only if the user trusts it: configuration (including hooks and MCP servers),
tools, the programs of hooks, what the folder has for other agents, and the programs in it that hooks and servers name.

Trust applies to a folder and the exact bytes of these files, and is stored outside it: if a pulled commit changes one,
the user is asked again. Until then the files have no effect. What is not read here is not trusted: it is told
(`Found.uncovered`), and of hooks' folders it is not there when a hook runs (`loop/toolbox/trusted_programs.py`).
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import Any

from msgspec import Struct

from acp_agent.lazy import pattern
from acp_agent.limits.decoding import read_loose_json, read_toml
from acp_agent.safety.folders.paths import read_regular

FOLDER = ".acp-coder"
CONFIG = f"{FOLDER}/config.toml"
TOOLS = f"{FOLDER}/tools"
HOOKS = f"{FOLDER}/hooks"
OTHERS = ".claude"
"""What the folder has for other agents."""
SETTINGS = f"{OTHERS}/settings.json"
"""Of which the hooks are used."""
THEIR_HOOKS = f"{OTHERS}/hooks"
SERVERS = ".mcp.json"
"""Its MCP servers, also those for other agents."""
MARKDOWN = (f"{OTHERS}/commands", f"{OTHERS}/agents")
HOOK_FOLDERS = (HOOKS, THEIR_HOOKS)
IN_HOOK_FOLDERS = (f"{HOOKS}/", f"{THEIR_HOOKS}/")

MAX_FILES = 500
MAX_BYTES = 20_000_000
"""Of all files together."""
MAX_DEPTH = 8
"""Folders below each other."""
MAX_NAMES = 1_000
"""That commands may have for files of the folder."""
MAX_BASES = 20
"""Folders in which a command may look for what it names."""
MARK_CHARS = 32
"""Half of a digest: of fewer, whoever writes the files can make two sets with the same mark, and show one of them."""

PART = r"""[^\s"'`;|&<>(){}=,]+"""
PARTS = pattern(PART)
"""What may be a path in a command line."""
BEFORE = r"""["']?(?:\$(?:\([^()]*\)|\{[^{}]*\}|\w+)["']?/+)?"""
"""What says where the folder is: `"$(pwd)"/`, `${X:-.}/`, `$PWD/`."""
RUN = tuple(
    pattern(rf"{before}\s+{BEFORE}({PART})", re.VERBOSE)
    for before in (
        r"""(?:^|[\s;&|()"'`/]) (?:(?:ba|da|z|k|mk|fi)?sh|(?:python|pypy|node|ruby|perl|php|lua)[\d.]*|tsx|Rscript
            |(?:deno|bun)(?:\s+run)?) ["']? (?:\s+-\S+)*""",
        r"(?:^|[;&|({`]|\b(?:then|do|else)\s) \s* (?:\.|source)",
    )
)
"""A file that a program is told to run, which needs neither mode nor ending."""
MODULE = pattern(r"(?:^|\s)-[bBdEiIOPqsSuvx]*m\s*([A-Za-z_][\w.]*)")
"""A module of Python."""
PROGRAM_ENDS = frozenset(
    ".py .pyz .js .mjs .cjs .ts .mts .cts .tsx .jsx .sh .bash .zsh .fish .rb .pl .php .lua .jar .ps1 .exs .r .jl .tcl "
    ".wasm .groovy .awk .sed .clj .scm .go .rs .swift .kts".split()
)
PROGRAM_BEGINS = (b"#!", b"\x7fELF", b"\xcf\xfa\xed\xfe", b"\xca\xfe\xba\xbe")
LEADS_TO = " -> "
"""Between a link and the file it leads to, among the names of files."""
TOO_MUCH = "it cannot be read, is too large, or one too many"
TOO_DEEP, NO_FILE = "too many folders below each other", "no regular file"
DATA, WITHIN = "it is data, so it may change", "what is in it may change"
OTHERS_TOO = "other files of the project that these programs load"
MAY_CHANGE = frozenset((DATA, WITHIN))
"""Why a program that names such a thing is run although trust does not cover that."""


class Found(Struct):
    """What a folder has of its own."""

    files: dict[str, bytes] = {}
    """Relative path -> current bytes."""
    uncovered: dict[str, str] = {}
    """Relative path -> why trust does not cover it, in words."""
    more: tuple[str, ...] = ()
    """What `also` names besides."""
    runs: bool = False
    """Whether hooks or servers of the folder start programs."""
    left: int = MAX_BYTES
    """How many more bytes are read."""

    def lines(self) -> list[str]:
        """What trust does not cover, for the user."""
        return [f"{name}: {why}" for name, why in self.uncovered.items()] + ([OTHERS_TOO] if self.runs else [])

    def add(self, folder: int, name: str, path: str, *, any_kind: bool = True) -> None:
        """Reads the regular file `name` in an open folder, once. What is not covered is noted: data without `any_kind`,
        folders, what is no file."""
        if path in self.files:
            return
        mode, data = _mode(folder, name), None
        with suppress(OSError):
            data = read_regular(name, self.left if len(self.files) < MAX_FILES else -1, folder)
        is_program = mode & 0o111 or name[name.rfind(".") :].lower() in PROGRAM_ENDS
        if stat.S_ISREG(mode) and data is not None and (any_kind or is_program or data.startswith(PROGRAM_BEGINS)):
            self.left -= len(data)
            self.files[path] = data
        elif mode:
            other = NO_FILE if not stat.S_ISREG(mode) else TOO_MUCH if any_kind or is_program else DATA
            self.uncovered[path] = WITHIN if stat.S_ISDIR(mode) else other


def own_files(folder: Path) -> dict[str, bytes]:
    """Those that trust covers: relative path -> current bytes.

    Only regular files, no links or pipes; each is read once, and exactly those bytes are shown, hashed and used.
    """
    return look(folder).files


def look(folder: Path, also: Program | None = None) -> Found:
    """`also`: what is about to run."""
    folder, found = Path(os.path.realpath(folder)), Found()
    try:
        top = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return found
    try:
        for name in (CONFIG, SETTINGS, SERVERS):
            with suppress(OSError), _opened(top, os.path.dirname(name)) as handle:
                found.add(handle, os.path.basename(name), name)
        found.uncovered.clear()  # What is not read of these has no effect.
        for inside, belongs in BELONGS.items():
            with suppress(OSError):
                _add_below(found, folder, top, inside, belongs)
        programs = programs_of(found.files)
        found.runs = bool(programs)
        names: dict[str, bool] = {}
        for program in programs:
            for name, runs in _named_in(program, folder).items():
                names[name] = names.get(name, False) or runs
        for name, runs in islice(names.items(), MAX_NAMES):
            _add_named(found, folder, top, name, any_kind=runs)
        if len(names) > MAX_NAMES:
            found.uncovered[f"{len(names) - MAX_NAMES} further names in commands"] = TOO_MUCH
        if also is not None:
            covered = dict(found.files)
            for name, runs in _named_in(also, folder).items():
                _add_named(found, folder, top, name, any_kind=runs)
            found.files, found.more = covered, tuple(sorted(found.files.keys() - covered.keys()))
    finally:
        os.close(top)
    return found


@contextmanager
def _opened(top: int, inside: str) -> Iterator[int]:
    """A handle of a folder below `top`. Raises OSError where a link is on the way."""
    at = os.dup(top)
    try:
        for name in inside.split("/") if inside else ():
            above, at = at, os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=at)
            os.close(above)
        yield at
    finally:
        os.close(at)


def _add_below(found: Found, folder: Path, top: int, inside: str, belongs: Callable[[str], bool]) -> None:
    """The files of a folder, and but for tools those in all folders in it; those that links of hooks lead to."""
    with _opened(top, inside) as handle:
        for name in sorted(os.listdir(handle)):
            path, mode = f"{inside}/{name}", _mode(handle, name)
            if stat.S_ISDIR(mode) and inside.count("/") > MAX_DEPTH:
                found.uncovered[path] = TOO_DEEP
            elif stat.S_ISDIR(mode):
                if inside != TOOLS:
                    _add_below(found, folder, top, path, belongs)
            elif stat.S_ISLNK(mode) and path.startswith(HOOK_FOLDERS):
                _add_named(found, folder, top, path, any_kind=True)
            elif belongs(name):
                found.add(handle, name, path)


def _mode(folder: int, name: str) -> int:
    try:
        return os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
    except OSError:
        return 0


# --- programs that are named -----------------------------------------------------------------------------------------


class Program(Struct, frozen=True):
    """What a hook or an MCP server of the folder runs."""

    words: tuple[str, ...]
    """A command line, or a program and its arguments; and the values of its variables."""
    cwd: str = ""


def programs_of(files: Mapping[str, bytes]) -> list[Program]:
    found: list[Program] = []
    for name, keys in ((CONFIG, ("hooks", "mcp")), (SETTINGS, ("hooks",)), (SERVERS, ("mcpServers",))):
        try:
            table = (read_toml if name == CONFIG else read_loose_json)(files.get(name, b"").decode())
        except ValueError:
            continue
        for key in keys if isinstance(table, dict) else ():
            found += _programs_in(table.get(key))
    return found


def _programs_in(value: Any) -> Iterator[Program]:
    """Those in a table, at any depth that a parser takes."""
    waiting = [value]
    while waiting:
        match waiting.pop():
            case list(several):
                waiting += several
            case dict(table):
                waiting += table.values()
                args, env = table.get("args", ()), table.get("env", {})
                words = [table.get("command"), *(args if isinstance(args, list) else ())]
                words += env.values() if isinstance(env, dict) else ()
                if isinstance(table.get("command"), str):
                    yield Program(tuple(word for word in words if isinstance(word, str)), str(table.get("cwd") or ""))


def named_in(program: Program, folder: Path) -> list[str]:
    """The paths relative to `folder` that may be named there: normal, in order."""
    return list(_named_in(program, folder))


def _named_in(program: Program, folder: Path) -> dict[str, bool]:
    """The same, and whether a program is told to run it, whatever it is. A command may go to each folder that it
    names."""
    line = " ".join(program.words)
    run = {found[1] for text in (line, *program.words) for known in RUN for found in known.finditer(text)}
    modules = [match[1].replace(".", "/") for match in MODULE.finditer(line)]
    run.update(f"{name}{end}" for name in modules for end in (".py", "/__main__.py"))
    parts = dict.fromkeys(part for word in program.words for part in _parts(word, folder))
    parts |= dict.fromkeys(run)
    found: dict[str, bool] = {}
    bases = dict.fromkeys((str(folder), os.path.join(folder, program.cwd)))
    waiting = list(bases)
    while waiting:
        base = waiting.pop(0)
        for part in parts:
            path = os.path.normpath(os.path.join(base, part))
            if path.startswith(f"{folder}/"):
                name = path.removeprefix(f"{folder}/")
                found[name] = found.get(name, False) or part in run
                if path not in bases and len(bases) < MAX_BASES and "\0" not in path and os.path.isdir(path):
                    bases[path] = None
                    waiting.append(path)
    return {name: runs or name.startswith(IN_HOOK_FOLDERS) for name, runs in found.items()}


def _parts(word: str, folder: Path) -> Iterator[str]:
    """What may be a path in a word. What `$(pwd)`, `$PWD` and the like stand before may begin in the folder."""
    project = re.sub(r"""["']?\$\{?CLAUDE_PROJECT_DIR\}?["']?""", lambda _: str(folder), word)
    for text in dict.fromkeys((os.path.expandvars(project), word)):
        for part in PARTS.findall(text):
            yield part
            yield from part.split(":") if ":" in part else ()
            if part.startswith(("/", "$")):
                yield part.partition("/")[2]
    yield word


def _add_named(found: Found, folder: Path, top: int, path: str, *, any_kind: bool = False) -> None:
    """Covers a program, also where a link leads to it. Data (unless `any_kind`) and folders are told."""
    place = f"{folder}/{path}"
    if "\0" in path or path in HOOK_FOLDERS:
        return
    if (real := os.path.realpath(place)) != place:
        if not os.path.isfile(real):
            if os.path.lexists(real):
                found.uncovered[path] = WITHIN if os.path.isdir(real) else NO_FILE
            return
        found.files[f"{path}{LEADS_TO}{real}"] = b""
        if not real.startswith(f"{folder}/"):
            return
        path = real.removeprefix(f"{folder}/")
    inside, _, name = path.rpartition("/")
    with suppress(OSError), _opened(top, inside) as handle:
        found.add(handle, name, path, any_kind=any_kind)


# --- what is trusted -------------------------------------------------------------------------------------------------


def tools_of(files: Mapping[str, bytes]) -> dict[str, bytes]:
    """The tools among the files: file name -> bytes."""
    return {name.removeprefix(f"{TOOLS}/"): data for name, data in files.items() if name.startswith(f"{TOOLS}/")}


def scope_of(files: Mapping[str, bytes]) -> str:
    """A digest that identifies trusted files: it changes with every byte."""
    state = hashlib.sha256()
    for name, data in sorted(files.items()):
        state.update(f"{name}\0".encode("utf-8", "surrogateescape"))
        state.update(hashlib.sha256(data).digest())
    return f"files {state.hexdigest()}"


def mark_of(scope: str) -> str:
    """A prefix of it, short enough to copy."""
    return scope.rpartition(" ")[2][:MARK_CHARS]


def _is_markdown(name: str) -> bool:
    return name.endswith(".md")


def _is_tool(name: str) -> bool:
    return name.endswith(".py") and not name.startswith("_")


BELONGS: dict[str, Callable[[str], bool]] = {
    TOOLS: _is_tool,
    HOOKS: bool,
    THEIR_HOOKS: bool,
    **dict.fromkeys(MARKDOWN, _is_markdown),
}
"""Folder -> which of its files are meant."""
