"""The agent's `fs`: the editor's open documents including unsaved text, and the disk for all other files.

A write to an open document is an edit of that document (`workspace/applyEdit`), never a change to the file behind it.
The file on disk is then outdated, and commands would read it; the option `save` says what to do about that.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import anyio
import anyio.to_thread

from acp_agent.client.fs import Files
from acp_agent.client.terminals import Terminals
from acp_agent.errors import InternalError
from acp_agent.fronts.lsp_server.documents.editor_documents import Document, Documents, same_text, text_of_file
from acp_agent.fronts.lsp_server.documents.edits import Hunk, rebased, text_edits
from acp_agent.fronts.lsp_server.documents.text_positions import Text, split_lines
from acp_agent.fronts.lsp_server.lsp_editor import Editor, Kind
from acp_agent.schema import acp
from acp_agent.tools.kit.line_ends import with_ends

log = logging.getLogger(__name__)

Save = Literal["never", "client", "disk"]

SAVE_NOTIFICATION = "acpCoder/save"
CHANGED_NOTIFICATION = "acpCoder/changed"
SAVE_SECONDS = 2.0
"""How long the editor may take to save."""

KEPT_FILES = 200
KEPT_TERMINALS = 50
KEPT_CHARACTERS = 50_000

ECHO_SECONDS = 2.0
"""How long the editor may take to report a change it has made for us, before the next one is requested."""


class Buffers(Files):
    """`title_for`: the name of a write to a file in the editor (its undo list)."""

    def __init__(self, documents: Documents, editor: Editor, title_for: Callable[[Path], str]) -> None:
        super().__init__()
        self.when_to_save: Save = "never"
        self._documents = documents
        self._editor = editor
        self._title_for = title_for
        self._one_at_a_time = anyio.Lock()
        self._read: dict[Path, list[str]] = {}
        """The text the agent read last, by file: its next write is relative to that."""
        self._unsaved: dict[str, Path] = {}
        """By the URI of the document."""
        self._warned = False

    # --- files ------------------------------------------------------------------------------------------------

    async def read(self, request: acp.ReadTextFileRequest) -> acp.ReadTextFileResponse:
        path = Path(request.path)
        document = self._documents.of(path) if path.is_absolute() else None
        if document is None or await _overtaken(document, path):
            if document is not None:
                # A command has changed the file of a document without unsaved changes: use the file.
                self.tell_changed(document)
            answer = await super().read(request)
            self._know(path, answer.content if request.line is None and request.limit is None else None)
            return answer
        self._read[path] = document.now.lines
        return await Files(buffers={path: document.now.text}).read(request)

    async def write(self, request: acp.WriteTextFileRequest) -> acp.WriteTextFileResponse | None:
        path = Path(request.path)
        document = self._documents.of(path) if path.is_absolute() else None
        if document is None:
            written = await super().write(request)
            self._know(path, request.content)
            return written
        async with self._one_at_a_time:
            await self._edit(document, path, request.content)
        return acp.WriteTextFileResponse()

    def _know(self, path: Path, text: str | None) -> None:
        """Records the agent's text of a file that is not open: it may be opened, and edited, before the next
        write."""
        self._read.pop(path, None)
        if text is not None:
            self._read[path] = split_lines(text)
        while len(self._read) > KEPT_FILES:
            del self._read[next(iter(self._read))]

    async def _edit(self, document: Document, path: Path, content: str) -> None:
        wanted = split_lines(content)
        base = self._read.get(path)
        await self._echo(document)
        if base is not None and _is_dos(base) and not _is_dos(document.now.lines):
            # Read from disk; this editor reports all line ends as `\n`, and writes its own.
            base, wanted = _unix(base), _unix(wanted)
        new = not document.now.text and not await anyio.Path(path).exists()
        overtaken = await _overtaken(document, path)
        if overtaken:
            base = None  # The document is outdated, and nobody has edited it.
        was_saved = new or overtaken or await _on_disk_is(path, document.now.text)
        for attempt in (1, 2):
            before = document.now
            hunks = rebased(before.lines if base is None else base, before.lines, wanted)
            if hunks is None:
                raise InternalError(
                    f"{path} is open in the editor and was changed there in the same place since it was read; nothing "
                    "was written: read it again"
                )
            if not hunks:
                break
            told = document.told
            document.expected = _with(before, hunks)
            failure = await self._editor.apply(document, text_edits(before, hunks), self._title_for(path))
            if failure is None:
                if document.told is told:
                    document.applied = document.expected
                break
            if attempt == 2 or document.now is before:
                raise InternalError(f"the editor did not change {path}: {failure}")
        self._read[path] = document.now.lines
        if await _on_disk_is(path, document.now.text):
            return
        self._unsaved[document.uri] = path
        if was_saved:
            await self._save(document, path)

    def tell_changed(self, document: Document) -> None:
        """Lets an editor that supports it reload what was changed behind it."""
        if self.when_to_save == "client":
            self._editor.notify(CHANGED_NOTIFICATION, {"uri": document.uri})

    async def look_for_changes(self) -> None:
        """Called after a command: finds documents whose files it has changed."""
        for document in list(self._documents):
            if document.path is not None and await _overtaken(document, document.path):
                self.tell_changed(document)

    async def _echo(self, document: Document) -> None:
        with anyio.move_on_after(ECHO_SECONDS):
            while document.applied is not None:
                await document.news.wait()

    # --- saving -----------------------------------------------------------------------------------------------

    async def _save(self, document: Document, path: Path) -> None:
        """Saves only documents without unsaved changes: the user's own changes stay theirs to save."""
        if self.when_to_save == "client":
            saves = document.saves
            self._editor.notify(SAVE_NOTIFICATION, {"uri": document.uri})
            with anyio.move_on_after(SAVE_SECONDS):
                while document.saves == saves:
                    await document.news.wait()
        elif self.when_to_save == "disk":
            try:
                await anyio.Path(path).write_bytes(await _as_on_disk(path, document.now.text))
                self._unsaved.pop(document.uri, None)
            except OSError as error:
                log.warning("%s could not be saved: %s", path, error.strerror)

    def saved(self, uri: str) -> None:
        """Called when the editor has saved a document, or closed it."""
        self._unsaved.pop(uri, None)

    def new_turn(self) -> None:
        self._warned = False

    def forget(self) -> None:
        """For another session, which has read nothing yet."""
        self._read.clear()

    async def warn_of_unsaved(self) -> None:
        """Warns once per turn if a command is about to read files that differ from what the agent assumes."""
        names = []
        for uri, path in list(self._unsaved.items()):
            document = self._documents.get(uri)
            if document is None or await _on_disk_is(path, document.now.text):
                del self._unsaved[uri]
            else:
                names.append(path.name)
        if names and not self._warned:
            self._warned = True
            self._editor.say(f"Save {', '.join(names)}: commands see the file on disk.", Kind.Warning)


