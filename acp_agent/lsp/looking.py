"""Asks a language server for diagnostics: of a document's current text, and of what an edit has changed.

Some servers can be asked (pull), others publish when they are ready (push), with or without the version they refer to,
at once or in parts. `Looking` hides the difference. Only pull requests and `look` have timeouts: callers of `edited`
set their own.
"""

from __future__ import annotations

import logging
import math
from pathlib import Path

import anyio
from lsprotocol import types

from acp_agent.config.language_settings import LspConfig
from acp_agent.lsp import tsserver
from acp_agent.lsp.answers import diagnostics
from acp_agent.lsp.base import Document, LspError
from acp_agent.lsp.compare import new_errors
from acp_agent.lsp.language_server import Server
from acp_agent.lsp.lsp_client import Refused
from acp_agent.lsp.server_documents import OpenDocument
from acp_agent.lsp.uris import path_of
from acp_agent.schema.lsp_types import Diagnostic

log = logging.getLogger(__name__)

QUIET = 0.15
"""Seconds without a publication after which a version's diagnostics count as complete: some servers send parts."""
SILENCES = 2
"""Edits without a publication after which a server counts as silent; it may skip unchanged results."""
PATIENCE = 1.0
"""Seconds to wait for a silent server, until it publishes again."""
OTHERS = 10
"""Other open documents checked after an edit, the most recently used ones."""
OTHERS_WAIT = 0.3
"""Seconds for these."""


class Silent(LspError):
    """The server published nothing after an edit."""


