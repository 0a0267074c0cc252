"""The contracts of what is behind the tools: `Commands` run, `Files` are read, written and looked at.

Tools depend on this module and never on a backend.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Generic, Literal, Protocol, TypeVar

from msgspec import Struct, field

from acp_agent.errors import ExecutorError
from acp_agent.executors.encodings import UTF8, Encoding

if TYPE_CHECKING:
    from acp_agent.executors.terminals.pseudo_terminal import Pty

NO_NETWORK = "There is no network."
BY_PROXY = (
    "It reaches the network only through the proxy named by HTTPS_PROXY, HTTP_PROXY and ALL_PROXY, and cannot look up "
    "names itself: a program that ignores these variables has no network; configure it to use the proxy. Its localhost "
    "is its own: of this machine's services it finds only those in `tools.sandbox.loopback_ports`, which the user sets."
)
ONLY_WRITABLE = "`tools.sandbox.writable`"
NO_GIT = "Git in commands cannot use the repository here"
"""Parts of the text about a sandbox's limits."""

StreamName = Literal["stdout", "stderr"]
EntryKind = Literal["file", "dir", "symlink", "other"]
Doing = Literal["read", "write", "delete"]
Judged = Callable[[Doing, Path, int], None]
"""Raises ExecutorError if that must not happen to an entry of a tree; the last is its mode, as from `stat`."""


class Network(Struct, frozen=True):
    """How a confined command reaches the network: only through a proxy of ours."""

    env: Mapping[str, str]
    """Variables that make programs use the proxy."""
    closed: Callable[[], str]
    """To be called once the command has ended; what there is to say of its connections then. Idempotent."""
    readable: tuple[Path, ...] = ()
    """Files that it may read besides: the certificates to trust."""
    doors: tuple[str, ...] = ()
    """Files of the namespaces whose network it enters."""
    port: int = 0
    """Without namespaces: the only port that it may connect to."""


class TerminalSize(Struct, frozen=True):
    """A terminal of its own for a command."""

    columns: int
    rows: int
    history: int
    """Lines kept that have scrolled off."""


class Command(Struct, frozen=True):
    """A bash command line, exactly as the model wrote it."""

    script: str
    cwd: Path
    """Absolute."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Set on top of the backend's own environment."""
    output_limit: int = 10_485_760
    """Bytes of output kept per stream; the rest is dropped from the middle (local) or the start (editor)."""
    state_file: Path | None = None
    """Where the shell's working directory and exported variables are stored between commands. The command starts from
    that state and saves its own there at the end (see `shell_state`)."""
    keeps_state: bool = True
    """Whether it saves its state: not if it may end while other commands run."""
    confined: bool = True
    """Whether the sandbox, if any, confines it. False: the user allowed it outside."""
    network: Callable[[], Network] | None = None
    """Opens its way to the network; `None`: it has what the configuration says, which is all or nothing."""
    login: bool = False
    """Whether its shell is a login shell."""
    terminal: TerminalSize | None = None
    """It runs in a terminal that can be typed into, never in one of the editor's."""
    opened: Pty | None = None
    """That terminal, if it is there already; it is closed with the command."""
    stdin: bytes = b""
    """What an unconfined command on this machine reads; others, and those with a terminal, read nothing."""


def shell_options(command: Command) -> tuple[str, ...]:
    """Of the shell that runs it."""
    return ("-l",) if command.login else ()


class ExitStatus(Struct, frozen=True):
    """How a command ended, as in ACP's `TerminalExitStatus`. Both `None`: unknown."""

    exit_code: int | None = None
    signal: str | None = None


class OutputChunk(Struct, frozen=True):
    stream: StreamName
    text: str


class TerminalView(Struct, frozen=True):
    """A terminal the client can show live inside a tool call."""

    terminal_id: str
    """An id this connection created by `terminal/create`."""


