"""The documents that one server has open, and what it said of files. Without waiting: `language_server` does that.

A document is remembered when it was not sent yet (the server is starting, or being started again) and sent then.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
from lsprotocol import types

from acp_agent.lsp.uris import uri_of
from acp_agent.schema.lsp_types import Diagnostic

MOST_OPEN = 64
"""Documents of a server at once; the one not used for longest is closed."""
MOST_FILES = 1000
"""Files whose diagnostics are kept."""

Tell = Callable[[str, Any], None]


@dataclass
class OpenDocument:
    path: Path
    language: str
    text: str
    version: int = 1
    sent: bool = False
    """Whether the server, as it runs now, has it open."""
    pushes: int = 0
    """Publications that may speak of this version."""
    waited: bool = False
    """Whether it was waited for in vain: the server may publish only what has changed."""
    seen: bool = False
    """Whether its diagnostics are known, for this version or one before."""
    lock: anyio.Lock = field(default_factory=anyio.Lock)
    """Held by who changes the text to ask about it."""
    users: int = 0
    """Who hold the lock, or wait for it."""

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
        """The one used last at the end."""
        self._pushed: dict[Path, Sequence[Diagnostic]] = {}
        self._pulled: dict[Path, Sequence[Diagnostic]] = {}
        self.silences = 0
        """Edits in a row after which nothing was published."""
        self.only_pulled = False
        """Whether published diagnostics add nothing to what is already known."""

    def __iter__(self) -> Iterator[OpenDocument]:
        """The one used last first."""
        return iter(list(reversed(self._open.values())))

    def get(self, path: Path) -> OpenDocument | None:
        return self._open.get(path)

    def take(self, path: Path, language: str) -> OpenDocument:
        """The document, whether or not it is open yet; it is the one used last."""
        document = self._open.pop(path, None) or OpenDocument(path, language, "")
        self._open[path] = document
        return document

    @asynccontextmanager
    async def using(self, path: Path, language: str) -> AsyncIterator[OpenDocument]:
        """The same for one user at a time, who may change its text; it is not closed meanwhile."""
        document = self.take(path, language)
        document.users += 1
        try:
            async with document.lock:
                yield document
        finally:
            document.users -= 1

    def show(self, document: OpenDocument, text: str, tell: Tell | None) -> None:
        """Makes the text known to the server; None: once it is there."""
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
        """To a server that was started."""
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
        """Takes what the server published, all of the file."""
        self._keep(self._pushed, path, items)
        document = self._open.get(path)
        current = document is not None and document.sent and (version is None or version >= document.version)
        if document is not None and current:
            document.pushes += 1
            document.seen = True
            self.silences = 0

    def pulled(self, path: Path, items: Sequence[Diagnostic]) -> None:
        """Takes what the server answered, all of the file."""
        self._keep(self._pulled, path, items)
        if document := self._open.get(path):
            document.seen = True

    def of(self, path: Path) -> list[Diagnostic]:
        """Returns the diagnostics of the file, each once."""
        pushed = () if self.only_pulled else self._pushed.get(path, ())
        return list(dict.fromkeys([*self._pulled.get(path, ()), *pushed]))

    def known(self) -> dict[Path, list[Diagnostic]]:
        """Returns the diagnostics of all files: those published, and those that were looked at while open."""
        paths = self._pulled if self.only_pulled else {**self._pushed, **self._pulled}
        return {path: self.of(path) for path in paths}

    def _keep(self, into: dict[Path, Sequence[Diagnostic]], path: Path, items: Sequence[Diagnostic]) -> None:
        into.pop(path, None)
        if not self._hides(path):
            into[path] = items
        while len(into) > MOST_FILES:
            del into[next(iter(into))]


def _clean(text: str) -> str:
    """Without half surrogates, which are no text; of the same length."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return "".join("�" if "\ud800" <= char <= "\udfff" else char for char in text)
    return text
