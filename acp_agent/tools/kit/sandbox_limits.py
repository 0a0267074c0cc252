"""Whether a command's output says that it failed because of the sandbox. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from os.path import normpath
from pathlib import Path

from acp_agent.config.safety_settings import SandboxConfig
from acp_agent.executors.base import BY_PROXY, NO_GIT, NO_NETWORK, ONLY_WRITABLE
from acp_agent.safety.folders.paths import Roots, real_path

LOOKED_AT = 4_000
"""Characters searched at the end of the output."""

READ_ONLY = re.compile(r"read-only file ?system|EROFS|resource busy|EBUSY", re.IGNORECASE)
NOT_EMPTY = re.compile(
    r"not (?:an )?empty (?:directory|folder)|(?:directory|folder) .{0,200}\bis not empty", re.IGNORECASE
)
"""Said of the folder itself, this is because of the place holders."""
NOT_A_REPOSITORY = re.compile(r"not a git repository|not in a git directory", re.IGNORECASE)
NETWORK = re.compile(
    r"could not resolve host|name resolution|name or service not known|network is unreachable"
    r"|ENETUNREACH|EAI_AGAIN|ENOTFOUND",
    re.IGNORECASE,
)
OWN_LOOPBACK = re.compile(
    r"(?:localhost|127\.0\.0\.1|::1).{0,200}(?:connection refused|ECONNREFUSED|couldn't connect)"
    r"|(?:connection refused|ECONNREFUSED|couldn't connect).{0,200}(?:localhost|127\.0\.0\.1|::1)",
    re.IGNORECASE,
)
"""Said of a service of this machine's, whose loopback is another one."""
DENIED = re.compile(r"permission denied|EACCES|(?P<call>operation not permitted|EPERM)", re.IGNORECASE)
NAMED = re.compile(
    r"'([^']+)'|‘([^’]+)’|\"([^\"]+)\"|(?:^|: |\s)([^\s:'\"]+): (?:permission denied|read-only file ?system|"
    r"operation not permitted)",
    re.IGNORECASE,
)
"""Where a message names what it is about."""
MOST_DENIED = 10
MISSING = re.compile(r"no such file or directory|ENOENT", re.IGNORECASE)

BETWEEN = re.compile(r"[\s'\"`:;,()<>\[\]=‘’]+")
"""Between the words of a message; one with a slash may be a path."""
SHELL = re.compile(r"^\S+: (?:line )?\d+: ")
"""How a shell begins its messages: it is not what they are about."""
SHOWN = tuple(map(Path, ("/usr", "/bin", "/sbin", "/lib", "/lib64", "/etc", "/opt", "/nix", "/tmp", "/var/tmp")))
"""Folders that commands see in the sandbox, too: what is missing there is missing."""


def was_forbidden(output: str, limits: str, cwd: Path, roots: Roots) -> bool:
    """Whether the sandbox with these `limits` (empty: none) is the likely cause of what `output` ends with."""
    lines = output[-LOOKED_AT:].splitlines() if limits else []
    return any(_is_forbidden(line, limits, cwd, roots) for line in lines)


FILE_LIMIT = 128 + 25
"""Exit code of a command that SIGXFSZ has ended."""
TOO_LARGE = re.compile(r"file size limit exceeded|file too large|EFBIG", re.IGNORECASE)
NO_MEMORY = re.compile(r"cannot allocate memory|memoryerror|out of memory|bad_alloc|ENOMEM|alloc.{0,20}fail", re.I)


def limit_reached(output: str, exit_code: int | None, config: SandboxConfig) -> str:
    """Which limit of the configuration has probably ended a command, in a sentence; empty if none."""
    end = output[-LOOKED_AT:]
    if config.max_file_size and (exit_code == FILE_LIMIT or TOO_LARGE.search(end)):
        most, what = config.max_file_size, "file may be larger: `tools.sandbox.max_file_size`"
    elif config.max_memory and NO_MEMORY.search(end):
        most, what = config.max_memory, "process may have more memory: `tools.sandbox.max_memory`"
    else:
        return ""
    return f"A limit has ended it: no {what} is {most} bytes. Need less, or ask the user to raise it."


def denied_paths(output: str, limits: str, cwd: Path, roots: Roots) -> tuple[str, ...]:
    """The paths that `output` says the sandbox with these `limits` has denied."""
    found: dict[str, None] = {}
    for line in output[-LOOKED_AT:].splitlines() if limits else []:
        if (READ_ONLY.search(line) or DENIED.search(line)) and _is_forbidden(line, limits, cwd, roots):
            names = [next(filter(None, match.groups())) for match in NAMED.finditer(SHELL.sub("", line))]
            found |= dict.fromkeys(
                map(str, _paths(line, cwd, roots)) if not names else (str(cwd / name) for name in names)
            )
    return tuple(found)[:MOST_DENIED]


def _is_forbidden(line: str, limits: str, cwd: Path, roots: Roots) -> bool:
    if READ_ONLY.search(line) is not None or NOT_EMPTY.search(line) is not None:
        return True
    if NOT_A_REPOSITORY.search(line) is not None:
        return NO_GIT in limits
    if NETWORK.search(line) is not None:
        return NO_NETWORK in limits or BY_PROXY in limits
    if OWN_LOOPBACK.search(line) is not None:
        return BY_PROXY in limits
    paths = list(_paths(line, cwd, roots))
    if (denied := DENIED.search(line)) is not None:
        if not paths:
            return denied["call"] is not None or not roots.contains(cwd) or ONLY_WRITABLE in limits
        narrowed = ONLY_WRITABLE in limits
        return any(narrowed or not roots.contains(path) or roots.rules.protects(path) for path in paths)
    if MISSING.search(line) is not None:
        outside = (path for path in paths if not roots.contains(path))
        return any(not any(path.is_relative_to(folder) for folder in SHOWN) for path in outside)
    return False


def _paths(line: str, cwd: Path, roots: Roots) -> Iterator[Path]:
    resolved = real_path if roots.disk.here else lambda path: Path(normpath(path))  # Another machine is not asked here.
    for name in BETWEEN.split(SHELL.sub("", line)):
        if "/" not in name:
            continue
        try:
            yield resolved(cwd / Path(name).expanduser())
        except (OSError, RuntimeError, ValueError):
            continue