class Foreground(Struct, frozen=True):
    """What gets the keys that are typed into a terminal."""

    program: str
    """Its name; empty if unknown."""
    group: int
    """Its process group; 0 if unknown."""
    prompts: bool
    """Whether it is a shell that takes command lines, not one that runs a script."""
    folder: Path | None
    """Its working directory, if known."""
    behind: bool = False
    """Whether a shell that takes command lines waits for it to end: that gets what it leaves unread."""


class Terminal(Protocol):
    """A terminal of a command's own. Its rows are numbered from 0, the topmost that is shown; negative ones have
    scrolled off."""

    pending: str | None
    """What was typed into a shell's line since it was empty; `None` where that cannot be known."""

    def text(self) -> str:
        """All that is kept, as lines; those that went on in the next row are one."""
        ...

    def rows(self, *, join: bool = False, keep_spaces: bool = False) -> tuple[list[str], int]:
        """All that are kept, without empty ones at the end, and how many of them have scrolled off. `join`: those that
        go on in the next are one. `keep_spaces`: at their ends."""
        ...

    @property
    def alternate(self) -> bool:
        """Whether a full-screen program shows its own screen."""
        ...

    @property
    def application_keys(self) -> bool:
        """Whether the program wants the arrow keys in their other form (DECCKM)."""
        ...

    @property
    def interrupts(self) -> bool:
        """Whether `^C` is a signal, not a character like others."""
        ...

    def foreground(self) -> Foreground: ...

    async def type(self, data: bytes) -> None:
        """Raises ExecutorError if nothing reads it any more."""
        ...

    async def captured(self, *flags: str) -> str | None:
        """What tmux shows of it, if it is in tmux; `flags`: of its `capture-pane`. Raises ExecutorError."""
        ...

    def force(self) -> bool:
        """Ends what runs in front of its shell; false where that cannot be seen."""
        ...

    async def settled(self, quiet: float, most: float) -> None:
        """Waits until nothing has been printed for `quiet` seconds or the command has ended, at most `most` seconds."""
        ...


class Process(Protocol):
    """A started command. `close()` must be called once it is no longer shown; it is idempotent and kills running
    processes."""

    view: TerminalView | None
    """The terminal that the client shows live itself; `None` if output must be reported to it."""
    terminal: Terminal | None
    """The terminal it was started in, if it has one of its own."""
    remark: str
    """Once it has ended: what the sandbox did not take over of its changes; empty if there is nothing to say."""

    def output(self) -> AsyncIterator[OutputChunk]:
        """Chunks in the order of arrival, ending with the command. Only one task may iterate at a time; iterating again
        after an early stop continues."""
        ...

    async def wait(self) -> ExitStatus:
        """The exit status, once the command has ended and its output is complete."""
        ...

    async def look(self) -> None:
        """Updates `stdout`, `stderr` and `combined` while the command runs and its output is not being iterated."""
        ...

    async def kill(self) -> None:
        """Ends the command and everything it started. Returns when its output is final; never waits without bound."""
        ...

    async def close(self) -> None:
        """Kills if needed and releases the backend's resources."""
        ...

    @property
    def stdout(self) -> str:
        """The part of stdout that was kept (of both streams, if the backend cannot distinguish them)."""
        ...

    @property
    def stderr(self) -> str: ...

    @property
    def combined(self) -> str:
        """Both streams interleaved in the order of arrival."""
        ...

    @property
    def truncated(self) -> bool: ...

    @property
    def lost(self) -> str:
        """Which part of `combined` was not kept, in words; empty if all was."""
        ...


