"""Which paths tools may access: below the session's roots, also through links and folders that do not exist yet.

The existing part of a path is resolved (following links), the rest is appended, and the result is compared with the
roots component by component: `/srv/app-evil` is not below `/srv/app`, and a link pointing outside is outside. Kernel
files in `/proc`, `/sys` and `/dev` are outside even if a root is `/`.

Nothing in a path is expanded: `~`, `*` and `$HOME` are ordinary names. Names are compared case-sensitively. On a
case-insensitive disk, a name in another spelling counts as a different path; it is inside wherever the other is.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from acp_agent.disk import HERE, Folder
from acp_agent.errors import ToolError
from acp_agent.safety.folders.protect import PathRules

if TYPE_CHECKING:
    from acp_agent.disk import Disk

MAX_PATH_BYTES = 4095
"""Linux's PATH_MAX without the trailing NUL."""

MAX_NAME_BYTES = 255
"""NAME_MAX of most file systems."""

KERNELS_OWN = tuple(Path(name) for name in ("/proc", "/sys", "/dev"))
"""Never project files: processes and their secrets, kernel settings, devices."""

KERNELS_OWN_PARTS = frozenset((tree.name,) for tree in KERNELS_OWN)

PLAIN_MEMORY = Path("/dev/shm")
"""Memory-backed, but regular files."""

EXPANDED = re.compile(r"~|\$[A-Z_][A-Z0-9_]*|\$\{[A-Z_][A-Z0-9_]*\}")
"""First components of a path that a shell would expand."""

FILE_URI = "file://"
LINES = re.compile(r"#L?\d+[-:,CL\d]*\Z")
"""A place in the file; any other `#`, and a `?`, is one of its name."""


class Roots:
    """The folders of a session: `cwd`, the base of relative paths, and additional ones. `rules`: special paths. `disk`:
    on which they are. `named`: as the client names them, if they are on another machine's. `here`: all that
    it named, on this machine. `within`: if any, what all of a session's folders have to be in.

    On this machine they are what their names lead to now, for good: the names are used nowhere afterwards."""

    def __init__(
        self,
        cwd: Path,
        additional: Iterable[Path] = (),
        rules: PathRules | None = None,
        disk: Disk = HERE,
        named: Sequence[Path] = (),
        here: Roots | None = None,
        within: Sequence[Path] = (),
    ) -> None:
        self.disk = disk
        self.rules = PathRules() if rules is None else rules
        self._names = (cwd, *additional)
        self.opened = tuple(Folder(disk.real_path(each)) for each in self._names) if disk.here else ()
        """With their identities, if they are this machine's."""
        self.all = tuple(each.path for each in self.opened) or self._names
        self.cwd = self.all[0]
        self._named = tuple(named) or self._names
        self.within = tuple(within)
        self._here = here
        self.clients = self.here.all
        """Those on this machine, for what runs on it whatever the session's place: MCP servers, hooks."""
        self.project = f"{disk.identity}:{cwd}" if disk.identity else str(self.cwd)
        """What answers, memories and schedules are kept for: the folder, by whatever name it was opened."""

    @property
    def here(self) -> Roots:
        """The session's folders on this machine, as they were when it was opened, wherever it works."""
        return self._here or self

    @cached_property
    def real(self) -> tuple[Path, ...]:
        """The resolved folders, as they were opened: later links change nothing."""
        return self.all if self.opened else tuple(self.disk.real_path(root) for root in self.all)

    def as_opened(self, path: Path) -> Path:
        """A path by a name of one of the folders, as a path in the folder that had this name when it was opened."""
        for name, real in zip(self._names, self.real, strict=True):
            if path == name or name in path.parents:
                return real / path.relative_to(name)
        return path

    def need(self) -> None:
        """Raises ExecutorError if something else is where a folder was that the session was opened with."""
        for each in self.opened:
            each.need()

    @contextmanager
    def entered(self, path: Path) -> Iterator[Path]:
        """Where a process is started that runs in `path`, outside the sandbox: if that is in the session's folders,
        there, whatever their names lead to meanwhile. Raises ExecutorError if it is not there any more."""
        path = self.as_opened(path)
        for each in self.opened:
            if path == each.path or each.path in path.parents:
                with each.entered(path.relative_to(each.path)) as place:
                    yield place
                return
        yield path

    def resolve(self, text: str) -> Path:
        """Resolves a path given to a tool. Raises ToolError if it is malformed or outside."""
        return self._inside(text, self.absolute(text))

    def entry(self, text: str) -> Path:
        """The same for the entry itself: a link in the last component is not followed."""
        named = self.cwd / self._literal(_checked(text))
        if named.name in ("", "..") or self.holds_root(named):
            return self.resolve(text)
        return self._inside(text, self._real_path(text, named.parent) / named.name)

    def _inside(self, text: str, path: Path) -> Path:
        if _kernels_own(path):
            raise ToolError(
                f"{text} is in a kernel file system (/proc, /sys, /dev), where tools do not read or write.",
                "policy_blocked",
                suggestion="Use a `bash` command if you must.",
            )
        if not self.contains(path):
            folders = ", ".join(str(root) for root in self.all)
            raise ToolError(
                f"{text} is outside this session's folders ({folders}); only paths in them can be used.",
                "policy_blocked",
                suggestion="Use a path in one of these folders; only the user can add another.",
            )
        return path

    def absolute(self, text: str) -> Path:
        """The same without checking that it is inside. A `file://` URI stands for its path."""
        return self._real_path(text, self.cwd / self._literal(_checked(text)))

    def _literal(self, text: str) -> str:
        """Raises ToolError for shell syntax, which would otherwise create a folder of that name."""
        first = text.partition("/")[0]
        if EXPANDED.fullmatch(first) and ("/" in text or first == "~") and not self.disk.stands(self.cwd / first):
            raise ToolError(
                f"`{first}` is not expanded, and nothing has that name here; give an absolute path, or one relative to "
                f"the working directory.",
                "invalid_parameters",
            )
        return text

    def _real_path(self, text: str, path: Path) -> Path:
        try:
            found = self.disk.real_path(path)
        except (OSError, RuntimeError) as error:
            reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
            raise ToolError(f"{_short(text)} cannot be resolved: {reason[:1].lower()}{reason[1:]}.") from error
        if len(os.fsencode(found)) > MAX_PATH_BYTES:
            raise ToolError(
                f"{_short(text)} cannot be resolved: the absolute path is longer than {MAX_PATH_BYTES} bytes.",
                "invalid_parameters",
            )
        return found

    def placed(self, uri: str) -> str:
        """A URI of the client's, which may name a file of the session as it is on this machine."""
        if not uri.startswith(FILE_URI):
            return uri
        path = Path(_path_of(uri))
        for client, ours in zip(self._named, self.all, strict=True):
            if path.is_relative_to(client):
                return (ours / path.relative_to(client)).as_uri()
        return uri

    def named(self, text: str) -> Path:
        """The absolute path named by a text, for display: not resolved, not checked, never an error."""
        path = _path_of(text)
        return self.cwd / path if path.isprintable() else self.cwd

    def contains(self, path: Path) -> bool:
        """Whether a resolved path is one of the roots or below one, and not one of the kernel's."""
        return not _kernels_own(path) and any(path == root or root in path.parents for root in self.real)

    def in_project(self, path: Path) -> bool:
        """Whether a resolved path is below the working directory rather than an additional one."""
        return self.real[0] in path.parents

    def is_root(self, path: Path) -> bool:
        return path in self.real

    def holds_root(self, path: Path) -> bool:
        """Whether the path is a folder of the session, by any of its names, or above one."""
        return any(path == root or path in root.parents for root in (*self.real, *self._names))

    def display(self, path: Path) -> str:
        """Path for display: relative to the working directory if below it."""
        base = self.real[0]
        if path == base:
            return "."
        return str(path.relative_to(base)) if base in path.parents else str(path)


