"""The interface to language servers: requests, and how servers are started. Cheap to import: without pygls.

Positions are LSP's: zero-based lines and characters, characters in UTF-16 code units.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct, field

from acp_agent.errors import AgentError

if TYPE_CHECKING:
    from acp_agent.config.language_settings import LspConfig
    from acp_agent.schema import lsp_types as lsp


class LspError(AgentError):
    """A language server is unavailable or failed; the message is for the model and the user."""


class Document(Struct, frozen=True):
    """A file with its current text, saved or not."""

    path: Path
    """Absolute."""
    text: str


class Launch(Struct, frozen=True):
    """How to start a server."""

    argv: Sequence[str]
    cwd: Path
    env: Mapping[str, str]
    """The complete environment."""
    pass_fds: tuple[int, ...] = ()
    started: Callable[[], None] = lambda: None
    """Call once the process has started, or could not."""
    close: Callable[[], object] = lambda: None
    """Call once it has ended, or could not be started."""


Launcher = Callable[[Sequence[str], Path], Awaitable[Launch]]
"""Takes a command line and the workspace's folder, and returns how to run it. Raises LspError if it must not run."""


class NewErrors(Struct, frozen=True):
    """Errors caused by an edit."""

    errors: Sequence[tuple[Path, lsp.Diagnostic]] = ()
    """Errors that did not exist before, including those in other files the servers watch; the edited file first."""
    waiting: Sequence[str] = ()
    """Servers that did not answer in time."""


class Report(Struct, frozen=True):
    """Diagnostics of some files."""

    items: Sequence[lsp.FileDiagnostics] = ()
    sources: Sequence[str] = ()
    """The servers that answered."""
    trouble: Sequence[str] = field(default=())
    """Problems, one sentence each."""


class LanguageServices(Protocol):
    """The language servers of a session, either the editor's or the agent's own. Every wait has a timeout.

    All methods but `watch` and `new_errors` raise LspError (also if no server is known for the file's language).
    """

    @property
    def config(self) -> LspConfig:
        """Limits for reports."""
        ...

    def watch(self, document: Document) -> None:
        """Marks the file as of interest: its servers start in the background and analyse it. Never fails or waits."""
        ...

    async def new_errors(self, before: Document | None, after: Document) -> NewErrors:
        """Returns the errors caused by a change to a file, as far as known in time. Never fails.

        `before`: the old state; None for a new file."""
        ...

    async def diagnostics(self, documents: Sequence[Document]) -> Report: ...

    async def definition(self, document: Document, at: lsp.Position) -> list[lsp.Location]: ...

    async def references(self, document: Document, at: lsp.Position) -> list[lsp.Location]:
        """Includes the declaration."""
        ...

    async def hover(self, document: Document, at: lsp.Position) -> lsp.Hover | None: ...

    async def document_symbols(self, document: Document) -> list[lsp.DocumentSymbol]: ...

    async def workspace_symbols(self, query: str, near: Document | None = None) -> list[lsp.WorkspaceSymbol]:
        """Asks all running servers; `near` starts those of its language."""
        ...

    async def rename(
        self, document: Document, at: lsp.Position, new_name: str, others: Sequence[Document] = ()
    ) -> lsp.WorkspaceEdit:
        """Returns what renaming would change, in all files; changes nothing. Computed for `document` and `others` as
        given, and for other files as the server knows them, which may be outdated."""
        ...

    def knows(self, path: Path) -> bool:
        """Whether there may be a server for the file, judging by its name."""
        ...
