"""The language servers of a session: the editor's if it offers them (`_lsp/*`), else the agent's own.

Nothing is loaded or started before the first request: the agent's own servers (`acp_agent.lsp`) need a library that is
slow to load.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import anyio
import anyio.to_thread
from msgspec.structs import replace

from acp_agent.config.language_settings import LspConfig
from acp_agent.config.model import FilesConfig
from acp_agent.errors import AgentError
from acp_agent.executors.base import Files
from acp_agent.lazy import load
from acp_agent.loop.outbox import Outbox
from acp_agent.loop.published import Published
from acp_agent.lsp.base import Document, Launch, LspError, NewErrors, Report
from acp_agent.lsp.known_servers import ServerRow, any_installed, language_of, rows, which
from acp_agent.lsp.uris import uri_of
from acp_agent.safety.folders.paths import Roots
from acp_agent.schema import lsp_types as lsp
from acp_agent.tools.kit.shown_documents import load_documents, source_files

if TYPE_CHECKING:
    from acp_agent.limits.shares import Share
    from acp_agent.loop.shell.folder_sandbox import FolderSandbox
    from acp_agent.lsp.own_servers import OwnServers


log = logging.getLogger(__name__)

T = TypeVar("T")

OWN_SERVERS = "acp_agent.lsp.own_servers:OwnServers"
NEW_ERRORS = "acp_agent.lsp.compare:new_errors"

CLOSE_SECONDS = 5.0
"""Seconds for the servers to end; they are killed well before."""

LOOK_AGAIN = 30.0
"""Seconds after which installed servers are searched for again: each request to the model offers the tools."""

EDITOR_WAIT = 1.0
"""Maximum seconds for the editor's servers to publish again after a change: they may not."""
EDITOR_SETTLES = 0.15
"""Seconds from an editor's first publication after a change to the answer: servers publish in parts."""

NOT_HERE = "No language server is available: the editor offers none, and the agent starts none (`lsp.own_servers`)."