class WarnedTerminals(Terminals):
    """Local processes, with a warning before they read files whose documents are not saved.

    The end of a released terminal's output is kept: a call's end may be reported later.
    """

    def __init__(self, buffers: Buffers) -> None:
        super().__init__()
        self._buffers = buffers
        self._said: dict[tuple[str, str], str] = {}

    async def create(self, request: acp.CreateTerminalRequest) -> acp.CreateTerminalResponse:
        await self._buffers.warn_of_unsaved()
        return await super().create(request)

    async def release(self, request: acp.ReleaseTerminalRequest) -> acp.ReleaseTerminalResponse:
        self._said[request.session_id, request.terminal_id] = self.said(request.session_id, request.terminal_id)
        while len(self._said) > KEPT_TERMINALS:
            del self._said[next(iter(self._said))]
        await self._buffers.look_for_changes()
        return await super().release(request)

    def said(self, session_id: str, terminal_id: str) -> str:
        """The output of a terminal so far; empty for an unknown one."""
        terminal = self._open.get((session_id, terminal_id))
        if terminal is None:
            return self._said.get((session_id, terminal_id), "")
        terminal.drain()
        text = terminal.text()
        more = len(text) - KEPT_CHARACTERS
        return text if more <= 0 else f"[... {more} characters before ...]\n{text[-KEPT_CHARACTERS:]}"


def _is_dos(lines: list[str]) -> bool:
    return any(line.endswith("\r\n") for line in lines)


def _unix(lines: list[str]) -> list[str]:
    return [f"{line[:-2]}\n" if line.endswith("\r\n") else line for line in lines]


def _with(before: Text, hunks: list[Hunk]) -> Text:
    lines = list(before.lines)
    for hunk in reversed(hunks):
        lines[hunk.start : hunk.end] = hunk.lines
    return Text("".join(lines), before.encoding)


async def _overtaken(document: Document, path: Path) -> bool:
    """Whether the file has changed since the document equalled it, and the document has not."""
    now = document.now.text
    on_disk = await anyio.to_thread.run_sync(text_of_file, path)
    if same_text(on_disk, now):
        document.clean = now
    return on_disk is not None and not same_text(on_disk, now) and document.clean == now


async def _on_disk_is(path: Path, text: str) -> bool:
    """Whether the file has this text, ignoring line ends: some editors always report `\\n`."""
    try:
        data = await anyio.Path(path).read_bytes()
    except OSError:
        return False
    return data.decode("utf-8", "replace").removeprefix("\ufeff").replace("\r\n", "\n") == text.replace("\r\n", "\n")


async def _as_on_disk(path: Path, text: str) -> bytes:
    """`text` with the file's own line ends and byte order mark."""
    try:
        old = await anyio.Path(path).read_bytes()
    except FileNotFoundError:
        return text.encode("utf-8", "replace")
    if "\r\n" not in text:
        text = with_ends(text, old.decode("utf-8", "replace"))
    mark = b"\xef\xbb\xbf" if old.startswith(b"\xef\xbb\xbf") and not text.startswith("\ufeff") else b""
    return mark + text.encode("utf-8", "replace")
