"""Where the programs are that the agent itself starts: the one door to PATH, and to git.

A repository contains whatever its author likes, `bin/bash` and `bin/git` included. So a program that we start is looked
for only in absolute folders of PATH outside of the session's folders, and is started by its absolute path; and no
relative or empty entry of PATH, which would mean a folder of the repository, reaches a process that we start.

A repository's `.git` is the attacker's, too: commands in the sandbox write most of it. So git runs here without the
user's and the machine's configuration, with everything off by which a repository's own could start a program, can start
no other program than itself where the kernel has Landlock, and asks nobody. Filters are named by the repository: who
checks files out switches them off (`loop/shell/worktrees.py`).

The project's own language servers and checkers are looked for in the project (`lsp/known_servers.py`); they are
confined.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache, partial
from pathlib import Path

from acp_agent.lazy import load
from acp_agent.limits.descriptors import restoring

TYPE_CHECKING = False
if TYPE_CHECKING:
    from subprocess import CompletedProcess

BASH = "/bin/bash"
"""Where there is no other."""
RUN, ALONE = "subprocess:run", "acp_agent.limits.running:alone"
OFF = (
    "core.hooksPath=/dev/null", "core.fsmonitor=false", "core.attributesFile=/dev/null", "submodule.recurse=false",
    "protocol.ext.allow=never", "gc.auto=0", "maintenance.auto=false",
)  # fmt: skip
ENVIRON = {
    "HOME": "/", "LC_ALL": "C", "GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull, "GIT_NO_LAZY_FETCH": "1",
    "GIT_ALLOW_PROTOCOL": "", "GIT_NO_REPLACE_OBJECTS": "1", "GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0",
}  # fmt: skip
"""Without any protocol an older git, which does not know `GIT_NO_LAZY_FETCH`, fetches nothing either."""


class NoGit(OSError):
    """There is no git outside of the session's folders."""


def search_path(path: str, outside: Iterable[Path] = ()) -> str:
    """The entries of PATH that are absolute and in none of the folders `outside`."""
    real = [_folded(str(folder)) for folder in outside]
    return os.pathsep.join(
        entry for entry in path.split(os.pathsep) if os.path.isabs(entry) and not _inside(entry, real)
    )


def with_search_path(environ: Mapping[str, str], outside: Iterable[Path] = ()) -> dict[str, str]:
    """The environment with such a PATH."""
    if "PATH" not in environ:
        return dict(environ)
    return {**environ, "PATH": search_path(environ["PATH"], outside) or search_path(os.defpath)}


def find_program(name: str, environ: Mapping[str, str] | None = None, outside: Iterable[Path] = ()) -> str | None:
    """The absolute path of a program on PATH, neither found in nor leading into one of the folders `outside`; a name
    with a slash stands for itself. `environ`: ours by default."""
    if os.sep in name:
        return shutil.which(name)
    path = (os.environ if environ is None else environ).get("PATH", os.defpath)
    return _find(name, path, tuple(map(str, outside)))


def find_bash(environ: Mapping[str, str] | None = None, outside: Iterable[Path] = ()) -> str:
    return find_program("bash", environ, outside) or BASH


def find_git(path: str, outside: Iterable[Path] = ()) -> str:
    """Raises NoGit. `path`: the folders in which it is looked for."""
    program = find_program("git", {"PATH": path}, outside)
    if program is None:
        raise NoGit("git was not found")
    return program


def run_git(
    arguments: Sequence[str],
    *,
    timeout: float,
    cwd: str | Path = "/",
    path: str | None = None,
    outside: Sequence[Path] = (),
    environ: Mapping[str, str] | None = None,
    more: Mapping[str, str] | None = None,
    stdin: bytes = b"",
) -> CompletedProcess[bytes]:
    """Runs it to its end. `environ`: the user's, for what the user has asked for at an address; `more`: variables.
    Raises OSError (NoGit), subprocess.SubprocessError."""
    path = (os.environ if environ is None else environ).get("PATH", os.defpath) if path is None else path
    program = find_git(path, outside)
    settings = (*OFF, "safe.directory=*") if environ is None else OFF  # Nothing of another user's repository runs.
    options = [part for setting in settings for part in ("-c", setting)]
    if environ is None:  # Else it may be told to run what the user's configuration names.
        program = os.path.realpath(program)
        base = {**ENVIRON, "GIT_EXEC_PATH": os.path.dirname(program)}  # Where it finds itself, and nothing else.
    else:
        base = {**environ, "GIT_TERMINAL_PROMPT": "0"}
    begin: Callable[[], CompletedProcess[bytes]] = partial(
        load(RUN),
        [program, *options, *arguments],
        cwd=cwd,
        env={**base, "PATH": search_path(path, outside), **(more or {})},
        input=stdin,
        capture_output=True,
        timeout=timeout,
        check=False,
        **restoring(),
    )
    done: CompletedProcess[bytes] = load(ALONE)(program, begin) if environ is None else begin()
    return done


@lru_cache(maxsize=256)
def _find(name: str, path: str, outside: tuple[str, ...]) -> str | None:
    real = [_folded(folder) for folder in outside]
    for entry in search_path(path, map(Path, outside)).split(os.pathsep):
        found = shutil.which(name, path=entry) if entry else None
        if found is not None and not _inside(found, real):
            return found
    return None


def _inside(path: str, folders: Iterable[str]) -> bool:
    """Whether a path is, or leads, into one of the folders; ignores case."""
    names = {os.path.normpath(path).casefold(), _folded(path)}
    return any(name == folder or name.startswith(f"{folder.rstrip('/')}/") for name in names for folder in folders)


def _folded(path: str) -> str:
    return os.path.realpath(path).casefold()
