"""A shell's working directory and exported variables, carried from one command to the next.

Bash does this itself: each command is preceded by a line that reads the saved state and sets a trap that saves it
again. No variable is parsed here. A command that is killed by a signal, or sets its own EXIT trap, saves nothing.
"""

from __future__ import annotations

import logging
import os
import shlex
import shutil
import stat
from collections.abc import Iterable
from pathlib import Path

from acp_agent.disk import HERE
from acp_agent.executors.base import Command

TYPE_CHECKING = False
if TYPE_CHECKING:
    from acp_agent.disk import Disk

log = logging.getLogger(__name__)

MAX_PATH_BYTES = 4096
MAX_STATE_BYTES = 4_194_304


def with_state(
    script: str,
    state_file: Path | None,
    *,
    keep: bool = True,
    without: Iterable[str] = (),
    bash: bool = True,
    then: str = "",
) -> str:
    """`script`, started from `state_file` (if it exists) and leaving its state there (where `keep`), but for the
    variables `without`, which the next command has of its own. `bash`: whether the shell is one, not just any POSIX
    shell. `then`: a line that runs once the state is there.

    The script's first line stays on line 1, so that bash's messages name the right line.
    """
    if state_file is None:
        return script
    file = shlex.quote(str(state_file))
    cwd = shlex.quote(str(_cwd_file(state_file)))
    restore = f"[ -f {file} ] && . {file} 2>/dev/null{then and '; '}{then}"
    if not keep:
        return f"{restore}; {script}"
    # A command may have put a pipe there, which must not block us.
    plain = "[ ! -e {0} ] || [ -f {0} ]"
    free, free_cwd = plain.format(file), plain.format(cwd)
    listing = "declare -px" if bash else "export -p"
    drop = f"export -n {' '.join(names)}; " if (names := list(without)) else ""
    save = f'{drop}{{ {{ {free}; }} && {listing} >{file}; {{ {free_cwd}; }} && printf %s "$PWD" >{cwd}; }} 2>/dev/null'
    return f"{restore}; trap {shlex.quote(save)} EXIT; {script}"


def last_cwd(state_file: Path | None, default: Path, disk: Disk = HERE) -> Path:
    """The folder on `disk` where the last command with this state ended, or `default` if there is none or it is
    gone."""
    if state_file is None:
        return default
    try:
        cwd = Path(_read(_cwd_file(state_file), MAX_PATH_BYTES).decode("utf-8"))
    except (OSError, UnicodeDecodeError):
        return default
    return cwd if cwd.is_absolute() and disk.kind(cwd) == "dir" else default


def repair_state(state_file: Path) -> None:
    """Removes anything but a plain file in place of the state, so that later commands can save it again."""
    for path in (state_file, _cwd_file(state_file)):
        try:
            if not stat.S_ISREG(path.lstat().st_mode):
                _remove(path)
        except OSError:
            continue


def load_state(state_file: Path | None) -> bytes:
    """What a shell that sees other files is to start from; empty if there is nothing."""
    try:
        return b"" if state_file is None else _read(state_file, MAX_STATE_BYTES)
    except OSError:
        return b""


def store_state(state_file: Path, state: bytes, cwd: bytes) -> None:
    """What such a shell left. Raises OSError."""
    repair_state(state_file)
    state_file.write_bytes(state)
    _cwd_file(state_file).write_bytes(cwd)


def keep_state(command: Command, state: bytes, cwd: bytes, where: str) -> None:
    """The same for a command that has ended, where there is something to keep. `where`: in words, for the log."""
    if command.state_file is None or not command.keeps_state or not (cwd and state):
        return
    try:
        store_state(command.state_file, state, cwd)
    except OSError as error:
        log.warning("the state of the shell in %s could not be stored: %s", where, error)


def _remove(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError:  # A command may have made a folder of it.
        shutil.rmtree(path, ignore_errors=True)


def _read(path: Path, limit: int) -> bytes:
    """A command may have put anything there: does not wait for a pipe or follow a link."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return b""
        return os.read(descriptor, limit)
    finally:
        os.close(descriptor)


def forget_state(state_file: Path) -> None:
    """Removes what the commands left: it holds every variable they exported."""
    for path in (state_file, _cwd_file(state_file)):
        _remove(path)


def _cwd_file(state_file: Path) -> Path:
    return state_file.with_name(state_file.name + ".cwd")
