"""Requests to the editor. Each method checks what the editor announced; none waits forever except a question to the
user."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import anyio
from lsprotocol import types
from pygls.lsp.server import LanguageServer

from acp_agent.errors import PeerError
from acp_agent.fronts.lsp_server.documents.editor_documents import Document
from acp_agent.fronts.lsp_server.wire import Wire
from acp_agent.legible import legible

log = logging.getLogger(__name__)

ANSWER_SECONDS = 10.0
"""Timeout of requests that no user answers."""

SHOWN_LENGTH = 2_000
ASKED_LENGTH = 6_000
"""More than any question has (`questions`), so that none is cut."""
"""Characters of a message: no editor shows more."""

Kind = types.MessageType


class Editor:
    """`capabilities` are known only after `initialize`."""

    def __init__(self, server: LanguageServer, wire: Wire) -> None:
        self._server = server
        self._wire = wire
        self.capabilities = types.ClientCapabilities()
        self.name = ""
        """The name from `clientInfo`."""

    # --- capabilities -----------------------------------------------------------------------------------------

    @property
    def applies_edits(self) -> bool:
        return bool(self.capabilities.workspace and self.capabilities.workspace.apply_edit)

    @property
    def takes_versions(self) -> bool:
        """Whether an edit may state which version of a document it is for."""
        workspace = self.capabilities.workspace
        return bool(workspace and workspace.workspace_edit and workspace.workspace_edit.document_changes)

    @property
    def shows_documents(self) -> bool:
        window = self.capabilities.window
        return bool(window and window.show_document and window.show_document.support)

    @property
    def shows_progress(self) -> bool:
        return bool(self.capabilities.window and self.capabilities.window.work_done_progress)

    @property
    def refreshes_hints(self) -> bool:
        workspace = self.capabilities.workspace
        return bool(workspace and workspace.inlay_hint and workspace.inlay_hint.refresh_support)

    @property
    def refreshes_lenses(self) -> bool:
        workspace = self.capabilities.workspace
        return bool(workspace and workspace.code_lens and workspace.code_lens.refresh_support)

    @property
    def takes_action_literals(self) -> bool:
        document = self.capabilities.text_document
        return bool(document and document.code_action and document.code_action.code_action_literal_support)

    # --- notifications ----------------------------------------------------------------------------------------

    def say(self, text: str, kind: Kind = Kind.Info) -> None:
        shown = legible(text)
        shown = shown if len(shown) <= SHOWN_LENGTH else f"{shown[: SHOWN_LENGTH - 1]}…"
        self._wire.notify(types.WINDOW_SHOW_MESSAGE, types.ShowMessageParams(type=kind, message=shown))

    def notify(self, method: str, params: object) -> None:
        self._wire.notify(method, params)

    # --- requests ---------------------------------------------------------------------------------------------

    async def ask(self, method: str, params: object) -> object:
        """Raises PeerError for an error answer, or TimeoutError."""
        with anyio.fail_after(ANSWER_SECONDS):
            return await self._wire.ask(method, params)

    async def try_to_ask(self, method: str, params: object = None) -> bool:
        """Returns whether it answered without an error."""
        try:
            await self.ask(method, params)
        except (PeerError, TimeoutError) as error:
            log.info("%s: %s", method, error)
            return False
        return True

    async def apply(self, document: Document, edits: Sequence[types.TextEdit], label: str) -> str | None:
        """Returns `None` once the editor has made the edits in its document, else the reason why not."""
        if not self.applies_edits:
            return "it does not accept edits from language servers (workspace/applyEdit); nothing was written"
        # A document with a change not reported yet has no version that both sides know.
        version = document.version if document.applied is None else None
        if self.takes_versions:
            named = types.OptionalVersionedTextDocumentIdentifier(uri=document.uri, version=version)
            edit = types.WorkspaceEdit(
                document_changes=[types.TextDocumentEdit(text_document=named, edits=list(edits))]
            )
        else:
            edit = types.WorkspaceEdit(changes={document.uri: list(edits)})
        try:
            answer = await self.ask(
                types.WORKSPACE_APPLY_EDIT, types.ApplyWorkspaceEditParams(edit=edit, label=label[:200])
            )
        except PeerError as error:
            return f"{error.message}; nothing was written"
        except TimeoutError:
            return f"it did not answer within {ANSWER_SECONDS:g} s; it is unknown whether it made the change"
        if isinstance(answer, types.ApplyWorkspaceEditResult) and answer.applied:
            return None
        reason = answer.failure_reason if isinstance(answer, types.ApplyWorkspaceEditResult) else None
        return f"{reason or 'it gave no reason'}; nothing was written"

    async def choose(self, message: str, choices: Sequence[str], kind: Kind = Kind.Info) -> str | None:
        """Returns the user's choice, `None` if the question was dismissed. Waits as long as the user does.

        Raises PeerError if the editor cannot ask.
        """
        actions = [types.MessageActionItem(title=choice) for choice in choices]
        params = types.ShowMessageRequestParams(type=kind, message=legible(message)[:ASKED_LENGTH], actions=actions)
        answer = await self._wire.ask(types.WINDOW_SHOW_MESSAGE_REQUEST, params)
        title = getattr(answer, "title", None)
        return title if title in choices else None

    async def show(self, uri: str, line: int) -> bool:
        """Opens a document for the user, at the beginning of a line (from 0); returns whether the editor did."""
        if not self.shows_documents:
            return False
        try:
            place = types.Position(line, 0)
            params = types.ShowDocumentParams(uri, external=False, take_focus=True, selection=types.Range(place, place))
            answer = await self.ask(types.WINDOW_SHOW_DOCUMENT, params)
        except (PeerError, TimeoutError) as error:
            log.info("showDocument: %s", error)
            return False
        return bool(getattr(answer, "success", False))
