"""The agent's own language servers: which are asked about a file, and their combined answers.

One server for each row of the table and workspace folder, started when first needed. All run in tasks of `run`, which
stops them. This module is loaded lazily, since it imports pygls.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import anyio
import anyio.to_thread
from anyio.abc import TaskGroup
from lsprotocol import types
from msgspec.structs import replace

from acp_agent.config.language_settings import LspConfig
from acp_agent.lsp import answers
from acp_agent.lsp.base import Document, Launcher, LspError, NewErrors, Report
from acp_agent.lsp.known_servers import PYTHON_TYPES, ServerRow, interpreter, language_of, rows, where, which
from acp_agent.lsp.language_server import Server, ServerState
from acp_agent.lsp.looking import PATIENCE, SILENCES, Looking, Silent
from acp_agent.lsp.server_documents import MOST_OPEN, OpenDocument
from acp_agent.lsp.uris import path_of, uri_of
from acp_agent.schema import lsp_types as lsp

log = logging.getLogger(__name__)

T = TypeVar("T")

STOP = 1.2
"""Seconds for all servers to end."""
AT_ONCE = 8
"""Files whose diagnostics are requested concurrently."""
ONCE_IN = 5
"""After this many edits without a response from a server, the next edit waits for it as usual."""

HIDDEN = "the rename would also change a file that must not be read; nothing is changed"

Pair = tuple[Server, str]
"""A server and its language id for the file."""


class OwnServers:
    """Implements `LanguageServices`. Nothing is started before `run` runs; earlier requests wait for it."""

    def __init__(
        self,
        config: LspConfig,
        folders: Sequence[Path],
        launch: Launcher,
        *,
        environ: Mapping[str, str],
        hides: Callable[[Path], bool],
        tell: Callable[[str], None],
    ) -> None:
        """`folders`: the session's, its working folder first. `hides`: whether a path must not be read. `tell`: takes a
        sentence for the user when a server has failed for good."""
        self._config = config
        self._rows = rows(config)
        self._folders = list(folders)
        self._launch = launch
        self._environ = environ
        self._hides = hides
        self._tell = tell
        self._servers: dict[tuple[str, Path], Server] = {}
        self._tasks: TaskGroup | None = None
        self._early: list[Callable[[], Coroutine[Any, Any, None]]] = []
        """Work to start once `run` runs."""
        self._ended = False

    # --- lifetime ---------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Keeps the servers running until cancelled, then stops them."""
        stop = anyio.Event()
        async with anyio.create_task_group() as tasks:
            # Shielded as a whole: a server is shut down while its own tasks still work.
            tasks.start_soon(self._host, stop)
            try:
                await anyio.sleep_forever()
            finally:
                self._ended = True
                stop.set()

    async def _host(self, stop: anyio.Event) -> None:
        try:
            with anyio.CancelScope(shield=True):
                async with anyio.create_task_group() as tasks:
                    self._tasks = tasks
                    for work in self._early:
                        tasks.start_soon(work)
                    self._early.clear()
                    await stop.wait()
                    tasks.cancel_scope.deadline = anyio.current_time() + STOP
                    for server in self._servers.values():
                        server.stop()
        finally:
            self._tasks = None

    def _soon(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        if self._ended:
            return
        if self._tasks is None:
            self._early.append(work)
        else:
            self._tasks.start_soon(work)

    def states(self) -> list[ServerState]:
        return [server.state for server in self._servers.values()]

    # --- selection --------------------------------------------------------------------------------------------

    def knows(self, path: Path) -> bool:
        return any(language_of(row, path) for row in self._rows)

    def _pairs(self, document: Document) -> list[Pair]:
        """Returns the servers for the document, started if needed. Raises LspError if there are none, saying why."""
        path = document.path
        if self._hides(path):
            raise LspError(f"{path} must not be read, so it is not sent to a language server")
        size = len(document.text)
        if size > self._config.max_file_bytes or size * 4 > self._config.max_file_bytes < _size(document.text):
            raise LspError(
                f"{path} has more than {self._config.max_file_bytes} bytes (lsp.max_file_bytes) and is not sent to a "
                "language server"
            )
        wanted = [(row, language) for row in self._rows if (language := language_of(row, path))]
        if not wanted:
            raise LspError(
                f"no language server is known for files like {path.name}; you can configure one in lsp.servers"
            )
        pairs: list[Pair] = []
        groups: set[str] = set()
        missing: list[str] = []
        refused: LspError | None = None
        for row, language in wanted:
            if row.group and row.group in groups:
                continue
            try:
                server = self._server(row, path)
            except LspError as error:
                refused = error
                continue
            if server is None:
                missing.append(row.command[0])
                continue
            groups.add(row.group)
            pairs.append((server, language))
        if not pairs and refused is not None:
            raise refused
        if not pairs:
            raise LspError(
                f"no language server for files like {path.name} is installed; looked for: {', '.join(missing)}. "
                "Search with `grep` instead"
            )
        return pairs

    def _server(self, row: ServerRow, path: Path) -> Server | None:
        """Returns None if it is not installed. Raises LspError if there are too many servers already."""
        folder = where(path, self._folders, row.root_markers)
        if server := self._servers.get((row.name, folder)):
            return server
        inside = [top for top in self._folders if folder.is_relative_to(top)]
        top = max(inside or self._folders[:1], key=lambda top: len(top.parts))
        program = which(row.command[0], path.parent, top, self._environ)
        if program is None:
            return None
        if self._ended:
            raise LspError("the session's language servers were stopped")
        if sum(server.alive for server in self._servers.values()) >= self._config.max_servers:
            raise LspError(
                f"{self._config.max_servers} language servers are already running (lsp.max_servers); "
                f"{row.name} for {folder} was not started"
            )
        if row.group == PYTHON_TYPES and "python" not in row.settings and (own := interpreter(folder, top)):
            row = replace(row, settings={**row.settings, "python": {"pythonPath": own}})
        server = Server(row, program, folder, self._launch, self._config, hides=self._hides, tell=self._tell)
        self._servers[row.name, folder] = server
        self._soon(server.run)
        return server

    # --- errors -----------------------------------------------------------------------------------------------

    def watch(self, document: Document) -> None:
        try:
            pairs = self._pairs(document)
        except LspError as error:
            log.debug("%s", error)
            return
        for server, language in pairs:
            opened = server.documents.get(document.path)
            current = opened is not None and opened.seen and opened.text == document.text
            if server.alive and not current and (opened is None or not opened.users):
                self._soon(partial(self._look, server, language, document))

    async def _look(self, server: Server, language: str, document: Document) -> None:
        """Runs in the background: its results are there when somebody asks."""
        with anyio.move_on_after(self._config.start_timeout + self._config.request_timeout):
            try:
                await Looking(server, self._config).look(language, document)
            except LspError as error:
                log.debug("%s", error)

    async def new_errors(self, before: Document | None, after: Document) -> NewErrors:
        if not self._config.edit_wait:
            for server in self._servers.values():
                server.update(after)
            return NewErrors()
        larger = after if before is None or len(before.text) < len(after.text) else before
        try:
            pairs = self._pairs(larger)
        except LspError as error:
            log.debug("%s", error)
            return NewErrors()
        found: dict[str, list[tuple[Path, lsp.Diagnostic]]] = {}
        waiting = {server.name for server, _ in pairs if server.alive}

        async def ask(server: Server, language: str) -> None:
            if server.hangs:
                waiting.discard(server.name)
                server.update(after)
                return
            tired = server.in_vain >= SILENCES and server.in_vain % ONCE_IN
            with anyio.move_on_after(PATIENCE if tired else None):
                try:
                    found[server.name] = await Looking(server, self._config).edited(language, before, after, saved)
                except Silent:
                    return
                except LspError as error:
                    log.info("%s", error)
                waiting.discard(server.name)

        try:
            with anyio.move_on_after(self._config.edit_wait):
                saved = await anyio.to_thread.run_sync(_is_saved, after, abandon_on_cancel=True)
                async with anyio.create_task_group() as tasks:
                    for server, language in pairs:
                        tasks.start_soon(ask, server, language)
        finally:
            for server, _ in pairs:
                server.in_vain = server.in_vain + 1 if server.name in waiting else 0
                if server.in_vain:
                    self._soon(server.check)
        order = [server.name for server, _ in pairs]
        errors = [each for name in order for each in found.get(name, ())]
        errors.sort(key=lambda each: each[0] != after.path)
        return NewErrors(tuple(errors), tuple(name for name in order if name in waiting))

    async def diagnostics(self, documents: Sequence[Document]) -> Report:
        known: dict[Path, list[lsp.Diagnostic]] = {}
        sources: dict[str, None] = {}
        trouble: dict[str, None] = {}
        limit = anyio.CapacityLimiter(AT_ONCE)
        unanswered: set[tuple[str, Path]] = set()

        async def look(server: Server, language: str, document: Document) -> None:
            async with limit:
                unanswered.add((server.name, document.path))
                try:
                    await server.started()
                    items = await Looking(server, self._config).look(language, document)
                except LspError as error:
                    trouble[str(error)] = None
                else:
                    sources[server.name] = None
                    known.setdefault(document.path, []).extend(items)
                unanswered.discard((server.name, document.path))

        seconds = self._config.start_timeout + self._config.request_timeout
        with anyio.move_on_after(seconds) as scope:
            async with anyio.create_task_group() as tasks:
                for document in documents:
                    try:
                        pairs = self._pairs(document)
                    except LspError as error:
                        trouble[str(error)] = None
                        continue
                    for server, language in pairs:
                        tasks.start_soon(look, server, language, document)
        if scope.cancelled_caught:
            names = ", ".join(sorted({name for name, _ in unanswered}))
            trouble[f"not all diagnostics came within {seconds:g} s: {names} did not answer"] = None
        if trouble and not sources:
            raise LspError("; ".join(trouble))
        items = [
            lsp.FileDiagnostics(
                uri_of(path), sorted(known[path], key=lambda item: (item.range.start.line, item.severity))
            )
            for path in dict.fromkeys(document.path for document in documents)
            if path in known
        ]
        return Report(tuple(items), tuple(sources), tuple(trouble))

    # --- requests ---------------------------------------------------------------------------------------------

    async def definition(self, document: Document, at: lsp.Position) -> list[lsp.Location]:
        async def ask(server: Server, opened: OpenDocument) -> list[lsp.Location]:
            params = types.DefinitionParams(opened.identifier, _position(at))
            return answers.locations(await server.ask(types.TEXT_DOCUMENT_DEFINITION, params))

        return self._visible(await self._all(document, "definitionProvider", "definitions", ask))

    async def references(self, document: Document, at: lsp.Position) -> list[lsp.Location]:
        async def ask(server: Server, opened: OpenDocument) -> list[lsp.Location]:
            params = types.ReferenceParams(types.ReferenceContext(True), opened.identifier, _position(at))
            return answers.locations(await server.ask(types.TEXT_DOCUMENT_REFERENCES, params))

        return self._visible(await self._all(document, "referencesProvider", "references", ask))

    async def hover(self, document: Document, at: lsp.Position) -> lsp.Hover | None:
        async def ask(server: Server, opened: OpenDocument) -> lsp.Hover | None:
            params = types.HoverParams(opened.identifier, _position(at))
            return answers.hover(await server.ask(types.TEXT_DOCUMENT_HOVER, params))

        found = await self._all(document, "hoverProvider", "hovers", ask)
        return next((each for each in found if each is not None), None)

    async def document_symbols(self, document: Document) -> list[lsp.DocumentSymbol]:
        async def ask(server: Server, opened: OpenDocument) -> list[lsp.DocumentSymbol]:
            params = types.DocumentSymbolParams(opened.identifier)
            return answers.document_symbols(await server.ask(types.TEXT_DOCUMENT_DOCUMENT_SYMBOL, params))

        found = await self._all(document, "documentSymbolProvider", "symbols", ask)
        return next((each for each in found if each), [])

    async def workspace_symbols(self, query: str, near: Document | None = None) -> list[lsp.WorkspaceSymbol]:
        servers = [server for server in self._servers.values() if server.alive]
        if near is not None:
            pairs = self._pairs(near)
            servers = list(dict.fromkeys([*servers, *(server for server, _ in pairs)]))
            for server, language in pairs:  # Some servers look for a project only once a file is open.
                await server.shown(language, near)
        if not servers:
            raise LspError("no language server is running yet: name a file in the language you mean")

        async def ask(server: Server) -> list[lsp.WorkspaceSymbol]:
            params = types.WorkspaceSymbolParams(query)
            return answers.workspace_symbols(await server.ask(types.WORKSPACE_SYMBOL, params))

        found = await self._together(servers, "workspaceSymbolProvider", "symbols of a workspace", ask)
        return [item for each in found for item in each if not self._hidden(item.location.uri)]

    async def rename(
        self, document: Document, at: lsp.Position, new_name: str, others: Sequence[Document] = ()
    ) -> lsp.WorkspaceEdit:
        async def ask(server: Server, opened: OpenDocument) -> lsp.WorkspaceEdit:
            await self._show(server, others)
            nothing = LspError(
                f"there is nothing to rename at line {at.line + 1}, character {at.character + 1} of {document.path}"
            )
            if server.detail("renameProvider", "prepareProvider"):
                prepare = types.PrepareRenameParams(opened.identifier, _position(at))
                if await server.ask(types.TEXT_DOCUMENT_PREPARE_RENAME, prepare) is None:
                    raise nothing
            params = types.RenameParams(opened.identifier, _position(at), new_name)
            edit = answers.workspace_edit(await server.ask(types.TEXT_DOCUMENT_RENAME, params))
            if not edit.changes:
                raise nothing
            return edit

        found = await self._all(document, "renameProvider", "renames", ask, most=1)
        for uri in found[0].changes:
            if self._hidden(uri):
                raise LspError(HIDDEN)
        return found[0]

    async def _show(self, server: Server, others: Sequence[Document]) -> None:
        """Opens the documents; if they are too many, not the saved ones, which the server reads from disk itself."""
        shown, read = [], []
        for other in others:
            if self._hides(other.path):
                raise LspError(HIDDEN)
            saved = await anyio.to_thread.run_sync(_is_saved, other)
            language = language_of(server.row, other.path)
            known = server.documents.get(other.path) is not None
            if language and (known or not saved or len(others) < MOST_OPEN):
                shown.append((language, other))
            elif saved:
                read.append(types.FileEvent(uri_of(other.path), types.FileChangeType.Changed))
            if (not language and not saved) or len(shown) >= MOST_OPEN:
                raise LspError(f"the rename would change {other.path}, which must be saved first")
        if server.client is not None and read:
            server.client.tell(types.WORKSPACE_DID_CHANGE_WATCHED_FILES, types.DidChangeWatchedFilesParams(read))
        for language, other in shown:
            await server.shown(language, other)

    async def _all(
        self,
        document: Document,
        capability: str,
        what: str,
        ask: Callable[[Server, OpenDocument], Awaitable[T]],
        most: int | None = None,
    ) -> list[T]:
        """Returns the answers of the document's servers, the first `most` that offer it. Raises LspError if none do."""
        languages = dict(self._pairs(document))

        async def show_and_ask(server: Server) -> T:
            return await ask(server, await server.shown(languages[server], document))

        return await self._together(list(languages), capability, what, show_and_ask, most)

    async def _together(
        self,
        servers: Sequence[Server],
        capability: str,
        what: str,
        ask: Callable[[Server], Awaitable[T]],
        most: int | None = None,
    ) -> list[T]:
        given: dict[Server, T] = {}
        errors: list[LspError] = []

        async def begin(server: Server) -> None:
            try:
                await server.started()
            except LspError as error:
                errors.append(error)

        async def one(server: Server) -> None:
            try:
                given[server] = await ask(server)
            except LspError as error:
                errors.append(error)

        async with anyio.create_task_group() as tasks:
            for server in servers:
                tasks.start_soon(begin, server)
        able = [server for server in servers if server.state.state == "ready" and server.offers(capability)][:most]
        async with anyio.create_task_group() as tasks:
            for server in able:
                tasks.start_soon(one, server)
        if given:
            return [given[server] for server in able if server in given]
        if errors:
            raise errors[0]
        raise LspError(f"no language server here provides {what} ({', '.join(server.name for server in servers)})")

    def _visible(self, found: Sequence[Sequence[lsp.Location]]) -> list[lsp.Location]:
        every = dict.fromkeys(item for each in found for item in each)
        return [item for item in every if not self._hidden(item.uri)]

    def _hidden(self, uri: str) -> bool:
        path = path_of(uri)
        return path is not None and self._hides(path)


def _position(at: lsp.Position) -> types.Position:
    return types.Position(at.line, at.character)


def _size(text: str) -> int:
    return len(text.encode("utf-8", "replace"))


def _is_saved(document: Document) -> bool:
    """Whether the file on disk has this text."""
    try:
        if not document.path.is_file() or document.path.stat().st_size > 4 * len(document.text) + 16:
            return False
        text = document.path.read_bytes().decode("utf-8-sig", "replace")
    except OSError:
        return False
    return text.replace("\r\n", "\n") == document.text.removeprefix("\ufeff").replace("\r\n", "\n")
