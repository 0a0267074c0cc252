"""The contract of a sandbox: what a command may touch, and the command line that enforces it.

A sandbox starts nothing. It turns an `Invocation` (program, environment, folder) into another one, with the files and
descriptors it needs; executors start it, and the editor's terminal gets it as a line in a script.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol

from msgspec import Struct, field

from acp_agent.disk import Identity
from acp_agent.lazy import load

if TYPE_CHECKING:
    from acp_agent.executors.sandbox.proxy.ways import Way

SandboxKind = Literal["bubblewrap", "landlock", "seatbelt", "none"]

SANDBOXES: dict[SandboxKind, str] = {
    "bubblewrap": "acp_agent.executors.sandbox.bubblewrap:find",
    "landlock": "acp_agent.executors.sandbox.landlock_alone:find",
    "seatbelt": "acp_agent.executors.sandbox.seatbelt:find",
}
"""The backends, in the order they are tried: functions that create one from the configuration or raise ExecutorError
with the reason why it is unavailable. Loaded when tried."""


REPLACED = "was replaced while the sandbox was made, perhaps to get out of it"
"""What a command says that was not run since something else was at a path than what was judged."""


FCNTL, BEHIND = "fcntl:fcntl", "fcntl:F_DUPFD_CLOEXEC"
DOOR_NUMBERS = range(26, 30)
"""Descriptors that a command has for a moment, before bubblewrap starts: nothing else may be passed as one of them."""


class Proxied(Struct, frozen=True):
    """A network in which there is nothing but a proxy of ours."""

    doors: tuple[str, ...] = ()
    """Files of the namespaces to enter, in this order."""
    port: int = 0
    """For backends without namespaces: the only local TCP port."""


if TYPE_CHECKING:
    Reach = Proxied | Literal["all", "none"]
    """The network of a command."""


class Copies(Struct, frozen=True):
    """Copies of protected files, for a command to change instead; only bubblewrap has them, elsewhere the files are
    just protected.

    In place of each file is a link to its copy: a file that something is mounted on cannot be replaced, and programs
    replace what a link leads to."""

    folder: Path
    """What the command sees as `THERE`, and may write."""
    files: Mapping[Path, str]
    """The file -> its folder in `folder`, which has a `link` to the copy beside it."""
    stand_ins: Mapping[Path, Path] = field(default_factory=dict)
    """A folder that may be missing and has protected paths in it -> a private folder, which the command may write, in
    its place if it is missing."""
    THERE: ClassVar[Path] = Path("/run/acp-coder-copies")


class SandboxPolicy(Struct, frozen=True):
    """Paths a command may touch, absolute and resolved. Anything else does not exist for it.

    System folders (programs, libraries, most of /etc) are always readable; that list is the backend's.
    """

    writable: tuple[Path, ...]
    """The session's folders and `allow_write`. What does not exist is left out."""
    readable: tuple[Path, ...] = ()
    """Read-only: `allow_read`, toolchains in the user's home. What does not exist is left out."""
    hidden: tuple[Path, ...] = ()
    """Not readable although below one of the others: what `deny_read` matches. In a folder that
    seems empty no name can be looked up, or git would record that all in it was deleted."""
    protected: tuple[Path, ...] = ()
    """Below `writable` but read-only, including those that do not exist yet. Not resolved: the backend has to know if
    one is a link."""
    opened: Mapping[Path, Identity] = field(default_factory=dict)
    """The session's folders, as they were when it was opened, and their repositories elsewhere, as they were judged:
    nothing else may stand there."""
    copies: Copies | None = None
    """Of some that are `protected`."""
    network: Reach = "all"
    unix_sockets: bool = False
    """Whether AF_UNIX sockets may be created (pairs always may)."""
    scratch: Path | None = None
    """A private folder of the session: its `tmp` replaces /tmp and /var/tmp, its `home` the user's home. `None`: both
    are empty and deleted with the command."""
    home: Path | None = None
    """The user's home; `None`: there is none."""
    max_processes: int = 2048
    """Maximum processes of one command at a time; 0: no limit."""
    runs_as: tuple[int, int] | None = None
    """User and group that the command runs as, if not those of this process."""

    @property
    def other_user(self) -> bool:
        return self.runs_as is not None


class Invocation(Struct, frozen=True):
    """The command line to execute."""

    argv: tuple[str, ...]
    cwd: Path
    env: Mapping[str, str]
    """The whole environment."""
    by_script: bool = False
    """Whether a shell script starts it and waits for it (the editor's terminal). Otherwise this process does."""
    in_terminal: bool = False
    """Whether it has a terminal of its own, which it keeps: what it does to that reaches nobody else."""


class Confined(Struct, frozen=True):
    """The command line to execute instead. `close()` once it has ended (or could not be started); it is idempotent."""

    argv: tuple[str, ...]
    cwd: Path
    env: Mapping[str, str]
    files: Mapping[int, Path] = field(default_factory=dict)
    """Descriptor -> the file to be opened as it: a starter opens and passes them, a script redirects."""
    written: frozenset[int] = frozenset()
    """Those of `files` that are opened for reading and writing; the others only for reading."""
    slots: Mapping[int, int] = field(default_factory=dict)
    """Place in `argv` -> the descriptor in `files` whose number is there."""
    killed_at_once: bool = False
    """Whether SIGKILL to the started process ends everything it started."""
    cleanup: Callable[[], str | None] | None = None

    def argv_with(self, numbers: Mapping[int, int]) -> tuple[str, ...]:
        """`argv` where the descriptors of `files` got other numbers: declared number -> the real one."""
        argv = list(self.argv)
        for place, declared in self.slots.items():
            argv[place] = str(numbers[declared])
        return tuple(argv)

    def open_files(self) -> dict[int, int]:
        """Opens `files`: declared number -> the real one. The caller closes them once the process is started."""
        opened: dict[int, int] = {}
        try:
            for declared, path in self.files.items():
                number = os.open(path, os.O_CLOEXEC | (os.O_RDWR if declared in self.written else os.O_RDONLY))
                opened[declared] = number
                if number in DOOR_NUMBERS:
                    opened[declared] = load(FCNTL)(number, load(BEHIND), DOOR_NUMBERS.stop)
                    os.close(number)
        except OSError:
            for fd in opened.values():
                os.close(fd)
            raise
        return opened

    def close(self) -> str:
        """Kills what is still running if that can be done reliably, and removes what was created for this run
        (placeholders, control groups). Returns what user and model should know of it, once."""
        return (self.cleanup() or "") if self.cleanup is not None else ""


class Sandbox(Protocol):
    """One backend."""

    @property
    def kind(self) -> SandboxKind: ...

    def words(self) -> str:
        """Its parts, for the user: `bubblewrap 0.8.0 with seccomp and Landlock (ABI 7)`."""
        ...

    def way(self, user: Mapping[str, Any] | None) -> Way | None:
        """How commands reach a proxy of ours and nothing else; `None`: they cannot be held to one. `user`: as
        of `subprocess.Popen`, if they run as another. May take a while. Raises ExecutorError."""
        ...

    def confine(self, invocation: Invocation, policy: SandboxPolicy, folder: Path) -> Confined:
        """`folder`: existing, private, for files of this run that outlive it. Raises ExecutorError if the policy cannot
        be enforced. If called from the main thread, the started process dies with it."""
        ...
