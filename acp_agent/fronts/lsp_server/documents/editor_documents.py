"""The editor's open documents as it reports them: their current texts, saved or not."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import quote

import anyio
from lsprotocol.types import DidChangeTextDocumentParams, Range, TextDocumentContentChangePartial, TextDocumentItem
from msgspec import Struct, field

from acp_agent.fronts.lsp_server.documents.text_positions import Encoding, Text
from acp_agent.lsp import uris

LARGEST = 16 * 1024 * 1024
"""Maximum size of a file that is compared with its document."""

OnEdit = Callable[[Path, Range, str, bool], None]
"""Called with the replaced range of the old text, the new text, and whether we requested the change."""


def path_of(uri: str) -> Path | None:
    """The file that a URI names; `None` if it names none (an untitled buffer)."""
    path = uris.path_of(uri)
    return None if path is None else Path(os.path.normpath(path))


def uri_of(path: Path) -> str:
    return "file://" + quote(str(path).encode("utf-8", "surrogatepass"))


def text_of_file(path: Path) -> str | None:
    """A regular file's text, if it is text of an editable size; else `None`."""
    try:
        found = path.stat()
        if not stat.S_ISREG(found.st_mode) or found.st_size > LARGEST:
            return None
        return path.read_bytes().decode("utf-8", "replace")
    except (OSError, ValueError):
        return None


def same_text(one: str | None, other: str) -> bool:
    """Compares ignoring line endings: some editors always report `\\n`."""
    return one is not None and plain_ends(one) == plain_ends(other)


def plain_ends(text: str) -> str:
    return text.removeprefix("\ufeff").replace("\r\n", "\n")


class Document(Struct):
    uri: str
    path: Path | None
    version: int
    language: str
    told: Text
    """As last reported by the editor."""
    applied: Text | None = None
    """The text the editor confirmed for our edit, until it sends the change itself."""
    expected: Text | None = None
    """The text after the last edit that was requested from the editor."""
    clean: str | None = None
    """The text when it was last known to equal the file; `None`: it never was."""
    saves: int = 0
    news: anyio.Event = field(default_factory=anyio.Event)
    """Set, and replaced, when the editor reports anything about it."""

    @property
    def now(self) -> Text:
        return self.told if self.applied is None else self.applied

    def heard(self) -> None:
        self.news.set()
        self.news = anyio.Event()


class Documents:
    def __init__(self) -> None:
        self.encoding: Encoding = "utf-16"
        self.on_edit: OnEdit | None = None
        self._open: dict[str, Document] = {}
        self._by_path: dict[str, Document] = {}

    def __iter__(self) -> Iterator[Document]:
        return iter(self._open.values())

    def get(self, uri: str) -> Document | None:
        """The open document with this URI, however it is spelled."""
        document = self._open.get(uri)
        if document is not None:
            return document
        path = path_of(uri)
        return None if path is None else self.of(path)

    def of(self, path: Path) -> Document | None:
        """The open document of a file, under any of its names."""
        try:
            return self._by_path.get(str(path)) or self._by_path.get(os.path.realpath(path))
        except ValueError:  # No file can have such a name.
            return None

    def uri(self, path: Path) -> str:
        """The URI as the editor spells it, if it has the file open."""
        document = self.of(path)
        return uri_of(path) if document is None else document.uri

    def open(self, item: TextDocumentItem) -> Document:
        """Reopening a document replaces its text."""
        self.close(item.uri)
        path = path_of(item.uri)
        document = Document(item.uri, path, item.version, str(item.language_id), Text(item.text, self.encoding))
        if path is not None and same_text(text_of_file(path), item.text):
            document.clean = item.text
        self._open[item.uri] = document
        if path is not None:
            self._by_path[os.path.realpath(path)] = document
            self._by_path[str(path)] = document
        return document

    def change(self, params: DidChangeTextDocumentParams) -> Document | None:
        """Returns `None` if it is not open."""
        document = self.get(params.text_document.uri)
        if document is None:
            return None
        edits = []
        for change in params.content_changes:
            before = document.told
            if isinstance(change, TextDocumentContentChangePartial):
                document.told = before.changed(change.range, change.text)
                edits.append((change.range, change.text))
            else:
                document.told = Text(change.text, self.encoding)
        ours = document.expected is not None and document.expected.text == document.told.text
        for where, new in edits:
            if self.on_edit is not None and document.path is not None:
                self.on_edit(document.path, where, new, ours)
        document.version = params.text_document.version
        document.applied = None
        document.heard()
        return document

    def saved(self, uri: str) -> Document | None:
        document = self.get(uri)
        if document is not None:
            document.saves += 1
            document.clean = document.told.text
            document.heard()
        return document

    def close(self, uri: str) -> None:
        document = self.get(uri)
        if document is None:
            return
        del self._open[document.uri]
        for key in [key for key, other in self._by_path.items() if other is document]:
            del self._by_path[key]
        document.heard()
