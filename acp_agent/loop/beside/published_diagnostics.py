"""Diagnostics of the editor's language servers: stored as published, requested if a prompt mentions them.

`@diagnostics` or `@problems` in a prompt appends the current diagnostics, from the editor if it answers
`_lsp/diagnostics`, otherwise those it has published.
"""

from __future__ import annotations

import logging
import re
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence

import anyio

from acp_agent.errors import AgentError
from acp_agent.lsp.base import LspError, Report
from acp_agent.lsp.uris import path_of
from acp_agent.protocol.client import Client
from acp_agent.safety.folders.paths import Roots
from acp_agent.schema.acp import ContentBlock, TextContent
from acp_agent.schema.lsp_types import Diagnostic, DidSave, FileDiagnostics, PublishDiagnostics

log = logging.getLogger(__name__)

MENTION = re.compile(r"(?<![\w@./+-])@(?:diagnostics|problems)(?![\w/-]|\.\w)")
SEVERITIES = {1: "error", 2: "warning", 3: "information", 4: "hint"}
MAX_MESSAGE_CHARS = 1_000
MOST_REVISIONS = 10_000

NONE = "The editor reports no diagnostics in the folders of this session."


class DiagnosticsCache:
    """The newest diagnostics of at most `files` files, `per_file` of each; the oldest is dropped first."""

    def __init__(self, *, files: int, per_file: int) -> None:
        self._files = files
        self._per_file = per_file
        self._known: OrderedDict[str, FileDiagnostics] = OrderedDict()
        self._revisions: dict[str, int] = {}
        self._changed = anyio.Event()

    def revision(self, uri: str) -> int:
        """How often the diagnostics of a file were published."""
        return self._revisions.get(uri, 0)

    async def later_than(self, uri: str, revision: int) -> None:
        """Waits until they have been published more often than that; unbounded."""
        while self.revision(uri) <= revision:
            await self._changed.wait()

    def take(self, note: PublishDiagnostics | DidSave) -> None:
        """A file without diagnostics takes no space; a saved one is of interest."""
        if isinstance(note, DidSave):
            if note.text_document.uri in self._known:
                self._known.move_to_end(note.text_document.uri)
            return
        self._known.pop(note.uri, None)
        if len(self._revisions) >= MOST_REVISIONS:
            self._revisions.clear()  # Tasks waiting for one of them time out.
        self._revisions[note.uri] = self.revision(note.uri) + 1
        self._changed.set()
        self._changed = anyio.Event()
        if note.diagnostics:
            # One more than is shown tells that there are more.
            self._known[note.uri] = FileDiagnostics(note.uri, note.diagnostics[: self._per_file + 1])
        while len(self._known) > self._files:
            self._known.popitem(last=False)

    def newest_first(self) -> list[FileDiagnostics]:
        return list(reversed(self._known.values()))


def mentions_diagnostics(blocks: Sequence[ContentBlock]) -> bool:
    """Whether the user's own text mentions `@diagnostics` or `@problems`; an e-mail address does not."""
    return any(isinstance(block, TextContent) and MENTION.search(block.text) is not None for block in blocks)


async def diagnostics_block(
    *,
    client: Client,
    cache: DiagnosticsCache | None,
    roots: Roots,
    files: int,
    per_file: int,
    own: Callable[[], Awaitable[Report]] | None = None,
) -> TextContent:
    """The current diagnostics, for the model.

    Never fails: the text says what is unavailable. `own`: asks our own language servers if the editor has none."""
    known: list[FileDiagnostics] | None = None if cache is None else cache.newest_first()
    if client.answers("_lsp/diagnostics"):
        try:
            known = (await client.diagnostics()).items
        except (AgentError, TimeoutError) as error:
            log.warning("_lsp/diagnostics: %s", error)
    if known is None and own is not None:
        said = await _of_own(own, roots, files, per_file)
    elif known is None:
        said = "The editor does not share its diagnostics; the tool `diagnostics` runs the project's checkers."
    else:
        said = _text(known, roots, files, per_file)
    return TextContent(text=f"<diagnostics>\n{said}\n</diagnostics>")


async def _of_own(own: Callable[[], Awaitable[Report]], roots: Roots, files: int, per_file: int) -> str:
    try:
        report = await own()
    except LspError as error:
        return str(error)
    none = f"{', '.join(report.sources)} report no diagnostics." if report.sources else ""
    text = _text(report.items, roots, files, per_file, none)
    return "\n".join(part for part in (text, *report.trouble) if part)


def _text(known: Sequence[FileDiagnostics], roots: Roots, files: int, per_file: int, none: str = NONE) -> str:
    """Errors first, within a file and among files; what is left out is counted."""
    shown = [(path, entry.diagnostics) for entry in known if (path := _path(entry.uri, roots)) and entry.diagnostics]
    shown.sort(key=lambda item: min(diagnostic.severity for diagnostic in item[1]))
    lines: list[str] = []
    for path, diagnostics in shown[:files]:
        ordered = sorted(diagnostics, key=lambda item: (item.severity, item.range.start.line))
        lines += [_line(path, diagnostic) for diagnostic in ordered[:per_file]]
        if len(ordered) > per_file:
            lines.append(f"{path}: more than {per_file} diagnostics; the others are left out")
    if len(shown) > files:
        lines.append(f"Diagnostics of {len(shown) - files} more files are left out.")
    return "\n".join(lines) or none


def _path(uri: str, roots: Roots) -> str:
    """The file's name for the model; empty if it is not a file of this session or must not be read."""
    path = path_of(uri)
    if path is None or not roots.contains(path) or roots.rules.hides(path):
        return ""
    return str(path.relative_to(roots.cwd)) if path.is_relative_to(roots.cwd) else str(path)


def _line(path: str, diagnostic: Diagnostic) -> str:
    start = diagnostic.range.start
    message = " ".join(diagnostic.message.split())
    message = message if len(message) <= MAX_MESSAGE_CHARS else f"{message[:MAX_MESSAGE_CHARS]}…"
    origin = " ".join(str(part) for part in (diagnostic.source, diagnostic.code) if part not in ("", None))
    severity = SEVERITIES.get(diagnostic.severity, "error")
    return f"{path}:{start.line + 1}:{start.character + 1}: {severity}: {message}" + (f" [{origin}]" if origin else "")
