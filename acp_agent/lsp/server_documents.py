"""The documents open in one server, and its diagnostics of files. Never waits: `language_server` does that.

A document that could not be sent yet (the server is starting or restarting) is remembered and sent later.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
from lsprotocol import types
from msgspec import Struct, field

from acp_agent.lsp.uris import uri_of
from acp_agent.schema.lsp_types import Diagnostic

MOST_OPEN = 64
"""Open documents per server; beyond that, the least recently used is closed."""
MOST_FILES = 1000
"""Files whose diagnostics are kept."""

Tell = Callable[[str, Any], None]


class OpenDocument(Struct):
    path: Path
    language: str
    text: str
    version: int = 1
    sent: bool = False
    """Whether the currently running server process has it open."""
    pushes: int = 0
    """Number of publications that may refer to this version."""
    waited: bool = False
    """Whether waiting for it has failed: the server may publish only changes."""
    seen: bool = False
    """Whether its diagnostics are known, for this or an earlier version."""
    lock: anyio.Lock = field(default_factory=anyio.Lock)
    """Held while changing the text for a request."""
    users: int = 0
    """Number of tasks that hold the lock or wait for it."""

    @property
    def uri(self) -> str:
        return uri_of(self.path)

    @property
    def identifier(self) -> types.TextDocumentIdentifier:
        return types.TextDocumentIdentifier(uri=self.uri)


class Documents:
    def __init__(self, hides: Callable[[Path], bool]) -> None:
        self._hides = hides
        self._open: dict[Path, OpenDocument] = {}
        """The most recently used is last."""
        self._pushed: dict[Path, Sequence[Diagnostic]] = {}
        self._pulled: dict[Path, Sequence[Diagnostic]] = {}
        self.silences = 0
        """Consecutive edits after which nothing was published."""
        self.only_pulled = False
        """Whether published diagnostics add nothing to what is already known."""

    def __iter__(self) -> Iterator[OpenDocument]:
        """Iterates from the most recently used."""
        return iter(list(reversed(self._open.values())))

    def get(self, path: Path) -> OpenDocument | None:
        return self._open.get(path)

    def take(self, path: Path, language: str) -> OpenDocument:
        """Returns the document, opened or not, and marks it as most recently used."""
        document = self._open.pop(path, None) or OpenDocument(path, language, "")
        self._open[path] = document
        return document

    @asynccontextmanager
    async def using(self, path: Path, language: str) -> AsyncIterator[OpenDocument]:
        """The same for one user at a time, who may change its text; keeps it open meanwhile."""
        document = self.take(path, language)
        document.users += 1
        try:
            async with document.lock:
                yield document
        finally:
            document.users -= 1

    def show(self, document: OpenDocument, text: str, tell: Tell | None) -> None:
        """Sends the text to the server; with `tell` None, once it is running."""
        if document.text != text:
            document.text = text
            document.version += 1
            document.pushes = 0
            document.waited = False
            if document.sent and tell is not None:
                tell(
                    types.TEXT_DOCUMENT_DID_CHANGE,
                    types.DidChangeTextDocumentParams(
                        text_document=types.VersionedTextDocumentIdentifier(document.version, document.uri),
                        content_changes=[types.TextDocumentContentChangeWholeDocument(_clean(text))],
                    ),
                )
        if not document.sent and tell is not None:
            self._send(document, tell)
        for other in list(self._open.values())[: max(0, len(self._open) - MOST_OPEN)]:
            if not other.users and other is not document:
                self._close(other, tell)

    def send_all(self, tell: Tell) -> None:
        """Sends all documents to a newly started server."""
        for document in self._open.values():
            self._send(document, tell)

    def server_gone(self) -> None:
        for document in self._open.values():
            document.sent = False
            document.pushes = 0

    def _send(self, document: OpenDocument, tell: Tell) -> None:
        document.sent = True
        document.pushes = 0
        item = types.TextDocumentItem(document.uri, document.language, document.version, _clean(document.text))
        tell(types.TEXT_DOCUMENT_DID_OPEN, types.DidOpenTextDocumentParams(text_document=item))

    def _close(self, document: OpenDocument, tell: Tell | None) -> None:
        del self._open[document.path]
        self._pushed.pop(document.path, None)
        self._pulled.pop(document.path, None)
        if document.sent and tell is not None:
            tell(types.TEXT_DOCUMENT_DID_CLOSE, types.DidCloseTextDocumentParams(document.identifier))

    # --- diagnostics ------------------------------------------------------------------------------------------

    def pushed(self, path: Path, version: int | None, items: Sequence[Diagnostic]) -> None:
        """Stores published diagnostics, which are complete for the file."""
        self._keep(self._pushed, path, items)
        document = self._open.get(path)
        current = document is not None and document.sent and (version is None or version >= document.version)
        if document is not None and current:
            document.pushes += 1
            document.seen = True
            self.silences = 0

    def pulled(self, path: Path, items: Sequence[Diagnostic]) -> None:
        """Stores requested diagnostics, which are complete for the file."""
        self._keep(self._pulled, path, items)
        if document := self._open.get(path):
            document.seen = True

    def of(self, path: Path) -> list[Diagnostic]:
        """Returns the diagnostics of the file, without duplicates."""
        pushed = () if self.only_pulled else self._pushed.get(path, ())
        return list(dict.fromkeys([*self._pulled.get(path, ()), *pushed]))

    def known(self) -> dict[Path, list[Diagnostic]]:
        """Returns the diagnostics of all files: published ones, and those requested for open documents."""
        paths = self._pulled if self.only_pulled else {**self._pushed, **self._pulled}
        return {path: self.of(path) for path in paths}

    def _keep(self, into: dict[Path, Sequence[Diagnostic]], path: Path, items: Sequence[Diagnostic]) -> None:
        into.pop(path, None)
        if not self._hides(path):
            into[path] = items
        while len(into) > MOST_FILES:
            del into[next(iter(into))]


def _clean(text: str) -> str:
    """Replaces half surrogates, which are not valid text; keeps the length."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return "".join("�" if "\ud800" <= char <= "\udfff" else char for char in text)
    return text
