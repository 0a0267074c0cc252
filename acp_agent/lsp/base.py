"""The contract of language servers: requests to them, and how one is started. Cheap to import: without pygls.

Positions are LSP's: lines and characters from 0, characters in UTF-16 code units.
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
    """A language server is unavailable or failed; the text is for the model and the user."""


class Document(Struct, frozen=True):
    """A file with the text that it has now, whether or not that is saved."""

    path: Path
    """Absolute."""
    text: str


class Launch(Struct, frozen=True):
    """A server as it is to be started."""

    argv: Sequence[str]
    cwd: Path
    env: Mapping[str, str]
    """The whole environment."""
    pass_fds: tuple[int, ...] = ()
    started: Callable[[], None] = lambda: None
    """To be called once the process was started, or could not be."""
    close: Callable[[], None] = lambda: None
    """To be called once it has ended, or could not be started."""


Launcher = Callable[[Sequence[str], Path], Awaitable[Launch]]
"""Returns a command line and the workspace's folder what it needs to run there. Raises LspError where it must not
run."""


class NewErrors(Struct, frozen=True):
    """The errors that an edit has caused."""

    errors: Sequence[tuple[Path, lsp.Diagnostic]] = ()
    """Errors that were not there before, also of other files that the servers watch; the edited file first."""
    waiting: Sequence[str] = ()
    """Servers that did not answer in time."""


class Report(Struct, frozen=True):
    """The diagnostics of some files."""

    items: Sequence[lsp.FileDiagnostics] = ()
    sources: Sequence[str] = ()
    """The servers that answered."""
    trouble: Sequence[str] = field(default=())
    """Problems, a sentence each."""


class LanguageServices(Protocol):
    """The language servers of a session, the editor's or the agent's own. Every wait is bounded.

    All but `watch` and `new_errors` raise LspError (also where no server is known for the file's language).
    """

    @property
    def config(self) -> LspConfig:
        """The limits of what is reported."""
        ...

    def watch(self, document: Document) -> None:
        """The file is of interest: its servers start, beside everything else, and look at it. Never fails or waits."""
        ...

    async def new_errors(self, before: Document | None, after: Document) -> NewErrors:
        """The errors caused by a change to a file, as far as they are known in time. Never fails.

        `before`: as it was; None for a file that is new."""
        ...

    async def diagnostics(self, documents: Sequence[Document]) -> Report: ...

    async def definition(self, document: Document, at: lsp.Position) -> list[lsp.Location]: ...

    async def references(self, document: Document, at: lsp.Position) -> list[lsp.Location]:
        """The declaration among them."""
        ...

    async def hover(self, document: Document, at: lsp.Position) -> lsp.Hover | None: ...

    async def document_symbols(self, document: Document) -> list[lsp.DocumentSymbol]: ...

    async def workspace_symbols(self, query: str, near: Document | None = None) -> list[lsp.WorkspaceSymbol]:
        """Of all servers that run; `near` starts those of its language."""
        ...

    async def rename(
        self, document: Document, at: lsp.Position, new_name: str, others: Sequence[Document] = ()
    ) -> lsp.WorkspaceEdit:
        """Returns what renaming would change, in all files; nothing is changed. It is computed for `document` and
        `others` as they are given, of other files as the server knows them, which may not be as they are."""
        ...

    def knows(self, path: Path) -> bool:
        """Whether there may be a server for the file, by its name."""
        ...