class Looking:
    def __init__(self, server: Server, config: LspConfig) -> None:
        self._server = server
        self._documents = server.documents
        self._config = config

    async def look(self, language: str, document: Document) -> list[Diagnostic]:
        """Returns diagnostics of the document's current text, as far as they arrive in time. Raises LspError."""
        async with self._documents.using(document.path, language) as opened:
            self._server.show(opened, document.text)
            await self._server.ready()
            seconds = self._config.request_timeout
            with anyio.move_on_after(0 if self._is_silent_about(opened) else seconds) as scope:
                await self._settle(opened)
            opened.waited = scope.cancelled_caught
            if opened.waited and not opened.seen:
                raise LspError(
                    f"the language server {self._server.name} gave no diagnostics of {opened.path} within {seconds:g} s"
                )
            return self._documents.of(opened.path)

    async def edited(
        self, language: str, before: Document | None, after: Document, saved: bool
    ) -> list[tuple[Path, Diagnostic]]:
        """Returns the errors caused by the edit; `saved`: the disk has it. Raises LspError, Silent.

        However this ends, the server gets the text after the edit."""
        async with self._documents.using(after.path, language) as opened:
            told = False
            try:
                old: list[Diagnostic] = []
                if before is not None:
                    self._server.show(opened, before.text)
                    if not self._is_silent_about(opened):
                        await self._settle(opened)
                    old = self._documents.of(opened.path)
                else:
                    await self._server.ready()
                others = self._others(opened)
                self._edit(opened, before is None, after.text, saved)
                told = True
                await self._settle_patiently(opened)
                new = self._documents.of(opened.path)
                found = [(after.path, item) for item in new_errors(old, new, before.text if before else "", after.text)]
                await self._look_at_others(opened)
                for path, (version, items) in self._others(opened).items():
                    was, known = others.get(path, (None, ()))
                    if was == version:
                        other = self._documents.get(path)
                        text = other.text if other else ""
                        found += [(path, item) for item in new_errors(known, items, text, text)]
                return found
            finally:
                if not told:
                    unheard = opened.sent and not opened.pushes
                    self._edit(opened, before is None, after.text, saved)
                    # The server may publish nothing for a file without diagnostics: the next edit does not wait.
                    opened.waited = unheard

    def _others(self, edited: OpenDocument) -> dict[Path, tuple[int, list[Diagnostic]]]:
        """Returns the diagnostics of other files, each with its version, except files currently in use."""
        known: dict[Path, tuple[int, list[Diagnostic]]] = {}
        for path, items in self._documents.known().items():
            other = self._documents.get(path)
            if other is not edited and (other is None or not other.users):
                known[path] = (other.version if other else 0, items)
        return known

    def _edit(self, document: OpenDocument, is_new: bool, text: str, saved: bool) -> None:
        client = self._server.client
        if client is not None and saved:
            kind = types.FileChangeType.Created if is_new else types.FileChangeType.Changed
            client.tell(
                types.WORKSPACE_DID_CHANGE_WATCHED_FILES,
                types.DidChangeWatchedFilesParams(changes=[types.FileEvent(document.uri, kind)]),
            )
        self._server.show(document, text)
        if client is not None and saved:
            sync = self._server.detail("textDocumentSync", "save")
            wants_text = isinstance(sync, dict) and sync.get("includeText") is True
            client.tell(
                types.TEXT_DOCUMENT_DID_SAVE,
                types.DidSaveTextDocumentParams(document.identifier, document.text if wants_text else None),
            )

    # --- diagnostics ------------------------------------------------------------------------------------------

    @property
    def _pulls(self) -> bool:
        return bool(self._server.registered) or self._server.offers("diagnosticProvider") or self._documents.only_pulled

    @property
    def _looks_beyond(self) -> bool:
        """Whether a change to one file may change another's pull diagnostics."""
        options = [*self._server.registered.values(), self._server.capability("diagnosticProvider")]
        inter = any(isinstance(each, dict) and each.get("interFileDependencies") for each in options)
        return inter or self._documents.only_pulled

    async def _settle(self, document: OpenDocument) -> None:
        """Waits until the diagnostics are those of the document's text. Raises LspError."""
        while True:
            await self._server.ready()
            if self._pulls:
                try:
                    await self._pull(document)
                    return
                except Refused:
                    if not self._documents.only_pulled:
                        raise
                    # The server does not know the command as we do: use what it publishes.
                    self._documents.only_pulled = False
                    continue
            if not document.pushes:
                await self._server.changed.wait()
                continue
            heard = 0
            while heard != document.pushes:
                heard = document.pushes
                with anyio.move_on_after(QUIET):
                    await self._server.changed.until(lambda heard=heard: document.pushes != heard)  # type: ignore[misc]
            if document.pushes:
                return

    def _is_silent_about(self, document: OpenDocument) -> bool:
        """Whether waiting for this version already failed; a server with pull diagnostics is asked again."""
        return document.waited and not self._pulls

    async def _settle_patiently(self, document: OpenDocument) -> None:
        """The same after an edit, but only briefly if the server was silent after the last ones. Raises Silent."""
        document.waited = True
        patience = PATIENCE if self._documents.silences >= SILENCES and not self._pulls else math.inf
        self._documents.silences += 1
        with anyio.move_on_after(patience) as scope:
            await self._settle(document)
        if scope.cancelled_caught:
            raise Silent(f"the language server {self._server.name} does not respond")
        self._documents.silences = 0
        document.waited = False

    async def _pull(self, document: OpenDocument) -> None:
        if self._documents.only_pulled:
            self._documents.pulled(document.path, await tsserver.look(self._server.ask, document.uri))
            return
        identifier = self._server.detail("diagnosticProvider", "identifier") or next(
            (each.get("identifier") for each in self._server.registered.values()), None
        )
        answer = await self._server.ask(
            types.TEXT_DOCUMENT_DIAGNOSTIC,
            types.DocumentDiagnosticParams(document.identifier, identifier if isinstance(identifier, str) else None),
        )
        if not isinstance(answer, dict):
            return
        related = answer.get("relatedDocuments")
        for uri, report in related.items() if isinstance(related, dict) else ():
            path = path_of(uri)
            if path is not None and isinstance(report, dict) and report.get("kind") == "full":
                self._documents.pulled(path, diagnostics(report.get("items")))
        if answer.get("kind") != "unchanged":
            self._documents.pulled(document.path, diagnostics(answer.get("items")))

    async def _look_at_others(self, edited: OpenDocument) -> None:
        """Asks again for diagnostics of other documents that the edit may have affected, if quickly available."""
        if not self._pulls or not self._looks_beyond:
            return
        others = [each for each in self._documents if each is not edited and each.sent and each.seen]
        with anyio.move_on_after(OTHERS_WAIT):
            for other in others[:OTHERS]:
                try:
                    await self._pull(other)
                except LspError as error:
                    log.debug("%s", error)
                    return