class FileVersion(Struct, frozen=True):
    """The text of a file at one moment."""

    text: str
    """As the editor has it, unsaved changes included, else as on the disk; without a byte order mark."""
    digest: bytes | None = None
    """SHA-256 of the file on the disk; `None`: there is none."""
    encoding: Encoding = UTF8
    """Of the file on the disk."""
    remark: str = ""
    """What there is to say of the encoding, or of how it was written; empty for UTF-8."""

    def lacks(self, text: str) -> str:
        """The encoding and which character of `text` it has not, in words; empty if it has all."""
        try:
            text.encode(self.encoding.codec)
        except UnicodeEncodeError as error:
            if self.encoding != UTF8:
                return f"{self.encoding.name}, which has no {text[error.start]!r}"
        return ""

    def is_on_disk(self, digest: bytes | None) -> bool:
        """Whether the file on the disk with that digest (`None`: there is none) is the one it was, or what the editor
        showed and has saved."""
        if digest == self.digest:
            return True
        return self is not NO_FILE and digest == digest_of(self.text.encode("utf-8", "replace"))

    def is_still(self, now: FileVersion | None) -> bool:
        """Whether nobody has changed the file: the text is the same, and so is the file, unless the editor saved it.
        `None`: there is none."""
        if now is None:
            return self is NO_FILE
        return now.text == self.text and self.is_on_disk(now.digest)


NO_FILE = FileVersion("")
"""What is expected where there is nothing."""


