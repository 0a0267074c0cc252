"""Draws the board in the editor: progress, diagnostics, and refresh requests for hints and lenses.

At most ten times a second; the first change is drawn immediately and the last state always. Only what has changed since
the last drawing is sent.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import anyio
import anyio.abc
from lsprotocol import types

from acp_agent.fronts.lsp_server.documents.editor_documents import Documents
from acp_agent.fronts.lsp_server.initialization_options import Options
from acp_agent.fronts.lsp_server.lsp_editor import Editor
from acp_agent.fronts.lsp_server.progress import Progress
from acp_agent.fronts.lsp_server.status import Board, Mark
from acp_agent.loop.prompts.review_findings import Finding

SOURCE = "acp-coder"
"""The source of our diagnostics, which identifies them."""

REVIEW = "acp-coder review"
"""The source of findings: they can be fixed as others' can."""
SEVERITIES = {
    "error": types.DiagnosticSeverity.Error,
    "warning": types.DiagnosticSeverity.Warning,
    "info": types.DiagnosticSeverity.Information,
}
NOTHING: dict[Path, list[Mark]] = {}

PAUSE_SECONDS = 0.1


class Drawing:
    """`options` are read at each drawing: they are known only after `initialize`."""

    def __init__(
        self,
        editor: Editor,
        documents: Documents,
        board: Board,
        progress: Progress,
        tasks: anyio.abc.TaskGroup,
        options: Callable[[], Options],
    ) -> None:
        self._editor = editor
        self._documents = documents
        self._board = board
        self._progress = progress
        self._tasks = tasks
        self._options = options
        self._changed = anyio.Event()
        self._published: dict[str, list[types.Diagnostic]] = {}
        self._marked: dict[Path, list[Mark]] = {}
        self._refreshing: set[str] = set()
        self._stale: set[str] = set()

    def change(self) -> None:
        """Called after a change to the board or a document."""
        self._changed.set()

    async def run(self) -> None:
        while True:
            await self._changed.wait()
            self._changed = anyio.Event()
            self.draw()
            await anyio.sleep(PAUSE_SECONDS)

    def draw(self) -> None:
        self._progress.draw(self._board)
        marks = self._board.marks()
        if self._options().diagnostics:
            self._publish(marks)
        if marks != self._marked:
            self._marked = marks
            if self._editor.refreshes_hints and self._options().hints:
                self._refresh(types.WORKSPACE_INLAY_HINT_REFRESH)
            if self._editor.refreshes_lenses and self._options().lenses:
                self._refresh(types.WORKSPACE_CODE_LENS_REFRESH)

    def clear(self) -> None:
        """Removes our diagnostics from the editor."""
        self._publish(NOTHING)

    # --- diagnostics ------------------------------------------------------------------------------------------

    def _publish(self, marks: dict[Path, list[Mark]]) -> None:
        wanted = {self._documents.uri(path): self._diagnostics(path, found) for path, found in marks.items()}
        for each in self._board.findings if marks is not NOTHING else ():
            path = Path(each.path)
            wanted.setdefault(self._documents.uri(path), []).append(self._finding(path, each))
        for uri in [*self._published, *(uri for uri in wanted if uri not in self._published)]:
            diagnostics = wanted.get(uri, [])
            if diagnostics == self._published.get(uri, []):
                continue
            document = self._documents.get(uri)
            version = document.version if document is not None and document.applied is None else None
            self._editor.notify(
                types.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS,
                types.PublishDiagnosticsParams(uri=uri, diagnostics=diagnostics, version=version),
            )
        self._published = {uri: diagnostics for uri, diagnostics in wanted.items() if diagnostics}

    def _diagnostics(self, path: Path, marks: list[Mark]) -> list[types.Diagnostic]:
        return [
            types.Diagnostic(
                range=self._line(path, mark.line),
                message=mark.label,
                severity=types.DiagnosticSeverity.Information,
                source=SOURCE,
            )
            for mark in marks
        ]

    def _finding(self, path: Path, finding: Finding) -> types.Diagnostic:
        severity, text = SEVERITIES[finding.severity], finding.message
        return types.Diagnostic(
            range=self._line(path, finding.line - 1), message=text, severity=severity, source=REVIEW
        )

    def _line(self, path: Path, line: int) -> types.Range:
        """The range of a whole line; for a file that is not open, its beginning. Never past the end of the text."""
        document = self._documents.of(path)
        if document is None:
            start = types.Position(line=max(line, 0), character=0)
            return types.Range(start=start, end=start)
        text = document.now
        line = max(0, min(line, len(text.lines) - 1))
        return types.Range(start=types.Position(line=line, character=0), end=text.line_end(line))

    # --- hints and lenses -------------------------------------------------------------------------------------

    def hints(self, uri: str, where: types.Range) -> list[types.InlayHint]:
        """Hints at the ends of lines with a mark."""
        found = []
        for mark, text_range in self._marks_of(uri):
            if self._options().hints and where.start.line <= text_range.start.line <= where.end.line:
                found.append(
                    types.InlayHint(position=text_range.end, label=mark.label, padding_left=True, tooltip="acp-coder")
                )
        return found

    def lenses(self, uri: str) -> list[types.CodeLens]:
        """Lenses above lines with a mark: a running call can be stopped, an ended one has output."""
        found = []
        for mark, text_range in self._marks_of(uri):
            if not self._options().lenses:
                break
            start = types.Range(start=text_range.start, end=text_range.start)
            if mark.shown in ("waiting", "running"):
                command = types.Command(title=f"{mark.label}: stop", command="acpCoder.stop")
            else:
                command = types.Command(
                    title=f"{mark.label}: show", command="acpCoder.output", arguments=[mark.call_id]
                )
            found.append(types.CodeLens(range=start, command=command))
        return found

    def _marks_of(self, uri: str) -> list[tuple[Mark, types.Range]]:
        document = self._documents.get(uri)
        if document is None or document.path is None:
            return []
        marks = self._board.marks()
        of_file = next((found for path, found in marks.items() if self._documents.of(path) is document), [])
        return [(mark, self._line(document.path, mark.line)) for mark in of_file]

    def _refresh(self, method: str) -> None:
        """One request at a time; later changes are requested when it is answered."""
        if method in self._refreshing:
            self._stale.add(method)
            return
        self._refreshing.add(method)
        self._tasks.start_soon(self._ask_to_refresh, method)

    async def _ask_to_refresh(self, method: str) -> None:
        while True:
            self._stale.discard(method)
            await self._editor.try_to_ask(method)
            if method not in self._stale:
                break
            await anyio.sleep(PAUSE_SECONDS)
        self._refreshing.discard(method)