def _checked(text: str) -> str:
    """The path in a tool's argument. Raises ToolError if it cannot be one."""
    if host := _other_host(text):
        raise ToolError(
            f"The URI names a file on another machine ({_short(host)}); only local files can be used.",
            "invalid_parameters",
            suggestion="Give a path, or a URI of the form file:///path.",
        )
    text = _path_of(text)
    if not text:
        raise ToolError(
            "The path is empty.",
            "invalid_parameters",
            suggestion="Give a path relative to the working directory, or an absolute one.",
        )
    if "\0" in text:
        raise ToolError("The path holds a NUL character.", "invalid_parameters")
    try:
        size = len(text.encode("utf-8"))
    except UnicodeEncodeError as error:
        raise ToolError(
            "The path contains characters that cannot be encoded in UTF-8.", "invalid_parameters"
        ) from error
    if size > MAX_PATH_BYTES:
        raise ToolError(f"The path is longer than {MAX_PATH_BYTES} bytes.", "invalid_parameters")
    longest = max(len(name.encode("utf-8")) for name in text.split("/"))
    if longest > MAX_NAME_BYTES:
        raise ToolError(
            f"{_short(text)} cannot be resolved: a name in it has {longest} bytes, more than the maximum of "
            f"{MAX_NAME_BYTES}.",
            "invalid_parameters",
        )
    return text


def path_and_lines(uri: str) -> tuple[str, str]:
    """The path of a `file://` URI, and the place in the file that it names, as `L10`."""
    _, slash, path = uri.removeprefix(FILE_URI).partition("/")
    lines = LINES.search(path)
    name = path if lines is None else path[: lines.start()]
    return unquote(slash + name, errors="surrogateescape"), "" if lines is None else lines[0][1:]


def _path_of(text: str) -> str:
    return path_and_lines(text)[0] if text.startswith(FILE_URI) else text


def _other_host(text: str) -> str:
    """The machine named by a `file://` URI, if not this one. Raises ToolError for an invalid URI."""
    if not text.startswith(FILE_URI):
        return ""
    try:
        host = urlsplit(text).netloc
    except ValueError as error:
        raise ToolError(f"{_short(text)} is not a valid file:// URI: {error}.", "invalid_parameters") from error
    return "" if host.lower() == "localhost" else host


def _short(text: str) -> str:
    """A path for a message: long ones are shortened in the middle."""
    return text if len(text) <= 200 else f"{text[:100]}...{text[-80:]}"


def _kernels_own(path: Path) -> bool:
    parts = path.parts
    return parts[1:2] in KERNELS_OWN_PARTS and parts[: len(PLAIN_MEMORY.parts)] != PLAIN_MEMORY.parts


def real_path(path: Path) -> Path:
    """As `Disk.real_path`, on this machine's."""
    return HERE.real_path(path)


def read_regular(path: str | Path, limit: int, folder: int | None = None) -> bytes | None:
    """Contents of a regular file of at most `limit` bytes whose last component is no link; `None` for anything else.
    `folder`: a handle of the one that `path` is relative to.

    For unchecked files of a project: never waits for a pipe or reads a device. Raises OSError.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        return None
    with open(descriptor, "rb") as file:
        data = file.read(limit + 1)
    return data if len(data) <= limit else None