def digest_of(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


class ChangedMeanwhile(ExecutorError):
    """Somebody else has changed the file."""

    def __init__(self, path: Path) -> None:
        super().__init__(f"{path} was changed by someone else in the meantime, so nothing was written")


class FileStat(Struct, frozen=True):
    kind: EntryKind
    """By lstat: a link is a link, whatever it points to."""
    size: int
    """Bytes."""


class FindQuery(Struct, frozen=True):
    pattern: str
    """A glob as in `.gitignore`: without a slash it matches at any depth."""
    root: Path
    max_results: int
    timeout: float
    """Seconds; after that, what was found so far is returned."""


class GrepQuery(Struct, frozen=True):
    pattern: str
    """A regular expression, in Python's or ripgrep's dialect, or (`Found.note`) in another."""
    root: Path
    """A folder, or one file."""
    case_sensitive: bool
    max_results: int
    timeout: float
    glob: str | None = None
    """Only files that match."""
    skips: Callable[[Path], bool] | None = None
    """Which files below the folder are left out."""


class Match(Struct, frozen=True):
    path: Path
    line: int | None
    """1-based; `None` for a found path."""
    text: str
    """The line, bounded; for a found path its kind."""


class Found(Struct, frozen=True):
    matches: tuple[Match, ...]
    truncated: bool
    """Whether there are more."""
    timed_out: bool
    note: str = ""
    """How it was searched, where that is otherwise than promised: without `.gitignore`, in another dialect."""
    left_out: tuple[Path, ...] = ()
    """Files that were not searched as they are too large: the first ones."""
    unread: tuple[Path, ...] = ()
    """Files and folders that were not searched as they cannot be read: the first ones."""
    unread_count: int = 0
    """How many there are."""


class Listing(Struct, frozen=True):
    entries: tuple[tuple[str, EntryKind], ...]
    """Names and kinds (by lstat), sorted by name."""
    more: int
    """How many are not listed; what is hidden counts, too."""


class PartQuery(Struct, frozen=True):
    first: int
    """Number of the first line, from 1; below 0: from the end."""
    lines: int
    bytes: int
    """At most so many of both."""
    skip: int = 0
    """Bytes of the first line that are left out."""
    timeout: float = 30.0
    """Seconds in which the line must be found."""


class Part(Struct, frozen=True):
    first: int
    """Below 0 where it is known only from the end."""
    size: int
    """Of the file, in bytes."""
    text: str
    used: int
    """Bytes of the file that are in it."""
    cut: bool
    """Whether there were more than asked for."""


class Tally(Struct, frozen=True):
    """Counts of what was removed, moved or copied."""

    files: int = 0
    folders: int = 0
    links: int = 0
    bytes: int = 0
    """Of the files."""

    def __str__(self) -> str:
        counts = ((self.files, "file"), (self.folders, "folder"), (self.links, "link"))
        words = ", ".join(f"{count} {name}{'s' if count > 1 else ''}" for count, name in counts if count)
        return (f"{words}, {self.bytes} bytes" if self.files else words) or "nothing"


class Offer(Struct, frozen=True):
    """The operations that the editor offers and the configuration lets us use, each by itself (FS-1, TERM-1)."""

    terminal: bool = False
    read_text: bool = False
    write_text: bool = False


class Commands(Protocol):
    """Where command lines run."""

    async def run(self, command: Command) -> Process:
        """Starts the command; an ExecutorError means it did not start."""
        ...

    async def close(self) -> None:
        """Ends everything that commands left running, and what was made for them."""
        ...


class Files(Protocol):
    """Where files are. All paths are absolute and resolved: exactly what was checked is opened, and a link that has
    appeared since is an error.

    So is anything but a regular file, and what the configuration hides; listings and searches omit that. Raises
    ExecutorError with a message, FileNotFoundError if a file is missing.
    """

    async def read(self, path: Path) -> FileVersion:
        """The editor's text (unsaved changes included) if it has one, else the file's, in whatever encoding.

        Raises FileNotFoundError; UnicodeDecodeError for a binary file, its `reason` saying of which kind.
        """
        ...

    async def read_bytes(self, path: Path, limit: int) -> bytes:
        """Reads at most `limit` bytes from the disk."""
        ...

    async def read_part(self, path: Path, query: PartQuery) -> Part:
        """Reads lines from the disk, of a file of any size."""
        ...

    async def write(
        self, path: Path, text: str, expected: FileVersion | None = None, *, again: bool = True
    ) -> FileVersion:
        """Writes once, creating parents, and verifies the result, whose text differs if an editor formats on saving.

        `expected`: what is there, `NO_FILE` for nothing; raises ChangedMeanwhile for anything else. `again`: whether
        the editor is asked for its text again; not if `expected` is of a moment ago.
        """
        ...

    async def stat(self, path: Path) -> FileStat | None:
        """`None` if it does not exist."""
        ...

    async def list(self, path: Path, most: int | None = None) -> Listing:
        """The first entries of a directory, at most so many."""
        ...

    async def find(self, query: FindQuery) -> Found:
        """Files and folders by name. `.gitignore` is respected, unless `Found.note` says otherwise; links are not
        followed."""
        ...

    async def grep(self, query: GrepQuery) -> Found:
        """Lines of files on disk, by pattern. `.gitignore` is respected, unless `Found.note` says otherwise; links
        are not followed."""
        ...

    async def make_directory(self, path: Path) -> int:
        """Creates a folder and its parents; returns how many were created (0: it existed)."""
        ...

    async def remove(self, path: Path, *, max_entries: int, judged: Judged | None = None) -> Tally:
        """Deletes a file, a link (not its target), or a folder with everything in it.

        As with `move` and `copy`: `path` is resolved except for its last name; nothing is done if there are more than
        `max_entries` entries; no link is followed, not even one that appears in the meantime; and it can be cancelled
        between two entries. `judged` is asked about each entry right before it is touched, at each place where it goes
        or appears; if it raises, nothing is done, or what was done is undone as far as possible.
        """
        ...

    async def move(
        self, source: Path, destination: Path, *, overwrite: bool, max_entries: int, judged: Judged | None = None
    ) -> Tally:
        """Renames it, creating parents; copies to another file system, and nothing is lost if that fails.

        With `overwrite` a file replaces a file and a folder a whole folder; never one the other.
        """
        ...

    async def copy(
        self, source: Path, destination: Path, *, overwrite: bool, max_entries: int, judged: Judged | None = None
    ) -> Tally:
        """Copies with modes and times, links as links; all or nothing. `overwrite` as with `move`."""
        ...


class Closes(Protocol):
    async def close(self) -> None: ...


Made = TypeVar("Made", bound=Closes)


class Late(Generic[Made]):
    """What the first call that needs it makes: loading it takes longer than a first answer should wait."""

    def __init__(self, make: Callable[[], Made]) -> None:
        self._make = make

    @cached_property
    def made(self) -> Made:
        return self._make()

    async def close(self) -> None:
        if "made" in vars(self):
            await self.made.close()