class Languages:
    """Implements `LanguageServices`. `live` runs beside the turns until cancelled. `share`: what each server takes one
    of. `environ`: the servers' environment."""

    def __init__(
        self,
        outbox: Outbox,
        config: LspConfig,
        roots: Roots,
        sandbox: FolderSandbox,
        share: Share,
        environ: Mapping[str, str],
        published: Published,
        spawn: Callable[[Coroutine[Any, Any, None]], None],
    ) -> None:
        self._share = share
        self._client = outbox.client
        self._outbox = outbox
        self.config = config
        self._roots = roots
        self._sandbox = sandbox
        self._environ = environ
        self._published = published
        self._spawn = spawn
        self._rows = rows(config)
        self._installed: dict[str, bool] = {}
        self._programs, self._programs_until = False, 0.0
        self._own: OwnServers | None = None
        self._needed = anyio.Event()
        self._ready = anyio.Event()
        self._over = anyio.Event()
        self._scope = anyio.CancelScope()
        self._before: dict[Path, _Baseline] = {}

    # --- life -------------------------------------------------------------------------------------------------

    async def live(self) -> None:
        """Starts the agent's own servers once they are needed; stops them when it is cancelled, or by `close`."""
        try:
            with self._scope:
                await anyio.to_thread.run_sync(self._look_for_programs)  # The first prompt does not wait for it.
                await self._run()
        finally:
            self._over.set()
            self._ready.set()

    async def close(self) -> None:
        """Stops the servers, bounded: those that do not end by themselves are killed."""
        self._scope.cancel()
        with anyio.move_on_after(CLOSE_SECONDS):
            if self._needed.is_set():
                await self._over.wait()

    async def _run(self) -> None:
        await self._needed.wait()
        make = await anyio.to_thread.run_sync(load, OWN_SERVERS)
        self._own = own = make(
            self.config,
            self._roots.real,
            self._launch,
            environ=self._environ,
            hides=self._roots.rules.hides,
            tell=self._outbox.tell,
        )
        self._ready.set()
        await own.run()

    async def _launch(self, argv: Sequence[str], cwd: Path) -> Launch:
        if why := self._share.take():
            raise LspError(f"The language server was not started: {why}")
        try:
            launch = await self._sandbox.launch(argv, cwd, unconfined=self.config.unconfined)
        except BaseException:
            self._share.give()
            raise

        def close() -> None:
            self._share.give()
            launch.close()

        return replace(launch, close=close)

    def _forbidden(self) -> str | None:
        """Why no server is started, as far as that is known."""
        return self._sandbox.no_servers(unconfined=self.config.unconfined)

    async def _servers(self) -> OwnServers:
        """Raises LspError if they are turned off."""
        if not self.config.own_servers:
            raise LspError(NOT_HERE)
        await self._sandbox.ready()
        if (reason := self._forbidden()) is not None:
            raise LspError(reason)
        self._needed.set()
        await self._ready.wait()
        if self._own is None or self._over.is_set():
            raise LspError("The language servers have ended; a new session starts new ones.")
        return self._own

    def missing(self) -> str | None:
        """Why the language server tools are not offered; None if they are."""
        if not self._roots.disk.here:
            return self._forbidden()
        if self._client.answers("_lsp/definition"):
            return None
        if not self.config.own_servers:
            return NOT_HERE
        if (reason := self._forbidden()) is not None:
            return reason
        if self._programs_until < time.monotonic():
            self._look_for_programs()
        if self._programs:
            return None
        return "No language server for files near the top of the folders is installed: see docs/language-servers.md."

    def _look_for_programs(self) -> None:
        self._programs = any_installed(self._rows, self._roots.real, self._environ)
        self._programs_until = time.monotonic() + LOOK_AGAIN

    def states(self) -> Sequence[str]:
        """A line for each of the agent's own servers, for the user."""
        if self._own is None:
            return ()
        return [
            f"Language server `{state.name}` in {self._roots.display(state.folder)}: {state.state}"
            + (f" ({state.trouble})" if state.trouble else "")
            for state in self._own.states()
        ]

    # --- LanguageServices -------------------------------------------------------------------------------------

    def knows(self, path: Path) -> bool:
        return self._served(path) or self._asks("_lsp/diagnostics")

    def watch(self, document: Document) -> None:
        if not self._roots.contains(document.path):
            return
        if self._asks("_lsp/diagnostics"):
            revision = self._published.cache().revision(uri_of(document.path))
            self._before[document.path] = _Baseline(document.text, revision)
            self._spawn(self._remember(document.path, self._before[document.path]))
        elif self._served(document.path):
            self._spawn(self._watch(document))

    async def _watch(self, document: Document) -> None:
        try:
            (await self._servers()).watch(document)
        except LspError as error:
            log.info("%s is not looked at: %s", document.path, error)

    async def new_errors(self, before: Document | None, after: Document) -> NewErrors:
        if not self.config.edit_wait or not self._roots.contains(after.path):
            return NewErrors()
        if self._asks("_lsp/diagnostics"):
            return await self._new_in_editor(before, after)
        if not self._served(after.path):
            return NewErrors()
        with anyio.move_on_after(self.config.edit_wait):
            try:
                return await (await self._servers()).new_errors(before, after)
            except LspError as error:
                log.info("%s: no errors are known: %s", after.path, error)
                return NewErrors()
        self._spawn(self._watch(after))  # They look at it all the same, once they are there.
        return NewErrors(waiting=["the language servers"])

    async def diagnostics(self, documents: Sequence[Document]) -> Report:
        if not self._asks("_lsp/diagnostics"):
            return await (await self._servers()).diagnostics(documents)
        items: list[lsp.FileDiagnostics] = []
        for document in documents:
            items += (await self._editor(self._client.diagnostics(uri_of(document.path)))).items
        return Report(items, ["the editor"])

    async def of_project(self, seen: Sequence[Path], files: Files, config: FilesConfig) -> Report:
        """The diagnostics of the files the model has seen, else of the whole project, up to the limit."""
        most = self.config.max_diagnostic_files
        paths = [path for path in seen if self.knows(path)]
        if not paths:
            paths = await source_files(self, self._roots.real[0], files, config)
        if not paths:
            return Report(trouble=["No language server is known for any file here."])
        documents = await load_documents(paths[:most], files, self.config.max_file_bytes)
        report = await self.diagnostics(documents)
        left_out = [f"{len(paths) - most} more files were not checked."] if len(paths) > most else []
        return replace(report, trouble=[*report.trouble, *left_out])

    async def definition(self, document: Document, at: lsp.Position) -> list[lsp.Location]:
        if not self._asks("_lsp/definition"):
            return await (await self._servers()).definition(document, at)
        return await self._editor(self._client.definition(uri_of(document.path), at.line, at.character))

    async def references(self, document: Document, at: lsp.Position) -> list[lsp.Location]:
        if not self._asks("_lsp/references"):
            return await (await self._servers()).references(document, at)
        return await self._editor(self._client.references(uri_of(document.path), at.line, at.character))

    async def hover(self, document: Document, at: lsp.Position) -> lsp.Hover | None:
        if not self._asks("_lsp/hover"):
            return await (await self._servers()).hover(document, at)
        return await self._editor(self._client.hover(uri_of(document.path), at.line, at.character))

    async def document_symbols(self, document: Document) -> list[lsp.DocumentSymbol]:
        if not self._asks("_lsp/documentSymbols"):
            return await (await self._servers()).document_symbols(document)
        return await self._editor(self._client.document_symbols(uri_of(document.path)))

    async def workspace_symbols(self, query: str, near: Document | None = None) -> list[lsp.WorkspaceSymbol]:
        if not self._asks("_lsp/workspaceSymbols"):
            return await (await self._servers()).workspace_symbols(query, near)
        return await self._editor(self._client.workspace_symbols(query))

    async def rename(
        self, document: Document, at: lsp.Position, new_name: str, others: Sequence[Document] = ()
    ) -> lsp.WorkspaceEdit:
        if not self._asks("_lsp/rename"):
            return await (await self._servers()).rename(document, at, new_name, others)
        return await self._editor(self._client.rename(uri_of(document.path), at.line, at.character, new_name))

    def _served(self, path: Path) -> bool:
        """Whether one of the agent's own servers is for the file, and installed."""
        return (
            self.config.own_servers
            and self._forbidden() is None
            and any(language_of(row, path) is not None and self._is_installed(row, path.parent) for row in self._rows)
        )

    def _is_installed(self, row: ServerRow, near: Path) -> bool:
        """Searched for again as long as it is missing."""
        if not self._installed.get(row.name):
            top = next((root for root in self._roots.real if near.is_relative_to(root)), near)
            self._installed[row.name] = which(row.command[0], near, top, self._environ) is not None
        return self._installed[row.name]

    # --- the editor's servers ---------------------------------------------------------------------------------

    def _asks(self, method: str) -> bool:
        return self._roots.disk.here and self._client.answers(method)

    async def _editor(self, asked: Coroutine[Any, Any, T]) -> T:
        """Raises LspError for any reason the editor does not answer."""
        try:
            return await asked
        except TimeoutError as error:
            raise LspError(f"The editor's language server did not answer: {error}") from error
        except AgentError as error:
            raise LspError(f"The editor's language server could not be reached: {error}") from error

    async def _remember(self, path: Path, baseline: _Baseline) -> None:
        """Remembers the diagnostics of the file before it is changed."""
        try:
            baseline.diagnostics = await self._of(path)
        except (AgentError, TimeoutError) as error:
            log.info("%s: what the editor knows is not known: %s", path, error)
        baseline.known.set()

    async def _of(self, path: Path) -> list[lsp.Diagnostic]:
        report = await self._client.diagnostics(uri_of(path))
        return [item for file in report.items if file.uri == uri_of(path) for item in file.diagnostics]

    async def _new_in_editor(self, before: Document | None, after: Document) -> NewErrors:
        baseline = self._before.pop(after.path, None)
        known: list[lsp.Diagnostic] = []
        with anyio.move_on_after(self.config.edit_wait):
            if before is not None:
                if baseline is None or baseline.text != before.text:
                    return NewErrors()
                await baseline.known.wait()
                if baseline.diagnostics is None:
                    return NewErrors()
                known = baseline.diagnostics
            with anyio.move_on_after(EDITOR_WAIT if self._client.publishes_diagnostics else EDITOR_SETTLES):
                await self._published.cache().later_than(
                    uri_of(after.path), 0 if baseline is None else baseline.revision
                )
                await anyio.sleep(EDITOR_SETTLES)
            try:
                now = await self._of(after.path)
            except (AgentError, TimeoutError) as error:
                log.info("%s: the editor's language servers were not heard: %s", after.path, error)
                return NewErrors(waiting=["the editor"])
            found = load(NEW_ERRORS)(known, now, "" if before is None else before.text, after.text)
            return NewErrors([(after.path, item) for item in found])
        return NewErrors(waiting=["the editor"])


class _Baseline:
    """The editor's diagnostics of one text of a file."""

    def __init__(self, text: str, revision: int) -> None:
        self.text = text
        self.revision = revision
        self.diagnostics: list[lsp.Diagnostic] | None = None
        self.known = anyio.Event()
